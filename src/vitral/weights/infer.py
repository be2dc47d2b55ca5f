"""From the shapes of our own parameters to the config: whatever the family, sizes are read in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitral.base.errors import ConfigError, UsageError, VitralError, WeightsError
from vitral.base.origin import Fact, assumed, fact
from vitral.config import ModelConfig
from vitral.weights.declared import Declared, pair
from vitral.weights.family import Family

# Width → heads where the 64-per-head rule does not hold (ViT-H, g, G, so400m).
_WIDE = {1280: 16, 1408: 16, 1664: 16, 1152: 16}
_PER_HEAD = 64

_RELATIVE = "blocks.0.attention.relative.table"
_RELATIVE_MLP = "blocks.0.attention.relative.expand.weight"
_POSITIONS = {(False, False): "none", (True, False): "learned", (False, True): "relative", (True, True): "learned+relative"}
"""(vectors?, biases?) → name."""
_EVA_GRID = (16, 16)
"""The patches of EVA-02's pre-training (224 pixels, patches of 14), which timm's own rotary ViTs took over."""
_USUAL_SIZE = {"dinov3": 256, "eva": 256, "axial": 224, "mixed": 224}
"""Pixels a side of timm's models whose tensors tell no size; any other does as well."""
_RESNETS = {(2, False): "resnet18", (6, True): "resnet50", (36, True): "resnet152"}
"""(blocks in the third stage, bottlenecks?) → name."""


def infer_config(
    tensors: Mapping[str, Tensor], family: Family, declared: Declared, source: str
) -> tuple[ModelConfig, dict[str, Fact[Any]]]:
    """The config of the tensors (under our names), and the facts of it that no shape tells."""
    if family.name == "torchvision-resnet":
        return _resnet(tensors, declared, source), {}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        return _transformer(shapes, family, declared, source)
    except ConfigError as error:
        raise WeightsError(f"{source}: {error.message}", error.hint) from None
    except VitralError:
        raise
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise WeightsError(f"{source} lacks a part that its size is read from ({error})", "the file is damaged or incomplete") from None


