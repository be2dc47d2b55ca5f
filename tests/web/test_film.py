"""The film of a run in the explorer, against the film's own measurements."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from tests.study.test_film import make_run

import vitral
from vitral.study.film import measure
from vitral.web.film import snapshots_of
from vitral.web.first_images import labelled_images
from vitral.web.pack import unpack
from vitral.web.server.routes import make_app
from vitral.web.session import Session
from vitral.weights.checkpoint import load_checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("runs") / "run")
    folder.write_model(load_checkpoint(folder.snapshots()[-1][1]))
    return folder.path


@pytest.fixture
def filmed(run: Path) -> Session:
    session = Session({str(run): vitral.load(run)})
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)).save(out, "PNG")
    session.add_initial(out.getvalue(), "digit")
    return session


def test_every_snapshot_as_the_film_measures_it(filmed: Session) -> None:
    assert filmed.description()["models"][0]["film"] == [0, 2, 9]
    key = filmed.initial[0]["picture"]
    header, sections = unpack(filmed.answer("film", 0, key))
    picture = filmed.picture(0, key)
    target = int(vitral.watch(filmed.models[0], picture).logits.argmax())
    assert header["steps"] == [0, 2, 9] and header["class"] == filmed.models[0].origin.class_name(target)
    for frame, (_, folder) in enumerate(filmed.films[0]):
        own = measure(load_checkpoint(folder), [picture], [target])
        np.testing.assert_allclose(np.asarray(sections["attention"])[frame], own["attention"][0], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(sections["lens"])[frame], own["lens"][0], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(sections["classes"])[frame], own["classes"][0], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(sections["positions"])[frame] / 127, own["positions"].reshape(-1), atol=0.005)


def test_over_http(filmed: Session) -> None:
    with TestClient(make_app(filmed), base_url="http://127.0.0.1:8642") as client:
        answer = client.get(f"/api/models/0/pictures/{filmed.initial[0]['picture']}/film")
    assert answer.status_code == 200 and unpack(answer.content)[0]["steps"] == [0, 2, 9]


def test_what_is_no_run_has_no_film(tmp_path: Path) -> None:
    assert snapshots_of(str(tmp_path), vitral.create("tiny")) == []
    assert snapshots_of("nowhere", vitral.create("cnn")) == []


def test_a_run_brings_labelled_pictures(run: Path, filmed: Session) -> None:
    found = labelled_images(str(run), filmed.models[0])
    assert found is not None
    images, labels = found
    assert len(images) == len(labels) == 64 and len(set(labels)) == 10
    assert labelled_images("nowhere", filmed.models[0]) is None
    assert labelled_images(str(run), vitral.create("tiny", classes=0)) is None
    assert unpack(filmed.answer("importance", 0, filmed.initial[0]["picture"]))[0]["n_images"] == 64
