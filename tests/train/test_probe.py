import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import vitral
from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.config import DataConfig, RunConfig, TrainConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader
from vitral.data.splits.open import open_data
from vitral.presets.models import model as preset
from vitral.train.fit import fit
from vitral.train.prepare import prepare
from vitral.train.probe import STRENGTHS, TRIED_ON, Labelled, fit_linear, fit_neighbours, last_layer, read_features, solve, start_head
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


def clusters(count: int, seed: int, spread: float = 0.5) -> Labelled:
    """Points around four far corners."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4
    return torch.eye(4, 6)[labels] * 3 + torch.randn(count, 6, generator=draw) * spread + 5, labels


@pytest.mark.parametrize("fitted", [fit_linear, fit_neighbours])
def test_separable_points_are_separated(fitted: Any):
    train, judge, (test, labels) = clusters(40, 0), clusters(40, 1), clusters(400, 2)
    good = fitted(train, judge, 4)
    assert (good(test) == labels).float().mean() > 0.97 and str(good)
    shuffled = fitted((train[0], train[1][torch.randperm(40, generator=torch.Generator().manual_seed(0))]), judge, 4)
    assert (shuffled(test) == labels).float().mean() < 0.8


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fitted", [fit_linear, fit_neighbours])
def test_labels_that_none_of_the_judging_pictures_has_choose_the_first(fitted: Any):
    features, labels = clusters(40, 0)
    multi_label = torch.nn.functional.one_hot(labels, 4).float()
    chosen = fitted((features, multi_label), (features, torch.zeros(40, 4)), 4)
    assert str(chosen) in (f"strength {STRENGTHS[0] * TRIED_ON / 40:g}", "k=1")


def small_differences(count: int, seed: int) -> Labelled:
    """Two large features whose small difference alone tells two classes apart: only a probe of large weights sees it."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    common, noise = torch.randn(count, generator=draw), torch.randn(count, generator=draw)
    return torch.stack([common + 0.006 * (2.0 * labels - 1) + 0.003 * noise, common], 1), labels


def test_strengths_are_tried_until_the_best_is_inside():
    """Features of a model that has learnt little ask for weaker ones than those of one that has learnt much."""
    train, judge, (test, labels) = small_differences(200, 0), small_differences(200, 1), small_differences(1000, 2)
    weakest = STRENGTHS[-1] * TRIED_ON / 200
    written, probe = fit_linear(train, None, 2, weakest), fit_linear(train, judge, 2)
    assert (written(test) == labels).float().mean() < 0.8
    assert probe.strength < weakest / 10 and (probe(test) == labels).float().mean() > 0.95
    far = clusters(40, 0, spread=0.1)
    assert fit_linear(far, clusters(40, 1, spread=0.1), 4).strength >= STRENGTHS[-1] * TRIED_ON / 40  # and no further than that


def test_a_probe_reads_features_as_they_are_and_agrees_with_scikit_learn():
    """Scaling, strength and bias folded into one layer; the same pipeline in scikit-learn gives the same answers."""
    (x, y), (test, _) = clusters(60, 0, spread=2.0), clusters(300, 1, spread=2.0)
    x, test = x * torch.tensor([1, 50, 0.02, 1, 1, 1]), test * torch.tensor([1, 50, 0.02, 1, 1, 1])
    probe = fit_linear((x, y), None, 4)
    assert probe.strength == STRENGTHS[2] * TRIED_ON / 60  # the middle: nothing judges it
    scaler = StandardScaler().fit(x.numpy())
    scaler.scale_ = x.std(dim=0).numpy()
    reference = LogisticRegression(C=1 / (probe.strength * len(x)), tol=1e-8, max_iter=1000).fit(scaler.transform(x.numpy()), y.numpy())
    wanted = reference.predict_proba(scaler.transform(test.numpy()))
    assert np.abs((test @ probe.weight.T + probe.bias).softmax(1).numpy() - wanted).max() < 5e-3


def test_neighbours_agree_with_scikit_learn():
    train, judge, (test, _) = clusters(60, 0, spread=1.5), clusters(60, 1, spread=1.5), clusters(300, 2, spread=1.5)
    found = fit_neighbours(train, judge, 4)
    scaled = [((part - train[0].mean(0)) / train[0].std(0)).numpy() for part in (train[0], test)]
    reference = KNeighborsClassifier(found.k, metric="cosine").fit(scaled[0], train[1].numpy())
    votes = reference.predict_proba(scaled[1])
    clear = votes.max(axis=1) > np.sort(votes, axis=1)[:, -2]  # ties are settled by nearness here, by order there
    assert clear.mean() > 0.5 and (found(test).numpy() == votes.argmax(axis=1))[clear].all()


def test_features_are_what_the_head_reads(weights: str):
    model = vitral.load(weights)
    data = open_data(DataConfig(name="digits"), preprocess=Preprocess.of(model))
    loader = Loader(data.validation.with_preprocess(Preprocess.of(model)), batch_size=50)
    features, labels = read_features(model, loader, quiet=True)
    assert features.shape == (len(data.validation), model.config.width) and np.array_equal(labels, data.validation.labels)
    with torch.no_grad():
        one = model.pooled(Preprocess.of(model).batch([data.validation.picture(3)]))
    assert torch.allclose(features[3], one[0], atol=1e-5)
    rough, _ = read_features(copy.deepcopy(model).bfloat16(), loader, quiet=True)
    assert (rough - features).abs().max() < 0.1 * features.abs().max()


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
    with pytest.raises(ConfigError, match="weights"):
        config(None)
    with pytest.raises(ConfigError, match="linear"):
        last_layer(create("tiny", head_hidden=8))
    with pytest.raises(ConfigError, match="linear"):
        last_layer(create("tiny", distillation_token=True))
    save(create("digits", pool="mean"), tmp_path / "mean")
    mean = dataclasses.replace(config(weights), weights=str(tmp_path / "mean"))
    with pytest.raises(ConfigError, match="class token"):
        prepare(dataclasses.replace(mean, train=dataclasses.replace(mean.train, head_start="probe+mean")), CPU)
    assert last_layer(create("resnet18", classes=4)).out_features == 4
    assert last_layer(create("cnn", image_size=32, classes=4)).out_features == 4
