"""Where a patch lies, told by turning queries and keys: each family has its own kind of angles.

T tokens = prefix + N patches on an h×w grid, d numbers per head that turn in d/2 pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from vitral.config import ModelConfig
from vitral.model.positions import grid_points


class Rotation(NamedTuple):
    """Each token's angles; prefix tokens do not turn."""

    cosine: torch.Tensor
    """(T, 1, d/2); (B, T, 1, d/2) where images keep different patches; (T, depth, heads, d/2) where each head has its own."""
    sine: torch.Tensor
    neighbours: bool = False
    """Which two numbers turn together: neighbours, or one of the first half with its partner in the second."""
    own: bool = False
    """Whether each block and head has its own angles."""

    def of_block(self, index: int) -> Rotation:
        if not self.own:
            return self
        return self._replace(cosine=self.cosine[..., index, :, :], sine=self.sine[..., index, :, :], own=False)

    def of_tokens(self, index: torch.Tensor) -> Rotation:
        """For images that keep these tokens (B, T') alone."""
        return self._replace(cosine=self.cosine[index], sine=self.sine[index])


class RotaryPositions(nn.Module):
    """Angles that follow from a patch's row and column: half of each head turns with one, half with the other."""

    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.neighbours = config.rotary in NEIGHBOURS
        angles = ANGLES[config.rotary](config)  # (N, d/2)
        angles = torch.cat([torch.zeros(config.prefix, angles.shape[1], device="cpu"), angles])  # (T, d/2)
        self.register_buffer("cosine", angles.cos()[:, None], persistent=False)  # (T, 1, d/2)
        self.register_buffer("sine", angles.sin()[:, None], persistent=False)

    def forward(self) -> Rotation:
        return Rotation(self.cosine, self.sine, self.neighbours)


class _LearnedRotaryPositions(nn.Module):
    """RoPE-Mixed: every head of every block learns how fast each pair turns along columns and along rows."""

    columns: torch.Tensor
    rows: torch.Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.prefix = config.prefix
        rows, columns = grid_points(config.grid)
        self.register_buffer("columns", columns, persistent=False)  # (N,)
        self.register_buffer("rows", rows, persistent=False)
        quarter = config.width // config.heads // 4
        turned = 2 * math.pi * torch.rand(config.depth, config.heads, 1)  # each head looks along axes of its own
        speeds = 10.0 ** -(torch.arange(quarter, device=turned.device) / quarter)  # (d/4,)
        along = [torch.cat([speeds * (turned + shift).cos() for shift in (0, math.pi / 2)], dim=-1)]
        along += [torch.cat([speeds * (turned + shift).sin() for shift in (0, math.pi / 2)], dim=-1)]
        self.speeds = nn.Parameter(torch.stack(along))  # (2, depth, heads, d/2)

    def forward(self) -> Rotation:
        angles = self.columns[:, None, None, None] * self.speeds[0] + self.rows[:, None, None, None] * self.speeds[1]
        angles = torch.cat([angles.new_zeros(self.prefix, *angles.shape[1:]), angles])  # (T, depth, heads, d/2)
        return Rotation(angles.cos(), angles.sin(), neighbours=True, own=True)


def make_rotary(config: ModelConfig) -> RotaryPositions | _LearnedRotaryPositions:
    return _LearnedRotaryPositions(config) if config.rotary == "mixed" else RotaryPositions(config)


def rotate(value: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turn pairs of numbers of queries or keys (B, T, heads, d) by each token's angles."""
    cosine, sine = rotation.cosine.to(value.dtype), rotation.sine.to(value.dtype)
    if rotation.neighbours:
        first, second = value[..., ::2], value[..., 1::2]
        return torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1).flatten(-2)
    first, second = value.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def _plain(config: ModelConfig) -> torch.Tensor:
    rows, columns = grid_points(config.grid)
    return _turned((rows, columns), config, base=100.0)


def _axial(config: ModelConfig) -> torch.Tensor:
    """RoPE-ViT: the column first."""
    rows, columns = grid_points(config.grid)
    return _turned((columns, rows), config, base=100.0)


def _eva(config: ModelConfig) -> torch.Tensor:
    """EVA-02: slow, and on the grid of its pre-training whatever the image's size."""
    rows, columns = grid_points(config.grid)
    return _turned((_scaled(rows, config, 0), _scaled(columns, config, 1)), config, base=10_000.0)


def _perception(config: ModelConfig) -> torch.Tensor:
    """Perception Encoder: as EVA-02's with the column first, counted from 1 where a class token stands at 0."""
    rows, columns = (axis + int(config.class_token) for axis in grid_points(config.grid))
    return _turned((_scaled(columns, config, 1), _scaled(rows, config, 0)), config, base=10_000.0)


def _dinov3(config: ModelConfig) -> torch.Tensor:
    """DINOv3: the image's middle is 0 and its edges are ±1, in turns, whatever its size."""
    rows, columns = grid_points(config.grid)
    centred = [2 * ((axis + 0.5) / count) - 1 for axis, count in zip((rows, columns), config.grid, strict=True)]
    return _turned((2 * math.pi * centred[0], 2 * math.pi * centred[1]), config, base=100.0)


def _turned(axes: tuple[torch.Tensor, torch.Tensor], config: ModelConfig, base: float) -> torch.Tensor:
    quarter = config.width // config.heads // 4
    speeds = base ** -(torch.arange(quarter, device="cpu") / quarter)  # (d/4,)
    return torch.cat([axis[:, None] * speeds for axis in axes], dim=1)  # (N, d/2)


def _scaled(axis: torch.Tensor, config: ModelConfig, side: int) -> torch.Tensor:
    """Places as the grid that the angles were learned on has them."""
    return axis if config.rotary_grid is None else axis / config.grid[side] * config.rotary_grid[side]


ANGLES: dict[str, Callable[[ModelConfig], torch.Tensor]] = {
    "plain": _plain,
    "axial": _axial,
    "eva": _eva,
    "perception": _perception,
    "dinov3": _dinov3,
}
NEIGHBOURS = ("axial", "eva", "perception")
