import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score, top_k_accuracy_score
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from vitral.base.errors import DataError, UsageError, VitralError
from vitral.base.origin import fact
from vitral.build import create
from vitral.cli.eval import _text as text
from vitral.config import DataConfig, to_dict
from vitral.data.images.preprocess import transform
from vitral.data.splits.open import open_data
from vitral.look.predict import predict
from vitral.train.evaluate import evaluate, evaluate_loader, fit_temperature, mirrored
from vitral.train.scores import calibration_of


class Fixed(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


def loader(logits: torch.Tensor, labels: torch.Tensor, size: int, order: list[int] | None = None):
    places = torch.tensor(order if order is not None else range(len(labels)))

    def epoch(number: int):
        for part in places.split(size):
            yield SimpleNamespace(images=logits[part], labels=labels[part], indices=part)

    return SimpleNamespace(epoch=epoch, class_names=())


def test_figures_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(97, 7, generator=generator), torch.randint(0, 7, (97,), generator=generator)
    labels[labels == 3] = 2  # one class has no picture
    model = Fixed().train()
    result = evaluate_loader(model, loader(logits, labels, 10))
    assert model.training
    assert result.top1 == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    assert result.top5 == pytest.approx(top_k_accuracy_score(labels, logits, k=5, labels=range(7)))
    assert result.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), abs=1e-6)
    assert (result.confusion == confusion_matrix(labels, logits.argmax(1), labels=range(7))).all()
    given, answer = labels.numpy(), logits.argmax(1).numpy()
    present = sorted(set(given))
    assert result.balanced_accuracy == pytest.approx(np.mean(recall_score(given, answer, labels=present, average=None)))
    assert result.f1 == pytest.approx(f1_score(given, answer, labels=present, average="macro"))
    assert result.precision == pytest.approx(
        precision_score(given, answer, labels=range(7), average=None, zero_division=np.nan), nan_ok=True
    )
    assert result.f1_per_class[present] == pytest.approx(f1_score(given, answer, labels=present, average=None))
    assert {"balanced_accuracy", "f1", "precision", "f1_per_class"} <= set(result.to_dict())
    assert repr(result) == f"Evaluation(top1 {100 * result.top1:.1f} %, top5 {100 * result.top5:.1f} %, loss {result.loss:.4f}, 97 images)"
    assert np.isnan(result.per_class[3]) and result.to_dict()["per_class"]["3"] is None
    assert (result.labels == labels.numpy()).all() and len(result.predictions) == 97


def test_batches_order_and_doubles_do_not_matter():
    logits, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 3
    one = evaluate_loader(Fixed(), loader(logits, labels, 20))
    other = evaluate_loader(Fixed(), loader(logits, labels, 3, [*range(19, -1, -1), 4, 5]))
    assert one.top1 == other.top1 and (one.predictions == other.predictions).all()


def test_calibration_error_is_the_gap_between_sure_and_right():
    sure = np.full(100, 0.8)
    assert calibration_of(sure, np.arange(100) < 80)["error"] == pytest.approx(0.0)
    assert calibration_of(sure, np.arange(100) < 30)["error"] == pytest.approx(0.5)
    assert calibration_of(np.ones(4), np.ones(4, bool))["count"][-1] == 4


def test_calibration_bins_are_equal_parts_and_count_by_their_pictures():
    """Three times too shy in one bin, once too sure in another: gaps are sizes, and each weighs as many pictures as it has."""
    sure, right = np.array([0.4, 0.4, 0.4, 0.9]), np.array([True, True, True, False])
    found = calibration_of(sure, right)
    assert found["error"] == pytest.approx((3 * 0.6 + 1 * 0.9) / 4)
    assert np.flatnonzero(found["count"]).tolist() == [6, 13], "0.4 · 15 = 6 and 0.9 · 15 = 13.5"
    assert found["confidence"][6] == pytest.approx(0.4) and found["accuracy"][13] == 0


def test_evaluation_switches_dropout_off_and_back_on():
    logits, labels = torch.randn(40, 5, generator=torch.Generator().manual_seed(2)), torch.arange(40) % 5
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9)).train()
    assert evaluate_loader(model, loader(logits, labels, 8)).predictions.tolist() == logits.argmax(1).tolist()
    assert model.training


def test_a_model_that_answers_nan_is_refused():
    logits = torch.zeros(6, 3)
    logits[4] = float("nan")
    with pytest.raises(VitralError, match="1 of 6"):
        evaluate_loader(Fixed(), loader(logits, torch.arange(6) % 3, 4))


class Photographs(Dataset):
    """Two classes: dark and light, each image of another size."""

    classes = ("dark", "light")

    def __init__(self, ready=None):
        self.ready = ready

    def __len__(self):
        return 10

    def __getitem__(self, number):
        image = Image.new("RGB", (20 + number, 18), (40 + 150 * (number % 2), 60, 90))
        return self.ready(image) if self.ready else image, number % 2


