"""The user's own pictures: PATH/CLASS/picture, or PATH/{train,val,test}/CLASS/picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vitral.base.errors import DataError, MissingError
from vitral.base.progress import say, track
from vitral.data.decode import EXTENSIONS, SKIP, header_ok
from vitral.data.source import FileReader, Part, Source, measure

SPLITS = {"train": ("train", "training"), "validation": ("val", "valid", "validation"), "test": ("test", "testing")}
HEADERS = 20_000
"""Up to this many files have their headers looked at before training; more would take too long."""


def open_folder(path: Path, on_bad_image: str, *, name: str = "", validation_is_test: bool = False) -> Source:
    """A folder of class folders. `validation_is_test`: its validation folder is what others test on (ImageNet)."""
    name = name or f"folder:{path}"
    if not path.is_dir():
        kind = DataError if path.exists() else MissingError
        raise kind(f"{path} is not a folder", "name a folder with one folder of pictures per class")
    found = {split: next((path / n for n in names if (path / n).is_dir()), None) for split, names in SPLITS.items()}
    if validation_is_test:
        found["test"], found["validation"] = found["test"] or found["validation"], None
    train = found["train"]
    if train is None:
        if found["validation"] or found["test"]:
            raise DataError(
                f"{path} has a {(found['validation'] or found['test'] or path).name} folder but no train folder", "add train/CLASS/…"
            )
        train, found = path, {}
    class_names = tuple(sorted(entry.name for entry in os.scandir(train) if entry.is_dir() and not entry.name.startswith(".")))
    if not class_names:
        raise DataError(f"{train} has no class folders", "put the pictures of each class into a folder of its name")
    notes: list[str] = []
    parts = {
        split: _part(where, class_names, on_bad_image, notes) for split, where in {"train": train, **found}.items() if where is not None
    }
    if not len(parts["train"].labels):
        raise DataError(f"{train} has no pictures", f"pictures end in {' '.join(sorted(EXTENSIONS))}")
    for split in ("validation", "test"):
        if split in parts and not len(parts[split].labels):
            raise DataError(
                f"{found[split]} has no pictures", f"add some, or remove it: pictures for {split} are set aside from the others then"
            )
    test = parts.get("test")
    native_size, channels = measure(parts["train"])
    return Source(
        name=name,
        class_names=class_names,
        train=parts["train"],
        validation=parts.get("validation"),
        test=(lambda: test) if test is not None else None,
        where=str(path),
        native_size=native_size,
        channels=channels,
        notes=tuple(notes),
    )


def _part(folder: Path, class_names: tuple[str, ...], on_bad_image: str, notes: list[str]) -> Part:
    paths, labels, ignored = [], [], 0
    extra = sorted(
        entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".") and entry.name not in class_names
    )
    if extra:
        raise DataError(f"{folder} has class folders that training does not: {', '.join(extra[:5])}", "rename or remove them")
    for label, name in enumerate(class_names):
        for parent, folders, files in os.walk(folder / name):
            folders.sort()
            for file in sorted(files):
                path = Path(parent) / file
                if file.startswith("."):
                    continue
                if path.suffix.lower() in EXTENSIONS:
                    paths.append(path)
                    labels.append(label)
                else:
                    ignored += 1
    if ignored:
        notes.append(f"{ignored} files under {folder} are not pictures by their names and were left out")
    if len(paths) <= HEADERS:
        good = _readable(paths, on_bad_image, notes)
        paths, labels = [paths[i] for i in good], [labels[i] for i in good]
    return Part.all_of(FileReader(paths), np.asarray(labels, np.int64))


def _readable(paths: list[Path], on_bad_image: str, notes: list[str]) -> list[int]:
    """Numbers of the files whose headers are those of pictures: a wrong file is named before training, not hours into it."""
    good: list[int] = []
    for number, path in enumerate(track(paths, "Checking pictures")):
        reason = header_ok(path)
        if reason is None:
            good.append(number)
        elif on_bad_image == "fail":
            raise DataError(f"{path} is not a picture that can be read ({reason})", SKIP)
        else:
            notes.append(f"skipped {path} ({reason})")
            say(f"skipped: {path} is not a picture that can be read ({reason})")
    return good
