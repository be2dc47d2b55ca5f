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
from vitral.look.switch_off import Off, rollout_without
from vitral.web.answers import ALL_ON, ANSWERS, parse_off
from vitral.web.pack import EXPORTED, SERVED, unpack
from vitral.web.server.limits import Limits, Refusal
from vitral.web.session import Session

from .conftest import heat, shares


def picture(colour: str, size: tuple[int, int] = (40, 32)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "BMP")
    return out.getvalue()


def test_a_map_is_that_of_the_library(session: Session, key: str) -> None:
    for method in ("rollout", "relevance", "gradcam", "occlusion"):
        tape = look.watch(session.models[0], session.picture(0, key))
        expected = look.METHODS[method](tape, target=3)
        found = session.answer("map", 0, key, method=method, target=3)
        np.testing.assert_allclose(heat(found), expected.grid, atol=np.abs(expected.grid).max() * 1e-3 + 1e-12)
        assert unpack(found)[0]["signed"] == expected.signed


def test_switching_off_moves_the_prediction(session: Session, key: str) -> None:
    off = parse_off("h0.1,b1,p3,p3")
    assert np.abs(shares(session, key, off) - shares(session, key)).max() > 1e-4
    before, after = (heat(session.answer("map", 0, key, method="rollout", off=parts)) for parts in (ALL_ON, off))
    assert np.abs(after - before).max() > 0


def test_the_same_question_is_answered_from_memory(session: Session, key: str) -> None:
    assert session.answer("trace", 0, key) is session.answer("trace", 0, key)
    first, second = (session.answer("map", 0, key, method="rollout", target=target) for target in (1, 2))
    assert first is second, "rollout knows no class"
    first, second = (session.answer("map", 0, key, method="gradcam", target=target) for target in (1, 2))
    assert first is not second


@pytest.mark.parametrize("what", [what for what in ANSWERS if what != "film"])
def test_another_packing_is_another_question(session: Session, key: str, what: str) -> None:
    """A session that serves and then exports must not put lightly packed answers into the file."""
    options = {"method": "rollout"} if what == "map" else {}
    served, exported = (session.answer(what, 0, key, packing=packing, **options) for packing in (SERVED, EXPORTED))
    assert (served[8], exported[8]) == (4, 2), "gzip's own mark of its fastest and its best compression"
    assert session.answer(what, 0, key, **options) is served


def test_an_option_that_an_answer_does_not_take_is_refused(session: Session, key: str) -> None:
    with pytest.raises(TypeError, match="story takes"):
        session.answer("story", 0, key, target=1)


def test_another_model_picture_or_class_is_another_question() -> None:
    torch.manual_seed(0)
    session = Session({"one": create("tiny"), "other": create("tiny", depth=1)})
    first, second = session.add_initial(picture("red"), "a"), session.add_initial(picture("blue"), "b")
    asked = [(0, first), (1, first), (0, second)]
    for what, options in (("trace", {}), ("map", {"method": "rollout"}), ("trace", {"off": parse_off("h0.0")})):
        found = [session.answer(what, model, key, **options) for model, key in asked]
        assert not any(a is b for number, a in enumerate(found) for b in found[:number])
    assert all(unpack(session.answer("depth", 0, first, target=target))[0]["target"] == target for target in range(10))


def test_uploads_are_named_by_content_and_forgotten_in_turn() -> None:
    content = [picture(colour) for colour in ("red", "green", "blue")]
    session = Session({"tiny": create("tiny")}, Limits(pictures=2 * len(content[0])))
    kept = session.add_initial(content[0], "given")
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
        (404, lambda: session.answer("trace", 5, key)),
        (404, lambda: session.answer("trace", 0, "0" * 16)),
        (422, lambda: session.answer("map", 0, key, method="magic")),
        (422, lambda: session.answer("map", 1, key, method="rollout")),
        (422, lambda: session.answer("map", 0, key, method="gradcam", target=10)),
        (422, lambda: session.answer("depth", 0, key, target=10)),
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
        session.add_initial(content, "cat.bmp")


@pytest.mark.parametrize("parts", ["h0.1", "b1", "p3,p9", "h1.0,b0,p5"])
def test_every_view_of_a_cut_model_shows_the_same_model(session: Session, key: str, parts: str) -> None:
    """Trace and maps answer for one model, the one without these parts, as the library switches them off."""
    off = parse_off(parts)
    header, sections = unpack(session.answer("trace", 0, key, off=off))
    logits, (rollout,) = rollout_without(session.models[0], session.picture(0, key).tensor, [off])
    np.testing.assert_allclose(sections["logits"], logits[0], atol=1e-4)
    codes = np.asarray(sections["attention"])
    for block, head in off.heads:
        assert not codes[block, head].any(), "a head that is off looks nowhere"
    np.testing.assert_allclose(heat(session.answer("map", 0, key, method="rollout", off=off)), rollout, atol=1e-4)
    for method in ("relevance", "gradcam", "occlusion"):
        cut, whole = (heat(session.answer("map", 0, key, method=method, target=3, off=each)) for each in (off, ALL_ON))
        assert not np.array_equal(cut, whole)
    assert header["whole"]


def test_a_cut_that_cannot_be_is_refused(session: Session, key: str) -> None:
    for parts in ("h9.0", "b7", "p64"):
        with pytest.raises(UsageError, match="exist"):
            session.answer("trace", 0, key, off=parse_off(parts))


def test_parts_are_read_from_an_address() -> None:
    assert parse_off("") == ALL_ON
    assert parse_off("p17,h3.1,b5,h0.2,p2,b5") == Off(((0, 2), (3, 1)), (5,), (5,), (2, 17))
    for wrong in ("x1", "h3", "b", "p-1", "h1.2.3", "b1.2", "p99999999", "b²"):
        with pytest.raises(UsageError, match="part"):
            parse_off(wrong)


def test_the_audits_verdicts_stand_beside_the_methods_of_the_model_that_was_audited(tmp_path: Path) -> None:
    model, other = create("tiny"), create("tiny", depth=2)
    (tmp_path / layout.AUDIT).mkdir()
    row = {"method": "rollout", "verdict": "do not use", "reason": "it does not depend on the weights"}
    (tmp_path / layout.AUDIT / layout.VERDICTS).write_text(json.dumps({"model": digest(model), "rows": [row]}))
    for shown, expected in ((model, {"rollout": "do not use: it does not depend on the weights"}), (other, {})):
        assert Session({str(tmp_path): shown}).description()["models"][0]["verdicts"] == expected
