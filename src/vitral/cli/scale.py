"""vitral scale DATA: accuracy against data and compute, cost against tokens."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import UsageError
from vitral.cli.compare import StudyFlags, numbers, show
from vitral.cli.parsing import parse

EXAMPLES = """Accuracy against data or compute, cost against tokens. Says what it will take, and asks, before it begins.

Examples:
  vitral scale cifar10 --kind data --models vit-small,vit,cnn --max-hours 1
  vitral scale cifar10 --kind compute --models vit-small,vit,vit-large --yes
  vitral scale cifar10 --kind cost --image-sizes 32,64,128 --patches 2,4,8
  vitral scale digits --sizes 0.05,0.1,0.3,1 --budget samples=20000 --yes
  vitral scale cifar10 --models vit,cnn,resnet18 --budget epochs=30 --yes
  vitral scale cifar10 --kind pretraining --from-data tinyimagenet32 --yes

The same command again goes on where it was stopped.
"""


TRAINING = ("sizes", "budget", "seeds", "lrs", "tuning_share", "weight_decay", "precision", "compile", "ray", "max_hours")
TOKENS, BEFORE = ("image_sizes", "patches"), ("from_data", "transfer", "shots")
UNUSED: dict[str, tuple[str, ...]] = {
    "data": (*TOKENS, *BEFORE),
    "compute": ("sizes", *TOKENS, *BEFORE),
    "cost": (*TRAINING, *BEFORE),
    "pretraining": TOKENS,
}
"""Flags that would change nothing: passing over them would let a reader believe they did."""


@dataclass(frozen=True)
class Flags(StudyFlags):
    kind: Literal["data", "compute", "cost", "pretraining"] = "data"
    """data: nested subsets; compute: several sizes of each family; cost: time and memory as patches and pictures change;
    pretraining: nested subsets of other data before."""
    sizes: str | None = None
    """data: shares up to 1, or numbers of pictures, with commas. Default: 0.01,0.02,0.05,0.1,0.3,1.
    pretraining: the same of --from-data. Default: 0.02,0.05,0.1,0.3,1."""
    from_data: str | None = None
    """pretraining: what is learnt first, with labels."""
    transfer: str = "samples=50000"
    """pretraining: what one fine-tuning may spend; --budget is one pre-training's."""
    shots: int = 10
    """pretraining: pictures a class for a linear probe of the frozen features; 0: none."""
    image_sizes: str | None = None
    """cost: sides of pictures. Default: the data's, twice and four times it."""
    patches: str = "2,4,8,16"
    """cost: sides of patches."""
    yes: bool = False
    """Begin without asking."""


def run(arguments: list[str]) -> int:
    flags = parse(Flags, arguments, "vitral scale", EXAMPLES)
    for field in dataclasses.fields(flags):
        if field.name in UNUSED[flags.kind] and getattr(flags, field.name) != field.default:
            name = f"--{field.name.replace('_', '-')}"
            raise UsageError(f"--kind {flags.kind} has no use for {name}", f"leave {name} out, or choose another --kind")
    from vitral.study.fight.scale import scale

    result = scale(
        flags.data,
        flags.kind,
        sizes=numbers(flags.sizes, "--sizes"),
        from_data=flags.from_data,
        transfer=flags.transfer,
        shots=flags.shots,
        image_sizes=[round(side) for side in numbers(flags.image_sizes, "--image-sizes") or ()],
        patches=[round(side) for side in numbers(flags.patches, "--patches") or ()],
        agree=lambda forecast: ask(flags.yes or not forecast.cells),
        **flags.arguments(),
    )
    return show(result, flags.json)


def ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to say whether that is too long", "add --yes")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not begun", "use a smaller --budget, fewer --sizes or --seeds")
