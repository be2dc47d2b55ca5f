from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from vitral.data.images.decode import decode
from vitral.web.server.decoder import Decoders
from vitral.web.server.limits import Limits, Refusal


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    decoders = Decoders(Limits(decoders=1, decode_seconds=3))
    yield decoders
    decoders.close()


def many_scans(count: int, side: int = 2000) -> bytes:
    """A progressive JPEG whose last scan is repeated: small, and very slow to decode."""
    out = io.BytesIO()
    Image.effect_noise((side, side), 5).convert("L").save(out, "JPEG", progressive=True, quality=10)
    content = out.getvalue()
    last = content.rindex(b"\xff\xda")
    table = content.rindex(b"\xff\xc4", 0, last)
    return content[:-2] + content[table:-2] * count + b"\xff\xd9"


def saved(kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, kind, **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_the_pixels_are_those_of_the_library(decoders: Decoders, kind: str) -> None:
    found = decoders.submit(saved(kind)).result(30)
    expected = decode(saved(kind))
    assert isinstance(expected, Image.Image) and found.mode == expected.mode
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_picture_that_takes_for_ever_is_ended_and_the_next_one_works(decoders: Decoders) -> None:
    decoders.submit(saved("PNG")).result(30)
    out = io.BytesIO()
    Image.new("RGB", (8000, 7000)).save(out, "PNG")  # allowed, and more than a tenth of a second's work
    decoders.seconds = 0.02
    began = time.monotonic()
    with pytest.raises(Refusal, match="decoded"):
        decoders.submit(out.getvalue()).result(30)
    assert time.monotonic() - began < 10
    decoders.seconds = 10
    assert decoders.submit(saved("PNG")).result(30).size == (30, 20)


def test_two_thousand_scans_hold_nobody(decoders: Decoders) -> None:
    began = time.monotonic()
    with pytest.raises(Refusal):
        decoders.submit(many_scans(2000)).result(30)
    assert time.monotonic() - began < 8


def test_a_crash_of_the_decoder_is_a_refusal(decoders: Decoders) -> None:
    decoders.submit(saved("PNG")).result(30)
    (process,) = decoders._all
    os.kill(process.pid, 9)
    process.wait()
    assert decoders.submit(saved("PNG")).result(30).size == (30, 20), "a new process takes its place"


def test_a_damaged_picture_says_so(decoders: Decoders) -> None:
    with pytest.raises(Refusal, match="damaged") as caught:
        decoders.submit(saved("PNG")[:200]).result(30)
    assert caught.value.status == 422 and caught.value.hint


def test_nothing_is_left_behind() -> None:
    decoders = Decoders(Limits())
    decoders.submit(saved("PNG")).result(30)
    processes = list(decoders._all)
    decoders.close()
    assert processes and all(process.poll() is not None for process in processes)
