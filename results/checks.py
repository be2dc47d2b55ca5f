"""Small checks behind single rows of reports.md: python results/checks.py NAME …

equation4                      R3's equation 4: the scale after the softmax against the scale inside
same-attention                 R4: our attention weights against those that torchvision's own module returns, ViT-B/16, every block
on-object MODEL IMAGE BOX…     R1: how much of a map lies in boxes LEFT,TOP,RIGHT,BOTTOM (shares of the picture as the model sees it)
ink MODEL IMAGE                R0: the class token's attention on the stroke of a digit over the stroke's area, block by block
distances FILE.npz             R3: the range of mean attention distances in the first two and the last two blocks
patch-grid H W P               R3: attention over pixels against attention over patches
picture DATA NUMBER FILE       a training picture of a data set as a file
keep NAME [FILE] -- COMMAND…   run a command and keep the JSON that it prints (or writes to FILE) in measured/NAME.json, for claims.toml
"""

from __future__ import annotations

import datetime
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from collect import without_paths
from PIL import Image

import vitral
from vitral.base.device import describe_machine
from vitral.base.files import make_folder, write_json
from vitral.config import DataConfig
from vitral.cost.flops import attention_map_ratio
from vitral.data.splits.open import open_data
from vitral.weights.load import load

MEASURED = Path(__file__).parent / "measured"
METHODS = ("attention", "rollout", "gradient_rollout", "relevance", "legrad", "gradcam")


def equation4(tokens: str = "197", width: str = "64") -> dict[str, Any]:
    """Unit-variance queries and keys: the largest weight of a row, the tokens it spreads over, and what its weights sum to."""
    n, d = int(tokens), int(width)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 64, n, d, generator=generator, dtype=torch.float64)
    scores = q @ k.transpose(1, 2)
    result: dict[str, Any] = {"tokens": n, "width": d, "rows": 64 * n, "spread of the scores": scores.std().item()}
    for name, weights in (
        ("inside, softmax(qk'/√d)", torch.softmax(scores / math.sqrt(d), -1)),
        ("after, softmax(qk')/√d", torch.softmax(scores, -1) / math.sqrt(d)),
    ):
        rows = weights / weights.sum(-1, keepdim=True)
        result[name] = {
            "a row sums to": weights.sum(-1).mean().item(),
            "largest share of a row": rows.amax(-1).mean().item(),
            "tokens a row spreads over": torch.special.entr(rows).sum(-1).exp().mean().item(),
        }
    return result


@torch.no_grad()
def same_attention(name: str = "vit_b_16") -> dict[str, Any]:
    """torchvision's model with random weights; each of its attention modules is asked for its weights as it runs."""
    import torchvision

    torch.manual_seed(0)
    theirs: Any = torchvision.models.get_model(name, weights=None).eval()
    torch.nn.init.normal_(theirs.heads.head.weight, std=0.02)  # it starts at zero, and logits of nothing would prove nothing
    collected: list[torch.Tensor] = []
    for block in theirs.encoder.layers:

        def asked(*inputs: Any, own: Any = block.self_attention.forward, **options: Any) -> Any:
            output, weights = own(*inputs, **{**options, "need_weights": True, "average_attn_weights": False})
            collected.append(weights)
            return output, weights

        block.self_attention.forward = asked
    images = torch.randn(2, 3, 224, 224)
    logits = theirs(images)
    for block in theirs.encoder.layers:
        del block.self_attention.forward
    tape = vitral.watch(vitral.adopt(theirs), images)
    apart = [(tape.attention(index) - weights).abs().max().item() for index, weights in enumerate(collected)]
    largest = max(weights.max().item() for weights in collected)
    return {
        "model": f"torchvision {name}, random weights",
        "shape of a block's weights": list(collected[0].shape),
        "blocks": len(collected),
        "largest weight": largest,
        "largest difference of a weight": max(apart),
        "largest difference of a logit": (tape.logits - logits).abs().max().item(),
    }


