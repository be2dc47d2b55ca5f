"""Every kind of file comes out as the user sees it, or is named in one line."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.images.decode import decode, header_ok

DRAW = np.random.default_rng(1)
COLOURS = DRAW.integers(0, 256, (6, 9, 3), dtype=np.uint8)


def as_bytes(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(source: object) -> np.ndarray:
    return np.asarray(decode(source))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_plain_colours(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(pixels(as_bytes(Image.fromarray(COLOURS), kind, **options)), COLOURS)


def test_sixteen_bits_are_scaled_by_their_range() -> None:
    deep = np.array([[0, 257, 32768], [65535, 128, 129]], np.uint16)
    expected = np.array([[0, 1, 128], [255, 0, 1]], np.uint8)
    assert np.array_equal(pixels(as_bytes(Image.fromarray(deep), "PNG")), expected)
    assert np.array_equal(pixels(as_bytes(Image.fromarray(deep), "TIFF")), expected)


def test_thirty_two_bits_and_floats() -> None:
    assert pixels(Image.fromarray(np.array([[0, 65535]], np.int32))).tolist() == [[0, 255]]
    assert pixels(Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32))).tolist() == [[0, 128, 255]]
    assert pixels(Image.fromarray(np.array([[0.0, 128.0, 255.0]], np.float32))).tolist() == [[0, 128, 255]]
    with pytest.raises(DataError, match="70000"):
        decode(Image.fromarray(np.array([[0, 70000]], np.int32)), "deep.tif")
    for wrong in (np.nan, np.inf):
        with pytest.raises(DataError, match="NaN"):
            decode(Image.fromarray(np.array([[0.5, wrong, 1.0]], np.float32)), "deep.tif")
    with pytest.raises(DataError, match="floating-point"):
        decode(Image.fromarray(np.array([[-1.0, 1.0]], np.float32)), "deep.tif")


def test_palette_and_one_bit() -> None:
    few = Image.fromarray(COLOURS).quantize(8)
    assert np.array_equal(pixels(as_bytes(few, "PNG")), np.asarray(few.convert("RGB")))
    bits = Image.fromarray(COLOURS[:, :, 0] > 128)
    assert np.array_equal(pixels(as_bytes(bits, "PNG")), (COLOURS[:, :, 0] > 128) * np.uint8(255))


def test_alpha_is_laid_over_white() -> None:
    alpha = DRAW.integers(0, 256, (6, 9), dtype=np.uint8)
    expected = COLOURS * (alpha[..., None] / 255) + 255 * (1 - alpha[..., None] / 255)
    shown = pixels(as_bytes(Image.fromarray(np.dstack([COLOURS, alpha])), "PNG"))
    assert np.abs(shown - expected).max() <= 1
    grey = pixels(as_bytes(Image.fromarray(np.dstack([COLOURS[:, :, :1], alpha])), "PNG"))
    assert grey.shape == (6, 9)
    assert np.abs(grey - expected[:, :, 0]).max() <= 1.5


def test_transparent_colour_of_a_palette() -> None:
    few = Image.fromarray(np.zeros((4, 4, 3), np.uint8)).quantize(2)
    assert pixels(as_bytes(few, "PNG", transparency=0)).min() == 255


def test_cmyk() -> None:
    inks = Image.fromarray(COLOURS).convert("CMYK")
    assert np.array_equal(pixels(as_bytes(inks, "TIFF")), np.asarray(inks.convert("RGB")))
    jpeg = pixels(as_bytes(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95))
    assert np.abs(jpeg.reshape(-1, 3).mean(0) - (255, 0, 0)).max() < 6


def test_animated_shows_its_first_frame() -> None:
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if kind == "WEBP" else {}
        shown = pixels(as_bytes(frames[0], kind, save_all=True, append_images=frames[1:], duration=40, **options))
        assert (shown == (255, 0, 0)).all(), kind


@pytest.mark.parametrize(("mode", "orientation"), [("RGB", 1), ("L", 1), ("RGB", 6), ("L", 3), ("CMYK", 1)])
def test_a_jpeg_is_upright_and_has_the_pixels_that_pillow_decodes(tmp_path: Path, mode: str, orientation: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, (5, 9, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photograph.jpg"
    Image.fromarray(values).convert(mode).save(path, exif=exif)
    expected = Image.open(path).convert("L" if mode == "L" else "RGB").rotate({1: 0, 6: -90, 3: 180}[orientation], expand=True)
    for source in (path, path.read_bytes()):
        assert np.array_equal(np.asarray(decode(source)), np.asarray(expected))


def test_one_pixel() -> None:
    assert pixels(as_bytes(Image.new("RGB", (1, 1), "lime"), "PNG")).tolist() == [[[0, 255, 0]]]


def test_truncated_is_named(tmp_path: Path) -> None:
    whole = as_bytes(Image.fromarray(DRAW.integers(0, 256, (64, 64, 3), dtype=np.uint8)), "JPEG")
    path = tmp_path / "cut.jpg"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.jpg"):
        decode(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a", bytes(range(256))])
def test_not_a_picture_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"letter\.png"):
        decode(path)


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such"):
        decode(tmp_path / "nothing.png")
    with pytest.raises(DataError, match="not a file"):
        decode(tmp_path)


def test_enormous_is_refused_before_it_is_decoded() -> None:
    """A header that promises 400 million pixels costs no memory."""
    header = as_bytes(Image.new("1", (20_000, 20_000)), "PNG")
    assert len(header) < 100_000
    with pytest.raises(DataError, match="enormous"):
        decode(header, "huge.png")


def test_formats_that_run_programs_stay_closed(tmp_path: Path) -> None:
    """An EPS file under a picture's name would hand its content to Ghostscript."""
    path = tmp_path / "trojan.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(DataError, match=r"trojan\.png"):
        decode(path)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA"]), st.data())
def test_damaged_files_never_raise_anything_else(kind: str, data: st.DataObject) -> None:
    content = bytearray(as_bytes(Image.fromarray(COLOURS), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # decoders warn of odd tags as they go
        try:
            shown = pixels(bytes(content))
        except DataError as error:
            assert error.hint and "\n" not in str(error)
        else:
            assert shown.dtype == np.uint8 and shown.size


def test_arrays_of_any_channels(tmp_path: Path) -> None:
    five = DRAW.integers(0, 256, (4, 6, 5), dtype=np.uint8)
    np.save(tmp_path / "five.npy", five)
    assert np.array_equal(pixels(tmp_path / "five.npy"), five)
    assert np.array_equal(pixels((tmp_path / "five.npy").read_bytes()), five)
    with pytest.raises(DataError, match="float64"):
        decode(np.zeros((4, 4)))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"bad\.npy"):
        decode(tmp_path / "bad.npy")


def test_why_a_header_is_refused_is_said_in_words(tmp_path: Path) -> None:
    for name, content, why in (("note.jpg", b"no picture at all", "of no known format"), ("empty.png", b"", "of no known format")):
        (tmp_path / name).write_bytes(content)
        assert header_ok(tmp_path / name) == why
    Image.new("RGB", (64, 64)).save(tmp_path / "cut.webp")
    (tmp_path / "cut.webp").write_bytes((tmp_path / "cut.webp").read_bytes()[:40])
    assert header_ok(tmp_path / "cut.webp") == "could not create decoder object"
    (tmp_path / "wide.npy").write_bytes(b"no array")
    assert str(tmp_path) not in (header_ok(tmp_path / "wide.npy") or str(tmp_path))
