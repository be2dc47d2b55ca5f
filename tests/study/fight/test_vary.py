from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from vitral.base.errors import ConfigError, UnknownNameError, UsageError
from vitral.cost.flops import forward_flops
from vitral.presets import model
from vitral.study.fight.compare import comparison
from vitral.study.fight.contenders import vary_setting as vary
from vitral.study.fight.experiment import Contender, final_cells
from vitral.study.fight.pool import Pool

sys.path.insert(0, str(Path(__file__).parent))
import drive

TERMS = {**drive.TERMS, "lrs": (3e-3,), "budget": "samples=256"}
STUDY = comparison("digits", ["vit-small"], **TERMS)
(VIT,) = STUDY.contenders


def from_weights(contender: Contender) -> Contender:
    return dataclasses.replace(contender, run=dataclasses.replace(contender.run, weights="x"))


def test_fields_of_the_model() -> None:
    before, after = vary([VIT], "norm_order=pre,post")
    assert (before.name, after.name) == ("vit-small norm_order=pre", "vit-small norm_order=post")
    assert before.run.model == VIT.run.model and after.run.model == dataclasses.replace(VIT.run.model, norm_order="post")
    token, mean = vary([VIT], "pool=class, mean")
    assert token.run.model.class_token and not mean.run.model.class_token and token.run.model.tokens == mean.run.model.tokens + 1
    coarse = vary([VIT], "patch_size=2,4")[1]
    assert coarse.run.model.patch_size == (4, 4) and coarse.flops == forward_flops(coarse.run.model) < VIT.flops
    assert "patch 4×4, 4 tokens" in coarse.note and coarse.note.endswith(", patch_size 4") and "2×2" not in coarse.note
    assert [contender.run.model.qk_norm for contender in vary([VIT], "qk_norm=true,false")] == [True, False]


def test_settings_of_the_training() -> None:
    small, large = vary([VIT], "batch_size=32,128")
    study = dataclasses.replace(STUDY, contenders=(small, large))
    cells = final_cells(study, {small.name: 3e-3, large.name: 3e-3})
    assert [cell.run.train.batch_size for cell in cells] == [32, 32, 128, 128]
    # The same pictures are seen, in whole batches of their own sizes.
    assert {round(cell.run.train.epochs * 1294) for cell in cells} <= {256, 257, 258, 259, 260, 261, 262}
    assert [contender.run.data.augment for contender in vary([VIT], "augment=none,standard")] == ["none", "standard"]
    weighed = vary([VIT], "class_weights=false,true")
    cells = final_cells(dataclasses.replace(STUDY, contenders=weighed), {one.name: 3e-3 for one in weighed})
    assert [cell.run.data.class_weights for cell in cells] == [False, False, True, True]
    assert [contender.run.train.teacher for contender in vary([VIT], "teacher=none,runs/big")] == [None, "runs/big"]
    assert [contender.run.train.ema for contender in vary([VIT], "ema=None,.9")] == [None, 0.9]
    pretrained = dataclasses.replace(from_weights(VIT), widens=True)
    assert [(one.run.train.tune, min(one.lrs) < 1e-3) for one in vary([pretrained], "tune=attention,head")] == [
        ("attention", True),
        ("head", False),
    ]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("norm_order", UsageError, "is not a setting with two values"),
        ("norm_order=pre", UsageError, "is not a setting with two values"),
        ("colour=a,b", UnknownNameError, "setting to vary"),
        ("lr=1e-3,3e-3", UnknownNameError, "setting to vary"),
        ("norm_order=pre,sideways", ConfigError, "norm_order"),
        ("batch_size=many,64", ConfigError, "batch_size = 'many' cannot be varied: it must be int"),
        ("tune=all,head", UsageError, "would freeze random numbers"),
        ("patch_size=3,2", ConfigError, "patch"),
        ("classes=5,10", UsageError, "the data say how many classes there are"),
    ],
)
def test_refused(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        vary([VIT], text)
    with pytest.raises(UsageError, match="weights"):
        vary([from_weights(VIT)], "width=32,64")


def test_what_a_rival_does_not_have_is_not_varied() -> None:
    cnn = drive.contender("cnn", model("cnn", image_size=8, channels=1, classes=10), 1)
    with pytest.raises(UsageError, match="patch_size"):
        vary([VIT, cnn], "patch_size=2,4")
    narrow, wide = vary([cnn], "width=16,32")
    assert narrow.flops < wide.flops
    assert [one.run.train.ema for one in vary([cnn], "ema=none,0.9")] == [None, 0.9]


def test_side_by_side(tmp_path: Path) -> None:
    study = comparison("digits", ["vit-small"], vary="norm_order=pre,post", **TERMS)
    result = drive.run(study, tmp_path / "study", Pool(quiet=True))
    assert [row["model"] for row in result.rows] == ["vit-small norm_order=pre", "vit-small norm_order=post"]
    assert len(result.values["pairs"]) == 1 and result.rows[0]["accuracies"] != result.rows[1]["accuracies"]
