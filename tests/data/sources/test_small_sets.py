"""Published formats, damaged and hostile ones too."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import DataError
from vitral.data.sources.small_sets import cifar_folder, read_batch, read_idx


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


def test_idx_plain_and_gzipped(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "a"), array) and np.array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08\x01",
        b"\0\0\x0d\x01" + bytes(4),
        idx(np.zeros((2, 2), np.uint8))[:-1],
        idx(np.zeros((2, 2), np.uint8)) + b"\0",
        b"\0\0\x08\xff" + b"\xff" * 50,
    ],
)
def test_damaged_idx(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match="idx file"):
        read_idx(tmp_path / "a")
    (tmp_path / "b.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(DataError):
        read_idx(tmp_path / "b.gz")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_code_of_a_batch_is_run(tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Evil()}, protocol))
    with pytest.raises(DataError, match=r"names (posix|nt)\.mkdir"):
        read_batch(tmp_path / "batch")
    assert not (tmp_path / "was-run").exists()
    (tmp_path / "batch").write_bytes(b"junk")
    with pytest.raises(DataError, match="damaged"):
        read_batch(tmp_path / "batch")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_cifar_batches_of_any_protocol(tmp_path: Path, protocol: int) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    for split in ("train", "test"):
        (tmp_path / split).write_bytes(pickle.dumps({"data": rows, "fine_labels": [0, 1, 99, 3], "coarse_labels": [0] * 4}, protocol))
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": ["apple", "bear"]}, protocol))
    arrays, names = cifar_folder(tmp_path, hundred=True)
    assert names == ("apple", "bear")
    assert np.array_equal(arrays["train"][0].reshape(4, -1), rows) and arrays["test"][1].tolist() == [0, 1, 99, 3]
