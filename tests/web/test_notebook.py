from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
from PIL import Image
from tests.web.conftest import png

import vitral
from vitral.web.notebook import explore


def test_it_shows_itself_without_server_or_reach(tmp_path: Path) -> None:
    model = vitral.create("tiny")
    (tmp_path / "cat.png").write_bytes(png(4))
    shown = vitral.explore(model, [tmp_path / "cat.png", Image.open(tmp_path / "cat.png").rotate(90), np.zeros((32, 32, 3), np.uint8)])
    text = shown._repr_html_()
    assert re.match(r'<iframe srcdoc="[^"]+" sandbox="allow-scripts allow-downloads"', text)
    page = html.unescape(text.split('srcdoc="')[1].split('"')[0])
    assert page == shown.page and "connect-src 'none'" in page
    assert '"cat.png"' in page and '"picture 2"' in page and '"picture 3"' in page
    assert str(tmp_path) not in page
    assert shown.save(tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert "shows itself in a notebook" in repr(shown)


def test_one_picture_and_two_models(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(png(4))
    page = explore(vitral.create("tiny"), str(tmp_path / "cat.png"), compare=vitral.create("tiny")).page
    assert page.count('/trace" data-bytes') == 2
