"""From the name in a config to a data set as its source gives it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import one_of
from vitral.config import DataConfig
from vitral.data.catalogue import CATALOGUE, Entry
from vitral.data.raw import Part, Raw
from vitral.data.readers import ArrayReader
from vitral.data.split import balanced_order

DIGITS_TEST_SEED = 1797
"""The digits have no official test split; this one is fixed: 360 pictures, as many of each digit as its share."""


def data_root(root: str | None) -> Path:
    """Where data sets are kept."""
    return Path(root or os.environ.get("VITRAL_DATA") or Path.home() / ".cache" / "vitral" / "data").expanduser()


def open_raw(config: DataConfig) -> Raw:
    """The data set that `config` names."""
    kind, _, rest = config.name.partition(":")
    if rest:
        if kind == "folder":
            from vitral.data.class_folders import open_folder

            return open_folder(Path(rest).expanduser(), config.on_bad_image)
        if kind == "hf":
            from vitral.data.huggingface import open_hub

            return open_hub(rest)
        if kind == "webdataset":
            from vitral.data.shards import open_shards

            return open_shards(rest)
    if config.name not in CATALOGUE:
        raise one_of("data set", config.name, [*CATALOGUE, "folder:PATH", "hf:NAME", "webdataset:PATTERN"])
    entry = CATALOGUE[config.name]
    if entry.kind == "digits":
        return _digits(entry)
    from vitral.data.sources import open_named

    return open_named(entry, data_root(config.root), config.on_bad_image)


def _digits(entry: Entry) -> Raw:
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    whole = Part.all_of(ArrayReader(pixels, entry.name), bunch.target)
    order = balanced_order(whole.labels, DIGITS_TEST_SEED)
    held, kept = np.sort(order[: entry.test]), np.sort(order[entry.test :])
    return Raw(
        name=entry.name,
        classes=entry.class_names,
        train=whole.some(kept),
        test=lambda: whole.some(held),
        where="scikit-learn",
        native_size=entry.native_size,
        channels=1,
        flip=entry.flip,
        mean=entry.mean,
        std=entry.std,
    )
