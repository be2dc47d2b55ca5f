"""What tests need in processes that can be killed: PyTorch is imported and warmed up once, every run is a fork of that.

python workers.py kills NUMBER SEED FOLDER     kill -9 a training NUMBER times, then compare with an undisturbed one
python workers.py kills-dino NUMBER SEED FOLDER      the same without labels: the teacher and its centre have to go on too
python workers.py parallel FOLDER              one process, DDP and FSDP2 with two, and two resumed as one
python workers.py pretrained FOLDER            without labels: one process, and DDP with two
python workers.py clock FOLDER                 DDP with two whose clocks differ, ended by seconds: the weights of each
python workers.py lost FOLDER                  a process dies; how long until the other ends, and with what words
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any, Literal

import torch

torch.set_num_threads(1)
import torch.distributed.checkpoint  # noqa: E402
import torch.distributed.fsdp  # noqa: E402
import torch.distributed.tensor  # noqa: E402
from stops import after_steps, signalled_after  # noqa: E402

from vitral.base.errors import VitralError  # noqa: E402
from vitral.config import RunConfig  # noqa: E402
from vitral.presets.runs import pretraining, run  # noqa: E402
from vitral.train.fit import fit  # noqa: E402


def tiny(**changes: Any) -> RunConfig:
    """A few quick steps on digits with everything that has state: dropout, average, momentum, best weights."""
    settings = {"epochs": 0.8, "batch_size": 64, "threads": 1, "device": "cpu", "evaluate_every": 0.3, "optimizer": "muon", "lr": 0.02}
    config = run("digits", **(settings | changes))
    model = dataclasses.replace(config.model, width=16, depth=2, heads=2, mlp_width=16, dropout=0.1, drop_path=0.1)
    return dataclasses.replace(config, model=model)


def without_labels(method: Literal["lejepa", "dino"] = "lejepa", **changes: Any) -> RunConfig:
    config = pretraining("digits", method)
    assert config.pretrain is not None
    model = dataclasses.replace(config.model, width=16, depth=2, heads=2, mlp_width=16, drop_path=0.0)
    settings = {"epochs": 0.5, "batch_size": 64, "threads": 1, "device": "cpu", "evaluate_every": 0.25, "checkpoint_every": 1000.0}
    train = dataclasses.replace(config.train, **(settings | changes))
    small = dataclasses.replace(config.pretrain, projection=8, projection_hidden=16, directions=16, prototypes=32)
    return dataclasses.replace(config, model=model, train=train, pretrain=small)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def journal(folder: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    told = ("step", "split", "loss", "accuracy", "lr", "teacher_entropy", "teacher_entropy_of_mean", "effective_rank")
    return [tuple(line.get(name) for name in told) for line in lines]


def fork(job: Any) -> int:
    """Run `job` in a child of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            job()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---- kill -9 -------------------------------------------------------------------------------------------------------------------


def kills(number: int, seed: int, folder: Path, config: RunConfig) -> dict[str, Any]:
    draw = random.Random(seed)
    fit(config, out=folder / "warm", quiet=True)
    began = time.monotonic()
    fit(config, out=folder / "whole", quiet=True)
    whole_seconds = time.monotonic() - began
    disturbed = folder / "disturbed"
    moments: list[str] = []
    while len(moments) < number:
        begun = (disturbed / "config.json").exists()
        if len(moments) % 2:  # at a random time
            delay = draw.uniform(0.1, whole_seconds)
            child = fork(lambda begun=begun: fit(config, out=disturbed, resume=begun, quiet=True))
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        else:  # while a checkpoint is being written
            count = draw.randrange(1, 40)
            child = fork(lambda begun=begun, count=count: (die_in_write(count), fit(config, out=disturbed, resume=begun, quiet=True)))
            delay = -1.0
        code = ended(child)
        if code == 0:  # it was done before: begin again, so that every kill counts
            import shutil

            shutil.rmtree(disturbed)
        else:
            assert code == -signal.SIGKILL, code
            moments.append("in a write" if delay < 0 else f"after {delay:.2f} s")
    begun = (disturbed / "config.json").exists()
    assert ended(fork(lambda: fit(config, out=disturbed, resume=begun, quiet=True))) == 0
    return {
        "moments": moments,
        "same_weights": digest(folder / "whole") == digest(disturbed),
        "same_journal": journal(folder / "whole") == journal(disturbed),
        "told": len(journal(disturbed)),
    }


