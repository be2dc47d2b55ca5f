"""What looking costs beside a pass that keeps nothing: the class token's row of attention, and all maps of all blocks.

    python benchmarks/looking.py [--sizes b/16] [--batch 64] [--precision auto] [--rounds 20] [--compile] [--json]

A pass, one that makes all tokens of the last block too (as a watched one does), one with the class row kept, one with all maps kept, and on
a GPU the last two without the kernel (kernels/rows.py), in turn; ratio to the pass within a round (median, 10 to 90 %). Asked: class row
1.10, all maps 1.50 (b/16, batch 64, bf16). Then the time of a pass, and of what `watch`
does besides (`python`: a model of one number a token, whose products take no time).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from vitral.base.device import describe_machine, pick_device
from vitral.build import create
from vitral.cost.precision import autocast, dtype_of
from vitral.kernels import rows
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.study.bench import Action, in_turn, ratio_of

SMALL = {"width": 16, "heads": 1, "mlp_width": 16, "image_size": 32, "classes": 2}


@contextmanager
def without_kernel() -> Iterator[None]:
    rows.in_use = False
    try:
        yield
    finally:
        rows.in_use = True


def looks(model: Classifier, images: torch.Tensor, dtype: torch.dtype, compiled: bool) -> dict[str, Action]:
    place = images.device
    run: Any = torch.compile(model) if compiled else model

    def look(**options: Any) -> Action:
        def action() -> None:
            with torch.inference_mode(), autocast(dtype, place):
                watch(run, images, **options) if options else run(images)

        return action

    def plainly(action: Action) -> Action:
        def outside() -> None:
            with without_kernel():
                action()

        return outside

    def all_tokens() -> None:
        with torch.inference_mode(), autocast(dtype, place):
            model.encode(images)  # type: ignore[operator]

    class_row, maps = look(rows="class"), look(blocks=range(model.config.depth))
    plain = {"class row, no kernel": plainly(class_row), "all maps, no kernel": plainly(maps)}
    return {
        "pass": look(),
        "pass, all tokens": all_tokens,
        "class row": class_row,
        "all maps": maps,
        **(plain if place.type == "cuda" and not compiled else {}),
    }


def measure(
    size: str, batch: int, precision: str, rounds: int, place: torch.device, compiled: bool, **changes: Any
) -> list[dict[str, Any]]:
    model = create(size, **changes).to(place).eval()
    images = torch.randn(batch, 3, *model.config.image_size, device=place)
    actions = looks(model, images, dtype_of(precision, place), compiled)
    for action in (*actions.values(), *actions.values()):
        action()
    times = in_turn(actions, place, rounds)
    found = []
    for name, took in times.items():
        middle, (low, high) = ratio_of(took, times["pass"])
        row = {
            "size": size if not changes else "python",
            "batch": batch,
            "what": name,
            "milliseconds": round(1e3 * float(np.median(took)), 3),
        }
        found.append({**row, "ratio": round(middle, 3), "low": round(low, 3), "high": round(high, 3)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["b/16"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    place = pick_device(asked.device)
    found = [row for size in asked.sizes for row in measure(size, asked.batch, asked.precision, asked.rounds, place, asked.compile)]
    found += measure("ti/16", 1, asked.precision, asked.rounds, place, False, **SMALL)
    if asked.json:
        print(json.dumps({"machine": describe_machine(), "precision": asked.precision, "rows": found}, indent=2))
        return
    for row in found:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
