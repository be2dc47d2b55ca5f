"""vitral data: list, fetch and show data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


def run(arguments: list[str]) -> int:
    """list | get | show."""
    commands: dict[str, Any] = {"list": list_sets, "get": get_set, "show": show_set}
    return int(tyro.extras.subcommand_cli_from_dict(commands, prog="vitral data", description=__doc__, args=arguments))


def list_sets(root: str | None = None, json_output: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """Every data set that has a name: pictures, classes, size, licence, and where it is. Example: vitral data list

    Args:
        root: Where data sets are kept; default $VITRAL_DATA or ~/.cache/vitral/data.
        json_output: Print JSON instead of a table.
    """
    from vitral.data.catalogue import ENTRIES
    from vitral.data.named import data_root
    from vitral.data.sources import present

    folder = data_root(root)
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
        for entry in ENTRIES
    ]
    if json_output:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    # Two lines each: what it is, then its licence and place, which may be long.
    print(f"{'name':<14} {'training + test':>19} {'classes':>8}  {'size':<12} {'to fetch':>11}")
    for row in rows:
        count = f"{row['train']:,} + {row['test']:,}"
        size = f"{row['megabytes']:,} MB" if row["megabytes"] else "–"
        print(f"{row['name']:<14} {count:>19} {row['classes']:>8}  {row['pictures']:<12} {size:>11}")
        print(f"    {row['title']}; licence: {row['licence']}; {row['where'] or 'not here'}")
    print("Also: folder:PATH (one folder of pictures per class), hf:NAME (Hugging Face), webdataset:PATTERN (tar shards).")
    return 0


def get_set(name: tyro.conf.Positional[str], root: str | None = None) -> int:
    """Fetch a data set; a broken download goes on where it stopped. Example: vitral data get mnist

    Args:
        name: A name from `vitral data list`.
        root: Where data sets are kept; default $VITRAL_DATA or ~/.cache/vitral/data.
    """
    from vitral.config import DataConfig
    from vitral.data.datasets import open_data

    data = open_data(DataConfig(name=name, root=root))
    pictures = len(data.train) + len(data.validation)
    print(f"{name}: {pictures:,} pictures of {len(data.classes)} classes to train and validate, in {data.where}")
    return 0


def show_set(
    name: tyro.conf.Positional[str],
    out: Path = Path("data-sheets"),
    augment: str = "standard",
    root: str | None = None,
    image_size: int | None = None,
    per_class: int = 10,
    seed: int = 0,
    on_bad_image: Literal["fail", "skip"] = "fail",
    json_output: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """A sheet of each class, and a sheet of what a model really sees after augmentation. Example: vitral data show cifar10 --augment strong

    Args:
        name: A name from `vitral data list`, folder:PATH, hf:NAME or webdataset:PATTERN.
        out: Folder for the pictures.
        augment: Augmentation policy to show.
        root: Where data sets are kept.
        image_size: Side in pixels of what the model sees; default: the data set's own.
        per_class: Pictures of each class.
        seed: Which pictures are chosen.
        on_bad_image: Stop at a file that cannot be read, or skip it.
        json_output: Print the facts as JSON.
    """
    from vitral.config import DataConfig
    from vitral.data.datasets import open_data
    from vitral.data.sheets import save_class_sheets, save_seen_sheet

    data = open_data(DataConfig(name=name, root=root, augment=augment, on_bad_image=on_bad_image), image_size=image_size)
    paths = save_class_sheets(data, out, per_class, seed) + save_seen_sheet(data, out, seed=seed)
    facts = data.describe()
    if json_output:
        print(json.dumps({**facts, "files": [str(path) for path in paths]}, indent=2, ensure_ascii=False))
        return 0
    counts = f"{facts['train']:,} pictures to train, {facts['validation']:,} to validate"
    print(f"{data.name}: {counts}, {len(data.classes)} classes, in {data.where}")
    if facts["unbalanced"]:
        print(f"The largest class has {facts['imbalance']:.1f} times as many pictures as the smallest: consider --class-weights.")
    for note in facts["notes"]:
        print(note)
    for path in paths:
        if path.suffix == ".png":
            print(path)
    return 0
