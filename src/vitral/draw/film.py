"""One moment of a training as a page of panels, alike in every frame; all moments on one sheet, or as one moving file."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.text import readable
from vitral.draw.matrices import page_of_grids
from vitral.draw.scale import Scale
from vitral.draw.sheet import BRIGHTEST
from vitral.draw.style import (
    DASHED,
    INK,
    LABEL_SIZE,
    SOFT,
    TICK_SIZE,
    TITLE_SIZE,
    depth_ticks,
    empty_figure,
    jittered,
    label_axes,
    legend,
    map_name,
    paint,
    series_colour,
    series_marker,
    style_axes,
    style_image,
)
from vitral.draw.text import shorten
from vitral.draw.tiles import picture_sheet, weights_to_grey

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
_PANEL = 2.55
"""Inches of a panel's side."""
_COLUMNS = 3
FORMATS = ("webp", "gif", "mp4")
_LAST = 4
"""How many times as long the last picture stays: it is what the film leads to."""
_MOST_FRAMES = 8
"""On the sheet."""
_EVEN_SHARES = 3
"""Colours of attention span at least so many even shares: untrained attention, nearly even, stays dark."""
_OVER = 0.6
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


def film_frame(film: Film, index: int) -> Image.Image:
    """The panels of one moment."""
    content = io.BytesIO()
    _frame_figure(film, index).savefig(content, format="png", dpi=DPI)
    return Image.open(content).convert("RGB")


def _frame_figure(film: Film, index: int) -> Figure:
    names = [name for name in PARTS if name in film.parts]
    if not names or not 0 <= index < len(film.steps):
        raise UsageError(f"frame {index} of {len(film.steps)} with {len(names)} parts", "give at least one part and one step")
    columns = 2 if len(names) == 4 else min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    width, height = columns * (_PANEL + 0.55) + 0.3, rows * (_PANEL + 0.62) + 1.6
    figure = empty_figure(width, height)
    figure.set_layout_engine("none")  # every frame has its panels in the same places
    for number, name in enumerate(names):
        row, column = divmod(number, columns)
        left = (0.5 + column * (_PANEL + 0.55)) / width
        bottom = 1 - (0.35 + (row + 1) * (_PANEL + 0.62) - 0.4) / height
        axes = figure.add_axes((left, bottom, _PANEL / width, (_PANEL - 0.12) / height))
        PARTS[name].panel(axes, film, index)
        axes.set_title(PARTS[name].title, fontsize=LABEL_SIZE, color=INK, loc="left", pad=4)
    step = f"step {film.steps[index]:,} of {film.steps[-1]:,}"
    figure.text(0.012, 1 - 0.14 / height, shorten(film.name, 60), fontsize=TITLE_SIZE + 1, color=INK, ha="left", va="top")
    figure.text(0.988, 1 - 0.14 / height, step, fontsize=TITLE_SIZE + 1, color=INK, ha="right", va="top")
    _timeline(figure.add_axes((0.5 / width, 0.42 / height, (width - 0.9) / width, 0.55 / height)), film, index)
    return figure


def film_sheet(film: Film, title: str = "") -> Figure:
    """A row for each part, a column for each of at most eight moments."""
    count = len(film.steps)
    chosen = sorted({round(index) for index in np.linspace(0, count - 1, min(count, _MOST_FRAMES))})
    parts = {name: part for name, part in PARTS.items() if name in film.parts}
    images = [Image.fromarray(part.tile(film, index)) for part in parts.values() for index in chosen]
    scales = [scale for name in parts for scale in [_scale(film, name)] * len(chosen)]
    captions = [f"step {readable(film.steps[index])}" for index in chosen]
    labels = [part.title.partition(" (")[0] for part in parts.values()]
    note = " · ".join(part.row_note for part in parts.values() if part.row_note)
    return picture_sheet(images, captions, columns=len(chosen), title=title, row_labels=labels, width=1.15, scales=scales, note=note)


