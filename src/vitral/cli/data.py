"""vitral data list|get|show|check|cache: list, fetch, show and check data sets, and what is kept of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.progress import print_clean
from vitral.base.text import NOTHING, byte_size, table
from vitral.cli.parsing import Command, run_command
from vitral.config.data import Augmentation

EXAMPLES = """List, fetch, show and check data sets.

Examples:
  vitral data list
  vitral data get mnist
  vitral data show digits --augment strong
  vitral data check folder:photos
  vitral data cache
"""

_LIST = """List every data set that has a name: images, classes, size, licence, and where it is.

Examples:
  vitral data list
  vitral data list --json
"""

_GET = """Fetch a data set; a broken download is resumed.

Examples:
  vitral data get mnist
  vitral data get cifar10 --root data
"""

_SHOW = """Write a sheet of each class, and one of what a model sees after augmentation.

Examples:
  vitral data show digits --augment strong
  vitral data show folder:photos --image-size 64 --out sheets
"""


_CHECK = """Check a data set: copies within and between splits, unreadable, tiny and one-colour images, unbalanced classes.

Opens every split, test too, and trains nothing.

Examples:
  vitral data check folder:photos
  vitral data check cifar10 --json
  vitral data check folder:photos --against cifar10 folder:more --out checked
"""


_CACHE = """List or delete what trainings with --cache have stored: images that were decoded and resized once.

Examples:
  vitral data cache
  vitral data cache --delete all
  vitral data cache --delete 0f3a9c2e41b87d65 --json
"""


@dataclass(frozen=True)
class _List:
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class _Get:
    name: Annotated[str, "NAME"]
    """A name from `vitral data list`."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""


@dataclass(frozen=True)
class _Show:
    name: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, hf:NAME or webdataset:PATTERN."""
    out: Path = Path("data-sheets")
    """Folder for the pictures."""
    augment: Augmentation = "standard"
    """Augmentation policy to show."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    image_size: int | None = None
    """Side in pixels of what the model sees; None: the data set's own."""
    per_class: int = 10
    """Pictures of each class."""
    seed: int = 0
    """Which pictures are chosen."""
    on_bad_image: Literal["fail", "skip"] = "fail"
    """Stop at a file that cannot be read, or skip it."""
    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True)
class _Check:
    name: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, csv:FILE, hf:NAME or webdataset:PATTERN."""
    against: tuple[str, ...] = ()
    """Also look for its pictures in these data sets."""
    near_copies: Literal["yes", "no"] = "yes"
    """Also find copies that are shifted, recompressed, brightened or mirrored; no: the same pixels alone."""
    out: Path = Path("data-check")
    """Folder for check.json, check.md and pairs.png."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True)
