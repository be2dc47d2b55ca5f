"""Each operation does what its description says, in distribution; the whole compiles to one graph."""

from __future__ import annotations

import typing

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitral.base.errors import ConfigError, UsageError
from vitral.config.data import Augmentation
from vitral.data.images.augment import POLICIES, Augment, Cutout, compiled, image_transform, policy
from vitral.data.images.colour import Colour
from vitral.data.images.geometry import Affine, Flip, PadCrop, ResizedCrop, Translate, apply_where, gather_pixels
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import key, uniforms

CPU = torch.device("cpu")
MEAN = torch.zeros(1, 3, 1, 1)


def pictures(count: int = 400, side: int = 16, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_config_knows_every_policy() -> None:
    assert set(typing.get_args(Augmentation)) == set(POLICIES)


def numbers(count: int, columns: int, seed: int = 0) -> torch.Tensor:
    return uniforms((count, columns), CPU, seed)


def test_take_is_plain_indexing() -> None:
    images = pictures(5, 7)
    rows, columns = torch.randint(0, 7, (5, 4)), torch.randint(0, 7, (5, 6))
    taken = gather_pixels(images, rows, columns)
    for b in range(5):
        assert torch.equal(taken[b], images[b][:, rows[b]][:, :, columns[b]])


def test_pad_crop_is_a_window_of_the_reflected_picture() -> None:
    images = pictures(600, 16)
    moved = PadCrop()(images, numbers(600, 3), MEAN)
    padded = F.pad(images.float(), (2, 2, 2, 2), mode="reflect")
    seen: dict[tuple[int, int, bool], int] = {}
    for b in range(600):
        found = [
            (top, left, mirrored)
            for mirrored in (False, True)
            for top in range(5)
            for left in range(5)
            if torch.equal((padded[b].flip(-1) if mirrored else padded[b])[:, top : top + 16, left : left + 16], moved[b].float())
        ]
        assert len(found) == 1
        seen[found[0]] = seen.get(found[0], 0) + 1
    # 50 equally probable outcomes, 12 expected of each: chi-square with 49 degrees of freedom stays below 95 with chance 0.9999.
    assert sum((seen.get((t, c, m), 0) - 12) ** 2 / 12 for t in range(5) for c in range(5) for m in (False, True)) < 95


def test_digits_are_never_mirrored() -> None:
    u = numbers(200, 3)
    image = pictures(1, 16).expand(200, -1, -1, -1)
    assert len({bytes(x.numpy().tobytes()) for x in PadCrop(flip=False)(image, u, MEAN)}) == 25
    assert not any(
        isinstance(operation, Flip) or getattr(operation, "flip", False)
        for name in POLICIES
        for operation in policy(name, flip=False).operations
    )


@pytest.mark.parametrize(("side", "largest"), [(8, 1), (28, 1), (32, 2), (64, 3)])
def test_light_shifts_by_five_per_cent_and_at_least_a_pixel(side: int, largest: int) -> None:
    image = torch.full((500, 1, side, side), 9, dtype=torch.uint8)
    image[:, :, side // 2, side // 2] = 200
    moved = Translate(0.05)(image, numbers(500, 2), MEAN)
    places = (moved == 200).nonzero()[:, 2:] - side // 2
    assert len(places) == 500
    assert places.abs().max() == largest
    assert set(places[:, 0].tolist()) == set(range(-largest, largest + 1))
    assert (moved == 0).any()  # black behind


def test_flip_half() -> None:
    images = pictures(1000, 4)
    flipped = (Flip()(images, numbers(1000, 1), MEAN) == images.flip(-1)).flatten(1).all(1).float().mean()
    assert abs(flipped - 0.5) < 0.06


def test_flip_chooses_picture_by_picture_as_it_does_on_a_device() -> None:
    images, u = torch.randint(0, 256, (6, 3, 5, 7), dtype=torch.uint8), torch.tensor([[0.1], [0.9], [0.49], [0.5], [0.0], [0.99]])
    chosen = torch.where((u[:, 0] < 0.5).view(-1, 1, 1, 1), images.flip(-1), images)
    assert torch.equal(Flip()(images, u, torch.zeros(1)), chosen)


def test_resized_crop_draws_torchvisions_law() -> None:
    """Mean and spread of area share, ratio and place, against torchvision's own draws."""
    from torchvision.transforms import RandomResizedCrop

    crop, count = ResizedCrop((0.08, 1.0), (3 / 4, 4 / 3)), 4000
    left, top, wide, tall = crop.boxes(numbers(count, crop.columns), 60, 90)
    assert (left >= 0).all() and (top >= 0).all() and (left + wide <= 90).all() and (top + tall <= 60).all()
    torch.manual_seed(0)
    image = torch.zeros(3, 60, 90)
    theirs = torch.tensor([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]).double()
    for ours, other in ((top, theirs[:, 0]), (left, theirs[:, 1]), (tall, theirs[:, 2]), (wide, theirs[:, 3])):
        error = ((ours.double().var() + other.var()) / count).sqrt()
        assert abs(ours.double().mean() - other.mean()) < 4 * error
        assert ours.double().std() == pytest.approx(other.std().item(), rel=0.06)


def test_resized_crop_takes_ratios_as_width_to_height() -> None:
    _, _, wide, tall = ResizedCrop((0.25, 0.25), (4.0, 4.0)).boxes(numbers(3, 22), 80, 80)
    assert wide.tolist() == [80] * 3 and tall.tolist() == [20] * 3


def test_resized_crop_falls_back_to_the_largest_legal_crop() -> None:
    left, top, wide, tall = ResizedCrop((0.9, 1.0), (3 / 4, 4 / 3)).boxes(numbers(4, 22), 10, 1000)
    assert wide.tolist() == [13] * 4 and tall.tolist() == [10] * 4 and left.tolist() == [493] * 4 and top.tolist() == [0] * 4


def test_one_picture_is_cut_as_a_batch_is() -> None:
    crop = ResizedCrop((0.08, 1.0), (3 / 4, 4 / 3))
    draws = np.random.default_rng(0).random((2000, crop.columns), np.float32)
    for height, width in ((375, 500), (40, 2000)):  # of a strip, most have no legal crop
        together = torch.stack(crop.boxes(torch.from_numpy(draws), height, width), 1).int().tolist()
        assert [list(crop.box(u, height, width)) for u in draws] == together


def test_whole_crop_and_identity_leave_the_picture() -> None:
    images = pictures(6, 16)
    whole = ResizedCrop((1.0, 1.0), (1.0, 1.0))(images, numbers(6, 22), MEAN)
    assert torch.allclose(whole * 255, images.float(), atol=1e-2)
    u = torch.tensor([[0.55, 0.9]] * 6)
    assert torch.equal(Affine()(images, u, MEAN), images.float() / 255)


def test_affine_amounts() -> None:
    """A shift of 0.4 half-sides moves by 20 % of the side; a rotation keeps the centre; half of all pictures stay."""
    images = pictures(1, 20).expand(4, -1, -1, -1)
    right = Affine()(images, torch.tensor([[0.35, 1.0 - 1e-7]] * 4), MEAN)
    assert torch.allclose(right[0, :, :, :16] * 255, images[0, :, :, 4:].float(), atol=0.05)
    # A picture of its own coordinates: rotated by 0.52, each place shows where it was taken from.
    along = (torch.arange(40) * 2 + 1) / 40 - 1
    places = torch.stack([along.expand(40, 40), along[:, None].expand(40, 40), torch.zeros(40, 40)])[None]
    rotated = Affine()(places, torch.tensor([[0.05, 1.0]]), MEAN)[0, :, 14:26, 14:26]
    x, y, cosine, sine = along[14:26], along[14:26, None], np.cos(0.52), np.sin(0.52)
    assert torch.allclose(rotated[0], cosine * x - sine * y, atol=1e-5) and torch.allclose(rotated[1], sine * x + cosine * y, atol=1e-5)
    # Twice as wide as high: the same rotation, though a half side is then 40 pixels across and 20 down.
    wide = torch.stack([(torch.arange(80) - 39.5).expand(40, 80), (torch.arange(40) - 19.5)[:, None].expand(40, 80), torch.zeros(40, 80)])[
        None
    ]
    taken, middle = Affine()(wide, torch.tensor([[0.05, 1.0]]), MEAN)[0, :, 14:26, 34:46], (torch.arange(12) - 5.5)
    assert torch.allclose(taken[0], cosine * middle - sine * middle[:, None], atol=1e-4)
    assert torch.allclose(taken[1], sine * middle + cosine * middle[:, None], atol=1e-4)
    many = pictures(1000, 8)
    same = (Affine()(many, numbers(1000, 2), MEAN) == many.float() / 255).flatten(1).all(1).float().mean()
    assert abs(same - 0.5) < 0.06
    grid = F.affine_grid(torch.tensor([[[0.9, -0.2, 0.1], [0.3, 1.1, -0.2]]]), [1, 3, 8, 8], align_corners=False)
    from vitral.data.images.geometry import _warp

    matrix = torch.tensor([[[0.9, -0.2, 0.1], [0.3, 1.1, -0.2]]])
    x = pictures(1, 8).float()
    assert torch.allclose(_warp(x, matrix, "zeros"), F.grid_sample(x, grid, align_corners=False), atol=1e-3)


def test_colour_changes() -> None:
    images = pictures(3, 8).float() / 255
    brightness, contrast, saturation, solarise, posterise, stretch = range(6)

    def changed(images: torch.Tensor, change: int, level: float) -> torch.Tensor:
        return Colour()(images.clone(), torch.tensor([[(change + 0.5) / 10, level]]).expand(len(images), -1), MEAN)

    for change in (brightness, contrast, saturation):  # level ½ is factor 1
        assert torch.allclose(changed(images, change, 0.5), images, atol=1e-6)
    assert torch.allclose(changed(images, brightness, 0.0), images * 0.1)
    assert changed(images, contrast, 0.0).std() == pytest.approx(images.std().item() * 0.1, rel=0.05)
    assert torch.allclose(changed(images, saturation, 0.0).mean(1), images.mean(1), atol=1e-6)
    assert torch.equal(changed(images, solarise, 0.5), torch.where(images > 0.5, 1 - images, images))
    assert changed(torch.tensor([0.0, 0.13, 0.99, 1.0]).view(1, 1, 2, 2), posterise, 0.5).flatten().tolist() == [0, 0.125, 0.875, 1]
    stretched = changed(images * 0.5 + 0.2, stretch, 0.5)
    assert stretched.amin() < 1e-4 and stretched.amax() > 0.999
    many = pictures(2000, 4)
    same = (Colour()(many, numbers(2000, 2), MEAN) == many.float() / 255).flatten(1).all(1).float().mean()
    assert 0.35 < same < 0.46  # four of ten, and brightness of a factor near 1 hardly ever


def test_cutout_is_nine_of_thirty_two_in_half_the_pictures() -> None:
    images = torch.zeros(1000, 3, 32, 32, dtype=torch.uint8)
    erased = Cutout()(images, numbers(1000, 3), torch.ones(1, 3, 1, 1))
    areas = erased[:, 0].sum((1, 2))
    assert abs((areas > 0).float().mean() - 0.5) < 0.06
    assert areas.max() == 81 and areas[areas > 0].min() >= 25


def test_on_some_is_the_same_on_both_devices_ways() -> None:
    images, mask = pictures(50, 4).float(), torch.arange(50) % 3 == 0
    expected = torch.where(mask.view(-1, 1, 1, 1), images * 2, images)
    assert torch.equal(apply_where(mask, images.clone(), lambda some: some * 2), expected)


@pytest.mark.parametrize("name", ["none", "light", "standard", "resized-crop", "strong"])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 32, 32), (5, 12, 20)])
def test_policies_keep_shape_and_range(name: str, channels: int, height: int, width: int) -> None:
    images = torch.randint(0, 256, (16, channels, height, width), dtype=torch.uint8)
    before = images.clone()
    for photographs in (False, True):
        augment = Augment(policy(name, photographs=photographs), Preprocess((height, width), channels, (0.0,), (1.0,)), CPU, crop=True)
        out = augment(images, numbers(16, augment.columns))
        assert out.shape == images.shape and out.dtype == torch.float32
        assert out.min() >= 0 and out.max() <= 1 + 1e-5
        assert torch.equal(images, before)
        assert torch.equal(out, augment(images, numbers(16, augment.columns)))
        if name != "none":
            assert not torch.equal(out, augment(images, numbers(16, augment.columns, seed=1)))


