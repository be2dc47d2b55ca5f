"""Has it collapsed, and why? Read off the figures of `monitor`: those of the untrained model, and those of now.

Collapse: embeddings of different pictures become one point, which makes every loss that only compares views small. What is looked at are
distances between embeddings (uniformity), their length (spread, where the method prescribes it) and the directions they fill.
"""

from __future__ import annotations

from collections.abc import Mapping

from vitral.base.errors import FailedError
from vitral.config import RunConfig

_POINT = 0.002
"""Uniformity this close to 0 is one point (0: all alike; −4: as far apart as possible)."""
_LEFT = 0.25
"""Share of the untrained model's uniformity below which embeddings are drawing together."""
_LEFT_NORMED = 0.1
"""The same where DINO's head is normalised over the batch: its answers are apart from the first step on, and healthy digits keep 0.37 of
that or more; at 100 times the learning rate 0.05 are left after four steps."""
SHORT = 0.15
"""LeJEPA prescribes embeddings of spread 1; so much less is a point soon."""
SMALL, FEW = 0.4, 0.35
"""A spread that has hardly grown, and this share of the untrained embeddings' directions: the pull has won all but one or two of them.
Healthy runs lose up to half of the directions at first, which were noise, but their spread soon passes a half."""
_WEAK = 0.01
"""A weight of the Gaussian test that is too little for its pull; 0.02 is the usual one."""
_INFORMATIVE = 0.035
"""What a DINO teacher's answer tells of a picture, as a share of the most there could be: entropy of the mean less the mean entropy."""
_FLAT = 0.4
"""Share of the untrained model's feature rank below which directions have been lost: healthy digits keep 0.68 at the least, at 100 times
the learning rate 0.14 are left."""
QUICK = 0.98
"""A DINO teacher's momentum that is blamed: digits collapse at 0.95 where the head is not normalised, and do not at 0.992."""
_GREAT_STEP = 0.3
"""Learning rate relative to the size of the first weights: AdamW moves each weight by about its learning rate."""
NOTHING = 1e-4
"""A spread this small is none."""

_GROWING = 1.25
"""Answers that have moved apart by this factor since the last look are on their way back. A healthy DINO whose head is not normalised first
learns what all answers share and is near a point for its first steps; then distances grow by 1.4 and more a look, those of a collapsed one
by 1.1 at most."""

Figures = Mapping[str, float]


def collapsed(run: RunConfig, first: Figures, now: Figures, before: Figures | None = None) -> str | None:
    """Why the embeddings have collapsed; None: they have not. `before`: what the last look showed."""
    assert run.pretrain is not None
    apart = -now["uniformity"]
    point = apart < _POINT or (now["spread"] < NOTHING and run.pretrain.method != "dino")  # a thousand shares of 1 have no spread
    if run.pretrain.method == "mae":  # nothing is pulled together here: what is lost are directions
        gone = now["feature_rank"] < _FLAT * first["feature_rank"]
    elif run.pretrain.method == "lejepa":
        few = now["spread"] < SMALL and now["effective_rank"] < FEW * first["effective_rank"]
        gone = few or now["spread"] < SHORT
    elif run.pretrain.head_norm == "batch":
        gone = apart < _LEFT_NORMED * -first["uniformity"]
    else:
        gone = apart < _LEFT * -first["uniformity"] and now["teacher_entropy_of_mean"] - now["teacher_entropy"] < _INFORMATIVE
        if before is not None and 0 < _GROWING * -before["uniformity"] < apart:
            return None
    return _cause_of(run, first, now) if point or gone else None


def _cause_of(run: RunConfig, first: Figures, now: Figures) -> str:
    """The first that applies: what is fed in, what the settings leave out, how far a step goes, what the model makes of it."""
    settings, train = run.pretrain, run.train
    assert settings is not None
    if now["input_spread"] < NOTHING:
        return "the pictures are all alike after augmentation: look at them with vitral data show"
    if settings.method == "lejepa" and settings.gaussian_weight < _WEAK:
        keeps = "too little keeps" if settings.gaussian_weight else "nothing keeps"
        return f"gaussian_weight = {settings.gaussian_weight:g}: {keeps} embeddings apart; use 0.02"
    if settings.method == "dino":
        missing = ["centring (centre_momentum = 1)"] * (settings.centre_momentum == 1)
        missing += ["sharpening (target_temperature is not below student_temperature)"] * (
            settings.target_temperature >= settings.student_temperature
        )
        quick = settings.teacher_momentum < QUICK
        if missing or quick:
            follows = "follows its student too soon" if settings.teacher_momentum else "copies its student"
            parts = [f"the teacher {follows} (teacher_momentum = {settings.teacher_momentum:g})"] * quick
            parts += [f"there is no {part}" for part in missing]
            return f"{', '.join(parts)}: nothing keeps the answers apart; use 0.9, 0.07 and 0.992"
    if train.lr > _GREAT_STEP * first["weight_size"]:
        return (
            f"a step is as large as the weights (lr {train.lr:g}, weights about {first['weight_size']:.2g}): use --lr {train.lr / 30:.1g}"
        )
    if now["feature_spread"] < NOTHING:
        return "the model makes the same features of every picture: lower --lr, or warm up longer"
    if now["spread"] < NOTHING and settings.method == "lejepa":
        return "the projection makes one embedding of features that do differ: is it tied to a constant?"
    return "embeddings of different pictures draw together: lower --lr, use milder views, more pictures a batch, or another method"


def stopped(cause: str, step: int) -> FailedError:
    what, _, remedy = cause.partition(": ")
    return FailedError(f"the embeddings have collapsed at step {step}: {what}", remedy or "lower --lr")
