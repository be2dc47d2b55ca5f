"""Nothing lost, nothing left: the engine that applies rule tables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.base.errors import WeightsError
from vitral.weights.detect import FAMILIES
from vitral.weights.keymap import OPERATIONS, Mapped, check, convert, revert

TABLE = {
    "layer.{i}.{p}": "blocks.{i}.norm1.{p}",
    ("q.{i}", "k.{i}", "v.{i}"): "blocks.{i}.attention.qkv.weight",
    "other.{i}": "blocks.{i}.attention.qkv.weight",
    "proj": ("head.linear.weight", "transposed"),
    "decoder.{rest}": None,
}


def test_mapped_joined_reshaped_dropped() -> None:
    tensors = {
        "layer.3.weight": torch.arange(4.0),
        "v.0": torch.full((1, 2), 3.0),
        "q.0": torch.full((1, 2), 1.0),
        "k.0": torch.full((1, 2), 2.0),
        "proj": torch.arange(6.0).reshape(2, 3),
        "decoder.x.y": torch.zeros(1),
    }
    mapped = convert(TABLE, tensors)
    assert mapped.tensors["blocks.0.attention.qkv.weight"][:, 0].tolist() == [1, 2, 3]
    assert torch.equal(mapped.tensors["head.linear.weight"], tensors["proj"].T)
    actions = {row.foreign[0]: row.action for row in mapped.rows}
    assert actions == {"layer.3.weight": "mapped", "q.0": "joined", "proj": "reshaped", "decoder.x.y": "dropped"}


def test_unknown_incomplete_and_twice_filled_are_listed() -> None:
    one = torch.zeros(1, 2)
    with pytest.raises(WeightsError, match=r"stranger.*layer\.x\.weight"):
        convert(TABLE, {"stranger": one, "layer.x.weight": one})
    with pytest.raises(WeightsError, match=r"2 of the 3.*q\.0, v\.0"):
        convert(TABLE, {"q.0": one, "v.0": one})
    with pytest.raises(WeightsError, match=r"twice.*q\.0.*other\.0"):
        convert(TABLE, {"q.0": one, "k.0": one, "v.0": one, "other.0": one})


def test_missing_extra_and_wrong_shapes_are_listed() -> None:
    mapped = Mapped({"a": torch.zeros(2), "b": torch.zeros(3)})
    with pytest.raises(WeightsError, match=r"lacks .*c"):
        check(mapped, {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)})
    with pytest.raises(WeightsError, match=r"does not have.*b"):
        check(mapped, {"a": torch.zeros(2)})
    with pytest.raises(WeightsError, match="3, not 4"):
        check(mapped, {"a": torch.zeros(2), "b": torch.zeros(4)})


def test_integers_are_not_weights() -> None:
    with pytest.raises(WeightsError, match=r"torch\.int64"):
        convert(TABLE, {"layer.0.weight": torch.zeros(2, dtype=torch.int64)})


SHAPES = {
    "without keys": (6,),
    "same": (6, 4),
    "token": (1, 1, 12),
    "batched": (1, 5, 12),
    "transposed": (6, 4),
    "channels last": (12, 3, 2, 2),
    "heads in": (36, 12),
    "heads bias": (36,),
    "heads out": (12, 12),
}


@given(st.sampled_from(sorted(OPERATIONS)), st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 2**31))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_every_operation_undoes_itself(name: str, heads: int, seed: int) -> None:
    parts = {"heads in": 3, "heads bias": 3, "without keys": 2}.get(name, 1)
    tensor = torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(seed))
    if name == "without keys":
        tensor[2:4] = 0
    there = OPERATIONS[name].backward(tensor, parts, heads)
    assert len(there) == parts
    assert torch.equal(OPERATIONS[name].forward(there), tensor)


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_each_table_names_operations_that_exist_and_writes_what_it_reads(family) -> None:
    assert {target[1] for target in family.table.values() if isinstance(target, tuple)} <= set(OPERATIONS)
    # Whatever the table writes for a parameter, it must read back into the same parameter.
    for target in family.table.values():
        if target is None:
            continue
        ours, operation = target if isinstance(target, tuple) else (target, "same")
        name = ours.replace("{i}", "0").replace("{p}", "weight").replace("{rest}", "anything")
        tensor = torch.randn(SHAPES[operation])
        if operation == "without keys":
            tensor[2:4] = 0
        written = revert(family.table, {name: tensor}, 3, family.label)
        assert torch.equal(convert(family.table, written).tensors[name], tensor)


def test_a_parameter_without_a_place_is_named() -> None:
    with pytest.raises(WeightsError, match=r"stem\.0\.weight"):
        revert(TABLE, {"stem.0.weight": torch.zeros(1)}, 1, "elsewhere")


def test_a_bias_of_keys_is_not_lost_silently() -> None:
    table = {("q_bias", "v_bias"): ("blocks.0.attention.qkv.bias", "without keys")}
    with pytest.raises(WeightsError, match="bias"):
        revert(table, {"blocks.0.attention.qkv.bias": torch.ones(6)}, 1, "elsewhere")
