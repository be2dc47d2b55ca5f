"""Another size: positions, patch kernels, channels and classes of a model, each change stated in its origin."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.origin import Fact, per_channel
from vitral.build import build
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.model.positions import positioned_prefix
from vitral.weights.declared import pair

_FIRST_LAYERS = ("patches.projection.weight", "stem.0.weight", "network.conv1.weight", "stages.0.0.weight")


def resize_positions(table: Tensor, grid: tuple[int, int], new: tuple[int, int], prefix: int = 1) -> Tensor:
    """(1, prefix + h·w, D) → (1, prefix + h'·w', D): a picture of vectors, resampled; the prefix tokens' stay."""
    if grid == new:
        return table
    head, body = table[:, :prefix], table[:, prefix:]
    maps = body.reshape(1, *grid, -1).permute(0, 3, 1, 2).float()  # (1, D, h, w)
    maps = F.interpolate(maps, size=new, mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([head, maps.permute(0, 2, 3, 1).reshape(1, new[0] * new[1], -1).to(table.dtype)], dim=1)


def resize_relative(table: Tensor, grid: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Biases by distance (distances + 3, heads) for another grid, as BEiT's authors do it.

    Near patches keep their bias: known distances are spread in a geometric progression over the new ones, with a cubic spline between.
    """
    from scipy.interpolate import RectBivariateSpline

    if min(grid) < 2:
        raise UsageError(f"a grid of {_size(grid)} patches knows no distances to go by", "use a larger picture")
    biases, own = to_numpy(to_double(table[:-3])), table[-3:]
    down, across = (_spread(old, side) for old, side in zip(grid, new, strict=True))
    rows, columns = (np.arange(1 - side, side) for side in new)
    degree = min(3, 2 * min(grid) - 2)
    maps = [
        RectBivariateSpline(down, across, values.reshape(2 * grid[0] - 1, -1), kx=degree, ky=degree)(rows, columns) for values in biases.T
    ]
    resized = torch.stack([torch.from_numpy(values).flatten() for values in maps], dim=1)  # (distances', heads)
    return torch.cat([resized.to(table), own])


def _spread(old: int, new: int) -> list[float]:
    """Where the distances 1 - old … old - 1 come to lie among those of the new side: 0, ±1, ±(1 + q), ±(1 + q + q²) …"""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if (1 - middle ** (old - 1)) / (1 - middle) > new - 1 else (middle, high)
    away = [1.0]
    for power in range(1, old - 1):
        away.append(away[-1] + low**power)
    return [-distance for distance in reversed(away)] + [0.0, *away]


def resize_kernel(kernel: Tensor, new: tuple[int, int]) -> Tensor:
    """Patch kernels (D, C, h, w) for another patch size, so that a resized patch gives the same token (FlexiViT).

    Resizing a patch is a matrix B; the new kernel is the least-squares solution of B'·w' = w.
    """
    old = (kernel.shape[2], kernel.shape[3])
    if old == new:
        return kernel
    count = old[0] * old[1]
    basis = torch.eye(count, dtype=torch.float64).reshape(count, 1, *old)  # host
    resized = F.interpolate(basis, size=new, mode="bicubic", antialias=new[0] < old[0] or new[1] < old[1], align_corners=False).reshape(
        count, -1
    )
    inverse = torch.linalg.pinv(resized)  # (h'·w', h·w)
    flat = to_double(kernel).reshape(-1, count) @ inverse.T
    return flat.reshape(*kernel.shape[:2], *new).to(kernel)


def resize_channels(kernel: Tensor, channels: int) -> Tensor:
    """First-layer kernels (D, C, h, w) for other channels: each gets the average, so a grey image gives what it gave in colour."""
    if kernel.shape[1] == channels:
        return kernel
    return (kernel.sum(dim=1, keepdim=True) / channels).expand(-1, channels, -1, -1).contiguous()


def adapt(model: Classifier, **changes: Any) -> Classifier:
    """The model with another image_size, patch_size, channels or classes; None and equal values change nothing."""
    if changes.get("classes") not in (None, model.config.classes):
        model = model.with_head(changes["classes"])
    config = model.config
    sizes = {name: pair(changes[name]) for name in ("image_size", "patch_size") if changes.get(name) is not None}
    channels = {"channels": changes["channels"]} if changes.get("channels") is not None else {}
    fields = {name: value for name, value in {**sizes, **channels}.items() if getattr(config, name) != value}
    if not fields:
        return model
    if "patch_size" in fields and (config.family != "vit" or config.stride is not None):
        raise UsageError("the patch size of a hybrid or of overlapping patches cannot be changed", "train it anew")
    new = dataclasses.replace(config, **fields)
    with torch.random.fork_rng(devices=[]):  # every number of it is replaced: nobody's random numbers change for them
        resized = build(new)
    state = resized.state_dict()
    resized.load_state_dict({name: _fitted(name, tensor, state[name], config, new) for name, tensor in model.state_dict().items()})
    resized.origin = _resized_origin(model, new)
    return resized.to(next(model.parameters()).device).train(model.training)


def _fitted(name: str, tensor: Tensor, fresh: Tensor, old: ModelConfig, new: ModelConfig) -> Tensor:
    if tensor.shape == fresh.shape and not (name.endswith(("positions.table", "relative.table")) and old.grid != new.grid):
        return tensor
    if name == "positions.table":
        return resize_positions(tensor, old.grid, new.grid, positioned_prefix(old))
    if name.endswith(".attention.relative.table"):
        return resize_relative(tensor, old.grid, new.grid)
    if name in _FIRST_LAYERS and (name == "patches.projection.weight" or tensor.shape[2:] == fresh.shape[2:]):
        return resize_kernel(resize_channels(tensor, fresh.shape[1]), (fresh.shape[2], fresh.shape[3]))
    raise UsageError(
        f"{name} {tuple(tensor.shape)} has no meaning in the new size {tuple(fresh.shape)}", "train the model anew in this size"
    )


def _resized_origin(model: Classifier, new: ModelConfig) -> Any:
    old, origin = model.config, model.origin
    if old.image_size != new.image_size:
        origin = origin.with_change(f"picture size changed: {_size(old.image_size)} → {_size(new.image_size)} pixels")
    if old.is_transformer and (old.has_table or (old.is_relative and not old.relative_mlp)) and old.grid != new.grid:
        origin = origin.with_change(f"positions resized: {_size(old.grid)} → {_size(new.grid)} patches")
    if old.patch_size != new.patch_size:
        origin = origin.with_change(f"patch kernels resampled: {_size(old.patch_size)} → {_size(new.patch_size)}")
    if old.channels != new.channels:
        origin = origin.with_change(f"channels adapted: {old.channels} → {new.channels}")
        for name in ("mean", "std"):
            fact: Fact[Any] = getattr(origin, name)
            average = Fact(per_channel(fact.value, new.channels), fact.declared, "average over the former channels")
            origin = dataclasses.replace(origin, **{name: average})
    return origin


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"
