"""All of timm's names in its ViT modules, narrow and two blocks deep: live and from a file (benchmarks/coverage.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
REFUSED = {
    "vit_base_patch16_18x2_224": "parallel branches",
    "vit_small_patch16_18x2_224": "parallel branches",
    "vit_dlittle_patch16_reg1_gap_256": "differential attention",
    "vit_dwee_patch16_reg1_gap_256": "differential attention",
    "vit_dpwee_patch16_reg1_gap_256": "differential attention",
}


@pytest.mark.slow
def test_every_name_is_taken_in_or_refused_by_name() -> None:
    spec = importlib.util.spec_from_file_location("coverage_of_timm", SCRIPT)
    assert spec is not None and spec.loader is not None
    coverage = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = coverage  # its records look their own module up
    spec.loader.exec_module(coverage)
    names = coverage.names()
    assert len(names) >= 245
    for name in names:
        trial = coverage.attempt(name)
        if name in REFUSED:
            assert REFUSED[name] in trial.reason
        else:
            assert trial.adopted and not trial.file_reason, trial
            assert max(trial.live, trial.file) <= 1e-5, trial
