"""An audit of a model whose truth is known: one patch decides its class. The sceptic's three maps must not pass."""

from __future__ import annotations

import copy
import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral import look
from vitral.cli import main
from vitral.data.images.preprocess import Preprocess
from vitral.look.describe import digest
from vitral.look.method import Method
from vitral.look.verdicts import read_verdicts
from vitral.report.audit import write_audit
from vitral.study.audit.audit import audit
from vitral.study.audit.own_method import load_method
from vitral.study.audit.pictures import as_pixels, changed, fours, sure_ones
from vitral.study.audit.tests import Subjects

SCEPTIC = '''
"""Maps that explain nothing."""
import numpy as np
from vitral import look, watch
from vitral.look import references
from vitral.look.faithfulness import with_permuted_weights

def noise(tape, item=0, target=None):
    return np.random.default_rng(abs(hash(tape.images.numpy().tobytes())) % 2**32).random(tape.grid)

def sobel(tape, item=0, target=None):
    return references.edges(tape, item)

def another_model(tape, item=0, target=None):
    return look.relevance(watch(with_permuted_weights(tape.model, seed=7), tape.images), item, target=target)
'''


@pytest.fixture(scope="module")
def model() -> vitral.Classifier:
    """A ViT that tells where a bright blob is: trained for a moment, so that its maps mean something."""
    torch.manual_seed(0)
    made = vitral.create("tiny", image_size=16, patch_size=4, channels=1, width=32, heads=2, mlp_width=64, depth=2, classes=4)
    images, labels = blobs(512, 0)
    steps = torch.optim.AdamW(made.parameters(), lr=3e-3)
    made.train()
    for step in range(120):
        some = torch.arange(64) + 64 * (step % 8)
        loss = torch.nn.functional.cross_entropy(made(images[some]), labels[some])
        steps.zero_grad()
        loss.backward()
        steps.step()
    made.eval()
    made.origin = Preprocess((16, 16), 1, resize="squash").write_to(made.origin, ("plus", "ring", "bar", "dash"))
    with torch.no_grad():
        assert (made(images).argmax(1) == labels).float().mean() > 0.95
    return made


