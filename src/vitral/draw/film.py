"""One moment of a training as a page of panels, the same places and scales in every frame; and all moments on one sheet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.text import readable
from vitral.draw.filters import tones
from vitral.draw.matrices import page_of_grids
from vitral.draw.palette import (
    INK,
    LABEL_SIZE,
    SOFT,
    TICK_SIZE,
    TITLE_SIZE,
    empty_figure,
    label_axes,
    legend,
    map_name,
    paint,
    series_colour,
    series_marker,
    shorten,
    style_axes,
    style_image,
)
from vitral.draw.scale import Scale
from vitral.draw.tiles import picture_sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
PANEL = 2.55
"""Inches of a panel's side."""
COLUMNS = 3
MOST_FRAMES = 8
"""On the sheet."""
BRIGHTEST = 97
"""Percentile of a map at which its colours end: a few artefact patches cannot outshine the others."""
EVEN_SHARES = 3
"""Colours of attention span at least so many even shares: untrained attention, nearly even, stays dark."""
OVER = 0.6
"""How much of a map laid over its picture is the map."""


@dataclass(frozen=True)
class Film:
    """All moments of a training: F frames, P pictures, L blocks, h×w patches. Parts that a model has not got are missing."""

    steps: Sequence[int]
    """(F,)"""
    parts: dict[str, np.ndarray]
    """attention (F, P, L, h, w) · classes (F, P, h, w) · lens (F, P, L + 1) · positions (F, h, w, h, w) · filters (F, n, ph, pw[, 3]) ·
    distance (F, L, heads)"""
    images: Sequence[Image.Image] = ()
    """(P,): what the model sees of the pictures."""
    class_names: Sequence[str] = ()
    """(P,): what each picture is, to the last model."""
    uniform_distance: float = 0.0
    """Attention distance if attention were spread evenly."""
    curve: tuple[np.ndarray, np.ndarray] | None = None
    """Steps and values of what was measured during training."""
    curve_label: str = ""
    name: str = ""
    notes: Sequence[str] = field(default_factory=tuple)


def film_frame(reel: Film, index: int) -> Image.Image:
    """The panels of one moment."""
    return _rendered(frame_figure(reel, index))


def frame_figure(reel: Film, index: int) -> Figure:
    names = [name for name in PANELS if name in reel.parts]
    if not names or not 0 <= index < len(reel.steps):
        raise UsageError(f"frame {index} of {len(reel.steps)} with {len(names)} parts", "give at least one part and one step")
    columns = 2 if len(names) == 4 else min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    width, height = columns * (PANEL + 0.55) + 0.3, rows * (PANEL + 0.62) + 1.6
    figure = empty_figure(width, height)
    figure.set_layout_engine("none")  # every frame has its panels in the same places
    for number, name in enumerate(names):
        row, column = divmod(number, columns)
        left = (0.5 + column * (PANEL + 0.55)) / width
        bottom = 1 - (0.35 + (row + 1) * (PANEL + 0.62) - 0.4) / height
        axes = figure.add_axes((left, bottom, PANEL / width, (PANEL - 0.12) / height))
        title, draw = PANELS[name]
        draw(axes, reel, index)
        axes.set_title(title, fontsize=LABEL_SIZE, color=INK, loc="left", pad=4)
    step = f"step {reel.steps[index]:,} of {reel.steps[-1]:,}"
    figure.text(0.012, 1 - 0.14 / height, shorten(reel.name, 60), fontsize=TITLE_SIZE + 1, color=INK, ha="left", va="top")
    figure.text(0.988, 1 - 0.14 / height, step, fontsize=TITLE_SIZE + 1, color=INK, ha="right", va="top")
    _timeline(figure.add_axes((0.5 / width, 0.42 / height, (width - 0.9) / width, 0.55 / height)), reel, index)
    return figure


def film_sheet(reel: Film, title: str = "") -> Figure:
    """A row for each part, a column for each of at most eight moments."""
    count = len(reel.steps)
    chosen = sorted({round(place) for place in np.linspace(0, count - 1, min(count, MOST_FRAMES))})
    names = [name for name in PANELS if name in reel.parts]
    images = [_tile(reel, name, index) for name in names for index in chosen]
    scales = [scale for name in names for scale in [_scale(reel, name)] * len(chosen)]
    captions = [f"step {readable(reel.steps[index])}" for index in chosen]
    labels, note = [PANELS[name][0].partition(" (")[0] for name in names], " · ".join(READ[name] for name in names if name in READ)
    return picture_sheet(images, captions, columns=len(chosen), title=title, row_labels=labels, width=1.15, scales=scales, note=note)


# ---- panels ------------------------------------------------------------------------------------------------------------------------


