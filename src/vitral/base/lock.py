"""One writer a folder: a lock that lives as long as its process, and says who holds it.

The kernel lets go of it when the process ends, however it ends, so there is no stale lock to clear away.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from types import TracebackType

from vitral.base import layout
from vitral.base.errors import DataError, UsageError
from vitral.base.files import writing

try:
    import fcntl
except ImportError:
    import msvcrt

    fcntl = None

FAR = 2**30  # the byte that Windows locks: no other process can read a locked one, and the name of the holder is to be read


class FolderLock:
    """`with FolderLock(folder, "a training"):` — or acquire and release by hand."""

    def __init__(self, folder: Path, purpose: str) -> None:
        self.path, self.purpose = folder / layout.LOCK, purpose
        self._handle: int | None = None

    def acquire(self) -> FolderLock:
        while True:
            if self.path.is_symlink():  # it could lead to any file of the user's
                raise DataError(f"{self.path} is a link, where the lock of a folder belongs", "remove it")
            with writing(self.path):
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            try:
                _lock(handle)
            except OSError as error:
                owner = os.read(handle, 200).decode(errors="replace").strip()
                os.close(handle)
                raise UsageError(
                    f"{self.path.parent} is in use by {self.purpose} in another process{f' ({owner})' if owner else ''}",
                    "wait for it, or choose another folder with --out",
                ) from error
            if self._still_there(handle):
                self._handle = handle
                try:
                    with writing(self.path):
                        os.ftruncate(handle, 0)
                        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
                except BaseException:
                    self.release()
                    raise
                break
            os.close(handle)  # its holder removed it between our two calls
        return self

    def release(self) -> None:
        if self._handle is not None:
            if fcntl is None:  # Windows removes no file that is open, here or in a process that has come for the lock
                os.close(self._handle)
            with contextlib.suppress(OSError):
                self.path.unlink()
            if fcntl is not None:
                os.close(self._handle)
            self._handle = None

    def _still_there(self, handle: int) -> bool:
        try:
            return os.fstat(handle).st_ino == os.stat(self.path).st_ino
        except FileNotFoundError:
            return False

    def __enter__(self) -> FolderLock:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _lock(handle: int) -> None:
    """Lock the file, or raise OSError at once where another handle has locked it."""
    if fcntl is not None:
        return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.lseek(handle, FAR, os.SEEK_SET)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
