"""vitral runs: what has been trained, side by side, and what can be cleared away."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from vitral.base.errors import UsageError
from vitral.base.progress import print_clean
from vitral.cli.parsing import parse

if TYPE_CHECKING:
    from vitral.run.survey import Row

EXAMPLES = """List the runs in runs/ or another folder, best first; compare two or more of them; remove what they no longer need.

Examples:
  vitral runs
  vitral runs --sort date
  vitral runs runs/digits runs/digits-2 --out curves.png
  vitral runs --clean --yes
"""


@dataclass(frozen=True)
class _Flags:
    folders: Annotated[tuple[str, ...], "FOLDER"] = ()
    """None: runs/. One: that folder of runs. Two or more: these runs side by side, with the settings that differ."""
    sort: Literal["accuracy", "name", "time", "date"] = "accuracy"
    """What comes first: the best on the test split, the name, the quickest, or the newest."""
    out: str | None = None
    """Their curves as one figure: OUT.png, .svg, its numbers and where they come from."""
    clean: bool = False
    """Remove `state/` of finished runs: only a stopped run needs it."""
    yes: bool = False
    """Do not ask before something is removed."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral runs", EXAMPLES)
    from vitral.base.layout import RUNS
    from vitral.run.differences import differences
    from vitral.run.survey import as_table, survey

    if len(flags.folders) < 2:
        rows = survey(flags.folders[0] if flags.folders else RUNS, flags.sort)
    else:
        rows = [row for folder in flags.folders for row in survey(folder, flags.sort)]
    if flags.clean:
        return _clean(rows, flags)
    if flags.out is not None:
        _draw([row.path for row in rows], flags.out)
    if len(flags.folders) > 1:
        comparison = differences(flags.folders)
        print(json.dumps(comparison.to_dict(), indent=2)) if flags.json else print_clean(comparison.text())
    else:
        where = flags.folders[0] if flags.folders else RUNS
        text = as_table(rows) if rows else f"no runs in {where}: `vitral train digits` makes one in runs/"
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2)) if flags.json else print_clean(text)
    return 0


def _draw(paths: list[str], out: str) -> None:
    from vitral.draw.curves import read_curve, training_curves
    from vitral.draw.provenance import save_figure
    from vitral.run.folder import RunFolder

    journals = {path: RunFolder.open(path).metrics for path in paths}
    short = {path: Path(path).name for path in paths}
    names = short if len(set(short.values())) == len(paths) else {path: path for path in paths}
    numbers = {
        f"{name} {key}": read_curve(journals[path], "validation", key) for path, name in names.items() for key in ("accuracy", "loss")
    }
    stem = out.removesuffix(".png").removesuffix(".svg")
    save_figure(
        training_curves({name: journals[path] for path, name in names.items()}),
        stem,
        numbers,
        {"runs": paths},
        "Training dashed, validation solid.",
    )


def _clean(rows: list[Row], flags: _Flags) -> int:
    from vitral.base.text import byte_size, clean
    from vitral.run.survey import cleanable, remove_states

    finished = cleanable(rows)
    size = byte_size(sum(row.state_bytes for row in finished))
    if finished and not flags.yes:
        what = clean(f"{size} in the state/ of {len(finished)} finished runs ({', '.join(row.name for row in finished)})")
        if not sys.stdin.isatty():
            raise UsageError(f"{what} would be removed", "add --yes")
        if input(f"remove {what}? [y/N] ").strip().lower() not in ("y", "yes"):
            return 0
    freed = remove_states(finished)
    result = {"freed": freed, "runs": [row.path for row in finished]}
    print(json.dumps(result) if flags.json else f"{byte_size(freed)} removed from {len(finished)} runs")
    return 0
