"""What people will show each other: depth, similarity, importance, comparison, saving, the training, and the page in a notebook."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect
from tests.browser.conftest import painted, served
from tests.browser.explorer import Explorer, words
from tests.study.test_film import make_run

import vitral
from vitral import look
from vitral.build import create
from vitral.web.answers import ANSWERS
from vitral.web.export import export_page
from vitral.web.notebook import explore
from vitral.web.session import Session
from vitral.weights.checkpoint import load_checkpoint

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]
Keep = Callable[[Explorer, str], None]


@pytest.fixture(scope="module")
def pair(session: Session) -> Session:
    """Two transformers with different numbers of heads and prefix tokens, two pictures."""
    other = create("tiny", depth=4)
    pair = Session({"one-vit": session.models[0], "other-vit": other})
    for entry in session.initial:
        pair.add_initial(session.content(entry["picture"]), entry["name"])
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
    session.add_initial(out.getvalue(), "digit.png")
    return session


def percentage(text: str) -> float:
    """The last one of a sentence."""
    return float(re.findall(r"([\d.]+).%", text)[-1])


# Prediction by depth


def test_the_head_is_read_at_every_block(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=depth&block=1")
    key = session.initial[0]["picture"]
    own = look.lens(look.watch(session.models[0], session.picture(0, key)))
    for depth in (2, 4, 0):
        page.depth_slider.fill(str(depth))
        index = int(own.answers[depth])
        verdict = page.depth_headline
        expect(verdict).to_have_text(words.begins(f"{words.after(depth - 1)}: {re.escape(own.class_names[index])}, "))
        assert percentage(verdict.inner_text()) == pytest.approx(100 * own.probabilities[depth, index], abs=0.51)
        expect(page.depth_names.first).to_have_text(own.class_names[index])
        if depth:
            expect(page.block_number).to_have_text(str(depth - 1))
    page.depth_slider.fill("4")
    page.depth_canvas.scroll_into_view_if_needed()
    page.point(2, 5, on=page.depth_canvas)
    name = re.escape(own.class_names[int(own.patches[4, 2, 5].argmax())])
    expect(page.depth_reading).to_have_text(words.begins(f"{words.the_patch(2, 5)} says {name}, "))
    assert page.faults() == []
    keep(page, "depth")


def test_play_runs_through_the_depth(visit: Visit) -> None:
    page = visit("#view=depth&block=0")
    page.panel("depth").get_by_role("button", name=words.PLAY).click()
    expect(page.depth_headline).to_have_text(words.begins(words.after(3)), timeout=10_000)
    expect(page.panel("depth").get_by_role("button", name=words.PLAY)).to_be_visible(timeout=5_000)


def test_a_rival_has_no_depth_to_read(visit: Visit) -> None:
    page = visit("#view=depth&model=1")
    expect(page.depth_empty).to_have_text(words.begins("A cnn has no class token"))


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
    page.show("similar")
    expect(page.similar_maps).to_have_count(3)  # one beside the picture, and both in the other model
    keys = tuple(entry["picture"] for entry in pair.initial)
    asked: list[str] = []
    expect(page.similar_captions.nth(2)).to_have_text(re.compile("row"))
    page.on("request", lambda request: asked.append(request.url))
    for row, column in ((1, 6), (5, 2)):
        page.point(row, column)
        own = look.similarity(look.watch(pair.models[0], pair.picture(0, keys[0])), start=(row, column)).grid.copy()
        own[row, column] = -2
        best = np.unravel_index(own.argmax(), own.shape)
        expect(page.reading).to_have_text(re.compile(rf"{words.most_like(row, column)}: {words.place(*best)} \({own.max():.2f}"))
        for place, (model, other) in enumerate(((0, keys[1]), (1, keys[0]), (1, keys[1]))):
            grid = cosines(pair, model, (keys[0], other), (row, column))
            if other == keys[0]:
                grid[row, column] = -2
            best = np.unravel_index(grid.argmax(), grid.shape)
            caption = page.similar_captions.nth(place)
            expect(caption).to_have_text(re.compile(f": {words.place(*best)}, "))
            assert float(caption.inner_text().split()[-1]) == pytest.approx(grid.max(), abs=0.02)
    assert asked == [], "hovering asks nobody"
    assert page.faults() == []
    keep(page, "similar")


def test_and_back_from_the_other_picture(paired: str, pair: Session, visit: Visit) -> None:
    page = visit(at=paired)
    page.show("similar")
    expect(page.similar_captions.first).to_have_text(re.compile("row"))
    keys = tuple(entry["picture"] for entry in pair.initial)
    page.point(6, 3, on=page.similar_canvases)
    grid = cosines(pair, 0, (keys[1], keys[0]), (6, 3))
    best = np.unravel_index(grid.argmax(), grid.shape)
    expect(page.reading).to_have_text(re.compile(f"{words.LIKE_YOUR_PLACE}: {words.place(*best)} "))


def test_similarity_is_of_a_block(visit: Visit, session: Session) -> None:
    page = visit("#method=similarity&block=0")
    page.point(3, 3)
    first = page.text()
    assert words.after(0).lower() in first
    page.block.fill("3")
    page.point(3, 3)
    expect(page.reading).to_have_text(re.compile(words.after(3).lower()))
    assert "method=similarity" in page.url


def test_similarity_by_keyboard_and_kept_by_a_click(visit: Visit) -> None:
    page = visit("#method=similarity")
    page.canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(page.reading).to_have_text(re.compile(f"^Similarity .* {words.most_like(4, 5)}: "))
    page.point(1, 1)
    page.mouse.down()
    page.mouse.up()
    page.point_nowhere()
    expect(page.reading).to_have_text(re.compile(f"^Similarity .* {words.most_like(1, 1)}: "))
    assert "method=similarity" in page.url


# Importance


def test_every_head_is_switched_off_once(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=surgery")
    page.button(words.MEASURE).click()
    expect(page.important_heads).to_have_count(12, timeout=30_000)
    own = look.ablate(look.watch(session.models[0], session.picture(0, session.initial[0]["picture"])))
    expect(page.panel("surgery")).to_contain_text(words.MEAN_OF_DRAWS)
    labels = page.important_heads.evaluate_all("all => all.map((each) => each.getAttribute('aria-label'))")
    for label, change in zip(labels, own.heads.flatten(), strict=True):
        sign, number = re.findall(r": ([−+])([\d.]+) points", label)[0]
        assert (-1 if sign == "−" else 1) * float(number) == pytest.approx(100 * change, abs=0.51)
    least = np.unravel_index(own.heads.argmax(), own.heads.shape)
    page.removed.fill("1")
    page.removed.dispatch_event("change")
    expect(page.cut).to_contain_text(words.off(1))
    assert f"off=h{least[0]}.{least[1]}" in page.url
    expect(page.removed_heads).to_have_count(1)
    expect(page.removed_reading).to_have_text(re.compile(words.ONE_OF_12_OFF))
    assert page.faults() == []
    keep(page, "importance")


def test_the_grid_comes_in_the_background_and_can_be_stopped(visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from vitral.base.progress import track

    def slow(*_: object) -> bytes:
        for _ in track(range(400), "Switching off heads and blocks"):
            time.sleep(0.05)
        return b""

    monkeypatch.setitem(ANSWERS, "importance", dataclasses.replace(ANSWERS["importance"], make=slow))
    page = visit("#view=surgery&target=4")
    page.button(words.MEASURE).click()
    expect(page.measuring).to_have_text(words.MEASURING, timeout=10_000)
    page.switch(1).click()  # all else goes on meanwhile
    expect(page.cut).to_contain_text(words.off(1), timeout=10_000)
    page.button(words.STOP).click()
    expect(page.button(words.MEASURE)).to_be_visible()
    page.wait_for_function("() => fetch('/api/work').then((answer) => answer.json()).then((work) => work.total === null)", timeout=10_000)


# The pointer, the picture, the words


def test_the_wall_follows_the_pointer(visit: Visit, session: Session) -> None:
    page = visit()
    tile = page.tile_canvases.nth(4)
    before = page.pixels(tile)
    page.point(6, 1)
    expect(page.wall_note).to_contain_text(f"for {words.the_patch(6, 1).lower()}")
    assert np.abs(page.pixels(tile) - before).max() > 20
    page.point_nowhere()
    expect(page.wall_note).to_contain_text(f"for {words.PREFIX[0]}")
    assert np.array_equal(page.pixels(tile), before)


def test_the_matrix_follows_the_pointer(visit: Visit) -> None:
    page = visit("#block=2&head=1")
    page.chosen_tile.click()
    whole = page.pixels(page.enlarged_matrix)
    page.point(3, 4, on=page.enlarged_map)
    expect(page.enlarged_text).to_contain_text(f"where {words.the_patch(3, 4).lower()} looks")
    marked = page.pixels(page.enlarged_matrix)
    row = 2 + 3 * 8 + 4
    assert np.array_equal(marked[row], whole[row])
    assert marked[row - 1].sum() < whole[row - 1].sum(), "the other rows step back"
    page.point(10, 30, 66, 66, on=page.enlarged_matrix)
    expect(page.enlarged_text).to_contain_text(f"where {words.the_patch(1, 0).lower()} looks")


@pytest.mark.parametrize(("width", "height", "least"), [(1440, 900, 400), (1280, 800, 360), (2560, 1440, 760), (390, 844, 320)])
def test_the_picture_is_large(visit: Visit, width: int, height: int, least: int) -> None:
    page = visit()
    page.set_viewport_size({"width": width, "height": height})
    box = page.canvas.bounding_box()
    assert box and box["width"] >= least and box["height"] <= height * 0.85
    assert page.width() <= width
    boxes = [control.bounding_box() for control in (page.opacity, page.lift, page.smooth, page.exact, page.plain)]
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
    expect(page.reading).to_have_text(words.begins("Rollout"))
    covered = page.pixels()
    page.point(4, 4)
    page.keyboard.down("p")
    page.wait_for_timeout(200)
    plain = page.pixels()
    page.keyboard.up("p")
    page.point_nowhere()
    page.wait_for_timeout(200)
    assert np.abs(plain - covered).mean() > 10
    assert np.array_equal(page.pixels(), covered)
    page.button(words.PLAIN).click()
    page.wait_for_timeout(200)
    assert np.array_equal(page.pixels(), plain)
    page.class_search.fill("pp")  # a letter stays a letter
    assert page.class_search.input_value() == "pp"


def test_plain_words_first_exact_ones_on_demand(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = Explorer(context.new_page())
    page.goto(address + "#method=attention")
    page.ready()
    for (row, column), place in words.PLACES.items():
        page.point(row, column)
        expect(page.reading).to_have_text(words.begins(f"Patch in {place} · .*{words.LOOKS_AT} the "))
    page.row_numbers().check()
    page.point(0, 0)
    expect(page.reading).to_have_text(words.begins(f"{words.of_patch(0, 0)} · "))
    page.reload()
    page.ready()
    expect(page.row_numbers()).to_be_checked()
    context.close()


# Comparison


def test_two_models_at_the_same_size_with_the_same_head(paired: str, pair: Session, visit: Visit, keep: Keep) -> None:
    page = visit("#view=compare&block=1&head=2", at=paired)
    expect(page.other_bars).to_have_count(5)
    for width in (1440, 2560, 1000, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(150)
        sizes = [canvas.first.bounding_box() for canvas in (page.canvas, page.other_canvases)]
        assert sizes[0] and sizes[1] and abs(sizes[0]["width"] - sizes[1]["width"]) <= 1, width
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.other_reading).to_contain_text(words.head(1, 2))
    page.button(words.SWAP).click()
    expect(page.models.nth(1)).to_have_attribute("aria-pressed", "true")
    assert "block=1" in page.url and "head=2" in page.url, "the same head is kept"
    expect(page.reading).to_contain_text(words.head(1, 2))
    assert page.faults() == []
    keep(page, "compare")


def test_the_difference_map_and_the_walls(paired: str, pair: Session, visit: Visit) -> None:
    page = visit("#view=compare&block=1&head=2", at=paired)
    expect(page.other_drawings).to_have_count(2)
    key = pair.initial[0]["picture"]
    maps = [
        look.watch(model, pair.picture(index, key)).attention(1)[0, 2, 0, model.config.prefix :].numpy() * 64
        for index, model in enumerate(pair.models)
    ]
    reach = max(np.abs(maps[1] - maps[0]).max(), 0.5)
    expect(page.difference_scale.last).to_have_text(re.compile(r"^\+"))
    assert float(page.difference_scale.last.inner_text()) == pytest.approx(reach, rel=0.05)
    before = page.pixels(page.both_walls)
    page.point(6, 6)
    page.wait_for_timeout(300)
    assert np.abs(page.pixels(page.both_walls) - before).max() > 20, "the walls follow the pointer"
    page.both_walls.first.click(position={"x": 4, "y": 4})
    assert "block=0" in page.url and "head=0" in page.url


# Saving


def test_save_a_drawing(visit: Visit) -> None:
    page = visit("#block=2&head=1")
    download = page.saved(page.save_drawing)
    assert download.suggested_filename.endswith(".svg")
    text = Path(download.path()).read_text(encoding="utf-8")
    assert text.count("<rect") == 64 + 2 and "href='data:image/" in text and words.head(2, 1) in text
    other = page.context.new_page()
    other.goto("data:text/html,<body>")
    shown = other.evaluate(
        "async (src) => { const image = Object.assign(new Image(), { src }); await image.decode(); return [image.width, image.height] }",
        "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode(),
    )
    assert min(shown) > 0, "a browser reads it"


def test_save_a_clip(visit: Visit) -> None:
    page = visit("#block=3&head=1")
    download = page.saved(page.save_clip)
    content = Path(download.path()).read_bytes()
    assert download.suggested_filename.endswith(".webm") and content[:4] == b"\x1aE\xdf\xa3"
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
        page.show("training")
        expect(page.moment).to_have_text(words.begins(words.at_step(9)), timeout=20_000)
        maps = []
        picture = trained.picture(0, trained.initial[0]["picture"])
        target = int(look.watch(trained.models[0], picture).logits.argmax())
        for frame, (step, folder) in enumerate(trained.films[0]):
            page.moment_slider.fill(str(frame))
            share = 100 * measure(load_checkpoint(folder), [picture], [target])["lens"][0, -1]
            told = page.moment.inner_text()
            assert told.startswith(f"{words.at_step(step)}“{trained.models[0].origin.class_name(target)}” ")
            assert percentage(told) == pytest.approx(share, abs=0.51)
            maps.append(page.moment_canvas.first.evaluate("each => each.toDataURL()"))
        assert len(set(maps)) == 3, "every moment has its own map"
        assert page.faults() == []
        keep(page, "training")


def test_without_snapshots_there_is_no_such_tab(visit: Visit) -> None:
    page = visit()
    expect(page.tab("training")).to_be_hidden()


# The exported page, and in a notebook


@pytest.fixture
def alone(browser: Browser) -> Iterator[Callable[[str], Explorer]]:
    """A page from a file, the network cut."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_offline(True)
    problems: list[str] = []

    def open_file(address: str) -> Explorer:
        page = Explorer(context.new_page())
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page

    yield open_file
    assert problems == []
    context.close()


