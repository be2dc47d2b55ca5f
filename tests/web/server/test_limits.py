from __future__ import annotations

import io
import pickle
import struct
import zlib

import pytest
from PIL import Image

from vitral.web.server.limits import Limits, Refusal, check_content_type, check_image, check_length


def encoded(kind: str, size: tuple[int, int] = (9, 7)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, kind)
    return out.getvalue()


def huge_png(side: int) -> bytes:
    """A valid header that promises side × side pixels, in a few bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_pictures_pass(kind: str) -> None:
    assert check_image(encoded(kind), Limits()) == (9, 7)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"hello", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", 415),
        (encoded("TIFF"), 415),
        (huge_png(30_000), 413),
        (huge_png(9_000), 413),
    ],
)
def test_others_are_refused_before_decoding(content: bytes, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        check_image(content, Limits())
    assert caught.value.status == status
    assert caught.value.hint


def test_content_types() -> None:
    for fine in ("image/png", "IMAGE/JPEG; charset=x", "application/octet-stream"):
        check_content_type(fine)
    for wrong in (None, "", "text/html", "multipart/form-data; boundary=x", "image/svg+xml"):
        with pytest.raises(Refusal) as caught:
            check_content_type(wrong)
        assert caught.value.status == 415


@pytest.mark.parametrize(("length", "status"), [("11", 413), ("9" * 40, 413), ("-1", 400), ("ten", 400), ("²", 400)])
def test_lengths(length: str, status: int) -> None:
    check_length("10", 10)
    check_length(None, 10)
    with pytest.raises(Refusal) as caught:
        check_length(length, 10)
    assert caught.value.status == status


def test_a_refusal_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(Refusal(413, "too large", "shrink it")))
    assert (again.status, again.message, again.hint) == (413, "too large", "shrink it")
