"""The story in a real browser: scrolled through and touched, its numbers compared with those of the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.conftest import painted, served
from tests.browser.test_access import RULES

from vitral.build import create
from vitral.web.export import export_page
from vitral.web.pack import unpack
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
Keep = Callable[[Page, str], None]
STEPS = 7
LOOK = """() => {
    window.pictures = Array.from({ length: 7 }, () => new Set());
    const look = () => {
        document.querySelectorAll(".step").forEach((step, index) => {
            const { top, bottom } = step.getBoundingClientRect();
            const seen = window.pictures[index];
            if (top < innerHeight && bottom > 0 && seen.size < 4) seen.add(step.querySelector("canvas.scene").toDataURL());
        });
        requestAnimationFrame(look);
    };
    look();
}"""
"""Keeps the first few pictures that each step shows."""


@pytest.fixture
def told(session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return unpack(session.story(0, session.given[0]["picture"]))  # type: ignore[return-value]


@pytest.fixture
def calm(context: BrowserContext, visit: Visit) -> Visit:
    """The page for those who want no motion."""

    def open_page(hash: str = "", at: str | None = None) -> Page:
        context.on("page", lambda page: page.emulate_media(reduced_motion="reduce"))
        return visit(hash, at)

    return open_page


def step(page: Page, number: int) -> Any:
    return page.locator(".step").nth(number - 1)


def reading(page: Page, number: int) -> str:
    return step(page, number).locator(".story-reading").inner_text()


def go(page: Page, number: int) -> None:
    page.locator(".story-steps button").nth(number - 1).click()
    expect(page.locator(".story-steps [aria-current=step] b")).to_have_text(str(number))


def slide(page: Page, number: int, value: float) -> None:
    script = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })); }"
    step(page, number).locator("input[type=range]").evaluate(script, value)


def shares_of(
    told: tuple[dict[str, Any], dict[str, np.ndarray]], patch: int, head: int, sharpness: float = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and shares, written out."""
    header, sections = told
    at = header["heads"].index(head)
    query, key = sections["query"][at][header["prefix"] + patch].astype(float), sections["key"][at].astype(float)
    scores = key @ query / np.sqrt(header["head_width"])
    powers = np.exp(sharpness * (scores - scores.max()))
    return scores, powers / powers.sum()


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("\u00a0", ""))


def percent(share: float) -> str:
    return "<\u00a00.1\u00a0%" if 0 < share < 0.001 else f"{share * 100:.1f}\u00a0%"


def test_one_scrolls_through_seven_steps_that_move(visit: Visit, keep: Keep) -> None:
    page = visit()
    page.locator("#tell").click()
    expect(page.locator(".step")).to_have_count(STEPS)
    expect(page.locator("#work")).to_be_hidden()
    expect(page.locator("#save-as")).to_be_hidden()  # it saves what the explorer shows
    assert "view=story" in page.url
    page.evaluate(LOOK)
    page.mouse.move(640, 500)
    for number in range(1, STEPS + 1):
        for _ in range(60):
            if page.locator(".story-steps [aria-current=step] b").inner_text() == str(number):
                break
            page.mouse.wheel(0, 100)
            page.wait_for_timeout(30)
        expect(page.locator(".story-steps [aria-current=step] b")).to_have_text(str(number))
        expect(step(page, number).locator(".lead")).to_have_text(re.compile(r"^[A-Z].*\.$"))
        page.wait_for_function(f"() => window.pictures[{number - 1}].size > 2")  # it moves
    page.locator(".story-end button").click()
    expect(page.locator("#work")).to_be_visible()
    expect(page.locator("#tab-wall")).to_have_attribute("aria-selected", "true")