def die_in_write(count: int) -> None:
    """SIGKILL to ourselves at the count-th time that something is put on disk."""
    real, seen = os.fsync, [0]

    def fsync(handle: Any) -> None:
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    os.fsync = fsync


# ---- two processes -------------------------------------------------------------------------------------------------------------


def together(job: Any, size: int = 2) -> list[int]:
    """Fork `size` ranks of one training."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def rank(number: int) -> None:
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        job(number)

    return [fork(lambda number=number: rank(number)) for number in range(size)]


def parallel(folder: Path) -> dict[str, Any]:
    # No dropout here: it differs between processes by design. Mixed labels, accumulation and clipping must not.
    config = tiny(clip=0.5, mixup=0.4, accumulate=2, checkpoint_every=1000.0)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, dropout=0.0, drop_path=0.0))
    fit(config, out=folder / "one", quiet=True)
    losses = {"one": journal(folder / "one")}
    for strategy in ("ddp", "fsdp"):
        asked = dataclasses.replace(config, train=dataclasses.replace(config.train, strategy=strategy))
        for child in together(lambda number, asked=asked, strategy=strategy: fit(asked, out=folder / strategy, quiet=True)):
            assert ended(child) == 0
        losses[strategy] = journal(folder / strategy)

        def stopped(number: int, asked: RunConfig = asked, strategy: str = strategy) -> None:
            try:
                with signalled_after(6) if number == 1 else nullcontext():
                    fit(asked, out=folder / f"{strategy}-to-one", quiet=True)
            except VitralError as error:
                assert "everything is saved" in str(error)
                return
            raise AssertionError("it went on")

        for child in together(stopped):
            assert ended(child) == 0
        assert ended(fork(lambda strategy=strategy: fit(config, out=folder / f"{strategy}-to-one", resume=True, quiet=True))) == 0
        losses[f"{strategy}-to-one"] = journal(folder / f"{strategy}-to-one")
    return losses


def pretrained(folder: Path) -> dict[str, Any]:
    """Two processes learn without labels what one learns: the test for a Gaussian, the teacher's centre and the batch norms are over the
    whole batch. (The masked autoencoder hides other patches in each process.)"""
    found: dict[str, Any] = {}
    for method in ("lejepa", "dino"):
        config, place = without_labels(method), folder / method
        fit(config, out=place / "one", quiet=True)
        for child in together(lambda number, config=config, place=place: fit(config, out=place / "two", quiet=True)):
            assert ended(child) == 0
        found[method] = {name: journal(place / name) for name in ("one", "two")}
    return found


def clock(folder: Path) -> dict[str, Any]:
    """Seconds are the budget, and the second process's clock has got through more of them."""
    config = tiny(epochs=1e6, max_seconds=1.5, evaluate_every=1e6, checkpoint_every=1000.0)

    def job(number: int) -> None:
        clock = time.perf_counter
        time.perf_counter = lambda: (1 + 0.2 * number) * clock()
        learnt = fit(config, out=folder / "run", quiet=True).model.state_dict()
        (folder / f"weights-{number}").write_text(
            hashlib.sha256(b"".join(value.numpy().tobytes() for value in learnt.values())).hexdigest()
        )

    for child in together(job):
        assert ended(child) == 0
    return {"weights": [(folder / f"weights-{number}").read_text() for number in range(2)], "lines": len(journal(folder / "run"))}


def lost(folder: Path) -> dict[str, Any]:
    config = tiny(epochs=50.0)
    fit(tiny(epochs=0.1), out=folder / "warm", quiet=True)

    def job(number: int) -> None:
        def die(steps: int) -> None:
            if steps == 5 and number == 1:
                (folder / "died").write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)

        words = io.StringIO()
        with redirect_stderr(words), after_steps(die):
            try:
                fit(config, out=folder / "lost", quiet=True)
            except VitralError as error:
                words.write(str(error))
        (folder / "words").write_text(words.getvalue())
        os._exit(7)

    first, second = together(job)
    assert ended(second) == -signal.SIGKILL
    ended(first)
    return {"seconds": time.time() - float((folder / "died").read_text()), "words": (folder / "words").read_text()}


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    target = Path(rest[-1])
    if what.startswith("kills"):
        killed = tiny(checkpoint_every=0.0, keep="best") if what == "kills" else without_labels("dino", epochs=1.0, checkpoint_every=0.0)
        result = kills(int(rest[0]), int(rest[1]), target, killed)
    else:
        result = {"parallel": parallel, "lost": lost, "pretrained": pretrained, "clock": clock}[what](target)
    print(json.dumps(result))
