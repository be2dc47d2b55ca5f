"""From a file to pixels as the user sees them: rotated by EXIF, eight bits, first frame, grey or RGB.

| in the file | what comes out |
|---|---|
| EXIF rotation | applied |
| 16 bits per channel | scaled to 8 (65535 → 255) |
| palette, 1 bit, CMYK, YCbCr, LAB, HSV | RGB (1 bit: grey) |
| alpha or a transparent colour | laid over white |
| several frames | the first |
| more than 178 million pixels, truncated, not a picture | DataError with the path |
| .npy of (H, W) or (H, W, C), uint8 | the array itself: any number of channels |
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitral.base.errors import DataError, MissingError

Decoded: TypeAlias = "Image.Image | np.ndarray"
"""A decoded picture: PIL in mode L or RGB, or a uint8 array (H, W, C) for other numbers of channels."""

EXTENSIONS = frozenset(
    ".png .jpg .jpeg .jpe .jfif .bmp .gif .webp .tif .tiff .ppm .pgm .pbm .pnm .npy .jp2 .avif .ico .tga".split()  # noqa: SIM905
)
Image.init()
FORMATS = tuple(
    name for name in ("PNG", "JPEG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA") if name in Image.OPEN
)
"""What a file may be, whatever its name says: others (EPS, which runs Ghostscript, for one) stay closed."""
ARRAY_START = b"\x93NUMPY"
SKIP = "remove it or convert it; a data set passes over it with --on-bad-image skip"
LARGEST = 178_956_970
"""Pixels; where Pillow itself refuses by default."""

# Pillow warns at half of LARGEST; here the limit is checked and refused by name, so the warning would only say it twice.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(source: str | Path | bytes | Image.Image | np.ndarray, name: str = "") -> Decoded:
    """`source` as upright 8-bit pixels; `name` is what errors call it."""
    name = name or (str(source) if isinstance(source, str | Path) else "picture")
    if isinstance(source, np.ndarray):
        return _array(source, name)
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise MissingError(f"{name}: no such file", "check the path")
        if not path.is_file():
            raise DataError(f"{name} is not a file", "check the path")
        if path.suffix.lower() == ".npy":
            return _array(_load_array(path, name), name)
    elif not isinstance(source, bytes | Image.Image) and not hasattr(source, "read"):
        raise DataError(f"{name} is no picture but of type {type(source).__name__}", "give a path, bytes, a PIL image or an array")
    if isinstance(source, bytes) and source.startswith(ARRAY_START):
        return _array(_load_array(io.BytesIO(source), name), name)
    try:
        if isinstance(source, Image.Image):
            return _upright(source, name)
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return _upright(image, name)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not a picture that can be read", SKIP) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name} is enormous ({error})", f"shrink it below {LARGEST:,} pixels") from error
    except Exception as error:
        # Decoders raise whatever a damaged file leads them to: OSError, SyntaxError, struct.error, KeyError and more.
        raise DataError(f"{name} is damaged ({error or type(error).__name__})", SKIP) from error


def header_ok(path: Path) -> str | None:
    """None when the file's header is that of a picture, else the reason it is not; nothing is decoded."""
    try:
        if path.suffix.lower() == ".npy":
            np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with Image.open(path, formats=FORMATS):
                pass
    except Exception as error:
        # Whatever a decoder raises here, the file cannot be used; decode() names the reason in full.
        return type(error).__name__
    return None


def _upright(image: Image.Image, name: str) -> Image.Image:
    if image.width * image.height > LARGEST:
        raise DataError(f"{name} is enormous ({image.width} × {image.height} pixels)", f"shrink it below {LARGEST:,} pixels")
    if getattr(image, "n_frames", 1) > 1:
        image.seek(0)
    return _eight_bits(ImageOps.exif_transpose(image), name)


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    mode = image.mode
    if mode in ("L", "RGB") and "transparency" not in image.info:
        return image  # exif_transpose has made a copy
    if mode == "1":
        return image.convert("L")
    if mode.startswith("I") or mode == "F":
        return _deep(np.asarray(image), name)
    if mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        flat = Image.alpha_composite(white, colours)
        return flat.convert("L" if mode in ("LA", "La", "L") else "RGB")
    return image.convert("RGB")


def _deep(values: np.ndarray, name: str) -> Image.Image:
    """16-bit integers or floats to eight bits, by the range of their kind, never by the picture's own extremes."""
    if values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 255):
            raise DataError(f"{name} holds floating-point pixels from {low:g} to {high:g}", "scale them to 0…1 or 0…255")
        scaled = values * 255 if high <= 1 else values
    else:
        if values.min() < 0 or values.max() > 65535:
            raise DataError(f"{name} holds 32-bit pixels from {values.min()} to {values.max()}", "save it with 8 or 16 bits")
        scaled = values / 257
    return Image.fromarray((scaled + 0.5).astype(np.uint8))


def _load_array(source: Path | io.BytesIO, name: str) -> np.ndarray:
    try:
        return np.load(source, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{name} is not a readable .npy file ({error})", "write it with numpy.save and dtype uint8") from error


def _array(values: np.ndarray, name: str) -> Decoded:
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.dtype != np.uint8 or 0 in values.shape:
        raise DataError(
            f"{name} has shape {values.shape} and type {values.dtype}", "use uint8 of (height, width) or (height, width, channels)"
        )
    if values.shape[0] * values.shape[1] > LARGEST:
        raise DataError(f"{name} is enormous ({values.shape[1]} × {values.shape[0]} pixels)", f"shrink it below {LARGEST:,} pixels")
    if values.shape[2] == 1:
        return Image.fromarray(np.ascontiguousarray(values[:, :, 0]))
    if values.shape[2] == 3:
        return Image.fromarray(np.ascontiguousarray(values))
    return values
