"""vitral embed MODEL FOLDER: what a model's head would read, for every picture of a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from vitral.base.progress import tell
from vitral.cli.opening import BatchFlags, open_model

EXAMPLES = """Feature vectors of all pictures in a folder, as one .npz file: features (N, D), paths (N).

Examples:
  vitral embed runs/digits photos --out features.npz
  vitral embed timm:vit_tiny_patch16_224 photos --json
"""


@dataclass(frozen=True)
class Flags(BatchFlags):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Pictures, in folders of any depth."""
    out: str = "features.npz"
    """The file to write."""
    json: bool = False
    """Print what was written as JSON."""
    quiet: bool = False
    """No progress."""


def run(arguments: list[str]) -> int:
    from vitral.cli.parsing import parse

    flags = parse(Flags, arguments, "vitral embed", EXAMPLES)
    from vitral.study.embed import embed_folder

    model = open_model(flags.model, flags)
    device = next(model.parameters()).device
    written = embed_folder(
        model, flags.folder, flags.out, device=device, batch_size=flags.batch, precision=flags.precision, quiet=flags.quiet
    )
    tell(json.dumps(written) if flags.json else f"{written['pictures']:,} pictures, {written['width']} numbers each: {written['path']}")
    return 0
