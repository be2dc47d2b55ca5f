from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.origin import Origin, assumed, fact
from vitral.build import create
from vitral.config import to_dict
from vitral.data.images.augment import POLICIES, policy
from vitral.presets.runs import run
from vitral.report.run import headline, write_run_report
from vitral.run.answers import Answers
from vitral.run.folder import RunFolder


def metrics_lines(epochs: int = 4) -> list[dict]:
    rows = [
        {
            "step": epoch,
            "epoch": epoch,
            "split": split,
            "loss": 2 / epoch,
            "accuracy": 0.5 + 0.1 * min(epoch, 3),
            "lr": 1e-3,
            "seconds": epoch,
        }
        for epoch in range(1, epochs + 1)
        for split in ("train", "validation")
    ]
    return [
        *rows,
        {"step": epochs, "epoch": epochs, "split": "test", "loss": 0.1234, "accuracy": 0.9876, "images_per_second": 500.0, "seconds": 71},
    ]


@pytest.fixture
def folder(tmp_path: Path, figures: Callable) -> Path:
    path = tmp_path / "digits-run"
    path.mkdir()
    origin = Origin(
        source=fact("trained on digits"), mean=assumed((0.5,), "a convention"), changes=("head replaced",), parity={"blocks.0": 2e-7}
    )
    (path / "config.json").write_text(json.dumps({**to_dict(run("digits", seed=3)), "origin": origin.to_dict()}))
    asked = {"run": "digits", "command": "vitral train digits --seed 3", "config": to_dict(run("digits", seed=3))}
    (path / "asked.json").write_text(json.dumps(asked))
    (path / "env.json").write_text(json.dumps({"torch": "2.15", "gpu": None, "data": {"where": "scikit-learn"}}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics_lines()))
    test = {
        "pictures": 10, "loss": 0.1, "top1": 0.9, "top5": 1.0, "per_class": {"a": 0.8, "b": 1.0}, "confusion": [[4, 1], [0, 5]],
        "calibration": {"error": 0.05, "confidence": [0.1, 0.9], "accuracy": [0.0, 0.95], "count": [0, 10]},
    }  # fmt: skip
    (path / "test.json").write_text(json.dumps(test))
    figures(path, "rollout", caption="Rollout of a five", command="vitral look runs/digits five.png")
    return path


def test_a_whole_run(folder: Path, read: Callable) -> None:
    path = write_run_report(folder)
    assert path == folder / "report.html"
    page = read(path)
    for text in (
        "98.8 % right on test, after 4 epochs and 1 min 11 s",
        "Rollout of a five",
        "vitral look runs/digits five.png",
        "trained on digits",
        "a convention",
        "head replaced",
        "largest relative difference is 2e-07 (blocks.0)",
        "2.15",
        "scikit-learn",
        "vitral train digits --seed 3",
        "Confusion matrix",
        "Calibration",
        "0.1234",
    ):
        assert text in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 4
    assert "missing" not in page.text
    assert sum(attributes.get("class") == "assumed" for _, attributes in page.tags) >= 1


