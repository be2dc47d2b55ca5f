"""The story in a real browser: scrolled through and touched, its numbers compared with those of the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, expect
from tests.browser.conftest import opened, painted, served
from tests.browser.explorer import STEPS, Explorer, words

from vitral.build import create
from vitral.web.export import export_page
from vitral.web.pack import unpack
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]
Keep = Callable[[Explorer, str], None]


@pytest.fixture
def told(session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return unpack(session.answer("story", 0, session.initial[0]["picture"]))  # type: ignore[return-value]


@pytest.fixture
def calm(context: BrowserContext, visit: Visit) -> Visit:
    """The page for those who want no motion."""

    def open_page(hash: str = "", at: str | None = None) -> Explorer:
        context.on("page", lambda page: page.emulate_media(reduced_motion="reduce"))
        return visit(hash, at)

    return open_page


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
    page.tell.click()
    expect(page.steps).to_have_count(STEPS)
    expect(page.work).to_be_hidden()
    expect(page.save_menu).to_be_hidden()  # it saves what the explorer shows
    assert "view=story" in page.url
    page.watch_scenes()
    page.mouse.move(640, 500)
    for number in range(1, STEPS + 1):
        for _ in range(60):
            if page.current_mark.inner_text() == str(number):
                break
            page.mouse.wheel(0, 100)
            page.wait_for_timeout(30)
        expect(page.current_mark).to_have_text(str(number))
        expect(page.step(number).lead).to_have_text(re.compile(r"^[A-Z].*\.$"))
        page.wait_for_motion(number)
    page.story_end.click()
    expect(page.work).to_be_visible()
    expect(page.tab("wall")).to_have_attribute("aria-selected", "true")


def test_a_patch_of_ones_own_goes_through_all_steps(calm: Visit, told: Any) -> None:
    header, sections = told
    page = calm("#view=story")
    row, column = divmod(header["patch_start"], 8)
    expect(page.step(1).reading).to_contain_text(words.patch_of_48_numbers(row, column))
    page.go_to_step(1)
    page.click_patch(5, 2, on=page.step(1).scene)
    expect(page.step(1).reading).to_contain_text(words.place(5, 2))
    patch = 5 * 8 + 2
    assert f"token={header['prefix'] + patch}" in page.url
    first = header["numbers"][0]
    assert words.pattern(first, sections["patches"][patch, first]).replace("-", "−") in page.step(2).text()
    expect(page.step(3).number_rows.nth(1)).to_contain_text(words.place(5, 2))
    scores, shares = shares_of(told, patch, header["head_start"])
    best = page.step(5).shares.first.inner_text()
    assert best == f"{scores[shares.argmax()]:.2f} → {percent(shares.max())}".replace("-", "−")


def test_patterns_and_places(calm: Visit, told: Any, session: Session) -> None:
    header, sections = told
    page = calm("#view=story")
    page.go_to_step(2)
    page.step(2).get_by_role("radio").nth(3).check(force=True)
    values = sections["patches"][:, header["numbers"][3]]
    mine = words.pattern(header["numbers"][3], values[header["patch_start"]])
    assert page.step(2).text() == f"{mine}. {words.in_all(values.min(), values.max())}"
    page.go_to_step(3)
    canvas = page.step(3).scene
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    shuffle = page.button(words.SHUFFLE)
    shuffle.click()
    expect(shuffle).to_have_attribute("aria-pressed", "true")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before
    to = header["shuffle"]["order"].index(header["patch_start"])
    expect(page.step(3).number_rows.nth(1)).to_contain_text(words.place(to // 8, to % 8))
    (now, share), (mixed, other) = header["depth"][-1][0], header["shuffle"]["answer"][0]
    assert words.shuffled(now, percent(share), mixed, percent(other)) in page.step(3).text()
    shuffle.click()
    assert canvas.evaluate("canvas => canvas.toDataURL()") == before


def test_question_key_and_score(calm: Visit, told: Any) -> None:
    header, sections = told
    page = calm("#view=story")
    page.go_to_step(4)
    head, start, prefix, width = header["head_start"], header["patch_start"], header["prefix"], header["head_width"]
    scores, _ = shares_of(told, start, head)
    others = scores[prefix:].copy()
    others[start] = -np.inf
    best = int(others.argmax())
    assert words.best_answer(best // 8, best % 8) in page.step(4).text()
    canvas = page.step(4).scene
    canvas.click(position={"x": 4, "y": 4})  # the top-left patch
    at = header["heads"].index(head)
    query, key = sections["query"][at][prefix + start], sections["key"][at][prefix]
    said = page.step(4).text()
    rank = 1 + int((scores[prefix:] > scores[prefix]).sum())
    assert words.ranked_answer(rank) in said
    found = re.search(words.PRODUCTS, said)
    assert found
    first, second, count, match, root, score = map(number, found.groups())
    assert (first, second) == pytest.approx((query[0], key[0]), abs=0.006)
    assert count == root == width
    assert (match, score) == pytest.approx((float(query @ key), scores[prefix]), abs=0.02)
    canvas.hover(position={"x": 20, "y": 4})  # the mouse shows an answer, it keeps none
    page.button(words.LET_IT_ASK).hover()
    assert page.step(4).text() == said
    page.button(words.LET_IT_ASK).click()
    assert f"token={prefix}" in page.url
    expect(page.step(1).reading).to_contain_text(words.place(0, 0))
    token = page.step(4).get_by_role("button", name=words.begins("class token: "))
    assert number(token.inner_text().split(": ")[1]) == pytest.approx(shares_of(told, 0, head)[0][0], abs=0.006)
    token.click()
    assert page.step(4).text().startswith(words.answer_of(words.PREFIX[0]))
    expect(page.button(words.LET_IT_ASK)).to_be_disabled()
    other = next(each for each in header["heads"] if each != head)
    page.step(4).heads.select_option(str(other))
    expected = shares_of(told, 0, other)[0][0]
    assert number(token.inner_text().split(": ")[1]) == pytest.approx(expected, abs=0.006)


def test_shares_and_mix(calm: Visit, told: Any, session: Session) -> None:
    header, sections = told
    page = calm("#view=story")
    page.go_to_step(5)
    patch, head, tokens = header["patch_start"], header["head_start"], header["tokens"]
    for sharpness in (1, 2, 0.5):
        page.step(5).slide(np.log2(sharpness))
        scores, shares = shares_of(told, patch, head, sharpness)
        order = np.argsort(-shares)[:6]
        listed = page.step(5).shares.all_inner_texts()
        assert listed == [f"{scores[token] * sharpness:.2f} → {percent(shares[token])}".replace("-", "−") for token in order]
        said = page.step(5).text()
        assert said.startswith(words.NOT_ITS_OWN) == (sharpness != 1)
        assert words.more_than_even((shares > 1 / tokens).sum(), tokens) in said
    page.go_to_step(6)
    _, shares = shares_of(told, patch, head)
    values, order = sections["value"][header["heads"].index(head)], np.argsort(-shares)
    for count in (5, tokens):
        page.step(6).slide(count)
        taken = order[:count]
        mixed = (shares[taken, None] * values[taken]).sum(axis=0)
        said = page.step(6).text()
        assert words.values_hold(count, tokens, percent(shares[taken].sum())) in said
        found = re.search(r"The mix begins (\S+), (\S+), (\S+) and", said)
        assert found
        assert list(map(number, found.groups())) == pytest.approx(mixed[:3].tolist(), abs=0.006)
    assert words.RECEIVES in said


def test_through_the_depth_to_a_class(calm: Visit, told: Any, keep: Keep) -> None:
    header, _ = told
    page = calm("#view=story")
    page.go_to_step(7)
    for block in (0, 2, 3):
        page.step(7).slide(block)
        answers = header["depth"][block + 1]
        assert page.step(7).shares.all_inner_texts() == [percent(share) for _, share in answers]
        assert page.step(7).share_names.all_inner_texts() == [f"class {index}" for index, _ in answers]
    assert page.step(7).text().startswith(words.final_answer(answers[0][0], percent(answers[0][1])))
    found, notes = header["top_patch_ablation"], page.step(7).notes
    expect(notes).to_contain_text(words.NOT_A_REASON)
    expect(notes).to_contain_text(words.goes_from(percent(found["before"]), percent(found["most"])))
    expect(notes).to_contain_text(words.at_random(percent(found["random"])))
    page.step(7).slide(1)
    expect(notes).not_to_contain_text(words.NOT_A_REASON)
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
    session.add_initial(painted(1), "first.png")
    return session


def test_what_is_said_is_said_only_where_it_was_measured(calm: Visit) -> None:
    parked = sink()
    header, _ = unpack(parked.answer("story", 0, parked.initial[0]["picture"]))
    with served(parked) as (address, _):
        page = calm("#view=story", at=address)
        page.go_to_step(7)
        page.step(7).slide(0)
        expect(page.step(7).notes).not_to_contain_text(words.BRIGHT_CORNER)
        page.step(7).slide(1)
        notes = page.step(7).notes
        share = sum(part for _, part in header["sinks"][1]["tokens"])
        expect(notes).to_contain_text(words.bright_corner(percent(share)))
        expect(notes).to_contain_text(f"from {percent(header['sink_ablation']['before'])} to {percent(header['sink_ablation']['after'])}")
        assert all(each["distance"] >= 0.6 * each["even"] for each in header["head_distance"].values())
        expect(page.body).not_to_contain_text(words.LOOKS_NEAR)


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
    near.add_initial(painted(1), "first.png")
    header, _ = unpack(near.answer("story", 0, near.initial[0]["picture"]))
    found = header["head_distance"][str(header["head_start"])]
    assert found["distance"] < 0.6 * found["even"], "as it was made"
    with served(near) as (address, _):
        page = calm("#view=story", at=address)
        notes = page.step(5).notes
        expect(notes).to_contain_text(words.pixels_away(found["distance"]))
        expect(notes).to_contain_text(words.PLACE_DECIDES)
        page.step(5).slide(1)
        expect(notes).not_to_contain_text(words.LOOKS_NEAR)  # of a sharpness that is not the model's nothing was measured


def test_a_model_without_class_token_says_so(calm: Visit) -> None:
    changes = {"norm": "rms", "positions": "rotary", "qk_norm": True, "qkv_bias": False, "pool": "mean", "class_token": False}
    model = create("tiny", image_size=(16, 16), patch_size=(4, 4), stride=(2, 2), width=24, heads=3, **changes)
    own = Session({"modern": model})
    own.add_initial(painted(1), "first.png")
    with served(own) as (address, _):
        page = calm("#view=story", at=address)
        expect(page.step(1).lead).to_contain_text(words.OVERLAPPING)
        expect(page.step(3).lead).to_contain_text(words.TURNED)
        expect(page.step(3).number_rows).to_have_count(0)
        expect(page.step(7).lead).to_contain_text(words.READS_MEAN)
        assert "class token" not in page.step(4).inner_text()


@pytest.mark.parametrize(
    ("changes", "title", "lead"),
    [
        ({"classes": 0}, *words.TO_A_VECTOR),
        ({"classes": 1, "positions": "none"}, *words.TO_A_NUMBER),
        ({"registers": 2}, *words.TO_A_CLASS),
    ],
)
def test_models_that_end_otherwise(calm: Visit, changes: dict[str, Any], title: str, lead: str) -> None:
    own = Session({"other": create("tiny", **changes)})
    own.add_initial(painted(1), "first.png")
    with served(own) as (address, _):
        page = calm("#view=story", at=address)
        expect(page.step(7).title).to_have_text(title)
        expect(page.step(7).lead).to_contain_text(lead)
        if changes.get("positions") == "none":
            expect(page.step(3).reading).to_contain_text(words.NO_ORDER)
        if changes.get("registers"):
            expect(page.step(4).lead).to_contain_text(words.MORE_TOKENS)


def test_a_rival_has_no_story_and_the_page_says_why(visit: Visit) -> None:
    page = visit("#model=1")
    expect(page.tell).to_have_attribute("aria-disabled", "true")
    page.tell.click(force=True)
    expect(page.toast).to_contain_text(words.NO_TRANSFORMER)
    assert "view=story" not in page.url
    page = visit("#model=1&view=story")
    expect(page.story).to_contain_text(words.NO_TRANSFORMER)
    page.models.first.click()
    expect(page.steps).to_have_count(STEPS)


def test_back_and_other_pictures(calm: Visit) -> None:
    page = calm("#view=surgery&off=b1")
    page.tell.click()
    expect(page.story_notice).to_contain_text(words.STORY_OF_WHOLE)
    expect(page.story_title).to_contain_text("first.png")
    page.pictures.nth(1).click()
    expect(page.story_title).to_contain_text("second.png")
    page.go_back()
    expect(page.story_title).to_contain_text("first.png")
    page.tell.click()
    expect(page.tab("surgery")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.steps).to_have_count(STEPS)
    refuse = '{"error": "this is no picture", "hint": ""}'
    page.route(re.compile(r"/trace(\?|$)"), lambda route: route.fulfill(status=422, content_type="application/json", body=refuse))
    page.reload()
    expect(page.failed).to_be_visible()
    expect(page.story).to_be_hidden()


def test_a_story_that_takes_long_can_be_left(calm: Visit, session: Session) -> None:
    page = calm()
    waiting: list[Any] = []
    gone: list[str] = []
    page.route(re.compile("/story$"), lambda route: waiting.append(route))  # and no answer
    page.route(re.compile("/api/work$"), lambda route: route.fulfill(json={"done": 3, "total": 10, "seconds": 9}))
    page.on("requestfailed", lambda request: gone.append(request.url))
    page.tell.click()
    expect(page.story).to_contain_text(words.STORY_OPENS)
    page.tell.click()
    expect(page.work).to_be_visible()
    page.wait_for_timeout(300)
    assert [url.rsplit("/", 1)[1] for url in gone] == ["story"], "the server hears that nobody waits"
    page.unroute(re.compile("/story$"))
    page.tell.click()
    expect(page.steps).to_have_count(STEPS)


def test_by_keyboard(calm: Visit, told: Any) -> None:
    header, _ = told
    page = calm()
    page.tell.focus()
    page.keyboard.press("Enter")
    expect(page.steps).to_have_count(STEPS)
    page.marks.nth(3).focus()
    page.keyboard.press("Enter")
    expect(page.step_itself(4)).to_be_focused()
    page.step(1).scene.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.step(1).reading).to_contain_text(words.place(1, 0))
    expect(page.announcer).to_contain_text(words.place(1, 0))
    page.step(4).scene.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.step(4).text().startswith(words.answer_of(words.place(0, 1)).rstrip("."))
    page.keyboard.press("Enter")
    expect(page.step(1).reading).to_contain_text(words.place(0, 1))
    page.step(7).slider.focus()
    page.keyboard.press("Home")
    expect(page.step(7).slider_value).to_have_text(words.of_range(0, 3))
    page.step(2).get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.step(2).text().startswith(f"Pattern {header['numbers'][1]} ")


def test_the_mark_follows_up_and_down(visit: Visit) -> None:
    page = visit("#view=story")
    for number in (5, 3, 7, 1):
        page.marks.nth(number - 1).click()
        page.wait_for_timeout(1500)  # it scrolls by itself
        assert page.current_mark.all_inner_texts() == [str(number)]


def test_who_wants_no_motion_gets_none(calm: Visit) -> None:
    page = calm("#view=story")
    for index in (1, 3, 5, 6, 7):
        page.go_to_step(index)
        page.wait_for_timeout(60)
        canvas = page.step(index).scene
        frames = set()
        for _ in range(5):
            frames.add(canvas.evaluate("canvas => canvas.toDataURL()"))
            page.wait_for_timeout(60)
        assert len(frames) == 1, index
    expect(page.step(7).slider_value).to_have_text(words.of_range(3, 3))


def test_in_the_systems_own_colours_choices_can_be_told_apart(calm: Visit) -> None:
    page = calm("#view=story")
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    expect(page.steps).to_have_count(STEPS)
    script = "node => { const style = getComputedStyle(node); return [style.outlineStyle, style.outlineWidth]; }"
    for chosen, other in ((page.chosen_pattern, page.other_patterns), (page.chosen_mark, page.other_marks)):
        assert chosen.first.evaluate(script) == ["solid", "3px"] != other.first.evaluate(script)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(calm: Visit, width: int, scheme: str, keep: Keep) -> None:
    page = calm("#view=story&off=b1")
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    expect(page.steps).to_have_count(STEPS)
    page.wait_for_timeout(300)
    assert page.faults() == []
    assert page.width() <= width, "nothing lies beside the screen"
    if width == 390:
        lead, scene, touch = (part.bounding_box() for part in (page.step(1).lead, page.step(1).scene, page.step(1).touch))
        assert lead["y"] < scene["y"] < touch["y"], "sentence, picture, what to touch"
    keep(page, f"story-{width}-{scheme}")


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = Session({"tiny-vit": session.models[0], "small-cnn": session.models[1]})
    own.add_initial(session.content(session.initial[0]["picture"]), "first.png")
    return export_page(own, tmp_path_factory.mktemp("story") / "page.html")


@pytest.fixture
def exported(browser: Browser, file: Path) -> Iterator[Explorer]:
    with opened(browser, file, hash="#view=story", reduced_motion="reduce") as page:
        yield page


def test_the_story_ships_in_the_export(exported: Explorer, calm: Visit) -> None:
    live = calm("#view=story")
    for page in (live, exported):
        expect(page.steps).to_have_count(STEPS)
        page.button(words.SHUFFLE).click()
        page.step(4).scene.click(position={"x": 4, "y": 4})
        page.step(6).slide(3)
        page.step(7).slide(1)
    for index in range(1, STEPS + 1):
        assert exported.step(index).words.inner_text() == live.step(index).words.inner_text()
    exported.models.nth(1).click()
    expect(exported.story).to_contain_text(words.NO_TRANSFORMER)
