from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

from vitral import look
from vitral.look.watch import watch
from vitral.web.pack import unpack
from vitral.web.session import Session

from .conftest import png


def test_the_grid_is_looks_own(session: Session, key: str) -> None:
    found, _ = unpack(session.answer("importance", 0, key))
    own = look.ablate(watch(session.models[0], session.picture(0, key)))
    torch.testing.assert_close(torch.tensor(found["heads"]), torch.tensor(own.heads), atol=1e-5, rtol=1e-3, check_dtype=False)
    assert found["target"] == own.target and found["baseline"] == pytest.approx(own.whole)
    assert len(found["order"]) == own.heads.size and found["counts"][-1] == own.heads.size
    assert found["confidence"][0] == pytest.approx(own.whole, abs=1e-4)
    assert found["share"] is None, "one picture is no share"


def test_judged_by_labels_or_by_the_answers_beside(session: Session, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = session.models[0]
    own = Session({"tiny": model}, session.limits)
    keys = [own.add_initial(png(seed), f"{seed}.png") for seed in (1, 2, 3)]
    beside, _ = unpack(own.answer("importance", 0, keys[0]))
    assert (beside["n_images"], beside["labelled"], beside["share"][0]) == (3, False, 1.0)
    images = torch.stack([own.picture(0, each).tensor for each in keys])
    answers = watch(model, images).logits.argmax(1).tolist()
    wrong = [(answer + 1) % model.config.classes for answer in answers]
    judged = Session({"tiny": model}, session.limits)
    judged.add_initial(png(1), "1.png")
    monkeypatch.setattr(judged, "labelled", lambda _: (images, [answers[0], *wrong[1:]]))
    labelled, _ = unpack(judged.answer("importance", 0, keys[0]))
    assert labelled["labelled"] and labelled["share"][0] == pytest.approx(1 / 3, abs=1e-3)


def test_over_http_for_a_class_and_not_for_a_rival(client: TestClient, key: str) -> None:
    answer = client.get(f"/api/models/0/pictures/{key}/importance?target=1")
    assert answer.status_code == 200 and unpack(answer.content)[0]["target"] == 1
    assert client.get(f"/api/models/1/pictures/{key}/importance").status_code == 422
    assert client.get(f"/api/models/0/pictures/{key}/importance?target=99999").status_code == 422
    for part in ("depth", "features"):
        answer = client.get(f"/api/models/0/pictures/{key}/{part}?off=h0.1")
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/octet-stream"
    assert client.get(f"/api/models/0/pictures/{key}/film").status_code == 422, "no run, no snapshots"
