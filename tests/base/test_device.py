from __future__ import annotations

import json
import os
import platform
import subprocess

import pytest
import torch

from vitral.base.device import chip, describe_machine, pick_device, refused_by_apple, set_threads, using_threads, wait_passively
from vitral.base.errors import UsageError


def test_auto_is_a_device_that_works() -> None:
    assert torch.zeros(1, device=pick_device("auto")).sum().item() == 0
    assert pick_device("cpu") == torch.device("cpu")


def test_auto_takes_the_gpu_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert pick_device("auto").type == "cuda" and not current
    assert pick_device("cuda:1").index == 1 and current == [torch.device("cuda:1")], "kernels go to the current one"
    with pytest.raises(UsageError, match="cuda:1"):
        pick_device("cuda:2")


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="CUDA"):
        pick_device("cuda")
    with pytest.raises(UsageError, match="'gpu'"):
        pick_device("gpu")


def test_threads() -> None:
    before = torch.get_num_threads()
    try:
        set_threads(1)
        assert torch.get_num_threads() == 1
        assert describe_machine()["threads"] == 1
    finally:
        set_threads(before)
    with pytest.raises(UsageError, match="at least 1"):
        set_threads(0)


def test_the_description_is_plain_and_names_versions() -> None:
    machine = json.loads(json.dumps(describe_machine()))
    assert machine["torch"] == torch.__version__
    assert machine["vitral"].count(".") == 2
    assert machine["cpu_count"] >= 1
    assert (machine["gpu"] is None) == (machine["gpu_count"] == 0)


def test_threads_are_as_before_after_the_block() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        with using_threads(None):
            assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_threads_wait_asleep_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    wait_passively()
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["KMP_BLOCKTIME"]) == ("PASSIVE", "0")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ


def mac(monkeypatch: pytest.MonkeyPatch, answer: subprocess.CompletedProcess[str] | Exception) -> list[list[str]]:
    """A Mac whose sysctl answers so; what was asked of it."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_a_mac_names_its_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = mac(monkeypatch, subprocess.CompletedProcess([], 0, "Apple M2 Pro\n", ""))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    machine = describe_machine()
    assert asked == [["sysctl", "-n", "machdep.cpu.brand_string"]]
    assert (machine["chip"], machine["gpu"], machine["gpu_count"]) == ("Apple M2 Pro", "Apple M2 Pro", 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    machine = describe_machine()
    assert (machine["chip"], machine["gpu"], machine["gpu_count"]) == ("Apple M2 Pro", None, 0)


@pytest.mark.parametrize(
    "answer",
    [
        FileNotFoundError("sysctl"),
        subprocess.TimeoutExpired("sysctl", 5),
        subprocess.CalledProcessError(1, "sysctl"),
        subprocess.CompletedProcess([], 0, "\n", ""),
    ],
    ids=["no sysctl", "too slow", "unknown name", "empty"],
)
def test_a_mac_whose_chip_has_no_name(answer: subprocess.CompletedProcess[str] | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    mac(monkeypatch, answer)
    assert chip() == "arm64"


def test_other_systems_have_no_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = mac(monkeypatch, RuntimeError("nobody asks"))
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert chip() is None and "chip" not in describe_machine() and asked == []


MISSING = (
    "The operator 'aten::_pdist_forward' is not currently implemented for the MPS device. If you want this op to be considered for "
    "addition please comment on https://github.com/pytorch/pytorch/issues/141287.\nAs a temporary fix, you can set "
    "PYTORCH_ENABLE_MPS_FALLBACK=1"
)
WIDE = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead."


@pytest.mark.parametrize(
    ("error", "cannot"),
    [
        (NotImplementedError(MISSING), "run aten::_pdist_forward"),
        (TypeError(WIDE), "compute in float64"),
        (RuntimeError("MPS: Unsupported Border padding mode"), "do this (MPS: Unsupported Border padding mode)"),
        (NotImplementedError("Could not run 'aten::geqrf' with arguments from the 'MPS' backend: [CPU, CUDA]"), "run aten::geqrf"),
        (RuntimeError("MPSGraph does not support 5D"), "do this (MPSGraph does not support 5D)"),
        (TypeError("can't convert mps:0 device type tensor"), "do this (can't convert mps:0 device type tensor)"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)"), "find enough memory"),
    ],
)
def test_what_apple_s_gpu_refuses_is_one_line_with_the_way_out(error: Exception, cannot: str) -> None:
    refused = refused_by_apple(error)
    assert str(refused) == f'PyTorch cannot {cannot} on Apple\'s GPU: use --device cpu, or device="cpu" in Python'


@pytest.mark.parametrize(
    "error",
    [
        TypeError("unsupported operand"),
        NotImplementedError("the operator is missing on SMPS"),
        RuntimeError("CUDA error: MPS client failed to connect to the MPS control daemon"),
        RuntimeError("CUDA out of memory"),
        UsageError("device MPS", "use cpu"),
    ],
)
def test_other_errors_are_not_blamed_on_the_gpu(error: Exception) -> None:
    assert refused_by_apple(error) is None
