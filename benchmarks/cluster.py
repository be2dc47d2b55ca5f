"""Step time and memory of each GPU for b/16, l/16 and h/14 on 1 to 512 GPUs: an estimate, as a table in Markdown.

    python benchmarks/cluster.py [--gpus 1 8 64 512] [--batch 4096] [--json]

Computing is what one H200 took (docs/LOG.md, "fewer bytes between the products": bf16, compiled, 256 and 128 pictures); h/14 was
not measured and is taken to reach the FLOP/s of l/16. Memory is counted on fake tensors, the network is the model below.
Each GPU has as many pictures as were measured; with `--batch` they share so many, in micro-batches where those are more.

Network: nodes of 8 GPUs. Inside a node NVLink, between nodes one InfiniBand card for each GPU; both reach `SHARE` of what their data sheets
say. An all-reduce is done in the node, then between the nodes by as many rings as a node has GPUs, then in the node again. What a GPU
computes (`step` seconds, by one GPU alone) does not change; what it sends is hidden behind that as far as the order of work allows:

| | sent | hidden behind | never hidden |
|---|---|---|---|
| DDP | all gradients once (all-reduce, fp32) | backward | the last bucket |
| FSDP2 | parameters before forward and before backward (all-gather), gradients (reduce-scatter), fp32 | both | one block of each |

Not in it: stragglers, input, evaluation, other jobs on the network, checkpoints.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from vitral.base.text import byte_size
from vitral.build import create
from vitral.config import TrainConfig
from vitral.cost.flops import forward_flops
from vitral.cost.memory import FLOAT, Memory
from vitral.cost.time import LAUNCH
from vitral.presets.runs import run
from vitral.train.steps import run_memory

MEASURED = {"b/16": (256, 65.4e-3), "l/16": (128, 104.6e-3)}
"""Pictures of a GPU, and seconds of its step."""
UNMEASURED = {"h/14": (64, "l/16")}
"""Pictures of a GPU, and what it is taken to be as quick as."""
NODE = 8
NVLINK = 450e9
"""Bytes/s of one direction: NVLink 4 of an H100 or H200, 900 GB/s both ways together."""
INFINIBAND = 50e9
"""Bytes/s of a card of 400 Gbit/s (NDR), one for each GPU."""
SHARE = 0.8
"""Of those that large messages reach."""
LATENCY = 10e-6
"""Seconds of one hop, of which a collective takes log2(GPUs)."""
BUCKET = 25 << 20
"""Bytes that DDP sends at a time."""
BACKWARD = 2 / 3
"""Of a step's computing."""
GATHERED = 3
"""Blocks that FSDP2 holds whole at the worst moment: the one at work, the next one, and one's gradients."""
Strategy = Literal["ddp", "fsdp"]


@dataclass(frozen=True)
class Estimate:
    gpus: int
    strategy: Strategy
    step: float
    """Seconds."""
    waiting: float
    """Seconds of it in which a GPU waits for the network."""
    memory: int
    """Bytes on each GPU at the worst moment of a step."""

    @property
    def efficiency(self) -> float:
        """Share of the pictures a second that as many GPUs would do alone."""
        return 1 - self.waiting / self.step


def all_reduce(size: float, gpus: int) -> float:
    """Seconds until every GPU has the sum of `size` bytes."""
    if gpus == 1:
        return 0.0
    inside, nodes = min(gpus, NODE), math.ceil(gpus / NODE)
    near = 2 * (inside - 1) / inside * size / (NVLINK * SHARE)
    far = 2 * (nodes - 1) / nodes * (size / inside) / (INFINIBAND * SHARE)
    return near + far + 2 * LATENCY * math.log2(gpus)


def estimate(model: nn.Module, blocks: Sequence[nn.Module], memory: Memory, step: float, gpus: int, strategy: Strategy) -> Estimate:
    """`memory` and `step`: of one GPU alone with its share of the batch. The model may be on the meta device."""
    whole = FLOAT * sum(value.numel() for value in model.parameters())
    if gpus == 1:
        return Estimate(1, strategy, step, 0.0, memory.total)
    if strategy == "ddp":
        last = all_reduce(min(whole, BUCKET), gpus)
        waiting = max(last, all_reduce(whole, gpus) - BACKWARD * step)
        return Estimate(gpus, strategy, step + waiting, waiting, memory.total + whole)  # gradients lie in buckets once more
    block = FLOAT * max(sum(value.numel() for value in block.parameters()) for block in blocks)
    gather, one = all_reduce(whole, gpus) / 2, all_reduce(block, gpus) / 2
    waiting = max(one, gather - (1 - BACKWARD) * step) + max(one, 2 * gather - BACKWARD * step)
    kept = (memory.weights + memory.optimizer + memory.ema) * shard(model, gpus) / whole
    return Estimate(gpus, strategy, step + waiting, waiting, round(kept) + memory.step + memory.data + GATHERED * block)


def shard(model: nn.Module, gpus: int) -> int:
    """Bytes of parameters on the first GPU, which has most: FSDP2 divides each by its first dimension, in rows, rounded up."""
    return FLOAT * sum(math.ceil(value.shape[0] / gpus) * (value.numel() // value.shape[0]) for value in model.parameters())


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
