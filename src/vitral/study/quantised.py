"""What a smaller model is worth beside the one it was made of: plain values, as proof.json keeps them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vitral.base.text import NOTHING, byte_size, percent, table


@dataclass(frozen=True)
class Version:
    """The model in one precision, beside fp32 on the same pictures."""

    name: str
    file: str
    bytes: int
    pictures: int
    same: float
    """Share of the pictures with the same answer."""
    largest: float
    """Largest change of a logit."""
    typical: float
    """Root mean square of the changes."""
    confidence: float
    """Mean size of the change of confidence."""
    top1: float | None = None
    calibration: float | None = None
    """Expected calibration error."""
    milliseconds: float | None = None
    """For one picture, median of the rounds."""
    speed: float | None = None
    """fp32's time over its own, within a round, median of the rounds."""
    spread: tuple[float, float] | None = None
    """10 and 90 % of the rounds."""


@dataclass(frozen=True)
class Layer:
    """What the logits lose when this layer alone is in 8 bits."""

    name: str
    typical: float
    largest: float
    share: float
    """Of the sum of all layers' squared changes."""


@dataclass(frozen=True)
class Changed:
    """A picture with another answer."""

    picture: str
    before: str
    confidence_before: float
    after: str
    confidence_after: float


@dataclass(frozen=True)
class Proof:
    model: str
    data: str
    split: str
    pictures: int
    versions: tuple[Version, ...]
    layers: tuple[Layer, ...]
    """The worst first."""
    layer_pictures: int
    changed: tuple[Changed, ...]
    limits: dict[str, float]
    failures: tuple[str, ...]
    """Limits that int8 fails, in words."""
    notes: tuple[str, ...]
    machine: dict[str, Any]
    seconds: float
    command: str = ""

    def version(self, name: str) -> Version:
        return next(one for one in self.versions if one.name == name)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": not self.failures}

    def text(self) -> str:
        labelled = any(one.top1 is not None for one in self.versions)
        rows = [
            [
                one.name,
                byte_size(one.bytes),
                percent(one.same),
                *([percent(one.top1) if one.top1 is not None else NOTHING] if labelled else []),
                f"{one.largest:.3f}",
                NOTHING if one.milliseconds is None else f"{one.milliseconds:.1f} ms",
                NOTHING if one.speed is None else f"{one.speed:.2f} ×",
            ]
            for one in self.versions
        ]
        head = ["", "size", "same answers", *(["top-1"] if labelled else []), "largest logit change", "one picture", "speed"]
        worst = f"hurts most: {self.layers[0].name} ({percent(self.layers[0].share)} of the squared change)" if self.layers else ""
        lines = [f"{self.model} on {self.data} ({self.split}, {self.pictures:,} pictures)", table(rows, head, align="lr"), worst]
        return "\n".join(line for line in (*lines, *(f"note: {note}" for note in self.notes)) if line)
