"""The records: they must say what the functions do, and the lists, the command line and the guide must say what they say."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

import vitral
from vitral import look
from vitral.cli.look import _Flags
from vitral.look.method import MAPS, NUMBERS, RECORDS, Method, call, choose, watch_for

ROOT = Path(__file__).parents[2]
SHARED = ("target", "start")
CHOSEN = {"target": 2, "start": (1, 2)}


def given(method: Method, model, tape):
    return model if method.name in ("filters", "position_similarity") else tape


def test_functions_keep_their_names() -> None:
    import vitral.look.relevance
    import vitral.look.rollout

    for name, function in {**look.METHODS, **look.MEASURES}.items():
        assert getattr(vitral.look, name) is function and callable(function)
    assert callable(look.predict) and callable(look.watch)


@pytest.mark.parametrize("method", RECORDS.values(), ids=RECORDS)
def test_every_method_has_the_signature_and_the_options_of_its_record(method: Method) -> None:
    parameters = inspect.signature(method.function).parameters
    first, *shared = list(parameters)[:4]
    assert first in ("tape", "model") and shared == ["item", "target", "start"]
    own = {name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    assert own == set(method.options) - set(SHARED)


@pytest.mark.parametrize("option", SHARED)
@pytest.mark.parametrize("method", RECORDS.values(), ids=RECORDS)
def test_an_option_that_a_method_does_not_take_is_noted_never_dropped(make, images, method: Method, option: str) -> None:
    model = make()
    tape = vitral.watch(model, images(model, 1))
    asked = given(method, model, tape)
    plain, chosen = method.function(asked), method.function(asked, **{option: CHOSEN[option]})
    told = f"{method.name} does not use {option}"
    assert (told in chosen.note) is (option not in method.options)
    assert "does not use" not in plain.note
    numbers = [getattr(found, "grid", None) if hasattr(found, "grid") else found.numbers() for found in (plain, chosen)]
    same = str(numbers[0]) == str(numbers[1])
    assert same is (option not in method.options), "an option that is taken changes something"


def test_both_at_once_and_an_item_that_changes_nothing(make, images) -> None:
    model = make()
    assert look.norms(vitral.watch(model, images(model)), target=1, start="mean").note.endswith("norms does not use target and start")
    assert look.filters(model, 1).note == "filters does not use item"


@pytest.mark.parametrize("method", RECORDS.values(), ids=RECORDS)
def test_a_record_says_what_a_method_reads(make, images, method: Method) -> None:
    """After `watch_for` the picture need not be watched again; what needs a class, a transformer or gradients says so without them."""
    model = make()
    tape = watch_for(model, images(model, 1), [method])
    if method.attention or method.features:
        tape.images = None  # it cannot be watched again
    method.function(given(method, model, tape))
    lean = vitral.watch(model, images(model, 1), keep=["logits"])
    lean.images = None
    if method.attention or method.features:
        with pytest.raises(vitral.VitralError, match="again"):
            method.function(lean)
    for refused, other in ((method.transformer, vitral.create("cnn", image_size=16, classes=5)), (method.explains, make(classes=0))):
        pictures = torch.zeros(1, 3, 16, 16, dtype=next(other.parameters()).dtype)
        assert method.supports(other) is not refused
        if refused:
            with pytest.raises(vitral.VitralError, match=r"cnn|tokens|head"):
                method.function(given(method, other, vitral.watch(other, pictures)))
        elif method.supports(other):
            method.function(given(method, other, vitral.watch(other, pictures)))
    if method.gradients:
        with torch.inference_mode(), pytest.raises(vitral.VitralError, match="inference_mode"):
            method.function(vitral.watch(model, images(model, 1)))


def test_a_refusal_names_the_methods_that_suit(make, images) -> None:
    for model, method in ((vitral.create("cnn", image_size=16), look.rollout), (make(classes=0).float(), look.relevance)):
        with pytest.raises(vitral.VitralError) as caught:
            method(vitral.watch(model, images(model).float()))
        named = [name for name in look.METHODS if re.search(rf"\b{name}\b", caught.value.hint)]
        assert len(named) > 2 and all(RECORDS[name].supports(model) for name in named)


def test_methods_by_name(make, images) -> None:
    model = make()
    names = [method.name for method in choose(model)]
    assert names == [method.name for method in MAPS if method.default] and "norms" not in names
    assert [method.name for method in choose(model, ["gradient-rollout", " "])] == ["gradient_rollout"]
    for other in (vitral.create("cnn"), make(classes=0)):
        assert choose(other) == [method for method in MAPS if method.default and method.supports(other)] != choose(model)
    with pytest.raises(vitral.VitralError, match=r"'rolout'.*rollout"):
        choose(model, ["rolout"])
    heat = call(RECORDS["rollout"], vitral.watch(model, images(model)), 1, block=2, target=None, heads="max")
    assert heat.head == "max" and heat.item == 1 and heat.note == "rollout does not use block"


def test_what_the_command_line_says_of_methods_is_so() -> None:
    """Its help need not list a method that is new; what it lists must be right."""

    source = inspect.getsource(_Flags)
    texts = {
        name: " ".join(text.split()) for name, text in re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
    }
    listed = re.split("commas[:;] ", texts["method"])[1].partition(".")[0].split(", ")
    assert {"attention", "relevance"} < set(listed) <= set(look.METHODS)
    for option in ("block", "head", "target", "start"):
        takers = texts[option].partition("For ")[2].partition(":")[0].split(", ")
        assert takers == [name for name in listed if option in RECORDS[name].options], option


def test_every_method_has_a_line_in_the_guide_that_says_what_it_needs_and_takes() -> None:
    guide = (ROOT / "docs/guide/look.md").read_text(encoding="utf-8")
    for method in (*MAPS, *NUMBERS):
        needs = {"attention": method.attention, "a transformer": method.tokens, "a class": method.explains, "gradients": method.gradients}
        needed = ", ".join(need for need, is_so in needs.items() if is_so) or "–"
        taken = ", ".join(f"`{option}`" for option in method.options) or "–"
        line = rf"^\| `{method.name}` \| .+ \| {needed} \| {taken} \|$"
        assert re.search(line, guide, re.MULTILINE), f"docs/guide/look.md: | `{method.name}` | {method.summary} | {needed} | {taken} |"


def test_every_measure_shows_itself_in_a_notebook(make, images) -> None:
    model = make(depth=2).float()
    tape = vitral.watch(model, images(model).float())
    for name, measure in look.MEASURES.items():
        assert measure(tape)._repr_png_().startswith(b"\x89PNG"), name
