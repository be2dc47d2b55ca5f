"""A run folder from elsewhere does not choose what is read here."""

from __future__ import annotations

import builtins
import dataclasses
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.base.origin import Origin
from vitral.cli import main
from vitral.cli.train import run as train
from vitral.config import DataConfig
from vitral.presets.runs import run as named_run
from vitral.report.study import write_report
from vitral.run.folder import Asked, RunFolder
from vitral.run.made_here import check_named, made_here
from vitral.run.survey import survey
from vitral.web.first_images import fitting_images


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    for name in ("letters", "photos"):
        (tmp_path / "private" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (20, 20), (255, number, 7)).save(tmp_path / "private" / name / f"{number}.png")
    return tmp_path / "private"


def begun(folder: Path, data: str) -> Path:
    config = dataclasses.replace(named_run("digits"), data=DataConfig(name=data))
    RunFolder.create(folder, Asked(config, "digits"), config, Origin()).close()
    return folder


def test_a_run_is_known_by_its_place_and_its_config(tmp_path: Path, private: Path) -> None:
    run = begun(tmp_path / "run", f"folder:{private}")
    assert made_here(run)
    shutil.copytree(run, tmp_path / "copy")
    assert not made_here(tmp_path / "copy")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"name": "other"}))
    assert not made_here(run)


def test_the_explorer_opens_the_folder_of_our_own_run_alone(tmp_path: Path, private: Path, cache: Path) -> None:
    run = begun(tmp_path / "run", f"folder:{private}")
    assert next(name for _, name in fitting_images(str(run))).startswith("validation")
    shutil.rmtree(cache)  # a stranger's
    assert [name for _, name in fitting_images(str(run))] == ["china.jpg", "flower.jpg"]


def test_training_after_a_stranger_needs_the_folder_said(tmp_path: Path, private: Path, cache: Path) -> None:
    run = begun(tmp_path / "run", f"folder:{private}")
    config = RunFolder.open(run).settled
    check_named(run, config, [])
    shutil.rmtree(cache)
    for words in ([str(run), "--out", str(tmp_path / "new")], [str(run), "--resume"]):
        with pytest.raises(UsageError, match="--data folder:"):
            train(words)
    check_named(run, config, ["--data", f"folder:{private}"])
    check_named(run, config, [f"--data=folder:{private}"])
    for part, changes in (("data", {"root": "/private"}), ("train", {"teacher": "/private/model.pth"})):
        safe = dataclasses.replace(config, data=DataConfig(name="digits"))
        check_named(run, safe, [])
        with pytest.raises(UsageError, match="/private"):
            check_named(run, dataclasses.replace(safe, **{part: dataclasses.replace(getattr(safe, part), **changes)}), [])


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path: Path, private: Path, cache: Path) -> None:
    cache.write_text("a file where a folder is meant")
    assert not made_here(begun(tmp_path / "run", f"folder:{private}"))


def test_nothing_is_sent_because_a_stranger_says_so(tmp_path: Path, cache: Path) -> None:
    config = dataclasses.replace(named_run("digits"), train=dataclasses.replace(named_run("digits").train, wandb=True))
    run = tmp_path / "run"
    RunFolder.create(run, Asked(config, "digits"), config, Origin()).close()
    check_named(run, config, [])
    shutil.rmtree(cache)
    for words in ([str(run), "--out", str(tmp_path / "new")], [str(run), "--resume"]):
        with pytest.raises(UsageError, match="--no-wandb"):
            train(words)
    check_named(run, config, ["--wandb"])


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "state", "figures", "test.webp", "env.json", "snapshots/step-1", ".lock", "manifest.json"]
)
def test_a_link_in_a_strangers_run_is_not_followed(tmp_path: Path, private: Path, cache: Path, name: str) -> None:
    """Not to be read from, not to be shown, not to be written to: a resumed journal would cut what it leads to."""
    run = begun(tmp_path / "run", "digits")
    (tmp_path / "diary.txt").write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(private if name in ("state", "figures", "snapshots/step-1") else tmp_path / "diary.txt")
    RunFolder.open(run)  # our own may lie where its user wants
    shutil.rmtree(cache)
    before = {path: path.read_bytes() for path in [tmp_path / "diary.txt", *private.rglob("*.png")]}
    for act in (RunFolder.open, lambda path: RunFolder(path).claim(), write_report, lambda path: train([str(path), "--resume", "--quiet"])):
        with pytest.raises(DataError, match="cp -rL"):
            act(run)
    (row,) = survey(run)
    assert "is a link" in row.problem and not row.state_bytes
    assert {path: path.read_bytes() for path in before} == before and not (run / "report.html").exists()


def test_pages_of_a_strangers_run_show_what_it_brings_and_nothing_of_ours(
    tmp_path: Path, private: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained elsewhere on a folder; here that very path holds private pictures. Report and explorer never open one of them."""
    words = f"train digits --data folder:{private} --epochs 1 --batch-size 4 --device cpu --quiet --out {tmp_path / 'run'}".split()
    assert main([*words, "--set", "width=8", "depth=1", "heads=1", "mlp_width=8"]) == 0
    run, page, export = str(tmp_path / "run"), tmp_path / "report.html", tmp_path / "page.html"
    brought = RunFolder.open(run).answers().pictures
    assert brought
    shutil.rmtree(cache)  # from here on it is a stranger's
    opened: list[str] = []
    for file in private.rglob("*.png"):
        Image.new("RGB", (20, 20), (1, 2, 3)).save(file)  # what lies here is not what it was trained on
    for owner in (builtins, os, io):
        real = owner.open  # type: ignore[attr-defined]

        def watched(path: Any, *arguments: Any, real: Any = real, **options: Any) -> Any:
            opened.append(str(path))
            return real(path, *arguments, **options)

        monkeypatch.setattr(owner, "open", watched)
    capsys.readouterr()
    assert main(["report", run, "--out", str(page)]) == 0
    assert main(["explore", run, "--export", str(export)]) == 0
    assert any(str(tmp_path / "run") in path for path in opened) and not [path for path in opened if str(private) in path]
    assert f"not made on this machine: folder:{private} was not opened" in page.read_text(encoding="utf-8")
    assert "data:image/webp" in page.read_text(encoding="utf-8")  # the small ones that it brings
    assert "its data is not opened, the small pictures in the folder are shown" in capsys.readouterr().err
    position = next(iter(brought))
    assert f'"name": "test {position}"' in export.read_text(encoding="utf-8")
