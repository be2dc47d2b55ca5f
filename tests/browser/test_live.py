"""The page that runs its model, in a real browser: opened from a file, with the network cut."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Browser, expect
from sklearn.datasets import load_digits
from tests.browser.conftest import opened, painted
from tests.browser.explorer import STEPS, Explorer, words
from tests.web.conftest import heat, shares

from vitral import presets
from vitral.base.origin import fact
from vitral.build import build, create
from vitral.data.images.preprocess import open_picture
from vitral.look.switch_off import Off
from vitral.model.classifier import Classifier
from vitral.web.answers import ALL_ON, parse_off
from vitral.web.live import export_live, rounded
from vitral.web.pack import decode_rows, unpack
from vitral.web.session import Session

pytestmark = pytest.mark.browser


def lively(name: str = "tiny", **options: Any) -> Classifier:
    """Fresh weights, made to choose."""
    torch.manual_seed(0)
    model = create(name, **options)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("qkv.weight", "head.linear.weight")):
                parameter.mul_(6)
            elif parameter.ndim < 2 or "token" in parameter_name or "table" in parameter_name or "register" in parameter_name:
                parameter.add_(0.3 * torch.randn_like(parameter))  # biases and scales that are 0 or 1 would hide mistakes
    return model


def compare(page: Explorer, model: Classifier, contents: list[bytes]) -> None:
    """The browser's logits against those of Python with the same rounded weights."""
    same = rounded(model)
    for content in contents:
        with torch.no_grad():
            wanted = same(open_picture(content, same).tensor[None])[0].numpy()
        found = page.run(content)
        logits = np.array(found["logits"])
        assert np.abs(logits - wanted).max() <= 1e-4 * np.abs(wanted).max()
        assert logits.argmax() == wanted.argmax()
        assert len(found["labels"]) == len(logits)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return lively(registers=1, depth=4)


@pytest.fixture(scope="module")
def file(model: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    session = Session({"tiny-vit": model})
    session.add_initial(painted(1), "first.png")
    return export_live(session, tmp_path_factory.mktemp("live") / "page.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Explorer]:
    with opened(browser, file) as page:
        yield page


def test_it_proves_itself_and_answers_scripts(page: Explorer, model: Classifier) -> None:
    expect(page.runs).to_contain_text(words.MATCHES_PYTHON)
    compare(page, model, [painted(3), painted(4, (200, 90)), painted(5, (31, 77))])


ODD = {
    "mean": {"pool": "mean", "class_token": False, "positions": "sincos", "qkv_bias": False, "pool_norm": True, "final_norm": False},
    "dinov2": {"pool": "class+mean", "registers": 2, "layer_scale": 0.5, "activation": "swiglu", "patch_size": 4, "stride": 2},
    "dinov3": {"positions": "rotary", "rotary": "dinov3", "norm": "rms", "registers": 1, "layer_scale": 0.7, "activation": "gelu_tanh"},
    "mixed": {"positions": "learned+rotary", "rotary": "mixed", "qk_norm": True, "prefix_positions": "all", "embedding_norm": True},
    "eva": {"positions": "learned+rotary", "rotary": "eva", "sub_norm": "attention+mlp", "activation": "quick_gelu", "patch_norm": True},
    "beit": {"positions": "relative", "pool": "mean", "block": "sequential", "norm_order": "res-post", "bias": False},
    "siglip": {"pool": "map", "pool_over": "tokens", "pool_heads": 2, "pool_mlp_width": 40, "activation": "gelu_tanh", "patch_bias": False},
    "deit": {"distillation_token": True, "activation": "relu", "norm_order": "post", "head_bias": False},
    "parallel": {"block": "parallel", "pool": "attention", "layer_scale": 0.3, "positions": "none", "head_hidden": 20},
    "grey": {"channels": 1, "width": 44, "heads": 2, "mlp_width": 50, "classes": 3, "image_size": (24, 36), "patch_size": (6, 12)},
}


@pytest.mark.parametrize("odd", ODD)
def test_any_part_of_a_vit_computes_the_same(browser: Browser, odd: str, tmp_path: Path) -> None:
    options = {"width": 48, "heads": 3, "depth": 2, **ODD[odd]}
    model = lively(**options)
    session = Session({odd: model})
    session.add_initial(painted(1), "first.png")
    with opened(browser, export_live(session, tmp_path / "page.html")) as page:
        compare(page, model, [painted(6, (70, 50))])


PREPROCESSING = {
    "short": {"resize": "short", "crop": 0.875, "interpolation": "bicubic"},
    "squash": {"resize": "squash", "crop": 1.0, "interpolation": "bilinear"},
    "lanczos": {"resize": "short", "crop": 1.0, "interpolation": "lanczos"},
    "nearest": {"resize": "short", "crop": 0.9, "interpolation": "nearest"},
    "box": {"resize": "squash", "crop": 1.0, "interpolation": "box"},
}


@pytest.mark.parametrize("how", PREPROCESSING)
def test_pictures_are_prepared_bit_for_bit_as_in_python(browser: Browser, how: str, tmp_path: Path) -> None:
    model = lively(depth=1)
    facts = {name: fact(value) for name, value in PREPROCESSING[how].items()}
    model.origin = dataclasses.replace(model.origin, mean=fact((0.4, 0.5, 0.6)), std=fact((0.2, 0.3, 0.25)), **facts)
    session = Session({how: model})
    session.add_initial(painted(1), "first.png")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (101, 67, 3), dtype=np.uint8))
    with opened(browser, export_live(session, tmp_path / "page.html")) as page:
        for image in (noise, noise.resize((20, 19)), noise.resize((32, 32)), noise.convert("L")):
            out = io.BytesIO()
            image.save(out, "PNG")
            compare(page, model, [out.getvalue()])


