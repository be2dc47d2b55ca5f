"""vitral scale DATA: accuracy against data and compute, cost against tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import UsageError
from vitral.cli.compare import StudyFlags, numbers, show, study_flags, study_values
from vitral.cli.parsing import read
from vitral.config.flags import Flag

EXAMPLES = """Measure accuracy against data or compute, or cost against tokens. Forecasts the time and asks before it starts.
The same command again resumes a stopped study.

Examples:
  vitral scale cifar10 --kind data --models vit-small,vit,cnn --max-hours 1
  vitral scale cifar10 --kind compute --models vit-small,vit,vit-large --yes
  vitral scale cifar10 --kind cost --image-sizes 32,64,128 --patches 2,4,8
  vitral scale digits --sizes 0.05,0.1,0.3,1 --budget samples=20000 --yes
  vitral scale cifar10 --models vit,cnn,resnet18 --budget epochs=30 --yes
  vitral scale cifar10 --kind pretraining --from-data tinyimagenet32 --yes
"""


_OF_TRAIN = ("train.weight_decay", "train.precision", "train.compile")
_TRAINING = ("sizes", "budget", "seeds", "lrs", "tuning_share", "max_hours", "ray", *_OF_TRAIN)
_TOKENS, _BEFORE = ("image_sizes", "patches"), ("from_data", "transfer", "shots")
_UNUSED: dict[str, tuple[str, ...]] = {
    "data": (*_TOKENS, *_BEFORE),
    "compute": ("sizes", *_TOKENS, *_BEFORE),
    "cost": (*_TRAINING, *_BEFORE),
    "pretraining": _TOKENS,
}
"""Flags that would change nothing: ignoring them would let a reader believe they did."""


@dataclass(frozen=True)
class _Flags(StudyFlags):
    kind: Literal["data", "compute", "cost", "pretraining"] = "data"
    """data: nested subsets; compute: several sizes of each family; cost: time and memory as patches and images change;
    pretraining: nested subsets of other data before."""
    sizes: str | None = None
    """data: shares up to 1, or numbers of images, with commas. Default: 0.01,0.02,0.05,0.1,0.3,1.
    pretraining: the same of --from-data. Default: 0.02,0.05,0.1,0.3,1."""
    from_data: str | None = None
    """pretraining: the data to learn from first, with labels."""
    transfer: str = "samples=50000"
    """pretraining: what one fine-tuning may spend; --budget is one pre-training's."""
    shots: int = 10
    """pretraining: images per class for a linear probe of the frozen features; 0: none."""
    image_sizes: str | None = None
    """cost: sides of images. Default: the data's, twice and four times it."""
    patches: str = "2,4,8,16"
    """cost: sides of patches."""
    yes: bool = False
    """Begin without asking."""


def flags() -> list[Flag]:
    return study_flags("scale", _Flags)


def run(arguments: list[str]) -> int:
    values = read(flags(), arguments, "vitral scale", EXAMPLES)
    kind = values.pop("kind", "data")
    if unused := next((flag.names[0] for flag in flags() if flag.field in values and flag.field in _UNUSED[kind]), None):
        raise UsageError(f"--kind {kind} has no use for {unused}", f"leave {unused} out, or choose another --kind")
    as_json, yes, data = values.pop("json", False), values.pop("yes", False), values.pop("data")
    if "sizes" in values:
        values["sizes"] = numbers(values["sizes"], "--sizes")
    for name in _TOKENS:
        if name in values:
            values[name] = [round(side) for side in numbers(values[name], f"--{name.replace('_', '-')}") or ()]
    from vitral.study.fight.scale import scale

    return show(scale(data, kind, agree=lambda forecast: ask(yes or not forecast.cells), **study_values(values)), as_json)


def ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to say whether that is too long", "add --yes")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not begun", "use a smaller --budget, fewer --sizes or --seeds")
