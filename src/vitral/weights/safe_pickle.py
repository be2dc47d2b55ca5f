"""A PyTorch pickle gone through with nothing built: what it names and what it claims, before PyTorch acts on it.

PyTorch's own `weights_only` loader runs no code, but it makes what a file asks for: a few hundred bytes may ask for a bytearray or a
tensor of gigabytes. Here every name outside a short list is refused, and every claimed number is held against the file's size.
"""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import torch

from vitral.base.errors import WeightsError

MALICIOUS = "it was not read; use a .safetensors file from a source you trust"
CODE = "contains code or objects other than tensors"
_LEGACY_PICKLES = 5
"""Magic number, protocol, system, the object, the keys of its storages."""


class _Storage:
    def __init__(self, numbers: int) -> None:
        self.numbers = numbers


class _Inert:
    """Stands for whatever holds no numbers: devices, dtypes, kinds of storage."""

    def __init__(self, *_: Any) -> None:
        pass


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Inert:
    if not isinstance(storage, _Storage) or min(offset, *size, *stride, 0) < 0:
        raise ValueError("a tensor without a storage")
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.numbers:
        raise ValueError(f"a tensor of {tuple(size)} in a storage of {storage.numbers:,} numbers")
    return _Inert()


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda data, *_: data,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("torch", "Size"): tuple,
    ("torch", "device"): _Inert,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("torch.storage", "UntypedStorage"): _Inert,
    ("torch.storage", "TypedStorage"): _Inert,
}


class _Refused(Exception):
    """A name that has no place among weights."""


class _Rehearsal(pickle._Unpickler):  # type: ignore[name-defined] # the one in Python: C's makes room for any number it is told
    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__(file, encoding="bytes")
        self.size = size

    def find_class(self, module: str, name: str) -> Any:
        if made := ALLOWED.get((module, name)):
            return made
        if module == "torch" and (name.endswith("Storage") or isinstance(getattr(torch, name, None), torch.dtype)):
            return _Inert
        raise _Refused(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        numbers = pid[4]
        if not isinstance(numbers, int) or not 0 <= numbers <= self.size:
            raise WeightsError(f"the file has {self.size:,} bytes and declares {numbers:,} numbers", MALICIOUS)
        return _Storage(numbers)


class _Bounded:
    """A file that is never asked for more than it has: memory is taken by what is asked for."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.size, self.readline = file, size, file.readline

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, self.size))


def scan_pickle(path: Path, zipped: bool) -> None:
    """One line when the file names or claims what weights do not."""
    size = path.stat().st_size
    try:
        if zipped:
            with ZipFile(path) as archive:
                pickles = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
                if len(pickles) != 1:
                    raise ValueError(f"{len(pickles)} pickles in one file")
                with archive.open(pickles[0]) as file:
                    _Rehearsal(file, size).load()
        else:
            with open(path, "rb") as file:
                for _ in range(_LEGACY_PICKLES):
                    _Rehearsal(_Bounded(file, size), size).load()  # type: ignore[arg-type]
    except _Refused as error:
        raise WeightsError(f"{path} {CODE} ({error})", MALICIOUS) from None
    except WeightsError as error:
        raise WeightsError(f"{path}: {error.message}", error.hint) from None
