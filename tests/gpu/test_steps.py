"""A step on a GPU: recorded as a CUDA graph, compiled, or scaled for fp16, it is the step that plain PyTorch takes."""

from __future__ import annotations

import pytest
import torch

from vitral.build import create
from vitral.config import TrainConfig
from vitral.data.loader import Batch
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def stepper(device: torch.device, model: str = "tiny", **changes: object) -> Stepper:
    torch.manual_seed(0)
    made = create(model, image_size=32, classes=10).to(device)
    settings = {"batch_size": 64, "precision": "fp32", "optimizer": "sgd", "lr": 0.05, "weight_decay": 0.0, "compile": "yes", "clip": 1.0}
    config = TrainConfig(**(settings | changes))  # type: ignore[arg-type]
    found = Stepper(made, task_of(config), config, device, World())
    torch.set_float32_matmul_precision("highest")  # what is compared is the step, not TF32
    return found


def batches(device: torch.device, count: int, mixed: bool = False) -> list[Batch]:
    draw = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        labels = torch.randint(0, 10, (64,), generator=draw)
        second = (labels.roll(1).to(device), torch.full((64,), 0.7, device=device)) if mixed and number % 2 else (None, None)
        images = torch.randn(64, 3, 32, 32, generator=draw)
        made.append(Batch(images.to(device), labels.to(device), *second, torch.arange(64, device=device)))
    return made


@pytest.mark.parametrize("model", ["tiny", "cnn"])
@pytest.mark.parametrize("changes", [{}, {"optimizer": "adamw", "lr": 1e-3, "ema": 0.9}, {"optimizer": "muon", "lr": 1e-2}], ids=str)
def test_a_recorded_step_is_the_plain_step(cuda: torch.device, model: str, changes: dict[str, object]) -> None:
    shown = batches(cuda, 5, mixed=True)
    plain, recorded = stepper(cuda, model, compile="no", **changes), stepper(cuda, model, **changes)
    before = {name: value.clone() for name, value in recorded.model.state_dict().items()}
    recorded.warm_up(shown[1], True)
    assert recorded.graphs and len(recorded._recorded) == 1
    for name, value in recorded.model.state_dict().items():
        assert torch.equal(value, before[name]), f"warming up leaves {name} as it was"
    for number, batch in enumerate(shown):
        one, other = (each.step(batch, 1.0 / (number + 1), None) for each in (plain, recorded))
        # Rounding that AdamW and Muon blow up (see below) reaches the loss of a CNN after a few steps: 0.2 % at the fifth, seen.
        assert one.loss.item() == pytest.approx(other.loss.item(), rel=(1e-5, 1e-3, 1e-2)[min(number, 2)]), f"step {number}"
    for name, value in plain.values().items():
        # Where a gradient is all rounding (a bias before a norm), AdamW and Muon still take a whole step: a few numbers may differ.
        # Batch statistics carry it on, and are as large as what passes through: near is what their own spread says.
        spread = value.float().std().item() if value.numel() > 1 else 0.0
        near = torch.isclose(value, recorded.values()[name], rtol=2e-2, atol=max(2e-3, 0.1 * spread if "running" in name else 0.0))
        assert near.float().mean() > 0.95, name


def test_a_recorded_step_reads_its_batch_and_its_learning_rate_anew(cuda: torch.device) -> None:
    first, second = batches(cuda, 2)
    found = stepper(cuda)
    found.warm_up(first, False)
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    losses = [found.step(batch, 0.0, None).loss for batch in (first, second, first)]
    assert losses[0].item() == losses[2].item() != losses[1].item(), "the outcome of a step outlives the next one"
    assert all(torch.equal(value, before[name]) for name, value in found.model.state_dict().items()), "a rate of zero moves nothing"
    found.step(first, 1.0, None)
    assert not torch.equal(found.model.head.linear.weight, before["head.linear.weight"])


def test_every_share_of_kept_patches_has_its_graph(cuda: torch.device) -> None:
    (batch,) = batches(cuda, 1)
    found = stepper(cuda, token_drop=0.5, token_drop_until=0.5)
    found.warm_up(batch, False)
    assert set(found._recorded) == {0.5, None}
    assert all(torch.isfinite(found.step(batch, 1.0, keep).loss) for keep in (0.5, None, 0.5))


def test_fp16_scales_skips_what_overflows_and_goes_on(cuda: torch.device) -> None:
    good, other = batches(cuda, 2)
    found = stepper(cuda, precision="fp16", compile="no")
    assert found.scaler is not None and not found.graphs
    found.step(good, 1.0, None)
    before, scale = {name: value.clone() for name, value in found.model.state_dict().items()}, found.scaler.get_scale()
    found.step(Batch(other.images * 1e30, other.labels, None, None, other.indices), 1.0, None)
    assert found.scaler.get_scale() == scale / 2
    assert all(torch.equal(value, before[name]) for name, value in found.model.state_dict().items()), "a step of infinities is left out"
    losses = [found.step(good, 1.0, None).loss.item() for _ in range(20)]
    assert losses[-1] < losses[0]


def test_fp16_and_bf16_agree_with_fp32_within_their_precision(cuda: torch.device) -> None:
    (batch,) = batches(cuda, 1)
    losses = {kind: stepper(cuda, precision=kind, compile="no").step(batch, 1.0, None).loss.item() for kind in ("fp32", "bf16", "fp16")}
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=2e-2)
    assert losses["fp16"] == pytest.approx(losses["fp32"], rel=5e-3)


def test_compiled_evaluation_answers_as_the_model(cuda: torch.device) -> None:
    batch, *_ = batches(cuda, 1)
    found = stepper(cuda)
    found.model.eval()
    with torch.no_grad():
        wanted = found.model(batch.images)
        assert torch.allclose(found.logits(batch.images), wanted, atol=1e-4)
        assert torch.allclose(found.logits(batch.images[:5]), wanted[:5], atol=1e-4)
