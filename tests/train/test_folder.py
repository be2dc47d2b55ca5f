"""What a resumed run may change, and what it may not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError, Stopped
from vitral.config import DataConfig, RunConfig
from vitral.presets.runs import change, run
from vitral.train import engine
from vitral.train.engine import fit


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(10):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / "photos" / name / f"{index}.png")
    return tmp_path / "photos"


def small(photos: Path, **changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"epochs": 4.0, "batch_size": 4, "threads": 1, "device": "cpu", "data": DataConfig(name=f"folder:{photos}")}
    return change(run("digits"), **(settings | changes))


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that begins a run and stops it at its second step."""
    learn = engine.Engine._learn

    def interrupted(self: engine.Engine, batch: Any) -> None:
        learn(self, batch)
        if self.counts.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    def begin(config: RunConfig, out: Path | None = None) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(engine.Engine, "_learn", interrupted)
            with pytest.raises(Stopped) as stopped:
                fit(config, out=out, quiet=True)
        return stopped.value.hint

    yield begin


def test_other_classes_are_not_gone_on_with(photos: Path, tmp_path: Path, interrupt: Any):
    out, config = tmp_path / "run", small(photos)
    interrupt(config, out)
    (photos / "dog").rename(photos / "wolf")
    with pytest.raises(DataError, match=r"when the run began \(without dog, with wolf\)"):
        fit(config, out=out, resume=True, quiet=True)
    (photos / "wolf").rename(photos / "dog")
    (photos / "bird").mkdir()
    (photos / "cat" / "0.png").rename(photos / "bird" / "0.png")
    with pytest.raises(DataError, match=r"\(with bird\)"):
        fit(config, out=out, resume=True, quiet=True)
    (photos / "bird" / "0.png").rename(photos / "cat" / "0.png")
    (photos / "bird").rmdir()
    assert fit(config, out=out, resume=True, quiet=True).test["split"] == "test"


def test_other_pictures_are_not_gone_on_with(photos: Path, tmp_path: Path, interrupt: Any):
    out, config = tmp_path / "run", small(photos)
    interrupt(config, out)
    for number in range(10, 14):
        (photos / "cat" / f"{number}.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    with pytest.raises(DataError, match=r"was begun with 14 pictures \(train\), .* has 17 now"):
        fit(config, out=out, resume=True, quiet=True)
