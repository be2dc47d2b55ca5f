"""The one fast operation of a page that runs its model: a matrix product in WebAssembly with SIMD, assembled here, byte by byte.

C = A · B + bias for rows of A in groups of four and columns of B in panels of eight, so that a 4 × 8 tile of C stays in registers:
per step of the inner dimension two loads of B, four numbers of A spread over a register each, eight products, eight sums.
B lies in panels: for each eight columns, inner × 8 numbers. Whoever calls it pads rows to fours, columns to eights and the inner
dimension to fours (`static/in_browser/matrix.js`, which has the same product in plain JavaScript for browsers without WebAssembly).

The encoding is that of the WebAssembly core specification 2.0, chapter 5; fused multiply-add is not used (it is not in 2.0, and
its results depend on the machine).
"""

from __future__ import annotations

from collections.abc import Iterable

ROWS, COLUMNS, _UNROLLED = 4, 8, 4
"""A tile's rows and columns, and steps of the inner dimension in one turn of the loop."""

_I32, _V128, _NOTHING = 0x7F, 0x7B, 0x40
PARAMETERS = ("a", "b", "bias", "c", "groups", "inner", "panels", "stride_a", "stride_c")
"""Addresses of A, panels, bias and C; groups of four rows, inner dimension, panels; bytes from a row to the next in A and C."""
_COUNTERS = ("group", "step", "a_group", "b_step", "c_group", "a0", "a1", "a2", "a3")
TILE = tuple(f"c{row}{half}" for row in range(ROWS) for half in "lr")
NAMES = {name: index for index, name in enumerate((*PARAMETERS, *_COUNTERS, *TILE, "left", "right", "spread"))}

_LOOP, _END, _BRANCH_IF, _GET, _SET, _TEE = 0x03, 0x0B, 0x0D, 0x20, 0x21, 0x22
_I32_CONST, _I32_ADD, _I32_SUB, _I32_MUL = 0x41, 0x6A, 0x6B, 0x6C
_SIMD_LOAD, _SIMD_LOAD_SPREAD, _SIMD_STORE, _F32X4_ADD, _F32X4_MUL = 0x00, 0x09, 0x0B, 0xE4, 0xE6


def kernel() -> bytes:
    """The module: it imports a memory as page.memory and exports `product`."""
    kinds = _vector([b"\x60" + _vector([bytes([_I32])] * len(PARAMETERS)) + _vector([])])
    imported = _vector([_name("page") + _name("memory") + b"\x02\x00" + _unsigned(1)])
    exported = _vector([_name("product") + b"\x00" + _unsigned(0)])
    local = _vector([_unsigned(len(_COUNTERS)) + bytes([_I32]), _unsigned(len(TILE) + 3) + bytes([_V128])])
    body = local + product() + bytes([_END])
    code = _vector([_unsigned(len(body)) + body])
    sections = {1: kinds, 2: imported, 3: _vector([_unsigned(0)]), 7: exported, 10: code}
    return b"\0asm\1\0\0\0" + b"".join(bytes([kind]) + _unsigned(len(content)) + content for kind, content in sections.items())


def product() -> bytes:
    """For each panel: for each group of rows: a tile."""
    rows = [_advance("a_group", "stride_a", ROWS), _advance("c_group", "stride_c", ROWS)]
    groups = _loop("group", "groups", tile() + b"".join(rows))
    after = [
        # The next panel: inner × 8 numbers further; its columns in C and bias 8 numbers further.
        _get("b") + _get("inner") + _constant(COLUMNS * 4) + bytes([_I32_MUL, _I32_ADD]) + _set("b"),
        _advance("c", COLUMNS * 4),
        _advance("bias", COLUMNS * 4),
    ]
    start = _get("a") + _set("a_group") + _get("c") + _set("c_group")
    turn = start + groups + b"".join(after) + _get("panels") + _constant(1) + bytes([_I32_SUB]) + _tee("panels")
    return bytes([_LOOP, _NOTHING]) + turn + bytes([_BRANCH_IF, 0, _END])


def tile() -> bytes:
    """Four rows times one panel."""
    out = b""
    for row in range(ROWS):
        out += _get("a_group") if row == 0 else _get(f"a{row - 1}") + _get("stride_a") + bytes([_I32_ADD])
        out += _set(f"a{row}")
        for half, side in enumerate("lr"):
            out += _get("bias") + _simd(_SIMD_LOAD, 16 * half) + _set(f"c{row}{side}")
    steps = b""
    for step in range(_UNROLLED):
        for half, side in enumerate(("left", "right")):
            steps += _get("b_step") + _simd(_SIMD_LOAD, COLUMNS * 4 * step + 16 * half) + _set(side)
        for row in range(ROWS):
            steps += _get(f"a{row}") + _simd(_SIMD_LOAD_SPREAD, 4 * step) + _set("spread")
            for side in ("left", "right"):
                total = f"c{row}{side[0]}"
                steps += _get(total) + _get("spread") + _get(side) + _simd(_F32X4_MUL) + _simd(_F32X4_ADD) + _set(total)
    moved = [_advance("b_step", COLUMNS * 4 * _UNROLLED), *(_advance(f"a{row}", 4 * _UNROLLED) for row in range(ROWS))]
    out += _get("b") + _set("b_step") + _loop("step", "inner", steps + b"".join(moved), _UNROLLED)
    out += _get("c_group") + _set("a0")
    for row in range(ROWS):
        if row:
            out += _advance("a0", "stride_c")
        for half, side in enumerate("lr"):
            out += _get("a0") + _get(f"c{row}{side}") + _simd(_SIMD_STORE, 16 * half)
    return out


def _loop(counter: str, count: str, body: bytes, by: int = 1) -> bytes:
    """`body` count / by times, at least once."""
    again = _get(counter) + _constant(by) + bytes([_I32_SUB]) + _tee(counter) + bytes([_BRANCH_IF, 0])
    return _get(count) + _set(counter) + bytes([_LOOP, _NOTHING]) + body + again + bytes([_END])


def _advance(name: str, step: int | str, times: int = 1) -> bytes:
    distance = _constant(step) if isinstance(step, int) else _get(step)
    if times > 1:
        distance += _constant(times) + bytes([_I32_MUL])
    return _get(name) + distance + bytes([_I32_ADD]) + _set(name)


def _get(name: str) -> bytes:
    return bytes([_GET]) + _unsigned(NAMES[name])


def _set(name: str) -> bytes:
    return bytes([_SET]) + _unsigned(NAMES[name])


def _tee(name: str) -> bytes:
    return bytes([_TEE]) + _unsigned(NAMES[name])


def _constant(value: int) -> bytes:
    return bytes([_I32_CONST]) + _signed(value)


def _simd(code: int, offset: int | None = None) -> bytes:
    """An operation on 128 bits; loads and stores have an offset, and say as a power of two what divides their addresses."""
    where = b"" if offset is None else _unsigned(2) + _unsigned(offset)  # four bytes are all that callers promise
    return b"\xfd" + _unsigned(code) + where


def _unsigned(value: int) -> bytes:
    """LEB128: seven bits a byte, the least first."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _signed(value: int) -> bytes:
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        done = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def _vector(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return _unsigned(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    return _unsigned(len(text)) + text.encode()
