"""`vitral diff`: what differs is named, what is the same is not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from vitral.base.errors import DataError, UsageError
from vitral.base.layout import METRICS
from vitral.cli import main
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.run.answers import Answers
from vitral.run.differences import differences
from vitral.run.folder import RunFolder
from vitral.train.fit import fit

TINY = ModelConfig(patch_size=(4, 4), width=8, depth=1, heads=1, mlp_width=8).opened()
BASE = RunConfig("run", TINY, DataConfig("digits"), TrainConfig(epochs=0.5, lr=1e-2, threads=1, device="cpu"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    variants = {
        "one": BASE,
        "again": BASE,
        "seed": dataclasses.replace(BASE, train=dataclasses.replace(BASE.train, seed=1)),
        "split": dataclasses.replace(BASE, data=dataclasses.replace(BASE.data, split_seed=5)),
        "closed": dataclasses.replace(BASE, train=dataclasses.replace(BASE.train, test=False)),
    }
    for name, config in variants.items():
        fit(config, folder / name, quiet=True)
    return folder


def test_a_repeated_run_differs_in_nothing(runs: Path, capsys: pytest.CaptureFixture[str]):
    found = differences([runs / "one", runs / "again"])
    assert not found.differ and found.settings == found.data == found.versions == {} and found.weights == [True]
    assert found.curves[0]["same"] and found.answers[0]["same"] == found.answers[0]["images"] > 100
    assert main(["diff", str(runs / "one"), str(runs / "again")]) == 0
    assert "setting" not in (shown := capsys.readouterr().out) and "the same" in shown


def test_another_seed_differs_in_the_seed_the_curves_and_the_answers(runs: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["diff", str(runs / "one"), str(runs / "seed"), str(runs / "again"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == {"train.seed": [0, 1, 0]} and found["data"] == {} and found["differ"] is True
    assert found["weights"] == [False, True] and [each["same"] for each in found["curves"]] == [False, True]
    assert found["curves"][0]["first_step"] is not None and found["answers"][0]["same"] < found["answers"][0]["images"]
    one, other = found["results"]["accuracy"][:2]
    counted = found["answers"][0]
    assert (counted["only_second"] - counted["only_first"]) / counted["images"] == pytest.approx(other - one)


def test_answers_to_other_images_are_not_compared(runs: Path, tmp_path: Path):
    assert differences([runs / "one", runs / "split"]).settings == {"data.split_seed": [0, 5]}
    other = Path(shutil.copytree(runs / "one", tmp_path / "other"))
    kept = RunFolder.open(other).answers()
    Answers(kept.predictions[::-1].copy(), kept.labels[::-1].copy(), kept.paths[::-1]).write(other)
    found = differences([runs / "one", other])
    assert found.answers == [{"problem": "tested on other images"}]
    assert "tested on other images" in found.text()
    with pytest.raises(UsageError, match="name two or more"):
        differences([runs / "one"])
    with pytest.raises(DataError, match="run"):
        differences([runs / "one", tmp_path])


def test_a_run_that_opened_no_test_images_is_not_called_damaged(runs: Path, tmp_path: Path):
    found = differences([runs / "one", runs / "closed"])
    assert found.answers == [{"problem": "not tested"}] and found.weights == [True]
    gone = Path(shutil.copytree(runs / "one", tmp_path / "gone"))
    (gone / "test.npz").unlink()
    assert "cannot be read" in differences([runs / "one", gone]).answers[0]["problem"]


def test_curves_without_a_shared_line_are_not_the_same(runs: Path, tmp_path: Path):
    later = Path(shutil.copytree(runs / "one", tmp_path / "later"))
    lines = [json.loads(line) for line in (later / METRICS).read_text().splitlines()]
    (later / METRICS).write_text("".join(json.dumps(line | {"step": line["step"] + 1000}) + "\n" for line in lines))
    text = differences([runs / "one", later]).text()
    assert "no line of the journal is shared" in text and "the same on" not in text


HOSTILE = {
    "a list": ("env.json", []),
    "data that is no object": ("env.json", {"data": [1]}),
    "objects in objects": ("env.json", json.loads('{"a":' * 300 + "1" + "}" * 300)),
    "an escape sequence": ("env.json", {"\x1b[2J": "\x1b]0;owned\x07", "long" * 1000: 1}),
    "words for numbers": (
        "metrics.jsonl",
        {"split": "validation", "step": "one", "accuracy": "all", "loss": [], "epoch": {}, "seconds": "x"},
    ),
    "lines without numbers": ("metrics.jsonl", {"split": "validation", "step": 3}),
    "numbers that no run has": ("metrics.jsonl", {"split": "test", "step": 1, "epoch": 1e308, "seconds": 1e308, "accuracy": 1e308}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strangers_run_is_listed_and_compared_or_refused_in_one_line(
    runs: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    other = Path(shutil.copytree(runs / "one", tmp_path / "other"))
    file, content = HOSTILE[name]
    (other / file).write_text(json.dumps(content) + "\n")
    for words in (
        ["runs", str(tmp_path)],
        ["diff", str(runs / "one"), str(other)],
        ["runs", str(runs / "one"), str(other)],
        ["report", str(other)],
    ):
        assert main(words) in (0, 1)
        said = capsys.readouterr()
        assert "--debug" not in said.err and said.err.count("\n") <= 1
        assert "\x1b" not in said.out and max(map(len, said.out.splitlines()), default=0) < 1000
