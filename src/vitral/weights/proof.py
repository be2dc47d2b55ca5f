"""The proof of an import: source and ours on the same input, compared layer by layer.

Hooks on the source's blocks exist only while the proof runs. A difference is the largest absolute one, divided by the
source's largest value in that layer.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ParityError, WeightsError
from vitral.base.text import table
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Tape

TOLERANCE = 1e-5

# Where libraries keep their blocks; the first that exists counts.
BLOCKS = (
    "blocks",
    "encoder.layers",
    "vision_model.encoder.layers",
    "layers",
    "vit.layers",
    "deit.layers",
    "encoder.layer",
    "vit.encoder.layer",
    "deit.encoder.layer",
    "dinov2.encoder.layer",
    "dinov2_with_registers.encoder.layer",
    "model.layer",
    "layer",
    "beit.layers",
    "beit.encoder.layer",
    "data2vec_vision.encoder.layer",
)


@dataclass(frozen=True)
class Difference:
    """One layer's largest difference relative to the source's largest value."""

    layer: str
    value: float


@dataclass(frozen=True)
class Proof:
    """What the comparison found."""

    rows: tuple[Difference, ...]
    tolerance: float
    source: str

    @property
    def worst(self) -> float:
        return max((row.value for row in self.rows), key=_rank)

    @property
    def first_diverging(self) -> str | None:
        """The first layer over the tolerance: where to look for the cause."""
        return next((row.layer for row in self.rows if not row.value <= self.tolerance), None)

    @property
    def holds(self) -> bool:
        return self.first_diverging is None

    def figures(self) -> dict[str, float]:
        return {row.layer: row.value for row in self.rows}

    def table(self) -> str:
        over = f"over {self.tolerance:.0e}"
        return table([[row.layer, f"{row.value:.1e}", "" if row.value <= self.tolerance else over] for row in self.rows])

    def check(self) -> Proof:
        """Raises ParityError when any layer is over the tolerance."""
        if not self.holds:
            listed = ", ".join(f"{row.layer} {row.value:.1e}" for row in self.rows)
            raise ParityError(
                f"the import of {self.source} computes something else from {self.first_diverging} on (over {self.tolerance:.0e})",
                f"differences: {listed}",
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source, "tolerance": self.tolerance, "holds": self.holds, "worst": self.worst, "layers": self.figures()}


def prove(model: Classifier, source: nn.Module, tolerance: float = TOLERANCE, name: str = "") -> Proof:
    """Run both on one seeded input in eval mode and fp32, and compare embedding, every block and the output."""
    config = model.config
    shape = (1 if config.family == "vit" and config.tokens > 600 else 2, config.channels, *config.image_size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    theirs = _run_source(source, _fitted(source, images))
    ours = _run_ours(model, images, list(theirs))
    rows = tuple(Difference(layer, difference(ours[layer], theirs[layer])) for layer in theirs)
    return Proof(rows, tolerance, name or type(source).__name__)


def _fitted(source: Any, images: Tensor) -> Tensor:
    """For a picture size that its patches do not divide (384 by 14): a source passes over the pixels that are left at the edges."""
    embedding = getattr(source, "patch_embed", None)
    size = getattr(embedding, "img_size", None) if getattr(embedding, "strict_img_size", True) else None
    if size is None:
        return images
    return F.pad(images, (0, size[1] - images.shape[3], 0, size[0] - images.shape[2]))


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Relative to the largest value; infinite where the shapes differ, NaN where the numbers are none."""
    if ours.shape != theirs.shape:
        return float("inf")
    largest = theirs.abs().max().item()
    return (ours - theirs).abs().max().item() / (largest or 1.0)


