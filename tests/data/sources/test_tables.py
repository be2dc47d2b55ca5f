"""Labels in a table: the same pictures as in folders give the same data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError, MissingError
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.tables import open_labels
from vitral.data.splits.open import open_data, open_source, open_split
from vitral.train.fit import fit

CLASSES = ("cat", "dog", "owl")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve small pictures a class, each class of one colour, in folders."""
    for number, name in enumerate(CLASSES):
        for index in range(12):
            path = tmp_path / "photos" / name / f"{index:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.full((16, 16, 3), 10 * index, np.uint8)
            pixels[..., number] = 250
            Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def write(photos: Path, name: str = "labels.csv", split: bool = False, header: str = "path,label") -> Path:
    lines = [header + (",split" if split else "")]
    for path in sorted(photos.rglob("*.png")):
        part = "test" if int(path.stem) > 9 else "val" if int(path.stem) == 9 else "train"
        lines.append(f"photos/{path.parent.name}/{path.name},{path.parent.name}" + (f",{part}" if split else ""))
    file = photos.parent / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return file


def test_a_table_gives_what_the_folders_give(photos: Path):
    table, folders = open_data(DataConfig(f"csv:{write(photos)}")), open_data(DataConfig(f"folder:{photos}"))
    assert table.class_names == folders.class_names == CLASSES and table.name.startswith("csv:")
    for one, two in ((table.train, folders.train), (table.validation, folders.validation), (table.test(), folders.test())):
        assert [Path(one.where(i)).name for i in range(len(one))] == [Path(two.where(i)).name for i in range(len(two))]
        assert np.array_equal(one.labels, two.labels) and np.array_equal(one.pixels(), two.pixels())


def test_splits_columns_and_numbers_are_read_as_they_are_meant(photos: Path, tmp_path: Path):
    source = open_source(DataConfig(f"csv:{write(photos, split=True, header='Filename,Class')}"))
    assert source.validation is not None and source.test is not None
    assert (len(source.train.labels), len(source.validation.labels), len(source.test.labels)) == (27, 3, 6)
    numbered = tmp_path / "numbers.csv"
    numbered.write_text("path,label\n" + "".join(f"photos/cat/{i % 12:02d}.png,{i}\n" for i in range(12)))
    assert open_source(DataConfig(f"csv:{numbered}")).class_names == tuple(map(str, range(12)))  # not 0, 1, 10, 11, 2
    tested = tmp_path / "tested.csv"
    tested.write_text("path,label,split\nphotos/cat/00.png,cat,test\nphotos/dog/00.png,dog,test\n")
    assert len(open_split(DataConfig(f"csv:{tested}"), Preprocess((16, 16), 3))) == 2  # to be scored on, not to learn from
    with pytest.raises(DataError, match="train"):
        open_source(DataConfig(f"csv:{tested}"))


