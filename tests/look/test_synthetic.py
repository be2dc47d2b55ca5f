from __future__ import annotations

import numpy as np
import torch

from vitral.look.synthetic import mosaic, quadrant, with_triggers


def test_a_trigger_is_where_it_is_said_to_be(make, images) -> None:
    model = make()
    batch = images(model, 6)
    made = with_triggers(model, batch, 2, (4, 4), seed=1)
    assert made.inside.sum(axis=(1, 2)).tolist() == [4] * 6 and len({mask.tobytes() for mask in made.inside}) > 1
    changed = (made.images != batch).any(dim=1).numpy()  # (B, H, W)
    np.testing.assert_array_equal(changed, made.inside.repeat(4, axis=1).repeat(4, axis=2))
    assert torch.equal(with_triggers(model, batch, 2, (4, 4), seed=1).images, made.images)


def test_four_pictures_in_one() -> None:
    images = torch.stack([torch.full((3, 8, 8), float(number)) for number in range(4)])
    one = mosaic(images)
    assert [float(one[0, row, column]) for row in (1, 6) for column in (1, 6)] == [0.0, 1.0, 2.0, 3.0]
    for number in range(4):
        mask = quadrant(number, (4, 4)).repeat(2, axis=0).repeat(2, axis=1)
        assert (one[:, torch.from_numpy(mask)] == number).all() and mask.sum() == 16
    odd = sum(quadrant(number, (5, 5)).astype(int) for number in range(4))
    assert odd[2].sum() == odd[:, 2].sum() == 0 and odd.max() == 1
