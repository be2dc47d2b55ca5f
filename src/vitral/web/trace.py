"""A model, and one image in it, as plain numbers for the page. No HTTP, no cache."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.numbers import to_numpy
from vitral.base.picture import Picture
from vitral.draw.tiles import weights_to_grey
from vitral.look import filters, position_similarity
from vitral.look.distance import MEASURES
from vitral.look.method import RECORDS
from vitral.look.occlusion import grid_of
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Edit
from vitral.web.pack import CodingError, Packing, encode_rows, pack
from vitral.web.server.limits import Limits, Refusal

_MAP_METHODS = ("rollout", "gradient_rollout", "relevance", "gradcam", "occlusion")
_SHOWN_SIDE = 896
"""Pixels of the longer side of the picture that is sent for display."""
LISTED = 5
_LARGEST_POSITIONS = 1024


def describe(name: str, model: Classifier, verdicts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A model in words and numbers; `verdicts`: what an audit of it said of each method."""
    config, attention = model.config, model.config.is_transformer
    grid = grid_of(model)
    return {
        "name": name,
        "family": config.family,
        "attention": attention,
        "grid": list(grid),
        "prefix": prefix_names(model) if attention else [],
        "reads": reads(model),
        "depth": config.depth if attention else 0,
        "heads": config.heads if attention else 0,
        "overlap": attention and config.patch_stride != config.patch_size,
        "image": list(config.image_size),
        "channels": config.channels,
        "classes": config.classes,
        "names": list(model.origin.classes.value),
        "thresholds": list(model.origin.thresholds),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "assumptions": model.origin.assumptions(),
        "methods": [*(["attention"] if attention else []), *methods_of(model), "similarity"],
        "verdicts": dict(verdicts or {}),
    }


def prefix_names(model: Classifier) -> list[str]:
    config = model.config
    names = ["class token"] * config.class_token + ["distillation token"] * config.distillation_token
    return names + [f"register {index}" for index in range(config.prefix - len(names))]


def reads(model: Classifier) -> int:
    """The token that the head reads; -1: the mean of the patches (or all of them)."""
    return 0 if model.config.is_transformer and model.config.pool == "class" else -1


def methods_of(model: Classifier) -> list[str]:
    """The methods beside plain attention that this model allows."""
    return [name for name in _MAP_METHODS if RECORDS[name].supports(model)]


def pack_trace(model: Classifier, picture: Picture, limits: Limits, packing: Packing, edits: dict[str, Edit] | None = None) -> bytes:
    """One forward pass, with `edits` if any; each block's attention is measured, coded and let go as it passes."""
    config, attention = model.config, model.config.is_transformer
    tokens = config.tokens if attention else 0
    whole = attention and config.depth * config.heads * tokens * tokens <= limits.attention
    rows = [*range(tokens if whole else config.prefix if attention else 0), -1]
    coded: list[np.ndarray] = []
    argmax: list[np.ndarray] = []
    measured: dict[str, list[Any]] = {name: [] for name in MEASURES}
    error = CodingError()

    def read(value: torch.Tensor, _: str) -> None:
        for name, measure in MEASURES.items():
            measured[name].append([round(float(number), 4) for number in measure(value, config)[0]])
        weights = to_numpy(value[0].float())  # (heads, T, T)
        mean = weights[:, config.prefix :].mean(axis=1, keepdims=True)
        stored = np.concatenate([weights[:, : len(rows) - 1], mean], axis=1)
        argmax.append(maxima(stored, config.prefix))
        codes = encode_rows(stored, packing.levels)
        error.add(stored, codes, packing.levels)
        coded.append(codes)

    tape = watch(model, picture, keep=["logits"], edits=edits, readers={ATTENTION: read} if attention else None)
    logits = to_numpy(tape.logits[0].float()) if config.classes else np.zeros(0, np.float32)
    if not np.isfinite(logits).all():
        raise Refusal(422, "the model's output for this picture is not finite", "are its weights damaged?")
    shown, kind = shown_picture(picture)
    header = {
        "grid": list(config.grid if attention else grid_of(model)),
        "prefix": config.prefix if attention else 0,
        "tokens": tokens,
        "rows": rows,
        "whole": bool(whole),
        "levels": packing.levels,
        "error": {"worst": round(error.worst, 5), "total_variation": round(error.total_variation, 5)},
        "kind": kind,
        "measures": measured if attention else {},
        "reference": {"entropy": float(np.log2(tokens)) if attention else 0},
    }
    sections: dict[str, np.ndarray | bytes] = {"logits": logits, "picture": shown}
    if attention:
        sections["attention"] = np.stack(coded)  # (L, heads, rows, T)
        sections["argmax"] = np.stack(argmax)  # (L, heads + 1, rows, 4)
    return pack(header, sections, packing.compression)


