"""Windows for machines that have none. What only POSIX has is taken away, and `msvcrt` locks as the one of Windows does.

As there, a file that is open is neither removed nor replaced, a folder cannot be opened, and a locked byte must lie behind what others
read. Only this process's own handles count for that. What Python's library took from POSIX before, it keeps, and `sys.platform` is as it
was: line ends, drive letters, long paths and start methods do not show.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios", "tty")
NAMES: dict[types.ModuleType, str] = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC chown chroot fchmod fchown fork forkpty getegid geteuid getgid getgroups"
    " getloadavg getpgid getpriority getsid getuid initgroups killpg lchown mkfifo mknod nice posix_spawn readv register_at_fork"
    " sched_getaffinity sched_setaffinity sendfile setsid setuid statvfs sysconf uname wait WNOHANG",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 SIGXCPU alarm pause setitimer sigwait",
    time: "CLOCK_BOOTTIME clock_gettime tzset",
}


def locking(handle: int, mode: int, count: int) -> None:
    """`msvcrt.locking`: of two handles one gets the lock, whatever their processes; its end is the holder's."""
    assert mode == msvcrt.LK_NBLCK and count == 1
    assert os.lseek(handle, 0, os.SEEK_CUR) > os.fstat(handle).st_size + 1000, "nobody could read what stands there"
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


msvcrt: Any = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.locking = 2, locking


def become() -> None:
    """Make this process one on Windows, for what is imported from now on. There is no way back."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.modules["msvcrt"] = msvcrt
    for module, names in NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in ("unlink", "remove", "replace", "rename", "rmdir"):
        setattr(os, name, refusing(getattr(os, name)))
    os.open = refusing(os.open, folders=True)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # Python's own answer to folders that cannot be opened


def refusing(call: Callable[..., Any], folders: bool = False) -> Callable[..., Any]:
    """`call`, but not on a file that is open here, or (where folders) on a folder."""

    def careful(*arguments: Any, **options: Any) -> Any:
        paths = [Path(os.fsdecode(word)) for word in arguments if isinstance(word, str | bytes | os.PathLike)]
        for path in paths:
            if path.is_dir() if folders else _is_open(path.resolve()):
                raise PermissionError(13, "The process cannot access the file", str(path))
        return call(*arguments, **options)

    return careful


def _is_open(path: Path) -> bool:
    """Whether this process has the file, or one in the folder, open."""
    for handle in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the handle of this list is closed by now
            target = Path(os.readlink(f"/dev/fd/{handle}"))
            if path in (target, *target.parents):
                return True
    return False
