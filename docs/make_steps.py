"""Draws docs/images/twelve-steps.webp, what one photograph becomes in one ViT: `python docs/make_steps.py WEIGHTS PHOTOGRAPH`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from PIL import Image

import vitral

PICTURE = Path(__file__).parent / "images/twelve-steps.webp"
BLOCK, HEAD = 5, 2
BLUE, ORANGE = "#0072b2", "#e69f00"
SHOWN = 32
"""Tokens that matrices of all tokens are cut to, so that single ones can be seen."""


def draw(model: vitral.Classifier, photograph: Path) -> plt.Figure:
    tape = vitral.watch(model, str(photograph), keep=["*"])
    assert tape.images is not None
    block = f"blocks.{BLOCK}"
    pixels = tape.images[0].permute(1, 2, 0)
    pixels = ((pixels - pixels.min()) / (pixels.max() - pixels.min())).numpy()
    figure, axes = plt.subplots(3, 4, figsize=(12, 9.6), layout="constrained")
    flat = list(axes.flat)
    image(flat[0], "1  pixels", pixels)
    image(flat[1], f"2  {tape.grid[0]} × {tape.grid[1]} patches", pixels)
    rows, columns = tape.grid
    height, width = pixels.shape[:2]
    flat[1].vlines(np.arange(1, columns) * width / columns, 0, height, color="white", linewidth=1)
    flat[1].hlines(np.arange(1, rows) * height / rows, 0, width, color="white", linewidth=1)
    flat[1].set(xlim=(0, width), ylim=(height, 0))
    image(flat[2], "3  patterns of the matrix", filters(model))
    image(flat[3], "4  class token, patches …", tape["embedding"][0, :SHOWN], "numbers of a token", "token")
    table = model.get_parameter("positions.table")[0, tape.prefix :].detach()
    middle = table[rows // 2 * columns + columns // 2]
    image(flat[4], "5  places like the middle", torch.cosine_similarity(table, middle[None]).reshape(tape.grid))
    stream = tape[f"blocks.{BLOCK - 1}.output"]
    normed = model.get_submodule(block).get_submodule("norm1")(stream)
    histogram(flat[5], "6  the norm", stream[0], normed[0])
    image(
        flat[6], f"7  queries, block {BLOCK}, head {HEAD}", tape[f"{block}.attention.query"][0, HEAD, :SHOWN], "numbers of a query", "token"
    )
    weights = tape.attention(BLOCK)[0, HEAD]
    image(flat[7], "8  shares: rows sum to 1", weights[:SHOWN, :SHOWN], "looked at", "token")
    image(flat[8], "9  the class token's row", weights[0, tape.prefix :].reshape(tape.grid))
    image(flat[9], "10  inside the MLP", tape[f"{block}.mlp.hidden"][0, :SHOWN, : 4 * SHOWN], "hidden number", "token")
    added(flat[10], "11  what each block adds", tape, model.config.depth)
    answer(flat[11], "12  the answer", model, photograph)
    return figure


def image(axes: Axes, title: str, values: object, x: str = "", y: str = "") -> None:
    shown = np.asarray(values.detach() if isinstance(values, torch.Tensor) else values)
    limits = {} if shown.ndim == 3 else {"vmin": np.percentile(shown, 2), "vmax": np.percentile(shown, 98)}
    axes.imshow(shown, cmap="viridis", aspect="auto" if x else "equal", interpolation="nearest", **limits)
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xticks([])
    axes.set_yticks([])


def filters(model: vitral.Classifier) -> np.ndarray:
    """The sixteen main patterns of the patch embedding, four by four."""
    kernels = model.get_parameter("patches.projection.weight").detach()  # (D, C, P, P)
    _, _, patterns = torch.linalg.svd(kernels.flatten(1) - kernels.flatten(1).mean(0), full_matrices=False)
    tiles = patterns[:16].unflatten(1, kernels.shape[1:])
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    tiles = torch.nn.functional.pad((tiles - low) / (high - low), (1, 1, 1, 1), value=1.0).permute(0, 2, 3, 1)
    return torch.cat([torch.cat(list(tiles[row * 4 : row * 4 + 4]), 1) for row in range(4)], 0).numpy()


def histogram(axes: Axes, title: str, before: torch.Tensor, after: torch.Tensor) -> None:
    bins = np.linspace(-6, 6, 61).tolist()
    for values, colour, name in ((before, ORANGE, "stream"), (after, BLUE, "after the norm")):
        axes.hist(values.detach().flatten().numpy(), bins, density=True, histtype="step", color=colour, label=name)
    axes.set_title(title, loc="left")
    axes.set_xlabel("numbers of all tokens")
    axes.set_ylabel("density")
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def added(axes: Axes, title: str, tape: vitral.Tape, depth: int) -> None:
    for part, colour, marker in (("attention", BLUE, "o"), ("mlp", ORANGE, "s")):
        lengths = [tape[f"blocks.{block}.{part}.output"][0].norm(dim=-1).mean().item() for block in range(depth)]
        axes.plot(range(depth), lengths, color=colour, marker=marker, label=part)
    axes.set_title(title, loc="left")
    axes.set_xlabel("block")
    axes.set_xticks(range(0, depth, 3))
    axes.set_ylabel("mean length of a token")
    axes.legend(frameon=False)


def answer(axes: Axes, title: str, model: vitral.Classifier, photograph: Path) -> None:
    (ranking,) = vitral.predict(model, [str(photograph)], top=4)
    names, values = zip(*((name.partition(",")[0], 100 * value) for name, value in reversed(list(ranking))), strict=True)
    axes.barh(range(len(names)), values, color=BLUE, height=0.45)
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        axes.text(0, row + 0.28, f"{name}, {value:.0f} %", va="bottom")
    axes.set_title(title, loc="left")
    axes.set_xlabel("probability (%)")
    axes.set_ylim(-0.5, len(names))
    axes.set_yticks([])


if __name__ == "__main__":
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    drawn = io.BytesIO()
    draw(vitral.load(sys.argv[1], quiet=True), Path(sys.argv[2])).savefig(drawn, format="png", dpi=110)
    Image.open(drawn).convert("RGB").save(PICTURE, quality=82)
    print(PICTURE)
