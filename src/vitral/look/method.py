"""What each method shows, what it must find on a tape, and which options it takes: one record each, from which all lists come.

A sheet asks the records of its methods what to keep, so that one pass, and for one class one backward pass, serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitral.base.errors import UsageError, one_of
from vitral.base.text import few
from vitral.draw.heatmap import Heatmap
from vitral.look.attention import attention, attention_matrix
from vitral.look.choice import OPTION_DEFAULTS, unused_note
from vitral.look.contributions import contributions
from vitral.look.distance import distance, entropy
from vitral.look.filters import filters
from vitral.look.gradcam import gradcam
from vitral.look.health import health, norms
from vitral.look.integrated_gradients import integrated_gradients
from vitral.look.legrad import legrad
from vitral.look.lens import lens
from vitral.look.maps import joined
from vitral.look.occlusion import occlusion
from vitral.look.relevance import gradient_rollout, relevance
from vitral.look.rise import rise
from vitral.look.rollout import rollout
from vitral.look.similarity import position_similarity, similarity, token_colours
from vitral.look.switch_off import ablate
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Tape


@dataclass(frozen=True)
class Method:
    """One method: `function(tape, item=0, target=None, start="class", …)`."""

    function: Callable[..., Any]
    summary: str
    options: tuple[str, ...] = ()
    """The options that change something, beside `item`; any other that is chosen becomes a note."""
    attention: bool = False
    """Reads the attention weights of blocks, which only a transformer has."""
    features: bool = False
    """Reads the tokens (of a rival: the feature maps) after blocks."""
    tokens: bool = False
    """Makes sense for tokens alone, so not for a rival's feature maps."""
    gradients: bool = False
    """Differentiates the score of a class."""
    multi_pass: bool = False
    """Takes many passes for one map."""
    default: bool = True
    """Stands on a sheet for which no methods were chosen."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def transformer(self) -> bool:
        """Needs a model with attention."""
        return self.attention or self.tokens

    @property
    def explains(self) -> bool:
        """Needs a class, so a model with a head."""
        return "target" in self.options

    def supports(self, model: Classifier) -> bool:
        return (model.config.is_transformer or not self.transformer) and (model.config.classes > 0 or not self.explains)


MAPS = (
    Method(attention, "where a token looks in one block, by one head or the mean of all", ("start", "block", "head"), attention=True),
    Method(rollout, "attention of all blocks multiplied, with the residual path", ("start", "heads", "discard"), attention=True),
    Method(
        gradient_rollout,
        "rollout in which each weight counts by how much it moves one class",
        ("target", "start", "lower"),
        attention=True,
        gradients=True,
    ),
    Method(relevance, "attention × gradient, collected through the blocks", ("target", "start", "lower"), attention=True, gradients=True),
    Method(
        legrad,
        "how far each block's own answer would gain from looking at a patch, summed over the blocks",
        ("target",),
        attention=True,
        features=True,
        gradients=True,
        default=False,
    ),
    Method(
        gradcam,
        "features after a block, weighted by how much each channel moves the class",
        ("target", "block"),
        features=True,
        gradients=True,
    ),
    Method(
        integrated_gradients,
        "the score's change from a blank picture, shared out over the patches or pixels",
        ("target", "baseline", "steps", "tolerance", "per"),
        gradients=True,
        multi_pass=True,
    ),
    Method(
        occlusion,
        "how far the probability falls when a square around each patch is covered",
        ("target", "size", "fill", "exact"),
        multi_pass=True,
    ),
    Method(
        rise,
        "the mean probability while a patch is to be seen, over random masks",
        ("target", "masks", "cells", "keep", "seed"),
        multi_pass=True,
        default=False,
    ),
    Method(similarity, "cosine of one token with every patch after a block", ("start", "block"), features=True),
    Method(norms, "the length of each patch's token after a block", ("block",), features=True, tokens=True, default=False),
)
"""Heat maps of one picture."""

NUMBERS = (
    Method(attention_matrix, "the whole (T, T) matrix of a block", ("block", "head", "normalised"), attention=True),
    Method(distance, "how far each head looks, in pixels", attention=True),
    Method(entropy, "how widely each head looks, in bits", attention=True),
    Method(ablate, "each head, and each block's attention and MLP, switched off in turn", ("target",), tokens=True),
    Method(contributions, "what each head and MLP adds to a class's logit; the parts sum to it", ("target",), tokens=True),
    Method(lens, "the head read after every block, for the picture and for each patch", ("target", "trained"), features=True, tokens=True),
    Method(health, "token norms through the depth, artefact tokens", features=True, tokens=True),
    Method(token_colours, "tokens as colours: like colour, like token", ("block",), features=True),
    Method(position_similarity, "which positions resemble which", tokens=True),
    Method(filters, "what the first layer looks for", ("count",)),
)
"""Other numbers, with `.numbers()` and `.draw()`."""

METHODS = {method.name: method.function for method in MAPS}
MEASURES = {method.name: method.function for method in NUMBERS}
RECORDS = {method.name: method for method in (*MAPS, *NUMBERS)}


def methods_named(names: Sequence[str]) -> list[Method]:
    """The maps of these names; names with a dash are understood."""
    asked = [name.strip().replace("-", "_") for name in names if name.strip()]
    if unknown := next((name for name in asked if name not in METHODS), None):
        raise one_of("method", unknown, METHODS)
    return [RECORDS[name] for name in asked]


def choose(model: Classifier, names: Sequence[str] = ()) -> list[Method]:
    """The maps asked for, or the usual ones that suit the model."""
    return methods_named(names) or [method for method in MAPS if method.default and method.supports(model)]


def watch_for(model: Classifier, x: Any, methods: Iterable[Method]) -> Tape:
    """One pass that keeps the union of what these methods read."""
    methods = list(methods)
    attention = any(method.attention for method in methods) and model.config.is_transformer
    features = model.map_names() if any(method.features for method in methods) else []
    features = ["embedding", *features] if features and model.config.is_transformer else features
    gradients = any(method.gradients and (method.attention or method.features) for method in methods)
    return watch(model, x, keep=["logits", *([ATTENTION] if attention else []), *features], gradients=gradients)


def check_options(methods: Sequence[Method], **options: Any) -> list[str]:
    """Refuses an option that was chosen but that none of the methods takes; a line about each that only some of them take."""
    remarks = []
    for option, value in _chosen(options).items():
        without = [method.name for method in methods if option not in method.options]
        if len(without) == len(methods):
            takers = [method.name for method in MAPS if option in method.options]
            raise UsageError(f"{option} = {value} is used by none of {', '.join(without)}", f"leave it out, or add {few(takers, 9)}")
        if without:
            remarks.append(f"{option} = {value} is not used by {', '.join(without)}")
    return remarks


def call(method: Method, tape: Tape, item: int = 0, **options: Any) -> Heatmap:
    """The map of a method with those of the chosen options that it takes, and a note on the others."""
    chosen = _chosen(options)
    heat = method.function(tape, item, **{name: value for name, value in chosen.items() if name in method.options})
    ignored = unused_note(method.name, **{name: value for name, value in chosen.items() if name not in method.options})
    return replace(heat, note=joined(heat.note, ignored)) if ignored else heat


def _chosen(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value != OPTION_DEFAULTS.get(name)}
