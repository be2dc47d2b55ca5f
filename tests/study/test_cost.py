"""R3's layer costs against operations counted while real layers run."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitral.study import cost


def counted(function, *arguments) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function(*arguments)
    return counter.get_total_flops()


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.matmul(torch.matmul(x, x.transpose(1, 2)).softmax(-1), x)  # (1, n, d)


class Recurrent(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.read, self.keep = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            state = torch.tanh(self.read(x[:, step]) + self.keep(state))
        return state


def restricted(x: torch.Tensor, r: int) -> torch.Tensor:
    near = torch.nn.functional.pad(x, (0, 0, r // 2, r // 2)).unfold(1, r, 1)[0]  # (n, d, r)
    scores = torch.bmm(x[0].unsqueeze(1), near).softmax(-1)  # (n, 1, r)
    return torch.bmm(scores, near.transpose(1, 2))


@pytest.mark.parametrize(("n", "d", "k", "r"), [(16, 8, 3, 5), (65, 32, 5, 9)])
def test_table_agrees_with_counted_operations(n: int, d: int, k: int, r: int) -> None:
    x = torch.randn(1, n, d)
    rows = {row.layer: row for row in cost.layer_costs(n, d, k, r)}
    convolution = nn.Conv1d(d, d, k, padding=k // 2, bias=False)
    assert rows["self-attention"].flops == counted(attention, x)
    assert rows["recurrent"].flops == counted(Recurrent(d), x)
    assert rows["convolution"].flops == counted(convolution, x.transpose(1, 2))
    assert rows["restricted self-attention"].flops == counted(restricted, x, r)


def test_growth() -> None:
    assert cost.self_attention(128, 64) == 4 * cost.self_attention(64, 64)
    assert cost.restricted_attention(128, 64, 9) == 2 * cost.restricted_attention(64, 64, 9)
    n, d, m = cost.even_tokens(192, 768), 192, 768
    assert 4 * cost.self_attention(n, d) == 8 * n * d * d + 4 * n * d * m
    assert cost.attention_map_ratio((224, 224), (14, 14)) == 256**2
