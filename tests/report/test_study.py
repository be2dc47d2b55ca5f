from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.base.layout import RESULT, STUDY
from vitral.report.study import interval, write_study_report
from vitral.report.study import tested as table_of_tests

ROW = {"seeds": 3, "parameters": 3_195_146, "flops": 412_000_000, "seconds": 75.2, "memory": 3 * 2**30}


def result() -> dict:
    return {
        "kind": "compare",
        "data": "cifar10",
        "budget": "10 epochs",
        "seeds": [0, 1, 2],
        "rows": [
            {"model": "ViT", "mean": 0.7712, "interval": [0.765, 0.7774], "accuracies": [0.77, 0.771, 0.7726], **ROW},
            {"model": "CNN", "mean": 0.89, "interval": None, **ROW, "seeds": 1},
        ],
        "pairs": [
            {"a": "ViT", "b": "CNN", "difference": -0.1188, "interval": [-0.13, -0.11], "p": 0.0001, "adjusted": 0.0002, "different": True,
             "test": "paired bootstrap, Holm"},
        ],
        "conclusion": "CNN is better than ViT on cifar10 at 10 epochs.",
        "models": {"ViT": "ViT, from vit.safetensors, the head learns"},
        "tuning": {
            "ViT": {"chosen": 3e-4, "trials": [{"lr": 3e-4, "validation": 0.7}, {"lr": 9, "failed": "it diverged"}], "at_edge": True}
        },
        "failed": {"vit-seed-2": "out of memory"},
        "machine": {"torch": "2.15", "cpu_count": 2},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, figures: Callable) -> Path:
    path = tmp_path / "my-study"
    path.mkdir()
    (path / STUDY).write_text(json.dumps({"kind": "compare", "claim": "significance"}))
    (path / RESULT).write_text(json.dumps(result()))
    figures(path, "accuracy", caption="Accuracy of each model")
    return path


def test_where_the_bootstrap_ends_a_bound_is_told() -> None:
    (pair,) = result()["pairs"]
    assert table_of_tests([pair])[0][0][3:5] == ["< 0.001", "< 0.001"]
    assert table_of_tests([pair | {"at_most": True, "p": 0.0005, "adjusted": 0.003}])[0][0][3:5] == ["≤ 0.0005", "≤ 0.003"]


def test_a_whole_study(folder: Path, read: Callable) -> None:
    page = read(write_study_report(folder))
    for text in (
        "my-study",
        "CNN is better than ViT on cifar10 at 10 epochs.",
        "77.1 %",
        "76.5 to 77.7 %",
        "3.2 M",
        "412 M",
        "1 min 15 s",
        "3 GiB",
        "−11.88 points",
        "−13.00 to −11.00 points",
        "< 0.001",
        "different",
        "paired bootstrap, Holm",
        "at the edge of what was tried",
        "9 (failed: it diverged)",
        "from vit.safetensors, the head learns",
        "vit-seed-2: out of memory",
        "77.0 %, 77.1 %, 77.3 %",
        "Accuracy of each model",
        "significance",
        "2.15",
    ):
        assert text in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 1


def test_an_unfinished_study(folder: Path, read: Callable) -> None:
    (folder / RESULT).unlink()
    text = read(write_study_report(folder)).text
    assert "result.json is missing: the study is not finished, run the same command again" in text
    assert "significance" in text


def test_rows_of_another_kind_and_sizes(folder: Path, read: Callable) -> None:
    (folder / STUDY).unlink()
    (folder / RESULT).write_text(json.dumps({"kind": "cost", "rows": [{"patch_size": 4, "seconds": 0.12, "inner": {"x": 1}}]}))
    text = read(write_study_report(folder)).text
    assert "patch size" in text
    assert "0.12" in text
    assert "inner" not in text
    cost = {"image": 8, "flops": 4465920, "linear": 4203776, "forward_ms": 1.00258, "memory": 1030868992}
    (folder / RESULT).write_text(json.dumps({"kind": "cost", "rows": [cost]}))
    text = read(write_study_report(folder)).text
    assert (
        all(said in text for said in ("4.47 M", "linear FLOPs", "FLOPs per picture", "forward ms per picture", "983 MiB"))
        and "1,030,868,992" not in text
    )
    rows = [{"model": "ViT", "mean": 0.5, "size": size, **ROW} for size in (1250, 2500)]
    (folder / RESULT).write_text(json.dumps({"rows": rows}))
    text = read(write_study_report(folder)).text
    assert "training pictures" in text
    assert "1,250" in text


def test_shares_of_the_budget_tell_rows_apart(folder: Path, read: Callable) -> None:
    rows = [{"model": "ViT", "mean": 0.5, "size": 100, "share": share, "accuracies": [0.4, 0.6], **ROW} for share in (0.25, 1.0)]
    (folder / RESULT).write_text(json.dumps({"rows": rows}))
    text = read(write_study_report(folder)).text
    assert text.count("budget") == 2 and text.count("25 %") == 2 and "training pictures" not in text


def test_rows_without_shots_are_fine_tuned(folder: Path, read: Callable) -> None:
    rows = [{**row, "shots": shots} for row in result()["rows"] for shots in (0, 5)]
    (folder / RESULT).write_text(json.dumps({**result(), "rows": rows}))
    text = write_study_report(folder).read_text(encoding="utf-8")
    assert text.count("<td>fine-tuned</td>") >= 2 and text.count("<td>5</td>") >= 2 and "<td>0</td>" not in text


def test_several_data_sets(folder: Path, read: Callable) -> None:
    (folder / STUDY).unlink()
    rows = [{"data": data, "model": "ViT", "mean": 0.5, "size": size, **ROW} for data, size in (("pets", 100), ("flowers", 200))]
    pairs = [{"data": "pets", **result()["pairs"][0]}]
    both = {"rows": rows, "pairs": pairs, "studies": {"pets": "pets", "flowers": "flowers"}, "conclusion": "Of pets.\n\nOf flowers."}
    (folder / RESULT).write_text(json.dumps(both))
    path = write_study_report(folder)
    text = read(path).text
    assert re.search(r"<p>Of pets.</p>\s*<p>Of flowers.</p>", path.read_text())
    assert text.count("pets") >= 3 and "flowers in flowers/" in text and "training pictures" not in text


def test_names_are_only_text(folder: Path, read: Callable, nasty: str) -> None:
    data = result()
    data["conclusion"] = data["rows"][0]["model"] = data["pairs"][0]["a"] = data["pairs"][0]["test"] = nasty
    data["tuning"] = {nasty: data["tuning"]["ViT"]}
    data["failed"] = {nasty: nasty}
    (folder / RESULT).write_text(json.dumps(data))
    assert read(write_study_report(folder)).text.count(nasty) >= 7


def test_no_study(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"study\.json"):
        write_study_report(tmp_path)


def test_no_interval_leaves_what_is_possible() -> None:
    """Student's t of two seeds may say 70 ± 150 points."""
    assert interval([-0.8, 2.2]) == "0.0 to 100.0 %" and interval([0.7, 0.9]) == "70.0 to 90.0 %"
    assert interval([-1.6, 1.4], "points") == "−100.00 to +100.00 points" and interval([-0.00001, 0.02], "points") == "0.00 to +2.00 points"
