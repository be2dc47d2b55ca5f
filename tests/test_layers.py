"""The shape of the tree: import layers, light import, short files, tests that mirror the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitral"
TESTS = ROOT / "tests"

# Top to bottom; a file imports only from rows below its own, or from its own part.
ROWS = (
    ("cli", "web"),
    ("report",),
    ("study",),
    ("train", "look"),
    ("weights", "data"),
    ("build",),
    ("rivals",),
    ("model",),
    ("draw",),
    ("presets",),
    ("config",),
    ("base",),
)
ROW = {part: row for row, parts in enumerate(ROWS) for part in parts}
# Neighbours in a row are apart, but the verb `explore` starts the web server.
NEIGHBOURS = {("cli", "web")}
# The public surface: it names everything, lazily.
FACADE = {"__init__.py", "__main__.py"}

MAX_LINES = 450
# Tests of several parts together: they mirror no single file.
FREE_TEST_FOLDERS = {"parity", "browser"}

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


def source_files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).as_posix() not in FACADE)


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
        ("draw", "from .palette import SERIES", False),
        ("model", "import importlib\nimportlib.import_module('vitral.cli')", False),
        ("cli", "from vitral.web.routes import app", True),
        ("look", "from vitral.draw.heatmap import Heatmap\nimport torch, vitral.model.tape", True),
        ("draw", "from vitral.draw.palette import SERIES", True),
    ],
)
def test_the_check_itself(part: str, code: str, fine: bool) -> None:
    assert all(complaint(part, module) is None for module, _ in imports(ast.parse(code))) is fine


def test_draw_never_sees_torch() -> None:
    for path in (SOURCE / "draw").glob("*.py"):
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


def test_tests_mirror_the_source() -> None:
    stray = [
        test.relative_to(ROOT).as_posix()
        for test in TESTS.glob("*/**/test_*.py")
        if (folder := test.parent.relative_to(TESTS)).parts[0] not in FREE_TEST_FOLDERS
        and not (SOURCE / folder / f"{test.stem.removeprefix('test_')}.py").exists()
    ]
    assert stray == []