def on_object(model: str, image: str, *boxes: str) -> dict[str, Any]:
    """`lift`: share of the map inside over share of the area; 1 is what a map that knows nothing has."""
    network = load(model, preprocess="squash", quiet=True)
    tape = vitral.watch(network, image)
    inside = area_inside([tuple(map(float, box.split(","))) for box in boxes], tape.grid)
    area = float(inside.mean())
    result: dict[str, Any] = {
        "boxes": list(boxes),
        "share of the area": area,
        "answer": tape.origin.class_name(int(tape.logits[0].argmax())),
    }
    for name in METHODS:
        grid = np.clip(getattr(vitral.look, name)(tape).grid, 0, None)
        share = float((grid * inside).sum() / max(grid.sum(), 1e-30))
        result[name] = {"share": share, "lift": share / area}
    by_block = [vitral.look.attention(tape, block=block).grid for block in range(tape.config.depth)]
    result["attention, block by block"] = [round(float((grid * inside).sum() / grid.sum()), 3) for grid in by_block]
    return result


def ink(model: str, image: str) -> list[float]:
    """Attention of the class token, mean over heads, weighted by how bright each patch is, over the mean brightness."""
    tape = vitral.watch(load(model, quiet=True), image)
    assert tape.pictures is not None
    height, width = tape.config.image_size
    grey = np.asarray(tape.pictures[0].original.convert("L").resize((width, height)), dtype=float)
    rows, columns = tape.grid
    bright = grey.reshape(rows, grey.shape[0] // rows, columns, grey.shape[1] // columns).mean(axis=(1, 3))
    maps = [vitral.look.attention(tape, block=block).grid for block in range(tape.config.depth)]
    return [float((grid * bright).sum() / grid.sum() / bright.mean()) for grid in maps]


def distances(file: str) -> dict[str, Any]:
    with np.load(file) as numbers:
        mean, each, even = numbers["mean"], numbers["each"], float(numbers["uniform"])
    ends = {"first": mean[:2], "last": mean[-2:]}
    return {"pictures": len(each), **{name: [float(part.min()), float(part.max())] for name, part in ends.items()}, "uniform": even}


def area_inside(boxes: Sequence[tuple[float, ...]], grid: tuple[int, int]) -> np.ndarray:
    """(h, w): how much of each patch lies in one of the boxes."""
    fine = 16
    y, x = np.meshgrid(*((np.arange(count * fine) + 0.5) / (count * fine) for count in grid), indexing="ij")
    covered = np.zeros(y.shape, bool)
    for left, top, right, bottom in boxes:
        covered |= (x >= left) & (x < right) & (y >= top) & (y < bottom)
    return covered.reshape(grid[0], fine, grid[1], fine).mean(axis=(1, 3))


def patch_grid(height: str, width: str, patch: str) -> dict[str, Any]:
    size, side = (int(height), int(width)), int(patch)
    grid = size[0] // side, size[1] // side
    return {
        "(H·W)²": (size[0] * size[1]) ** 2,
        "(n_h·n_w)²": (grid[0] * grid[1]) ** 2,
        "ratio": attention_map_ratio(size, grid),
    }


def picture(data: str, number: str, file: str) -> dict[str, Any]:
    split = open_data(DataConfig(name=data)).train
    shown = split.picture(int(number))
    (shown if isinstance(shown, Image.Image) else Image.fromarray(np.asarray(shown))).save(file)
    return {"written": file, "label": int(split.labels[int(number)])}


def keep(name: str, *rest: str) -> dict[str, Any]:
    """What a row of reports.md quotes: the command as typed, its answer, the machine and the day."""
    split = rest.index("--")
    file, command = (rest[:split] or (None,))[0], list(rest[split + 1 :])
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    output = json.loads(Path(file).read_text(encoding="utf-8") if file else printed)
    content = {"command": " ".join(command), "output": output, "machine": describe_machine(), "date": datetime.date.today().isoformat()}
    write_json(make_folder(MEASURED) / f"{name}.json", without_paths(content))
    return {"written": f"measured/{name}.json"}


CHECKS: dict[str, Callable[..., Any]] = {
    "equation4": equation4,
    "same-attention": same_attention,
    "on-object": on_object,
    "ink": ink,
    "distances": distances,
    "patch-grid": patch_grid,
    "picture": picture,
    "keep": keep,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    print(json.dumps(CHECKS[sys.argv[1]](*sys.argv[2:]), indent=2, ensure_ascii=False))
