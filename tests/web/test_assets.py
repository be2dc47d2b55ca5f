from __future__ import annotations

import re
from pathlib import Path

import pytest

from vitral.base.errors import VitralError
from vitral.web import assets


def test_every_module_is_short_and_served() -> None:
    files = assets.assets()
    assert {"index.html", "style.css", "main.js"} <= set(files)
    for name, (content, kind) in files.items():
        assert kind.endswith("charset=utf-8")
        if name.endswith(".js"):
            assert len(content.decode().splitlines()) <= 450, name


def test_there_is_one_style_sheet_with_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"style/{name}.css": f".{name} {{}}" for name in assets.STYLES} | {"core/state.js": "run();"})
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    files = assets.assets()
    assert set(files) == {"style.css", "core/state.js"}
    assert files["style.css"] == (b".base {}\n.page {}\n.story {}\n.views {}", "text/css; charset=utf-8")


def test_every_sheet_is_part_of_the_style() -> None:
    assert {path.stem for path in assets.FOLDER.rglob("*.css")} == set(assets.STYLES)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_nothing_points_to_the_network() -> None:
    for name, (content, _) in assets.assets().items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`]*", re.sub(r"^\s*//.*$", "", content.decode(), flags=re.MULTILINE)))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name


def test_the_page_has_no_inline_script_or_style() -> None:
    text = assets.assets()["index.html"][0].decode()
    assert not re.search(r"<script(?![^>]*src=)", text)
    assert "<style" not in text
    assert not re.search(r"\sstyle=", text)
    assert not re.search(r"\son\w+=", text)


def test_the_bundle_is_one_module_with_everything() -> None:
    text = assets.bundle()
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    for name in assets.assets():
        if name.endswith(".js"):
            assert f"// {name}\n" in text, f"{name} is not reached from main.js"
    assert text.index("// draw/colour.js") < text.index("// draw/heat.js") < text.index("// main.js")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"main.js": 'import { a } from "./b.js";\nconst c = 1;\n', "b.js": "export const a = 1;\nconst c = 2;\n"}, "'c' is declared"),
        ({"main.js": 'import { a } from "./x/b.js";\n', "x/b.js": 'import { c } from "../main.js";\nexport const a = 1;\n'}, "circle"),
        ({"main.js": 'import { a } from "./b.js";\n', "b.js": 'import { d } from "./main.js";\nexport const a = 1;\n'}, "circle"),
        ({"main.js": 'import * as b from "./b.js";\n', "b.js": "export const a = 1;\n"}, "cannot be joined"),
        ({"main.js": "const a = 1;\nexport default a;\n"}, "cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path, monkeypatch, files: dict[str, str], message: str) -> None:
    write(tmp_path, files)
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    with pytest.raises(VitralError, match=message):
        assets.bundle()
