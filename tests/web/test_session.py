from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral import look
from vitral.base import layout
from vitral.base.errors import UsageError
from vitral.build import create
from vitral.look.describe import digest
from vitral.web.pack import unpack
from vitral.web.server.limits import Limits, Refusal
from vitral.web.session import Session
from vitral.web.surgery import Cut


def picture(colour: str, size: tuple[int, int] = (40, 32)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "BMP")
    return out.getvalue()


def test_a_map_is_that_of_the_library(session: Session, key: str) -> None:
    for method in ("rollout", "relevance", "gradcam", "occlusion"):
        tape = look.watch(session.models[0], session.picture(0, key))
        expected = look.METHODS[method](tape, target=3)
        found = session.map(0, key, method, 3)
        np.testing.assert_allclose(found["grid"], expected.grid, atol=np.abs(expected.grid).max() * 1e-3 + 1e-12)
        assert found["signed"] == expected.signed


def test_surgery_moves_the_prediction(session: Session, key: str) -> None:
    result = session.surgery(0, key, heads=[(0, 1)], blocks=[1], patches=[3, 3])
    moved = max(abs(after - before) for _, before, after in result["rows"])
    assert moved > 1e-4
    assert np.abs(result["difference"]).max() > 0
    nothing = session.surgery(0, key)
    assert all(before == after for _, before, after in nothing["rows"])
    assert np.abs(nothing["difference"]).max() == 0


def test_the_same_question_is_answered_from_memory(session: Session, key: str) -> None:
    assert session.trace(0, key) is session.trace(0, key)
    assert session.map(0, key, "rollout", 1) is session.map(0, key, "rollout", 2), "rollout knows no class"
    assert session.map(0, key, "gradcam", 1) is not session.map(0, key, "gradcam", 2)


def test_another_model_picture_or_class_is_another_question() -> None:
    torch.manual_seed(0)
    session = Session({"one": create("tiny"), "other": create("tiny", depth=1)})
    first, second = session.give(picture("red"), "a"), session.give(picture("blue"), "b")
    asked = [(0, first), (1, first), (0, second)]
    for ask in (session.trace, session.surgery, lambda model, key: session.map(model, key, "rollout")):
        found = [ask(model, key) for model, key in asked]
        assert not any(a is b for number, a in enumerate(found) for b in found[:number])
    rows = [{row[0] for row in session.surgery(0, first, target=target)["rows"]} for target in range(10)]
    assert all(target in each for target, each in enumerate(rows))


def test_uploads_are_named_by_content_and_forgotten_in_turn() -> None:
    content = [picture(colour) for colour in ("red", "green", "blue")]
    session = Session({"tiny": create("tiny")}, Limits(pictures=2 * len(content[0])))
    kept = session.give(content[0], "given")
    keys = [session.add_picture(each, "up")["picture"] for each in content]
    assert keys[0] == kept
    assert session.add_picture(content[1], "other name")["picture"] == keys[1]
    session.add_picture(picture("white"), "x")
    session.add_picture(picture("black"), "x")
    session.picture(0, keys[0])
    with pytest.raises(Refusal) as caught:
        session.picture(0, keys[1])
    assert caught.value.status == 404


def test_a_damaged_picture_is_refused_when_it_comes(session: Session) -> None:
    out = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(out, "PNG")
    with pytest.raises(Refusal) as caught:
        session.add_picture(out.getvalue()[:-600], "cut")
    assert caught.value.status == 422


def test_what_does_not_exist(session: Session, key: str) -> None:
    for status, ask in (
        (404, lambda: session.trace(5, key)),
        (404, lambda: session.trace(0, "0" * 16)),
        (422, lambda: session.map(0, key, "magic")),
        (422, lambda: session.map(1, key, "rollout")),
        (422, lambda: session.map(0, key, "gradcam", 10)),
        (422, lambda: session.surgery(0, key, target=10)),
    ):
        with pytest.raises(Refusal) as caught:
            ask()
        assert caught.value.status == status
        assert caught.value.hint
    with pytest.raises(UsageError, match="no model"):
        Session({})


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "empty"), (b"GIF89a", "header is damaged|not a picture"), (picture("red")[:200], "damaged")]
)
def test_a_bad_file_of_the_command_line_is_named(session: Session, content: bytes, words: str) -> None:
    with pytest.raises(Refusal, match=rf"^cat\.bmp: .*({words})"):
        session.give(content, "cat.bmp")


CUTS = [Cut(heads=((0, 1),)), Cut(blocks=(1,)), Cut(patches=(3, 9)), Cut(((1, 0),), (0,), (5,))]


@pytest.mark.parametrize("cut", CUTS)
def test_every_view_of_a_cut_model_shows_the_same_model(session: Session, key: str, cut: Cut) -> None:
    """Trace, maps and surgery answer for one model, the one without these parts."""
    header, sections = unpack(session.trace(0, key, cut=cut))
    powers = np.exp(sections["logits"] - np.max(sections["logits"]))
    rows = session.surgery(0, key, cut.heads, cut.blocks, cut.patches)["rows"]
    assert {index: after for index, _, after in rows} == pytest.approx(
        {index: powers[index] / powers.sum() for index, *_ in rows}, abs=1e-5
    )
    codes = np.asarray(sections["attention"])
    for block, head in cut.heads:
        assert not codes[block, head].any(), "a head that is off looks nowhere"
    rollout = np.array(session.map(0, key, "rollout", cut=cut)["grid"])
    change = np.array(session.surgery(0, key, cut.heads, cut.blocks, cut.patches)["difference"])
    np.testing.assert_allclose(rollout - np.array(session.map(0, key, "rollout")["grid"]), change, atol=1e-4)
    for method in ("relevance", "gradcam", "occlusion"):
        assert session.map(0, key, method, 3, cut)["grid"] != session.map(0, key, method, 3)["grid"]
    assert header["whole"]


def test_a_cut_that_cannot_be_is_refused(session: Session, key: str) -> None:
    for cut in (Cut(heads=((9, 0),)), Cut(blocks=(7,)), Cut(patches=(64,))):
        with pytest.raises(UsageError, match="exist"):
            session.trace(0, key, cut=cut)


def test_the_audits_verdicts_stand_beside_the_methods_of_the_model_that_was_audited(tmp_path: Path) -> None:
    model, other = create("tiny"), create("tiny", depth=2)
    (tmp_path / layout.AUDIT).mkdir()
    row = {"method": "rollout", "verdict": "do not use", "reason": "it does not depend on the weights"}
    (tmp_path / layout.AUDIT / layout.VERDICTS).write_text(json.dumps({"model": digest(model), "rows": [row]}))
    for shown, expected in ((model, {"rollout": "do not use: it does not depend on the weights"}), (other, {})):
        assert Session({str(tmp_path): shown}).description()["models"][0]["verdicts"] == expected
