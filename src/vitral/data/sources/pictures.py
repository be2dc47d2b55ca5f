"""Pictures that a user names: those in a folder, and those of them that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.base.picture import Picture
from vitral.base.progress import say
from vitral.data.images.decode import EXTENSIONS
from vitral.data.images.preprocess import open_picture
from vitral.data.sources.folders import ignored_text, require_folder, scan_folder


def picture_folder(folder: str | Path) -> Path:
    require_folder(folder := Path(folder), "name a folder of pictures")
    return folder


def find_pictures(folder: str | Path) -> list[Path]:
    """The pictures in a folder and its subfolders, sorted; a line names the files that are none."""
    folder = picture_folder(folder)
    pictures, others = (sorted(path for path in paths if path.is_file()) for paths in scan_folder(folder))
    if not pictures:
        raise DataError(f"the folder {folder} holds no pictures", f"files ending in {', '.join(sorted(EXTENSIONS))} are looked for")
    if others:
        say(ignored_text(folder, sorted(others, key=lambda path: path.name)))
    return pictures


def open_readable(sources: Iterable[Any], model: Any, bad: list[tuple[str, DataError]] | None = None) -> Iterator[Picture]:
    """Each picture as the model wants it; one that cannot be read is named, skipped and added to `bad`. None at all is an error."""
    good, bad = 0, [] if bad is None else bad
    for source in sources:
        try:
            picture = open_picture(source, model)
        except DataError as error:
            bad.append((str(source), error))
            if good:  # else nothing may be readable, and the error says it
                say(f"skipped: {error.message}")
            continue
        for _, error in () if good else bad:
            say(f"skipped: {error.message}")
        good += 1
        yield picture
    if bad and not good:
        first = bad[0][1]
        raise first if len(bad) == 1 else DataError(f"none of {len(bad)} pictures can be read, such as {first.message}", first.hint)
    if bad:
        say(f"{len(bad)} of {good + len(bad)} pictures could not be read")
