"""A method of your own: everything is on the tape. Here attention weighted by the length of the values it carries."""

import torch

import vitral
from vitral.draw.heatmap import Heatmap
from vitral.model.tape import Tape


def carried(tape: Tape, item: int = 0, block: int = -1) -> Heatmap:
    block %= tape.config.depth
    weights = tape[f"blocks.{block}.attention.weights"][item, :, 0, tape.prefix :]  # (heads, N): the class token's row
    values = tape[f"blocks.{block}.attention.value"][item, :, tape.prefix :].norm(dim=-1)  # (heads, N)
    return Heatmap((weights * values).sum(0).reshape(tape.grid).numpy(), "carried", block=block, unit="attention × length of the value")


model = vitral.create("tiny")
tape = vitral.watch(model, torch.rand(1, 3, 32, 32), keep=["blocks.*.attention.weights", "blocks.*.attention.value"])
heat = carried(tape)
print(heat.title, heat.grid.shape)
heat.image().save("carried.png")
