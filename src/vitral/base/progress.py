"""Progress on stderr: a bar with the time left on a terminal, plain lines every few seconds elsewhere, nothing when quiet."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from vitral.base.text import clean, columns, duration, percent

T = TypeVar("T")

_FIRST_LINE_AFTER = 2.0
"""Seconds before the first plain line: what is quicker needs none."""
_LINE_EVERY = 5.0
SHARES = ("accuracy", "validation")
"""Values that are fractions, shown in per cent."""
_WATCHER: ContextVar[Callable[[Progress], None] | None] = ContextVar("watcher", default=None)


class Progress:
    """What `progress()` yields. `advance(k, loss=…)` moves it on and shows the values beside it."""

    def __init__(self, description: str, total: int | None, start: int = 0) -> None:
        self.description = description
        self.total = total
        self.start = self.done = start
        self.values: dict[str, Any] = {}
        self._began = time.monotonic()
        self._watcher = _WATCHER.get()

    def advance(self, steps: int = 1, **values: Any) -> None:
        self.done += steps
        self.values.update(values)
        if self._watcher is not None:
            self._watcher(self)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def finish(self) -> None:
        """Called once, when the block ends."""

    def line(self) -> str:
        """`Training 120/600 (20 %), loss 0.31, 12 s, about 48 s left`."""
        counted = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        parts = [f"{self.description} {counted}"]
        if self.total:
            parts[0] += f" ({percent(self.done / self.total, 0)})"
        parts += [_value(name, value) for name, value in self.values.items()]
        parts.append(duration(self.seconds))
        if self.total and self.start < self.done < self.total:
            # What was done before this bar began took none of its time.
            parts.append(f"about {duration(self.seconds / (self.done - self.start) * (self.total - self.done))} left")
        return ", ".join(parts)


class _PlainProgress(Progress):
    def __init__(self, description: str, total: int | None, start: int = 0) -> None:
        super().__init__(description, total, start)
        self._next = self._began + _FIRST_LINE_AFTER
        self._printed: tuple[int, dict[str, Any]] | None = None  # what the last printed line showed

    def advance(self, steps: int = 1, **values: Any) -> None:
        super().advance(steps, **values)
        # After the last step values may still come, those of a last validation: its line waits for the end.
        if (now := time.monotonic()) >= self._next and self.done != self.total:
            self._next, self._printed = now + _LINE_EVERY, (self.done, dict(self.values))
            say(self.line())

    def finish(self) -> None:
        waits = self.done == self.total and time.monotonic() >= self._next
        if (waits or self._printed is not None) and self._printed != (self.done, self.values):
            say(self.line())


class _BarProgress(Progress):
    """A row of the one live display: bars inside bars share it."""

    def __init__(self, description: str, total: int | None, start: int = 0) -> None:
        super().__init__(description, total, start)
        self._live = _Live.enter()
        self._task = self._live.add_task(description, total=total, completed=start, values=[])

    def advance(self, steps: int = 1, **values: Any) -> None:
        super().advance(steps, **values)
        shown = [_value(*pair) for pair in self.values.items()]
        self._live.update(self._task, advance=steps, description=self.description, values=shown)

    def finish(self) -> None:
        self._live.stop_task(self._task)
        _Live.leave()


class _Live:
    """The terminal has one live display; it is up while any bar is."""

    lock = threading.Lock()
    display: Any = None
    users = 0

    @classmethod
    def enter(cls) -> Any:
        with cls.lock:
            if cls.display is None:
                cls.display = _display()
                cls.display.start()
            cls.users += 1
            return cls.display

    @classmethod
    def leave(cls) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.users == 0:
                cls.display.stop()
                cls.display = None


def _display() -> Any:
    """Bar, step and time left stay at every width. Values drop out first, then the time taken, then the ends of names."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Task, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Table
    from rich.text import Text

    console, step, taken, left = Console(stderr=True), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()

    class Display(RichProgress):
        def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
            grid, tasks = Table.grid(padding=(0, 1)), list(tasks)
            if not tasks:
                return grid
            ahead = [left.render(task) + (" left" if task.total else "") for task in tasks]
            rows = [(Text(task.description), step.render(task), end, taken.render(task)) for task, end in zip(tasks, ahead, strict=True)]
            longest, steps, ends, clocks = (max(cell.cell_len for cell in column) for column in zip(*rows, strict=True))
            wide = min(24, console.width // 6)
            room = console.width - wide - steps - ends - 3
            timed = room > longest + clocks
            room -= (clocks + 1) * timed
            for task, (name, done, end, clock) in zip(tasks, rows, strict=True):
                name.truncate(max(room, 1), overflow="ellipsis")
                values = task.fields["values"]
                texts = (", ".join(values[:count]) for count in range(len(values), 0, -1))
                shown = [Text(text) for text in texts if columns(text) < room - longest][:1]
                grid.add_row(name, BarColumn(wide).render(task), done, *[clock][:timed], end, *shown)
            for column in grid.columns:
                column.no_wrap = True
            return grid

    return Display(console=console)


@contextlib.contextmanager
def progress(description: str, total: int | None = None, quiet: bool = False, start: int = 0) -> Iterator[Progress]:
    """`with progress("Training", total=n) as bar: bar.advance(1, loss=…)`; `start`: how much was done before."""
    kind = Progress if quiet or _WATCHER.get() else _BarProgress if _on_terminal() else _PlainProgress
    bar = kind(description, total, start)
    try:
        yield bar
    finally:
        bar.finish()


def track(iterable: Iterable[T], description: str, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """The items of `iterable`, with progress."""
    if total is None and hasattr(iterable, "__len__"):
        total = len(iterable)  # type: ignore[arg-type]
    with progress(description, total, quiet) as bar:
        for item in iterable:
            yield item
            bar.advance()


@contextlib.contextmanager
def watched(watcher: Callable[[Progress], None]) -> Iterator[None]:
    """Within this block `watcher` is told of every step instead of the terminal; what it raises ends the work."""
    before = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(before)


def say(text: str) -> None:
    """One line on stderr, above any bar."""
    text = clean(text)
    if _Live.display is not None:
        _Live.display.console.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


def print_clean(text: object) -> None:
    """A result, on stdout."""
    print(clean(str(text)))


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _value(name: str, value: Any) -> str:
    if name in SHARES:
        return f"{name} {percent(value)}"
    if isinstance(value, float):
        return f"{name} {value:.2e}" if value and abs(value) < 1e-3 else f"{name} {value:.4g}"
    return f"{name} {value}"
