"""Data sets of the catalogue: found here, or fetched by the first way that works, then opened."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.base.lazy import needed
from vitral.base.progress import say
from vitral.data.sources.catalogue import Entry
from vitral.data.sources.download import download
from vitral.data.sources.mirrors import MIRRORS, PACKAGES, Way, installed
from vitral.data.sources.photographs import LAYOUTS, find_photographs, open_photographs
from vitral.data.sources.protocol import Source
from vitral.data.sources.small_sets import keep_published, kept, open_digits, open_small

FOLDERS = {
    "mnist": "MNIST/raw",
    "fashion-mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "tinyimagenet32": "tiny-imagenet-200",
    **LAYOUTS,
}
"""Where torchvision keeps them, under its root."""


def data_root(root: str | None) -> Path:
    """Where data sets are kept."""
    return Path(root or os.environ.get("VITRAL_DATA") or Path.home() / ".cache" / "vitral" / "data").expanduser()


def open_named(entry: Entry, root: Path, on_bad_image: str) -> Source:
    """A data set of the catalogue; fetched when it is not here."""
    if entry.name == "digits":
        return open_digits(entry)
    if not ready(entry, root):
        fetch(entry, root)
    if entry.native_size:
        return open_small(entry, root)
    return open_photographs(entry, find_photographs(entry, root) or root / FOLDERS[entry.name], on_bad_image)


def ready(entry: Entry, root: Path) -> bool:
    """Whether it can be opened as it lies here, with nothing fetched or unpacked."""
    return entry.name == "digits" or (kept(entry, root) if entry.native_size else find_photographs(entry, root) is not None)


def present(entry: Entry, root: Path) -> str | None:
    """Where a copy lies that can be opened without a network; None: there is none."""
    if entry.name == "digits":
        return "scikit-learn"
    if entry.native_size:
        found = root / entry.name if kept(entry, root) else _published(entry, root) or installed(entry)
    else:
        found = find_photographs(entry, root)
    return str(found) if found else None


def fetch(entry: Entry, root: Path) -> None:
    """Get a data set by the first way that works; every reason and every advice when none does."""
    reasons: list[str] = []
    for name in entry.ways:
        try:
            return WAYS[name].fetch(entry, root)
        except DataError as error:
            reasons.append(f"{name}: {error.message}")
    raise DataError(f"{entry.name} is not here and could not be fetched ({'; '.join(reasons)})", advice(entry, root))


def advice(entry: Entry, root: Path) -> str:
    """How a user gets it."""
    values = {"name": entry.name, "folder": root / FOLDERS[entry.name], "package": PACKAGES.get(entry.name)}
    return "; or ".join(WAYS[name].advice.format(**values) for name in entry.ways)


def _published(entry: Entry, root: Path) -> Path | None:
    """The files as published, where torchvision would have put them."""
    return next((folder for base in (root, Path("data")) if (folder := base / FOLDERS[entry.name]).is_dir()), None)


def _local(entry: Entry, root: Path) -> None:
    folder = _published(entry, root)
    if folder is None or not entry.native_size:
        raise DataError(f"no copy in {root / FOLDERS[entry.name]}")
    keep_published(entry, root, folder)


def _torchvision(entry: Entry, root: Path) -> None:
    """Its addresses and checksums, with our own resuming download."""
    folder = root / FOLDERS[entry.name]
    archives = _addresses(entry.name)
    target = folder if entry.name in ("mnist", "fashion-mnist", "flowers102", "pets") else root
    for urls, digest in archives:
        name = urls[0].rpartition("/")[2]
        failures: list[DataError] = []
        for url in urls:
            try:
                path = download(url, target / name, digest)
                break
            except DataError as error:
                failures.append(error)
        else:
            raise failures[-1]
        if name.endswith((".tgz", ".tar.gz")):
            say(f"Unpacking {path}")
            with tarfile.open(path) as archive:
                archive.extractall(target, filter="data")
    if entry.native_size:
        keep_published(entry, root, folder)


def _addresses(name: str) -> list[tuple[list[str], str]]:
    """(mirrors, digest) of each file, as torchvision lists them."""
    sets = needed("torchvision.datasets", f"fetching {name}")
    if name in ("mnist", "fashion-mnist"):
        kind: Any = sets.MNIST if name == "mnist" else sets.FashionMNIST
        return [([mirror + file for mirror in kind.mirrors], f"md5:{digest}") for file, digest in kind.resources]
    if name in ("cifar10", "cifar100"):
        kind = sets.CIFAR10 if name == "cifar10" else sets.CIFAR100
        return [([kind.url], f"md5:{kind.tgz_md5}")]
    if name == "flowers102":
        kind = sets.Flowers102
        return [([kind._download_url_prefix + file], f"md5:{digest}") for file, digest in kind._file_dict.values()]
    kind = sets.OxfordIIITPet
    return [([url], f"md5:{digest}") for url, digest in kind._RESOURCES]


WAYS: dict[str, Way] = {
    "local": Way(_local, "put a copy into {folder} (torchvision's layout; $VITRAL_DATA names another place)"),
    "torchvision": Way(_torchvision, "where its servers can be reached: vitral data get {name}"),
    **MIRRORS,
}
