from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


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
    with pytest.raises(AttributeError, match="module 'greetings' has no attribute 'goodbye'"):
        greetings.goodbye  # noqa: B018


@pytest.mark.parametrize("package", ["vitral", "vitral.data", "vitral.draw"])
def test_every_promised_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert dir(module) == sorted(name for name in module.__all__ if name != "__version__")
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
