"""A recorded pass gives the numbers of the plain one, follows the weights, and `predict` uses it."""

from __future__ import annotations

import pytest
import torch

from vitral.build import create
from vitral.kernels import graphs
from vitral.look.predict import predict
from vitral.model.classifier import Classifier

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture
def model(cuda: torch.device) -> Classifier:
    torch.manual_seed(0)
    return create("ti/16", image_size=64, depth=3, classes=7).to(cuda).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inference", [True, False])
def test_the_same_numbers_for_every_picture(
    model: Classifier, dtype: torch.dtype, inference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, own = [], graphs.record
    monkeypatch.setattr(graphs, "record", lambda *given: recorded.append(own(*given)) or recorded[-1])
    forward, mode = graphs.replayed(model), torch.inference_mode if inference else torch.no_grad
    for count in (1, 1, 1, 3, 3, 3, 1):
        images = torch.randn(count, 3, 64, 64, device="cuda")
        with mode(), torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
            found, plain = forward(images), model(images)
        assert torch.allclose(found.float(), plain.float(), atol=1e-5 if dtype == torch.float32 else 1e-2)
    assert len(recorded) == 2, "one for each number of pictures, from the second time on"


def test_weights_that_change_in_place_are_followed_and_ones_that_move_too(model: Classifier) -> None:
    forward, images = graphs.replayed(model), torch.randn(1, 3, 64, 64, device="cuda")
    with torch.inference_mode():
        before = [forward(images) for _ in range(3)][-1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    with torch.inference_mode():
        after = forward(images)
        assert not torch.allclose(before, after, atol=1e-3) and torch.allclose(after, model(images), atol=1e-4)
    model.double().float()  # other memory
    with torch.inference_mode():
        for _ in range(4):
            assert torch.allclose(forward(images), model(images), atol=1e-4)


def test_predict_of_one_picture_after_the_other(model: Classifier) -> None:
    pictures = torch.randn(5, 3, 64, 64)
    together = predict(model, pictures, top=7)
    alone = [predict(model, picture, top=7)[0] for picture in pictures]
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(torch.tensor(sorted(one.logits)), torch.tensor(sorted(other.logits)), atol=1e-3)
