"""vitral bench [MODEL]: how fast a ViT is on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from vitral.base.progress import print_clean
from vitral.cli.parsing import parse

EXAMPLES = """Measure how fast a ViT trains, predicts and shows its attention on this machine, with its memory and its share of the
peak. The script benchmarks/peers.py of the repository compares it with timm, torchvision, transformers and vit-pytorch.

Examples:
  vitral bench
  vitral bench b/16 --batch 256 --json
  vitral bench s/16 --rounds 12
  vitral bench --quick
"""


@dataclass(frozen=True)
class _Flags:
    model: Annotated[str, "MODEL"] = "ti/16"
    """A ViT by its name: ti/16, s/16, b/16, l/16, b/32 …"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int | None = None
    """CPU threads that one operation may use; None: PyTorch's choice."""
    batch: int | None = None
    """Images of a training step and of large inference; None: 256 on a GPU, 8 on a CPU."""
    rounds: int = 7
    """How often each action is timed."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """Compiled models as well; auto: on a GPU."""
    quick: bool = False
    """Three rounds, small batches, no start-up: to see whether it runs."""
    json: bool = False
    """Print everything as JSON."""
    quiet: bool = False
    """No progress."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral bench", EXAMPLES)
    from vitral.base.device import using_threads
    from vitral.study.bench import ACTIONS, START, bench

    few = {"batch": flags.batch or 2, "rounds": 3} if flags.quick else {"batch": flags.batch, "rounds": flags.rounds}
    compiled = {"auto": None, "yes": True, "no": False}[flags.compile]
    with using_threads(flags.threads):
        actions = [action for action in ACTIONS if not (flags.quick and action == START)]
        settings = {"device": flags.device, "compiled": compiled, "actions": actions, "quiet": flags.quiet}
        result = bench(flags.model, **few, **settings)
    print(json.dumps(result.to_dict(), indent=2)) if flags.json else print_clean(result.text())
    return 0
