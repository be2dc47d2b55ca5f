"""Numbers that can draw themselves: what every method of `look` returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.overlay import enlarge, frame_patch, lay_over
from vitral.draw.provenance import FORMATS, save_figure
from vitral.draw.result import Result
from vitral.draw.scale import Scale
from vitral.draw.style import SOFT, TICK_SIZE, label_axes, limits_of, new_figure, paint, squares, style_image
from vitral.draw.text import wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHA = 0.75


@dataclass(frozen=True, eq=False)
class Heatmap(Result):
    """A map of the model's grid, with what it was made by and the picture it belongs to."""

    grid: np.ndarray
    """(h, w) floats, one per patch (or per pixel)."""
    method: str
    block: int | None = None
    head: int | str | None = None
    """A head's number, or how the heads were combined."""
    target: int | str | None = None
    """What the map explains: a class, by name or number."""
    item: int = 0
    """Which picture of the batch."""
    original: Image.Image | None = None
    box: Box | None = None
    """The part of the original that the model saw; None: all of it."""
    note: str = ""
    """What a reader must know, such as "no class token: starts from the mean of the patches"."""
    unit: str = ""
    """What its numbers are: share of attention, change of the logit, …"""
    signed: bool = False
    """Values below zero mean something."""
    start: tuple[int, int] | None = None
    """(row, column) of the patch that the map starts from, which overlays frame; None: no single patch."""

    def __post_init__(self) -> None:
        grid = np.asarray(self.grid, dtype=np.float64)
        if grid.ndim != 2 or grid.size == 0:
            raise UsageError(f"a heat map needs an array (h, w), got {grid.shape}", "choose one picture, one block and one head")
        if not np.isfinite(grid).all():
            raise UsageError(f"the {self.method} map holds NaN or infinity", "is the model's output finite for this picture?")
        object.__setattr__(self, "grid", grid)

    def __repr__(self) -> str:
        return f"Heatmap({self.title}, {self.grid.shape[0]}×{self.grid.shape[1]}{'' if self.original is None else ', with its picture'})"

    @property
    def title(self) -> str:
        """`rollout → church`, `attention, block 3, head 1`."""
        parts = [self.method.replace("_", " ")]
        if self.block is not None:
            parts.append(f"block {self.block}")
        if self.head is not None:
            parts.append(f"head {self.head}" if isinstance(self.head, int) else f"{self.head} of heads")
        target = "" if self.target is None else f" → {f'class {self.target}' if isinstance(self.target, int) else self.target}"
        return ", ".join(parts) + target

    @property
    def limits(self) -> tuple[float, float]:
        return limits_of(self.grid, self.signed)

    @property
    def peak(self) -> tuple[int, int]:
        """(row, column) of the largest value; for a signed map of the one farthest from zero."""
        index = int(np.argmax(np.abs(self.grid) if self.signed else self.grid))
        return index // self.grid.shape[1], index % self.grid.shape[1]

    def image(self, size: int = 256, limits: tuple[float, float] | None = None, colours: str | None = None) -> Image.Image:
        """The map alone, each number a flat square; at least `size` pixels on the longer side."""
        return Image.fromarray(squares(paint(self.grid, limits or self.limits, self.signed, colours), size))

    def overlay(
        self,
        alpha: float = ALPHA,
        size: int | None = None,
        mode: str = "bicubic",
        limits: tuple[float, float] | None = None,
        colours: str | None = None,
    ) -> Image.Image:
        """The map over the original picture, crop and resize undone; the map alone where there is no original.

        mode: bicubic, bilinear or patches. alpha: how much the strongest colour covers. limits: the values of the darkest and
        the brightest colour, to compare several maps. colours: one of matplotlib's colour maps, such as "magma"; None: ours.
        """
        if self.original is None:
            image = self.image(size or 256, limits, colours)
        else:
            options: dict[str, Any] = {"alpha": alpha, "size": size, "mode": mode, "signed": self.signed, "colours": colours}
            image = lay_over(self.original, self.grid, self.box, limits=limits or self.limits, **options)
        if self.start is not None:
            frame_patch(image, self.start, self.grid.shape, self.original, self.box)
        return image

    def scale(
        self, alpha: float = ALPHA, limits: tuple[float, float] | None = None, colours: str | None = None, cut: bool = False
    ) -> Scale:
        """What the colours of an overlay with these options stand for; `cut`: there are values beyond the limits."""
        return Scale(limits or self.limits, self.unit, self.signed, cut, None if self.original is None else alpha, colours)

    def figure(self, alpha: float = ALPHA, mode: str = "bicubic", colours: str | None = None) -> Figure:
        """The original and the overlay side by side, titled, with a scale."""
        panels: list[tuple[Image.Image, str]] = []
        if self.original is not None:
            panels.append((enlarge(self.original), "picture"))
        panels.append((self.overlay(alpha, mode=mode, colours=colours), wrap(self.title, 2.9)))
        shape = panels[-1][0].height / panels[-1][0].width
        more = (0.25 if self.note else 0.0) + 0.16 * panels[-1][1].count("\n")
        figure, axes = new_figure(3.2 * len(panels) + 0.7, 3.05 * min(max(shape, 0.3), 2.5) + 0.4 + more, 1, len(panels))
        for one, (image, title) in zip(axes[0], panels, strict=True):
            one.imshow(image)
            label_axes(style_image(one), title=title)
        self.scale(alpha, colours=colours).bar(figure, axes[0, -1])
        if self.note:
            figure.supxlabel(wrap(self.note, 3.2 * len(panels)), fontsize=TICK_SIZE, color=SOFT)
        return figure

    def numbers(self) -> dict[str, Any]:
        return {"grid": self.grid}

    def draw(self) -> Figure:
        return self.figure()

    def save(self, path: str | Path, provenance: dict[str, Any] | None = None) -> Path:  # type: ignore[override]
        """The figure at `path` (its ending chooses PNG, SVG or PDF; none: PNG), with .npz and .json beside it."""
        path = Path(path)
        ending = path.suffix.lstrip(".").lower()
        ending, stem = (ending, path.with_suffix("")) if ending in FORMATS else ("png", path)
        record = {**self.to_dict(), **(provenance or {})}
        return save_figure(self.draw(), stem, self.numbers(), record, caption=self.title, formats=(ending,))[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, for JSON."""
        box = None if self.box is None else [self.box.left, self.box.top, self.box.right, self.box.bottom]
        names = ("method", "block", "head", "target", "item", "note", "unit", "signed", "start")
        return {**{name: getattr(self, name) for name in names}, "grid": list(self.grid.shape), "limits": list(self.limits), "box": box}
