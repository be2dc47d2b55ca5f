"""vitral lens MODEL IMAGE…: the head read at every block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitral.base.errors import DataError, UsageError
from vitral.base.progress import tell
from vitral.base.text import percent
from vitral.cli.look import read_target
from vitral.cli.opening import ModelFlags, exit_status, open_model, picture_paths
from vitral.cli.parsing import parse

EXAMPLES = """The head read after every block: what would the model say if it stopped there, and what does it call each patch?

And what each head and MLP adds to the logit. With --fit, a lens is first trained: a linear map per block, solved on some data's features.

Examples:
  vitral lens runs/digits photo.png --out lens
  vitral lens vit_tiny.safetensors cat.jpg --fit folder:photos --out lens
  vitral lens vit_tiny.safetensors cat.jpg --trained lens/lens.safetensors
"""


@dataclass(frozen=True)
class Flags(ModelFlags):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE…")]
    """Pictures, or folders of any depth with pictures."""
    out: Path = Path("lens")
    """Folder for the figures, and for a lens that is trained."""
    fit: str | None = None
    """Train a lens first, on this data: a name from `vitral data list` or folder:PATH; written to OUT/lens.safetensors."""
    trained: Path | None = None
    """A lens that was trained before."""
    most: int = 1000
    """Pictures that a lens is trained on, at most."""
    target: str | None = None
    """The class to follow, by number or name; empty: the predicted one."""
    top: int = 3
    """How many classes to print for each block."""
    json: bool = False
    """Print JSON instead of lines."""


def run(arguments: list[str]) -> int:
    flags = parse(Flags, arguments, "vitral lens", EXAMPLES)
    if flags.fit and flags.trained:
        raise UsageError("--fit and --trained both give a lens", "choose one of them")
    from vitral.data.sources.kinds import check_name
    from vitral.data.sources.pictures import open_readable
    from vitral.draw.provenance import command_line
    from vitral.look.lens import TrainedLens
    from vitral.study.lenses import fit_on, read_lenses

    paths = picture_paths(flags.images)
    trained = TrainedLens.read(flags.trained) if flags.trained else None
    if flags.fit:
        check_name(flags.fit)
    model = open_model(flags.model, flags)
    if flags.fit:
        trained = fit_on(model, flags.fit, flags.out, flags.most)
    bad: list[tuple[str, DataError]] = []
    told = read_lenses(
        model,
        list(open_readable(paths, model, bad)),
        flags.out,
        trained=trained,
        target=read_target(flags.target),
        top=flags.top,
        command=command_line(["vitral", "lens", *arguments]),
    )
    if flags.json:
        tell(json.dumps({"pictures": told, "trained": trained.facts if trained else None}, indent=2))
        return exit_status(flags.images, bad)
    for picture in told:
        tell(f"{picture['picture']}: {picture['target']}" + (f", settled after {picture['settled']}" if "settled" in picture else ""))
        for row in picture["blocks"]:
            ranked = ", ".join(
                f"{one['class']} " + (percent(one["probability"]) if "probability" in one else f"{one['output']:.3g}")
                for one in row["classes"]
            )
            tell(f"  {row['after']:<14}{ranked}")
        for path in picture["files"]:
            tell(path)
    return exit_status(flags.images, bad)
