"""Many pictures on one page: a caption above each, labels at the rows; pairs, filters, the picture cut into patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.overlay import to_rgb
from vitral.draw.scale import Scale
from vitral.draw.style import INK, LABEL_SIZE, PAPER, SOFT, TICK_SIZE, add_title, empty_figure, new_figure, style_image, used_axes
from vitral.draw.text import shorten, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FILTERS, _FILTER_WIDTH = 7, 0.85
"""Filters in a row; inches of one."""
_TILE_SIDE = 480
"""Longest side of a picture on a sheet, in pixels: enough for print at this size, and pages stay small."""


def picture_sheet(
    images: Sequence[Image.Image],
    captions: Sequence[str] = (),
    *,
    columns: int | None = None,
    title: str = "",
    row_labels: Sequence[str] = (),
    width: float = 1.6,
    scales: Sequence[Scale | None] = (),
    note: str = "",
) -> Figure:
    """Pictures in reading order with a caption above each; `width` of one in inches; `scales`: what the colours of each stand for.

    One scale for several pictures in a row is drawn once, beside the last of them.
    """
    if not images:
        raise UsageError(f"no pictures for the sheet {title!r}".replace(" ''", ""), "give at least one")
    columns = min(len(images), columns or (len(images) if len(images) <= 5 else min(8, round(len(images) ** 0.5 * 1.3))))
    rows = -(-len(images) // columns)
    texts = [wrap(caption, width) for caption in captions] + [""] * (len(images) - len(captions))
    lines = max((text.count("\n") + 1 for text in texts if text), default=0)
    shape = float(np.median([image.height / image.width for image in images]))
    height = width * min(max(shape, 0.3), 3.0) + 0.13 * lines + 0.03
    barred = _barred(scales, columns)
    label_width = (0.4 if row_labels else 0.0) + 0.45 * len({index % columns for index in barred})
    across = width * columns + label_width
    note = wrap(note, across)
    more = (0.4 if title else 0.05) + (0.07 + 0.13 * (note.count("\n") + 1) if note else 0.0)
    figure, axes = new_figure(across, height * rows + more, rows, columns)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)  # type: ignore[union-attr]
    for index, one in enumerate(used_axes(axes, len(images))):
        style_image(one).imshow(_tile(images[index]), interpolation="nearest" if max(images[index].size) <= 64 else "antialiased")
        if texts[index]:
            one.set_title(texts[index], fontsize=TICK_SIZE, color=INK, pad=2.5)
        if index in barred:
            scales[index].bar(figure, one)  # type: ignore[union-attr]
        if row_labels and index % columns == 0 and index // columns < len(row_labels):
            one.set_ylabel(wrap(row_labels[index // columns], height), fontsize=LABEL_SIZE, color=INK)
    if note:
        figure.supxlabel(note, fontsize=TICK_SIZE, color=SOFT)
    add_title(figure, title)
    return figure


def _barred(scales: Sequence[Scale | None], columns: int) -> list[int]:
    """Where a bar stands: at each scale that is not its right neighbour's."""
    following = [scales[index + 1] if (index + 1) % columns and index + 1 < len(scales) else None for index in range(len(scales))]
    return [index for index, (own, right) in enumerate(zip(scales, following, strict=True)) if own is not None and own != right]


def class_sheet(images: Mapping[str, Sequence[Image.Image]], *, title: str = "", width: float = 0.62) -> Figure:
    """A row of pictures for each class, its name in front."""
    if not images or not max(map(len, images.values())):
        raise UsageError("no pictures for the class sheet", "give at least one picture of one class")
    columns, rows = max(map(len, images.values())), len(images)
    names = [shorten(name, 18) for name in images]
    label_width = 0.3 + 0.08 * max(map(len, names))
    figure, axes = new_figure(width * columns + label_width, width * rows + (0.4 if title else 0.05), rows, columns)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.01, wspace=0.0, hspace=0.0)  # type: ignore[union-attr]
    for row, (name, row_images) in enumerate(zip(names, images.values(), strict=True)):
        for column, one in enumerate(axes[row]):
            style_image(one)
            if column < len(row_images):
                one.imshow(_square(row_images[column]), interpolation="nearest" if max(row_images[column].size) <= 64 else "antialiased")
            else:
                _hide(one)
        axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=LABEL_SIZE, color=INK)
    add_title(figure, title)
    return figure


def pair_sheet(
    pairs: Sequence[tuple[Image.Image, Image.Image]], captions: Sequence[tuple[str, str]], *, title: str = "", across: int = 2
) -> Figure:
    """Each pair beside each other, `across` of them in a row; captions are of the left and the right picture."""
    if not pairs or len(captions) != len(pairs):
        raise UsageError(f"{len(pairs)} pairs and {len(captions)} captions", "give at least one pair, and captions for each")
    images = [image for pair in pairs for image in pair]
    words = [word for caption in captions for word in caption]
    return picture_sheet(images, words, columns=2 * min(across, len(pairs)), title=title, width=1.5)


