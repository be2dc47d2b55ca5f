from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from vitral.web.pack import EXPORTED, SERVED, CodingError, decode_rows, encode_rows, pack, unpack


def rows(seed: int, sharpness: float, count: int = 12, tokens: int = 50) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(count, tokens)) * sharpness
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(some.integers(0, 10_000), some.floats(0, 8))
def test_decoded_rows_sum_to_one_and_stay_close(seed: int, sharpness: float) -> None:
    weights = rows(seed, sharpness)
    for levels, worst, moved in ((SERVED.levels, 0.01, 0.01), (EXPORTED.levels, 0.05, 0.04)):
        error = CodingError()
        codes = encode_rows(weights, levels)
        error.add(weights, codes, levels)
        assert codes.dtype == np.uint8
        assert codes.max() == levels
        np.testing.assert_allclose(decode_rows(codes, levels).sum(axis=-1), 1, rtol=1e-5)
        assert error.worst < worst
        assert error.total_variation < moved


def test_the_error_is_that_of_all_rows() -> None:
    first, second = rows(0, 1), rows(1, 4, count=30)
    together, apart = CodingError(), CodingError()
    both = np.concatenate([first, second])
    together.add(both, encode_rows(both, 47), 47)
    for part in (first, second):
        apart.add(part, encode_rows(part, 47), 47)
    assert apart.total_variation == pytest.approx(together.total_variation, rel=1e-5)
    assert apart.worst == pytest.approx(together.worst, rel=1e-5)


def test_a_row_on_one_token_survives() -> None:
    weights = np.eye(5, dtype=np.float32)
    np.testing.assert_array_equal(decode_rows(encode_rows(weights, 47), 47), weights)


def test_pack_and_unpack() -> None:
    numbers = np.arange(7, dtype=np.float32)
    codes = np.arange(30, dtype=np.uint8).reshape(2, 3, 5)
    header, sections = unpack(pack({"name": "grüße"}, {"picture": b"abc", "numbers": numbers, "codes": codes}))
    assert header["name"] == "grüße"
    assert sections["picture"] == b"abc"
    np.testing.assert_array_equal(sections["numbers"], numbers)
    np.testing.assert_array_equal(sections["codes"], codes)
    assert all(place["offset"] % 4 == 0 for place in header["sections"])


@pytest.mark.parametrize("content", [b"", b"nothing", pack({}, {})[:-9]])
def test_damaged_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="packed"):
        unpack(content)
