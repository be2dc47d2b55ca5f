"""Store what the package answers for fixed seeds, and compare a tree with it: the safety net of a redesign.

    python tools/same.py store FILE     run every part, write the answers as JSON
    python tools/same.py compare FILE   run every part again, print each difference on a line, exit 1 if there is one

Only the command line and public Python names are used, in one process and with one thread, so the script runs unchanged before and
after a redesign. Times, paths, dates, memory and versions are left out. `--only train,verbs` runs some of the parts and compares only
what they answer. The parts build on each other: `train` comes first whatever is chosen.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LONGEST_LIST = 24
MASKED = re.compile(
    r"second|(^|_)(time|times|date|hours|minutes|duration|started|ended|finished|when|eta|ms|milliseconds)(_|$)|memory|(^|_)(peak|ram|free|available)(_|$)"
    r"|megabytes_per|per_second|throughput|images_s|(^|_)(path|host|hostname|machine|cpu|load|pid|commit|git|command|versions?|python|platform)(_|$)"
    r"|^(vitral|torch|created|written|freed|bytes|sha256|checksum|fingerprint_file|latency|speed|fps|startup|stamp|age|environment)$"
)
FOLDERS = re.compile(r"/\S*?/same-[^/\s\"']+")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:[+-]\d\d:?\d\d|Z| UTC)?)?")
TIMED = re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|min|h|seconds?|minutes?|hours?|MiB|GiB|MB|GB|kB|KiB|img/s|images/s|pictures/s)\b")

Answers = dict[str, Any]


# ---- values ----------------------------------------------------------------------------------------------------------------------


def digest(*parts: bytes | str) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else part.encode())
    return whole.hexdigest()[:20]


def tensors(path: Path) -> str:
    """SHA-256 of the tensors of a safetensors file, in the order of their names."""
    from safetensors.numpy import load_file

    return arrays(load_file(path))


def arrays(values: dict[str, Any]) -> str:
    import numpy as np

    parts: list[bytes | str] = []
    for name in sorted(values):
        value = np.asarray(values[name])
        content = repr(value.tolist()) if value.dtype == object else np.ascontiguousarray(value).tobytes()
        parts += [name, str(value.dtype), str(value.shape), content]
    return digest(*parts)


def masked(value: Any) -> Any:
    """A JSON value without what differs from run to run or from machine to machine; long lists as a checksum."""
    if isinstance(value, dict):
        return {key: "…" if MASKED.search(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [masked(item) for item in value]
        return {"length": len(items), "sha256": digest(json.dumps(items))} if len(items) > LONGEST_LIST else items
    if isinstance(value, str):
        text = FOLDERS.sub("FOLDER", value.replace(str(ROOT), "ROOT"))
        return TIMED.sub("N UNIT", DATE.sub("DATE", text))
    return value


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a JSON value as a dotted path; items of a list share one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{prefix}.{key}".lstrip(".")
            yield from keys(item, f"{prefix}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from keys(item, f"{prefix}[]")


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{prefix} › {key}" if prefix else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from flat(item, f"{prefix}[{index}]")
    else:
        yield prefix, value


# ---- the command line ------------------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str, str]:
    """Call `vitral …` inside this process: exit code, what it printed, what it wrote to stderr."""
    from vitral.cli import main

    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(list(words))
    print(f"  {time.perf_counter() - began:5.1f} s  vitral {' '.join(words)}"[:150], file=sys.stderr)
    return code, out.getvalue(), errors.getvalue()


def answer(*spellings: str) -> Any:
    """The JSON of a command, masked. Of several spellings, before and after a rename, the first that parses counts."""
    code, out, errors = 2, "", ""
    for line in spellings:
        code, out, errors = run(*line.split())
        if code == 0 or "--help shows examples and all flags" not in errors:
            break
    printed = parsed(out) if out else None
    return {"exit": code, "error": masked(errors.strip().splitlines()[-1:]), "printed": printed} if code else printed


def parsed(out: str) -> Any:
    try:
        return masked(json.loads(out))
    except ValueError:
        return masked(out.splitlines())


def png(seed: int, size: tuple[int, int] = (40, 32)) -> bytes:
    import numpy as np
    from PIL import Image

    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


@contextlib.contextmanager
def signalled_at(step: int) -> Iterator[None]:
    """Inside, this process gets SIGTERM as soon as an optimizer has made so many steps."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counts: Counter[int] = Counter()

    def count(optimizer: Any, *_: Any) -> None:
        counts[id(optimizer)] += 1
        if counts[id(optimizer)] == step and max(counts.values()) == step:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a signal outside a training shall not end this script
    handle = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        handle.remove()
        signal.signal(signal.SIGTERM, before)


