"""The user's own folders, well and badly made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.sources.folders import open_folder


def fill(folder: Path, counts: dict[str, int], size: tuple[int, int] = (80, 70)) -> None:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", size, (number, 0, 0)).save(folder / name / f"{number}.png")


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_with_all_three_splits(tmp_path: Path, validation: str) -> None:
    for split, count in (("train", 3), (validation, 2), ("test", 1)):
        fill(tmp_path / split, {"cat": count, "dog": count})
    raw = open_folder(tmp_path, "fail")
    assert raw.class_names == ("cat", "dog") and raw.validation is not None and raw.test is not None
    assert [len(part.labels) for part in (raw.train, raw.validation, raw.test)] == [6, 4, 2]
    assert raw.native_size is None


def test_train_alone_and_small_pictures(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"a": 2, "b": 2}, (28, 20))
    raw = open_folder(tmp_path, "fail")
    assert raw.validation is None and raw.test is None
    assert raw.native_size == (20, 28)


def test_imagenets_validation_is_the_test(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"a": 3, "b": 3})
    fill(tmp_path / "val", {"a": 1, "b": 1})
    raw = open_folder(tmp_path, "fail", validation_is_test=True)
    assert raw.validation is None and raw.test is not None and len(raw.test.labels) == 2


def test_hidden_and_other_files_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a" / "notes.txt").write_text("not a picture")
    (tmp_path / "a" / "._0.png").write_bytes(b"a Mac's shadow file")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "a" / "deeper").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "a" / "deeper" / "x.PNG")
    raw = open_folder(tmp_path, "fail")
    assert raw.class_names == ("a", "b") and len(raw.train.labels) == 5
    assert "no pictures by their names: 2 (._0.png, notes.txt)" in raw.notes[0]


def test_not_an_image_is_named_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "b" / "fake.jpg").write_text("hello")
    with pytest.raises(DataError, match=r"b/fake\.jpg"):
        open_folder(tmp_path, "fail")
    raw = open_folder(tmp_path, "skip")
    assert len(raw.train.labels) == 4 and "fake.jpg" in raw.notes[0]
    assert "fake.jpg" in capsys.readouterr().err
    for number in range(7):
        (tmp_path / "b" / f"fake{number}.jpg").write_text("hello")
    assert len(open_folder(tmp_path, "skip").notes) == 8
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 6 and said[-1] == "… and 3 more: vitral data check lists them"


@pytest.mark.parametrize(
    ("counts", "message"),
    [({}, "no class folders"), ({"a": 0, "b": 0}, "no pictures")],
)
def test_empty_folders(tmp_path: Path, counts: dict[str, int], message: str) -> None:
    fill(tmp_path, counts)
    with pytest.raises(DataError, match=message):
        open_folder(tmp_path, "fail")


def test_wrong_trees(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="folder"):
        open_folder(tmp_path / "nothing", "fail")
    fill(tmp_path / "one" / "test", {"a": 1})
    with pytest.raises(DataError, match="train"):
        open_folder(tmp_path / "one", "fail")
    fill(tmp_path / "two" / "train", {"a": 1, "b": 1})
    fill(tmp_path / "two" / "test", {"a": 1, "zebra": 1})
    with pytest.raises(DataError, match="zebra"):
        open_folder(tmp_path / "two", "fail")


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_without_pictures_is_refused_when_it_is_opened(tmp_path: Path, split: str) -> None:
    fill(tmp_path / "train", {"a": 3, "b": 3})
    fill(tmp_path / split, {"a": 0, "b": 0})
    with pytest.raises(DataError, match=split):
        open_folder(tmp_path, "fail")


def test_scoring_needs_no_training_folder_and_passes_over_empty_classes(tmp_path: Path, capsys) -> None:
    fill(tmp_path / "test", {"a": 2, "b": 3})
    (tmp_path / "test" / "empty").mkdir()
    with pytest.raises(DataError, match="train"):
        open_folder(tmp_path, "skip")
    raw = open_folder(tmp_path, "skip", training=False)
    assert raw.test is not None and len(raw.test.labels) == 5 and not len(raw.train.labels)
    assert "without pictures were passed over: empty" in capsys.readouterr().err


def test_a_pipe_among_the_pictures_does_not_hang(tmp_path: Path) -> None:
    fill(tmp_path, {"cat": 2, "dog": 2})
    os.mkfifo(tmp_path / "cat" / "z.png")
    with pytest.raises(DataError, match=r"z\.png"):
        open_folder(tmp_path, "fail")
    assert len(open_folder(tmp_path, "skip").train.labels) == 4


def test_a_class_folder_that_leads_out_of_the_root_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path / "private", {"letters": 2})
    fill(tmp_path / "photos", {"cat": 2, "dog": 2})
    os.symlink(tmp_path / "photos" / "cat", tmp_path / "photos" / "tabby")  # stays inside
    assert open_folder(tmp_path / "photos", "fail").class_names == ("cat", "dog", "tabby")
    os.symlink(tmp_path / "private" / "letters", tmp_path / "photos" / "letters")
    with pytest.raises(DataError, match="leads out"):
        open_folder(tmp_path / "photos", "fail")
