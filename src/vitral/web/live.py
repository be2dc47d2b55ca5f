"""The explorer as one file that holds the model and runs it: any picture dropped on the page, offline, without a server.

Weights of linear layers are rounded to eight bits, one scale per output; everything else stays as it is, and so do activations. What
the browser needs beyond them (positions, angles) is computed here, so that `static/in_browser/engine.js` has no kinds of positions.
`SUPPORTED` lists each part of a model that the engine has: a model with any other is refused by name, so that no page computes
something else.
The page carries the logits of a fixed input as Python has them, and compares its own when it opens.
"""

from __future__ import annotations

import copy
import dataclasses
import io
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from vitral.base.errors import UsageError
from vitral.base.files import write_atomic
from vitral.base.numbers import to_numpy
from vitral.base.picture import Picture
from vitral.base.progress import track
from vitral.config import ModelConfig
from vitral.data.images.preprocess import Preprocess
from vitral.look.choice import start_index
from vitral.look.method import RECORDS
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.rotary import RotaryPositions
from vitral.model.vit import ViT
from vitral.web.answers import CLASSES, Question
from vitral.web.export import page
from vitral.web.kernel import kernel
from vitral.web.pack import EXPORTED, pack
from vitral.web.session import Session
from vitral.web.story import shuffled_order
from vitral.web.trace import methods_of, probabilities
from vitral.weights.onnx.rounding import round_weights

METHODS = ("attention", "rollout", "occlusion", "similarity")
"""What a page can compute without gradients."""
_STORED_SIDE = 1024
"""Pixels of the longer side of a picture that the page brings along."""
_PLAIN_SIDE = 256
"""Up to here it is a PNG, above a WebP, both without loss."""

LARGEST = 350_000_000
"""Parameters of a model that a browser can be given: its longest text is half a billion signs."""

_ANY = "any"
SUPPORTED: dict[str, str | tuple[Any, ...]] = {
    "family": ("vit",),
    "image_size": _ANY,
    "patch_size": _ANY,
    "stride": _ANY,
    "channels": (1, 3),
    "classes": _ANY,
    "width": _ANY,
    "depth": _ANY,
    "heads": _ANY,
    "mlp_width": _ANY,
    "pool": ("class", "mean", "class+mean", "attention", "map"),
    "pool_over": ("patches", "tokens"),
    "pool_heads": _ANY,
    "pool_mlp_width": _ANY,
    "class_token": _ANY,
    "distillation_token": _ANY,
    "registers": _ANY,
    "positions": ("learned", "sincos", "rotary", "learned+rotary", "relative", "learned+relative", "none"),
    "relative_mlp": (0,),
    "rotary": ("plain", "axial", "mixed", "eva", "perception", "dinov3"),
    "rotary_grid": _ANY,
    "prefix_positions": _ANY,
    "norm": ("layer", "rms"),
    "norm_epsilon": _ANY,
    "block": ("sequential", "parallel"),
    "norm_order": ("pre", "post", "res-post"),
    "sub_norm": ("none", "mlp", "attention+mlp"),
    "patch_norm": _ANY,
    "embedding_norm": _ANY,
    "final_norm": _ANY,
    "pool_norm": _ANY,
    "qk_norm": _ANY,
    "layer_scale": _ANY,
    "activation": ("gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu"),
    "qkv_bias": _ANY,
    "bias": _ANY,
    "patch_bias": _ANY,
    "head_bias": _ANY,
    "head_hidden": _ANY,
    # Nothing of these is left when a model answers:
    "dropout": _ANY,
    "attention_dropout": _ANY,
    "drop_path": _ANY,
    "initialisation": _ANY,
    "gradient_checkpointing": _ANY,
}
"""Every field of a ModelConfig, with the values that static/in_browser/engine.js knows; what is not named here must have its default."""


def export_live(session: Session, path: str | Path) -> Path:
    """Write a page with all models and given pictures of a session to `path`."""
    for name, model in zip(session.names, session.models, strict=True):
        check(name, model)
    same = Session({name: rounded(model) for name, model in zip(session.names, session.models, strict=True)})
    description = session.description() | {"mode": "in-browser", "pictures": []}
    blobs: dict[str, bytes] = {"kernel": pack({}, {"kernel": kernel()}, EXPORTED.compression)}
    for index, model in track(list(enumerate(session.models)), "Rounding weights"):
        blobs[f"model-{index}"] = pack_model(model, session.limits.attention)
        facts = description["models"][index]
        facts |= {"methods": [method for method in facts["methods"] if method in METHODS], "film": [], "carried": {}}
        blobs[f"models/{index}/figures"] = same.figures(index, EXPORTED)
    changes: list[tuple[bool, float]] = []
    for entry in track(session.initial, "Computing gradient maps"):
        content, kind = stored(session.picture(0, entry["picture"]).original)
        key = same.add_initial(content, entry["name"])
        blobs[f"picture-{key}"] = content
        description["pictures"].append(entry | {"picture": key, "kind": kind})
        for index, model in enumerate(session.models):
            if model.config.classes:
                gradients = [method for method in methods_of(model) if RECORDS[method].gradients]  # the page computes none
                before, after = session.picture(index, entry["picture"]), same.picture(index, key)
                answers = [_probabilities_of(model, before), _probabilities_of(same.models[index], after)]
                top = [int(target) for target in np.argsort(-answers[1])[:CLASSES]]
                description["models"][index]["carried"][key] = dict.fromkeys(gradients, top)
                for method, target in product(gradients, top):
                    address = Question("map", index, key, method, target).address
                    blobs[address] = same.answer("map", index, key, method=method, target=target, packing=EXPORTED)
                changes += [rounding_change(*answers)] if model.config.classes > 1 else []
    if changes:
        moved, most = zip(*changes, strict=True)
        description["rounding"] = {"answers": len(changes), "changed": sum(moved), "most": max(most)}
    return write_atomic(path, page(description, blobs))


