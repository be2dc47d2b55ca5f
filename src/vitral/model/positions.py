"""Where a patch lies: learned vectors or fixed sines and cosines added to it, or a bias on its attention (rotary.py: a rotation).

T tokens = prefix + N patches on an h×w grid, D numbers per token.
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
        if config.has_table:
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


class _RelativePositions(nn.Module):
    """A bias on every attention score by how far apart two patches lie (BEiT); one each from, to and of the class token to itself."""

    index: torch.Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        rows, columns = config.grid
        self.table = nn.Parameter(torch.zeros((2 * rows - 1) * (2 * columns - 1) + 3, config.heads))
        self.register_buffer("index", relative_index(config.grid, config.prefix), persistent=False)  # (T, T)

    def forward(self) -> torch.Tensor:
        return self.table[self.index].permute(2, 0, 1).unsqueeze(0)  # (1, heads, T, T)


class RelativePositionsOfMLP(nn.Module):
    """The same bias, made of the distance by a small MLP (Swin v2; timm's relpos ViTs): a larger grid needs no other numbers."""

    index: torch.Tensor
    distances: torch.Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        rows, columns = (torch.arange(1.0 - side, side, device="cpu") for side in config.grid)
        apart = torch.cartesian_prod(rows, columns)
        self.register_buffer("distances", apart.sign() * apart.abs().log1p(), persistent=False)  # ((2h - 1)(2w - 1), 2)
        self.register_buffer("index", relative_index(config.grid, config.prefix), persistent=False)  # (T, T)
        self.expand, self.contract = nn.Linear(2, config.relative_mlp), nn.Linear(config.relative_mlp, config.heads)

    def forward(self) -> torch.Tensor:
        table = self.contract(self.expand(self.distances).relu())
        table = torch.cat([table, table.new_zeros(3, table.shape[1])])  # the class token's three have none
        return table[self.index].permute(2, 0, 1).unsqueeze(0)  # (1, heads, T, T)


def make_relative(config: ModelConfig) -> _RelativePositions | RelativePositionsOfMLP:
    return RelativePositionsOfMLP(config) if config.relative_mlp else _RelativePositions(config)


def relative_index(grid: tuple[int, int], prefix: int) -> torch.Tensor:
    """Which row of the table belongs to each pair of tokens: rows apart, columns apart; the last three are the class token's."""
    rows, columns = (axis.long() for axis in grid_points(grid))
    apart = (rows[:, None] - rows + grid[0] - 1) * (2 * grid[1] - 1) + columns[:, None] - columns + grid[1] - 1  # (N, N)
    distances = (2 * grid[0] - 1) * (2 * grid[1] - 1)
    index = torch.full((prefix + len(rows),) * 2, distances, device="cpu")
    index[:, :prefix] = distances + 1
    index[:prefix, :prefix] = distances + 2
    index[prefix:, prefix:] = apart
    return index


def sine_cosine(grid: tuple[int, int], width: int, base: float = 10_000.0) -> torch.Tensor:
    """Fixed 2-D positions (N, D): a quarter each of sine and cosine of the column, then of the row."""
    rows, columns = grid_points(grid)
    quarter = width // 4
    speeds = base ** -(torch.arange(quarter, device="cpu") / quarter)
    angles = [axis[:, None] * speeds for axis in (columns, rows)]  # (N, D/4)
    return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)


def positioned_prefix(config: ModelConfig) -> int:
    """How many tokens before the patches have a position of their own."""
    classes = int(config.class_token) + int(config.distillation_token)
    return {"all": config.prefix, "class": classes, "none": 0}[config.prefix_positions]


def grid_points(grid: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each patch, in reading order."""
    rows = torch.arange(grid[0], dtype=torch.float32, device="cpu")
    columns = torch.arange(grid[1], dtype=torch.float32, device="cpu")
    return rows.repeat_interleave(grid[1]), columns.repeat(grid[0])
