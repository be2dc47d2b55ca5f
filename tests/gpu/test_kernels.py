"""The fused kernels against their plain twins, on the GPU, in bf16, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitral.kernels.gelu import linear_gelu
from vitral.kernels.layer_norm import stream_and_norm
from vitral.kernels.qkv import queries_keys_values
from vitral.kernels.rows import attention_weights, has_rows_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
Forward = Callable[[torch.Tensor, nn.Linear], torch.Tensor]
CASES = ((197, 192, 768), (33, 96, 200))


def learnt(forward: Forward, tokens: torch.Tensor, layer: nn.Linear) -> list[torch.Tensor]:
    """Output and gradients in float32, of a forward pass in bf16 and of a fixed gradient from above."""
    tokens = tokens.clone().requires_grad_()
    layer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        output = forward(tokens, layer)
    above = torch.linspace(-1, 1, output.numel(), device="cuda").view(output.shape).to(output.dtype)
    output.backward(above)
    return [output.detach().float(), *(value.grad.float().clone() for value in (tokens, layer.weight, layer.bias))]  # type: ignore[union-attr]


def check(forward: Forward, twin: Forward, shape: tuple[int, int, int], compiled: bool) -> None:
    torch.manual_seed(0)
    count, width, wide = shape
    tokens, layer = torch.randn(4, count, width, device="cuda"), nn.Linear(width, wide, device="cuda")
    mine = learnt(torch.compile(forward, fullgraph=True) if compiled else forward, tokens, layer)
    for value, other in zip(mine, learnt(twin, tokens, layer), strict=True):
        assert (value - other).abs().max() <= 0.02 * other.abs().max()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", CASES)
def test_gelu(shape: tuple[int, int, int], compiled: bool) -> None:
    check(linear_gelu, lambda tokens, layer: F.gelu(layer(tokens)), shape, compiled)


@pytest.mark.parametrize("compiled", [False, True])
def test_queries_keys_and_values(compiled: bool) -> None:
    def whole(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        query, key, value = (part.transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(query, key, value)

    def mine(tokens: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
        return whole(queries_keys_values(tokens, layer, heads=3))

    def plain(tokens: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
        return whole(layer(tokens).unflatten(-1, (3, 3, -1)).unbind(2))

    check(mine, plain, (197, 192, 576), compiled)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("width", [192, 768, 1000])
def test_norm_beside_its_stream(width: int, compiled: bool) -> None:
    def mine(tokens: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
        stream, seen = stream_and_norm(tokens.bfloat16(), norm)
        return stream + layer(seen)

    def plain(tokens: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
        return tokens.bfloat16() + layer(norm(tokens.bfloat16()))

    norm, sums = nn.LayerNorm(width, device="cuda"), []
    for forward in (mine, plain):
        norm.zero_grad()
        check(forward, plain, (197, width, width), compiled)
        sums.append([norm.weight.grad.clone(), norm.bias.grad.clone()])  # type: ignore[union-attr]
    for value, other in zip(*sums, strict=True):
        assert (value - other).abs().max() <= 0.02 * other.abs().max()


def test_without_gradients_gelu_is_off_by_less_than_bf16_rounds() -> None:
    torch.manual_seed(0)
    tokens, layer = torch.randn(8, 197, 192, device="cuda"), nn.Linear(192, 768, device="cuda")
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        mine, plain = linear_gelu(tokens, layer).float(), F.gelu(layer(tokens)).float()
    with torch.no_grad():
        exact = F.gelu(layer.double()(tokens.double()))
    assert (mine - exact).abs().mean() <= 1.1 * (plain - exact).abs().mean()
    assert (mine - exact).abs().max() <= 1.5 * (plain - exact).abs().max()


@pytest.mark.parametrize(
    "shape", [(3, 12, 197, 197, 64), (3, 12, 1, 197, 64), (2, 3, 50, 50, 40), (1, 2, 500, 500, 64), (1, 4, 3, 250, 80)]
)
def test_attention_weights_of_some_rows(shape: tuple[int, int, int, int, int]) -> None:
    torch.manual_seed(0)
    batch, heads, rows, keys, width = shape
    query, key, _ = torch.randn(batch, keys, 3, heads, width, device="cuda", dtype=torch.bfloat16).unbind(2)
    query, key = query.transpose(1, 2)[:, :, :rows], key.transpose(1, 2)
    exact = attention_weights(query.double(), key.double())
    assert has_rows_kernel(query, key) and not has_rows_kernel(query.double(), key.double())
    with torch.autocast("cuda", torch.bfloat16):
        mine = attention_weights(query, key)
    plain = (query * width**-0.5 @ key.transpose(-2, -1)).softmax(dim=-1, dtype=torch.float32)
    assert mine.dtype == torch.float32 and mine.shape == exact.shape
    assert (mine - exact).abs().max() < 1e-4 and (mine - exact).abs().mean() <= (plain - exact).abs().mean()
    assert attention_weights(query, key).dtype == torch.bfloat16
