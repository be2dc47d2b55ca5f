from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.report import parts
from vitral.report.page import Page


def test_one_picture_a_figure_and_no_links(tmp_path: Path, figures: Callable) -> None:
    figures(tmp_path, "b")
    figures(tmp_path, "a.block.3")
    folder = tmp_path / "figures"
    (folder / "b.svg").write_text("<svg/>")
    (folder / "only.svg").write_text("<svg/>")
    (folder / "link.png").symlink_to(folder / "b.png")
    assert [path.name for path in parts.figure_files(folder)] == ["a.block.3.png", "b.png", "only.svg"]


def test_captions_come_from_the_json(tmp_path: Path, read: Callable, figures: Callable) -> None:
    figures(tmp_path, "one", caption="Rollout → church", note="no class token", command="vitral look m cat.jpg")
    figures(tmp_path, "head_distance")
    (tmp_path / "figures" / "head_distance.json").write_text("damaged {")
    page = Page("x")
    parts.figures_section(page, tmp_path, "make some")
    text = read(page.write(tmp_path / "page.html")).text
    assert "Rollout → church – no class token" in text
    assert "vitral look m cat.jpg" in text
    assert "head distance" in text


def test_too_many_figures_are_counted(tmp_path: Path, figures: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_FIGURES", 2)
    for name in "abcde":
        figures(tmp_path, name)
    page = Page("x")
    parts.figures_section(page, tmp_path, "make some")
    assert page.html().count("<img") == 2
    assert "3 more figures were left out" in page.html()


def test_missing_and_damaged_files_say_so(tmp_path: Path) -> None:
    page = Page("x")
    assert parts.optional_object(page, tmp_path / "env.json", "versions are not known") == {}
    assert "env.json is missing: versions are not known" in page.html()
    (tmp_path / "list.json").write_text("[1]")
    assert parts.optional_object(page, tmp_path / "list.json", "") == {}
    assert "list.json holds no JSON object" in page.html()
    with pytest.raises(DataError, match="no JSON object"):
        parts.read_object(tmp_path / "list.json")
    parts.environment_section(page, {})
    assert "were not recorded" in page.html()
