from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
VOID = {"meta", "img", "br", "input"}


class Reader(HTMLParser):
    """Checks that tags close in order, and gathers the text and the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture
def read():
    """Reads a page: well formed, no scripts, nothing fetched; gives its tags and its text."""

    def check(path: Path) -> Reader:
        reader = Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        assert reader.stack == []
        assert not [tag for tag, _ in reader.tags if tag in ("script", "link", "iframe", "object")]
        for tag, attributes in reader.tags:
            assert not [name for name in attributes if name.startswith("on")]
            if tag == "a" and attributes["href"].startswith("#"):
                assert attributes["href"][1:] in [other.get("id") for _, other in reader.tags]
            elif tag == "a":  # a picture's file beside the page: a path, and never an address that runs or fetches
                assert ":" not in attributes["href"] and not attributes["href"].startswith("/")
                assert attributes["href"].lower().endswith((".png", ".jpg"))
            if tag == "img":
                assert attributes["src"].startswith("data:image/")
                assert attributes["alt"]
        assert any("default-src 'none'" in attributes.get("content", "") for tag, attributes in reader.tags if tag == "meta")
        return reader

    return check


@pytest.fixture
def figures():
    """Puts a figure with its JSON into a folder's figures/."""

    def put(folder: Path, name: str = "rollout", **record: object) -> Path:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        path = folder / "figures" / f"{name}.png"
        Image.new("RGB", (20, 10), "red").save(path)
        if record:
            path.with_suffix(".json").write_text(json.dumps(record))
        return path

    return put


@pytest.fixture
def nasty() -> str:
    return NASTY
