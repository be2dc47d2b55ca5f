"""Webdataset shards, written by its own library's convention."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import webdataset
from PIL import Image

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.loader import Loader
from vitral.data.sources.shards import expand, find_shards, open_shards
from vitral.data.splits.open import open_data


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((10, 12, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, samples: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in samples:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def fill(folder: Path) -> None:
    for shard in range(3):
        samples = []
        for number in range(shard * 10, shard * 10 + 10):
            label = b'{"label": %d}' % (number % 2) if shard == 2 else b"%d\n" % (number % 2)
            samples += [(f"s{number:03d}.png", png(number)), (f"s{number:03d}.{'json' if shard == 2 else 'cls'}", label)]
        write(folder / f"train-{shard:03d}.tar", samples)
    write(folder / "test-000.tar", [("x.png", png(200)), ("x.cls", b"1")])


def test_shards_are_read_by_number(tmp_path: Path) -> None:
    fill(tmp_path)
    raw = open_shards(str(tmp_path))
    assert len(raw.train.labels) == 30 and raw.class_names == ("0", "1") and raw.native_size == (10, 12)
    for number in (0, 9, 17, 29):
        assert np.asarray(raw.train.reader.image(number)).max() == number
        assert raw.train.labels[number] == number % 2
    assert raw.test is not None and np.asarray(raw.test.reader.image(0)).max() == 200
    again = open_shards(str(tmp_path))  # from the kept index
    assert np.array_equal(again.train.labels, raw.train.labels)


def test_shards_written_by_webdataset(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "train-0.tar")) as sink:
        for number in range(8):
            sink.write({"__key__": f"k{number}", "png": Image.fromarray(np.full((9, 9, 3), number, np.uint8)), "cls": number % 2})
    raw = open_shards(str(tmp_path / "train-{0..0}.tar"))
    assert [int(np.asarray(raw.train.reader.image(i)).max()) for i in range(8)] == list(range(8))
    assert raw.train.labels.tolist() == [0, 1] * 4


def test_streamed_with_splits_and_names(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "classes.txt").write_text("even\nodd\n")
    data = open_data(DataConfig(name=f"webdataset:{tmp_path}/train-{{000..002}}.tar", subset=20))
    assert data.class_names == ("even", "odd") and len(data.train) == 20 and len(data.test()) == 6
    loader = Loader(data.train, batch_size=5, train=True, placement="stream", workers=1)
    batches = list(loader.epoch(0))
    assert sum(len(batch.labels) for batch in batches) == 20
    assert all((data.preprocess.mean[0] is not None) and batch.images.shape == (5, 3, 10, 12) for batch in batches)


def test_patterns() -> None:
    assert expand("a-{08..10}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert expand("{x,y}-{0..1}.tar") == ["x-0.tar", "x-1.tar", "y-0.tar", "y-1.tar"]
    with pytest.raises(DataError, match="exist"):
        find_shards("/nowhere/a-{0..1}.tar")
    with pytest.raises(DataError, match="matches"):
        find_shards("/nowhere/*.tar")


def test_bad_shards(tmp_path: Path) -> None:
    write(tmp_path / "train-a.tar", [("x.png", png(1))])
    with pytest.raises(DataError, match="label"):
        open_shards(str(tmp_path))
    write(tmp_path / "train-a.tar", [("x.png", png(1)), ("x.cls", b"cat")])
    with pytest.raises(DataError, match=r"x\.cls"):
        open_shards(str(tmp_path))
    (tmp_path / "train-a.tar").write_bytes(b"no archive at all" * 100)
    with pytest.raises(DataError, match="tar"):
        open_shards(str(tmp_path))


def test_labels_ask_for_no_memory_of_their_own(tmp_path: Path) -> None:
    for label, words in ((b"100000000", "label 100,000,000"), (b"-1", "no label"), (b"1e400", "no label"), (b"9" * 5000, "no label")):
        write(tmp_path / "train-a.tar", [("x.png", png(1)), ("x.cls", label)])
        with pytest.raises(DataError, match=words):
            open_shards(str(tmp_path))
    with pytest.raises(DataError, match="1,000,000,000"):
        expand("train-{0..999999999}.tar")


def test_an_index_that_does_not_fit_its_shard_is_made_anew(tmp_path: Path) -> None:
    write(tmp_path / "train-a.tar", [("x.png", png(1)), ("x.cls", b"0")])
    good = open_shards(str(tmp_path)).train.labels
    (kept,) = tmp_path.glob(".*.index.npy")
    for wrong in (np.full((1, 3), 10**12), np.zeros(5, np.int64), np.array([[0, -1, 0]]), np.zeros((1, 3))):
        np.save(kept, wrong)
        assert np.array_equal(open_shards(str(tmp_path)).train.labels, good)


def test_a_shard_that_claims_more_than_it_has(tmp_path: Path) -> None:
    write(tmp_path / "train-a.tar", [("x.cls", b"0"), ("x.png", png(1))])
    content = (tmp_path / "train-a.tar").read_bytes()
    (tmp_path / "train-a.tar").write_bytes(content[: content.index(b"\x89PNG") + 10])
    with pytest.raises(DataError, match=r"last picture|tar"):
        open_shards(str(tmp_path))