def test_a_patch_of_ones_own_goes_through_all_steps(calm: Visit, told: Any) -> None:
    header, sections = told
    page = calm("#view=story")
    row, column = divmod(header["patch_start"], 8)
    expect(step(page, 1).locator(".story-reading")).to_contain_text(
        f"row {row}, column {column}, counted from 0. 4 × 4 pixels × 3 colours = 48 numbers"
    )
    go(page, 1)
    box = step(page, 1).locator("canvas.scene").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 2.5 / 8, box["y"] + box["height"] * 5.5 / 8)
    expect(step(page, 1).locator(".story-reading")).to_contain_text("row 5, column 2")
    patch = 5 * 8 + 2
    assert f"token={header['prefix'] + patch}" in page.url
    first = header["numbers"][0]
    assert f"Pattern {first} in your patch: {sections['patches'][patch, first]:.2f}".replace("-", "−") in reading(page, 2)
    expect(step(page, 3).locator(".number-row").nth(1)).to_contain_text("row 5, column 2")
    scores, shares = shares_of(told, patch, header["head_start"])
    best = step(page, 5).locator(".share-list .number").first.inner_text()
    assert best == f"{scores[shares.argmax()]:.2f} → {percent(shares.max())}".replace("-", "−")


def test_patterns_and_places(calm: Visit, told: Any, session: Session) -> None:
    header, sections = told
    page = calm("#view=story")
    go(page, 2)
    step(page, 2).get_by_role("radio").nth(3).check(force=True)
    values = sections["patches"][:, header["numbers"][3]]
    mine = f"Pattern {header['numbers'][3]} in your patch: {values[header['patch_start']]:.2f}."
    assert reading(page, 2) == f"{mine} In all patches: from {values.min():.2f} to {values.max():.2f}.".replace("-", "−")
    go(page, 3)
    canvas = step(page, 3).locator("canvas.scene")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    shuffle = page.get_by_role("button", name="Shuffle the patches")
    shuffle.click()
    expect(shuffle).to_have_attribute("aria-pressed", "true")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before
    to = header["shuffle"]["order"].index(header["patch_start"])
    expect(step(page, 3).locator(".number-row").nth(1)).to_contain_text(f"row {to // 8}, column {to % 8}")
    (now, share), (mixed, other) = header["depth"][-1][0], header["shuffle"]["answer"][0]
    assert f"In order: class {now} ({percent(share)}). Shuffled: class {mixed} ({percent(other)})" in reading(page, 3)
    shuffle.click()
    assert canvas.evaluate("canvas => canvas.toDataURL()") == before


def test_question_key_and_score(calm: Visit, told: Any) -> None:
    header, sections = told
    page = calm("#view=story")
    go(page, 4)
    head, start, prefix, width = header["head_start"], header["patch_start"], header["prefix"], header["head_width"]
    scores, _ = shares_of(told, start, head)
    others = scores[prefix:].copy()
    others[start] = -np.inf
    best = int(others.argmax())
    assert f"The best answer of another patch: row {best // 8}, column {best % 8}." in reading(page, 4)
    canvas = step(page, 4).locator("canvas.scene")
    canvas.click(position={"x": 4, "y": 4})  # the top-left patch
    at = header["heads"].index(head)
    query, key = sections["query"][at][prefix + start], sections["key"][at][prefix]
    said = reading(page, 4)
    rank = 1 + int((scores[prefix:] > scores[prefix]).sum())
    assert f"The answer of row 0, column 0, number {rank} of 64 among the patches." in said
    found = re.search(r"\(?(−?[\d.]+)\)? × \(?(−?[\d.]+)\)? \+ .* \((\d+) products\) = (−?[\d.]+), divided by √(\d+): (−?[\d.]+)\.$", said)
    assert found
    first, second, count, match, root, score = map(number, found.groups())
    assert (first, second) == pytest.approx((query[0], key[0]), abs=0.006)
    assert count == root == width
    assert (match, score) == pytest.approx((float(query @ key), scores[prefix]), abs=0.02)
    canvas.hover(position={"x": 20, "y": 4})  # the mouse shows an answer, it keeps none
    page.get_by_role("button", name="Let it ask").hover()
    assert reading(page, 4) == said
    page.get_by_role("button", name="Let it ask").click()
    assert f"token={prefix}" in page.url
    expect(step(page, 1).locator(".story-reading")).to_contain_text("row 0, column 0")
    token = step(page, 4).get_by_role("button", name=re.compile("^class token: "))
    assert number(token.inner_text().split(": ")[1]) == pytest.approx(shares_of(told, 0, head)[0][0], abs=0.006)
    token.click()
    assert reading(page, 4).startswith("The answer of the class token.")
    expect(page.get_by_role("button", name="Let it ask")).to_be_disabled()
    other = next(each for each in header["heads"] if each != head)
    step(page, 4).locator("select").select_option(str(other))
    expected = shares_of(told, 0, other)[0][0]
    assert number(token.inner_text().split(": ")[1]) == pytest.approx(expected, abs=0.006)


