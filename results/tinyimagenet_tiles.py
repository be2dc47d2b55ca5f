"""Tiny-ImageNet as it is published, written from our tiles of 5,000 images each: run_missing.py calls it where the tiles are at hand.

    python results/tinyimagenet_tiles.py tinyimagenet-32px ~/.cache/vitral/data/tiny-imagenet-200

TILES has 00.webp … 21.webp (50 rows of 100 squares of 32 pixels, the last two tiles are val), labels.npy and classes.json, a list of
[WNID, words]. OUT gets train/WNID/images/*.png, val/images/*.png, val/val_annotations.txt, wnids.txt and words.txt. PNG keeps the pixels.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.base.files import read_json
from vitral.base.progress import track

TILES = Path("tinyimagenet-32px")
"""Where run_missing.py looks for them, seen from where the command is given."""
SIDE, ROWS, COLUMNS = 32, 50, 100
VALIDATION_TILES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", type=Path)
    parser.add_argument("out", type=Path)
    flags = parser.parse_args()
    if flags.out.exists():
        parser.error(f"{flags.out} exists: remove it, or name another folder")
    write_published(flags.tiles, flags.out)


def write_published(tiles: Path, out: Path) -> None:
    """Write all images, under another name until the last one is there."""
    files, labels = sorted(tiles.glob("[0-9][0-9].webp")), np.load(tiles / "labels.npy", allow_pickle=False)
    if len(labels) != len(files) * ROWS * COLUMNS:
        raise SystemExit(f"{tiles} has {len(files)} tiles and {len(labels):,} labels: copy it again")
    classes: list[tuple[str, str]] = read_json(tiles / "classes.json")
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for folder in (*(f"train/{wnid}/images" for wnid, _ in classes), "val/images"):
        (part / folder).mkdir(parents=True)
    train, annotations = len(labels) - VALIDATION_TILES * ROWS * COLUMNS, []
    images = (image for file in track(files, "Writing Tiny-ImageNet") for image in _squares(file))
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        wnid, _ = classes[label]
        if index < train:
            image.save(part / f"train/{wnid}/images/{wnid}_{index:06d}.png", compress_level=1)
        else:
            name = f"val_{index - train:05d}.png"
            image.save(part / "val/images" / name, compress_level=1)
            annotations.append(f"{name}\t{wnid}\t0\t0\t{SIDE - 1}\t{SIDE - 1}\n")
    (part / "val/val_annotations.txt").write_text("".join(annotations), encoding="utf-8")
    (part / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid, _ in classes), encoding="utf-8")
    (part / "words.txt").write_text("".join(f"{wnid}\t{words}\n" for wnid, words in classes), encoding="utf-8")
    part.rename(out)


def _squares(file: Path) -> Iterator[Image.Image]:
    """The squares of a tile, row by row."""
    with Image.open(file) as opened:
        tile = opened.convert("RGB")
    for row in range(ROWS):
        for column in range(COLUMNS):
            yield tile.crop((column * SIDE, row * SIDE, (column + 1) * SIDE, (row + 1) * SIDE))


if __name__ == "__main__":
    main()
