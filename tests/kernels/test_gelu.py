"""The kernels against their plain twins. Without a GPU, Triton's interpreter runs them on the CPU, in a process of its own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.interpreter import run_interpreted
from torch import nn

from vitral.kernels.gelu import has_kernel, linear_gelu
from vitral.kernels.layer_norm import stream_and_norm
from vitral.kernels.qkv import queries_keys_values

COMPARE = """
import sys, torch, torch.nn.functional as F
torch.cuda.is_available = lambda: True  # the modules load each other as where there is a GPU
import vitral.kernels.gelu, vitral.kernels.qkv
from vitral.kernels.gelu import bias_gelu
from vitral.kernels.layer_norm import norm_backward
from vitral.kernels.qkv import stack_and_sum

for rows, width in ((70, 300), (64, 512), (1, 8)):
    product = (torch.randn(rows, width) * 3).requires_grad_()
    bias = torch.randn(width, requires_grad=True)
    above = torch.randn(rows, width)
    exact = [value.detach().double().requires_grad_() for value in (product, bias)]
    mine, twin = bias_gelu(product, bias), F.gelu(exact[0] + exact[1])
    mine.backward(above), twin.backward(above.double())
    assert (mine - twin).abs().max() < 1e-5, "forward"
    assert (product.grad - exact[0].grad).abs().max() < 1e-5, "gradient of the product"
    assert (bias.grad - exact[1].grad).abs().max() < 1e-4, "gradient of the bias"
three = [torch.randn(3, 13, 4, 40) for _ in range(3)]
joined, sums = stack_and_sum(*three)
assert torch.equal(joined, torch.stack(three, dim=2))
assert (sums - joined.sum((0, 1)).flatten()).abs().max() < 1e-4
for batch, count, width in ((3, 13, 40), (1, 1, 192), (2, 40, 64)):
    tokens, stream, above = (torch.randn(batch, count, width) * 2 + 1 for _ in range(3))
    weight, bias = torch.randn(width), torch.randn(width)
    exact = [value.double().requires_grad_() for value in (tokens, weight, bias)]
    torch.autograd.backward([exact[0] * 1, F.layer_norm(exact[0], (width,), exact[1], exact[2], 1e-6)], [stream.double(), above.double()])
    _, mean, scale = torch.native_layer_norm(tokens, (width,), weight, bias, 1e-6)
    below, sums = norm_backward(stream, above, tokens, weight, mean, scale)
    for mine, twin in zip((below, *sums), exact, strict=True):
        assert (mine - twin.grad).abs().max() < 1e-4, "gradients of a norm"
print("the same")
"""


@pytest.mark.slow
def test_the_kernels_are_their_twins_in_the_interpreter() -> None:
    run_interpreted(COMPARE)


def test_on_the_cpu_the_twins_run() -> None:
    tokens, layer = torch.randn(2, 5, 8), nn.Linear(8, 12)
    assert not has_kernel(layer, tokens)
    assert torch.equal(linear_gelu(tokens, layer), F.gelu(layer(tokens)))
    norm = nn.LayerNorm(8)
    stream, seen = stream_and_norm(tokens, norm)
    assert stream is tokens and torch.equal(seen, norm(tokens))
    parts = queries_keys_values(tokens, layer, heads=2)
    assert [part.shape for part in parts] == [(2, 5, 2, 2)] * 3
    assert torch.equal(torch.cat([part.flatten(2) for part in parts], dim=2), layer(tokens))