def _classes(axes: Axes, reel: Film, index: int) -> None:
    style_image(axes).imshow(_beside([_class_map(reel, picture, index) for picture in range(len(reel.images))]))
    axes.set_xlabel("each map in its own scale", fontsize=TICK_SIZE, color=SOFT)


def _attention(axes: Axes, reel: Film, index: int) -> None:
    style_image(axes).imshow(_attention_page(reel, index))
    order = "pictures across, blocks down" if len(reel.images) > 1 else "blocks in reading order"
    axes.set_xlabel(f"{order}; fixed scales", fontsize=TICK_SIZE, color=SOFT)


def _lens(axes: Axes, reel: Film, index: int) -> None:
    style_axes(axes, grid="y")
    values = reel.parts["lens"][index]  # (P, L + 1)
    places = np.arange(values.shape[1]) - 1
    for picture, line in enumerate(values):
        name = shorten(reel.class_names[picture], 16) if picture < len(reel.class_names) else ""
        colour, marker = series_colour(picture), series_marker(picture)
        axes.plot(places, 100 * line, color=colour, marker=marker, markersize=3, linewidth=1.4, label=name)
    axes.set_ylim(-2, 103)
    axes.set_xlim(places[0] - 0.2, places[-1] + 0.2)
    step = max(1, -(-len(places) // 7))
    axes.set_xticks(places[::step], ["emb." if place < 0 else str(place) for place in places[::step]])
    label_axes(axes, "after block")
    legend(axes, loc="upper left")


def _positions(axes: Axes, reel: Film, index: int) -> None:
    page = page_of_grids(reel.parts["positions"][index])
    shown = style_image(axes).imshow(np.ma.masked_invalid(page), cmap=map_name(True), vmin=-1, vmax=1, interpolation="nearest")
    shown.set_rasterized(True)


def _filters(axes: Axes, reel: Film, index: int) -> None:
    page = _filter_page(reel.parts["filters"][index])
    style_image(axes).imshow(page, cmap="gray", vmin=0, vmax=255, interpolation="nearest")


def _distance(axes: Axes, reel: Film, index: int) -> None:
    every = reel.parts["distance"]
    values = every[index]  # (L, heads)
    blocks, heads = values.shape
    style_axes(axes, grid="y")
    places = np.arange(blocks)[:, None] + (np.linspace(-0.22, 0.22, heads) if heads > 1 else np.zeros(1))
    axes.scatter(places.ravel(), values.ravel(), s=11, color=series_colour(0), alpha=0.75, linewidths=0)
    axes.plot(np.arange(blocks), values.mean(axis=1), color=series_colour(0), linewidth=1.3)
    if reel.uniform_distance:
        axes.axhline(reel.uniform_distance, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1.06 * max(float(every.max()), reel.uniform_distance))
    axes.set_xticks(range(0, blocks, max(1, -(-blocks // 7))))
    label_axes(axes, "block")


PANELS: dict[str, tuple[str, Any]] = {
    "classes": ("what speaks for the class", _classes),
    "attention": ("where the head's token looks", _attention),
    "lens": ("the lens: % of the final class", _lens),
    "positions": ("similarity of positions", _positions),
    "filters": ("filters of the patch embedding", _filters),
    "distance": ("attention distance (pixels)", _distance),
}


UNITS = {
    "attention": "share of attention",
    "lens": "probability",
    "positions": "cosine",
    "distance": "pixels",
}
"""Of the parts that have a scale of colours on the sheet."""
READ = {
    "classes": "class: each map in its own scale",
    "attention": "attention: first picture, last block",
    "lens": "lens: pictures down, blocks across",
    "filters": "filters: zero is grey",
    "distance": "distance: blocks down, heads across",
}
"""What a row of the sheet does not say by itself."""


def _timeline(axes: Axes, reel: Film, index: int) -> None:
    """Where in the training this is, on a logarithmic axis as the snapshots are."""
    style_axes(axes)
    if reel.curve is not None and len(reel.curve[0]):
        axes.plot(reel.curve[0], reel.curve[1], color=series_colour(0), linewidth=1.3)
    else:
        axes.set_yticks([])
    axes.plot(reel.steps, np.zeros(len(reel.steps)), "|", color=SOFT, markersize=5, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.3, max(2, reel.steps[-1]) * 1.15)
    ticks = [0, *(10**power for power in range(int(np.log10(max(1, reel.steps[-1]))) + 1))]
    axes.set_xticks(ticks, [readable(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.axvline(reel.steps[index], color=series_colour(1), linewidth=2)
    label_axes(axes, "step", shorten(reel.curve_label, 16))
    axes.yaxis.label.set_fontsize(TICK_SIZE - 1)


# ---- pixels ------------------------------------------------------------------------------------------------------------------------


def _tile(reel: Film, name: str, index: int) -> Image.Image:
    """A part as a small picture, for the sheet."""
    if name == "classes":
        return Image.fromarray(_class_map(reel, 0, index))
    if name == "attention":
        return Image.fromarray(_looking(reel, 0, -1, index))
    if name == "positions":
        page = page_of_grids(reel.parts[name][index])
        pixels = paint(np.nan_to_num(page), (-1, 1), signed=True)
        return Image.fromarray(np.where(np.isnan(page)[..., None], 255, pixels).astype(np.uint8))
    if name == "filters":
        return Image.fromarray(_filter_page(reel.parts[name][index]).astype(np.uint8))
    return _large(paint(reel.parts[name][index], _limits(reel, name)))


def _scale(reel: Film, name: str) -> Scale | None:
    """What the colours of a row of the sheet stand for."""
    if name not in UNITS:
        return None
    alpha = OVER if name == "attention" and _lies_over(reel) else None
    return Scale(_limits(reel, name), UNITS[name], signed=name == "positions", alpha=alpha)


def _limits(reel: Film, name: str, picture: int = 0, place: int = -1) -> tuple[float, float]:
    """The values of the first and the last colour, the same in every frame: what is fainter early on is shown to be.

    A class map has its own, in every frame: a class's slopes grow and fade with the confidence, so that only shapes can be compared.
    """
    values = reel.parts[name]
    if name == "positions":
        return -1.0, 1.0
    if name == "lens":
        return 0.0, 1.0
    if name == "distance":
        return float(values.min()), float(values.max())
    maps = values[place : place + 1 or None, picture] if name == "classes" else values[:, picture, place]
    maps = maps.reshape(len(maps), -1)  # (1, N) of a frame, or (F, N) of a block
    high = float((np.percentile(maps, BRIGHTEST, axis=1) if maps.shape[1] >= 64 else maps.max(axis=1)).max())
    return 0.0, max(high, EVEN_SHARES / maps.shape[1]) if name == "attention" else high


def _attention_page(reel: Film, index: int) -> np.ndarray:
    """Pictures across and blocks down; of one picture the blocks in reading order."""
    maps = reel.parts["attention"][index]  # (P, L, h, w)
    tiles = [[_looking(reel, picture, block, index) for block in range(maps.shape[1])] for picture in range(len(maps))]
    return _beside(tiles[0]) if len(tiles) == 1 else _stack([list(row) for row in zip(*tiles, strict=True)])


def _stack(rows: list[list[np.ndarray]]) -> np.ndarray:
    """Rows of small pictures of one size, white between them."""

    def joined(parts: list[np.ndarray], axis: int) -> np.ndarray:
        shape = list(parts[0].shape)
        shape[axis] = 1
        gap = np.full(shape, 255, np.uint8)
        return np.concatenate([piece for part in parts for piece in (part, gap)][:-1], axis=axis)

    return joined([joined(row, 1) for row in rows], 0)


def _class_map(reel: Film, picture: int, index: int) -> np.ndarray:
    return _over(reel.images[picture], reel.parts["classes"][index, picture], _limits(reel, "classes", picture, index))


def _looking(reel: Film, picture: int, block: int, index: int) -> np.ndarray:
    """A map of attention; where no class map shows the picture, laid over it."""
    values, limits = reel.parts["attention"][index, picture, block], _limits(reel, "attention", picture, block)
    return _over(reel.images[picture], values, limits) if _lies_over(reel) else _enlarged(paint(values, limits))


def _lies_over(reel: Film) -> bool:
    return "classes" not in reel.parts and len(reel.images) >= reel.parts["attention"].shape[1]


def _over(image: Image.Image, values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """A map laid over its picture."""
    side = 160
    image = image.convert("L").convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    how = Image.Resampling.NEAREST if max(values.shape) <= 8 else Image.Resampling.BICUBIC
    heat = Image.fromarray(paint(values, limits)).resize((side, side), how)
    return np.asarray(Image.blend(image, heat, OVER))


def _beside(pictures: list[np.ndarray]) -> np.ndarray:
    """Pictures in a square as far as possible."""
    columns = int(np.ceil(np.sqrt(len(pictures))))
    blank = np.full_like(pictures[0], 255)
    padded = [*pictures, *[blank] * (-len(pictures) % columns)]
    return _stack([padded[start : start + columns] for start in range(0, len(padded), columns)])


def _filter_page(tiles: np.ndarray) -> np.ndarray:
    return _beside([_enlarged(tone) for tone in tones(tiles)])


def _enlarged(pixels: np.ndarray, side: int = 32) -> np.ndarray:
    """Each number as a square: the white lines between small pictures must stay thin."""
    factor = max(1, side // max(pixels.shape[:2]))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def _large(pixels: np.ndarray, side: int = 96) -> Image.Image:
    return Image.fromarray(_enlarged(pixels, side))


def _rendered(figure: Figure) -> Image.Image:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI)
    return Image.open(content).convert("RGB")