def test_without_webassembly_it_is_slower_and_the_same(browser: Browser, file: Path, model: Classifier) -> None:
    context = browser.new_context()
    context.add_init_script("delete window.WebAssembly")
    page = Explorer(context.new_page())
    page.goto(file.as_uri())
    page.ready()
    compare(page, model, [painted(3)])
    context.close()


def test_a_dropped_picture_is_shown_with_all_heads(page: Explorer, model: Classifier, keep: Callable[[Explorer, str], None]) -> None:
    content = painted(7, (120, 90))
    page.upload(content, "mine.png")
    expect(page.pictures.nth(1)).to_have_text("mine.png")
    expect(page.pictures.nth(1)).to_have_attribute("aria-pressed", "true")
    same = rounded(model)
    with torch.no_grad():
        top = int(same(open_picture(content, same).tensor[None])[0].argmax())
    expect(page.bars.first).to_contain_text(f"class {top}")
    expect(page.tiles).to_have_count(12)
    page.choose_method("Attention")
    page.point(1, 1)
    expect(page.reading).to_have_text(words.begins(words.PATCH_IN))
    keep(page, "live")


def test_every_view_works_on_a_dropped_picture(page: Explorer, keep: Callable[[Explorer, str], None]) -> None:
    page.upload(painted(7, (120, 90)), "mine.png")
    page.show("depth")
    expect(page.depth_drawings.first).to_be_visible()
    page.show("similar")
    page.point(4, 2)
    expect(page.reading).to_contain_text("block 3")
    keep(page, "live-similar")
    page.point_nowhere()
    page.show("surgery")
    page.button(words.MEASURE).click()
    expect(page.panel("surgery")).to_contain_text(words.LOSES_HALF, timeout=30_000)
    expect(page.panel("surgery")).to_contain_text(words.RANDOM_ORDER)
    expect(page.panel("surgery")).not_to_contain_text(words.MEAN_OF_DRAWS)  # the page draws one order
    keep(page, "live-importance")
    page.show("model")
    expect(page.own_tiles.first).to_be_visible()


def test_the_trace_is_the_one_that_the_server_makes(page: Explorer, model: Classifier) -> None:
    """Attention, maxima and what heads are like: one page shows both, so both must be one."""
    content = painted(8)
    server = Session({"tiny": rounded(model)})
    key = server.add_initial(content, "eight.png")
    header, sections = unpack(server.answer("trace", 0, key))
    found = page.trace(page.upload_by_script(content))
    for name in ("grid", "prefix", "tokens", "rows", "whole", "levels", "reference"):
        assert found["header"][name] == pytest.approx(header[name]), name
    for name in ("distance", "entropy"):
        np.testing.assert_allclose(found["header"]["measures"][name], header["measures"][name], atol=2e-3)
    wanted = np.asarray(sections["attention"])
    codes = np.array(found["codes"], np.uint8).reshape(wanted.shape)
    np.testing.assert_allclose(decode_rows(codes, 255), decode_rows(wanted, 255), atol=0.01)
    assert (np.abs(codes.astype(int) - wanted) <= 1).all()
    maxima, argmax = np.array(found["maxima"]).reshape(np.asarray(sections["argmax"]).shape), np.asarray(sections["argmax"]).astype(int)
    np.testing.assert_allclose(maxima[..., [1, 3]], argmax[..., [1, 3]], atol=4)
    assert (maxima[..., [0, 2]] == argmax[..., [0, 2]]).mean() > 0.99  # near ties may fall either way


