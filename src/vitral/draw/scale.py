"""What a map's colours stand for: its ends, its unit, and a bar that shows it beside the map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitral.base.text import compact
from vitral.draw.overlay import tinted
from vitral.draw.style import SOFT, TICK_SIZE, dress_bar, map_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, SubFigure

NEUTRAL = 150.0
"""Grey of the photograph that stands behind a bar's colours."""


@dataclass(frozen=True)
class Scale:
    limits: tuple[float, float]
    """The values of the first and the last colour."""
    unit: str = ""
    signed: bool = False
    cut: bool = False
    """There are values beyond the ends: the bar ends in arrows."""
    alpha: float | None = None
    """Of the overlay it belongs to, whose colours let a photograph through; None: the colours themselves."""
    colours: str | None = None

    def bar(self, figure: Figure | SubFigure, axes: Axes) -> None:
        """A slim bar at the right of a picture, as high as the picture is."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        low, high = self.limits
        if not high > low:
            axes.annotate(
                f"{compact(low)} everywhere",
                (1.02, 0.5),
                xycoords="axes fraction",
                rotation=90,
                va="center",
                fontsize=TICK_SIZE - 2,
                color=SOFT,
            )
            return
        inset = axes.inset_axes((1.025, 0.0, 0.035, 1.0))
        ends = {"extend": ("both" if self.signed else "max") if self.cut else "neither", "extendfrac": 0.04}
        bar = figure.colorbar(ScalarMappable(Normalize(low, high), self._colour_map()), cax=inset, ticks=self.ticks(), **ends)
        bar.ax.set_yticklabels(self._words())
        dress_bar(bar, self.unit, TICK_SIZE - 2)

    def ticks(self) -> list[float]:
        low, high = self.limits
        return [low, 0.0, high] if low < 0 < high else [low, high]

    def _words(self) -> list[str]:
        """The ticks in two digits, or in as many as tell them apart: 15.9 and 16.2, not 16 twice."""
        words, digits = [compact(tick) for tick in self.ticks()], 2
        while len(set(words)) < len(words) and digits < 9:
            digits += 1
            words = [f"{tick:.{digits}g}".replace("-", "−") for tick in self.ticks()]
        return words

    def _colour_map(self) -> Colormap:
        import matplotlib
        from matplotlib.colors import ListedColormap

        if self.alpha is None:
            return matplotlib.colormaps[self.colours or map_name(self.signed)]
        shares = np.linspace(0, 1, 256)
        return ListedColormap(tinted(np.full((256, 3), NEUTRAL), shares, self.signed, self.alpha, self.colours) / 255)
