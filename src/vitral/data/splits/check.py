"""What is wrong with a data set, before a model learns it by heart: copies within and between splits, unreadable, tiny and one-colour
pictures, classes of very different sizes."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
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
from vitral.data.images.decode import in_threads
from vitral.data.images.preprocess import size_of, viewable
from vitral.data.sources.folders import has_classes
from vitral.data.sources.kinds import parse
from vitral.data.sources.protocol import UNLABELLED, ImageSet
from vitral.data.splits.near_duplicates import BLOCK, FINE, MOST, SIDE, digest, near_pairs
from vitral.data.splits.open import UNBALANCED, open_source
from vitral.draw.provenance import command_line, save_figure
from vitral.draw.tiles import pair_sheet

_TINY = 16
"""Pixels of the shorter side below which a photograph shows little."""
_FLAT = 2.0
"""Standard deviation of the pixels (of 255) below which a picture is of one colour."""
_SHOWN = 30
"""Pairs on the sheet."""
_FINE = 9
"""Rank of a row that shows nothing wrong."""


@dataclass(frozen=True)
class _Copy:
    """Two images that are the same, exactly (`similarity` 1) or nearly."""

    first: str
    second: str
    """Where they are, as errors call them."""
    splits: tuple[str, str]
    classes: tuple[str, str]
    similarity: float = 1.0
    mirrored: bool = False
    positions: tuple[int, int] = (0, 0)
    """In their splits."""

    @property
    def mislabelled(self) -> bool:
        """Whether the two have different classes."""
        return all(self.classes) and len(set(self.classes)) > 1


@dataclass(frozen=True)
class _Findings:
    name: str
    images: dict[str, int]
    """Split → pictures."""
    exact: list[_Copy] = field(default_factory=list)
    near: list[_Copy] | None = None
    """None: not searched."""
    unreadable: list[str] = field(default_factory=list)
    tiny: list[str] = field(default_factory=list)
    one_colour: list[str] = field(default_factory=list)
    class_counts: dict[str, int] = field(default_factory=dict)
    """Of the training pictures."""
    imbalance: float = 1.0

    def repeated(self, near: bool = True) -> dict[str, list[int]]:
        """`test` and the like → positions of its pictures that another split, or the other data set, holds too."""
        again: dict[str, set[int]] = defaultdict(set)
        for copy in [*self.exact, *((self.near or []) if near else [])]:
            for split, other, position in zip(copy.splits, reversed(copy.splits), copy.positions, strict=True):
                if split != other:
                    again[split].add(position)
        return {split: sorted(positions) for split, positions in again.items()}

    def to_dict(self) -> dict[str, Any]:
        def listed(copies: list[_Copy]) -> list[dict[str, Any]]:
            return [{**dataclasses.asdict(copy), "alike": copy.similarity} for copy in copies]  # its name in earlier versions

        near = None if self.near is None else listed(self.near)
        return {**dataclasses.asdict(self), "exact": listed(self.exact), "near": near, "found_again": self.repeated()}

    def text(self) -> str:
        head = f"{self.name}: " + ", ".join(f"{count:,} {split}" for split, count in self.images.items())
        again = {split: positions for split, positions in self.repeated().items() if split != "train"}
        spoilt = ", ".join(f"{len(positions):,} of {self.images[split]:,} {split}" for split, positions in again.items())
        lines = [head, f"pictures that another split holds too: {spoilt}: an accuracy on them is not one on new pictures" if spoilt else ""]
        lines.append(table([row for _, row in sorted(self._rows(), key=lambda ranked: ranked[0])], align="lrl"))
        if self.imbalance >= UNBALANCED:
            lines.append("classes of very different sizes: consider --class-weights")
        return "\n".join(filter(None, lines))

    def _rows(self) -> list[tuple[int, list[str]]]:
        """Rows of the table with their ranks: what spoils a result, then what spoils some images of it, then what is as it should be."""
        rows: list[tuple[int, list[str]]] = []
        for kind, copies in (("exact copies", self.exact), ("near copies", self.near)):
            for (one, two), count in sorted(Counter(copy.splits for copy in copies or []).items()):
                other = sum(copy.mislabelled for copy in copies or [] if copy.splits == (one, two))
                rank, where = (2, f"within {one}") if one == two else (0, f"between {one} and {two}")
                rows.append((rank, [f"{kind} {where}", f"{count:,}", f"{other:,} under another class" if other else ""]))
            if not copies:
                rows.append((_FINE, [kind, "not searched" if copies is None else "none", ""]))
        for rank, kind, names in ((1, "unreadable", self.unreadable), (3, "tiny", self.tiny), (4, "of one colour", self.one_colour)):
            shown = [kind, f"{len(names):,}", few([Path(name).name for name in names])]
            rows.append((rank, shown) if names else (_FINE, [kind, "none", ""]))
        if counts := self.class_counts:
            small, large = (pick(counts, key=lambda name: counts[name]) for pick in (min, max))
            sizes = f"{small} {counts[small]:,}, {large} {counts[large]:,}" if small != large else f"{counts[large]:,} pictures each"
            rank = 5 if self.imbalance >= UNBALANCED else _FINE
            rows.append((rank, ["largest class per smallest", f"{self.imbalance:.1f}", sizes]))
        return rows


def check_data(
    config: DataConfig, against: Sequence[DataConfig] = (), near: bool = True, quiet: bool = False
) -> tuple[_Findings, list[Any]]:
    """(findings in all splits that the source has, and in `against`; small pictures of the first pairs)."""
    scans = [*_scans(config, "", quiet), *(scan for each in against for scan in _scans(each, "against", quiet))]
    images = [(scan, position) for scan in scans for position in range(len(scan))]
    exact = _exact(images)
    pairs = _near(scans, images, exact, quiet) if near and _searchable(scans, len(images)) else None
    first = scans[0]
    counts = first.class_counts()
    present = counts[counts > 0]
    findings = _Findings(
        name=config.name,
        images={scan.name: len(scan) for scan in scans},
        exact=[_copy(images, pair) for pair in exact],
        near=None if pairs is None else [_copy(images, pair) for pair in pairs],
        unreadable=[scan.where(position) for scan in scans for position in scan.unreadable],
        tiny=[scan.where(int(position)) for scan in scans for position in np.flatnonzero(scan.tiny)],
        one_colour=[scan.where(int(position)) for scan in scans for position in np.flatnonzero(scan.flat)],
        class_counts={name: int(number) for name, number in zip(first.class_names, counts, strict=False)},
        imbalance=float(present.max() / present.min()) if len(present) else 1.0,
    )
    every: list[_Pair] = [*exact, *(pairs or [])]
    across = sorted(every, key=lambda pair: (images[pair[0]][0] is images[pair[1]][0], -pair[2]))[:_SHOWN]
    return findings, [
        (_copy(images, pair), *(scan.picture(position) for scan, position in map(images.__getitem__, pair[:2]))) for pair in across
    ]


def _scans(config: DataConfig, against: str, quiet: bool) -> list[_Scan]:
    """Every image set of a source; those of data that is compared `against` carry its name."""
    source = open_source(config, training=False, labels=_has_labels(config))
    class_names = source.class_names if source.class_names != UNLABELLED else ()
    parts = {name: part for name in ("train", "validation", "test") if (part := getattr(source, name)) is not None}
    prefix = f"{source.name} " if against else ""
    names = {name: prefix + (name if len(parts) > 1 else "all") for name in parts}
    return [_Scan(names[name], part, class_names, source.native_size is None, quiet) for name, part in parts.items() if len(part.indices)]


def _searchable(scans: Sequence[_Scan], count: int) -> bool:
    """Whether near copies can be searched; a line says why not."""
    if count > MOST:
        say(f"{count:,} pictures: near copies are searched among up to {MOST:,}, so exact ones alone are")
        return False
    side = min((min(scan.part.reader.pixels.shape[-2:]) for scan in scans if scan.part.reader.pixels is not None), default=FINE)
    if side < FINE:
        say(f"pictures of {side} pixels: near copies are searched from {FINE} on, where likeness tells a copy, so exact ones alone are")
    return side >= FINE


def _has_labels(config: DataConfig) -> bool:
    """Not where images lie loose in a folder, as a pre-training takes them."""
    kind, rest = parse(config.name)
    return kind != "folder" or has_classes(Path(rest).expanduser())


def write_check(findings: _Findings, shown: Sequence[Any], out: str | Path) -> list[Path]:
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
            ": ".join(filter(None, (copy.splits[1], copy.classes[1]))) + f", {copy.similarity:.2f}{', mirrored' * copy.mirrored}",
        )
        for copy, *_ in shown
    ]
    figure = pair_sheet([(first, second) for _, first, second in shown], captions, title=f"{findings.name}: pictures found twice", across=4)
    return [*paths, *save_figure(figure, out / "pairs", {}, {"command": command_line(), "data": findings.name}, formats=("png",))]


_Pair = tuple[int, int, float, bool]
"""Indices of two images among all, their similarity, whether mirrored."""


class _Scan:
    """One image set, every image decoded once: its hash, its thumbnail, and whether it is unreadable, tiny or of one colour."""

    def __init__(self, name: str, part: ImageSet, class_names: tuple[str, ...], photographs: bool, quiet: bool) -> None:
        self.name, self.part, self.class_names = name, part, class_names
        count = len(part.indices)
        self.thumbnails = np.zeros((count, 3, SIDE, SIDE), np.uint8)
        self.hashes: list[bytes] = [b""] * count
        self.flat, self.tiny = np.zeros(count, bool), np.zeros(count, bool)
        self.unreadable: list[int] = []
        if part.reader.pixels is not None:
            self._read_array(part.reader.pixels, quiet)
        else:
            self._read_files(photographs, quiet)

    def __len__(self) -> int:
        return len(self.part.indices)

    def class_counts(self) -> np.ndarray:
        labels = self.part.labels
        return np.bincount(labels[labels >= 0], minlength=len(self.class_names)) if labels.ndim == 1 else labels.sum(axis=0)

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
        blocks = [slice(start, start + BLOCK) for start in range(0, len(self), BLOCK)]
        for block in track(blocks, f"Reading {self.name}", total=len(blocks), quiet=quiet):
            own = np.ascontiguousarray(pixels[self.part.indices[block]])  # (B, C, H, W)
            self.hashes[block] = [digest(each) for each in own]
            self.flat[block] = own.reshape(len(own), -1).std(axis=1) < _FLAT
            colour = torch.from_numpy(own if own.shape[1] == 3 else own[:, :1].repeat(3, axis=1)).float()
            self.thumbnails[block] = to_numpy(F.interpolate(colour, (SIDE, SIDE), mode="bilinear", antialias=True).round().byte())

    def _read_files(self, photographs: bool, quiet: bool) -> None:
        def read(position: int) -> DataError | None:
            try:
                decoded = self.part.reader.image(int(self.part.indices[position]))
            except DataError as error:
                return error
            image = viewable(decoded).convert("RGB")
            self.tiny[position] = photographs and min(size_of(decoded)) < _TINY
            self.hashes[position] = digest(np.asarray(decoded))
            self.flat[position] = np.asarray(image).std() < _FLAT
            self.thumbnails[position] = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)).transpose(2, 0, 1)
            return None

        results = track(in_threads(read, range(len(self))), f"Reading {self.name}", total=len(self), quiet=quiet)
        self.unreadable = [position for position, error in enumerate(results) if error is not None]


def _exact(images: Sequence[tuple[_Scan, int]]) -> list[_Pair]:
    """All pairs of the same pixels; of many equal ones, each with the first."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for index, (scan, position) in enumerate(images):
        if scan.hashes[position]:
            groups[scan.hashes[position]].append(index)
    pairs: list[_Pair] = []
    for same in groups.values():
        every = combinations(same, 2) if len(same) <= 4 else [(same[0], other) for other in same[1:]]
        pairs += [(one, two, 1.0, False) for one, two in every]
    return sorted(pairs)


def _near(scans: Sequence[_Scan], images: Sequence[tuple[_Scan, int]], exact: Sequence[_Pair], quiet: bool) -> list[_Pair]:
    """Pairs that are nearly the same, the most similar first; without the exact ones, and images that show nothing."""
    same = {pair[:2] for pair in exact}
    shows = [bool(scan.hashes[position]) and not scan.flat[position] for scan, position in images]
    thumbnails = np.concatenate([scan.thumbnails for scan in scans])
    pairs = [pair for pair in near_pairs(thumbnails, quiet) if pair[:2] not in same and shows[pair[0]] and shows[pair[1]]]
    return sorted(pairs, key=lambda pair: -pair[2])


def _copy(images: Sequence[tuple[_Scan, int]], pair: _Pair) -> _Copy:
    one, two, similarity, mirrored = pair
    (first, here), (second, there) = images[one], images[two]
    return _Copy(
        first=first.where(here),
        second=second.where(there),
        splits=(first.name, second.name),
        classes=(first.class_of(here), second.class_of(there)),
        similarity=similarity,
        mirrored=mirrored,
        positions=(here, there),
    )