def test_switches_work_in_any_combination(page: Explorer, model: Classifier, keep: Callable[[Explorer, str], None]) -> None:
    page.show("surgery")
    page.switch(1, 0).click()
    expect(page.verdict.first).to_contain_text(words.verdict(1))
    page.switch(2).click()
    expect(page.verdict.first).to_contain_text(words.verdict(2))
    page.click_patch(4, 4)
    expect(page.verdict.first).to_contain_text(words.verdict(3))
    expect(page.cut).to_contain_text(words.SHOWN_WITHOUT)
    off = re.search(r"off=([^&]*)", page.url)
    assert off
    parts = re.findall(r"p(\d+)", off.group(1))
    server = Session({"tiny": rounded(model)})
    key = server.add_initial(painted(1), "first.png")
    chosen = Off(((1, 0),), (2,), (2,), tuple(sorted(int(patch) for patch in parts)))
    for switched in (ALL_ON, chosen):
        text = off.group(1).replace("%2C", ",") if switched is chosen else ""
        assert page.ask("trace", picture=key, off=text)["probabilities"] == pytest.approx(shares(server, key, switched).tolist(), abs=1e-4)
        expected = heat(server.answer("map", 0, key, method="rollout", off=switched))
        np.testing.assert_allclose(page.ask("map", picture=key, method="rollout", off=text)["values"], expected.ravel(), atol=1e-5)
    keep(page, "live-surgery")


def test_rollout_is_at_hand(page: Explorer, model: Classifier) -> None:
    page.choose_method("Rollout")
    expect(page.reading).to_have_text(words.begins("Rollout"))


def test_what_is_no_picture_is_refused_in_a_line(page: Explorer) -> None:
    page.upload(b"no picture", "no.png")
    expect(page.toast).to_contain_text(words.NOT_READ_HERE)
    expect(page.pictures).to_have_count(1)


@pytest.fixture(scope="module")
def server(model: Classifier) -> Session:
    """The explorer's own answers, with the same rounded weights and the same picture."""
    session = Session({"tiny": rounded(model)})
    session.add_initial(painted(1), "first.png")
    return session


def test_occlusion_and_importance_are_those_of_the_server(page: Explorer, server: Session) -> None:
    key = server.initial[0]["picture"]
    off = "h1.0,p3"
    found = page.ask("map", picture=key, method="occlusion", target=2, off=off)
    wanted, sections = unpack(server.answer("map", 0, key, method="occlusion", target=2, off=parse_off(off)))
    np.testing.assert_allclose(found["values"], np.ravel(sections["values"]), atol=1e-5)
    for name in ("grid", "target", "unit", "signed", "note"):
        assert found[name] == wanted[name]
    found = page.ask("importance", picture=key, target=1)
    wanted, _ = unpack(server.answer("importance", 0, key, target=1))
    assert set(found) == set(wanted)
    np.testing.assert_allclose(found["heads"], wanted["heads"], atol=1e-5)
    np.testing.assert_allclose(found["parts"], wanted["parts"], atol=1e-5)
    assert (found["order"], found["counts"], found["half_point"]) == (wanted["order"], wanted["counts"], wanted["half_point"])
    np.testing.assert_allclose(found["confidence"], wanted["confidence"], atol=1e-5)


def test_a_long_work_can_be_stopped(page: Explorer, server: Session) -> None:
    key = server.initial[0]["picture"]
    assert page.stopped("importance", picture=key) == "AbortError"


