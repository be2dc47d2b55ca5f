"""Every verb, the explorer's server and the README's Python on a pretended Mac. stand_in.py names what that cannot show."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fastapi.testclient import TestClient
from matplotlib.figure import Figure
from PIL import Image
from tests.mac.stand_in import FREED, GPU, OnGPU, has_kernel, mac

import vitral
from vitral.base.numbers import to_numpy
from vitral.cli import VERBS, main
from vitral.cli.opening import ModelFlags, open_model
from vitral.config import DataConfig
from vitral.data import loader as data_loader
from vitral.data.images.geometry import _warp
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader
from vitral.data.splits.open import open_data
from vitral.look import faithfulness as judge
from vitral.look import maps
from vitral.look.method import METHODS
from vitral.train.tasks import unlabelled
from vitral.web.first_images import fitting_images
from vitral.web.server.routes import make_app
from vitral.web.session import Session

pytestmark = pytest.mark.slow
README = Path(__file__).parents[2] / "README.md"
TINY = "--set width=16 depth=2 heads=2 mlp_width=16"
RUN, PICTURE = "runs/tiny", "runs/demo/digit.png"

LINES: dict[str, tuple[str, ...]] = {
    "demo": ("--epochs 0.2 --weights none",),
    "train": (
        f"digits --subset 200 --epochs 1 --out {RUN} --device mps {TINY} snapshots=2 dropout=0.1",
        f"digits --out {RUN} --resume",
        f"finetune --from {RUN} --data folder:photos --tune attention --epochs 1 --out runs/tuned",
    ),
    "pretrain": tuple(
        f"digits --method {method} --epochs 0.2 --out runs/{method} {'' if method == 'lejepa' else '--skip-probe '}{TINY}"
        for method in ("lejepa", "dino", "mae")
    ),
    "plan": (f"digits {TINY}",),
    "data": ("check folder:photos",),
    "weights": (f"convert {RUN} exported", f"inspect {RUN}"),
    "predict": (f"{RUN} {PICTURE} --device mps",),
    "embed": (f"{RUN} photos --out features.npz --device mps",),
    "quantise": (f"{RUN} digits --out small --pictures 20 --rounds 1 --layer-pictures 0 --min-agreement 0 --max-top1-loss 1 --device mps",),
    "look": (f"{RUN} {PICTURE} --device mps --method {','.join(METHODS)}", f"{RUN} --worst 2"),
    "figures": (f"{RUN} {PICTURE} --device mps",),
    "explore": (f"{RUN} {PICTURE} --export page.html --device mps", f"{RUN} {PICTURE} --export live.html --live"),
    "lens": (f"{RUN} {PICTURE} --fit digits --out lens --device mps",),
    "film": (f"{RUN} --pictures 1",),
    "eval": (f"{RUN} digits --calibrate --tta flip --device mps",),
    "audit": (f"{RUN} digits --pictures 2 --device mps",),
    "verify": (RUN,),
    "compare": ("digits --models vit,cnn --budget samples=128 --batch-size 64 --seeds 1 --lrs 1e-3 --out runs/fight",),
    "scale": ("digits --kind cost --image-sizes 8 --patches 2,4 --yes --out runs/cost",),
    "probe": (f"{RUN} digits --shots 5,all --draws 2 --device mps",),
    "bench": ("tiny --quick --device mps",),
    "diff": (f"{RUN} runs/demo",),
    "runs": ("",),
    "report": (RUN,),
    "completion": ("bash",),
}
"""Verb → its command lines; `--device auto`, which is the GPU here, where none is named."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on such a Mac, with some photographs."""
    folder = tmp_path_factory.mktemp("mac")
    for name in ("cats", "dogs"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            Image.linear_gradient("L").rotate(20 * number).convert("RGB").save(folder / "photos" / name / f"{number}.png")
    with pytest.MonkeyPatch.context() as patch, mac():
        patch.chdir(folder)
        patch.setattr("vitral.train.probe.ITERATIONS", 2)
        yield folder


def typed(verb: str, line: str) -> tuple[int, str]:
    """The exit code of a command and what it printed. Its plots are left white, which saves half a minute: no tensor comes there."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        patch.setattr(Figure, "savefig", lambda figure, file, **_: Image.new("L", (8, 8), 255).save(file, "PNG"))
        code = main([verb, *line.split()])
    return code, out.getvalue()


def test_every_verb_has_a_line() -> None:
    assert set(LINES) == set(VERBS)


@pytest.mark.parametrize(("verb", "line"), [(verb, line) for verb, lines in LINES.items() for line in lines])
def test_every_verb_runs(verb: str, line: str, place: Path) -> None:
    code, said = typed(verb, line)
    assert code == 0, said


def test_a_run_was_on_the_gpu_in_fp32_and_not_compiled(place: Path) -> None:
    for name in ("demo", "tiny", "lejepa"):
        facts = json.loads((place / "runs" / name / "env.json").read_text())
        assert (facts["device"], facts["precision"], facts["compiled"]) == ("mps", "float32", False)


def test_the_readme_s_python_runs(place: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block, "README.md", "exec"), {})
    with Image.open(place / "where.png") as where:
        assert min(where.size) >= 8


def test_the_readme_s_calls_on_the_gpu(place: Path) -> None:
    model = vitral.load(RUN).to("mps")
    tape = vitral.watch(model, PICTURE)
    assert isinstance(tape.attention(1), OnGPU)
    assert vitral.look.rollout(tape).grid.dtype == np.float64 and vitral.predict(model, PICTURE)


# ---- the explorer's server -------------------------------------------------------------------------------------------------------

REQUESTS = {
    "/api/session": "",
    "/api/pictures": "name=one.png",
    "/api/models/{model}/pictures/{picture}/trace": "off=h0.1,p3",
    "/api/models/{model}/pictures/{picture}/story": "",
    "/api/models/{model}/pictures/{picture}/map": "method=",
    "/api/models/{model}/pictures/{picture}/importance": "",
    "/api/models/{model}/pictures/{picture}/without-each": "",
    "/api/models/{model}/pictures/{picture}/depth": "",
    "/api/models/{model}/pictures/{picture}/features": "",
    "/api/models/{model}/pictures/{picture}/film": "",
    "/api/models/{model}/figures": "",
    "/api/work": "",
}
"""Address → query; of a map once for each method that the session offers, apart from two that are no request of their own."""
TRACED = {"attention", "similarity"}


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    session = Session({RUN: open_model(RUN, ModelFlags(device="mps"))})
    for content, name in fitting_images(RUN):
        session.add_initial(content, name)
    with TestClient(make_app(session), base_url="http://127.0.0.1:8642") as client:
        yield client


def test_every_address_has_a_request(client: TestClient) -> None:
    assert set(client.get("/openapi.json").json()["paths"]) == set(REQUESTS)


@pytest.mark.parametrize("path", REQUESTS)
def test_the_server_answers(path: str, client: TestClient) -> None:
    facts = client.get("/api/session").json()
    key, query = facts["pictures"][0]["picture"], REQUESTS[path]
    methods = sorted(set(facts["models"][0]["methods"]) - TRACED) if query == "method=" else [""]
    assert methods
    for method in methods:
        address = f"{path.format(model=0, picture=key)}?{query}{method}"
        if path == "/api/pictures":
            content, kind = (Path(PICTURE)).read_bytes(), {"content-type": "image/png"}
            answer = client.post(address, content=content, headers=kind)
        else:
            answer = client.get(address)
        assert answer.status_code == 200, answer.text


# ---- what these tests find -------------------------------------------------------------------------------------------------------


def wide_first(value: torch.Tensor) -> torch.Tensor:
    """As 30 places of the source once did it."""
    return value.detach().double().cpu()


def refused(said: str) -> bool:
    """One line that names the way out, and no traceback."""
    lines = [line for line in said.splitlines() if "vitral: " in line]
    return len(lines) == 1 and "Apple's GPU" in lines[0] and "--device cpu" in lines[0] and "Traceback" not in said


def test_64_bits_before_the_host_are_found_and_told_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "to_double", wide_first)
    code, said = typed("look", f"{RUN} {PICTURE} --device mps --method gradcam,rollout,attention")
    assert code == 1 and refused(said) and "float64" in said, said
    assert typed("look", f"{RUN} {PICTURE} --device cpu --method attention")[0] == 0, "the way out is one"


def test_an_operator_without_a_kernel_is_found_and_told_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlabelled, "uniformity", lambda unit: float(torch.pdist(unit).square().mean()))
    code, said = typed("pretrain", f"digits --skip-probe --epochs 0.1 --out runs/refused {TINY}")
    assert code == 1 and refused(said) and "aten::_pdist_forward" in said, said


def test_the_server_tells_it_in_one_line(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("vitral.look.relevance"), "to_double", wide_first)
    key = client.get("/api/session").json()["pictures"][1]["picture"]
    answer = client.get(f"/api/models/0/pictures/{key}/map?method=relevance")
    assert answer.status_code == 422 and "Apple's GPU" in answer.json()["error"] and "--device cpu" in answer.json()["hint"]


def test_the_stand_in_refuses_what_the_gpu_refuses(place: Path) -> None:
    value = torch.ones(6, 4, device="mps")
    for wide in (
        lambda: value.double(),
        lambda: value.to(torch.float64),
        lambda: value.to(float),  # type: ignore[call-overload]
        lambda: torch.zeros(2, dtype=torch.float64, device="mps"),
        lambda: torch.ones(2, dtype=torch.float64).to("mps"),
        lambda: torch.as_tensor(np.ones(2), device="mps"),
        lambda: value.to("cpu", torch.float64).to("mps"),
    ):
        with pytest.raises(TypeError, match="float64"):
            wide()
    for host in (lambda: value.numpy(), lambda: np.asarray(value)):
        with pytest.raises(TypeError, match="to numpy"):
            host()
    for mixed in (lambda: value + torch.ones(4), lambda: torch.ones(6)[value.long()], lambda: torch.stack([value, torch.ones(6, 4)])):
        with pytest.raises(RuntimeError, match="two devices"):
            mixed()
    with pytest.raises(NotImplementedError, match="aten::_pdist_forward"):
        torch.pdist(value)
    with pytest.raises(AssertionError, match="189690"):
        torch.ones(2).to("mps", non_blocking=True)
    assert value[torch.arange(2)].device == GPU and float(value.sum() * torch.tensor(2.0)) == 48
    assert torch.ones(2).add_(value.cpu()[0, :2]).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("name", "there"), [("native_layer_norm", True), ("add.Tensor", True), ("_pdist_forward", False), ("ormqr", False)]
)
def test_the_table_is_pytorch_s_own(name: str, there: bool) -> None:
    assert has_kernel(name) is there


def test_threads_have_the_gpu_too(place: Path) -> None:
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(2).to("mps")))
    thread.start()
    thread.join()
    assert isinstance(found[0], OnGPU)


# ---- what PyTorch 2.9 cannot do there, and Vitral does otherwise -------------------------------------------------------------------


def test_a_turned_picture_is_the_cpu_s(place: Path) -> None:
    images = torch.rand(3, 1, 9, 12, generator=torch.Generator().manual_seed(0))
    angle = torch.tensor([0.3, -0.5, 1.2])
    rows = [torch.stack([angle.cos(), -angle.sin(), angle * 0.2], 1), torch.stack([angle.sin(), angle.cos(), angle * 0.1], 1)]
    matrix = torch.stack(rows, 1)
    with pytest.raises(RuntimeError, match="Border"):
        F.grid_sample(images.to("mps"), torch.zeros(3, 9, 12, 2, device="mps"), padding_mode="border", align_corners=False)
    here, there = _warp(images, matrix, "border"), _warp(images.to("mps"), matrix.to("mps"), "border")
    assert there.device == GPU and np.allclose(to_numpy(here), to_numpy(there), atol=1e-5)


def test_a_blurred_picture_is_the_cpu_s(place: Path) -> None:
    image = torch.rand(3, 37, 37, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="divisible"):
        F.adaptive_avg_pool2d(image.to("mps")[None], (5, 5))
    here, there = (judge._baselines(each, each, (37, 37))["blur"] for each in (image, image.to("mps")))
    assert there.device == GPU and torch.equal(here, there.cpu())


def test_streamed_batches_wait_for_their_copy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data(DataConfig(name="folder:photos", validation=0.0), preprocess=Preprocess((16, 16), 3, (0.5,), (0.5,)))
    loader = Loader(data.train, batch_size=4, device="mps", placement="stream", train=True)
    assert all(batch.images.device == GPU for batch in loader.epoch(0)) and FREED
    monkeypatch.setattr(data_loader, "device_limit", lambda _: 0)
    assert Loader(open_data(DataConfig(name="digits")).train, batch_size=4, device="mps").placement_of == "stream"
