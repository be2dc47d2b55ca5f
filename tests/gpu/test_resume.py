"""Stopped and gone on with, a run on a GPU ends with the same bits as one that was never disturbed."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.stops import signalled_after

from vitral.base.errors import Stopped
from vitral.config import RunConfig
from vitral.presets.runs import run
from vitral.train.fit import fit

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def short(**changes: Any) -> RunConfig:
    settings = {"epochs": 3.0, "batch_size": 64, "device": "cuda", "ema": 0.9, "mixup": 0.5, "evaluate_every": 1.0}
    config = run("digits", **(settings | changes))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, width=32, depth=2, heads=2, mlp_width=32, dropout=0.1))


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    "changes",
    [{"compile": "no", "precision": "fp32"}, {"compile": "no", "precision": "fp16"}, {"compile": "yes", "precision": "bf16"}],
    ids=["plain", "fp16 with its scaler", "compiled and recorded"],
)
def test_going_on_gives_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = short(**changes)
    whole, again = (fit(config, tmp_path / name, quiet=True) for name in ("whole", "again"))
    assert same(whole.model, again.model), "two undisturbed runs already differ: the step is not repeatable on this machine"
    with pytest.raises(Stopped, match="SIGINT"), signalled_after(31, signal.SIGINT):  # what warms up, if it compiles, counts too
        fit(config, tmp_path / "stopped", quiet=True)
    gone_on = fit(config, tmp_path / "stopped", resume=True, quiet=True)
    assert same(whole.model, gone_on.model)
    keys = ("step", "split", "loss", "accuracy", "lr")
    assert [[line[key] for key in keys] for line in whole.metrics] == [[line[key] for key in keys] for line in gone_on.metrics]


def test_it_learns_on_the_gpu_what_it_learns_on_the_cpu(tmp_path: Path) -> None:
    there = fit(short(epochs=15.0, compile="yes"), tmp_path / "there", quiet=True)
    here = fit(short(epochs=15.0, device="cpu"), tmp_path / "here", quiet=True)
    assert there.test["accuracy"] > 0.5 and abs(there.test["accuracy"] - here.test["accuracy"]) < 0.1
