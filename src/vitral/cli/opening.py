"""What the verbs that run a model share: its flags, opening it, finding the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vitral.base.errors import DataError, MissingError, UsageError
from vitral.config.formats import AnswerPrecision, Precision

if TYPE_CHECKING:
    from vitral.model.classifier import Classifier


@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """Running the model."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int | None = None
    """CPU threads that one operation may use; None: PyTorch's choice."""
    preprocess: str | None = None
    """Preparation of the model's images, if its file does not contain it; half, imagenet, clip …"""
    verbose: bool = False
    """Print everything that is assumed about the model."""


@dataclass(frozen=True, kw_only=True)
class AnswerFlags(ModelFlags):
    """Running it on many images."""

    batch: Annotated[int, "--batch --batch-size"] = 64
    """Images at a time: fewer need less memory."""
    precision: AnswerPrecision = "auto"
    """auto: bf16 where a CPU is quicker with it and a first batch has the same answers in both (a note says so), else fp32; of eval on a
    GPU: bf16. fp8: on a GPU of 2022 or later (Ada, Hopper …), with a note on how often bf16 gives the same answer."""


@dataclass(frozen=True, kw_only=True)
class FeatureFlags(AnswerFlags):
    """Reading features."""

    precision: Precision = "auto"
    """auto: bf16 where a CPU is quicker with it and a first batch has the same features in both (a note says so), else fp32."""


def open_model(name: str, flags: ModelFlags) -> Classifier:
    """Anything `vitral.load` takes, on its device. Prints to stderr what is assumed about it."""
    from vitral.base.device import pick_device, set_threads
    from vitral.base.progress import say
    from vitral.weights.load import load

    if flags.threads is not None:
        set_threads(flags.threads)
    device = pick_device(flags.device)
    model = load(name, preprocess=flags.preprocess, quiet=True)
    assumptions = model.origin.assumptions()
    if assumptions and flags.verbose:
        say("\n  ".join([f"{model.origin.source.value}; assumed:", *assumptions, "to set: --preprocess, or vitral weights convert"]))
    elif assumptions:
        names = [line.partition(" = ")[0] for line in assumptions]
        prepared = "; --preprocess sets how pictures are prepared" if "mean" in names else ""
        say(f"assumed: {', '.join(names)} (--verbose says more{prepared})")
    return model.to(device)


def picture_paths(names: Sequence[str]) -> list[Path]:
    """Files as they are, folders by the pictures in them and in their folders, sorted."""
    if not names:
        raise UsageError("no pictures given", "name at least one picture or a folder of pictures")
    paths = [Path(name) for name in names]
    if missing := next((path for path in paths if not path.exists()), None):
        raise MissingError(f"{missing} does not exist", "name a picture or a folder of pictures")
    if not any(path.is_dir() for path in paths):
        return paths
    from vitral.data.sources.pictures import find_pictures  # a second: it brings PyTorch

    return [match for path in paths for match in (find_pictures(path) if path.is_dir() else [path])]


def exit_status(names: Sequence[str], bad: Sequence[tuple[str, DataError]]) -> int:
    """1 where a picture that was named by hand could not be read, though the others were; what a folder holds may be passed over."""
    return int(not {str(Path(name)) for name in names}.isdisjoint(source for source, _ in bad))
