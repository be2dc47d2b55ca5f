"""vitral scale DATA: accuracy against data and compute, cost against tokens."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import UsageError
from vitral.cli.compare import StudyFlags, numbers

EXAMPLES = """Accuracy against data or compute, cost against tokens. Says what it will take, and asks, before it begins.

Examples:
  vitral scale cifar10 --kind data --models vit-small,vit,cnn --budget samples=500000 --batch-size 512 --yes --max-hours 1
  vitral scale cifar10 --kind compute --models vit-small,vit,vit-large,hybrid,resnet18 --budget samples=500000 --yes
  vitral scale cifar10 --kind cost --image-sizes 32,64,128 --patches 2,4,8
  vitral scale digits --kind data --sizes 0.05,0.1,0.3,1 --budget samples=20000 --yes

The same command again goes on where it was stopped.
"""


TRAINING = ("sizes", "budget", "seeds", "rates", "tuning_share", "weight_decay", "precision", "compile", "ray", "max_hours")
UNUSED = {"data": ("image_sizes", "patches"), "compute": ("sizes", "image_sizes", "patches"), "cost": TRAINING}
"""Flags that would change nothing: passing over them would let a reader believe they did."""


@dataclass(frozen=True)
class Flags(StudyFlags):
    kind: Literal["data", "compute", "cost"] = "data"
    """data: nested subsets; compute: several sizes of each family; cost: time and memory as patches and pictures change."""
    sizes: str | None = None
    """data: shares up to 1, or numbers of pictures, with commas. Default: 0.01,0.02,0.05,0.1,0.3,1."""
    image_sizes: str | None = None
    """cost: sides of pictures. Default: the data's, twice and four times it."""
    patches: str = "2,4,8,16"
    """cost: sides of patches."""
    yes: bool = False
    """Begin without asking."""
    max_hours: float | None = None
    """Refuse what is predicted to take longer."""


def run(arguments: list[str]) -> int:
    from vitral.cli.parsing import parse

    flags = parse(Flags, arguments, "vitral scale", EXAMPLES)
    for field in dataclasses.fields(flags):
        if field.name in UNUSED[flags.kind] and getattr(flags, field.name) != field.default:
            name = f"--{field.name.replace('_', '-')}"
            raise UsageError(f"--kind {flags.kind} has no use for {name}", f"leave {name} out, or choose another --kind")
    return _cost(flags) if flags.kind == "cost" else _study(flags)


def _study(flags: Flags) -> int:
    from vitral.base.files import plain
    from vitral.base.progress import say
    from vitral.study.cells import Budget
    from vitral.study.conduct import Pool
    from vitral.study.forecast import forecast
    from vitral.study.scale import plan_scale, scale

    study = plan_scale(
        flags.kind,
        flags.data_config(),
        Budget.parse(flags.budget),
        models=flags.names(),
        sizes=None if flags.sizes is None else numbers(flags.sizes, "--sizes"),
        seeds=flags.seeds,
        train=flags.recipe(),
        rates=flags.grid(),
        tuning_share=flags.tuning_share,
        image_size=flags.image_size,
    )
    parallel, out = flags.at_a_time(), flags.folder(f"scale-{flags.kind}")
    expected = forecast(study, parallel, flags.quiet, out)
    say(f"forecast: {expected}")
    expected.check(flags.max_hours)
    _ask(flags.yes or not expected.cells)
    result = scale(study, out, Pool(parallel, flags.ray, flags.quiet))
    if flags.json:
        print(json.dumps(plain(result.result)))
    else:
        for table in result.tables:
            print(table.text())
        print(f"{result.conclusion}\n\n{result.folder}")
    return 1 if result.result["failed"] else 0


def _cost(flags: Flags) -> int:
    from vitral.base.files import plain
    from vitral.base.progress import say
    from vitral.study.compare import data_facts
    from vitral.study.contenders import fit_model
    from vitral.study.token_cost import cost_table, plan_cost, study_cost

    facts = data_facts(flags.data_config(), flags.image_size)
    side = facts.size[0]
    sides = [side, 2 * side, 4 * side] if flags.image_sizes is None else [round(n) for n in numbers(flags.image_sizes, "--image-sizes")]
    names = flags.names() or ["vit"]
    if len(names) > 1:
        raise UsageError("the cost study takes one model", "use --models vit")
    base = fit_model(names[0], facts.size, facts.channels, facts.classes)
    if base.family != "vit":
        raise UsageError(f"{names[0]} has no patches to change", "use a ViT, for example --models vit")
    configs = plan_cost(base, sides, [round(n) for n in numbers(flags.patches, "--patches")])
    batch = min(flags.batch_size, 16 if flags.at_a_time() > 1 else 64)
    say(f"measuring {len(configs)} models of up to {max(config.tokens for config in configs):,} tokens, {batch} pictures at a time")
    out = flags.folder("scale-cost")
    result = study_cost(configs, out, batch_size=batch, device=flags.device, threads=flags.threads, quiet=flags.quiet)
    print(json.dumps(plain(result)) if flags.json else f"{cost_table(result['rows'])}\n{result['conclusion']}\n\n{out}")
    return 0


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to say whether that is too long", "add --yes")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not begun", "use a smaller --budget, fewer --sizes or --seeds")