def test_shares_and_mix(calm: Visit, told: Any, session: Session) -> None:
    header, sections = told
    page = calm("#view=story")
    go(page, 5)
    patch, head, tokens = header["patch_start"], header["head_start"], header["tokens"]
    for sharpness in (1, 2, 0.5):
        slide(page, 5, np.log2(sharpness))
        scores, shares = shares_of(told, patch, head, sharpness)
        order = np.argsort(-shares)[:6]
        listed = step(page, 5).locator(".share-list .number").all_inner_texts()
        assert listed == [f"{scores[token] * sharpness:.2f} → {percent(shares[token])}".replace("-", "−") for token in order]
        said = reading(page, 5)
        assert said.startswith("Not the model's own.") == (sharpness != 1)
        assert f"{(shares > 1 / tokens).sum()} of {tokens} get more than an even share" in said
    go(page, 6)
    _, shares = shares_of(told, patch, head)
    values, order = sections["value"][header["heads"].index(head)], np.argsort(-shares)
    for count in (5, tokens):
        slide(page, 6, count)
        taken = order[:count]
        mixed = (shares[taken, None] * values[taken]).sum(axis=0)
        said = reading(page, 6)
        assert f"{count} of {tokens} values hold {percent(shares[taken].sum())} of the attention." in said
        found = re.search(r"The mix begins (\S+), (\S+), (\S+) and", said)
        assert found
        assert list(map(number, found.groups())) == pytest.approx(mixed[:3].tolist(), abs=0.006)
    assert "is what your patch receives from this head" in said


def test_through_the_depth_to_a_class(calm: Visit, told: Any, keep: Keep) -> None:
    header, _ = told
    page = calm("#view=story")
    go(page, 7)
    for block in (0, 2, 3):
        slide(page, 7, block)
        answers = header["depth"][block + 1]
        assert step(page, 7).locator(".share-list .number").all_inner_texts() == [percent(share) for _, share in answers]
        assert step(page, 7).locator(".share-list .name").all_inner_texts() == [f"class {index}" for index, _ in answers]
    assert reading(page, 7).startswith(f"The answer: class {answers[0][0]} ({percent(answers[0][1])}).")
    found, notes = header["reason"], step(page, 7).locator(".story-notes")
    expect(notes).to_contain_text("Why a map is not a reason")
    expect(notes).to_contain_text(f"goes from {percent(found['before'])} to {percent(found['most'])};")
    expect(notes).to_contain_text(f"cover as many others at random, to {percent(found['random'])} on average")
    slide(page, 7, 1)
    expect(notes).not_to_contain_text("Why a map is not a reason")
    keep(page, "story")


def sink() -> Session:
    """One corner is made to please every query of the last block."""
    torch.manual_seed(0)
    model = create("tiny").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("mlp.fc2.weight", "attention.projection.weight")):
                parameter.zero_()
        model.positions.table.zero_()
        model.positions.table[0, 1, 0] = 300.0
        attention, width = model.blocks[1].attention, model.config.width
        attention.qkv.weight.zero_()
        attention.qkv.bias.zero_()
        attention.qkv.bias[:width] = 3.0
        attention.qkv.weight[width : 2 * width, 0] = 1.0
    session = Session({"sinking": model})
    session.give(painted(1), "first.png")
    return session


