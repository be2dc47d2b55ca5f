"""Damaged and hostile inputs by number: the same seed and number give the same case, whatever ran before.

Each kind has sound seeds, made once in a folder; a case damages one of them and uses it as a user would.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save as to_bytes

from vitral.base.records import write_records
from vitral.build import create
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess, open_picture
from vitral.data.sources.shards import open_shards
from vitral.data.splits.open import open_source
from vitral.look.predict import predict
from vitral.presets.runs import run as named_run
from vitral.report.study import write_report
from vitral.run.differences import differences
from vitral.run.folder import RunFolder
from vitral.run.survey import as_table, survey
from vitral.run.verify import verify
from vitral.train.fit import fit
from vitral.weights.checkpoint import save
from vitral.weights.export import export
from vitral.weights.load import load

INTERESTING = (0, 1, 2, 7, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 10**9, 2**62, 2**63 - 1)
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, 3, 10**9, 2**63, 10**30, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "../../etc", "folder:/etc", "\x1b[31mred\x07", "a" * 5000, "gelu", "class", [], {}, [1], [0, 0], [16, 16, 16], {"value": 1}),
    *([float("nan")] * 3, [1e9, 1e9], {"0": "a", "1": "b"}, [[]], [None], {"value": [None], "known": 1}),
)
PICTURES = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO")


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes turned, cut, repeated, filled with numbers that overflow."""
    out = bytearray(content)
    near = int(min(len(out), rng.choice((64, 512, len(out) or 1)))) or 1  # headers lie at the start
    for _ in range(int(rng.choice((1, 1, 2, 4, 16)))):
        place, how = int(rng.integers(near)), int(rng.integers(7))
        if how == 0:
            out[place : place + 1] = bytes([int(rng.integers(256))])
        elif how == 1 and place < len(out):
            out[place] ^= 1 << int(rng.integers(8))
        elif how == 2:
            width, order = int(rng.choice((2, 4, 8))), ("little", "big")[int(rng.integers(2))]
            number = int(INTERESTING[rng.integers(len(INTERESTING))]) % 256**width
            out[place : place + width] = number.to_bytes(width, order)  # type: ignore[arg-type]
        elif how == 3:
            del out[place : place + int(rng.integers(1, 32))]
        elif how == 4:
            out[place:place] = rng.bytes(int(rng.integers(1, 32)))
        elif how == 5:
            piece = out[place : place + int(rng.integers(1, 256))]
            out[place:place] = piece * int(rng.choice((1, 2, 100)))
        else:
            out = out[: int(rng.integers(len(out) + 1))]
        near = min(near, len(out)) or 1
    return bytes(out)


def bent(value: Any, rng: np.random.Generator) -> Any:
    """A JSON value with one to three of its parts replaced, removed or added."""
    value = json.loads(json.dumps(value))
    for _ in range(int(rng.integers(1, 4))):
        owner, key = value, None
        while isinstance(owner, dict | list) and len(owner):
            keys = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
            key = keys[int(rng.integers(len(keys)))]
            if not isinstance(owner[key], dict | list) or not len(owner[key]) or rng.random() < 0.2:
                break
            owner = owner[key]
        if key is None:
            return copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
        how = rng.random()
        if how < 0.15:
            del owner[key]
        elif how < 0.25 and isinstance(owner, dict):
            owner[str(STRANGE[rng.integers(len(STRANGE))])[:40]] = owner[key]
        else:
            owner[key] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
    return value


