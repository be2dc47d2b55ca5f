"""One step. Compilation itself is tried in test_engine.py (slow); here `compiled` is set by hand, so that its paths run uncompiled."""

import dataclasses

import pytest
import torch

from vitral.build import create
from vitral.config import ModelConfig, PretrainConfig, TrainConfig
from vitral.cost.flops import vit_flops
from vitral.data.loader import Batch
from vitral.presets.models import model as named
from vitral.train.evaluate import evaluation_batch
from vitral.train.optim import choose, is_attention, is_head
from vitral.train.parallel import World
from vitral.train.steps import Stepper, can_record, flops_without_labels
from vitral.train.tasks import task_of

CPU = torch.device("cpu")
DRAW = torch.Generator().manual_seed(0)
BATCH = Batch(torch.randn(8, 3, 16, 16, generator=DRAW), torch.arange(8) % 4, None, None, torch.arange(8))


def stepper(**changes: object) -> Stepper:
    torch.manual_seed(0)
    model = create("tiny", image_size=16, patch_size=4, classes=4, width=16, depth=2, heads=2, mlp_width=16)
    config = TrainConfig(batch_size=8, label_smoothing=0.1, **changes)  # type: ignore[arg-type]
    choose(model, config)
    return Stepper(model, task_of(config), config, CPU, World())


def test_a_plain_batch_of_a_run_that_mixes_is_the_same_step_to_the_bit():
    """One graph serves both kinds of batches, so a plain one is shown as mixed with nothing of a second label."""
    plain, mixing = stepper(), stepper()
    mixing._mixed = True
    for _ in range(3):
        one, other = plain.step(BATCH, 1.0, None), mixing.step(BATCH, 1.0, None)
        assert torch.equal(one.loss, other.loss) and torch.equal(one.correct, other.correct)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, mixing.model.state_dict()[name]), name


def test_compiled_evaluation_has_one_size_and_answers_for_the_given_pictures_only():
    found = stepper()
    found.model.eval()
    wanted = found.logits(BATCH.images[:5])
    sizes: list[int] = []
    learner = found.learner
    found.learner = lambda images: sizes.append(len(images)) or learner(images)
    found.compiled = True
    for count in (5, 8):
        assert torch.allclose(found.logits(BATCH.images[:count])[:5], wanted, atol=1e-6)
    assert found.logits(BATCH.images[:5]).shape == (5, 4)
    assert set(sizes) == {evaluation_batch(8)}


def test_graphs_are_recorded_only_where_gradients_stay_in_their_place():
    vit, resnet = stepper().model, create("resnet18", image_size=16, classes=4)
    plain = TrainConfig()
    assert can_record(vit, "cuda", 1, plain) and can_record(resnet, "cuda", 1, plain)
    assert not any(can_record(vit, *other, plain) for other in (("cpu", 1), ("mps", 1), ("cuda", 2)))
    for changes in ({"accumulate": 2}, {"precision": "fp16"}):
        assert not can_record(vit, "cuda", 1, dataclasses.replace(plain, **changes))
    assert not can_record(create("tiny", gradient_checkpointing=True), "cuda", 1, plain)


@pytest.mark.parametrize("limit", [None, 1e-3])
def test_only_what_learns_is_clipped_and_moves(limit: float | None):
    found = stepper(tune="attention", optimizer="sgd", momentum=0.0, weight_decay=0.0, lr=1.0, clip=limit)
    names = {id(parameter): name for name, parameter in found.model.named_parameters()}
    assert all(is_attention(names[id(parameter)]) or is_head(names[id(parameter)]) for parameter in found.learning)
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    found.model.eval()
    found.step(dataclasses.replace(BATCH), 1.0, None)
    assert found.model.training
    moved = {name: (value - before[name]).norm() for name, value in found.model.state_dict().items()}
    assert all(size == 0 for name, size in moved.items() if not (is_attention(name) or is_head(name)))
    total = torch.stack(list(moved.values())).norm().item()
    assert total == pytest.approx(1e-3, rel=1e-2) if limit else total > 1e-2


# ---- what it costs to learn without labels ---------------------------------------------------------------------------------------

LEARNER = named("tiny", classes=0)  # 64 patches of 4 × 4, width 48, two blocks
SETTINGS = {"global_views": 2, "local_views": 3, "projection": 24, "projection_hidden": 40, "directions": 50, "prototypes": 70}


def forward(config: ModelConfig, patches: int) -> float:
    """FLOPs of a picture of which so many patches go through the blocks; all are embedded."""
    parts, share = vit_flops(config), (config.prefix + patches) / config.tokens
    return parts.embedding + share * (parts.projections + parts.mlp) + share**2 * parts.attention


def learning(config: ModelConfig, patches: int) -> float:
    """Forward and twice as much back, but for the gradient of the pixels, which nobody asks for."""
    return 3 * forward(config, patches) - vit_flops(config).embedding


def test_views_a_projection_and_directions_are_counted():
    config = PretrainConfig(method="lejepa", **SETTINGS)
    head = 2 * (48 * 40 + 40 * 40 + 40 * 24 + 24 * 50)
    found = flops_without_labels(LEARNER, config, TrainConfig())
    assert found == pytest.approx(5 * (learning(LEARNER, 64) + 3 * head), rel=1e-3)
    # Three quarters of the patches are left out for half of the run.
    dropping = flops_without_labels(LEARNER, config, TrainConfig(token_drop=0.75, token_drop_until=0.5))
    few = 5 * (learning(LEARNER, 16) + 3 * head)
    assert dropping == pytest.approx((few + found) / 2, rel=1e-3)


def test_a_teacher_looks_at_whole_views_and_learns_nothing():
    config = PretrainConfig(method="dino", **SETTINGS)
    head = 2 * (48 * 40 + 40 * 40 + 40 * 24 + 24 * 70)
    found = flops_without_labels(LEARNER, config, TrainConfig())
    seen_by_teacher = 2 * (forward(LEARNER, 64) + head)
    assert found == pytest.approx(5 * (learning(LEARNER, 64) + 3 * head) + seen_by_teacher, rel=2e-3)


def test_an_encoder_sees_what_is_shown_and_a_decoder_everything():
    config = PretrainConfig(method="mae", global_views=1, local_views=0, hidden=0.75, decoder_width=32, decoder_depth=3)
    decoder = vit_flops(dataclasses.replace(LEARNER, width=32, depth=3, heads=1, mlp_width=128))
    ends = 2 * (17 * 48 * 32 + 64 * 32 * 48)
    whole = learning(LEARNER, 16) + 3 * (decoder.total - decoder.embedding + ends)
    assert flops_without_labels(LEARNER, config, TrainConfig()) == pytest.approx(whole, rel=2e-3)
    assert flops_without_labels(named("tiny"), config, TrainConfig()) == flops_without_labels(LEARNER, config, TrainConfig())  # no head
