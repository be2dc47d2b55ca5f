"""Where a run is, and what it has learnt since the last line of its journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Window:
    """Steps the device has not been asked about yet."""

    losses: list[Tensor] = field(default_factory=list)
    correct: list[Tensor] = field(default_factory=list)
    indices: list[Tensor] = field(default_factory=list)
    lrs: list[float] = field(default_factory=list)
    images: int = 0

    def add(self, loss: Tensor, correct: Tensor, indices: Tensor, lr: float, images: int) -> None:
        self.losses.append(loss)
        self.correct.append(correct)
        self.indices.append(indices)
        self.lrs.append(lr)
        self.images += images


@dataclass
class Counts:
    """All of it goes into a checkpoint."""

    step: int = 0
    seconds: float = 0.0
    images: int = 0
    """Since the last line of the journal, like the next two."""
    loss: float = 0.0
    correct: float = 0.0
    line_step: int = 0
    """Of that line, like the next."""
    line_seconds: float = 0.0
    best: float = -1.0
    waited: int = 0
    """Validations since the best one."""
    updates: int = 0
    """Of the EMA."""
    accuracy: float | None = None
    """Of the last training line, for the advice."""
    lr: float = 0.0
    """Of the last step."""
    warned: bool = False
    snapshots: int = 0
    """Planned ones that are written."""

    def take(self, window: Window, loss: float, correct: float) -> None:
        """The steps of a window, with the sums that the device has told."""
        self.loss += loss
        self.correct += correct
        self.images += window.images
        self.lr = window.lrs[-1]

    @property
    def mean_loss(self) -> float:
        return self.loss / (self.step - self.line_step)

    @property
    def mean_correct(self) -> float:
        return self.correct / self.images

    @property
    def images_per_second(self) -> float:
        return self.images / max(1e-9, self.seconds - self.line_seconds)

    def begin_line(self) -> None:
        self.images, self.loss, self.correct, self.line_step, self.line_seconds = 0, 0.0, 0.0, self.step, self.seconds
