"""Makes the gallery: every picture of docs/gallery.md, its provenance, and the page; the figures of docs/results/reports.md,
and the pictures of the README but its films.

    python docs/make_gallery.py --weights vit_tiny_patch16_224.safetensors      all that is new; --only NAME … for some

The commands are run as they stand on the page, in one folder (--work) that holds the weights and `photos`. What is there is not made again:
begin in an empty folder to make everything anew. Beside the pictures stands provenance.json: command, model and photograph with their
SHA-256, versions.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageSequence

sys.path.insert(0, str(Path(__file__).parent))

from gallery_list import FIGURES, MODELS, PHOTOGRAPHS, PREPARED, README, REPORTS, Figure

from vitral.base.files import read_json, sha256_bytes, sha256_file, write_atomic, write_json
from vitral.base.version import __version__
from vitral.cli import main as vitral

DOCS = Path(__file__).parent
PHOTOS = DOCS / "images/photos"
IMAGES = DOCS / "images"
LISTS = {"gallery": FIGURES, "reports": REPORTS, "readme": README}
"""Folder of docs/images → what lies in it."""
PROVENANCE = "provenance.json"
PAGE = DOCS / "gallery.md"
WEIGHTS = "vit_tiny_patch16_224.safetensors"
QUALITY = 84
LOSSLESS = 90_000
"""Bytes up to which a picture is kept without loss: charts are, photographs are not."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def prepare(work: Path, weights: Path | None) -> None:
    """The folder in which every command is run."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "photos").exists():
        (work / "photos").symlink_to(PHOTOS.resolve())
    if weights is not None and not (work / WEIGHTS).exists():
        (work / WEIGHTS).symlink_to(weights.resolve())


def make(figure: Figure, work: Path, out: Path) -> dict[str, Any]:
    """Run what a figure needs and its own command in `work`; write OUT/NAME.webp; its provenance."""
    with inside(work):
        for name in figure.needs:
            if not Path(name).exists():
                run(PREPARED[name])
        if not Path(figure.made).exists():  # several figures come of one command
            for line in figure.command.splitlines():
                run(line)
        images, times = photographed(figure) if figure.made.endswith(".html") else read_images(Path(figure.made))
        shown = [fitted(cropped(image, figure), figure) for image in images]
        label = figure.points / 72 * figure.drawn_at * shown[0].width / cropped(images[0], figure).width
        content = encoded(shown, times)
        path = write_atomic(out.resolve() / f"{figure.name}.webp", content)
        return {
            "command": figure.command,
            "prepared": [PREPARED[name] for name in figure.needs],
            "file": figure.made,
            "size": list(shown[0].size),
            **({"label": round(label, 1)} if label else {}),
            "sha256": sha256_bytes(content),
            "bytes": path.stat().st_size,
            **identity(figure),
            "vitral": __version__,
        }


def run(line: str) -> None:
    """`vitral …`, in this process."""
    if (code := vitral(shlex.split(line)[1:])) != 0:
        raise SystemExit(f"{line}: exit code {code}")


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def identity(figure: Figure) -> dict[str, Any]:
    """SHA-256 of the weights and of the photographs that a figure shows; asked inside the work folder."""
    found: dict[str, Any] = {}
    path = Path(MODELS[figure.model].weights) if figure.model else None
    if path is not None and path.is_file():
        found["weights"] = {"file": path.as_posix(), "sha256": sha256_file(path)}
    photographs = [name for name in figure.pictures if (PHOTOS / name).is_file()]
    return found | {"photographs": {name: sha256_file(PHOTOS / name) for name in photographs}}


# ---- pictures --------------------------------------------------------------------------------------------------------------------


def read_images(path: Path) -> tuple[list[Image.Image], list[int]]:
    """The frames of a picture and how long each stays, in milliseconds."""
    with Image.open(path) as opened:
        frames = [(frame.convert("RGB"), frame.info.get("duration", 0)) for frame in ImageSequence.Iterator(opened)]
    return [frame for frame, _ in frames], [time for _, time in frames]


def cropped(image: Image.Image, figure: Figure) -> Image.Image:
    """The part of it that is shown."""
    left, top, right, bottom = figure.crop
    return image.crop((round(left * image.width), round(top * image.height), round(right * image.width), round(bottom * image.height)))


def fitted(image: Image.Image, figure: Figure) -> Image.Image:
    """At most as wide as the figure may be."""
    if image.width <= figure.width:
        return image
    return image.resize((figure.width, round(image.height * figure.width / image.width)), Image.Resampling.LANCZOS)


def encoded(images: Sequence[Image.Image], times: Sequence[int]) -> bytes:
    """As WebP: without loss where that is small."""
    if len(images) > 1:
        return packed(images[0], save_all=True, append_images=list(images[1:]), duration=list(times), loop=0, quality=70)
    exact = packed(images[0], lossless=True)
    return exact if len(exact) <= LOSSLESS else min(exact, packed(images[0], quality=QUALITY), key=len)


def packed(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", method=6, **options)
    return buffer.getvalue()


def photographed(figure: Figure) -> tuple[list[Image.Image], list[int]]:
    """A page as a browser shows it: one part of it, or the window; after the clicks that lead there."""
    view = figure.view
    with browser() as chromium:
        context = chromium.new_context(
            viewport={"width": view.width, "height": view.height}, device_scale_factor=view.scale, reduced_motion="reduce"
        )
        context.set_offline(True)
        page = context.new_page()
        page.goto(Path(figure.made).resolve().as_uri() + view.hash)
        if view.ready:
            page.wait_for_selector(view.ready, timeout=60_000)
        for step in view.steps:
            step(page)
        page.wait_for_timeout(600)
        target = page.locator(view.part).first if view.part else page
        content = target.screenshot()
    with Image.open(io.BytesIO(content)) as opened:
        return [opened.convert("RGB")], [0]


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit("no chromium here, and this figure is a page: install it, or leave the figure out with --only")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


# ---- the page --------------------------------------------------------------------------------------------------------------------


def page(provenance: dict[str, Any]) -> str:
    """docs/gallery.md, of the figures that were made."""
    parts = [HEAD]
    for chapter in dict.fromkeys(figure.chapter for figure in FIGURES):
        parts.append(f"## {chapter}")
        chosen = [figure for figure in FIGURES if figure.chapter == chapter and figure.name in provenance]
        parts += [part for figure in chosen for part in (f"### {figure.title}", entry(figure))]
    return "\n\n".join([*parts, HOUSE, models_and_photographs()]) + "\n"


def entry(figure: Figure, images: str = "images/gallery") -> str:
    """Picture, what one sees, command, model and photographs."""
    of = [f"*Model:* {MODELS[figure.model].title}."] if figure.model else []
    shown = [f"{one.title} ({one.author}; {one.licence})" for one in map(PHOTOGRAPHS.__getitem__, figure.pictures)]
    of += [f"*Pictures:* {', '.join(shown)}."] if shown else []
    before = "".join(f"    {line}\n" for line in map(PREPARED.__getitem__, figure.needs))
    command = before + "".join(f"    {line}\n" for line in figure.command.splitlines())
    return "\n\n".join(
        [
            f"![{figure.title}]({images}/{figure.name}.webp)",
            f"{figure.sees} **Not to be concluded:** {figure.never}",
            command.rstrip("\n"),
            " ".join(of),
        ]
    )


def models_and_photographs() -> str:
    models = [f"| {one.title} | {one.source} |" for one in MODELS.values()]
    photographs = [f"| {one.title} | {one.author} | {one.licence} | {one.source} |" for one in PHOTOGRAPHS.values()]
    return "\n".join(
        [
            "## Models, photographs, licences",
            "",
            "| model | where it comes from |",
            "|---|---|",
            *models,
            "",
            "| picture | author | licence | from |",
            "|---|---|---|---|",
            *photographs,
        ]
    )


HOUSE = """## The house itself

