"""Attention weights of some rows: the kernel against its twin in Triton's interpreter, and the twin against the definition."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.interpreter import run_interpreted

from vitral.kernels.rows import attention_weights, has_rows_kernel

COMPARE = """
import torch
torch.cuda.is_available = lambda: True  # the modules load each other as where there is a GPU
from vitral.kernels.rows import attention_weights
from vitral.kernels.rows import attention_rows

for batch, heads, rows, keys, width in ((2, 3, 70, 70, 16), (1, 2, 1, 197, 64), (2, 1, 5, 33, 40)):
    joined = torch.randn(batch, keys, 3, heads, width)  # as a block's layer leaves them in memory
    query, key, _ = joined.unbind(2)
    query, key = query.transpose(1, 2)[:, :, :rows], key.transpose(1, 2)
    mine = attention_rows(query, key, torch.float32)
    assert mine.shape == (batch, heads, rows, keys) and (mine - attention_weights(query, key)).abs().max() < 1e-6
    assert (attention_rows(100 * query, key, torch.float32).sum(-1) - 1).abs().max() < 1e-5, "large scores"
print("the same")
"""


@pytest.mark.slow
def test_the_kernel_is_its_twin_in_the_interpreter() -> None:
    run_interpreted(COMPARE)


def test_on_the_cpu_the_twin_runs_and_is_the_definition() -> None:
    torch.manual_seed(0)
    query, key, bias = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 5, 8), torch.randn(1, 3, 1, 5)
    assert not has_rows_kernel(query, key)
    written = torch.einsum("bhrd,bhtd->bhrt", query, key) / 8**0.5
    assert torch.allclose(attention_weights(query, key), written.exp() / written.exp().sum(-1, keepdim=True), atol=1e-6)
    assert torch.allclose(attention_weights(query, key, bias), (written + bias).softmax(-1), atol=1e-6)
