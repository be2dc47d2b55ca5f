from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from vitral.base.errors import NotInstalledError
from vitral.base.lazy import EXTRAS, needed


def test_a_package_loads_its_names_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "greetings"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from vitral.base.lazy import lazily\n__getattr__, __dir__ = lazily(__name__, {'words': ['hello'], '': ['words']})\n"
    )
    (package / "words.py").write_text("def hello():\n    return 'hello'\n")
    monkeypatch.syspath_prepend(tmp_path)
    greetings = importlib.import_module("greetings")
    assert dir(greetings) == ["hello", "words"]
    assert "greetings.words" not in sys.modules
    assert greetings.hello() == "hello"
    assert greetings.words.hello is greetings.hello and vars(greetings)["hello"] is greetings.hello
    with pytest.raises(AttributeError, match="'goodbye'"):
        greetings.goodbye  # noqa: B018


@pytest.mark.parametrize("package", ["vitral", "vitral.data", "vitral.draw"])
def test_every_promised_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert dir(module) == sorted(name for name in module.__all__ if name != "__version__")
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("onnxruntime", "the proof needs onnxruntime, which is not installed: pip install 'vitral[onnx]'"),
        ("pyarrow.parquet", "the proof needs pyarrow, which is not installed: pip install pyarrow"),
    ],
)
def test_a_library_that_is_not_there_is_one_line_with_its_extra(module: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = module.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "PathFinder" not in repr(finder)])
    with pytest.raises(NotInstalledError, match=re.escape(line)) as caught:
        needed(module, "the proof")
    assert isinstance(caught.value, ImportError)


def test_a_torchvision_for_another_torch_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CUDA torchvision does beside a CPU torch."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotInstalledError) as caught:
        needed("torchvision.models", "a ResNet")
    assert caught.value.message == "a ResNet needs torchvision, which cannot be loaded (operator torchvision::nms does not exist)"
    assert re.match(r"install the one that belongs to PyTorch \d+\.\d+", caught.value.hint)


def test_every_library_of_an_extra_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: project["optional-dependencies"][name] for name in set(EXTRAS.values())}
    assert {(re.split("[<>=]", need)[0], name) for name, needs in extras.items() for need in needs} == set(EXTRAS.items())
