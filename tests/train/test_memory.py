import dataclasses

import torch

from vitral.presets.models import model
from vitral.presets.runs import run
from vitral.train.advice import during, of_config
from vitral.train.memory import LiveBytes, fitting_batch, step_memory


def test_live_bytes_counts_what_is_alive():
    with LiveBytes() as live:
        first = torch.zeros(1000)
        second = first + 1
        view = second.view(10, 100)
        assert live.now == 8000
        del first
        assert live.now == 4000
        del second, view
        third = torch.zeros(500)
    assert live.now == third.numel() * 4 and live.most == 8000


def test_a_step_grows_with_the_batch_and_holds_weights_moments_and_average():
    config = dataclasses.replace(run("digits", optimizer="adamw"), model=model("tiny"))
    few, more = step_memory(config, 8), step_memory(config, 32)
    assert few.weights == more.weights == few.average and few.optimizer == 2 * few.weights
    assert 3.2 < more.step / few.step < 4.2
    half = step_memory(config, 32, dtype=torch.bfloat16)
    assert 0.4 * more.step < half.step < 0.9 * more.step
    assert step_memory(config, 32, compiled=True).step < more.step
    frozen = dataclasses.replace(config, train=dataclasses.replace(config.train, tune="head"))
    assert step_memory(frozen, 32).step < 0.5 * more.step and step_memory(frozen, 32).optimizer < 0.1 * more.optimizer


def test_the_batch_that_fits_does_fit_and_is_smaller():
    config = dataclasses.replace(run("digits"), model=model("tiny"))
    space = step_memory(config, 100).total
    count = fitting_batch(config, space, "cpu", below=512)
    assert 70 <= count <= 100 and step_memory(config, count).total <= space
    assert fitting_batch(config, space, "cpu", below=64) == 32
    assert fitting_batch(config, 1000, "cpu", below=64) == 0


def test_triage_speaks_up_when_it_should():
    assert of_config(run("digits")) == []
    assert any("no warm-up" in note for note in of_config(run("digits", warmup=0.0)))
    few = dataclasses.replace(run("digits"), model=model("tiny", patch_size=16))
    assert any("4 patches are few" in note for note in of_config(few))
    tuned = dataclasses.replace(run("digits", optimizer="adamw", lr=0.01), weights="x")
    assert any("forgets" in note for note in of_config(tuned))
    assert "learns by heart" in during(run("digits"), 0.99, 0.7, 0.5)
    assert during(run("digits"), 0.8, 0.79, 0.5) == during(run("digits"), 0.99, 0.5, 0.1) == during(run("digits"), None, 0.1, 1.0) == ""
