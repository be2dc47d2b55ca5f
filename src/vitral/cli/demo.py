"""vitral demo: train a small ViT on digits, look inside it, write a report."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from vitral.base.layout import RUNS
from vitral.cli.parsing import parse

EXAMPLES = """Train a small ViT on scikit-learn's handwritten digits (CPU, about a minute), look inside it, write a report.

Examples:
  vitral demo
  vitral demo --out runs/first --seed 1
"""


@dataclasses.dataclass(frozen=True)
class Demo:
    out: Path = RUNS / "demo"
    """Folder for the run, its figures and report.html; an earlier demo there is replaced."""
    seed: int = 0
    """Seed of the training."""
    epochs: float | None = None
    """Fewer for a quick look, more for a better model; empty: as the preset says."""


def run(arguments: list[str]) -> int:
    asked = parse(Demo, arguments, "vitral demo", EXAMPLES)
    from vitral.report.demo import demo

    demo(asked.out, asked.seed, asked.epochs, command=shlex.join(["vitral", "demo", *arguments]))
    return 0