class Cases:
    """The seeds, in `folder`; `case(kind, number)` is what to run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        torch.manual_seed(0)
        self.model = create("tiny", depth=1, width=24, mlp_width=32, heads=3, classes=3, image_size=16, patch_size=8).eval()
        self.wants, self.image = (
            Preprocess((32, 32)),
            Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)),
        )
        self.run = self._train()
        self.pictures = self._pictures()
        self.weights = self._weights()
        self.shard = self._shard()
        self.kinds: dict[str, Callable[[np.random.Generator, Path], Any]] = {
            "pictures": self._a_picture,
            "weights": self._a_file,
            "configs": self._a_config,
            "run folders": self._a_run,
            "shards": self._a_shard,
            "web requests": self._a_request,
            "label tables": self._a_table,
        }

    def case(self, kind: str, number: int) -> Callable[[], Any]:
        def run() -> Any:
            rng = np.random.default_rng((self.seed, list(self.kinds).index(kind), number))
            scratch = self.folder / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            return self.kinds[kind](rng, scratch)

        return run

    # ---- sound seeds -----------------------------------------------------------------------------------------------------------

    def _pictures(self) -> list[tuple[str, bytes]]:
        found = []
        for kind in PICTURES:
            for image in (self.image, self.image.convert("L"), self.image.convert("P")):
                out, plain = io.BytesIO(), kind in ("JPEG", "PPM")
                options = {"progressive": True} if kind == "JPEG" and image.mode == "P" else {}
                (image.convert("RGB") if plain and image.mode == "P" else image).save(out, kind, **options)
                found.append((kind.lower(), out.getvalue()))
        for values in (np.asarray(self.image), np.zeros((8, 9, 5), np.uint8)):
            out = io.BytesIO()
            np.save(out, values)
            found.append(("npy", out.getvalue()))
        out = io.BytesIO()
        Image.fromarray(np.arange(99, dtype=np.uint16).reshape(9, 11)).save(out, "PNG")
        return [*found, ("png", out.getvalue())]

    def _weights(self) -> list[tuple[str, bytes]]:
        files = [export(self.model, self.folder / name, name) for name in ("timm", "torchvision", "npz", "hf")]
        places = [path if path.is_file() else path / "model.safetensors" for path in files]
        found = [(path.suffix, path.read_bytes()) for path in places]
        state = torch.load(places[1], weights_only=True)
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            out = io.BytesIO()
            torch.save({"model": state, "epoch": 3}, out, **options)
            found.append((".pth", out.getvalue()))
        return found

    def _train(self) -> Path:
        config = named_run("digits")
        train = dataclasses.replace(config.train, epochs=0.1, device="cpu", compile="no", snapshots=1)
        model = dataclasses.replace(config.model, depth=1, width=24, heads=3, mlp_width=32)
        return fit(dataclasses.replace(config, train=train, model=model), self.folder / "run", quiet=True).path

    def _shard(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for number in range(6):
                picture = io.BytesIO()
                self.image.save(picture, "PNG")
                for name, content in ((f"s{number}.png", picture.getvalue()), (f"s{number}.cls", b"%d" % (number % 2))):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        return out.getvalue()

    # ---- one case of each kind -------------------------------------------------------------------------------------------------

    def _a_picture(self, rng: np.random.Generator, scratch: Path) -> None:
        ending, content = self.pictures[rng.integers(len(self.pictures))]
        (scratch / f"p.{ending}").write_bytes(damaged(content, rng))
        open_picture(scratch / f"p.{ending}", self.wants)

    def _a_file(self, rng: np.random.Generator, scratch: Path) -> None:
        ending, content = self.weights[rng.integers(len(self.weights))]
        if ending == ".safetensors" and rng.random() < 0.5:
            content = self._other_tensors(content, rng)
        else:
            content = damaged(content, rng)
        (scratch / f"w{ending}").write_bytes(content)
        answered(load(scratch / f"w{ending}", heads=3), self.image)

    def _other_tensors(self, content: bytes, rng: np.random.Generator) -> bytes:
        """A sound file with tensors of other shapes, dtypes, values or names; or with a bent header."""
        from safetensors.torch import load as from_bytes

        if rng.random() < 0.5:
            length = int.from_bytes(content[:8], "little")
            header = json.dumps(bent(json.loads(content[8 : 8 + length]), rng)).encode()
            return len(header).to_bytes(8, "little") + header + content[8 + length :]
        tensors = from_bytes(content)
        for _ in range(int(rng.integers(1, 4))):
            name = list(tensors)[int(rng.integers(len(tensors)))]
            tensor, how = tensors[name], int(rng.integers(8))
            if how == 0:
                dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.bool, torch.uint8)
                tensors[name] = tensor.to(dtypes[int(rng.integers(len(dtypes)))])
            elif how == 1:
                tensors[name] = tensor.flatten()[: int(rng.integers(tensor.numel() + 1))].clone()
            elif how == 2:
                tensors[name] = tensor.reshape(-1, 1, 1)
            elif how == 3:
                tensors[name] = torch.full_like(tensor, float("nan") if tensor.is_floating_point() else 1)
            elif how == 4:
                tensors[name] = torch.zeros((), dtype=tensor.dtype)
            elif how == 5:
                del tensors[name]
            elif how == 6:
                tensors["\x1b[2J" + name] = tensors.pop(name)
            else:
                tensors[name] = torch.zeros(0, *tensor.shape[1:])
        return to_bytes(tensors)

    def _a_config(self, rng: np.random.Generator, scratch: Path) -> None:
        """A folder of ours, of timm or of transformers whose settings are bent; no manifest vouches for it."""
        which = ("ours", "timm", "hf")[int(rng.integers(3))]
        if which == "ours":
            save(self.model, scratch)
            (scratch / "manifest.json").unlink()
        else:
            shutil.copytree(self.folder / which, scratch, dirs_exist_ok=True)
        settings = sorted(path for path in scratch.iterdir() if path.suffix == ".json")
        path = settings[int(rng.integers(len(settings)))]
        content = path.read_bytes()
        path.write_bytes(damaged(content, rng) if rng.random() < 0.2 else json.dumps(bent(json.loads(content), rng)).encode())
        answered(load(scratch), self.image)

    def _a_run(self, rng: np.random.Generator, scratch: Path) -> None:
        """A run with one file damaged, read as reports, resumes and the explorer read it."""
        run = scratch / "run"
        shutil.copytree(self.run, run)
        files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
        path = files[int(rng.integers(len(files)))]
        if rng.random() < 0.7:
            for vouching in run.rglob("manifest.json"):
                vouching.unlink()
        if path.exists():
            content = path.read_bytes()
            bend = path.suffix == ".json" and rng.random() < 0.8
            path.write_bytes(json.dumps(bent(json.loads(content), rng)).encode() if bend else damaged(content, rng))
        folder = RunFolder.open(run)
        how = int(rng.integers(5))
        if how == 4:  # listed, compared and verified, side by side with a sound one
            as_table(survey(run))
            verify(run)
            differences([self.run, run]).text()
        elif how == 0:
            write_report(run)
        elif how == 1:
            answered(load(run), self.image)
        elif how == 2:
            config = folder.asked.config if folder.asked else folder.settled
            if config.train.epochs <= 1 and folder.settled.train.epochs <= 1:  # a longer training is no fault
                fit(config, run, resume=True, quiet=True)
        else:
            _ = folder.settled, folder.origin, folder.asked, folder.metrics, folder.environment, folder.finished, folder.faults()
            folder.answers()
            folder.snapshots()

    def _a_shard(self, rng: np.random.Generator, scratch: Path) -> None:
        content = damaged(self.shard, rng)
        if rng.random() < 0.5:  # also beyond the first header
            content = damaged(content[512:], rng)
            content = self.shard[:512] + content
        (scratch / "train-0.tar").write_bytes(content)
        source = open_shards(str(scratch))
        for number in range(min(len(source.train.labels), 10)):
            source.train.reader.image(number)

    def _a_table(self, rng: np.random.Generator, scratch: Path) -> None:
        """Labels in a CSV or Parquet file: damaged bytes, or sound ones with strange values."""
        for number in range(4):
            self.image.save(scratch / f"{number}.bmp")
        rows = [
            {"path": f"{number % 4}.bmp", "label": f"class {number % 2}", "split": ("train", "val", "test")[number % 3]}
            for number in range(12)
        ]
        for _ in range(int(rng.integers(0, 3))):
            rows[int(rng.integers(12))][("path", "label", "split")[int(rng.integers(3))]] = str(STRANGE[rng.integers(len(STRANGE))])
        kind = ("csv", "parquet")[int(rng.integers(2))]
        content = write_records(scratch / f"labels.{kind}", rows).read_bytes()
        (scratch / f"labels.{kind}").write_bytes(damaged(content, rng) if rng.random() < 0.7 else content)
        source = open_source(DataConfig(f"{kind}:{scratch / f'labels.{kind}'}"))
        source.train.reader.image(int(source.train.indices[0]))

    def _a_request(self, rng: np.random.Generator, scratch: Path) -> None:
        """The explorer answers anything with a status below 500."""
        from fastapi.testclient import TestClient

        from vitral.web.server.routes import make_app
        from vitral.web.session import Session

        session = Session({"tiny": self.model})
        out = io.BytesIO()
        self.image.save(out, "PNG")
        key = session.add_initial(out.getvalue(), "one.png")
        key = key if isinstance(key, str) else session.initial[0]["picture"]
        with TestClient(make_app(session), base_url="http://127.0.0.1:8642", raise_server_exceptions=True) as client:
            addresses = [route.path for route in client.app.routes if hasattr(route, "path")]  # type: ignore[attr-defined]
            address = addresses[int(rng.integers(len(addresses)))]
            names = {"model": ("0", "1", "9", "-1", "x"), "picture": (key, "0" * 16, "../x", "%00")}
            while "{" in address:
                before, _, rest = address.partition("{")
                name, _, after = rest.partition("}")
                options = names.get(name.partition(":")[0], ("0", "..", "a%2fb", "\x1b", "9" * 30))
                address = before + str(options[int(rng.integers(len(options)))]) + after
            asked = ("block", "head", "target", "method", "x", "patch")
            query = {name: str(STRANGE[rng.integers(len(STRANGE))])[:2000] for name in asked}
            body = out.getvalue() if rng.random() < 0.3 else json.dumps(bent({"heads": [[0, 1]], "blocks": [0], "target": 1}, rng)).encode()
            headers = {"content-type": ("image/png", "application/json", "\x7f", "text/html")[int(rng.integers(4))]}
            method = ("GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE")[int(rng.choice(6, p=(0.4, 0.4, 0.05, 0.05, 0.05, 0.05)))]
            content = damaged(body, rng) if rng.random() < 0.6 else body
            use = {} if rng.random() < 0.5 else {"params": query}
            try:
                answer = client.request(method, address, content=content if method in ("POST", "PUT") else None, headers=headers, **use)
            except Exception as error:
                if isinstance(error, UnicodeError) or type(error).__name__ in ("InvalidURL", "LocalProtocolError"):
                    return  # the client refuses to send it
                raise
            assert answer.status_code < 500 or answer.status_code == 503, (method, address, answer.status_code, answer.text[:200])


def answered(model: Any, image: Image.Image) -> None:
    """A model that loads also answers, with numbers."""
    if not model.config.classes:
        return
    (ranking,) = predict(model, [image])
    if not all(np.isfinite(share) for _, share in ranking):
        raise ArithmeticError("the answer is not a number")
