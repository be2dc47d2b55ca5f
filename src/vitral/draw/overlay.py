"""A coarse map laid over the original picture, exactly where it belongs.

The model saw a part of the original (`box`), resized. The map's patches divide that part evenly; each pixel of the result asks
where in the map its centre lies, so resize and crop are undone without ever rounding the box to whole pixels.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from vitral.base.errors import UsageError, one_of
from vitral.base.picture import Box
from vitral.draw.style import limits_of, map_name

_SMALLEST = 256
"""Shorter side of a result, in pixels: smaller originals are enlarged by a whole factor."""
_LARGEST = 8192
_DIM = 0.4
"""What the model did not see is shown at this share of its brightness."""
_SHADE = 0.5
"""Brightness that a picture loses where its map is lowest, at alpha 1: what matters lies in the light."""
_TINY = 64
"""Originals up to this many pixels are enlarged as squares: each pixel is information. Larger ones are photographs, enlarged smoothly."""


def lay_over(
    original: Image.Image,
    grid: np.ndarray,
    box: Box | None = None,
    *,
    alpha: float = 0.75,
    size: int | None = None,
    mode: str = "bicubic",
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    colours: str | None = None,
) -> Image.Image:
    """`grid` (h, w) as colours over `original`, whose own colours stay: little is a shade, much is light and tint.

    Outside of `box` the picture is dimmed and otherwise untouched. mode: `bicubic` or `bilinear` (smooth), or `patches` (each flat,
    with its edges). size: pixels of the longer side of the result; None: as the original, or at least 256 on the shorter side.
    alpha: how much the strongest colour covers. colours: one of matplotlib's colour maps; None: ours.
    """
    if mode not in _MODES:
        raise one_of("overlay mode", mode, _MODES)
    if not 0 <= alpha <= 1:
        raise UsageError(f"alpha = {alpha} is not a share", "use a number from 0 to 1")
    box = box or Box(0, 0, original.width, original.height)
    shown = enlarge(original, size)
    scale_x, scale_y = shown.width / original.width, shown.height / original.height
    pixels = np.asarray(shown, dtype=np.float32)  # (H, W, 3)
    columns = _patch_coordinates(shown.width, scale_x, box.left, box.width, grid.shape[1])
    rows = _patch_coordinates(shown.height, scale_y, box.top, box.height, grid.shape[0])
    across = np.flatnonzero((columns >= 0) & (columns <= grid.shape[1]))
    down = np.flatnonzero((rows >= 0) & (rows <= grid.shape[0]))
    out = pixels * _DIM
    if len(across) and len(down):
        inside = np.ix_(down, across)
        heat = _read(grid.astype(np.float64), rows[down], columns[across], mode)  # (h', w')
        low, high = limits or limits_of(grid, signed)
        shares = np.clip((heat - low) / (high - low), 0, 1) if high > low else np.full(heat.shape, 0.5 if signed else 0.0)
        out[inside] = tinted(pixels[inside], shares, signed, alpha, colours)
        if mode == "patches":
            _draw_edges(out, rows, columns, down, across)
        _draw_frame(out, down, across)
    return Image.fromarray(np.clip(out + 0.5, 0, 255).astype(np.uint8))


def tinted(pixels: np.ndarray, shares: np.ndarray, signed: bool, alpha: float, colours: str | None = None) -> np.ndarray:
    """Pixels (…, 3) under a map; `shares` (…) from 0 to 1: its place in its range, for signed ones with zero in the middle.

    A photograph keeps its hues where the map is low, for it is only shaded there; where it is high, light and a tint of up to `alpha`
    lie on it. So both hold where the tint resembles the photograph: an orange flower is bright or dark, whatever its colour.
    """
    strength = (np.abs(2 * shares - 1) if signed else shares)[..., None]
    cover, shade = alpha * strength, 1 - alpha * _SHADE * (1 - strength)
    return (1 - cover) * shade * pixels + cover * _tint(shares, signed, colours)


def frame_patch(image: Image.Image, patch: tuple[int, int], grid: tuple[int, ...], original: Image.Image | None, box: Box | None) -> None:
    """A white frame with a dark edge, which shows on any picture, around one patch (row, column) of a map that lies over `image`."""
    size = original.size if original is not None else image.size
    box = box or Box(0, 0, *size)
    left, top = box.to_original(patch[1], patch[0], grid)  # type: ignore[arg-type]
    right, bottom = box.to_original(patch[1] + 1, patch[0] + 1, grid)  # type: ignore[arg-type]
    across, down, width = image.width / size[0], image.height / size[1], max(1, round(min(image.size) / 150))
    draw = ImageDraw.Draw(image)
    inner = (left * across, top * down, right * across - 1, bottom * down - 1)
    draw.rectangle((inner[0] - width, inner[1] - width, inner[2] + width, inner[3] + width), outline="black", width=width)
    draw.rectangle(inner, outline="white", width=width)


def enlarge(original: Image.Image, size: int | None = None) -> Image.Image:
    """The original in RGB at the size that is shown: as it is, unless it is small or `size` (longer side) says otherwise."""
    image = to_rgb(original)
    if size is not None:
        if not 1 <= size <= _LARGEST:
            raise UsageError(f"size = {size}", f"use 1 to {_LARGEST} pixels for the longer side")
        factor = size / max(image.size)
    else:
        factor = max(1, min(math.ceil(_SMALLEST / min(image.size)), _LARGEST // max(image.size)))
    if factor == 1:
        return image
    target = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    nearest = factor > 1 and max(image.size) <= _TINY
    return image.resize(target, Image.Resampling.NEAREST if nearest else Image.Resampling.LANCZOS)


def to_rgb(image: Image.Image) -> Image.Image:
    """Any picture as 8-bit RGB: transparency over white, more than 8 bits (or floats) stretched to their own range."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, dtype=np.float64)
        low, high = float(values.min()), float(values.max())
        values = (values - low) / (high - low) * 255 if high > low else np.zeros_like(values)
        return Image.fromarray(values.round().astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        colour = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), colour).convert("RGB")
    return image.convert("RGB")


