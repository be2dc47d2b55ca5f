"""Weights files → tensors by name, safely: no code is run, and sizes are checked before memory is asked for.

`.safetensors` holds no code; `.pth`, `.pt`, `.bin` are pickles and are read with `weights_only=True`; `.npz` without pickle.
Anything damaged or malicious ends in one WeightsError.
"""

from __future__ import annotations

import json
import math
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vitral.base.errors import MissingError, WeightsError
from vitral.weights.safe_pickle import CODE, MALICIOUS, scan_pickle

_DAMAGED = "the file is damaged or not what its name says: fetch it again"
HEADER_LIMIT = 100 * 2**20
_ARCHIVE_LIMIT = 20
"""A compressed archive may unpack to at most this many times its size (weights hardly compress)."""
SMALL = 64 * 2**20

# Dictionaries that training scripts put around the weights, EMA and the teacher's first.
_WRAPPERS = (
    "state_dict_ema",
    "model_ema",
    "ema_state_dict",
    "ema",
    "teacher",
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "params",
    "student",
)


@dataclass(frozen=True)
class Contents:
    """What a file holds."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    """What was unwrapped on the way."""


def read_weights(path: str | Path) -> Contents:
    """All tensors of a weights file."""
    path = Path(path)
    if not path.exists():
        raise MissingError(f"{path} does not exist", "check the path")
    if not path.is_file():
        raise WeightsError(f"{path} is not a file", "check the path")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise WeightsError(
            f"{path.name}: files ending in {path.suffix or 'nothing'!r} are not read", f"known endings: {', '.join(READERS)}"
        )
    if path.stat().st_size == 0:
        raise WeightsError(f"{path} is empty", "fetch it again")
    try:
        contents = reader(path)
    except (OSError, MemoryError) as error:
        raise WeightsError(f"{path} cannot be read ({reason(error)})", _DAMAGED) from None
    if not contents.tensors:
        raise WeightsError(f"{path} holds no tensors", _DAMAGED)
    return contents


def _read_safetensors(path: Path) -> Contents:
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(HEADER_LIMIT, size - 8):
            raise WeightsError(f"{path} declares a header of {length:,} bytes in a file of {size:,}", _DAMAGED)
        _check_header(path, file.read(length), size - 8 - length)
    try:
        with safe_open(path, framework="pt") as archive:
            return Contents({key: archive.get_tensor(key) for key in list(archive.keys())})
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise WeightsError(f"{path} is not a sound safetensors file ({reason(error)})", _DAMAGED) from None


def _check_header(path: Path, header: bytes, room: int) -> None:
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"]
        sound = all(isinstance(end, int) and 0 <= end <= room for end in ends)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise WeightsError(f"{path} has a header that does not describe its contents", _DAMAGED)


def _read_pickle(path: Path) -> Contents:
    size = path.stat().st_size
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            check_archive(path)
        scan_pickle(path, zipped)
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except WeightsError:
        raise
    except Exception as error:  # the unpickler of a hostile file can raise anything at all
        if isinstance(error, pickle.UnpicklingError) and ("weights only" in str(error).lower() or "unsupported" in str(error).lower()):
            raise WeightsError(f"{path} {CODE}", MALICIOUS) from None
        raise WeightsError(f"{path} is not a sound PyTorch file ({reason(error)})", _DAMAGED) from None
    contents = _unwrap(path, loaded)
    _check_tensors(path, contents.tensors, size)
    return contents


def check_archive(path: Path) -> None:
    """The unpacked size that a zip archive declares stays near its real size."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            declared = sum(entry.file_size for entry in entries)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError) as error:
        raise WeightsError(f"{path} is not a sound archive ({reason(error)})", _DAMAGED) from None
    if any(entry.filename.rpartition("/")[2] == "constants.pkl" for entry in entries):
        raise WeightsError(f"{path} is a TorchScript program, not a file of weights", "save its state_dict() as .safetensors and load that")
    size = path.stat().st_size
    if declared > max(SMALL, _ARCHIVE_LIMIT * size):
        raise WeightsError(f"{path} has {size:,} bytes and would unpack to {declared:,}", MALICIOUS)


def _unwrap(path: Path, loaded: Any) -> Contents:
    """The dictionary of tensors inside the training script's dictionaries."""
    notes: list[str] = []
    for _ in range(4):
        if not isinstance(loaded, dict):
            raise WeightsError(f"{path} holds a {type(loaded).__name__}, not a dictionary of tensors", "save the model's state_dict()")
        inner = next((name for name in _WRAPPERS if isinstance(loaded.get(name), dict) and loaded[name]), None)
        if inner is None or any(isinstance(value, Tensor) and value.ndim > 0 for value in loaded.values()):
            break
        notes.append(f"weights taken from {inner!r} of the file")
        loaded = loaded[inner]
    tensors = {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}
    return Contents(tensors, tuple(notes))


def _check_tensors(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """No tensor that is larger than the bytes behind it (sparse, or one number repeated a million times)."""
    total = 0
    for key, tensor in tensors.items():
        needed = tensor.numel() * tensor.element_size()
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or needed > tensor.untyped_storage().nbytes():
            raise WeightsError(f"{key} in {path} is not a plain tensor", MALICIOUS)
        total += needed
    if total > max(SMALL, 4 * size):
        raise WeightsError(f"{path} has {size:,} bytes and declares tensors of {total:,}", MALICIOUS)


def _read_npz(path: Path) -> Contents:
    check_archive(path)
    tensors: dict[str, Tensor] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as member:
                    shape, dtype = _npy_header(member)
                    if dtype.hasobject:
                        raise WeightsError(f"{entry.filename} in {path} holds Python objects", MALICIOUS)
                    if math.prod(shape) * dtype.itemsize > entry.file_size:
                        raise WeightsError(f"{entry.filename} in {path} declares more numbers than it has", _DAMAGED)
        with np.load(path, allow_pickle=False) as arrays:
            for key in arrays.files:
                array = arrays[key]
                # Google keeps bfloat16 as two raw bytes a number.
                raw = (
                    torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
                    if array.dtype.kind == "V" and array.dtype.itemsize == 2
                    else None
                )
                tensors[key] = raw if raw is not None else torch.from_numpy(np.ascontiguousarray(array))
    except WeightsError:
        raise
    except Exception as error:  # zlib, zipfile and NumPy each have their own errors for damaged input
        raise WeightsError(f"{path} is not a sound .npz file ({reason(error)})", _DAMAGED) from None
    return Contents(tensors)


def _npy_header(member: Any) -> tuple[tuple[int, ...], Any]:
    version = npy.read_magic(member)
    read: Callable[..., Any] = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def reason(error: BaseException) -> str:
    """What another library's error says, in one line of an error of ours."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:159] + "…"


READERS: dict[str, Callable[[Path], Contents]] = {
    ".safetensors": _read_safetensors,
    ".pth": _read_pickle,
    ".pt": _read_pickle,
    ".bin": _read_pickle,
    ".npz": _read_npz,
}
