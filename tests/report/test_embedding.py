"""The page of an embedding: self-contained, its files beside it, and every picture under its mark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.cli import main
from vitral.report.embedding import write_embedding
from vitral.study.embed import Embedding


def made(folder: Path, classes: int = 3, each: int = 4) -> Embedding:
    """Classes around far corners; the first two pictures of the first class are nearly the same."""
    draw = np.random.default_rng(0)
    paths, labels = [], []
    for number in range(classes):
        for index in range(each):
            path = folder / f"class {number:02d}" / f"{index} & <b>.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 16), (8 * number, 40 * index, 90)).save(path)
            paths.append(path.relative_to(folder).as_posix())
            labels.append(path.parent.name)
    features = np.eye(classes, 40)[np.repeat(np.arange(classes), each)] * 4 + draw.normal(size=(len(paths), 40))
    features[1] = features[0] + 0.01
    thumbnails = {number: Image.new("RGB", (96, 96), (number, 0, 0)) for number in range(len(paths))}
    return Embedding(features.astype(np.float32), tuple(paths), tuple(labels), folder, 1, thumbnails)


def test_the_page_has_a_map_neighbours_and_near_duplicates(tmp_path: Path, read: Callable) -> None:
    found = made(tmp_path / "photos")
    told = write_embedding(found, tmp_path / "out", "a model", "vitral embed …")
    page = read(tmp_path / "out" / "report.html")
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.count('class="point') == 12 and "<b>" not in text and "&lt;b&gt;" in text
    assert "photos/class%2000/0%20%26%20%3Cb%3E.png" in text, "a click leads to the file"
    assert "1 picture could not be read" in page.text and "Nearest neighbours" in page.text and "vitral embed …" in page.text
    assert told["near_duplicates"] == [{"first": found.paths[0], "second": found.paths[1], "likeness": pytest.approx(1, abs=1e-3)}]
    assert json.loads((tmp_path / "out" / "embedding.json").read_text())["agreement"] == told["agreement"] > 0.8
    assert (tmp_path / "out" / "features.npz").is_file()
    assert "script" not in text and "http-equiv" in text, "nothing runs, and nothing is fetched"


def test_many_classes_one_picture_and_no_folders_have_a_page_too(tmp_path: Path) -> None:
    many = made(tmp_path / "many", classes=30, each=2)
    assert write_embedding(many, tmp_path / "a", "m", kind="pca")["pictures"] == 60
    text = (tmp_path / "a" / "report.html").read_text()
    keys = re.findall(r'<li class="key\d+"><span class="mark (\w+)" style="--colour:(#\w+)"', text)
    assert text.count("class 2") > 0 and len(keys) == len(set(keys)) == 22, "each class has a mark of its own, the rest shares one"
    alone = Embedding(many.features[:1], many.paths[:1], ("",), many.folder, 0, {0: many.thumbnails[0]})
    assert write_embedding(alone, tmp_path / "b", "m")["agreement"] is None
    assert "None were found" in (tmp_path / "b" / "report.html").read_text()


def test_the_verb_writes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vitral.build import create
    from vitral.weights.checkpoint import save

    made(tmp_path / "photos", each=4)
    model = str(save(create("tiny", classes=2), tmp_path / "model"))
    assert main(["embed", model, str(tmp_path / "photos"), "--out", str(tmp_path / "out"), "--quiet", "--map", "pca"]) == 0
    told = capsys.readouterr().out
    assert "12 pictures" in told and "nearest neighbour of the same class" in told and "report.html" in told
    with np.load(tmp_path / "out" / "features.npz") as stored:
        assert stored["labels"].tolist()[0] == "class 00" and len(stored["paths"]) == 12
