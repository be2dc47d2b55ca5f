"""Rows as files."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from vitral.base.errors import DataError, UsageError
from vitral.base.records import ranked, read_records, write_records

ROWS = [
    {"path": "a, b.jpg", **ranked([("Kätzchen", 0.75), ("owl", 0.25)])},
    {"path": '"q".jpg', **ranked([("owl", 1.0), ("Kätzchen", 0.0)])},
]


def test_csv_and_json_hold_the_same(tmp_path: Path) -> None:
    assert json.loads(write_records(tmp_path / "t.json", ROWS).read_text(encoding="utf-8")) == ROWS
    with write_records(tmp_path / "t.csv", ROWS).open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()} for row in ROWS]
    assert write_records(tmp_path / "none.csv", []).read_bytes() == b"\r\n"


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(write_records(tmp_path / "t.parquet", ROWS)).to_pylist() == ROWS


def test_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.csv"):
        write_records(tmp_path / "t.xlsx", ROWS)


def test_a_name_is_no_formula_and_no_escape_sequence(tmp_path: Path) -> None:
    names = ["=HYPERLINK(A1)", "+1", "-2+3", "@SUM(A1)", "\t=1", "plain", "\x1b[2J.jpg", os.fsdecode(b"\xff.jpg")]
    rows = [{"path": name, "confidence": -0.5} for name in names]
    with write_records(tmp_path / "t.csv", rows).open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["path"] for row in read] == [
        "'=HYPERLINK(A1)",
        "'+1",
        "'-2+3",
        "'@SUM(A1)",
        "'\t=1",
        "plain",
        "\\x1b[2J.jpg",
        "\\udcff.jpg",
    ]
    assert {row["confidence"] for row in read} == {"-0.5"}  # numbers stay numbers
    assert json.loads(write_records(tmp_path / "t.json", rows).read_text(encoding="utf-8")) == rows
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(write_records(tmp_path / "t.parquet", rows)).column("path").to_pylist()[-1] == "\\udcff.jpg"


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    rows = [*ROWS, {"path": "=1+1.png", **ranked([("'owl", 0.5), ("-owl", 0.5)])}]
    assert read_records(write_records(tmp_path / "t.json", rows)) == rows
    assert read_records(write_records(tmp_path / "t.csv", rows)) == [{name: str(value) for name, value in row.items()} for row in rows]
    for content in ("{", '{"path": 1}', "[1]"):
        (tmp_path / "damaged.json").write_text(content)
        with pytest.raises(DataError, match=r"damaged\.json"):
            read_records(tmp_path / "damaged.json")
