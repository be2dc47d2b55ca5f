"""The data sets that have a name, as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vitral.data.sources.protocol import ImageSet, Source

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Entry:
    """What is known about a named data set without having it."""

    name: str
    title: str
    train: int
    test: int
    classes: int
    megabytes: int
    """To fetch, about."""
    licence: str
    class_names: tuple[str, ...] = ()
    """Empty: read from the data."""
    channels: int = 3
    native_size: tuple[int, int] | None = None
    """Height and width, kept as one array per split; None: photographs of any size, kept as files."""
    flip: bool = True
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    validation: int = 0
    """Pictures that its publishers set aside for validation; 0: none, some are carved from the training pictures."""
    ways: tuple[str, ...] = ()
    """How it is got, in the order they are tried: keys of `fetch.WAYS`."""

    @property
    def size(self) -> str:
        """Of an image, in words."""
        if self.native_size is None:
            return "photographs"
        return f"{self.native_size[0]}×{self.native_size[1]} {'grey' if self.channels == 1 else 'RGB'}"

    def source(
        self, class_names: tuple[str, ...], train: ImageSet, where: str, validation: ImageSet | None = None, *, test: Callable[[], ImageSet]
    ) -> Source:
        """The data set itself, with what is known about it."""
        fields = {name: getattr(self, name) for name in ("name", "native_size", "channels", "flip", "mean", "std")}
        return Source(class_names=class_names, train=train, where=where, validation=validation, test=test, **fields)


_ENTRIES = (
    Entry(
        name="digits",
        title="handwritten digits, embedded in scikit-learn",
        train=1437,
        test=360,
        classes=10,
        megabytes=0,
        licence="CC BY 4.0 (UCI)",
        class_names=DIGITS,
        channels=1,
        native_size=(8, 8),
        flip=False,
        mean=(0.3053,),
        std=(0.3760,),
    ),
    Entry(
        name="mnist",
        title="handwritten digits",
        train=60_000,
        test=10_000,
        classes=10,
        megabytes=11,
        licence="CC BY-SA 3.0",
        class_names=DIGITS,
        channels=1,
        native_size=(28, 28),
        flip=False,
        mean=(0.1307,),
        std=(0.3081,),
        ways=("local", "torchvision", "npm"),
    ),
    Entry(
        name="fashion-mnist",
        title="articles of clothing",
        train=60_000,
        test=10_000,
        classes=10,
        megabytes=30,
        licence="MIT",
        class_names=FASHION,
        channels=1,
        native_size=(28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        ways=("local", "torchvision", "debian"),
    ),
    Entry(
        name="cifar10",
        title="small photographs of ten things",
        train=50_000,
        test=10_000,
        classes=10,
        megabytes=163,
        licence="none stated; research use",
        class_names=CIFAR10,
        native_size=(32, 32),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        ways=("local", "torchvision", "npm"),
    ),
    Entry(
        name="cifar100",
        title="small photographs of a hundred things",
        train=50_000,
        test=10_000,
        classes=100,
        megabytes=161,
        licence="none stated; research use",
        native_size=(32, 32),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        ways=("local", "torchvision"),
    ),
    Entry(
        name="tinyimagenet32",
        title="200 classes of ImageNet at 32 pixels (from tiny-imagenet-200, cs231n.stanford.edu)",
        train=100_000,
        test=10_000,
        classes=200,
        megabytes=237,
        licence="research use",
        native_size=(32, 32),
        ways=("local",),
    ),
    Entry(
        name="flowers102",
        title="Oxford flowers (10 pictures a class to train, 10 to validate)",
        train=1_020,
        test=6_149,
        classes=102,
        megabytes=345,
        licence="none stated; research use",
        validation=1_020,
        ways=("local", "torchvision"),
    ),
    Entry(
        name="pets",
        title="Oxford-IIIT cats and dogs of 37 breeds",
        train=3_680,
        test=3_669,
        classes=37,
        megabytes=792,
        licence="CC BY-SA 4.0",
        ways=("local", "torchvision"),
    ),
    Entry(
        name="imagenet",
        title="ILSVRC 2012, as folders train/CLASS and val/CLASS",
        train=1_281_167,
        test=50_000,
        classes=1000,
        megabytes=150_000,
        licence="research use, on request",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        ways=("local",),
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
