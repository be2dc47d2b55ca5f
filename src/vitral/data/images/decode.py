"""From a file to pixels as the user sees them: rotated by EXIF, eight bits, first frame, grey or RGB.

| in the file | what comes out |
|---|---|
| EXIF rotation | applied |
| 16 bits per channel | scaled to 8 (65535 → 255) |
| palette, 1 bit, CMYK, YCbCr, LAB, HSV | RGB (1 bit: grey) |
| alpha or a transparent colour | laid over white |
| several frames | the first |
| truncated, not a picture, more than `images/limits.py` allows | DataError with the path |
| .npy of (H, W) or (H, W, C), uint8 | the array itself: any number of channels |
"""

from __future__ import annotations

import collections
import contextlib
import io
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitral.base.errors import DataError, MissingError
from vitral.base.files import open_regular
from vitral.data.images.limits import JPEG_BYTES, JPEG_START, LARGEST, check_size, check_structure

Decoded: TypeAlias = "Image.Image | np.ndarray"
"""A decoded picture: PIL in mode L or RGB, or a uint8 array (H, W, C) for other numbers of channels."""

EXTENSIONS = frozenset(
    ".png .jpg .jpeg .jpe .jfif .bmp .gif .webp .tif .tiff .ppm .pgm .pbm .pnm .npy .jp2 .avif .ico .tga".split()  # noqa: SIM905
)
Image.init()
_FORMATS = tuple(
    name for name in ("PNG", "JPEG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA") if name in Image.OPEN
)
"""What a file may be, whatever its name says: others (EPS, which runs Ghostscript, for one) stay closed."""
_ARRAY_START = b"\x93NUMPY"
_WRITE = "write it with numpy.save and dtype uint8"
SKIP = "remove it or convert it"
_ORIENTATION = 0x0112
"""EXIF's number for how a camera was held; 1, or nothing: upright."""
_ROWS = 1 << 24
"""Numbers that are scaled to eight bits at a time."""

_THREADS = min(16, os.cpu_count() or 1)
_AHEAD = 256
"""Images that are decoded before they are asked for: what waits is in memory."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Pillow warns at half of LARGEST; here the limit is checked and refused by name, so the warning would only say it twice.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(source: str | Path | bytes | Image.Image | np.ndarray, name: str = "") -> Decoded:
    """`source` as upright 8-bit pixels; `name` is what errors call it."""
    name = name or (str(source) if isinstance(source, str | Path) else "picture")
    if isinstance(source, np.ndarray):
        return _array(source, name)
    if isinstance(source, str | Path) and not Path(source).is_file():
        kind, problem = (DataError, " is not a file") if Path(source).exists() else (MissingError, ": no such file")
        raise kind(f"{name}{problem}", "check the path")
    if not isinstance(source, str | Path | bytes | Image.Image) and not hasattr(source, "read"):
        raise DataError(f"{name} is no picture but of type {type(source).__name__}", "give a path, bytes, a PIL image or an array")
    try:
        if isinstance(source, Image.Image):
            check_size(source, name)
            return _eight_bits(ImageOps.exif_transpose(source), name)
        with _opened(source) as file:
            if file.read(len(_ARRAY_START)) == _ARRAY_START or (isinstance(source, str | Path) and Path(source).suffix.lower() == ".npy"):
                return _array(load_array(file, name), name)
            file = _at_once(file)
            scans = check_structure(file, name)
            with Image.open(file, formats=_FORMATS) as image:
                check_size(image, name, scans)
                if image.format == "JPEG" and image.mode in ("L", "RGB") and image.getexif().get(_ORIENTATION, 1) == 1:
                    image.load()  # as most photographs are: its only frame, upright, eight bits. Nothing to copy
                    return image
                upright = ImageOps.exif_transpose(image)  # a copy, the first frame
                image.close()
                return _eight_bits(upright, name)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not a picture that can be read", SKIP) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name} is enormous ({error})", f"shrink it below {LARGEST:,} pixels") from error
    except Exception as error:
        # Decoders raise whatever a damaged file leads them to: OSError, SyntaxError, struct.error, KeyError and more.
        raise DataError(f"{name} is damaged ({error or type(error).__name__})", SKIP) from error


def in_threads(read: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """`map`, with several items read ahead in threads: decoding and resizing let others run. Stopped early, it reads no further."""
    pool, waiting = ThreadPoolExecutor(_THREADS), collections.deque[Future[_Result]]()
    try:
        for item in items:
            waiting.append(pool.submit(read, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def header_ok(path: Path) -> str | None:
    """None when the file's header is that of a picture, else the reason it is not; nothing is decoded."""
    try:
        with open_regular(path) as file:
            if path.suffix.lower() == ".npy":
                load_array(file, str(path))
            else:
                scans = check_structure(file, str(path))
                with Image.open(file, formats=_FORMATS) as image:
                    check_size(image, str(path), scans)
    except Exception as error:
        # Whatever a decoder raises here, the file cannot be used.
        if isinstance(error, UnidentifiedImageError):
            return "of no known format"
        words = error.message if isinstance(error, DataError) else str(error)
        return words.removeprefix(f"{path} ") or type(error).__name__
    return None


