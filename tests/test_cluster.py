"""The estimate for many GPUs: its formulas by hand, and its shards beside those that FSDP2 makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from vitral.build import create
from vitral.cost.memory import Memory

from .scripts import load_script

cluster = load_script(Path(__file__).parents[1] / "benchmarks" / "cluster.py")
BACKWARD, INFINIBAND, LATENCY, NVLINK, SHARE = cluster.BACKWARD, cluster.INFINIBAND, cluster.LATENCY, cluster.NVLINK, cluster.SHARE
all_reduce, estimate, shard = cluster.all_reduce, cluster.estimate, cluster.shard

MEMORY = Memory(weights=4000, optimizer=8000, ema=0, step=10_000_000_000)


@pytest.mark.parametrize("gpus", [2, 8, 64, 512])
@pytest.mark.parametrize("name", ["b/16", "l/16", "h/14"])
def test_shards_are_those_of_fsdp(name: str, gpus: int) -> None:
    """Every process of a fake group is this one: nothing is sent, but parameters are divided as they would be."""
    with torch.device("meta"):
        model = create(name)
    expected = shard(model, gpus)
    dist.init_process_group("fake", rank=0, world_size=gpus, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (gpus,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        local = sum(value.to_local().numel() * value.element_size() for value in model.parameters())  # type: ignore[union-attr]
    finally:
        dist.destroy_process_group()
    assert local == expected
    assert expected >= 4 * sum(value.numel() for value in model.parameters()) / gpus


def test_an_all_reduce_by_hand() -> None:
    assert all_reduce(1e9, 1) == 0
    assert all_reduce(1e9, 8) == pytest.approx(2 * 7 / 8 * 1e9 / (NVLINK * SHARE) + 2 * LATENCY * 3)
    far = 2 * 3 / 4 * 1e9 / 8 / (INFINIBAND * SHARE)
    assert all_reduce(1e9, 32) == pytest.approx(2 * 7 / 8 * 1e9 / (NVLINK * SHARE) + far + 2 * LATENCY * 5)


def test_what_can_be_hidden_is_and_memory_is_shared_by_fsdp_alone() -> None:
    with torch.device("meta"):
        model = create("b/16")
    size = 4 * sum(value.numel() for value in model.parameters())
    long, short = 10.0, 1e-4
    for strategy in ("ddp", "fsdp"):
        assert estimate(model, model.blocks, MEMORY, long, 1, strategy).step == long
        assert estimate(model, model.blocks, MEMORY, long, 64, strategy).efficiency > 0.999
    bound = estimate(model, model.blocks, MEMORY, short, 64, "ddp")
    assert bound.waiting == pytest.approx(all_reduce(size, 64) - BACKWARD * short) and bound.efficiency < 0.1
    assert estimate(model, model.blocks, MEMORY, short, 64, "fsdp").waiting == pytest.approx(1.5 * all_reduce(size, 64) - short)
    assert estimate(model, model.blocks, MEMORY, long, 64, "ddp").memory == MEMORY.total + size
    many = Memory(size, 2 * size, 0, 10)
    few, more = (estimate(model, model.blocks, many, long, gpus, "fsdp").memory for gpus in (2, 64))
    assert more < few < many.total
