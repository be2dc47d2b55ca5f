"""Does `vitral plan` come true? Planned against measured time and memory of three different trainings on this machine.

    python benchmarks/plan.py [--threads 1]

Wants a machine that does nothing else: the plan's calibration and the training are timed one after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile

from vitral.base.device import describe_machine, set_threads
from vitral.config import ModelConfig
from vitral.cost.memory import LiveBytes
from vitral.presets.runs import run
from vitral.study.plan import plan
from vitral.train.fit import fit

RUNS = {
    "many tokens": (
        ModelConfig(image_size=(64, 64), patch_size=(4, 4), width=96, depth=4, heads=3, mlp_width=192),
        {"batch_size": 64, "epochs": 0.8, "optimizer": "adamw"},
    ),
    "wide": (
        ModelConfig(image_size=(32, 32), patch_size=(4, 4), width=384, depth=4, heads=6, mlp_width=768),
        {"batch_size": 128, "epochs": 2.0, "optimizer": "muon"},
    ),
    "cnn": (ModelConfig(family="cnn", image_size=(32, 32), width=32), {"batch_size": 256, "epochs": 3.0, "optimizer": "adamw", "lr": 1e-4}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    set_threads(threads)
    print(describe_machine())
    print(f"{'run':<12} {'planned s':>10} {'measured s':>11} {'ratio':>6} {'planned MiB':>12} {'measured MiB':>13} {'ratio':>6}")
    for name, (model, settings) in RUNS.items():
        base = run("digits", threads=threads, device="cpu", evaluate_every=1000.0, test=False, checkpoint_every=1e9, **settings)
        config = dataclasses.replace(base, name="measured", model=model)
        planned = plan(config)
        # Memory is live tensors, as torch.cuda.max_memory_allocated counts them; counting slows the steps, so time is taken apart.
        with tempfile.TemporaryDirectory() as folder:
            seconds = fit(config, out=f"{folder}/timed", quiet=True).metrics[-1]["seconds"]
            short = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=0.25))
            with LiveBytes() as live:
                fit(short, out=f"{folder}/counted", quiet=True)
        memory, peak = planned.memory.total / 2**20, live.most / 2**20
        print(
            f"{name:<12} {planned.seconds:>10.1f} {seconds:>11.1f} {planned.seconds / seconds:>6.2f}"
            f" {memory:>12.0f} {peak:>13.0f} {memory / peak:>6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
