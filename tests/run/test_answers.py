"""Answers image by image, and the small pictures that stand beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.run.answers import Answers, MultiLabelAnswers, stored_classes

LABELS = np.array([0, 0, 0, 1, 1, 1])
PREDICTIONS = np.array([0, 1, 1, 1, 1, 1])
CONFIDENCE = np.array([0.9, 0.6, 0.8, 0.95, 0.55, 0.7])


@pytest.fixture
def answers() -> Answers:
    top = np.stack([PREDICTIONS, 1 - PREDICTIONS], axis=1)
    return Answers(PREDICTIONS, LABELS, tuple(f"photos/{n}.jpg" for n in range(6)), top, np.stack([CONFIDENCE, 1 - CONFIDENCE], axis=1))


def test_what_teaches_most(answers: Answers) -> None:
    assert {name: found.tolist() for name, found in answers.notable().items()} == {
        "most confident errors": [2, 1],
        "least confident right answers": [4, 5, 0, 3],
    }
    assert {label: found.tolist() for label, found in answers.by_class().items()} == {0: [2, 1, 0], 1: [4, 3]}


def test_what_is_written_is_read(answers: Answers, tmp_path: Path) -> None:
    colours = ["red", "green", "blue", "white", "black", "yellow"]
    answers.with_pictures(lambda number: Image.new("RGB", (40, 200), colours[number])).write(tmp_path)
    found = Answers.read(tmp_path)
    assert found.paths == answers.paths and (found.predictions == PREDICTIONS).all() and (found.labels == LABELS).all()
    assert found.probabilities is not None and found.probabilities.dtype == np.float16
    assert np.allclose(found.probabilities[:, 0], CONFIDENCE, atol=1e-3)
    assert found.pictures is not None and set(found.pictures) == set(answers.shown().tolist())
    for position, picture in found.pictures.items():
        assert np.abs(np.subtract(picture.getpixel((48, 48)), Image.new("RGB", (1, 1), colours[position]).getpixel((0, 0)))).max() < 24
    assert (tmp_path / "test.webp").stat().st_size < 20_000


def test_answers_of_before_have_no_pictures(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", predictions=PREDICTIONS, labels=LABELS)
    found = Answers.read(tmp_path)
    assert found.pictures is None and found.paths == () and len(found.notable()["most confident errors"]) == 2
    (tmp_path / "test.npz").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read"):
        Answers.read(tmp_path)


def test_few_classes_are_kept_whole() -> None:
    assert [stored_classes(classes) for classes in (2, 10, 11, 1000)] == [2, 10, 5, 5]


def test_what_to_ask_about_an_image() -> None:
    assert Answers(np.array([1, 0]), np.array([1, 2])).disputed(0) == [1] and Answers(np.array([1, 0]), np.array([1, 2])).disputed(1) == [
        0,
        2,
    ]
    shares = np.array([[0.9, 0.8, 0.1, 0.3], [0.7, 0.9, 0.1, 0.2]])
    multi_label = MultiLabelAnswers(np.array([[1, 1, 0, 0], [1, 1, 0, 0]]), np.array([[0, 1, 1, 1], [1, 1, 0, 0]]), probabilities=shares)
    assert multi_label.disputed(0) == [0, 2], "the wrong label it was surest of, and the one it missed by most"
    assert multi_label.disputed(1) == [1], "all right: the surest"


def test_errors_come_surest_first() -> None:
    one = Answers(np.array([0, 1, 1]), np.array([1, 1, 0]), (), None, np.array([[0.6], [0.9], [0.8]]))
    assert one.errors().tolist() == [2, 0]
    labels, shares = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[0.9, 0.7], [0.2, 0.6], [0.1, 0.9]])
    assert MultiLabelAnswers((shares > 0.5).astype(int), labels, (), None, shares).errors().tolist() == [2, 0]
