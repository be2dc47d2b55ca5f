"""What data may be called: a name of the catalogue, or `KIND:REST`, such as `folder:photos` or `hf:cifar10`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.base.errors import DataError, MissingError, UnknownNameError, one_of
from vitral.base.origin import OWN
from vitral.config import DataConfig
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.fetch import data_root, open_named
from vitral.data.sources.folders import open_folder
from vitral.data.sources.hub import open_hub
from vitral.data.sources.protocol import Source
from vitral.data.sources.shards import open_shards
from vitral.data.sources.tables import open_labels


@dataclass(frozen=True)
class _Kind:
    """A kind of source, by the word before the colon."""

    open: Callable[[str, DataConfig, bool], Source]
    """(what follows the colon, the settings, whether for a training) → the source."""
    argument: str
    """What follows the colon, in a list of names."""
    expected: str | None = None
    """What must exist at the path after the colon; None: it is no path, or a pattern."""


def _folder(rest: str, config: DataConfig, training: bool) -> Source:
    return open_folder(Path(rest).expanduser(), config.on_bad_image, training=training)


def _table(kind: str, rest: str, config: DataConfig, training: bool) -> Source:
    return open_labels(kind, Path(rest).expanduser(), config.on_bad_image, training=training)


KINDS: dict[str, _Kind] = {
    "folder": _Kind(_folder, "PATH", "a folder with one folder of pictures per class"),
    "csv": _Kind(partial(_table, "csv"), "FILE", "a csv file with the columns path and label"),
    "parquet": _Kind(partial(_table, "parquet"), "FILE", "a parquet file with the columns path and label"),
    "hf": _Kind(lambda rest, *_: open_hub(rest), "NAME"),
    "webdataset": _Kind(lambda rest, *_: open_shards(rest), "PATTERN"),
}


def parse(name: str) -> tuple[str, str]:
    """`folder:photos` → ("folder", "photos"); ("", name) for a name of the catalogue, or of nothing."""
    kind, _, rest = name.partition(":")
    return (kind, rest) if rest and kind in (*KINDS, OWN) else ("", name)


def open_kind(config: DataConfig, training: bool) -> Source:
    """The data set that `config` names, as its source gives it."""
    kind, rest = parse(config.name)
    if kind in KINDS:
        return KINDS[kind].open(rest, config, training)
    check_name(config.name)
    return open_named(CATALOGUE[config.name], data_root(config.root), config.on_bad_image)


def check_name(name: str) -> None:
    """Refuse what names no data, before anything is opened or fetched."""
    kind, rest = parse(name)
    if kind == OWN:
        raise DataError(f"{name} was given by a program, and only that program has it", "give it again: vitral.fit(…, data=…)")
    if kind:
        if KINDS[kind].expected and not Path(rest).expanduser().exists():
            raise MissingError(f"{rest} does not exist", f"name {KINDS[kind].expected}")
    elif name not in CATALOGUE:
        if Path(name).is_dir():
            raise UnknownNameError(f"{name} is a folder, not the name of a data set", f"write folder:{name}")
        raise one_of("data set", name, [*CATALOGUE, *(f"{kind}:{each.argument}" for kind, each in KINDS.items())])
