"""vitral eval MODEL DATA: how good a model is."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from vitral.config import DataConfig

EXAMPLES = """Loss, top-1 and top-5, per-class accuracy, confusion and calibration of a model on a data set.

Examples:
  vitral eval runs/digits digits
  vitral eval runs/flowers folder:photos --split validation --json
  vitral eval timm:vit_tiny_patch16_224 folder:imagenet/val
"""


@dataclass(frozen=True)
class Flags:
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A name from `vitral data list` or folder:PATH."""
    split: Literal["test", "validation", "train"] = "test"
    """Which pictures."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    batch_size: int = 128
    """Pictures at a time."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    workers: int = 0
    """Processes that decode pictures."""
    on_bad_image: Literal["fail", "skip"] | None = None
    """Stop at a file that cannot be read, or pass over it; None: as the run did on its own data, else fail."""
    json: bool = False
    """Print everything as JSON, the confusion matrix too."""


def run(arguments: list[str]) -> int:
    from vitral.cli.parsing import parse

    flags = parse(Flags, arguments, "vitral eval", EXAMPLES)
    from vitral.train.evaluate import evaluate
    from vitral.weights.load import load

    options = {"batch_size": flags.batch_size, "device": flags.device, "workers": flags.workers}
    result = evaluate(load(flags.model), settings(flags), flags.split, **options)
    values = {"model": flags.model, "data": flags.data, "split": flags.split, **result.to_dict()}
    print(json.dumps(values) if flags.json else text(values))
    return 0


def settings(flags: Flags) -> DataConfig:
    """How the data is split: as the model's own run split it, or a picture of its training may be in the test."""
    from vitral.base.files import read_json
    from vitral.base.layout import CONFIG
    from vitral.config import DataConfig, from_dict

    path = Path(flags.model)
    folder = path if path.is_dir() else path.parent
    folder = folder.parent.parent if folder.parent.name == "snapshots" else folder
    base = DataConfig(name=flags.data)
    if path.exists() and (folder / CONFIG).is_file() and "data" in (stored := read_json(folder / CONFIG)):
        own = from_dict(DataConfig, stored["data"], str(folder / CONFIG))
        base = own if _place(own.name) == _place(flags.data) else base
    return dataclasses.replace(
        base,
        name=flags.data,
        root=flags.root or base.root,
        workers=flags.workers,
        on_bad_image=flags.on_bad_image or base.on_bad_image,
    )


def _place(data: str) -> str | Path:
    """photos and photos/ are one folder."""
    kind, _, path = data.partition(":")
    return Path(path).resolve() if kind == "folder" else data


def text(values: dict[str, Any]) -> str:
    lines = [f"{values['model']} on {values['data']} ({values['split']}, {values['pictures']:,} pictures)"]
    scores = f"top-1 {values['top1']:.2%}   top-5 {values['top5']:.2%}   loss {values['loss']:.4f}"
    lines.append(f"  {scores}   calibration error {values['calibration']['error']:.3f}")
    ranked = sorted(((share, name) for name, share in values["per_class"].items() if share is not None))
    width = max(len(name) for _, name in ranked)
    lines += [f"  {name:<{width}}  {share:.1%}" for share, name in ranked[:20]]
    if len(ranked) > 20:
        lines.append(f"  … and {len(ranked) - 20} better classes (--json has all)")
    names, confusion = list(values["per_class"]), values["confusion"]
    pairs = sorted(((count, i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) if i != j and count), reverse=True)
    lines += [f"  {names[i]} taken for {names[j]}: {count}" for count, i, j in pairs[:5]]
    return "\n".join(lines)