def animate(frames: Sequence[Image.Image], ending: str, seconds: float = 0.5) -> bytes | None:
    """The bytes of a WebP, GIF or MP4 file that shows each frame for `seconds`; None: MP4 where there is no ffmpeg."""
    if not frames or len({frame.size for frame in frames}) != 1:
        raise UsageError(f"{len(frames)} frames of {len({frame.size for frame in frames})} sizes", "give at least one, all of one size")
    if seconds <= 0:
        raise UsageError(f"{seconds} seconds a frame", "use something like 0.5")
    colour = [frame.convert("RGB") for frame in frames]
    if ending == "mp4":
        return _by_ffmpeg(colour, seconds)
    times = [round(1000 * seconds)] * (len(frames) - 1) + [round(1000 * seconds * _LAST)]
    options = {"save_all": True, "append_images": colour[1:], "duration": times, "loop": 0}
    out = io.BytesIO()
    if ending == "webp":
        colour[0].save(out, "WEBP", quality=78, method=4, **options)
    else:
        colour[0].save(out, "GIF", optimize=True, **options)
    return out.getvalue()


def _by_ffmpeg(frames: Sequence[Image.Image], seconds: float) -> bytes | None:
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    pictures = io.BytesIO()
    for frame in [*frames, *[frames[-1]] * (_LAST - 1)]:
        frame.save(pictures, "PNG", compress_level=1)
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"  # players want even sides, and this kind of colour
    command = [program, "-v", "error", "-f", "image2pipe", "-framerate", f"{1 / seconds:g}", "-i", "-", "-vf", even]
    command += ["-pix_fmt", "yuv420p", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"]
    done = subprocess.run(command, input=pictures.getvalue(), capture_output=True)
    if done.returncode or not done.stdout:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(
            f"ffmpeg could not write the film ({message[-1] if message else 'no output'})", "leave mp4 out with --format webp gif"
        )
    return done.stdout


# ---- panels ------------------------------------------------------------------------------------------------------------------------


def _classes(axes: Axes, film: Film, index: int) -> None:
    style_image(axes).imshow(_arranged([_class_map(film, picture, index) for picture in range(len(film.images))]))
    axes.set_xlabel("each map in its own scale", fontsize=TICK_SIZE, color=SOFT)


def _attention(axes: Axes, film: Film, index: int) -> None:
    style_image(axes).imshow(_attention_page(film, index))
    order = "pictures across, blocks down" if len(film.images) > 1 else "blocks in reading order"
    axes.set_xlabel(f"{order}; fixed scales", fontsize=TICK_SIZE, color=SOFT)


def _lens(axes: Axes, film: Film, index: int) -> None:
    style_axes(axes, grid="y")
    values = film.parts["lens"][index]  # (P, L + 1)
    depths = np.arange(values.shape[1]) - 1
    for picture, line in enumerate(values):
        name = shorten(film.class_names[picture], 16) if picture < len(film.class_names) else ""
        colour, marker = series_colour(picture), series_marker(picture)
        axes.plot(depths, 100 * line, color=colour, marker=marker, markersize=3, linewidth=1.4, label=name)
    axes.set_ylim(-2, 103)
    axes.set_xlim(depths[0] - 0.2, depths[-1] + 0.2)
    depth_ticks(axes, depths, 7)
    label_axes(axes, "after block")
    legend(axes, loc="upper left")


def _positions(axes: Axes, film: Film, index: int) -> None:
    page = page_of_grids(film.parts["positions"][index])
    shown = style_image(axes).imshow(np.ma.masked_invalid(page), cmap=map_name(True), vmin=-1, vmax=1, interpolation="nearest")
    shown.set_rasterized(True)


def _positions_tile(film: Film, index: int) -> np.ndarray:
    page = page_of_grids(film.parts["positions"][index])
    pixels = paint(np.nan_to_num(page), (-1, 1), signed=True)
    return np.where(np.isnan(page)[..., None], 255, pixels).astype(np.uint8)


def _filters(axes: Axes, film: Film, index: int) -> None:
    style_image(axes).imshow(_filters_tile(film, index), cmap="gray", vmin=0, vmax=255, interpolation="nearest")


def _filters_tile(film: Film, index: int) -> np.ndarray:
    return _arranged([_enlarged(grey) for grey in weights_to_grey(film.parts["filters"][index])])


def _distance(axes: Axes, film: Film, index: int) -> None:
    every = film.parts["distance"]
    values = every[index]  # (L, heads)
    blocks, heads = values.shape
    style_axes(axes, grid="y")
    axes.scatter(jittered(blocks, heads).ravel(), values.ravel(), s=11, color=series_colour(0), alpha=0.75, linewidths=0)
    axes.plot(np.arange(blocks), values.mean(axis=1), color=series_colour(0), linewidth=1.3)
    if film.uniform_distance:
        axes.axhline(film.uniform_distance, **DASHED)
    axes.set_ylim(0, 1.06 * max(float(every.max()), film.uniform_distance))
    axes.set_xticks(range(0, blocks, max(1, -(-blocks // 7))))
    label_axes(axes, "block")


def _timeline(axes: Axes, film: Film, index: int) -> None:
    """Where in the training this is, on a logarithmic axis as the snapshots are."""
    style_axes(axes)
    if film.curve is not None and len(film.curve[0]):
        axes.plot(film.curve[0], film.curve[1], color=series_colour(0), linewidth=1.3)
    else:
        axes.set_yticks([])
    axes.plot(film.steps, np.zeros(len(film.steps)), "|", color=SOFT, markersize=5, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.3, max(2, film.steps[-1]) * 1.15)
    ticks = [0, *(10**power for power in range(int(np.log10(max(1, film.steps[-1]))) + 1))]
    axes.set_xticks(ticks, [readable(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.axvline(film.steps[index], color=series_colour(1), linewidth=2)
    label_axes(axes, "step", shorten(film.curve_label, 16))
    axes.yaxis.label.set_fontsize(TICK_SIZE - 1)


# ---- pixels ------------------------------------------------------------------------------------------------------------------------


def _numbers_tile(name: str) -> Callable[[Film, int], np.ndarray]:
    return lambda film, index: _enlarged(paint(film.parts[name][index], PARTS[name].limits(film)), 96)


def _scale(film: Film, name: str) -> Scale | None:
    """What the colours of a row of the sheet stand for."""
    part = PARTS[name]
    alpha = _OVER if name == "attention" and _over_picture(film) else None
    return Scale(part.limits(film), part.unit, signed=name == "positions", alpha=alpha) if part.unit else None


def _class_limits(film: Film, picture: int, index: int) -> tuple[float, float]:
    """A map's own, in every frame: a class's slopes grow and fade with the confidence, so that only shapes can be compared."""
    return 0.0, _brightest(film.parts["classes"][index : index + 1 or None, picture])


def _attention_limits(film: Film, picture: int = 0, block: int = -1) -> tuple[float, float]:
    """The same in every frame, so that weaker early maps look weaker."""
    maps = film.parts["attention"][:, picture, block]  # (F, h, w)
    return 0.0, max(_brightest(maps), _EVEN_SHARES / maps[0].size)


def _brightest(maps: np.ndarray) -> float:
    """Value of the last colour of maps (F, h, w): the 97th percentile, of small maps the largest."""
    maps = maps.reshape(len(maps), -1)
    return float((np.percentile(maps, BRIGHTEST, axis=1) if maps.shape[1] >= 64 else maps.max(axis=1)).max())


def _attention_page(film: Film, index: int) -> np.ndarray:
    """Pictures across and blocks down; of one picture the blocks in reading order."""
    maps = film.parts["attention"][index]  # (P, L, h, w)
    tiles = [[_looking(film, picture, block, index) for block in range(maps.shape[1])] for picture in range(len(maps))]
    return _arranged(tiles[0]) if len(tiles) == 1 else _stack([list(row) for row in zip(*tiles, strict=True)])


def _stack(rows: list[list[np.ndarray]]) -> np.ndarray:
    """Rows of small pictures of one size, white between them."""

    def joined(parts: list[np.ndarray], axis: int) -> np.ndarray:
        shape = list(parts[0].shape)
        shape[axis] = 1
        gap = np.full(shape, 255, np.uint8)
        return np.concatenate([piece for part in parts for piece in (part, gap)][:-1], axis=axis)

    return joined([joined(row, 1) for row in rows], 0)


def _class_map(film: Film, picture: int, index: int) -> np.ndarray:
    return _over(film.images[picture], film.parts["classes"][index, picture], _class_limits(film, picture, index))


def _looking(film: Film, picture: int, block: int, index: int) -> np.ndarray:
    """A map of attention; where no class map shows the picture, laid over it."""
    values, limits = film.parts["attention"][index, picture, block], _attention_limits(film, picture, block)
    return _over(film.images[picture], values, limits) if _over_picture(film) else _enlarged(paint(values, limits))


def _over_picture(film: Film) -> bool:
    return "classes" not in film.parts and len(film.images) >= film.parts["attention"].shape[1]


def _over(image: Image.Image, values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """A map laid over its picture."""
    side = 160
    image = image.convert("L").convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    how = Image.Resampling.NEAREST if max(values.shape) <= 8 else Image.Resampling.BICUBIC
    heat = Image.fromarray(paint(values, limits)).resize((side, side), how)
    return np.asarray(Image.blend(image, heat, _OVER))


def _arranged(pictures: list[np.ndarray]) -> np.ndarray:
    """Pictures in a square as far as possible."""
    columns = int(np.ceil(np.sqrt(len(pictures))))
    blank = np.full_like(pictures[0], 255)
    padded = [*pictures, *[blank] * (-len(pictures) % columns)]
    return _stack([padded[start : start + columns] for start in range(0, len(padded), columns)])


def _enlarged(pixels: np.ndarray, side: int = 32) -> np.ndarray:
    """Each number as a square, at most `side` pixels in all: the white lines between small pictures must stay thin."""
    factor = max(1, side // max(pixels.shape[:2]))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


class _Part(NamedTuple):
    title: str
    panel: Callable[[Axes, Film, int], None]
    tile: Callable[[Film, int], np.ndarray]
    """Its row of the sheet, at one moment."""
    limits: Callable[[Film], tuple[float, float]] = lambda _: (0.0, 1.0)
    """The values of the first and the last colour of that row."""
    unit: str = ""
    """Of these values; empty: the row has no scale."""
    row_note: str = ""
    """What the row does not show by itself."""


PARTS = {
    "classes": _Part(
        "what speaks for the class", _classes, lambda film, index: _class_map(film, 0, index), row_note="class: each map in its own scale"
    ),
    "attention": _Part(
        "where the head's token looks",
        _attention,
        lambda film, index: _looking(film, 0, -1, index),
        _attention_limits,
        "share of attention",
        "attention: first picture, last block",
    ),
    "lens": _Part(
        "the lens: % of the final class", _lens, _numbers_tile("lens"), unit="probability", row_note="lens: pictures down, blocks across"
    ),
    "positions": _Part("similarity of positions", _positions, _positions_tile, lambda _: (-1.0, 1.0), "cosine"),
    "filters": _Part("filters of the patch embedding", _filters, _filters_tile, row_note="filters: zero is grey"),
    "distance": _Part(
        "attention distance (pixels)",
        _distance,
        _numbers_tile("distance"),
        lambda film: (float(film.parts["distance"].min()), float(film.parts["distance"].max())),
        "pixels",
        "distance: blocks down, heads across",
    ),
}
"""The parts of a film, in the order of its panels."""
