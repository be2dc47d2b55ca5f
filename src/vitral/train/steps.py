"""One optimizer step: forward, backward, clip, optimizer, EMA. Nothing in it waits for the device."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitral.base.device import wait
from vitral.base.errors import ConfigError
from vitral.build import build, shadow
from vitral.config import ModelConfig, PretrainConfig, RunConfig, TrainConfig
from vitral.cost.flops import step_flops
from vitral.cost.memory import Memory, step_memory
from vitral.cost.precision import autocast, dtype_of, is_compiled
from vitral.kernels.graphs import beside
from vitral.model.classifier import Classifier
from vitral.model.lora import merge_lora
from vitral.train.ema import EMA, copy_values
from vitral.train.evaluate import evaluation_batch
from vitral.train.optim import Optimizer, choose, clip, groups, whole
from vitral.train.parallel import World
from vitral.train.schedule import token_shares
from vitral.train.state import random_states, set_random_states
from vitral.train.tasks import method_of, task_of
from vitral.train.tasks.task import Learner, Outcome, Task, learnable

_COMPILED_SHAPES = 64
"""Each share of kept patches is a graph of its own; PyTorch's limit of 8 is for accidents."""
_COUNTED = 2
"""Images of the step whose FLOPs are counted."""


def can_record(model: Classifier, device: str, processes: int, config: TrainConfig) -> bool:
    """Whether a whole step can be recorded as one CUDA graph and replayed: small models wait for Python's launches otherwise.

    Gradients that add up over micro-batches or travel between processes, a scale that is read back (fp16) and a forward pass that
    is run again (checkpointing) need Python in between.
    """
    plain = processes == 1 and config.accumulate == 1 and config.precision != "fp16" and not model.config.gradient_checkpointing
    return device == "cuda" and plain


@dataclass
class Recorded:
    """A step as a CUDA graph: fill the inputs, replay, read the outcome."""

    graph: Any
    inputs: list[Tensor | None]
    outcome: Outcome

    def replay(self, inputs: list[Tensor | None]) -> Outcome:
        for fixed, value in zip(self.inputs, inputs, strict=True):
            if fixed is not None and value is not None:
                fixed.copy_(value)
        self.graph.replay()
        return Outcome(*(value.clone() for value in self.outcome))  # the next replay writes over it


