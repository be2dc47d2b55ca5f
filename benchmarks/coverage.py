"""Which of timm's ViTs does Vitral take in? Every name of its ViT modules, built with random weights, adopted and proved.

    python benchmarks/coverage.py [--only siglip] [--modules vision_transformer eva] [--full] [--write docs/reference/families.md]

Each is proved layer by layer as a live module, and again from a file of its state dict. Two blocks are enough, since all others repeat
them; 4 heads of 16 numbers unless --full; one model at a time.
"""

from __future__ import annotations

import argparse
import gc
import logging
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from vitral.base.errors import VitralError
from vitral.base.progress import track
from vitral.base.text import few, table
from vitral.config import ModelConfig
from vitral.weights.adopt import adopt
from vitral.weights.load import load
from vitral.weights.proof import prove

MODULES = ("vision_transformer", "eva", "beit", "deit")
FURTHER = ("vision_transformer_relpos", "naflexvit", "vision_transformer_hybrid", "vision_transformer_sam")
"""Where a plain ViT may be inside: taken in then, and refused by name otherwise."""
NARROW: dict[str, Any] = {"embed_dim": 64, "num_heads": 4}
PARTS = (
    "pool",
    "positions",
    "relative_mlp",
    "rotary",
    "norm",
    "norm_order",
    "sub_norm",
    "patch_norm",
    "embedding_norm",
    "qk_norm",
    "activation",
    "block",
)
"""What tells one family from another: fields of the config that are not the plain ViT's."""


@dataclass(frozen=True)
class Trial:
    """What became of one name."""

    name: str
    family: str = ""
    parts: str = ""
    live: float = float("nan")
    """The largest relative difference of any layer."""
    file: float = float("nan")
    file_reason: str = ""
    reason: str = ""

    @property
    def adopted(self) -> bool:
        return not self.reason


def names(modules: tuple[str, ...] = MODULES) -> list[str]:
    import timm

    return [name for module in modules for name in timm.list_models(module=module)]


