"""Cost against tokens: FLOPs, time and memory as patch size and resolution change, measured and predicted, with the quadratic term."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.device import describe_machine, pick_device, set_threads
from vitral.base.errors import ConfigError, UsageError
from vitral.base.files import write_atomic, write_json
from vitral.base.progress import progress
from vitral.config import ModelConfig
from vitral.model.cost import transformer_cost
from vitral.study import plots
from vitral.study.cost import attention_map_ratio, even_tokens, layer_costs
from vitral.study.measure import measure
from vitral.study.table import short

FITTED = ("fixed_ms", "linear_ms_per_gflop", "quadratic_ms_per_gflop")
HEADS = ("image", "patch", "tokens", "FLOPs", "quadratic", "forward ms", "training ms", "predicted ms", "memory")


def plan_cost(base: ModelConfig, sizes: Sequence[int], patches: Sequence[int]) -> list[ModelConfig]:
    """`base` with every picture size and patch size that go together."""
    made = []
    for size in sizes:
        for patch in patches:
            try:
                config = dataclasses.replace(base, image_size=(size, size), patch_size=(patch, patch), stride=None)
            except ConfigError:
                continue  # this patch does not divide this picture
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
) -> dict[str, Any]:
    """Measure each config, fit time = fixed + a·linear + b·quadratic, draw it, and set R3's table of layer costs beside it."""
    folder, where = Path(out), pick_device(device)
    if threads:
        set_threads(threads)
    rows: list[dict[str, Any]] = []
    with progress("Measuring", total=len(configs), quiet=quiet) as bar:
        for config in configs:
            cost, found = transformer_cost(config), measure(config, batch_size, where)
            rows.append(
                {
                    "image": config.image_size[0],
                    "patch": config.patch_size[0],
                    "tokens": config.tokens,
                    "flops": cost.total,
                    "quadratic": cost.attention,
                    "linear": cost.total - cost.attention,
                    "forward_ms": found.forward_seconds * 1000,
                    "training_ms": found.training_seconds * 1000,
                    "memory": found.memory,
                    "attention_map_ratio": attention_map_ratio(config.image_size, config.grid),
                }
            )
            bar.advance(1, tokens=config.tokens)
    # As many points as numbers fitted are met exactly: that would predict nothing.
    law = fit_time(rows) if len(rows) > len(FITTED) else None
    if law:
        for entry in rows:
            grown = law["linear_ms_per_gflop"] * entry["linear"] + law["quadratic_ms_per_gflop"] * entry["quadratic"]
            entry["predicted_ms"] = law["fixed_ms"] + grown / 1e9
    base = configs[0]
    layers = {str(entry["tokens"]): [asdict(layer) for layer in layer_costs(entry["tokens"], base.width)] for entry in rows}
    even = even_tokens(base.width, base.mlp_width)
    first, last = rows[0], rows[-1]
    conclusion = (
        f"From {first['tokens']} to {last['tokens']} tokens the FLOPs grow {last['flops'] / first['flops']:.1f}-fold and the measured "
        f"training time {last['training_ms'] / first['training_ms']:.1f}-fold; the quadratic part of the FLOPs rises from "
        f"{_share(first):.1%} to {_share(last):.1%}. At width {base.width} it would equal the rest of a block at {even:,} tokens: below "
        "that a ViT's cost is mostly linear in tokens, which the usual n²·d (attention alone) does not show."
    )
    if law:
        conclusion += f" The time's fit, fixed + a·linear + b·quadratic, is off by up to {law['largest_error']:.0%}."
    result = {
        "kind": "cost",
        "model": {"width": base.width, "depth": base.depth, "heads": base.heads, "mlp_width": base.mlp_width},
        "batch_size": batch_size,
        "rows": rows,
        "time": law,
        "layers": layers,
        "conclusion": conclusion,
        "figures": plots.draw_cost(folder, rows, f"width {base.width}, depth {base.depth}, batch {batch_size} on {where.type}"),
        "machine": describe_machine(),
    }
    write_atomic(folder / "table.md", cost_table(rows, markdown=True) + f"\n{conclusion}\n")
    write_json(folder / "result.json", result)
    return result


def fit_time(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Training time = fixed + a·linear + b·quadratic: ms a picture, and ms per GFLOP; none negative, by relative least squares.

    The fixed part is what a step costs however small the model: starting kernels, the optimizer.
    """
    from scipy.optimize import nnls

    measured = np.array([entry["training_ms"] for entry in rows])
    parts = np.array([[1.0, entry["linear"] / 1e9, entry["quadratic"] / 1e9] for entry in rows])
    found, _ = nnls(parts / measured[:, None], np.ones(len(rows)))
    errors = np.abs(parts @ found / measured - 1)
    return {**dict(zip(FITTED, map(float, found), strict=True)), "largest_error": float(errors.max())}


def cost_table(rows: Sequence[dict[str, Any]], markdown: bool = False) -> str:
    fitted = "predicted_ms" in rows[0]
    heads = [head for head in HEADS if fitted or head != "predicted ms"]
    lines = [
        [
            str(entry["image"]),
            str(entry["patch"]),
            f"{entry['tokens']:,}",
            short(entry["flops"]),
            f"{_share(entry):.1%}",
            f"{entry['forward_ms']:.3g}",
            f"{entry['training_ms']:.3g}",
            *([f"{entry['predicted_ms']:.3g}"] if fitted else []),
            f"{short(entry['memory'])}B",
        ]
        for entry in rows
    ]
    if markdown:
        return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ["---:"] * len(heads), *lines]) + "\n"
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [heads, *lines]) + "\n"


def _share(entry: dict[str, Any]) -> float:
    return entry["quadratic"] / entry["flops"]
