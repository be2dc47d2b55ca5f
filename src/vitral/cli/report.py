"""vitral report RUN_OR_STUDY: one self-contained page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from vitral.base.progress import print_clean
from vitral.cli.parsing import parse

EXAMPLES = """Write a run or a study as one HTML page that needs no other file.

Examples:
  vitral report runs/digits
  vitral report runs/compare-digits --out fight.html
"""


@dataclass(frozen=True)
class _Flags:
    folder: Annotated[str, "RUN_OR_STUDY"]
    """A folder that `vitral train`, `vitral pretrain`, `vitral compare` or `vitral scale` wrote."""
    out: str | None = None
    """The page; default: report.html in the folder."""
    no_maps: bool = False
    """Leave out the maps over the test pictures that a run's page lists."""
    json: bool = False
    """Print the page's path as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral report", EXAMPLES)
    from vitral.report.study import write_report

    path = write_report(flags.folder, flags.out, not flags.no_maps)
    print_clean(json.dumps({"path": str(path)}) if flags.json else path)
    return 0
