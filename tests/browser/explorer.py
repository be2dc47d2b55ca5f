"""The explorer's page as the tests know it: every id, every class and every sentence that they rely on stands here and nowhere else.

`Explorer` is a Playwright page (what it has not, the page answers) whose parts have names: `page.reading`, `page.step(4).lead`.
`words` has what the page says.
"""

from __future__ import annotations

import base64
import io
import re
from types import MappingProxyType
from typing import Any

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import FrameLocator, Locator, Page, expect

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
STEPS = 7
"""Of the story."""


class Part:
    """What a selector matches, inside a page or a part of one."""

    def __init__(self, selector: str) -> None:
        self.selector = selector

    def __get__(self, owner: Any, _: object = None) -> Locator:
        return owner.inside.locator(self.selector)


class Explorer:
    # around everything
    toast, failed, retry, lost, announcer = Part("#toast"), Part("#failed"), Part("#retry"), Part("#lost"), Part("#announcer")
    loading, theme, link, work = Part("body.loading"), Part("#theme"), Part("#link"), Part("#work")
    upload_button, offline, offline_classes, runs = Part("#open"), Part("#offline"), Part("#offline-classes"), Part("#runs")
    models, chosen_model = Part("#models button"), Part("#models button[aria-pressed=true] b")
    chosen_tab, other_tabs = Part(".tabs [aria-selected=true]"), Part(".tabs [aria-selected=false]")
    strip, pictures, chosen_picture = Part("#pictures"), Part("#pictures .chip"), Part("#pictures .chip[aria-pressed=true]")
    other_pictures = Part("#pictures .chip[aria-pressed=false]")
    thumbnails = Part("#pictures img")
    cut = Part("#cut")
    """Which parts of the model are off."""
    # the picture and its map
    picture, canvas, reading = Part("#picture"), Part("#picture canvas"), Part("#picture .reading")
    ramp, scale, legend, wait = Part("#picture .ramp"), Part("#picture .scale"), Part("#picture .legend span"), Part("#picture .wait")
    title, meaning, tokens = Part("#picture-title"), Part("#picture-text"), Part("#picture .chip")
    opacity, lift, smooth, exact, plain = Part("#opacity"), Part("#lift"), Part("#smooth"), Part("#exact"), Part("#plain")
    # how it is explained
    block, block_number, head = Part("#block"), Part("#block-number"), Part("#head")
    method_text, method_verdict, method_why = Part("#method-text"), Part("#method-text strong"), Part("#method-why")
    unavailable_methods = Part("#methods input:disabled")
    # what it predicts
    bars, names, numbers = Part("#predictions .bar"), Part("#predictions .bar .name"), Part("#predictions .bar .number")
    chosen_name, class_search = Part("#predictions .bar[aria-pressed=true] .name"), Part("#predictions input")
    # the wall, and one head enlarged
    tiles, chosen_tile, focused_tile = Part(".thumb"), Part(".thumb[aria-pressed=true]"), Part(".thumb:focus")
    tile_canvases, wall_note = Part(".thumb canvas"), Part("#panel-wall > .small")
    enlarged, enlarged_title, enlarged_text = Part("#enlarge"), Part("#enlarge-title"), Part("#enlarge-text")
    enlarged_matrix, enlarged_map = Part("#enlarge-matrix"), Part("#enlarge-map")
    # by depth
    depth_slider, depth_headline, depth_empty = Part("#depth-slider"), Part("#panel-depth .headline"), Part("#panel-depth .empty")
    depth_canvas, depth_names = Part("#panel-depth canvas"), Part("#panel-depth .bar .name")
    depth_reading, depth_drawings = Part("#panel-depth .stage + .reading"), Part("#panel-depth canvas, #panel-depth svg")
    # what is like a patch
    similar_maps, similar_canvases = Part("#panel-similar figure"), Part("#panel-similar figure canvas")
    similar_captions = Part("#panel-similar figcaption")
    # parts off
    heads_on, heads_off = Part(".head-switch[aria-checked=true]"), Part(".head-switch[aria-checked=false]")
    verdict, changes, notice = Part(".verdict"), Part(".changes .number"), Part("#panel-surgery .notice")
    difference_legend, measuring = Part("#panel-surgery .legend span"), Part("#panel-surgery .row .small")
    important_heads, removed_heads = Part(".importance-head"), Part(".importance-head[aria-pressed=true]")
    removed, removed_reading = Part("#removed"), Part("#panel-surgery .scrubber + .reading")
    # the model's own figures
    filters, sheet, own_tiles = Part(".tiles"), Part("#panel-model .sheet"), Part("#panel-model .tiles")
    dots, focused_dot, dot_of_tab_key = Part(".dot"), Part(".dot:focus"), Part(".dot[tabindex='0']")
    # two models
    other_bars, other_reading = Part("#panel-compare .bar"), Part("#panel-compare .reading")
    other_canvases = Part("#panel-compare canvas")
    other_canvas, difference_scale = Part("#panel-compare canvas.scene"), Part("#panel-compare section .legend span")
    other_drawings, both_walls = Part("#panel-compare figure, #panel-compare .wall-sheet"), Part(".wall-sheet")
    # the training
    moment, moment_slider, moment_canvas = Part("#panel-training .headline"), Part("#step-slider"), Part("#panel-training canvas")
    # what can be saved
    save_menu, save_summary = Part("#save-as"), Part("#save-as summary")
    save_image, save_drawing, save_clip = Part("#save"), Part("#save-drawing"), Part("#save-clip")
    # the story
    tell, story, steps, story_end = Part("#open-story"), Part("#story"), Part(".step"), Part(".story-end button")
    story_title, story_notice = Part(".story-head h2"), Part(".story-head .notice")
    marks, current_mark = Part(".story-steps button"), Part(".story-steps [aria-current=step] b")
    chosen_mark, other_marks = Part(".story-steps [aria-current]"), Part(".story-steps button:not([aria-current])")
    chosen_pattern, other_patterns = Part(".patterns label:has(:checked)"), Part(".patterns label:not(:has(:checked))")
    body, headline = Part("body"), Part("h1")

    def __init__(self, page: Page, inside: Page | FrameLocator | None = None) -> None:
        self.page, self.inside = page, inside or page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def in_frame(self) -> Explorer:
        """The explorer that a notebook shows."""
        return Explorer(self.page, self.page.frame_locator("iframe"))

    def ready(self) -> Explorer:
        self.page.wait_for_selector("body.ready", timeout=30_000)
        return self

    def go(self, hash: str) -> None:
        """To another view, as a link leads there."""
        self.page.evaluate("hash => (location.hash = hash)", hash)

    def settled(self) -> None:
        self.page.wait_for_function("() => !document.body.classList.contains('loading')")

    # ---- the choices of a user ----

    def tab(self, view: str) -> Locator:
        return self.inside.locator(f"#tab-{view}")

    def panel(self, view: str) -> Locator:
        return self.inside.locator(f"#panel-{view}")

    def show(self, view: str) -> None:
        self.tab(view).click()

    def method(self, name: str) -> Locator:
        return self.inside.locator("#methods label", has_text=re.compile(f"^{re.escape(name)}$"))

    def choose_method(self, name: str) -> None:
        self.method(name).click()

    def choose_head(self, block: int, head: int) -> None:
        self.block.fill(str(block))
        self.head.select_option(str(head))

    def switch(self, block: int, head: int | None = None) -> Locator:
        return self.inside.get_by_role("switch", name=f"block {block}" if head is None else words.head(block, head), exact=True)

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.inside.get_by_role("button", name=name)

    def search_for_a_class(self) -> Locator:
        return self.inside.get_by_role("searchbox", name=words.EXPLAIN_ANOTHER)

    def sort_by(self, measure: str) -> None:
        self.inside.locator(".segments label", has_text=measure).first.click()

    def row_numbers(self) -> Locator:
        return self.inside.get_by_label(words.ROW_NUMBERS)

    def upload(self, content: bytes, name: str = "mine.png") -> None:
        self.inside.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": content})

    def drop(self, content: bytes, name: str = "dropped.png") -> None:
        self.page.evaluate(
            """([data, name]) => {
                const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
                const transfer = new DataTransfer();
                transfer.items.add(new File([bytes], name, { type: "image/png" }));
                document.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
            }""",
            [base64.b64encode(content).decode(), name],
        )

    def saved(self, which: Locator) -> Any:
        """The download of an entry of the menu."""
        self.save_summary.click()
        with self.page.expect_download(timeout=30_000) as waiting:
            which.click()
        return waiting.value

    # ---- the pointer ----

    def spot(self, x: float, y: float, on: Locator | None = None) -> tuple[float, float]:
        """Where a share of the width and of the height of a picture is on the screen."""
        box = (on or self.canvas).first.bounding_box()
        assert box
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    def point(self, row: int, column: int, rows: int = 8, columns: int = 8, on: Locator | None = None) -> None:
        self.page.mouse.move(*self.spot((column + 0.5) / columns, (row + 0.5) / rows, on))

    def click_patch(self, row: int, column: int, rows: int = 8, columns: int = 8, on: Locator | None = None) -> None:
        self.page.mouse.click(*self.spot((column + 0.5) / columns, (row + 0.5) / rows, on))

    def point_nowhere(self) -> None:
        self.page.mouse.move(5, 5)

    # ---- what can be seen ----

    def text(self) -> str:
        """What the page says of its map."""
        return self.reading.inner_text()

    def pixels(self, canvas: Locator | None = None) -> np.ndarray:
        data = (canvas or self.canvas).first.evaluate("canvas => canvas.toDataURL()")
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))).convert("RGB")).astype(int)

    def width(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth")

    def faults(self) -> list[Any]:
        """What axe-core has against the page."""
        answer = Axe().run(self.page, options=RULES).response
        assert len(answer["passes"]) > 20, "it has looked"
        return [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in answer["violations"]]

    # ---- the page's own code ----

    def ask(self, what: str, *, off: str = "", **options: Any) -> dict[str, Any]:
        """An answer of the page's own source about its first model; arrays come as lists."""
        script = """async ([what, options, off]) => {
          const lists = (value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
          const answer = await window.vitral.source.ask(what, { model: 0, ...options, off: new Set(off ? off.split(",") : []) });
          const sections = Object.entries(answer.sections ?? {}).map(([name, values]) => [name, lists(values)]);
          const fields = Object.entries(answer).map(([name, value]) => [name, lists(value)]);
          return { ...Object.fromEntries(fields), sections: Object.fromEntries(sections) };
        }"""
        return self.page.evaluate(script, [what, options, off])

    def stopped(self, what: str, **options: Any) -> str:
        """The name of the error with which a long work ends that is stopped; "done": it was not."""
        script = """async ([what, options]) => {
          const stop = new AbortController();
          const asked = window.vitral.source.ask(what, { model: 0, ...options, signal: stop.signal });
          setTimeout(() => stop.abort(), 5);
          return asked.then(() => "done", (error) => error.name);
        }"""
        return self.page.evaluate(script, [what, options])

    def trace(self, picture: str) -> dict[str, Any]:
        script = """async (picture) => {
          const { header, codes, maxima } = await window.vitral.source.ask("trace", { model: 0, picture });
          return { header, codes: Array.from(codes), maxima: Array.from(maxima) };
        }"""
        return self.page.evaluate(script, picture)

    def upload_by_script(self, content: bytes) -> str:
        """The key of a picture that a script gives to the page."""
        script = """async (content) => {
          const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
          return (await window.vitral.source.upload(new Blob([bytes]))).picture;
        }"""
        return self.page.evaluate(script, base64.b64encode(content).decode())

    def run(self, content: bytes) -> dict[str, Any]:
        """What a script outside calls: {logits, labels}."""
        script = """async (content) => {
          const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
          return window.vitral.run(new Blob([bytes]));
        }"""
        return self.page.evaluate(script, base64.b64encode(content).decode())

    def sinks(self, block: int) -> list[int]:
        """The patches of a block that a live page marks as attention sinks."""
        script = """async (block) => {
          const source = await import("/static/core/source.js").then(({ openSource }) => openSource());
          return (await source.ask("trace", { model: 0, picture: source.session.pictures[0].picture })).sinks(block);
        }"""
        return self.page.evaluate(script, block)

    def percentages(self, shares: list[float]) -> list[str]:
        """How a live page writes shares."""
        return self.page.evaluate(
            "(all) => import('/static/core/dom.js').then(({ percent }) => all.map((share) => percent(share)))", shares
        )

    # ---- the story ----

    def step(self, number: int) -> Step:
        return Step(self.steps.nth(number - 1))

    def step_itself(self, number: int) -> Locator:
        """What has the focus when the keyboard led to it."""
        return self.inside.locator(f"#story-step-{number}")

    def watch_scenes(self) -> None:
        """From now on, keep the first few pictures that each step shows."""
        self.page.evaluate(
            """(steps) => {
                window.pictures = Array.from({ length: steps }, () => new Set());
                const look = () => {
                    document.querySelectorAll(".step").forEach((step, index) => {
                        const { top, bottom } = step.getBoundingClientRect();
                        const seen = window.pictures[index];
                        if (top < innerHeight && bottom > 0 && seen.size < 4) seen.add(step.querySelector("canvas.scene").toDataURL());
                    });
                    requestAnimationFrame(look);
                };
                look();
            }""",
            STEPS,
        )

    def wait_for_motion(self, step: int) -> None:
        self.page.wait_for_function(f"() => window.pictures[{step - 1}].size > 2")

    def go_to_step(self, number: int) -> None:
        self.marks.nth(number - 1).click()
        expect(self.current_mark).to_have_text(str(number))


class Step:
    """One of the story."""

    title, lead, scene, touch = Part("h2"), Part(".lead"), Part("canvas.scene"), Part(".touch")
    reading, notes, words = Part(".story-reading"), Part(".story-notes"), Part(".words")
    shares, share_names, number_rows = Part(".share-list .number"), Part(".share-list .name"), Part(".number-row")
    slider, slider_value, heads = Part("input[type=range]"), Part("output"), Part("select")

    def __init__(self, inside: Locator) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def text(self) -> str:
        return self.reading.inner_text()

    def slide(self, value: float) -> None:
        script = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })); }"
        self.slider.evaluate(script, value)


