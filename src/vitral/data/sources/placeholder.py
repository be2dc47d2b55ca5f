"""A named data set that is not here yet, with the facts of the catalogue: enough to plan a training, nothing to learn from."""

from __future__ import annotations

import dataclasses
import functools
import io

import numpy as np
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.progress import say
from vitral.config import DataConfig
from vitral.data.images.decode import Decoded, decode
from vitral.data.keys import generator
from vitral.data.sources.catalogue import CATALOGUE, Entry
from vitral.data.sources.fetch import advice, data_root, ready
from vitral.data.sources.hub import is_here
from vitral.data.sources.kinds import parse
from vitral.data.sources.protocol import ArrayReader, ImageSet, Reader, Source

PHOTOGRAPH = (375, 500)
"""Height and width of a made-up photograph: the middle of ImageNet's."""


def stand_in(config: DataConfig) -> Source | None:
    """Replaces a named set that would have to be fetched; None: it is here, or not in the catalogue.

    A set of the hub that is not here is refused: without its files, the number and size of its images are unknown."""
    kind, rest = parse(config.name)
    if kind == "hf" and not is_here(rest):
        raise DataError(
            f"{config.name} is not on this machine, and a plan needs to know its pictures",
            f"vitral data get {config.name} fetches it; then plan again",
        )
    entry = CATALOGUE.get(config.name)
    if entry is None or ready(entry, data_root(config.root)):
        return None
    fetched = any(provider != "local" for provider in entry.providers)
    then = f"a training fetches about {entry.megabytes:,} MB" if fetched else f"to train, {advice(entry, data_root(config.root))}"
    timed = "" if entry.native_size else f"; reading is timed on made-up photographs of {PHOTOGRAPH[1]}×{PHOTOGRAPH[0]}"
    note = f"{entry.name} is not here: planned by the catalogue ({entry.train:,} pictures, {entry.classes} classes, {entry.size}){timed}"
    say(f"note: {note}; {then}")
    return _made_up(entry, f"{note}; {then}")


def _made_up(entry: Entry, note: str) -> Source:
    def part(count: int) -> ImageSet:
        return ImageSet.whole(_reader(entry, count), np.arange(count) % entry.classes)

    names = entry.class_names or tuple(f"class {number}" for number in range(entry.classes))
    plain = {"mean": entry.mean or (0.5,) * entry.channels, "std": entry.std or (0.25,) * entry.channels}
    parts = {split: part(count) for split in ("train", "validation", "test") if (count := getattr(entry, split))}
    source = entry.source(names, parts, "the catalogue")
    return dataclasses.replace(source, notes=(note,), **plain)


def _reader(entry: Entry, count: int) -> Reader:
    if entry.native_size is None:
        return _Photographs(count)
    pixels = generator(0, "stand-in").integers(0, 256, (1, entry.channels, *entry.native_size), np.uint8)
    return ArrayReader(np.broadcast_to(pixels, (count, *pixels.shape[1:])), entry.name)  # one picture in memory, however many there are


class _Photographs(Reader):
    """Always the same made-up photograph, decoded each time as a real one would be."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def image(self, index: int) -> Decoded:
        return decode(_jpeg(), self.where(index))

    def where(self, index: int) -> str:
        return f"made-up photograph {index}"


@functools.cache
def _jpeg() -> bytes:
    """Soft shapes and some grain, so that it is about as long as a photograph's file."""
    draw, (height, width) = generator(0, "stand-in"), PHOTOGRAPH
    shapes = Image.fromarray(draw.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    grain = draw.normal(0, 8, (height, width, 1))
    out = io.BytesIO()
    Image.fromarray(np.clip(np.asarray(shapes) + grain, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()
