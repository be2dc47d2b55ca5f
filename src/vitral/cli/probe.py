"""vitral probe MODEL DATA: how good frozen features are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from vitral.base.errors import UsageError
from vitral.cli.opening import FeatureFlags, open_model
from vitral.cli.parsing import parse

EXAMPLES = """Fit a linear probe and nearest neighbours on frozen features, k images per class, with intervals.

Examples:
  vitral probe runs/digits digits
  vitral probe timm:vit_tiny_patch16_224 folder:flowers --shots 1,5,10,all
  vitral probe runs/photos folder:flowers --shots all --save runs/flower-probe
  vitral probe runs/pretrain-cifar10 cifar10 --shots all --blocks 4
"""


@dataclass(frozen=True)
class _Flags(FeatureFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    data: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, csv:FILE, parquet:FILE, hf:NAME or webdataset:PATTERN."""
    shots: str = "1,5,10,all"
    """Pictures a class, with commas; all: every training picture."""
    draws: int = 5
    """Times that k pictures a class are drawn; the interval is over them."""
    blocks: int = 1
    """Of how many of the last blocks the features are read, side by side: 4 for a ViT that learnt without labels, as DINO's papers do."""
    root: str | None = None
    """Where data sets are kept."""
    validation: float = 0.1
    """Share of the training pictures to choose settings on."""
    split_seed: int = 0
    """Seed of the carved splits."""
    on_bad_image: Literal["fail", "skip"] = "fail"
    """Stop at a file that cannot be read, or pass over it."""
    save: str | None = None
    """Keep the probe as a model in this folder: the frozen body with the head fitted to the last of --shots."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress."""


def run(arguments: list[str]) -> int:
    from vitral.cli.compare import show

    flags = parse(_Flags, arguments, "vitral probe", EXAMPLES)
    shots = [_shots(part.strip()) for part in flags.shots.split(",") if part.strip()]
    from vitral.data.sources.kinds import check_name
    from vitral.study.probe import probe

    names = ("draws", "blocks", "root", "validation", "split_seed", "on_bad_image", "device", "precision", "quiet", "save")
    settings = {name: getattr(flags, name) for name in names}
    check_name(flags.data)
    model = open_model(flags.model, flags)
    return show(probe(model, flags.data, shots=shots, batch_size=flags.batch, name=flags.model, **settings), flags.json)


def _shots(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--shots {text!r} is neither a number of pictures nor all", "use --shots 1,5,10,all")
    return int(text)