# ---- the parts -------------------------------------------------------------------------------------------------------------------

ONE = "--threads 1 --device cpu --quiet --json"
PRETRAIN = f"pretrain digits --evaluate-every 1 --seed 3 {ONE}"


def make_data() -> None:
    """Three photographs, a folder of three classes, and a table with several labels per image."""
    for seed in (1, 2, 3):
        path = Path(f"photos/{'ab'[seed % 2]}/{seed}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(seed))
    rows = ["path,labels,split"]
    for index in range(48):
        path = Path(f"shapes/class{index % 3}/{index:02}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(100 + index, (20 + index % 5, 18)))
        labels = "|".join(name for name, every in (("two", 2), ("three", 3), ("five", 5)) if index % every == 0)
        rows.append(f"{path},{labels},{'test' if index % 4 == 0 else 'train'}")
    Path("labels.csv").write_text("\n".join(rows) + "\n", "utf-8")


def train() -> Answers:
    """Trainings of every kind: their weights, and the JSON that they print."""
    make_data()
    small = f"--image-size 16 --patch-size 4 --batch-size 16 {ONE} --set width=32 depth=2 heads=2 mlp_width=32"
    strong = "--augment strong --token-drop 0.3 --clip 1 --layer-decay 0.8 --accumulate 2 --keep best"
    commands = {
        "digits": f"train digits --epochs 2 --evaluate-every 1 --snapshots 3 --seed 3 {ONE}",
        "pretrained": f"{PRETRAIN} --epochs 1",
        "tuned": f"train digits --from runs/pretrained --epochs 1 --seed 3 {ONE}",
        "head": f"train digits --from runs/pretrained --tune head --head-start probe --epochs 1 --seed 3 {ONE}",
        "lora": f"train digits --from runs/digits --tune lora --epochs 0.5 --seed 3 {ONE}",
        "again": f"train runs/digits --seed 4 --epochs 0.5 {ONE}",
        "adamw": f"train digits --optimizer adamw --lr 0.002 --schedule cosine --ema None {strong} --epochs 1 --evaluate-every 0.5 {ONE}",
        "teacher": f"train digits --teacher runs/digits --epochs 0.5 --subset 600 --class-weights {ONE}",
        "cnn": f"train digits --model cnn --epochs 0.3 {ONE}",
        "staged": f"train digits --stage choose --validation 0.2 --epochs 0.3 {ONE}",
        "folder": f"train digits --data folder:shapes --epochs 2 {small}",
        "cached": f"train digits --data folder:shapes --cache 16 --epochs 1 {small}",
        "labels": f"train digits --data csv:labels.csv --epochs 2 {small}",
        "mae": f"{PRETRAIN} --method mae --epochs 0.5 --skip-probe",
        "dino": f"{PRETRAIN} --method dino --local-views 2 --epochs 0.3 --test --online-knn",
    }
    found: Answers = {}
    for name, command in commands.items():
        found[name] = {"printed": answer(f"{command} --out runs/{name}"), "weights": weights_of(name)}
    found["snapshots"] = {path.parent.name: tensors(path) for path in sorted(Path("runs/digits/snapshots").glob("*/*.safetensors"))}
    for name, step in (("digits", 14), ("dino", 2)):
        command = f"{commands[name]} --out runs/{name}-resumed"
        with signalled_at(step):
            code, _, errors = run(*command.split())
        states = [json.loads(path.read_text("utf-8")) for path in Path(f"runs/{name}-resumed").glob("state/?/progress.json")]
        found[f"{name}, stopped and resumed"] = {
            "exit when stopped": code,
            "message": masked(errors.strip().splitlines()[-1:]),
            "step": max((state["step"] for state in states), default=None),
            "printed": answer(f"{command} --resume"),
            "equals the undisturbed run": weights_of(f"{name}-resumed") == weights_of(name),
        }
    return found


def weights_of(name: str) -> str:
    path = Path(f"runs/{name}/model.safetensors")
    return tensors(path) if path.exists() else "no weights"


def studies() -> Answers:
    """Studies of each kind, with very small budgets."""
    small = "--threads 1 --device cpu --parallel 1 --quiet --json --batch-size 64"
    one = f"--lrs 0.003 --seeds 1 --budget samples=256 {small}"
    fight = f"compare digits --models vit,cnn --budget samples=400 --seeds 2 --lrs 0.003 {small} --out runs/fight"
    commands = {
        "compare": fight,
        "compare again": fight,
        "tuned": f"compare digits --models vit-small --budget samples=256 --seeds 1 --lrs 0.001,0.004 {small} --out runs/tuning",
        "recipes": f"compare digits --models cnn --recipe plain,strong {one} --out runs/recipes",
        "vary": f"compare digits --models vit --vary norm_order=pre,post {one} --out runs/vary",
        "from": f"compare digits --from a=runs/digits,b=runs/pretrained {one} --out runs/from",
        "matched": f"compare digits --models vit,cnn@parameters {one} --out runs/matched",
        "two data sets": f"compare digits folder:shapes --models cnn --image-size 16 {one} --out runs/across",
        "pretraining": f"compare digits --pretrain lejepa,supervised,untrained {one} --out runs/ways",
        "scale data": f"scale digits --kind data --models vit-small,cnn --sizes 0.2,1 --yes {one} --out runs/scale",
        "scale compute": f"scale digits --kind compute --models vit-small,vit --yes {one} --out runs/compute",
        "scale pretraining": f"scale digits --kind pretraining --models vit-small --from-data folder:shapes --image-size 16 --sizes 0.5,1"
        f" --transfer samples=128 --shots 2 --yes {one} --out runs/transfer",
    }
    found = {name: answer(command) for name, command in commands.items()}
    cost = answer(f"scale digits --kind cost --models vit --image-sizes 8 --patches 2,4 --yes {one} --out runs/cost")
    return found | {"scale cost, keys": dict.fromkeys(sorted(set(keys(cost))), True)}


def verbs() -> Answers:
    """The JSON of every verb that has it, on one run and one study."""
    model, cpu = "runs/digits", "--threads 1 --device cpu --json"
    quantise = f"quantise {model} digits --out small --pictures 60 --layer-pictures 2 --rounds 1 {cpu}"
    commands = {
        "plan": f"plan digits --epochs 2 {cpu}",
        "plan gpu": "plan cifar10-fast --gpu h200 --json",
        "data list": "data list --json",
        "data show": "data show digits --out sheets --json",
        "data show folder": "data show folder:shapes --image-size 16 --augment strong --out sheets-folder --json",
        "data check": "data check digits --out check --json",
        "data check folder": "data check folder:shapes --against folder:photos --out check-folder --json",
        "data cache": "data cache --json",
        "weights inspect": f"weights inspect {model} --json",
        "weights list": "weights list --json",
        "predict": f"predict {model} photos {cpu} --table answers.json",
        "predict labels": f"predict runs/labels photos {cpu}",
        "eval": f"eval {model} digits {cpu} --out scored --table scored.csv",
        "eval flipped": f"eval {model} digits --calibrate --tta flip {cpu}",
        "eval folder": f"eval runs/folder folder:shapes --split all {cpu}",
        "eval labels": f"eval runs/labels csv:labels.csv --split test {cpu}",
        "probe": f"probe {model} digits --shots 5,all --draws 2 --quiet {cpu} --save runs/probed",
        "probe blocks": f"probe runs/pretrained digits --shots all --blocks 2 --quiet {cpu}",
        "embed": f"embed {model} photos --out embedded --quiet {cpu}",
        "look": f"look {model} photos --out look {cpu}",
        "look worst": f"look {model} --worst 3 --out worst {cpu}",
        "figures": f"figures {model} photos/b/1.png --out figures --format png {cpu}",
        "lens": f"lens {model} photos --fit digits --out lens {cpu}",
        "film": f"film {model} --pictures 2 --format gif --json",
        "audit": f"audit {model} digits --pictures 3 --methods attention,rollout,relevance --out audits {cpu}",
        "verify run": f"verify {model} --json",
        "verify study": "verify runs/fight --json",
        "report run": f"report {model} --json",
        "report study": "report runs/fight --json",
        "diff": "diff runs/digits runs/again --json",
        "runs": "runs --json --sort name",
        "runs two": "runs runs/digits runs/again --out curves.png --json",
        "wrong verb": "trian digits",
        "wrong run": "train digitz --json",
        "wrong flag": "train digits --epoch 3",
        "no model": "predict no-such-model photos --json",
    }
    found = {name: answer(command) for name, command in commands.items()}
    found["quantise"] = answer(f"{quantise} --anyway", f"{quantise} --force")
    measured = answer("bench ti/16 --quick --rounds 1 --batch 1 --threads 1 --device cpu --quiet --json")
    return found | {"bench, keys": dict.fromkeys(sorted(set(keys(measured))), True)}


PRESETS = ("digits", "mnist", "cifar10", "cifar10-fast", "cifar10-best", "finetune", "flowers102", "cifar10-finetune", "imagenet")
PRESETS += ("report-mnist", "report-cifar", "report-cifar-ours", "pretrain-digits", "pretrain-cifar10", "pretrain-photos")
MAP_METHODS = ("attention", "rollout", "gradient_rollout", "relevance", "legrad", "gradcam", "integrated_gradients", "occlusion", "rise")
MAP_METHODS += ("similarity", "norms")


def python() -> Answers:
    """Public Python names: logits, attention and every map of the trained run on three images."""
    import numpy as np
    import torch

    import vitral

    model = vitral.load("runs/digits").eval()
    found: Answers = {}
    for seed in (1, 2, 3):
        image = vitral.open_picture(png(seed), model)
        x = image.tensor[None]
        tape = vitral.watch(model, x)
        maps: Answers = {
            "logits": [round(value, 6) for value in tape.logits[0].tolist()],
            "attention of block 0": arrays({"weights": tape.attention(0).detach().numpy()}),
        }
        for name in MAP_METHODS:
            method = getattr(vitral.look, name, None)
            if method is None:
                maps[name] = "no such name"
                continue
            try:
                torch.manual_seed(0)
                heat = method(vitral.watch(model, x))
                maps[name] = arrays({"grid": np.asarray(heat.grid)})
            except Exception as error:
                maps[name] = f"{type(error).__name__}: {error}"[:160]
        found[f"image {seed}"] = maps
    found["presets"] = {name: masked(dataclasses.asdict(vitral.presets.run(name))) for name in PRESETS}
    found["names"] = sorted(name for name in dir(vitral) if not name.startswith("_"))
    with torch.device("meta"):
        sizes = ("ti/16", "s/16", "b/16", "b/32", "l/16")
        found["sizes"] = {name: sum(p.numel() for p in vitral.create(name, classes=10, image_size=224).parameters()) for name in sizes}
    return found


def exports() -> Answers:
    """Weights and graph of every export format."""
    found: Answers = {}
    for name, model, more in (
        ("vitral", "runs/digits", ""),
        ("onnx", "runs/digits", ""),
        ("onnx attention", "runs/digits", "--attention"),
        ("onnx cnn", "runs/cnn", ""),
        ("npz", "plain", ""),
        ("timm", "plain", ""),
        ("torchvision", "plain", ""),
        ("hf", "plain", ""),
    ):
        if model == "plain" and not Path("plain").exists():
            import torch

            import vitral

            torch.manual_seed(0)
            plain = vitral.create("ti/16", classes=10, image_size=32, patch_size=8, depth=2, width=64, heads=2)
            vitral.save(plain, "plain")
        folder = Path("exports") / name.replace(" ", "-")
        printed = answer(f"weights convert {model} {folder} --format {name.split()[0]} {more} --json")
        files: Answers = {}
        for path in sorted(folder.glob("*")):
            if path.suffix == ".safetensors":
                files[path.name] = tensors(path)
            elif path.suffix == ".onnx":
                files[path.name] = onnx_graph(path)
            elif path.suffix == ".npz":
                files[path.name] = npz(path)
            elif path.suffix in (".pth", ".pt", ".bin"):
                import torch

                state = torch.load(path, weights_only=True)
                files[path.name] = arrays({key: value.numpy() for key, value in state.items()})
            elif path.suffix == ".json":
                files[path.name] = masked(json.loads(path.read_text("utf-8")))
            else:
                files[path.name] = digest(path.read_bytes())
        found[name] = {"printed": printed, "files": files}
    for path in sorted(Path("small").glob("*.onnx")):
        found[f"quantised {path.name}"] = onnx_graph(path)
    return found


def onnx_graph(path: Path) -> Answers:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    weights = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    nodes = [
        f"{node.op_type}({','.join(node.input)})->{','.join(node.output)}{sorted(a.name for a in node.attribute)}" for node in graph.node
    ]
    return {
        "weights": digest(*sorted(arrays({"": value}) for value in weights.values())),
        "names of the weights": digest(*sorted(weights)),
        "nodes": digest(*nodes),
        "operators": dict(sorted(Counter(node.op_type for node in graph.node).items())),
        "inputs": [item.name for item in graph.input],
        "outputs": [item.name for item in graph.output],
        "metadata": masked({item.key: item.value for item in model.metadata_props}),
    }  # fmt: skip


def npz(path: Path) -> str:
    import numpy as np

    with np.load(path, allow_pickle=False) as stored:
        return arrays({name: stored[name] for name in stored.files})


def page() -> Answers:
    """The exported pages: their blobs; of the live one the logits and maps that Chromium computes on three images."""
    for seed in (1, 2, 3):
        Path(f"{seed}.png").write_bytes(png(seed))
    found: Answers = {}
    for name, more in (("page", ""), ("live", "--live")):
        code, _, errors = run(*f"explore runs/digits 1.png 2.png 3.png --export {name}.html --threads 1 --device cpu {more}".split())
        if code:
            found[name] = {"exit": code, "error": errors.strip().splitlines()[-1:]}
            continue
        text = Path(f"{name}.html").read_text("utf-8")
        blocks = re.findall(r'id="([^"]+)" data-bytes="(\d+)">([^<]*)</script>', text)
        found[name] = {
            "blobs": {
                block: digest(base64.b85decode(content.replace(",", "<").replace(".", "&"))[: int(length)])
                for block, length, content in blocks
            },
        }
    found["browser"] = in_browser(Path("live.html").resolve())
    return found


IN_BROWSER = """async (content) => {
  const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
  return window.vitral.run(new Blob([bytes], { type: "image/png" }));
}"""
MAPS = """async ([index, method]) => {
  const source = window.vitral.source, key = source.session.pictures[index].picture;
  const { grid: [rows, columns], values, ...map } = await source.ask("map", { model: 0, picture: key, method });
  const grid = Array.from({ length: rows }, (_, row) => Array.from(values.slice(row * columns, (row + 1) * columns)));
  const { target, note, unit, signed } = map;
  return JSON.stringify({ method, grid, target, note, unit, signed });
}"""


def in_browser(file: Path) -> Answers:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"not run": "playwright is not installed"}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        return {"not run": "no chromium"}
    found: Answers = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(file.as_uri())
        tab.wait_for_function("Boolean(window.vitral)", timeout=60_000)
        for seed in (1, 2, 3):
            answer = tab.evaluate(IN_BROWSER, base64.b64encode(png(seed)).decode())
            found[f"logits of image {seed}"] = [round(value, 5) for value in answer["logits"]]
            for method in ("rollout", "occlusion"):
                try:
                    found[f"{method} of image {seed}"] = digest(json.dumps(masked(json.loads(tab.evaluate(MAPS, [seed - 1, method])))))
                except Exception as error:
                    found[f"{method} of image {seed}"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        browser.close()
    return found


def files() -> Answers:
    """What the other parts left: the names of the files, the keys and values of JSON, the arrays of .npz, the pixels of pictures."""
    import numpy as np
    from PIL import Image

    found: Answers = {"keys": {}, "values": {}, "arrays": {}, "pictures": {}}
    names = []
    for path in sorted(path for path in Path().rglob("*") if path.is_file()):
        name = path.as_posix()
        if name.startswith(("data/", "exports/")) or path.name == ".lock":
            continue
        names.append(name)
        if path.suffix in (".json", ".jsonl"):
            text = path.read_text("utf-8")
            value = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
            found["keys"].setdefault(path.name, {}).update(dict.fromkeys(sorted(set(keys(value))), True))
            if path.name not in ("env.json", "manifest.json", "progress.json"):
                found["values"][name] = masked(value)
        elif path.suffix == ".npz":
            found["arrays"][name] = npz(path)
        elif path.suffix == ".png":
            with Image.open(path) as image:
                found["pictures"][name] = digest(np.asarray(image).tobytes())
    found["names"] = dict.fromkeys(names, True)
    return found


def tests() -> Answers:
    """The number of tests of each marker, and of assertions."""
    import pytest

    found: Answers = {"assertions": Counter()}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                found["assertions"]["assert"] += 1
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("pytest.raises", "pytest.warns", "expect") or re.match(r"(np|numpy|torch)\.testing\.assert", called):
                    found["assertions"][called] += 1
    before = Path.cwd()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "tests"))
    collected = Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["--collect-only", "-q", "-m", "", "--assert=plain", "-p", "no:cacheprovider", "tests"], plugins=[collected])
    os.chdir(before)
    return found | {"collecting ends with": int(code), "tests": collected.markers}


