"""Small files that would exhaust the machine: each is refused, or decoded within the bounds, in a child that cannot hurt."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from fuzz.confined import Ending, confined
from vitral.base.errors import DataError
from vitral.data.images import limits as bounds
from vitral.data.images.decode import decode, header_ok
from vitral.data.images.preprocess import Preprocess, open_picture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds of a process are set the Linux way")
WANTS = Preprocess((224, 224))


def opened(content: bytes | Path, seconds: float = 15) -> Ending:
    """Decoded and prepared for a model, within 2 GB and the deadline."""
    return confined(lambda: tuple(open_picture(content, WANTS, "picture").tensor.shape), seconds=seconds)


def png(width: int, height: int, bits: int, row: int) -> bytes:
    """A PNG of zeros; `row`: bytes of a row."""
    pack = zlib.compressobj(1)
    line = bytes((row + 1) * (block := max(1, min(height, 2**22 // (row + 1)))))
    packed = b"".join(pack.compress(line[: (row + 1) * min(block, height - top)]) for top in range(0, height, block)) + pack.flush()

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def many_scans(size: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan is there again and again."""
    out = io.BytesIO()
    Image.new("L", (size, size)).save(out, "JPEG", progressive=True)
    whole = out.getvalue()
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * scans + whole[-2:]


def test_a_jpeg_with_thousands_of_scans() -> None:
    content = many_scans(2000, 2000)
    assert len(content) < 10_000_000
    ending = opened(content)
    assert ending.kind == "refused" and "scans" in ending.message, ending


def test_scans_count_by_their_pixels_too() -> None:
    """80 scans are fine for a small picture, and hold the decoder for long with a large one."""
    assert opened(many_scans(64, 80)).kind == "fine"
    ending = opened(many_scans(8000, 80))
    assert ending.kind == "refused" and "scans" in ending.message, ending


def test_what_follows_a_jpeg_counts_for_nothing() -> None:
    """Telephones append a video; thumbnails inside have scans of their own."""
    assert opened(many_scans(32, 1) + b"\xff\xda" * 5000).kind == "fine"


def test_endless_segments() -> None:
    out = io.BytesIO()
    Image.new("L", (8, 8)).save(out, "JPEG")
    ending = opened(b"\xff\xd8" + b"\xff\xfe\x00\x02" * 200_000 + out.getvalue()[2:])
    assert ending.kind == "refused" and "segments" in ending.message, ending


def tiff(entries: list[tuple[int, int, int, int]], after: bytes = b"", following: int = 0) -> bytes:
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<I", following) + after


ONE_PIXEL = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 0), (277, 3, 1, 1), (279, 4, 1, 1)]


def test_a_tiff_with_a_hundred_thousand_directories() -> None:
    start = len(tiff(ONE_PIXEL))
    chain = b"".join(struct.pack("<HHHIII", 1, 256, 3, 1, 1, start + 18 * (number + 1)) for number in range(100_000))
    ending = opened(tiff(ONE_PIXEL, chain, start), seconds=10)
    assert ending.kind in ("fine", "refused") and ending.seconds < 5, ending


def test_tags_that_each_claim_the_whole_file() -> None:
    tags = [*ONE_PIXEL, *((number, 1, 1_000_000, 8) for number in range(40_000, 44_000))]
    ending = opened(tiff(tags, bytes(1_000_000)))
    assert ending.kind == "refused" and "claims tags" in ending.message, ending


def test_a_webp_of_a_few_bytes() -> None:
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "WEBP", lossless=True)
    content = bytearray(out.getvalue())
    place = content.index(b"VP8L") + 9
    content[place : place + 4] = struct.pack("<I", (16382 | (10921 << 14)))
    ending = opened(bytes(content))
    assert len(content) < 60 and ending.kind == "refused" and "enormous" in ending.message, ending


@pytest.mark.slow
def test_a_deep_png_of_all_the_pixels_that_are_allowed() -> None:
    before = confined(lambda: None).memory  # the child of a test process that has seen much begins with all of it
    ending = opened(png(13_377, 13_377, 16, 2 * 13_377), seconds=60)
    assert ending.value == (3, 224, 224) and ending.memory - before < 1.5 * 2**30, ending


def test_a_strip_one_pixel_wide() -> None:
    ending = opened(png(1, bounds.LARGEST, 8, 1))
    assert ending.kind == "refused" and "sides below" in ending.message, ending
    ending = opened(png(1, bounds.LONGEST, 8, 1))
    assert ending.kind == "fine", ending


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK"])
def test_the_largest_of_each_kind_stays_below_the_bound(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the costs say: the peak of decoding, over a tenth of the memory."""
    monkeypatch.setattr(bounds, "MEMORY", bounds.MEMORY // 10)
    cost = {"RGB": bounds.PLAIN}.get(mode, bounds.CONVERTED)
    side = int((bounds.MEMORY / cost) ** 0.5) - 1
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, "TIFF" if mode == "CMYK" else "PNG", compress_level=1)
    before = confined(lambda: None).memory
    ending = opened(out.getvalue(), seconds=30)
    assert ending.kind == "fine" and ending.memory - before < bounds.MEMORY + 60_000_000, ending
    out = io.BytesIO()
    side = int((bounds.MEMORY / cost) ** 0.5) + 1
    if mode != "CMYK":
        Image.new(mode, (side, side)).save(out, "PNG", compress_level=1)
        refused = opened(out.getvalue(), seconds=30)
        assert refused.kind == "refused" and "of its kind" in refused.message, refused


def test_a_pipe_in_a_files_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hang.png")
    ending = opened(tmp_path / "hang.png", seconds=5)
    assert ending.kind == "refused" and "not a file" in ending.message, ending
    assert confined(lambda: header_ok(tmp_path / "hang.png"), seconds=5).value == "is not a regular file"


def test_arrays_are_as_long_as_they_say(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (100000, 100000, 3), }".ljust(117) + b"\n"
    with pytest.raises(DataError, match="uint8"):
        decode(header)
    negative = header.replace(b"100000, 100000", b"-1, -1        ")
    for content in (header[:20], negative, header.replace(b"|u1", b"|O8"), header.replace(b"{", b"(")):
        (tmp_path / "bad.npy").write_bytes(content)
        ending = opened(tmp_path / "bad.npy")
        assert ending.kind == "refused", ending
