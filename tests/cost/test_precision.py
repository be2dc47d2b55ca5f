from typing import get_args

import pytest
import torch

from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.config.formats import Precision, TrainingPrecision
from vitral.cost.precision import DTYPES, Answering, autocast, dtype_of, has_bf16, is_compiled, same_answers, worth_bf16

CPU = torch.device("cpu")


def test_half_precision_needs_a_gpu():
    assert dtype_of("auto", CPU) == torch.float32 and dtype_of("bf16", CPU) == torch.bfloat16
    with pytest.raises(ConfigError, match="CUDA"):
        dtype_of("fp16", CPU)


def test_autocast_is_on_for_half_precision_alone():
    for dtype, cast in ((torch.float32, False), (torch.bfloat16, True)):
        with autocast(dtype, CPU):
            assert torch.is_autocast_enabled("cpu") is cast


def test_auto_compiles_on_cuda_alone():
    assert is_compiled("auto", torch.device("cuda")) and not is_compiled("auto", CPU)
    assert is_compiled("yes", CPU) and is_compiled("max", CPU) and not is_compiled("no", torch.device("cuda"))


class Product(torch.nn.Module):
    """images @ weight, and in which dtype each call computed it."""

    def __init__(self, weight: list[list[float]]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))
        self.seen: list[torch.dtype] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = images @ self.weight
        self.seen.append(found.dtype)
        return found


@pytest.fixture(autouse=True)
def bf16(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vitral.cost.precision.has_bf16", lambda device: True)


def test_bf16_answers_only_after_a_first_batch_that_agrees(capsys: pytest.CaptureFixture[str]):
    images = torch.tensor([[1.0, 0.25], [0.5, 2.0]])
    clear = Product([[1.0, 2.0], [3.0, 0.5]])
    answer = Answering(clear, CPU)
    assert answer(images).dtype == torch.float32 and clear.seen == [torch.float32], "one batch alone is never answered twice"
    assert answer(images).dtype == torch.float32 and clear.seen[1:] == [torch.bfloat16, torch.bfloat16]
    answer(images)
    assert clear.seen[3:] == [torch.bfloat16] and answer.name == "bf16"
    assert capsys.readouterr().err.count("from here on in bf16") == 1
    tied = Product([[1.0, 1.001], [0.0, 0.0]])  # the same number in bf16
    answer = Answering(tied, CPU)
    for _ in range(3):
        answer(images)
    assert tied.seen == [torch.float32, torch.bfloat16, torch.float32, torch.float32] and answer.name == "fp32"
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("precision", "worth", "dtype"), [("fp32", True, "fp32"), ("bf16", False, "bf16"), ("auto", False, "fp32")])
def test_what_is_asked_for_is_not_checked(precision: str, worth: bool, dtype: str):
    model = Product([[1.0, 1.001], [0.0, 0.0]])
    answer = Answering(model, CPU, precision, worth=worth)  # type: ignore[arg-type]
    for _ in range(2):
        answer(torch.ones(1, 2))
    assert model.seen == [{"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]] * 2 and answer.name == dtype


def test_bf16_is_worth_it_for_a_vit_of_some_size_alone():
    with torch.device("meta"):
        assert worth_bf16(create("ti/16")) and not worth_bf16(create("digits")) and not worth_bf16(torch.nn.Linear(2, 2))


def test_features_need_the_same_direction_only():
    exact, quick = torch.tensor([[1.0, 1.0001]]), torch.tensor([[1.0001, 1.0]])
    assert same_answers(exact, quick, answers=False) and not same_answers(exact, quick)
    assert not same_answers(exact, torch.tensor([[1.0, 1.2]]), answers=False)


def test_every_number_format_that_is_named_has_a_meaning():
    named = {name for kind in (Precision, TrainingPrecision) for name in get_args(kind)}
    assert named == {"auto", *DTYPES}


def test_a_mac_computes_in_fp32_and_compiles_only_when_asked():
    mac = torch.device("mps")
    assert dtype_of("auto", mac) == torch.float32 and not has_bf16(mac)
    assert not is_compiled("auto", mac) and is_compiled("yes", mac)
    assert Answering(torch.nn.Identity(), mac).dtype == torch.float32
