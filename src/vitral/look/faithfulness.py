"""Is a map true? The tests of single maps that an audit is made of, as functions of numbers, images and a model.

N = h·w patches, M maps of one image, S shares of the patches.
Faithfulness by removal: patches are taken away in the map's order and the score watched. `insertion − deletion` is the symmetric gain
(Blücher, Vielhaben and Strodthoff, 2024): 0 for an order that means nothing, whatever removal itself does to the model.
Salience order (Wu and others' SaCo, 2024): do groups of patches that get more weight also cost more when they are removed?
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from vitral.base.errors import one_of
from vitral.base.numbers import to_double, to_numpy
from vitral.look.maps import patch_edges
from vitral.look.rerun import fast_logits, score
from vitral.model.classifier import Classifier
from vitral.model.tape import Edit

_REMOVALS = ("mean", "blur", "other", "dropped")
"""mean: the image's mean colour; blur: what is left of it at an eighth of the grid; other: the same place of another image; dropped: the
token is not there."""
_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
_GROUPS = 10
BATCH = 16


# ---- maps against maps ---------------------------------------------------------------------------------------------------------


def on_grid(values: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """A map (a, b) on another grid: each new patch has the mean of what it covers."""
    for axis, count in enumerate(grid):
        old = values.shape[axis]
        if old != count:
            ends = np.linspace(0, old, count + 1)
            covers = np.clip(np.minimum(ends[1:, None], np.arange(1, old + 1)) - np.maximum(ends[:-1, None], np.arange(old)), 0, None)
            values = np.moveaxis(np.tensordot(covers / covers.sum(axis=1, keepdims=True), values, (1, axis)), 0, axis)
    return values


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's: do two maps put the patches in the same order? A map that is the same everywhere orders nothing: 0."""
    a, b = (_ranks(values.ravel()) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / size) if size > 0 else 0.0


def auroc_inside(values: np.ndarray, inside: np.ndarray) -> float:
    """The chance that a patch inside gets more than one outside (area under the ROC curve); 0.5: the map knows nothing of it."""
    ranks, inside = _ranks(values.ravel()), inside.ravel().astype(bool)
    count, rest = int(inside.sum()), int((~inside).sum())
    return float((ranks[inside].sum() - count * (count - 1) / 2) / (count * rest)) if count and rest else float("nan")


def share_inside(values: np.ndarray, inside: np.ndarray) -> float:
    """What share of the map's weight lies inside; only what speaks for the class is counted. A map without any has its share by area."""
    positive = np.clip(values, 0, None)
    return float(positive[inside].sum() / positive.sum()) if positive.sum() > 0 else float(inside.mean())


def order_of(values: np.ndarray) -> np.ndarray:
    """(N,) patches, the most important first; ties in an order that no picture knows of."""
    flat = values.ravel()
    return np.lexsort((np.random.default_rng(0).random(len(flat)), -flat))


