from __future__ import annotations

import numpy as np
import pytest

from vitral import look
from vitral.build import create
from vitral.look.switch_off import edits_for
from vitral.look.watch import watch
from vitral.web.answers import parse_off
from vitral.web.depth import directions, followed, pack_features, spread
from vitral.web.pack import unpack
from vitral.web.server.limits import Refusal
from vitral.web.session import Session


def test_the_lens_is_looks_own(session: Session, key: str) -> None:
    header, sections = unpack(session.answer("depth", 0, key))
    tape = watch(session.models[0], session.picture(0, key))
    own = look.lens(tape)
    assert header["settled"] == own.decided_at and header["target"] == own.target
    for row, shares in zip(header["top"], own.probabilities, strict=True):
        assert [index for index, _ in row] == np.argsort(-shares)[: len(row)].tolist()
        assert row[0][1] == pytest.approx(shares.max(), abs=1e-5)
    for index, line in header["lines"]:
        np.testing.assert_allclose(line, own.probabilities[:, index], atol=1e-5)
    depths = len(own.logits)
    assert np.array_equal(sections["answers"], own.patches.argmax(axis=-1).reshape(depths, -1))
    np.testing.assert_allclose(
        np.asarray(sections["target"]) / 255, own.patch_probabilities[..., own.target].reshape(depths, -1), atol=0.003
    )


def test_the_lens_of_a_model_without_parts_ends_at_its_answer(session: Session, key: str) -> None:
    off = parse_off("h0.1,b1")
    header, _ = unpack(session.answer("depth", 0, key, off=off))
    after = watch(session.models[0], session.picture(0, key), edits=edits_for(off)).logits.softmax(1)[0]
    assert header["top"][-1][0] == [int(after.argmax()), pytest.approx(float(after.max()), abs=1e-5)]


@pytest.mark.parametrize("model", [0, 1])
def test_features_give_looks_similarity(session: Session, key: str, model: int) -> None:
    header, sections = unpack(session.answer("features", model, key))
    tape = watch(session.models[model], session.picture(model, key))
    for block, (rows, columns) in zip(header["blocks"], header["grids"], strict=True):
        codes = np.asarray(sections[f"block-{block}"]).astype(float)
        unit = codes / np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-30)
        heat = look.similarity(tape, start=(rows - 1, 0), block=block)
        np.testing.assert_allclose((unit @ unit[(rows - 1) * columns]).reshape(rows, columns), heat.grid, atol=0.02)


def test_of_many_numbers_fewer_blocks(session: Session, key: str) -> None:
    picture = session.picture(0, key)
    header, _ = unpack(pack_features(session.models[0], picture, most=2**24))
    assert header["blocks"] == list(range(header["of"]))
    header, _ = unpack(pack_features(session.models[0], picture, most=1))
    assert header["blocks"] == [header["of"] - 1]
    assert spread(12, 4) == [2, 5, 8, 11] and spread(3, 9) == [0, 1, 2]


def test_directions_of_nothing_are_nothing() -> None:
    assert directions(np.zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_who_leads_is_followed() -> None:
    shares = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    assert followed(shares, 1) == [1, 2, 0]


def test_a_model_without_classes_is_told_so() -> None:
    session = Session({"features": create("tiny", classes=0), "cnn": create("cnn")})
    from tests.web.conftest import png

    key = session.add_initial(png(3), "a.png")
    with pytest.raises(Refusal, match="head"):
        session.answer("depth", 0, key)
    with pytest.raises(ValueError, match="attention"):
        session.answer("depth", 1, key)
