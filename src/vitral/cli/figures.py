"""vitral figures: every figure of the ViT literature, from any model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.errors import DataError
from vitral.cli.look import read_start, read_target, show
from vitral.cli.opening import ModelFlags, exit_status, open_model, picture_paths
from vitral.cli.parsing import parse

EXAMPLES = """Draw every figure of the ViT literature from any model: patches, positions, filters, attention, rollout, distance, prediction.

Each figure comes with its numbers (.npz) and its origin (.json).

Examples:
  vitral figures runs/digits photo.png --out figures
  vitral figures vit_tiny.safetensors
  vitral figures vit_tiny.safetensors photos/ --only distance
  vitral figures vit_tiny.safetensors photo.png --only attention --token 100
"""


@dataclasses.dataclass(frozen=True)
class _Flags(ModelFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    images: Annotated[tuple[str, ...], "IMAGE…"] = ()
    """Pictures, or folders of any depth with pictures; none: scikit-learn's two photographs."""
    out: Path = Path("figures")
    """Folder for the figures."""
    rival: str | None = None
    """A CNN or ResNet whose first filters are drawn beside the model's."""
    only: str = ""
    """Some of them, with commas: filters, positions, distance (with entropy), patches, prediction, methods, attention, rollout, classes,
    ablation, shuffled, norms, colours. Empty: all."""
    token: str | None = None
    """Whose rows of attention are drawn as maps: a token's number (its row of the matrix), ROW,COLUMN of a patch, class. Empty: the
    middle patch."""
    target: str | None = None
    """The class to explain, by number or name; empty: the predicted one."""
    format: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg")
    """File formats."""
    json: bool = False
    """Print JSON instead of lines."""


def run(arguments: list[str]) -> int:
    asked = parse(_Flags, arguments, "vitral figures", EXAMPLES)
    from vitral.data.sources.pictures import open_readable
    from vitral.draw.provenance import command_line
    from vitral.look.figures import check_figures, figure_set, photographs

    only = [name for part in asked.only.split(",") if (name := part.strip())]
    check_figures(only)
    token = read_start(asked.token) if asked.token is not None else None
    paths = picture_paths(asked.images) if asked.images else None
    model = open_model(asked.model, asked)
    rival = open_model(asked.rival, dataclasses.replace(asked, preprocess=None)) if asked.rival else None
    bad: list[tuple[str, DataError]] = []
    written = figure_set(
        model,
        open_readable(paths, model, bad) if paths else photographs(),
        asked.out,
        rival=rival,
        target=read_target(asked.target),
        formats=asked.format,
        only=only,
        token=token,
        command=command_line(["vitral", "figures", *arguments]),
    )
    show(written, asked.json)
    return exit_status(asked.images, bad)
