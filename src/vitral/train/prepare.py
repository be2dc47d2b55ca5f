"""Before the first step: data opened, the model fitted to it, built or loaded, and everything the loop needs put together."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitral.base.errors import DataError
from vitral.base.origin import NO_HEAD, Origin, fact
from vitral.base.text import byte_size, counted, duration, few
from vitral.build import build
from vitral.config import OPEN, ModelConfig, RunConfig, to_dict
from vitral.cost.flops import forward_flops
from vitral.cost.precision import dtype_of
from vitral.cost.time import TINY
from vitral.data.cache import cached
from vitral.data.images.augment import Policy, policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.images.views import Views, views_of
from vitral.data.loader import Loader, even_batches, placement_of
from vitral.data.sources.fetch import data_root
from vitral.data.sources.protocol import Source, unlabelled
from vitral.data.sources.torch_dataset import own_name
from vitral.data.splits.open import PHOTOGRAPH_SIZE, Data, open_data, open_source, training_images
from vitral.data.splits.sealed import check_seen, check_stage
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.model.lora import merge_lora
from vitral.rivals.own_module import OwnModule
from vitral.run.resolve import DataFacts, check_scratch, resolve
from vitral.train.evaluate import evaluation_loader
from vitral.train.multi_label import NEUTRAL
from vitral.train.optim import choose, is_head, whole
from vitral.train.parallel import World
from vitral.train.tasks import method_of, task_of, taught_by
from vitral.train.tasks.task import Task
from vitral.train.teacher import as_teacher
from vitral.weights.load import check_source, load, load_untrained
from vitral.weights.resize import adapt


@dataclass
class Setup:
    config: RunConfig
    """Settled."""
    data: Data
    model: Classifier
    preprocess: Preprocess
    device: torch.device
    notes: tuple[str, ...] = ()
    """What the user asked for and does not get as it was asked."""
    planned: bool = False
    """Only to be planned: nothing is fetched, and weights that would have to be are random."""

    @property
    def parameters(self) -> tuple[int, int]:
        """(all, those that learn)."""
        parameters = list(self.model.parameters())
        return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)

    @property
    def threads(self) -> int | None:
        """CPU threads: those asked for, else one for a tiny model, else (None) PyTorch's choice. The model alone decides, not how busy
        the machine is: the last bits of a sum depend on it."""
        config = self.config
        if config.train.threads is not None or self.device.type != "cpu" or config.model.family == "own":
            return config.train.threads
        return 1 if forward_flops(config.model) * config.train.batch_size <= TINY else None

    def task(self, quiet: bool = True) -> Task:
        """What is learnt: to name classes, from labels and perhaps a teacher, or, without labels, what the method says."""
        if self.config.pretrain is not None:
            choose(self.model, self.config.train)  # before a method copies the model: LoRA's matrices belong to the copy too
            return method_of(self.config.pretrain, self.model)
        train, multi_label = self.config.train, self.data.train.multi_label
        weights = self.data.train.class_weights().to(self.device) if self.config.data.class_weights else None
        if train.teacher is None:
            return task_of(train, weights, multi_label)
        opened = load_untrained(train.teacher) if self.planned else load(train.teacher)
        teacher, distil = as_teacher(opened, train.teacher, self.data, self.preprocess, train.distil, quiet)
        return taught_by(teacher.to(self.device), distil, self.model, train, weights, multi_label)

    def headline(self, total: int, step: int) -> str:
        """One line before the first step: what learns, where, for how long."""
        config, (every, learning) = self.config, self.parameters
        which = f"{learning:,} of {every:,} parameters learn ({config.train.tune})" if learning != every else f"{every:,} parameters learn"
        going = f", going on at step {step:,}" if step else ""
        threads = f" ({self.threads} thread{'s' * (self.threads > 1)})" if self.threads and self.device.type == "cpu" else ""
        most = config.train.max_seconds
        long = counted(total, "step") if config.train.ends_by_steps else f"{duration(most)} of steps"
        count = config.train.snapshots
        size = byte_size(count * sum(value.numel() * value.element_size() for value in self.model.state_dict().values()))
        kept = f", {count} snapshots ({size} on the disk)" if count else ""
        return f"{config.name}: {which}, {len(self.data.train):,} pictures, {long} on {self.device.type}{threads}{kept}{going}"

    def complete(self, values: dict[str, Tensor] | None = None, sharded: bool = False) -> Classifier:
        """The model with all its weights, or with `values`, in this process (sharded ones are gathered: every process must call this).

        LoRA's matrices are merged into those they stand beside.
        """
        model, train = self.model, self.config.train
        if values is None and not sharded and train.tune != "lora":
            return model
        full = {name: whole(value).cpu() for name, value in (values or dict(model.state_dict())).items()}
        if train.tune == "lora":
            full = merge_lora(full, train.lora_rank, train.lora_alpha)
        if self.config.model.family == "own":
            made = copy.deepcopy(model).cpu()
        else:
            with torch.random.fork_rng():  # building draws random numbers that the run must not miss
                made = build(self.config.model)
        made.load_state_dict(full)
        made.origin = model.origin
        return made if values or sharded else made.to(self.device)

    def training_loader(self, world: World, build_cache: bool = True) -> Loader:
        settings = self.config.data
        return Loader(
            self.training_split(world, build_cache),
            batch_size=self.config.train.batch_size,
            preprocess=self.preprocess,
            policy=self.policy,
            views=self.views(),
            device=self.device,
            seed=self.config.train.seed,
            train=True,
            workers=settings.workers,
            placement=settings.placement,
            rank=world.rank,
            world=world.size,
        )

    @property
    def policy(self) -> Policy:
        """What happens to a training picture before views are made of it, where they are."""
        return self.data.policy if self.config.pretrain is None else Policy("none")

    def training_split(self, world: World, build: bool) -> Split:
        """The training pictures, from a cache where one is wanted: the first process makes it, the others wait."""
        settings, split = self.config.data, self.data.train.with_preprocess(self.preprocess)
        if settings.cache is None or placement_of(split, self.policy, self.device, settings.placement) == "device":
            return split
        root = data_root(settings.root)
        if world.main and build:
            cached(split, settings.cache, root)
        world.barrier()
        return cached(split, settings.cache, root, build=False)

    def views(self, least: int = 1) -> Views | None:
        pretrain = self.config.pretrain
        if pretrain is None:
            return None
        pretrain = dataclasses.replace(pretrain, global_views=max(least, pretrain.global_views))
        return views_of(pretrain, flip=self.data.train.flip, channels=self.data.channels, side=min(self.data.image_size))

    def view_loader(self, split: Split) -> Loader:
        """Views of a split that are the same each time it is gone through, in batches as large as the training's."""
        settings, batch = self.config.data, self.config.train.batch_size
        wanted = {"seed": self.config.data.split_seed, "workers": settings.workers, "placement": settings.placement}
        return Loader(split, batch_size=batch, preprocess=self.preprocess, views=self.views(least=2), device=self.device, **wanted)

    def evaluation_loader(self, split: Split, world: World) -> Loader:
        return evaluation_loader(split, self.preprocess, self.device, self.config.train.batch_size, self.config.data.workers, world)


