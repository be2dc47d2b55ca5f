"""Our model as a transformers folder: which of its classes holds it, config.json, preprocessor_config.json, tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitral.base.errors import UsageError
from vitral.base.origin import Origin
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.weights import from_huggingface
from vitral.weights.keymap import OTHER_FORMATS, Table, revert

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu", "relu": "relu"}
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}


def our_tensors(model: Classifier) -> dict[str, Tensor]:
    """The model's state on the CPU; fixed sine/cosine positions are written as a table like learned ones."""
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    if model.config.family == "vit" and model.config.positions == "sincos":
        state["positions.table"] = model.get_buffer("positions.table").detach().cpu()
    return state


def limits(target: str, model: Classifier, allowed: dict[str, tuple[Any, ...]]) -> None:
    """Refuses, with the reason, a setting that the format has no place for."""
    config = model.config
    if config.family != "vit":
        raise UsageError(f"{target} has no place for a {config.family}", OTHER_FORMATS)
    everywhere = {
        "norm": ("layer",),
        "block": ("sequential",),
        "norm_order": ("pre",),
        "sub_norm": ("none",),
        "patch_norm": (False,),
        "pool_over": ("patches",),
        "stride": (None, config.patch_size),
    }
    for name, values in {**everywhere, **allowed}.items():
        value = getattr(config, name)
        if value not in values:
            raise UsageError(f"{target} cannot hold {name} = {value}", f"it has only {' or '.join(map(str, values))}; {OTHER_FORMATS}")


def translate(model: Classifier) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]:
    """(config.json, preprocessor_config.json, tensors)."""
    config = model.config
    limits(
        "transformers",
        model,
        {
            "positions": ("learned", "sincos"),
            "class_token": (True,),
            "qk_norm": (False,),
            "pool_norm": (False,),
            "head_hidden": (0,),
            "bias": (True,),
            "patch_bias": (True, False) if config.embedding_norm else (True,),
            "head_bias": (True, False) if config.embedding_norm else (True,),
        },
    )
    if config.embedding_norm:
        described, table, prefix = _clip(config)
    elif config.layer_scale is not None:
        described, table, prefix = _dinov2(config)
    else:
        described, table, prefix = _vit(config)
    tensors = our_tensors(model)
    if described["model_type"].startswith("dinov2") and config.pool == "class" and config.classes:
        # DINOv2's classifier reads class token and patch mean: ours reads the first, so the other half weighs nothing.
        head = tensors["head.linear.weight"]
        tensors["head.linear.weight"] = torch.cat([head, torch.zeros_like(head)], dim=1)
    foreign = revert(table, tensors, config.heads, "transformers")
    named = {name if name.startswith(_UNPREFIXED) else prefix + name: tensor for name, tensor in foreign.items()}
    if described["model_type"].startswith("dinov2"):
        named[prefix + "embeddings.mask_token"] = torch.zeros(1, config.width)
    described |= _common(config, model.origin)
    return described, preprocessor(config, model.origin), named


MULTI_LABEL = "multi_label_classification"
"""What transformers calls several labels an image; thresholds it does not know, and passes over."""
_UNPREFIXED = ("classifier.", "cls_classifier.", "distillation_classifier.", "visual_projection.")


def _common(config: ModelConfig, origin: Origin) -> dict[str, Any]:
    names = origin.classes.value or tuple(f"LABEL_{index}" for index in range(config.classes))
    labels = {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {name: i for i, name in enumerate(names)}}
    return {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "image_size": _size(config.image_size),
        "patch_size": _size(config.patch_size),
        "num_channels": config.channels,
        "layer_norm_eps": config.norm_epsilon,
        "hidden_act": ACTIVATIONS.get(config.activation, "gelu"),
        "dtype": "float32",
        **(labels if config.classes and config.head_bias else {}),
        **({"problem_type": MULTI_LABEL, "thresholds": list(origin.thresholds)} if origin.multi_label else {}),
    }


