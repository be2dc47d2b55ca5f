"""What the libraries say about their models: configs, preprocessors, live modules → known facts in our words."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitral.base.errors import WeightsError
from vitral.weights.declared import Declared, declare, pair

# transformers' and timm's names for activations → ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "swiglu",
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "GELUActivation": "gelu",
    "QuickGELUActivation": "quick_gelu",
    "ReLU": "relu",
}
_DINOV3_BASE = 100.0
RELATIVE = ("relative_position_bias_table", "rel_pos")
"""Where timm's blocks keep relative positions."""
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def activation(name: str, where: str) -> str:
    if name not in ACTIVATIONS:
        raise WeightsError(f"{where} uses the activation {name}", f"known are {', '.join(dict.fromkeys(ACTIVATIONS.values()))}")
    return ACTIVATIONS[name]


def of_transformers(config: dict[str, Any], where: str = "config.json") -> Declared:
    """A transformers config (a CLIP config's vision part) as a dictionary."""
    inner = config.get("vision_config") or config
    if "hidden_act" not in inner and "num_attention_heads" not in inner:
        return Declared()
    labels = config.get("id2label")
    names = None
    if isinstance(labels, dict) and labels and not all(str(name).startswith("LABEL_") for name in labels.values()):
        names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    act = inner.get("hidden_act", "gelu")
    if inner.get("use_gated_mlp") and act != "silu":
        raise WeightsError(f"{where} has a gate with {act}", "known is silu")
    if inner.get("rope_theta") not in (None, _DINOV3_BASE):
        raise WeightsError(f"{where} turns queries and keys with base {inner['rope_theta']}", f"DINOv3's is {_DINOV3_BASE:g}")
    return declare(
        where,
        {
            "heads": inner.get("num_attention_heads"),
            "activation": activation(str(act), where),
            "norm_epsilon": inner.get("layer_norm_eps"),
            "image_size": pair(inner["image_size"]) if "image_size" in inner else None,
        },
        {"classes": names},
    )


