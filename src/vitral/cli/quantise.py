"""vitral quantise MODEL DATA: a small model, and how many of its answers agree with those of the original."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.progress import print_clean
from vitral.cli.opening import ModelFlags, open_model
from vitral.cli.parsing import parse

EXAMPLES = """Export a model to int8 ONNX (a scale per token), bf16 and fp16, and measure how often its answers agree with fp32.

model.onnx runs in plain onnxruntime, and predict.py needs nothing of Vitral. An int8 model with the same top-1 on fewer than 97 of 100
images (--min-agreement) is not written.

Examples:
  vitral quantise runs/flowers folder:photos --out small
  vitral quantise vit_tiny.safetensors photos --out small --min-agreement 0.99
  vitral quantise runs/digits digits --out small --attention --force
"""


@dataclass(frozen=True)
class _Flags(ModelFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    data: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, or a folder of pictures. Labels are used where they are the model's classes."""
    out: Path
    """Folder for model.onnx, model.bf16.onnx, model.fp16.onnx, proof.json, report.html and predict.py."""
    split: Literal["all", "test", "validation", "train"] | None = None
    """Which pictures; None: the test split of data that has one or that the model learnt from, else all."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    pictures: int | None = None
    """Compare answers on so many pictures at most; None: on all."""
    min_agreement: float = 0.97
    """Share of the pictures that int8 must give the same answer."""
    max_top1_loss: float = 0.005
    """Share of top-1 that int8 may lose, where there are labels."""
    force: bool = False
    """Write a model that fails its limits, too."""
    attention: bool = False
    """The attention maps of every block as further outputs."""
    layer_pictures: int = 16
    """Pictures on which each layer is tried alone; 0: not at all."""
    rounds: int = 30
    """Times that fp32 and int8 are timed in turn."""
    json: bool = False
    """Print the proof as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral quantise", EXAMPLES)
    from vitral.data.sources.kinds import check_name
    from vitral.draw.provenance import command_line
    from vitral.report.quantise import check_folder, write_quantised
    from vitral.study.proof import Limits, quantise
    from vitral.study.proof_pictures import ProofPictures

    check_folder(flags.out)
    if not Path(flags.data).is_dir():
        check_name(flags.data)
    model = open_model(flags.model, flags)
    limits = Limits(flags.min_agreement, flags.max_top1_loss, flags.force)
    pictures = ProofPictures(model, flags.data, flags.split, flags.root, flags.pictures)
    settings = {name: getattr(flags, name) for name in ("attention", "layer_pictures", "rounds")}
    result = quantise(pictures, limits=limits, threads=flags.threads or 0, **settings)
    proof = replace(result.proof, model=flags.model, command=command_line(["vitral", "quantise", *arguments]))
    result = replace(result, proof=proof)
    page = write_quantised(result, model, flags.out)
    print_clean(json.dumps(result.proof.to_dict())) if flags.json else print_clean(result.proof.text())
    print(page, file=sys.stderr) if flags.json else print_clean(page)
    return 0
