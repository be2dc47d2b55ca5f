from __future__ import annotations

import base64
import json
import re
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import VitralError
from vitral.build import create
from vitral.web.answers import CLASSES, parse_off
from vitral.web.export import export_page
from vitral.web.pack import decode_rows, unpack
from vitral.web.session import Session

from .conftest import heat, shares

PARTS = ("classes", "probabilities", "rollouts")


@pytest.fixture(scope="module")
def text(session: Session, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = export_page(session, tmp_path_factory.mktemp("export") / "page.html")
    return path.read_text(encoding="utf-8")


def block(text: str, name: str) -> bytes:
    found = re.search(rf'id="{re.escape(escape(name))}" data-bytes="(\d+)">([^<]*)</script>', text)
    assert found, name
    return base64.b85decode(found.group(2).replace(",", "<").replace(".", "&"))[: int(found.group(1))]


def test_one_file_without_the_network(text: str) -> None:
    assert text.count("<!doctype html>") == 1
    assert not re.search(r'(src|href)="(?!data:|#)', text), "nothing is fetched"
    assert "connect-src 'none'" in text
    assert "/static/" not in text.split("<body>")[0]


def test_the_policy_names_the_very_script(text: str) -> None:
    import hashlib

    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert script and style
    for part in (script, style):
        digest = base64.b64encode(hashlib.sha256(part.group(1).encode()).digest()).decode()
        assert f"'sha256-{digest}'" in text


def test_attention_is_inside(text: str, session: Session, key: str) -> None:
    header, sections = unpack(block(text, f"models/0/pictures/{key}/trace"))
    assert header["levels"] == 47
    _, live = unpack(session.answer("trace", 0, key))
    fine, coarse = (decode_rows(np.asarray(part["attention"]), levels) for part, levels in ((live, 255), (sections, 47)))
    assert np.abs(fine - coarse).sum(axis=-1).max() < 0.1


def test_every_answer_is_inside_under_the_address_of_its_question(text: str, session: Session, key: str) -> None:
    """The maps of the most probable classes (occlusion of the first alone), and every other entry of the table that fits the model."""
    top = np.argsort(-shares(session, key))[:CLASSES].tolist()
    by_class = {f"map?method={method}&target={target}" for method in ("gradient_rollout", "relevance", "gradcam") for target in top}
    maps = {"map?method=rollout", f"map?method=occlusion&target={top[0]}"} | by_class
    assert questions(text, 0, key) == {"trace", "story", "depth", "features", "importance", "without-each"} | maps
    found = block(text, f"models/0/pictures/{key}/map?method=gradcam&target={top[1]}")
    assert heat(found).tolist() == heat(session.answer("map", 0, key, method="gradcam", target=top[1])).tolist()
    rival = {f"map?method=gradcam&target={target}" for target in np.argsort(-shares(session, key, model=1))[:CLASSES]}
    first = np.argmax(shares(session, key, model=1))
    assert questions(text, 1, key) == {"trace", "features", f"map?method=occlusion&target={first}"} | rival


def questions(text: str, model: int, key: str) -> set[str]:
    return {unescape(found) for found in re.findall(rf'id="models/{model}/pictures/{key}/([^"]*)"', text)}


def test_every_head_and_block_is_switched_off_once(text: str, session: Session, key: str) -> None:
    header, sections = unpack(block(text, f"models/0/pictures/{key}/without-each"))
    assert set(header["parts"]) == {f"h{block}.{head}" for block in range(2) for head in range(3)} | {"b0", "b1"}
    for part, classes, probabilities, rollout in zip(header["parts"], *(sections[name] for name in PARTS), strict=True):
        off = parse_off(part)
        np.testing.assert_allclose(probabilities, shares(session, key, off)[classes], atol=1e-4)
        assert {*np.argsort(-shares(session, key))[:5], *np.argsort(-shares(session, key, off))[:5]} <= set(classes)
        np.testing.assert_allclose(rollout, heat(session.answer("map", 0, key, method="rollout", off=off)), atol=1e-4)


def test_the_story_is_inside(text: str, session: Session, key: str) -> None:
    header, sections = unpack(block(text, f"models/0/pictures/{key}/story"))
    live, parts = unpack(session.answer("story", 0, key))
    assert header == live
    np.testing.assert_array_equal(np.asarray(sections["key"]), np.asarray(parts["key"]))
    assert f"models/1/pictures/{key}/story" not in text, "a rival has none"


def test_facts_are_safe_inside_html(session: Session, tmp_path: Path) -> None:
    hostile = Session({"</script><script>alert(1)</script>": create("tiny")})
    hostile.add_initial(session.content(session.initial[0]["picture"]), "</script>.png")
    text = export_page(hostile, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    facts = re.search(r'id="vitral-session">(.*?)</script>', text, re.DOTALL)
    assert facts
    assert json.loads(facts.group(1))["pictures"][0]["name"] == "</script>.png"


def test_a_page_needs_a_picture(tmp_path: Path) -> None:
    with pytest.raises(VitralError, match="picture"):
        export_page(Session({"tiny": create("tiny")}), tmp_path / "page.html")
