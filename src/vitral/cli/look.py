"""vitral look: heat maps of what a model attends to, one sheet per picture; or one page of its most confident errors."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.errors import DataError, UsageError
from vitral.base.progress import print_clean
from vitral.cli.opening import ModelFlags, exit_status, open_model, picture_paths
from vitral.cli.parsing import parse

EXAMPLES = """Draw heat maps of what a model attends to, one sheet per image, with its predictions.

Examples:
  vitral look runs/digits photo.png --out sheets --method rollout,relevance
  vitral look vit_tiny.safetensors cat.jpg --method attention --block 3
  vitral look runs/flowers --worst 12  # its most confident errors on test
  vitral look runs/flowers scored --worst 12  # what eval --out scored wrote
"""


@dataclasses.dataclass(frozen=True)
class _Flags(ModelFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    images: Annotated[tuple[str, ...], "IMAGE…"]
    """Pictures, or folders of any depth with pictures. With --worst: the folder or the table that `vitral eval` wrote; none: the test
    answers of the run MODEL."""
    worst: int | None = None
    """Instead of sheets, one page (worst.html): so many of the most confident errors, and up to six more of each of the worst classes,
    with maps by one method (--method; relevance, or gradcam of a model without attention) and the nearest pictures."""
    training_data: str | None = None
    """With --worst: the data whose training pictures the model learnt from, a name from `vitral data list` or folder:PATH: the nearest of
    them stand beside each error. None: those of the run MODEL."""
    out: Path = Path("look")
    """Folder for the sheets."""
    method: str = ""
    """Methods, joined by commas; attention, rollout, gradient_rollout, relevance, legrad, gradcam, integrated_gradients, occlusion,
    rise, similarity, norms. Empty: the usual ones that suit the model, without legrad, rise, norms."""
    block: int | None = None
    """For attention, gradcam, similarity, norms: which block (negative: from the end)."""
    head: int | None = None
    """For attention: which head; empty: the mean of all."""
    target: str | None = None
    """For gradient_rollout, relevance, legrad, gradcam, integrated_gradients, occlusion, rise: the class to explain, by number or name;
    empty: the predicted one."""
    start: str = "class"
    """For attention, rollout, gradient_rollout, relevance, similarity: the token a map starts from: class, distillation, mean, a token's
    number, or ROW,COLUMN of a patch."""
    exact: bool = False
    """For occlusion: cover every square, in twice the time; else every second one."""
    top: int = 5
    """How many classes to show."""
    format: tuple[Literal["png", "svg", "pdf"], ...] = ("png",)
    """File formats of the sheets."""
    json: bool = False
    """Print JSON instead of lines."""


def run(arguments: list[str]) -> int:
    asked = parse(_Flags, arguments, "vitral look", EXAMPLES)
    from vitral.data.sources.pictures import open_readable
    from vitral.draw.provenance import command_line
    from vitral.look.method import methods_named
    from vitral.look.sheet import look_at
    from vitral.look.verdicts import audit_folder, read_verdicts

    if asked.worst is not None:
        return _run_worst(asked, arguments)
    if asked.training_data is not None:
        raise UsageError("--training-data goes with --worst alone", "leave it out, or add --worst 12")
    target, start, methods = read_target(asked.target), read_start(asked.start), asked.method.split(",")
    methods_named(methods)
    paths = picture_paths(asked.images)
    model = open_model(asked.model, asked)
    bad: list[tuple[str, DataError]] = []
    written = look_at(
        model,
        open_readable(paths, model, bad),
        asked.out,
        methods=methods,
        target=target,
        start=start,
        block=asked.block,
        head=asked.head,
        exact=asked.exact,
        top=asked.top,
        formats=asked.format,
        command=command_line(["vitral", "look", *arguments]),
        verdicts=read_verdicts(model, audit_folder(asked.model)),
    )
    show(written, asked.json)
    return exit_status(asked.images, bad)


def _run_worst(asked: _Flags, arguments: list[str]) -> int:
    from vitral.draw.provenance import command_line
    from vitral.look.method import methods_named
    from vitral.look.verdicts import audit_folder, read_verdicts
    from vitral.report.worst import read_scored, training_split, write_worst

    for flag in ("block", "head", "target", "start", "exact", "top", "format"):
        if getattr(asked, flag) != getattr(_Flags, flag):
            raise UsageError(f"--{flag} has no part in --worst", "leave it out")
    if len(asked.images) > 1:
        raise UsageError(
            f"--worst takes one folder or table, not {len(asked.images)}", "name what `vitral eval` wrote with --out or --table"
        )
    if asked.worst is None or asked.worst < 1:
        raise UsageError(f"--worst {asked.worst} shows nothing", "use a number from 1")
    methods_named(asked.method.split(","))
    model = open_model(asked.model, asked)
    verdicts = read_verdicts(model, audit_folder(asked.model))
    page = write_worst(
        read_scored(model, asked.images[0] if asked.images else asked.model, verdicts),
        asked.out,
        asked.worst,
        method=asked.method or None,
        training_split=training_split(model, asked.model, asked.training_data),
        name=asked.model,
        command=command_line(["vitral", "look", *arguments]),
    )
    show([page], asked.json)
    return 0


def read_target(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def read_start(text: str) -> str | int | tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if all(part.lstrip("-").isdigit() for part in parts):
        if len(parts) == 2:
            return int(parts[0]), int(parts[1])
        if len(parts) == 1:
            return int(parts[0])
        raise UsageError(f"start {text!r} is no patch", "use ROW,COLUMN, such as 3,7")
    return text


def show(written: list[Path], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"files": [path.as_posix() for path in written]}, indent=2))
    else:
        for path in written:
            print_clean(path)
