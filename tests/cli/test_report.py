from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitral.cli import main
from vitral.presets.runs import run
from vitral.train.fit import Run, fit


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(run("digits", epochs=0.1, threads=1, device="cpu"), tmp_path_factory.mktemp("runs") / "run", quiet=True)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_path_of_the_page_is_printed(flags: list[str], trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(trained.path), "--out", str(page), *flags]) == 0
    printed = capsys.readouterr().out
    assert (json.loads(printed)["path"] if flags else printed.strip()) == str(page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "holds neither a run nor a study: name a folder that `vitral train`" in capsys.readouterr().err
