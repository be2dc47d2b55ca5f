from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from vitral.config import RunConfig
from vitral.presets.runs import run
from vitral.train.fit import Run, fit


def tiny(**changes: Any) -> RunConfig:
    """A few quick steps on digits."""
    settings = {"epochs": 1.0, "batch_size": 64, "threads": 1, "device": "cpu", "evaluate_every": 0.5}
    config = run("digits", **(settings | changes))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, width=16, depth=2, heads=2, mlp_width=16, dropout=0.1))


def digest(model: torch.nn.Module) -> str:
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A whole run, undisturbed."""
    return fit(tiny(epochs=3.0, snapshots=4), out=tmp_path_factory.mktemp("runs") / "trained", quiet=True)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
