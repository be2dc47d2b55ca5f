from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import VitralError
from vitral.build import create
from vitral.web.export import CLASSES, export_page
from vitral.web.pack import decode_rows, unpack
from vitral.web.session import Session


@pytest.fixture(scope="module")
def text(session: Session, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = export_page(session, tmp_path_factory.mktemp("export") / "page.html")
    return path.read_text(encoding="utf-8")


def block(text: str, name: str) -> bytes:
    found = re.search(rf'id="{name}" data-bytes="(\d+)">([^<]*)</script>', text)
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
    header, sections = unpack(block(text, f"trace-0-{key}"))
    assert header["levels"] == 47
    _, live = unpack(session.trace(0, key))
    fine, coarse = (decode_rows(np.asarray(part["attention"]), levels) for part, levels in ((live, 255), (sections, 47)))
    assert np.abs(fine - coarse).sum(axis=-1).max() < 0.1


def test_methods_and_surgery_are_precomputed(text: str, session: Session, key: str) -> None:
    extras, _ = unpack(block(text, f"extras-0-{key}"))
    top = extras["top"]
    assert len(top) == CLASSES
    by_class = {f"{method}/{target}" for method in ("gradient_rollout", "relevance", "gradcam") for target in top}
    assert set(extras["maps"]) == {"rollout/", f"occlusion/{top[0]}"} | by_class
    assert extras["maps"][f"gradcam/{top[1]}"]["grid"] == session.map(0, key, "gradcam", top[1])["grid"]
    assert set(extras["surgery"]) == {f"h{block}.{head}" for block in range(2) for head in range(3)} | {"b0", "b1"}
    live = session.surgery(0, key, heads=[(1, 2)])
    np.testing.assert_allclose([row[1:] for row in extras["surgery"]["h1.2"]["rows"]], [row[1:] for row in live["rows"]], atol=1e-4)
    rival, _ = unpack(block(text, f"extras-1-{key}"))
    assert rival["surgery"] == {}


def test_the_story_is_inside(text: str, session: Session, key: str) -> None:
    header, sections = unpack(block(text, f"story-0-{key}"))
    live, parts = unpack(session.story(0, key))
    assert header == live
    np.testing.assert_array_equal(np.asarray(sections["key"]), np.asarray(parts["key"]))
    assert f"story-1-{key}" not in text, "a rival has none"


def test_facts_are_safe_inside_html(session: Session, tmp_path: Path) -> None:
    hostile = Session({"</script><script>alert(1)</script>": create("tiny")})
    hostile.give(session._given_bytes[session.given[0]["picture"]], "</script>.png")
    text = export_page(hostile, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    facts = re.search(r'id="vitral-session">(.*?)</script>', text, re.DOTALL)
    assert facts
    assert json.loads(facts.group(1))["pictures"][0]["name"] == "</script>.png"


def test_a_page_needs_a_picture(tmp_path: Path) -> None:
    with pytest.raises(VitralError, match="picture"):
        export_page(Session({"tiny": create("tiny")}), tmp_path / "page.html")