![The parts of Vitral and who imports whom](images/architecture.svg)

Every arrow is an import that is in the code; a part imports from rows below its own, and a test compares drawing and code.
**Not to be concluded:** how much runs through an arrow: one import and a hundred look alike.

    python docs/make_architecture.py"""

HEAD = """<!-- Written by docs/make_gallery.py from docs/gallery_list.py: change it there. -->

# Gallery

Every picture was made by the commands below it, typed in a folder that holds `docs/images/photos` as `photos` and the weights of
ViT-Ti. `python docs/make_gallery.py --weights vit_tiny_patch16_224.safetensors` makes them all; what each was made from, with its
SHA-256, is in [provenance.json](images/gallery/provenance.json). Each says what one sees, and what one must not conclude from it."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Makes the gallery: pictures, provenance, page.")
    parser.add_argument("--weights", type=Path, help="vit_tiny_patch16_224.safetensors; without it, only figures of models trained here")
    parser.add_argument("--work", type=Path, default=DOCS.parent / "runs/gallery", help="where the commands are run")
    parser.add_argument(
        "--only", nargs="*", default=[], choices=[figure.name for figures in LISTS.values() for figure in figures], metavar="NAME"
    )
    parser.add_argument("--page", action="store_true", help="write the page alone")
    asked = parser.parse_args(arguments)
    prepare(asked.work, asked.weights)
    for folder, figures in LISTS.items():
        stored = IMAGES / folder / PROVENANCE
        provenance = read_json(stored) if stored.is_file() else {}
        for figure in chosen(figures, provenance, asked):
            provenance[figure.name] = made = make(figure, asked.work, stored.parent)
            write_json(stored, {one.name: provenance[one.name] for one in figures if one.name in provenance})
            print(f"{figure.name}: {made['bytes'] / 1000:.0f} kB, {' × '.join(map(str, made['size']))}", flush=True)
    PAGE.write_text(page(read_json(IMAGES / "gallery" / PROVENANCE)), encoding="utf-8")
    return 0


def chosen(figures: Sequence[Figure], provenance: dict[str, Any], asked: argparse.Namespace) -> Iterator[Figure]:
    """Those that were asked for, else those whose command is new; without weights, those that need none."""
    for figure in [] if asked.page else figures:
        new = provenance.get(figure.name, {}).get("command") != figure.command
        if figure.name not in asked.only if asked.only else not new:
            continue
        if figure.model == "vit-tiny" and not (asked.work / WEIGHTS).exists():
            print(f"{figure.name}: needs --weights")
            continue
        yield figure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