def filter_tiles(filters: np.ndarray, *, captions: Sequence[str] = (), title: str = "", columns: int = _FILTERS) -> Figure:
    """Filters (n, h, w, 3) or (n, h, w), signed."""
    return picture_sheet(_filter_images(filters), captions, columns=columns, title=title, width=_FILTER_WIDTH)


def filters_beside(groups: Sequence[tuple[np.ndarray, Sequence[str], str]]) -> Figure:
    """Each group: filters, captions, a title."""
    rows = [-(-len(filters) // _FILTERS) for filters, _, _ in groups]
    heights = [count * (_FILTER_WIDTH + (0.2 if len(captions) else 0)) + 0.35 for count, (_, captions, _) in zip(rows, groups, strict=True)]
    figure = empty_figure(_FILTER_WIDTH * _FILTERS + 0.1, sum(heights), w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    parts = figure.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, count, (filters, captions, title) in zip(parts, rows, groups, strict=True):
        add_title(part, title)
        images = _filter_images(filters)
        for index, one in enumerate(used_axes(part.subplots(count, _FILTERS, squeeze=False), len(images))):
            style_image(one).imshow(images[index], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            if len(captions):
                one.set_title(captions[index], fontsize=TICK_SIZE, color=INK, pad=2.5)
    return figure


def _filter_images(filters: np.ndarray) -> list[Image.Image]:
    if filters.ndim not in (3, 4) or not len(filters):
        raise UsageError(f"filters of shape {filters.shape}", "give (n, h, w) or (n, h, w, 3)")
    return [Image.fromarray(grey) for grey in weights_to_grey(filters)]


def weights_to_grey(filters: np.ndarray, leading: int = 1) -> np.ndarray:
    """Signed weights as bytes of the same shape: zero is mid-grey, one scale per filter; the first `leading` axes number the filters."""
    reach = np.abs(filters).max(axis=tuple(range(leading, filters.ndim)), keepdims=True)
    return (127.5 + 127.5 * filters / np.where(reach > 0, reach, 1)).round().astype(np.uint8)


def patch_figure(original: Image.Image, grid: tuple[int, int], box: Box | None = None, title: str = "", gap: float = 0.12) -> Figure:
    """The picture beside itself cut into its grid of patches; `gap`: white between patches, as a share of a patch."""
    box = box or Box(0, 0, original.width, original.height)
    side = max(4, int(_TILE_SIDE / (max(grid) * (1 + gap))))
    seen = to_rgb(original).resize(
        (grid[1] * side, grid[0] * side),
        Image.Resampling.NEAREST if max(original.size) <= 64 else Image.Resampling.LANCZOS,
        _edges(box, original),
    )
    captions = ["what the model sees", f"{grid[0]} × {grid[1]} = {grid[0] * grid[1]} patches"]
    return picture_sheet([seen, _cut_into_patches(seen, grid, gap)], captions, columns=2, title=title, width=2.8)


def _cut_into_patches(image: Image.Image, grid: tuple[int, int], gap: float = 0.12) -> Image.Image:
    """The image as grid[0] × grid[1] patches with white between them."""
    down, across = image.height // grid[0], image.width // grid[1]
    space = max(1, round(min(down, across) * gap))
    pixels = np.asarray(to_rgb(image))
    cut = np.full((grid[0] * (down + space) - space, grid[1] * (across + space) - space, 3), 255, np.uint8)
    for row in range(grid[0]):
        for column in range(grid[1]):
            top, left = row * (down + space), column * (across + space)
            cut[top : top + down, left : left + across] = pixels[row * down : (row + 1) * down, column * across : (column + 1) * across]
    return Image.fromarray(cut)


def _tile(image: Image.Image) -> Image.Image:
    image = to_rgb(image)
    if max(image.size) > _TILE_SIDE:
        image.thumbnail((_TILE_SIDE, _TILE_SIDE), Image.Resampling.LANCZOS)
    return image


def _square(image: Image.Image) -> Image.Image:
    """The middle square: rows of a class sheet stay even, whatever the shapes."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return _tile(image.crop((left, top, left + side, top + side)))


def _edges(box: Box, original: Image.Image) -> tuple[float, float, float, float]:
    return max(0.0, box.left), max(0.0, box.top), min(float(original.width), box.right), min(float(original.height), box.bottom)


def _hide(axes: Axes) -> None:
    # Not set_visible(False): the first picture of a row carries the row's label.
    axes.set_facecolor(PAPER)
    for spine in axes.spines.values():
        spine.set_visible(False)
