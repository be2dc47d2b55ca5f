"""Where a patch lies: learned vectors, fixed sines and cosines, or a rotation inside attention.

T tokens = prefix + N patches on an h×w grid, D numbers per token, d per head.
"""

from __future__ import annotations

import torch
from torch import nn

from vitral.config import ModelConfig


class AddPositionalEmbeddings(nn.Module):
    """Adds one vector per position; tokens without a position (see `prefix_positions`) pass unchanged."""

    table: torch.Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.without = config.prefix - positioned_prefix(config)  # registers stand last in the prefix
        self.prefix = positioned_prefix(config)
        count = config.grid[0] * config.grid[1]
        if config.positions == "learned":
            self.table = nn.Parameter(torch.zeros(1, self.prefix + count, config.width))
        else:
            fixed = torch.cat([torch.zeros(self.prefix, config.width, device="cpu"), sine_cosine(config.grid, config.width)])
            self.register_buffer("table", fixed.unsqueeze(0), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = self.table.to(tokens.dtype)
        if self.without:
            bare = table.new_zeros(1, self.without, table.shape[-1])
            table = torch.cat([table[:, : self.prefix], bare, table[:, self.prefix :]], dim=1)
        return tokens + table  # (B, T, D)


class RotaryPositions(nn.Module):
    """2-D rotary angles: half of each head turns with the row, half with the column; prefix tokens do not turn."""

    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, config: ModelConfig, base: float = 100.0) -> None:
        super().__init__()
        quarter = config.width // config.heads // 4
        rows, columns = _grid_points(config.grid)
        speeds = base ** -(torch.arange(quarter, device="cpu") / quarter)  # (d/4,)
        angles = torch.cat([rows[:, None] * speeds, columns[:, None] * speeds], dim=1)  # (N, d/2)
        angles = torch.cat([torch.zeros(config.prefix, 2 * quarter, device="cpu"), angles])  # (T, d/2)
        self.register_buffer("cosine", angles.cos()[:, None], persistent=False)  # (T, 1, d/2)
        self.register_buffer("sine", angles.sin()[:, None], persistent=False)

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cosine, self.sine


def rotate(value: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn pairs of numbers of queries or keys (B, T, heads, d) by each token's angles."""
    cosine, sine = (part.to(value.dtype) for part in rotation)  # (T, 1, d/2) or (B, T, 1, d/2)
    first, second = value.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def sine_cosine(grid: tuple[int, int], width: int, base: float = 10_000.0) -> torch.Tensor:
    """Fixed 2-D positions (N, D): a quarter each of sine and cosine of the column, then of the row."""
    rows, columns = _grid_points(grid)
    quarter = width // 4
    speeds = base ** -(torch.arange(quarter, device="cpu") / quarter)
    angles = [axis[:, None] * speeds for axis in (columns, rows)]  # (N, D/4)
    return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)


def positioned_prefix(config: ModelConfig) -> int:
    """How many tokens before the patches have a position of their own."""
    classes = int(config.class_token) + int(config.distillation_token)
    return {"all": config.prefix, "class": classes, "none": 0}[config.prefix_positions]


def _grid_points(grid: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each patch, in reading order."""
    rows = torch.arange(grid[0], dtype=torch.float32, device="cpu")
    columns = torch.arange(grid[1], dtype=torch.float32, device="cpu")
    return rows.repeat_interleave(grid[1]), columns.repeat(grid[0])
