from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.cli import main


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[list[str], str], None]:
    """The arguments are refused in one line with these words, and nothing is written."""

    def check(arguments: list[str], words: str) -> None:
        monkeypatch.chdir(tmp_path)
        code = main(arguments)
        lines = capsys.readouterr().err.strip().splitlines()
        assert code in (1, 2) and lines[-1].startswith("vitral: ") and words in lines[-1]
        assert not list(tmp_path.iterdir())

    return check
