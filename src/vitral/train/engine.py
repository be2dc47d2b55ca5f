"""The only loop. It trains anything that has a config, and knows nothing of the model.

Losses and right answers stay on the device and are read once per window; nothing else waits for it. `seconds` is time spent in
training steps: compiling, validating and saving are not in it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vitral.base.device import describe_machine
from vitral.base.errors import ConfigError, VitralError
from vitral.base.layout import METRICS, PROGRESS, STATE
from vitral.base.progress import Progress, progress, say
from vitral.config import from_dict
from vitral.cost.flops import forward_flops
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.run.journal import Journal
from vitral.run.times import Times
from vitral.train import advice, failure
from vitral.train.counts import Counts, Window
from vitral.train.ema import copy_values, local
from vitral.train.parallel import World
from vitral.train.prepare import Setup, held_out_loader, training_loader
from vitral.train.schedule import lr_factor, shown_patches, snapshots_by
from vitral.train.state import Slots, optimizer_templates, seed_process
from vitral.train.steps import Stepper
from vitral.train.tasks.task import Task

WINDOW = {"cuda": 50, "cpu": 10}
"""Steps between readings of the device."""
GLANCE = 0.5
"""Seconds after which one process reads earlier, so that slow steps still show."""
LINES = 100
"""Training lines in a journal, about; the validations' come on top."""