def maxima(weights: np.ndarray, prefix: int) -> np.ndarray:
    """(heads, rows, T) → (heads + 1, rows, 4): the token and the patch that get most, each with its share × 65535; last the heads' mean.

    Decided here, because codes have ties, and the live and the exported page must say the same.
    """
    weights = np.concatenate([weights, weights.mean(axis=0, keepdims=True)])
    token = weights.argmax(axis=-1)
    patch = prefix + weights[..., prefix:].argmax(axis=-1)
    shares = [np.take_along_axis(weights, best[..., None], axis=-1)[..., 0] for best in (token, patch)]
    codes = [np.rint(share.clip(0, 1) * 65535) for share in shares]
    return np.stack([token, codes[0], patch, codes[1]], axis=-1).astype(np.uint16)


def shown_picture(picture: Picture, side: int = _SHOWN_SIDE) -> tuple[bytes, str]:
    """The part of the original that the model sees, small enough to send: at most `side` pixels wide and high."""
    box = picture.box
    corners = (round(box.left), round(box.top), max(round(box.left) + 1, round(box.right)), max(round(box.top) + 1, round(box.bottom)))
    part = picture.original.crop(corners).convert("RGB")
    scale = side / max(part.size)
    if scale < 1:
        part = part.resize((max(1, round(part.width * scale)), max(1, round(part.height * scale))), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    if max(part.size) <= 64:
        part.save(out, "PNG")
        return out.getvalue(), "image/png"
    part.save(out, "JPEG", quality=88)
    return out.getvalue(), "image/jpeg"


def thumbnail(image: Image.Image, side: int = 48) -> str:
    """The middle square of an image, small, as an address."""
    left, top = (max(0, size - min(image.size)) / 2 for size in image.size)
    box = (left, top, image.width - left, image.height - top)
    out = io.BytesIO()
    image.resize((side, side), Image.Resampling.BILINEAR, box, reducing_gap=2.0).convert("RGB").save(out, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def probabilities(logits: np.ndarray, multi_label: bool = False) -> np.ndarray:
    """Probabilities, of several labels each on its own; the number itself where there is only one output."""
    if multi_label:
        return 1 / (1 + np.exp(-logits))
    if logits.size == 1:
        return logits
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def pack_figures(model: Classifier, compression: int) -> bytes:
    """The model's own figures, which depend on no image: filters (n, ph, pw, 3) and similarity of the positions (N, N), eight bits each."""
    first = filters(model, count=28)
    shown = first.shown if first.shown.ndim == 4 else first.shown[..., None].repeat(3, axis=-1)  # (n, ph, pw, 3)
    header: dict[str, Any] = {
        "filters": {
            "explained": None if first.explained is None else [round(float(share), 5) for share in first.explained],
            "title": first.title,
        }
    }
    sections: dict[str, np.ndarray | bytes] = {"filters": weights_to_grey(shown)}
    try:
        similarity = position_similarity(model)
        rows, columns = similarity.values.shape[:2]
        if rows * columns > _LARGEST_POSITIONS:
            raise UsageError(f"{rows * columns} positions are too many to draw at once", "vitral figures draws them")
        sections["positions"] = np.rint(similarity.values.reshape(rows * columns, -1) * 127).astype(np.int8)
        header["positions"] = {"grid": [rows, columns], "finding": similarity.finding}
    except UsageError as error:
        header["positions"] = {"reason": error.message}
    return pack(header, sections, compression)


def rounded(grid: np.ndarray, digits: int = 5) -> list[list[float]]:
    """Numbers with five significant digits of the largest: enough for any screen, a third of the bytes."""
    top = float(np.abs(grid).max())
    decimals = digits - 1 - int(np.floor(np.log10(top))) if top > 0 else 0
    return np.round(grid, min(max(decimals, 0), 300)).tolist()


def clean_name(name: str) -> str:
    """A name that is safe to show: printable, short."""
    return "".join(character for character in name if character.isprintable())[:80] or "picture"


def model_names(sources: Iterable[str]) -> list[str]:
    """What the models are called on the page: `timm:NAME` as it is, of a path only its last part; never the same twice."""
    names: list[str] = []
    for source in sources:
        short = source if re.match(r"[a-z]{2,}:", source) else re.sub(r"\.(safetensors|pth|pt|npz|bin)$", "", Path(source).resolve().name)
        names.append(short if short not in names else f"{short} (again)")
    return names