def load_array(file: IO[bytes], name: str) -> np.ndarray:
    """The array of an .npy file, which is as long as it says."""
    try:
        file.seek(0)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        content = file.read()
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > len(content):
            raise DataError(f"{name} declares {dtype} of {shape} in {len(content):,} bytes", _WRITE)
        return np.frombuffer(content, dtype, math.prod(shape)).reshape(shape, order="F" if fortran else "C")
    except DataError:
        raise
    except Exception as error:  # NumPy reads the header as Python's own literals, with any error that may have
        raise DataError(f"{name} is not a readable .npy file ({error})", _WRITE) from error


@contextlib.contextmanager
def _opened(source: str | Path | bytes | IO[bytes]) -> Iterator[IO[bytes]]:
    if isinstance(source, str | Path):
        with open_regular(source) as file:
            yield file
    else:
        yield io.BytesIO(source if isinstance(source, bytes) else source.read())


def _at_once(file: IO[bytes]) -> IO[bytes]:
    """A JPEG's bytes, which are gone over twice; other files as they are."""
    file.seek(0)
    if isinstance(file, io.BytesIO) or file.read(2) != JPEG_START:
        return file
    return io.BytesIO(JPEG_START + file.read(JPEG_BYTES))


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    mode = image.mode
    if mode in ("L", "RGB") and "transparency" not in image.info:
        return image  # exif_transpose has made a copy
    if mode == "1":
        return image.convert("L")
    if mode.startswith("I") or mode == "F":
        return _deep(image, name)
    if mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        colours = image if mode == "RGBA" else image.convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", image.size, "white"), colours)
        return flat.convert("L" if mode in ("LA", "La", "L") else "RGB")
    return image.convert("RGB")


def _deep(image: Image.Image, name: str) -> Image.Image:
    """16-bit integers or floats to eight bits, by the range of their kind, never by the picture's own extremes."""
    step = max(1, _ROWS // image.width)

    def strips() -> Iterator[np.ndarray]:
        for top in range(0, image.height, step):
            yield np.asarray(image.crop((0, top, image.width, min(image.height, top + step))))

    extremes = [(strip.min(), strip.max()) for strip in strips()]
    low, high = np.min(extremes), np.max(extremes)
    if image.mode == "F":
        if not (np.isfinite(low) and np.isfinite(high)):
            raise DataError(f"{name} holds NaN or infinity among its pixels", SKIP)
        if not (low >= 0 and high <= 255):
            raise DataError(f"{name} holds floating-point pixels from {low:g} to {high:g}", "scale them to 0…1 or 0…255")
        factor = 255.0 if high <= 1 else 1.0
    else:
        if low < 0 or high > 65535:
            raise DataError(f"{name} holds 32-bit pixels from {low} to {high}", "save it with 8 or 16 bits")
        factor = 1 / 257
    return Image.fromarray(np.concatenate([(strip * factor + 0.5).astype(np.uint8) for strip in strips()]))


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
