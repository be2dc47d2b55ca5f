"""What a training leaves in the hands of whoever called it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.text import NOTHING, html, table
from vitral.model.classifier import Classifier


@dataclass(frozen=True, repr=False)
class Run:
    """A finished training."""

    path: Path
    metrics: list[dict[str, Any]]
    model: Classifier
    rebuilt: Any = None
    """Of a masked autoencoder: what it was shown, what it made of it, what it was; three arrays."""

    @property
    def test(self) -> dict[str, Any]:
        """The last line: accuracy and loss on the test split."""
        return self.metrics[-1]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {len(self.metrics)} lines of metrics)"

    def _repr_html_(self) -> str:
        """In a notebook: how each split ended, then the model."""
        last = {row["split"]: row for row in self.metrics if "split" in row}
        keys = [key for key in ("epoch", "accuracy", "loss", "seconds") if any(key in row for row in last.values())]
        lines = [[split, *(f"{row[key]:.6g}" if key in row else NOTHING for key in keys)] for split, row in last.items()]
        return html(f"{self!r}\n{table(lines, ['split', *keys], 'lr')}") + html(repr(self.model))
