"""What a source gives: images by number, and whether they are small ones of one size or photographs."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.sources.protocol import ArrayReader, FileReader, ImageSet, TableReader, measure


def files(folder: Path, sizes: list[tuple[int, int]], mode: str = "RGB") -> ImageSet:
    for number, size in enumerate(sizes):
        Image.new(mode, size, number).save(folder / f"{number:03d}.png")
    return ImageSet.whole(FileReader(sorted(folder.glob("*.png"))), np.zeros(len(sizes)))


@pytest.mark.parametrize(
    ("sizes", "mode", "expected"),
    [
        ([(20, 28)] * 5, "RGB", ((28, 20), 3)),
        ([(64, 64)] * 5, "L", ((64, 64), 1)),
        ([(65, 64)] * 5, "RGB", (None, 3)),
        ([(20, 28)] * 4 + [(28, 20)], "RGB", (None, 3)),
    ],
)
def test_small_images_of_one_size_are_told_from_photographs(tmp_path: Path, sizes: list, mode: str, expected: tuple) -> None:
    assert measure(files(tmp_path, sizes, mode)) == expected


def test_a_damaged_file_is_left_for_its_own_turn(tmp_path: Path) -> None:
    part = files(tmp_path, [(9, 9)] * 3)
    (tmp_path / "001.png").write_bytes(b"nothing")
    assert measure(part) == ((9, 9), 3)
    with pytest.raises(DataError, match=r"001\.png"):
        part.reader.image(1)


def test_some_of_a_part_keep_their_own_labels() -> None:
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)
    part = ImageSet.whole(ArrayReader(pixels, "five"), np.array([0, 1, 0, 1, 2])).select(np.array([4, 1]))
    assert [int(np.asarray(part.reader.image(int(i))).item()) for i in part.indices] == [4, 1] and part.labels.tolist() == [2, 1]
    assert part.reader.where(4) == "five picture 4"


def test_file_names_of_any_script_survive_a_worker(tmp_path: Path) -> None:
    path = tmp_path / "größe 漢字.png"
    Image.new("L", (3, 2), 7).save(path)
    reader = pickle.loads(pickle.dumps(FileReader([path])))
    assert reader.where(0) == str(path) and np.asarray(reader.image(0)).tolist() == [[7] * 3] * 2


def test_a_table_gives_bytes_or_a_path(tmp_path: Path) -> None:
    Image.new("L", (2, 2), 9).save(tmp_path / "a.png")
    rows = [
        {"image": {"bytes": (tmp_path / "a.png").read_bytes(), "path": None}},
        {"image": {"bytes": None, "path": str(tmp_path / "a.png")}},
    ]
    reader = TableReader(rows, "image", "hf:x")
    assert len(reader) == 2 and all(np.asarray(reader.image(number)).max() == 9 for number in (0, 1))
