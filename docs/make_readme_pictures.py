"""Draws docs/images/readme: every picture of the README, and pictures.json, which says what each was made of and by which command.

    python docs/make_readme_pictures.py vit_tiny_patch16_224.safetensors
    python docs/make_readme_pictures.py vit_tiny_patch16_224.safetensors --only first audit

The runs that are shown are looked for in --runs and made there by COMMANDS where they are missing (minutes on a CPU). The photograph comes
with Vitral; the weights do not. `explore` needs chromium.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import vitral
from vitral.base import layout
from vitral.base.files import read_json, sha256_file, write_atomic, write_json
from vitral.base.picture import Picture
from vitral.cli import main as vitral_command
from vitral.data.datasets import open_data
from vitral.data.preprocess import open_picture
from vitral.draw.animation import animate
from vitral.draw.audit import COLOURS
from vitral.draw.charts import draw_bars
from vitral.draw.filters import filter_images
from vitral.draw.overlay import enlarge
from vitral.draw.palette import INK, LABEL_SIZE, SOFT, TICK_SIZE, dress, dress_picture, empty_figure, head_line, name_axes, series_colour
from vitral.draw.provenance import render, versions
from vitral.draw.sheet import clear_overlay
from vitral.draw.tiles import cut_into_patches
from vitral.look.describe import digest, seen
from vitral.look.similarity import token_colours
from vitral.report.photograph import PHOTOGRAPH
from vitral.run.folder import RunFolder
from vitral.study.embed import nearest
from vitral.weights.checkpoint import load_checkpoint
from vitral.weights.named import prove_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/images/readme"
RECORD = OUT / "pictures.json"
AUDIT = ROOT / "docs/results/audits/vit-tiny.json"
COMMANDS = {
    "digits": "vitral train digits --snapshots 24",
    "pretrain": "vitral pretrain digits",
    "fight": "vitral compare digits --models vit,cnn --budget samples=10000 --batch-size 64 --lrs 3e-3 --seeds 3",
}
"""Run → what makes it."""
WIDE = 8.3
"""Inches of a picture over the whole column of the README, which is some 830 pixels wide."""
SMALL = (4.15, 2.55)
"""Of one of two side by side."""
HEADS = ((1, 1, "face"), (5, 2, "eyes, nose"), (8, 2, "fur"))
"""Heads of ViT-Ti worth showing on the photograph, and what they light up there."""
DIGITS = ("2", "4", "5")
QUALITY = 86


@dataclass(frozen=True)
class Given:
    weights: Path
    runs: Path

    def model(self) -> vitral.Classifier:
        return vitral.load(self.weights)

    def run(self, name: str) -> Path:
        """The run of that name, made where it is missing."""
        folder = self.runs / name
        if not folder.exists() and vitral_command([*shlex.split(COMMANDS[name])[1:], "--out", str(folder)]):
            raise SystemExit(f"no run {name}")
        return folder


@dataclass(frozen=True)
class Made:
    """A picture, and what it says of itself."""

    image: Image.Image | bytes
    """Bytes: a moving one."""
    command: str
    """What shows a reader the same."""
    facts: dict[str, Any]


# ---- the first picture -----------------------------------------------------------------------------------------------------------


def first(given: Given) -> Made:
    """The photograph, its patches, three heads, what speaks for the class, and the answer."""
    model = given.model()
    tape = vitral.watch(model, PHOTOGRAPH)
    (ranking,) = vitral.predict(model, PHOTOGRAPH, top=3)
    image = seen(_only(tape)).resize((448, 448), Image.Resampling.LANCZOS)
    tiles = [image, cut_into_patches(image, tape.grid), *(_over(vitral.look.attention(tape, block=b, head=h), image) for b, h, _ in HEADS)]
    tiles.append(enlarge(Image.fromarray((token_colours(tape).colours * 255).round().astype(np.uint8)), 448))
    tiles.append(_over(vitral.look.gradient_rollout(tape), image))
    captions = ["a photograph", f"{tape.grid[0]} × {tape.grid[1]} patches", *(f"block {b}, head {h}: {what}" for b, h, what in HEADS)]
    captions += ["tokens after the last block", f"what speaks for {ranking[0][0]}"]
    figure = empty_figure(WIDE, 4.45, w_pad=0.03, h_pad=0.03, wspace=0.0, hspace=0.02)
    axes = figure.subplots(2, 4).flat
    for one, tile, caption in zip(axes, tiles, captions, strict=False):
        dress_picture(one).imshow(tile)
        one.set_title(caption, fontsize=LABEL_SIZE, color=INK, pad=4)
    answer = dress(axes[7])
    draw_bars(answer, [""] * len(ranking), [100 * share for _, share in ranking], "", "{:.0f} %")
    for row, (name, _) in enumerate(ranking):
        answer.text(1, row - 0.46, name, fontsize=LABEL_SIZE, color=INK, va="center")
    answer.set_xlim(0, 125)
    answer.set_xticks([])
    answer.set_ylim(2.6, -0.75)
    answer.spines["bottom"].set_visible(False)
    answer.set_title("the answer", fontsize=LABEL_SIZE, color=INK, pad=4)
    return Made(_picture(figure), "vitral figures vit_tiny.safetensors runs/demo/cat.jpg", _about(given, model) | {"answer": dict(ranking)})


# ---- the tour --------------------------------------------------------------------------------------------------------------------


def train(given: Given) -> Made:
    """Where the class token looks in every block, from the first step to the last."""
    run = RunFolder.open(given.run("digits"))
    snapshots = [*run.snapshots()]
    data = open_data(run.settled.data)
    test = data.test()
    chosen = [next(i for i, label in enumerate(test.labels) if data.class_names[label] == name) for name in DIGITS]
    scores = [(line["step"], line["accuracy"]) for line in run.metrics if line["split"] == "validation"]
    frames, last = [], load_checkpoint(snapshots[-1][1])
    depth = last.config.depth
    grids = []
    for _, folder in snapshots:
        model = load_checkpoint(folder)
        tape = vitral.watch(model, [open_picture(test.picture(index), model) for index in chosen])
        grids.append([[vitral.look.attention(tape, item, block=block) for block in range(depth)] for item in range(len(chosen))])
    high = float(np.percentile([heat.grid for rows in grids for row in rows for heat in row], 99))
    for (step, _), rows in zip(snapshots, grids, strict=True):
        figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
        axes = figure.subplots(len(chosen), depth + 1)
        for across, row in zip(axes, rows, strict=True):
            dress_picture(across[0]).imshow(enlarge(row[0].original))
            for one, heat in zip(across[1:], row, strict=True):
                dress_picture(one).imshow(heat.overlay(mode="patches", limits=(0.0, high)))
        for block, one in enumerate(axes[-1][1:]):
            one.set_xlabel(f"block {block}", fontsize=TICK_SIZE, color=SOFT)
        score = max((known for known in scores if known[0] <= step), default=None)
        told = f" · {100 * score[1]:.0f} % right" if score else ""
        head_line(figure, f"step {step} of {snapshots[-1][0]}{told}")
        frames.append(_picture(figure))
    return Made(animate(frames, "webp", 0.35) or b"", COMMANDS["digits"], {"run": digest(last), "steps": [step for step, _ in snapshots]})


def pretrain(given: Given) -> Made:
    """Digits, and the training digits that a model which saw no label finds most like them."""
    folder = given.run("pretrain")
    model, data = vitral.load(folder), open_data(RunFolder.open(folder).settled.data)
    bank = data.train
    asked = [next(i for i in range(1200, len(bank.labels)) if data.class_names[bank.labels[i]] == name) for name in ("0", "2", "6")]
    found = nearest(model, bank.picture, asked, range(1000), count=6)
    figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    axes = figure.subplots(len(asked), 7)
    for across, number in zip(axes, asked, strict=True):
        for one, other in zip(across, [number, *(near for near, _ in found[number])], strict=True):
            dress_picture(one).imshow(enlarge(bank.picture(other)))
            same = bank.labels[other] == bank.labels[number]
            for spine in one.spines.values():
                spine.set(color=SOFT if other == number else series_colour(2 if same else 1), linewidth=2.2)
    axes[-1][0].set_xlabel("asked", fontsize=TICK_SIZE, color=SOFT)
    axes[-1][3].set_xlabel("most alike, nearest first", fontsize=TICK_SIZE, color=SOFT)
    probe = read_json(folder / layout.PROBE)
    head_line(figure, f"no label was read; a linear probe then: {100 * probe['linear']['accuracy']:.0f} %")
    return Made(_picture(figure), COMMANDS["pretrain"], {"run": digest(model), "probe": probe["linear"], "n": probe["pictures"]})


def bring(given: Given) -> Made:
    """Filters of the weights that came in, and by how much each layer differs from timm's own."""
    model = given.model()
    proof = prove_file(given.weights, "timm:vit_tiny_patch16_224")
    figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.02)
    parts: Any = figure.subfigures(1, 2, width_ratios=[1, 1.25])
    left, right = parts
    for one, tile in zip(left.subplots(7, 4).flat, filter_images(vitral.look.filters(model).shown), strict=True):
        dress_picture(one).imshow(tile, interpolation="nearest")
    axes = dress(right.subplots(), grid="x")
    names = [row.layer for row in proof.rows]
    values = [max(row.value, 1e-9) for row in proof.rows]
    axes.plot(values, range(len(values)), "o", color=series_colour(0), markersize=4)
    axes.set_yticks(range(len(names)), names, fontsize=TICK_SIZE - 2)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(1e-8, 1e-4)
    axes.axvline(proof.tolerance, color=series_colour(1), linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xticks([1e-8, 1e-7, 1e-6, 1e-5])
    name_axes(axes, "difference from timm")
    head_line(figure, "the filters it brought, the proof of every layer")
    command = "vitral weights inspect vit_tiny.safetensors --against timm:vit_tiny_patch16_224"
    return Made(_picture(figure), command, {**_about(given, model), "differences": {row.layer: row.value for row in proof.rows}})


def look(given: Given) -> Made:
    """Five methods on the photograph, with what the audit says of each."""
    model = given.model()
    tape = vitral.watch(model, PHOTOGRAPH)
    image = seen(_only(tape)).resize((336, 336), Image.Resampling.LANCZOS)
    verdicts = {row["method"]: row["verdict"] for row in read_json(AUDIT)["rows"]}
    figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.01, wspace=0.0, hspace=0.0)
    axes = figure.subplots(2, 3).flat
    dress_picture(axes[0]).imshow(image)
    ((name, share), *_), *_ = vitral.predict(model, PHOTOGRAPH)
    axes[0].set_title(f"{name} {100 * share:.0f} %", fontsize=TICK_SIZE, color=INK, pad=2)
    for one, name in zip(axes[1:], ("attention", "rollout", "gradcam", "relevance", "gradient_rollout"), strict=True):
        dress_picture(one).imshow(_over(vitral.look.METHODS[name](tape), image))
        colour = series_colour(COLOURS[verdicts[name]])
        one.set_title(name.replace("_", " "), fontsize=TICK_SIZE, color=INK, pad=2)
        for spine in one.spines.values():
            spine.set(color=colour, linewidth=2.2)
    return Made(_picture(figure), "vitral look vit_tiny.safetensors runs/demo/cat.jpg", _about(given, model))


