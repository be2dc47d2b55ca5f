"""How a model learns from pictures without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import ConfigError
from vitral.base.settings import at_least, check_share, check_values, lists_as_tuples


@dataclass(frozen=True)
class PretrainConfig:
    """A method of learning without labels, the views it is shown, and what keeps it from collapsing."""

    method: Literal["lejepa", "dino", "mae"] = "lejepa"
    """Method; lejepa: views pulled together, embeddings pushed towards a Gaussian; dino: a student answers like its own EMA; mae: hidden
    patches are rebuilt."""
    global_views: int = 2
    """Views of each picture that show most of it."""
    local_views: int = 6
    """Views of each picture that show a part of it."""
    global_scale: tuple[float, float] = (0.3, 1.0)
    """Least and largest share of the picture's area in a global view."""
    local_scale: tuple[float, float] = (0.08, 0.5)
    """The same of a local view."""
    colour: float = 1.0
    """Strength of the change of colours; 0: none."""
    blur: float = 0.2
    """Share of views that are blurred."""
    solarise: float = 0.1
    """Share of views whose bright pixels become their negative."""
    turn: float = 0.0
    """Largest angle in degrees by which views are rotated; for drawings and digits, where crops alone change little."""
    projection: int = 64
    """lejepa: numbers of an embedding, on which the loss acts; dino: numbers before the prototypes."""
    projection_hidden: int = 2048
    """Width of the two hidden layers of the projection."""
    gaussian_weight: float = 0.02
    """lejepa: weight of the test for a Gaussian; the pull between views has the rest. In batches below 128 it counts as in one of 128."""
    directions: int = 256
    """lejepa: random directions on which embeddings are tested, other ones in each step."""
    prototypes: int = 1024
    """dino: numbers that student and teacher answer with."""
    student_temperature: float = 0.1
    """dino: softens the student's answers."""
    target_temperature: float = 0.07
    """dino: sharpens the teacher's answers, from `target_warmup` on."""
    first_target_temperature: float = 0.04
    """dino: the same at the start; in between it moves in a line."""
    target_warmup: float = 0.3
    """dino: share of the run after which the teacher's temperature stays."""
    prototypes_frozen: float = 0.01
    """dino: share of the run in which the prototypes stay as they were drawn."""
    head_norm: Literal["batch", "none"] = "batch"
    """dino: batch: hidden layers of the head are normalised over the batch, so that its answers differ from the first step on; none: as in
    the paper, for long runs."""
    teacher_momentum: float = 0.992
    """dino: share of the teacher that stays in each step; it rises to 1 over the run."""
    centre_momentum: float = 0.9
    """dino: share of the centre that stays in each step; 1: no centring."""
    hidden: float = 0.75
    """mae: share of the patches that are hidden."""
    normalised_pixels: bool = True
    """mae: each patch is rebuilt with its own mean and spread taken out; of patches of few pixels those are most of what they show."""
    decoder_width: int = 128
    """mae: numbers per token of the decoder."""
    decoder_depth: int = 2
    """mae: blocks of the decoder."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """What happens when the embeddings collapse."""
    online_knn: bool = False
    """Read the labels of the validation pictures, to measure nearest neighbours during the run; nothing learns from them."""

    def __post_init__(self) -> None:
        lists_as_tuples(self)
        check_values(self)
        at_least(self, "global_views", 1)
        at_least(self, "local_views", 0)
        for name in ("projection", "projection_hidden", "directions", "prototypes", "decoder_width", "decoder_depth"):
            at_least(self, name, 1)
        for name in ("global_scale", "local_scale"):
            low, high = getattr(self, name)
            if not 0 < low <= high <= 1:
                raise ConfigError(f"{name} = {low} to {high}", "use two shares of the area, the smaller one first")
        for name in ("blur", "solarise", "gaussian_weight", "teacher_momentum", "centre_momentum", "target_warmup", "prototypes_frozen"):
            check_share(self, name, closed=True)
        if not 0 < self.hidden < 1:
            raise ConfigError(f"hidden = {self.hidden} is not a share", "use a number between 0 and 1, such as 0.75")
        if self.colour < 0 or not 0 <= self.turn <= 180:
            raise ConfigError(f"colour = {self.colour}, turn = {self.turn}", "use a strength of 0 or more, and an angle of 0 to 180")
        if min(self.student_temperature, self.first_target_temperature, self.target_temperature) <= 0:
            raise ConfigError("a temperature must be positive", "use 0.1 for the student, 0.04 and then 0.07 for the teacher")
        if self.method != "mae" and self.views < 2:
            raise ConfigError(f"{self.method} compares views of a picture, and there is {self.views}", "use --local-views 2 or more")

    @property
    def views(self) -> int:
        return self.global_views + self.local_views
