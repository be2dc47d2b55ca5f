"""One table of several data sets, with stand-ins for the comparisons."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.base.files import read_json
from vitral.base.layout import RESULT, STUDY, TABLE
from vitral.study.fight.compare_across_data import across_data
from vitral.study.fight.conduct import declare
from vitral.study.fight.protocol import Study
from vitral.study.fight.result import Result

sys.path.insert(0, str(Path(__file__).parent))
import drive

PAIR = {"a": "vit", "b": "cnn", "p": 0.03, "bound": 0.0005, "adjusted": 0.03, "at_most": True, "different": True}


def run(study: Study, folder: Path) -> Result:
    """A comparison in which the cnn failed on the second data set."""
    folder.mkdir(parents=True, exist_ok=True)
    first = study.data.name == "digits"
    rows = [{"model": "vit", "mean": 0.5, "interval": [0.4, 0.6], "seeds": 2, "note": "ViT"}]
    rows += [{"model": "cnn", "mean": 0.25, "interval": None, "seeds": 1, "note": "CNN"}] if first else []
    shared = {
        "budget": "samples=768",
        "seeds": [0, 1],
        "recipe": {},
        "machine": {},
        "pairs": [PAIR],
        "models": {"vit": "ViT", "cnn": "CNN"},
    }
    failed = {} if first else {"final--cnn": "it died"}
    return Result("", {"data": study.data.name, "rows": rows, "conclusion": "Nothing.", "failed": failed, **shared}, folder)


def study(data: str) -> Study:
    return dataclasses.replace(drive.small_compare(), data=dataclasses.replace(drive.DATA, name=data))


def test_a_row_for_each_model_and_a_column_for_each_data_set(tmp_path: Path) -> None:
    result = across_data([study("digits"), study("folder:my photos")], tmp_path / "both", run)
    assert [line.split("  ")[0] for line in result.table.splitlines()[:4]] == ["model", "─────", "vit", "cnn"]
    assert "50.0 % (40.0 % – 60.0 %)" in result.table and "25.0 % (one seed)" in result.table and "failed" in result.table
    assert [row["data"] for row in result.rows] == ["digits", "digits", "folder:my photos"]
    assert result.failed == {"folder:my photos final--cnn": "it died"}
    assert "Holm over all 2 pairs of all data sets): not told apart: vit and cnn on digits" in result.conclusion
    assert [(pair["adjusted"], pair["at_most"], pair["different"]) for pair in result.values["pairs"]] == [(0.06, False, False)] * 2, (
        "two tests on one page"
    )
    assert "Test accuracy at 768 samples: mean, 95 % interval over 2/1 seeds." in (tmp_path / "both" / TABLE).read_text()
    assert read_json(tmp_path / "both" / RESULT)["studies"] == {"digits": "digits", "folder:my photos": "folder-my-photos"}


def test_folders_of_other_studies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="named twice"):
        across_data([study("digits"), study("digits")], tmp_path / "twice", run)
    (tmp_path / STUDY).write_text('{"kind": "compare"}')
    with pytest.raises(UsageError, match="one data set"):
        across_data([study("digits"), study("mnist")], tmp_path, run)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").touch()
    with pytest.raises(UsageError, match="empty"):
        across_data([study("digits"), study("mnist")], tmp_path / "full", run)


def test_every_folder_is_looked_at_before_the_first_is_trained(tmp_path: Path) -> None:
    declare(dataclasses.replace(study("digits"), seeds=(0, 1, 2)), tmp_path / "both" / "digits")
    (tmp_path / "both" / STUDY).write_text('{"kind": "several", "studies": {"digits": "digits"}}')

    def train(_study: Study, _folder: Path) -> Result:
        raise AssertionError("trained first")

    with pytest.raises(UsageError, match="seeds 0/1/2"):
        across_data([study("mnist"), study("digits")], tmp_path / "both", train)
