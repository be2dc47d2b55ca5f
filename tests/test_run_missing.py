"""results/run_missing.py: what has no record is found, run in order as far as the time goes, and collected."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.commands import parse_line
from tests.scripts import load_script

from vitral.base.files import make_folder, read_json
from vitral.cli import train
from vitral.cli.compare import study_values
from vitral.data.sources.small_sets import tiny_folder
from vitral.presets import run as run_preset
from vitral.study.fight.contenders import check_model, templates
from vitral.study.fight.experiment import Budget
from vitral.train.fit import fit

ROOT = Path(__file__).parents[1]
run_missing = load_script(ROOT / "results/run_missing.py")
missing, evidence, tiles = (importlib.import_module(name) for name in ("missing", "evidence", "tinyimagenet_tiles"))
Job = missing.Job
SMALL = "--threads 1 --device cpu --set width=16 depth=1 heads=2 mlp_width=16"

ROWS = """
order = ["late", "ch*"]
[get]
"w.safetensors" = "ask for it"
[[row]]
record = "first"
command = "vitral train digits --seed S"
minutes = 2
[[row]]
record = "late"
command = "vitral train digits --from runs/first-S --seed S"
minutes = 1
seeds = 1
[[row]]
record = "weights"
command = "vitral train digits --data folder:nowhere --from w.safetensors --seed S"
minutes = 1
seeds = 1
[[choice]]
record = "choice"
command = "vitral train digits --stage choose --seed S"
minutes = 1
[[study]]
record = "study"
command = "vitral compare digits --seeds 3"
minutes = 5
"""
CLAIMS = """
[[claim]]
study = "claimed"
command = "vitral scale digits --from-data mnist --yes"
minutes = 7
[[claim]]
record = "first"
command = "vitral train digits --seed S"
[[claim]]
command = "vitral eval runs/first digits"
minutes = 1
"""


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """rows.toml and claims.toml of our own, and nothing of the user's."""
    (tmp_path / "rows.toml").write_text(ROWS)
    (tmp_path / "claims.toml").write_text(CLAIMS)
    monkeypatch.setattr(missing, "HERE", tmp_path)
    monkeypatch.setenv("VITRAL_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_missing_comes_in_its_order_until_it_has_a_record(lists: Path) -> None:
    names = [job.name for job in missing.missing(lists / "records")]
    assert names == ["late-0", "choice-0", "choice-1", "first-0", "first-1", "first-2", "weights-0", "study", "claimed"]
    (lists / "records").mkdir()
    (lists / "records/first-1.zip").touch()
    (lists / "records/study.zip").touch()
    left = missing.missing(lists / "records")
    assert [job.name for job in left] == [name for name in names if name not in ("first-1", "study")]
    job = left[0]
    assert job.command == "vitral train digits --from runs/first-0 --seed 0" and job.published.endswith("runs/first-S --seed S")
    assert [job.name for job in run_missing.chosen(left, "ch*,study", "1")] == ["choice-1"]


def test_what_it_starts_from_comes_before_it_unless_its_weights_are_there(lists: Path) -> None:
    late, *_ = missing.missing(lists / "records")
    assert [job.name for job in missing.with_needs([late], lists / "runs")] == ["first-0", "late-0"]
    (lists / "runs/first-0").mkdir(parents=True)
    (lists / "runs/first-0/model.safetensors").touch()
    assert missing.with_needs([late], lists / "runs") == [late]


def test_the_list_says_what_is_not_at_hand_and_runs_nothing(lists: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_missing.main(["--records", "records"]) == 0
    told = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in told.splitlines()}
    assert re.search(r"^first, seed 2 +2  yes +vitral train digits --seed 2$", rows["first, seed 2"])
    assert "after first-0" in rows["late, seed 0"] and "  no " in rows["weights, seed 0"] and "  no " in rows["claimed"]
    assert list(rows).index("first, seed 0") < list(rows).index("late, seed 0")
    assert "nowhere is not here: put it there (for weights-0)" in told and "w.safetensors is not here: ask for it" in told
    assert "mnist is not here" in told and "9 to run, about 22 min 00 s on one H200" in told and not (lists / "runs").exists()


def test_every_command_that_is_published_can_be_understood(tmp_path: Path) -> None:
    """A flag that is not there would be found out when the GPU is."""
    jobs = missing.all_jobs()
    assert len(jobs) > 80 and len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        words = run_missing.arguments(job, tmp_path)
        assert words[1:3] == ["-m", "vitral"] and str(tmp_path / job.name) == words[words.index("--out") + 1], job.name
        verb, flags = words[3], words[4:]
        assert isinstance(missing.absent(job), list) and set(job.needs) <= {other.name for other in jobs}
        if verb in ("train", "pretrain"):
            config, _ = train.parse(flags, verb)
            assert config.train.seed == job.seed and job.seed is not None, job.name
            continue
        values = study_values(parse_line(verb, flags))
        recipe = values.get("recipe", "plain")
        assert job.seed is None and Budget.parse(values.get("budget", "samples=1")) and templates("digits", recipe), job.name
        for name in values.get("models") or ():
            check_model(name)
    for other in missing.toml("rows")["other"]:
        if other["command"].startswith("vitral pretrain "):
            assert train.parse(shlex.split(other["command"])[2:], "pretrain")[0].data.stage == "choose"


def test_tiles_become_the_published_folder_where_a_job_needs_it(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "ROWS", 2)
    monkeypatch.setattr(tiles, "COLUMNS", 3)
    pretrain, other = Job("p", 0, "vitral pretrain tinyimagenet32 --seed S", 1), Job("o", 0, "vitral train digits --seed S", 1)
    assert "tinyimagenet32 is not here" in missing.absent(pretrain)[0]
    squares = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 3), np.uint8)  # (tile, row, column, colour)
    tiles.TILES.mkdir()
    for number, tile in enumerate(squares):
        Image.fromarray(tile.repeat(32, 0).repeat(32, 1)).save(tiles.TILES / f"{number:02d}.webp", lossless=True)
    labels = np.arange(24) % 2
    np.save(tiles.TILES / "labels.npy", labels)
    (tiles.TILES / "classes.json").write_text(json.dumps([["n2", "crane, bird"], ["n1", "crane, machine"]]))
    assert not missing.absent(pretrain)
    folder = lists / "data/tiny-imagenet-200"
    run_missing.write_tiny([other])
    assert not folder.exists()
    run_missing.write_tiny([pretrain])
    arrays, names = tiny_folder(folder)
    assert names == ("crane (1)", "crane (2)") and not (lists / "data/tiny-imagenet-200.part").exists()
    colours = squares.reshape(24, 3)
    for split, start, end in (("train", 0, 12), ("test", 12, 24)):
        pixels, found = arrays[split]
        order = np.arange(start, end) if split == "test" else np.argsort(labels[:12], kind="stable")  # class by class, as published
        assert found.tolist() == labels[order].tolist() and (pixels == colours[order, :, None, None]).all()
    with pytest.raises(SystemExit):
        monkeypatch.setattr(sys, "argv", ["tinyimagenet_tiles.py", str(tiles.TILES), str(folder)])
        tiles.main()


