"""vitral plan RUN: what a training will cost, before it is spent."""

from __future__ import annotations

import json

from vitral.base.progress import tell
from vitral.cli.train import parse


def run(arguments: list[str]) -> int:
    flags = parse(arguments, "plan")
    from vitral.study.plan import plan

    result = plan(flags.config(), gpu=flags.gpu)
    print(json.dumps(result.to_dict(), indent=2)) if flags.json else tell(result.text())
    return 0
