"""Labels in a table beside the pictures: a CSV or Parquet file with the columns path, label and, where you have it, split.

path,label,split            path,labels               path,cat,dog
cats/0001.jpg,cat,train     0001.jpg,cat;dog          0001.jpg,1,1
dogs/0001.jpg,dog,test      0002.jpg,                 0002.jpg,0,0

The second and the third give several labels a picture, or none: names with ; or | between them, or a column of 0 and 1 for each class.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, MissingError
from vitral.base.files import read_bounded
from vitral.base.text import few
from vitral.data.sources.folders import SPLITS, files_part
from vitral.data.sources.protocol import ImageSet, Source

_COLUMNS: dict[str, tuple[str, ...]] = {
    "path": ("path", "file", "filename", "image"),
    "label": ("label", "class", "target"),
    "labels": ("labels", "tags", "classes"),
    "split": ("split", "set"),
}
"""What a column may be called; a column `labels` makes the data multi-label even where no image has two."""
_Where = Callable[[int], str]
"""Row → how an error names it: "line 3" of a text, "row 2" of a Parquet file."""
_LARGEST = 1 << 30
"""Bytes of a table; a picture takes some fifty of them, and ten times as many once it is read."""
MOST = 20_000_000
"""Rows; ImageNet-21k has 14 million."""
_PACKED = 10_000
"""Guards against tiny files with huge tables: above 10,000 rows, a file needs at least one byte a row."""
_LONGEST = 4096
"""Bytes of a path or a label: what systems allow."""
_LABEL_SEPARATORS = re.compile(r"[;|]")
"""Between the labels of one image."""
_BINARY_VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
"""What a column of one class may hold."""


def open_labels(kind: str, path: Path, on_bad_image: str, *, training: bool = True) -> Source:
    """The pictures that a table names; paths are relative to its folder. Not for `training`: it may hold a test split alone."""
    if not path.is_file():
        raise (DataError if path.exists() else MissingError)(f"{path} is not a file", f"name a {kind} file with the columns path and label")
    columns, where = _read_csv(path) if kind == "csv" else _read_parquet(path)
    headers = {name.lower(): name for name in columns}
    roles = {role: next((columns[headers[name]] for name in names if name in headers), None) for role, names in _COLUMNS.items()}
    files = roles["path"]
    if files is None:
        raise DataError(f"{path} has no column path (it has {few(list(columns), 8)})", f"call it {' or '.join(_COLUMNS['path'])}")
    if not len(files):
        raise DataError(f"{path} names no pictures", "add a line for each: path,label")
    class_names, answers = _answers(path, columns, roles, where)
    files = [_checked_name(value, f"{path} {where(row)}") for row, value in enumerate(files)]
    notes: list[str] = []
    parts: dict[str, ImageSet] = {}
    for split, rows in _rows_of(path, roles["split"], where, len(files)).items():
        paths = [path.parent / files[row] for row in rows]
        parts[split] = files_part(paths, answers[rows], on_bad_image if training else None, notes)
    if training and ("train" not in parts or not len(parts["train"].labels)):
        raise DataError(f"{path} names no pictures to train on", "give some of them the split train")
    return Source.of_parts(f"{kind}:{path}", class_names, parts, str(path), notes)


def _read_csv(path: Path) -> tuple[dict[str, list[str]], _Where]:
    """Column → values, and the lines of the rows; a file that ends in .tsv is separated by tabs."""
    try:
        text = read_bounded(path, _LARGEST).decode("utf-8-sig")
        read = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
        # Empty lines are passed over, and a value in quotes may run over several.
        numbers, rows = [], []
        for row in itertools.islice(filter(None, read), MOST + 2):
            numbers.append(read.line_num)
            rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8 ({error})", "save it as CSV (UTF-8) with a first line path,label") from error
    _few_enough(path, len(rows) - 1, MOST)
    header = [name.strip() for name in rows[0]] if rows else []
    for row, number in zip(rows[1:], numbers[1:], strict=True):
        if len(row) != len(header):
            raise DataError(f"{path} line {number} has {len(row)} values, its first line {len(header)}", "repair the line")
    return {name: [row[column].strip() for row in rows[1:]] for column, name in enumerate(header)}, lambda row: f"line {numbers[row + 1]}"


def _read_parquet(path: Path) -> tuple[dict[str, list[Any]], _Where]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise DataError("pyarrow is not installed, which reads Parquet", "pip install pyarrow, or use csv:FILE") from error
    try:
        names = parquet.read_schema(path).names
        headers = {name.lower() for name in names}
        labelled = headers.intersection(_COLUMNS["label"] + _COLUMNS["labels"])  # else each class has a column
        used = [name for name in names if not labelled or name.lower() in itertools.chain(*_COLUMNS.values())]
        # As dictionaries: a name that a few bytes repeat a million times is kept once.
        schema = parquet.read_metadata(path).schema
        leaves = [schema.column(number).path for number in range(len(schema))]
        file = parquet.ParquetFile(path, read_dictionary=[leaf for leaf in leaves if leaf.partition(".")[0] in used])
        _few_enough(path, _most_values(file.metadata), min(MOST, max(_PACKED, path.stat().st_size)))
        table = file.read(used)
        table.validate(full=True)  # a damaged file can point beyond its own dictionary
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a readable Parquet file ({(str(error).splitlines() or [''])[0]})", "write it again") from error
    columns = {name: _values(path, table.column(name)) if name in used else [] for name in names}
    return columns, lambda row: f"row {row + 1}"


def _most_values(metadata: Any) -> int:
    """Of the column with most: the rows, or more where a row holds a list."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return max((sum(group.column(column).num_values for group in groups) for column in range(metadata.num_columns)), default=0)


