"""The page that runs its model, as a file; tests/browser/test_live.py runs it."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cli import main
from vitral.config import ModelConfig
from vitral.web.kernel import kernel
from vitral.web.live import SUPPORTED, check, export_live, pack_model, probe, rounded, stored
from vitral.web.pack import unpack
from vitral.web.session import Session


@pytest.fixture(scope="module")
def text(session: Session, tmp_path_factory: pytest.TempPathFactory) -> str:
    alone = Session({"tiny": session.models[0]})
    alone.add_initial(session.content(session.initial[0]["picture"]), "one.png")
    return export_live(alone, tmp_path_factory.mktemp("live") / "page.html").read_text(encoding="utf-8")


def block(text: str, name: str) -> bytes:
    found = re.search(rf'id="{name}" data-bytes="(\d+)">([^<]*)</script>', text)
    assert found, name
    return base64.b85decode(found.group(2).replace(",", "<").replace(".", "&"))[: int(found.group(1))]


def test_the_file_needs_no_network_and_allows_webassembly_alone_beside_its_script(text: str) -> None:
    assert not re.search(r'(src|href)="(?!data:|#)', text), "nothing is fetched"
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.group(1).split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/=]+' 'wasm-unsafe-eval'", rules["script-src"])
    assert "worker-src" not in rules


def test_the_file_holds_the_rounded_model_and_the_proof_of_it(text: str, session: Session) -> None:
    header, sections = unpack(block(text, "model-0"))
    model = session.models[0]
    weights = model.state_dict()
    name = "blocks.1.mlp.expand"
    codes, scales = np.asarray(sections[f"{name}.weight"]), np.asarray(sections[f"{name}.scale"])
    assert codes.dtype == np.int8
    off = np.abs(codes * scales[:, None] - weights[f"{name}.weight"].numpy())
    assert (off <= scales[:, None] * 0.5001).all()
    np.testing.assert_array_equal(sections["blocks.0.norm1.weight"], weights["blocks.0.norm1.weight"])
    same = rounded(model)
    np.testing.assert_array_equal(same.state_dict()[f"{name}.weight"].numpy(), codes * scales[:, None])
    with torch.no_grad():
        logits = same(probe(model.config)[None])[0].tolist()
    assert header["proof"]["logits"] == pytest.approx(logits, abs=1e-6)
    assert unpack(block(text, "kernel"))[1]["kernel"] == kernel()


def test_the_session_says_what_the_page_can_do(text: str) -> None:
    found = re.search(r'id="vitral-session">(.*?)</script>', text, re.DOTALL)
    assert found
    facts = json.loads(found.group(1))
    assert facts["mode"] == "in-browser"
    assert facts["models"][0]["methods"] == ["attention", "rollout", "occlusion", "similarity"], "no gradients in a browser"
    (picture,) = facts["pictures"]
    content = block(text, f"picture-{picture['picture']}")
    assert picture["kind"] == "image/png"
    assert Image.open(io.BytesIO(content)).size == (40, 32)


def test_a_picture_that_comes_along_says_nothing_but_its_pixels() -> None:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.new("RGB", (3000, 1500), "teal").save(out, "JPEG", exif=exif)
    content, kind = stored(Image.open(io.BytesIO(out.getvalue())))
    kept = Image.open(io.BytesIO(content))
    assert (kind, kept.size) == ("image/webp", (1024, 512))
    assert b"taken at home" not in content


@pytest.mark.parametrize("size", [(40, 32), (451, 300)])
def test_a_picture_that_comes_along_keeps_its_pixels(size: tuple[int, int]) -> None:
    """As a JPEG of quality 92 the bundled photograph moved a probability by 4 points, another one by 13."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    with Image.open(io.BytesIO(stored(image)[0])) as kept:
        np.testing.assert_array_equal(np.asarray(kept.convert("RGB")), np.asarray(image))


def test_every_field_of_a_model_is_known_or_refused() -> None:
    """A new part of ViT that nobody taught the browser's engine must be named here, or stay out of live pages."""
    missing = {field.name for field in dataclasses.fields(ModelConfig)} - set(SUPPORTED)
    assert not missing, f"teach static/in_browser/engine.js about {missing}, and name them in web/live.py"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("cnn", {}, "family = cnn"),
        ("resnet18", {}, "family = resnet18"),
        ("hybrid", {}, "family = hybrid"),
        ("tiny", {"channels": 4}, "channels = 4"),
        ("h/14", {}, "too many for a file"),
    ],
)
def test_what_the_engine_does_not_know_is_refused_by_name(name: str, options: dict[str, int], said: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        model = create(name, **options)
    with pytest.raises(UsageError, match=said):
        check("mine", model)


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SUPPORTED, "norm")
    check("mine", create("tiny"))
    with pytest.raises(UsageError, match="norm = rms"):
        check("mine", create("tiny", norm="rms"))


def test_refusals_write_nothing(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="family = cnn"):
        export_live(session, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_live_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "somewhere", "--live"]) == 2
    assert "--export page.html --live" in capsys.readouterr().err


def test_relative_positions_and_angles_are_worked_out_beforehand() -> None:
    header, sections = unpack(pack_model(create("tiny", positions="learned+relative", prefix_positions="class"), 2**20))
    tokens = header["config"]["tokens"]
    assert np.asarray(sections["relative"]).shape == (tokens, tokens)
    header, sections = unpack(pack_model(create("tiny", positions="rotary", rotary="axial", width=48, heads=3), 2**20))
    assert header["neighbours"] is True
    assert np.asarray(sections["cosine"]).shape == (header["config"]["tokens"], 1, 8)


def test_page_and_guide_show_the_measured_change_by_rounding() -> None:
    root = Path(__file__).parents[2]
    numbers = json.loads((root / "results/measured/live-rounding.json").read_text(encoding="utf-8"))["numbers"]
    answers, changed = numbers["photographs"], numbers["answers changed by rounding"]
    most = numbers["largest change of a probability by rounding"]
    script = (root / "src/vitral/web/static/in_browser/proof.js").read_text(encoding="utf-8")
    shown = re.search(r"MEASURED = \{ answers: (\d+), changed: (\d+), most: ([\d.]+) \}", script)
    assert shown and (int(shown[1]), int(shown[2]), float(shown[3])) == (answers, changed, round(most, 4))
    guide = " ".join((root / "docs/how-to/page-online.md").read_text(encoding="utf-8").split())
    assert f"the same answer on {answers - changed} of {answers}, and a probability changes by at most {100 * most:.2f} percent" in guide
    assert answers - changed >= 0.98 * answers
