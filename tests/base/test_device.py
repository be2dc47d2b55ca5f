from __future__ import annotations

import json
import os

import pytest
import torch

from vitral.base.device import describe_machine, pick_device, set_threads, using_threads, wait_passively
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
    with pytest.raises(UsageError, match=r"has 2 GPU\(s\): use cuda:0 to cuda:1"):
        pick_device("cuda:2")


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="sees no CUDA GPU: use auto or cpu"):
        pick_device("cuda")
    with pytest.raises(UsageError, match="unknown device 'gpu'"):
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