def test_the_exported_page_has_it_all(pair: Session, tmp_path: Path, alone: Callable[[str], Explorer], keep: Keep) -> None:
    page = alone(export_page(pair, tmp_path / "page.html").as_uri())
    page.ready()
    page.show("depth")
    expect(page.depth_headline).to_have_text(words.begins(f"{words.after(3)}: "))
    page.show("similar")
    expect(page.similar_captions.nth(2)).to_have_text(re.compile(r"0\.\d\d|1\.00"))
    page.show("surgery")
    expect(page.important_heads).to_have_count(12)
    expect(page.removed_reading).to_contain_text(words.RUN_EXPLORE)
    page.important_heads.nth(4).click()
    expect(page.cut).to_contain_text(words.off(1))
    page.show("compare")
    expect(page.both_walls).to_have_count(2)
    expect(page.difference_scale.last).to_have_text(re.compile(r"^\+"))
    keep(page, "exported-show")


def test_the_exported_training(trained: Session, tmp_path: Path, alone: Callable[[str], Explorer]) -> None:
    page = alone(export_page(trained, tmp_path / "page.html").as_uri() + "#view=training")
    page.ready()
    expect(page.moment).to_have_text(words.begins(words.at_step(9)))
    page.moment_slider.fill("0")
    expect(page.moment).to_have_text(words.begins(words.at_step(0)))


def test_in_a_notebook_it_shows_itself(session: Session, tmp_path: Path, alone: Callable[[str], Explorer], keep: Keep) -> None:
    shown = explore(session.models[0], Image.open(io.BytesIO(painted(1))))
    cell = tmp_path / "notebook.html"
    cell.write_text(f"<!doctype html><title>notebook</title><div>{shown._repr_html_()}</div>", encoding="utf-8")
    page = alone(cell.as_uri())
    frame = page.in_frame()
    expect(frame.tiles).to_have_count(12, timeout=20_000)
    frame.show("depth")  # the address of a frame cannot change, the view can
    expect(frame.depth_headline).to_have_text(words.begins(f"{words.after(3)}: "))
    assert frame.saved(frame.save_image).suggested_filename.endswith(".png")
    assert (
        page.evaluate("(() => { try { return document.querySelector('iframe').contentWindow.document.title } catch { return 'apart' } })()")
        == "apart"
    )
    keep(page, "notebook")
    assert json.dumps(shown._repr_html_())
