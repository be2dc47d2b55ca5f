"""Colours that everybody can tell apart, and the look of every figure.

Lines use Okabe and Ito's colours, in an order that starts with the strongest contrast. Maps use perceptually uniform scales:
`inferno` where more is more, `RdBu` (blue below zero, red above) where the sign matters; the first keeps its order in grey print.
The look is set on each object, not in matplotlib's global settings, so drawing is safe in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base.errors import one_of
from vitral.base.text import columns
from vitral.draw.provenance import png_bytes
from vitral.draw.text import break_lines, dress_text, set_fallback_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SEQUENTIAL = "inferno"
_DIVERGING = "RdBu_r"

PAPER = "#ffffff"
INK = "#1f2933"
SOFT = "#52606d"
LINE = "#dfe3e8"

DASHED: dict[str, Any] = {"color": SOFT, "linewidth": 0.9, "linestyle": (0, (4, 3))}
"""A line to compare with: chance, the mean of all."""

TITLE_SIZE = 10
LABEL_SIZE = 9
TICK_SIZE = 8


def series_colour(index: int) -> str:
    return SERIES[index % len(SERIES)]


def series_marker(index: int) -> str:
    """Goes with the colour, so that a line is known by its shape too; moves on when the colours start again."""
    return MARKERS[(index + index // len(SERIES)) % len(MARKERS)]


def map_name(signed: bool) -> str:
    return _DIVERGING if signed else SEQUENTIAL


def limits_of(values: np.ndarray, signed: bool = False) -> tuple[float, float]:
    """The range that the colours span: all the values; for signed ones the same on both sides of zero."""
    if signed:
        reach = float(np.abs(values).max())
        return -reach, reach
    return float(values.min()), float(values.max())


def paint(values: np.ndarray, limits: tuple[float, float] | None = None, signed: bool = False, colours: str | None = None) -> np.ndarray:
    """Numbers of any shape → colours (…, 3) in uint8. Equal values everywhere get one quiet colour: there is nothing to see."""
    import matplotlib

    low, high = limits or limits_of(values, signed)
    span = high - low
    share = np.clip((values - low) / span, 0, 1) if span > 0 else np.full(np.shape(values), 0.5 if signed else 0.0)
    if colours is not None and colours not in matplotlib.colormaps:
        raise one_of("colours", colours, matplotlib.colormaps)
    return np.asarray(matplotlib.colormaps[colours or map_name(signed)](share, bytes=True))[..., :3]


def squares(pixels: np.ndarray, side: int) -> np.ndarray:
    """Each number (or colour) as a flat square, at least `side` pixels in all on the longer side."""
    factor = max(1, -(-side // max(pixels.shape[:2])))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def used_axes(axes: np.ndarray, count: int) -> list[Axes]:
    """The first `count` axes of a grid; the others are hidden."""
    for spare in axes.flat[count:]:
        spare.set_visible(False)
    return list(axes.flat[:count])


def jittered(blocks: int, heads: int) -> np.ndarray:
    """(blocks, heads): where the dot of each head lies on an axis of blocks, heads side by side."""
    return np.arange(blocks)[:, None] + (np.linspace(-0.22, 0.22, heads) if heads > 1 else np.zeros(1))


def depth_ticks(axes: Axes, depths: np.ndarray, most: int) -> None:
    """At most `most` ticks from the embedding (−1) to the last block."""
    step = max(1, -(-len(depths) // most))
    axes.set_xticks(depths[::step], ["emb." if depth < 0 else str(depth) for depth in depths[::step]])


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure in inches with rows × columns axes, dressed."""
    figure = empty_figure(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **options)  # (rows, columns)
    for one in axes.flat:
        style_axes(one)
    return figure, axes


def empty_figure(width: float, height: float, **spaces: float) -> Figure:
    """A figure in inches of which nothing is cut off, whatever its labels are; `spaces`: between its parts, for the layout engine."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Dressed(Figure):
        """Finds its letters before it is drawn, whoever draws it: names may be in any script."""

        def draw(self, renderer: Any) -> None:
            set_fallback_fonts(self)
            super().draw(renderer)

        def _repr_png_(self) -> bytes:
            """In a notebook it shows itself, without pyplot."""
            return png_bytes(self)

    figure = Dressed(figsize=(width, height), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(**spaces)  # type: ignore[union-attr]
    return figure


def style_axes(axes: Axes, grid: str = "") -> Axes:
    """The look of a chart; `grid`: x, y or both for faint lines behind the data."""
    axes.set_facecolor(PAPER)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(SOFT)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(which="both", colors=SOFT, labelsize=TICK_SIZE, width=0.8, length=3)
    if grid:
        axes.grid(True, axis=grid, color=LINE, linewidth=0.7)  # type: ignore[arg-type]
        axes.set_axisbelow(True)
    return axes


def style_image(axes: Axes) -> Axes:
    """The look of a picture: no ticks, a thin frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(LINE)
        spine.set_linewidth(0.6)
    return axes


def label_axes(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    if x:
        axes.set_xlabel(x, fontsize=LABEL_SIZE, color=INK)
    if y:
        axes.set_ylabel(y, fontsize=LABEL_SIZE, color=INK)
    if title:
        axes.set_title(title, fontsize=TITLE_SIZE, color=INK, loc="left")


def percent_axis(axes: Axes, room: float, ticks: Sequence[int]) -> None:
    """An axis of per cents: its line ends at 100, the numbers written behind the bars have `room` beyond it."""
    axes.set_xlim(0, room)
    axes.set_xticks(ticks)
    axes.spines["bottom"].set_bounds(0, 100)


def add_title(figure: Figure | SubFigure, title: str) -> None:
    """The figure's title, over as many lines as it takes; a figure grows by those that the title needs beyond its first."""
    if not title:
        return
    text = figure.suptitle(title, fontsize=TITLE_SIZE + 1, color=INK, x=0.01, ha="left")
    dress_text(text)
    whole = " ".join(title.split())
    lines, length, room = [whole], columns(whole), 0.96 * figure.bbox.width
    while (extent := text.get_window_extent().width) > room and length > 8:
        length = min(length - 1, int(columns(max(lines, key=columns)) * room / extent))
        lines = break_lines(whole, length)
        text.set_text("\n".join(lines))
    if len(lines) > 1 and figure.get_figure() is figure:
        width, height = figure.get_size_inches()  # type: ignore[union-attr]
        figure.set_size_inches(width, height + 0.19 * (len(lines) - 1))  # type: ignore[union-attr]


def legend(axes: Axes, **options: Any) -> None:
    """A quiet legend; none where nothing has a name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=TICK_SIZE, frameon=False, labelcolor=INK, **options)


def colour_bar(figure: Figure, mappable: Any, axes: Any, label: str = "", **options: Any) -> None:
    bar = figure.colorbar(mappable, ax=axes, **{"shrink": 0.85, "pad": 0.02, "aspect": 24, **options})
    dress_bar(bar, label)


def dress_bar(bar: Any, label: str = "", size: float = TICK_SIZE) -> None:
    """The look of every colour bar."""
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", colors=SOFT, labelsize=size, width=0.8, length=2.5, pad=2)
    if label:
        bar.set_label(label, fontsize=size + 1 if size >= TICK_SIZE else size, color=INK)
