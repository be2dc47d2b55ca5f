"""A record in one file: `results/records/digits-0.zip` holds the folder of a run or a study, and opens as that folder does."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vitral.base.errors import DataError, VitralError
from vitral.base.files import open_regular

_LARGEST = 256 * 2**20
"""Bytes of an archive, and of all files that it unpacks to."""
_MOST = 10_000
"""Files in an archive."""
_SUFFIX = ".zip"
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Path]:
    """The folder that `path` is; of an archive, a temporary folder with its files, which is removed afterwards."""
    path = Path(path)
    if path.suffix != _SUFFIX or not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="vitral-") as folder:
        try:
            _unpack(path, Path(folder))
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            raise DataError(f"{path} cannot be unpacked ({error})", "it is damaged: fetch the record again") from error
        try:
            yield Path(folder)
        except VitralError as error:  # the user named the archive, and never saw the folder
            raise type(error)(error.message.replace(folder, str(path)), error.hint.replace(folder, str(path))) from error


def _unpack(path: Path, folder: Path) -> None:
    """Write the files of an archive below `folder`, each as a new, ordinary file."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > _MOST:
            raise ValueError(f"it has {len(entries):,} files, the limit is {_MOST:,}")
        size = sum(entry.file_size for entry in entries)  # zipfile reads no more than what an entry declares
        if size > _LARGEST:
            raise ValueError(f"its files have {size:,} bytes, the limit is {_LARGEST:,}")
        for entry in entries:
            target = folder / _inside(entry)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, open(target, "xb") as copy:
                shutil.copyfileobj(source, copy)


def _inside(entry: zipfile.ZipInfo) -> PurePosixPath:
    """The relative path of an entry, `cells/NAME/test.npz`; an error where it is a link or could leave the folder."""
    parts = entry.filename.split("/")
    unsafe = any(part in ("", ".", "..") or set(part) & set('\\:"*?<>|') or not part.isprintable() for part in parts)
    ordinary = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG) and entry.compress_type in _PACKED
    if unsafe or not ordinary:
        raise ValueError(f"{entry.filename!r} is no ordinary file inside of it")
    return PurePosixPath(*parts)
