from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.base.manifest import check, describe, faults, is_entry, read_manifest, vouching, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"second")
    write_manifest(tmp_path, ["a", "b"], step=7)
    return tmp_path


def test_every_change_is_named(folder: Path):
    assert list(faults(folder)) == [] and read_manifest(folder)["step"] == 7  # type: ignore[index]
    (folder / "a").write_bytes(b"first!")
    (folder / "b").write_bytes(b"sfcond")
    assert list(faults(folder)) == ["a has 6 bytes, 5 were written", "b is not what was written"]
    (folder / "a").unlink()
    assert list(faults(folder, ["a"])) == ["a is missing"]
    with pytest.raises(DataError, match=r"manifest\.json"):
        check(folder, ["b"])


def test_while_a_file_is_written_nothing_vouches_for_it(folder: Path):
    with pytest.raises(RuntimeError), vouching(folder, "b"):
        assert set(read_manifest(folder)["files"]) == {"a"}  # type: ignore[index]
        (folder / "b").write_bytes(b"half")
        raise RuntimeError("killed here")
    assert list(faults(folder)) == []
    with vouching(folder, "b"):
        (folder / "b").write_bytes(b"whole")
    assert set(read_manifest(folder)["files"]) == {"a", "b"} and list(faults(folder)) == []  # type: ignore[index]


def test_a_file_that_grows_is_vouched_for_up_to_where_it_was(folder: Path):
    entry = describe(folder / "a", 3)
    (folder / "manifest.json").write_text(json.dumps({"files": {"a": entry}}))
    (folder / "a").write_bytes(b"firmament")
    assert list(faults(folder)) == []
    (folder / "a").write_bytes(b"fin")
    assert list(faults(folder)) == ["a is not what was written"]


@pytest.mark.parametrize("files", [None, [], {"../x": {"size": 1, "sha256": ""}}, {"/x": {"size": 1, "sha256": ""}}, {"x": {"size": "1"}}])
def test_a_manifest_that_is_none_is_refused(files: object, tmp_path: Path):
    (tmp_path / "manifest.json").write_text(json.dumps({"files": files}))
    with pytest.raises(DataError, match="manifest"):
        list(faults(tmp_path))


@pytest.mark.parametrize("size", [-1, 10**15, 10**30])
def test_sizes_that_no_file_has_ask_for_no_memory(size: int, folder: Path):
    """A state's manifest vouches for the journal up to a length: a claimed one is held against the file."""
    assert describe(folder / "a", 10**15)["size"] == 10**15
    assert is_entry("a", {"size": size, "sha256": ""}) is (size >= 0)
