"""Linear layers in fp8 with scales that are known beforehand: for answers on a Hopper GPU, where the product takes half of bf16's time.

Scales product while computing cost a pass over every input, which is more than the product saves (docs/LOG.md); so a few batches are gone
through once, and the largest number that each layer has seen is what its inputs are scaled by from then on. Larger ones are cut off.
The plain twin, which runs everywhere else, rounds to the same numbers and multiplies in fp32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from vitral.base.errors import UsageError

EIGHT = torch.float8_e4m3fn
LARGEST = torch.finfo(EIGHT).max
"""448."""
_MULTIPLE = 16
"""What the product wants both sides of the weights to be a multiple of."""


class Linear8(nn.Module):
    """A linear layer whose weights and inputs are numbers of eight bits times one scale each."""

    weight: torch.Tensor
    weight_scale: torch.Tensor
    input_scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, layer: nn.Linear, largest_input: float) -> None:
        super().__init__()
        scale = layer.weight.detach().abs().max().float().clamp_min(1e-12) / LARGEST
        self.register_buffer("weight", round_to_eight(layer.weight.detach(), scale))  # (out, in)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("input_scale", torch.tensor(max(largest_input, 1e-12) / LARGEST, device=layer.weight.device))
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().bfloat16())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        eight = round_to_eight(tokens.flatten(0, -2), self.input_scale)
        multiply = scaled_product if has_eight_bits(tokens.device) else plain_product
        product = multiply(eight, self.weight, self.input_scale, self.weight_scale, self.bias)
        return product.unflatten(0, tokens.shape[:-1])


def round_to_eight(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The nearest number of eight bits, in units of `scale`; what is beyond the largest one is cut off."""
    return (values.float() / scale).clamp(-LARGEST, LARGEST).to(EIGHT)


def scaled_product(
    tokens: torch.Tensor, weight: torch.Tensor, token_scale: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """(N, in) and (out, in) of eight bits → (N, out) in bf16, summed in fp32 by the GPU."""
    return torch._scaled_mm(
        tokens, weight.t(), scale_a=token_scale, scale_b=weight_scale, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def plain_product(
    tokens: torch.Tensor, weight: torch.Tensor, token_scale: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The same with the numbers written out."""
    with torch.autocast(tokens.device.type, enabled=False):
        product = F.linear(tokens.float() * token_scale, weight.float() * weight_scale, None if bias is None else bias.float())
    return product.bfloat16()


def has_eight_bits(device: torch.device) -> bool:
    """Whether its products take fp8: Ada (8.9), Hopper (9.0) and later."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def need_eight_bits(device: torch.device) -> None:
    if not has_eight_bits(device):
        here = torch.cuda.get_device_name(device) if device.type == "cuda" else f"the device {device.type}"
        raise UsageError(f"fp8 needs an NVIDIA GPU of 2022 or later (Ada, Hopper …), and {here} has none", "use --precision bf16")


@torch.no_grad()
def in_eight_bits(model: nn.Module, batches: Iterable[torch.Tensor], within: str = "blocks.") -> nn.Module:
    """A copy of `model` whose linear layers under `within` are in fp8, scaled by what they see of `batches`."""
    made = copy.deepcopy(model).eval()
    layers = {
        name: layer
        for name, layer in made.named_modules()
        if type(layer) is nn.Linear and name.startswith(within) and not any(side % _MULTIPLE for side in layer.weight.shape)
    }
    if not layers:
        raise UsageError(f"no linear layer under {within!r} has sides of a multiple of {_MULTIPLE}", "fp8 is for ViTs of some size")
    largest = dict.fromkeys(layers, 0.0)

    def look(name: str, _: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        largest[name] = max(largest[name], float(inputs[0].abs().max()))

    hooks = [layer.register_forward_pre_hook(partial(look, name)) for name, layer in layers.items()]
    seen = 0
    for images in batches:
        made(images)
        seen += 1
    for hook in hooks:
        hook.remove()
    if not seen:
        raise UsageError("no batch to find the scales with", "give at least one")
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(made.get_submodule(parent), own, Linear8(layer, largest[name]))
    return made
