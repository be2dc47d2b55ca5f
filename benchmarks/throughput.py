"""How fast the one loop trains: pictures per second and share of the GPU's peak, on made-up pictures of the size of the run's own.

    python benchmarks/throughput.py [--runs cifar10 report-cifar] [--batch 512 1024] [--steps 100] [--json]

The whole step is timed as `fit` runs it (device augmentation, forward, backward, optimizer, average), after compilation, median of
five groups of steps; compilation is reported apart. A run that leaves patches out at first has a row for each of its two kinds of steps.
CPU threads are PyTorch's choice or OMP_NUM_THREADS; a training of a tiny model takes one.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Iterator

import numpy as np
import torch

from vitral.base.device import describe_machine, pick_device
from vitral.build import build
from vitral.cost.flops import forward_flops
from vitral.cost.time import GPUS
from vitral.data.images.augment import policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Batch, Loader
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.protocol import ArrayReader
from vitral.data.splits.open import PHOTOGRAPH_SIZE
from vitral.data.splits.split import Split
from vitral.presets.runs import RUNS
from vitral.run.resolve import Facts, resolve
from vitral.study.fight.forecast import median_seconds
from vitral.train.parallel import World
from vitral.train.schedule import token_shares
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

Row = dict[str, float | str | int]


def measure(name: str, batch: int, steps: int, device: torch.device, compile: str) -> list[Row]:
    preset, known = RUNS[name], CATALOGUE[RUNS[name].data.name]
    config = dataclasses.replace(preset.train, batch_size=batch, compile=compile)
    facts = Facts(known.classes, known.channels, known.native_size or PHOTOGRAPH_SIZE, known.train)
    model_config = resolve(preset, facts).config.model
    size, channels = model_config.image_size, model_config.channels
    draw = np.random.default_rng(0)
    count = max(4 * batch, 8192)
    pixels = draw.integers(0, 256, (count, channels, *size), dtype=np.uint8)
    labels = draw.integers(0, model_config.classes, count)
    preprocess = Preprocess(size, channels, resize="squash")
    classes = tuple(map(str, range(model_config.classes)))
    split = Split("train", ArrayReader(pixels, "made up"), np.arange(count), labels, classes, preprocess)
    loader = Loader(split, batch_size=batch, policy=policy(preset.data.augment), device=device, train=True)
    torch.manual_seed(0)
    stepper = Stepper(build(model_config).to(device), task_of(config), config, device, World())
    began = time.perf_counter()
    seconds = stepper.warm_up(next(iter(loader.epoch(0))), loader.policy.mixup + loader.policy.cutmix > 0)
    compile_seconds = seconds or time.perf_counter() - began
    kind = torch.cuda.get_device_name(device).lower() if device.type == "cuda" else ""
    peak = next((gpu.peak for key, gpu in GPUS.items() if key in kind), None)
    rows: list[Row] = []
    for keep in token_shares(config):
        batches = itertools.chain.from_iterable(map(loader.epoch, itertools.count()))
        take = functools.partial(one_step, stepper, batches, keep)
        per_step = median_seconds(take, stepper.wait, least=5, group=max(1, steps // 5))
        flops = 3 * forward_flops(model_config) * (keep or 1.0) * batch
        rows.append(
            {
                "run": name,
                "batch": batch,
                "patches": keep or 1.0,
                "compile": compile,
                "milliseconds": round(per_step * 1e3, 3),
                "pictures_per_second": round(batch / per_step, 1),
                "tflops": round(flops / per_step / 1e12, 2),
                "share_of_peak": round(flops / per_step / peak, 4) if peak else 0.0,
                "compile_seconds": round(compile_seconds, 1),
                "memory_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if device.type == "cuda" else 0.0,
                "tokens": model_config.tokens if model_config.is_transformer else 0,
                "seconds_per_epoch": round(known.train / batch * per_step, 2),
            }
        )
    return rows


def one_step(stepper: Stepper, batches: Iterator[Batch], keep: float | None) -> None:
    stepper.step(next(batches), 1e-3, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(name for name, run in RUNS.items() if run.data.name in CATALOGUE and run.pretrain is None and run.weights is None)
    parser.add_argument("--runs", nargs="+", default=["cifar10"], choices=known)
    parser.add_argument("--batch", nargs="+", type=int, default=[512])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", nargs="+", default=["auto"], choices=["auto", "yes", "no", "max"])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    device = pick_device()
    kinds = [(name, batch, mode) for name in asked.runs for batch in asked.batch for mode in asked.compile]
    rows = [row for name, batch, mode in kinds for row in measure(name, batch, asked.steps, device, mode)]
    if asked.json:
        print(json.dumps({"machine": describe_machine(), "rows": rows}, indent=2))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
