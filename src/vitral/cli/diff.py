"""vitral diff RUN RUN: what differs between runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from vitral.base.progress import print_clean
from vitral.cli.parsing import parse

EXAMPLES = """List what differs between runs: settings, data, versions, curves, answers on the test images, weights.

Examples:
  vitral diff runs/digits runs/digits-2
  vitral diff runs/digits runs/digits-2 --json
"""


@dataclass(frozen=True)
class _Flags:
    runs: Annotated[tuple[str, ...], "RUN"]
    """Two folders of runs, or more: each is compared with the first. A record's archive (NAME.zip) can take the place of a folder."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral diff", EXAMPLES)
    from vitral.run.differences import differences

    comparison = differences(flags.runs)
    print(json.dumps(comparison.to_dict(), indent=2)) if flags.json else print_clean(comparison.text())
    return 0
