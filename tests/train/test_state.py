from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from vitral.base import files
from vitral.base.errors import DataError, FileError, VitralError
from vitral.run.folder import RunFolder
from vitral.train import state
from vitral.train.fit import Run, fit
from vitral.train.parallel import World
from vitral.train.state import Slots, seed_process

from .conftest import digest, tiny
from .stops import stopped_after

WORKERS = Path(__file__).parent / "workers.py"


def outcome(*arguments: object) -> dict:
    done = subprocess.run([sys.executable, str(WORKERS), *map(str, arguments)], capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_seed_process_and_step_draws_its_own_numbers():
    def drawn(*place: int) -> float:
        seed_process(*place)
        return torch.rand(()).item()

    with torch.random.fork_rng(devices=[]):
        places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]
        assert len({drawn(*place) for place in places}) == len(places)
        assert drawn(3, 1, 2) == drawn(3, 1, 2)


def test_a_run_killed_twice_ends_bit_identical(tmp_path: Path):
    result = outcome("kills", 2, 1, tmp_path)
    assert len(result["moments"]) == 2 and "in a write" in result["moments"]
    assert result["same_weights"] and result["same_journal"], result["moments"]


@pytest.mark.slow
def test_a_killed_teacher_goes_on_as_it_was(tmp_path: Path):
    """DINO: its teacher and centre are nowhere but in the state."""
    result = outcome("kills-dino", 2, 1, tmp_path)
    assert len(result["moments"]) == 2 and "in a write" in result["moments"] and result["told"] > 10
    assert result["same_weights"] and result["same_journal"], result["moments"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_kills_checkpoint_writes_included(tmp_path: Path, seed: int):
    result = outcome("kills", 10, seed, tmp_path)
    assert len(result["moments"]) == 10 and result["moments"].count("in a write") == 5
    assert result["same_weights"] and result["same_journal"], result["moments"]


# ---- a state that is not as it was written ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at its tenth step; both slots are whole, the newest is of step 10."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    with stopped_after(10):
        fit(tiny(checkpoint_every=0.0), out=out, quiet=True)
    return out


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(tiny(), out=tmp_path_factory.mktemp("undisturbed") / "run", quiet=True)


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def newest(run: Path) -> Path:
    return max((run / "state").glob("[ab]"), key=lambda slot: json.loads((slot / "manifest.json").read_text())["number"])


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << (place % 8)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["tensors-0.safetensors", "progress.json", "manifest.json"])
@pytest.mark.parametrize("place", [9, 70, 401, 2_003])
def test_a_flipped_bit_is_named_and_the_state_before_it_taken(
    name: str, place: int, copy: Path, undisturbed: Run, capsys: pytest.CaptureFixture[str]
):
    slot = newest(copy)
    flip(slot / name, place)
    again = fit(tiny(), out=copy, resume=True)
    said = capsys.readouterr().err
    if "going on from the state before it (step 9)" not in said:  # a bit of the manifest that means nothing
        assert name == "manifest.json" and "going on at step 10" in said
    assert digest(again.model) == digest(undisturbed.model)


def test_without_a_whole_state_nothing_is_gone_on_with(copy: Path):
    for slot in (copy / "state").glob("[ab]"):
        flip(slot / "tensors-0.safetensors", 1_000)
    with pytest.raises(DataError, match=r"tensors-0\.safetensors"):
        fit(tiny(), out=copy, resume=True, quiet=True)
    shutil.rmtree(copy / "state")
    with pytest.raises(DataError, match="state"):
        fit(tiny(), out=copy, resume=True, quiet=True)


def test_a_run_that_ended_in_its_first_write_begins_again(copy: Path, undisturbed: Run, capsys: pytest.CaptureFixture[str]):
    shutil.rmtree(newest(copy))
    (slot,) = (copy / "state").glob("[ab]")
    (slot / "manifest.json").unlink()
    (copy / "metrics.jsonl").write_text("")
    assert digest(fit(tiny(), out=copy, resume=True).model) == digest(undisturbed.model)
    assert "had not begun to learn: it starts from the beginning" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["progress.json", "tensors-0.safetensors", "manifest.json"])
