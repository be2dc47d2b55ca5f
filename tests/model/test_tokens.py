"""Class token, distillation token and registers stand before the patches, in this order."""

import pytest
import torch

from vitral.model.tokens import PrependClassToken


@pytest.mark.parametrize(("arguments", "prefix"), [((True, False, 0), "c"), ((True, True, 2), "cdrr"), ((False, False, 3), "rrr")])
def test_the_order_of_the_prefix(arguments, prefix):
    module = PrependClassToken(4, *arguments)
    values = {"class_token": 1.0, "distillation_token": 2.0, "registers": 3.0}
    for name, parameter in module.named_parameters():
        torch.nn.init.constant_(parameter, values[name])
    tokens = module(torch.zeros(2, 5, 4, dtype=torch.bfloat16))
    assert tokens.shape == (2, len(prefix) + 5, 4) and tokens.dtype == torch.bfloat16
    assert tokens[1, :, 0].tolist() == [{"c": 1.0, "d": 2.0, "r": 3.0}[letter] for letter in prefix] + [0.0] * 5


def test_without_any_token_the_patches_pass():
    patches = torch.randn(2, 5, 4)
    assert PrependClassToken(4, class_token=False)(patches) is patches
