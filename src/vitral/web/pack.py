"""Attention in few bytes: one code per weight, then deflate; the browser unpacks it with what it has built in.

A row of attention sums to 1, so only its shape needs storing. A weight w in a row with maximum m becomes round(L·√(w/m)) with
L = 255 levels when served and 47 in an exported page; back: (code/L)², divided by the row's sum. The square root spends the levels on the
many small weights: for equal bytes linear codes do as well in the mean, but their worst rows are three times as far off (a row with
one high peak loses its tail).

A packed trace is gzip of: length of the header (uint32, little-endian), the header (JSON), then the sections one after another.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Packing:
    """How small an answer is made."""

    levels: int
    """Codes of an attention weight, besides 0."""
    compression: int
    """Of gzip, 1 to 9."""
    features: int | None = None
    """Most numbers of patch tokens (blocks × patches × width); None: as many as the server's limits allow."""


SERVED = Packing(levels=255, compression=1)
EXPORTED = Packing(levels=47, compression=9, features=2**20)


def encode_rows(weights: np.ndarray, levels: int) -> np.ndarray:
    """Rows (…, T) that sum to 1 → codes of the same shape, uint8."""
    top = np.maximum(weights.max(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    return np.rint(levels * np.sqrt(np.clip(weights, 0, None) / top)).astype(np.uint8)


def decode_rows(codes: np.ndarray, levels: int) -> np.ndarray:
    """What the browser makes of the codes: rows that sum to 1."""
    values = np.square(codes.astype(np.float32) / levels)
    return values / np.maximum(values.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)


@dataclass
class CodingError:
    """How far decoded rows are from the true ones, gathered block by block."""

    worst: float = 0.0
    """Largest error of a weight, as a share of its row's maximum."""
    total_variation: float = 0.0
    """Mean share of a row's attention that is elsewhere after coding."""
    _rows: int = field(default=0, repr=False)

    def add(self, weights: np.ndarray, codes: np.ndarray, levels: int) -> None:
        difference = np.abs(decode_rows(codes, levels) - weights)
        top = np.maximum(weights.max(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        self.worst = max(self.worst, float((difference / top).max()))
        rows = difference[..., 0].size
        self.total_variation = (self.total_variation * self._rows + float(difference.sum()) / 2) / (self._rows + rows)
        self._rows += rows


def pack(header: dict[str, Any], sections: dict[str, np.ndarray | bytes], compression: int = 1) -> bytes:
    """Header and sections as one gzip stream; the header gains an index of the sections."""
    index, parts, offset = [], [], 0
    for name, content in sections.items():
        kind, shape = ("bytes", [len(content)]) if isinstance(content, bytes) else (str(content.dtype), list(content.shape))
        raw = content if isinstance(content, bytes) else np.ascontiguousarray(content).tobytes()
        padding = -len(raw) % 4  # typed arrays in the browser want their numbers aligned
        index.append({"name": name, "type": kind, "shape": shape, "offset": offset, "bytes": len(raw)})
        parts += [raw, b"\0" * padding]
        offset += len(raw) + padding
    text = json.dumps({**header, "sections": index}, ensure_ascii=True, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    return gzip.compress(b"".join([struct.pack("<I", len(text)), text, *parts]), compresslevel=compression, mtime=0)


def unpack(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray | bytes]]:
    """The inverse of `pack`; the browser has the same in core/trace.js."""
    try:
        raw = gzip.decompress(content)
        (length,) = struct.unpack_from("<I", raw)
        header = json.loads(raw[4 : 4 + length])
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise ValueError(f"not a packed trace ({error})") from error
    sections: dict[str, np.ndarray | bytes] = {}
    for entry in header["sections"]:
        start = 4 + length + entry["offset"]
        part = raw[start : start + entry["bytes"]]
        sections[entry["name"]] = part if entry["type"] == "bytes" else np.frombuffer(part, entry["type"]).reshape(entry["shape"])
    return header, sections
