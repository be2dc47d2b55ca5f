from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest

from vitral.report.inline import Illustration
from vitral.report.render import numeric_columns, pages, percent, show, write_page

PARTS = """{% extends "page.html" %}
{% from "parts.html" import environment, illustrations, named_values, table %}
{% block content %}
{{ table([nasty], [[nasty], [nasty]], nasty) }}
{{ named_values({nasty: nasty, "inner": {nasty: [nasty]}}, nasty) }}
{{ illustrations([nasty, picture]) }}
{{ environment({nasty: nasty}) }}
{% endblock %}"""


def test_every_way_in_is_escaped(tmp_path: Path, read: Callable, nasty: str) -> None:
    picture = Illustration("data:image/png;base64,", nasty, nasty)
    text = pages().from_string(PARTS).render(title=nasty, lead=nasty, notes=[nasty], version="1", nasty=nasty, picture=picture)
    (tmp_path / "page.html").write_text(text)
    reader = read(tmp_path / "page.html")
    assert reader.text.count(nasty) == 18
    assert [attributes["alt"] for tag, attributes in reader.tags if tag == "img"] == [nasty]


@pytest.mark.parametrize("name", ["run.html", "study.html"])
def test_what_a_template_names_must_be_given(name: str, tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError):
        write_page(name, tmp_path / "page.html", title="x", lead="", notes=[])
    assert not list(tmp_path.iterdir())


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
    assert numeric_columns(rows) == [False, True, False, True, False, True]
    table = pages().from_string('{% from "parts.html" import table %}{{ table(["model", "accuracy"], rows) }}')
    html = table.render(rows=[["ViT", "< 0.001"]])
    assert '<td class="number">&lt; 0.001</td>' in html and "<td>ViT</td>" in html
    assert '<th scope="col" class="number">accuracy</th>' in html


def test_words_for_values() -> None:
    given = (None, True, 12345, 0.1 + 0.2, (8, 8), [], {"a": 1})
    assert [show(value) for value in given] == ["–", "yes", "12,345", "0.3", "8, 8", "", "a: 1"]
    assert show(list(range(1000))).endswith("11, … (1,000 in all)")
    assert [percent(value) for value in (0.97224, 1, None, "x")] == ["97.2 %", "100.0 %", "–", "–"]
    assert percent(0.25, 0) == "25 %"


def test_a_page_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    page = write_page("evaluation.html", tmp_path / "page.html", title="<mine>", lead="", notes=[], test=NOTHING_SCORED, command="")
    assert page == tmp_path / "page.html" and isinstance(page, Path)
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="') and "sandbox" in shown
    assert html.unescape(shown.split('srcdoc="')[1].split('"')[0]) == page.read_text(encoding="utf-8")


NOTHING_SCORED = {"scores": {}, "figures": [], "columns": [], "classes": [], "gallery": [], "maps": ""}