class _Cache:
    delete: tuple[str, ...] = ()
    """Keys of those to delete (their first letters are enough), or `all`."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    json: bool = False
    """Print everything as JSON."""


def run(arguments: list[str]) -> int:
    return run_command("data", COMMANDS, EXAMPLES, arguments)


def _list(flags: _List) -> int:
    from vitral.data.sources.catalogue import CATALOGUE
    from vitral.data.sources.fetch import data_root, present

    folder = data_root(flags.root)
    rows = [
        {
            "name": entry.name,
            "title": entry.title,
            "train": entry.train,
            "test": entry.test,
            "classes": entry.classes,
            "pictures": entry.size,
            "megabytes": entry.megabytes,
            "licence": entry.licence,
            "where": present(entry, folder),
        }
        for entry in CATALOGUE.values()
    ]
    if flags.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    sizes = [
        (
            entry.name,
            f"{entry.train:,} + {entry.test:,}",
            str(entry.classes),
            entry.size,
            f"{entry.megabytes:,} MB" if entry.megabytes else NOTHING,
        )
        for entry in CATALOGUE.values()
    ]
    lines = table(sizes, ("name", "training + test", "classes", "size", "to fetch"), align="lrrlr").splitlines()
    # Two lines each: what it is, then its licence and place, which may be long.
    details = ["", "", *(f"\n    {row['title']}; licence: {row['licence']}; {row['where'] or 'not here'}" for row in rows)]
    print_clean("\n".join(line + detail for line, detail in zip(lines, details, strict=True)))
    print_clean("Also: folder:PATH (one folder of pictures per class), hf:NAME (Hugging Face), webdataset:PATTERN (tar shards).")
    return 0


def _get(flags: _Get) -> int:
    from vitral.config import DataConfig
    from vitral.data.splits.open import open_data

    data = open_data(DataConfig(name=flags.name, root=flags.root))
    pictures = len(data.train) + len(data.validation)
    print_clean(f"{flags.name}: {pictures:,} pictures of {len(data.class_names)} classes to train and validate, in {data.where}")
    return 0


def _show(flags: _Show) -> int:
    from vitral.config import DataConfig
    from vitral.data.contact_sheets import save_class_sheets, save_seen_sheet
    from vitral.data.splits.open import open_data

    config = DataConfig(name=flags.name, root=flags.root, augment=flags.augment, on_bad_image=flags.on_bad_image)
    data = open_data(config, image_size=flags.image_size)
    seen = save_seen_sheet(data, flags.out, seed=flags.seed)
    paths = save_class_sheets(data, flags.out, flags.per_class, flags.seed) + seen
    described = data.describe()
    if flags.json:
        print(json.dumps({**described, "files": [str(path) for path in paths]}, indent=2, ensure_ascii=False))
        return 0
    counts = f"{described['train']:,} pictures to train, {described['validation']:,} to validate"
    print_clean(f"{data.name}: {counts}, {len(data.class_names)} classes, in {data.where}")
    if described["unbalanced"]:
        print_clean(f"The largest class has {described['imbalance']:.1f} times as many pictures as the smallest: consider --class-weights.")
    for path in paths:
        if path.suffix == ".png":
            print_clean(path)
    return 0


def _check(flags: _Check) -> int:
    from vitral.config import DataConfig
    from vitral.data.splits.check import check_data, write_check

    config, *against = (DataConfig(name=name, root=flags.root, on_bad_image="skip") for name in (flags.name, *flags.against))
    findings, shown = check_data(config, against, flags.near_copies == "yes", flags.json)
    paths = write_check(findings, shown, flags.out)
    if flags.json:
        print(json.dumps({**findings.to_dict(), "files": [str(path) for path in paths]}, ensure_ascii=False))
        return 0
    print_clean(findings.text())
    for path in paths:
        print_clean(path)
    return 0


def _cache(flags: _Cache) -> int:
    from vitral.base.errors import one_of
    from vitral.data.cache import caches, delete_caches
    from vitral.data.sources.fetch import data_root

    root = data_root(flags.root)
    entries = caches(root)
    chosen = [entry["key"] for entry in entries if "all" in flags.delete or entry["key"].startswith(flags.delete or ("?",))]
    for prefix in flags.delete:
        if prefix != "all" and not any(key.startswith(prefix) for key in chosen):
            raise one_of("cache", prefix, [entry["key"] for entry in entries])
    freed = delete_caches(root, chosen) if flags.delete else 0
    left = [entry for entry in entries if entry["key"] not in chosen]
    if flags.json:
        print(json.dumps({"caches": left, "deleted": chosen, "freed": freed}))
        return 0
    if flags.delete:
        print_clean(f"deleted {len(chosen)}, {byte_size(freed)} are free again")
    rows = [
        (entry["key"], f"{entry.get('pictures', 0):,}", f"{entry.get('side') or 'full'}", byte_size(entry["bytes"]), entry.get("first", ""))
        if entry["whole"]
        else (entry["key"], NOTHING, NOTHING, byte_size(entry["bytes"]), "half-written: delete it unless a training is making it now")
        for entry in left
    ]
    print_clean(table(rows, ("key", "pictures", "short side", "size", "first picture"), align="lrrrl") if rows else f"no caches in {root}")
    return 0


COMMANDS: dict[str, Command] = {
    "list": (_List, _LIST, _list),
    "get": (_Get, _GET, _get),
    "show": (_Show, _SHOW, _show),
    "check": (_Check, _CHECK, _check),
    "cache": (_Cache, _CACHE, _cache),
}
