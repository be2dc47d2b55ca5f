import copy

import pytest
import torch

from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.model.lora import LowRankLinear, add_lora, is_lora, merge_lora
from vitral.model.tape import Tape
from vitral.weights.export import export
from vitral.weights.load import load

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
RANK, ALPHA = 3, 6.0


def adapted(where: str = "all", **changes: object) -> torch.nn.Module:
    """With matrices that have learnt something."""
    torch.manual_seed(0)
    model = create("tiny", classes=5, width=24, heads=2, mlp_width=32, **changes).eval()
    add_lora(model, where, RANK, ALPHA, seed=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_lora(name):
                parameter.normal_(std=0.2)
    return model


def plain(model: torch.nn.Module) -> torch.nn.Module:
    made = create(
        "tiny", **{name: getattr(model.config, name) for name in ("classes", "width", "heads", "mlp_width", "pool", "activation")}
    )
    made.load_state_dict(merge_lora(model.state_dict(), RANK, ALPHA))
    return made.eval()


def test_before_it_learns_it_is_the_model_it_was_made_of():
    model = create("tiny", classes=5).eval()
    before = model(IMAGES)
    add_lora(model, "all", 4, 8.0, seed=0)
    assert torch.equal(model(IMAGES), before)
    state = copy.deepcopy(model.state_dict())
    add_lora(model, "all", 4, 8.0, seed=5)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items()), "a second time changes nothing"


@pytest.mark.parametrize("where", ["attention", "mlp", "all"])
def test_it_stands_beside_what_was_asked_for(where: str):
    layers = {name for name, layer in adapted(where, pool="map").named_modules() if isinstance(layer, LowRankLinear)}
    attention = {f"blocks.{index}.attention.{part}" for index in (0, 1) for part in ("qkv", "projection")}
    attention |= {"pool.query", "pool.key_value", "pool.projection"}
    mlp = {f"{place}.mlp.{part}" for place in ("blocks.0", "blocks.1", "pool") for part in ("expand", "contract")}
    assert layers == {"attention": attention, "mlp": mlp, "all": attention | mlp}[where]


@pytest.mark.parametrize("changes", [{}, {"pool": "map"}, {"activation": "swiglu"}])
def test_merged_it_answers_the_same(changes: dict[str, str]):
    model = adapted(**changes)
    merged = plain(model)
    assert not torch.allclose(model(IMAGES), create("tiny", classes=5)(IMAGES), atol=1e-2)
    assert torch.allclose(merged(IMAGES), model(IMAGES), atol=1e-5)
    tapes = [Tape(each, keep=["blocks.1.attention.weights", "blocks.0.mlp.hidden"]) for each in (model, merged)]
    for each, tape in zip((model, merged), tapes, strict=True):
        each(IMAGES, tape=tape)
    for name in ("blocks.1.attention.weights", "blocks.0.mlp.hidden"):
        assert torch.allclose(tapes[0][name], tapes[1][name], atol=1e-5)


def test_what_is_exported_unmerged_is_refused_by_name_and_merged_comes_back(tmp_path):
    model = adapted()
    with pytest.raises(Exception, match="lora"):
        export(model, tmp_path / "unmerged", format="timm")
    again = load(export(plain(model), tmp_path / "merged", format="timm"), heads=2, activation="gelu", quiet=True)
    assert torch.allclose(again(IMAGES), model(IMAGES), atol=1e-5)


def test_it_says_where_it_makes_no_sense():
    with pytest.raises(ConfigError, match=r"tune = lora.*cnn"):
        add_lora(create("cnn", image_size=32), "all", 4, 8.0, seed=0)
    with pytest.raises(ConfigError, match="lora_rank"):
        add_lora(create("tiny", width=24, heads=2), "attention", 24, 8.0, seed=0)
