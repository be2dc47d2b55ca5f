"""Cost against tokens: FLOPs, time and memory as patch size and resolution change, measured and predicted, with the quadratic term."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from vitral.base.device import describe_machine, pick_device, set_threads
from vitral.base.errors import ConfigError, UsageError
from vitral.base.layout import RESULT, STUDY
from vitral.base.progress import progress
from vitral.base.text import byte_size, percent, short, table
from vitral.build import build
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.flops import attention_map_ratio, even_tokens, layer_costs, vit_flops
from vitral.cost.memory import PeakMemory
from vitral.cost.time import fit_time
from vitral.data.loader import Batch
from vitral.study.fight import plots
from vitral.study.fight.forecast import GROUP, median_seconds, time_steps
from vitral.study.fight.result import Result, check_source, finish
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

HEADER = ("image", "patch", "tokens", "FLOPs/picture", "quadratic", "forward ms", "training ms", "predicted ms", "memory")


def varied(base: ModelConfig, sizes: Sequence[int], patches: Sequence[int]) -> list[ModelConfig]:
    """`base` with every picture size and patch size that go together."""
    made = []
    for size in sizes:
        for patch in patches:
            try:
                config = dataclasses.replace(base, image_size=(size, size), patch_size=(patch, patch), stride=None)
            except ConfigError:
                continue  # this patch does not divide this image
            if config.grid[0] > 1:
                made.append(config)
    if len({config.tokens for config in made}) < 2:
        raise UsageError(
            f"pictures of {list(sizes)} and patches of {list(patches)} give fewer than two numbers of tokens",
            "use --image-sizes 32,64 --patches 2,4,8",
        )
    return sorted(made, key=lambda config: (config.tokens, config.image_size))


def study_cost(
    configs: Sequence[ModelConfig],
    out: str | Path,
    *,
    batch_size: int = 8,
    device: str = "auto",
    threads: int | None = None,
    quiet: bool = False,
) -> Result:
    """Measure each config, fit time = fixed + a·linear + b·quadratic, draw it, and set the costs of other kinds of layers beside it."""
    if (Path(out) / STUDY).exists():  # of trainings; this one declares nothing, and is measured anew each time
        raise UsageError(f"{out} holds a study of another kind", "choose another --out")
    folder, where = check_source(out, RESULT), pick_device(device)
    if threads:
        set_threads(threads)
    rows: list[dict[str, Any]] = []
    with progress("Measuring", total=len(configs), quiet=quiet) as bar:
        for config in configs:
            flops = vit_flops(config)
            rows.append(
                {
                    "image": config.image_size[0],
                    "patch": config.patch_size[0],
                    "tokens": config.tokens,
                    "flops": flops.total,
                    "quadratic": flops.attention,
                    "linear": flops.total - flops.attention,
                    **measure(config, batch_size, where),
                    "attention_map_ratio": attention_map_ratio(config.image_size, config.grid),
                }
            )
            bar.advance(1, tokens=config.tokens)
    law = fit_time(*([entry[key] for entry in rows] for key in ("linear", "quadratic", "training_ms")))
    if law:
        for entry in rows:
            entry["predicted_ms"] = law.ms(entry["linear"], entry["quadratic"])
    base = configs[0]
    layers = {str(entry["tokens"]): [asdict(layer) for layer in layer_costs(entry["tokens"], base.width)] for entry in rows}
    even = even_tokens(base.width, base.mlp_width)
    first, last = rows[0], rows[-1]
    conclusion = (
        f"From {first['tokens']} to {last['tokens']} tokens the FLOPs grow {last['flops'] / first['flops']:.1f}-fold and the measured "
        f"training time {last['training_ms'] / first['training_ms']:.1f}-fold; the quadratic part of the FLOPs rises from "
        f"{percent(_share(first))} to {percent(_share(last))}. At width {base.width} it would equal the rest of a block at {even:,} "
        "tokens: below that a ViT's cost is mostly linear in tokens, which the usual n²·d (attention alone) does not show."
    )
    if law:
        conclusion += f" The time's fit, fixed + a·linear + b·quadratic, is off by up to {percent(law.largest_error)}."
    values = {
        "kind": "cost",
        "model": {"width": base.width, "depth": base.depth, "heads": base.heads, "mlp_width": base.mlp_width},
        "batch_size": batch_size,
        "rows": rows,
        "time": law and asdict(law),
        "layers": layers,
        "conclusion": conclusion,
        "figures": plots.draw_cost(folder, rows, f"width {base.width}, depth {base.depth}, batch {batch_size} on {where.type}"),
        "machine": describe_machine(),
    }
    return finish(folder, lambda markdown: cost_table(rows, batch_size, markdown), values)


def measure(config: ModelConfig, batch_size: int, device: torch.device) -> dict[str, float]:
    """Milliseconds per image of looking and of learning, and the most bytes of a step, on noise."""
    torch.manual_seed(0)
    train = TrainConfig(batch_size=batch_size, compile="no")
    stepper = Stepper(build(config).to(device), task_of(train), train, device, World())
    images = torch.randn(batch_size, config.channels, *config.image_size, device=device)
    labels = torch.randint(max(1, config.classes), (batch_size,), device=device)
    batch = Batch(images, labels, None, None, torch.arange(batch_size))
    stepper.model.eval()
    with torch.no_grad(), stepper.precision():
        forward = median_seconds(lambda: stepper.logits(images), stepper.wait, least=3, group=GROUP.get(device.type, 1))
    peak = PeakMemory(device)
    training = time_steps(stepper, itertools.repeat(batch), least=3).median
    return {"forward_ms": forward / batch_size * 1000, "training_ms": training / batch_size * 1000, "memory": peak.bytes()}


def cost_table(rows: Sequence[dict[str, Any]], batch_size: int, markdown: bool = False) -> str:
    fitted = "predicted_ms" in rows[0]
    lines = [
        [
            str(entry["image"]),
            str(entry["patch"]),
            f"{entry['tokens']:,}",
            short(entry["flops"]),
            percent(_share(entry)),
            f"{entry['forward_ms']:.3g}",
            f"{entry['training_ms']:.3g}",
            *([f"{entry['predicted_ms']:.3g}"] if fitted else []),
            byte_size(entry["memory"]),
        ]
        for entry in rows
    ]
    grid = table(lines, [head for head in HEADER if fitted or head != "predicted ms"], "r", markdown)
    memory = "memory: the GPU's, on a CPU the whole process's, at its peak"
    return f"{grid}\n\nms: of one picture, in batches of {batch_size}; quadratic: attention's share of the FLOPs; {memory}.\n"


def _share(entry: dict[str, Any]) -> float:
    return entry["quadratic"] / entry["flops"]
