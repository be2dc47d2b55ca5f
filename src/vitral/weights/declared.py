"""What the libraries say about their models: configs, preprocessors, live modules → known facts in our words."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitral.base.errors import WeightsError
from vitral.weights.infer import Known, pair, says

# transformers' and timm's names for activations → ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "GELUActivation": "gelu",
    "QuickGELUActivation": "quick_gelu",
    "ReLU": "relu",
}
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def activation(name: str, where: str) -> str:
    if name not in ACTIVATIONS:
        raise WeightsError(f"{where} uses the activation {name}", f"known are {', '.join(dict.fromkeys(ACTIVATIONS.values()))}")
    return ACTIVATIONS[name]


def of_transformers(config: dict[str, Any], where: str = "config.json") -> Known:
    """A transformers config (a CLIP config's vision part) as a dictionary."""
    inner = config.get("vision_config") or config
    if "hidden_act" not in inner and "num_attention_heads" not in inner:
        return Known()
    labels = config.get("id2label")
    names = None
    if isinstance(labels, dict) and labels and not all(str(name).startswith("LABEL_") for name in labels.values()):
        names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    act = inner.get("hidden_act", "gelu")
    return says(
        where,
        {
            "heads": inner.get("num_attention_heads"),
            "activation": activation(str(act), where),
            "norm_epsilon": inner.get("layer_norm_eps"),
            "image_size": pair(inner["image_size"]) if "image_size" in inner else None,
        },
        {"classes": names},
    )


def of_preprocessor(settings: dict[str, Any], where: str = "preprocessor_config.json") -> Known:
    """A transformers image processor's settings."""
    size, crop = settings.get("size", {}), settings.get("crop_size", {})
    size = {"height": size, "width": size} if isinstance(size, int) else size or {}
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop or {}
    short = size.get("shortest_edge") or (size.get("height") if settings.get("do_center_crop") else None)
    share = min(1.0, crop["height"] / short) if settings.get("do_center_crop") and short and crop.get("height") else 1.0
    return says(
        where,
        None,
        {
            "mean": tuple(settings["image_mean"]) if settings.get("image_mean") else None,
            "std": tuple(settings["image_std"]) if settings.get("image_std") else None,
            "resize": "short" if short else "squash" if size else None,
            "crop": share if size else None,
            "interpolation": RESAMPLE.get(settings.get("resample", -1)),
        },
    )


def of_timm_settings(settings: dict[str, Any], where: str = "timm's pretrained_cfg") -> Known:
    """timm's `pretrained_cfg`."""
    names = settings.get("label_names")
    descriptions = settings.get("label_descriptions")
    if names and isinstance(descriptions, dict):
        names = [descriptions.get(name, name) for name in names]
    return says(
        where,
        None,
        {
            "mean": tuple(settings["mean"]) if settings.get("mean") else None,
            "std": tuple(settings["std"]) if settings.get("std") else None,
            "resize": None if not settings.get("mean") else "squash" if settings.get("crop_mode") == "squash" else "short",
            "crop": settings.get("crop_pct"),
            "interpolation": settings.get("interpolation"),
            "classes": tuple(names) if names else None,
        },
    )


def of_timm_folder(described: dict[str, Any]) -> Known:
    """The config.json of a timm folder: what its weights were trained with, and how the module is made."""
    arguments = described.get("model_args") or {}
    architecture = says(
        "config.json",
        {
            "heads": arguments.get("num_heads"),
            "activation": activation(arguments["act_layer"], "config.json") if arguments.get("act_layer") else None,
            "image_size": pair(arguments["img_size"]) if arguments.get("img_size") else None,
            "pool": {"token": "class", "avg": "mean"}.get(arguments.get("global_pool", "")),
            "positions": "none" if arguments.get("pos_embed") == "none" else None,
        },
    )
    return architecture.over(of_timm_settings(described.get("pretrained_cfg") or described, "config.json"))


def of_timm(module: nn.Module) -> Known:
    """A live timm ViT."""
    if any(getattr(module, name, False) for name in ("pool_include_prefix",)) and getattr(module, "global_pool", "") != "token":
        raise WeightsError("this timm ViT averages over its prefix tokens too", "Vitral's average is over patches alone; load a plain ViT")
    pools = {"token": "class", "avg": "mean", "": None}
    pooling = getattr(module, "global_pool", "token")
    if pooling not in pools:
        raise WeightsError(f"this timm ViT pools with {pooling!r}", "known are token and avg")
    if getattr(module, "rope", None) is not None:
        raise WeightsError(
            f"this {type(module).__name__} turns queries and keys (rotary positions)", "rotary ViTs of other libraries are not read"
        )
    block: Any = next(iter(module.blocks))  # type: ignore[arg-type]
    gated = type(block.mlp).__name__ in ("GluMlp", "SwiGLU", "SwiGLUPacked")
    act = None if gated else activation(type(block.mlp.act).__name__, "this timm ViT")
    if act == "gelu" and getattr(block.mlp.act, "approximate", "none") == "tanh":
        act = "gelu_tanh"
    embedding: Any = module.patch_embed
    architecture = says(
        "the live timm module",
        {
            "heads": block.attn.num_heads,
            "activation": act,
            "norm_epsilon": block.norm1.eps,
            "image_size": pair(embedding.img_size) if embedding.img_size else None,
            "pool": pools[pooling],
            "positions": "none" if getattr(module, "pos_embed", None) is None else None,
            "prefix_positions": "none"
            if getattr(module, "no_embed_class", False)
            else "all"
            if getattr(module, "num_reg_tokens", 0)
            else None,
        },
    )
    settings = dict(getattr(module, "pretrained_cfg", None) or {})
    if settings.get("num_classes") != getattr(module, "num_classes", None):
        settings.pop("label_names", None)
    return architecture.over(of_timm_settings(settings))


def of_torchvision(module: nn.Module) -> Known:
    """A live torchvision ViT."""
    layer: Any = next(iter(module.encoder.layers))  # type: ignore[union-attr]
    return says(
        "the live torchvision module",
        {
            "heads": layer.self_attention.num_heads,
            "activation": "gelu",
            "norm_epsilon": layer.ln_1.eps,
            "image_size": pair(module.image_size),  # type: ignore[arg-type]
        },
    )


def of_torchvision_weights(weights: Any) -> Known:
    """A torchvision weights entry: its transforms and its class names."""
    steps = weights.transforms()
    size, crop = steps.resize_size[0], steps.crop_size[0]
    return says(
        f"torchvision's {weights}",
        None,
        {
            "mean": tuple(steps.mean),
            "std": tuple(steps.std),
            "resize": "short",
            "crop": crop / size,
            "interpolation": steps.interpolation.value,
            "classes": tuple(weights.meta["categories"]),
        },
    )