def _patch_coordinates(pixels: int, scale: float, start: float, length: float, count: int) -> np.ndarray:
    """For each pixel of the shown picture, the place of its centre in the map, in patches from the map's edge."""
    return ((np.arange(pixels) + 0.5) / scale - start) / length * count


def _read(grid: np.ndarray, rows: np.ndarray, columns: np.ndarray, mode: str) -> np.ndarray:
    """The map's values at rows × columns. Smooth modes never go beyond the map's own range."""
    down, across = _MODES[mode](rows, grid.shape[0]), _MODES[mode](columns, grid.shape[1])
    return np.clip(down @ grid @ across.T, grid.min(), grid.max())


def _flat(coordinates: np.ndarray, count: int) -> np.ndarray:
    index = np.clip(coordinates.astype(int), 0, count - 1)
    return np.eye(count)[index]  # (places, patches)


def _bilinear(coordinates: np.ndarray, count: int) -> np.ndarray:
    return _normalised(np.clip(1 - _away(coordinates, count), 0, None))


def _bicubic(coordinates: np.ndarray, count: int) -> np.ndarray:
    """Catmull and Rom's kernel: it passes through the values of the patches."""
    away = _away(coordinates, count)
    near = 1.5 * away**3 - 2.5 * away**2 + 1
    far = -0.5 * away**3 + 2.5 * away**2 - 4 * away + 2
    return _normalised(np.where(away <= 1, near, np.where(away < 2, far, 0.0)))


def _away(coordinates: np.ndarray, count: int) -> np.ndarray:
    """Distance (places, patches) to each patch's centre, in patches, or in pixels where pixels are coarser: then none is skipped."""
    step = float(coordinates[1] - coordinates[0]) if len(coordinates) > 1 else 1.0
    # Beyond the outermost centres the map stays as it is there: nothing is extrapolated.
    held = np.clip(coordinates, 0.5, count - 0.5)
    return np.abs(held[:, None] - 0.5 - np.arange(count)) / max(step, 1.0)


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)


def _tint(shares: np.ndarray, signed: bool, colours: str | None) -> np.ndarray:
    """Colours (…, 3). Of our own maps the part that can be told from a picture: not the black end, not the white middle."""
    import matplotlib

    if colours is not None:
        if colours not in matplotlib.colormaps:
            raise one_of("colours", colours, matplotlib.colormaps)
        coordinates = shares
    else:
        coordinates = np.where(shares < 0.5, 0.25 - 0.4 * (0.5 - shares), 0.75 + 0.4 * (shares - 0.5)) if signed else 0.3 + 0.7 * shares
    return np.asarray(matplotlib.colormaps[colours or map_name(signed)](coordinates))[..., :3] * 255


def _draw_edges(out: np.ndarray, rows: np.ndarray, columns: np.ndarray, down: np.ndarray, across: np.ndarray) -> None:
    """A thin white line where one patch ends and the next begins, unless they are too small for it."""
    for coordinates, chosen, other, axis in ((rows, down, across, 0), (columns, across, down, 1)):
        patches = np.floor(coordinates[chosen]).astype(int)
        if len(chosen) < 6 * (patches.max() - patches.min() + 1):
            continue
        edges = chosen[1:][np.diff(patches) > 0]
        index = np.ix_(edges, other) if axis == 0 else np.ix_(other, edges)
        out[index] = 0.6 * out[index] + 0.4 * 255


def _draw_frame(out: np.ndarray, down: np.ndarray, across: np.ndarray) -> None:
    """A white line along the inner edge of the part that the model saw, on the sides where there is more picture outside."""
    width = max(1, round(min(out.shape[:2]) / 256))
    top, bottom, left, right = down[0], down[-1] + 1, across[0], across[-1] + 1
    if top > 0:
        out[top : top + width, left:right] = 255
    if bottom < out.shape[0]:
        out[bottom - width : bottom, left:right] = 255
    if left > 0:
        out[top:bottom, left : left + width] = 255
    if right < out.shape[1]:
        out[top:bottom, right - width : right] = 255


_MODES = {"bicubic": _bicubic, "bilinear": _bilinear, "patches": _flat}
