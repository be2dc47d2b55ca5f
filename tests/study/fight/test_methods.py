"""Ways of learning compared: one model, one budget, one probe; labels are the probe's alone."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitral.base.errors import ConfigError, UsageError
from vitral.base.files import read_json
from vitral.cli import main
from vitral.cost.flops import forward_flops
from vitral.report.run import write_run_report
from vitral.run.folder import RunFolder
from vitral.study.fight.compare import comparison
from vitral.study.fight.conclude import missing_reference
from vitral.study.fight.conduct import Conducted, train_cell
from vitral.study.fight.contenders import METHODS
from vitral.study.fight.experiment import Budget, Contender, Experiment, final_cells, tuning_cells
from vitral.study.fight.folder import Result
from vitral.study.fight.pool import Pool
from vitral.train.prepare import prepare

sys.path.insert(0, str(Path(__file__).parent))
import drive


def fight(methods: list[str], **changes: Any) -> Experiment:
    """The same with a model that is small enough for a test."""
    terms = {"seeds": 2, "lrs": (2e-3,), "budget": "samples=640", "batch_size": 64, "device": "cpu"} | changes
    study = comparison("digits", ["vit-small"], pretrain=methods, **terms)
    return dataclasses.replace(study, contenders=tuple(map(tiny, study.contenders)))


def tiny(contender: Contender) -> Contender:
    run = contender.run
    model = dataclasses.replace(run.model, width=16, depth=1, heads=2, mlp_width=16)
    pretrain = run.pretrain and dataclasses.replace(run.pretrain, projection=8, projection_hidden=16, prototypes=16, decoder_width=16)
    return dataclasses.replace(contender, run=dataclasses.replace(run, model=model, pretrain=pretrain), flops=forward_flops(model))


@pytest.fixture(scope="module", autouse=True)
def one_tenth() -> Iterator[None]:
    """A probe's strength is chosen on one held-out tenth, not on eight: what the table makes of it is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("vitral.study.probe"), "_ENOUGH", 1)
        yield


FOUGHT = ["lejepa", "supervised", "untrained"]


