"""What the pages of results say in words: of differences, of verdicts, of chance. Each is computed here from what the words are about."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.scripts import load_script

from vitral.base.files import read_json
from vitral.run.answers import Answers
from vitral.study.fight.growth import gaps
from vitral.study.fight.statistics import compare_pairs

load_script(Path(__file__).parents[1] / "results/build.py")
claim_tables, evidence = sys.modules["claim_tables"], sys.modules["evidence"]
PAGE = " ".join((evidence.ROOT / "docs/results/reports.md").read_text(encoding="utf-8").split())
STUDIES = evidence.read_studies()


@pytest.fixture(scope="module")
def records() -> dict[str, list[evidence.Record]]:
    return evidence.read_records()


def right_of(study: str) -> dict[str, np.ndarray]:
    """Model → (seeds, pictures)."""
    path, found = STUDIES[study], {}
    for cell in read_json(path / "result.json")["cells"]:
        found.setdefault(cell["model"], []).append(Answers.read(path / "cells" / cell["cell"]).right)
    return {model: np.stack(right) for model, right in found.items()}


def pretrained() -> dict[tuple[str, int], float]:
    """(Model, pictures before) → per cent, fine-tuned, of the study with photographs."""
    path, found = STUDIES["pretraining-16px"], {}
    for cell in read_json(path / "result.json")["cells"]:
        if not cell["shots"]:
            right = Answers.read(path / "cells" / cell["cell"]).right
            found.setdefault((cell["model"], cell["pretrained"]), []).append(100 * right.mean())
    return {place: float(np.mean(own)) for place, own in found.items()}


def test_differences_in_words_are_those_of_the_records(records: dict[str, list[evidence.Record]]) -> None:
    named = [name for name in records if not name.startswith("choice-")]  # these never open test
    seeds = {name: [100 * record.right().mean() for record in records[name]] for name in named}
    mean = {name: float(np.mean(own)) for name, own in seeds.items()}
    short, long = ({name: 100 * right.mean() for name, right in right_of(f"compare-16px-{size}").items()} for size in ("100k", "400k"))
    flops = {row["model"]: row["flops"] for row in read_json(STUDIES["digits-patch"] / "result.json")["rows"]}
    after = pretrained()
    longer, shorter = seeds["report-cifar-small-60"], seeds["report-cifar-small"]
    said = {
        "the CNN is ten points ahead after nine epochs, nine after two": (
            (long["cnn@parameters plain"] - long["vit strong"], 9.5, 10.5),
            (short["cnn@parameters plain"] - short["vit plain"], 8.5, 9.5),
        ),
        "from the CNN it takes three points": ((long["cnn@parameters plain"] - long["cnn@parameters strong"], 2.5, 3.5),),
        "by four points and more": ((min(longer) - max(shorter), 4, 5),),
        "seven points in the mean": ((mean["report-cifar-small"] - 56.41, 6.5, 7.5),),
        "by about half a point": ((mean["report-mnist-cnn"] - mean["report-mnist"], 0.4, 0.6),),
        "by a fifth of a point": ((mean["cifar10-finetune"] - mean["cifar10-attention"], 0.17, 0.23),),
        "within half a point of its ViT-B/16": ((97.97 - mean["cifar10-attention"], 0, 0.5),),
        "nearly eight points above R4's": ((mean["flowers102-10"] - 89.12, 7.8, 8),),
        "pre-training is worth six points to the ViT and three to the CNN of its size": (
            (after["vit", 90_000] - after["vit from scratch", 0], 5.5, 6.5),
            (after["cnn@parameters", 90_000] - after["cnn@parameters from scratch", 0], 2.5, 3.5),
        ),
        "even the smallest set is worth all of that to the ViT": ((after["vit", 90_000] - after["vit", 3_000], -0.5, 0.5),),
        "from four points to seven": (
            (after["cnn@parameters", 3_000] - after["vit", 3_000], 3.5, 4.5),
            (after["cnn@parameters", 90_000] - after["vit", 90_000], 6.5, 7.5),
        ),
        "twenty times the FLOPs": ((flops["vit patch_size=1"] / flops["vit patch_size=4"], 19, 21),),
    }
    for words, values in said.items():
        assert words in PAGE, words
        assert all(low <= value <= high for value, low, high in values), (words, values)


def test_two_budgets_counted_together() -> None:
    both = compare_pairs({size: right_of(f"compare-16px-{size}") for size in ("100k", "400k")})
    told = {(size, pair.a, pair.b): pair for size, pairs in both.items() for pair in pairs}
    assert len(told) == 12 and [key for key, pair in told.items() if not pair.different] == [
        (size, "vit plain", "vit strong") for size in ("100k", "400k")
    ]
    assert f"is not told apart from chance ({told['400k', 'vit plain', 'vit strong'].p_text}) when the tests of both budgets" in PAGE


def test_three_models_grow_alike() -> None:
    path, found = STUDIES["scale-16px"], {}
    for cell in read_json(path / "result.json")["cells"]:
        found.setdefault(cell["size"], {}).setdefault(cell["model"], []).append(Answers.read(path / "cells" / cell["cell"]).right)
    right = {size: {model: np.stack(seeds) for model, seeds in models.items()} for size, models in sorted(found.items())}
    few, middle, many = right
    changes = gaps(right[few], right[many])
    tests = compare_pairs({**right, **changes})
    told = {(size, *sorted((pair.a, pair.b))): pair.different for size in right for pair in tests[size]}
    assert not any(told[size, "cnn@parameters", "vit"] for size in right) and told[middle, "vit", "vit-small"]
    assert all(models["vit"].mean() > models["vit-small"].mean() for models in right.values()), (
        "the larger ViT has the higher mean at every size"
    )
    (gained,) = (tests[gap][0] for gap in changes if {gap.a, gap.b} == {"cnn@parameters", "vit"})
    assert (
        -0.02 < gained.interval[0] < gained.interval[1] < 0.02
        and "lies within two points either way, the two are told apart at no size" in PAGE
    )
    parameters = {row["model"]: row["parameters"] for row in read_json(path / "result.json")["rows"]}
    assert 4.5 < parameters["vit"] / parameters["cnn@parameters"] < 6 and many / few == 20


def test_one_seed_decides_no_claim_on_a_difference(records: dict[str, list[evidence.Record]]) -> None:
    judged = [claim for claim in claim_tables.claims() if claim["verdict"] in ("holds", "does not") and "beside" in claim]
    assert judged
    for claim in judged:
        assert min(len(records[claim[name]]) for name in ("record", "beside")) > 1, f"{claim['claim']}: one seed carries no test"


def test_every_study_that_a_claim_stands_on_is_shown_with_its_tests() -> None:
    named = {claim["study"] for claim in claim_tables.claims() if claim.get("study")}
    shown = {name for match in re.findall(r"<!-- results:study:(\S+) -->", PAGE) for name in match.split("+")}
    assert shown & named == named & evidence.read_studies().keys() and shown


def test_random_positions_differ_as_much_as_those_of_r0s_model() -> None:
    """8 × 8 positions of 32 numbers: by chance alone rows are that much more alike than columns, or less, in one draw of six."""
    claim = next(claim for claim in claim_tables.claims() if claim.get("measured") == "report-mnist-positions")
    caption = read_json(evidence.MEASURED / "report-mnist-positions.json")["output"]["caption"]
    row, column = (float(part.split(")")[0]) for part in caption.split("(")[1:3])
    place, rng = np.arange(64), np.random.default_rng(0)
    other = place[:, None] != place
    rows, columns = (other & (line[:, None] == line) for line in (place // 8, place % 8))
    positions = rng.standard_normal((2000, 64, 32))
    positions /= np.linalg.norm(positions, axis=2, keepdims=True)
    alike = positions @ positions.transpose(0, 2, 1)
    chance = np.abs(alike[:, rows].mean(axis=1) - alike[:, columns].mean(axis=1))
    assert 1 / 7 < np.mean(chance >= row - column) < 1 / 5 and "one in six draws of random positions" in claim["why"]
