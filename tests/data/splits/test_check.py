"""What `vitral data check` finds in a folder in which everything is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from vitral.cli import main
from vitral.config import DataConfig
from vitral.data.splits.check import check_data, write_check


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    photographs = load_sample_images().images
    root = tmp_path / "photos"

    def put(name: str, image: Image.Image) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)

    def piece(number: int) -> Image.Image:
        array, place = photographs[number % 2], number // 2
        top, left = 110 * (place % 3), 110 * (place // 3)
        return Image.fromarray(array[top : top + 100, left : left + 100])

    for number in range(8):
        put(f"train/{'flower' if number % 2 else 'temple'}/{number}.png", piece(number))
    put("train/temple/again.png", piece(1))  # the same pixels, under another class
    put("train/flower/grey.png", Image.new("RGB", (60, 60), "grey"))
    put("train/flower/tiny.png", piece(10).resize((9, 9)))
    put("test/flower/leak.jpg", piece(3))  # recompressed
    put("test/temple/mirror.png", piece(4).transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    put("test/temple/new.png", piece(12))
    put("test/flower/new.png", piece(13))
    (root / "train/flower/broken.png").write_bytes(b"no picture")
    return root


def test_everything_that_is_wrong_is_found(spoilt: Path, tmp_path: Path) -> None:
    findings, shown = check_data(DataConfig(name=f"folder:{spoilt}", on_bad_image="skip"), quiet=True)
    assert findings.images == {"train": 12, "test": 4} or findings.images == {"train": 11, "test": 4}
    (same,) = findings.exact
    assert {Path(same.first).name, Path(same.second).name} == {"1.png", "again.png"} and set(same.classes) == {"flower", "temple"}
    near = {frozenset((Path(copy.first).name, Path(copy.second).name)): copy for copy in findings.near or []}
    assert set(near) == {frozenset(("3.png", "leak.jpg")), frozenset(("4.png", "mirror.png"))}
    assert near[frozenset(("4.png", "mirror.png"))].mirrored and not near[frozenset(("3.png", "leak.jpg"))].mirrored
    assert len(findings.repeated()["test"]) == 2 and not findings.repeated(near=False)
    assert [Path(name).name for name in findings.tiny] == ["tiny.png"] and [Path(name).name for name in findings.one_colour] == ["grey.png"]
    text = findings.text()
    assert "2 of 4 test: an accuracy on them is not one on new pictures" in text and "near copies between train and test" in text
    order = ["not one on new pictures", "near copies between", "unreadable", "exact copies within", "tiny", "of one colour", "per smallest"]
    assert order == sorted(order, key=text.index), "the gravest first"
    paths = write_check(findings, shown, tmp_path / "out")
    assert {path.name for path in paths} >= {"check.json", "check.md", "pairs.png"}
    with Image.open(tmp_path / "out/pairs.png") as sheet:
        assert min(sheet.size) > 100


def test_against_another_set_and_without_near_ones(spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data", "check", f"folder:{spoilt / 'test'}", "--against", f"folder:{spoilt / 'train'}", "--json"]
    assert main([*command, "--near-copies", "no", "--out", str(tmp_path / "a")]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert exact["near"] is None and not exact["found_again"].get("all")
    assert main([*command, "--out", str(tmp_path / "b")]) == 0
    assert len(json.loads(capsys.readouterr().out)["found_again"]["all"]) == 2
    assert main(["data", "check", "folder:nowhere"]) != 0 and "one folder of pictures per class" in capsys.readouterr().err


def test_a_set_of_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "digits", "--out", str(tmp_path)]) == 0
    out, told = capsys.readouterr()
    assert "digits: 1,437 train, 360 test" in out and "near copies" in out and "not searched" in out
    assert "pictures of 8 pixels" in told and "an accuracy on them is not one on new pictures" not in out
    findings, _ = check_data(DataConfig(name="digits"), near=False, quiet=True)
    assert findings.imbalance == pytest.approx(max(findings.class_counts.values()) / min(findings.class_counts.values()))
    assert np.sum(list(findings.class_counts.values())) == 1437


def test_pictures_that_lie_in_no_class_folder(spoilt: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    for number, path in enumerate(sorted((spoilt / "train").rglob("*.png"))):
        shutil.copy(path, loose / f"{number}.png")
    (loose / "none.png").write_bytes(b"no picture")
    found, shown = check_data(DataConfig(name=f"folder:{loose}"), [DataConfig(name=f"folder:{spoilt}")], near=False, quiet=True)
    assert str(loose / "none.png") in found.unreadable and found.class_counts == {}
    assert "under another class" not in next(line for line in found.text().splitlines() if line.startswith("exact copies between"))
    assert "largest class" not in found.text() and "unlabelled" not in found.text()
    write_check(found, shown, tmp_path / "out")


def test_classes_of_one_size_are_not_named_as_smallest_and_largest(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.fromarray(draw.integers(0, 256, (80, 80, 3), np.uint8)).save(tmp_path / name / f"{number}.png")
    findings, _ = check_data(DataConfig(name=f"folder:{tmp_path}"), near=False, quiet=True)
    rows = [line.split("  ")[0] for line in findings.text().splitlines()[1:]]
    assert rows == ["exact copies", "near copies", "unreadable", "tiny", "of one colour", "largest class per smallest"]
    assert "1.0  2 pictures each" in findings.text() and "cat" not in findings.text().partition("\n")[2]
