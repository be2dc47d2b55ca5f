"""Asked + facts of the data and the weights → settled: a pure function, so every rule is one line here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from vitral.base.errors import ConfigError
from vitral.config import ModelConfig, RunConfig, from_dict, to_dict
from vitral.data.sources.catalogue import CATALOGUE
from vitral.presets.runs import RUNS, change, pretraining, run
from vitral.run.resolve import Facts, fit_to_size, resolve

DIGITS = Facts(classes=10, channels=1, image_size=(8, 8), images=1_300)
PHOTOGRAPHS = Facts(classes=3, channels=3, image_size=(224, 224), images=120)
SMALL = ModelConfig(image_size=(8, 8), patch_size=(2, 2), channels=1, classes=10, width=16, depth=1, heads=2, mlp_width=16)


def settled(asked: RunConfig, facts: Facts, weights: ModelConfig | None = None) -> ModelConfig:
    asked = dataclasses.replace(asked, weights="weights.safetensors") if weights is not None else asked
    return resolve(asked, dataclasses.replace(facts, weights=weights)).config.model


def asking(**changes: Any) -> RunConfig:
    base = run("digits")
    return dataclasses.replace(base, model=dataclasses.replace(base.model, **changes))


def test_what_is_open_follows_the_data_and_nothing_is_left_open():
    for name, preset in RUNS.items():
        assert {"channels", "classes"} <= set(preset.model.left_open), name
    model = settled(run("digits"), DIGITS)
    assert (model.image_size, model.channels, model.classes, model.left_open) == ((8, 8), 1, 10, ())
    assert settled(run("report-mnist"), Facts(10, 1, (28, 28), 54_000)).image_size == (32, 32)


def test_what_is_asked_for_stays_and_only_the_classes_are_always_the_datas():
    own = ModelConfig(image_size=(24, 32), patch_size=(8, 8), channels=1, classes=7, width=16, depth=1, heads=2, mlp_width=16)
    model = settled(dataclasses.replace(run("digits"), model=own), PHOTOGRAPHS)
    assert (model.image_size, model.channels, model.classes, model.patch_size) == ((24, 32), 1, 3, (8, 8))


def test_settling_what_is_settled_changes_nothing_and_other_settings_are_left_alone():
    asked = change(run("digits"), lr=0.5, name="mine", seed=9, head_start="as-is", batch_size=60, precision="fp32", threads=2)
    once = resolve(asked, PHOTOGRAPHS).config
    assert resolve(once, PHOTOGRAPHS).config == once
    assert dataclasses.replace(once, model=asked.model) == asked
    assert from_dict(RunConfig, to_dict(asked)) == asked  # what is open survives the file


def test_sizes_are_rounded_up_to_whole_patches_and_patches_grow_with_a_word():
    fitted = fit_to_size(SMALL, (27, 30))
    assert (fitted.image_size, fitted.patch_size) == ((28, 30), (2, 2))
    assert fit_to_size(SMALL, (224, 224)).patch_size == (14, 14)
    assert fit_to_size(dataclasses.replace(SMALL, family="cnn"), (33, 33)).image_size == (33, 33)
    hybrid = ModelConfig(family="hybrid", image_size=(32, 32), patch_size=(1, 1), width=16, depth=1, heads=2, mlp_width=16)
    assert fit_to_size(hybrid, (33, 33)).image_size == (36, 36)
    resolved = resolve(run("digits"), PHOTOGRAPHS)
    assert resolved.notes == (
        "patches of 2×2 would be 12,544 in an image of 224×224: they grow to 14×14; --image-size sets the size and leaves the patches",
        "1 batch of 120 an epoch, not of 128: so all 120 pictures are learnt from in each",
    )
    assert resolve(asking(image_size=(224, 224)), PHOTOGRAPHS).notes == resolved.notes[1:] and not resolve(run("digits"), DIGITS).notes


def test_weights_say_what_the_model_is_and_the_run_how_large_and_how_much_is_dropped():
    weights = dataclasses.replace(SMALL, image_size=(32, 32), patch_size=(8, 8), channels=3, classes=1000)
    model = settled(asking(drop_path=0.2, width=48, heads=4), PHOTOGRAPHS, weights)
    assert model == dataclasses.replace(weights, classes=3, drop_path=0.2)
    assert settled(asking(image_size=(64, 64)), PHOTOGRAPHS, weights).image_size == (64, 64)
    assert settled(asking(gradient_checkpointing=True), PHOTOGRAPHS, weights).gradient_checkpointing
    for size, words in (((20, 20), "use image size 16 or 24"), ((8, 8), "less than two by two patches")):
        with pytest.raises(ConfigError, match=words):
            settled(asking(image_size=size), PHOTOGRAPHS, weights)


def test_weights_take_the_channels_of_images_that_are_neither_grey_nor_coloured():
    weights = dataclasses.replace(SMALL, channels=3)
    for channels, taken in ((1, 3), (3, 3), (4, 4), (5, 5)):
        assert settled(asking(), dataclasses.replace(PHOTOGRAPHS, channels=channels), weights).channels == taken


def test_a_head_that_reads_both_needs_a_class_token():
    base = dataclasses.replace(run("finetune"), train=dataclasses.replace(run("finetune").train, head_start="probe+mean"))
    assert settled(base, DIGITS, SMALL).pool == "class+mean"
    with pytest.raises(ConfigError, match="class token"):
        settled(base, DIGITS, dataclasses.replace(SMALL, pool="mean"))


def test_a_new_head_starts_as_a_probe_where_images_are_few_and_the_choice_is_said():
    asked = run("finetune")
    assert asked.train.head_start is None and run("flowers102").train.head_start is None
    facts = dataclasses.replace(PHOTOGRAPHS, weights=SMALL)
    asked = change(asked, batch_size=60, precision="fp32", threads=1)
    few = resolve(asked, facts)
    assert few.config.train.head_start == "probe"
    assert len(few.notes) == 1 and "starts as a linear probe" in few.notes[0] and "120 pictures are few" in few.notes[0]
    many = resolve(asked, dataclasses.replace(facts, images=45_000))
    assert many.config.train.head_start == "as-is" and "45,000 pictures are enough" in many.notes[0]
    assert dataclasses.replace(many.config, model=asked.model, train=asked.train) == asked  # nothing else is touched
    same = resolve(asked, dataclasses.replace(facts, head="same"))
    assert same.config.train.head_start == "as-is" and "their head is kept" in same.notes[0]
    untrained = resolve(asked, dataclasses.replace(facts, untrained=True))
    assert (untrained.config.train.head_start, untrained.notes) == ("as-is", ()), "random features are nothing for a probe"
    for head in ({"head_hidden": 8}, {"head_bias": False}, {"distillation_token": True}):
        assert resolve(asked, dataclasses.replace(facts, weights=dataclasses.replace(SMALL, **head))).config.train.head_start == "as-is"
    for start in ("as-is", "probe", "probe+mean"):  # what is asked for stays, without a word
        chosen = resolve(change(asked, head_start=start), facts)
        assert (chosen.config.train.head_start, chosen.notes) == (start, ())
    assert resolve(run("digits"), DIGITS).config.train.head_start == "as-is"
    with pytest.raises(ConfigError, match="weights"):
        change(run("digits"), head_start="probe")


def test_batches_threads_and_precision_are_settled_here_too():
    """The settled config says all of it: a resumed run need not work anything out again."""
    asked = run("digits", batch_size=100, device="cpu")
    settled = resolve(asked, dataclasses.replace(DIGITS, images=130)).config.train
    assert (settled.batch_size, settled.threads, settled.precision) == (65, 1, "fp32")
    shared = resolve(asked, dataclasses.replace(DIGITS, images=130, processes=4)).config.train
    assert shared.batch_size % 4 == 0
    large = resolve(run("digits", batch_size=512), DIGITS).config.train
    assert large.threads is None and resolve(run("digits", batch_size=512, threads=3), DIGITS).config.train.threads == 3


def test_a_head_of_as_many_other_classes_is_new_unless_it_is_asked_for():
    facts = dataclasses.replace(DIGITS, weights=SMALL, head="other")
    assert resolve(run("finetune"), facts).new_head
    assert not resolve(run("finetune"), dataclasses.replace(facts, head="same")).new_head
    assert not resolve(run("finetune"), dataclasses.replace(facts, classes=3)).new_head, "of another size it is replaced anyway"
    assert not resolve(change(run("finetune"), head_start="as-is"), facts).new_head


@pytest.mark.parametrize("name", [entry.name for entry in CATALOGUE.values() if entry.native_size and max(entry.native_size) <= 32])
def test_sets_of_small_pictures_are_pre_trained_at_their_own_size(name: str) -> None:
    assert pretraining(name).model.image_size is None