@dataclass(frozen=True)
class Given:
    """What the calling program brings itself instead of naming it in the config."""

    model: nn.Module | None = None
    source: Source | None = None

    def named_in(self, asked: RunConfig) -> RunConfig:
        """The config says that they were given, so that nothing later takes them for what it names."""
        if self.source is not None:
            asked = dataclasses.replace(asked, data=dataclasses.replace(asked.data, name=self.source.name))
        if isinstance(self.model, Classifier):
            return dataclasses.replace(asked, weights=own_name(self.model))
        if self.model is None:
            return asked
        size = {name: getattr(asked.model, name) for name in OPEN}
        return dataclasses.replace(asked, model=ModelConfig(family="own", **size), weights=None)


def prepare(asked: RunConfig, device: torch.device, given: Given | None = None, processes: int = 1, *, planned: bool = False) -> Setup:
    """Settle what is asked for, then open the data and make the model; `processes` share each batch. Only `planned`: fetch no weights."""
    torch.manual_seed(asked.train.seed)
    given = given or Given()
    _check(asked, given, None if planned else device)
    source = _source(asked, given)
    size = source.native_size or PHOTOGRAPH_SIZE
    multi_label = source.train.labels.ndim == 2
    classes = len(source.class_names) if asked.pretrain is None else 0
    facts = DataFacts(classes, source.channels, size, training_images(source, asked.data), multi_label)
    if isinstance(given.model, Classifier):
        weights = copy.deepcopy(given.model)  # the caller keeps it as it is
    else:
        named = asked.weights
        weights = None if named is None else load_untrained(named) if planned else load(named, quiet=True)
    if weights is not None and not weights.origin.learnt and asked.train.head_start is None and asked.pretrain is None:
        # Its features are random numbers: fitted to them, a head would start far too large.
        asked = dataclasses.replace(asked, train=dataclasses.replace(asked.train, head_start="as-is"))
    known_names = (
        weights is not None and tuple(weights.origin.classes.value) == source.class_names and weights.origin.multi_label == multi_label
    )
    assumed = _assumed(weights)
    resolved = resolve(asked, facts, weights.config if weights is not None else None, known_names)
    config = resolved.config
    if weights is not None:
        check_seen(weights.origin.data, config.data, f"the model of {config.weights}")
        changes = {name: value for name in ("mean", "std", "resize") if (value := getattr(config.data, name)) is not None}
        preprocess = dataclasses.replace(Preprocess.of(weights.origin, config.model), **changes)
        data = open_data(config.data, preprocess=preprocess, source=source)
        others = bool(weights.origin.classes.value) and not known_names and weights.config.classes == config.model.classes
        # As many classes, but others: unless it is asked for, their head is not kept.
        model = _adopt(weights.with_head(config.model.classes) if others and asked.train.head_start is None else weights, config.model)
        origin = model.origin
    else:
        data = open_data(config.data, image_size=config.model.image_size, channels=config.model.channels, source=source)
        model = build(config.model) if given.model is None else OwnModule(config.model, given.model)
        origin = dataclasses.replace(model.origin, source=fact(f"trained as {config.name}"))
    changes = tuple(change.replace(", untrained (", ", new when this training began (") for change in origin.changes)
    thresholds = (NEUTRAL,) * len(data.class_names) if multi_label else ()
    origin = dataclasses.replace(origin, changes=changes, data=to_dict(config.data), thresholds=thresholds)
    model.origin = data.preprocess.write_to(origin, data.class_names)
    if not config.model.classes:
        model.origin = dataclasses.replace(model.origin, classes=fact((), NO_HEAD))
    config, notes = _even_batches(config, len(data.train), processes)
    return Setup(config, data, model.to(device), data.preprocess, device, (*assumed, *resolved.notes, *notes), planned)


