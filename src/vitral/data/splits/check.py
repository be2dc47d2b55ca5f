"""What is wrong with a data set, before a model learns it by heart: copies within and between splits, unreadable, tiny and one-colour
pictures, classes of very different sizes."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.files import make_folder, write_atomic, write_json
from vitral.base.numbers import to_numpy
from vitral.base.progress import say, track
from vitral.base.text import few, table
from vitral.config import DataConfig
from vitral.data.images.preprocess import size_of, viewable
from vitral.data.sources.folders import has_classes
from vitral.data.sources.protocol import UNLABELLED, ArrayReader, ImageSet
from vitral.data.splits.near_duplicates import BLOCK, FINE, MOST, SIDE, digest, near_pairs
from vitral.data.splits.open import UNBALANCED, open_source
from vitral.data.splits.split import READERS
from vitral.draw.provenance import command_line, save_figure
from vitral.draw.tiles import pair_sheet

TINY = 16
"""Pixels of the shorter side below which a photograph shows little."""
FLAT = 2.0
"""Standard deviation of the pixels (of 255) below which a picture is of one colour."""
SHOWN = 30
"""Pairs on the sheet."""


@dataclass(frozen=True)
class Copy:
    """Two pictures that are the same, exactly (`alike` 1) or nearly."""

    first: str
    second: str
    """Where they are, as errors call them."""
    splits: tuple[str, str]
    classes: tuple[str, str]
    alike: float = 1.0
    mirrored: bool = False
    positions: tuple[int, int] = (0, 0)
    """In their splits."""


@dataclass(frozen=True)
class Findings:
    name: str
    images: dict[str, int]
    """Split → pictures."""
    exact: list[Copy] = field(default_factory=list)
    near: list[Copy] | None = None
    """None: not searched."""
    unreadable: list[str] = field(default_factory=list)
    tiny: list[str] = field(default_factory=list)
    one_colour: list[str] = field(default_factory=list)
    class_counts: dict[str, int] = field(default_factory=dict)
    """Of the training pictures."""
    imbalance: float = 1.0

    def found_again(self, near: bool = True) -> dict[str, list[int]]:
        """`test` and the like → positions of its pictures that another split, or the other data set, holds too."""
        found: dict[str, set[int]] = defaultdict(set)
        for copy in [*self.exact, *((self.near or []) if near else [])]:
            for split, other, position in zip(copy.splits, reversed(copy.splits), copy.positions, strict=True):
                if split != other:
                    found[split].add(position)
        return {split: sorted(positions) for split, positions in found.items()}

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "found_again": self.found_again()}

    def text(self) -> str:
        between, within, absent = [], [], []
        for kind, copies in (("exact copies", self.exact), ("near copies", self.near or [])):
            for (one, two), count in sorted(Counter(tuple(copy.splits) for copy in copies).items()):
                own = [copy for copy in copies if copy.splits == (one, two)]
                told = [f"{count:,}", _labels(sum(all(copy.classes) and len(set(copy.classes)) > 1 for copy in own))]
                within += [[f"{kind} within {one}", *told]] if one == two else []
                between += [[f"{kind} between {one} and {two}", *told]] if one != two else []
            if not copies:
                absent.append([kind, "not searched" if kind == "near copies" and self.near is None else "none", ""])
        files = {"unreadable": self.unreadable, "tiny": self.tiny, "of one colour": self.one_colour}
        said = {kind: [[kind, f"{len(names):,}", few([Path(name).name for name in names])]] for kind, names in files.items() if names}
        absent += [[kind, "none", ""] for kind in files if kind not in said]
        # What spoils a result first, then what spoils some pictures of it, then what is as it should be.
        rows = [*between, *said.get("unreadable", []), *within, *said.get("tiny", []), *said.get("of one colour", [])]
        if self.class_counts:
            small, large = (pick(self.class_counts, key=lambda name: self.class_counts[name]) for pick in (min, max))
            counts = f"{small} {self.class_counts[small]:,}, {large} {self.class_counts[large]:,}"
            counts = f"{self.class_counts[large]:,} pictures each" if small == large else counts
            (rows if self.imbalance >= UNBALANCED else absent).append(["largest class per smallest", f"{self.imbalance:.1f}", counts])
        head = f"{self.name}: " + ", ".join(f"{count:,} {split}" for split, count in self.images.items())
        again = {split: positions for split, positions in self.found_again().items() if split != "train"}
        told = ", ".join(f"{len(positions):,} of {self.images[split]:,} {split}" for split, positions in again.items())
        lines = [head, f"pictures that another split holds too: {told}: an accuracy on them is not one on new pictures" if told else ""]
        lines.append(table([*rows, *absent], align="lrl"))
        if self.imbalance >= UNBALANCED:
            lines.append("classes of very different sizes: consider --class-weights")
        return "\n".join(filter(None, lines))


def check_data(
    config: DataConfig, against: Sequence[DataConfig] = (), near: bool = True, quiet: bool = False
) -> tuple[Findings, list[Any]]:
    """(what was found in all splits that the source has, and in `against`; small pictures of the first pairs)."""
    read: list[_Read] = []
    for each in (config, *against):
        source = open_source(each, training=False, labels=_has_labels(each))
        class_names = source.class_names if source.class_names != UNLABELLED else ()
        prefix = "" if each is config else f"{source.name} "
        parts = {"train": source.train, "validation": source.validation, "test": source.test() if source.test else None}
        split = any(part is not None for name, part in parts.items() if name != "train")
        for name, part in parts.items():
            if part is not None and len(part.indices):
                read.append(_Read(prefix + (name if split else "all"), part, class_names, source.native_size is None, quiet))
    count = sum(len(each.part.indices) for each in read)
    if near and count > MOST:
        say(f"{count:,} pictures: near copies are searched among up to {MOST:,}, so exact ones alone are")
        near = False
    side = min((min(each.part.reader.pixels.shape[-2:]) for each in read if isinstance(each.part.reader, ArrayReader)), default=FINE)
    if near and side < FINE:
        say(f"pictures of {side} pixels: near copies are searched from {FINE} on, where likeness tells a copy, so exact ones alone are")
        near = False
    places = [(each, position) for each in read for position in range(len(each.part.indices))]
    exact = _exact(places)
    pairs = None
    if near:
        known = {(copy[0], copy[1]) for copy in exact}
        thumbnails = np.concatenate([each.thumbnails for each in read])
        pairs = [pair for pair in near_pairs(thumbnails, quiet) if pair[:2] not in known and _readable(places, pair)]
        pairs.sort(key=lambda pair: -pair[2])
    first = read[0]
    labels = first.part.labels
    counts = np.bincount(labels[labels >= 0], minlength=len(first.class_names)) if labels.ndim == 1 else labels.sum(axis=0)
    present = counts[counts > 0]
    findings = Findings(
        config.name,
        {each.name: len(each.part.indices) for each in read},
        [_copy(places, *pair) for pair in exact],
        None if pairs is None else [_copy(places, *pair) for pair in pairs],
        [each.where(position) for each in read for position in each.bad],
        [each.where(int(position)) for each in read for position in np.flatnonzero(each.tiny)],
        [each.where(int(position)) for each in read for position in np.flatnonzero(each.flat)],
        {name: int(number) for name, number in zip(first.class_names, counts, strict=False)},
        float(present.max() / present.min()) if len(present) else 1.0,
    )
    every: list[Pair] = [*exact, *(pairs or [])]
    across = sorted(every, key=lambda pair: (places[pair[0]][0] is places[pair[1]][0], -pair[2]))[:SHOWN]
    return findings, [
        (_copy(places, *pair), *(each.picture(position) for each, position in map(places.__getitem__, pair[:2]))) for pair in across
    ]


def _has_labels(config: DataConfig) -> bool:
    """Not where pictures lie loose in a folder, as a pre-training takes them."""
    kind, _, rest = config.name.partition(":")
    return kind != "folder" or not rest or has_classes(Path(rest).expanduser())


def write_check(findings: Findings, shown: Sequence[Any], out: str | Path) -> list[Path]:
    """OUT/check.json, check.md and pairs.png: side by side what the first split holds and where it was found again."""
    out = make_folder(out)
    paths = [
        write_json(out / "check.json", findings.to_dict()),
        write_atomic(out / "check.md", f"```\n{findings.text()}\n```\n\n`{command_line()}`\n"),
    ]
    if not shown:
        return paths
    captions = [
        (
            ": ".join(filter(None, (copy.splits[0], copy.classes[0]))),
            ": ".join(filter(None, (copy.splits[1], copy.classes[1]))) + f", {copy.alike:.2f}{', mirrored' * copy.mirrored}",
        )
        for copy, *_ in shown
    ]
    figure = pair_sheet([(first, second) for _, first, second in shown], captions, title=f"{findings.name}: pictures found twice", across=4)
    return [*paths, *save_figure(figure, out / "pairs", {}, {"command": command_line(), "data": findings.name}, formats=("png",))]


Pair = tuple[int, int, float, bool]
"""Numbers of two pictures among all, how alike they are, whether mirrored."""


class _Read:
    """One split: every picture decoded once, its thumbnail and what else is asked of it kept."""

    def __init__(self, name: str, part: ImageSet, class_names: tuple[str, ...], photographs: bool, quiet: bool) -> None:
        self.name, self.part, self.class_names = name, part, class_names
        count = len(part.indices)
        self.thumbnails = np.zeros((count, 3, SIDE, SIDE), np.uint8)
        self.hashes: list[bytes] = [b""] * count
        self.flat, self.tiny = np.zeros(count, bool), np.zeros(count, bool)
        self.bad: list[int] = []
        if isinstance(part.reader, ArrayReader):
            self._read_array(part.reader.pixels, quiet)
        else:
            self._read_files(photographs, quiet)

    def where(self, position: int) -> str:
        return self.part.reader.where(int(self.part.indices[position]))

    def picture(self, position: int) -> Image.Image:
        return viewable(self.part.reader.image(int(self.part.indices[position])))

    def class_of(self, position: int) -> str:
        if not len(self.part.labels):
            return ""
        labels = self.part.labels[position]
        if labels.ndim:
            return "+".join(self.class_names[label] for label in np.flatnonzero(labels))
        return self.class_names[int(labels)] if 0 <= labels < len(self.class_names) else ""

    def _read_array(self, pixels: np.ndarray, quiet: bool) -> None:
        blocks = [slice(start, start + BLOCK) for start in range(0, len(self.part.indices), BLOCK)]
        for block in track(blocks, f"Reading {self.name}", total=len(blocks), quiet=quiet):
            own = np.ascontiguousarray(pixels[self.part.indices[block]])  # (B, C, H, W)
            self.hashes[block] = [digest(each) for each in own]
            self.flat[block] = own.reshape(len(own), -1).std(axis=1) < FLAT
            colour = torch.from_numpy(own if own.shape[1] == 3 else own[:, :1].repeat(3, axis=1)).float()
            self.thumbnails[block] = to_numpy(F.interpolate(colour, (SIDE, SIDE), mode="bilinear", antialias=True).round().byte())

    def _read_files(self, photographs: bool, quiet: bool) -> None:
        def read(position: int) -> DataError | None:
            try:
                decoded = self.part.reader.image(int(self.part.indices[position]))
            except DataError as error:
                return error
            image = viewable(decoded).convert("RGB")
            self.tiny[position] = photographs and min(size_of(decoded)) < TINY
            self.hashes[position] = digest(np.asarray(decoded))
            self.flat[position] = np.asarray(image).std() < FLAT
            self.thumbnails[position] = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)).transpose(2, 0, 1)
            return None

        count = len(self.part.indices)
        with ThreadPoolExecutor(READERS) as pool:
            for position, error in enumerate(track(pool.map(read, range(count)), f"Reading {self.name}", total=count, quiet=quiet)):
                if error is not None:
                    self.bad.append(position)


def _exact(places: Sequence[tuple[_Read, int]]) -> list[Pair]:
    """All pairs of the same pixels; of many alike, each with the first."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for number, (read, position) in enumerate(places):
        if read.hashes[position]:
            groups[read.hashes[position]].append(number)
    found: list[Pair] = []
    for same in groups.values():
        every = combinations(same, 2) if len(same) <= 4 else [(same[0], other) for other in same[1:]]
        found += [(one, two, 1.0, False) for one, two in every]
    return sorted(found)


def _readable(places: Sequence[tuple[_Read, int]], pair: Pair) -> bool:
    return all(read.hashes[position] and not read.flat[position] for read, position in map(places.__getitem__, pair[:2]))


def _copy(places: Sequence[tuple[_Read, int]], one: int, two: int, alike: float, mirrored: bool) -> Copy:
    (first, here), (second, there) = places[one], places[two]
    return Copy(
        first.where(here),
        second.where(there),
        (first.name, second.name),
        (first.class_of(here), second.class_of(there)),
        alike,
        mirrored,
        (here, there),
    )


def _labels(other: int) -> str:
    return f"{other:,} under another class" if other else ""
