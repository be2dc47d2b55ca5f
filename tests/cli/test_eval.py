"""vitral eval: whose classes are compared with whose."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.origin import known
from vitral.build import create
from vitral.cli.eval import run
from vitral.weights.checkpoint import save


@pytest.fixture
def photos(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for index in range(6):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / name / f"{index}.png")
    return f"folder:{tmp_path}"


def model(folder: Path, *names: str) -> str:
    torch.manual_seed(0)
    made = create("tiny", classes=2)
    made.origin = dataclasses.replace(made.origin, classes=known(names))
    return str(save(made, folder / "run"))


def test_the_same_classes_need_no_word(photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([model(tmp_path_factory.mktemp("m"), "cat", "dog"), photos]) == 0
    assert "compared by their numbers" not in capsys.readouterr().err


def test_other_classes_are_told(photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([model(tmp_path_factory.mktemp("m"), "0", "1"), photos]) == 0
    assert "the model's classes are 0, 1" in capsys.readouterr().err


def test_another_order_and_no_batch_are_refused(photos: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UsageError, match="in another order"):
        run([model(tmp_path_factory.mktemp("m"), "dog", "cat"), photos])
    with pytest.raises(UsageError, match="a batch of 0 pictures"):
        run([model(tmp_path_factory.mktemp("m"), "cat", "dog"), photos, "--batch-size", "0"])