def _values(path: Path, column: Any) -> list[Any]:
    for chunk in column.chunks:
        words = getattr(getattr(chunk, "values", chunk), "dictionary", None)  # of a column of lists, what they hold
        if words is not None and any(len(str(word)) > _LONGEST for word in words.to_pylist()):
            raise DataError(f"{path} holds a name of more than {_LONGEST:,} letters", "it may be damaged: write it again")
    return column.to_pylist()


def _few_enough(path: Path, rows: int, most: int) -> None:
    if rows > most:
        raise DataError(f"{path} has more than {most:,} rows", "split it, or name the folder of the pictures")


def _checked_name(value: Any, where: str) -> str:
    """A name that the system can have; one of a million letters would make the table of all names as wide."""
    text = str(value)
    if value is None or not text.strip() or "\0" in text or len(os.fsencode(text)) > _LONGEST:
        raise DataError(f"{where} names no file ({text[:40]!r})", "write the path of a picture, relative to the table")
    return text


def _answers(path: Path, columns: dict[str, Any], roles: dict[str, Any], where: _Where) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names, and the classes of the rows: (N,) numbers, or (N, K) of 0 and 1 where a row may have several."""
    labels = roles["label"] or roles["labels"]
    if labels is None:
        others = {name: values for name, values in columns.items() if values is not roles["path"] and values is not roles["split"]}
        return _one_hot_columns(path, others, where)
    lists = [_names(value) for value in labels]
    multi_label = roles["label"] is None or any(len(names) > 1 for names in lists)
    if not multi_label and [] in lists:
        raise DataError(f"{path} {where(lists.index([]))} has no label", "add one, or remove the line")
    _refuse_numbers(path, labels)
    every = {name for names in lists for name in names}
    if max(map(len, every), default=0) > _LONGEST:
        raise DataError(f"{path} has a label of more than {_LONGEST:,} letters", "use the name of a class")
    class_names = tuple(sorted(every, key=_natural(every)))
    numbers = {name: number for number, name in enumerate(class_names)}
    if not multi_label:
        return class_names, np.array([numbers[name] for (name,) in lists], np.int64)
    if len(lists) * len(class_names) > _LARGEST:
        raise DataError(f"{path} has {len(class_names):,} different labels on {len(lists):,} pictures", "leave out the rare ones")
    answers = np.zeros((len(lists), len(class_names)), np.uint8)
    for row, names in enumerate(lists):
        answers[row, [numbers[name] for name in names]] = 1
    return class_names, answers


def _names(value: Any) -> list[str]:
    """The labels in one cell, of Parquet possibly a list."""
    parts = value if isinstance(value, list) else [] if value is None else _LABEL_SEPARATORS.split(str(value))
    return [name for part in parts if (name := str(part).strip())]


def _one_hot_columns(path: Path, columns: dict[str, Any], where: _Where) -> tuple[tuple[str, ...], np.ndarray]:
    """A column for each class, 1 where a picture is of it."""
    if not columns:
        raise DataError(f"{path} has no column label", "add one: path,label; or a column of 0 and 1 for each class")
    answers = np.zeros((len(next(iter(columns.values()))), len(columns)), np.uint8)
    for column, (name, values) in enumerate(columns.items()):
        for row, value in enumerate(values):
            answer = _BINARY_VALUES.get(str(value).strip().lower())
            if answer is None:
                raise DataError(
                    f"{path} has no column label, and {value!r} in {where(row)} of its column {name} is neither 0 nor 1",
                    f"call the labels {' or '.join((*_COLUMNS['label'], _COLUMNS['labels'][0]))}, or give each class a column of 0 and 1",
                )
            answers[row, column] = answer
    return tuple(columns), answers


def _refuse_numbers(path: Path, labels: Sequence[Any]) -> None:
    """Numbers with a fraction are measurements: regression, which is left out."""
    try:
        numbers = [float(label) for label in labels]
    except (TypeError, ValueError):
        return
    if broken := next((number for number in numbers if not number.is_integer()), None):
        raise DataError(f"{path}: the label {broken:g} is a measurement, and regression is not what this trains", "use classes")


def _natural(names: Iterable[str]) -> Any:
    """Classes 0 to 11 in the order of numbers, all others in that of letters, as folders are."""
    return int if all(name.isascii() and name.isdigit() and len(name) < 20 for name in names) else str


def _rows_of(path: Path, splits: Sequence[Any] | None, where: _Where, count: int) -> dict[str, list[int]]:
    """Split → numbers of its rows."""
    if splits is None:
        return {"train": list(range(count))}
    words = {word: split for split, names in SPLITS.items() for word in names}
    out: dict[str, list[int]] = {}
    for row, value in enumerate(splits):
        word = str(value).strip().lower()
        if word not in words:
            raise DataError(f"{path} {where(row)} has the split {value!r}", "use train, val or test")
        out.setdefault(words[word], []).append(row)
    return out