@pytest.mark.parametrize("name", ["light", "standard", "resized-crop", "strong"])
def test_on_a_device_it_is_one_graph_without_waiting_for_the_host(name: str) -> None:
    """On the meta device anything that reads a value raises, and fullgraph refuses breaks."""
    views = policy(name).on_batches(crop=True)
    meta = torch.device("meta")
    run = compiled(views, (4, 3, 32, 32), "eager")
    images = torch.empty(4, 3, 32, 32, dtype=torch.uint8, device=meta)
    out = run(views.kinds, images, torch.empty(4, views.columns, device=meta), MEAN.to(meta), MEAN.to(meta))
    assert out.shape == (4, 1, 3, 32, 32) and out.device.type == "meta"


@pytest.mark.parametrize("name", ["randaugment", "trivialaugment", "autoaugment"])
def test_torchvisions_policies_by_key(name: str) -> None:
    transform = image_transform(name)
    image = pictures(1, 16)[0]
    state = torch.random.get_rng_state()
    first = [transform(image, key(seed)) for seed in range(8)]
    assert torch.equal(torch.random.get_rng_state(), state)  # nobody else's random numbers are touched
    assert all(torch.equal(a, transform(image, key(seed))) for seed, a in enumerate(first))
    assert len({bytes(np.asarray(a).tobytes()) for a in first}) > 3


def test_unknown_names_and_impossible_shares() -> None:
    with pytest.raises(UsageError, match="'strnog'"):
        policy("strnog")
    with pytest.raises(ConfigError, match="batches"):
        policy("strong", mixup=0.7)
    assert policy("strong", mixup=0.0, cutmix=0.0).cutmix == 0
