"""One tiny model and a few pictures that all tests of the explorer share."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from vitral.build import create
from vitral.look.switch_off import Off
from vitral.web.answers import ALL_ON
from vitral.web.pack import unpack
from vitral.web.server.limits import Limits
from vitral.web.server.routes import make_app
from vitral.web.session import Session
from vitral.web.trace import probabilities


def png(seed: int = 0, size: tuple[int, int] = (40, 32)) -> bytes:
    """A small picture: smooth colours, so that the model has something to see."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 255, (4, 5, 3), dtype=np.uint8))
    out = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def sharp(model: torch.nn.Module, factor: float = 6.0) -> torch.nn.Module:
    """Fresh weights attend almost evenly; larger ones give maps with structure."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("qkv.weight", "head.linear.weight")):
                parameter.mul_(factor)
    return model


def heat(content: bytes) -> np.ndarray:
    """The grid of a packed map."""
    header, sections = unpack(content)
    return np.asarray(sections["values"]).reshape(header["grid"])


def shares(session: Session, key: str, off: Off = ALL_ON, model: int = 0) -> np.ndarray:
    """Probabilities of a picture in a model without some parts."""
    _, sections = unpack(session.answer("trace", model, key, off=off))
    return probabilities(np.asarray(sections["logits"]))


@pytest.fixture(scope="session")
def session() -> Session:
    torch.manual_seed(0)
    session = Session({"tiny": sharp(create("tiny", registers=1)), "cnn": create("cnn")}, Limits(upload=200_000, pixels=1_000_000))  # type: ignore[dict-item]
    session.add_initial(png(1), "one.png")
    return session


@pytest.fixture(scope="session")
def key(session: Session) -> str:
    return session.initial[0]["picture"]


@pytest.fixture
def client(session: Session) -> Iterator[TestClient]:
    with TestClient(make_app(session), base_url="http://127.0.0.1:8642") as client:
        yield client
