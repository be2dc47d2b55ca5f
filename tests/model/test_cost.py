"""The closed form equals what PyTorch counts."""

import pytest

from vitral.build import build, forward_flops
from vitral.model.cost import counted_flops, transformer_cost
from vitral.presets.models import model


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
    assert transformer_cost(config).total == counted_flops(build(config), (config.channels, *config.image_size))


def test_the_quadratic_term_is_quadratic():
    small, large = transformer_cost(model("ti/16", image_size=224)), transformer_cost(model("ti/16", image_size=448))
    assert large.attention / small.attention == pytest.approx((785 / 197) ** 2)
    assert large.mlp / small.mlp == pytest.approx(785 / 197)


def test_rivals_are_counted_too():
    # 3×[two 3×3 convolutions] and three linear layers, by hand.
    convolutions = 2 * 9 * (1024 * (3 * 32 + 32 * 64) + 256 * (64 * 128 + 128 * 128) + 64 * (128 * 256 + 256 * 256))
    linear = 2 * (4096 * 1024 + 1024 * 512 + 512 * 10)
    assert forward_flops(model("cnn")) == convolutions + linear
