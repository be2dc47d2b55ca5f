"""What every method of `look` returns: numbers that draw themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.draw.provenance import png_bytes, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result:
    """Numbers with the figure that they draw; a notebook shows it."""

    def numbers(self) -> dict[str, Any]:
        """Arrays and numbers by name, as an .npz file holds them."""
        raise NotImplementedError

    def draw(self) -> Figure:
        raise NotImplementedError

    def save(self, stem: Path, about: dict[str, Any], formats: Sequence[str], caption: str = "") -> list[Path]:
        """Write the figure with its numbers and `about` beside it; the paths of the pictures."""
        return save_figure(self.draw(), stem, self.numbers(), about, caption, formats)[: len(formats)]

    def _repr_png_(self) -> bytes:
        return png_bytes(self.draw())
