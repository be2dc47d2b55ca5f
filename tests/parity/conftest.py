"""Small, randomly initialised models of the real libraries, one per layout that we read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

TIMM: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
HF: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 32, "patch_size": 8}
MLP = {"intermediate_size": 48}
TWO = {"num_attention_heads": 2}


def _timm(**changes: Any) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(**{**TIMM, **changes})


def _timm_named(name: str, **changes: Any) -> nn.Module:
    import timm

    return timm.create_model(name, **{**TIMM, **changes})


def _rotary(name: str, **changes: Any) -> nn.Module:
    """Heads whose numbers turn in pairs along two axes; not square, so that rows and columns cannot be mistaken for one another."""
    return _timm_named(name, img_size=(32, 48), **{"num_heads": 2, **changes})


def _torchvision(**changes: Any) -> nn.Module:
    from torchvision.models import VisionTransformer

    sizes: dict[str, Any] = {
        "image_size": 32,
        "patch_size": 8,
        "num_layers": 2,
        "num_heads": 3,
        "hidden_dim": 24,
        "mlp_dim": 48,
        "num_classes": 5,
    }
    return VisionTransformer(**{**sizes, **changes})


def _resnet(name: str) -> nn.Module:
    import torchvision

    return getattr(torchvision.models, name)(num_classes=5)


def _hf(model: str, config: str, **changes: Any) -> nn.Module:
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**{**HF, **changes}))


def _hf_clip(model: str, **changes: Any) -> nn.Module:
    import transformers

    # The text tower's default token numbers need its default vocabulary.
    text = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 48, "vocab_size": 49408}
    return getattr(transformers, model)(
        transformers.CLIPConfig(vision_config={**HF, **MLP}, text_config=text, projection_dim=16, **changes)
    )


def _hf_siglip(model: str, **changes: Any) -> nn.Module:
    import transformers

    text = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 48, "vocab_size": 99}
    return getattr(transformers, model)(transformers.SiglipConfig(vision_config={**HF, **MLP}, text_config=text, **changes))


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "timm": _timm,
    "timm-average": lambda: _timm(global_pool="avg"),
    "timm-no-class-token": lambda: _timm(class_token=False, global_pool="avg", fc_norm=False),
    "timm-qk-norm": lambda: _timm(qk_norm=True),
    "timm-registers": lambda: _timm(reg_tokens=4),
    "timm-non-square": lambda: _timm(img_size=(32, 48)),
    "timm-no-positions": lambda: _timm(pos_embed="none"),
    "timm-backbone": lambda: _timm(num_classes=0),
    "timm-clip": lambda: _timm_named("vit_base_patch32_clip_quickgelu_224"),
    "timm-dinov2": lambda: _timm_named("vit_small_patch14_dinov2", num_classes=0),
    "timm-dinov2-registers": lambda: _timm_named("vit_small_patch14_reg4_dinov2", num_classes=0),
    "timm-dinov2-giant": lambda: _timm_named("vit_giant_patch14_reg4_dinov2", num_classes=0),
    "timm-deit": lambda: _timm_named("deit_tiny_patch16_224"),
    "timm-deit3": lambda: _timm_named("deit3_small_patch16_224"),
    "timm-deit-distilled": lambda: _timm_named("deit_tiny_distilled_patch16_224"),
    "timm-siglip": lambda: _timm(class_token=False, global_pool="map"),
    "timm-map-registers": lambda: _timm(class_token=False, global_pool="map", reg_tokens=2, pool_include_prefix=True),
    "timm-aimv2": lambda: _timm_named("aimv2_large_patch14_224"),
    "timm-beit": lambda: _timm_named("beit_base_patch16_224"),
    "timm-beit-no-norm": lambda: _timm_named("beitv2_base_patch16_224", global_pool="token"),
    "timm-beit3": lambda: _timm_named("beit3_base_patch16_224"),
    "timm-eva": lambda: _timm_named("eva_giant_patch14_224"),
    "timm-eva02": lambda: _rotary("eva02_tiny_patch14_224"),
    "timm-eva02-base": lambda: _rotary("eva02_base_patch14_224"),
    "timm-eva02-clip": lambda: _rotary("eva02_base_patch16_clip_224"),
    "timm-eva02-enormous": lambda: _rotary("eva02_enormous_patch14_clip_224"),
    "timm-res-post-norm": lambda: _timm_named("vit_base_patch16_rpn_224"),
    "timm-parallel": lambda: _timm_named("vit_base_patch16_xp_224"),
    "timm-parallel-scaled": lambda: _timm_named("vit_pwee_patch16_reg1_gap_256"),
    "timm-sapiens2": lambda: _rotary("vit_base_patch16_sapiens2", num_kv_heads=(1, 2)),
    "timm-dinov3": lambda: _rotary("vit_small_patch16_dinov3"),
    "timm-dinov3-biased": lambda: _rotary("vit_small_plus_patch16_dinov3_qkvb"),
    "timm-perception-core": lambda: _rotary("vit_pe_core_base_patch16_224", ref_feat_shape=(4, 6)),
    "timm-perception-spatial": lambda: _rotary("vit_pe_spatial_base_patch16_512", ref_feat_shape=(4, 6)),
    "timm-rope": lambda: _rotary("vit_small_patch16_rope_224"),
    "timm-rope-registers": lambda: _rotary("vit_medium_patch16_rope_reg1_gap_256"),
    "timm-rope-learned": lambda: _rotary("vit_small_patch16_rope_ape_224"),
    "timm-rope-mixed": lambda: _rotary("vit_small_patch16_rope_mixed_224"),
    "timm-rope-mixed-learned": lambda: _rotary("vit_small_patch16_rope_mixed_ape_224"),
    "torchvision": _torchvision,
    "torchvision-hidden": lambda: _torchvision(representation_size=16),
    "hf-vit": lambda: _hf("ViTForImageClassification", "ViTConfig", **MLP, num_labels=5),
    "hf-vit-eager": lambda: _hf("ViTForImageClassification", "ViTConfig", **MLP, num_labels=5, attn_implementation="eager"),
    "hf-vit-backbone": lambda: _hf("ViTModel", "ViTConfig", **MLP),
    "hf-mae": lambda: _hf(
        "ViTMAEForPreTraining",
        "ViTMAEConfig",
        **MLP,
        decoder_hidden_size=16,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=16,
    ),
    "hf-deit": lambda: _hf("DeiTForImageClassification", "DeiTConfig", **MLP, num_labels=5),
    "hf-deit-teacher": lambda: _hf("DeiTForImageClassificationWithTeacher", "DeiTConfig", **MLP, num_labels=5),
    "hf-dinov2": lambda: _hf("Dinov2ForImageClassification", "Dinov2Config", mlp_ratio=2, num_labels=5),
    "hf-dinov2-giant": lambda: _hf("Dinov2Model", "Dinov2Config", mlp_ratio=2, use_swiglu_ffn=True),
    "hf-dinov2-registers": lambda: _hf("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig", mlp_ratio=2, num_labels=5),
    "hf-ijepa": lambda: _hf("IJepaModel", "IJepaConfig", **MLP),
    "hf-msn": lambda: _hf("ViTMSNForImageClassification", "ViTMSNConfig", **MLP, num_labels=5),
    "hf-dinov3": lambda: _hf("DINOv3ViTModel", "DINOv3ViTConfig", **MLP, **TWO, num_register_tokens=2),
    "hf-dinov3-gated": lambda: _hf("DINOv3ViTModel", "DINOv3ViTConfig", **MLP, **TWO, use_gated_mlp=True, hidden_act="silu"),
    "hf-beit": lambda: _hf("BeitForImageClassification", "BeitConfig", **MLP, num_labels=5, use_relative_position_bias=True),
    "hf-beit-shared": lambda: _hf(
        "BeitModel", "BeitConfig", **MLP, use_shared_relative_position_bias=True, use_absolute_position_embeddings=True
    ),
    "hf-data2vec": lambda: _hf(
        "Data2VecVisionForImageClassification", "Data2VecVisionConfig", **MLP, num_labels=5, use_relative_position_bias=True
    ),
    "hf-siglip": lambda: _hf("SiglipVisionModel", "SiglipVisionConfig", **MLP),
    "hf-siglip-whole": lambda: _hf_siglip("SiglipModel"),
    "hf-siglip-classifier": lambda: _hf_siglip("SiglipForImageClassification", num_labels=5),
    "hf-clip": lambda: _hf("CLIPVisionModel", "CLIPVisionConfig", **MLP),
    "hf-clip-projected": lambda: _hf("CLIPVisionModelWithProjection", "CLIPVisionConfig", **MLP, projection_dim=16),
    "hf-clip-classifier": lambda: _hf_clip("CLIPForImageClassification", num_labels=5),
    "hf-clip-whole": lambda: _hf_clip("CLIPModel"),
    "resnet18": lambda: _resnet("resnet18"),
}

REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "swin": (lambda: _named("swin_tiny_patch4_window7_224"), "relative positions"),
    "hybrid": (lambda: _named("vit_tiny_r_s16_p8_224", depth=1), "hybrid of another library"),
    "parallel": (lambda: _named("vit_small_patch16_18x2_224", depth=1), "parallel branches"),
    "convnext": (lambda: _named("convnext_atto"), "staged or convolutional"),
    "resnet34": (lambda: _resnet("resnet34"), "known are resnet18, resnet50, resnet152|resnet18"),
}


def _named(name: str, **changes: Any) -> nn.Module:
    import timm

    return timm.create_model(name, **changes)


def shaken(module: nn.Module) -> nn.Module:
    """Every parameter away from its start value: zero biases and unit norms would hide a wrong map."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture
def tiny() -> Callable[[str], nn.Module]:
    """A tiny model of a named family."""
    return lambda name: shaken(FAMILIES[name]())


@pytest.fixture
def refused() -> Callable[[str], tuple[nn.Module, str]]:
    return lambda name: (REFUSED[name][0](), REFUSED[name][1])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", list(FAMILIES))
    if "stranger" in metafunc.fixturenames:
        metafunc.parametrize("stranger", list(REFUSED))
