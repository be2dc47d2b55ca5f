"""What is added to the stream: layer scale and stochastic depth."""

import torch

from vitral.build import create


def test_stochastic_depth_grows_with_depth_and_leaves_the_mean():
    blocks = create("tiny", depth=3, drop_path=0.5).train().blocks
    assert [block.drop_path for block in blocks] == [0.0, 0.25, 0.5]
    torch.manual_seed(0)
    update = torch.ones(2000, 2, 3)
    kept = blocks[1]._branch(update, None)
    assert bool((kept == kept[:, :1, :1]).all()), "a picture's branch is dropped whole"
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs(kept.mean().item() - 1) < 0.05, "each picture is drawn for itself, and the rest makes up for those left out"
    assert torch.equal(blocks[2].eval()._branch(update, None), update)


def test_each_branch_has_a_scale_of_its_own():
    block = create("tiny", layer_scale=1.0).eval().blocks[0].double()
    tokens = torch.randn(2, 5, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.scale1.fill_(0.25)
        block.scale2.fill_(3.0)
        middle = tokens + 0.25 * block.attention(block.norm1(tokens))
        assert torch.allclose(block(tokens), middle + 3 * block.mlp(block.norm2(middle)), atol=1e-12)
