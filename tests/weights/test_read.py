"""Damaged and malicious files: always the one-line error, nothing run, never a half-loaded model."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from vitral.base.errors import VitralError, WeightsError
from vitral.build import create
from vitral.weights.export import export
from vitral.weights.load import load
from vitral.weights.read import read_weights


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> dict[str, bytes]:
    """One small model in every file format."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sound")
    model = create("tiny", depth=1, width=24, mlp_width=32, classes=3).eval()
    files = {
        ".safetensors": export(model, folder / "timm", "timm"),
        ".pth": export(model, folder / "torchvision", "torchvision"),
        ".npz": export(model, folder / "npz", "npz"),
    }
    return {ending: path.read_bytes() for ending, path in files.items()}


def attempt(folder: Path, name: str, content: bytes) -> str | None:
    """None when a whole model came out, the message when it was refused; anything else fails the test."""
    path = folder / name
    path.write_bytes(content)
    try:
        model = load(path, heads=3)
    except VitralError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return str(error)
    assert model(torch.zeros(1, 3, *model.config.image_size)).shape == (1, model.config.classes)
    return None


FUZZ = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


@pytest.mark.parametrize("ending", [".safetensors", ".pth", ".npz"])
def test_the_sound_files_load(sound, tmp_path, ending) -> None:
    assert attempt(tmp_path, "sound" + ending, sound[ending]) is None


@pytest.mark.parametrize("ending", [".safetensors", ".pth", ".npz"])
@given(share=st.floats(0, 0.999))
@FUZZ
def test_cut_ends(sound, tmp_path, ending, share) -> None:
    content = sound[ending]
    assert attempt(tmp_path, "cut" + ending, content[: int(len(content) * share)]) is not None


@given(position=st.integers(0, 1200), bit=st.integers(0, 7))
@FUZZ
def test_bit_flips_in_the_header(sound, tmp_path, position, bit) -> None:
    content = bytearray(sound[".safetensors"])
    content[position] ^= 1 << bit
    attempt(tmp_path, "flipped.safetensors", bytes(content))


@pytest.mark.parametrize("ending", [".pth", ".npz"])
@given(position=st.integers(0, 2**31), bit=st.integers(0, 7))
@FUZZ
def test_bit_flips_in_archives(sound, tmp_path, ending, position, bit) -> None:
    content = bytearray(sound[ending])
    content[position % len(content)] ^= 1 << bit
    attempt(tmp_path, "flipped" + ending, bytes(content))


@given(content=st.binary(max_size=300), ending=st.sampled_from([".safetensors", ".pth", ".npz", ".bin", ".pt"]))
@FUZZ
def test_any_bytes_at_all(tmp_path, content, ending) -> None:
    assert attempt(tmp_path, "noise" + ending, content) is not None


def test_swapped_tensors_and_wrong_shapes(sound, tmp_path) -> None:
    from safetensors.torch import load as parse

    tensors = parse(sound[".safetensors"])
    swapped = dict(tensors)
    first, second = "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight"
    swapped[first], swapped[second] = tensors[second], tensors[first]
    assert "shape" in (attempt(tmp_path, "swapped.safetensors", save(swapped)) or "")
    bent = dict(tensors, pos_embed=tensors["pos_embed"][:, :-3].contiguous())
    assert "square" in (attempt(tmp_path, "bent.safetensors", save(bent)) or "")
    flat = dict(tensors, **{"patch_embed.proj.weight": tensors["patch_embed.proj.weight"].flatten()})
    assert attempt(tmp_path, "flat.safetensors", save(flat)) is not None


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


@pytest.mark.parametrize("ending", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_bombs_do_not_go_off(tmp_path, monkeypatch, ending, zipped) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"cls_token": torch.zeros(1)}, "bomb": Bomb()}, tmp_path / "torch.pth", _use_new_zipfile_serialization=zipped)
    for content in (pickle.dumps(Bomb()), (tmp_path / "torch.pth").read_bytes()):
        message = attempt(tmp_path, "bomb" + ending, content)
        assert message is not None
        assert not (tmp_path / "exploded").exists()
    assert "code or objects" in (message or "")


def test_an_npz_with_objects_is_not_unpickled(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "bomb.npz", cls=np.array([Bomb()], dtype=object))
    with pytest.raises(WeightsError, match="Python objects"):
        read_weights(tmp_path / "bomb.npz")
    assert not (tmp_path / "exploded").exists()


