"""Copies are found whatever was done to them, and scenes that are only alike are not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sklearn.datasets import load_sample_images

from vitral.config import DataConfig
from vitral.data.splits.near_duplicates import SIDE, digest, exact_duplicates, near_pairs
from vitral.data.splits.open import open_data


def scenes(count: int) -> list[Image.Image]:
    """Square pieces of two photographs, which overlap nowhere; clear sky is left out, there is nothing to know again in it."""
    pieces = [
        Image.fromarray(array[top : top + 100, left : left + 100])
        for array in load_sample_images().images
        for top in range(0, 400, 105)
        for left in range(0, 600, 105)
    ]
    return [piece for piece in pieces if np.std(np.asarray(piece.convert("L"))) > 30][:count]


def thumbnail(image: Image.Image) -> np.ndarray:
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)).transpose(2, 0, 1)


def recompressed(image: Image.Image) -> Image.Image:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=40)
    return Image.open(content).convert("RGB")


@pytest.mark.parametrize(
    ("change", "mirrored"),
    [
        (recompressed, False),
        (lambda image: ImageEnhance.Brightness(image).enhance(1.3), False),
        (lambda image: image.crop((3, 2, 100, 99)), False),
        (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), True),
    ],
    ids=["recompressed", "brighter", "shifted", "mirrored"],
)
def test_a_changed_copy_is_found_and_nothing_else(change, mirrored: bool) -> None:
    pictures = scenes(30)
    both = np.stack([thumbnail(image) for image in [*pictures, *map(change, pictures)]])
    found = {(one, two): flipped for one, two, _, flipped in near_pairs(both, quiet=True)}
    matched = [number for number in range(30) if found.get((number, number + 30)) == mirrored]
    others = [pair for pair in found if pair[1] - pair[0] != 30]
    assert len(matched) >= 27, "nearly every copy"
    assert len(others) <= 2, "pieces of one sky or one field at most"


def test_one_colour_is_like_nothing() -> None:
    assert not list(near_pairs(np.full((5, 3, SIDE, SIDE), 200, np.uint8), quiet=True))
    assert digest(np.zeros((2, 3), np.uint8)) != digest(np.zeros((3, 2), np.uint8))


def test_test_pictures_that_were_learnt_are_counted(tmp_path: Path) -> None:
    for split, numbers in (("train", range(8)), ("test", (0, 1, 20, 21))):
        for number in numbers:
            folder = tmp_path / split / "ab"[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            scenes(22)[number].save(folder / f"{split}{number}.png")
    data = open_data(DataConfig(name=f"folder:{tmp_path}", validation=0.0))
    assert exact_duplicates(data.train, data.test()) == 2 and data.copies == {"test": 2} and data.describe()["copies"] == {"test": 2}
    digits = open_data(DataConfig(name="digits"))
    digits.test()
    assert digits.copies["test"] == 0