class Stepper:
    """A model that learns: weights, EMA, optimizer and scaler, and how a batch moves them."""

    def __init__(self, model: Classifier, task: Task, config: TrainConfig, device: torch.device, world: World) -> None:
        self.model, self.config, self.device, self.world = model, config, device, world
        self.dtype = dtype_of(config.precision, device)
        self.compiled = is_compiled(config.compile, device)
        self.graphs = self.compiled and can_record(model, device.type, world.size, config)
        if config.token_drop or config.token_drop_after:
            whole = "set token_drop = 0 and token_drop_after = 0"
            if not hasattr(model, "blocks"):
                raise ConfigError(f"token_drop needs a model with tokens, not a {model.config.family}", whole)
            if model.config.is_relative:
                raise ConfigError("token_drop leaves patches out, and relative positions are of whole grids", whole)
        if config.batch_size % (world.size * config.accumulate):
            raise ConfigError(
                f"batch_size {config.batch_size} cannot be split into {config.accumulate} micro-batches on each of {world.size} processes",
                "choose a multiple",
            )
        if (head := task.new_head(model)) is not None:
            model.head = head.to(device)
        blocks = list(getattr(model, "blocks", []))
        self.task = task.to(device)
        self.wrapped = world.wrap(Learner(model, task), blocks, device)
        self.parameters = learnable(model, task)
        self.learning = [parameter for parameter in self.parameters.values() if parameter.requires_grad]
        self.optimizer = Optimizer(model, config, model.config.depth, device, recorded=self.graphs, parameters=self.parameters)
        self.ema = EMA(model, config.ema) if config.ema is not None else None
        self.task_ema = EMA(task, config.ema, moved=True) if config.ema is not None and task.state_dict() else None
        self.scaler = torch.amp.GradScaler(device.type) if self.dtype == torch.float16 else None  # type: ignore[attr-defined]
        self.learner: Callable[..., Any] = self._compile(self.wrapped, blocks)
        self.watch: Callable[[], None] | None = None
        """Called with the gradients of each step, before they are used; not by what was recorded before."""
        self._mixed = False
        self._recorded: dict[float | None, Recorded] = {}
        self._stream: Any = None
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")

    def _compile(self, module: nn.Module, blocks: list[nn.Module]) -> Callable[..., Any]:
        """Blocks are alike, so one of them is compiled and all run it; a model without blocks is compiled whole."""
        if not self.compiled:
            return module
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _COMPILED_SHAPES)
        mode = "max-autotune-no-cudagraphs" if self.config.compile == "max" else None
        if not blocks:
            return torch.compile(module, dynamic=False, mode=mode)
        for block in [*blocks, *self.task.parts()]:
            block.compile(dynamic=False, mode=mode)
        return module

    def forget_recorded(self) -> None:
        """Every step runs in Python again."""
        self._recorded.clear()

    def close(self) -> None:
        """The model as it was before: not compiled, and without what was recorded."""
        self.forget_recorded()
        for block in [*getattr(self.model, "blocks", []), *self.task.parts()]:
            block._compiled_call_impl = None

    # ---- learning --------------------------------------------------------------------------------------------------------------

    def step(self, batch: Any, factor: float, keep: float | None) -> Outcome:
        """Learn from a batch at `factor` × the peak learning rates. The outcome stays on the device."""
        if not self.model.training:  # a walk over all modules in every step would take as long as an optimizer
            self.model.train()
        self.optimizer.set_lr(factor)
        inputs = self._inputs(batch)
        outcome = self._recorded[keep].replay(inputs) if keep in self._recorded else self._learn(inputs, keep)
        if self.ema is not None:
            self.ema.update(self.model)
        if self.task_ema is not None:
            self.task_ema.update(self.task)
        return outcome

    def _inputs(self, batch: Any) -> list[Tensor | None]:
        labels, labels_b, lam = self.task.targets(batch), batch.labels_b, batch.lam
        if self._mixed and labels_b is None:
            # A run that mixes at times has one graph for both: all of the first label is the same number as no other one.
            labels_b, lam = labels, torch.ones(len(labels), device=self.device)
        return [batch.images, labels, labels_b, lam]

    def _learn(self, inputs: list[Tensor | None], keep: float | None) -> Outcome:
        """Forward, backward, clip, optimizer: what a graph records."""
        micro_batches = self.config.accumulate
        loss = correct = torch.zeros((), device=self.device)
        parts = [part if part is None else part.chunk(micro_batches) for part in inputs]
        for index in range(micro_batches):
            images, labels, labels_b, lam = (None if part is None else part[index] for part in parts)
            with self._held_back(index < micro_batches - 1), autocast(self.dtype, self.device):
                outcome = self.learner(images, labels, labels_b, lam, keep)
            part = outcome.loss / micro_batches
            with self._held_back(index < micro_batches - 1):
                (part if self.scaler is None else self.scaler.scale(part)).backward()
            loss, correct = loss + part.detach(), correct + outcome.correct
        self._apply()
        self.task.after(self.model)
        return Outcome(loss, correct)

    def _record(self, batch: Any, keep: float | None) -> Recorded:
        inputs = [value if value is None else value.clone() for value in self._inputs(batch)]
        graph = torch.cuda.CUDAGraph()
        pool = next((recorded.graph.pool() for recorded in self._recorded.values()), None)  # they never run at once
        if self._stream is None:  # one for all graphs, which share memory; PyTorch's own belongs to the device that was used first
            self._stream = torch.cuda.Stream(self.device)
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            outcome = self._learn(inputs, keep)
        return Recorded(graph, inputs, outcome)

    def _apply(self) -> None:
        if self.watch is not None:
            self.watch()
        if self.scaler is None:
            if self.config.clip is not None:
                clip(self.learning, self.config.clip)
            self.optimizer.step()
        else:
            if self.config.clip is not None:
                for rule in self.optimizer.rules:
                    self.scaler.unscale_(rule)
                clip(self.learning, self.config.clip)
            for rule in self.optimizer.rules:
                self.scaler.step(rule)
            self.scaler.update()
        self.optimizer.clear()

    def _held_back(self, more: bool) -> AbstractContextManager[Any]:
        """Between the micro-batches of an accumulated batch DDP need not exchange gradients."""
        return self.wrapped.no_sync() if more and hasattr(self.wrapped, "no_sync") else nullcontext()  # type: ignore[operator]

    # ---- evaluating ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The weights that count: those of the EMA, where there is one."""
        with ExitStack() as stack:
            if self.ema is not None:
                stack.enter_context(self.ema.inside(self.model))
            if self.task_ema is not None:
                stack.enter_context(self.task_ema.inside(self.task))
            yield

    def logits(self, images: Tensor) -> Tensor:
        """The task's answers, for evaluation. When compiled, a smaller batch is filled up: another size would be another compilation."""
        count = len(images)
        missing = evaluation_batch(self.config.batch_size) // self.world.size - count if self.compiled else 0
        if missing > 0:
            images = torch.cat([images, images.new_zeros(missing, *images.shape[1:])])
        return self.learner(images)[:count]

    def precision(self) -> AbstractContextManager[Any]:
        return autocast(self.dtype, self.device)

    def values(self) -> dict[str, Tensor]:
        """The weights that count, by name, not copied."""
        return self.ema.values if self.ema is not None else {name: value.detach() for name, value in self.model.state_dict().items()}

    def complete(self, values: dict[str, Tensor] | None = None, sharded: bool = False) -> Classifier:
        """The model with all its weights, or with `values`, in this process (sharded ones are gathered: every process must call this).

        LoRA's matrices are merged into those beside them.
        """
        model, config = self.model, self.config
        if values is None and not sharded and config.tune != "lora":
            return model
        full = {name: whole(value).cpu() for name, value in (values or dict(model.state_dict())).items()}
        if config.tune == "lora":
            full = merge_lora(full, config.lora_rank, config.lora_alpha)
        if model.config.family == "own":
            made = copy.deepcopy(model).cpu()
        else:
            with torch.random.fork_rng():  # building draws random numbers that the run must not miss
                made = build(model.config)
                if (head := self.task.new_head(made)) is not None:
                    made.head = head
        made.load_state_dict(full)
        made.origin = model.origin
        return made if values or sharded else made.to(self.device)

    # ---- compiling -------------------------------------------------------------------------------------------------------------

    def warm_up(self, batch: Any, mixed: bool) -> float:
        """Compile the step on throw-away state, then put everything back exactly; returns the seconds it took."""
        if not self.compiled:
            return 0.0
        began = time.perf_counter()
        own = {name: value.clone() for name, value in self._live().items()}
        random = random_states()
        self._mixed = mixed
        for keep in token_shares(self.config):
            with beside(self.device):
                for _ in range(2):  # compile, then run what was compiled: a graph may not contain first times
                    self.step(batch, 1.0, keep)
            if self.graphs:
                self._recorded[keep] = self._record(batch, keep)
        copy_values(own, self._live())
        self.optimizer.forget()
        if self.ema is not None:
            self.ema.restart(self.model)
        if self.task_ema is not None:
            self.task_ema.restart(self.task)
        if self.scaler is not None:
            self.scaler = torch.amp.GradScaler(self.device.type)  # type: ignore[attr-defined]
        set_random_states(random)
        self.wait()
        return time.perf_counter() - began

    @torch.no_grad()
    def warm_up_answers(self, loader: Any) -> float:
        """Compile what answers the images of an evaluation; returns the seconds it took."""
        if not self.compiled:
            return 0.0
        began, random = time.perf_counter(), random_states()
        self.model.eval()
        with self.precision():
            self.logits(next(iter(loader.epoch(0))).images)
        self.model.train()
        set_random_states(random)
        self.wait()
        return time.perf_counter() - began

    def origin_of_code(self) -> str | None:
        """cold: it was compiled now; cached: all of it came from the compiler's cache on disk. None: nothing is compiled."""
        if not self.compiled:
            return None
        counted = torch._dynamo.utils.counters  # type: ignore[attr-defined]
        missed = counted["inductor"]["fxgraph_cache_miss"] + counted["inductor"]["fxgraph_cache_bypass"]
        return "cold" if missed else "cached"

    def wait(self) -> None:
        wait(self.device)

    # ---- state -----------------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold, by name."""
        state = self._live()
        for name, average in (("ema", self.ema), ("task-ema", self.task_ema)):
            if average is not None:
                state |= {f"{name}/{key}": value for key, value in average.values.items()}
        return state | {f"optimizer/{name}": value for name, value in self.optimizer.state().items()}

    def _live(self) -> dict[str, Tensor]:
        """Weights and buffers as they are now, the model's and its task's."""
        live = {f"model/{name}": value.detach() for name, value in self.model.state_dict().items()}
        return live | {f"task/{name}": value.detach() for name, value in self.task.state_dict().items()}


