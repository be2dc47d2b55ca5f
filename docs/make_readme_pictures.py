"""Records the films of the README, and pictures.json, which says what each was made of and by which command.

    python docs/make_readme_pictures.py vit_tiny_patch16_224.safetensors

The photograph comes with Vitral; the weights do not. Needs chromium. The README's other pictures are what the commands beside them write:
docs/make_gallery.py makes them.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

import vitral
from vitral.base.files import read_json, sha256_file, write_atomic, write_json
from vitral.cli import main as vitral_command
from vitral.draw.provenance import versions
from vitral.look.describe import digest
from vitral.report.demo.photograph import PHOTOGRAPH

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/images/readme"
RECORD = OUT / "pictures.json"


@dataclass(frozen=True)
class Given:
    weights: Path

    def model(self) -> vitral.Classifier:
        return vitral.load(self.weights)


@dataclass(frozen=True)
class Made:
    """A picture, and what it says of itself."""

    content: bytes
    """A moving WebP."""
    command: str
    """What shows a reader the same."""
    facts: dict[str, Any]


def explore(given: Given) -> Made:
    """The explorer: what counts for the predicted class, the answers, what the patch under the pointer looks at, and all heads."""
    with _opened(given, "explore.html") as film:
        film.to("#picture-title", 1800)
        film.to("#predictions-title", 1400)
        film.page.locator("#block").fill(str(BLOCK))
        film.to("#picture-title")
        for across, down in PATH:
            film.point(across, down)
        film.page.mouse.move(2, 2)
        film.to("#panel-wall", 2200)
    return Made(film.content(), "vitral explore vit_tiny runs/demo/cat.jpg", _about(given, given.model()))


def live(given: Given) -> Made:
    """A page that holds the model: another photograph is dropped on it, and gets answers, a map of the first one, and all heads."""
    with _opened(given, "live.html", "--live") as film:
        film.keep(1800)
        film.page.locator("#file").set_input_files(DROPPED)
        film.page.locator("#predictions .name", has_text="espresso").first.wait_for()
        film.keep(1200)
        film.page.locator("#methods label", has_text="Occlusion").click()
        film.page.mouse.move(2, 2)
        film.page.locator("#picture .reading", has_text="Occlusion").wait_for(timeout=60_000)
        film.to("#picture-title", 2200)
        film.to("#predictions-title", 1400)
        film.to("#panel-wall", 1800)
    command = "vitral explore vit_tiny runs/demo/cat.jpg --export page.html --live"
    return Made(film.content(), command, _about(given, given.model()) | {"dropped": {"file": DROPPED.name, "sha256": sha256_file(DROPPED)}})


@dataclass
class Film:
    """A page in a window as narrow as a phone's, so that its letters can be read there, and the frames taken of it."""

    page: Any
    frames: list[tuple[Image.Image, int]]

    def keep(self, milliseconds: int = 450, pointer: tuple[float, float] | None = None) -> None:
        self.page.wait_for_timeout(300)
        image = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        self.frames.append((_pointed(image, pointer[0] * SCALE, pointer[1] * SCALE) if pointer else image, milliseconds))

    def to(self, part: str, milliseconds: int = 450) -> None:
        """With this part at the top."""
        self.page.locator(part).evaluate("(part) => window.scrollTo(0, part.getBoundingClientRect().top + window.scrollY - 10)")
        self.keep(milliseconds)

    def point(self, across: float, down: float) -> None:
        picture = self.page.locator("#picture canvas").first.bounding_box()
        x, y = picture["x"] + across * picture["width"], picture["y"] + down * picture["height"]
        self.page.mouse.move(x, y)
        self.keep(450, (x, y))

    def content(self) -> bytes:
        out = io.BytesIO()
        images, times = zip(*self.frames, strict=True)
        images[0].save(out, "WEBP", save_all=True, append_images=images[1:], duration=list(times), loop=0, quality=72, method=6)
        return out.getvalue()


@contextmanager
def _opened(given: Given, name: str, *flags: str) -> Iterator[Film]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        file = Path(folder) / name
        vitral_command(["explore", str(given.weights), str(PHOTOGRAPH), "--export", str(file), *flags])
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 480, "height": 440}, device_scale_factor=SCALE)
        page.goto(file.as_uri())
        page.wait_for_selector("body.ready")
        page.wait_for_timeout(1500)
        yield Film(page, [])
        browser.close()


SCALE = 1.75
"""Pixels of a film in one of the page."""
DROPPED = ROOT / "docs/images/photos/espresso.jpg"
BLOCK = 3
PATH = [(0.32, 0.36), (0.36, 0.40), (0.42, 0.46), (0.50, 0.52), (0.55, 0.62), (0.60, 0.72), (0.64, 0.84), (0.70, 0.74)]
PATH += [(0.76, 0.62), (0.85, 0.46), (0.76, 0.36), (0.64, 0.26)]
"""Over the picture, in shares of its sides: an eye, the nose, the other eye, the forehead."""


# ---- all of them -----------------------------------------------------------------------------------------------------------------


PICTURES: dict[str, Callable[[Given], Made]] = {one.__name__: one for one in (explore, live)}


def main() -> None:
    asked = argparse.ArgumentParser(description="The films of the README.")
    asked.add_argument("weights", type=Path, help="ViT-Ti/16 at 224 pixels in timm's layout")
    asked.add_argument("--only", nargs="+", choices=sorted(PICTURES), default=list(PICTURES))
    given = asked.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    record = read_json(RECORD) if RECORD.is_file() else {}
    for name in given.only:
        made = PICTURES[name](Given(given.weights))
        content = made.content
        path = write_atomic(OUT / f"{name}.webp", content)
        record[name] = {
            "file": path.name,
            "shows": (PICTURES[name].__doc__ or "").strip(),
            "command": made.command,
            **made.facts,
            "bytes": len(content),
            "versions": versions(),
        }
        print(f"{path.relative_to(ROOT)}  {len(content) / 1024:.0f} KiB")
        write_json(RECORD, {key: record[key] for key in PICTURES if key in record})


def _pointed(image: Image.Image, x: float, y: float) -> Image.Image:
    """With a pointer, which screenshots leave out."""
    from PIL import ImageDraw

    corners = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]
    ImageDraw.Draw(image).polygon([(x + a, y + b) for a, b in corners], fill="white", outline="black")
    return image


def _about(given: Given, model: vitral.Classifier) -> dict[str, Any]:
    photograph = {"file": PHOTOGRAPH.name, "sha256": sha256_file(PHOTOGRAPH), "author": "Stéfan van der Walt", "licence": "CC0"}
    return {"weights": {"file": given.weights.name, "sha256": digest(model)}, "photograph": photograph}


if __name__ == "__main__":
    main()
