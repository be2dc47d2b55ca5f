"""What the server accepts: how large and how many. Everything here is checked before any work is done."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from vitral.base.errors import VitralError
from vitral.base.text import byte_size

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Pillow decoders that an upload may reach; the others are rarely needed and more often attacked."""
_CONTENT_TYPES = frozenset(
    ("image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif", "image/bmp", "image/x-ms-bmp", "application/octet-stream")
)


@dataclass(frozen=True)
class Limits:
    """Every bound of the server in one place."""

    upload: int = 20 * 2**20
    """Bytes of one upload."""
    pixels: int = 64_000_000
    """Pixels of one picture: more than any phone's camera takes."""
    uploading: int = 64
    """Uploads that arrive or wait for their decoding at the same time; more are told to wait (429)."""
    arriving: int = 256 * 2**20
    """Bytes of all these uploads together."""
    waiting: int = 64
    """Jobs that wait for the model; more are told to come back (503)."""
    read_seconds: float = 30.0
    """Time in which an upload must arrive."""
    grace_seconds: float = 2.0
    """Time after which an upload that still arrives gives way to others when places run short."""
    decode_seconds: float = 5.0
    """Time in which a picture must be decoded."""
    decoders: int = 2
    """Processes that decode."""
    decoded: int = 64 * 2**20
    """Bytes of pixels that are remembered, so that a picture is not decoded for every question."""
    pictures: int = 128 * 2**20
    """Bytes of uploaded pictures that are remembered; the oldest leave first."""
    thumbs: int = 4 * 2**20
    """Bytes of small pictures for buttons that are remembered."""
    results: int = 256 * 2**20
    """Bytes of results that are remembered."""
    features: int = 16 * 2**20
    """Numbers of patch tokens (blocks × patches × width) that are sent of one picture; of larger models, fewer blocks."""
    attention: int = 96 * 2**20
    """Attention weights (blocks × heads × tokens²) that are sent whole; larger models send only the rows of their prefix tokens."""


class Refusal(VitralError, ValueError):
    """A request that is turned away, with the HTTP status that says why."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[int, str, str]]:  # type: ignore[override]
        return type(self), (self.status, self.message, self.hint)


def check_content_type(value: str | None) -> None:
    kind = (value or "").split(";")[0].strip().lower()
    if kind not in _CONTENT_TYPES:
        raise Refusal(415, f"content type {kind or 'missing'!r} is not a picture", "send PNG, JPEG, WebP, GIF or BMP bytes as image/png …")


def check_length(value: str | None, limit: int) -> None:
    """Refuse by the declared length, before a byte is read."""
    if value is None:
        return
    if not (value.isascii() and value.isdigit()):
        raise Refusal(400, "the content length is not a number", "send the request again")
    if len(value) > 15 or int(value) > limit:
        raise too_large(limit)


def too_large(limit: int) -> Refusal:
    return Refusal(413, f"the upload is larger than {byte_size(limit)}", "shrink the picture and send it again")


def check_image(content: bytes, limits: Limits) -> tuple[int, int]:
    """Width and height from the header alone: nothing is decoded before its size is known."""
    if not content:
        raise Refusal(422, "the upload is empty", "choose a picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of damaged metadata; what cannot be read is refused below
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
    except UnidentifiedImageError:
        raise Refusal(415, "this is not a picture that can be read here", "send PNG, JPEG, WebP, GIF or BMP") from None
    except Image.DecompressionBombError:
        raise Refusal(413, f"the picture has more than {limits.pixels / 1e6:.0f} million pixels", "shrink it and send it again") from None
    except Exception:  # a damaged header makes decoders raise anything at all
        raise Refusal(422, "the picture's header is damaged", "save it again as PNG or JPEG") from None
    if width * height > limits.pixels:
        raise Refusal(
            413, f"the picture has {width * height / 1e6:.0f} million pixels", f"shrink it below {limits.pixels / 1e6:.0f} million"
        )
    if width < 1 or height < 1:
        raise Refusal(422, "the picture has no pixels", "choose another one")
    return width, height