def run_memory(config: RunConfig, images: int, dtype: torch.dtype, compiled: bool, data: int = 0) -> Memory:
    """What a run's step on `images` at a time holds at its worst moment; `data`: bytes of images that lie on the device."""
    train, model = config.train, shadow(config.model).train()
    choose(model, train)
    size: tuple[int, ...] = (config.model.channels, *config.model.image_size)
    if config.pretrain is None:
        task = task_of(train)
    else:
        task, size = method_of(config.pretrain, model).to("meta"), (config.pretrain.views, *size)
    learning, moved = {name: value for name, value in learnable(model, task).items() if value.requires_grad}, Counter[str]()
    for group in groups(learning, train, config.model.depth):
        moved[group.rule] += sum(learning[name].numel() for name in group.names)
    inputs = (torch.empty(images, *size, device="meta"), torch.empty(images, dtype=torch.int64, device="meta"))
    learner = Learner(model, task)
    return step_memory(learner, inputs, moved, dtype=dtype, compiled=compiled, ema=train.ema is not None, data=data)


def flops_without_labels(model: ModelConfig, pretrain: PretrainConfig, train: TrainConfig) -> float:
    """Of learning from one image without labels: all its views with the patches that are shown, the projection, the teacher or the decoder,
    forward and backward, as the method runs; the mean over a run that shows more patches towards its end."""
    return sum(share * _flops_showing(model, pretrain, train.tune, keep) for keep, share in token_shares(train).items())


@functools.cache
def _flops_showing(model: ModelConfig, pretrain: PretrainConfig, tune: str, keep: float | None) -> float:
    network = shadow(dataclasses.replace(model, classes=0)).train()
    choose(network, TrainConfig(tune=tune))  # type: ignore[arg-type]
    images = torch.empty(_COUNTED, pretrain.views, model.channels, *model.image_size, device="meta")
    labels = torch.empty(_COUNTED, dtype=torch.int64, device="meta")
    return step_flops(Learner(network, method_of(pretrain, network).to("meta")), (images, labels), keep=keep) / _COUNTED
