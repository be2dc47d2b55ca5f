"""Before the first step: facts gathered, settings settled, the model made; and the batches that a run learns from.

setup = make(resolve(asked, gathered.facts), gathered)
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from vitral.base.errors import DataError
from vitral.base.origin import NO_HEAD, Origin, fact
from vitral.base.text import few
from vitral.build import build
from vitral.config import OPEN, ModelConfig, RunConfig, to_dict
from vitral.cost.precision import dtype_of
from vitral.data.cache import cached
from vitral.data.images.augment import Policy, Views, policy, views_of
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader, placement_of
from vitral.data.sources.fetch import data_root
from vitral.data.sources.protocol import Source, unlabelled
from vitral.data.sources.torch_dataset import own_name
from vitral.data.splits.open import PHOTOGRAPH_SIZE, Data, open_data, open_source
from vitral.data.splits.sealed import check_seen, check_stage
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.rivals.own_module import OwnModule
from vitral.run.resolve import Facts, Resolved, check_scratch, on_machine, resolve
from vitral.train.evaluate import evaluation_loader
from vitral.train.multi_label import NEUTRAL
from vitral.train.optim import choose, is_head
from vitral.train.parallel import World
from vitral.weights.load import check_source, load, load_untrained
from vitral.weights.resize import adapt


@dataclass
class Setup:
    """What a run starts from."""

    config: RunConfig
    """Settled."""
    data: Data
    model: Classifier
    """On the device; what learns in it requires a gradient."""
    preprocess: Preprocess
    device: torch.device
    notes: tuple[str, ...] = ()
    """What the user asked for and does not get as it was asked."""
    planned: bool = False
    """Only to be planned: nothing is fetched, and weights that would have to be are random."""


class Own(NamedTuple):
    """What the calling program brings itself instead of naming it in the config."""

    model: nn.Module | None = None
    source: Source | None = None


_NOTHING_OWN = Own()


class _Gathered(NamedTuple):
    """The facts, and what was read to know them."""

    facts: Facts
    source: Source
    weights: Classifier | None


def name_own(asked: RunConfig, own: Own) -> RunConfig:
    """The config names what the program brings, so that nothing later takes it for what the config named."""
    if own.source is not None:
        asked = dataclasses.replace(asked, data=dataclasses.replace(asked.data, name=own.source.name))
    if isinstance(own.model, Classifier):
        return dataclasses.replace(asked, weights=own_name(own.model))
    if own.model is None:
        return asked
    size = {name: getattr(asked.model, name) for name in OPEN}
    return dataclasses.replace(asked, model=ModelConfig(family="own", **size), weights=None)


def prepare(asked: RunConfig, device: torch.device, own: Own = _NOTHING_OWN, processes: int = 1, *, planned: bool = False) -> Setup:
    """What a run starts from; `processes` share each batch. Only `planned`: fetch no weights."""
    torch.manual_seed(asked.train.seed)
    gathered = gather(asked, device, own, processes, planned=planned)
    return make(resolve(asked, gathered.facts), gathered, own, planned)


def gather(asked: RunConfig, device: torch.device, own: Own = _NOTHING_OWN, processes: int = 1, *, planned: bool = False) -> _Gathered:
    """Open the data and read the weights; nothing is decided here."""
    _check(asked, own, None if planned else device)
    source = _source(asked, own)
    if isinstance(own.model, Classifier):
        weights = copy.deepcopy(own.model)  # the caller keeps it as it is
    elif asked.weights is None:
        weights = None
    else:
        weights = load_untrained(asked.weights) if planned else load(asked.weights, quiet=True)
    size, multi_label = source.native_size or PHOTOGRAPH_SIZE, source.train.labels.ndim == 2
    plain = dataclasses.replace(asked.data, mean=None, std=None, resize=None)  # only divided here: nothing is measured or shown
    train = open_data(plain, preprocess=Preprocess(size, source.channels), source=source).train
    facts = Facts(len(source.class_names) if asked.pretrain is None else 0, source.channels, size, len(train), multi_label)
    facts = dataclasses.replace(facts, device=device, processes=processes)
    if weights is not None:
        names = tuple(weights.origin.classes.value)
        same = names == source.class_names and weights.origin.multi_label == multi_label
        head = "same" if same else "other" if names else "unnamed"
        facts = dataclasses.replace(facts, weights=weights.config, head=head, untrained=not weights.origin.is_trained)
    return _Gathered(facts, source, weights)


def make(resolved: Resolved, gathered: _Gathered, own: Own = _NOTHING_OWN, planned: bool = False) -> Setup:
    """The data as the settled model wants it, and that model, new or with the weights."""
    config, weights, source, device = resolved.config, gathered.weights, gathered.source, gathered.facts.device
    assumed = _assumed(weights)
    if weights is not None:
        check_seen(weights.origin.data, config.data, f"the model of {config.weights}")
        changes: dict[str, Any] = {name: value for name in ("mean", "std", "resize") if (value := getattr(config.data, name)) is not None}
        preprocess = dataclasses.replace(Preprocess.of(weights.origin, config.model), **changes)
        data = open_data(config.data, preprocess=preprocess, source=source)
        model = _adopt(weights.with_head(config.model.classes) if resolved.new_head else weights, config.model)
        origin = model.origin
    else:
        data = open_data(config.data, image_size=config.model.image_size, channels=config.model.channels, source=source)
        model = build(config.model) if own.model is None else OwnModule(config.model, own.model)
        origin = dataclasses.replace(model.origin, source=fact(f"trained as {config.name}"))
    thresholds = (NEUTRAL,) * len(data.class_names) if gathered.facts.multi_label else ()
    origin = dataclasses.replace(origin.trained(), data=to_dict(config.data), thresholds=thresholds)
    model.origin = data.preprocess.write_to(origin, data.class_names)
    if not config.model.classes:
        model.origin = dataclasses.replace(model.origin, classes=fact((), NO_HEAD))
    model = model.to(device)
    choose(model, config.train)
    return Setup(config, data, model, data.preprocess, device, (*assumed, *resolved.notes), planned)


def prepare_again(settled: RunConfig, origin: Origin, device: torch.device, own: Own = _NOTHING_OWN) -> Setup:
    """A resumed run: everything is settled, and its weights come from its state."""
    torch.manual_seed(settled.train.seed)
    preprocess = Preprocess.of(origin, settled.model)
    data = open_data(settled.data, preprocess=preprocess, source=_source(settled, own))
    _same_classes(origin.classes.value, data.class_names, settled.data.name)
    if data.train.multi_label != origin.multi_label:
        raise DataError(f"{settled.data.name} gave another number of labels a picture when the run began", "start a new run with --out")
    model = build(settled.model) if own.model is None or settled.model.family != "own" else OwnModule(settled.model, own.model)
    model.origin = origin
    model = model.to(device)
    choose(model, settled.train)
    return Setup(on_machine(settled, device), data, model, preprocess, device)


# ---- the batches of a run ------------------------------------------------------------------------------------------------------


def policy_of(setup: Setup) -> Policy:
    """What happens to a training image before views are made of it, where they are."""
    return setup.data.policy if setup.config.pretrain is None else Policy("none")


def training_loader(setup: Setup, world: World, *, batch_size: int | None = None, build_cache: bool = True) -> Loader:
    """`batch_size`: another than the run's."""
    settings = setup.config.data
    return Loader(
        training_split(setup, world, build_cache),
        batch_size=batch_size or setup.config.train.batch_size,
        policy=_views(setup) or policy_of(setup),
        device=setup.device,
        seed=setup.config.train.seed,
        train=True,
        workers=settings.workers,
        placement=settings.placement,
    ).for_rank(world.rank, world.size)