def test_declared_sizes_are_checked_before_memory_is_asked_for(tmp_path) -> None:
    header = json.dumps({"cls_token": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (tmp_path / "huge.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(WeightsError, match="header"):
        read_weights(tmp_path / "huge.safetensors")
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(WeightsError, match="1,152,921,504,606,846,976"):
        read_weights(tmp_path / "long.safetensors")
    with zipfile.ZipFile(tmp_path / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cls.npy", _npy(np.zeros(2**25, np.float32)))
    with pytest.raises(WeightsError, match="unpack"):
        read_weights(tmp_path / "zeros.npz")
    few = _npy(np.zeros(2, np.float32)).replace(b"(2,), }" + b" " * 10, b"(1099511627776,), }")
    with zipfile.ZipFile(tmp_path / "few.npz", "w") as archive:
        archive.writestr("cls.npy", few)
    with pytest.raises(WeightsError, match="numbers"):
        read_weights(tmp_path / "few.npz")
    storage = torch.zeros(2**20)
    torch.save({f"blocks.{number}.gamma": storage.view(2**10, 2**10) for number in range(20)}, tmp_path / "shared.pth")
    with pytest.raises(WeightsError, match="83,886,080"):
        read_weights(tmp_path / "shared.pth")
    torch.save({"cls_token": torch.zeros(1).expand(2**40)}, tmp_path / "repeated.pth")
    with pytest.raises(WeightsError, match="plain tensor"):
        read_weights(tmp_path / "repeated.pth")


def test_a_header_is_not_read_when_it_is_too_long_to_be_one(sound, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitral.weights.read.HEADER_LIMIT", 64)
    assert "declares a header of" in (attempt(tmp_path, "long.safetensors", sound[".safetensors"]) or "")


def test_an_old_pickle_cannot_declare_more_than_it_has(tmp_path) -> None:
    torch.save({"cls_token": torch.zeros(70000)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    content = (tmp_path / "old.pth").read_bytes()
    count = struct.pack("<i", 70000)
    assert count in content
    (tmp_path / "old.pth").write_bytes(content.replace(count, struct.pack("<i", 2**31 - 1), 1))
    with pytest.raises(WeightsError, match="2,147,483,647"):
        read_weights(tmp_path / "old.pth")


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_averaged_weights_come_before_the_raw_ones(tmp_path) -> None:
    inner = {"state_dict_ema": 1.0, "model_ema": 2.0, "teacher": 3.0, "state_dict": 4.0, "model": 5.0, "student": 6.0}
    while inner:
        torch.save({name: {"cls_token": torch.full((1,), value)} for name, value in reversed(inner.items())}, tmp_path / "run.pth")
        first = next(iter(inner))
        found = read_weights(tmp_path / "run.pth")
        assert found.tensors["cls_token"].item() == inner.pop(first)
        assert found.notes == (f"weights taken from {first!r} of the file",)


def test_what_is_not_weights_is_named(tmp_path) -> None:
    for content, words in ((torch.zeros(3), "holds a Tensor"), ([1, 2], "holds a list"), ({"epoch": 3}, "no tensors")):
        torch.save(content, tmp_path / "other.pth")
        with pytest.raises(WeightsError, match=words):
            read_weights(tmp_path / "other.pth")
    with pytest.raises(WeightsError, match="exist"):
        read_weights(tmp_path / "nowhere.pth")
    (tmp_path / "weights.h5").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"\.safetensors"):
        read_weights(tmp_path / "weights.h5")
    (tmp_path / "empty.pth").write_bytes(b"")
    with pytest.raises(WeightsError, match="empty"):
        read_weights(tmp_path / "empty.pth")


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning", "ignore:.torch.jit:DeprecationWarning")
def test_torchscript_is_a_program_and_not_run(tmp_path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "clip.pt")
    with pytest.raises(WeightsError, match="TorchScript") as caught:
        read_weights(tmp_path / "clip.pt")
    assert "state_dict" in caught.value.hint


def test_bfloat16_of_google_is_understood(tmp_path) -> None:
    values = torch.tensor([1.0, -2.5, 3.25], dtype=torch.bfloat16)
    np.savez(tmp_path / "half.npz", cls=values.view(torch.int16).numpy().view("V2"))
    assert torch.equal(read_weights(tmp_path / "half.npz").tensors["cls"], values)