def _vit(config: ModelConfig) -> tuple[dict[str, Any], Table, str]:
    _need(config.pool == "class" and config.final_norm, "transformers' ViT and DeiT read the class token after a last norm")
    _need(config.activation != "swiglu", "transformers' ViT has no gated MLP")
    fields = {"intermediate_size": config.mlp_width, "qkv_bias": config.qkv_bias}
    if config.distillation_token:
        _need(
            config.registers == 0 and config.prefix_positions != "none",
            "transformers' DeiT has no registers and needs positions for its tokens",
        )
        _need(config.classes > 0, "transformers' DeiT with a distillation token has two classifiers")
        fields |= {"architectures": ["DeiTForImageClassificationWithTeacher"], "model_type": "deit"}
        table = {key: value for key, value in from_huggingface.DEIT_TEACHER.items() if not str(key).startswith("classifier.")}
        return fields, table, "deit."
    if config.registers:
        one = config.registers == 1 and config.prefix_positions == "all" and config.classes > 0
        _need(one, "transformers' ViT has no registers")
        return {**fields, "architectures": ["DeiTForImageClassification"], "model_type": "deit"}, from_huggingface.DEIT, "deit."
    _need(config.prefix_positions != "none", "transformers' ViT has a position for its class token")
    kind = "ViTForImageClassification" if config.classes else "ViTModel"
    return {**fields, "architectures": [kind], "model_type": "vit"}, from_huggingface.VIT, "vit." if config.classes else ""


def _dinov2(config: ModelConfig) -> tuple[dict[str, Any], Table, str]:
    _need(
        config.pool in ("class", "class+mean") and config.final_norm,
        "transformers' DINOv2 reads class token and patch mean after a last norm",
    )
    _need(
        config.prefix_positions == "class" and not config.distillation_token,
        "transformers' DINOv2 has a position for its class token alone",
    )
    gated = config.activation == "swiglu"
    ratio = next((r for r in range(1, 9) if config.width * r == config.mlp_width), None) if not gated else None
    if gated:
        ratio = next((r for r in range(1, 9) if (int(config.width * r * 2 / 3) + 7) // 8 * 8 == config.mlp_width), None)
    _need(ratio is not None, f"transformers' DINOv2 takes whole multiples of the width for its MLP, not {config.mlp_width}")
    name = "dinov2_with_registers" if config.registers else "dinov2"
    kind = "Dinov2WithRegisters" if config.registers else "Dinov2"
    fields: dict[str, Any] = {
        "architectures": [f"{kind}{'ForImageClassification' if config.classes else 'Model'}"],
        "model_type": name,
        "mlp_ratio": ratio,
        "qkv_bias": config.qkv_bias,
        "use_swiglu_ffn": gated,
        "layerscale_value": config.layer_scale,
    }
    if config.registers:
        fields["num_register_tokens"] = config.registers
    first = {key: value for key, value in from_huggingface.DINOV2.items() if not gated or ".mlp.fc" not in str(key)}
    return fields, first, f"{name}." if config.classes else ""


def _clip(config: ModelConfig) -> tuple[dict[str, Any], Table, str]:
    plain = config.layer_scale is None and not config.registers and not config.distillation_token and config.qkv_bias
    _need(
        plain and not config.patch_bias and config.activation != "swiglu",
        "transformers' CLIP tower has a bias-free patch embedding and plain blocks",
    )
    _need(config.pool == "class" and config.final_norm, "transformers' CLIP tower reads the class token after a last norm")
    _need(not (config.classes and config.head_bias), "transformers' CLIP tower has a projection without bias instead of a classifier")
    _need(
        len({*config.image_size}) == 1 and len({*config.patch_size}) == 1,
        "transformers' CLIP tower takes square pictures and patches",
    )
    kind = "CLIPVisionModelWithProjection" if config.classes else "CLIPVisionModel"
    fields = {"architectures": [kind], "model_type": "clip_vision_model", "intermediate_size": config.mlp_width}
    if config.classes:
        fields["projection_dim"] = config.classes
    return fields, from_huggingface.CLIP, "vision_model." if config.classes else ""


def preprocessor(config: ModelConfig, origin: Origin) -> dict[str, Any]:
    """An image processor that prepares pictures as the origin says."""
    height, width = config.image_size
    crop = {"height": height, "width": width}
    squash = origin.resize.value == "squash"
    _need(squash or height == width, "transformers' processors cannot cut a picture that is not square out of a resized one")
    sizes: dict[str, Any] = (
        {"size": crop} if squash else {"size": {"shortest_edge": int(height / origin.crop.value + 1e-9)}, "crop_size": crop}
    )
    return {
        "image_processor_type": "ViTImageProcessor" if squash else "BitImageProcessor",
        "do_resize": True,
        "do_center_crop": not squash,
        **sizes,
        "resample": RESAMPLE.get(origin.interpolation.value, 3),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(origin.mean.value),
        "image_std": list(origin.std.value),
    }


def _need(fulfilled: bool, reason: str) -> None:
    if not fulfilled:
        raise UsageError(f"this model does not fit: {reason}", OTHER_FORMATS)


def _size(size: tuple[int, int]) -> int | list[int]:
    return size[0] if size[0] == size[1] else list(size)