def _probabilities_of(model: Classifier, picture: Picture) -> np.ndarray:
    return probabilities(to_numpy(watch(model, picture, keep=["logits"]).logits[0].float()), model.origin.multi_label)


def rounding_change(before: np.ndarray, after: np.ndarray) -> tuple[bool, float]:
    """Whether rounding changes the first class of a picture, and the largest change of a probability."""
    return bool(before.argmax() != after.argmax()), round(float(np.abs(after - before).max()), 5)


def check(name: str, model: Classifier) -> None:
    """Refuse what the engine does not know, by name."""
    config, default = model.config, ModelConfig()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if (supported := SUPPORTED.get(field.name, (getattr(default, field.name),))) != _ANY and value not in supported:
            can = " or ".join(map(str, supported))
            raise UsageError(f"{name}: a live page cannot run a model with {field.name} = {value}", f"it runs {can}; leave --live out")
    if (count := sum(parameter.numel() for parameter in model.parameters())) > LARGEST:
        raise UsageError(f"{name} has {count:,} parameters, too many for a file", f"up to {LARGEST:,}; leave --live out")


def rounded(model: Classifier) -> ViT:
    """A copy whose linear layers have the weights that the page will have: what the browser is to be compared with."""
    model = copy.deepcopy(model).float().cpu().eval()
    assert isinstance(model, ViT)
    for _, layer in layers(model):
        codes, scales = _codes_of(layer)
        layer.weight.data = torch.from_numpy(codes * scales[:, None]).view_as(layer.weight)
    return model


def _codes_of(layer: nn.Linear | nn.Conv2d) -> tuple[np.ndarray, np.ndarray]:
    """Eight-bit codes (outputs, inputs) and one scale an output."""
    return round_weights(to_numpy(layer.weight.float().flatten(1)), axis=0)


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear | nn.Conv2d]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            yield name, module


def pack_model(whole: Classifier, attention: int) -> bytes:
    """A model as the page holds it; `attention`: so many weights may be kept of one pass."""
    model, config = rounded(whole), whole.config
    sections: dict[str, np.ndarray | bytes] = {}
    for name, layer in layers(whole):
        sections[f"{name}.weight"], sections[f"{name}.scale"] = _codes_of(layer)
    for name, parameter in model.named_parameters():
        # Tokens, the table of positions and learned angles go into what is computed of them.
        if name not in sections and not name.startswith(("tokens.", "positions.", "rotary.")):
            sections[name] = to_numpy(parameter.float())
    sections["start"] = _start(model)
    if model.rotary is not None:
        angles = model.rotary()
        sections |= {"cosine": to_numpy(angles.cosine.float()), "sine": to_numpy(angles.sine.float())}
    if config.is_relative:
        sections["relative"] = to_numpy(model.blocks[0].attention.relative.index).astype(np.float32)  # type: ignore[union-attr]
    tape = watch(model, probe(config)[None], keep=["logits"])
    token, note = start_index(tape, "class")
    header = {
        "config": dataclasses.asdict(config) | {"grid": config.grid, "tokens": config.tokens, "prefix": config.prefix},
        "preprocess": dataclasses.asdict(Preprocess.of(model)),
        "neighbours": (isinstance(model.rotary, RotaryPositions) and model.rotary.neighbours) or config.rotary == "mixed",
        "attention": attention,
        "order": shuffled_order(config.grid[0] * config.grid[1]),
        "rollout": {"token": -1 if token is None else token, "note": note},
        "proof": {"logits": [float(value) for value in tape.logits[0]]},
    }
    return pack(header, sections, EXPORTED.compression)


def probe(config: ModelConfig) -> torch.Tensor:
    """The input of the proof (C, H, W): waves, the same here and in static/in_browser/model.js."""
    index = np.arange(config.channels * config.image_size[0] * config.image_size[1], dtype=np.float64)
    return torch.from_numpy((np.sin(index * 0.37) + np.sin(index * 0.011)).astype(np.float32)).view(config.channels, *config.image_size)


def stored(image: Image.Image) -> tuple[bytes, str]:
    """A picture as the page brings it along: no larger than it is of use, its pixels alone, and exact (JPEG moves probabilities)."""
    scale = _STORED_SIDE / max(image.size)
    if scale < 1:
        image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.LANCZOS)
    kind, options = ("PNG", {}) if max(image.size) <= _PLAIN_SIDE else ("WEBP", {"lossless": True})
    out = io.BytesIO()
    Image.fromarray(np.asarray(image)).save(out, kind, **options)
    return out.getvalue(), f"image/{kind.lower()}"


def _start(model: ViT) -> np.ndarray:
    """(T, D): what each token is before its patch is added: learned tokens, and positions where they are vectors."""
    with torch.no_grad():
        tokens = model.tokens(torch.zeros(1, model.config.grid[0] * model.config.grid[1], model.config.width))
        return to_numpy(model.positions(tokens)[0].float())
