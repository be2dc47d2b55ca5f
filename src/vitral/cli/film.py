"""vitral film RUN: how a model came to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.progress import print_clean
from vitral.cli.opening import picture_paths
from vitral.cli.parsing import parse

EXAMPLES = """Animate a training from its snapshots: attention, positions, filters, attention distance, the lens and class maps.

Train the run with --snapshots 24 (`vitral plan` estimates their size). Writes an animation, a sheet and the numbers. `vitral report RUN`
then shows it frame by frame.

Examples:
  vitral film runs/digits
  vitral film runs/cifar10 cat.png ship.png --format webp --out films/cifar10
"""


@dataclass(frozen=True)
class _Flags:
    run: Annotated[str, "RUN"]
    """The folder of a training or a pre-training that kept snapshots."""
    images: Annotated[tuple[str, ...], "IMAGE…"] = ()
    """Pictures to watch; none: some of the run's validation split."""
    out: Path | None = None
    """Folder of the film; None: RUN/film. One that is there is replaced."""
    pictures: int = 4
    """How many pictures of the run's own to watch, where none are named."""
    seconds: float = 0.5
    """How long each frame stays."""
    format: tuple[Literal["webp", "gif", "mp4"], ...] = ("webp", "gif", "mp4")
    """Moving files to write; mp4 needs ffmpeg."""
    json: bool = False
    """Print JSON instead of lines."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral film", EXAMPLES)
    from vitral.draw.provenance import command_line
    from vitral.study.film import film

    paths = picture_paths(flags.images) if flags.images else []
    film_result = film(
        flags.run,
        paths,
        flags.out,
        count=flags.pictures,
        seconds=flags.seconds,
        formats=flags.format,
        command=command_line(["vitral", "film", *arguments]),
    )
    if flags.json:
        print_clean(json.dumps(film_result.to_dict(), indent=2))
    else:
        for path in film_result.files:
            print_clean(path)
    return 0
