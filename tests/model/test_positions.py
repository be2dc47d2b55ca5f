"""Positions: what is added where, fixed tables, and what rotation promises."""

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.look.watch import watch
from vitral.model.positions import RelativePositionsOfMLP, relative_index, sine_cosine
from vitral.weights.resize import adapt


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


def test_relative_positions_of_equal_pairs_share_a_bias():
    index = relative_index((2, 3), prefix=1)
    assert index.shape == (7, 7)
    patch = index[1:, 1:]
    assert patch[0, 1] == patch[1, 2] == patch[3, 4], "one column to the right"
    assert patch[0, 1] != patch[1, 0] and patch[0, 3] != patch[0, 1]
    assert len(patch.unique()) == 3 * 5
    assert index[0, 1:].unique().tolist() == [15] and index[1:, 0].unique().tolist() == [16] and index[0, 0] == 17


def test_relative_bias_is_part_of_the_attention_that_is_shown():
    torch.manual_seed(0)
    model = create("tiny", positions="relative").eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.relative.table.normal_()
    images = torch.randn(2, 3, 32, 32)
    tape = watch(model, images, keep=["*.attention.weights", "*.value", "*.heads"])
    assert torch.allclose(tape.logits, model(images), atol=1e-5)
    assert torch.allclose(tape.attention(0) @ tape["blocks.0.attention.value"], tape["blocks.0.attention.heads"], atol=1e-5)
    one = watch(model, images, heads=[1], rows=[3])
    assert torch.allclose(one.attention(1)[:, 0, 0], tape.attention(1)[:, 1, 3], atol=1e-6)
    with pytest.raises(UsageError, match="whole grids"):
        model(images, keep_patches=0.5)


@pytest.mark.parametrize("class_token", [False, True])
def test_an_mlp_makes_relative_positions_as_timms_does_for_any_grid(class_token: bool):
    """A larger picture needs no interpolation: the MLP is asked for larger distances."""
    from timm.layers import RelPosMlp

    torch.manual_seed(0)
    model = create("tiny", positions="relative", relative_mlp=12, class_token=class_token, pool="mean")
    for resized, grid in ((model, (8, 8)), (adapt(model, image_size=(48, 40)), (12, 10))):
        ours = resized.blocks[0].attention.relative
        assert isinstance(ours, RelativePositionsOfMLP)
        theirs = RelPosMlp(grid, num_heads=model.config.heads, hidden_dim=12, prefix_tokens=int(class_token)).eval()
        theirs.mlp.fc1.load_state_dict(ours.expand.state_dict())
        theirs.mlp.fc2.load_state_dict(ours.contract.state_dict())
        assert torch.allclose(ours(), theirs.get_bias(), atol=1e-6)
    assert not any("positions resized" in change for change in adapt(model, image_size=48).origin.changes)
