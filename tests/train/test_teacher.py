"""Any model as a teacher: of another size, with other channels, with classes in another order, fewer, more, or none."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from vitral.base.errors import ConfigError
from vitral.base.origin import fact
from vitral.build import create
from vitral.model.classifier import Classifier
from vitral.presets.runs import run
from vitral.train.fit import Run, fit
from vitral.train.prepare import Setup, prepare
from vitral.train.teacher import Teacher, as_teacher
from vitral.weights.checkpoint import save
from vitral.weights.load import load

from .conftest import digest, tiny
from .stops import stopped_after

CPU = torch.device("cpu")
DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def setup() -> Setup:
    return prepare(run("digits"), CPU)


def make(names: tuple[str, ...], **changes: Any) -> Classifier:
    torch.manual_seed(0)
    settings = {"image_size": 8, "channels": 1, "classes": len(names), "width": 24, "heads": 2, "mlp_width": 24} | changes
    model = create("tiny", **settings).eval()
    model.origin = dataclasses.replace(model.origin, classes=fact(names), mean=fact((0.2,) * model.config.channels))
    return model


def opened(model: Classifier, setup: Setup, folder: Path, distil: Any = None) -> tuple[Teacher, str]:
    path = save(model, folder / "teacher")
    return as_teacher(load(path), str(path), setup.data, setup.preprocess, distil)


def test_a_teacher_sees_pictures_as_it_knows_them(trained: Run):
    student = dataclasses.replace(prepare(run("digits"), CPU).preprocess, mean=(0.1,), std=(0.3,), image_size=(12, 12))
    teacher = Teacher(trained.model, student)
    seen: list[torch.Tensor] = []
    trained.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = torch.full((1, 1, 12, 12), 0.6)
    teacher((pixels - 0.1) / 0.3)
    mean, std = trained.model.origin.mean.value[0], trained.model.origin.std.value[0]
    assert seen[0].shape == (1, 1, 8, 8) and torch.allclose(seen[0], torch.full((1, 1, 8, 8), (0.6 - mean) / std), atol=1e-4)


def test_a_coloured_teacher_sees_grey_pictures_in_all_its_channels(setup: Setup):
    model = make(DIGITS, image_size=32, channels=3)
    model.origin = dataclasses.replace(model.origin, mean=fact((0.1, 0.2, 0.3)), std=fact((0.5, 0.4, 0.25)))
    student = setup.preprocess
    pixels = torch.rand(2, 1, 8, 8)
    shown = Teacher(model, student).shown((pixels - student.mean[0]) / student.std[0])
    larger = torch.nn.functional.interpolate(pixels, (32, 32), mode="bilinear", antialias=True)
    for channel, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.4), (0.3, 0.25))):
        assert torch.allclose(shown[:, channel], (larger[:, 0] - mean) / std, atol=1e-4)
    with pytest.raises(ConfigError, match="1 channels"):
        Teacher(make(DIGITS), dataclasses.replace(student, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3))


def test_classes_are_matched_by_name_not_by_place(setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    images = torch.randn(3, 1, 8, 8)
    for names, said in (
        (DIGITS, ""),
        (DIGITS[::-1], ""),
        ((), "the teacher's classes have no names: those of digits are taken in their order"),
        (("cat", *DIGITS[::-1], "dog"), "the teacher answers among the 10 of its 12 classes that digits has"),
    ):
        model = make(names or DIGITS)
        model.origin = dataclasses.replace(model.origin, classes=fact(names))
        teacher, distil = opened(model, setup, tmp_path)
        assert distil == "answers" and teacher.shared is None
        logits = teacher.model(teacher.shown(images))
        order = [(names or DIGITS).index(digit) for digit in DIGITS]
        assert torch.equal(teacher(images), logits[:, order])
        assert said in (told := capsys.readouterr().err) and bool(told) is bool(said)


def test_of_classes_it_does_not_know_labels_speak_alone(setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    teacher, distil = opened(make((*DIGITS[5:], "cat", "0")), setup, tmp_path)
    assert distil == "answers" and teacher.shared is not None and teacher.shared.tolist() == [0, 5, 6, 7, 8, 9]
    assert "the teacher does not know 1, 2, 3" in (told := capsys.readouterr().err) and "from their labels alone" in told
    assert teacher(torch.randn(2, 1, 8, 8)).shape == (2, 6)
    assert teacher.knows(torch.tensor([0, 1, 4, 9])).tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("names", "changes", "reason"),
    [
        (("cat", "dog"), {}, r"it knows no two classes of digits by name \(0, 1, 2"),
        (("cat", "1", "2", "3"), {}, r"it knows 3 of the 10 classes of digits by name \(1, 2, 3\); --set distil=answers takes those"),
        ((), {"classes": 0}, "it has no head"),
        ((), {"classes": 7}, "its 7 classes have no names, and digits has 10"),
    ],
)
def test_of_a_teacher_with_other_classes_features_are_learnt(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], changes: dict[str, int], reason: str
):
    teacher, distil = opened(make(names, **changes), setup, tmp_path)
    assert distil == "features" and teacher.features(torch.randn(2, 1, 8, 8)).shape == (2, 24) and teacher.width == 24
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(f"the teacher's features are learnt, not its answers: {reason}", told), told
    if "3 of the 10" in reason:
        assert opened(make(names), setup, tmp_path, "answers")[1] == "answers"
    else:
        with pytest.raises(ConfigError, match=f"{reason}.*distil = features"):
            opened(make(names, **changes), setup, tmp_path, "answers")


def test_features_pull_the_student_and_go_on_exactly(out: Path, tmp_path: Path):
    """The map between the two widths is nowhere but in the state."""
    place = str(save(make((), classes=0, image_size=16), tmp_path / "teacher"))
    config = tiny(teacher=place, teacher_weight=0.5, checkpoint_every=0.0, ema=0.9)
    whole = fit(config, out=out.parent / "whole", quiet=True)
    plain = fit(tiny(checkpoint_every=0.0, ema=0.9), out=out.parent / "plain", quiet=True)
    assert digest(whole.model) != digest(plain.model) and whole.model.state_dict().keys() == plain.model.state_dict().keys()
    with stopped_after(7):
        fit(config, out=out, quiet=True)
    assert digest(fit(config, out=out, resume=True, quiet=True).model) == digest(whole.model)


def test_a_rival_learns_answers_but_no_features(out: Path, tmp_path: Path, trained: Run):
    config = tiny(epochs=0.1, teacher=str(trained.path))
    cnn = dataclasses.replace(config, model=dataclasses.replace(config.model, family="cnn", width=8))
    assert fit(cnn, out=out, quiet=True).metrics
    featured = dataclasses.replace(cnn, train=dataclasses.replace(cnn.train, distil="features"))
    with pytest.raises(ConfigError, match=r"teacher.*cnn"):
        fit(featured, out=tmp_path / "refused", quiet=True)