def of_preprocessor(settings: dict[str, Any], where: str = "preprocessor_config.json") -> Declared:
    """A transformers image processor's settings."""
    size, crop = settings.get("size", {}), settings.get("crop_size", {})
    size = {"height": size, "width": size} if isinstance(size, int) else size or {}
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop or {}
    short = size.get("shortest_edge") or (size.get("height") if settings.get("do_center_crop") else None)
    share = min(1.0, crop["height"] / short) if settings.get("do_center_crop") and short and crop.get("height") else 1.0
    return declare(
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


def of_timm_settings(settings: dict[str, Any], where: str = "timm's pretrained_cfg") -> Declared:
    """timm's `pretrained_cfg`."""
    names = settings.get("label_names")
    descriptions = settings.get("label_descriptions")
    if names and isinstance(descriptions, dict):
        names = [descriptions.get(name, name) for name in names]
    return declare(
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


def of_timm_folder(described: dict[str, Any]) -> Declared:
    """The config.json of a timm folder: what its weights were trained with, and how the module is made."""
    arguments = described.get("model_args") or {}
    architecture = declare(
        "config.json",
        {
            "heads": arguments.get("num_heads"),
            "activation": activation(arguments["act_layer"], "config.json") if arguments.get("act_layer") else None,
            "image_size": pair(arguments["img_size"]) if arguments.get("img_size") else None,
            "pool": {"token": "class", "avg": "mean"}.get(arguments.get("global_pool", "")),
            "positions": "none" if arguments.get("pos_embed") == "none" else None,
        },
    )
    return architecture.or_else(of_timm_settings(described.get("pretrained_cfg") or described, "config.json"))


def of_timm(module: Any) -> Declared:
    """A live timm ViT."""
    pools = {"token": "class", "avg": "mean", "map": "map", "": None}
    pooling = getattr(module, "global_pool", "token")
    if pooling not in pools:
        raise WeightsError(f"this timm ViT pools with {pooling!r}", "known are token, avg and map")
    block: Any = next(iter(module.blocks))
    parallel = hasattr(block, "in_norm")
    bend = block.mlp_act if parallel else block.mlp.act
    gated = not parallel and type(block.mlp).__name__ in ("GluMlp", "SwiGLU", "SwiGLUPacked")
    act = None if gated else activation(type(bend).__name__, "this timm ViT")
    if act == "gelu" and getattr(bend, "approximate", "none") == "tanh":
        act = "gelu_tanh"
    embedding: Any = getattr(module, "patch_embed", None) or module.embeds
    probe = getattr(module, "attn_pool", None)
    # EVA's own class lets its query look at every token, vision_transformer's at the patches unless it is told otherwise.
    everything = getattr(module, "pool_include_prefix", type(module).__name__ == "Eva" and probe is not None)
    architecture = declare(
        "the live timm module",
        {
            "heads": (block if parallel else block.attn).num_heads,
            "activation": act,
            "norm_epsilon": (block.in_norm if parallel else block.norm1).eps,
            "norm_order": "res-post" if type(block).__name__ in ("ResPostBlock", "ResPostRelPosBlock", "EvaBlockPostNorm") else None,
            "image_size": pair(embedding.img_size) if getattr(embedding, "img_size", None) else None,
            "pool": pools[pooling],
            "pool_over": "tokens" if everything else None,
            "pool_heads": probe.num_heads if probe is not None else None,
            "positions": _timm_positions(module),
            **_timm_rotary(getattr(module, "rope", None)),
            "prefix_positions": "none"
            if getattr(module, "no_embed_class", False)
            else "all"
            if getattr(module, "reg_token", None) is not None
            else None,
        },
    )
    settings = dict(getattr(module, "pretrained_cfg", None) or {})
    if settings.get("num_classes") != getattr(module, "num_classes", None):
        settings.pop("label_names", None)
    return architecture.or_else(of_timm_settings(settings))


def _timm_positions(module: Any) -> str | None:
    """None where the tensors tell: learned ones leave a table, relative ones a table or an MLP."""
    learned = getattr(module, "pos_embed", None) is not None or hasattr(module, "embeds")
    if getattr(module, "rope", None) is not None:
        return "learned+rotary" if learned else "rotary"
    candidates = ((module, "shared_rel_pos"), *((getattr(module.blocks[0], "attn", None), name) for name in RELATIVE))
    return None if learned or any(getattr(owner, name, None) is not None for owner, name in candidates) else "none"


def _timm_rotary(rope: Any) -> dict[str, Any]:
    """Our kind of a timm module's angles; another one than a family uses is refused, for no tensor would show the difference."""
    if rope is None:
        return {}
    kind = type(rope).__name__.removeprefix("RotaryEmbedding")
    if kind == "Mixed" and rope.grid_indexing == "xy":
        return {"rotary": "mixed"}
    if kind == "DinoV3" and (rope.temperature, rope.grid_indexing, rope.normalize_coords, rope.rotate_half) == (
        100,
        "ij",
        "separate",
        True,
    ):
        return {"rotary": "dinov3"}
    if kind == "Cat" and not rope.in_pixels and not rope.rotate_half:
        kinds = {(100, "xy", False): "axial", (10_000, "ij", True): "eva", (10_000, "xy", True): "perception"}
        if kind_of_angles := kinds.get((rope.temperature, rope.grid_indexing, rope.ref_feat_shape is not None)):
            return {"rotary": kind_of_angles, "rotary_grid": tuple(rope.ref_feat_shape) if rope.ref_feat_shape is not None else None}
    raise WeightsError(
        f"this timm ViT turns queries and keys by angles of its own ({type(rope).__name__})", "load one of timm's named models"
    )


def of_torchvision(module: nn.Module) -> Declared:
    """A live torchvision ViT."""
    layer: Any = next(iter(module.encoder.layers))  # type: ignore[union-attr]
    return declare(
        "the live torchvision module",
        {
            "heads": layer.self_attention.num_heads,
            "activation": "gelu",
            "norm_epsilon": layer.ln_1.eps,
            "image_size": pair(module.image_size),  # type: ignore[arg-type]
        },
    )


def of_torchvision_weights(weights: Any) -> Declared:
    """A torchvision weights entry: its transforms and its class names."""
    steps = weights.transforms()
    size, crop = steps.resize_size[0], steps.crop_size[0]
    return declare(
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
