"""Data sets of the Hugging Face hub, or a folder that its library saved: `hf:NAME`, `hf:NAME@CONFIG`, `hf:FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError
from vitral.base.lazy import how_to_install
from vitral.base.network import asking_the_hub
from vitral.data.sources.folders import record_note
from vitral.data.sources.protocol import ImageSet, Source, TableReader


def open_hub(name: str) -> Source:
    """`NAME` or `NAME@CONFIG` on the hub, or the path of a folder written by `save_to_disk`."""
    tables = _tables(name)
    train = tables.get("train")
    if train is None:
        raise DataError(f"hf:{name} has the splits {', '.join(tables)} but no train", "choose a data set with a train split")
    image, label = _columns(name, train)
    names, order = _classes(train, label)

    def part(table: Any) -> ImageSet:
        values = table[label]
        labels = np.asarray([order.get(value, -1) for value in values] if order else list(values), np.int64)
        return ImageSet.whole(TableReader(_undecoded(table, image), image, f"hf:{name}"), labels)

    def usable(table: Any) -> bool:
        """Hidden labels are published as -1, or not at all: such a split tests nothing."""
        return label in table.column_names and bool(not len(table) or order or min(table[label]) >= 0)

    names_of = {"validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
    notes: list[str] = []
    parts = {"train": part(train)}
    for split, keys in names_of.items():
        if (table := next((tables[key] for key in keys if key in tables), None)) is None:
            continue
        if usable(table):
            parts[split] = part(table)
        else:
            record_note(notes, f"the {split} split has no labels: one was carved from the training pictures")
    return Source.of_parts(f"hf:{name}", names, parts, name if Path(name).expanduser().exists() else "Hugging Face's cache", notes)


def is_here(name: str) -> bool:
    """Whether `open_hub` finds it without a download: a folder, or cached by the library in a folder OWNER___NAME in small letters."""
    if Path(name).expanduser().is_dir():
        return True
    try:
        from datasets import config
    except ImportError:
        return True  # opening it names what is missing
    cache, letters = Path(config.HF_DATASETS_CACHE), _letters(name.partition("@")[0].rpartition("/")[2])
    return cache.is_dir() and any(_letters(folder.name.rpartition("___")[2]) == letters for folder in cache.iterdir())


def _letters(name: str) -> str:
    """TinyImages, tiny_images and tiny-images are one name."""
    return "".join(filter(str.isalnum, name)).lower()


def _tables(name: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"hf:{name} needs the package datasets", how_to_install("datasets")) from error
    path = Path(name).expanduser()
    advice = (
        f"where the hub can be reached, open it once (it is cached then) and set HF_HUB_OFFLINE=1; "
        f'or copy a folder made there with datasets.load_dataset("{name}").save_to_disk(FOLDER) and use hf:FOLDER; or use folder:PATH'
    )
    try:
        if path.is_dir() and ((path / "dataset_dict.json").is_file() or (path / "state.json").is_file()):
            loaded = datasets.load_from_disk(str(path))
        else:
            hub_name, _, config = name.partition("@")
            with asking_the_hub():
                loaded = datasets.load_dataset(hub_name, config or None)
    except Exception as error:
        # The library has dozens of exception classes for "not there", "no network" and "damaged".
        raise DataError(
            f"hf:{name} cannot be opened ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})", advice
        ) from error
    return {str(split): table for split, table in loaded.items()} if isinstance(loaded, dict) else {"train": loaded}


def _columns(name: str, table: Any) -> tuple[str, str]:
    """The picture column and the label column."""
    import datasets

    images = [column for column, feature in table.features.items() if isinstance(feature, datasets.Image)]
    labelled = [column for column, feature in table.features.items() if isinstance(feature, datasets.ClassLabel)]
    likely = [column for column in ("label", "fine_label", "labels", "class", "target") if column in table.column_names]
    if not images or not (labelled or likely):
        raise DataError(f"hf:{name} has the columns {', '.join(table.column_names)}", "a picture column and a label column are needed")
    label = next((column for column in likely if column in labelled), labelled[0] if labelled else likely[0])
    return images[0], label


def _classes(table: Any, label: str) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Class names, and for labels that are not numbers their order."""
    feature = table.features[label]
    if hasattr(feature, "names"):
        return tuple(feature.names), {}
    values = sorted(set(table[label]), key=str)
    if values and all(isinstance(value, int) and value >= 0 for value in values):
        return tuple(str(number) for number in range(max(values) + 1)), {}
    return tuple(str(value) for value in values), {value: number for number, value in enumerate(values)}


def _undecoded(table: Any, image: str) -> Any:
    """The bytes as they are: decoding is ours, with EXIF, 16 bits and the rest."""
    import datasets

    return table.cast_column(image, datasets.Image(decode=False))