class Engine:
    folder: RunFolder
    slots: Slots

    def __init__(self, setup: Setup, task: Task, world: World, quiet: bool = False, times: Times | None = None) -> None:
        self.setup, self.config, self.world, self.quiet, self.times = setup, setup.config, world, quiet, times or Times()
        self.task = task
        self.train = train = self.config.train
        if not len(setup.data.validation) and (train.keep == "best" or train.patience is not None):
            raise ConfigError("keep = best and patience need validation pictures, there are none", "set validation to 0.1 or so")
        self.stepper = Stepper(setup.model, task, train, setup.device, world)
        self.loader = training_loader(setup, world)
        task.open(setup, self.stepper)
        self.total = max(1, round(train.epochs * len(self.loader))) if train.epochs else 0
        self.evaluate_every = max(1, round(train.evaluate_every * len(self.loader)))
        if task.looks:
            self.evaluate_every = min(self.evaluate_every, max(1, self.total // task.looks))
        self.line_every = max(1, self.total // LINES)
        self.counts, self.window = Counts(), Window()
        self.best: dict[str, Tensor] | None = None
        self.journal = Journal(None)
        self.interrupts = failure.Interrupts()
        self.compile_seconds = 0.0
        self._clock = self._clock_before = 0.0  # share of the seconds, after this step and after the one before it
        self._running_since = self._read_at = self._saved_at = time.perf_counter()

    # ---- the loop --------------------------------------------------------------------------------------------------------------

    def run(self, folder: RunFolder, resumed: bool = False) -> tuple[Classifier, Any]:
        """Train to the end: the final model, and what the task makes of it."""
        self.folder, self.slots = folder, Slots(folder.path / STATE, self.world)
        seed_process(self.train.seed, self.world.rank)
        first = next(iter(self.loader.epoch(0)))
        mixes = self.loader.policy.mixup + self.loader.policy.cutmix > 0
        self.times.until_now("preparation")
        with self.times.taking("compilation"):
            self.compile_seconds = self.stepper.warm_up(first, mixes) + self.task.warm_up(self.setup, self.stepper)
        self.times.facts = {"compiled": self.stepper.origin_of_code(), "resumed": resumed}
        position = self._restore() if resumed else 0
        if resumed:  # what was written after that step comes once more
            validations = [line for line in folder.metrics if line.get("split") == "validation" and line["step"] <= self.counts.step]
            self.task.remember(validations)
        metrics = folder.path / METRICS if self.world.main else None
        self.journal = Journal(metrics, position, self.train.tensorboard, self.train.wandb, self.config.name)
        try:
            if self.world.main:
                folder.write_environment(self._environment())
            if not self.quiet:
                say(advice.headline(self.setup, self.total, self.counts.step))
            steps = self.total if self.train.ends_by_steps else None  # nobody knows how many the clock allows
            with self.interrupts, progress("Training", steps, self.quiet, self.counts.step) as bar:
                if self.counts.step == 0:
                    if self.task.looks or not self.total:
                        self._validate(bar)
                    if self._snapshot_due():
                        self._snapshot()
                    self._save()  # from here on there is always something to go on from
                self._loop(bar)
            return self._finish()
        except Exception as error:
            raise failure.explained(error, self.config, self.setup.device, self.world, self.counts.step) from error
        finally:
            self.journal.close()
            self.stepper.close()

    def _loop(self, bar: Progress) -> None:
        self._running_since = self._saved_at = time.perf_counter()
        self._read_clock()
        for batch in self._batches(self._done):
            self._learn(batch)
            self._read_clock()
            self._look_after(bar)

    def _batches(self, until: Callable[[], bool]) -> Iterator[Any]:
        """From the step that comes next; an epoch in which mixing ends is begun anew at that step."""
        while not until():
            self.loader.mixing = mixing = self._mixing()
            epoch, start = divmod(self.counts.step, len(self.loader))
            for batch in self.loader.epoch(epoch, start):
                yield batch
                if until() or mixing != self._mixing():
                    break

    def _mixing(self) -> bool:
        return self._progress() < 1 - self.train.mixing_off

    def _progress(self) -> float:
        """Share of the run that is over: by steps, or by the clock when seconds are the budget and run out first."""
        return min(1.0, max(self.counts.step / self.total if self.total else 1.0, self._clock))

    def _elapsed(self) -> float:
        return self.counts.seconds + time.perf_counter() - self._running_since

    def _read_clock(self) -> None:
        """Once a step: read again after the device was waited for, it could end the run without its last validation; read by each process
        for itself, each would learn with an lr of its own."""
        if self.train.max_seconds is not None:
            self._clock_before, self._clock = self._clock, self.world.largest(self._elapsed() / self.train.max_seconds)

    def _passed(self, parts: int) -> bool:
        """Whether the clock has passed the end of one of so many equal parts of the run in this step."""
        return int(parts * self._clock) > int(parts * self._clock_before)

    def _done(self) -> bool:
        out_of_patience = self.train.patience is not None and self.counts.waited >= self.train.patience
        return self.counts.step >= self.total or out_of_patience or self._clock >= 1

    def _learn(self, batch: Any) -> None:
        now = self._progress()
        share = max(1 / self.total, now / max(1, self.counts.step) if self.counts.step else 0.0)
        factor = lr_factor(self.train, now, share)
        self.task.begin(now)
        outcome = self.stepper.step(batch, factor, shown_patches(self.train, now))
        self.window.add(outcome.loss, outcome.correct, batch.indices, factor * self.train.lr, len(batch.labels) * self.world.size)
        self.counts.step += 1

    def _look_after(self, bar: Progress) -> None:
        """Everything that happens between steps, in an order that a resumed run repeats."""
        step, taken = self.counts.step, len(self.window.losses)
        last = self._done()
        validate = last or step % self.evaluate_every == 0 or self._passed(self.task.looks)
        line = validate or step % self.line_every == 0 or self._passed(LINES)
        alone = not self.world.many
        glance = alone and (self.interrupts.asked or time.perf_counter() - self._read_at > GLANCE or self.train.checkpoint_every == 0)
        snapshot = self._snapshot_due()
        if not (line or glance or snapshot or taken >= WINDOW.get(self.setup.device.type, 10)):
            return
        self._pause()
        self._read(bar)
        if line:
            self._write_line()
        if validate:
            self._validate(bar)
        if snapshot:
            self._snapshot()
        due = time.perf_counter() - self._saved_at >= self.train.checkpoint_every
        stop, save = self.world.agree(bool(self.interrupts.asked), due)
        if stop or save or last:
            self._save()
        if stop and not last:
            raise failure.stopped(self.folder, step, self.total, self.interrupts.asked)
        self._running_since = self._read_at = time.perf_counter()

    def _pause(self) -> None:
        """Stop the training clock once the device has caught up."""
        self.stepper.wait()
        self.counts.seconds = self._elapsed()
        self._running_since = time.perf_counter()

    def _read(self, bar: Progress) -> None:
        """The one place where the loop asks the device for numbers."""
        window, counts = self.window, self.counts
        if not window.losses:
            return
        losses = (self.world.total(torch.stack(window.losses).float()) / self.world.size).tolist()
        correct = float(self.world.total(torch.stack(window.correct).sum()))
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                step = counts.step - len(losses) + index
                pictures = window.indices[index].tolist()
                broken = self._broken_gradient(step)
                raise failure.not_finite(self.config, step, step / len(self.loader), loss, pictures, window.lrs[index], broken)
        counts.take(window, sum(losses), correct)
        figures = self.task.journal(counts.mean_loss, counts.mean_correct)
        bar.advance(len(losses), **figures, images_per_second=round(counts.images_per_second))
        self.window = Window()

    def _broken_gradient(self, step: int) -> tuple[int, str] | None:
        """(step, layer) of the first gradient that is NaN or infinite: go back to the last state and learn again, looking at each.

        On the way back from the loss the layer is the first that has one, so the last one of the model.
        """
        if self.world.many or self.stepper.scaler is not None:  # fp16 has such gradients and passes over them
            return None
        broken: list[tuple[int, str]] = []

        def look() -> None:
            gradients = [(name, value.grad) for name, value in self.stepper.model.named_parameters() if value.grad is not None]
            if bad := [name for name, gradient in gradients if not gradient.isfinite().all()]:
                broken.append((self.counts.step, bad[-1]))

        if not self.quiet:
            say("the loss is no longer a number: looking for the layer where it began")
        self.stepper.forget_recorded()
        self.stepper.watch = look
        self.stepper.optimizer.forget()  # a state from before the first step holds nothing of it
        self.slots = Slots(self.folder.path / STATE, self.world)
        try:
            self._restore()
        except VitralError:
            return None  # the error is about the loss, not about why this could not be looked at
        for batch in self._batches(lambda: bool(broken) or self.counts.step > step or bool(self.interrupts.asked)):
            self._learn(batch)
        return broken[0] if broken else None

    # ---- journal, validation, state --------------------------------------------------------------------------------------------

    def _write_line(self) -> None:
        counts = self.counts
        if counts.step == counts.line_step:
            return
        figures = self.task.journal(counts.mean_loss, counts.mean_correct)
        counts.accuracy = figures.get("accuracy")
        self._record("train", figures, counts.images_per_second)
        counts.begin_line()

    def _record(self, split: str, scores: dict[str, float], speed: float, **more: Any) -> None:
        """A line of the journal."""
        counts = self.counts
        where = {"step": counts.step, "epoch": round(counts.step / len(self.loader), 4), "split": split}
        speeds = {"lr": counts.lr, "images_per_second": round(speed, 1), "seconds": round(counts.seconds, 3)}
        self.journal.write({**where, **scores, **speeds, **more})

    def _validate(self, bar: Progress) -> None:
        counts = self.counts
        with self.stepper.inside(), self.times.taking("validation"):
            began = time.perf_counter()
            held = self.task.validate(self.stepper, counts.step)
            seconds = time.perf_counter() - began
        if held is None:
            return
        scores = {"loss": held.loss} if held.accuracy is None else {"loss": held.loss, "accuracy": held.accuracy}
        self._record("validation", scores, held.images / seconds, **held.figures)
        bar.advance(0, **held.shown)
        if held.score is not None:
            counts.waited += 1
            if held.score > counts.best:
                counts.best, counts.waited = held.score, 0
                if self.train.keep == "best":
                    self.best = {name: value.clone() for name, value in self.stepper.values().items()}
        self.task.review(held, counts, self._progress(), self.quiet)

    def _snapshot_due(self) -> bool:
        if not self.train.snapshots:
            return False
        planned, written = snapshots_by(self.train.snapshots, self.counts.step, self._progress()), self.counts.snapshots
        self.counts.snapshots = max(planned, written)
        return planned > written

    def _snapshot(self) -> None:
        model = self.stepper.complete(self.stepper.values())
        if self.world.main:
            self.folder.write_snapshot(self.counts.step, model)
        self.world.barrier()

    def _save(self) -> None:
        counts, stepper = self.counts, self.stepper
        counts.updates = stepper.ema.updates if stepper.ema is not None else 0
        tensors = stepper.tensors()
        if self.best is not None:
            tensors |= {f"best/{name}": value for name, value in self.best.items()}
        scaler = stepper.scaler.state_dict() if stepper.scaler is not None else None
        journal = self.journal.position()
        self.slots.write(tensors, {"step": counts.step, "counts": dataclasses.asdict(counts), "journal": journal, "scaler": scaler})
        self._saved_at = time.perf_counter()

    def _restore(self) -> int:
        """Put everything back as the checkpoint has it; returns the journal's position."""
        stepper, stored, names = self.stepper, self.slots.progress(), self.slots.names()
        if any(name.startswith("best/") for name in names):
            self.best = {name: torch.empty_like(value) for name, value in stepper.values().items()}
        tensors = {name: value for name, value in stepper.tensors().items() if not name.startswith("optimizer/")}
        tensors |= optimizer_templates(names, stepper.parameters)
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        self.slots.read(tensors)
        stepper.optimizer.load({name.removeprefix("optimizer/"): value for name, value in tensors.items() if name.startswith("optimizer/")})
        self.counts = from_dict(Counts, stored["counts"], PROGRESS)
        for average in (stepper.ema, stepper.task_ema):
            if average is not None:
                average.updates = self.counts.updates
        if stepper.scaler is not None and stored["scaler"] is not None:
            stepper.scaler.load_state_dict(stored["scaler"])
        self.slots.restore_random(self.train.seed, self.counts.step)
        return stored["journal"]

    # ---- the end ---------------------------------------------------------------------------------------------------------------

    def _finish(self) -> tuple[Classifier, Any]:
        """The final weights, the model's files, and the splits that are opened now, once."""
        stepper, model = self.stepper, self.setup.model
        final = self.best if self.train.keep == "best" and self.best is not None else stepper.values()
        if broken := next((name for name, value in final.items() if not local(value).isfinite().all()), None):
            raise failure.broken_weights(broken)
        live = {name: value.detach() for name, value in model.state_dict().items()}
        copy_values({name: value.clone() for name, value in final.items()}, live)
        result = self.task.finish(stepper)
        complete = stepper.complete(sharded=self.world.many and self.world.strategy == "fsdp")
        if self.world.main:
            self.folder.write_model(complete)
        self.world.barrier()
        for split in self.config.opens:  # the journal ends with test
            self._open(split)
        self.journal.close()
        self.times.parts["training"] = self.counts.seconds
        if self.world.main:
            self.folder.write_environment({"data": self.setup.data.describe(), "times": self.times.to_dict()})
            self.folder.close_journal()
        self.world.barrier()
        return complete.eval(), result

    def _open(self, split: str) -> None:
        data = self.setup.data
        with self.times.taking(split):
            began = time.perf_counter()
            result = self.task.score(self.stepper, held_out_loader(self.setup, data.open(split), self.world))
            speed = len(result.labels) / (time.perf_counter() - began)
        if self.world.main:
            self.folder.write_answers({**result.to_dict(), "opened": data.opened.get(split)}, result.answers(data.open(split)), split)
        scores = {"loss": result.loss, "accuracy": result.top1}
        self._record(split, scores, speed, **result.journal, compile_seconds=round(self.compile_seconds, 3))
        if not self.quiet:
            for note in advice.copied(data, split):
                say(f"note: {note}")
            say(f"{split} {result.headline}, loss {result.loss:.4f}, {self.counts.seconds:.1f} s of training; {self.folder.path}")

    def _environment(self) -> dict[str, Any]:
        """What the result depends on besides the config."""
        every, learning = advice.parameters(self.setup.model)
        return {
            **describe_machine(),
            "device": self.setup.device.type,
            "processes": self.world.size,
            "strategy": self.world.strategy if self.world.many else "one process",
            "precision": str(self.stepper.dtype).removeprefix("torch."),
            "compiled": self.stepper.compiled,
            "compile_seconds": round(self.compile_seconds, 3),
            "parameters": every,
            "trained_parameters": learning,
            "forward_flops": None if self.config.model.family == "own" else forward_flops(self.config.model),
            "data": self.setup.data.describe(),
        }