def blobs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One of four signs in one patch of noise: it alone says the class."""
    draw = np.random.default_rng(seed)
    signs = np.zeros((4, 4, 4))
    signs[0, 1:3, :] = signs[0, :, 1:3] = 1
    signs[1] = 1
    signs[1, 1:3, 1:3] = 0
    signs[2, :, :2] = 1
    signs[3, :2, :] = 1
    images, labels = draw.normal(0.35, 0.08, (count, 1, 16, 16)), draw.integers(0, 4, count)
    for image, label in zip(images, labels, strict=True):
        row, column = 4 * draw.integers(0, 4, 2)
        image[0, row : row + 4, column : column + 4] = signs[label]
    pixels = (255 * images.clip(0, 1)).round() / 255
    return torch.from_numpy((pixels - 0.5) / 0.5).float(), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    images, _ = blobs(24, 1)
    return [Image.fromarray((255 * (image[0].numpy() * 0.5 + 0.5)).round().astype(np.uint8)) for image in images]


@pytest.fixture(scope="module")
def sceptic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sceptic") / "sceptic.py"
    path.write_text(SCEPTIC)
    return path


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_the_sceptics_three_maps_are_exposed(model, pictures, sceptic, seed) -> None:
    own = [load_method(f"{sceptic}:{name}") for name in ("noise", "sobel", "another_model")]
    found = audit(model, pictures, ["relevance", *own], pictures=6, seed=seed, quiet=True)
    rows = {row.method: row for row in found.rows}
    assert {rows[name].verdict for name in ("noise", "sobel", "another_model")} == {"do not use"}, [row.text for row in found.rows]
    assert "does not depend on the weights" in rows["sobel"].reason
    assert {rows[name].verdict for name in ("random", "edges", "centre")} == {"reference"}


def test_a_true_map_passes(model, pictures) -> None:
    found = audit(model, pictures, ["relevance", "rollout"], pictures=12, quiet=True)
    rows = {row.method: row for row in found.rows}
    assert rows["relevance"].verdict in ("use", "with care"), [row.text for row in found.rows]
    assert rows["relevance"].tests["removal"][0] > rows["random"].tests["removal"][2]
    assert rows["edges"].tests["permuted weights"][:3] == (1.0, 1.0, 1.0)
    assert rows["rollout"].tests["classes"][0] == 0.0
    assert set(found.levels) == set(rows) and all(len(values) == 4 for values in found.levels.values())
    assert found.pictures == 12 and rows["relevance"].tests["removal"][3] == 12
    assert {name: len(values) for name, values in found.values["removal"].items()} == dict.fromkeys(rows, 12)


def test_methods_of_many_passes_explain_a_third_and_a_picture_counts_once(model, pictures) -> None:
    found = audit(model, pictures, ["relevance", "occlusion"], pictures=6, quiet=True)
    rows = {row.method: row for row in found.rows}
    for test, values in found.values.items():
        spared = np.isnan(values["occlusion"])
        assert len(values["occlusion"]) == 6, test
        assert spared[:2].any() or spared.tolist() == [False] * 2 + [not test.startswith(("removal", "salience"))] * 4
        if test in rows["occlusion"].tests:
            assert rows["occlusion"].tests[test][3] == (~spared).sum()
        assert test in ("planted patch", "small changes") or not np.isnan(values["relevance"]).any()
    levels = found.levels["occlusion"]
    assert np.isnan(levels[:3]).all() and not np.isnan(levels[3])


def test_one_output_and_several_labels(model, pictures) -> None:
    """A regression has no classes to tell apart, no confidence and no zero; several labels have probabilities of their own."""
    one = model.with_head(1, seed=3)
    with torch.no_grad():
        one.head.linear.bias -= 50  # every output is negative
    found = audit(one, pictures, ["relevance"], pictures=3, quiet=True)
    row = found.rows[0]
    assert "classes" not in row.tests and not any("sure" in note for note in found.notes)
    assert any("one output" in note for note in found.notes)
    assert all(np.abs(values).max() <= 1 for values in found.values["removal"].values())
    several = copy.deepcopy(model)
    several.origin = dataclasses.replace(model.origin, thresholds=(0.5,) * 4)
    images = blobs(6, 1)[0]
    subjects = Subjects.of(several, [], images, 3, flips=False, seed=0)
    with torch.no_grad():
        np.testing.assert_allclose(subjects.confidence, several(images).sigmoid().amax(dim=1).numpy(), atol=1e-6)


def test_two_channels_are_shown_in_grey() -> None:
    two = vitral.create("tiny", image_size=16, patch_size=4, channels=2, width=24, heads=3, mlp_width=32, depth=1, classes=3)
    assert as_pixels(two, torch.zeros(2, 16, 16)).shape == (16, 16, 3)


def test_sets_of_four_share_no_picture_and_no_class() -> None:
    answers = np.array([0] * 9 + [1] * 5 + [2] * 4 + [3] * 3 + [4])
    sets = fours(np.linspace(1, 0, len(answers)), answers, 12, seed=0)
    assert len(sets) == 4 and len(set(np.concatenate(sets).tolist())) == 16  # 13 pictures are not of class 0: four threes of them
    assert all(len(set(answers[members].tolist())) == 4 for members in sets)


def test_the_folder_the_page_and_what_look_says(model, pictures, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    vitral.save(model, tmp_path / "model")
    for number, picture in enumerate(pictures[:12]):
        picture.save(tmp_path / f"{number:02d}.png")
        mask = np.asarray(picture) > 200
        Image.fromarray((255 * mask).astype(np.uint8)).save(tmp_path / "model" / f"{number:02d}.png")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for path in tmp_path.glob("*.png"):
        path.rename(folder / path.name)
    arguments = [
        "audit",
        str(tmp_path / "model"),
        str(folder),
        "--methods",
        "relevance,rollout",
        "--pictures",
        "4",
        "--masks",
        str(tmp_path / "model"),
    ]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [row["method"] for row in told["rows"]] == ["relevance", "rollout", "random", "edges", "centre"]
    assert "masks" in told["rows"][0]["tests"]
    kept = json.loads((tmp_path / "model/audit/audit.json").read_text())
    assert kept["model"] == digest(model) and kept["command"].startswith("vitral audit ")
    page = (tmp_path / "model/audit/report.html").read_text()
    assert "Verdicts" in page and page.count("<img") >= 5 and "<script" not in page
    verdicts = read_verdicts(model, tmp_path / "model/audit")
    assert set(verdicts) == {"relevance", "rollout"} and verdicts["rollout"].split(":")[0] in ("use", "with care", "do not use")
    assert main(["look", str(tmp_path / "model"), str(folder / "00.png"), "--method", "rollout", "--out", str(tmp_path / "sheets")]) == 0
    beside = json.loads((tmp_path / "sheets/00.json").read_text())
    assert beside["verdicts"] == {"rollout": verdicts["rollout"]}
    other = vitral.create("tiny", image_size=16, patch_size=4, channels=1, width=32, heads=2, mlp_width=64, depth=2, classes=4)
    assert read_verdicts(other, tmp_path / "model/audit") == {}


def test_the_guides_own_method_is_judged_beside_the_others(model, pictures, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    monkeypatch.chdir(tmp_path)
    section = (Path(__file__).parents[3] / "docs/guide/look.md").read_text(encoding="utf-8").partition("## A method of your own")[2]
    Path("my.py").write_text(section.partition("```python\n")[2].partition("```")[0])
    vitral.save(model, "model")
    Path("photos").mkdir()
    for number, picture in enumerate(pictures[:6]):
        picture.save(f"photos/{number}.png")
    # folder:PATH without class folders: no classes are needed.
    assert main(["audit", "model", "folder:photos", "--methods", "attention", "--method", "my.py:my_map", "--pictures", "3"]) == 0
    assert "\nmy_map: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def f(:", "SyntaxError"),
        ("import nothing_such", "No module named 'nothing_such'"),
        ("def f(tape): return 1", "TypeError"),
        ("def f(tape, item=0, target=None): return 3.0", "gave an array of 0 dimensions"),
        ("def f(tape, item=0, target=None): return [[float('nan')]]", "NaN or infinite"),
        ("def f(tape, item=0, target=None): raise ValueError('mine\\nof two lines')", "ValueError: mine: mend it"),
    ],
)
def test_an_own_method_that_fails_says_so_in_one_line(model, pictures, tmp_path, body, words) -> None:
    (tmp_path / "my.py").write_text(body)
    with pytest.raises(vitral.VitralError) as caught:
        audit(model, pictures, [load_method(f"{tmp_path / 'my.py'}:f")], pictures=2, quiet=True)
    assert words in str(caught.value) and "my.py" in str(caught.value) and "\n" not in str(caught.value)


def test_one_picture_is_refused_before_anything_is_spent(model, pictures) -> None:
    with pytest.raises(vitral.VitralError, match="2 or more"):
        audit(model, pictures[:1], ["attention"], quiet=True)


def test_a_rival_is_audited_with_what_suits_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    model = vitral.create("cnn", image_size=32, classes=10)
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 255, (32, 32, 3), dtype=np.uint8)) for _ in range(6)]
    found = audit(model, pictures, ["gradcam", "relevance"], pictures=2, quiet=True)
    assert [row.method for row in found.rows] == ["gradcam", "random", "edges", "centre"]
    assert any("three ways of removing" in note for note in found.notes)
    page = write_audit(found, model, tmp_path / "audit", "noise")
    assert "--pictures 96" in page.read_text(encoding="utf-8"), "so few pictures are said to be few"
    enough = write_audit(replace(found, pictures=96), model, tmp_path / "enough", "noise")
    assert "--pictures 96" not in enough.read_text(encoding="utf-8") and "Student&#39;s t" in enough.read_text(encoding="utf-8")


def test_changes_are_undone_on_the_map() -> None:
    image, grid = torch.rand(1, 8, 8), (4, 4)
    values = np.arange(16.0).reshape(4, 4)
    draw = torch.Generator().manual_seed(0)
    mirrored, back = changed(image, "mirror", grid, draw)
    assert torch.equal(mirrored, image.flip(-1))
    np.testing.assert_array_equal(*back(values[:, ::-1], values))
    moved, back = changed(image, "crop", grid, draw)
    assert torch.equal(moved[:, 2:, 2:], image[:, :-2, :-2])
    shifted = np.zeros((4, 4))
    shifted[1:, 1:] = values[:-1, :-1]
    np.testing.assert_array_equal(*back(shifted, values))


def test_sure_ones_of_many_classes_come_first() -> None:
    confidence, answers = np.array([0.9, 0.8, 0.2, 0.7, 0.6]), np.array([0, 0, 1, 2, 0])
    assert sure_ones(confidence, answers, 4).tolist() == [0, 3, 1, 4]


def test_what_cannot_be_audited_says_so(model, pictures, sceptic, tmp_path) -> None:
    with pytest.raises(vitral.VitralError, match="no head"):
        audit(model.with_head(0), pictures)
    with pytest.raises(vitral.VitralError, match="at least 2"):
        audit(model, pictures, pictures=1)
    with pytest.raises(vitral.VitralError, match="2 × 2"):
        audit(vitral.create("tiny", image_size=(4, 16), patch_size=4, channels=1, classes=4), pictures, ["attention"], quiet=True)
    with pytest.raises(vitral.VitralError, match="rollout"):
        audit(model, pictures, ["rollout", "rollout"])
    with pytest.raises(vitral.VitralError, match="nothing"):
        load_method(f"{sceptic}:nothing")
    with pytest.raises(vitral.VitralError, match="exist"):
        load_method("nowhere.py:f")
    with pytest.raises(vitral.VitralError, match=r"FILE\.py:FUNCTION"):
        load_method("my_map")

    def spent(*_: object, **__: object) -> None:
        pytest.fail("masks are looked for before anything is spent")

    with pytest.raises(vitral.VitralError, match="mask"):
        audit(model, pictures, [Method(spent, "draws no map", ("target",))], pictures=2, masks=tmp_path, quiet=True)
    assert look.METHODS["rollout"] is look.rollout
