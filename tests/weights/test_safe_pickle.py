"""A pickle's names and claims are checked before PyTorch makes anything of them."""

from __future__ import annotations

import collections
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from fuzz.confined import confined
from vitral.base.errors import WeightsError
from vitral.weights.read import read_weights

MAGIC = 0x1950A86A20F9469CFC6C


class Call:
    """Pickled as a call of `name` with `arguments`."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return self.function, self.arguments


def zipped(path: Path, content: object) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/version", "3\n")
    return path


def legacy(path: Path, content: object) -> Path:
    path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in (MAGIC, 1001, {"little_endian": True}, content, [])))
    return path


@pytest.mark.parametrize("write", [zipped, legacy])
@pytest.mark.parametrize("function", [bytearray, torch.Tensor, torch.FloatTensor])
def test_a_few_bytes_cannot_ask_for_gigabytes(tmp_path: Path, write, function) -> None:
    path = write(tmp_path / "bomb.pth", {"cls_token": Call(function, 2**31)})
    assert path.stat().st_size < 500
    before = confined(lambda: None).memory
    ending = confined(lambda: read_weights(path), seconds=10)
    assert ending.kind == "refused" and "other than tensors" in ending.message and ending.memory - before < 50_000_000, ending


def test_a_tensor_cannot_be_larger_than_its_storage(tmp_path: Path) -> None:
    torch.save({"cls_token": torch.zeros(4)}, tmp_path / "sound.pth")
    with zipfile.ZipFile(tmp_path / "sound.pth") as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    name = next(entry for entry in entries if entry.endswith("data.pkl"))
    assert entries[name].count(b"K\x04\x85") == 1  # the tuple (4,)
    entries[name] = entries[name].replace(b"K\x04\x85", b"J\x00\x00\x00\x20\x85")
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
    before = confined(lambda: None).memory
    ending = confined(lambda: read_weights(tmp_path / "bomb.pth"), seconds=10)
    assert ending.kind == "refused" and "in a storage of 4 numbers" in ending.message and ending.memory - before < 50_000_000, ending


@pytest.mark.parametrize("new", [True, False])
def test_what_training_scripts_keep_beside_the_weights_is_let_through(tmp_path: Path, new: bool) -> None:
    kept = {
        "model": collections.OrderedDict(weight=torch.nn.Parameter(torch.ones(2, 3).t()), half=torch.zeros(3, dtype=torch.bfloat16)),
        "milestones": collections.Counter({3: 1}),
        "dtype": torch.float16,
        "shape": torch.Size([2]),
        "device": torch.device("cpu"),
        "seen": {1, 2},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
    }
    torch.save(kept, tmp_path / "run.pth", _use_new_zipfile_serialization=new)
    found = read_weights(tmp_path / "run.pth").tensors
    assert {name: tuple(value.shape) for name, value in found.items()} == {"weight": (3, 2), "half": (3,)}


def test_two_pickles_in_one_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(zipped(tmp_path / "two.pth", {}), "a") as archive:
        archive.writestr("other/data.pkl", b"")
    with pytest.raises(WeightsError, match="2 pickles"):
        read_weights(tmp_path / "two.pth")
