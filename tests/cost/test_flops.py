"""The closed forms equal what PyTorch counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitral.build import build, shadow
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.flops import attention_map_ratio, counted_flops, even_tokens, forward_flops, layer_costs, learning_passes, vit_flops
from vitral.presets.models import model
from vitral.train.optim import choose


@pytest.mark.parametrize(
    "config",
    [
        model("tiny"),
        model("tiny", activation="swiglu", registers=3, head_hidden=11),
        model("tiny", distillation_token=True, image_size=(32, 64)),
        model("tiny", stride=2, pool="mean", class_token=False),
        model("ti/16"),
    ],
)
def test_closed_form_equals_the_counter(config):
    assert vit_flops(config).total == counted_flops(build(config), (config.channels, *config.image_size))


def test_the_quadratic_term_is_quadratic():
    small, large = vit_flops(model("ti/16", image_size=224)), vit_flops(model("ti/16", image_size=448))
    assert large.attention / small.attention == pytest.approx((785 / 197) ** 2)
    assert large.mlp / small.mlp == pytest.approx(785 / 197)


def test_rivals_are_counted_too():
    # 3×[two 3×3 convolutions] and three linear layers, by hand.
    convolutions = 2 * 9 * (1024 * (3 * 32 + 32 * 64) + 256 * (64 * 128 + 128 * 128) + 64 * (128 * 256 + 256 * 256))
    linear = 2 * (4096 * 1024 + 1024 * 512 + 512 * 10)
    assert forward_flops(model("cnn")) == convolutions + linear


# ---- learning ------------------------------------------------------------------------------------------------------------------

DEPTH = 3
CONFIG = model("tiny", depth=DEPTH, classes=7)


def passes(config: ModelConfig, tune: str = "all") -> float:
    network = shadow(config)
    choose(network, TrainConfig(tune=tune))
    return learning_passes(network, (config.channels, *config.image_size))


def test_everything_learns_for_three_passes():
    assert passes(CONFIG) == passes(model("resnet18")) == 3


def test_a_head_costs_one_pass_and_its_own_gradient():
    flops = vit_flops(CONFIG)
    assert passes(CONFIG, "head") * flops.total == pytest.approx(flops.total + flops.head)
    fc = 2 * 512 * 10
    rival = model("resnet18", classes=10)
    assert passes(rival, "head") * forward_flops(rival) == pytest.approx(forward_flops(rival) + fc)


def test_attention_has_gradients_of_its_weights_and_of_what_lies_above_the_first():
    flops = vit_flops(CONFIG)
    activations = 2 * flops.attention + flops.mlp + flops.head + flops.projections * (1 - 3 / 4 / DEPTH)  # nothing below the first q, k, v
    weights = flops.projections + flops.head
    assert passes(CONFIG, "attention") * flops.total == pytest.approx(flops.total + activations + weights)


def test_lora_has_gradients_of_its_thin_matrices_alone():
    """No gradient of a whole matrix: less than attention's own, though its layers pass gradients on as they do."""
    assert passes(CONFIG, "head") < passes(CONFIG, "lora") < passes(CONFIG, "attention") + 0.3
    wide = model("b/16")
    assert 2 < passes(wide, "lora") < 2.05 < passes(wide, "attention")


# ---- layers of other kinds -----------------------------------------------------------------------------------------------------


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
    rows = {row.layer: row for row in layer_costs(n, d, k, r)}
    convolution = nn.Conv1d(d, d, k, padding=k // 2, bias=False)
    assert rows["self-attention"].flops == counted(attention, x)
    assert rows["recurrent"].flops == counted(Recurrent(d), x)
    assert rows["convolution"].flops == counted(convolution, x.transpose(1, 2))
    assert rows["restricted self-attention"].flops == counted(restricted, x, r)


def test_growth() -> None:
    def terms(n: int, d: int) -> dict[str, int]:
        return {row.layer: row.operations for row in layer_costs(n, d)}

    assert terms(128, 64)["self-attention"] == 4 * terms(64, 64)["self-attention"]
    assert terms(128, 64)["restricted self-attention"] == 2 * terms(64, 64)["restricted self-attention"]
    n, d, m = even_tokens(192, 768), 192, 768
    assert 4 * terms(n, d)["self-attention"] == 8 * n * d * d + 4 * n * d * m
    assert attention_map_ratio((224, 224), (14, 14)) == 256**2


@pytest.mark.parametrize("changes", [{}, {"registers": 3}, {"activation": "swiglu"}], ids=str)
def test_patches_of_the_last_block_that_nobody_reads_are_not_counted(changes: dict[str, Any]):
    """As PyTorch counts it where they are not made: in bf16 on a CPU, as on a GPU."""
    config = dataclasses.replace(model("ti/16", image_size=32, depth=3, classes=7), **changes)
    with torch.autocast("cpu", torch.bfloat16):
        counted = counted_flops(build(config), (config.channels, *config.image_size))
    assert counted == vit_flops(config, read=config.prefix).total < vit_flops(config).total
