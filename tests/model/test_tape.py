"""The tape: what is recorded, what is edited, and never a silently empty result."""

import re
from pathlib import Path

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.look.watch import watch
from vitral.model.tape import Tape


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return create("tiny", registers=1).eval()


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_the_documented_names_are_all_recorded(model, images):
    """docs/concepts/tape.md lists these; a name that is listed but never recorded would be an empty promise."""
    tape = watch(model, images, keep="*")
    assert tape.names() == model.tape_names()
    batch, tokens, width, heads = 2, 66, 48, 3
    shapes = {
        "patches": (batch, 64, width),
        "embedding": (batch, tokens, width),
        "blocks.1.attention.query": (batch, heads, tokens, 16),
        "blocks.1.attention.key": (batch, heads, tokens, 16),
        "blocks.1.attention.value": (batch, heads, tokens, 16),
        "blocks.1.attention.weights": (batch, heads, tokens, tokens),
        "blocks.1.attention.heads": (batch, heads, tokens, 16),
        "blocks.1.attention.output": (batch, tokens, width),
        "blocks.1.middle": (batch, tokens, width),
        "blocks.1.mlp.hidden": (batch, tokens, 96),
        "blocks.1.mlp.output": (batch, tokens, width),
        "blocks.1.output": (batch, tokens, width),
        "tokens": (batch, tokens, width),
        "pooled": (batch, width),
        "logits": (batch, 10),
    }
    assert {name: tuple(tape[name].shape) for name in shapes} == shapes
    assert (tape.grid, tape.prefix) == ((8, 8), 2)


def test_the_documentation_lists_every_name_and_no_other(model):
    page = (Path(__file__).parents[2] / "docs/concepts/tape.md").read_text()
    listed = set()
    for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE):
        first, *endings = re.findall(r"`([^`]+)`", row)
        listed |= {first, *(first.rsplit(".", 1)[0] + ending for ending in endings)}
    assert listed == {re.sub(r"^blocks\.\d+", "blocks.{i}", name) for name in model.tape_names()}


def test_recorded_values_are_the_ones_the_model_computes(model, images):
    tape = watch(model, images, keep="*")
    stream = tape["embedding"]
    for index in range(2):
        name = f"blocks.{index}"
        weights, value = tape[f"{name}.attention.weights"], tape[f"{name}.attention.value"]
        assert torch.allclose(weights @ value, tape[f"{name}.attention.heads"], atol=1e-6)
        assert torch.allclose(stream + tape[f"{name}.attention.output"], tape[f"{name}.middle"], atol=1e-6)
        stream = tape[f"{name}.middle"] + tape[f"{name}.mlp.output"]
        assert torch.allclose(stream, tape[f"{name}.output"], atol=1e-6)


def test_rows_of_edited_weights_do_not_keep_the_others_alive(model, images):
    same = {"blocks.1.attention.weights": lambda value, _: value}
    row = watch(model, images, rows="class", edits=same).attention(1)
    assert torch.allclose(row, watch(model, images).attention(1)[:, :, :1], atol=1e-6)
    assert row.untyped_storage().nbytes() == row.numel() * row.element_size()


def test_only_chosen_blocks_heads_and_rows(model, images):
    whole = watch(model, images)
    part = watch(model, images, blocks=[1], heads=[2, 0], rows=[5, 0])
    assert torch.allclose(part.attention(1), whole.attention(1)[:, [2, 0]][:, :, [5, 0]])
    assert torch.allclose(watch(model, images, rows="class").attention(0), whole.attention(0)[:, :, :1])
    with pytest.raises(UsageError, match=r"blocks\.0\.attention\.weights"):
        part.attention(0)


def test_an_unrun_tape_and_unknown_names_say_so(model):
    tape = Tape(model)
    with pytest.raises(UsageError, match="not run"):
        _ = tape.logits
    with pytest.raises(UsageError, match=r"blocks\.0\.atention.*blocks\.0\.attention"):
        _ = tape["blocks.0.atention.weights"]
    with pytest.raises(UsageError, match="unknown"):
        Tape(model, keep=["blocks.7.*"])
    with pytest.raises(UsageError, match="0 to 1"):
        tape.attention(2)
    with pytest.raises(UsageError, match=r"heads \[3\]"):
        Tape(model, heads=[3])
    with pytest.raises(UsageError, match=r"rows \[\]"):
        Tape(model, rows=[])


def test_a_head_switched_off_changes_the_logits_as_zeroing_its_output_does(model, images):
    def without_head(weights, name):
        weights = weights.clone()
        weights[:, 1] = 0
        return weights

    plain = watch(model, images)
    edited = watch(model, images, edits={"blocks.0.attention.weights": without_head})
    assert not torch.allclose(edited.logits, plain.logits)
    assert bool((edited.attention(0)[:, 1] == 0).all())
    mask = torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1, 1)
    same = watch(model, images, edits={"blocks.0.attention.heads": lambda value, name: value * mask})
    assert torch.allclose(edited.logits, same.logits, atol=1e-6)


