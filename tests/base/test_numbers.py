"""From a tensor to numbers: to the host before to double, the same bits as ever on a CPU, and nowhere else in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from vitral.base.numbers import to_double, to_numpy

SOURCE = Path(__file__).parents[2] / "src" / "vitral"
HOME = SOURCE / "base" / "numbers.py"
MARK = "# host"
"""A line with this comment at its end computes on the host alone."""
WIDE = {"float64", "double", "complex128", "cdouble", "DoubleTensor"}


def stray(code: str) -> Iterator[tuple[int, str]]:
    """(line, name) of what makes 64-bit floats or NumPy arrays of tensors, where the line does not say that it is the host's."""
    tree, lines = ast.parse(code), code.splitlines()
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in (node.left, *node.comparators)}
    for node in ast.walk(tree):
        found = ""
        if isinstance(node, ast.Attribute):
            of_numpy = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
            if (node.attr == "numpy" or node.attr in WIDE) and not of_numpy and id(node) not in compared:
                found = node.attr
        elif isinstance(node, ast.Constant) and node.value in ("float64", "torch.float64") and id(node) not in compared:
            found = str(node.value)
        elif isinstance(node, ast.Call) and called(node) in ("torch", "to", "type"):
            dtypes = [*node.args, *(word.value for word in node.keywords if word.arg == "dtype")]
            if any(isinstance(dtype, ast.Name) and dtype.id == "float" for dtype in dtypes):
                found = "float, which is float64"
        if found and not lines[node.end_lineno - 1].endswith(MARK):  # type: ignore[operator]
            yield node.end_lineno, found  # type: ignore[misc]


def called(call: ast.Call) -> str:
    """`torch` for torch.zeros(…), `to` for value.to(…)."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return "torch" if isinstance(function.value, ast.Name) and function.value.id == "torch" else function.attr
    return ""


def test_the_source_makes_numbers_of_tensors_in_one_place() -> None:
    files = sorted(path for path in SOURCE.rglob("*.py") if path != HOME)
    assert len(files) > 100
    found = [f"{path.relative_to(SOURCE)}:{line}: {name}" for path in files for line, name in stray(path.read_text(encoding="utf-8"))]
    assert not found, "use to_double or to_numpy of vitral.base.numbers:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "value.double().cpu()",
        "value.double().cpu()  # the host",
        "value.cpu().numpy()",
        "value.cpu().numpy(force=True)",
        "torch.zeros(3, dtype=torch.float64)",
        "value.to(torch.double)",
        "value.to(torch.complex128)",
        "value.to(float)",
        "torch.tensor(1.0, dtype=float)",
        "map(torch.Tensor.double, values)",
        "value.to(getattr(torch, 'float64'))",
        "both = (\n    value.double(),\n    1,\n)  # host",
    ],
)
def test_the_scan_finds(code: str) -> None:
    assert list(stray(code))


@pytest.mark.parametrize(
    "code",
    [
        "torch.zeros(3, dtype=torch.float64)  # host",
        "array.astype(np.float64)",
        "images.dtype == torch.float64",
        "'float64' in text",
        "to_numpy(to_double(value))",
        "value.to(torch.float32)",
        "float(value)",
        "'as .double() does'",
    ],
)
def test_the_scan_leaves_alone(code: str) -> None:
    assert not list(stray(code))


def test_the_one_place_is_found_by_the_scan_itself() -> None:
    assert [name for _, name in stray(HOME.read_text(encoding="utf-8"))] == ["double", "numpy"]


class Traced(torch.Tensor):
    """Writes down what is asked of it."""

    asked: tuple[str, ...] = ()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        Traced.asked += (getattr(func, "__name__", ""),)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_the_host_comes_first() -> None:
    Traced.asked = ()
    to_double(torch.ones(2).as_subclass(Traced))
    order = [name for name in Traced.asked if name in ("detach", "cpu", "double")]
    assert order == ["detach", "cpu", "double"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool])
def test_the_same_numbers_as_before(dtype: torch.dtype) -> None:
    value = (torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    assert to_double(value).dtype == torch.float64
    assert torch.equal(to_double(value.T), value.double().T)
    if dtype != torch.bfloat16:
        assert np.array_equal(to_numpy(value[1:, ::2]), value.numpy()[1:, ::2])
        assert to_numpy(value).dtype == value.numpy().dtype


def test_what_needs_gradients_is_taken_without_them() -> None:
    value = torch.ones(3, requires_grad=True) * 2
    assert not to_double(value).requires_grad
    assert to_numpy(value).tolist() == [2, 2, 2]
