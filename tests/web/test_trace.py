from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch

from vitral.build import create
from vitral.look import distance, entropy, watch
from vitral.web.pack import LIVE_LEVELS, decode_rows, unpack
from vitral.web.server.limits import Limits
from vitral.web.session import Session
from vitral.web.trace import clean_name, compare, describe, methods_of, model_figures, model_names, pack_trace, prefix_names, rounded


def test_a_trace_holds_the_attention_of_watch(session: Session, key: str) -> None:
    picture = session.picture(0, key)
    header, sections = unpack(session.trace(0, key))
    tape = watch(session.models[0], picture)
    codes = sections["attention"]
    assert isinstance(codes, np.ndarray)
    assert codes.shape == (2, 3, 67, 66), "blocks, heads, tokens and the mean of the patches, tokens"
    decoded = decode_rows(codes, LIVE_LEVELS)
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
    header, sections = unpack(pack_trace(session.models[0], session.picture(0, key), Limits(attention=1000), 255, 1))
    assert header["rows"] == [0, 1, -1]
    assert not header["whole"]
    codes = sections["attention"]
    assert isinstance(codes, np.ndarray)
    _, whole = unpack(session.trace(0, key))
    np.testing.assert_array_equal(codes, np.asarray(whole["attention"])[:, :, [0, 1, -1]])


def test_a_rival_has_no_attention(session: Session, key: str) -> None:
    header, sections = unpack(session.trace(1, key))
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
    picture = own.give(session._given_bytes[key], "one.png")
    (facts,) = own.description()["models"]
    assert (facts["overlap"], facts["grid"], facts["prefix"], facts["reads"]) == (True, [8, 8], [], -1)
    header, sections = unpack(own.trace(0, picture))
    assert header["rows"][-1] == -1 and sections["attention"].shape == (2, 3, 65, 64)
    for method in facts["methods"][1:-1]:  # attention and similarity are the page's own
        assert np.shape(own.map(0, picture, method)["grid"]) == (8, 8)
    assert "no class token" in own.map(0, picture, "rollout")["note"]
    cut = own.surgery(0, picture, heads=[(0, 1)], patches=[63])
    assert np.shape(cut["difference"]) == (8, 8) and cut["rows"]
    assert own.figures(0)["positions"] == {"reason": "this vit has rotary positions, so there are no position vectors to compare"}


def test_a_model_without_a_head_keeps_what_needs_none() -> None:
    assert methods_of(create("tiny", classes=0)) == ["rollout"]


def test_figures(session: Session) -> None:
    figures = model_figures(session.models[0])
    count, rows, columns = figures["filters"]["shape"]
    assert len(base64.b64decode(figures["filters"]["pixels"])) == count * rows * columns * 3
    values = np.frombuffer(base64.b64decode(figures["positions"]["values"]), np.int8).reshape(64, 64)
    np.testing.assert_array_equal(values.diagonal(), 127)
    assert "reason" in model_figures(session.models[1])["positions"]
    assert model_figures(create("tiny", positions="none"))["positions"]["reason"].startswith("this vit has no positions")


def test_grey_filters_become_colours() -> None:
    torch.manual_seed(0)
    assert model_figures(create("digits"))["filters"]["shape"][1:] == [2, 2]


def test_compare_names_the_classes_that_matter() -> None:
    before, after = np.array([3.0, 1, 0, 0, 0, 0, 0, -5]), np.array([0, 1.0, 0, 0, 0, 0, 4, -5])
    result = compare(before, after, np.zeros((2, 2)), np.ones((2, 2)), "rollout", 7)
    assert result["top"] == [0, 6]
    listed = [row[0] for row in result["rows"]]
    assert {0, 1, 6, 7} <= set(listed)
    assert len(listed) == len(set(listed))
    assert result["difference"] == [[1.0, 1.0], [1.0, 1.0]]


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
    packed = [np.asarray(unpack(session.trace(0, key, levels))[1]["most"]) for levels in (255, 3)]
    np.testing.assert_array_equal(*packed)
    for block in range(2):
        truth = tape.attention(block)[0].numpy()
        truth = np.concatenate([truth, truth.mean(axis=0, keepdims=True)])
        most = packed[0][block][:, :-1]
        np.testing.assert_allclose(most[..., 1] / 65535, truth.max(axis=-1), atol=2e-5)
        np.testing.assert_allclose(most[..., 3] / 65535, truth[..., 2:].max(axis=-1), atol=2e-5)
        np.testing.assert_allclose(np.take_along_axis(truth, most[..., :1].astype(int), -1)[..., 0], truth.max(axis=-1), atol=1e-6)
        np.testing.assert_allclose(
            np.take_along_axis(truth, most[..., 2:3].astype(int), -1)[..., 0], truth[..., 2:].max(axis=-1), atol=1e-6
        )
