"""fp8 with static scales: the twin by its definition, a whole model beside fp32, and what is refused."""

from __future__ import annotations

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.kernels.fp8 import EIGHT, LARGEST, Linear8, has_eight_bits, in_eight_bits, plain_product, round_to_eight


def test_numbers_are_the_nearest_of_eight_bits_and_cut_off_at_the_largest() -> None:
    found = round_to_eight(torch.tensor([0.0, 1.0, 1.06, -3.3, 1e9]), torch.tensor(1.0)).float()
    assert found.tolist() == [0.0, 1.0, 1.0, -3.25, LARGEST]
    assert round_to_eight(torch.tensor([4.0]), torch.tensor(2.0)).float().item() == 2.0


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_its_definition_and_near_the_exact_one(bias: bool) -> None:
    torch.manual_seed(0)
    layer, tokens = torch.nn.Linear(64, 48, bias=bias), torch.randn(2, 7, 64)
    eight = Linear8(layer, float(tokens.abs().max()))
    found = eight(tokens)
    assert found.shape == (2, 7, 48) and found.dtype == torch.bfloat16 and eight.weight.dtype == EIGHT
    low = round_to_eight(tokens.flatten(0, 1), eight.input_scale).float() * eight.input_scale
    written = low @ (eight.weight.float() * eight.weight_scale).t() + (eight.bias.float() if eight.bias is not None else 0)
    torch.testing.assert_close(found.flatten(0, 1).float(), written, atol=0.02, rtol=0.01)
    error = (found.float() - layer(tokens)).norm() / layer(tokens).norm()
    assert 0.001 < error < 0.06


def test_one_scale_for_all_batches_and_the_model_it_came_from_stays() -> None:
    torch.manual_seed(4)  # of some other seeds five random logits nearly cancel, and rounding moves their direction more
    model = create("ti/16", image_size=32, patch_size=(8, 8), depth=2, classes=5).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.randn(4, 3, 32, 32)
    eight = in_eight_bits(model, [images, images * 0.5])
    replaced = [name for name, layer in eight.named_modules() if isinstance(layer, Linear8)]
    parts = ("attention.qkv", "attention.projection", "mlp.expand", "mlp.contract")
    assert replaced == [f"blocks.{block}.{part}" for block in range(2) for part in parts], "and neither embedding nor head"
    with torch.no_grad():
        exact, found = model(images), eight(images)
        assert torch.cosine_similarity(exact, found.float()).min() > 0.99
        alone = eight(images[:1] * 0.5)
        assert torch.allclose(alone, eight(images * 0.5)[:1], atol=1e-5), "an answer does not depend on its batch"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_cannot_be_done_is_refused() -> None:
    model = create("ti/16", image_size=32, patch_size=(8, 8), depth=1, classes=5)
    with pytest.raises(UsageError, match="no batch"):
        in_eight_bits(model, [])
    with pytest.raises(UsageError, match="16"):
        in_eight_bits(create("cnn", image_size=32), [torch.randn(1, 3, 32, 32)])
    assert not has_eight_bits(torch.device("cpu"))


def test_the_plain_product_is_not_touched_by_autocast() -> None:
    low = round_to_eight(torch.randn(16, 32), torch.tensor(0.01))
    weight, scale = round_to_eight(torch.randn(16, 32), torch.tensor(0.01)), torch.tensor(0.01)
    with torch.autocast("cpu", torch.bfloat16):
        inside = plain_product(low, weight, scale, scale, None)
    assert torch.equal(inside, plain_product(low, weight, scale, scale, None))