def audit(_: Given) -> Made:
    """How faithful each method is on ViT-Ti: the published audit of twelve photographs."""
    found = read_json(AUDIT)
    figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.02)
    axes = dress(figure.subplots(), grid="x")
    rows = [row for row in found["rows"] if row["tests"].get("removal")]
    for place, row in enumerate(rows):
        (low, high), colour = row["tests"]["removal"]["interval"], series_colour(COLOURS[row["verdict"]])
        axes.plot([low, high], [place, place], color=colour, linewidth=1.8)
        axes.plot(row["tests"]["removal"]["mean"], place, "o", color=colour, markersize=4.5)
    axes.set_yticks(range(len(rows)), [row["method"].replace("_", " ") for row in rows], fontsize=TICK_SIZE)
    axes.invert_yaxis()
    axes.axvline(0, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
    name_axes(axes, "faithfulness (insertion − deletion)")
    for name, number in COLOURS.items():
        axes.plot([], [], "o-", color=series_colour(number), markersize=4.5, label=name)
    axes.legend(loc="lower right", fontsize=TICK_SIZE, frameon=False, labelcolor=INK)
    head_line(figure, f"ViT-Ti, {found['pictures']} photographs: which maps hold")
    return Made(_picture(figure), found["command"], {"record": AUDIT.relative_to(ROOT).as_posix(), "n": found["pictures"]})


def compare(given: Given) -> Made:
    """A ViT and a CNN on digits after as many pictures."""
    found = read_json(given.run("fight") / layout.RESULT)
    rows = found["rows"]
    figure = empty_figure(*SMALL, w_pad=0.02, h_pad=0.02)
    axes = dress(figure.subplots())
    low, high = ([100 * row["interval"][end] for row in rows] for end in (0, 1))
    draw_bars(axes, [row["model"] for row in rows], [100 * row["mean"] for row in rows], "test accuracy (%)", "{:.1f}", low, high)
    head_line(figure, f"digits after 10,000 pictures, {rows[0]['seeds']} seeds")
    return Made(_picture(figure), COMMANDS["fight"], {"rows": rows, "conclusion": found.get("conclusion", "")})


def explore(given: Given) -> Made:
    """The pointer over the photograph in the explorer: what each patch looks at, all heads beside it."""
    from playwright.sync_api import sync_playwright

    page_file = given.runs / "explore.html"
    if not page_file.exists():
        vitral_command(["explore", str(given.weights), str(PHOTOGRAPH), "--export", str(page_file)])
    frames = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 900}, device_scale_factor=0.85)
        page.goto(page_file.absolute().as_uri())
        page.locator("#predictions button").first.wait_for()
        page.locator("#block").fill(str(BLOCK))
        picture = page.locator("#picture canvas").first.bounding_box()
        assert picture is not None
        left, top = 12, picture["y"] - 106  # below the line that says that the page is offline
        clip: Any = {"x": left, "y": top, "width": 1156, "height": 705}
        for across, down in PATH:
            x, y = picture["x"] + across * picture["width"], picture["y"] + down * picture["height"]
            page.mouse.move(x, y)
            page.wait_for_timeout(250)
            frames.append(_pointed(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"), (x - left) * 0.85, (y - top) * 0.85))
        browser.close()
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], duration=450, loop=0, quality=72, method=6)
    return Made(out.getvalue(), "vitral explore vit_tiny.safetensors runs/demo/cat.jpg", _about(given, given.model()))


