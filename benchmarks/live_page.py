"""The page that runs its model, measured in a real browser: size, time, agreement with Python, changes by rounding.

    python benchmarks/live_page.py WEIGHTS PHOTOGRAPHS [--count 200] [--onnxruntime package/dist] [--out FILE]

PHOTOGRAPHS: a folder. Each picture is given to `window.vitral.run` twice: as its own file, which the browser decodes itself, and as a PNG
of the pixels that Pillow decoded; Python runs the same rounded weights. Seconds are of `run` as a whole, decoding and resizing
included, from the files; the picture, wall and all attention of a dropped picture are timed too. With --onnxruntime (the folder `dist`
of onnxruntime-web, from `npm pack onnxruntime-web`) the same network as ONNX is run by that library on the same prepared pixels, on one
thread, as a page from a file has it.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import http.server
import io
import json
import shutil
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from vitral.base.device import describe_machine
from vitral.base.files import sha256_file, write_json
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import open_picture
from vitral.web.live import export_live, rounded, rounding_change
from vitral.web.session import Session
from vitral.web.trace import probabilities
from vitral.weights.export import export
from vitral.weights.load import load

REQUIRED = {"size, MB": 25, "seconds a picture, median": 4, "logits, worst relative difference": 2e-2}
AIMS = {"size, MB": 12, "seconds a picture, median": 1, "logits, worst relative difference": 1e-3}
RUN = """async (content) => {
  const blob = new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))]);
  const began = performance.now();
  const { logits } = await window.vitral.run(blob);
  return { logits, seconds: (performance.now() - began) / 1000 };
}"""
SHOW = """async (content) => {
  const blob = new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))]);
  const began = performance.now();
  const { source } = window.vitral;
  const { picture } = await source.upload(blob);
  await source.trace(0, picture);
  return (performance.now() - began) / 1000;
}"""
START_ONNX = """async ([pixels, shape]) => {
  const ort = await import("/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create("/model.onnx");
  const values = new Float32Array(Uint8Array.from(atob(pixels), (sign) => sign.charCodeAt(0)).buffer);
  window.once = () => session.run({ [session.inputNames[0]]: new ort.Tensor("float32", values, shape) });
}"""
START = """(pixels) => {
  const values = new Float32Array(Uint8Array.from(atob(pixels), (sign) => sign.charCodeAt(0)).buffer);
  window.once = () => window.vitral.source.models[0].engine.run(values);
}"""
ONCE = """async () => {
  const began = performance.now();
  await window.once();
  return (performance.now() - began) / 1000;
}"""
PASSES = 24


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def png(content: bytes) -> bytes:
    out = io.BytesIO()
    image = decode(content)
    assert isinstance(image, Image.Image)
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def in_python(model: torch.nn.Module, contents: list[bytes]) -> np.ndarray:
    with torch.no_grad():
        return np.stack([model(open_picture(content, model).tensor[None])[0].numpy() for content in contents])


def rounding(before: np.ndarray, after: np.ndarray, multi_label: bool) -> dict[str, Any]:
    """What rounding the weights changes: answers, and the largest change of any probability."""
    pairs = [[probabilities(logits, multi_label) for logits in pair] for pair in zip(before, after, strict=True)]
    changes = [rounding_change(*pair) for pair in pairs]
    moved, most = zip(*changes, strict=True)
    return {"answers changed by rounding": sum(moved), "largest change of a probability by rounding": max(most)}


def compared(page: Page, contents: list[bytes], wanted: np.ndarray) -> tuple[dict[str, Any], list[float]]:
    answers = [page.evaluate(RUN, text(content)) for content in contents]
    logits = np.array([answer["logits"] for answer in answers])
    apart = np.abs(logits - wanted).max(axis=1) / np.abs(wanted).max(axis=1)
    same = int((logits.argmax(axis=1) == wanted.argmax(axis=1)).sum())
    return {"same top-1": same, "worst": float(apart.max()), "median": float(np.median(apart))}, [answer["seconds"] for answer in answers]


@contextmanager
def onnxruntime(browser: Browser, model: Any, dist: Path, image: torch.Tensor) -> Iterator[tuple[Page, dict[str, float]]]:
    """The same network through onnxruntime-web, one thread: a page whose `once` runs it, and the size of the library."""
    with tempfile.TemporaryDirectory() as folder:
        path = export(model, Path(folder) / "onnx", format="onnx")
        shutil.copy(path, Path(folder) / "model.onnx")
        for file in dist.glob("ort*"):
            shutil.copy(file, folder)
        (Path(folder) / "index.html").write_text("<!doctype html><title>onnxruntime</title>")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.evaluate(START_ONNX, [text(image.numpy().tobytes()), [1, *image.shape]])
        wasm = (dist / "ort-wasm-simd-threaded.wasm").read_bytes()
        sizes = {
            "onnxruntime-web, its WebAssembly, MB": len(wasm) / 1e6,
            "onnxruntime-web, the same gzipped in base 85, MB": len(gzip.compress(wasm, 9)) * 1.25 / 1e6,
        }
        yield page, sizes
        server.shutdown()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--onnxruntime", type=Path)
    parser.add_argument("--out", type=Path, help="write the numbers to this file, too")
    flags = parser.parse_args()
    paths = sorted(path for path in flags.photographs.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    paths = paths[:: max(1, len(paths) // flags.count)][: flags.count]
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None or not paths:
        print("no chromium here" if program is None else f"no photographs in {flags.photographs}", file=sys.stderr)
        return 1
    contents = [path.read_bytes() for path in paths]
    model = load(flags.weights)
    same = rounded(model)
    image = open_picture(contents[0], same).tensor
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        session = Session({Path(flags.weights).stem: model})
        session.add_initial(contents[0], paths[0].name)
        file = export_live(session, Path(folder) / "page.html")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(file.as_uri())
        page.wait_for_selector("body.ready", timeout=120_000)
        wanted = in_python(same, contents)
        own, seconds = compared(page, contents, wanted)
        pixels, _ = compared(page, [png(content) for content in contents], wanted)
        shown = [page.evaluate(SHOW, text(content)) for content in contents[1:12]]
        page.evaluate(START, text(image.numpy().tobytes()))
        passes = [page.evaluate(ONCE) for _ in range(PASSES)]
        found: dict[str, Any] = {
            "photographs": len(contents),
            "size, MB": file.stat().st_size / 1e6,
            "seconds a picture, median": statistics.median(seconds),
            "seconds a picture, worst": max(seconds),
            "seconds until a dropped picture has all maps, median": statistics.median(shown),
            "seconds a pass alone, median": statistics.median(passes[2:]),
            "same top-1 as Python with the same weights": own["same top-1"],
            "same top-1, pixels decoded by Pillow": pixels["same top-1"],
            "logits, worst relative difference": own["worst"],
            "logits, worst, pixels decoded by Pillow": pixels["worst"],
            **rounding(in_python(model, contents), wanted, model.origin.multi_label),
        }
        if flags.onnxruntime:
            with onnxruntime(browser, model, flags.onnxruntime, image) as (other, sizes):
                pairs = [(page.evaluate(ONCE), other.evaluate(ONCE)) for _ in range(PASSES)][
                    2:
                ]  # in turns, so that both meet the same load
            found |= sizes | {
                "side by side: seconds a pass, median": statistics.median(own for own, _ in pairs),
                "side by side: onnxruntime-web, median": statistics.median(theirs for _, theirs in pairs),
            }
        browser.close()
    for name, value in found.items():
        verdict = f"   {'within' if value <= AIMS[name] else 'OVER'} the aim of {AIMS[name]}" if name in AIMS else ""
        print(f"{name:<54} {value:>12.7g}{verdict}")
    print(json.dumps(record := {"numbers": found, "machine": describe_machine(), "weights": sha256_file(flags.weights)}))
    if flags.out:
        write_json(flags.out, record)
    return 0 if all(found[name] <= most for name, most in REQUIRED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
