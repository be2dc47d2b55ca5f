from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

from vitral.report.inline import Illustration
from vitral.report.page import _numeric_columns, environment, pages, part, percent, read_object, section, show, write_page


def test_every_way_in_is_escaped(tmp_path: Path, read: Callable, nasty: str) -> None:
    picture = Illustration("data:image/png;base64,", nasty, nasty)
    parts = [
        *part("table", [[nasty], [nasty]], [nasty], nasty),
        *part("named_values", {nasty: nasty, "inner": {nasty: [nasty]}}, nasty),
        *part("figures", [nasty, picture]),
        *environment({nasty: nasty}),
        *part("note", nasty),
        *part("code", nasty),
        *part("items", [nasty]),
    ]
    reader = read(write_page(tmp_path / "page.html", nasty, [section(nasty, parts, nasty)], nasty, [nasty]))
    assert reader.text.count(nasty) == 23
    assert [attributes["alt"] for tag, attributes in reader.tags if tag == "img"] == [nasty]


def test_what_has_no_content_is_left_out(tmp_path: Path, read: Callable) -> None:
    sections = [section("Nothing", part("table", [], ["a"])), section("Something", "", "first"), section("", "second")]
    text = read(write_page(tmp_path / "page.html", "title", sections)).text
    assert "Nothing" not in text and text.rindex("Something") < text.rindex("first") < text.rindex("second")


def test_no_template_turns_escaping_off() -> None:
    environment = pages()
    assert environment.autoescape is True
    assert environment.loader
    for name in environment.list_templates():
        source, _, _ = environment.loader.get_source(environment, name)
        assert not re.search(r"\|\s*safe|autoescape|Markup", source), name


def test_numbers_stand_to_the_right() -> None:
    rows = [
        ["ViT", "97.2 %", "1", "0.2", "0.1 (70 %)", 3],
        ["CNN", "–", "none", "< 0.001", "–", None],
        ["MLP", "0.3", "1", "≤ 0.0005", "–", 1],
    ]
    assert _numeric_columns(rows) == [False, True, False, True, False, True]
    (html,) = part("table", [["ViT", "< 0.001"]], ["model", "accuracy"])
    assert '<td class="number">&lt; 0.001</td>' in html and "<td>ViT</td>" in html
    assert '<th scope="col" class="number">accuracy</th>' in html


def test_words_for_values() -> None:
    given = (None, True, 12345, 0.1 + 0.2, (8, 8), [], {"a": 1})
    assert [show(value) for value in given] == ["–", "yes", "12,345", "0.3", "8, 8", "", "a: 1"]
    assert show(list(range(1000))).endswith("11, … (1,000 in all)")
    assert [percent(value) for value in (0.97224, 1, None, "x")] == ["97.2 %", "100.0 %", "–", "–"]
    assert percent(0.25, 0) == "25 %"


def test_a_page_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    page = write_page(tmp_path / "page.html", "<mine>", [])
    assert page == tmp_path / "page.html" and isinstance(page, Path)
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="') and "sandbox" in shown
    assert html.unescape(shown.split('srcdoc="')[1].split('"')[0]) == page.read_text(encoding="utf-8")


def test_missing_and_damaged_files_say_so(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_object(tmp_path / "env.json", notes, "versions are not known") == {}
    assert read_object(tmp_path / "test.json", notes) == {}
    assert notes == ["env.json is missing: versions are not known"]
    (tmp_path / "list.json").write_text("[1]")
    assert read_object(tmp_path / "list.json", notes) == {}
    assert "list.json holds no JSON object" in notes[-1]
    (tmp_path / "list.json").write_text("{")
    assert read_object(tmp_path / "list.json", notes) == {}
    assert "list.json is not JSON" in notes[-1] and len(notes) == 3