@pytest.mark.parametrize("odd", ["tiny", "dinov2", "siglip", "deit", "parallel"])
def test_every_depth_is_that_of_the_server(browser: Browser, model: Classifier, odd: str, tmp_path: Path) -> None:
    chosen = model if odd == "tiny" else lively(width=48, heads=3, depth=2, **ODD[odd])
    session = Session({odd: chosen})
    session.add_initial(painted(1), "first.png")
    same = Session({odd: rounded(chosen)})
    key = same.add_initial(painted(1), "first.png")
    with opened(browser, export_live(session, tmp_path / "page.html")) as page:
        found = page.ask("depth", picture=key, off="h0.1")
        header, sections = unpack(same.answer("depth", 0, key, off=parse_off("h0.1")))
        assert {name: found["header"][name] for name in ("settled", "target", "grid")} == {
            name: header[name] for name in ("settled", "target", "grid")
        }
        assert [row[0] for row in found["header"]["lines"]] == [row[0] for row in header["lines"]]
        for row, other in zip(found["header"]["lines"], header["lines"], strict=True):
            np.testing.assert_allclose(row[1], other[1], atol=2e-5)
        for depth, other in zip(found["header"]["top"], header["top"], strict=True):
            assert [row[0] for row in depth] == [row[0] for row in other]
        for name in ("answers", "confidence", "target"):
            wanted = np.asarray(sections[name]).ravel().astype(int)
            np.testing.assert_allclose(found["sections"][name], wanted, atol=0 if name == "answers" else 1)
        found = page.ask("features", picture=key, off="h0.1")
        header, sections = unpack(same.answer("features", 0, key, off=parse_off("h0.1")))
        assert found["header"]["blocks"] == header["blocks"]
        for block in header["blocks"]:
            wanted = np.asarray(sections[f"block-{block}"]).ravel().astype(int)
            np.testing.assert_allclose(found["sections"][f"block-{block}"], wanted, atol=1)


@pytest.mark.parametrize("odd", ["tiny", "mean", "beit"])
def test_the_story_is_that_of_the_server(
    browser: Browser, model: Classifier, odd: str, tmp_path: Path, keep: Callable[[Explorer, str], None]
) -> None:
    chosen = model if odd == "tiny" else lively(width=48, heads=3, depth=2, **ODD[odd])
    session = Session({odd: chosen})
    session.add_initial(painted(1), "first.png")
    same = Session({odd: rounded(chosen)})
    key = same.add_initial(painted(1), "first.png")
    with opened(browser, export_live(session, tmp_path / "page.html")) as page:
        found = page.ask("story", picture=key)
        header, sections = unpack(same.answer("story", 0, key))
        for name in set(header) - {"sections", "top_patch_ablation"}:
            same_numbers(found[name], header[name], name)
        for fact in set(header["top_patch_ablation"] or {}) - {"random"}:  # drawn otherwise
            same_numbers(found["top_patch_ablation"][fact], header["top_patch_ablation"][fact], fact)
        assert set(found["sections"]) == set(sections)
        for name, values in sections.items():
            wanted = np.frombuffer(values, np.uint8).astype(int) if isinstance(values, bytes) else values.ravel()
            np.testing.assert_allclose(
                found["sections"][name], wanted, rtol=1e-3, atol=1 if isinstance(values, bytes) else 2e-3, err_msg=name
            )
        page.tell.click()
        expect(page.steps).to_have_count(STEPS)
        keep(page, f"live-story-{odd}")


def same_numbers(found: Any, wanted: Any, name: str) -> None:
    """Equal words and structure, numbers as near as they are rounded."""
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), name
        for key in wanted:
            same_numbers(found[key], wanted[key], f"{name}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), name
        for index, value in enumerate(wanted):
            same_numbers(found[index], value, f"{name}[{index}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=6e-3 if "norm_ratio" in name else 1e-3), name
    else:
        assert found == wanted, name


def test_digits_and_a_second_model(browser: Browser, tmp_path: Path, keep: Callable[[Explorer, str], None]) -> None:
    """The model of `vitral train digits`, as it starts, on digits; beside it another, as --compare has it."""
    torch.manual_seed(0)
    config = dataclasses.replace(presets.run("digits").model, image_size=(8, 8), channels=1, classes=10)
    model, other = build(config), lively(channels=1, image_size=(8, 8), patch_size=(2, 2))
    contents = []
    for digit in load_digits().images[:3]:
        out = io.BytesIO()
        Image.fromarray((digit * 255 / 16).astype(np.uint8)).save(out, "PNG")
        contents.append(out.getvalue())
    session = Session({"digits": model, "other": other})
    session.add_initial(contents[0], "zero.png")
    with opened(browser, export_live(session, tmp_path / "page.html")) as page:
        expect(page.runs).to_contain_text(words.MATCHES_PYTHON)
        compare(page, model, contents)
        page.show("compare")
        expect(page.panel("compare")).to_contain_text("other")
        expect(page.other_bars.first).to_be_visible()
        keep(page, "live-digits")