class Collected:
    """A plugin of pytest: how many tests there are of each marker."""

    def __init__(self) -> None:
        self.markers: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            names = [name for name in ("gpu", "browser", "fuzz", "slow") if item.get_closest_marker(name)]
            self.markers[" and ".join(names) or "fast"] += 1


PARTS: dict[str, Callable[[], Answers]] = {
    "train": train, "studies": studies, "verbs": verbs, "python": python, "exports": exports, "page": page, "files": files, "tests": tests,
}  # fmt: skip


# ---- store and compare -----------------------------------------------------------------------------------------------------------


def gather(chosen: list[str], keep: bool) -> Answers:
    sys.path.insert(0, str(ROOT / "src"))
    for name in THREADS:
        os.environ[name] = "1"
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "Agg", "COLUMNS": "80"}
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="same-")).resolve()
    os.environ["VITRAL_DATA"] = str(folder / "data")
    before = Path.cwd()
    os.chdir(folder)
    answers: Answers = {}
    try:
        import torch

        torch.set_num_threads(1)
        for name, part in PARTS.items():
            if name not in chosen:
                continue
            began = time.perf_counter()
            try:
                answers[name] = part()
            except Exception:  # the other parts still answer
                traceback.print_exc()
                answers[name] = {"failed": traceback.format_exc().strip().splitlines()[-1]}
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    finally:
        os.chdir(before)
        if keep:
            print(f"what the commands wrote: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return json.loads(json.dumps(answers))


def compare(stored: Answers, now: Answers) -> list[str]:
    """One line for each value that differs, is gone or is new; equal changes of one key in several files share a line."""
    before = {name: value for name, value in flat(stored) if name.split(" › ")[0] in now}
    after = dict(flat(now))
    lines: dict[tuple[str, str, str], list[str]] = {}
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            kind, change = "gone", _short(before[name])
        elif name not in before:
            kind, change = "new", _short(after[name])
        elif before[name] != after[name]:
            kind, change = "differs", f"{_short(before[name])} → {_short(after[name])}"
        else:
            continue
        lines.setdefault((kind, name.split(" › ")[-1], change), []).append(name)
    return [
        f"{kind:<8} {names[0]}: {change}" + (f"   (and {len(names) - 1} more like it)" if len(names) > 1 else "")
        for (kind, _, change), names in lines.items()
    ]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}…"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("store", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--keep", action="store_true", help="keep the folder in which the commands ran")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part {unknown[0]}: use some of {', '.join(PARTS)}")
    if set(chosen) & {"studies", "verbs", "python", "exports", "page", "files"}:
        chosen.append("train")
    file = options.file.resolve()
    stored = json.loads(file.read_text("utf-8")) if options.what == "compare" else {}
    answers = gather(chosen, options.keep)
    if options.what == "store":
        file.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{len(list(flat(answers)))} answers in {file}")
        return 0
    lines = compare(stored, answers)
    print("\n".join(lines) if lines else f"no difference in {len(list(flat(answers)))} answers")
    return bool(lines)


if __name__ == "__main__":
    raise SystemExit(main())