# ---- with commands that take no time ---------------------------------------------------------------------------------------------

WEIGHTS = "import os, sys; os.makedirs(sys.argv[1]); open(sys.argv[1] + '/model.safetensors', 'w').close()"
Run = Callable[..., "tuple[int, str]"]


@pytest.fixture
def runner(lists: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs jobs whose command is Python, and answers with the runner and what it said."""

    def collect(folder: Path, out: Path, name: str, alone: bool) -> Path:
        with zipfile.ZipFile(make_folder(out) / f"{folder.name}.zip", "w") as archive:
            archive.writestr("manifest.json", json.dumps({"alone": alone, "record": name}))
        return out / f"{folder.name}.zip"

    def command(job: Job, out: Path) -> list[str]:
        return [sys.executable, "-S", "-c", job.command, str(out / job.name)]

    monkeypatch.setattr(run_missing, "collect", collect)
    monkeypatch.setattr(run_missing, "arguments", command)
    monkeypatch.setattr(run_missing, "GRACE", 5.0)

    def run(*jobs: Job, seconds: float = 60, together: int = 1, hurry: bool = False) -> tuple[int, str]:
        made = run_missing.Runner(jobs, seconds, lists / "runs", lists / "records", together)
        if hurry:
            threading.Thread(target=lambda: (time.sleep(0.7), made.hurry()), daemon=True).start()
        made.run()
        return made, capsys.readouterr().out

    return run


def stored(record: Path, name: str = "manifest.json") -> Any:
    """A JSON file in an archive."""
    with zipfile.ZipFile(record) as archive:
        return json.loads(archive.read(name))


def test_one_after_another_and_each_collected_as_it_ends(runner: Run, lists: Path) -> None:
    made, told = runner(Job("first", 0, WEIGHTS, 0.1), Job("first", 1, WEIGHTS, 0.1))
    assert not made.failed and [path.stem for path in made.made] == ["first-0", "first-1"]
    assert all(stored(path) == {"alone": True, "record": "first"} for path in made.made)
    assert re.search(r"first, seed 1: [\d.]+ (s|ms), collected", told)
    lines = (lists / "runs/ledger.md").read_text().splitlines()
    assert len(lines) == 2 and re.fullmatch(r"\| first, seed 0 \| 1 \| \d{4}-\d\d-\d\d, alone \|", lines[0])


def test_what_runs_side_by_side_is_not_alone(runner: Run) -> None:
    slow = f"import time; time.sleep(0.6); {WEIGHTS}"
    made, _ = runner(*(Job("first", seed, slow, 0.1) for seed in (0, 1)), together=2)
    assert [stored(path)["alone"] for path in made.made] == [False, False]


def test_a_row_that_does_not_fit_is_passed_over_and_said(runner: Run) -> None:
    made, told = runner(Job("first", 0, WEIGHTS, 100, whole=True), Job("first", 1, WEIGHTS, 0.1))
    assert [path.stem for path in made.made] == ["first-1"] and not made.failed
    assert "first, seed 0: not run, it does not fit (1 h 40 min, estimated)" in told


def test_what_may_be_stopped_is_begun_in_its_turn_while_half_the_time_is_left(
    runner: Run, lists: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, short = Job("long", None, "", 100), Job("short", None, "", 0.5)
    planned = run_missing.Runner([long, short], 600, lists / "runs", lists / "records")
    assert planned.next() == long
    planned.end = time.monotonic() + 200
    assert planned.next() == short, "what fits comes first when little is left"
    planned.waiting = [long]
    assert planned.next() == long, "and nothing stands still while something can be begun"
    planned.end = time.monotonic() + 40
    assert planned.next() is None
    planned.spent["long"] = 6000.0 - 5
    assert planned.next() is None, "what it had done is gone"
    (lists / "runs/long").mkdir(parents=True)
    planned.end = time.monotonic() + 45
    assert planned.next() == long, "its last seconds fit"


def test_what_fails_says_its_last_line_and_the_others_go_on(runner: Run) -> None:
    broken = "print('some words'); print('vitral: no such model'); raise SystemExit(2)"
    made, told = runner(
        Job("first", 0, broken, 0.1), Job("late", 0, f"'--from runs/first-0'; {WEIGHTS}", 0.1), Job("first", 1, WEIGHTS, 0.1)
    )
    assert made.failed and [path.stem for path in made.made] == ["first-1"]
    assert "failed: vitral: no such model" in told and "late, seed 0: not run, it waits for first-0" in told


def test_what_the_clock_stops_is_counted_and_gone_on_with(runner: Run, lists: Path) -> None:
    wait_once = "begun = sys.argv[1] + '.begun'; os.path.exists(begun) or (open(begun, 'w').close(), time.sleep(60))"
    patient = f"import os, sys, time; {wait_once}; {WEIGHTS}"
    job = Job("first", 0, patient, 0.1)
    made, told = runner(job, hurry=True)
    assert not made.failed and not made.made and "stopped, the next call continues it" in told
    assert read_json(lists / "runs/spent.json")["first-0"] > 0.3
    made, told = runner(job)
    assert len(made.made) == 1 and "in all), collected" in told and read_json(lists / "runs/spent.json") == {}


def test_what_will_not_stop_is_ended(runner: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_missing, "GRACE", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    began = time.monotonic()
    made, told = runner(Job("first", 0, deaf, 0.1), hurry=True)
    assert time.monotonic() - began < 15 and "stopped" in told and not made.failed


def test_what_is_run_for_its_weights_keeps_its_record(runner: Run, lists: Path) -> None:
    (lists / "records").mkdir()
    (lists / "records/first-0.zip").write_bytes(b"old")
    made, told = runner(Job("first", 0, WEIGHTS, 0.1), Job("late", 0, f"'--from runs/first-0'; {WEIGHTS}", 0.1))
    assert [path.stem for path in made.made] == ["late-0"] and "the record that it has stays" in told
    assert (lists / "records/first-0.zip").read_bytes() == b"old"


# ---- with trainings --------------------------------------------------------------------------------------------------------------


def real(folder: Path, command: str, claims: str = "") -> None:
    (folder / "rows.toml").write_text(f'[[row]]\nrecord = "mine"\ncommand = "{command}"\nminutes = 0.5\nseeds = 1\n')
    (folder / "claims.toml").write_text(claims)


@pytest.mark.slow
def test_a_row_is_trained_collected_and_packed(lists: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real(lists, f"vitral train digits --epochs 1 {SMALL} --seed S")
    assert run_missing.main(["--minutes", "5", "--records", "records", "--out", "runs", "--tar", "records.tar.gz"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"mine, seed 0: .*, test \d+\.\d\d %", told), told
    assert stored(lists / "records/mine-0.zip")["alone"] is True
    with tarfile.open("records.tar.gz") as archive:
        assert archive.getnames() == ["mine-0.zip"]
    with zipfile.ZipFile("records/mine-0.zip") as archive:
        assert "test.npz" in archive.namelist() and not any("model" in name for name in archive.namelist())
    assert run_missing.main(["--records", "records"]) == 0 and "0 to run" in capsys.readouterr().out


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"vitral train digits --epochs 40 {SMALL} --seed S"
    real(lists, command)
    (job,) = missing.missing(lists / "records")
    journal, first = lists / "runs/mine-0/metrics.jsonl", run_missing.Runner([job], 600, lists / "runs", lists / "records")

    def stop_when_it_learns() -> None:
        while not (journal.is_file() and journal.stat().st_size):
            time.sleep(0.01)
        first.hurry()

    threading.Thread(target=stop_when_it_learns, daemon=True).start()
    first.run()
    assert not first.made and not first.failed and not (lists / "runs/mine-0/model.safetensors").exists()
    second = run_missing.Runner([job], 600, lists / "runs", lists / "records")
    second.run()
    assert [path.stem for path in second.made] == ["mine-0"]
    assert stored(second.made[0])["alone"] is False and stored(second.made[0], "env.json")["times"]["resumed"]
    config = train.parse(shlex.split(job.command)[2:])[0]
    assert config.train.epochs == 40 and config.model.width == 16 != run_preset("digits").model.width
    whole = fit(config, out=lists / "whole", quiet=True)
    assert (whole.path / "model.safetensors").read_bytes() == (lists / "runs/mine-0/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_without_labels_comes_before_what_starts_from_it(lists: Path) -> None:
    small = SMALL.replace("mlp_width=16", "mlp_width=16 projection=8 projection_hidden=16")
    (lists / "rows.toml").write_text(
        f"""
order = ["probe"]
[[row]]
record = "body"
command = "vitral pretrain digits --epochs 0.1 --test {small} --seed S --out runs/body-S"
minutes = 0.5
seeds = 1
[[row]]
record = "probe"
command = "vitral train digits --from runs/body-S --tune head --head-start probe --epochs 0 --threads 1 --device cpu --seed S"
minutes = 0.5
seeds = 1
[[row]]
record = "few"
command = "vitral train digits --from runs/body-S --subset 50 --epochs 1 --set subset_seed=S --threads 1 --device cpu --seed S"
minutes = 0.5
seeds = 1
"""
    )
    (lists / "claims.toml").write_text("")
    assert run_missing.main(["--minutes", "8", "--records", "records"]) == 0
    assert {path.name for path in (lists / "records").iterdir()} == {"body-0.zip", "probe-0.zip", "few-0.zip"}
    records = evidence.read_records(lists / "records")
    assert {"test.npz", "neighbours.npz"} <= {path.name for path in records["body"][0].path.iterdir()}
    assert [records[name][0].run.environment["data"]["train"] for name in ("probe", "few")] == [1293, 50]
    assert "; by neighbours " in evidence.probed(records["body"]) and "neighbours" not in evidence.probed(records["few"])
    assert set(evidence.learning(records)) == {"body", "few"}, "a probe takes no step and has no curve"
