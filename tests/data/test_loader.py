"""Batches depend on (seed, epoch, position) alone; both roads agree."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError, FailedError, UsageError
from vitral.config import DataConfig, PretrainConfig
from vitral.data.images.augment import policy as named_policy
from vitral.data.images.augment import views_of
from vitral.data.images.decode import Decoded
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import DEVICE_LIMIT, Batch, Loader, device_limit, even_batches, placement_of
from vitral.data.sources.protocol import ArrayReader
from vitral.data.splits.open import Data, open_data
from vitral.data.splits.split import Split


@pytest.fixture(scope="module")
def digits() -> Data:
    return open_data(DataConfig(name="digits"))


def small(count: int = 60, side: int = 16) -> Split:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    labels = np.arange(count) % 4
    return Split(
        "train", ArrayReader(pixels, "made"), np.arange(count), labels, tuple("abcd"), Preprocess((side, side), 3, (0.5,), (0.25,))
    )


def same(first: Batch, second: Batch) -> bool:
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


def test_evaluation_is_everything_once_in_order(digits: Data) -> None:
    loader = Loader(digits.validation, batch_size=50)
    batches = list(loader.epoch(0))
    assert len(batches) == len(loader) == 3
    assert torch.cat([batch.indices for batch in batches]).tolist() == list(range(len(digits.validation)))
    assert torch.cat([batch.labels for batch in batches]).tolist() == digits.validation.labels.tolist()
    expected = digits.preprocess.batch([digits.validation.image(i) for i in range(4)])
    assert torch.allclose(batches[0].images[:4], expected)


def test_training_order_is_a_new_permutation_each_epoch(digits: Data) -> None:
    loader = Loader(digits.train, batch_size=100, train=True, seed=3)
    first, second = (torch.cat([batch.indices for batch in loader.epoch(epoch)]) for epoch in (0, 1))
    assert len(loader) == len(digits.train) // 100
    assert len(set(first.tolist())) == 100 * len(loader)
    assert not torch.equal(first, second)
    again = Loader(digits.train, batch_size=100, train=True, seed=3)
    assert all(same(a, b) for a, b in zip(loader.epoch(1), again.epoch(1), strict=True))
    assert not np.array_equal(loader.order(0), Loader(digits.train, batch_size=100, train=True, seed=4).order(0))


@pytest.mark.parametrize(
    ("images", "wanted", "unit", "steps", "size"),
    [(100, 64, 1, 2, 50), (101, 64, 1, 2, 51), (54, 64, 1, 1, 54), (100, 64, 8, 2, 56), (512, 64, 1, 8, 64), (1000, 64, 1, 15, 64)],
)
def test_a_small_set_is_divided_evenly(images: int, wanted: int, unit: int, steps: int, size: int) -> None:
    assert even_batches(images, wanted, unit) == (steps, size)
    assert even_batches(images, size, unit) == (steps, size), "what was settled stays"
    assert steps * size >= images or images >= 8 * wanted, "nothing of a small set is left out"


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_every_picture_of_a_small_set_is_learnt_from_in_every_epoch(placement: str) -> None:
    loader = Loader(small(11), batch_size=4, train=True, policy="strong", placement=placement)
    for epoch in range(3):
        batches = list(loader.epoch(epoch))
        assert [len(batch.images) for batch in batches] == [4, 4, 4] == [4] * len(loader), "of one size, as what is compiled wants it"
        assert sorted(set(torch.cat([batch.indices for batch in batches]).tolist())) == list(range(11))


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_a_picture_is_changed_anew_in_each_epoch_step_and_seed(placement: str) -> None:
    """All pictures are the same one here, so that only the random numbers can differ."""
    split = small(32)
    split.reader.pixels[:] = split.reader.pixels[:1]  # type: ignore[attr-defined]

    def batches(seed: int, epoch: int) -> list[torch.Tensor]:
        return [
            batch.images
            for batch in Loader(split, batch_size=16, train=True, policy="standard", placement=placement, seed=seed).epoch(epoch)
        ]

    seen = [*batches(0, 0), *batches(0, 1), *batches(1, 0)]
    assert not any(torch.equal(a, b) for number, a in enumerate(seen) for b in seen[:number])
    assert not torch.equal(seen[0][0], seen[0][1])


@pytest.mark.parametrize("world", [1, 2])
def test_mixed_labels_are_those_of_the_mixed_pixels(world: int) -> None:
    """Pictures whose every pixel is their label: a mixed pixel tells how much of which label is in it."""
    split = small()
    split.reader.pixels[:] = 50 * split.labels[:, None, None, None]  # type: ignore[attr-defined]
    policy = dataclasses.replace(named_policy("none"), mixup=0.5, cutmix=0.5)
    wanted = Preprocess((16, 16), 3, (0.0,), (1.0,))
    for rank in range(world):
        loader = Loader(split.with_preprocess(wanted), batch_size=20, train=True, policy=policy, seed=6).for_rank(rank, world)
        for batch in (batch for epoch in range(4) for batch in loader.epoch(epoch)):
            assert batch.labels_b is not None and batch.lam is not None
            mean = batch.images.mean((1, 2, 3)) * 255 / 50
            assert torch.allclose(mean, batch.lam * batch.labels + (1 - batch.lam) * batch.labels_b, atol=1e-4)
            assert bool((batch.labels == torch.from_numpy(split.labels)[batch.indices]).all())


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_resumed_in_the_middle_it_goes_on_the_same(placement: str) -> None:
    loader = Loader(small(), batch_size=16, train=True, policy="strong", placement=placement, seed=5)
    whole = list(loader.epoch(2))
    assert all(same(a, b) for a, b in zip(whole[2:], loader.epoch(2, start=2), strict=True))
    assert any(batch.labels_b is not None for epoch in range(4) for batch in loader.epoch(epoch))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # four workers on fewer cores are meant
@pytest.mark.parametrize("policy", ["standard", "strong", "randaugment"])
def test_same_batches_with_0_1_and_4_workers(photographs: Path, policy: str) -> None:
    data = open_data(DataConfig(name=f"folder:{photographs}"), image_size=24)
    runs = []
    for workers in (0, 1, 4) if policy == "strong" else (0, 1):
        loader = Loader(data.train, batch_size=4, train=True, policy=policy, workers=workers, seed=1)
        assert loader.placement_of == "stream"
        runs.append([batch for epoch in range(2) for batch in loader.epoch(epoch)])
    assert all(same(a, b) for other in runs[1:] for a, b in zip(runs[0], other, strict=True))


class Deadly(ArrayReader):
    """Whoever reads image 17 is killed, as by the system when memory runs out."""

    def image(self, number: int) -> Decoded:
        if number == 17:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().image(number)


def test_a_worker_that_dies_is_named_within_seconds() -> None:
    split = small()
    split = dataclasses.replace(split, reader=Deadly(np.zeros((60, 3, 16, 16), np.uint8), "deadly"))
    loader = Loader(split, batch_size=10, placement="stream", workers=1)
    began = time.perf_counter()
    with pytest.raises(FailedError, match="--workers"):
        list(loader.epoch(0))
    assert time.perf_counter() - began < 30


@pytest.mark.parametrize("policy", ["none", "light", "standard", "strong", "randaugment"])
def test_stored_sets_are_equal_on_both_roads(policy: str) -> None:
    split = small()
    device, stream = (
        Loader(split, batch_size=20, train=True, policy=policy, placement=placement, seed=2) for placement in ("device", "stream")
    )
    assert all(same(a, b) for a, b in zip(device.epoch(0), stream.epoch(0), strict=True))


def test_random_crops_agree_in_distribution_on_both_roads() -> None:
    """A ramp of brightness tells where and how large each crop was; both roads draw from one law."""
    ramp = np.linspace(20, 235, 32)[None, :].repeat(32, 0)
    pixels = np.stack([ramp, ramp.T, np.full((32, 32), 90.0)]).astype(np.uint8)[None].repeat(1200, 0)
    labels = np.arange(1200) % 2
    split = Split(
        "train", ArrayReader(pixels, "ramp"), np.arange(1200), labels, ("a", "b"), Preprocess((32, 32), 3, (0.0,), (1.0,)), photographs=True
    )
    facts = {}
    for way in ("device", "stream"):
        loader = Loader(split, batch_size=400, train=True, policy="standard", placement=way, seed=7)
        images = torch.cat([batch.images for batch in loader.epoch(0)])
        assert loader.policy.crop is not None
        centre_x, centre_y = images[:, 0].mean((1, 2)), images[:, 1].mean((1, 2))
        spread_x, spread_y = images[:, 0].std((1, 2)), images[:, 1].std((1, 2))
        mirrored = (images[:, 0, :, 0].mean(1) > images[:, 0, :, -1].mean(1)).float()
        facts[way] = torch.stack([centre_x, centre_y, spread_x, spread_y, mirrored])
    for ours, other in zip(facts["device"], facts["stream"], strict=True):
        error = ((ours.var() + other.var()) / 1200).sqrt()
        assert abs(ours.mean() - other.mean()) < 4 * error
        assert ours.std() == pytest.approx(other.std().item(), rel=0.1)


@pytest.mark.parametrize(("batch_size", "world"), [(16, 2), (12, 3), (20, 4)])
@pytest.mark.parametrize("placement", ["device", "stream"])
def test_ranks_share_one_global_batch(batch_size: int, world: int, placement: str) -> None:
    """Whatever the number of ranks, together they see the batches of a single process, mixing included."""

    def loader(rank: int, ranks: int) -> Loader:
        loader = Loader(small(), batch_size=batch_size, train=True, policy="strong", placement=placement, seed=4)
        return loader.for_rank(rank, ranks)

    alone = [batch for epoch in range(3) for batch in loader(0, 1).epoch(epoch)]
    parts = [[batch for epoch in range(3) for batch in loader(rank, world).epoch(epoch)] for rank in range(world)]
    assert any(batch.labels_b is not None for batch in alone)
    for step, whole in enumerate(alone):
        mine = [part[step] for part in parts]
        assert len({len(batch.labels) for batch in mine}) == 1
        for name, value in vars(whole).items():
            if value is not None:
                assert torch.allclose(torch.cat([getattr(batch, name) for batch in mine]), value, atol=1e-6), name


def test_mixing_can_be_switched_off() -> None:
    loader = Loader(small(), batch_size=20, train=True, policy="strong", seed=0)
    assert any(batch.labels_b is not None for epoch in range(5) for batch in loader.epoch(epoch))
    loader.mixing = False
    assert all(batch.labels_b is None for epoch in range(5) for batch in loader.epoch(epoch))


def test_few_pictures_make_one_batch_and_impossible_ones_are_refused() -> None:
    steps, size = even_batches(5, 64)
    assert [len(batch.labels) for batch in Loader(small(5), batch_size=size, train=True).epoch(0)] == [5] * steps
    assert [len(batch.labels) for batch in Loader(small(5), batch_size=64).epoch(0)] == [5]
    with pytest.raises(DataError, match="3 processes"):
        Loader(small(), batch_size=16).for_rank(0, 3)


def test_other_preprocess_resizes() -> None:
    loader = Loader(small().with_preprocess(Preprocess((20, 12), 1, (0.5,), (0.5,))), batch_size=10)
    assert next(loader.epoch(0)).images.shape == (10, 1, 20, 12)


def damaged(folder: Path) -> Path:
    """A picture whose header is right and whose pixels are cut off."""
    path = folder / "cat" / "zz.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:1500])
    return path


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_bad_pictures_fail_or_are_skipped_by_name(photographs: Path, placement: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = damaged(photographs)
    config = DataConfig(name=f"folder:{photographs}", validation=0.0, mean=(0.5,), std=(0.5,), split_seed=2)
    train = open_data(config, image_size=16).train
    assert path.name in {Path(train.where(i)).name for i in range(len(train))}
    with pytest.raises(DataError, match=r"zz\.jpg"):
        list(Loader(train, batch_size=1, policy="none", train=True, placement=placement).epoch(0))
    train = open_data(dataclasses.replace(config, on_bad_image="skip"), image_size=16).train
    loader = Loader(train, batch_size=4, policy="none", placement=placement)
    seen = torch.cat([batch.indices for epoch in range(2) for batch in loader.epoch(epoch)]).tolist()
    bad = next(i for i in range(len(train)) if Path(train.where(i)).name == "zz.jpg")
    assert sorted(seen) == sorted([i for i in range(len(train)) if i != bad] * 2)
    assert capsys.readouterr().err.count("zz.jpg") == 1
    again = open_data(dataclasses.replace(config, on_bad_image="skip"), image_size=16).train
    views = views_of(PretrainConfig(), flip=True, channels=3, side=16)
    viewed = list(Loader(again, batch_size=4, policy=views, placement=placement).epoch(0))
    assert all(len(batch.images) == len(batch.indices) for batch in viewed)
    assert sorted(torch.cat([batch.indices for batch in viewed]).tolist()) == sorted(set(seen))
    training = Loader(train, batch_size=4, policy="none", placement=placement, train=True)
    assert all(len(batch.labels) == 4 and bad not in batch.indices for batch in training.epoch(0))


def test_a_batch_has_a_picture(digits: Data) -> None:
    with pytest.raises(UsageError, match="batch"):
        Loader(digits.validation, batch_size=0)


@pytest.mark.parametrize(("recommended", "limit"), [(5_726_633_984, 1_431_658_496), (1 << 40, 8 << 30)])
def test_on_a_mac_the_driver_s_memory_decides_what_lives_on_the_gpu(recommended: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mac = torch.device("mps")
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: recommended)
    assert device_limit(mac) == limit
    split = small()
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 4 * split.bytes)
    assert placement_of(split, named_policy("none"), mac, "auto") == "device"
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 4 * split.bytes - 1)
    assert placement_of(split, named_policy("none"), mac, "auto") == "stream"
    assert device_limit(torch.device("cpu")) == DEVICE_LIMIT["cpu"]
