"""The shape of the tree: import layers, lazy imports, light import, short files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitral"

# Top to bottom; a file imports only from rows below its own, or from its own part.
ROWS = (
    ("cli", "web"),
    ("report",),
    ("study",),
    ("train", "look"),
    ("run",),
    ("weights", "data"),
    ("cost",),
    ("build",),
    ("rivals",),
    ("model",),
    ("kernels", "draw", "presets"),
    ("config",),
    ("base",),
)
ROW = {part: row for row, parts in enumerate(ROWS) for part in parts}
# Neighbours in a row are apart, but the verb `explore` starts the web server.
NEIGHBOURS = {("cli", "web")}
# The public surface: it names everything, lazily.
FACADE = {"__init__.py", "__main__.py"}

# What may be imported inside a function, and why. Everything else stands at the top of its file.
LAZY = {
    # slow, and only some calls need it
    "torchvision": "seconds",
    "matplotlib": "half a second",
    "sklearn": "seconds",
    "scipy": "seconds",
    "rich": "a third of a second, for a live bar alone",
    "torch.distributed": "a second, for several processes alone",
    "torch.utils.flop_counter": "half a second",
    "torch._subclasses": "a second: it is part of the compiler",
    "torch.onnx": "seconds",
    "jinja2": "only pages need it",
    # extras, which need not be installed
    "fastapi": "web",
    "uvicorn": "web",
    "starlette": "web",
    "timm": "hub",
    "transformers": "hub",
    "vit_pytorch": "dev: only measured beside",
    "huggingface_hub": "hub",
    "datasets": "hub",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "ray": "ray",
    "pyarrow": "a table for other programs alone",
    "torch.utils.tensorboard": "tensorboard",
    "wandb": "not ours to install",
    # not on every system
    "fcntl": "POSIX",
    "resource": "POSIX",
    "ctypes": "its libc",
}
# Parts that must load without torch (and NumPy), for a quick `vitral --help`; a function that is given tensors imports it.
LAZY_TORCH = {"base", "cli"}
# vitral modules inside functions: a verb imports what it needs when it runs, a facade when a name is asked for, `build` a rival.
LAZY_OURS = {"cli", "build"}

MAX_LINES = 450

HEAVY = (
    "torchvision",
    "matplotlib",
    "sklearn",
    "fastapi",
    "uvicorn",
    "timm",
    "transformers",
    "huggingface_hub",
    "ray",
    "vitral.train",
    "vitral.web",
)


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported vitral module with its line: at the top, in functions, under TYPE_CHECKING, by import_module("…")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name.split(".")[0] == "vitral")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "a relative import", node.lineno
            elif node.module == "vitral":
                yield from ((f"vitral.{alias.name}", node.lineno) for alias in node.names)
            elif (node.module or "").startswith("vitral."):
                yield node.module or "", node.lineno
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "import_module" and str(node.args[0].value).startswith("vitral."):
                yield str(node.args[0].value), node.lineno


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def complaint(part: str, module: str) -> str | None:
    """Why a file of `part` may not import `module`, or None when it may."""
    target = module.split(".")[1] if module.count(".") else ""
    if target not in ROW:
        return f"{module} is no part of the tree: import the module that holds the name"
    if target == part or ROW[target] > ROW[part] or (part, target) in NEIGHBOURS:
        return None
    return f"{part} may not import {module}: {target} is not below it"


def lazy(path: Path) -> Iterator[str]:
    """The imports inside functions that the policy does not allow, as file:line: name."""
    file = path.relative_to(SOURCE)
    for name, line in inside_functions(ast.parse(path.read_text(encoding="utf-8"))):
        if name.split(".")[0] == "vitral":
            fine = part_of(path) in LAZY_OURS or file.name == "__init__.py"
        elif name.split(".")[0] in ("torch", "numpy") and LAZY_TORCH & {part_of(path), file.as_posix()}:
            fine = True
        else:
            fine = any(name == known or name.startswith(f"{known}.") for known in LAZY)
        if not fine:
            yield f"{path.relative_to(ROOT)}:{line}: {name}"


def inside_functions(node: ast.AST, inside: bool = False) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if inside and isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif inside and isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{alias.name}", child.lineno) for alias in child.names)
        yield from inside_functions(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def source_files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).as_posix() not in FACADE)


def test_every_row_names_what_there_is() -> None:
    there = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", ".")) and path.suffix in ("", ".py")}
    assert there == set(ROW)


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    assert part in ROW, f"{path.relative_to(ROOT)} belongs to no layer"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {reason}"
        for module, line in imports(ast.parse(path.read_text(encoding="utf-8")))
        if (reason := complaint(part, module))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("part", "code", "fine"),
    [
        ("train", "from vitral.look.watch import watch", False),
        ("look", "import vitral.train.engine", False),
        ("weights", "def f():\n    from vitral.data import loader", False),
        ("data", "from vitral import weights", False),
        ("base", "from vitral.config import ModelConfig", False),
        ("web", "from vitral.cli import main", False),
        ("look", "from vitral import load", False),
        ("draw", "from .style import SERIES", False),
        ("model", "import importlib\nimportlib.import_module('vitral.cli')", False),
        ("cli", "from vitral.web.server.routes import app", True),
        ("look", "from vitral.draw.heatmap import Heatmap\nimport torch, vitral.model.tape", True),
        ("draw", "from vitral.draw.style import SERIES", True),
    ],
)
def test_the_check_itself(part: str, code: str, fine: bool) -> None:
    assert all(complaint(part, module) is None for module, _ in imports(ast.parse(code))) is fine


def test_imports_stand_at_the_top() -> None:
    wrong = [line for path in sorted(SOURCE.rglob("*.py")) for line in lazy(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "code", "fine"),
    [
        ("look/x.py", "def f():\n    from vitral.draw.heatmap import Heatmap", False),
        ("look/x.py", "def f():\n    import json", False),
        ("look/x.py", "class A:\n    def f(self):\n        if self:\n            import torch", False),
        ("weights/x.py", "def f():\n    import numpy as np", False),
        ("cli/x.py", "def f():\n    import dataclasses", False),
        ("cli/x.py", "def f():\n    from vitral.look.watch import watch\n    import torch", True),
        ("base/x.py", "def f():\n    import torch, numpy", True),
        ("draw/x.py", "def f():\n    from matplotlib.figure import Figure", True),
        ("train/x.py", "def f():\n    from torch.utils import tensorboard", True),
        ("train/x.py", "def f():\n    from torch.utils import data", False),
        ("look/__init__.py", "def f():\n    from vitral.look.watch import watch", True),
        (
            "look/x.py",
            "import json\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vitral.draw.heatmap import Heatmap",
            True,
        ),
    ],
)
def test_the_policy_itself(file: str, code: str, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(code)
    assert (not list(lazy(tmp_path / file))) is fine


def test_draw_never_sees_torch() -> None:
    for path in (SOURCE / "draw").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {name for name in names if name.split(".")[0] in ("torch", "torchvision")}, path


def test_import_is_light() -> None:
    code = f"import sys, vitral; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE.parent), "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_files_are_short() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}
