"""Rows of values as a file that other programs read: CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError, UsageError
from vitral.base.files import read_bounded, write_atomic
from vitral.base.text import clean

KINDS = (".csv", ".json", ".parquet")
LARGEST = 512 << 20
"""Bytes of a table that is read."""


def check_kind(path: str | Path) -> Path:
    """Refuse a kind of file that cannot be written, before anything is spent."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{path} is not a table that can be written", f"end its name in {', '.join(KINDS)}")
    if path.suffix.lower() == ".parquet":
        _parquet()
    return path


def write_records(path: str | Path, rows: Sequence[dict[str, Any]]) -> Path:
    """One row each; a row without a value of a column has an empty cell there."""
    path = check_kind(path)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    rows = [{name: row.get(name) for name in columns} for row in rows]
    kind = path.suffix.lower()
    if kind == ".json":
        return write_atomic(path, json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n")
    content = io.BytesIO()
    if kind == ".parquet":
        arrow, parquet = _parquet()
        parquet.write_table(arrow.Table.from_pylist([_each(row, clean) for row in rows]), content)
    else:
        text = io.TextIOWrapper(content, encoding="utf-8", newline="", write_through=True)
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(_each(row, _no_formula) for row in rows)
    return write_atomic(path, content.getvalue())


def read_records(path: str | Path) -> list[dict[str, Any]]:
    """What `write_records` wrote; of a CSV every value is text."""
    path = check_kind(path)
    kind = path.suffix.lower()
    content = read_bounded(path, LARGEST)
    try:
        if kind == ".parquet":
            return _parquet()[1].read_table(io.BytesIO(content)).to_pylist()
        if kind == ".csv":
            lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
            return [{name: _formula_again(value) for name, value in row.items() if name and value is not None} for row in lines]
        rows = json.loads(content)
    except (ValueError, csv.Error, OSError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as a table ({error})", "write it again: vitral eval MODEL DATA --table FILE") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} holds no rows", "write it again: vitral eval MODEL DATA --table FILE")
    return rows


def ranked(pairs: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """(class, probability), most probable first, as columns."""
    columns = {"answer": pairs[0][0], "confidence": pairs[0][1]}
    for rank, (name, share) in enumerate(pairs, 1):
        columns |= {f"class_{rank}": name, f"probability_{rank}": share}
    return columns


def _each(row: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {name: change(value) if isinstance(value, str) else value for name, value in row.items()}


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would take for a formula, and run, gets the apostrophe that marks it as text there."""
    text = clean(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _formula_again(text: str) -> str:
    return text[1:] if text.startswith("'") and _no_formula(text[1:]) == text else text


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise UsageError("Parquet needs pyarrow", "pip install pyarrow, or write .csv or .json") from None
    return pyarrow, pyarrow.parquet
