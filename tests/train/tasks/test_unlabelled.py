from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import pytest
import torch
from PIL import Image

from vitral.base.errors import ConfigError
from vitral.presets.runs import pretraining
from vitral.train.parallel import World
from vitral.train.prepare import prepare
from vitral.train.steps import Stepper
from vitral.train.tasks import task_for
from vitral.train.tasks.unlabelled import effective_rank, embedding_health, feature_rank, neighbours_agree, uniformity


def test_effective_rank_counts_the_directions_that_are_filled() -> None:
    torch.manual_seed(0)
    full = torch.linalg.qr(torch.randn(200, 16))[0]
    assert effective_rank(full) == pytest.approx(15, abs=0.1) and feature_rank(full) == pytest.approx(16, abs=0.2)
    assert effective_rank(full[:, :4] @ torch.randn(4, 16)) < 3.01
    noise = torch.ones(50, 16) + 1e-3 * torch.randn(50, 16)
    assert effective_rank(noise) < 1e-3, "one point, whatever noise is around it"
    assert effective_rank(torch.ones(50, 16)) == pytest.approx(0, abs=1e-9) and effective_rank(torch.full((50, 16), float("nan"))) == 0


@pytest.mark.parametrize(
    ("count", "hint"), [(2, "add pictures$"), (40, "add pictures, or keep more of them for looking: --validation 0.25$")]
)
def test_too_few_pictures_to_look_at_say_what_would_do(tmp_path: Path, count: int, hint: str) -> None:
    for number in range(count):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    setup = prepare(pretraining(f"folder:{tmp_path}"), torch.device("cpu"))
    with pytest.raises(ConfigError, match=f"cannot show whether it learns, 8 can: {hint}"):
        task_for(setup).open(setup, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_neighbours_have_their_own_labels_where_a_picture_cannot_be_read(
    tmp_path: Path, placement: Literal["device", "stream"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dark and light pictures, the first dark one damaged: the labels after it must not move up by one."""
    for split, count in (("train", 16), ("val", 12)):
        for number in range(count):
            path = tmp_path / split / ("dark", "light")[number % 2] / f"{number:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((32, 32), 20).point(lambda value, add=100 * (number % 2) - 50: value + add).convert("RGB").save(path)
    broken = tmp_path / "val" / "dark" / "00.jpg"
    broken.write_bytes(broken.read_bytes()[:700])
    config = pretraining(f"folder:{tmp_path}")
    assert config.pretrain is not None
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, on_bad_image="skip", placement=placement),
        model=dataclasses.replace(config.model, width=16, depth=1, heads=2, mlp_width=16, patch_size=(8, 8), image_size=(16, 16)),
        train=dataclasses.replace(config.train, batch_size=4),
        pretrain=dataclasses.replace(config.pretrain, online_knn=True, projection_hidden=16),
    )
    setup = prepare(config, torch.device("cpu"))
    compared = []
    monkeypatch.setattr(
        "vitral.train.tasks.unlabelled.neighbours_agree", lambda features, labels: compared.append((len(features), labels.tolist()))
    )
    task = task_for(setup)
    stepper = Stepper(setup.model, task, setup.config.train, setup.device, World())
    task.open(setup, stepper)
    task.validate(stepper, 0)
    ((pictures, labels),) = compared
    assert pictures == len(labels) == 11 and labels.count(0) == 5


def test_figures_of_good_and_of_collapsed_embeddings() -> None:
    torch.manual_seed(0)
    base = torch.randn(300, 16)
    good, collapsed = embedding_health(base, base + 0.1 * torch.randn_like(base)), embedding_health(
        torch.ones(300, 16) + 1e-4 * torch.randn(300, 16), torch.ones(300, 16) + 1e-4 * torch.randn(300, 16)
    )  # fmt: skip
    assert good["purity"] > 0.99 and collapsed["purity"] < 0.05
    assert good["spread"] > 0.9 and collapsed["spread"] < 1e-3
    assert good["uniformity"] < -3 and collapsed["uniformity"] > -0.01
    assert 0 < good["alignment"] < 0.1


def test_neighbours_agree_on_clusters_and_not_on_noise() -> None:
    torch.manual_seed(0)
    labels = torch.arange(200) % 4
    clusters = torch.randn(4, 8)[labels] * 5 + torch.randn(200, 8)
    assert neighbours_agree(clusters, labels) > 0.95 and neighbours_agree(torch.randn(200, 8), labels) < 0.5


def test_uniformity_is_its_definition() -> None:
    points = torch.nn.functional.normalize(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    pairs = [((points[a] - points[b]) ** 2).sum() for a in range(20) for b in range(a)]
    assert uniformity(points) == pytest.approx(torch.stack(pairs).mul(-2).exp().mean().log().item(), rel=1e-4)
