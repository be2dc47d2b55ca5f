"""Downloads that survive a broken connection: what has arrived is kept, the rest is asked for, the whole is checked."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from vitral.base.errors import DataError
from vitral.base.files import make_folder
from vitral.base.progress import progress

_PIECE = 1 << 20
_ATTEMPTS = 5
"""Failures after which one that brought nothing new is the last."""
_TIMEOUT = 15
"""Seconds without a byte before an attempt is given up."""


def download(url: str, path: Path, digest: str, pause: float = 1.0) -> Path:
    """Fetch `url` to `path` unless it is there already; `digest` is `md5:…`, `sha256:…` or `sha512:…` in hex.

    Bytes go to `path` + `.part`; a later call, in this process or another, goes on where it ended.
    """
    if path.is_file() and has_digest(path, digest):
        return path
    part = path.with_name(path.name + ".part")
    make_folder(path.parent)
    for failures in itertools.count(1):
        had = _size(part)
        try:
            _fetch(url, part, f"Downloading {path.name}")
            break
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 416, 429):
                raise DataError(f"{url} answers HTTP {error.code}", "the address may have moved") from error
            if error.code == 416:  # the piece we have is longer than the file: start anew
                part.unlink(missing_ok=True)
            reason = f"HTTP {error.code}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        # A server that cannot be reached is given up at once; one that breaks off gets more chances.
        if not _size(part) or (failures >= _ATTEMPTS and _size(part) <= had):
            raise DataError(
                f"{url} could not be fetched ({reason}; {_size(part):,} bytes are kept)", "the same command goes on where this one stopped"
            )
        time.sleep(pause)
    if not has_digest(part, digest):
        part.unlink()
        raise DataError(
            f"{url} arrived damaged: its {digest.partition(':')[0]} is not {digest.partition(':')[2]}", "run the same command again"
        )
    os.replace(part, path)
    return path


def has_digest(path: Path, digest: str) -> bool:
    kind, _, expected = digest.partition(":")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest() == expected


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch(url: str, part: Path, description: str) -> None:
    have = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "vitral", **({"Range": f"bytes={have}-"} if have else {})})
    if not url.startswith(("http://", "https://")):
        raise DataError(f"{url} is not a web address", "use http or https")
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not resumed:
            have = 0  # the server sends the whole file again
        length = answer.headers.get("Content-Length")
        expected = have + int(length) if length else None
        with open(part, "ab" if resumed else "wb") as file, progress(description, expected) as bar:
            bar.advance(have)
            while piece := answer.read(_PIECE):
                file.write(piece)
                bar.advance(len(piece))
        # A connection cut in the middle can look like a normal end.
        if expected is not None and part.stat().st_size < expected:
            raise OSError(f"connection closed after {part.stat().st_size:,} of {expected:,} bytes")
