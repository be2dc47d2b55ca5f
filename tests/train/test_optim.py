import dataclasses

import pytest
import torch
from torch import nn

from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.config import TrainConfig
from vitral.train.optim import Muon, Optimizer, choose, clip, groups, is_attention, is_head, muon_update, orthogonal, parts_of


def test_tune_attention_trains_exactly_attention_and_head():
    model = create("tiny", classes=3)
    chosen = choose(model, TrainConfig(tune="attention"))
    expected = {name for name, _ in model.named_parameters() if ".attention." in name or name.startswith("head.")}
    assert set(chosen) == expected == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert any(".attention.qkv." in name for name in chosen) and not any(".mlp." in name or ".norm" in name for name in chosen)
    assert set(choose(model, TrainConfig(tune="head"))) == {"head.linear.weight", "head.linear.bias"}
    assert len(choose(model, TrainConfig(tune="all"))) == len(list(model.parameters()))


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_a_filter_that_matches_nothing_is_an_error(name: str):
    model = create(name, image_size=32, classes=3)
    with pytest.raises(ConfigError, match="parameter"):
        choose(model, TrainConfig(tune="attention"))
    assert all(is_head(chosen) for chosen in choose(model, TrainConfig(tune="head")))
    with pytest.raises(ConfigError):
        choose(create("tiny", classes=0), TrainConfig(tune="head"))


def test_every_parameter_is_in_one_group_and_only_matrices_decay():
    model = create("tiny")
    parameters = dict(model.named_parameters())
    found = groups(parameters, TrainConfig(optimizer="muon", lr=0.02, adam_lr=1e-3), 2)
    names = [name for group in found for name in group.names]
    assert sorted(names) == sorted(parameters)
    for group in found:
        for name in group.names:
            matrix = parameters[name].ndim >= 2 and not name.startswith(("tokens.", "positions."))
            assert (group.weight_decay > 0) == matrix
            assert (group.rule == "muon") == (name.startswith("blocks.") and parameters[name].ndim == 2)
            assert group.lr == (0.02 if group.rule == "muon" else 1e-3)


@pytest.mark.parametrize(("name", "first"), [("cnn", "stages.0.0"), ("resnet18", "network.conv1"), ("hybrid", "stem.0")])
def test_muon_moves_the_filters_of_rivals_but_neither_the_first_nor_the_last_layer(name: str, first: str):
    parameters = dict(create(name, classes=10, image_size=32).named_parameters())
    found = groups(parameters, TrainConfig(optimizer="muon"), 2)
    rules = {parameter: group.rule for group in found for parameter in group.names}
    filters = [parameter for parameter, value in parameters.items() if value.ndim == 4 and not parameter.startswith((first, "patches."))]
    assert filters and {rules[parameter] for parameter in filters} == {"muon"}
    assert rules[first + ".weight"] == "adamw" and {rule for parameter, rule in rules.items() if is_head(parameter)} == {"adamw"}
    assert {rules[parameter] for parameter, value in parameters.items() if value.ndim == 1} == {"adamw"}


def test_filters_move_as_the_matrix_of_their_rows():
    torch.manual_seed(0)
    filters, matrix = nn.Parameter(torch.randn(6, 5, 3, 3).to(memory_format=torch.channels_last)), nn.Parameter(torch.empty(6, 45))
    matrix.data.copy_(filters.detach().flatten(1))
    gradient = torch.randn(6, 5, 3, 3)
    filters.grad, matrix.grad = gradient.to(memory_format=torch.channels_last), gradient.flatten(1)
    for parameter in (filters, matrix):
        Muon([{"params": [parameter], "parts": [1], "lr": torch.tensor(0.1), "weight_decay": 0.2}], 0.9).step()
    assert torch.equal(filters.flatten(1), matrix)


def test_layer_decay_halves_the_rate_of_each_block_below():
    found = groups(dict(create("tiny").named_parameters()), TrainConfig(lr=1.0, layer_decay=0.5), 2)
    rates = {name: group.lr for group in found for name in group.names}
    assert rates["head.linear.weight"] == rates["norm.weight"] == 1.0
    assert rates["blocks.1.mlp.expand.weight"] == 0.5 and rates["blocks.0.mlp.expand.weight"] == 0.25
    assert rates["patches.projection.weight"] == rates["positions.table"] == 0.125


def test_layer_decay_counts_the_stages_of_rivals():
    for name, first, last in (("resnet18", "network.bn1.weight", "network.fc.weight"), ("hybrid", "stem.0.weight", "head.linear.weight")):
        model = create(name, image_size=32, classes=3)
        depth = model.config.depth
        found = groups(dict(model.named_parameters()), TrainConfig(lr=1.0, layer_decay=0.5), depth)
        rates = {name: group.lr for group in found for name in group.names}
        assert rates[last] == 1.0 and rates[first] == 0.5 ** (depth + 1), name