def test_a_missing_file_leads_to_the_state_before_it(missing: str, copy: Path, undisturbed: Run):
    (newest(copy) / missing).unlink()
    assert digest(fit(tiny(), out=copy, resume=True, quiet=True).model) == digest(undisturbed.model)


def test_a_journal_that_was_cut_or_changed_is_not_gone_on_with(copy: Path):
    journal = copy / "metrics.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b"train", b"brain", 1))
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        fit(tiny(), out=copy, resume=True, quiet=True)
    journal.unlink()
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        fit(tiny(), out=copy, resume=True, quiet=True)


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_a_strangers_run_folder_runs_no_code(stopped: Path, tmp_path: Path):
    """Every file in turn, and every name that an earlier version unpickled, is replaced by a pickle that would run a command."""
    names = [path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file()]
    names += [Path("state/a/tensors/.metadata"), Path("state/a/extra.pt"), Path("state/a/random-0.pt")]
    assert len(names) >= 12
    for number, name in enumerate(names):
        run, mark = tmp_path / f"run-{number}", tmp_path / f"mark-{number}"
        shutil.copytree(stopped, run)
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(pickle.dumps(Bomb(mark)))
        for read in (
            lambda run=run: fit(tiny(), out=run, resume=True, quiet=True),
            lambda run=run: RunFolder.open(run).faults(),
            lambda run=run: RunFolder.open(run).model(),
        ):
            with contextlib.suppress(VitralError):
                read()
            assert not mark.exists(), name


def test_everything_is_on_disk_before_the_manifest_vouches_for_it(copy: Path, monkeypatch: pytest.MonkeyPatch):
    """The order of what reaches the disk, as a power cut would see it."""
    synced: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    def replace(source: Any, target: Any) -> None:
        synced.append(f"{target} appears")
        real_replace(source, target)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(files.os, "replace", replace)
    Slots(copy / "state", World()).write({"model/x": torch.zeros(3)}, {"step": 11, "journal": 0})
    slot = newest(copy)
    appears = synced.index(f"{slot / 'manifest.json'} appears")
    before = synced[:appears]
    for path in (slot / "tensors-0.safetensors", slot, copy / "state", copy):
        assert str(path) in before, path
    assert any(name.startswith(f"{slot}/.progress.json") for name in before)  # written beside, then moved
    # The folder is synced after its files, and once more after the manifest has appeared.
    assert max(i for i, name in enumerate(before) if name == str(slot)) > before.index(str(slot / "tensors-0.safetensors"))
    assert str(slot) in synced[appears:]


@pytest.mark.parametrize(
    "file", ["asked.json", "config.json", "env.json", "metrics.jsonl", "model.safetensors", "test.json", "test.npz", "test.webp"]
)
def test_any_flipped_byte_of_a_finished_run_is_named(file: str, undisturbed: Run, tmp_path: Path):
    run = Path(shutil.copytree(undisturbed.path, tmp_path / "run"))
    assert RunFolder.open(run).faults() == []
    flip(run / file, 137)
    assert RunFolder.open(run).faults() == [f"{file} is not what was written"]
    if file in ("config.json", "model.safetensors"):
        with pytest.raises(DataError, match=file):
            RunFolder.open(run).model()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left on device")])
def test_a_full_disk_is_one_line_and_the_state_before_it_is_whole(
    error: Exception, copy: Path, undisturbed: Run, monkeypatch: pytest.MonkeyPatch
):
    real, count = state.save_file, [0]

    def full(*arguments: Any, **options: Any) -> None:
        count[0] += 1
        if count[0] == 3:
            raise error
        real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(state, "save_file", full)
        with pytest.raises(FileError, match=r"tensors-0\.safetensors .*disk") as caught:
            fit(tiny(checkpoint_every=0.0), out=copy, resume=True, quiet=True)
        assert "\n" not in str(caught.value) and "the state before it is whole: free some space, then --resume" in str(caught.value)
        count[0] = 2
        with pytest.raises(FileError, match="no state"):
            fit(tiny(checkpoint_every=0.0), out=copy.with_name("first"), quiet=True)
    assert digest(fit(tiny(), out=copy, resume=True, quiet=True).model) == digest(undisturbed.model)
