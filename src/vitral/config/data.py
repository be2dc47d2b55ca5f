"""Which pictures to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import ConfigError
from vitral.base.settings import at_least, check_values, lists_as_tuples

Augmentation = Literal["none", "light", "standard", "resized-crop", "strong", "randaugment", "trivialaugment", "autoaugment"]
"""Policies of data/augment.py."""


@dataclass(frozen=True)
class DataConfig:
    """Which pictures, how they are split, and what is done to them before the model sees them."""

    name: str = "digits"
    """A name from `vitral data list`, `folder:PATH`, `csv:FILE`, `parquet:FILE`, `hf:NAME` or `webdataset:PATTERN`."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    validation: float = 0.1
    """Share of the training pictures carved out for validation, class by class (an own validation folder takes precedence)."""
    stage: Literal["open", "choose", "confirm"] = "open"
    """What a run may see of a named set. choose: for comparing settings; a fixed tenth of the training pictures (sealed) and test stay
    closed. confirm: learns from all but the sealed ones, and is scored on them and on test. open: learns from all, is scored on test."""
    split_seed: int = 0
    """Seed of the carved splits; the same in every run that is to be compared."""
    split_by: Literal["class", "chance"] = "class"
    """class: each class is carved by its share; chance: pictures are drawn whatever they show, so that no label need be read."""
    subset: float | None = None
    """Number (≥ 1) or share (< 1) of training images; nested and class-balanced. None: all."""
    subset_seed: int | None = None
    """Which pictures a subset holds; None: as split_seed says. A data study draws them anew for each of its seeds."""
    augment: Augmentation = "standard"
    """Random changes of training images; the last three policies are torchvision's."""
    mixup: float | None = None
    """Share of batches mixed pixel-wise; None: what the policy says."""
    cutmix: float | None = None
    """Share of batches mixed by pasting a rectangle; None: what the policy says."""
    resize: Literal["short", "squash"] | None = None
    """None: as the weights' origin says, else short side + centre crop (`squash` for data that is already small)."""
    mean: tuple[float, ...] | None = None
    """Per channel; None: as the weights' origin says, else the data set's own."""
    std: tuple[float, ...] | None = None
    """Per channel; None: where the mean comes from."""
    workers: int = 0
    """Processes that decode pictures when the set is streamed; 0: in this process."""
    placement: Literal["auto", "device", "stream"] = "auto"
    """device: whole set on the device as bytes; stream: decode while training; auto: device when it is small."""
    cache: int | None = None
    """Pixels of the short side to which streamed training photographs are resized once and kept on the disk, so that they are not decoded
    in every epoch (0: at their full size, every pixel the same). None: none is kept."""
    on_bad_image: Literal["fail", "skip"] = "fail"
    """Fail on unreadable files, or skip them."""
    fingerprint: Literal["names", "content"] = "names"
    """How a run knows its pictures again when it goes on. names: by name, size and class; content: by every byte, which is read once."""
    class_weights: bool = False
    """Weigh the loss against unbalanced classes."""

    def __post_init__(self) -> None:
        lists_as_tuples(self)
        check_values(self)
        if not 0 <= self.validation < 1:
            raise ConfigError(f"validation {self.validation} is not a share", "use a number from 0 to below 1, such as 0.1")
        if (self.mixup or 0) < 0 or (self.cutmix or 0) < 0 or (self.mixup or 0) + (self.cutmix or 0) > 1:
            raise ConfigError(
                f"mixup {self.mixup} and cutmix {self.cutmix} are no shares of all batches", "use two that add up to 1 at most"
            )
        if self.subset is not None and self.subset <= 0:
            raise ConfigError(f"subset {self.subset} is not positive", "use a share below 1 or a number of pictures")
        if self.stage == "choose" and not self.validation:
            raise ConfigError("stage = choose has no validation pictures to choose on", "set validation to 0.1")
        at_least(self, "workers", 0)
        if self.cache is not None:
            at_least(self, "cache", 0)
        if not self.name:
            raise ConfigError("no data set given", "use a name from `vitral data list` or folder:PATH")