def training_split(setup: Setup, world: World, build: bool) -> Split:
    """The training images, from a cache where one is asked for: the first process makes it, the others wait."""
    settings, split = setup.config.data, setup.data.train.with_preprocess(setup.preprocess)
    if settings.cache is None or placement_of(split, policy_of(setup), setup.device, settings.placement) == "device":
        return split
    root = data_root(settings.root)
    if world.main and build:
        cached(split, settings.cache, root)
    world.barrier()
    return cached(split, settings.cache, root, build=False)


def held_out_loader(setup: Setup, split: Split, world: World) -> Loader:
    """Every image of a split once, as evaluations see them."""
    return evaluation_loader(split, setup.preprocess, setup.device, setup.config.train.batch_size, setup.config.data.workers, world)


def view_loader(setup: Setup, split: Split) -> Loader:
    """Views of a split that are the same each time it is gone through, in batches as large as the training's."""
    settings, batch = setup.config.data, setup.config.train.batch_size
    same: dict[str, Any] = {"seed": settings.split_seed, "workers": settings.workers, "placement": settings.placement}
    prepared = split.with_preprocess(setup.preprocess)
    return Loader(prepared, batch_size=batch, policy=_views(setup, least=2) or "none", device=setup.device, **same)


def _views(setup: Setup, least: int = 1) -> Views | None:
    pretrain, data = setup.config.pretrain, setup.data
    if pretrain is None:
        return None
    pretrain = dataclasses.replace(pretrain, global_views=max(least, pretrain.global_views))
    return views_of(pretrain, flip=data.train.flip, channels=data.channels, side=min(data.image_size))