def test_what_is_said_is_said_only_where_it_was_measured(calm: Visit) -> None:
    parked = sink()
    header, _ = unpack(parked.story(0, parked.given[0]["picture"]))
    with served(parked) as (address, _):
        page = calm("#view=story", at=address)
        go(page, 7)
        slide(page, 7, 0)
        expect(step(page, 7).locator(".story-notes")).not_to_contain_text("Bright")
        slide(page, 7, 1)
        notes = step(page, 7).locator(".story-notes")
        share = sum(part for _, part in header["sinks"][1]["tokens"])
        expect(notes).to_contain_text(f"Bright corner. One patch gets {percent(share)} of all attention in this block, whoever asks.")
        expect(notes).to_contain_text(f"from {percent(header['covered']['before'])} to {percent(header['covered']['after'])}")
        assert all(each["distance"] >= 0.6 * each["even"] for each in header["local"].values())
        expect(page.locator("body")).not_to_contain_text("Why it looks so near")


def test_near_looks_are_explained_by_their_cause(calm: Visit) -> None:
    """Positions that speak louder than pixels make a head look near, shuffled or not."""
    torch.manual_seed(0)
    model = create("tiny", positions="sincos", class_token=False, pool="mean", heads=1).eval()
    width = model.config.width
    with torch.no_grad():
        model.patches.projection.weight.mul_(0.01)
        attention = model.blocks[0].attention
        attention.qkv.weight.zero_()
        attention.qkv.weight[:width] = attention.qkv.weight[width : 2 * width] = 5 * torch.eye(width)
    near = Session({"near": model})
    near.give(painted(1), "first.png")
    header, _ = unpack(near.story(0, near.given[0]["picture"]))
    found = header["local"][str(header["head_start"])]
    assert found["distance"] < 0.6 * found["even"], "as it was made"
    with served(near) as (address, _):
        page = calm("#view=story", at=address)
        notes = step(page, 5).locator(".story-notes")
        expect(notes).to_contain_text(f"this head looks {found['distance']:.{1 if found['distance'] < 10 else 0}f}\u00a0pixels away")
        expect(notes).to_contain_text("it is the place that decides")
        slide(page, 5, 1)
        expect(notes).not_to_contain_text("Why it looks so near")  # of a sharpness that is not the model's nothing was measured


def test_a_model_without_class_token_says_so(calm: Visit) -> None:
    changes = {"norm": "rms", "positions": "rotary", "qk_norm": True, "qkv_bias": False, "pool": "mean", "class_token": False}
    model = create("tiny", image_size=(16, 16), patch_size=(4, 4), stride=(2, 2), width=24, heads=3, **changes)
    own = Session({"modern": model})
    own.give(painted(1), "first.png")
    with served(own) as (address, _):
        page = calm("#view=story", at=address)
        expect(step(page, 1).locator(".lead")).to_contain_text("8 × 8 = 64 overlapping patches of 4 × 4 pixels")
        expect(step(page, 3).locator(".lead")).to_contain_text("turned by angles that stand for row and column")
        expect(step(page, 3).locator(".number-row")).to_have_count(0)
        expect(step(page, 7).locator(".lead")).to_contain_text("this model has no class token, the head reads the mean of all of them")
        assert "class token" not in step(page, 4).inner_text()