@pytest.mark.parametrize("shape", [(4, 8, 8), (3, 6, 12), (2, 20, 5)])
def test_orthogonal_brings_all_singular_values_near_one(shape: tuple[int, ...]):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.6 and values.max() < 1.3


def test_batched_muon_equals_one_matrix_at_a_time_and_qkv_is_three_matrices():
    torch.manual_seed(0)
    start = [torch.randn(12, 4) for _ in range(3)]
    gradients = [[torch.randn(12, 4) for _ in range(3)] for _ in range(4)]

    def trained(parts: int, batches: list[list[int]]) -> list[torch.Tensor]:
        parameters = [nn.Parameter(value.clone()) for value in start]
        rules = [
            Muon(
                [{"params": [parameters[i] for i in batch], "parts": [parts] * len(batch), "lr": torch.tensor(0.1), "weight_decay": 0.2}],
                0.9,
            )
            for batch in batches
        ]
        for step in gradients:
            for parameter, gradient in zip(parameters, step, strict=True):
                parameter.grad = gradient.clone()
            for rule in rules:
                rule.step()
        return [parameter.detach() for parameter in parameters]

    together, apart = trained(3, [[0, 1, 2]]), trained(3, [[0], [1], [2]])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(together, apart, strict=True))
    # The third of a stacked matrix moves as the same matrix would alone.
    parameter, momentum = start[0][4:8].clone(), torch.zeros(4, 4)
    for step in gradients:
        gradient = step[0][4:8]
        momentum = momentum.lerp(gradient, 0.1)
        parameter = parameter * (1 - 0.1 * 0.2) - 0.1 * orthogonal(gradient.lerp(momentum, 0.9)[None])[0]
    assert torch.allclose(together[0][4:8], parameter, atol=1e-5)
    assert not torch.allclose(together[0], trained(1, [[0, 1, 2]])[0], atol=1e-3)
    assert parts_of("blocks.0.attention.qkv.weight", False) == 3
    assert parts_of("blocks.0.mlp.expand.weight", True) == 2 and parts_of("blocks.0.mlp.expand.weight", False) == 1


@pytest.mark.parametrize(("rows", "columns", "size"), [(4, 16, 1.0), (36, 4, 3.0)])
def test_muon_moves_tall_matrices_further(rows: int, columns: int, size: float):
    """√(rows / columns), from 1 on: each output then changes as much, however many there are."""
    torch.manual_seed(0)
    gradient = torch.randn(rows, columns)
    (update,) = muon_update([gradient], [torch.zeros(rows, columns)], 1, 0.0)
    assert torch.allclose(update, size * orthogonal(gradient[None])[0], atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_the_rate_changes_in_place_and_the_state_comes_back(name: str):
    def fresh() -> tuple[nn.Module, Optimizer]:
        torch.manual_seed(0)
        model = create("tiny", width=12, mlp_width=12, heads=2)
        config = dataclasses.replace(TrainConfig(), optimizer=name, lr=0.01)
        return model, Optimizer(model, config, 2, torch.device("cpu"))

    def step(model: nn.Module, optimizer: Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()

    model, optimizer = fresh()
    rates = [row["lr"] for rule in optimizer.rules for row in rule.param_groups]
    optimizer.set_lr(0.5)
    assert all(row["lr"] is rate for rate, row in zip(rates, (row for rule in optimizer.rules for row in rule.param_groups), strict=True))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.set_lr(0.0)
    step(model, optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    optimizer.set_lr(1.0)
    step(model, optimizer, 2)
    other, second = fresh()
    other.load_state_dict(model.state_dict())
    second.load({key: value.clone() for key, value in optimizer.state().items()})
    step(model, optimizer, 3)
    step(other, second, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_clipping_scales_to_the_limit():
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = torch.full((4,), 3.0)
    assert clip([parameter], 1.0) == pytest.approx(6.0)
    assert parameter.grad.norm() == pytest.approx(1.0, abs=1e-4)
    assert is_attention("blocks.0.attention.qkv.weight") and not is_attention("blocks.0.mlp.expand.weight")


def test_positions_of_every_kind_are_no_matrices():
    for changes in ({"positions": "relative"}, {"positions": "rotary", "rotary": "mixed"}, {"pool": "map", "class_token": False}):
        model = create("tiny", **changes)
        found = groups(dict(model.named_parameters()), TrainConfig(optimizer="muon", weight_decay=0.1), model.config.depth)
        plain = {name for group in found for name in group.names if group.rule == "adamw" and group.weight_decay == 0}
        odd = {name for name, _ in model.named_parameters() if name.endswith((".relative.table", "rotary.speeds", "pool.probe"))}
        assert odd and odd <= plain
