"""Random models, and the ViT once more: slow, in double precision, from the paper's equations, sharing no code with the package."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from vitral.build import create

Forward = Callable[[Any, torch.Tensor], tuple[list[torch.Tensor], torch.Tensor]]

VARIANTS = {
    "class token": {},
    "registers and distillation": {"registers": 2, "distillation_token": True, "prefix_positions": "all"},
    "no class token": {"class_token": False, "pool": "mean"},
    "registers alone, mean pooling": {"class_token": False, "registers": 3, "pool": "mean"},
    "not square": {"image_size": (16, 24), "patch_size": (4, 8)},
    "overlapping patches": {"image_size": (16, 16), "patch_size": (6, 6), "stride": (4, 4)},
}


def random_model(seed: int = 0, **changes: Any) -> Any:
    """A tiny model in double precision whose numbers are large enough for attention to be uneven."""
    settings = {"image_size": (16, 16), "width": 24, "heads": 3, "mlp_width": 32, "depth": 3, "classes": 5, **changes}
    model = create("tiny", **settings).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.2 * noise if "norm" in name and name.endswith("weight") else 0.35 * noise)
    return model.eval()


def random_images(model: Any, count: int = 2, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, model.config.channels, *model.config.image_size, generator=generator, dtype=torch.float64)


def slow_forward(model: Any, image: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """One picture (C, H, W) → attention (heads, T, T) of every block, in the graph, and logits (K,)."""
    config = model.config
    get = {name: value.detach() for name, value in model.state_dict().items()}
    (ph, pw), (sh, sw), (rows, columns) = config.patch_size, config.patch_stride, config.grid
    top, left = (ph - sh) // 2, (pw - sw) // 2
    padded = torch.zeros(image.shape[0], image.shape[1] + ph - sh, image.shape[2] + pw - sw, dtype=torch.float64)
    padded[:, top : top + image.shape[1], left : left + image.shape[2]] = image
    kernel = get["patches.projection.weight"].flatten(1)
    tokens = []
    for row in range(rows):
        for column in range(columns):
            patch = padded[:, row * sh : row * sh + ph, column * sw : column * sw + pw].flatten()
            tokens.append(kernel @ patch + get["patches.projection.bias"])
    prefix = [get[f"tokens.{name}"][0] for name in ("class_token", "distillation_token", "registers") if f"tokens.{name}" in get]
    x = torch.cat([*prefix, torch.stack(tokens)])
    table = get["positions.table"][0]
    bare = len(x) - len(table)  # registers may have no position: they stand last in the prefix
    start = config.prefix - bare
    x = x + torch.cat([table[:start], torch.zeros(bare, x.shape[1], dtype=torch.float64), table[start:]])
    x.requires_grad_()
    maps = []
    width = config.width // config.heads
    for index in range(config.depth):
        part = {name.removeprefix(f"blocks.{index}."): value for name, value in get.items() if name.startswith(f"blocks.{index}.")}
        joined = _norm(x, part["norm1.weight"], part["norm1.bias"]) @ part["attention.qkv.weight"].T + part["attention.qkv.bias"]
        query, key, value = joined.split(config.width, dim=1)
        heads, weights = [], []
        for head in range(config.heads):
            cut = slice(head * width, (head + 1) * width)
            scores = query[:, cut] @ key[:, cut].T / math.sqrt(width)
            raised = (scores - scores.max(dim=1, keepdim=True).values).exp()
            weights.append(raised / raised.sum(dim=1, keepdim=True))
        maps.append(torch.stack(weights))
        heads = [maps[-1][head] @ value[:, head * width : (head + 1) * width] for head in range(config.heads)]
        x = x + torch.cat(heads, dim=1) @ part["attention.projection.weight"].T + part["attention.projection.bias"]
        hidden = _norm(x, part["norm2.weight"], part["norm2.bias"]) @ part["mlp.expand.weight"].T + part["mlp.expand.bias"]
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + hidden @ part["mlp.contract.weight"].T + part["mlp.contract.bias"]
    x = _norm(x, get["norm.weight"], get["norm.bias"])
    pooled = x[0] if config.pool == "class" else x[config.prefix :].mean(dim=0)
    logits = get["head.linear.weight"] @ pooled + get["head.linear.bias"]
    if config.distillation_token:
        logits = (logits + get["distillation_head.linear.weight"] @ x[1] + get["distillation_head.linear.bias"]) / 2
    return maps, logits


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + 1e-6).sqrt() * weight + bias


@pytest.fixture(params=VARIANTS, ids=lambda name: name.replace(" ", "-"))
def any_model(request: pytest.FixtureRequest) -> Any:
    return random_model(**VARIANTS[request.param])


@pytest.fixture
def make() -> Callable[..., Any]:
    return random_model


@pytest.fixture
def images() -> Callable[..., torch.Tensor]:
    return random_images


@pytest.fixture
def forward() -> Forward:
    return slow_forward
