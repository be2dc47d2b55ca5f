"""The whole model: shapes, the paper's arithmetic, agreement of the fused and the watched pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.conftest import configs, images_for

from vitral.build import build, create
from vitral.config import ModelConfig
from vitral.model.patches import cut
from vitral.model.rotary import Rotation
from vitral.model.tape import Tape
from vitral.model.vit import drop_patches


@settings(max_examples=40, deadline=None, derandomize=True)
@given(config=configs(), seed=st.integers(0, 9))
def test_fused_and_watched_logits_agree(config, seed):
    torch.manual_seed(seed)
    model = build(config).eval()
    images = images_for(config, seed=seed)
    with torch.no_grad():
        fused = model(images)
        reading = Tape(model)
        read = model(images, tape=reading)
        using = Tape(model, edits={"blocks.*.attention.weights": lambda weights, name: weights})
        used = model(images, tape=using)
    largest = fused.abs().max().clamp_min(1e-6)
    assert ((read - fused).abs().max() / largest).item() <= 1e-5
    assert ((used - fused).abs().max() / largest).item() <= 1e-5
    for block in range(config.depth):
        for tape in (reading, using):
            rows = tape.attention(block)
            assert rows.shape == (2, config.heads, config.tokens, config.tokens)
            assert torch.allclose(rows.sum(-1), torch.ones(()), atol=1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(config=configs())
def test_bf16_autocast_agrees_within_its_precision(config):
    torch.manual_seed(0)
    model = build(config).eval()
    images = images_for(config)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        fused = model(images).float()
        tape = Tape(model)
        watched = model(images, tape=tape).float()
    largest = fused.abs().max().clamp_min(1e-3)
    assert ((watched - fused).abs().max() / largest).item() <= 2e-2
    assert torch.allclose(tape.attention(0).float().sum(-1), torch.ones(()), atol=2e-2)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(config=configs())
def test_every_parameter_learns(config):
    """A parameter without a gradient would be one the forward pass forgot."""
    torch.manual_seed(0)
    model = build(config).train()
    with torch.random.fork_rng():
        outputs = model(images_for(config, batch=3))
    outputs.square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    # An attention pool or a mean over the patches may leave the last tokens unread, never unconnected.
    assert without == []


def test_shapes_of_the_paper_and_the_reports():
    tape = Tape(model := create("b/16", image_size=128, width=256, heads=8, mlp_width=512, depth=1), keep=["patches"])
    model(torch.randn(1, 3, 128, 128), tape=tape)
    assert tape["patches"].shape == (1, 64, 256)  # 128×128×3 with 16×16 patches
    assert cut(torch.zeros(1, 3, 32, 32), (4, 4)).shape == (1, 64, 48)  # 64 tokens of 48 numbers
    with torch.device("meta"):
        model = create("b/16")
        tape = Tape(model, keep=["patches", "embedding", "blocks.0.attention.weights"])
        logits = model(torch.zeros(1, 3, 224, 224), tape=tape)
    assert tape["patches"].shape == (1, 196, 768)  # a 14×14 grid
    assert tape["embedding"].shape == (1, 197, 768)
    assert tape.attention(0).shape == (1, 12, 197, 197)
    assert logits.shape == (1, 1000)


@pytest.mark.parametrize("pool", ["mean", "class+mean"])
def test_a_mean_is_over_the_patches_alone(pool):
    model = create("tiny", pool=pool, registers=2).eval()
    tape = Tape(model, keep=["tokens", "pooled"])
    model(torch.randn(2, 3, 32, 32), tape=tape)
    mean = tape.tokens[:, 3:].mean(dim=1)
    assert torch.allclose(tape["pooled"], mean if pool == "mean" else torch.cat([tape.tokens[:, 0], mean], dim=1), atol=1e-6)


def test_a_distillation_token_averages_two_heads():
    model = create("tiny", distillation_token=True).eval()
    images = torch.randn(2, 3, 32, 32)
    first, second = model.logits_of_each_head(images)
    assert second is not None and not torch.allclose(first, second)
    tokens = model.encode(images)
    assert torch.equal(first, model.head(tokens[:, 0])) and torch.equal(second, model.distillation_head(tokens[:, 1]))
    assert torch.allclose(model(images), (first + second) / 2)


def test_without_positions_the_order_of_patches_does_not_matter():
    """And with them it does: the reason why positions exist."""
    images = torch.randn(1, 3, 8, 8)
    swapped = torch.cat([images[..., 4:], images[..., :4]], dim=-1)
    for positions, same in [("none", True), ("learned", False), ("sincos", False), ("rotary", False)]:
        torch.manual_seed(0)
        config = ModelConfig(
            image_size=(8, 8),
            patch_size=(4, 4),
            classes=3,
            width=16,
            depth=2,
            heads=2,
            mlp_width=16,
            positions=positions,
            initialisation="torch",
        )
        model = build(config).eval()
        assert torch.allclose(model(images), model(swapped), atol=1e-5) is same, positions


def test_gradient_checkpointing_changes_memory_not_gradients():
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = create("tiny", gradient_checkpointing=checkpointing).train()
        model(images_for(model.config)).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"block": "parallel"},
        {"norm_order": "post"},
        {"norm_order": "res-post", "layer_scale": 0.1},
        {"positions": "rotary", "registers": 2, "distillation_token": True},
        {"positions": "relative", "gradient_checkpointing": True},
    ],
)
def test_a_last_block_that_makes_only_what_is_read_gives_the_same_answers_and_gradients(changes):
    torch.manual_seed(0)
    model = create("tiny", pool="class", **changes).train()
    images, prefix, found = images_for(model.config), model.config.prefix, []
    for read in (None, prefix):
        model.zero_grad()
        tokens = model.norm(model.through_blocks(*model.embed(images), read=read))
        assert tokens.shape[1] == (model.config.tokens if read is None else prefix)
        logits = model.answer(tokens[:, 0], tokens)
        logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters())])
    for whole, alone in zip(*found, strict=True):
        assert torch.allclose(whole, alone, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_token_dropping_keeps_the_prefix_and_matches_the_dense_pass_when_all_are_kept(positions):
    model = create("tiny", positions=positions, registers=1, pool="mean", width=48, heads=3).eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model(images, keep_patches=1.0), model(images))
    torch.manual_seed(1)
    assert not torch.allclose(model(images, keep_patches=0.5), model(images))
    tokens = torch.arange(12.0).view(1, 12, 1).expand(3, -1, 2)
    kept, rotation = drop_patches(tokens, Rotation(tokens[0], tokens[0]), prefix=2, keep=0.5)
    assert kept.shape == (3, 7, 2)
    assert not torch.equal(kept[0], kept[1]), "each picture loses patches of its own"
    assert torch.equal(kept[:, :2], tokens[:, :2])
    assert bool((kept[:, 1:, 0].diff(dim=1) > 0).all()), "kept patches stay in reading order, each once"
    assert rotation is not None and torch.equal(rotation[0], kept)


def test_post_norm_normalises_the_stream_itself():
    model = create("tiny", norm_order="post", final_norm=False).eval()
    tape = Tape(model, keep=["blocks.*.output"])
    model(torch.randn(2, 3, 32, 32), tape=tape)
    assert torch.allclose(tape["blocks.1.output"].mean(-1), torch.zeros(()), atol=1e-5)
    assert torch.allclose(tape["blocks.1.output"].var(-1, unbiased=False), torch.ones(()), atol=1e-3), "the sum, not what is added to it"


def test_compiles_into_one_graph_with_and_without_a_tape():
    model = create("tiny", depth=1).eval()
    images = torch.randn(2, 3, 32, 32)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        eager = model(images)
        tape = Tape(model)
        assert torch.allclose(compiled(images), eager, atol=1e-6)
        assert torch.allclose(compiled(images, tape=tape), eager, atol=1e-6)
        reference = Tape(model)
        model(images, tape=reference)
    assert torch.allclose(tape.attention(0), reference.attention(0), atol=1e-6)


@pytest.mark.slow
def test_compiles_with_inductor_into_one_graph():
    model = create("tiny").eval()
    images = torch.randn(2, 3, 32, 32)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        tape = Tape(model)
        assert torch.allclose(compiled(images), model(images), atol=1e-5)
        assert torch.allclose(compiled(images, tape=tape), model(images), atol=1e-5)
    assert tape.attention(1).shape == (2, 3, 65, 65)