class words:
    """What the page says."""

    EXPLAIN_ANOTHER, ROW_NUMBERS = "Explain another class", "row numbers"
    RANDOM_ORDER, MEAN_OF_DRAWS = "random order", "random order (mean of 3)"
    MEASURE, STOP, PLAY, ALL_ON = "Measure every head", "Stop", "Play", "Switch everything on"
    SWAP, SHOW_WHOLE, PLAIN = "Swap the two models", "Show the whole model", "Plain picture"
    SHUFFLE, LET_IT_ASK = "Shuffle the patches", "Let it ask"
    NOT_A_PICTURE, NOT_READ_HERE = "not a picture", "not a picture that the browser can read"
    NO_TRANSFORMER, NO_HEADS, NO_CLASS_TOKEN = "a cnn has none", "has no attention heads", "A cnn has no class token"
    NO_HEAD, PROMISED_WITHOUT_HEAD = "This model has no head", "all attention, the story"
    MATCHES_PYTHON, DROP_AGAIN = "the logits match Python", "drop it on the page again"
    FEW_CLASSES, RUN_EXPLORE = "most probable classes only", "run vitral explore"
    COMPUTED_BEFORE, SHOWN_WHOLE = "Computed when this page was made", "picture, maps and wall show it whole"
    SHOWN_WITHOUT, EVERYTHING_ON = "Everything here shows the model without.", "Everything is on."
    NEEDS_ATTENTION, NEEDS_GRADIENTS = "Needs attention", "needs gradients, which this page does not compute"
    SINK, DASHED = "Dashed: an attention sink. Most tokens attend to it. This patch stores global information.", "Dashed"
    SAME_FOR_EVERY_CLASS = "Attention is the same for every class"
    ASKS_FOR_TOKEN = "This explorer asks for its token"
    ON_THIS_COMPUTER, SEND_THE_FILE = "on this computer only", "send them the file"
    LOSES_HALF, OF_WHOLE = "can go before it loses half", "whole"
    ATTENTION_SCALE, OWN_SCALE, FLAT_IS_DARK = "Colours span at least 3 × an equal share", "range of this map", "a flat map stays dark"
    COMPUTING = re.compile(r"computing … \d+\s%, about \d+\ss left")
    MEASURING = re.compile(r"Switching off heads and blocks … \d+.%, about \d+.s left")
    STORY_OF_WHOLE, STORY_OPENS = "The story is of the whole model", "Following your picture through the model … 30\u00a0%"
    NOT_A_REASON, LOOKS_NEAR, PLACE_DECIDES = "Why a map is not a reason", "Why it looks so near", "it is the place that decides"
    NOT_ITS_OWN, RECEIVES = "Not the model's own.", "is what your patch receives from this head"
    OVERLAPPING = "8 × 8 = 64 overlapping patches of 4 × 4 pixels"
    TURNED, NO_ORDER = "turned by angles that stand for row and column", "the order of patches does not exist"
    READS_MEAN = "this model has no class token, the head reads the mean of all of them"
    MORE_TOKENS = "all patches and 3 more tokens (class token, register 0, register 1) hold out their keys"
    TO_A_VECTOR = ("Block by block, to a vector", "its vector is what the model gives out.")
    TO_A_NUMBER = ("Block by block, to a number", "the head reads it alone and says")
    TO_A_CLASS = ("Block by block, to a class", "the head reads it alone and says class")
    """Title and lead of the last step."""
    OF_CLASS_TOKEN, SWITCHED_OFF, LOOKS_AT, PATCH_IN = "Class token", "switched off", "looks most at", "(The )?[Pp]atch in "
    PREFIX = ("the class token", "the register 0")
    LIKE_YOUR_PLACE, ONE_OF_12_OFF = "most like the place you point at", "^1 of 12 heads off: confidence .* same answer "
    AUDIT, BRIGHT_CORNER = "audit", "Bright"
    PRODUCTS = r"\(?(−?[\d.]+)\)? × \(?(−?[\d.]+)\)? \+ .* \((\d+) products\) = (−?[\d.]+), divided by √(\d+): (−?[\d.]+)\.$"
    PLACES = MappingProxyType(
        {
            (0, 0): "the top-left corner",
            (3, 4): "the middle",
            (7, 3): "the lower part",
            (2, 5): "the upper right",
            (4, 7): "the right part",
        }
    )
    """In plain words, of 8 × 8."""

    @staticmethod
    def head(block: int, head: int) -> str:
        return f"block {block}, head {head}"

    @staticmethod
    def place(row: int, column: int) -> str:
        return f"row {row}, column {column}"

    @staticmethod
    def begins(text: str) -> re.Pattern[str]:
        return re.compile(f"^{text}")

    @staticmethod
    def off(count: int) -> str:
        """In the strip below the picture."""
        return f"{count} part is off" if count == 1 else f"{count} parts are off"

    @staticmethod
    def verdict(count: int) -> str:
        """In the operating theatre."""
        return f"{count} part off" if count == 1 else f"{count} parts off"

    @staticmethod
    def of_patch(row: int, column: int) -> str:
        """How the reading of a patch's attention begins."""
        return f"Patch in row {row}, column {column}"

    @staticmethod
    def the_patch(row: int, column: int) -> str:
        return f"The patch in row {row}, column {column}"

    @staticmethod
    def most_like(row: int, column: int) -> str:
        return f"most like the patch in row {row}, column {column}"

    @staticmethod
    def after(block: int) -> str:
        return "After the embedding" if block < 0 else f"After block {block}"

    @staticmethod
    def at_step(step: int) -> str:
        return f"Step {step}: "

    @staticmethod
    def audit(verdict: str) -> str:
        return f"The audit of this model: {verdict}"

    @staticmethod
    def bright(class_name: str) -> str:
        return f"Bright patches count most for “{class_name}”."

    @staticmethod
    def changes_at_most(points: str) -> str:
        return f"On its own pictures this page changes 0 of 1 answers, and a probability by at most {points}."

    @staticmethod
    def not_shown(name: str) -> str:
        return f"“{name}” could not be shown"

    @staticmethod
    def without(parts: str) -> str:
        return f"The model without {parts}"

    # the story

    @staticmethod
    def patch_of_48_numbers(row: int, column: int) -> str:
        return f"row {row}, column {column}, counted from 0. 4 × 4 pixels × 3 colours = 48 numbers"

    @staticmethod
    def pattern(number: int, value: float) -> str:
        return f"Pattern {number} in your patch: {value:.2f}".replace("-", "−")

    @staticmethod
    def in_all(least: float, most: float) -> str:
        return f"In all patches: from {least:.2f} to {most:.2f}.".replace("-", "−")

    @staticmethod
    def shuffled(now: int, share: str, mixed: int, other: str) -> str:
        return f"In order: class {now} ({share}). Shuffled: class {mixed} ({other})"

    @staticmethod
    def best_answer(row: int, column: int) -> str:
        return f"The best answer of another patch: row {row}, column {column}."

    @staticmethod
    def answer_of(token: str) -> str:
        return f"The answer of {token}."

    @staticmethod
    def ranked_answer(rank: int) -> str:
        return f"The answer of row 0, column 0, number {rank} of 64 among the patches."

    @staticmethod
    def more_than_even(count: int, tokens: int) -> str:
        return f"{count} of {tokens} get more than an even share"

    @staticmethod
    def values_hold(count: int, tokens: int, share: str) -> str:
        return f"{count} of {tokens} values hold {share} of the attention."

    @staticmethod
    def final_answer(number: int, share: str) -> str:
        return f"The answer: class {number} ({share})."

    @staticmethod
    def goes_from(before: str, after: str) -> str:
        return f"goes from {before} to {after};"

    @staticmethod
    def at_random(share: str) -> str:
        return f"cover as many others at random, to {share} on average"

    @staticmethod
    def bright_corner(share: str) -> str:
        return f"Bright corner. One patch gets {share} of all attention in this block, whoever asks."

    @staticmethod
    def pixels_away(distance: float) -> str:
        return f"this head looks {distance:.{1 if distance < 10 else 0}f}\u00a0pixels away"

    @staticmethod
    def of_range(value: int, most: int) -> str:
        return f"{value} (of 0 to {most})"