@pytest.mark.parametrize(
    ("changes", "title", "lead"),
    [
        ({"classes": 0}, "Block by block, to a vector", "its vector is what the model gives out."),
        ({"classes": 1, "positions": "none"}, "Block by block, to a number", "the head reads it alone and says"),
        ({"registers": 2}, "Block by block, to a class", "the head reads it alone and says class"),
    ],
)
def test_models_that_end_otherwise(calm: Visit, changes: dict[str, Any], title: str, lead: str) -> None:
    own = Session({"other": create("tiny", **changes)})
    own.give(painted(1), "first.png")
    with served(own) as (address, _):
        page = calm("#view=story", at=address)
        expect(step(page, 7).locator("h2")).to_have_text(title)
        expect(step(page, 7).locator(".lead")).to_contain_text(lead)
        if changes.get("positions") == "none":
            expect(step(page, 3).locator(".story-reading")).to_contain_text("the order of patches does not exist")
        if changes.get("registers"):
            expect(step(page, 4).locator(".lead")).to_contain_text(
                "all patches and 3 more tokens (class token, register 0, register 1) hold out their keys"
            )


def test_a_rival_has_no_story_and_the_page_says_why(visit: Visit) -> None:
    page = visit("#model=1")
    expect(page.locator("#tell")).to_have_attribute("aria-disabled", "true")
    page.locator("#tell").click(force=True)
    expect(page.locator("#toast")).to_contain_text("a cnn has none")
    assert "view=story" not in page.url
    page = visit("#model=1&view=story")
    expect(page.locator("#story")).to_contain_text("a cnn has none")
    page.locator("#models button").first.click()
    expect(page.locator(".step")).to_have_count(STEPS)


def test_back_and_other_pictures(calm: Visit) -> None:
    page = calm("#view=surgery&off=b1")
    page.locator("#tell").click()
    expect(page.locator(".story-head .notice")).to_contain_text("The story is of the whole model")
    expect(page.locator(".story-head h2")).to_contain_text("first.png")
    page.locator("#pictures .chip").nth(1).click()
    expect(page.locator(".story-head h2")).to_contain_text("second.png")
    page.go_back()
    expect(page.locator(".story-head h2")).to_contain_text("first.png")
    page.locator("#tell").click()
    expect(page.locator("#tab-surgery")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.locator(".step")).to_have_count(STEPS)
    refuse = '{"error": "this is no picture", "hint": ""}'
    page.route(re.compile(r"/trace(\?|$)"), lambda route: route.fulfill(status=422, content_type="application/json", body=refuse))
    page.reload()
    expect(page.locator("#failed")).to_be_visible()
    expect(page.locator("#story")).to_be_hidden()


def test_a_story_that_takes_long_can_be_left(calm: Visit, session: Session) -> None:
    page = calm()
    waiting: list[Any] = []
    gone: list[str] = []
    page.route(re.compile("/story$"), lambda route: waiting.append(route))  # and no answer
    page.route(re.compile("/api/work$"), lambda route: route.fulfill(json={"done": 3, "total": 10, "seconds": 9}))
    page.on("requestfailed", lambda request: gone.append(request.url))
    page.locator("#tell").click()
    expect(page.locator("#story")).to_contain_text("Following your picture through the model … 30\u00a0%")
    page.locator("#tell").click()
    expect(page.locator("#work")).to_be_visible()
    page.wait_for_timeout(300)
    assert [url.rsplit("/", 1)[1] for url in gone] == ["story"], "the server hears that nobody waits"
    page.unroute(re.compile("/story$"))
    page.locator("#tell").click()
    expect(page.locator(".step")).to_have_count(STEPS)


def test_by_keyboard(calm: Visit, told: Any) -> None:
    header, _ = told
    page = calm()
    page.locator("#tell").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".step")).to_have_count(STEPS)
    page.locator(".story-steps button").nth(3).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#story-step-4")).to_be_focused()
    step(page, 1).locator("canvas.scene").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(step(page, 1).locator(".story-reading")).to_contain_text("row 1, column 0")
    expect(page.locator("#announcer")).to_contain_text("row 1, column 0")
    step(page, 4).locator("canvas.scene").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert reading(page, 4).startswith("The answer of row 0, column 1")
    page.keyboard.press("Enter")
    expect(step(page, 1).locator(".story-reading")).to_contain_text("row 0, column 1")
    step(page, 7).locator("input[type=range]").focus()
    page.keyboard.press("Home")
    expect(step(page, 7).locator("output")).to_have_text("0 (of 0 to 3)")
    step(page, 2).get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")
    assert reading(page, 2).startswith(f"Pattern {header['numbers'][1]} ")