def test_a_replaced_map_is_used(model, images):
    uniform = watch(model, images, edits={"blocks.1.attention.weights": lambda weights, name: torch.full_like(weights, 1 / 66)}, keep="*")
    mean = uniform["blocks.1.attention.value"].mean(dim=2, keepdim=True).expand(-1, -1, 66, -1)
    assert torch.allclose(uniform["blocks.1.attention.heads"], mean, atol=1e-6)


def test_readers_see_everything_and_store_nothing(model, images):
    seen = []
    tape = watch(model, images, keep=[], readers={"blocks.*.attention.weights": lambda value, name: seen.append((name, value.shape))})
    assert [name for name, _ in seen] == ["blocks.0.attention.weights", "blocks.1.attention.weights"]
    assert tape.names() == ["tokens", "logits"]


def test_gradients_equal_finite_differences(model, images):
    model = create("tiny", registers=1).double().eval()
    images = images.double()
    tape = watch(model, images, gradients=True)
    gradient = tape.gradient("blocks.1.attention.weights", target=3, item=1)
    assert bool((gradient[0] == 0).all()), "the other picture has no part in this logit"
    step = 1e-6

    def nudged(sign):
        def edit(weights, name):
            weights = weights.clone()
            weights[1, 2, 0, 7] += sign * step
            return weights

        return watch(model, images, edits={"blocks.1.attention.weights": edit}).logits[1, 3]

    slope = (nudged(+1) - nudged(-1)) / (2 * step)
    assert torch.allclose(slope, gradient[1, 2, 0, 7], rtol=1e-5, atol=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters()), "explaining must not train"


def test_one_backward_pass_gives_the_gradients_of_everything_kept(model, images, monkeypatch):
    """Remembered for one class and picture, and never mistaken for another's."""
    names = ["blocks.0.attention.weights", "blocks.1.output"]
    tape = watch(model, images, keep=names, gradients=True)
    passes, backward = [], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **options: (passes.append(1), backward(*args, **options))[1])
    for number, (target, item) in enumerate([(3, 0), (3, 1), (4, 1), (None, 1), (None, None), (3, 0)], 1):
        found = [tape.gradient(names[1], target, item), *tape.gradient_of(names, target, item)]
        assert len(passes) == number and found[0] is found[2]
        chosen = tape.logits.argmax(dim=1) if target is None else torch.tensor([target, target])
        scores = tape.logits[torch.arange(2), chosen]
        expected = backward(scores.sum() if item is None else scores[item], [tape[name] for name in names], retain_graph=True)
        assert all(torch.equal(one, other) for one, other in zip(found[1:], expected, strict=True))
    with pytest.raises(UsageError, match="kept"):
        tape.gradient("blocks.0.output", 3, 0)


def test_gradients_say_when_they_cannot_be_had(model, images):
    with pytest.raises(UsageError, match="graph"):
        watch(model, images).gradient("logits")
    with torch.inference_mode(), pytest.raises(UsageError, match="inference_mode"):
        watch(model, images, gradients=True)
    with pytest.raises(UsageError, match="class 10"):
        watch(model, images, gradients=True).gradient("tokens", target=10)
    with pytest.raises(UsageError, match="whole"):
        watch(model, images, gradients=True, rows="class")


def test_works_when_parameters_are_frozen(model, images):
    frozen = create("tiny").eval().requires_grad_(False)
    assert watch(frozen, images, gradients=True).gradient("blocks.0.attention.weights").abs().sum() > 0


def test_inference_mode_and_autocast_work(model, images):
    plain = watch(model, images)
    with torch.inference_mode():
        inside = watch(model, images)
    assert torch.equal(inside.attention(1), plain.attention(1))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(watch(model, images).attention(1).float(), plain.attention(1), atol=2e-2)


def test_watch_runs_in_eval_mode_and_restores_the_mode(images):
    model = create("tiny", dropout=0.5, drop_path=0.5).train()
    first, second = watch(model, images), watch(model, images)
    assert torch.equal(first.logits, second.logits)
    assert model.training


def test_a_rival_says_that_it_has_no_attention(images):
    tape = watch(create("cnn"), images)
    assert tape.names() == ["stages.0.output", "stages.1.output", "stages.2.output", "logits"]
    assert tape.grid == (4, 4)
    with pytest.raises(UsageError, match="cnn"):
        tape.attention(0)


def test_a_tape_says_what_it_holds():
    model = create("tiny").eval()
    tape = Tape(model, keep=["blocks.*.attention.weights", "patches"])
    assert repr(tape) == "Tape(nothing recorded yet, 5 values wanted)"
    model(torch.zeros(1, 3, 32, 32), tape=tape)
    assert repr(tape) == "Tape(patches (1, 64, 48), 2 × blocks.*.attention.weights (1, 3, 65, 65), tokens (1, 65, 48), logits (1, 10))"


def test_a_tape_is_a_table_in_a_notebook(model, images):
    assert "nothing recorded" in Tape(model)._repr_html_()
    assert "<td>blocks.*.attention.weights</td>" in watch(model, images)._repr_html_()
