"""Positions: what is added where, fixed tables, and what rotation promises."""

import torch

from vitral.build import create
from vitral.model.positions import rotate, sine_cosine


def test_registers_get_no_position_unless_asked():
    model = create("tiny", registers=2, distillation_token=True)
    assert model.positions.table.shape == (1, 2 + 64, 48)
    added = model.positions(torch.zeros(1, 68, 48))
    assert bool((added[:, 2:4] == 0).all())
    assert torch.equal(added[:, 4:], model.positions.table[:, 2:])
    assert create("tiny", registers=2, prefix_positions="all").positions.table.shape == (1, 3 + 64, 48)
    assert create("tiny", registers=2, prefix_positions="none").positions.table.shape == (1, 64, 48)


def test_sine_cosine_follows_its_formula():
    table = sine_cosine((3, 5), 16).double()
    row, column, channel = 2, 4, 3
    speed = 10_000 ** -(channel / 4)
    place = row * 5 + column
    expected = [torch.sin(torch.tensor(column * speed)), torch.cos(torch.tensor(column * speed)), torch.sin(torch.tensor(row * speed))]
    assert torch.allclose(table[place, [3, 7, 11]], torch.stack(expected).double(), atol=1e-5)
    assert create("tiny", positions="sincos").state_dict().keys().isdisjoint({"positions.table"}), "fixed tables are not weights"


def test_rotary_scores_depend_on_the_offset_alone():
    """Moving two patches together leaves their score as it was."""
    model = create("tiny", image_size=32, positions="rotary", width=48, heads=3)
    rotation = model.rotary()
    torch.manual_seed(0)
    query, key = torch.randn(16), torch.randn(16)
    turned_query, turned_key = (rotate(value.expand(1, 65, 1, 16), rotation)[0, :, 0] for value in (query, key))

    def token(row, column):
        return 1 + row * 8 + column

    first = turned_query[token(1, 2)] @ turned_key[token(3, 5)]
    moved = turned_query[token(4, 1)] @ turned_key[token(6, 4)]
    other = turned_query[token(4, 1)] @ turned_key[token(5, 4)]
    assert torch.allclose(first, moved, atol=1e-5)
    assert not torch.allclose(first, other, atol=1e-3)
    assert torch.equal(turned_query[0], query), "prefix tokens do not turn"