# ---- checks --------------------------------------------------------------------------------------------------------------------


def _check(asked: RunConfig, own: Own, device: torch.device | None) -> None:
    """What can be seen from the settings alone, before data is read or weights are fetched; `device`: where it will run, if it will."""
    data, train = asked.data, asked.train
    policy(data.augment, mixup=data.mixup, cutmix=data.cutmix)
    if own.source is None:
        check_stage(data)
    if device is not None:
        dtype_of(train.precision, device)
    if asked.weights is None:
        check_scratch(train)
    for name in (asked.weights if own.model is None else None, train.teacher):
        if name is not None:
            check_source(name)


def _source(config: RunConfig, own: Own) -> Source:
    """The data; for a run that must not see labels, without any."""
    if config.pretrain is None:
        return own.source or open_source(config.data)
    return unlabelled(own.source) if own.source is not None else open_source(config.data, labels=False)


def _same_classes(before: tuple[str, ...], now: tuple[str, ...], data: str) -> None:
    """A resumed model answers with the numbers of the classes that it began with."""
    if before == now:
        return
    gone, new = [name for name in before if name not in now], [name for name in now if name not in before]
    changes = [f"{word} {few(names)}" for word, names in (("without", gone), ("with", new)) if names]
    raise DataError(
        f"the classes of {data} are others than when the run began ({', '.join(changes) or 'in another order'})",
        "name the class folders as they were, or start a new run with --out",
    )


def _adopt(weights: Classifier, settled: ModelConfig) -> Classifier:
    """The weights in a model as it was settled: another size, other channels and classes, dropout of its own."""
    model = adapt(weights, image_size=settled.image_size, channels=settled.channels, classes=settled.classes)
    if settled == model.config:
        return model
    values = model.state_dict()
    if settled.pool != model.config.pool:
        values = {name: value for name, value in values.items() if not is_head(name)}  # of another width; the probe makes it anew
    made = build(settled)
    made.load_state_dict(made.state_dict() | values)
    made.origin = model.origin
    return made


def _assumed(weights: Classifier | None) -> tuple[str, ...]:
    """In short, what had to be taken for granted about weights from elsewhere."""
    names = [line.partition(" = ")[0] for line in weights.origin.assumptions()] if weights is not None else []
    return (f"assumed of the weights: {', '.join(names)} (`vitral weights inspect` says more)",) if names else ()
