from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.report import demo as demos
from vitral.report.demo import demo


class Trained(Exception):
    pass


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What would have been trained, and where."""
    asked: list[tuple[str, Path]] = []

    def fit(config, out, quiet):
        asked.append((config.name, out))
        raise Trained

    monkeypatch.setattr(demos, "fit", fit)
    return asked


def run_folder(folder: Path, name: str, data: str = "digits") -> Path:
    (folder / "state" / "a").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"name": name, "data": {"name": data}}))
    return folder


@pytest.mark.parametrize(("name", "data"), [("digits", "digits"), (".old", "digits"), ("demo", "mnist")])
def test_only_an_earlier_demo_is_replaced(name: str, data: str, tmp_path: Path, untrained: list[tuple[str, Path]]):
    out = run_folder(tmp_path / "o" / ".old", name, data)
    with pytest.raises(UsageError, match="is not an earlier demo"):
        demo(out)
    assert (out / "config.json").is_file() and not untrained


@pytest.mark.parametrize("place", [".", "o/.old"])
def test_any_folder_can_hold_a_demo(place: str, tmp_path: Path, untrained: list[tuple[str, Path]], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with pytest.raises(Trained):
            demo(place)
        assert not Path(place).exists() or not list(Path(place).iterdir())
        run_folder(Path(place), "demo")
    assert untrained == [("demo", Path(place))] * 2


def test_a_demo_of_an_earlier_version_is_known_by_its_picture(tmp_path: Path, untrained: list[tuple[str, Path]]):
    (run_folder(tmp_path / "first", "first") / "digit.png").touch()
    with pytest.raises(Trained):
        demo(tmp_path / "first")
    assert len(untrained) == 1
