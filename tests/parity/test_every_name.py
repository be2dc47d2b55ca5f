"""All of timm's names in its ViT modules, narrow and two blocks deep: live and from a file (benchmarks/coverage.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.scripts import load_script

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
REFUSED = {
    "vit_base_patch16_18x2_224": "parallel branches",
    "vit_small_patch16_18x2_224": "parallel branches",
    "vit_dlittle_patch16_reg1_gap_256": "differential attention",
    "vit_dwee_patch16_reg1_gap_256": "differential attention",
    "vit_dpwee_patch16_reg1_gap_256": "differential attention",
}


@pytest.fixture(scope="module")
def coverage() -> Any:
    return load_script(SCRIPT)


FURTHER = {
    "vit_relpos_small_patch16_224": {"positions relative", "relative mlp"},
    "vit_relpos_base_patch16_cls_224": {"positions relative", "relative mlp"},
    "vit_relpos_small_patch16_rpn_224": {"positions relative", "relative mlp", "norm order res-post"},
    "vit_srelpos_small_patch16_224": {"positions relative", "relative mlp"},
    "naflexvit_base_patch16_parfac_gap": {"pool mean"},
    "naflexvit_base_patch16_siglip": {"pool map"},
}


@pytest.mark.parametrize("name", FURTHER)
def test_a_plain_vit_inside_another_is_taken_in(coverage: Any, name: str) -> None:
    trial = coverage.attempt(name)
    assert trial.adopted and not trial.file_reason and max(trial.live, trial.file) <= 1e-5, trial
    assert all(part in trial.parts for part in FURTHER[name]), trial.parts


@pytest.mark.parametrize(
    ("name", "reason"), [("vit_tiny_r_s16_p8_224", "a convolutional stem of its own"), ("samvit_base_patch16_224", "windows")]
)
def test_what_is_no_plain_vit_is_refused_by_name(coverage: Any, name: str, reason: str) -> None:
    assert reason in coverage.attempt(name).reason


@pytest.mark.slow
def test_every_name_is_taken_in_or_refused_by_name(coverage: Any) -> None:
    names = coverage.names()
    assert len(names) >= 245
    names += coverage.names(("vision_transformer_relpos", "naflexvit"))
    for name in names:
        trial = coverage.attempt(name)
        if name in REFUSED:
            assert REFUSED[name] in trial.reason
        else:
            assert trial.adopted and not trial.file_reason, trial
            assert max(trial.live, trial.file) <= 1e-5, trial
