"""Rotary positions leave no tensor: which kind a file of timm's layout has, by the family that its other parts give away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRETRAINED_GRID = (16, 16)
"""The patches of EVA-02's pre-training (224 pixels, patches of 14), which timm's own rotary ViTs took over."""


def rotary_of(shapes: Mapping[str, tuple[int, ...]], swiglu: bool, family: str) -> dict[str, Any]:
    """Fields of the config; empty where nothing turns, or nothing tells."""
    learned, scaled = "positions.table" in shapes, "blocks.0.scale1" in shapes
    class_token, registers = "tokens.class_token" in shapes, "tokens.registers" in shapes
    if "rotary.speeds" in shapes:
        return {"positions": "learned+rotary" if learned else "rotary", "rotary": "mixed"}
    if family in ("timm-eva", "eva") and swiglu and learned:
        return {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": PRETRAINED_GRID}
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
    return {"positions": "rotary", "rotary": "eva", "rotary_grid": PRETRAINED_GRID} if registers else {}


USUAL_SIZE = {"dinov3": 256, "eva": 256, "axial": 224, "mixed": 224}
"""Pixels a side of timm's models whose tensors tell no size; any other does as well."""
