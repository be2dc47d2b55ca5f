"""A cost study of tiny models."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.base.layout import STUDY
from vitral.presets.models import model
from vitral.study.fight.token_cost import cost_table, study_cost, varied


def test_cost(tmp_path: Path) -> None:
    configs = varied(model("tiny"), [16, 32], [2, 4, 8])
    assert [config.tokens for config in configs] == [5, 17, 17, 65, 65, 257]
    result = study_cost(configs, tmp_path, batch_size=4, device="cpu", quiet=True).values
    rows = result["rows"]
    assert rows[-1]["quadratic"] / rows[0]["quadratic"] == pytest.approx((257 / 5) ** 2)
    assert rows[-1]["training_ms"] > rows[0]["training_ms"] > 0
    assert [layer["term"] for layer in result["layers"]["65"]] == ["n²·d", "n·d²", "k·n·d²", "r·n·d"]
    assert all((tmp_path / picture).exists() for picture in result["figures"]) and (tmp_path / "table.md").exists()
    assert "is off by up to" in result["conclusion"]
    exact = study_cost(configs[:3], tmp_path, batch_size=2, device="cpu", quiet=True).values
    assert "off by" not in exact["conclusion"]  # three numbers fitted to three points
    assert exact["time"] is None and "predicted" not in (tmp_path / "table.md").read_text() and "predicted ms" in cost_table(rows, 4)
    assert "FLOPs/picture" in cost_table(rows, 4) and "ms: of one picture, in batches of 4" in cost_table(rows, 4, markdown=True)
    with pytest.raises(UsageError, match="fewer"):
        varied(model("tiny"), [32], [5])


@pytest.mark.parametrize(("name", "words"), [(STUDY, "holds a study of another kind"), ("note", "is not empty")])
def test_what_others_left_is_not_written_over(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match=words):
        study_cost(varied(model("tiny"), [16, 32], [2, 4]), tmp_path, device="cpu", quiet=True)
