"""vitral lens MODEL IMAGE…: the head read at every block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vitral.base.errors import DataError, UsageError
from vitral.base.progress import print_clean
from vitral.base.text import percent
from vitral.cli.look import read_target
from vitral.cli.opening import ModelFlags, exit_status, open_model, picture_paths
from vitral.cli.parsing import parse

EXAMPLES = """Read the head after every block: the prediction if the model stopped there, and the class of each patch.

Also shows what each head and MLP adds to the logit. --fit first trains a lens, a linear map per block solved on the features of some data.

Examples:
  vitral lens runs/digits photo.png --out lens
  vitral lens vit_tiny.safetensors cat.jpg --fit folder:photos --out lens
  vitral lens vit_tiny.safetensors cat.jpg --trained lens/lens.safetensors
"""


@dataclass(frozen=True)
class _Flags(ModelFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    images: Annotated[tuple[str, ...], "IMAGE…"]
    """Pictures, or folders of any depth with pictures."""
    out: Path = Path("lens")
    """Folder for the figures, and for a lens that is trained."""
    fit: str | None = None
    """Train a lens first, on this data: a name from `vitral data list` or folder:PATH; written to OUT/lens.safetensors."""
    trained: Path | None = None
    """A lens that was trained before."""
    max_images: int = 1000
    """Images that a lens is trained on, at most."""
    target: str | None = None
    """The class to follow, by number or name; empty: the predicted one."""
    top: int = 3
    """How many classes to print for each block."""
    json: bool = False
    """Print JSON instead of lines."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral lens", EXAMPLES)
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
        trained = fit_on(model, flags.fit, flags.out, flags.max_images)
    bad: list[tuple[str, DataError]] = []
    answers = read_lenses(
        model,
        list(open_readable(paths, model, bad)),
        flags.out,
        trained=trained,
        target=read_target(flags.target),
        top=flags.top,
        command=command_line(["vitral", "lens", *arguments]),
    )
    if flags.json:
        print_clean(json.dumps({"pictures": answers, "trained": trained.facts if trained else None}, indent=2))
        return exit_status(flags.images, bad)
    for picture in answers:
        settled = f", settled after {picture['settled']}" if "settled" in picture else ""
        print_clean(f"{picture['picture']}: {picture['target']}{settled}")
        for row in picture["blocks"]:
            ranked = ", ".join(
                f"{one['class']} " + (percent(one["probability"]) if "probability" in one else f"{one['output']:.3g}")
                for one in row["classes"]
            )
            print_clean(f"  {row['after']:<14}{ranked}")
        for path in picture["files"]:
            print_clean(path)
    return exit_status(flags.images, bad)