def test_training_is_told_by_its_last_epoch_not_by_its_last_batch(folder: Path, read: Callable) -> None:
    rows = [{"epoch": 0.5 * index, "split": "train", "accuracy": 0.1 * index, "loss": 1.0 * index, "seconds": 1} for index in range(1, 7)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = read(write_run_report(folder)).text
    assert "55.0 %" in text
    assert "5.5000" in text


def test_a_run_without_labels_has_no_column_of_accuracies(folder: Path, read: Callable) -> None:
    def headings() -> list[str]:
        return re.findall(r"<th[^>]*>([^<]*)</th>", write_run_report(folder).read_text(encoding="utf-8").partition("</table>")[0])

    assert headings()[:4] == ["split", "epoch", "accuracy", "loss"]
    rows = [{"epoch": 1, "split": split, "loss": 0.5, "seconds": 1, "effective_rank": 9.0} for split in ("train", "validation")]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert headings() == ["split", "epoch", "loss", "time so far"]


def test_a_run_without_labels_is_told_in_few_digits_and_a_collapse_is_not_talked_away(folder: Path, read: Callable) -> None:
    line = {"epoch": 1, "split": "validation", "loss": 0.51234567, "seconds": 1, "effective_rank": 3.13068}
    for collapsed in ({}, {"collapsed": "no Gaussian weight"}):
        (folder / "metrics.jsonl").write_text(json.dumps(line | collapsed) + "\n")
        text = read(write_run_report(folder)).text
        assert "loss 0.512, effective rank 3.13 on validation" in text
        assert ("a first fall is no collapse" in text) == (not collapsed)


def harder(folder: Path, read: Callable, data: dict, train: dict, model: dict) -> str:
    config = json.loads((folder / "config.json").read_text())
    for part, changes in {"data": data, "train": train, "model": model}.items():
        config[part] |= changes
    (folder / "config.json").write_text(json.dumps(config))
    text = read(write_run_report(folder)).text
    return text.partition("that is no fault: ")[2].partition(". \n")[0]


def test_why_training_may_look_worse_is_told_by_the_run_itself(folder: Path, read: Callable) -> None:
    plain = {"augment": "none", "mixup": None, "cutmix": None}, {"label_smoothing": 0.0, "ema": None, "token_drop": 0.0}, {"dropout": 0.0}
    assert harder(folder, read, *plain) == ""
    told = harder(folder, read, {"augment": "light", "cutmix": 0.5}, {"label_smoothing": 0.1, "token_drop": 0.4, "mixing_off": 0.25}, {})
    assert told.split(", ") == [
        "the pictures are augmented (light)",
        "pictures are mixed with each other for the first 75 % of the run",
        "labels are smoothed (0.1)",
        "40 % of the patches are left out for the first 50 % of the run",
    ]
    told = harder(folder, read, *plain[:1], {**plain[1], "teacher": "x", "ema": 0.99, "token_drop_until": 0.0}, {"drop_path": 0.1})
    assert told == "dropout is on, part of the loss is the teacher's, validation is of the averaged weights (EMA)"


def test_mixing_is_told_for_the_policies_that_mix(folder: Path, read: Callable) -> None:
    for name in POLICIES:
        told = harder(folder, read, {"augment": name, "mixup": None, "cutmix": None}, {}, {})
        assert ("pictures are mixed" in told) == (policy(name).mixup + policy(name).cutmix > 0), name


def test_out_is_respected_and_nothing_else_is_written(folder: Path, tmp_path: Path, read: Callable) -> None:
    before = sorted(path.name for path in folder.iterdir())
    read(write_run_report(folder, tmp_path / "elsewhere" / "page.html"))
    assert sorted(path.name for path in folder.iterdir()) == before


def test_names_from_a_folder_are_only_text(folder: Path, read: Callable, figures: Callable, nasty: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["name"] = flat = nasty.replace("/", "")
    config["data"]["name"] = nasty
    config["origin"]["source"]["value"] = nasty
    config["origin"]["classes"] = {"value": [nasty], "known": True, "note": nasty}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "env.json").write_text(json.dumps({nasty: nasty}))
    figures(folder, "nasty", caption=nasty, command=nasty, note=nasty)
    text = read(write_run_report(folder)).text
    assert text.count(nasty) >= 7 and text.count(flat) == 2
    (folder / "config.json").write_text(json.dumps({**config, "name": nasty, nasty: nasty}))  # refused, which is said
    assert read(write_run_report(folder)).text.count(nasty) >= 5


def test_missing_pieces_are_said(folder: Path, read: Callable) -> None:
    for name in ("asked.json", "metrics.jsonl", "env.json", "test.json", "figures/rollout.png", "figures/rollout.json"):
        (folder / name).unlink()
    text = read(write_run_report(folder)).text
    assert "not trained to the end" in text
    assert "metrics.jsonl is missing" in text
    assert "env.json is missing" in text
    assert f"there are no figures yet: they need a model, and {folder} holds none" in text
    assert "no command trains this run again" in text


def test_settings_of_another_version_are_said_and_the_rest_is_shown(folder: Path, read: Callable) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["train"]["a_setting_of_tomorrow"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    text = read(write_run_report(folder)).text
    assert "the settings do not fit this version" in text and "a_setting_of_tomorrow" in text
    assert "98.8 % right on test" in text and "Rollout of a five" in text and "2.15" in text


def test_a_run_that_does_not_say_what_was_asked_for(folder: Path, read: Callable) -> None:
    (folder / "asked.json").unlink()
    text = read(write_run_report(folder)).text
    assert "right on test" in text and "no command trains this run again" in text
    assert "do not fit" not in text


def test_damaged_pieces_are_said(folder: Path, read: Callable) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"step": 5, "epo')
    (folder / "test.json").write_text('{"confusion": [[1, 2]], "top1": "x"}')
    (folder / "env.json").write_text("{")
    text = read(write_run_report(folder)).text
    assert "2 line(s) of metrics.jsonl could not be read" in text
    assert "test.json could not be drawn" in text
    assert "env.json is not JSON" in text
    assert "98.8 % right on test" in text


def test_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run"):
        write_run_report(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="JSON"):
        write_run_report(tmp_path)
    (tmp_path / "config.json").write_text('{"model": {}}')
    with pytest.raises(DataError, match="run"):
        write_run_report(tmp_path)


def test_headlines() -> None:
    rows = metrics_lines(2)
    assert headline(rows[:-1]).startswith("70.0 % right on validation; the test split has not been opened")
    assert headline([]) == "not trained to the end"


def answered(folder: Path, paths: tuple[str, ...]) -> None:
    top, shares = np.array([[0, 1], [1, 0], [0, 1], [1, 0]]), np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.7, 0.3]])
    found = Answers(top[:, 0], np.array([0, 0, 0, 1]), paths, top, shares)
    found.with_pictures(lambda number: Image.new("RGB", (30, 20), ["red", "green", "blue", "gold"][number])).write(folder)


