"""`vitral verify`: one flipped bit anywhere is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from vitral.base.errors import DataError, MissingError
from vitral.base.files import write_json
from vitral.base.layout import MANIFEST
from vitral.base.manifest import vouching
from vitral.cli import main
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.run.verify import verify
from vitral.train.fit import fit

TINY = ModelConfig(patch_size=(4, 4), width=8, depth=1, heads=1, mlp_width=8).opened()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    fit(RunConfig("run", TINY, DataConfig("digits"), TrainConfig(epochs=0.1, threads=1, device="cpu", snapshots=1)), out, quiet=True)
    return out


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def test_a_flipped_bit_in_any_file_is_named(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = [path.relative_to(trained) for path in sorted(trained.rglob("*")) if path.is_file()]
    assert verify(trained).faults == verify(trained).unvouched == [] and verify(trained).files == len(files) >= 12
    for name in files:
        run = tmp_path / "copy"
        shutil.copytree(trained, run)
        size = (run / name).stat().st_size
        for place in {0, size // 3, size // 2, size - 2}:
            flip(run / name, place)
            found = verify(run).faults
            assert any(fault.startswith((str(name), str(name.parent))) or name.name in fault for fault in found), (name, place, found)
            flip(run / name, place)
        (run / name).unlink()
        assert verify(run).faults or str(name).startswith("state"), name
        shutil.rmtree(run)
    assert main(["verify", str(trained)]) == 0
    assert f"{len(files)} files, each is what was written" in capsys.readouterr().out


def test_every_byte_of_a_manifest_vouches_for_itself(trained: Path, tmp_path: Path):
    """A step or a number in it decides what is gone on from: the manifest of a state has no other witness."""
    run = tmp_path / "copy"
    shutil.copytree(trained, run)
    manifest = next(run.glob(f"state/*/{MANIFEST}"))
    for place in range(manifest.stat().st_size):
        flip(manifest, place)
        assert verify(run).faults, place
        flip(manifest, place)
    assert not verify(run).faults


def test_a_study_is_looked_at_cell_by_cell(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    study = tmp_path / "study"
    for cell in ("one", "two"):
        shutil.copytree(trained, study / "cells" / cell)
    with vouching(study, "study.json"):
        write_json(study / "study.json", {"kind": "compare"})
    assert main(["verify", str(study), "--json"]) == 0 and json.loads(capsys.readouterr().out)["whole"] is True
    flip(study / "cells" / "two" / "model.safetensors", -1)
    flip(study / "study.json", 5)
    (study / "table.txt").write_text("by hand")
    assert main(["verify", str(study), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["faults"] == ["study.json is not what was written", "cells/two/model.safetensors is not what was written"]
    assert shown["unvouched"] == ["table.txt"] and shown["whole"] is False
    assert main(["verify", str(study)]) == 1 and "2 faults; nothing vouches for 1 others (table.txt)" in capsys.readouterr().out


def test_what_cannot_be_verified_is_not_called_whole(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(trained.parent)
    assert verify(trained.name).faults == []  # by a name without a folder before it, too
    run = tmp_path / "copy"
    shutil.copytree(trained, run)
    (run / MANIFEST).unlink()
    assert verify(run).faults == ["config.json: nothing vouches for it, its manifest.json is missing"]
    with pytest.raises(MissingError, match="folder"):
        verify(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="vouches"):
        verify(tmp_path / "empty")


def test_names_and_sizes_of_a_stranger_are_told_as_text(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    (copy / "\x1b[2Jfigure.png").write_bytes(b"")
    write_json(copy / "extra" / "manifest.json", {"files": {"\x1b]0;x\x07": {"size": 10**30, "sha256": ""}}})
    state = copy / "state" / "a"
    write_json(state / "manifest.json", {"files": {}, "journal": {"size": 10**18, "sha256": "0"}})
    (copy / "metrics.jsonl").touch()
    vouched = json.loads((copy / "manifest.json").read_text())
    vouched["files"].pop("metrics.jsonl")
    vouched.pop("checksum")
    write_json(copy / "manifest.json", vouched)
    assert main(["verify", str(copy)]) == 1
    said = capsys.readouterr()
    assert (
        "\x1b" not in said.out
        and "\\x1b]0;x\\x07 is missing" in said.out
        and "metrics.jsonl is not what was written up to step" in said.out
    )
    assert not said.err
