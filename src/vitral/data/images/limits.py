"""What a picture file may ask of the machine, read from its structure before a decoder sees it.

Pillow bounds pixels, not what decoding costs: progressive JPEGs, WebP and deep pictures take several times their pixels in memory,
a JPEG may repeat its scans thousands of times, and a TIFF's tags may each claim the whole file.
"""

from __future__ import annotations

import os
import re
import struct
from typing import IO

from PIL import Image

from vitral.base.errors import DataError

LARGEST = 178_956_970
"""Pixels; where Pillow itself refuses by default."""
LONGEST = 1_000_000
"""Pixels of one side: row tables and the weights of a resize grow with it."""
MEMORY = 1_500_000_000
"""Bytes that decoding one picture may take, at its peak."""
_COST = {"WEBP": 20, "AVIF": 20, "JPEG2000": 20, "TIFF": 12}
"""Bytes a pixel at the decoder's peak, where it is more than PLAIN: canvases, planes and the picture itself."""
PLAIN, CONVERTED, _PROGRESSIVE = 8, 12, 14
"""Grey or RGB; with transparency or another colour model, which is converted; coefficients of all scans beside the pixels."""
_SCANS = 100
_SCANNED = 3_000_000_000
"""Pixels × scans of one JPEG: about 10 s."""
_SEGMENTS = 20_000
JPEG_BYTES = 256 * 2**20
JPEG_START = b"\xff\xd8"

_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_PROGRESSIVE_FRAMES = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_TAG_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}


def check_structure(file: IO[bytes], name: str) -> int:
    """Refuse a file whose structure alone would hold the decoder for long; the number of scans, where it is a JPEG."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start, scans = file.read(16), 1
    if start[:2] == JPEG_START:
        if size > JPEG_BYTES:
            raise DataError(f"{name} has {size:,} bytes", f"save it again with fewer than {JPEG_BYTES:,}")
        scans = _jpeg_scans(start + file.read(), name)
    elif start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        _check_tags(file, start, size, name)
    file.seek(0)
    return scans


def check_size(image: Image.Image, name: str, scans: int = 1) -> None:
    """Refuse by the header what would take more memory or time than one picture may."""
    width, height, pixels = image.width, image.height, image.width * image.height
    many = f"{width} × {height} pixels"
    if pixels > LARGEST:
        raise DataError(f"{name} is enormous ({many})", f"shrink it below {LARGEST:,} pixels")
    if max(width, height) > LONGEST:
        raise DataError(f"{name} is enormous ({many})", f"cut it to sides below {LONGEST:,} pixels")
    cost = max(_COST.get(image.format or "", PLAIN), PLAIN if _plain(image) else CONVERTED, _PROGRESSIVE if scans > 1 else PLAIN)
    if pixels * cost > MEMORY:
        raise DataError(f"{name} is enormous ({many}, of its kind)", f"shrink it below {MEMORY // cost:,} pixels")
    if pixels * scans > _SCANNED:
        raise DataError(f"{name} has {scans} scans of {many}", "save it again as a plain JPEG")


def _plain(image: Image.Image) -> bool:
    return (image.mode in ("1", "L", "RGB", "F") or image.mode.startswith("I")) and "transparency" not in image.info


def _jpeg_scans(content: bytes, name: str) -> int:
    position, scans, progressive = 2, 0, False
    for _ in range(_SEGMENTS):
        match = _MARKER.search(content, position)  # in the pixels of a scan 0xff stands only before 0x00 and restart marks
        if match is None or match[1] == b"\xd9":
            return max(1, scans) if not progressive else max(2, scans)
        kind, position = match[1][0], match.end()
        scans += kind == 0xDA
        progressive |= kind in _PROGRESSIVE_FRAMES
        if scans > _SCANS:
            raise DataError(f"{name} has more than {_SCANS} scans", "save it again as a plain JPEG")
        if kind not in (0x01, 0xD8):
            position += int.from_bytes(content[position : position + 2], "big")
    raise DataError(f"{name} has more than {_SEGMENTS:,} segments", "save it again as a plain JPEG")


def _check_tags(file: IO[bytes], start: bytes, size: int, name: str) -> None:
    """The values of the first directory together are no larger than the file: each is read, whether it overlaps others or not."""
    order, big = "<" if start[:2] == b"II" else ">", b"+" in start[2:4]
    offset, count, entry = (f"{order}Q", f"{order}Q", f"{order}HHQ8x") if big else (f"{order}I", f"{order}H", f"{order}HHI4x")
    try:
        file.seek(min(struct.unpack_from(offset, start, 8 if big else 4)[0], size))
        number = min(struct.unpack(count, file.read(struct.calcsize(count)))[0], 1 << 16)
    except struct.error:
        return  # not a whole header: the decoder says so
    entries = file.read(number * struct.calcsize(entry))
    whole = entries[: len(entries) // struct.calcsize(entry) * struct.calcsize(entry)]
    claimed = sum(times * _TAG_BYTES.get(kind, 1) for _, kind, times in struct.iter_unpack(entry, whole))
    if claimed > 2 * size:
        raise DataError(f"{name} has {size:,} bytes and claims tags of {claimed:,}", "it is damaged: save it again")
