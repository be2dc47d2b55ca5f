"""vitral demo: train a small ViT on digits, look inside it, put a photograph through a larger one, write a report."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from vitral.base.layout import EXPLORER, RUNS
from vitral.base.progress import print_clean
from vitral.base.text import table
from vitral.cli.parsing import parse

EXAMPLES = """Train a small ViT on scikit-learn's handwritten digits (CPU, about a minute), look inside it, write a report.

If weights of a larger ViT are available, it also looks at a photograph.

Examples:
  vitral demo
  vitral demo --weights vit_tiny.safetensors
  vitral demo --out runs/first --seed 1 --weights none
"""


@dataclasses.dataclass(frozen=True)
class _Flags:
    out: Path = RUNS / "demo"
    """Folder for the run, its figures and report.html; an earlier demo there is replaced."""
    weights: str = "auto"
    """Of the ViT that looks at the photograph: a file, timm:NAME, hf:NAME …; auto: vit_tiny*.safetensors in this folder, or timm's
    ViT-Ti (23 MB) from the hub or its cache; none: no photograph."""
    seed: int = 0
    """Seed of the training."""
    epochs: float | None = None
    """Fewer for a quick look, more for a better model; empty: as the preset says."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""


def run(arguments: list[str]) -> int:
    asked = parse(_Flags, arguments, "vitral demo", EXAMPLES)
    from vitral.report.demo.demo import PICTURE, demo
    from vitral.report.demo.photograph import PHOTOGRAPH
    from vitral.web.notebook import explore

    command = shlex.join(["vitral", "demo", *arguments])
    done = demo(asked.out, asked.seed, asked.epochs, command=command, weights=asked.weights, device=asked.device)
    page = explore(done.run.path, [asked.out / PICTURE]).save(asked.out / EXPLORER)
    made = [
        ["report", str(done.report), "accuracy, curves, confusions, every figure"],
        ["explorer", str(page), "hover a patch, switch heads off, follow the story"],
        ["photograph", str(done.photograph.path), f"{done.photograph.answer}, says {done.weights.name}"]
        if done.photograph
        else ["photograph", "not run", f"{done.weights.missing}; --weights FILE names some"],
    ]
    following = [
        ["explore it live", shlex.join(["vitral", "explore", str(asked.out)])],
        ["and a larger ViT", shlex.join(["vitral", "explore", done.weights.name, str(asked.out / PHOTOGRAPH.name)])],
        ["which maps to trust", shlex.join(["vitral", "audit", str(asked.out), "digits"])],
        ["on your own pictures", shlex.join(["vitral", "train", "finetune", "--from", done.weights.name, "--data", "folder:photos"])],
    ]
    print_clean(f"\nOpen in a browser (no network needed)\n{table(made)}")
    print_clean(f"\nNext (vitral is .venv/bin/vitral when it is not on your path)\n{table(following)}")
    return 0
