from __future__ import annotations

import pytest

from vitral.base.errors import DataError
from vitral.base.progress import print_clean, say
from vitral.base.text import byte_size, clean, columns, compact, counted, duration, few, html, percent, readable, short, signed, table


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (10.0, "10"),
        (2.5, "2.5"),
        (45_000.4, "45,000"),
        (999_999_999, "999,999,999"),
        (1e9, "10⁹"),
        (5e14, "5·10¹⁴"),
        (4.134e14, "4.1·10¹⁴"),
        (-2e20, "-2·10²⁰"),
    ],
)
def test_numbers_as_people_write_them(number: float, written: str) -> None:
    assert readable(number) == written


@pytest.mark.parametrize(
    ("number", "written"),
    [(None, "–"), (0, "0"), (12, "12"), (1234, "1.23 k"), (999_999, "1 M"), (1_234_567, "1.23 M"), (5e15, "5 P"), (2e21, "2000 E")],
)
def test_counts_with_a_letter(number: float | None, written: str) -> None:
    assert short(number) == written


@pytest.mark.parametrize(
    ("count", "written"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (1000, "1000 B"), (1023.9, "1 KiB"), (3 * 2**20, "3 MiB"), (1.5 * 2**30, "1.5 GiB")],
)
def test_bytes(count: float | None, written: str) -> None:
    assert byte_size(count) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.25, "0.25 s"),
        (0.0123, "12 ms"),
        (0.0999, "0.1 s"),
        (3.14, "3.1 s"),
        (9.96, "10 s"),
        (48, "48 s"),
        (59.6, "1 min 00 s"),
        (61, "1 min 01 s"),
        (3599.7, "1 h 00 min"),
        (3725, "1 h 02 min"),
        (187_200, "2 d 04 h"),
    ],
)
def test_durations(seconds: float | None, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize(
    ("share", "digits", "written"),
    [(None, 1, "–"), (0.1234, 1, "12.3 %"), (1.0, 1, "100.0 %"), (0.0, 1, "0.0 %"), (9e-4, 1, "<0.1 %"), (0.3, 0, "30 %")],
)
def test_shares(share: float | None, digits: int, written: str) -> None:
    assert percent(share, digits) == written


def test_a_few_names() -> None:
    assert few([]) == ""
    assert few(["cat", "dog", "owl"]) == "cat, dog, owl"
    assert few(("cat", "dog", "owl", "yak")) == "cat, dog, owl …"
    assert few(["cat", "dog"], most=1) == "cat …"


def test_a_table_for_a_terminal() -> None:
    rows = [["cnn", "1,234", "x"], ["ViT-Ti/16", "5", ""]]
    assert table(rows, ["model", "n", "note"], align="lrl").splitlines() == [
        "model          n  note",
        "─────────  ─────  ────",
        "cnn        1,234  x",
        "ViT-Ti/16      5",
    ]
    assert table([["a", "1"], ["bcd", "22"]], align="lr") == "a     1\nbcd  22"
    assert table([]) == ""


def test_a_table_in_markdown() -> None:
    assert table([["a|b", "1"]], ["model", "n"], align="lr", markdown=True) == "| model | n |\n| --- | ---: |\n| a\\|b | 1 |"


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table([["a", "b"], ["c"]])


def test_a_table_becomes_one_in_a_notebook() -> None:
    text = f"Scores <b>\n{table([['cat & dog', '1'], ['owl', '200']], ['class', 'images'], 'lr')}\n\nThe end"
    shown = html(text)
    assert shown.startswith("<p>Scores &lt;b&gt;</p><table><thead><tr><th>class</th><th>images</th></tr></thead>")
    assert "<tr><td>cat &amp; dog</td><td>1</td></tr><tr><td>owl</td><td>200</td></tr>" in shown and shown.endswith("<p>The end</p>")
    assert html("no <table>") == "<pre>no &lt;table&gt;</pre>"


def test_nothing_but_text_reaches_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert clean("a\x1b[31mb\x07\x9b\u202e\udc80") == "a\\x1b[31mb\\x07\\x9b\\u202e\\udc80"
    assert clean("plain · 12 % – été\n\tnext line") == "plain · 12 % – été\n\tnext line"
    hostile = "\x1b]0;owned\x07cat"
    assert "\x1b" not in str(DataError(f"{hostile} is not there", f"remove {hostile}"))
    say(hostile)
    print_clean(hostile)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err and "cat" in shown.out and "cat" in shown.err


@pytest.mark.parametrize(
    ("number", "written"), [(0, "0"), (0.0314, "0.031"), (-12.3, "−12"), (123.4, "123"), (4.14e-5, "4.1·10⁻⁵"), (-2e-6, "−2·10⁻⁶")]
)
def test_the_ends_of_a_scale(number: float, written: str) -> None:
    assert compact(number) == written


@pytest.mark.parametrize(("number", "written"), [(0.421, "+0.42"), (-0.03, "−0.03"), (-0.001, "0.00"), (0.0, "0.00")])
def test_zero_has_no_sign(number: float, written: str) -> None:
    assert signed(number) == written


def test_one_thing_and_many() -> None:
    assert counted(1, "artefact token") == "1 artefact token" and counted(1200, "picture") == "1,200 pictures"


def test_wide_letters_fill_two_columns() -> None:
    assert columns("犬 dog") == 6 and columns("e\u0301") == 1
    shown = table([["犬", "97.0 %"], ["dog", "3.0 %"]], ["class", "share"], "lr")
    assert [columns(line) for line in shown.splitlines()[2:]] == [13, 13]
    assert "<td>犬</td><td>97.0 %</td>" in html(shown) and "<td>dog</td><td>3.0 %</td>" in html(shown)
