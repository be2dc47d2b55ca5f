"""When a pass is recorded, replayed or neither; what a GPU does with it is in tests/gpu/test_replay.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from vitral.kernels import graphs


class Counted:
    """Stands for CUDA: counts recordings and replays, and computes what the graph would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorded = self.replayed = 0
        self.fails = False
        monkeypatch.setattr(graphs, "recordable", lambda images: len(images) <= graphs.LARGEST)
        monkeypatch.setattr(graphs, "record", self.record)

    def record(self, model: nn.Module, images: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1

        def again(images: torch.Tensor) -> torch.Tensor:
            self.replayed += 1
            return model(images)

        return again


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).eval()


@torch.no_grad()
def ask(model: nn.Module, count: int = 1) -> None:
    """Twice."""
    images = torch.randn(count, 3)
    found = graphs.replayed(model)(images)
    assert torch.equal(found, model(images))
    kept = found.clone()
    graphs.replayed(model)(torch.randn(count, 3))
    assert torch.equal(found, kept), "an answer is not written over by the next"


def test_recorded_the_second_time_and_replayed_from_then_on(counted: Counted, model: nn.Sequential) -> None:
    for _ in range(3):
        ask(model)
    assert (counted.recorded, counted.replayed) == (1, 5), "calls of their own find what is recorded"
    ask(model, graphs.LARGEST + 1)
    assert counted.recorded == 1, "many images are not worth it"


def test_not_after_the_weights_moved_nor_with_hooks_nor_in_training(counted: Counted, model: nn.Sequential) -> None:
    ask(model)
    ask(model)
    model[0] = nn.Linear(3, 4).eval()
    ask(model)
    assert counted.recorded == 2, "recorded anew"
    done = counted.replayed
    handle = model[2].register_forward_hook(lambda *_: None)
    ask(model)
    handle.remove()
    model.train()
    ask(model)
    assert counted.replayed == done


def test_few_shapes_and_none_that_cannot_be_recorded(counted: Counted, model: nn.Sequential) -> None:
    for count in range(1, graphs.SHAPES + 3):
        ask(model, count)
        ask(model, count)
    assert counted.recorded == graphs.SHAPES
    counted.fails, other = True, nn.Linear(3, 2).eval()
    ask(other)
    ask(other)
    assert counted.recorded == graphs.SHAPES


def test_a_cpu_and_gradients_run_as_always_and_nothing_keeps_a_model_alive(model: nn.Sequential) -> None:
    images = torch.randn(1, 3)
    with torch.no_grad():
        assert not graphs.recordable(images)
    assert graphs.replayed(model)(images).requires_grad
    before = len(graphs._RECORDINGS)
    graphs.replayed(nn.Linear(2, 2))
    assert len(graphs._RECORDINGS) == before