def _check(asked: RunConfig, given: Given, device: torch.device | None) -> None:
    """What can be seen from the settings alone, before data is read or weights are fetched; `device`: where it will run, if it will."""
    data, train = asked.data, asked.train
    policy(data.augment, mixup=data.mixup, cutmix=data.cutmix)
    if given.source is None:
        check_stage(data)
    if device is not None:
        dtype_of(train.precision, device)
    if asked.weights is None:
        check_scratch(train)
    for name in (asked.weights if given.model is None else None, train.teacher):
        if name is not None:
            check_source(name)


def _even_batches(config: RunConfig, images: int, processes: int) -> tuple[RunConfig, tuple[str, ...]]:
    """Batches that leave out no image of a small set, and what is said of it."""
    wanted = config.train.batch_size
    steps, size = even_batches(images, wanted, config.train.accumulate * processes)
    if size == wanted:
        return config, ()
    train = dataclasses.replace(config.train, batch_size=size)
    spread = f"{steps} batches" if steps > 1 else "1 batch"
    note = f"{spread} of {size} an epoch, not of {wanted}: so all {images} pictures are learnt from in each"
    return dataclasses.replace(config, train=train), (note,)


def _source(config: RunConfig, given: Given) -> Source:
    """The data; for a run that must not see labels, without any."""
    if config.pretrain is None:
        return given.source or open_source(config.data)
    return unlabelled(given.source) if given.source is not None else open_source(config.data, labels=False)


def prepare_again(settled: RunConfig, origin: Origin, device: torch.device, given: Given | None = None) -> Setup:
    """A run that is gone on with: everything is settled, and its weights come from its state."""
    torch.manual_seed(settled.train.seed)
    preprocess = Preprocess.of(origin, settled.model)
    given = given or Given()
    data = open_data(settled.data, preprocess=preprocess, source=_source(settled, given))
    _same_classes(origin.classes.value, data.class_names, settled.data.name)
    if data.train.multi_label != origin.multi_label:
        raise DataError(f"{settled.data.name} gave another number of labels a picture when the run began", "start a new run with --out")
    model = build(settled.model) if given.model is None or settled.model.family != "own" else OwnModule(settled.model, given.model)
    model.origin = origin
    return Setup(settled, data, model.to(device), preprocess, device)


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
