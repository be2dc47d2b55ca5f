"""A whole fine-tuning: real ViT-Ti weights on a small subset of Flowers-102, on a CPU."""

from __future__ import annotations

import dataclasses
import os
import tarfile
from pathlib import Path

import pytest

from vitral.config import DataConfig
from vitral.presets.runs import run
from vitral.train.engine import fit

SHARED = Path(os.environ.get("VITRAL_SHARED", Path(__file__).parents[2] / "../shared"))
WEIGHTS, FLOWERS = SHARED / "weights/vit_tiny_patch16_224.safetensors", SHARED / "data/flowers102-176px.tar"
CLASSES, TRAINING, TESTING = 5, 12, 8


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not WEIGHTS.exists() or not FLOWERS.exists():
        pytest.skip("needs ViT-Ti weights and the Flowers pictures")
    folder = tmp_path_factory.mktemp("flowers")
    wanted: dict[tuple[str, str], int] = {}
    with tarfile.open(FLOWERS) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if not member.isfile() or parts[1] not in ("train", "test"):
                continue
            key = (parts[1], parts[2])
            if (parts[1], parts[2]) not in wanted and sum(split == parts[1] for split, _ in wanted) >= CLASSES:
                continue
            limit = TRAINING if parts[1] == "train" else TESTING
            if wanted.setdefault(key, 0) < limit:
                wanted[key] += 1
                source = archive.extractfile(member)
                assert source is not None
                target = folder / parts[2] / f"{parts[1]}-{parts[-1]}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())
    return folder


@pytest.mark.slow
def test_fine_tuning_rises_well_above_a_random_start(flowers: Path, tmp_path: Path):
    data = DataConfig(name=f"folder:{flowers}", augment="light", validation=0.15)
    base = run("finetune", epochs=3.0, batch_size=16, device="cpu", threads=1, evaluate_every=3.0)
    model = dataclasses.replace(base.model, image_size=(96, 96))
    tuned = fit(dataclasses.replace(base, data=data, model=model, weights=str(WEIGHTS)), out=tmp_path / "tuned", quiet=True)
    assert tuned.model.config.image_size == (96, 96) and tuned.model.origin.mean.value == (0.5, 0.5, 0.5)
    scratch = fit(dataclasses.replace(base, name="scratch", data=data, model=model, weights=None), out=tmp_path / "scratch", quiet=True)
    chance = 1 / len(tuned.model.origin.classes.value)
    assert tuned.test["accuracy"] > 0.7 > 2 * chance
    assert tuned.test["accuracy"] > scratch.test["accuracy"] + 0.2
