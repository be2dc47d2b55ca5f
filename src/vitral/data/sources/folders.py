"""The user's own pictures: PATH/CLASS/picture, or PATH/{train,val,test}/CLASS/picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitral.base.errors import DataError, MissingError
from vitral.base.progress import say, track
from vitral.base.text import few
from vitral.data.images.decode import EXTENSIONS, SKIP, header_ok
from vitral.data.sources.protocol import UNLABELLED, FileReader, ImageSet, Source

SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
HEADERS = 20_000
"""Up to this many files have their headers looked at before training; more would take too long."""
TOLD = 5
"""Files that cannot be read are named up to this many; the others are counted, and kept among the notes."""


def open_folder(path: Path, on_bad_image: str, *, name: str = "", validation_is_test: bool = False, training: bool = True) -> Source:
    """A folder of class folders. `validation_is_test`: its validation folder is what others test on (ImageNet).

    Not for `training`: there may be no train folder, and class folders without pictures are passed over.
    """
    name = name or f"folder:{path}"
    if not path.is_dir():
        kind = DataError if path.exists() else MissingError
        raise kind(f"{path} is not a folder", "name a folder with one folder of pictures per class")
    found = _split_folders(path)
    if validation_is_test:
        found["test"], found["validation"] = found["test"] or found["validation"], None
    train = found["train"]
    if train is None:
        given = found["validation"] or found["test"]
        if given and training:
            raise DataError(f"{path} has a {given.name} folder but no train folder", "add train/CLASS/…")
        train = given or path
        found = found if given else {}
    class_names = tuple(sorted({name for where in (train, *(() if training else found.values())) if where for name in _folders(where)}))
    if not class_names:
        raise DataError(f"{train} has no class folders", "put the pictures of each class into a folder of its name")
    notes: list[str] = []
    places = {"train": train, **found} if training or not found else found
    look = on_bad_image if training else None
    parts = {split: _part(where, class_names, look, notes) for split, where in places.items() if where is not None}
    if not training and (empty := sorted(set(class_names) - {class_names[label] for part in parts.values() for label in part.labels})):
        record_note(notes, f"class folders without pictures were passed over: {few(empty, 5)}")
    parts.setdefault("train", ImageSet.whole(FileReader([]), np.arange(0)))
    if not any(len(part.labels) for part in parts.values()) or (training and not len(parts["train"].labels)):
        raise DataError(f"{train} has no pictures", f"pictures end in {' '.join(sorted(EXTENSIONS))}")
    for split in ("validation", "test"):
        if training and split in parts and not len(parts[split].labels):
            raise DataError(
                f"{found[split]} has no pictures", f"add some, or remove it: pictures for {split} are set aside from the others then"
            )
    return Source.of_parts(name, class_names, parts, str(path), notes)


def has_classes(path: Path) -> bool:
    """Whether a folder, or its train, validation and test folders, hold folders at all; one that is not there may have had them."""
    splits = [path / name for names in SPLITS.values() for name in names if (path / name).is_dir()]
    return not path.is_dir() or any(_folders(place) for place in splits or [path])


def open_pictures(path: Path, on_bad_image: str | None) -> Source:
    """All pictures below a folder, whatever folders they lie in; train, validation and test folders are kept apart.

    `on_bad_image` None: each file is met when it is its turn."""
    if not path.is_dir():
        kind = DataError if path.exists() else MissingError
        raise kind(f"{path} is not a folder", "name a folder with pictures in it")
    found = _split_folders(path)
    places = {split: where for split, where in found.items() if where is not None} if found["train"] else {"train": path}
    notes: list[str] = []
    parts = {}
    for split, where in places.items():
        paths, ignored = _pictures(where)
        _note_ignored(notes, where, ignored)
        if not paths:
            raise DataError(f"{where} has no pictures", f"pictures end in {' '.join(sorted(EXTENSIONS))}")
        parts[split] = files_part(paths, [0] * len(paths), on_bad_image, notes)
    return Source.of_parts(f"folder:{path}", UNLABELLED, parts, str(path), notes)


def _part(folder: Path, class_names: tuple[str, ...], on_bad_image: str | None, notes: list[str]) -> ImageSet:
    paths, labels, ignored = [], [], []
    if extra := sorted(set(_folders(folder)) - set(class_names)):
        raise DataError(f"{folder} has class folders that training does not: {', '.join(extra[:5])}", "rename or remove them")
    for label, name in enumerate(class_names):
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{folder / name} is a link that leads out of {folder}", "copy the pictures there, or name where it leads to")
        found, others = _pictures(folder / name)
        paths += found
        labels += [label] * len(found)
        ignored += others
    _note_ignored(notes, folder, ignored)
    return files_part(paths, labels, on_bad_image, notes)


def _pictures(folder: Path) -> tuple[list[Path], list[str]]:
    """Pictures below a folder in a fixed order, and the names of the files that are none."""
    paths, ignored = [], []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(parent) / file
            if path.suffix.lower() in EXTENSIONS and not file.startswith("."):
                paths.append(path)
            else:
                ignored.append(file)
    return paths, ignored


def _note_ignored(notes: list[str], folder: Path, ignored: list[str]) -> None:
    if ignored:
        record_note(notes, f"left out under {folder}, no pictures by their names: {len(ignored)} ({few(ignored)})")


def files_part(paths: list[Path], labels: Sequence[int] | np.ndarray, on_bad_image: str | None, notes: list[str]) -> ImageSet:
    """Files with their labels. `on_bad_image` None: each file is met when it is its turn; else their headers are looked at now."""
    if on_bad_image and len(paths) <= HEADERS:
        good = with_valid_headers(paths, on_bad_image, notes)
        paths, labels = [paths[i] for i in good], np.asarray(labels)[good]
    return ImageSet.whole(FileReader(paths), np.asarray(labels))


def with_valid_headers(paths: list[Path], on_bad_image: str, notes: list[str]) -> list[int]:
    """Numbers of the files whose headers are those of pictures: a wrong file is named before training, not hours into it."""
    good: list[int] = []
    bad: list[str] = []
    for number, path in enumerate(track(paths, "Checking pictures")):
        reason = header_ok(path)
        if reason is None:
            good.append(number)
        elif on_bad_image == "fail":
            raise DataError(f"{path} is not a picture that can be read ({reason})", f"{SKIP}; --on-bad-image skip passes over it")
        else:
            bad.append(f"skipped: {path} is not a picture that can be read ({reason})")
    for text in bad[:TOLD]:
        record_note(notes, text)
    if len(bad) > TOLD:
        say(f"… and {len(bad) - TOLD:,} more: vitral data check lists them")
        notes += bad[TOLD:]
    return good


def _split_folders(path: Path) -> dict[str, Path | None]:
    """The folder of each split, by the first of its usual names."""
    return {split: next((path / n for n in names if (path / n).is_dir()), None) for split, names in SPLITS.items()}


def _folders(path: Path) -> list[str]:
    return [entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")]


def record_note(notes: list[str], text: str) -> None:
    """Kept with the data, and said at once."""
    notes.append(text)
    say(text)
