from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from vitral.base import progress as module
from vitral.base.progress import Progress, progress, say, track, watched


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_plain_lines_every_few_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Training", total=10) as bar:
        for step in range(10):
            clock.now += 1
            bar.advance(loss=1 / (step + 1), lr=1e-4)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "Training 2/10 (20 %), loss 0.5, lr 1.00e-04, 2 s, about 8 s left",
        "Training 7/10 (70 %), loss 0.1429, lr 1.00e-04, 7 s, about 3 s left",
        "Training 10/10 (100 %), loss 0.1, lr 1.00e-04, 10 s",
    ]


@pytest.mark.parametrize("total", [2, None])
def test_the_last_line_has_what_came_after_the_last_step(total: int | None, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Training", total) as bar:
        bar.advance(0, effective_rank=14.5)
        clock.now += 3
        bar.advance(2, loss=0.5)
        bar.advance(0, effective_rank=5.75)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].endswith("effective_rank 5.75, loss 0.5, 3 s")
    assert len(lines) == (2 if total is None else 1), "where the end is known, it is said once"


def test_quick_or_quiet_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(5), "Quick")) == [0, 1, 2, 3, 4]
    with progress("Long", total=3, quiet=True) as bar:
        clock.now += 100
        bar.advance(3)
    assert bar.done == 3
    assert capsys.readouterr().err == ""


def test_unknown_total_and_long_times(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in track(iter(range(2)), "Reading"):
        clock.now += 3_725
    assert capsys.readouterr().err.splitlines()[0] == "Reading 1, 1 h 02 min"


def test_total_of_a_sized_iterable(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in track([1, 2], "Reading"):
        clock.now += 90
    assert capsys.readouterr().err.splitlines()[0] == "Reading 1/2 (50 %), 1 min 30 s, about 1 min 30 s left"


def test_bars_on_a_terminal_nest_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(ValueError, match="stop"), progress("Outer [red]", total=2) as outer:
        for _ in track(range(3), "Inner"):
            pass
        outer.description = "Outer again"
        outer.advance(1, accuracy=0.75)
        say("a line between [bold]")
        raise ValueError("stop")
    shown = terminal.getvalue()
    assert "Outer [red]" in shown, "square brackets of a name are text, not markup"
    assert "Inner" in shown
    assert "3/3" in shown
    assert "accuracy 75.0 %" in shown and "Outer again" in shown
    assert "a line between [bold]" in shown
    assert module._Live.display is None
    assert module._Live.users == 0


def test_time_left_does_not_count_what_was_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("vitral.base.progress.time.monotonic", lambda: now[0])
    bar = Progress("Training", 100, start=80)
    assert "left" not in bar.line()
    bar.advance(10)
    now[0] = 60.0
    assert bar.line().endswith("about 1 min 00 s left")


def test_a_watcher_hears_every_step_and_can_end_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, int | None]] = []

    def watcher(bar: Progress) -> None:
        heard.append((bar.done, bar.total))
        if bar.done == 3:
            raise InterruptedError

    with watched(watcher), pytest.raises(InterruptedError):
        for _ in track(range(5), "Covering"):
            pass
    assert heard == [(1, 5), (2, 5), (3, 5)]
    assert list(track(range(2), "Alone")) == [0, 1] and len(heard) == 3
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (120, r"Training [━╸╺ ]{20} 104/500 0:00:02 0:00:08 left loss 0.8843, accuracy 72.5 %, images_per_second 472"),
        (80, r"Training [━╸╺ ]{13} 104/500 0:00:02 0:00:08 left loss 0.8843, accuracy 72.5 %"),
        (79, r"Training [━╸╺ ]{13} 104/500 0:00:02 0:00:08 left loss 0.8843"),
        (60, r"Training [━╸╺ ]{10} 104/500 0:00:02 0:00:08 left loss 0.8843"),
        (58, r"Training [━╸╺ ]{9} 104/500 0:00:02 0:00:08 left"),
        (40, r"Training [━╸╺ ]{6} 104/500 0:00:08 left"),
        (32, r"Trai… [━╸╺ ]{5} 104/500 0:00:08 left"),
    ],
)
def test_bar_step_and_time_left_stay_at_every_width(width: int, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setenv("COLUMNS", str(width))
    display = module._display()
    monkeypatch.setattr(display, "get_time", clock.monotonic)
    task = display.add_task("Training", total=500, values=["loss 0.8843", "accuracy 72.5 %", "images_per_second 472"])
    for clock.now in (1.0, 2.0):
        display.update(task, advance=52)
    assert re.fullmatch(row, lines(display)[0].rstrip()), lines(display)
    display.add_task("Features of a validation set", total=None, values=[])
    assert len(lines(display)) == 2 and all(len(line) <= width for line in lines(display))


def lines(display: Any) -> list[str]:
    with display.console.capture() as captured:
        display.console.print(display.make_tasks_table(display.tasks))
    return captured.get().splitlines()
