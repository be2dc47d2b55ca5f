from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from vitral.build import create
from vitral.look import distance, entropy, watch
from vitral.web.answers import parse_off
from vitral.web.pack import SERVED, Packing, decode_rows, unpack
from vitral.web.server.limits import Limits
from vitral.web.session import Session
from vitral.web.trace import clean_name, describe, methods_of, model_names, pack_figures, pack_trace, prefix_names, rounded

from .conftest import heat, shares


def test_a_trace_holds_the_attention_of_watch(session: Session, key: str) -> None:
    picture = session.picture(0, key)
    header, sections = unpack(session.answer("trace", 0, key))
    tape = watch(session.models[0], picture)
    codes = sections["attention"]
    assert isinstance(codes, np.ndarray)
    assert codes.shape == (2, 3, 67, 66), "blocks, heads, tokens and the mean of the patches, tokens"
    decoded = decode_rows(codes, SERVED.levels)
    for block in range(2):
        truth = tape.attention(block)[0].numpy()
        top = truth.max(axis=-1, keepdims=True)
        assert (np.abs(decoded[block][:, :-1] - truth) / top).max() <= header["error"]["worst"] + 1e-4 < 0.01
        np.testing.assert_allclose(decoded[block][:, -1], truth[:, 2:].mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(sections["logits"], tape.logits[0].numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(header["measures"]["distance"], distance(tape).values, atol=1e-3)
    np.testing.assert_allclose(header["measures"]["entropy"], entropy(tape).values, atol=1e-3)
    assert header["rows"] == [*range(66), -1]
    assert header["prefix"] == 2


def test_a_model_with_too_many_tokens_sends_its_prefix_only(session: Session, key: str) -> None:
    header, sections = unpack(pack_trace(session.models[0], session.picture(0, key), Limits(attention=1000), SERVED))
    assert header["rows"] == [0, 1, -1]
    assert not header["whole"]
    codes = sections["attention"]
    assert isinstance(codes, np.ndarray)
    _, whole = unpack(session.answer("trace", 0, key))
    np.testing.assert_array_equal(codes, np.asarray(whole["attention"])[:, :, [0, 1, -1]])


def test_a_rival_has_no_attention(session: Session, key: str) -> None:
    header, sections = unpack(session.answer("trace", 1, key))
    assert "attention" not in sections
    assert header["grid"] == [14, 14]
    assert describe("cnn", session.models[1])["methods"] == ["gradcam", "occlusion", "similarity"]


def test_a_description_is_json_and_complete(session: Session) -> None:
    facts = json.loads(json.dumps(describe("tiny", session.models[0])))
    assert facts["prefix"] == ["class token", "register 0"]
    assert facts["methods"] == ["attention", "rollout", "gradient_rollout", "relevance", "gradcam", "occlusion", "similarity"]
    assert facts["reads"] == 0
    assert facts["grid"] == [8, 8] and facts["overlap"] is False


@pytest.mark.parametrize(
    ("changes", "names", "reads"),
    [
        ({"pool": "mean", "class_token": False}, [], -1),
        ({"distillation_token": True, "registers": 2}, ["class token", "distillation token", "register 0", "register 1"], 0),
    ],
)
def test_tokens_before_the_patches(changes: dict, names: list[str], reads: int) -> None:
    facts = describe("x", create("tiny", **changes))
    assert (facts["prefix"], facts["reads"]) == (names, reads)
    assert prefix_names(create("tiny", **changes)) == names


def test_the_modern_small_vit(session: Session, key: str) -> None:
    """The architecture of the `cifar10` run: what it lacks is said, what it has is there."""
    changes = {"norm": "rms", "positions": "rotary", "qk_norm": True, "qkv_bias": False, "pool": "mean", "class_token": False}
    model = create("tiny", image_size=(16, 16), patch_size=(4, 4), stride=(2, 2), width=24, heads=3, **changes)
    own = Session({"modern": model}, session.limits)
    picture = own.add_initial(session.content(key), "one.png")
    (facts,) = own.description()["models"]
    assert (facts["overlap"], facts["grid"], facts["prefix"], facts["reads"]) == (True, [8, 8], [], -1)
    header, sections = unpack(own.answer("trace", 0, picture))
    assert header["rows"][-1] == -1 and sections["attention"].shape == (2, 3, 65, 64)
    for method in facts["methods"][1:-1]:  # attention and similarity are the page's own
        assert heat(own.answer("map", 0, picture, method=method)).shape == (8, 8)
    assert "no class token" in unpack(own.answer("map", 0, picture, method="rollout"))[0]["note"]
    off = parse_off("h0.1,p63")
    assert heat(own.answer("map", 0, picture, method="rollout", off=off)).shape == (8, 8)
    assert not np.array_equal(shares(own, picture, off), shares(own, picture))
    assert unpack(own.figures(0))[0]["positions"] == {
        "reason": "this vit has rotary positions, so there are no position vectors to compare"
    }


def test_a_model_without_a_head_keeps_what_needs_none() -> None:
    assert methods_of(create("tiny", classes=0)) == ["rollout"]


def test_figures(session: Session) -> None:
    header, sections = unpack(session.figures(0))
    assert sections["filters"].shape[1:] == (4, 4, 3)
    assert header["positions"]["grid"] == [8, 8] and sections["positions"].shape == (64, 64)
    np.testing.assert_array_equal(np.asarray(sections["positions"]).diagonal(), 127)
    assert "reason" in unpack(session.figures(1))[0]["positions"]
    header, _ = unpack(pack_figures(create("tiny", positions="none"), 1))
    assert header["positions"]["reason"].startswith("this vit has no positions")


def test_grey_filters_become_colours() -> None:
    torch.manual_seed(0)
    assert unpack(pack_figures(create("digits"), 1))[1]["filters"].shape[1:] == (2, 2, 3)


def test_rounding_keeps_significant_digits() -> None:
    assert rounded(np.array([[1.23456789e-7, 0.0]]), 3) == [[1.23e-7, 0.0]]
    assert rounded(np.array([[123456.789]]), 3) == [[123457.0]]
    assert rounded(np.zeros((1, 2))) == [[0.0, 0.0]]


def test_names_are_safe_to_show() -> None:
    assert clean_name("a\x00b\nc") == "abc"
    assert clean_name("\x1b") == "picture"
    assert len(clean_name("x" * 500)) == 80


def test_models_are_called_by_name_not_by_path() -> None:
    given = ["/home/ada/secret/runs/flowers/", "../weights/vit_tiny.safetensors", "timm:vit_base", "hf:google/vit", "/other/flowers"]
    assert model_names(given) == ["flowers", "vit_tiny", "timm:vit_base", "hf:google/vit", "flowers (again)"]


def test_the_maxima_are_those_of_the_model_whatever_the_levels(session: Session, key: str) -> None:
    """Few levels make ties; which token gets most is decided before."""
    tape = watch(session.models[0], session.picture(0, key))
    packed = [np.asarray(unpack(session.answer("trace", 0, key, packing=Packing(levels, 1)))[1]["argmax"]) for levels in (255, 3)]
    np.testing.assert_array_equal(*packed)
    for block in range(2):
        truth = tape.attention(block)[0].numpy()
        truth = np.concatenate([truth, truth.mean(axis=0, keepdims=True)])
        argmax = packed[0][block][:, :-1]
        np.testing.assert_allclose(argmax[..., 1] / 65535, truth.max(axis=-1), atol=2e-5)
        np.testing.assert_allclose(argmax[..., 3] / 65535, truth[..., 2:].max(axis=-1), atol=2e-5)
        np.testing.assert_allclose(np.take_along_axis(truth, argmax[..., :1].astype(int), -1)[..., 0], truth.max(axis=-1), atol=1e-6)
        np.testing.assert_allclose(
            np.take_along_axis(truth, argmax[..., 2:3].astype(int), -1)[..., 0], truth[..., 2:].max(axis=-1), atol=1e-6
        )
