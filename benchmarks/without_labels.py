"""What each method learns from digits without their labels, beside random weights: how good the features are for a probe.

    python benchmarks/without_labels.py [--methods random lejepa dino mae] [--seeds 0 1 2] [--json]

Each run is `vitral pretrain digits --method METHOD --threads 1 --seed SEED`. Judged on the training pictures alone, by labels that nothing
learnt from: fivefold cross-validation of a linear probe (its strength is the best of the same folds, for all alike) and of 20 nearest
neighbours; and a probe of five labels a class, judged on the rest (mean of 20 draws). Validation: the linear probe of that strength.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vitral.base.device import describe_machine, set_threads
from vitral.base.text import table
from vitral.config import RunConfig
from vitral.presets.runs import pretraining
from vitral.run.folder import RunFolder
from vitral.study.probe import labelled
from vitral.train.evaluate import evaluation_loader
from vitral.train.fit import fit
from vitral.train.probe import TRIED_ON, Labelled, fit_linear, fit_neighbours, read_features, settle

RANDOM = "random"
FOLDS, NEIGHBOURS, LABELS, DRAWS = 5, 20, 5, 20
FEW_STRENGTH = 0.1
"""Of a probe of so few labels that none can be spared to choose it."""


def config_of(method: str, seed: int) -> RunConfig:
    config = pretraining("digits", "lejepa" if method == RANDOM else method)  # type: ignore[arg-type]
    train = dataclasses.replace(config.train, seed=seed, threads=1, device="cpu")
    if method == RANDOM:  # a step that moves nothing
        train = dataclasses.replace(train, epochs=0.1, lr=1e-9, ema=None)
    return dataclasses.replace(config, train=train)


def judged(folder: RunFolder) -> dict[str, float]:
    model = folder.model()
    opened = labelled(folder, model)
    learnt, held = (
        read_features(model, evaluation_loader(split, opened.preprocess, torch.device("cpu"), 128), quiet=True)
        for split in (opened.train, opened.validation)
    )
    classes, count = len(opened.class_names), len(learnt[1])
    strength, linear = settle(
        lambda each: ((each, right := crossed(learnt, lambda kept: fit_linear(kept, None, classes, each))), right), TRIED_ON / count
    )
    return {
        "linear": linear,
        "neighbours": crossed(learnt, lambda kept: fit_neighbours(kept, None, classes, (NEIGHBOURS,))),
        "five labels a class": few(learnt, classes),
        "validation": share(fit_linear(learnt, None, classes, strength), held),
    }


def crossed(learnt: Labelled, make: Callable[[Labelled], Callable[[Tensor], Tensor]]) -> float:
    """Share of right answers on folds that the probe has not seen."""
    features, labels = learnt
    fold = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)) % FOLDS
    right = 0
    for each in range(FOLDS):
        kept, held = fold != each, fold == each
        right += int(make((features[kept], labels[kept]))(features[held]).eq(labels[held]).sum())
    return right / len(labels)


def few(learnt: Labelled, classes: int) -> float:
    features, labels = learnt
    shares = []
    for draw in range(DRAWS):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))
        chosen = torch.cat([order[labels[order] == each][:LABELS] for each in range(classes)])
        rest = torch.ones(len(labels), dtype=torch.bool)
        rest[chosen] = False
        probe = fit_linear((features[chosen], labels[chosen]), None, classes, FEW_STRENGTH)
        shares.append(share(probe, (features[rest], labels[rest])))
    return sum(shares) / DRAWS


def share(probe: Callable[[Tensor], Tensor], judge: Labelled) -> float:
    return float(probe(judge[0]).eq(judge[1]).float().mean())


def measure(method: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        began = time.process_time()
        run = fit(config_of(method, seed), f"{out}/run", quiet=True)
        seconds = time.process_time() - began
        alarms = [line["step"] for line in run.metrics if "collapsed" in line]
        scores = {name: round(100 * value, 2) for name, value in judged(RunFolder.open(run.path)).items()}
    return {"method": method, "seed": seed, **scores, "cpu_seconds": round(seconds), "alarms": alarms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[RANDOM, "lejepa", "dino", "mae"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    set_threads(1)
    rows = []
    for method in asked.methods:
        for seed in asked.seeds:
            rows.append(measure(method, seed))
            if not asked.json:
                print(rows[-1], flush=True)
    if asked.json:
        print(json.dumps({"machine": describe_machine(), "rows": rows}, indent=2))
        return
    names = ["linear", "neighbours", "five labels a class", "validation"]
    lines = []
    for method in asked.methods:
        found = [row for row in rows if row["method"] == method]
        lines.append([method, *(f"{sum(row[name] for row in found) / len(found):.1f}" for name in names)])
    print(table(lines, ["", *names], "l"))


if __name__ == "__main__":
    main()
