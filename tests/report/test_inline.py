from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.draw.charts import bar_chart
from vitral.report import inline


def test_a_file_is_inside_the_page(tmp_path: Path, figures: Callable) -> None:
    path = figures(tmp_path)
    picture = inline._of_file(path)
    assert isinstance(picture, inline.Illustration)
    assert base64.b64decode(picture.source.removeprefix("data:image/png;base64,")) == path.read_bytes()


def test_a_drawing_is_inside_the_page() -> None:
    picture = inline.of_figure(bar_chart(["a"], [1.0]), "bars")
    assert base64.b64decode(picture.source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert picture.caption == "bars"


def test_an_svg_cannot_run_anything(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    picture = inline._of_file(path)
    assert isinstance(picture, inline.Illustration)
    assert picture.source.startswith("data:image/svg+xml;base64,") and "<" not in picture.source


def test_what_is_no_picture_becomes_a_text(tmp_path: Path) -> None:
    (tmp_path / "fake.png").write_text("not a picture")
    (tmp_path / "text.txt").write_text("not a picture")
    assert inline._of_file(tmp_path / "fake.png") == "fake.png was left out: it is no picture"
    assert inline._of_file(tmp_path / "text.txt") == "text.txt was left out: it is no picture"
    missing = inline._of_file(tmp_path / "missing.png")
    assert isinstance(missing, str) and missing.startswith("missing.png was left out") and "does not exist" in missing


def test_one_picture_a_figure_and_no_links(tmp_path: Path, figures: Callable) -> None:
    figures(tmp_path, "b")
    figures(tmp_path, "a.block.3")
    folder = tmp_path / "figures"
    (folder / "b.svg").write_text("<svg/>")
    (folder / "only.svg").write_text("<svg/>")
    (folder / "link.png").symlink_to(folder / "b.png")
    assert [path.name for path in inline._figure_files(folder)] == ["a.block.3.png", "b.png", "only.svg"]


def test_captions_come_from_the_json(tmp_path: Path, figures: Callable) -> None:
    figures(tmp_path, "one", caption="Rollout → church", note="no class token", command="vitral look m cat.jpg")
    for name in ("head_distance", "of-a-list"):
        figures(tmp_path, name)
    (tmp_path / "figures" / "head_distance.json").write_text("damaged {")
    (tmp_path / "figures" / "of-a-list.json").write_text("[1]")
    found = [picture for picture in inline.of_folder(tmp_path / "figures", "") if isinstance(picture, inline.Illustration)]
    assert [(picture.caption, picture.command) for picture in found] == [
        ("head distance", ""),
        ("of a list", ""),
        ("Rollout → church – no class token", "vitral look m cat.jpg"),
    ]


def test_no_figures_and_too_many(tmp_path: Path, figures: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inline.of_folder(tmp_path / "figures", "make some") == ["there are no figures yet: make some"]
    monkeypatch.setattr(inline, "_MOST", 2)
    for name in "abcde":
        figures(tmp_path, name)
    *shown, left = inline.of_folder(tmp_path / "figures", "make some")
    assert len(shown) == 2 and str(left).startswith("3 more figures were left out")


def test_a_folder_of_figures_that_leads_elsewhere_is_left_out(tmp_path: Path, figures: Callable) -> None:
    """A study from a stranger could name any folder of this user's so, and have its pictures put on the page."""
    (tmp_path / "private").mkdir()
    figures(tmp_path / "private", "a")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "figures").symlink_to(tmp_path / "private" / "figures")
    assert inline._figure_files(tmp_path / "private" / "figures") and not inline._figure_files(tmp_path / "study" / "figures")
