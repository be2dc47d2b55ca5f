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
_HEADERS = 20_000
"""Up to this many files have their headers checked before training; more would take too long."""
_NAMED = 5
"""Files that cannot be read are printed up to this many; the others are counted, and added to the notes."""
_ENDINGS = f"pictures end in {' '.join(sorted(EXTENSIONS))}"


def open_folder(path: Path, on_bad_image: str, *, name: str = "", validation_is_test: bool = False, training: bool = True) -> Source:
    """A folder of class folders. `validation_is_test`: its validation folder is what others test on (ImageNet).

    Not for `training`: there may be no train folder, and class folders without images are skipped.
    """
    require_folder(path, "name a folder with one folder of pictures per class")
    folders = _split_folders(path)
    if validation_is_test and "validation" in folders:
        folders.setdefault("test", folders["validation"])
        del folders["validation"]
    if "train" not in folders:
        other = folders.get("validation") or folders.get("test")
        if other and training:
            raise DataError(f"{path} has a {other.name} folder but no train folder", "add train/CLASS/…")
        folders = folders if other else {"train": path}
    train = next(folders[split] for split in SPLITS if split in folders)
    class_names = tuple(sorted({name for folder in ([train] if training else folders.values()) for name in _class_folders(folder)}))
    if not class_names:
        raise DataError(f"{train} has no class folders", "put the pictures of each class into a folder of its name")
    notes: list[str] = []
    checked = on_bad_image if training else None
    parts = {split: _part(folder, class_names, checked, notes) for split, folder in folders.items()}
    if not training and (empty := sorted(set(class_names) - {class_names[label] for part in parts.values() for label in part.labels})):
        record_note(notes, f"class folders without pictures were passed over: {few(empty, 5)}")
    parts.setdefault("train", ImageSet.whole(FileReader([]), np.arange(0)))
    if not any(len(part.labels) for part in parts.values()) or (training and not len(parts["train"].labels)):
        raise DataError(f"{train} has no pictures", _ENDINGS)
    for split, part in parts.items():
        if training and not len(part.labels):
            raise DataError(
                f"{folders[split]} has no pictures", f"add some, or remove it: pictures for {split} are set aside from the others then"
            )
    return Source.of_parts(name or f"folder:{path}", class_names, parts, str(path), notes)


def has_classes(path: Path) -> bool:
    """Whether a folder, or its train, validation and test folders, hold folders at all; one that is not there may have had them."""
    splits = [path / name for names in SPLITS.values() for name in names if (path / name).is_dir()]
    return not path.is_dir() or any(_class_folders(folder) for folder in splits or [path])


def open_pictures(path: Path, on_bad_image: str | None) -> Source:
    """All images below a folder, in any subfolder; train, validation and test folders are kept apart.

    `on_bad_image` None: each file is checked when it is read."""
    require_folder(path, "name a folder with pictures in it")
    folders = _split_folders(path)
    notes: list[str] = []
    parts = {}
    for split, folder in (folders if "train" in folders else {"train": path}).items():
        paths, others = scan_folder(folder)
        _note_ignored(notes, folder, others)
        if not paths:
            raise DataError(f"{folder} has no pictures", _ENDINGS)
        parts[split] = files_part(paths, [0] * len(paths), on_bad_image, notes)
    return Source.of_parts(f"folder:{path}", UNLABELLED, parts, str(path), notes)


def require_folder(path: Path, hint: str) -> None:
    if not path.is_dir():
        raise (DataError if path.exists() else MissingError)(f"{path} is not a folder", hint)


def _part(folder: Path, class_names: tuple[str, ...], on_bad_image: str | None, notes: list[str]) -> ImageSet:
    paths: list[Path] = []
    labels: list[int] = []
    ignored: list[Path] = []
    if extra := sorted(set(_class_folders(folder)) - set(class_names)):
        raise DataError(f"{folder} has class folders that training does not: {', '.join(extra[:5])}", "rename or remove them")
    for label, name in enumerate(class_names):
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{folder / name} is a link that leads out of {folder}", "copy the pictures there, or name where it leads to")
        own, others = scan_folder(folder / name)
        paths += own
        labels += [label] * len(own)
        ignored += others
    _note_ignored(notes, folder, ignored)
    return files_part(paths, labels, on_bad_image, notes)


def scan_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Images below a folder in a fixed order, and the files that are none: hidden ones (macOS' `._*`) and other endings."""
    images, others = [], []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(parent) / file
            (images if path.suffix.lower() in EXTENSIONS and not file.startswith(".") else others).append(path)
    return images, others


def ignored_text(folder: Path, ignored: Sequence[Path]) -> str:
    return f"left out under {folder}, no pictures by their names: {len(ignored)} ({few([path.name for path in ignored])})"


def _note_ignored(notes: list[str], folder: Path, ignored: list[Path]) -> None:
    if ignored:
        record_note(notes, ignored_text(folder, ignored))


def files_part(paths: list[Path], labels: Sequence[int] | np.ndarray, on_bad_image: str | None, notes: list[str]) -> ImageSet:
    """Files with their labels. `on_bad_image` None: each file is checked when it is read; else their headers are checked now."""
    if on_bad_image and len(paths) <= _HEADERS:
        good = _with_valid_headers(paths, on_bad_image, notes)
        paths, labels = [paths[i] for i in good], np.asarray(labels)[good]
    return ImageSet.whole(FileReader(paths), np.asarray(labels))


def _with_valid_headers(paths: list[Path], on_bad_image: str, notes: list[str]) -> list[int]:
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
    for text in bad[:_NAMED]:
        record_note(notes, text)
    if len(bad) > _NAMED:
        say(f"… and {len(bad) - _NAMED:,} more: vitral data check lists them")
        notes += bad[_NAMED:]
    return good


def _split_folders(path: Path) -> dict[str, Path]:
    """The folder of each split that has one, by the first of its usual names."""
    present = {split: [path / name for name in names if (path / name).is_dir()] for split, names in SPLITS.items()}
    return {split: folders[0] for split, folders in present.items() if folders}


def _class_folders(path: Path) -> list[str]:
    return [entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")]


def record_note(notes: list[str], text: str) -> None:
    """Stored with the data, and printed at once."""
    notes.append(text)
    say(text)