def _run_source(source: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """The source's embedding, block outputs and output under our layer names."""
    device = next(source.parameters()).device
    if any(parameter.dtype != torch.float32 for parameter in source.parameters()):
        source = copy.deepcopy(source).float()
    outputs: dict[str, Tensor] = {}
    with evaluating(source), _watching(source, outputs), torch.no_grad():
        output = _call(source, images.to(device))
    outputs["logits"] = output
    return {layer: tensor.detach().float().cpu() for layer, tensor in outputs.items()}


def _run_ours(model: Classifier, images: Tensor, layers: list[str]) -> dict[str, Tensor]:
    names = {layer: f"{layer}.output" if layer.startswith(("blocks.", "stages.")) else layer for layer in layers}
    tape = Tape(model, keep=[*names.values()])
    with evaluating(model), torch.no_grad():
        model(images.to(next(model.parameters()).device), tape=tape)
    return {layer: tape[name].float().cpu() for layer, name in names.items()}


@contextlib.contextmanager
def _watching(source: nn.Module, outputs: dict[str, Tensor]) -> Iterator[None]:
    handles = []

    def keep(layer: str) -> Any:
        def hook(_module: nn.Module, _arguments: Any, output: Any) -> None:
            outputs[layer] = _first(output)

        return hook

    def before(_module: nn.Module, arguments: Any, keywords: Any) -> None:
        outputs["embedding"] = _first(arguments or next(iter(keywords.values())))

    blocks, kind = _source_blocks(source)
    try:
        if kind == "blocks":
            handles.append(blocks[0].register_forward_pre_hook(before, with_kwargs=True))
        handles += [block.register_forward_hook(keep(f"{kind}.{index}")) for index, block in enumerate(blocks)]
        yield
    finally:
        for handle in handles:
            handle.remove()


def _source_blocks(source: nn.Module) -> tuple[list[nn.Module], str]:
    """The source's blocks (or a ResNet's stages) in order."""
    if isinstance(getattr(source, "layer4", None), nn.Module):
        return [getattr(source, f"layer{number}") for number in (1, 2, 3, 4)], "stages"
    for path in BLOCKS:
        with contextlib.suppress(AttributeError):
            outputs = source.get_submodule(path)
            if isinstance(outputs, nn.ModuleList | nn.Sequential) and len(outputs):
                return list(outputs), "blocks"
    raise WeightsError(f"no blocks were found in this {type(source).__name__}", "adopt a ViT of timm, torchvision or transformers")


def _call(source: nn.Module, images: Tensor) -> Tensor:
    """The one vector per picture that the source gives: logits, or what stands for them in a backbone."""
    kind = type(source).__name__
    if kind in ("CLIPModel", "SiglipModel"):
        output = source.get_image_features(pixel_values=images)  # type: ignore[operator]
        return output if isinstance(output, Tensor) else output.pooler_output
    if type(source).__name__ == "ViTMAEModel":
        with _unmasked(source):
            noise = torch.arange(_patches(source), dtype=torch.float32, device=images.device).expand(len(images), -1)
            return source(pixel_values=images, noise=noise).last_hidden_state[:, 0]
    output = source(images)
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple):
        raise WeightsError(f"this {type(source).__name__} returns a tuple", "put it in eval mode, without a training head")
    if getattr(output, "logits", None) is not None:
        return output.logits
    if getattr(output, "image_embeds", None) is not None:
        return output.image_embeds
    # CLIP, SigLIP and BEiT finish only what they pool; ViT's and DeiT's poolers are an extra layer that we drop.
    if kind.startswith(("CLIP", "Siglip", "Beit", "Data2Vec")):
        return output.pooler_output
    if kind.startswith("IJepa"):
        return output.last_hidden_state.mean(dim=1)
    return output.last_hidden_state[:, 0]


def _patches(source: Any) -> int:
    return source.embeddings.position_embeddings.shape[1] - 1


@contextlib.contextmanager
def _unmasked(source: Any) -> Iterator[None]:
    """MAE hides patches at random even in eval mode; for the proof it hides none."""
    before = source.config.mask_ratio
    source.config.mask_ratio = 0.0
    try:
        yield
    finally:
        source.config.mask_ratio = before


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else _first(value[0])


def _rank(value: float) -> float:
    return float("inf") if value != value else value
