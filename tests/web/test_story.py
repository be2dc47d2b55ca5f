"""The numbers of the story against the model itself: recomputed from what the page gets, compared with what the tape recorded."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from vitral.base.progress import watched
from vitral.build import create
from vitral.data.images.preprocess import open_picture
from vitral.look import lens, watch
from vitral.look.distance import distances, mean_distance
from vitral.look.switch_off import without_patches
from vitral.model.classifier import Classifier
from vitral.web.pack import unpack
from vitral.web.server.limits import Refusal
from vitral.web.session import Session
from vitral.web.story import DRAWS, PATTERNS, SHORT, measure_story, shorten

from .conftest import png, sharp

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"registers": 1},
    "digits": {},
    "mean": {"pool": "mean", "class_token": False, "positions": "rotary", "qk_norm": True, "norm": "rms", "qkv_bias": False},
    "overlap": {"pool": "mean", "class_token": False, "image_size": (16, 16), "patch_size": (4, 4), "stride": (2, 2)},
    "relative": {"positions": "learned+relative", "embedding_norm": True},
    "none": {"positions": "none", "pool": "class+mean", "heads": 6, "width": 48},
    "sincos": {"positions": "sincos", "distillation_token": True},
    "hybrid": {},
    "headless": {"classes": 0},
    "number": {"classes": 1},
}


def make(name: str) -> Classifier:
    torch.manual_seed(0)
    model = create(name if name in ("digits", "hybrid") else "tiny", **SHAPES[name])
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("relative.table"):
                parameter.normal_()
    return sharp(model).eval()  # type: ignore[return-value]


def measured(name: str) -> tuple[Classifier, Any, dict[str, Any], dict[str, Any]]:
    model = make(name)
    picture = open_picture(Image.open(io.BytesIO(png(3, (64, 64)))), model)
    return model, picture, *measure_story(model, picture)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "hybrid"])
def test_scores_shares_and_mix_are_those_of_the_model(name: str) -> None:
    model, picture, header, sections = measured(name)
    names = [f"blocks.0.attention.{part}" for part in ("query", "key", "value", "weights", "heads")]
    tape = watch(model, picture, keep=names)
    query, key, value, weights, mixed = (tape[each][0, header["heads"]].numpy() for each in names)
    for mine, its in ((sections["query"], query), (sections["key"], key), (sections["value"], value)):
        np.testing.assert_allclose(mine, its, rtol=2**-12)
    scores = sections["query"] @ sections["key"].transpose(0, 2, 1) / np.sqrt(header["head_width"]) + sections.get("bias", 0)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, weights, atol=2e-3)
    np.testing.assert_allclose(shares @ sections["value"], mixed, atol=5e-3 * np.abs(mixed).max())
    assert ("bias" in sections) == (name == "relative")
    assert shares.shape[1:] == (header["tokens"], header["tokens"])


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "hybrid"])
def test_a_vector_is_the_patch_against_patterns_and_a_token_has_its_position(name: str) -> None:
    model, picture, header, sections = measured(name)
    tape = watch(model, picture, keep=["patches", "embedding"])
    np.testing.assert_allclose(sections["patches"], tape["patches"][0].numpy(), rtol=2**-12)
    rows, columns = header["grid"]
    assert sections["patches"].shape == (rows * columns, header["width"])
    assert len(header["numbers"]) == min(PATTERNS, header["width"])
    height, width = header["patch"]
    assert len(sections["patterns"]) == len(header["numbers"]) * height * width * 3
    if name != "overlap":  # number = pixels · pattern + bias, written out
        patch, number = header["patch_start"], header["numbers"][0]
        top, left = patch // columns * height, patch % columns * width
        pixels = picture.tensor[:, top : top + height, left : left + width]
        projection = model.patches.projection
        bias = 0.0 if projection.bias is None else projection.bias[number].item()
        expected = (pixels * projection.weight[number]).sum().item() + bias
        assert sections["patches"][patch, number] == pytest.approx(expected, rel=1e-3, abs=1e-5)
    if header["positions_norm"] or "positions" not in sections:
        assert header["positions"] in ("rotary", "none") or header["positions_norm"]
        return
    token = sections["patches"] + sections["positions"]
    np.testing.assert_allclose(token, tape["embedding"][0, header["prefix"] :].numpy(), atol=1e-3)


@pytest.mark.parametrize("name", ["tiny", "mean", "sincos", "none", "number", "headless", "hybrid"])
def test_the_answer_at_every_depth_is_the_lens(name: str) -> None:
    model, picture, header, _ = measured(name)
    if name == "headless":
        assert header["depth"] == [] and header["top_patch_ablation"] is None and header["shuffle"]["answer"] == []
        return
    read = lens(watch(model, picture, keep=["logits"]))
    assert len(header["depth"]) == model.config.depth + 1
    for mine, its in zip(header["depth"], read.probabilities, strict=True):
        for index, share in mine:
            assert share == pytest.approx(its[index], abs=2e-5)
        assert mine[0][0] == its.argmax()
    assert header["reads"] == model.config.pool


def test_shuffled_patches_mean_nothing_to_a_model_without_positions() -> None:
    for name, same in (("none", True), ("tiny", False), ("mean", False)):
        _, _, header, _ = measured(name)
        assert sorted(header["shuffle"]["order"]) == list(range(header["grid"][0] * header["grid"][1]))
        pairs = zip(header["depth"][-1], header["shuffle"]["answer"], strict=True)
        assert all(a[0] == b[0] and abs(a[1] - b[1]) < 1e-4 for a, b in pairs) == same


def test_the_shuffled_answer_is_that_of_the_shuffled_picture() -> None:
    model, picture, header, _ = measured("tiny")
    columns = header["grid"][1]
    height, width = header["patch"]
    image = picture.tensor.clone()
    for place, patch in enumerate(header["shuffle"]["order"]):
        (top, left), (y, x) = divmod(place, columns), divmod(patch, columns)
        source = picture.tensor[:, y * height : (y + 1) * height, x * width : (x + 1) * width]
        image[:, top * height : (top + 1) * height, left * width : (left + 1) * width] = source
    shares = watch(model, image).logits[0].softmax(dim=0)
    for index, share in header["shuffle"]["answer"]:
        assert share == pytest.approx(float(shares[index]), abs=1e-5)


def test_how_far_heads_look_is_measured_in_order_and_shuffled() -> None:
    model, picture, header, _ = measured("tiny")
    order = header["shuffle"]["order"]
    whole = mean_distance(watch(model, picture).attention(0), model.config)[0]
    mixed = mean_distance(watch(model, picture, edits={"patches": lambda value, _: value[:, order]}).attention(0), model.config)[0]
    assert header["heads"] == [0, 1, 2] and set(header["head_distance"]) == {"0", "1", "2"}
    for head, found in header["head_distance"].items():
        assert found["distance"] == pytest.approx(whole[int(head)], abs=1e-2)
        assert found["shuffled"] == pytest.approx(mixed[int(head)], abs=1e-2)
        assert found["even"] == pytest.approx(distances(model.config).mean(), abs=1e-2)


def test_of_many_heads_the_nearest_and_the_farthest_are_measured() -> None:
    model, picture, header, sections = measured("none")
    far = mean_distance(watch(model, picture).attention(0), model.config)[0]
    assert len(header["heads"]) == 3 and {int(far.argmin()), int(far.argmax())} <= set(header["heads"])
    assert sections["query"].shape == (3, header["tokens"], 8) and header["head_start"] in header["heads"]


def test_a_sink_is_found_where_everyone_looks_and_nowhere_else() -> None:
    """One corner's key is made to please every query of block 1, and its vector long."""
    torch.manual_seed(0)
    model = create("tiny", positions="learned").eval()
    corner, width = model.config.prefix, model.config.width
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("mlp.fc2.weight", "attention.projection.weight")):
                parameter.zero_()  # the stream stays what the embedding made it
        model.positions.table.zero_()
        model.positions.table[0, corner, 0] = 300.0
        attention = model.blocks[1].attention
        attention.qkv.weight.zero_()
        attention.qkv.bias.zero_()
        attention.qkv.bias[:width] = 3.0  # every query asks for the same
        attention.qkv.weight[width : 2 * width, 0] = 1.0  # and the corner's first number is large
    picture = open_picture(np.full((32, 32, 3), 128, np.uint8), model)
    header, _ = measure_story(model, picture)
    assert header["sinks"][0] is None
    found = header["sinks"][1]
    assert [token for token, _ in found["tokens"]] == [corner] and found["tokens"][0][1] > 0.5
    assert found["norm_ratio"] > 10
    covered = header["sink_ablation"]
    assert covered["patches"] == 1
    without = watch(model, without_patches(model, picture.tensor, [0])).logits[0].softmax(dim=0)
    assert covered["after"] == pytest.approx(float(without[covered["target"]]), abs=2e-5)
    even, _ = measure_story(create("tiny").eval(), picture)
    assert even["sinks"] == [None, None] and even["sink_ablation"] is None, "a fresh model looks everywhere alike"


