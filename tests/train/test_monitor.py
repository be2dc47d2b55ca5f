from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from vitral.base.errors import ConfigError
from vitral.presets.runs import pretraining
from vitral.train.monitor import Monitor, effective_rank, embedding_health, feature_rank, neighbours_agree, uniformity
from vitral.train.prepare import prepare


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
        Monitor(setup, None)  # type: ignore[arg-type]


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
