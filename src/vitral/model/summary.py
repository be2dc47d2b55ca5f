"""A table of layers: parameters, input and output sizes, total and megabytes."""

from __future__ import annotations

import copy

import torch
from torch import nn

from vitral.base.text import NOTHING, table

Row = tuple[str, str, int, str, str]


def rows(model: nn.Module, image: tuple[int, ...]) -> list[Row]:
    """(name, type, parameters, input size, output size) of each layer for one image (C, H, W), without computing anything."""
    shadow = copy.deepcopy(model).to("meta").eval()
    made: dict[str, Row] = {}

    def watch(name: str, module: nn.Module) -> None:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: object) -> None:
            count = sum(p.numel() for p in module.parameters())
            made[name] = (name, type(module).__name__, count, _shape(inputs[0] if inputs else None), _shape(output))

        module.register_forward_hook(hook)

    for name, module in shadow.named_modules():
        if name and (name.count(".") < 2 or isinstance(module, nn.Linear | nn.Conv2d)) and not isinstance(module, nn.Identity | nn.Dropout):
            watch(name, module)
    with torch.no_grad():
        shadow(torch.zeros(1, *image, device="meta"))
    return [made[name] for name, _ in shadow.named_modules() if name in made]


def summary(model: nn.Module, image: tuple[int, ...]) -> str:
    lines = [[name, kind, f"{count:,}", size_in, size_out] for name, kind, count, size_in, size_out in rows(model, image)]
    total = sum(p.numel() for p in model.parameters())
    layers = table(lines, ["layer", "type", "parameters", "in", "out"], "llrl")
    return f"{layers}\n\n{total:,} parameters, {total * 4 / 1e6:.3f} MB in fp32"


def _shape(value: object) -> str:
    return "×".join(map(str, value.shape[1:])) if isinstance(value, torch.Tensor) else NOTHING