def test_a_dataset_is_prepared_as_the_model_wants_it():
    torch.manual_seed(0)
    model = create("tiny", classes=2)
    result = evaluate(model, Photographs())
    again = evaluate(model, Photographs(ready=transform(model)))
    assert (result.predictions == again.predictions).all() and result.loss == pytest.approx(again.loss, abs=1e-6)
    assert result.class_names == ("class 0", "class 1") and result.labels.tolist() == [0, 1] * 5
    assert model.training, "left as it was"
    probabilities = [
        [share for _, share in sorted(ranking)]
        for ranking in predict(model, [image for image, _ in map(Photographs().__getitem__, range(10))], top=2)
    ]
    assert np.argmax(probabilities, axis=1).tolist() == result.predictions.tolist()


def test_any_module_can_be_evaluated_on_tensors():
    ready = TensorDataset(torch.randn(9, 3), torch.arange(9) % 3)
    result = evaluate(nn.Linear(3, 3), ready, batch_size=4)
    assert len(result.labels) == 9 and result.class_names == ("0", "1", "2")
    with pytest.raises(UsageError, match="Linear"):
        evaluate(nn.Linear(3, 3), Photographs())
    with pytest.raises(UsageError, match="Linear"):
        evaluate(nn.Linear(3, 3), "digits")


def test_images_that_nothing_has_normalised_are_told(capsys):
    evaluate(create("tiny", classes=2), TensorDataset(torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1])))
    assert "as if nothing had normalised them" in capsys.readouterr().err
    evaluate(create("tiny", classes=2), TensorDataset(255 * torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1])))
    assert "the images reach up to 25" in capsys.readouterr().err


def test_images_that_are_no_numbers_are_not_blamed_on_the_weights():
    images = torch.randn(5, 3, 32, 32)
    images[3, 0, 0, 0] = float("nan")
    with pytest.raises(DataError, match="2 to 3"):
        evaluate(create("tiny", classes=2), TensorDataset(images, torch.tensor([0, 1, 0, 1, 0])), batch_size=2)


def test_named_data_and_its_splits():
    model = create("digits", width=16, depth=1, heads=2, mlp_width=16)
    whole = {split: len(evaluate(model, "digits", split).labels) for split in ("train", "validation", "test")}
    assert sum(whole.values()) == 1797 and whole["test"] == 360
    assert len(evaluate(model, DataConfig(name="digits", validation=0.5), "validation").labels) > whole["validation"]
    assert len(evaluate(model, "digits", "all").labels) == 1797 and len(evaluate(model, "digits").labels) == 360
    with pytest.raises(KeyError, match="'tests'"):
        evaluate(model, "digits", "tests")
    with pytest.raises(UsageError, match="3 classes"):
        evaluate(model.with_head(3), "digits")
    with pytest.raises(DataError, match="label 9"):
        evaluate(model.with_head(3), TensorDataset(torch.randn(10, 1, 8, 8), torch.arange(10)))


@pytest.fixture
def photos(tmp_path):
    """3 + 5 + 4 images of bird, cat and dog: a value of grey for each."""

    def fill(folder, names=("bird", "cat", "dog")):
        for name, count, grey in zip(names, (3, 5, 4), (20, 120, 220), strict=True):
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40, 30), (grey,) * 3).save(tmp_path / folder / name / f"{number}.png")
        return f"folder:{tmp_path / folder}"

    return fill


def named(*names):
    torch.manual_seed(0)
    model = create("tiny", classes=len(names))
    model.origin = dataclasses.replace(model.origin, classes=fact(names))
    return model


def test_a_folder_is_scored_whole_unless_it_is_divided(photos):
    model = named("bird", "cat", "dog")
    whole = evaluate(model, photos("plain"))
    assert len(whole.labels) == 12 and whole.split is not None and whole.split.name == "all"
    assert len(evaluate(model, photos("held/test").removesuffix("/test")).labels) == 12, "nothing but a test folder"
    photos("three/train"), photos("three/val"), photos("three/test")
    three = photos("three/x").removesuffix("/x")
    shutil.rmtree(three.removeprefix("folder:") + "/x")
    counts = {split: len(evaluate(model, three, split).labels) for split in (None, "all", "test", "validation", "train")}
    assert counts == {None: 12, "all": 36, "test": 12, "validation": 12, "train": 12}
    with pytest.raises(DataError, match="train"):
        evaluate(model, three.replace("three", "held"), "train")


def test_what_a_model_learnt_from_is_scored_on_its_own_test_split(photos, capsys):
    data = photos("own")
    model = named("bird", "cat", "dog")
    assert len(evaluate(model, data).labels) == 12
    model.origin = dataclasses.replace(model.origin, data=to_dict(DataConfig(name=data, split_seed=3)))
    own = evaluate(model, data + "/")
    assert len(own.labels) == len(open_data(DataConfig(name=data, split_seed=3)).test()) < 12
    assert "it is scored on the test split of its training" in capsys.readouterr().err
    assert len(evaluate(model, data, "all").labels) == 12


