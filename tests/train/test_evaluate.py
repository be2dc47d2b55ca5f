from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, top_k_accuracy_score
from torch import nn

from vitral.base.errors import VitralError
from vitral.train.evaluate import calibrate, evaluate


class Fixed(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


def loader(logits: torch.Tensor, labels: torch.Tensor, size: int, order: list[int] | None = None):
    places = torch.tensor(order if order is not None else range(len(labels)))

    def epoch(number: int):
        for part in places.split(size):
            yield SimpleNamespace(images=logits[part], labels=labels[part], indices=part)

    return SimpleNamespace(epoch=epoch)


def test_figures_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(97, 7, generator=generator), torch.randint(0, 7, (97,), generator=generator)
    labels[labels == 3] = 2  # one class has no picture
    model = Fixed().train()
    result = evaluate(model, loader(logits, labels, 10))
    assert model.training
    assert result.top1 == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    assert result.top5 == pytest.approx(top_k_accuracy_score(labels, logits, k=5, labels=range(7)))
    assert result.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), abs=1e-6)
    assert (result.confusion == confusion_matrix(labels, logits.argmax(1), labels=range(7))).all()
    assert repr(result) == f"Evaluation(top1 {result.top1:.2%}, top5 {result.top5:.2%}, loss {result.loss:.4f}, 97 images)"
    assert np.isnan(result.per_class[3]) and result.to_dict()["per_class"]["3"] is None
    assert (result.labels == labels.numpy()).all() and len(result.predictions) == 97


def test_batches_order_and_doubles_do_not_matter():
    logits, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 3
    one = evaluate(Fixed(), loader(logits, labels, 20))
    other = evaluate(Fixed(), loader(logits, labels, 3, [*range(19, -1, -1), 4, 5]))
    assert one.top1 == other.top1 and (one.predictions == other.predictions).all()


def test_calibration_error_is_the_gap_between_sure_and_right():
    sure = np.full(100, 0.8)
    assert calibrate(sure, np.arange(100) < 80)["error"] == pytest.approx(0.0)
    assert calibrate(sure, np.arange(100) < 30)["error"] == pytest.approx(0.5)
    assert calibrate(np.ones(4), np.ones(4, bool))["count"][-1] == 4


def test_calibration_bins_are_equal_parts_and_count_by_their_pictures():
    """Three times too shy in one bin, once too sure in another: gaps are sizes, and each weighs as many pictures as it has."""
    sure, right = np.array([0.4, 0.4, 0.4, 0.9]), np.array([True, True, True, False])
    found = calibrate(sure, right)
    assert found["error"] == pytest.approx((3 * 0.6 + 1 * 0.9) / 4)
    assert np.flatnonzero(found["count"]).tolist() == [6, 13], "0.4 · 15 = 6 and 0.9 · 15 = 13.5"
    assert found["confidence"][6] == pytest.approx(0.4) and found["accuracy"][13] == 0


def test_evaluation_switches_dropout_off_and_back_on():
    logits, labels = torch.randn(40, 5, generator=torch.Generator().manual_seed(2)), torch.arange(40) % 5
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9)).train()
    assert evaluate(model, loader(logits, labels, 8)).predictions.tolist() == logits.argmax(1).tolist()
    assert model.training


def test_a_model_that_answers_nan_is_refused():
    logits = torch.zeros(6, 3)
    logits[4] = float("nan")
    with pytest.raises(VitralError, match="NaN or infinite for 1 of 6 pictures"):
        evaluate(Fixed(), loader(logits, torch.arange(6) % 3, 4))
