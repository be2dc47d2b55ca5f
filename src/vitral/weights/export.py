"""Out again: our model as timm, torchvision, Hugging Face, Google `.npz` or ONNX keep theirs.

    path = vitral.export(model, "folder", format="hf")

The same rule tables as for reading, backwards. What a format cannot hold is refused with the reason; nothing is rounded.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from vitral.base.errors import UsageError, one_of
from vitral.base.files import write_atomic, write_json
from vitral.base.numbers import to_numpy
from vitral.base.progress import say
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.weights import from_google, from_timm, from_torchvision, to_huggingface
from vitral.weights.keymap import OTHER_FORMATS, revert
from vitral.weights.onnx.graph import write_onnx
from vitral.weights.predict_script import write_predict_script
from vitral.weights.to_huggingface import limits, our_tensors

_TIMM_SIZES = {(192, 12, 3): "tiny", (384, 12, 6): "small", (768, 12, 12): "base", (1024, 24, 16): "large", (1280, 32, 16): "huge"}
_TORCHVISION_EPSILON = 1e-6


def export(model: Classifier, folder: str | Path, format: str = "timm", *, attention: bool = False) -> Path:
    """Write the model into `folder` in another library's format; the path to give to that library comes back.

    timm model.safetensors · torchvision model.pth · hf the folder itself · npz model.npz · onnx model.onnx
    `attention`: for ONNX, the attention maps of every block as further outputs.
    """
    if format not in FORMATS:
        raise one_of("format", format, FORMATS)
    if attention and format != "onnx":
        raise UsageError(f"{format} holds weights, not outputs", "attention=True goes with format='onnx'")
    model = getattr(model, "_orig_mod", model)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "name a folder")
    if format == "onnx":
        return write_onnx(model, folder / "model.onnx", attention)
    written = WRITERS[format](model, folder)
    if format == "torchvision" or (model.origin.multi_label and format != "hf"):  # no place for class names, preprocessing or thresholds
        write_predict_script(model, folder, runs=False)
    return written


def _timm(model: Classifier, folder: Path) -> Path:
    config = model.config
    limits(
        "timm",
        model,
        {
            "positions": ("learned", "sincos", "none"),
            "pool": ("class", "mean"),
            "head_hidden": (0,),
        },
    )
    if config.embedding_norm == config.patch_bias and config.embedding_norm:
        raise UsageError("timm's ViT has either a norm on its tokens or a bias in its patch embedding", OTHER_FORMATS)
    if config.final_norm == config.pool_norm:
        raise UsageError("timm's ViT has exactly one norm after its blocks, before or after pooling", OTHER_FORMATS)
    if config.pool == "mean" and config.distillation_token:
        raise UsageError("timm's distilled DeiT reads its tokens, not their mean", OTHER_FORMATS)
    tensors = our_tensors(model)
    if config.registers and config.prefix_positions == "class" and config.positions != "none":
        tensors = _fold_positions(tensors, config)
    table = from_timm.DISTILLED if config.distillation_token else from_timm.TABLE
    foreign = revert(table, tensors, config.heads, "timm's ViT")
    if config.classes and not config.head_bias:
        foreign["head.bias"] = torch.zeros(config.classes)
    if not config.patch_bias and not config.embedding_norm:
        foreign["patch_embed.proj.bias"] = torch.zeros(config.width)
    write_json(folder / "config.json", _timm_config(model))
    if config.norm_epsilon != (usual := 1e-5 if config.embedding_norm else 1e-6):
        _say_epsilon("timm", usual, config.norm_epsilon)
    return _write_safetensors(folder, foreign)


def _say_epsilon(library: str, usual: float, epsilon: float) -> None:
    """The epsilon of a norm is no weight: it is set where the module is made."""
    how = f"norm_layer=partial(torch.nn.LayerNorm, eps={epsilon:g})"
    say(f"{library}'s norms have epsilon {usual:g}, this model's {epsilon:g}: create it with {how}")


def _fold_positions(tensors: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """timm has positions for all prefix tokens or none: the class token's is added to the token itself, which is the same sum."""
    table = tensors["positions.table"]
    folded = dict(tensors)
    folded["tokens.class_token"] = tensors["tokens.class_token"] + table[:, :1]
    if config.distillation_token:
        folded["tokens.distillation_token"] = tensors["tokens.distillation_token"] + table[:, 1:2]
    folded["positions.table"] = table[:, 1 + int(config.distillation_token) :].contiguous()
    return folded