def _ranks(values: np.ndarray) -> np.ndarray:
    """0 to N − 1, ties shared."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


# ---- maps against the model ----------------------------------------------------------------------------------------------------


def _baselines(image: torch.Tensor, other: torch.Tensor, grid: tuple[int, int]) -> dict[str, torch.Tensor]:
    """What stands in the place of removed patches, as whole images (C, H, W)."""
    coarse = max(2, -(-grid[0] // 8)), max(2, -(-grid[1] // 8))  # one colour would be the mean again
    whole = image.cpu() if image.is_mps else image  # Apple's GPU pools only what divides (pytorch#96056)
    pooled = F.adaptive_avg_pool2d(whole[None], coarse).to(image)
    blurred = F.interpolate(pooled, image.shape[-2:], mode="bilinear", align_corners=False)[0]
    return {"mean": image.mean(dim=(1, 2), keepdim=True).expand_as(image), "blur": blurred, "other": other}


def _with_patches_removed(image: torch.Tensor, filling: torch.Tensor, masks: np.ndarray) -> torch.Tensor:
    """(B, C, H, W): the image with the patches that `masks` (B, h, w) names replaced."""
    height, width = image.shape[-2:]
    down, across = (np.diff(patch_edges(size, count)) for size, count in ((height, masks.shape[1]), (width, masks.shape[2])))
    pixels = torch.from_numpy(masks.repeat(down, axis=1).repeat(across, axis=2)).to(image.device)[:, None]
    return torch.where(pixels, filling, image)


@torch.no_grad()
def scores(model: Classifier, images: torch.Tensor, target: int, remaining: np.ndarray | None = None) -> np.ndarray:
    """(B,) the target's probability; `kept` (B, k): the patches that are there, all others' tokens are dropped."""
    parts = []
    for begin in range(0, len(images), BATCH):
        edits = None if remaining is None else {"embedding": _only(remaining[begin : begin + BATCH], model.config.prefix)}
        parts.append(score(model, fast_logits(model, images[begin : begin + BATCH], edits).float(), target))
    return to_numpy(to_double(torch.cat(parts)))


def removals_of(model: Classifier) -> tuple[str, ...]:
    """Those that this model allows: a token can be dropped where positions are added to it, not where attention turns it."""
    can_drop = model.config.is_transformer and model.config.positions in ("learned", "sincos", "none")
    return _REMOVALS if can_drop else _REMOVALS[:-1]


def deletion_insertion(
    model: Classifier, image: torch.Tensor, other: torch.Tensor, target: int, orders: np.ndarray, grid: tuple[int, int], removal: str
) -> np.ndarray:
    """(M, 2, S + 2) scores for `orders` (M, N): deletion (the most important first), insertion (they alone are there); from none to all."""
    if removal not in _REMOVALS:
        raise one_of("removal", removal, _REMOVALS)
    count = orders.shape[1]
    at = [min(count - 1, max(1, round(share * count))) for share in _SHARES]
    whole = scores(model, image[None], target)[0]
    out = np.zeros((len(orders), 2, len(at) + 2))
    out[:, 0, 0] = out[:, 1, -1] = whole
    if removal == "dropped":
        for column, number in enumerate(at, 1):
            for side, remaining in ((0, orders[:, number:]), (1, orders[:, :number])):
                out[:, side, column] = scores(model, image[None].expand(len(orders), -1, -1, -1), target, np.sort(remaining, axis=1))
        # A head that reads patches alone has nothing to read without any: the curve stays where it is with few.
        nothing = scores(model, image[None], target, np.zeros((1, 0), np.int64))[0] if model.config.pool == "class" else None
        out[:, 0, -1] = out[:, 0, -2] if nothing is None else nothing
        out[:, 1, 0] = out[:, 1, 1] if nothing is None else nothing
        return out
    filling = _baselines(image, other, grid)[removal]
    out[:, 0, -1] = out[:, 1, 0] = scores(model, filling[None], target)[0]
    ranks = np.empty_like(orders)
    np.put_along_axis(ranks, orders, np.arange(count)[None], axis=1)  # the rank of each patch
    masks = np.stack([[ranks < number, ranks >= number] for number in at])  # (S, 2, M, N)
    auroc_inside = scores(model, _with_patches_removed(image, filling, masks.reshape(-1, *grid)), target).reshape(len(at), 2, -1)
    out[:, :, 1:-1] = auroc_inside.transpose(2, 1, 0)
    return out


def area(curve: np.ndarray) -> np.ndarray:
    """(…, S + 2) → (…): the mean height over the share of patches."""
    return np.trapezoid(curve, [0.0, *_SHARES, 1.0], axis=-1)


def gain(curve: np.ndarray, any_sign: bool = False) -> np.ndarray:
    """(M, 2, S + 2) → (M,): insertion − deletion, as a share of the highest score on the way: −1 to 1, 0 for a meaningless order.

    any_sign: scores that are no probabilities have no zero, so their spread takes the place of the highest.
    """
    largest = float(curve.max() - curve.min()) if any_sign else float(curve.max())
    return (area(curve[:, 1]) - area(curve[:, 0])) / max(largest, 1e-9)


def salience_order(model: Classifier, image: torch.Tensor, target: int, maps: np.ndarray) -> np.ndarray:
    """SaCo of M maps (M, h, w): from −1 (what gets more weight costs less) to 1. Groups of patches are set to the image's mean colour."""
    count = maps[0].size
    groups = min(_GROUPS, count)
    filling = image.mean(dim=(1, 2), keepdim=True).expand_as(image)
    masks, weights = [], []
    for values in maps:
        for part in np.array_split(order_of(values), groups):
            mask = np.zeros(count, bool)
            mask[part] = True
            masks.append(mask.reshape(values.shape))
            weights.append(float(values.ravel()[part].sum()))
    whole = scores(model, image[None], target)[0]
    falls = whole - scores(model, _with_patches_removed(image, filling, np.stack(masks)), target).reshape(len(maps), groups)
    return np.array([_coefficient(fall, weight) for fall, weight in zip(falls, np.reshape(weights, (len(maps), groups)), strict=True)])


def _coefficient(falls: Sequence[float] | np.ndarray, weights: Sequence[float] | np.ndarray) -> float:
    """SaCo from the groups' falls of the score and their weights, the heaviest first: each pair counts by its difference in weight."""
    total = size = 0.0
    for i in range(len(falls)):
        for j in range(i + 1, len(falls)):
            difference = float(weights[i] - weights[j])
            total += difference if falls[i] >= falls[j] else -difference
            size += abs(difference)
    return total / size if size > 0 else 0.0


def _only(remaining: np.ndarray, prefix: int) -> Edit:
    """Drops the tokens of all patches but those of `kept` (B, k)."""
    index = torch.from_numpy(np.ascontiguousarray(remaining)).long() + prefix
    index = torch.cat([torch.arange(prefix).expand(len(index), -1), index], dim=1)

    def edit(tokens: torch.Tensor, _: str) -> torch.Tensor:
        return tokens.gather(1, index.to(tokens.device)[:, :, None].expand(-1, -1, tokens.shape[2]))

    return edit


# ---- models that know nothing --------------------------------------------------------------------------------------------------


def with_permuted_weights(model: Classifier, depth: int | None = None, seed: int = 0) -> Classifier:
    """A copy whose weights are shuffled, tensor by tensor: the head, and the last `depth` blocks or stages; None: everything.

    Every number stays, and with it every tensor's mean and spread; what was learnt is gone.
    """
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    blocks = len(model.map_names())
    chosen = {f"{name.rpartition('.')[0]}." for name in model.map_names()[blocks - (depth or 0) :]} | {"head.", "distillation_head."}
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            if depth is None or name.startswith(tuple(chosen)):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return copied
