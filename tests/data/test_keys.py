"""Random numbers by address: nothing but the address decides them."""

from __future__ import annotations

import numpy as np
import torch

from vitral.data.keys import generator, key, uniforms


def test_every_part_of_an_address_counts_and_parts_do_not_run_together() -> None:
    addresses = [(0, "order", 1), (1, "order", 1), (0, "order", 2), (0, "crop", 1), (0, "order1"), (0, "order", 1, 0)]
    assert len({key(*address) for address in addresses}) == len(addresses)
    assert all(0 <= key(*address) < 2**63 for address in addresses)


def test_the_numbers_of_an_address_are_these_for_ever() -> None:
    """Written down: a change would give every seed of every run other batches."""
    assert key(0, "order", 1) == 5094981735435818475
    assert generator(0, "order", 1).permutation(6).tolist() == [0, 2, 3, 5, 1, 4]


def test_who_asks_first_does_not_matter_and_nobody_elses_numbers_move() -> None:
    before = torch.random.get_rng_state()
    first, second = (uniforms((2, 3), torch.device("cpu"), 0, "augment", step) for step in (0, 1))
    generator(5).random(100)
    assert torch.equal(uniforms((2, 3), torch.device("cpu"), 0, "augment", 0), first) and not torch.equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(generator(1, "a").random(4), generator(1, "a").random(4))
