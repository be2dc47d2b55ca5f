"""Names that a library owns: fetched by it, proved, and clear when there is no network."""

from __future__ import annotations

import urllib.error

import pytest
import torch
from torch import nn

from vitral.base.errors import ParityError, UsageError, WeightsError
from vitral.weights import named
from vitral.weights.load import load, load_untrained


def _cut_off(*arguments, **keywords):
    raise urllib.error.URLError("Name or service not known")


def test_torchvision_brings_preprocessing_and_names(monkeypatch) -> None:
    from torchvision import models

    made = models.resnet18(weights=None)
    with torch.no_grad():
        made.fc.bias.add_(torch.arange(1000) / 1000)
    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", lambda self, *a, **k: made.state_dict())
    model = load("torchvision:resnet18", classes=None)
    assert model.config.family == "resnet18" and model.origin.class_name(538) == "dome"
    assert model.origin.mean.declared and model.origin.classes.declared and model.origin.crop.value == 224 / 256
    assert max(model.origin.parity.values()) <= 1e-5
    images = torch.randn(1, 3, 224, 224)
    assert torch.allclose(model(images), made.eval()(images), atol=1e-4)


def test_timm_brings_preprocessing(monkeypatch, capsys) -> None:
    import timm

    real = timm.create_model
    monkeypatch.setattr("vitral.base.network.reachable", lambda address: False)
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: real(name, pretrained=False, img_size=32, depth=1))
    model = load("timm:deit_tiny_patch16_224", classes=3)
    assert model.origin.mean.declared and model.origin.mean.value == (0.485, 0.456, 0.406)
    assert model.config.classes == 3 and "head replaced" in " ".join(model.origin.changes)
    assert "largest difference" in capsys.readouterr().err


def test_hugging_face_brings_names_and_preprocessing(monkeypatch, tmp_path) -> None:
    import dataclasses

    from vitral.base.origin import fact
    from vitral.build import create
    from vitral.weights.export import export

    monkeypatch.setattr("vitral.base.network.reachable", lambda address: False)
    torch.manual_seed(0)
    model = create("tiny", classes=3).eval()
    model.origin = dataclasses.replace(model.origin, classes=fact(("cat", "dog", "owl")), mean=fact((0.1, 0.2, 0.3)))
    fetched = load(f"hf:{export(model, tmp_path / 'hf', 'hf')}")
    assert fetched.origin.classes.value == ("cat", "dog", "owl") and fetched.origin.classes.declared
    assert fetched.origin.mean.value == (0.1, 0.2, 0.3) and fetched.origin.mean.declared
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(fetched(images), model(images))


@pytest.mark.parametrize("spec", ["timm:vit_tiny_patch16_224", "torchvision:vit_b_16", "hf:someone/some-vit"])
def test_offline_says_what_to_do(monkeypatch, spec) -> None:
    import timm
    import transformers
    from torchvision import models

    monkeypatch.setattr("vitral.base.network.reachable", lambda address: False)
    monkeypatch.setattr(timm, "create_model", _cut_off)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", _cut_off)
    monkeypatch.setattr(models.ViT_B_16_Weights, "get_state_dict", _cut_off)
    with pytest.raises(WeightsError, match="network") as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_how_a_model_is_built_is_known_without_a_network(monkeypatch, tmp_path) -> None:
    import socket

    import transformers

    monkeypatch.setattr(socket, "create_connection", _cut_off)
    monkeypatch.setattr(socket.socket, "connect", _cut_off)
    tiny = load_untrained("timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k")
    assert (tiny.config.width, tiny.config.heads, tiny.config.classes) == (192, 3, 1000) and tiny.origin.mean.declared
    assert load_untrained("timm:vit_small_patch16_224.augreg_in21k").config.classes == 21843
    large = load_untrained("torchvision:vit_b_16.IMAGENET1K_SWAG_E2E_V1")
    assert large.config.image_size == (384, 384) and large.origin.classes.value[0] == "tench"
    kind = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=16, num_labels=3
    )
    transformers.ViTForImageClassification(kind).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # how it is built is all that is here
    assert load_untrained(f"hf:{tmp_path}").config.classes == 3
    with pytest.raises(WeightsError, match="hf:someone/some-vit") as caught:
        load_untrained("hf:someone/some-vit")
    assert "\n" not in str(caught.value)


def test_an_architecture_newer_than_transformers_needs_a_newer_transformers(tmp_path) -> None:
    """As DINOv3 with transformers 4.55."""
    (tmp_path / "config.json").write_text('{"model_type": "dinov9_vit"}', encoding="utf-8")
    for open_it in (load, load_untrained):
        with pytest.raises(WeightsError, match=r"4\.56"):
            open_it(f"hf:{tmp_path}")


def test_unknown_names_are_corrected() -> None:
    with pytest.raises(UsageError, match="vit_tiny_patch16_224"):
        load("timm:vit_tiny_patch16_22")
    with pytest.raises(UsageError, match="vit_b_16"):
        load("torchvision:vit_b_1")
    with pytest.raises(UsageError, match="IMAGENET1K_V1"):
        load("torchvision:vit_b_16.IMAGENET1K")


def test_a_model_that_is_no_vit_is_refused_after_fetching(monkeypatch) -> None:
    monkeypatch.setitem(named.LIBRARIES, "timm", lambda name: (nn.Linear(2, 2), named.Declared()))
    with pytest.raises(WeightsError, match="no family"):
        load("timm:anything")


def test_a_fetched_model_that_computes_something_else_is_refused(monkeypatch) -> None:
    from timm.models.vision_transformer import VisionTransformer

    source = VisionTransformer(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=5)
    source.blocks[0].attn.scale, source.blocks[0].attn.fused_attn = 3.0, False
    monkeypatch.setitem(named.LIBRARIES, "timm", lambda name: (source, named.Declared()))
    with pytest.raises(ParityError, match=r"blocks\.0"):
        load("timm:anything")
