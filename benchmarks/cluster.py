"""Step time and memory of each GPU for b/16, l/16 and h/14 on 1 to 512 GPUs: an estimate, as a table in Markdown.

    python benchmarks/cluster.py [--gpus 1 8 64 512] [--batch 4096] [--json]

Computing is what one H200 took (docs/LOG.md, "fewer bytes between the products": bf16, compiled, 256 and 128 pictures); h/14 was
not measured and is taken to reach the FLOP/s of l/16. Memory is counted on fake tensors, the network is the model of
vitral/cost/cluster.py.
Each GPU has as many pictures as were measured; with `--batch` they share so many, in micro-batches where those are more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import torch

from vitral.base.text import byte_size
from vitral.build import create
from vitral.config import TrainConfig
from vitral.cost.cluster import estimate
from vitral.cost.flops import forward_flops
from vitral.cost.time import LAUNCH
from vitral.presets.runs import run
from vitral.train.steps import run_memory

MEASURED = {"b/16": (256, 65.4e-3), "l/16": (128, 104.6e-3)}
"""Pictures of a GPU, and seconds of its step."""
UNMEASURED = {"h/14": (64, "l/16")}
"""Pictures of a GPU, and what it is taken to be as quick as."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2, 8, 16, 64, 256, 512])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for name in (*MEASURED, *UNMEASURED):
        with torch.device("meta"):
            model = create(name)
        if name in MEASURED:
            batch, step = MEASURED[name]
        else:
            batch, like = UNMEASURED[name]
            pictures, seconds = MEASURED[like]
            with torch.device("meta"):
                step = seconds / pictures / forward_flops(create(like).config) * forward_flops(model.config) * batch
        for gpus in asked.gpus:
            each = batch if asked.batch is None else asked.batch // gpus
            config = dataclasses.replace(run("digits"), model=model.config, train=TrainConfig(batch_size=each, optimizer="adamw"))
            memory = run_memory(config, min(each, batch), torch.bfloat16, compiled=True)
            for strategy in ("ddp", "fsdp"):
                found = estimate(
                    model, list(model.get_submodule("blocks").children()), memory, max(step * each / batch, LAUNCH), gpus, strategy
                )
                rows.append({"model": name, "pictures": each, **dataclasses.asdict(found), "efficiency": found.efficiency})
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    lines = [
        [
            row["model"],
            f"{row['gpus']} × {row['pictures']}",
            row["strategy"].upper() if row["gpus"] > 1 else "",
            f"{row['step'] * 1e3:.1f} ms",
            f"{100 * row['efficiency']:.1f} %",
            f"{row['gpus'] * row['pictures'] / row['step']:,.0f}",
            byte_size(row["memory"]),
        ]
        for row in rows
        if row["gpus"] > 1 or row["strategy"] == "ddp"
    ]
    head = ["model", "GPUs × pictures", "", "step", "not waiting", "pictures/s", "memory of each"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    main()
