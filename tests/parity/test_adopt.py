"""Live models of the real libraries become ours and compute the same, layer by layer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from vitral.base.errors import ParityError, UsageError, WeightsError
from vitral.weights.adopt import adopt
from vitral.weights.proof import prove


def test_every_block_and_the_logits_agree(family, tiny) -> None:
    source = tiny(family)
    model = adopt(source)
    layers = list(model.origin.parity)
    stages = family.startswith("resnet")
    assert layers == ([f"stages.{i}" for i in range(4)] if stages else ["embedding", "blocks.0", "blocks.1"]) + ["logits"]
    assert max(model.origin.parity.values()) <= 1e-5
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in source.modules())


def test_other_models_are_refused_by_name(stranger, refused) -> None:
    module, words = refused(stranger)
    with pytest.raises(WeightsError, match=words) as caught:
        adopt(module)
    assert "\n" not in str(caught.value)


def test_a_module_tells_what_it_knows(tiny) -> None:
    origin = adopt(tiny("timm-deit-distilled")).origin
    assert origin.mean.declared and origin.mean.value == (0.485, 0.456, 0.406)
    assert origin.heads.declared and origin.activation.declared and origin.norm_epsilon.declared
    source = tiny("hf-vit")
    source.config.id2label = dict(enumerate("abcde"))
    origin = adopt(source).origin
    assert origin.classes.declared and origin.classes.value == tuple("abcde")
    assert origin.norm_epsilon.value == 1e-12 and not origin.mean.declared


def test_a_wrong_import_names_the_first_diverging_layer(tiny) -> None:
    source = tiny("timm")
    model = adopt(source)
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.expand.bias")[0] += 0.5
    proof = prove(model, source)
    assert not proof.holds and proof.first_diverging == "blocks.1"
    assert proof.figures()["blocks.0"] <= 1e-5 < proof.figures()["blocks.1"]
    assert "over" in proof.table() and proof.to_dict()["holds"] is False
    with pytest.raises(ParityError, match=r"blocks\.1 on"):
        proof.check()


def test_a_source_that_does_something_else_is_caught(tiny) -> None:
    source = tiny("timm")
    source.blocks[0].attn.scale *= 2  # the weights are the same, the computation is not
    source.blocks[0].attn.fused_attn = False
    with pytest.raises(ParityError, match=r"blocks\.0"):
        adopt(source)


def test_not_a_number_is_no_parity(tiny) -> None:
    source = tiny("timm")
    with torch.no_grad():
        source.blocks[1].mlp.fc1.bias[0] = float("nan")
    with pytest.raises(ParityError, match=r"blocks\.1"):
        adopt(source)


def test_the_source_stays_as_it_was(tiny) -> None:
    source = tiny("torchvision").train()
    source.encoder.dropout.eval()
    before = copy.deepcopy(source.state_dict())
    model = adopt(source)
    assert source.training and not source.encoder.dropout.training
    with torch.no_grad():
        model.get_parameter("norm.weight").zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in source.state_dict().items())


def test_half_precision_and_wrappers_are_understood(tiny) -> None:
    source = tiny("timm").to(torch.bfloat16)
    model = adopt(nn.DataParallel(source) if torch.cuda.is_available() else torch.compile(source))  # type: ignore[arg-type]
    assert next(model.parameters()).dtype == torch.float32
    assert max(model.origin.parity.values()) <= 1e-5


def test_only_foreign_modules_are_adopted(tiny) -> None:
    model = adopt(tiny("timm"))
    with pytest.raises(UsageError, match="already"):
        adopt(model)
    with pytest.raises(UsageError, match=r"vitral\.load"):
        adopt("timm:vit")  # type: ignore[arg-type]
