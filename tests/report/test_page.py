from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from vitral.draw.charts import bar_chart
from vitral.report.page import Cell, Page, duration, percent, scaled, show


def test_every_way_in_is_escaped(tmp_path: Path, read: Callable, figures: Callable, nasty: str) -> None:
    page = Page(nasty, nasty)
    for put in (page.section, page.subsection, page.text, page.note, page.code):
        put(nasty)
    page.listing([nasty])
    page.table([nasty], [[nasty], [Cell(nasty, "known")]], summary=nasty)
    page.facts({nasty: nasty, "inner": {nasty: [nasty]}}, summary=nasty)
    page.picture(figures(tmp_path), nasty, nasty)
    page.figure(bar_chart(["a"], [1.0]), nasty)
    reader = read(page.write(tmp_path / "page.html"))
    assert reader.text.count(nasty) == 21
    images = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert [image["alt"] for image in images] == [nasty, nasty]


def test_pictures_are_inside_the_page(tmp_path: Path, read: Callable, figures: Callable) -> None:
    page = Page("x")
    path = figures(tmp_path)
    page.picture(path, "red")
    reader = read(page.write(tmp_path / "page.html"))
    (image,) = (attributes for tag, attributes in reader.tags if tag == "img")
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == path.read_bytes()


def test_an_svg_cannot_run_anything(tmp_path: Path, read: Callable) -> None:
    path = tmp_path / "x.svg"
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    page = Page("x")
    page.picture(path, "drawing")
    assert "<svg" not in page.html()
    read(page.write(tmp_path / "page.html"))


def test_what_is_no_picture_becomes_a_note(tmp_path: Path, read: Callable) -> None:
    (tmp_path / "fake.png").write_text("not a picture")
    (tmp_path / "text.txt").write_text("not a picture")
    page = Page("x")
    for name in ("fake.png", "text.txt", "missing.png"):
        page.picture(tmp_path / name, name)
    reader = read(page.write(tmp_path / "page.html"))
    assert "fake.png was left out: it is no picture" in reader.text
    assert "text.txt was left out: it is no picture" in reader.text
    assert "missing.png was left out" in reader.text
    assert "does not exist" in reader.text


def test_numbers_stand_to_the_right() -> None:
    page = Page("x")
    rows = [["ViT", "97.20 %", "1", "0.2", "0.1 (70 %)"], ["CNN", "–", "none", "< 0.001", "–"]]
    page.table(["model", "accuracy", "mixed", "p", "tried"], rows)
    html = page.html()
    assert '<td class="number">&lt; 0.001</td>' in html
    assert "<td>0.1 (70 %)</td>" in html
    assert '<td class="number">97.20 %</td>' in html
    assert "<td>ViT</td>" in html
    assert "<td>none</td>" in html
    assert '<th scope="col" class="number">accuracy</th>' in html


def test_words_for_values() -> None:
    assert [show(value) for value in (None, True, 12345, 0.1 + 0.2, (8, 8), [], {"a": 1})] == [
        "–",
        "yes",
        "12,345",
        "0.3",
        "8, 8",
        "",
        "a: 1",
    ]
    assert show(list(range(1000))).endswith("11, … (1,000 in all)")
    assert [percent(value) for value in (0.97224, 1, None, "x")] == ["97.22 %", "100.00 %", "–", "–"]
    assert [duration(value) for value in (3.14, 61, 3725, None)] == ["3.1 s", "1 min 01 s", "1 h 02 min", "–"]
    assert scaled(4_600_000_000, ("", "k", "M", "G")) == "4.6 G"
    assert scaled(12, ("", "k")) == "12"
    assert scaled(3 * 2**20, ("B", "KiB", "MiB"), 1024) == "3 MiB"
    assert scaled(None, ("",)) == "–"
