"""vitral plan RUN: estimate time and memory of a run."""

from __future__ import annotations

import json

from vitral.base.progress import print_clean
from vitral.cli.train import NAMED_RUNS, parse

EXAMPLES = f"""Estimate steps, FLOPs, time and memory of a run before it starts. Takes the flags of train and fetches nothing.

Examples:
  vitral plan digits
  vitral plan cifar10 --epochs 30 --gpu h200
  vitral plan finetune --data folder:photos --from vit_tiny.safetensors --json

{NAMED_RUNS}
"""


def run(arguments: list[str]) -> int:
    config, values = parse(arguments, "plan", EXAMPLES)
    from vitral.study.plan import plan

    result = plan(config, gpu=values.get("gpu"))
    print(json.dumps(result.to_dict(), indent=2)) if values.get("json") else print_clean(result.text())
    return 0
