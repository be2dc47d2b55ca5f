"""A table of layers: parameters, input and output sizes, total and megabytes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from vitral.model.classifier import Classifier

Row = tuple[str, str, int, str, str]


def rows(model: Classifier) -> list[Row]:
    """(name, type, parameters, input size, output size) of each layer, without computing anything."""
    shadow = copy.deepcopy(model).to("meta").eval()
    found: list[Row] = []

    def watch(name: str, module: nn.Module) -> None:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: object) -> None:
            count = sum(p.numel() for p in module.parameters())
            found.append((name, type(module).__name__, count, _shape(inputs[0] if inputs else None), _shape(output)))

        module.register_forward_hook(hook)

    for name, module in shadow.named_modules():
        if name and (name.count(".") < 2 or isinstance(module, nn.Linear | nn.Conv2d)) and not isinstance(module, nn.Identity | nn.Dropout):
            watch(name, module)
    with torch.no_grad():
        shadow(torch.zeros(1, model.config.channels, *model.config.image_size, device="meta"))
    order = {name: place for place, (name, _) in enumerate(shadow.named_modules())}
    return sorted(found, key=lambda row: order[row[0]])


def summary(model: Classifier) -> str:
    table = [("layer", "type", "parameters", "in", "out")]
    table += [(name, kind, f"{count:,}", size_in, size_out) for name, kind, count, size_in, size_out in rows(model)]
    widths = [max(len(row[column]) for row in table) for column in range(5)]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if place == 2 else cell.ljust(width) for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "─" * max(map(len, lines)))
    total = sum(p.numel() for p in model.parameters())
    return "\n".join([*lines, "", f"{total:,} parameters, {total * 4 / 1e6:.3f} MB in fp32"])


def _shape(value: object) -> str:
    return "×".join(map(str, value.shape[1:])) if isinstance(value, torch.Tensor) else "–"
