"""Inference in fp8 with calibrated static scales, and one picture as a CUDA graph, beside timm in bf16; and what fp8 does to answers.

    python benchmarks/fp8.py [--sizes b/16 l/16] [--batches 256 128] [--weights FILE --data folder:photos] [--rounds 12] [--json]

Speed: random weights, compiled, contestants in turn, ratio within a round (median, 10 to 90 %). Answers: the model of `--weights`,
calibrated on the first two batches of `--data` and asked about all the others, in fp8 and in bf16 (fp32 on a CPU, where fp8 is
emulated and its speed means nothing); `vitral eval … --precision fp8` says as much of any model. `--sizes` alone, without a name: no speed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from functools import partial
from typing import Any

import numpy as np
import torch

from vitral.base.device import describe_machine, pick_device
from vitral.build import create
from vitral.config import DataConfig
from vitral.cost.precision import autocast, dtype_of
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader
from vitral.data.splits.open import open_split
from vitral.kernels.fp8 import in_eight_bits
from vitral.kernels.graphs import replayed
from vitral.study.peers import build_timm
from vitral.study.turns import in_turn, ratio_of, tidy
from vitral.weights.load import load

CALIBRATING = 2
"""Batches."""


def answers(model: torch.nn.Module, images: torch.Tensor, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(), autocast(dtype_of("auto", device), device):
        return model(images).float()


def change(weights: str, data: str, device: torch.device, batch: int = 32) -> dict[str, Any]:
    """How often fp8 and the usual precision name the same class, and each the right one where the classes are the model's."""
    model = load(weights, quiet=True).to(device).eval()
    split = open_split(DataConfig(name=data), Preprocess.of(model), None)
    batches = iter(Loader(split, batch_size=batch, device=device).epoch(0))
    eight = in_eight_bits(model, [next(batches).images for _ in range(CALIBRATING)])
    usual, low, labels = [], [], []
    for found in batches:
        usual.append(answers(model, found.images, device).argmax(1))
        low.append(answers(eight, found.images, device).argmax(1))
        labels.append(found.labels)
    first, second, truth = torch.cat(usual), torch.cat(low), torch.cat(labels)
    result: dict[str, Any] = {"pictures": len(first), "same_answer": float((first == second).float().mean())}
    if tuple(model.origin.classes.value) == split.class_names:
        result |= {"top1_usual": float((first == truth).float().mean()), "top1_fp8": float((second == truth).float().mean())}
    return result


def speed(size: str, batch: int, rounds: int, device: torch.device) -> list[dict[str, Any]]:
    """Milliseconds of timm in bf16, ours in bf16 and in fp8, of many pictures and of one; compiled, and of one also recorded."""
    model = create(size, classes=1000).to(device).eval()
    many = torch.randn(batch, 3, *model.config.image_size, device=device)
    cuda = device.type == "cuda"
    contestants: dict[str, torch.nn.Module] = {"vitral": model, "vitral, fp8": in_eight_bits(model, [many[:8]])}
    if importlib.util.find_spec("timm"):
        contestants = {"timm": build_timm(model.config).to(device).eval(), **contestants}
    first = next(iter(contestants))
    rows = []
    for images in (many, many[:1]):
        ready: dict[str, Any] = {name: torch.compile(module) if cuda else module for name, module in contestants.items()}
        if cuda and len(images) == 1:
            # Uncompiled, fp8 rounds in passes of its own: recorded it takes eight times as long as bf16 (docs/LOG.md).
            ready["vitral, graph"] = replayed(model)
        actions = {name: partial(answers, module, images, device) for name, module in ready.items()}
        for action in (*actions.values(), *actions.values(), *actions.values()):  # compile, record
            action()
        times = in_turn(actions, device, rounds)
        for name, found in times.items():
            middle, (low, high) = ratio_of(times[first], found)
            row = {"size": size, "pictures": len(images), "contestant": name, "milliseconds": round(float(np.median(found)) * 1e3, 3)}
            rows.append({**row, f"{first}_over_it": round(middle, 3), "low": round(low, 3), "high": round(high, 3)})
        tidy(device)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["b/16", "l/16"])
    parser.add_argument("--batches", nargs="*", type=int, default=[256, 128])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--weights")
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    device = pick_device(asked.device)
    rows = [row for size, batch in zip(asked.sizes, asked.batches, strict=False) for row in speed(size, batch, asked.rounds, device)]
    result = {"machine": describe_machine(), "rows": rows}
    if asked.weights and asked.data:
        result["answers"] = change(asked.weights, asked.data, device)
    if asked.json:
        print(json.dumps(result, indent=2))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    print(result.get("answers", ""))


if __name__ == "__main__":
    main()
