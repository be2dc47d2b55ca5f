"""Which settings of a training are flags: one table, from which every verb that trains takes its command line.

A row is a field of a config ("train.epochs": its type and help are the field's) or an option that no config has, such as --out.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import textwrap
import typing
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

from vitral.config.data import DataConfig
from vitral.config.model import ModelConfig
from vitral.config.pretrain import PretrainConfig
from vitral.config.run import RunConfig
from vitral.config.train import TrainConfig


@dataclass(frozen=True)
class Flag:
    """A flag or a positional argument of a verb."""

    field: str
    """Key of its value; of a config's field with the config: "train.epochs"."""
    names: tuple[str, ...]
    """As users type it: ("--batch", "--batch-size"), ("MODEL",)."""
    kind: Any = str | None
    """Type of its value."""
    default: Any = None
    """MISSING: it is required."""
    text: str = ""
    group: str = "Flags"
    common: bool = True
    """False: only --help-all shows it."""
    alone: str | None = None
    """What the flag means without a value; None: it needs one."""

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def kinds(self) -> list[Any]:
        """The types of one word, in the order in which they are tried: `none` may be a choice, and any word is a str."""
        parts = typing.get_args(self.kind) if NoneType in typing.get_args(self.kind) else (self.kind,)
        words = (typing.get_args(part)[0] if typing.get_origin(part) is tuple else part for part in parts)
        return sorted(words, key=lambda word: (typing.get_origin(word) is not Literal, word is not NoneType))

    @property
    def most(self) -> float:
        """Words that it takes; 0 is a switch, infinity one or more."""
        for part in (self.kind, *typing.get_args(self.kind)):
            if typing.get_origin(part) is tuple:
                items = typing.get_args(part)
                return math.inf if items[-1] is Ellipsis else len(items)
        return int(self.kind is not bool)

    @property
    def choices(self) -> list[str]:
        return [choice for kind in self.kinds for choice in typing.get_args(kind)]


