"""Maps over the pictures of a test."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import vitral
from vitral.look.notable import explain, usual_method
from vitral.run.answers import Answers


@pytest.fixture
def photos(tmp_path):
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(paths[-1])
    return [str(path) for path in paths]


def answered(paths, predictions, labels):
    top = np.array([[answer, 1 - answer] for answer in predictions])
    return Answers(np.array(predictions), np.array(labels), tuple(paths), top, np.tile([0.75, 0.25], (len(labels), 1)))


def test_an_error_has_a_map_for_the_answer_and_one_for_the_truth(make, photos) -> None:
    model = make(classes=2).float()
    answers = answered(photos, [0, 1, 0, 1], [0, 0, 0, 1])
    found = explain(model, answers, [1, 3], lambda position: photos[position])
    assert list(found) == [1, 3]
    wrong, right = found[1], found[3]
    assert [heat.target for heat in wrong.heats] == [1, 0] and [heat.target for heat in right.heats] == [1]
    assert (wrong.path, wrong.correct, right.correct) == (photos[1], False, True)
    expected = vitral.look.relevance(vitral.watch(model, photos[1]), target=0)
    np.testing.assert_allclose(wrong.heats[1].grid, expected.grid, atol=1e-6)
    assert wrong.picture(80).size == (80, 60) and [image.size for image in wrong.overlays(80)] == [(80, 60)] * 2


def test_what_is_gone_or_of_another_model_is_left_out(make, photos) -> None:
    answers = answered(photos, [0, 1, 0, 9], [0, 0, 0, 1])
    missing = {**dict(enumerate(photos)), 0: photos[0] + ".gone.png"}
    assert list(explain(make(classes=2).float(), answers, range(4), missing.__getitem__)) == [1, 2]


def test_a_model_without_attention_is_explained_by_its_features(photos) -> None:
    model = vitral.create("cnn", classes=2)
    assert usual_method(model) == "gradcam"
    (one,) = explain(model, answered(photos, [0, 1, 0, 1], [0, 1, 0, 1]), [2], lambda position: photos[position]).values()
    assert one.heats[0].method == "gradcam" and one.heats[0].original is not None
