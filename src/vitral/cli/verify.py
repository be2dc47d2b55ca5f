"""vitral verify RUN: check that no file of a run has changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from vitral.base.progress import print_clean
from vitral.base.text import few
from vitral.cli.parsing import parse

EXAMPLES = """Check that no file of a run, a study or a saved model has changed. Names each file that has and exits with 1 then.

Examples:
  vitral verify runs/digits
  vitral verify runs/compare-digits --json
"""


@dataclass(frozen=True)
class _Flags:
    folder: Annotated[str, "RUN_OR_STUDY"]
    """A folder that Vitral wrote, or the archive of a record: every file in it is checked, also in each cell of a study."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral verify", EXAMPLES)
    from vitral.run.verify import verify

    verdict = verify(flags.folder)
    if flags.json:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        for fault in verdict.faults:
            print_clean(fault)
        beside = f"; nothing vouches for {len(verdict.unvouched)} others ({few(verdict.unvouched)})" if verdict.unvouched else ""
        end = f"{len(verdict.faults)} faults" if verdict.faults else "each is what was written"
        print_clean(f"{verdict.path}: {verdict.files} files, {end}{beside}")
    return 1 if verdict.faults else 0
