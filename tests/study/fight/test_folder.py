"""What a study gives back, and the calls that give it: `vitral.study.compare`, `.scale` and `.probe`."""

from __future__ import annotations

from pathlib import Path

import pytest

import vitral
from vitral.base.files import read_json
from vitral.base.layout import RESULT, TABLE
from vitral.build import create
from vitral.study.fight.folder import Result, finish, study_folder
from vitral.weights.checkpoint import save

TINY = {"batch_size": 32, "device": "cpu", "parallel": 1, "quiet": True}


def test_a_result_shows_itself(tmp_path: Path) -> None:
    result = finish(tmp_path, lambda markdown: "| a |" if markdown else "a", {"rows": [{"model": "a"}], "conclusion": "Nothing."})
    assert repr(result) == f"a\n\nNothing.\n\n{tmp_path}" and result.rows == [{"model": "a"}] and result.failed == {}
    assert (tmp_path / TABLE).read_text() == "| a |\n\nNothing.\n" and read_json(tmp_path / RESULT) == result.values
    assert study_folder(None, "compare", "digits", "folder:my photos") == Path("runs/compare-digits-folder-my-photos")


def test_compare_is_a_call(tmp_path: Path) -> None:
    result = vitral.study.compare("digits", ["vit-small", "cnn"], budget="samples=64", seeds=2, lrs=[3e-3], out=tmp_path / "fight", **TINY)
    assert isinstance(result, Result) and [row["model"] for row in result.rows] == ["vit-small", "cnn"]
    assert "This holds for digits" in result.conclusion and result.path == tmp_path / "fight" and "95 % interval" in repr(result)
    again = vitral.study.compare("digits", ["vit-small", "cnn"], budget="samples=64", seeds=2, lrs=[3e-3], out=tmp_path / "fight", **TINY)
    assert again.rows == result.rows


def test_scale_is_a_call(tmp_path: Path) -> None:
    grown = vitral.study.scale(
        "digits",
        "data",
        ["vit-small"],
        sizes=[32, 64],
        budget="samples=64",
        seeds=2,
        lrs=[3e-3],
        max_hours=1,
        out=tmp_path / "data",
        **TINY,
    )
    assert [row["size"] for row in grown.rows] == [32, 64] and set(grown.values["fits"]) == {"vit-small"} and "64 pictures" in grown.table
    cost = vitral.study.scale("digits", "cost", image_sizes=[8], patches=[2, 4], out=tmp_path / "cost", **TINY)
    assert [row["tokens"] for row in cost.rows] == [4, 16] and "tokens" in cost.table and cost.path == tmp_path / "cost"


def test_probe_is_a_call(tmp_path: Path) -> None:
    weights = save(create("digits", depth=1, pool="mean", class_token=False, initialisation="torch"), tmp_path / "weights")
    for model in (str(weights), vitral.load(str(weights))):
        result = vitral.study.probe(model, "digits", shots=[1, None], draws=2, device="cpu", quiet=True)
        assert [row["shots"] for row in result.rows] == [1, None] and "linear" in result.table and result.conclusion and result.path is None


def test_the_calls_stay_calls_when_their_files_are_loaded() -> None:
    import vitral.study.fight.compare
    import vitral.study.fight.scale

    assert callable(vitral.study.compare) and callable(vitral.study.scale)
    with pytest.raises(AttributeError, match="'comparre'"):
        vitral.study.comparre  # noqa: B018


def test_a_result_is_a_table_in_a_notebook() -> None:
    shown = Result("model  accuracy\n─────  ────────\nvit      97.0 %", {"conclusion": "a <draw>"})._repr_html_()
    assert "<td>vit</td><td>97.0 %</td>" in shown and shown.endswith("<p>a &lt;draw&gt;</p>")
