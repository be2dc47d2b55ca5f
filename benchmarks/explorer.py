"""The explorer measured in a real browser: first maps, hovering, the wall, and the size of an exported page.

    python benchmarks/explorer.py [--weights vit_tiny_patch16_224.safetensors] [--skip-export]

First maps and hovering with ViT-Ti/16 (its trained weights where a file is given), wall and export with ViT-B/16. There are no
trained B/16 weights to hand everywhere, so its fresh ones are sharpened until the mean entropy of attention is that of the trained Ti
(about 6 bits of 7.6): evenly spread attention would compress far better and prove nothing.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from sklearn.datasets import load_sample_images

from vitral.base.device import describe_machine
from vitral.build import create
from vitral.look import entropy, watch
from vitral.model.classifier import Classifier
from vitral.web.export import export_page
from vitral.web.pack import EXPORTED, unpack
from vitral.web.server.routes import make_app
from vitral.web.server.serve import bind
from vitral.web.session import Session

TARGETS = {"first maps, ms": 1500, "second picture, ms": 1500, "hover, ms": 16, "wall, ms": 300, "export, MB a picture": 8}
BITS = 6.0


def photographs() -> list[bytes]:
    contents = []
    for array in load_sample_images().images:
        out = io.BytesIO()
        Image.fromarray(array).save(out, "JPEG", quality=92)
        contents.append(out.getvalue())
    return contents


def sharpened(model: Classifier, picture: Image.Image) -> Classifier:
    """Queries and keys grow until attention is as uneven as a trained model's."""
    for _ in range(40):
        if float(entropy(watch(model, picture)).values.mean()) <= BITS:
            break
        with torch.no_grad():
            for block in model.blocks:  # type: ignore[union-attr]
                block.attention.qkv.weight[: 2 * model.config.width].mul_(1.25)
    return model


def serve(session: Session) -> tuple[uvicorn.Server, str]:
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(session), log_level="warning"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return server, f"http://127.0.0.1:{listening.getsockname()[1]}/"


def spans(page: Page, name: str) -> list[float]:
    return page.evaluate("name => performance.getEntriesByName(name).map((entry) => entry.duration)", name)


def hover(page: Page, moves: int = 120) -> tuple[list[float], int]:
    """Drawing times while the pointer crosses the picture, and the requests that it caused."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    box = page.locator("#picture canvas").bounding_box()
    assert box
    for step in range(moves):
        share = step / moves
        page.mouse.move(box["x"] + box["width"] * (0.05 + 0.9 * share), box["y"] + box["height"] * (0.1 + 0.8 * (share * 7 % 1)))
    return spans(page, "vitral-hover"), len(asked)


def measure_tiny(browser: Browser, model: Classifier, contents: list[bytes]) -> dict[str, float]:
    session = Session({"ti/16": model})
    watch(model, Image.open(io.BytesIO(contents[0])))  # the server has a loaded, warm model
    server, address = serve(session)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("body.ready")
    times = []
    for index, content in enumerate(contents):
        began = time.perf_counter()
        page.locator("#file").set_input_files({"name": f"{index}.jpg", "mimeType": "image/jpeg", "buffer": content})
        page.wait_for_function("count => performance.getEntriesByName('vitral-first-maps').length === count", arg=index + 1)
        times.append(1000 * (time.perf_counter() - began))
    durations, asked = hover(page)
    page.close()
    server.should_exit = True
    hovering = {"hover, ms": statistics.median(durations), "hover worst, ms": max(durations), "hover requests": asked}
    return {"first maps, ms": times[0], "second picture, ms": times[1], **hovering}


def measure_base(browser: Browser, contents: list[bytes], export: bool) -> dict[str, float]:
    torch.manual_seed(0)
    model = sharpened(create("b/16"), Image.open(io.BytesIO(contents[0])))
    session = Session({"b/16": model})
    key = session.add_initial(contents[0], "china.jpg")
    server, address = serve(session)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("body.ready")
    for token in range(2, 8):  # the wall is drawn again for each chosen token
        page.evaluate("token => (location.hash = '#token=' + token)", token)
        page.wait_for_function("count => performance.getEntriesByName('vitral-wall').length === count", arg=token)
    walls = spans(page, "vitral-wall")
    durations, _ = hover(page)
    found: dict[str, float] = {"wall, ms": max(walls), "wall median, ms": statistics.median(walls)}
    found["hover B/16, ms"] = statistics.median(durations)
    header, _ = unpack(session.answer("trace", 0, key))
    found["live error, share of row peak"] = header["error"]["worst"]
    page.close()
    server.should_exit = True
    packed = session.answer("trace", 0, key, packing=EXPORTED)
    found["export, MB of picture and attention"] = len(packed) * 5 / 4 / 1e6  # base 85
    header, _ = unpack(packed)
    found["export error, share of row peak"] = header["error"]["worst"]
    found["export misplaced attention, mean share"] = header["error"]["total_variation"]
    if export:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            path = export_page(session, Path(folder) / "page.html")
            found["export, s"] = time.perf_counter() - began
            found["export, MB a picture"] = path.stat().st_size / 1e6
            began = time.perf_counter()
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(path.as_uri())
            page.wait_for_selector("body.ready")
            found["exported page opens, ms"] = 1000 * (time.perf_counter() - began)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="trained ViT-Ti/16 weights; else fresh ones")
    parser.add_argument("--skip-export", action="store_true", help="leave out the minutes that switching off 156 parts of B/16 takes")
    flags = parser.parse_args()
    if flags.weights:
        from vitral.weights.load import load

        tiny = load(flags.weights)
    else:
        tiny = create("ti/16")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("no chromium here", file=sys.stderr)
        return 1
    contents = photographs()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        found = measure_tiny(browser, tiny, contents) | measure_base(browser, contents, not flags.skip_export)
        browser.close()
    for name, value in found.items():
        target = TARGETS.get(name)
        verdict = "" if target is None else f"   {'under' if value < target else 'OVER'} {target}"
        print(f"{name:<42} {value:>10.3f}{verdict}")
    print(json.dumps({"numbers": found, "machine": describe_machine()}))
    return 0 if all(found.get(name, 0) < target for name, target in TARGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
