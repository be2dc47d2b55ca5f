import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import vitral
from vitral.build import create
from vitral.config import ConfigError, DataConfig, RunConfig, TrainConfig
from vitral.presets.models import model as preset
from vitral.train.fit import fit
from vitral.train.prepare import prepare
from vitral.train.probe import last_layer, solve, start_head
from vitral.weights.checkpoint import save

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A digits model of random weights: its features still tell digits apart, as random projections do."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("weights") / "digits"
    save(create("digits", initialisation="torch", classes=7), folder)
    return str(folder)


def config(weights: str | None, **train: object) -> RunConfig:
    settings = TrainConfig(epochs=0.1, batch_size=64, threads=1, head_start="probe", **train)  # type: ignore[arg-type]
    return RunConfig("probe", preset("digits"), DataConfig(name="digits", augment="none"), settings, weights)


def test_the_solution_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 5)), rng.integers(0, 3, 120)
    x[np.arange(120), y] += 1.5
    strength = 0.03
    reference = LogisticRegression(C=1 / (strength * len(x)), tol=1e-8, max_iter=1000).fit(x, y)
    weight, bias = solve(torch.tensor(x, dtype=torch.float32), torch.tensor(y), 3, strength)
    shown = torch.tensor(x, dtype=torch.float32) @ weight.T + bias
    assert torch.allclose(shown.softmax(1), torch.tensor(reference.predict_proba(x), dtype=torch.float32), atol=2e-3)


def test_the_head_alone_starts_good_and_nothing_else_has_moved(weights: str):
    setup = prepare(config(weights), CPU)
    before = {name: value.clone() for name, value in setup.model.state_dict().items()}
    start_head(setup, quiet=True)
    changed = [name for name, value in setup.model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["head.linear.weight", "head.linear.bias"]
    split = setup.data.validation
    with torch.no_grad():
        logits = setup.model(setup.preprocess.batch([split.picture(i) for i in range(len(split))]))
    accuracy = (logits.argmax(1).numpy() == split.labels).mean()
    assert accuracy > 0.6, "random features of ten digits; a new head would have 0.1"


def test_a_run_starts_from_its_probe(weights: str, tmp_path: Path):
    plain = fit(config(weights, lr=1e-9, warmup=0.0), out=tmp_path / "probe", quiet=True)
    assert plain.test["accuracy"] > 0.6


def test_a_head_can_read_the_mean_of_the_patches_beside_the_class_token(weights: str, tmp_path: Path):
    both = config(weights, lr=1e-9, warmup=0.0)
    both = dataclasses.replace(both, train=dataclasses.replace(both.train, head_start="probe+mean"))
    setup, plain = prepare(both, CPU), prepare(config(weights), CPU)
    width = setup.model.config.width
    assert setup.config.model.pool == "class+mean" and last_layer(setup.model).in_features == 2 * width
    images = setup.preprocess.batch([setup.data.train.picture(i) for i in range(3)])
    with torch.no_grad():
        assert torch.equal(setup.model.eval().pooled(images)[:, :width], plain.model.eval().pooled(images)), "the rest is as it was"
    run = fit(both, out=tmp_path / "both", quiet=True)
    assert run.test["accuracy"] > 0.6 and vitral.load(run.path).config.pool == "class+mean"


def test_what_cannot_be_probed_is_refused(weights: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="needs weights"):
        config(None)
    with pytest.raises(ConfigError, match="one linear layer"):
        last_layer(create("tiny", head_hidden=8))
    with pytest.raises(ConfigError, match="one linear layer"):
        last_layer(create("tiny", distillation_token=True))
    save(create("digits", pool="mean"), tmp_path / "mean")
    mean = dataclasses.replace(config(weights), weights=str(tmp_path / "mean"))
    with pytest.raises(ConfigError, match="reads a class token"):
        prepare(dataclasses.replace(mean, train=dataclasses.replace(mean.train, head_start="probe+mean")), CPU)
    assert last_layer(create("resnet18", classes=4)).out_features == 4
    assert last_layer(create("cnn", image_size=32, classes=4)).out_features == 4
