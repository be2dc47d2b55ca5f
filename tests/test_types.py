"""What a type checker knows of Vitral as an installed package: `pyright --verifytypes`, strict on every public name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vitral
from vitral import look

ROOT = Path(__file__).parents[1]
# Its parts are PyTorch modules that are assigned where they are made; a type beside each would be read more often than it is needed.
INFERRED = {"vitral.ViT"}


@pytest.mark.slow
def test_every_public_name_has_a_type(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [tools / "pyright", "--verifytypes", "vitral", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,  # away from our settings: a user's checker does not read them
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["pyTypedPath"] == str(ROOT / "src/vitral/py.typed")
    assert found["exportedSymbolCounts"]["withUnknownType"] == 0
    assert found["completenessScore"] > 0.92
    known = {symbol["name"]: symbol["isTypeKnown"] for symbol in found["symbols"]}
    public = {f"vitral.{name}" for name in vitral.__all__} | {f"vitral.look.{name}" for name in look.__all__}
    assert public - INFERRED <= set(known) | {"vitral.__version__"}
    assert {name for name in public if not known.get(name, True)} == INFERRED
