"""What people will show each other: depth, similarity, importance, comparison, saving, the training, and the page in a notebook."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import painted, served
from tests.browser.test_access import RULES
from tests.browser.test_explorer import CANVAS, pixels, point, reading
from tests.study.test_film import make_run

import vitral
from vitral import look
from vitral.build import create
from vitral.web.export import export_page
from vitral.web.notebook import explore
from vitral.web.session import Session
from vitral.weights.checkpoint import load_checkpoint

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
Keep = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def pair(session: Session) -> Session:
    """Two transformers with different numbers of heads and prefix tokens, two pictures."""
    other = create("tiny", depth=4)
    pair = Session({"one-vit": session.models[0], "other-vit": other})
    for entry in session.given:
        pair.give(session._given_bytes[entry["picture"]], entry["name"])
    return pair


@pytest.fixture(scope="module")
def paired(pair: Session) -> Iterator[str]:
    with served(pair) as (address, _):
        yield address


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A run that kept three snapshots."""
    run = make_run(tmp_path_factory.mktemp("runs") / "run")
    run.write_model(load_checkpoint(run.snapshots()[-1][1]))
    session = Session({str(run.path): vitral.load(run.path)})
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)).save(out, "PNG")
    session.give(out.getvalue(), "digit.png")
    return session


def percentage(text: str) -> float:
    """The last one of a sentence."""
    return float(re.findall(r"([\d.]+).%", text)[-1])


def clean(page: Page) -> None:
    found = Axe().run(page, options=RULES).response["violations"]
    assert [(each["id"], [node["html"][:140] for node in each["nodes"][:3]]) for each in found] == []


# Prediction by depth


def test_the_head_is_read_at_every_block(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=depth&block=1")
    key = session.given[0]["picture"]
    own = look.lens(look.watch(session.models[0], session.picture(0, key)))
    for depth in (2, 4, 0):
        page.locator("#depth-slider").fill(str(depth))
        index = int(own.answers[depth])
        place = "the embedding" if depth == 0 else f"block {depth - 1}"
        verdict = page.locator("#panel-depth .headline")
        expect(verdict).to_have_text(re.compile(rf"^After {place}: {re.escape(own.class_names[index])}, "))
        assert percentage(verdict.inner_text()) == pytest.approx(100 * own.probabilities[depth, index], abs=0.51)
        expect(page.locator("#panel-depth .bar .name").first).to_have_text(own.class_names[index])
        if depth:
            expect(page.locator("#block-number")).to_have_text(str(depth - 1))
    page.locator("#depth-slider").fill("4")
    page.locator("#panel-depth canvas").scroll_into_view_if_needed()
    point(page, 2, 5, selector="#panel-depth canvas")
    name = re.escape(own.class_names[int(own.patches[4, 2, 5].argmax())])
    expect(page.locator("#panel-depth .stage + .reading")).to_have_text(re.compile(rf"^The patch in row 2, column 5 says {name}, "))
    clean(page)
    keep(page, "depth")


def test_play_runs_through_the_depth(visit: Visit) -> None:
    page = visit("#view=depth&block=0")
    page.locator("#panel-depth").get_by_role("button", name="Play").click()
    expect(page.locator("#panel-depth .headline")).to_have_text(re.compile("^After block 3"), timeout=10_000)
    expect(page.locator("#panel-depth").get_by_role("button", name="Play")).to_be_visible(timeout=5_000)


def test_a_rival_has_no_depth_to_read(visit: Visit) -> None:
    page = visit("#view=depth&model=1")
    expect(page.locator("#panel-depth .empty")).to_have_text(re.compile("^A cnn has no class token"))


# Similarity


def cosines(session: Session, model: int, keys: tuple[str, str], cell: tuple[int, int], block: int = -1) -> np.ndarray:
    """Every patch of the second picture with one of the first, by the tokens themselves."""
    maps = []
    for key in keys:
        name = session.models[model].map_names()[block]
        value = look.watch(session.models[model], session.picture(model, key), keep=["logits", name])[name]
        maps.append(session.models[model].as_map(value)[0].detach().double().numpy().transpose(1, 2, 0))
    unit = [each / np.linalg.norm(each, axis=2, keepdims=True) for each in maps]
    return unit[1] @ unit[0][cell]


def test_point_at_a_place_and_see_its_like_in_the_other_picture(paired: str, pair: Session, visit: Visit, keep: Keep) -> None:
    page = visit(at=paired)
    page.locator("#tab-similar").click()
    expect(page.locator("#panel-similar figure")).to_have_count(3)  # one beside the picture, and both in the other model
    keys = tuple(entry["picture"] for entry in pair.given)
    asked: list[str] = []
    expect(page.locator("#panel-similar figcaption").nth(2)).to_have_text(re.compile("row"))
    page.on("request", lambda request: asked.append(request.url))
    for row, column in ((1, 6), (5, 2)):
        point(page, row, column)
        own = look.similarity(look.watch(pair.models[0], pair.picture(0, keys[0])), start=(row, column)).grid.copy()
        own[row, column] = -2
        best = np.unravel_index(own.argmax(), own.shape)
        expect(page.locator("#picture .reading")).to_have_text(
            re.compile(rf"most like the patch in row {row}, column {column}: row {best[0]}, column {best[1]} \({own.max():.2f}")
        )
        for place, (model, other) in enumerate(((0, keys[1]), (1, keys[0]), (1, keys[1]))):
            grid = cosines(pair, model, (keys[0], other), (row, column))
            if other == keys[0]:
                grid[row, column] = -2
            best = np.unravel_index(grid.argmax(), grid.shape)
            caption = page.locator("#panel-similar figcaption").nth(place)
            expect(caption).to_have_text(re.compile(rf": row {best[0]}, column {best[1]}, "))
            assert float(caption.inner_text().split()[-1]) == pytest.approx(grid.max(), abs=0.02)
    assert asked == [], "hovering asks nobody"
    clean(page)
    keep(page, "similar")


def test_and_back_from_the_other_picture(paired: str, pair: Session, visit: Visit) -> None:
    page = visit(at=paired)
    page.locator("#tab-similar").click()
    expect(page.locator("#panel-similar figcaption").first).to_have_text(re.compile("row"))
    keys = tuple(entry["picture"] for entry in pair.given)
    point(page, 6, 3, selector="#panel-similar figure canvas >> nth=0")
    grid = cosines(pair, 0, (keys[1], keys[0]), (6, 3))
    best = np.unravel_index(grid.argmax(), grid.shape)
    expect(page.locator("#picture .reading")).to_have_text(
        re.compile(rf"most like the place you point at: row {best[0]}, column {best[1]} ")
    )


def test_similarity_is_of_a_block(visit: Visit, session: Session) -> None:
    page = visit("#method=similarity&block=0")
    point(page, 3, 3)
    first = reading(page)
    assert "after block 0" in first
    page.locator("#block").fill("3")
    point(page, 3, 3)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("after block 3"))
    assert "method=similarity" in page.url


