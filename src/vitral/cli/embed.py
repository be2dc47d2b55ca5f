"""vitral embed MODEL FOLDER: what a model's head would read, for every picture of a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

EXAMPLES = """Feature vectors of all pictures in a folder, as one .npz file: features (N, D), paths (N).

Examples:
  vitral embed runs/digits photos --out features.npz
  vitral embed timm:vit_tiny_patch16_224 photos --json
"""


@dataclass(frozen=True)
class Flags:
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Pictures, in folders of any depth."""
    out: str = "features.npz"
    """The file to write."""
    batch_size: int = 64
    """Pictures at a time."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    json: bool = False
    """Print what was written as JSON."""
    quiet: bool = False
    """No progress."""


def run(arguments: list[str]) -> int:
    from vitral.cli.parsing import parse

    flags = parse(Flags, arguments, "vitral embed", EXAMPLES)
    from vitral.base.device import pick_device
    from vitral.study.embed import embed_folder
    from vitral.weights.load import load

    written = embed_folder(
        load(flags.model), flags.folder, flags.out, device=pick_device(flags.device), batch_size=flags.batch_size, quiet=flags.quiet
    )
    print(json.dumps(written) if flags.json else f"{written['pictures']:,} pictures, {written['width']} numbers each: {written['path']}")
    return 0
