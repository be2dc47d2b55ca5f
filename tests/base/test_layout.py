from __future__ import annotations

import re
from pathlib import Path

from vitral.base import layout

SOURCE = Path(__file__).parents[2] / "src" / "vitral"
NAMES = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str) and "." in value}


def test_no_other_file_spells_the_name_of_a_file_of_a_run_or_a_study():
    assert {"config.json", "metrics.jsonl", "study.json"} <= NAMES
    spelt = re.compile("|".join(rf'"{re.escape(name)}"' for name in NAMES))
    others = {
        str(path.relative_to(SOURCE)): spelt.findall(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "base" / "layout.py"
    }
    assert {path: names for path, names in others.items() if names and not path.startswith(FOREIGN)} == {}


FOREIGN = "weights/"
"""Folders of transformers and timm have a config.json and a model.safetensors, too; the script beside an exported model runs without us."""


def test_snapshots_sort_as_they_were_taken():
    assert sorted(map(layout.snapshot_name, (3, 20, 100))) == [layout.snapshot_name(step) for step in (3, 20, 100)]
    assert layout.tensors_name(3) == "tensors-3.safetensors"