@pytest.mark.parametrize("name", ["tiny", "mean"])
def test_covering_what_the_map_likes_is_measured(name: str) -> None:
    model, picture, header, _ = measured(name)
    found, prefix = header["top_patch_ablation"], header["prefix"]
    last = watch(model, picture).attention(-1)[0].mean(dim=0)
    row = (last[0] if name == "tiny" else last[prefix:].mean(dim=0))[prefix:].numpy()
    ranked = np.argsort(-row)
    best = ranked[: found["count"]]
    assert row[best].sum() / row.sum() == pytest.approx(found["share"], abs=1e-3)
    assert row[best[:-1]].sum() / row.sum() < 0.5 <= found["share"], "the fewest that hold half"
    tape = watch(model, torch.stack([picture.tensor, without_patches(model, picture.tensor, best.tolist())]), keep=["logits"])
    shares = tape.logits.softmax(dim=1)[:, found["target"]]
    assert found["target"] == int(tape.logits[0].argmax())
    assert [found["before"], found["most"]] == pytest.approx(shares.tolist(), abs=2e-5)
    assert 0 <= found["random"] <= 1 and found["random"] != found["most"]


def test_others_are_let_through_while_patches_are_covered() -> None:
    """A story of a large model takes many passes: each of them is told, so that the server can stop it or do something else."""
    model = make("tiny")
    picture = open_picture(Image.open(io.BytesIO(png(3, (64, 64)))), model)
    steps: list[tuple[int, int | None]] = []
    with watched(lambda bar: steps.append((bar.done, bar.total))):
        header, _ = measure_story(model, picture)
    passes = 1 + DRAWS + (header["sink_ablation"] is not None)
    assert steps == [(done, passes) for done in range(1, passes + 1)]


def test_short_numbers_are_near_and_have_their_last_bits_free() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    short = shorten(np.concatenate([values, [0.0]]))
    np.testing.assert_allclose(short[:-1], values, rtol=2**-12)
    assert short[-1] == 0 and not (short.view(np.uint32) % (1 << SHORT)).any()


def test_the_server_tells_it_and_says_why_not(client: TestClient, session: Session, key: str) -> None:
    answer = client.get(f"/api/models/0/pictures/{key}/story")
    header, sections = unpack(answer.content)
    mine, parts = measure_story(session.models[0], session.picture(0, key))
    assert {name: value for name, value in header.items() if name != "sections"} == mine
    np.testing.assert_array_equal(sections["query"], parts["query"])
    refused = client.get(f"/api/models/1/pictures/{key}/story")
    assert refused.status_code == 422 and "no patches that ask each other" in refused.json()["error"]
    with pytest.raises(Refusal, match="cnn"):
        measure_story(session.models[1], session.picture(1, key))
    assert client.get(f"/api/models/0/pictures/{'0' * 16}/story").status_code == 404