def build(name: str, full: bool = False) -> nn.Module:
    """Two blocks, 5 classes, every parameter away from its start value: zero biases and unit norms would hide a wrong map."""
    import timm

    sizes: dict[str, Any] = {"depth": 2, "num_classes": 5, **({} if full else NARROW)}
    if "sapiens2" in name:
        sizes["num_kv_heads"] = (2, 4)  # grouped in one block, not in the other
    if name == "vit_base_mci_224":
        sizes = {"depth": 2, "num_classes": 5}  # its stem says how wide it is
    try:
        module = timm.create_model(name, **sizes)
    except AssertionError:  # gated MLPs that must divide into eights
        module = timm.create_model(name, **{**sizes, "embed_dim": 96, "num_heads": 6})
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def attempt(name: str, full: bool = False) -> Trial:
    """Adopt it live, then from a file; a refusal is a result."""
    module = build(name, full)
    try:
        model = adopt(module)
    except VitralError as error:
        return Trial(name, reason=str(error))
    family, parts = str(model.origin.source.value).partition(":")[0], described(model.config)
    live = max(model.origin.parity.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.safetensors"
        save_file({key: tensor.contiguous() for key, tensor in module.state_dict().items()}, path)
        try:
            loaded = load(path, heads=model.config.heads, activation=model.config.activation, quiet=True)
            again = prove(loaded, module)
        except VitralError as error:
            return Trial(name, family, parts, live, file_reason=str(error))
    return Trial(name, family, parts, live, again.worst, "" if again.holds else f"other numbers from {again.first_diverging} on")


def described(config: ModelConfig) -> str:
    plain = ModelConfig()
    found = {part: getattr(config, part) for part in PARTS if getattr(config, part, None) != getattr(plain, part, None)}
    if not config.is_rotary:
        found.pop("rotary", None)
    if config.relative_mlp:
        found["relative_mlp"] = True  # how wide it is tells no family from another
    return ", ".join(part.replace("_", " ") if value is True else f"{part.replace('_', ' ')} {value}" for part, value in found.items())


def attempts(chosen: list[str], full: bool) -> Iterator[Trial]:
    for name in track(chosen, "models"):
        yield attempt(name, full)
        gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names that match this regular expression")
    parser.add_argument("--modules", nargs="*", default=(*MODULES, *FURTHER))
    parser.add_argument("--full", action="store_true", help="in their own width")
    parser.add_argument("--write", type=Path, help="the page with the table")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    trials = list(attempts([name for name in names(tuple(arguments.modules)) if re.search(arguments.only, name)], arguments.full))
    report(trials)
    if arguments.write:
        arguments.write.write_text(page(trials), encoding="utf-8")


def report(trials: list[Trial]) -> None:
    adopted = [trial for trial in trials if trial.adopted]
    print(f"{len(adopted)} of {len(trials)} adopted; largest difference {max((trial.live for trial in adopted), default=0):.1e}")
    held = [trial for trial in adopted if not trial.file_reason]
    print(f"{len(held)} of them from a file too; largest difference {max((trial.file for trial in held), default=0):.1e}")
    for what, reasons in (
        ("refused", [(trial.reason, trial.name) for trial in trials if trial.reason]),
        ("not from a file", [(trial.file_reason, trial.name) for trial in adopted if trial.file_reason]),
    ):
        grouped: dict[str, list[str]] = defaultdict(list)
        for reason, name in reasons:
            grouped[reason.replace(name, "…")].append(name)
        for reason, those in sorted(grouped.items(), key=lambda item: -len(item[1])):
            print(f"{what} {len(those)}: {reason}\n    {', '.join(those)}")


def page(trials: list[Trial]) -> str:
    """The table of the documentation: family → parts → proof."""
    import timm

    grouped: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        grouped[trial.family or "refused", trial.parts or trial.reason.replace(trial.name, "…")].append(trial)
    rows = []
    for (family, parts), those in sorted(grouped.items(), key=lambda item: (item[0][0] == "refused", -len(item[1]))):
        live = max(trial.live for trial in those)
        held = [trial.file for trial in those if trial.adopted and not trial.file_reason]
        file = f"{len(held)} of {len(those)}, {max(held):.0e}" if held else "no"
        proof = [f"{live:.0e}", file] if those[0].adopted else ["", ""]
        rows.append([family.removesuffix(", timm layout"), parts or "plain", few([trial.name for trial in those]), str(len(those)), *proof])
    plain = set(names(MODULES))
    counts = {}
    for kind, those in (("", [trial for trial in trials if trial.name in plain]), ("further_", [t for t in trials if t.name not in plain])):
        counts |= {f"{kind}adopted": sum(trial.adopted for trial in those), f"{kind}count": len(those)}
    header = ["family", "parts", "names", "how many", "live", "from a file"]
    return PAGE.format(
        version=timm.__version__,
        modules=", ".join(MODULES),
        further=", ".join(FURTHER),
        table=table(rows, header, markdown=True),
        **counts,
    )


PAGE = """# Families of ViTs, and how each is proved

Written by `python benchmarks/coverage.py --write docs/reference/families.md`; do not edit.

Of the {count} names in timm {version}'s modules {modules}, **{adopted} are taken in**; of the {further_count} in
{further}, {further_adopted}: where a plain ViT is inside.

Each has random weights, two blocks, 4 heads of 16 numbers, and every parameter moved away from its start value. Both models see one
random input; *live* and *from a file* give the largest difference of any layer (embedding, each block, output), relative to the layer's
largest value. Over 1e-5 is refused.

*Parts* are the fields of [the model's config](config.md) in which the family differs from a plain ViT. *From a file*: `vitral.load` of
the state dict under the model's name, with heads and activation told. A few kinds leave no trace in the tensors (angles of rotary
positions, the place of a norm), and there the file's name decides; `vitral.adopt` of the live module never has to guess.

{table}
"""


if __name__ == "__main__":
    main()
