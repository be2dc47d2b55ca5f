"""Every code block of the guide, the concepts, the recipes and the lesson runs, page by page, from top to bottom.

A line or block that cannot run everywhere says so itself, with `# needs …` at its end (a GPU, data or weights from elsewhere, hours);
tests/test_readme.py parses those. What would take long is hurried: one epoch, a few pictures, a small stand-in for the weights.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image
from tests.blocks import steps

import vitral
from vitral.cli import main
from vitral.run.made_here import record

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference/python.md"
PAGES = [page for part in ("guide", "concepts", "how-to", "lesson") for page in sorted((ROOT / "docs" / part).glob("*.md"))]
PAGES += [REFERENCE, ROOT / "README.md"]
HURRY = {
    "demo": {"--epochs": "1", "--weights": "vit_tiny.safetensors"},
    "train": {"--epochs": "1", "--workers": "1"},
    "pretrain": {"--seconds": "1", "--skip-probe": ""},
    "compare": {"--budget": "samples=128", "--seeds": "2", "--lrs": "3e-3", "--parallel": "1"},
    "scale": {"--budget": "samples=128", "--seeds": "2", "--lrs": "3e-3", "--parallel": "1"},
    "audit": {"--pictures": "2"},
    "film": {"--pictures": "1", "--format": "gif"},
    "quantise": {"--pictures": "8", "--rounds": "2", "--layer-pictures": "0", "--force": ""},
    "bench": {"--quick": ""},
}
"""Verb → flags that are set, or added, so that a command ends within seconds."""


def hurried(words: list[str]) -> list[str]:
    changes = HURRY.get(words[0], {}) if words and "cost" not in words else {}  # costs of tokens are quick, and have no budget
    for flag, value in changes.items():
        if flag in words:
            words = [*words[: words.index(flag)], *words[words.index(flag) + 1 + bool(value) :]]
        words = [*words, flag, *([value] if value else [])]
    return words


def test_pages_have_steps_and_most_run() -> None:
    found = [step for page in PAGES for step in steps(page)]
    assert len(found) > 150
    assert sum(step.runs for step in found) / len(found) > 0.8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_python_of_a_page_parses(page: Path) -> None:
    for step in steps(page):
        if step.kind == "python":
            ast.parse(step.text)


def test_every_public_name_has_types_a_docstring_and_an_example() -> None:
    sections = re.split(r"^### ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    entries = {section.partition("\n")[0]: section.partition("\n")[2].partition("\n## ")[0] for section in sections}
    functions = {f"vitral.{name}" for name in vitral.__all__ if inspect.isfunction(getattr(vitral, name))}
    functions |= {f"vitral.look.{name}" for name in (*vitral.look.METHODS, *vitral.look.MEASURES)}
    functions |= {f"vitral.study.{name}" for name in ("compare", "scale", "probe")}
    classes = {"Classifier", "ViT", "Tape", "Heatmap", "Origin", "Picture", "Evaluation", "Run", "Result"}
    methods = {f"vitral.look.{name}" for name in (*vitral.look.METHODS, *vitral.look.MEASURES)}
    assert functions - methods | classes <= set(entries) and len(methods & set(entries)) > 15, "a method that is new may still be missing"
    for name, entry in entries.items():
        assert entry.count("```python") == 1, f"{name} has no example"
        said = re.sub(r"```.*?```", "", entry, flags=re.DOTALL).strip()
        assert len(said) > 20, f"{name} has no docstring"
        if name in functions:
            written = re.findall(r"```text\n(.*?)```", entry, re.DOTALL)[0]
            assert f"{name}(" in written and ") -> " in written and "inspect._empty" not in entry, f"{name} lacks types"


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted: a demo, weights in timm's layout, photographs in class folders."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("vitral.draw.provenance.DPI", 40)
        assert main(["demo", "--epochs", "1"]) == 0
        small = vitral.create("ti/16", image_size=128, mlp_width=384, depth=4)
        vitral.export(small, "timm", format="timm").rename("vit_tiny.safetensors")
        vitral.save(small, "vit_tiny")  # what the README's line that needs the network leaves
        assert main(["demo", "--epochs", "1", "--weights", "vit_tiny.safetensors"]) == 0
        rng = np.random.default_rng(0)
        for split, count in (("photos", 50), ("held-out", 4)):
            for name in ("daisy", "rose"):
                (folder / split / name).mkdir(parents=True)
                for number in range(count):
                    colours = rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)
                    colours[..., 0 if name == "rose" else 1] //= 3
                    Image.fromarray(colours).resize((96, 96), Image.Resampling.BICUBIC).save(folder / split / name / f"{number}.jpg")
        for name in ("cat.jpg", "photo.jpg", "held-out/rose/image_01172.jpg"):
            shutil.copy(folder / "photos/rose/0.jpg", folder / name)
        shutil.copytree(folder / "photos", folder / "sorted")
        for name in ("other", "long"):
            shutil.copytree(folder / "runs/demo", folder / "runs" / name)
        vitral.save(vitral.create("ti/16", image_size=64, depth=2), "runs/large")
        table = [f"photos/{name}/{number}.jpg,{name};flower" for name in ("daisy", "rose") for number in range(50)]
        Path("labels.csv").write_text("\n".join(["path,labels", *table]), encoding="utf-8")
        (own_method,) = (step.text for step in steps(ROOT / "docs/guide/look.md") if "def my_map" in step.text)
        Path("my.py").write_text(own_method, encoding="utf-8")
    return folder


@pytest.fixture
def reader(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own for each page."""
    shutil.copytree(furnished, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VITRAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    record(Path("runs/demo"))  # its copy here is as much this machine's own
    matplotlib.use("Agg")
    return tmp_path / "reader"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if steps(page) and page.parent.name != "lesson"], ids=lambda page: f"{page.parent.name}/{page.stem}"
)  # the lesson is run by test_lesson.py
def test_a_page_runs_from_top_to_bottom(
    page: Path,
    reader: Path,
    live: Callable[[Callable[[], object]], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    names: dict[str, object] = {}
    for step in filter(lambda step: step.runs, steps(page)):
        where = f"{page.relative_to(ROOT)}:{step.line}: {step.text}"
        capfd.readouterr()
        if step.kind == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what other libraries warn of is not the page's affair
                warnings.filterwarnings("error", module="vitral")
                exec(compile("\n" * (step.line - 1) + step.text, str(page), "exec"), names)
            continue
        program, *words = shlex.split(step.command)
        if program == "vitral" and words[0] == "explore" and "--export" not in words:
            assert live(lambda words=words: main([*words, "--no-browser"])), where
        elif program == "vitral":
            expected = 2 if step.after.startswith("vitral: ") else 0
            assert main(hurried(words)) == expected, f"{where}\n{capfd.readouterr().err}"
        else:
            begin = words.index("vitral") + 1 if program == "torchrun" else len(words)
            words = [*words[:begin], *hurried(words[begin:])]
            program = sys.executable if program == "python" else str(Path(sys.executable).with_name(program))
            done = subprocess.run([program, *words], capture_output=True, text=True)
            assert done.returncode == 0, f"{where}\n{done.stderr}"
