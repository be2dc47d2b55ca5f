"""Files that are whole or not there: atomic writes, hashes, bounded reads, JSON.

A write goes to a temporary name in the same folder, reaches the disk, and is renamed over the old file. A reader, a crash
or a second writer therefore sees the old content or the new one, never half of it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from vitral.base.errors import DataError, FileError, MissingError, UsageError, VitralError

JSON_LIMIT = 24 * 2**20
"""Bytes; empty lists and short names take some sixty times as much memory once they are read."""
SETTINGS_LIMIT = 4 * 2**20
"""Of files that say what something is: configs, preprocessors. The names of 21,843 classes take a quarter of it."""


def write_atomic(path: str | Path, content: bytes | str) -> Path:
    """Write `content` to `path` (text as UTF-8), making its folder when it is missing."""
    path = Path(path)
    with _clear("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path, "tmp")
        try:
            with open(temporary, "xb") as file:
                # Half a letter, as in a file name that is no UTF-8, is spelt out: \udcff, which JSON reads back as what it was.
                file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    return path


def make_folder(path: str | Path) -> Path:
    """`path` as a folder, made with its parents when it is missing."""
    path = Path(path)
    with _clear("write", path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def absent(path: str | Path) -> list[Path]:
    """The folders that `make_folder` would make, innermost first."""
    path = Path(path)
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def check_writable(folder: str | Path) -> None:
    """Refuse a folder that cannot be made or written in, before work is spent on what would go there; nothing is written."""
    folder = Path(folder)
    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if not there.is_dir():
        raise UsageError(f"{there} is a file, where a folder is meant", "choose another folder with --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"not allowed to write in {there.absolute()}", "check its permissions, or choose another folder with --out")


def write_json(path: str | Path, data: Any) -> Path:
    """Write `data` as indented JSON; NumPy values, paths and tuples are understood, NaN and infinity become null."""
    return write_atomic(path, json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """`value` in what JSON has: dict, list, str, int, float, bool, None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Path):
        return value.as_posix()
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, tensors
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: str | Path, limit: int = JSON_LIMIT) -> Any:
    """The content of a JSON file; one clear line when it is missing, damaged or too large."""
    content = read_bounded(path, limit)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # text that is not UTF-8 or not JSON, integers of thousands of digits
        raise DataError(f"{path} is not JSON ({error})", "it may be damaged: write it again") from error


def read_bounded(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DataError(f"{path} has {size:,} bytes, the limit is {limit:,}", "use a smaller file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DataError(f"{path} has more than {limit:,} bytes", "use a smaller file")
    return content


@contextlib.contextmanager
def open_regular(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to read; a folder, a pipe or a device in its place is refused, and cannot hang the reader."""
    path = Path(path)
    with _clear("read", path):
        # Opened without blocking and then asked what it is: a pipe put in a file's place cannot hang the reader.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise DataError(f"{path} is not a regular file", "name a file")
    with open(handle, "rb") as file:
        yield file


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: str | Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    path = Path(path)
    with _clear("read", path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """A new, empty folder that takes the place of `path` when the block ends well, and vanishes when it does not.

    An existing folder is moved aside before the new one is moved in, so for an instant `path` is missing: a crash right there
    leaves the old one beside it as `.NAME.….old`.
    """
    path = Path(path)
    with _clear("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path, "tmp")
        temporary.mkdir()
    try:
        yield temporary
        with _clear("write", path):
            for folder, _, names in os.walk(temporary):
                for name in names:
                    _sync_file(Path(folder) / name)
                sync_folder(Path(folder))
            _move_over(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_over(new: Path, path: Path) -> None:
    olds: list[Path] = []
    try:
        while True:
            olds.append(_beside(path, "old"))
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, olds[-1])
            try:
                os.rename(new, path)
                break
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    continue  # another writer came between our two renames: its folder is the one to replace now
                if olds[-1].exists() and not path.exists():
                    os.rename(olds[-1], path)
                raise
        sync_folder(path.parent)
    finally:
        for old in olds:
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink(missing_ok=True)


def _beside(path: Path, ending: str) -> Path:
    """A name next to `path` that nobody else has; short, because the limit for a name is 255 bytes."""
    return path.parent / f".{path.name[:40]}.{secrets.token_hex(8)}.{ending}"


def _sync_file(path: Path) -> None:
    with open(path, "rb") as file, contextlib.suppress(OSError):
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put on disk which files a folder has: without it a power cut can lose a file whose content is safe."""
    # A rename is on disk only when its folder is; some systems cannot sync a folder, and lose nothing else by it.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def writing(path: str | Path) -> contextlib.AbstractContextManager[None]:
    """Around a write of one's own: what the system says becomes one line with a next step."""
    return _clear("write", Path(path))


@contextlib.contextmanager
def _clear(verb: str, path: Path) -> Iterator[None]:
    """Operating-system errors as one line with a next step."""
    try:
        yield
    except VitralError:
        raise  # said already, and some of them are errors of the system as well
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", "check the path") from error
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        raise DataError(f"cannot {verb} {path} ({error.strerror})", "is there a folder where a file is meant, or the reverse?") from error
    except PermissionError as error:
        raise DataError(f"not allowed to {verb} {path}", "check its permissions") from error
    except OSError as error:
        raise FileError(f"cannot {verb} {path} ({error.strerror or error})", "is the disk full?" if verb == "write" else "") from error
