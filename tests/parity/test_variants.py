"""Every kind of part that a family brings: watched, edited, looked into, shown larger pictures, exported and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from vitral.base.errors import VitralError
from vitral.build import create
from vitral.look.method import RECORDS
from vitral.look.switch_off import Off, edits_for
from vitral.model.tape import ATTENTION, Tape
from vitral.model.vit import ViT
from vitral.weights.export import export
from vitral.weights.resize import adapt

GATED: dict[str, Any] = {"activation": "swiglu", "mlp_width": 32}
VARIANTS: dict[str, dict[str, Any]] = {
    "vit": {},
    "deit": {"distillation_token": True},
    "clip": {"embedding_norm": True, "activation": "quick_gelu"},
    "dinov2": {"registers": 2, "layer_scale": 0.5, "pool": "class+mean", **GATED},
    "dinov3": {"positions": "rotary", "rotary": "dinov3", "registers": 2, "layer_scale": 0.5, "pool": "mean"},
    "rope-axial": {"positions": "rotary", "rotary": "axial"},
    "rope-mixed": {"positions": "learned+rotary", "rotary": "mixed"},
    "rope-plain": {"positions": "rotary", "class_token": False, "pool": "attention"},
    "eva02": {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": (4, 4), "sub_norm": "attention+mlp", "pool": "mean", **GATED},
    "eva02-enormous": {"norm_order": "res-post"},
    "post-norm": {"norm_order": "post"},
    "perception": {
        "positions": "learned+rotary",
        "rotary": "perception",
        "rotary_grid": (4, 4),
        "embedding_norm": True,
        "pool": "map",
        "pool_over": "tokens",
        "pool_heads": 3,
    },
    "siglip": {"pool": "map", "class_token": False, "activation": "gelu_tanh"},
    "aimv2": {"norm": "rms", "patch_norm": True, "class_token": False, "pool": "mean", "qkv_bias": False, **GATED},
    "beit": {"positions": "relative", "pool": "mean", "pool_norm": True, "final_norm": False, "layer_scale": 0.5},
    "data2vec": {"positions": "learned+relative", "sub_norm": "mlp", "pool": "mean"},
    "relpos": {"positions": "relative", "relative_mlp": 8, "class_token": False, "pool": "mean", "norm_order": "res-post"},
    "vit-22b": {"block": "parallel", "qk_norm": True, "norm": "rms"},
    "overlapping": {"stride": (4, 4), "positions": "sincos", "head_hidden": 12},
}
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
REFUSED = {
    "contributions": "has no parts that sum to its logit",
    "position_similarity": "so there are no position vectors to compare",
}
"""What a method says of a variant that it cannot look into."""
CHEAP = {"integrated_gradients": {"steps": 4}, "rise": {"masks": 8}}


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> ViT:
    return make(request.param)


def make(name: str) -> ViT:
    """Narrow, and every parameter away from its start value."""
    torch.manual_seed(0)
    made = create("tiny", **{"patch_size": 8, "classes": 5, "width": 24, "heads": 2, "mlp_width": 48} | VARIANTS[name]).eval()
    assert isinstance(made, ViT)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return made


def test_watched_and_edited(model: ViT) -> None:
    plain = model(IMAGES)
    watched = Tape(model, keep=[ATTENTION, *model.tape_names()])
    assert torch.allclose(model(IMAGES, tape=watched), plain, atol=1e-6), "what is read is not changed"
    assert all(watched[name].isfinite().all() for name in model.tape_names())
    for block in range(model.config.depth):
        rows = watched.attention(block)
        assert rows.shape == (2, 2, model.config.tokens, model.config.tokens)
        assert torch.allclose(rows.sum(-1), torch.ones(()), atol=1e-5)
    same = Tape(model, edits={name: lambda value, _: value.clone() for name in model.tape_names()})
    assert torch.allclose(model(IMAGES, tape=same), plain, atol=1e-5), "computed from the weights it is the same"
    for off in (Off(heads=((0, 1),)), Off(attention=(1,)), Off(mlp=(0,))):
        assert not torch.allclose(model(IMAGES, tape=Tape(model, edits=edits_for(off))), plain, atol=1e-5)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_looked_into(model: ViT, name: str) -> None:
    method = RECORDS[name]
    tape = vitral.watch(model, IMAGES, keep=[ATTENTION, "logits", "embedding", *model.map_names()], gradients=True)
    try:
        found = method.function(tape, 1, **{key: value for key, value in CHEAP.get(name, {}).items() if key in method.options})
    except VitralError as error:
        assert name in REFUSED and REFUSED[name] in str(error), error
        return
    numbers = [found.grid] if name in vitral.look.METHODS else list(found.numbers().values())
    assert all(np.isfinite(np.asarray(value, dtype=float)).all() for value in numbers)
    if name == "contributions":
        assert found.total == pytest.approx(found.logit, abs=1e-4), "the parts sum to the logit"


@pytest.mark.parametrize("name", VARIANTS)
def test_larger_pictures(name: str) -> None:
    model = make(name)
    larger = adapt(model, image_size=(48, 40))
    assert larger(torch.randn(1, 3, 48, 40)).isfinite().all()
    there_and_back = adapt(larger, image_size=32)
    if (not model.config.has_table and model.config.positions != "relative") or model.config.relative_mlp:
        assert torch.equal(there_and_back(IMAGES), model(IMAGES)), "angles and MLPs know every distance"


@pytest.mark.slow
def test_exported_with_its_attention(model: ViT, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = export(model, tmp_path, "onnx", attention=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    logits, *attention = session.run(None, {"images": IMAGES.numpy()})
    tape = Tape(model)
    with torch.no_grad():
        assert np.allclose(logits, model(IMAGES, tape=tape).numpy(), atol=1e-4)
    for block, weights in enumerate(attention):
        assert np.allclose(weights, tape.attention(block).numpy(), atol=1e-5)


@pytest.mark.slow
def test_compiled(model: ViT) -> None:
    torch._dynamo.reset()  # all variants share their code, and PyTorch counts how often it is compiled anew
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")  # one graph; what is made of it is the compiler's affair
        assert torch.allclose(compiled(IMAGES), model(IMAGES), atol=1e-4)