BLOCK = 3
PATH = [(0.32, 0.36), (0.36, 0.40), (0.42, 0.46), (0.50, 0.52), (0.55, 0.62), (0.60, 0.72), (0.64, 0.80), (0.64, 0.84), (0.70, 0.74)]
PATH += [(0.76, 0.62), (0.82, 0.52), (0.85, 0.46), (0.76, 0.36), (0.64, 0.26), (0.54, 0.16), (0.44, 0.18), (0.34, 0.26)]
"""Over the picture, in shares of its sides: an eye, the nose, the other eye, the forehead."""


# ---- all of them -----------------------------------------------------------------------------------------------------------------


PICTURES: dict[str, Callable[[Given], Made]] = {one.__name__: one for one in (first, train, pretrain, bring, look, audit, compare, explore)}


def main() -> None:
    asked = argparse.ArgumentParser(description="The pictures of the README.")
    asked.add_argument("weights", type=Path, help="ViT-Ti/16 at 224 pixels in timm's layout")
    asked.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are, or are made")
    asked.add_argument("--only", nargs="+", choices=sorted(PICTURES), default=list(PICTURES))
    given = asked.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    record = read_json(RECORD) if RECORD.is_file() else {}
    for name in given.only:
        made = PICTURES[name](Given(given.weights, given.runs))
        content = made.image if isinstance(made.image, bytes) else _webp(made.image)
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


def _only(tape: vitral.Tape) -> Picture:
    assert tape.pictures is not None
    return tape.pictures[0]


def _over(heat: vitral.Heatmap, image: Image.Image) -> Image.Image:
    """A map over what the model saw of the picture, without the margin it did not see."""
    return clear_overlay(dataclasses.replace(heat, original=image, box=None), size=image.width)[0]


def _picture(figure: Figure) -> Image.Image:
    return Image.open(io.BytesIO(render(figure, "png"))).convert("RGB")


def _webp(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "WEBP", quality=QUALITY, method=6)
    return out.getvalue()


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