def test_the_mark_follows_up_and_down(visit: Visit) -> None:
    page = visit("#view=story")
    for number in (5, 3, 7, 1):
        page.locator(".story-steps button").nth(number - 1).click()
        page.wait_for_timeout(1500)  # it scrolls by itself
        assert page.locator(".story-steps [aria-current=step] b").all_inner_texts() == [str(number)]


def test_who_wants_no_motion_gets_none(calm: Visit) -> None:
    page = calm("#view=story")
    for index in (1, 3, 5, 6, 7):
        go(page, index)
        page.wait_for_timeout(60)
        canvas = step(page, index).locator("canvas.scene")
        frames = set()
        for _ in range(5):
            frames.add(canvas.evaluate("canvas => canvas.toDataURL()"))
            page.wait_for_timeout(60)
        assert len(frames) == 1, index
    expect(step(page, 7).locator("output")).to_have_text("3 (of 0 to 3)")


def test_in_the_systems_own_colours_choices_can_be_told_apart(calm: Visit) -> None:
    page = calm("#view=story")
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    expect(page.locator(".step")).to_have_count(STEPS)
    script = (
        "selector => { const style = getComputedStyle(document.querySelector(selector)); return [style.outlineStyle, style.outlineWidth]; }"
    )
    for chosen, other in (
        (".patterns label:has(:checked)", ".patterns label:not(:has(:checked))"),
        (".story-steps [aria-current]", ".story-steps button:not([aria-current])"),
    ):
        assert page.evaluate(script, chosen) == ["solid", "3px"] != page.evaluate(script, other)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(calm: Visit, width: int, scheme: str, keep: Keep) -> None:
    page = calm("#view=story&off=b1")
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    expect(page.locator(".step")).to_have_count(STEPS)
    page.wait_for_timeout(300)
    answer = Axe().run(page, options=RULES).response
    assert len(answer["passes"]) > 20, "it has looked"
    assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in answer["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing lies beside the screen"
    if width == 390:
        lead, scene, touch = (step(page, 1).locator(part).bounding_box() for part in (".lead", "canvas.scene", ".touch"))
        assert lead["y"] < scene["y"] < touch["y"], "sentence, picture, what to touch"
    keep(page, f"story-{width}-{scheme}")


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = Session({"tiny-vit": session.models[0], "small-cnn": session.models[1]})
    own.give(session._given_bytes[session.given[0]["picture"]], "first.png")
    return export_page(own, tmp_path_factory.mktemp("story") / "page.html")


@pytest.fixture
def exported(browser: Browser, file: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_offline(True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(file.as_uri() + "#view=story")
    page.wait_for_selector("body.ready", timeout=30_000)
    yield page
    assert problems == []
    context.close()


def test_the_story_ships_in_the_export(exported: Page, calm: Visit) -> None:
    live = calm("#view=story")
    for page in (live, exported):
        expect(page.locator(".step")).to_have_count(STEPS)
        page.get_by_role("button", name="Shuffle the patches").click()
        step(page, 4).locator("canvas.scene").click(position={"x": 4, "y": 4})
        slide(page, 6, 3)
        slide(page, 7, 1)
    for index in range(1, STEPS + 1):
        assert step(exported, index).locator(".words").inner_text() == step(live, index).locator(".words").inner_text()
    exported.locator("#models button").nth(1).click()
    expect(exported.locator("#story")).to_contain_text("a cnn has none")