_LABELS, _RUNS, _STUDIES = "train plan", "train plan pretrain", "compare scale"
_ALL, _BOTH = f"{_RUNS} {_STUDIES}", f"{_LABELS} {_STUDIES}"
_COMMON, _RARE = True, False
_TABLE: dict[str, list[tuple[str | Flag, str, bool]]] = {
    "Arguments": [
        (Flag("run", ("RUN",), text="A named run to start from, or the folder of an earlier run."), _LABELS, _COMMON),
        ("data.name DATA", "pretrain", _COMMON),
    ],
    "Data": [
        ("data.name --data", _LABELS, _COMMON),
        ("data.root", _STUDIES, _RARE),
        ("data.subset", _RUNS, _COMMON),
        ("data.augment", _BOTH, _COMMON),
        ("data.validation", _ALL, _RARE),
        ("data.stage", _RUNS, _RARE),
        ("data.split_seed", _STUDIES, _RARE),
        ("data.workers", _RUNS, _RARE),
        ("data.cache", _LABELS, _RARE),
        ("data.on_bad_image", _ALL, _RARE),
        ("data.fingerprint", _LABELS, _RARE),
        ("data.class_weights", _LABELS, _RARE),
    ],
    "Model": [
        (Flag("model", ("--model",), text="A named model (`vitral.models()`); None: the run's own."), _RUNS, _COMMON),
        (Flag("image_size", ("--image-size",), tuple[int, ...] | None), _RUNS, _COMMON),
        (Flag("patch_size", ("--patch-size",), tuple[int, ...] | None), _RUNS, _RARE),
        (
            Flag(
                "image_size",
                ("--image-size",),
                int | None,
                text="Side of the image; None: a named data set's own, 224 for images of one's own, or what the weights were trained at.",
            ),
            _STUDIES,
            _RARE,
        ),
        ("weights --from", _RUNS, _COMMON),
        ("train.tune", _RUNS, _COMMON),
        ("train.head_start", _LABELS, _RARE),
    ],
    "Learning without labels": [
        ("pretrain.method", "pretrain", _COMMON),
        ("pretrain.global_views", "pretrain", _RARE),
        ("pretrain.local_views", "pretrain", _RARE),
        ("pretrain.on_collapse", "pretrain", _RARE),
        ("pretrain.online_knn", "pretrain", _RARE),
    ],
    "Training": [
        ("train.epochs", _RUNS, _COMMON),
        ("train.max_seconds", _LABELS, _RARE),
        ("train.max_seconds --seconds", "pretrain", _COMMON),
        ("train.batch_size", _ALL, _COMMON),
        ("train.accumulate", _LABELS, _RARE),
        ("train.optimizer", _ALL, _COMMON),
        ("train.lr", _RUNS, _COMMON),
        ("train.weight_decay", _ALL, _RARE),
        ("train.schedule", _BOTH, _RARE),
        ("train.warmup", _RUNS, _RARE),
        ("train.layer_decay", _LABELS, _RARE),
        ("train.clip", _LABELS, _RARE),
        ("train.label_smoothing", _BOTH, _RARE),
        ("train.ema", _ALL, _RARE),
        ("train.keep", _LABELS, _RARE),
        ("train.patience", _LABELS, _RARE),
        ("train.teacher", _LABELS, _RARE),
        ("train.token_drop", _RUNS, _RARE),
        ("train.token_drop_until", _LABELS, _RARE),
        ("train.seed", _RUNS, _COMMON),
        ("train.device", _ALL, _COMMON),
    ],
    "Machine": [
        ("train.precision", _ALL, _RARE),
        ("train.compile", _ALL, _RARE),
        ("train.threads", _ALL, _RARE),
        ("train.strategy", _RUNS, _RARE),
        (
            Flag("gpu", ("--gpu",), text="Plan for this GPU instead of this machine; h200, h100, a100, l40s, 4090, 3090, v100, t4 …"),
            "plan",
            _COMMON,
        ),
    ],
    "Run": [
        (
            Flag("set", ("--set",), tuple[str, ...], (), "Any other setting as name=value; for example: qk_norm=true betas=0.9,0.95"),
            _RUNS,
            _COMMON,
        ),
        (Flag("name", ("--name",), text="Name of the run; its folder is runs/NAME. None: as the preset."), "train pretrain", _RARE),
        (Flag("out", ("--out",), text="Folder of the run; None: runs/NAME."), "train pretrain", _COMMON),
        (
            Flag(
                "resume",
                ("--resume",),
                Literal["no", "yes", "auto"],
                "no",
                "Continue the run in its folder exactly; auto: start it if there is none (for job queues).",
                alone="yes",
            ),
            "train pretrain",
            _COMMON,
        ),
        ("train.evaluate_every", _RUNS, _RARE),
        ("train.checkpoint_every", _RUNS, _RARE),
        ("train.snapshots", _RUNS, _COMMON),
        ("train.tensorboard", _RUNS, _RARE),
        ("train.wandb", _RUNS, _RARE),
        (
            Flag("skip_probe", ("--skip-probe",), bool, False, "Skip the probe of the features at the end; no label is read at all then."),
            "pretrain",
            _RARE,
        ),
        (
            Flag(
                "test",
                ("--test",),
                bool,
                False,
                "Then open the test images, once, and score the linear probe on them: for the final figure, not to choose by.",
            ),
            "pretrain",
            _RARE,
        ),
        (Flag("quiet", ("--quiet",), bool, False, "Print no progress."), "train pretrain", _RARE),
        (Flag("json", ("--json",), bool, False, "Print the result as JSON."), _RUNS, _COMMON),
    ],
}
"""Group of the help → what it shows: field (or option), verbs, whether `--help` shows it or only `--help-all`."""

_CONFIGS: dict[str, type[Any]] = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig, "pretrain": PretrainConfig}
_RECIPE = ("data.augment", "train.optimizer", "train.schedule", "train.ema", "train.label_smoothing")
_FOR_SECONDS = "Train for this many seconds, with the schedule scaled to them; compiling and evaluating are not counted."


def training_flags(verb: str, base: RunConfig) -> list[Flag]:
    """The flags of a verb that trains; their defaults are the values of `base`."""
    return [
        _complete(row, group, common, verb, base) for group, rows in _TABLE.items() for row, verbs, common in rows if verb in verbs.split()
    ]


def _complete(row: str | Flag, group: str, common: bool, verb: str, base: RunConfig) -> Flag:
    if isinstance(row, Flag):
        text = row.text
        if not text:  # a size of the model
            what = documents(ModelConfig)[row.field].partition("; None:")[0].rstrip(".")
            text = f"{what}; one number: square. None: as the run or the data say."
        return dataclasses.replace(row, group=group, common=common, text=text)
    path, _, name = row.partition(" ")
    part, _, field = path.rpartition(".")
    kind = _CONFIGS.get(part, RunConfig)
    hint, text = typing.get_type_hints(kind)[field], documents(kind).get(field, "")
    default = getattr(getattr(base, part) if part else base, field)
    if verb in _STUDIES and path in _RECIPE:
        hint, default, text = hint | None, None, f"{text.partition('.')[0]}. None: the recipe's."
    if name == "--seconds":
        text = _FOR_SECONDS
    name = name or f"--{field.replace('_', '-')}"
    return Flag(path, (name,), hint, default if name.startswith("-") else None, text, group, common)


@functools.cache
def documents(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    texts: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            texts[field.target.id] = " ".join(text.split())
    return texts
