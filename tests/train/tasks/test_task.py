"""A task that answers with a map goes through the loop as it is: targets, losses, validation, finish and a head of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tests.train.conftest import tiny
from tests.train.stops import stopped_after
from torch import Tensor, nn

from vitral.build import build
from vitral.config import RunConfig
from vitral.data.loader import Batch
from vitral.model.classifier import Classifier
from vitral.run.folder import Asked, RunFolder
from vitral.train.engine import Engine
from vitral.train.parallel import World
from vitral.train.prepare import Setup, held_out_loader, prepare
from vitral.train.steps import Stepper
from vitral.train.tasks.task import Outcome, Task, Validation

CPU = torch.device("cpu")


class BrightPatches(Task):
    """Which patches are bright? Labels are maps (B, N), and so are the answers (B, N, 2): what a segmentation is, in little."""

    def new_head(self, model: Classifier) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return nn.Linear(model.config.width, 2)

    def targets(self, batch: Batch) -> Tensor:
        patches = F.avg_pool2d(batch.images.mean(1, keepdim=True), 2).flatten(1)  # (B, N): patches of 2×2
        return (patches > patches.median()).long()

    def answers(self, model: Classifier, images: Tensor) -> Tensor:
        return model.head(model.encode(images)[:, model.config.prefix :])  # type: ignore[operator]

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        logits = self.answers(model, images)
        return Outcome(F.cross_entropy(logits.flatten(0, 1), labels.flatten()), (logits.argmax(2) == labels).float().mean(1).sum())

    def open(self, setup: Setup, stepper: Stepper) -> None:
        self.held = held_out_loader(setup, setup.data.validation, stepper.world)

    @torch.no_grad()
    def validate(self, stepper: Stepper, step: int) -> Validation:
        batches = list(self.held.epoch(0))
        logits = torch.cat([stepper.logits(batch.images) for batch in batches])
        labels = torch.cat([self.targets(batch) for batch in batches])
        loss, correct = F.cross_entropy(logits.flatten(0, 1), labels.flatten()), float((logits.argmax(2) == labels).float().mean())
        return Validation(float(loss), len(labels), {"bright": float(labels.float().mean())}, {"patches": correct}, correct, correct)

    def finish(self, stepper: Stepper) -> str:
        return "seen by the caller"


def settings(**changes: Any) -> RunConfig:
    return tiny(**({"epochs": 1.0, "test": False, "augment": "none", "lr": 1e-2, "ema": 0.9, "keep": "best"} | changes))


def learn(config: RunConfig, out: Path, resumed: bool = False) -> tuple[Classifier, Any]:
    setup = prepare(config, CPU)
    folder = RunFolder(out) if resumed else RunFolder.create(out, Asked(config, config.name), setup.config, setup.model.origin)
    try:
        return Engine(setup, BrightPatches(), World(), quiet=True).run(folder, resumed)
    finally:
        folder.close()


def test_a_map_is_learnt_validated_resumed_and_its_head_is_saved_with_the_model(tmp_path: Path) -> None:
    model, result = learn(settings(), tmp_path / "run")
    lines = RunFolder(tmp_path / "run").metrics
    held = [line for line in lines if line["split"] == "validation"]
    assert (
        result == "seen by the caller"
        and held[-1]["accuracy"] > 0.85
        and held[-1]["loss"] < held[0]["loss"]
        and 0.3 < held[0]["bright"] < 0.7
    )
    assert {name for name, _ in model.named_parameters() if name.startswith("head.")} == {"head.weight", "head.bias"}
    # What is stored is the model with this head: built from its config and given the head, it answers the same.
    again = build(RunFolder(tmp_path / "run").settled.model).eval()
    again.head = BrightPatches().new_head(again)
    again.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(BrightPatches().answers(again, images), BrightPatches().answers(model, images))
    assert not torch.equal(again.head.weight, BrightPatches().new_head(again).weight), "the head has learnt"
    # Stopped and resumed, it ends with the same weights, head and all.
    config = settings(checkpoint_every=0.0)
    with stopped_after(9):
        learn(config, tmp_path / "stopped")
    resumed, _ = learn(config, tmp_path / "stopped", resumed=True)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in model.state_dict().items())


def test_snapshots_hold_the_head_and_only_the_head_may_learn(tmp_path: Path) -> None:
    config = settings(epochs=1.0, tune="head", snapshots=2, keep="last")
    model, _ = learn(dataclasses.replace(config, name="head"), tmp_path / "run")
    first, last = (load_file(folder / "model.safetensors") for _, folder in RunFolder(tmp_path / "run").snapshots())
    assert {name for name in first if not torch.equal(first[name], last[name])} == {"head.weight", "head.bias"}
    assert torch.equal(last["head.weight"], model.state_dict()["head.weight"])
