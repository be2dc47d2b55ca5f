from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from vitral.base.errors import UsageError
from vitral.build import forward_flops, parameter_count
from vitral.presets.models import model
from vitral.presets.runs import run
from vitral.train.plan import EFFICIENCY, GPUS, efficiency, plan

MEASURE = """
import dataclasses, json, sys, tempfile
import torch
torch.set_num_threads(1)
from vitral.config import ModelConfig
from vitral.presets.runs import run
from vitral.train.engine import fit
from vitral.train.memory import LiveBytes
from vitral.train.plan import plan
settings = json.loads(sys.argv[1])
base = run("digits", threads=1, device="cpu", evaluate_every=1000.0, test=False, checkpoint_every=1e9, **settings["train"])
config = dataclasses.replace(base, name="measured", model=ModelConfig(**settings["model"]))
small = dataclasses.replace(config, train=dataclasses.replace(config.train, batch_size=2, epochs=0.003))
with tempfile.TemporaryDirectory() as folder:
    fit(small, out=folder + "/warm", quiet=True)
    # Live tensors, as torch.cuda.max_memory_allocated counts them; the process itself holds more (allocator, libraries).
    with LiveBytes() as live:
        result = fit(config, out=folder + "/run", quiet=True)
    peak = live.most
    planned = plan(config)
seconds = result.metrics[-1]["seconds"]
print(json.dumps({"seconds": seconds, "planned_seconds": planned.seconds, "peak": peak, "planned": planned.memory.total}))
"""

RUNS = {
    "many tokens": {
        "model": {"image_size": 64, "patch_size": 4, "width": 96, "depth": 4, "heads": 3, "mlp_width": 192},
        "train": {"batch_size": 64, "epochs": 0.35, "optimizer": "adamw"},
    },
    "wide": {
        "model": {"image_size": 32, "patch_size": 4, "width": 384, "depth": 4, "heads": 6, "mlp_width": 768},
        "train": {"batch_size": 128, "epochs": 0.9, "optimizer": "muon"},
    },
    "cnn": {"model": {"family": "cnn", "image_size": 32}, "train": {"batch_size": 256, "epochs": 1.0, "optimizer": "adamw", "lr": 1e-4}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_plan_comes_true(name: str):
    """On a machine that does nothing else: within 25 % of the time and 15 % of the memory."""
    done = subprocess.run([sys.executable, "-c", MEASURE, json.dumps(RUNS[name])], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["planned"] == pytest.approx(figures["peak"], rel=0.15), figures
    assert figures["planned_seconds"] == pytest.approx(figures["seconds"], rel=0.25), figures


def test_a_named_gpu_is_an_estimate_from_the_table():
    config = dataclasses.replace(run("digits", epochs=2.0, batch_size=64), model=model("s/4", image_size=32))
    result = plan(config, gpu="H200")
    assert not result.measured and result.device == "h200" and "an estimate" in result.text()
    assert result.parameters == parameter_count(dataclasses.replace(config.model, classes=10, channels=3))
    assert result.steps == 40 and result.training_flops == pytest.approx(3 * forward_flops(config.model) * 64 * 40, rel=0.01)
    assert json.loads(json.dumps(result.to_dict()))["memory"]["total"] == result.memory.total
    slower = plan(config, gpu="t4")
    assert slower.seconds > 5 * result.seconds
    with pytest.raises(UsageError, match="h200"):
        plan(config, gpu="h2000")


def test_efficiency_rises_with_the_width_between_measured_points():
    assert [efficiency(width) for width, _ in EFFICIENCY] == [share for _, share in EFFICIENCY]
    assert efficiency(10) == EFFICIENCY[0][1] and efficiency(5000) == EFFICIENCY[-1][1]
    assert EFFICIENCY[2][1] < efficiency(512) < EFFICIENCY[3][1] and all(gpu.memory >= 16 for gpu in GPUS.values())