def test_names_decide_which_class_is_which(photos):
    data = photos("plain")
    straight, turned = evaluate(named("bird", "cat", "dog"), data), evaluate(named("dog", "owl", "Cat", "bird"), data)
    assert np.bincount(straight.labels).tolist() == [3, 5, 4] and np.bincount(turned.labels).tolist() == [4, 0, 5, 3]
    assert np.isnan(turned.per_class[1]) and turned.class_names == ("dog", "owl", "Cat", "bird")
    with pytest.raises(UsageError, match="bird"):
        evaluate(named("owl", "cat", "dog"), data)


def test_it_says_what_it_was_computed_in(photos):
    data, model = photos("plain"), named("bird", "cat", "dog")
    told = {precision: evaluate(model, data, precision=precision) for precision in ("auto", "fp32", "bf16")}
    assert {precision: result.to_dict()["dtype"] for precision, result in told.items()} == {"auto": "fp32", "fp32": "fp32", "bf16": "bf16"}
    assert ", in bf16)" in text({"model": "m", "data": "d", "split": "all", **told["bf16"].to_dict()})


def test_bad_files_are_named_and_counted(photos, tmp_path, capsys):
    data, model = photos("some"), named("bird", "cat", "dog")
    (tmp_path / "some" / "cat" / "1.png").write_bytes(b"no picture")
    (tmp_path / "some" / "cat" / "._1.png").write_bytes(b"a Mac's shadow")
    (tmp_path / "some" / "dog" / "Thumbs.db").write_bytes(b"windows")
    for batch in (1, 128):
        result = evaluate(model, data, batch_size=batch)
        assert len(result.labels) == 11 and result.skipped == 1 and result.to_dict()["skipped"] == 1
        assert len(result.answers().paths) == 11 and not any("cat/1.png" in path for path in result.answers().paths)
    said = capsys.readouterr().err
    assert "cat/1.png" in said and "._1.png" in said and "Thumbs.db" in said
    with pytest.raises(DataError, match=r"cat/1\.png"):
        evaluate(model, data, on_bad_image="fail")
    for path in (tmp_path / "some").rglob("*.png"):
        path.write_bytes(b"no picture")
    with pytest.raises(DataError, match="read"):
        evaluate(model, data)


def test_a_temperature_undoes_what_made_the_model_too_sure():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 5, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(logits, labels) == pytest.approx(1, abs=0.06)
    assert fit_temperature(logits * 3, labels) == pytest.approx(3 * fit_temperature(logits, labels), rel=1e-2)
    assert fit_temperature(torch.eye(5), torch.arange(5)) == 1, "nothing is wrong: there is no best temperature"
    sure, cooled = (evaluate_loader(Fixed(), loader(logits * 3, labels, 500), temperature=value) for value in (1.0, 3.0))
    assert cooled.calibration["error"] < 0.03 < 0.1 < sure.calibration["error"]
    assert cooled.loss < sure.loss and cooled.top1 == sure.top1 and cooled.to_dict()["temperature"] == 3.0


def test_a_temperature_is_fitted_on_validation_alone(photos):
    model = create("digits", width=16, depth=1, heads=2, mlp_width=16)
    plain, calibrated = evaluate(model, "digits"), evaluate(model, "digits", calibrate=True)
    assert plain.temperature == 1 != calibrated.temperature and plain.top1 == calibrated.top1
    for split in ("all", "validation"):
        with pytest.raises(UsageError, match="fitted"):
            evaluate(model, "digits", split, calibrate=True)
    with pytest.raises(UsageError, match="validation"):
        evaluate(model, TensorDataset(torch.randn(4, 1, 8, 8), torch.arange(4)), calibrate=True)


def test_mirrored_answers_are_the_mean_of_two():
    model = create("tiny", classes=3).eval()
    images = torch.randn(4, 3, 32, 32)
    mean = (model(images).softmax(1) + model(images.flip(-1)).softmax(1)) / 2
    assert torch.allclose(mirrored(model)(images).softmax(1), mean, atol=1e-6)
    turned = torch.cat([images, images.flip(-1)])
    result = evaluate(model, TensorDataset(turned, torch.tensor([0, 1, 2, 0] * 2)), tta="flip")
    assert (result.predictions[:4] == result.predictions[4:]).all()


def test_results_show_themselves_in_a_notebook():
    model = create("tiny", classes=2, depth=1)
    shown = evaluate(model, Photographs())._repr_html_()
    assert shown.count("<tr>") == 3 and "<th>precision</th>" in shown and "balanced accuracy" in shown and "class 0" in shown
    assert "<th>parameters</th>" in model._repr_html_() and model._repr_html_().count("<tr>") > 5


def test_a_path_is_told_how_a_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=f"write folder:{tmp_path}"):
        evaluate(create("tiny", classes=2), tmp_path)
