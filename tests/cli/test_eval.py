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
from vitral.base.origin import fact
from vitral.build import create
from vitral.cli.eval import run
from vitral.config import DataConfig, RunConfig, to_dict
from vitral.data.splits.open import open_data, open_split
from vitral.model.vit import ViT
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
    made.origin = dataclasses.replace(made.origin, classes=fact(names))
    return str(save(made, folder / "run"))


def test_the_same_classes_need_no_word(photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([model(tmp_path_factory.mktemp("m"), "cat", "dog"), photos]) == 0
    assert "classes have no names" not in capsys.readouterr().err


def test_other_classes_are_refused(photos: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UsageError, match="cat, dog"):
        run([model(tmp_path_factory.mktemp("m"), "lynx", "wolf"), photos])


def test_no_more_pictures_at_a_time_than_asked_for(
    photos: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    forward = ViT.forward
    monkeypatch.setattr(ViT, "forward", lambda self, images, *rest: seen.append(len(images)) or forward(self, images, *rest))
    made = model(tmp_path_factory.mktemp("m"), "cat", "dog")
    scores = []
    for flags, sizes in (([], [12]), (["--batch", "5"], [5, 5, 2]), (["--batch-size", "8"], [8, 4])):
        seen.clear()
        assert run([made, photos, "--json", "--precision", "fp32", *flags]) == 0
        assert seen == sizes
        scores.append(json.loads(capsys.readouterr().out)["loss"])
    assert scores == pytest.approx([scores[0]] * 3)


def test_another_order_is_matched_and_no_batch_refused(
    photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same weights with their names swapped give the other answer to everything."""
    shares = []
    for names in (("dog", "cat"), ("cat", "dog")):
        assert run([model(tmp_path_factory.mktemp("m"), *names), photos, "--json"]) == 0
        shares.append(json.loads(capsys.readouterr().out)["top1"])
    assert sum(shares) == pytest.approx(1)
    with pytest.raises(UsageError, match="batch"):
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
    monkeypatch.setattr("vitral.train.judged.open_split", lambda config, *more: (opened.append(config), open_split(config, *more))[1])
    split = open_data(own)
    for data in (photos, photos + "/"):
        wanted = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test())}
        assert counts_of([made, data], capsys) == counts_of([f"{made}/model.safetensors", data], capsys) == wanted
    assert {(config.split_seed, config.subset) for config in opened} == {(3, 2.0)}
    capsys.readouterr()
    assert run([made, photos, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["pictures"] == len(split.test()) and "learnt from" in said.err
    # Other pictures are not divided at all.
    other = Path(photos.removeprefix("folder:") + "-2")
    shutil.copytree(photos.removeprefix("folder:"), other)
    assert run([made, f"folder:{other}"]) == 0 and opened[-1] == DataConfig(name=f"folder:{other}", on_bad_image="skip")
    assert "(all, 12 pictures, in fp32)" in capsys.readouterr().out


def test_a_bad_picture_is_passed_over_unless_asked_otherwise(
    photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(photos.removeprefix("folder:")) / "cat" / "bad.png").write_text("no picture")
    made = model(tmp_path_factory.mktemp("m"), "cat", "dog")
    assert run([made, photos]) == 0
    said = capsys.readouterr()
    assert "bad.png" in said.err and "12 pictures, 1 unreadable" in said.out
    with pytest.raises(DataError, match=r"bad\.png"):
        run([made, photos, "--on-bad-image", "fail"])


def test_a_row_for_each_picture(photos: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path_factory.mktemp("m")
    assert run([model(place, "cat", "dog"), photos, "--table", str(place / "rows.json"), "--json"]) == 0
    rows, scores = json.loads((place / "rows.json").read_text()), json.loads(capsys.readouterr().out)
    assert len(rows) == 12 and sum(row["right"] for row in rows) / 12 == pytest.approx(scores["top1"])
    for row in rows:
        assert Path(row["path"]).is_file() and Path(row["path"]).parent.name == row["truth"]
        assert row["answer"] == row["class_1"] and row["probability_1"] + row["probability_2"] == pytest.approx(1)