def _transformer(
    shapes: dict[str, tuple[int, ...]], family: Family, declared: Declared, source: str
) -> tuple[ModelConfig, dict[str, Fact[Any]]]:
    width, channels, *patch = shapes["patches.projection.weight"]
    blocks = {int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")}
    if blocks != set(range(len(blocks))):
        raise WeightsError(f"{source} lacks blocks: it has {sorted(blocks)}", "the file is damaged or incomplete")
    hidden = shapes["blocks.0.mlp.contract.weight"][1]
    swiglu = shapes["blocks.0.mlp.expand.weight"][0] == 2 * hidden
    pool_norm = "pool_norm.weight" in shapes
    class_token, probe = "tokens.class_token" in shapes, "pool.probe" in shapes
    inner = [part for part in ("attention.joined_norm", "mlp.hidden_norm") if f"blocks.0.{part}.weight" in shapes]
    fields: dict[str, Any] = {
        "channels": channels,
        "patch_size": tuple(patch),
        "classes": shapes["head.linear.weight"][0] if "head.linear.weight" in shapes else 0,
        "width": width,
        "depth": len(blocks),
        "mlp_width": hidden,
        "pool": "map" if probe else "mean" if pool_norm or not class_token else "class",
        "class_token": class_token,
        "distillation_token": "tokens.distillation_token" in shapes,
        "registers": shapes["tokens.registers"][1] if "tokens.registers" in shapes else 0,
        "positions": _POSITIONS["positions.table" in shapes, bool({_RELATIVE, _RELATIVE_MLP} & shapes.keys())],
        "norm": "layer" if "blocks.0.norm1.bias" in shapes else "rms",
        "block": "sequential" if "blocks.0.norm2.weight" in shapes else "parallel",
        "sub_norm": ("none", "mlp", "attention+mlp")[len(inner)],
        "patch_norm": "patch_norm.weight" in shapes,
        "embedding_norm": "embedding_norm.weight" in shapes,
        "final_norm": "norm.weight" in shapes,
        "pool_norm": pool_norm,
        "qk_norm": "blocks.0.attention.query_norm.weight" in shapes,
        "layer_scale": 1e-5 if "blocks.0.scale1" in shapes else None,
        "qkv_bias": "blocks.0.attention.qkv.bias" in shapes,
        "bias": "blocks.0.mlp.expand.bias" in shapes,
        "patch_bias": "patches.projection.bias" in shapes,
        "head_bias": "head.linear.bias" in shapes or "head.linear.weight" not in shapes,
        "head_hidden": shapes["head.hidden.weight"][0] if "head.hidden.weight" in shapes else 0,
    }
    if _RELATIVE_MLP in shapes:
        fields["relative_mlp"] = shapes[_RELATIVE_MLP][0]
    if probe and (mlp := shapes["pool.mlp.expand.weight"][0]) != hidden:
        fields["pool_mlp_width"] = mlp
    if fields["classes"] and shapes["head.linear.weight"][1] == 2 * width and not fields["head_hidden"]:
        fields["pool"] = "class+mean"  # DINOv2's linear head reads both
    facts: dict[str, Fact[Any]] = {
        "activation": fact("swiglu") if swiglu else _fact(declared, "activation", family.activation, f"usual for {family.label}"),
        "norm_epsilon": _fact(declared, "norm_epsilon", family.norm_epsilon, f"usual for {family.label}"),
        "heads": fact(width // shapes["blocks.0.attention.query_norm.weight"][0])
        if fields["qk_norm"]
        else declared.config.get("heads") or assumed(*_heads(width)),
    }
    fields |= rotary_of(shapes, swiglu, family.name) | family.config
    fields |= {name: fact.value for name, fact in declared.config.items() if name != "image_size"}
    fields |= {name: fact.value for name, fact in facts.items()}
    size = declared.config["image_size"].value if "image_size" in declared.config else None
    fields["image_size"] = _image_size(shapes, fields, size, "positions" in declared.config, source)
    if fields.get("rotary") == "perception" and "rotary_grid" not in fields:
        fields["rotary_grid"] = tuple(side // p for side, p in zip(fields["image_size"], patch, strict=True))
    return ModelConfig(**fields), facts


def rotary_of(shapes: Mapping[str, tuple[int, ...]], swiglu: bool, family: str) -> dict[str, Any]:
    """Config fields of rotary positions, which leave no tensor: other parts of timm's layout show their kind. Empty: none."""
    learned, scaled = "positions.table" in shapes, "blocks.0.scale1" in shapes
    class_token, registers = "tokens.class_token" in shapes, "tokens.registers" in shapes
    if "rotary.speeds" in shapes:
        return {"positions": "learned+rotary" if learned else "rotary", "rotary": "mixed"}
    if family in ("timm-eva", "eva") and swiglu and learned:
        return {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": _EVA_GRID}
    # CLIP's towers have a last norm; Perception Encoders have none, or pool with a query.
    if family == "timm-perception":
        return {"positions": "learned+rotary", "rotary": "perception"}
    if family == "timm-clip" and not {"norm.weight", "pool_norm.weight"} & shapes.keys():
        return {"positions": "learned+rotary", "rotary": "perception", "pool": "mean"}
    relative = any(".attention.relative." in name for name in shapes)
    if learned or relative or not scaled or not family.startswith("timm"):
        return {}
    if class_token:
        return {"positions": "rotary", "rotary": "dinov3" if registers else "axial"}
    return {"positions": "rotary", "rotary": "eva", "rotary_grid": _EVA_GRID} if registers else {}


def _fact(declared: Declared, name: str, usual: Any, why: str) -> Fact[Any]:
    return declared.config.get(name) or assumed(usual, why)


def _heads(width: int) -> tuple[int, str]:
    if width in _WIDE:
        return _WIDE[width], f"usual for width {width}"
    if width % _PER_HEAD == 0:
        return width // _PER_HEAD, "64 numbers per head"
    raise UsageError(
        f"the number of heads cannot be read from the file, and width {width} is not a usual one", "set it: load(…, heads=…) or --heads"
    )


def _image_size(
    shapes: dict[str, tuple[int, ...]], fields: dict[str, Any], declared: Any, positionless: bool, source: str
) -> tuple[int, int]:
    """From the number of positions: their grid times the patch; and which prefix tokens have a position."""
    patch = fields["patch_size"]
    requested = pair(declared) if declared else None
    if _RELATIVE in shapes and "positions.table" not in shapes:
        side = (math.isqrt(shapes[_RELATIVE][0] - 3) + 1) // 2
        return side * patch[0], side * patch[1]
    if "positions.table" not in shapes:
        if _RELATIVE_MLP in shapes:
            return requested or (_USUAL_SIZE["axial"], _USUAL_SIZE["axial"])
        if fields["positions"] == "rotary" and requested is None and (usual := _USUAL_SIZE.get(fields["rotary"])):
            return usual // patch[0] * patch[0], usual // patch[1] * patch[1]
        if fields["positions"] == "rotary" and requested is not None:
            return requested[0] // patch[0] * patch[0], requested[1] // patch[1] * patch[1]
        if not positionless or requested is None:
            # Rotary and fixed positions leave no key: without them the model would run, and be wrong.
            raise WeightsError(
                f"{source} has no learned positions",
                "it may have rotary ones, which leave no key: adopt the live module, or load a folder of ours",
            )
        return requested
    total = shapes["positions.table"][1]
    classes = int(fields["class_token"]) + int(fields["distillation_token"])
    options = {"class": classes, "all": classes + fields["registers"], "none": 0}
    if "prefix_positions" in fields:
        options = {fields["prefix_positions"]: options[fields["prefix_positions"]]}
    for name, prefix in options.items():
        side = math.isqrt(max(0, total - prefix))
        grid = (requested[0] // patch[0], requested[1] // patch[1]) if requested else None
        if grid and grid[0] * grid[1] == total - prefix and (grid[0] == grid[1] or side * side != total - prefix):
            fields["prefix_positions"] = name
            return grid[0] * patch[0], grid[1] * patch[1]
        if side and side * side == total - prefix:
            fields["prefix_positions"] = name
            return side * patch[0], side * patch[1]
    raise WeightsError(
        f"{source} has {total} positions, which make no square grid",
        "set the picture's size it was made for: load(…, image_size=(height, width))",
    )


def _resnet(tensors: Mapping[str, Tensor], declared: Declared, source: str) -> ModelConfig:
    stage = {name.split(".")[2] for name in tensors if name.startswith("network.layer3.")}
    kind = (len(stage), "network.layer1.0.conv3.weight" in tensors)
    if kind not in _RESNETS or "network.conv1.weight" not in tensors:
        raise WeightsError(f"{source} is a ResNet with {kind[0]} blocks in its third stage", f"known are {', '.join(_RESNETS.values())}")
    kernel = tensors["network.conv1.weight"]
    size = pair(declared.config["image_size"].value if "image_size" in declared.config else 224 if kernel.shape[-1] == 7 else 32)
    classes = tensors["network.fc.weight"].shape[0] if "network.fc.weight" in tensors else 0
    return ModelConfig(family=_RESNETS[kind], image_size=size, channels=kernel.shape[1], classes=classes)  # type: ignore[arg-type]
