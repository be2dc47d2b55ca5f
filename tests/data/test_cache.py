"""Pictures kept decoded: the same ones, of this preprocessing, and never those of another time."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError
from vitral.cli import main
from vitral.config import DataConfig
from vitral.data import cache
from vitral.data.cache import FOLDER, cached, caches, delete_caches, key_of
from vitral.data.loader import Loader
from vitral.data.splits.open import open_data
from vitral.data.splits.split import Split


def open_split(photographs: Path, **settings: object) -> Split:
    return open_data(DataConfig(name=f"folder:{photographs}", validation=0.0, **settings), image_size=32).train  # type: ignore[arg-type]


def batches(split: Split, workers: int = 0) -> torch.Tensor:
    loader = Loader(split, batch_size=4, policy="standard", train=True, seed=3, placement="stream", workers=workers)
    return torch.cat([batch.images for batch in loader.epoch(0)])


def test_at_full_size_not_a_pixel_of_a_training_differs(photographs: Path, tmp_path: Path) -> None:
    split = open_split(photographs)
    kept = cached(split, 0, tmp_path)
    assert kept is not split and torch.equal(batches(kept), batches(split))
    assert all(kept.where(place) == split.where(place) for place in range(len(split)))
    assert np.array_equal(kept.labels, split.labels)


def test_smaller_pictures_are_pillows_and_smaller_ones_stay(photographs: Path, tmp_path: Path) -> None:
    split = open_split(photographs)
    kept = cached(split, 80, tmp_path)
    for place in range(len(split)):
        original = split.picture(place)
        short = min(original.size)
        size = tuple(round(side * 80 / short) for side in original.size)
        expected = original.resize(size, Image.Resampling.BICUBIC) if short > 80 else original  # type: ignore[arg-type]
        assert np.array_equal(np.asarray(kept.picture(place)), np.asarray(expected))


def test_it_is_made_once_and_read_by_copies_in_other_processes(photographs: Path, tmp_path: Path) -> None:
    split = open_split(photographs)
    first = cached(split, 40, tmp_path)
    (folder,) = (tmp_path / FOLDER).iterdir()
    made = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    again = cached(split, 40, tmp_path)
    again.image(0)
    assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()} == made, "nothing was made again"
    pickled = pickle.dumps(again)  # as a worker gets it
    assert len(pickled) < (folder / cache.PIXELS).stat().st_size, "a worker maps the pixels for itself"
    assert torch.equal(batches(pickle.loads(pickled)), batches(first))


def test_a_changed_picture_another_size_or_other_pictures_are_another_cache(photographs: Path, tmp_path: Path) -> None:
    split = open_split(photographs)
    key = key_of(split, 40)
    assert key == key_of(open_split(photographs), 40)
    assert len({key, key_of(split, 41), key_of(split.subset(np.arange(5)), 40)}) == 3
    changed = Path(split.where(0))
    status = changed.stat()
    changed.write_bytes(changed.read_bytes())  # the same bytes, and yet perhaps not: only its time tells
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert key_of(split, 40) != key


@pytest.mark.parametrize("name", [cache.PIXELS, cache.INDEX, cache.ABOUT])
def test_a_cut_off_cache_is_made_again(photographs: Path, tmp_path: Path, name: str) -> None:
    split = open_split(photographs)
    cached(split, 40, tmp_path)
    file = tmp_path / FOLDER / key_of(split, 40) / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert cached(split, 40, tmp_path, build=False) is split
    assert torch.equal(batches(cached(split, 40, tmp_path)), batches(cached(split, 40, tmp_path, build=False)))
    assert file.read_bytes() == whole


def test_what_is_interrupted_leaves_nothing(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        cached(open_split(photographs), 40, tmp_path)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_picture_that_cannot_be_read_is_named_when_it_is_its_turn(photographs: Path, tmp_path: Path) -> None:
    split = open_split(photographs, on_bad_image="skip")
    Path(split.where(2)).write_bytes(b"no picture")
    kept = cached(split, 40, tmp_path)
    with pytest.raises(DataError, match="picture"):
        kept.image(2)
    assert caches(tmp_path)[0]["unreadable"] == 1 and batches(kept).shape[0] >= len(split)


def test_a_full_disk_is_told_before_anything_is_written(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_size", lambda *_: 1 << 60)
    with pytest.raises(DataError, match="free"):
        cached(open_split(photographs), 40, tmp_path)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_the_command_lists_and_deletes(photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = open_split(photographs)
    cached(split, 40, tmp_path)
    cached(split, 0, tmp_path)
    capsys.readouterr()
    root = ["--root", str(tmp_path)]
    assert main(["data", "cache", *root, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["caches"]
    assert sorted(entry["side"] for entry in listed) == [0, 40] and all(entry["whole"] for entry in listed)
    assert main(["data", "cache", *root, "--delete", key_of(split, 40)[:12]]) == 0
    assert [entry["side"] for entry in caches(tmp_path)] == [0]
    assert main(["data", "cache", *root, "--delete", "nothing"]) == 2
    assert main(["data", "cache", *root, "--delete", "all"]) == 0
    assert caches(tmp_path) == [] and delete_caches(tmp_path) == 0