def test_parquet_is_the_same_table_and_says_what_it_needs(photos: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        file = write(photos)
        with pytest.raises(DataError, match="pyarrow"):
            open_labels("parquet", file, "fail")
    arrow = pytest.importorskip("pyarrow.csv")
    from pyarrow import parquet

    parquet.write_table(arrow.read_csv(str(write(photos, split=True))), photos.parent / "labels.parquet")
    one, two = (open_source(DataConfig(f"{kind}:{photos.parent}/labels.{kind}")) for kind in ("csv", "parquet"))
    assert one.class_names == two.class_names and np.array_equal(one.train.labels, two.train.labels)
    with pytest.raises(DataError, match="Parquet"):
        open_labels("parquet", write(photos), "fail")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("picture,label\na.png,cat\n", "has no column path .it has picture, label.: call it path or file"),
        ("path,label\n", "names no pictures"),
        ("path,cat,dog\nphotos/cat/00.png,1,maybe\n", "no column label, and 'maybe' in line 2 of its column dog is neither 0 nor 1"),
        ("path,split\nphotos/cat/00.png,train\n", "no column label: add one: path,label; or a column of 0 and 1 for each class"),
        ("path,label\nphotos/cat/00.png,0.25\nphotos/cat/01.png,3\n", "0.25 is a measurement, and regression is not"),
        ("path,label\nphotos/cat/00.png,\n", "line 2 has no label"),
        ("path,label\nphotos/cat/00.png\n", "line 2 has 1 values, its first line 2"),
        ("path,label,split\nphotos/cat/00.png,cat,later\n", "line 2 has the split 'later': use train, val or test"),
        ('path,label\n\n"photos\n/cat/00.png",cat\n\nphotos/cat/00.png,\n', "line 6 has no label"),
        ("path,label\n\nphotos/cat/00.png,cat\n\nphotos/cat/00.png\n", "line 5 has 1 values"),
        ("path,label,split\n\nphotos/cat/00.png,cat,later\n", "line 3 has the split 'later'"),
        ("path,cat\n\nphotos/cat/00.png,maybe\n", "'maybe' in line 3 of"),
        ("path,label\n\n  ,cat\n", "line 3 names no file"),
        ("path,label\nphotos/none.png,cat\nphotos/cat/00.png,dog\n", "none.png is not a picture that can be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(content: str, words: str, photos: Path):
    file = photos.parent / "labels.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=words):
        open_source(DataConfig(f"csv:{file}"))


def test_a_bad_file_is_passed_over_when_asked_and_a_missing_table_is_named(photos: Path, tmp_path: Path):
    (photos / "cat" / "03.png").write_bytes(b"no picture")
    file = write(photos)
    assert len(open_source(DataConfig(f"csv:{file}", on_bad_image="skip")).train.labels) == 35
    with pytest.raises(MissingError, match="file"):
        open_source(DataConfig(f"csv:{tmp_path / 'none.csv'}"))


def test_a_run_learns_from_a_table(photos: Path, tmp_path: Path):
    model = ModelConfig(patch_size=(4, 4), width=16, depth=1, heads=2, mlp_width=16).opened()
    settings = TrainConfig(epochs=20, batch_size=8, lr=3e-3, threads=1, device="cpu", evaluate_every=20)
    run = fit(
        RunConfig("table", model, DataConfig(f"csv:{write(photos, split=True)}", augment="none"), settings), tmp_path / "run", quiet=True
    )
    assert run.test["accuracy"] == 1 and run.model.origin.classes.value == CLASSES


@pytest.mark.parametrize(
    ("path", "label"),
    [("", "cat"), ("a\0b.png", "cat"), ("a" * 100_000, "cat"), ("photos/cat/00.png", "x" * 100_000), ("photos/cat/00.png", "nan")],
)
def test_a_strangers_table_is_read_or_refused_in_one_line(path: str, label: str, photos: Path):
    file = photos.parent / "labels.csv"
    file.write_text(f"path,label\n{path},{label}\nphotos/dog/00.png,{label}\n")
    with pytest.raises(DataError) as caught:
        open_source(DataConfig(f"csv:{file}"))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_numbers_of_thousands_of_digits_are_names(photos: Path):
    """Python refuses to read them as numbers, and would take a second to."""
    file = photos.parent / "labels.csv"
    file.write_text(f"path,label\nphotos/cat/00.png,{'9' * 4000}\nphotos/dog/00.png,1\n")
    with pytest.raises(DataError, match="measurement"):
        open_source(DataConfig(f"csv:{file}"))


def test_a_few_bytes_cannot_claim_millions_of_rows(photos: Path, monkeypatch: pytest.MonkeyPatch):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = photos.parent / "labels.parquet"

    def column(word: str, count: int) -> Any:
        return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(count, np.int32)), [word])

    parquet.write_table(arrow.table({"path": column("a.png", 10**6), "label": column("cat", 10**6)}), file)
    assert file.stat().st_size < 10_000
    with pytest.raises(DataError, match="10,000 rows"):
        open_source(DataConfig(f"parquet:{file}"))
    # A million letters that ten thousand rows share would be ten gigabytes of text.
    parquet.write_table(arrow.table({"path": column("a" * 10**6, 10**4), "label": column("cat", 10**4)}), file)
    with pytest.raises(DataError, match="4,096"):
        open_source(DataConfig(f"parquet:{file}"))
    monkeypatch.setattr("vitral.data.sources.tables.MOST", 2)
    with pytest.raises(DataError, match="2 rows"):
        open_source(DataConfig(f"csv:{write(photos)}"))


@pytest.mark.parametrize(
    "content",
    [
        "path,labels\nphotos/cat/00.png,cat;Dog\nphotos/dog/00.png,Dog\nphotos/owl/00.png,\n",
        "path,label\nphotos/cat/00.png, Dog | cat\nphotos/dog/00.png,Dog\nphotos/owl/00.png,\n",
        "Path,Dog,cat\nphotos/cat/00.png,1,1\nphotos/dog/00.png,1,0\nphotos/owl/00.png,0,0\n",
    ],
)
def test_several_labels_are_written_in_three_ways(content: str, photos: Path):
    file = photos.parent / "labels.csv"
    file.write_text(content)
    source = open_source(DataConfig(f"csv:{file}"))
    assert source.class_names == ("Dog", "cat")
    assert source.train.labels.dtype == np.uint8 and source.train.labels.tolist() == [[1, 1], [1, 0], [0, 0]]


def test_parquet_may_hold_lists_of_labels(photos: Path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"path": "photos/cat/00.png", "labels": ["cat", "dog"]}, {"path": "photos/dog/00.png", "labels": []}]
    parquet.write_table(arrow.Table.from_pylist(rows), photos.parent / "labels.parquet")
    source = open_source(DataConfig(f"parquet:{photos.parent}/labels.parquet"))
    assert source.class_names == ("cat", "dog") and source.train.labels.tolist() == [[1, 1], [0, 0]]


def test_a_parquet_file_that_points_beyond_its_dictionary_is_refused(photos: Path, monkeypatch: pytest.MonkeyPatch):
    """Seen as one flipped bit of thousands of damaged tables."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    paths = arrow.DictionaryArray.from_arrays(arrow.array([0, 68], arrow.int32()), ["photos/cat/00.png"], safe=False)
    read = arrow.table({"path": paths, "label": ["cat", "dog"]})
    parquet.write_table(arrow.table({"path": ["a", "b"], "label": ["cat", "dog"]}), photos.parent / "labels.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "read", lambda *_, **__: read)
    with pytest.raises(DataError, match=r"Parquet file.*68"):
        open_source(DataConfig(f"parquet:{photos.parent}/labels.parquet"))
