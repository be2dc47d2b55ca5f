"""Are patches a set or a picture? The same patches in another order, through the model as it is and without its positions.

Attention treats all tokens alike, so without positions another order of the patches cannot change what a class token or a mean reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.text import percent
from vitral.build import build
from vitral.config import ModelConfig
from vitral.data.images.preprocess import Preprocess
from vitral.draw.result import Result
from vitral.draw.tiles import picture_sheet
from vitral.look.choice import Start, check_item, need_transformer, unused_note
from vitral.look.rerun import single_image
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ORDERS = 8


@dataclass(frozen=True)
class Shuffled(Result):
    """What became of the logits of one picture when its patches changed places."""

    change: np.ndarray
    """(orders,): largest |difference| of a logit from the unshuffled picture's, over the spread (max − min) of that one's logits."""
    without: np.ndarray
    """The same of the model without its positions."""
    same: int
    """Orders in which the model's answer stays."""
    same_without: int
    image: Image.Image
    shuffled: Image.Image
    """In the first of the orders."""
    note: str = ""

    @property
    def finding(self) -> str:
        orders = len(self.change)
        return (
            f"With positions the answer stays in {self.same} of {orders} orders of the patches, and logits move by up to "
            f"{percent(self.change.max())} of their spread; without them it stays in {self.same_without}, "
            f"they move by {self.without.max():.1g}"
        )

    def numbers(self) -> dict[str, Any]:
        return {"change": self.change, "without": self.without}

    def draw(self) -> Figure:
        many = len(self.change)
        caption = f"another order: same answer in {self.same} of {many}, without positions in {self.same_without}"
        title = "Patches in another order"
        return picture_sheet([self.image, self.shuffled], ["picture as the model sees it", caption], columns=2, width=3.2, title=title)


def shuffle(
    tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, orders: int = _ORDERS, seed: int = 0
) -> Shuffled:
    """One picture of a tape with its patches in `orders` random orders."""
    need_transformer(tape, "another order of patches")
    item = check_item(tape, item)
    if not is_apart(tape.config):
        raise UsageError("patches that overlap, or that a stem makes, cannot change places in the picture", "use a ViT of separate patches")
    if not tape.config.classes:
        raise UsageError("this model has no head, so there is no answer to change", "give it one with model.with_head(classes=…)")
    if orders < 1:
        raise UsageError(f"{orders} orders", "ask for at least one")
    seen = single_image(tape, item)
    rng = np.random.default_rng(seed)
    tokens = int(np.prod(tape.config.grid))
    batch = torch.stack([seen, *(_reordered(seen, rng.permutation(tokens), tape.config) for _ in range(orders))])
    (change, same), (without, same_without) = (_moved(model, batch) for model in (tape.model, _without_positions(tape.model)))
    image, shuffled = (Preprocess.of(tape.model).as_image(one).convert("RGB") for one in batch[:2])
    return Shuffled(change, without, same, same_without, image, shuffled, unused_note("shuffle", target=target, start=start))


def is_apart(config: ModelConfig) -> bool:
    """Whether its patches can change places in the picture: they do not overlap, and no stem makes them."""
    return config.family == "vit" and config.patch_stride == config.patch_size


def _reordered(image: torch.Tensor, order: np.ndarray, config: ModelConfig) -> torch.Tensor:
    """(C, H, W) with patch `order[i]` in the place of patch i."""
    (rows, columns), (height, width) = config.grid, config.patch_size
    patches = image.reshape(-1, rows, height, columns, width).permute(1, 3, 0, 2, 4).flatten(0, 1)  # (N, C, h, w)
    moved = patches[torch.as_tensor(order, device=image.device)].unflatten(0, (rows, columns))
    return moved.permute(2, 0, 3, 1, 4).reshape(image.shape)


def _without_positions(model: Classifier) -> Classifier:
    """The same weights in a model that knows nothing of places."""
    with torch.random.fork_rng(), torch.device(next(model.parameters()).device):
        bare = build(replace(model.config, positions="none"))
    values = model.state_dict()
    bare.load_state_dict({name: values[name] for name in bare.state_dict()})
    bare.origin = model.origin
    return bare.to(next(model.parameters()).dtype)


@torch.no_grad()
def _moved(model: Classifier, batch: torch.Tensor) -> tuple[np.ndarray, int]:
    """How far each order moves the logits from the first picture's, and in how many the answer stays."""
    with evaluating(model):
        logits = to_double(model(batch))
    spread = (logits[0].max() - logits[0].min()).clamp_min(1e-12)
    return to_numpy((logits[1:] - logits[0]).abs().amax(dim=1) / spread), int(logits[1:].argmax(1).eq(logits[0].argmax()).sum())