def test_pictures_lead_to_their_files(folder: Path, read: Callable) -> None:
    photos = folder.parent / "my photos"
    photos.mkdir()
    paths = tuple(str(photos / name) for name in ("0.png", "1:.png", "2.png", "gone.png"))
    for path in paths[:3]:
        Image.new("RGB", (4, 4)).save(path)
    answered(folder, paths)
    page = read(write_run_report(folder))
    for text in ("most confident errors", "a, taken for b, 80.0 %", "least confident right answers", "a, 60.0 %"):
        assert text in page.text
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a" and not attributes["href"].startswith("#")}
    assert links == {"../my%20photos/0.png", "../my%20photos/1%3A.png", "../my%20photos/2.png"}
    assert {(folder / unquote(link)).resolve() for link in links} == {Path(path) for path in paths[:3]}


def test_answers_of_a_stranger_are_only_text(folder: Path, read: Callable, nasty: str) -> None:
    answered(folder, ("javascript:alert(1)", nasty, "/etc/passwd", "http://x/a.png"))
    page = read(write_run_report(folder))
    assert all(attributes["href"].startswith("#") for tag, attributes in page.tags if tag == "a") and "most confident errors" in page.text
    np.savez(folder / "test.npz", predictions=np.zeros(3), labels=np.zeros((2, 2)), pictures=np.array([0]))
    assert "could not be shown" in read(write_run_report(folder)).text


def test_a_run_on_other_data_is_not_called_after_its_preset(folder: Path, read: Callable) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["data"]["name"] = "folder:somewhere/pets"
    (folder / "config.json").write_text(json.dumps(config))
    page = write_run_report(folder)
    assert "<h1>pets</h1>" in page.read_text(encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({**config, "name": "mine"}))
    assert "<h1>mine</h1>" in write_run_report(folder).read_text(encoding="utf-8")


def test_how_to_make_figures_can_be_typed(folder: Path, read: Callable) -> None:
    spaced = folder.rename(folder.parent / "my run")
    shutil.rmtree(spaced / "figures")
    (spaced / "model.safetensors").touch()
    text = read(write_run_report(spaced)).text
    assert f"vitral figures '{spaced}' --out '{spaced / 'figures'}'" in text


def test_pictures_have_maps_unless_the_run_is_a_strangers(folder: Path, read: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run from elsewhere may name any file of this user: its pictures are linked, never opened."""
    config = json.loads((folder / "config.json").read_text())
    config["data"]["name"] = "folder:photos"
    (folder / "config.json").write_text(json.dumps(config))
    paths = tuple(str(folder.parent / f"{number}.png") for number in range(4))
    for path in paths:
        Image.new("RGB", (40, 30), "teal").save(path)
    answered(folder, paths)
    monkeypatch.setattr(RunFolder, "has_model", True)
    monkeypatch.setattr(RunFolder, "model", lambda _: create("tiny", classes=2))

    def maps(**options: bool) -> list[str]:
        page = read(write_run_report(folder, **options))
        return [facts["aria-label"] for tag, facts in page.tags if tag == "input" and facts["aria-label"].startswith("enlarge: for ")]

    assert maps() == []
    monkeypatch.setattr("vitral.report.run.made_here", lambda _: True)
    assert maps()[:3] == ["enlarge: for b", "enlarge: for a", "enlarge: for a"], "an error has two"
    assert maps(maps=False) == []


def test_no_figure_stands_twice_and_the_page_has_contents(folder: Path, read: Callable, figures: Callable) -> None:
    figures(folder, "curves", caption="Accuracy and loss over the epochs.")
    figures(folder, "rollout-again", caption="Rollout of a five")
    page = read(write_run_report(folder))
    shown = [facts["alt"] for tag, facts in page.tags if tag == "img"]
    assert len([alt for alt in shown if alt.startswith("Accuracy and loss")]) == 1 and shown.count("Rollout of a five") == 1
    assert [facts["href"] for tag, facts in page.tags if tag == "a"][:2] == ["#part-1", "#part-2"]
    before = [one for (one, _), (tag, _) in itertools.pairwise(page.tags) if tag == "img"]
    assert before and set(before) == {"input"}, "a click enlarges each"
