"""vitral weights inspect|convert|list: weights of any origin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from vitral.base.progress import print_clean
from vitral.cli.parsing import Command, run_command

EXAMPLES = """Look into weights files, carry weights from one library to another, list what can be read and written.

Examples:
  vitral weights inspect vit_tiny.safetensors
  vitral weights convert timm:vit_base_patch16_224 out --format hf
  vitral weights list
"""

_INSPECT = """Show what a weights file is, what becomes of each key, the config, what is declared and what is assumed.

Examples:
  vitral weights inspect vit_tiny.safetensors
  vitral weights inspect checkpoint.pth --heads 3 --json
  vitral weights inspect vit_tiny.safetensors --brief --against other.pth
"""

_CONVERT = """Write weights in another library's format; refuses what the format cannot hold and says why.

Examples:
  vitral weights convert vit_tiny.safetensors out --format hf
  vitral weights convert runs/digits out --format onnx --attention
  vitral weights convert B_16.npz out --format timm --image-size 384 384
"""

_LIST = """List the families that are read, the formats that are written, and the pretrained names of torchvision and timm.

Examples:
  vitral weights list
  vitral weights list --json
"""


@dataclass(frozen=True)
class _Inspect:
    file: Annotated[str, "FILE"]
    """A weights file, or a folder of Vitral, transformers or timm."""
    heads: int | None = None
    """Attention heads, where the file cannot say."""
    against: str | None = None
    """Prove the import, layer by layer, against timm:NAME or torchvision:NAME with the same weights."""
    brief: bool = False
    """Leave out the table of keys."""
    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True)
class _Convert:
    source: Annotated[str, "SOURCE"]
    """Anything that `vitral.load` takes."""
    folder: Annotated[str, "FOLDER"]
    """Where to write."""
    format: Literal["vitral", "timm", "torchvision", "hf", "npz", "onnx"] = "vitral"
    """vitral: Vitral's own folder."""
    attention: bool = False
    """For onnx: the attention maps of every block as further outputs."""
    preprocess: str | None = None
    """How pictures were prepared: half, squash, imagenet, deit, torchvision, clip."""
    classes: int | None = None
    """Give the model a new head for this many classes; 0: none."""
    image_size: tuple[int, int] | None = None
    """Height and width the weights shall be for: positions are resized."""
    patch_size: tuple[int, int] | None = None
    """Height and width the patches shall have: the embedding is resized."""
    channels: int | None = None
    """Colour channels the weights shall be for: the embedding is adapted."""
    heads: int | None = None
    """Attention heads, where the file cannot say."""
    activation: str | None = None
    """Activation of the MLPs, where the file cannot say: gelu, gelu_tanh, quick_gelu …"""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class _Names:
    json: bool = False
    """Print everything as JSON."""


def run(arguments: list[str]) -> int:
    return run_command("weights", COMMANDS, EXAMPLES, arguments)


def _inspect(flags: _Inspect) -> int:
    from vitral.weights.inspect import inspect

    inspection = inspect(flags.file, heads=flags.heads)
    proof = None
    if flags.against:
        from vitral.weights.named import prove_file

        proof = prove_file(flags.file, flags.against, heads=flags.heads)
    if flags.json:
        print(json.dumps(inspection.to_dict() | ({"proof": proof.to_dict()} if proof else {}), indent=2, ensure_ascii=False))
    else:
        print_clean(inspection.table(keys=not flags.brief) + (f"\ndifference from {proof.source}:\n{proof.table()}" if proof else ""))
    if proof:
        proof.check()
    return 1 if inspection.problem else 0


def _convert(flags: _Convert) -> int:
    from vitral.weights.checkpoint import save
    from vitral.weights.export import export
    from vitral.weights.load import load

    model = load(
        flags.source,
        preprocess=flags.preprocess,
        classes=flags.classes,
        image_size=flags.image_size,
        channels=flags.channels,
        heads=flags.heads,
        activation=flags.activation,
        patch_size=flags.patch_size,
    )
    if flags.format == "vitral":
        path = save(model, flags.folder)
    else:
        path = export(model, flags.folder, flags.format, attention=flags.attention)
    result = {"path": str(path), "format": flags.format, "source": model.origin.source.value, "changes": list(model.origin.changes)}
    result["assumed"] = model.origin.assumptions()
    print_clean(
        json.dumps(result, indent=2, ensure_ascii=False)
        if flags.json
        else "\n".join([str(path), *(f"  {change}" for change in model.origin.changes)])
    )
    return 0


def _list(flags: _Names) -> int:
    from vitral.weights.detect import FAMILIES
    from vitral.weights.export import FORMATS
    from vitral.weights.named import names

    families = list(dict.fromkeys(family.label for family in FAMILIES))
    pretrained = names()
    if flags.json:
        print(json.dumps({"read": families, "write": ["vitral", *FORMATS], "pretrained": pretrained}, indent=2, ensure_ascii=False))
        return 0
    print_clean("read:")
    print_clean("\n".join(f"  {label}" for label in families))
    print_clean("write:\n  " + ", ".join(["vitral", *FORMATS]))
    for library, listed in pretrained.items():
        print_clean(
            f"{library} ({len(listed)}): "
            + (", ".join(f"{library}:{name}" for name in listed[:12]) + (", …" if len(listed) > 12 else "") or "not installed")
        )
    return 0


COMMANDS: dict[str, Command] = {
    "inspect": (_Inspect, _INSPECT, _inspect),
    "convert": (_Convert, _CONVERT, _convert),
    "list": (_Names, _LIST, _list),
}
