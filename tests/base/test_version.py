from __future__ import annotations

import re
from pathlib import Path

from vitral.base.version import __version__

ROOT = Path(__file__).parents[2]


def test_every_place_that_names_a_version_names_this_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert __version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