@pytest.fixture(scope="module")
def fought(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return drive.run(fight(FOUGHT), tmp_path_factory.mktemp("methods") / "study", Pool(quiet=True))


def test_the_table_tests_the_probes_answers(fought: Result) -> None:
    rows = {row["model"]: row for row in fought.rows}
    assert list(rows) == FOUGHT
    for name, row in rows.items():
        folders = [RunFolder.open(fought.path / "cells" / cell["cell"]) for cell in fought.values["cells"] if cell["model"] == name]
        right = np.stack([folder.answers().right for folder in folders])  # (seeds, pictures)
        assert right.shape == (2, 360) and right.mean() == pytest.approx(row["mean"]) and row["mean"] > 0.1
        assert row["interval"][0] <= row["mean"] <= row["interval"][1] and row["samples"] == (0 if name == "untrained" else 640)
        assert 0.05 < row["validation"] <= 1 and "linear probe" in row["note"]
        assert all("test" in folder.environment["data"]["opened"] for folder in folders)
    assert rows["lejepa"]["parameters"] == rows["supervised"]["parameters"], "the same model with the same kind of head"
    assert len(fought.values["pairs"]) == 3 and "This holds for digits" in fought.conclusion
    assert "was not measured" not in fought.conclusion, "random weights are among the rows"
    (remark,) = missing_reference(Conducted(fight(["lejepa", "supervised"]), Path(), ()))
    assert "add untrained to --pretrain" in remark
    assert fought.values["figures"] == ["figures/accuracy.png"]


def test_what_a_picture_costs_is_counted_with_all_its_views(fought: Result) -> None:
    """The probe is not in it, nor does random weights' row cost anything."""
    rows, study = {row["model"]: row for row in fought.rows}, fight(FOUGHT)
    model, pretrain = study.contenders[0].run.model, study.contenders[0].run.pretrain
    assert pretrain is not None and rows["supervised"]["training_flops"] == 3 * forward_flops(model) * 640
    projection = 2 * (model.width * 16 + 16 * 16 + 16 * 8 + 8 * pretrain.directions)
    body = forward_flops(dataclasses.replace(model, classes=0))
    assert rows["lejepa"]["training_flops"] == pytest.approx(3 * pretrain.views * (body + projection) * 640, rel=0.02)
    assert rows["untrained"]["training_flops"] == 0 and rows["untrained"]["seconds"] < 1


def test_random_weights_are_judged_as_they_start(fought: Result) -> None:
    (folder, *_) = [RunFolder.open(fought.path / "cells" / cell["cell"]) for cell in fought.values["cells"] if cell["model"] == "untrained"]
    assert [(line["split"], line["step"]) for line in folder.metrics] == [("validation", 0)]
    started = prepare(folder.settled, torch.device("cpu")).model.state_dict()
    kept = folder.model().state_dict()
    assert all(torch.equal(started[name], value) for name, value in kept.items())


def test_without_labels_until_the_probe_and_on_the_same_pictures(fought: Result) -> None:
    parts = {}
    for cell in fought.values["cells"]:
        folder = RunFolder.open(fought.path / "cells" / cell["cell"])
        described, blind = folder.environment["data"], folder.settled.pretrain is not None
        assert (described["classes"] == []) == blind == (cell["model"] == "lejepa")
        assert not blind or all("accuracy" not in line for line in folder.metrics)
        assert all(line["split"] != "test" for line in folder.metrics), "the head that learnt is not what is tested"
        parts[cell["cell"]] = (described["train"], described["validation"], folder.answers().paths)
        assert folder.faults() == [] and (cell["seed"] or write_run_report(folder.path).is_file())
    assert len(set(parts.values())) == 1


def test_it_goes_on_and_repeats_a_cell_to_the_bit(fought: Result, tmp_path: Path) -> None:
    study = fight(FOUGHT)
    cell = final_cells(study, dict.fromkeys(FOUGHT, 2e-3))[0]
    train_cell(cell.to_dict(), str(tmp_path / cell.name))
    once, again = (RunFolder.open(path / cell.name).answers() for path in (fought.path / "cells", tmp_path))
    assert (once.predictions == again.predictions).all()
    assert drive.run(study, fought.path, Pool(quiet=True)).rows == fought.rows


def test_learning_rates_are_chosen_by_the_probe_on_validation(tmp_path: Path) -> None:
    cell = tuning_cells(fight(["dino"], lrs=(1e-3, 2e-3)))[0]
    outcome = train_cell(cell.to_dict(), str(tmp_path / cell.name))
    assert outcome["accuracy"] == outcome["validation"] > 0.05 and outcome["role"] == "tune"
    assert not (tmp_path / cell.name / "test.npz").exists() and RunFolder.open(tmp_path / cell.name).environment["data"]["opened"] == {}


def test_every_method_has_the_same_model_and_its_own_recipe() -> None:
    study = fight(list(METHODS), lrs=None, ema=0.9)
    cells = {cell.contender: cell for cell in tuning_cells(study)}
    assert list(cells) == list(METHODS)
    assert len({dataclasses.replace(cell.run.model, classes=0) for cell in cells.values()}) == 1
    assert {name: cell.run.pretrain and cell.run.pretrain.method for name, cell in cells.items()} == {
        **{name: name for name in METHODS[:3]},
        "supervised": None,
        "untrained": None,
    }
    assert all(cells[name].run.train.ema == 0.9 for name in METHODS[:3])
    tuned = [contender for contender in study.contenders if not contender.is_untrained]
    assert len({len(contender.lrs) for contender in tuned}) == 1, "the same tuning effort"
    grids = {(cells[contender.name].run.train.optimizer, contender.lrs) for contender in tuned}
    assert {rule for rule, _ in grids} == {"adamw", "muon"} and len(grids) == 2, "and the same rates for the same optimizer"
    assert cells["untrained"].run.train.epochs == 0
    assert all(not cell.run.train.test and cell.run.data.split_by == "chance" for cell in cells.values())


def test_equal_flops_are_other_numbers_of_pictures() -> None:
    """How many pictures a method may see follows from what one costs it: views, shown patches, teacher, decoder."""
    study = dataclasses.replace(fight(["mae", "dino", "untrained"]), budget=Budget("flops", 2e10))
    cells = {cell.contender: cell for cell in final_cells(study, dict.fromkeys(METHODS, 2e-3)) if cell.seed == 0}
    spent = {name: cell.training_flops * cell.run.train.epochs * 1293 for name, cell in cells.items()}
    assert spent["mae"] == pytest.approx(2e10, rel=0.06) and spent["dino"] == pytest.approx(2e10, rel=0.06) and spent["untrained"] == 0
    # A decoder of two blocks costs more here than a teacher and a second view of an encoder of one.
    assert cells["dino"].run.train.epochs > 1.2 * cells["mae"].run.train.epochs


def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"lrs": (1e-3,), "budget": "samples=640", "device": "cpu"}
    with pytest.raises(ConfigError, match="patches"):
        comparison("digits", ["cnn"], pretrain=["mae"], **settings)
    with pytest.raises(UsageError, match="one model"):
        comparison("digits", ["vit", "vit-small"], pretrain=["mae"], **settings)
    assert main(["compare", "digits", "--pretrain", "moco", "--out", str(tmp_path / "out")]) == 2
    assert "moco" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["compare", "digits", "--pretrain", "dino,mae", "--models", "vit-small", "--budget", "samples=640", "--seeds", "2"]
    asked += ["--lrs", "2e-3", "--parallel", "1", "--device", "cpu", "--quiet", "--json", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    assert [row["model"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["dino", "mae"]
    assert read_json(tmp_path / "out" / "study.json")["contenders"][1]["run"]["pretrain"]["method"] == "mae"
