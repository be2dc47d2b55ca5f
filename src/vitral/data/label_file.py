"""Labels in a table beside the pictures: a CSV or Parquet file with the columns path, label and, where you have it, split.

path,label,split
cats/0001.jpg,cat,train
dogs/0001.jpg,dog,test
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError, MissingError
from vitral.base.files import read_bounded
from vitral.base.text import few
from vitral.data.class_folders import SPLITS, files_part
from vitral.data.source import Part, Source

KINDS = ("csv", "parquet")
COLUMNS = {"path": ("path", "file", "filename", "image"), "label": ("label", "class", "target"), "split": ("split", "set")}
"""What a column may be called."""
LARGEST = 1 << 30
"""Bytes of a table; a picture takes some fifty of them, and ten times as many once it is read."""
MOST = 20_000_000
"""Rows; ImageNet-21k has 14 million."""
PACKED = 10_000
"""Rows of a Parquet file that may share bytes; of more, each has one at least: names of files differ."""
LONGEST = 4096
"""Bytes of a path or a label: what systems allow."""
SEVERAL = ";"
"""What others write between several labels of one picture."""


def open_labels(kind: str, path: Path, on_bad_image: str, *, training: bool = True) -> Source:
    """The pictures that a table names; paths are relative to its folder. Not for `training`: it may hold a test split alone."""
    if not path.is_file():
        raise (DataError if path.exists() else MissingError)(f"{path} is not a file", f"name a {kind} file with the columns path and label")
    columns = _read_csv(path) if kind == "csv" else _read_parquet(path)
    found = {name: next((columns[other] for other in others if other in columns), None) for name, others in COLUMNS.items()}
    files, labels = found["path"], found["label"]
    if files is None or labels is None:
        missing = "path" if files is None else "label"
        raise DataError(f"{path} has no column {missing} (it has {few(list(columns), 8)})", f"call it {' or '.join(COLUMNS[missing])}")
    if not len(files):
        raise DataError(f"{path} names no pictures", "add a line for each: path,label")
    names = [_label(value, f"{path} line {number}") for number, value in enumerate(labels, 2)]
    _refuse_numbers(path, labels)
    class_names = tuple(sorted(set(names), key=_natural(names)))
    numbers = {name: number for number, name in enumerate(class_names)}
    files = [_file(value, f"{path} line {number}") for number, value in enumerate(files, 2)]
    notes: list[str] = []
    parts: dict[str, Part] = {}
    for split, rows in _rows_of(path, found["split"], len(files)).items():
        paths = [path.parent / files[row] for row in rows]
        chosen = [numbers[names[row]] for row in rows]
        parts[split] = files_part(paths, chosen, on_bad_image if training else None, notes)
    if training and ("train" not in parts or not len(parts["train"].labels)):
        raise DataError(f"{path} names no pictures to train on", "give some of them the split train")
    return Source.of_parts(f"{kind}:{path}", class_names, parts, str(path), notes)


def _read_csv(path: Path) -> dict[str, list[str]]:
    """Column → values; a file that ends in .tsv is separated by tabs."""
    try:
        text = read_bounded(path, LARGEST).decode("utf-8-sig")
        read = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
        rows = list(itertools.islice((row for row in read if row), MOST + 2))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8 ({error})", "save it as CSV (UTF-8) with a first line path,label") from error
    _few_enough(path, len(rows) - 1, MOST)
    header = [name.strip().lower() for name in rows[0]] if rows else []
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise DataError(f"{path} line {number} has {len(row)} values, its first line {len(header)}", "repair the line")
    return {name: [row[place].strip() for row in rows[1:]] for place, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise DataError("pyarrow is not installed, which reads Parquet", "pip install pyarrow, or use csv:FILE") from error
    try:
        names = parquet.read_schema(path).names
        wanted = [name for name in names if name.lower() in itertools.chain(*COLUMNS.values())]
        # As dictionaries: a name that a few bytes repeat a million times is kept once.
        file = parquet.ParquetFile(path, read_dictionary=wanted)
        _few_enough(path, file.metadata.num_rows, min(MOST, max(PACKED, path.stat().st_size)))
        table = file.read(wanted)
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a readable Parquet file ({(str(error).splitlines() or [''])[0]})", "write it again") from error
    return {name.lower(): _values(path, table.column(name)) if name in wanted else [] for name in names}


def _values(path: Path, column: Any) -> list[Any]:
    for chunk in column.chunks:
        words = getattr(chunk, "dictionary", None)
        if words is not None and any(len(str(word)) > LONGEST for word in words.to_pylist()):
            raise DataError(f"{path} holds a name of more than {LONGEST:,} letters", "it may be damaged: write it again")
    return column.to_pylist()


def _few_enough(path: Path, rows: int, most: int) -> None:
    if rows > most:
        raise DataError(f"{path} has more than {most:,} rows", "split it, or name the folder of the pictures")


def _file(value: Any, where: str) -> str:
    """A name that the system can have; one of a million letters would make the table of all names as wide."""
    text = str(value)
    if value is None or not text.strip() or "\0" in text or len(os.fsencode(text)) > LONGEST:
        raise DataError(f"{where} names no file ({text[:40]!r})", "write the path of a picture, relative to the table")
    return text


def _label(value: Any, where: str) -> str:
    if isinstance(value, list) or SEVERAL in str(value):
        raise DataError(f"{where} has several labels ({value}): a picture has one class here", "keep one label a line")
    if value is None or not str(value).strip():
        raise DataError(f"{where} has no label", "add one, or remove the line")
    if len(str(value)) > LONGEST:
        raise DataError(f"{where} has a label of {len(str(value)):,} letters", "use the name of a class")
    return str(value).strip()


def _refuse_numbers(path: Path, labels: Sequence[Any]) -> None:
    """Numbers with a fraction are measurements: regression, which is left out."""
    try:
        numbers = [float(label) for label in labels]
    except (TypeError, ValueError):
        return
    if broken := next((number for number in numbers if not number.is_integer()), None):
        raise DataError(f"{path}: the label {broken:g} is a measurement, and regression is not what this trains", "use classes")


def _natural(names: Sequence[str]) -> Any:
    """Classes 0 to 11 in the order of numbers, all others in that of letters, as folders are."""
    return int if all(name.isascii() and name.isdigit() and len(name) < 20 for name in names) else str


def _rows_of(path: Path, splits: Sequence[Any] | None, count: int) -> dict[str, list[int]]:
    """Split → numbers of its rows."""
    if splits is None:
        return {"train": list(range(count))}
    words = {word: split for split, spoken in SPLITS.items() for word in spoken}
    out: dict[str, list[int]] = {}
    for row, value in enumerate(splits):
        word = str(value).strip().lower()
        if word not in words:
            raise DataError(f"{path} line {row + 2} has the split {value!r}", "use train, val or test")
        out.setdefault(words[word], []).append(row)
    return out