def test_similarity_by_keyboard_and_kept_by_a_click(visit: Visit) -> None:
    page = visit("#method=similarity")
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Similarity .* most like the patch in row 4, column 5: "))
    point(page, 1, 1)
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(5, 5)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Similarity .* most like the patch in row 1, column 1: "))
    assert "method=similarity" in page.url


# Importance


def test_every_head_is_switched_off_once(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=surgery")
    page.get_by_role("button", name="Measure every head").click()
    expect(page.locator(".importance-head")).to_have_count(12, timeout=30_000)
    own = look.ablate(look.watch(session.models[0], session.picture(0, session.given[0]["picture"])))
    labels = page.locator(".importance-head").evaluate_all("all => all.map((each) => each.getAttribute('aria-label'))")
    for label, change in zip(labels, own.heads.flatten(), strict=True):
        sign, number = re.findall(r": ([−+])([\d.]+) points", label)[0]
        assert (-1 if sign == "−" else 1) * float(number) == pytest.approx(100 * change, abs=0.51)
    least = np.unravel_index(own.heads.argmax(), own.heads.shape)
    page.locator("#removed").fill("1")
    page.locator("#removed").dispatch_event("change")
    expect(page.locator("#cut")).to_contain_text("1 part is off")
    assert f"off=h{least[0]}.{least[1]}" in page.url
    expect(page.locator(".importance-head[aria-pressed=true]")).to_have_count(1)
    expect(page.locator("#panel-surgery .scrubber + .reading")).to_have_text(re.compile("^1 of 12 heads off: confidence .* same answer "))
    clean(page)
    keep(page, "importance")


def test_the_grid_comes_in_the_background_and_can_be_stopped(visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from vitral.base.progress import track
    from vitral.web import session as module

    def slow(*_: object) -> dict[str, object]:
        for _ in track(range(400), "Switching off heads and blocks"):
            time.sleep(0.05)
        return {}

    monkeypatch.setattr(module, "importance", slow)
    page = visit("#view=surgery&target=4")
    page.get_by_role("button", name="Measure every head").click()
    expect(page.locator("#panel-surgery .row .small")).to_have_text(
        re.compile(r"Switching off heads and blocks … \d+.%, about \d+.s left"), timeout=10_000
    )
    page.get_by_role("switch", name="block 1", exact=True).click()  # all else goes on meanwhile
    expect(page.locator("#cut")).to_contain_text("1 part is off", timeout=10_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Measure every head")).to_be_visible()
    page.wait_for_function("() => fetch('/api/work').then((answer) => answer.json()).then((work) => work.total === null)", timeout=10_000)


# The pointer, the picture, the words


def test_the_wall_follows_the_pointer(visit: Visit, session: Session) -> None:
    page = visit()
    tile = ".thumb:nth-child(5) canvas"
    before = pixels(page, tile)
    point(page, 6, 1)
    expect(page.locator("#panel-wall > .small")).to_contain_text("for the patch in row 6, column 1")
    assert np.abs(pixels(page, tile) - before).max() > 20
    page.mouse.move(5, 5)
    expect(page.locator("#panel-wall > .small")).to_contain_text("for the class token")
    assert np.array_equal(pixels(page, tile), before)


def test_the_matrix_follows_the_pointer(visit: Visit) -> None:
    page = visit("#block=2&head=1")
    page.locator(".thumb[aria-pressed=true]").click()
    whole = pixels(page, "#enlarge-matrix")
    point(page, 3, 4, selector="#enlarge-map")
    expect(page.locator("#enlarge-text")).to_contain_text("where the patch in row 3, column 4 looks")
    marked = pixels(page, "#enlarge-matrix")
    row = 2 + 3 * 8 + 4
    assert np.array_equal(marked[row], whole[row])
    assert marked[row - 1].sum() < whole[row - 1].sum(), "the other rows step back"
    point(page, 10, 30, 66, 66, selector="#enlarge-matrix")
    expect(page.locator("#enlarge-text")).to_contain_text("where the patch in row 1, column 0 looks")


@pytest.mark.parametrize(("width", "height", "least"), [(1440, 900, 400), (1280, 800, 360), (2560, 1440, 760), (390, 844, 320)])
def test_the_picture_is_large(visit: Visit, width: int, height: int, least: int) -> None:
    page = visit()
    page.set_viewport_size({"width": width, "height": height})
    box = page.locator(CANVAS).bounding_box()
    assert box and box["width"] >= least and box["height"] <= height * 0.85
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [page.locator(selector).bounding_box() for selector in ("#opacity", "#lift", "#smooth", "#exact", "#plain")]
    for index, one in enumerate(boxes):
        for other in boxes[:index]:
            assert one and other
            beside = one["x"] >= other["x"] + other["width"] or other["x"] >= one["x"] + one["width"]
            assert beside or one["y"] >= other["y"] + other["height"] - 1 or other["y"] >= one["y"] + one["height"] - 1, "controls overlap"
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, label, button, li')].map((each) => parseFloat(getComputedStyle(each).fontSize))"
    )
    assert min(sizes) >= (14 if width > 2000 else 12)


def test_a_key_shows_the_plain_picture(visit: Visit) -> None:
    page = visit("#method=rollout")
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Rollout"))
    covered = pixels(page, CANVAS)
    point(page, 4, 4)
    page.keyboard.down("p")
    page.wait_for_timeout(200)
    plain = pixels(page, CANVAS)
    page.keyboard.up("p")
    page.mouse.move(5, 5)
    page.wait_for_timeout(200)
    assert np.abs(plain - covered).mean() > 10
    assert np.array_equal(pixels(page, CANVAS), covered)
    page.get_by_role("button", name="Plain picture").click()
    page.wait_for_timeout(200)
    assert np.array_equal(pixels(page, CANVAS), plain)
    page.locator("#predictions input").fill("pp")  # a letter stays a letter
    assert page.locator("#predictions input").input_value() == "pp"


def test_plain_words_first_exact_ones_on_demand(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(address + "#method=attention")
    page.wait_for_selector("body.ready")
    for row, column, words in (
        (0, 0, "the top-left corner"),
        (3, 4, "the middle"),
        (7, 3, "the lower part"),
        (2, 5, "the upper right"),
        (4, 7, "the right part"),
    ):
        point(page, row, column)
        expect(page.locator("#picture .reading")).to_have_text(re.compile(f"^Patch in {words} · .*looks most at the "))
    page.get_by_label("row numbers").check()
    point(page, 0, 0)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Patch in row 0, column 0 · "))
    page.reload()
    page.wait_for_selector("body.ready")
    expect(page.get_by_label("row numbers")).to_be_checked()
    context.close()


# Comparison


def test_two_models_at_the_same_size_with_the_same_head(paired: str, pair: Session, visit: Visit, keep: Keep) -> None:
    page = visit("#view=compare&block=1&head=2", at=paired)
    expect(page.locator("#panel-compare .bar")).to_have_count(5)
    for width in (1440, 2560, 1000, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(150)
        sizes = [page.locator(selector).bounding_box() for selector in (CANVAS, "#panel-compare canvas >> nth=0")]
        assert sizes[0] and sizes[1] and abs(sizes[0]["width"] - sizes[1]["width"]) <= 1, width
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.locator("#panel-compare .reading")).to_contain_text("block 1, head 2")
    page.get_by_role("button", name="Swap the two models").click()
    expect(page.locator("#models button").nth(1)).to_have_attribute("aria-pressed", "true")
    assert "block=1" in page.url and "head=2" in page.url, "the same head is kept"
    expect(page.locator("#picture .reading")).to_contain_text("block 1, head 2")
    clean(page)
    keep(page, "compare")


def test_the_difference_map_and_the_walls(paired: str, pair: Session, visit: Visit) -> None:
    page = visit("#view=compare&block=1&head=2", at=paired)
    expect(page.locator("#panel-compare figure, #panel-compare .wall-sheet")).to_have_count(2)
    key = pair.given[0]["picture"]
    maps = [
        look.watch(model, pair.picture(index, key)).attention(1)[0, 2, 0, model.config.prefix :].numpy() * 64
        for index, model in enumerate(pair.models)
    ]
    reach = max(np.abs(maps[1] - maps[0]).max(), 0.5)
    expect(page.locator("#panel-compare section .legend span").last).to_have_text(re.compile(r"^\+"))
    assert float(page.locator("#panel-compare section .legend span").last.inner_text()) == pytest.approx(reach, rel=0.05)
    before = pixels(page, ".wall-sheet")
    point(page, 6, 6)
    page.wait_for_timeout(300)
    assert np.abs(pixels(page, ".wall-sheet") - before).max() > 20, "the walls follow the pointer"
    page.locator(".wall-sheet").first.click(position={"x": 4, "y": 4})
    assert "block=0" in page.url and "head=0" in page.url


# Saving


def test_save_a_drawing(visit: Visit) -> None:
    page = visit("#block=2&head=1")
    page.locator("#save-as summary").click()
    with page.expect_download() as waiting:
        page.locator("#save-drawing").click()
    assert waiting.value.suggested_filename.endswith(".svg")
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert text.count("<rect") == 64 + 2 and "href='data:image/" in text and "block 2, head 1" in text
    other = page.context.new_page()
    other.goto("data:text/html,<body>")
    shown = other.evaluate(
        "async (src) => { const image = Object.assign(new Image(), { src }); await image.decode(); return [image.width, image.height] }",
        "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode(),
    )
    assert min(shown) > 0, "a browser reads it"


def test_save_a_clip(visit: Visit) -> None:
    page = visit("#block=3&head=1")
    page.locator("#save-as summary").click()
    with page.expect_download(timeout=30_000) as waiting:
        page.locator("#save-clip").click()
    content = Path(waiting.value.path()).read_bytes()
    assert waiting.value.suggested_filename.endswith(".webm") and content[:4] == b"\x1aE\xdf\xa3"
    assert "block=3" in page.url or "block" not in page.url, "afterwards all is as it was"
    other = page.context.new_page()
    other.goto("data:text/html,<body>")
    seconds, sums = other.evaluate(
        """async (url) => {
            const video = document.createElement("video");
            video.muted = true;
            video.src = url;
            const canvas = document.createElement("canvas");
            await new Promise((resolve, reject) => { video.onloadeddata = resolve; video.onerror = () => reject(video.error.message); });
            Object.assign(canvas, { width: video.videoWidth, height: video.videoHeight });
            const sums = [];
            const look = () => {
                const context = canvas.getContext("2d");
                context.drawImage(video, 0, 0);
                sums.push(context.getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value) => sum + value, 0));
            };
            const timer = setInterval(look, 100);
            await video.play();
            await new Promise((resolve) => (video.onended = resolve));
            clearInterval(timer);
            return [video.currentTime, sums];
        }""",
        "data:video/webm;base64," + base64.b64encode(content).decode(),
    )
    assert seconds > 1 and len({round(value, -4) for value in sums}) > 1, "it moves"


# The training


def test_the_training_has_a_scrubber(trained: Session, visit: Visit, keep: Keep) -> None:
    from vitral.study.film import measure

    with served(trained) as (address, _):
        page = visit(at=address)
        page.locator("#tab-training").click()
        expect(page.locator("#panel-training .headline")).to_have_text(re.compile("^Step 9: "), timeout=20_000)
        maps = []
        picture = trained.picture(0, trained.given[0]["picture"])
        target = int(look.watch(trained.models[0], picture).logits.argmax())
        for frame, (step, folder) in enumerate(trained.films[0]):
            page.locator("#step-slider").fill(str(frame))
            share = 100 * measure(load_checkpoint(folder), [picture], [target])["lens"][0, -1]
            told = page.locator("#panel-training .headline").inner_text()
            assert told.startswith(f"Step {step}: “{trained.models[0].origin.class_name(target)}” ")
            assert percentage(told) == pytest.approx(share, abs=0.51)
            maps.append(page.locator("#panel-training canvas").first.evaluate("each => each.toDataURL()"))
        assert len(set(maps)) == 3, "every moment has its own map"
        clean(page)
        keep(page, "training")


def test_without_snapshots_there_is_no_such_tab(visit: Visit) -> None:
    page = visit()
    expect(page.locator("#tab-training")).to_be_hidden()


# The exported page, and in a notebook


@pytest.fixture
def alone(browser: Browser) -> Iterator[Callable[[str], Page]]:
    """A page from a file, the network cut."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_offline(True)
    problems: list[str] = []

    def open_file(address: str) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page

    yield open_file
    assert problems == []
    context.close()


def test_the_exported_page_has_it_all(pair: Session, tmp_path: Path, alone: Callable[[str], Page], keep: Keep) -> None:
    page = alone(export_page(pair, tmp_path / "page.html").as_uri())
    page.wait_for_selector("body.ready")
    page.locator("#tab-depth").click()
    expect(page.locator("#panel-depth .headline")).to_have_text(re.compile("^After block 3: "))
    page.locator("#tab-similar").click()
    expect(page.locator("#panel-similar figcaption").nth(2)).to_have_text(re.compile(r"0\.\d\d|1\.00"))
    page.locator("#tab-surgery").click()
    expect(page.locator(".importance-head")).to_have_count(12)
    expect(page.locator("#panel-surgery .scrubber + .reading")).to_contain_text("run vitral explore")
    page.locator(".importance-head").nth(4).click()
    expect(page.locator("#cut")).to_contain_text("1 part is off")
    page.locator("#tab-compare").click()
    expect(page.locator(".wall-sheet")).to_have_count(2)
    expect(page.locator("#panel-compare section .legend span").last).to_have_text(re.compile(r"^\+"))
    keep(page, "exported-show")


def test_the_exported_training(trained: Session, tmp_path: Path, alone: Callable[[str], Page]) -> None:
    page = alone(export_page(trained, tmp_path / "page.html").as_uri() + "#view=training")
    page.wait_for_selector("body.ready")
    expect(page.locator("#panel-training .headline")).to_have_text(re.compile("^Step 9: "))
    page.locator("#step-slider").fill("0")
    expect(page.locator("#panel-training .headline")).to_have_text(re.compile("^Step 0: "))


def test_in_a_notebook_it_shows_itself(session: Session, tmp_path: Path, alone: Callable[[str], Page], keep: Keep) -> None:
    shown = explore(session.models[0], Image.open(io.BytesIO(painted(1))))
    cell = tmp_path / "notebook.html"
    cell.write_text(f"<!doctype html><title>notebook</title><div>{shown._repr_html_()}</div>", encoding="utf-8")
    page = alone(cell.as_uri())
    frame = page.frame_locator("iframe")
    expect(frame.locator(".thumb")).to_have_count(12, timeout=20_000)
    frame.locator("#tab-depth").click()  # the address of a frame cannot change, the view can
    expect(frame.locator("#panel-depth .headline")).to_have_text(re.compile("^After block 3: "))
    frame.locator("#save-as summary").click()
    with page.expect_download() as waiting:
        frame.locator("#save").click()
    assert waiting.value.suggested_filename.endswith(".png")
    assert (
        page.evaluate("(() => { try { return document.querySelector('iframe').contentWindow.document.title } catch { return 'apart' } })()")
        == "apart"
    )
    keep(page, "notebook")
    assert json.dumps(shown._repr_html_())
