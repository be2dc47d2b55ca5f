"""vitral eval: whose classes are compared with whose."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.base.origin import known
from vitral.build import create
from vitral.cli.eval import run
from vitral.config import DataConfig, RunConfig, to_dict
from vitral.data.datasets import open_data
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


def counts_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    counts = {}
    for split in ("train", "validation", "test"):
        assert run([*arguments, "--split", split, "--json"]) == 0
        counts[split] = json.loads(capsys.readouterr().out)["pictures"]
    return counts


def test_a_run_is_scored_on_its_own_division_of_its_own_data(
    photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model(tmp_path_factory.mktemp("m"), "cat", "dog")
    own = DataConfig(name=photos, validation=0.5, split_seed=3, subset=2.0, mean=(0.5,) * 3, std=(0.5,) * 3)
    described = json.loads((Path(made) / "config.json").read_text())
    (Path(made) / "config.json").write_text(json.dumps({**to_dict(RunConfig(data=own)), **described}))
    (Path(made) / "manifest.json").unlink()  # changed by hand, on purpose
    opened: list[DataConfig] = []
    monkeypatch.setattr("vitral.train.evaluate.open_data", lambda config, **more: (opened.append(config), open_data(config, **more))[1])
    split = open_data(own)
    for data in (photos, photos + "/"):
        wanted = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test())}
        assert counts_of([made, data], capsys) == counts_of([f"{made}/model.safetensors", data], capsys) == wanted
    assert {(config.split_seed, config.subset) for config in opened} == {(3, 2.0)}
    # Other pictures are divided by themselves.
    other = Path(photos.removeprefix("folder:") + "-2")
    shutil.copytree(photos.removeprefix("folder:"), other)
    assert run([made, f"folder:{other}"]) == 0 and opened[-1] == DataConfig(name=f"folder:{other}")


def test_a_bad_picture_can_be_passed_over(photos: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    (Path(photos.removeprefix("folder:")) / "cat" / "bad.png").write_text("no picture")
    made = model(tmp_path_factory.mktemp("m"), "cat", "dog")
    with pytest.raises(DataError, match=r"bad\.png is not a picture"):
        run([made, photos])
    assert run([made, photos, "--on-bad-image", "skip"]) == 0