def _timm_config(model: Classifier) -> dict[str, Any]:
    """What `timm.create_model("local-dir:FOLDER")` reads."""
    config, origin = model.config, model.origin
    size = _TIMM_SIZES.get((config.width, config.depth, config.heads), "base")
    ratio = 2 * config.mlp_width / config.width if config.activation == "swiglu" else config.mlp_width / config.width
    arguments = {
        "img_size": list(config.image_size),
        "patch_size": config.patch_size[0] if config.patch_size[0] == config.patch_size[1] else list(config.patch_size),
        "embed_dim": config.width,
        "depth": config.depth,
        "num_heads": config.heads,
        "mlp_ratio": ratio if int(config.width * ratio) == round(config.width * ratio) else ratio + 1e-9,
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "proj_bias": config.bias,
        "init_values": config.layer_scale,
        "class_token": config.class_token,
        "reg_tokens": config.registers,
        "no_embed_class": config.prefix_positions == "none" or bool(config.registers and config.prefix_positions == "class"),
        "pos_embed": "none" if config.positions == "none" else "learn",
        "pre_norm": config.embedding_norm,
        "global_pool": "token" if config.pool == "class" else "avg",
        "fc_norm": config.pool_norm,
        "in_chans": config.channels,
    }
    if config.activation != "swiglu":
        arguments["act_layer"] = config.activation
    if config.distillation_token:
        arguments = {
            name: value for name, value in arguments.items() if name not in ("class_token", "reg_tokens", "fc_norm", "no_embed_class")
        }
    settings = {
        "num_classes": config.classes,
        "input_size": [config.channels, *config.image_size],
        "fixed_input_size": True,
        "mean": list(origin.mean.value),
        "std": list(origin.std.value),
        "crop_pct": origin.crop.value,
        "crop_mode": "squash" if origin.resize.value == "squash" else "center",
        "interpolation": origin.interpolation.value,
        "first_conv": "patch_embed.proj",
        "classifier": ["head", "head_dist"] if config.distillation_token else "head",
        **({"label_names": list(origin.classes.value)} if origin.classes.value else {}),
    }
    architecture = "deit_base_distilled_patch16_224" if config.distillation_token else f"vit_{size}_patch{16 if size != 'huge' else 14}_224"
    return {
        "architecture": architecture,
        "num_classes": config.classes,
        "num_features": config.width,
        "model_args": arguments,
        "pretrained_cfg": settings,
    }


def _torchvision(model: Classifier, folder: Path) -> Path:
    config = model.config
    if config.family.startswith("resnet"):
        return _torchvision_resnet(model, folder)
    limits(
        "torchvision",
        model,
        {
            "positions": ("learned", "sincos"),
            "prefix_positions": ("class", "all"),
            "pool": ("class",),
            "activation": ("gelu",),
            "distillation_token": (False,),
            "registers": (0,),
            "final_norm": (True,),
            "pool_norm": (False,),
            "channels": (3,),
        },
    )
    if len({*config.image_size}) > 1 or len({*config.patch_size}) > 1:
        raise UsageError("torchvision's ViT takes square pictures and patches only", "export to timm or hf")
    if not config.classes:
        raise UsageError("torchvision's ViT always has a head", "load the model with classes=…, or export to timm")
    foreign = revert(from_torchvision.TABLE, our_tensors(model), config.heads, "torchvision's ViT")
    missing = {
        "conv_proj.bias": (config.patch_bias, config.width),
        "heads.head.bias": (config.head_bias, config.classes),
        **{f"{_layer(i)}self_attention.in_proj_bias": (config.qkv_bias, 3 * config.width) for i in range(config.depth)},
        **{f"{_layer(i)}self_attention.out_proj.bias": (config.bias, config.width) for i in range(config.depth)},
        **{f"{_layer(i)}mlp.0.bias": (config.bias, config.mlp_width) for i in range(config.depth)},
        **{f"{_layer(i)}mlp.3.bias": (config.bias, config.width) for i in range(config.depth)},
    }
    foreign |= {name: torch.zeros(size) for name, (there, size) in missing.items() if not there}
    if config.norm_epsilon != _TORCHVISION_EPSILON:
        _say_epsilon("torchvision", _TORCHVISION_EPSILON, config.norm_epsilon)
    return _write_pickle(folder, foreign)


def _layer(index: int) -> str:
    return from_torchvision.LAYER.replace("{i}", str(index))


def _torchvision_resnet(model: Classifier, folder: Path) -> Path:
    state = model.state_dict()
    if state["network.conv1.weight"].shape[-1] != 7 or "network.fc.weight" not in state:
        raise UsageError("torchvision's ResNet starts with a 7×7 convolution and ends with a head", OTHER_FORMATS)
    return _write_pickle(folder, revert(from_torchvision.RESNET, our_tensors(model), 1, "torchvision's ResNet"))


def _npz(model: Classifier, folder: Path) -> Path:
    config = model.config
    always = ("qkv_bias", "bias", "patch_bias", "head_bias", "class_token", "final_norm")
    never = ("distillation_token", "embedding_norm", "pool_norm", "qk_norm")
    limits(
        "Google's .npz",
        model,
        {
            "norm_epsilon": (1e-6,),
            "positions": ("learned", "sincos"),
            "prefix_positions": ("class", "all"),
            "pool": ("class",),
            "activation": ("gelu", "gelu_tanh"),
            "registers": (0,),
            "layer_scale": (None,),
            **dict.fromkeys(always, (True,)),
            **dict.fromkeys(never, (False,)),
        },
    )
    foreign = revert(from_google.TABLE, our_tensors(model), config.heads, "Google's .npz")
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: to_numpy(tensor) for name, tensor in foreign.items()}
    np.savez(buffer, **arrays)
    return write_atomic(folder / "model.npz", buffer.getvalue())


def _huggingface(model: Classifier, folder: Path) -> Path:
    described, processor, foreign = to_huggingface.translate(model)
    write_json(folder / "config.json", described)
    write_json(folder / "preprocessor_config.json", processor)
    return _write_safetensors(folder, foreign).parent


def _write_safetensors(folder: Path, tensors: dict[str, Tensor]) -> Path:
    content = to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata={"format": "pt"})
    return write_atomic(folder / "model.safetensors", content)


def _write_pickle(folder: Path, tensors: dict[str, Tensor]) -> Path:
    buffer = io.BytesIO()
    torch.save({name: tensor.clone() for name, tensor in tensors.items()}, buffer)
    return write_atomic(folder / "model.pth", buffer.getvalue())


WRITERS: dict[str, Callable[[Classifier, Path], Path]] = {"timm": _timm, "torchvision": _torchvision, "hf": _huggingface, "npz": _npz}
FORMATS = (*WRITERS, "onnx")
