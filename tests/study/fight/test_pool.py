"""The pool with cells that need no training: skipped when done, retried once when dead, the same result on every road."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

from vitral.base.errors import ConfigError, DataError, FailedError, Stopped, UsageError, VitralError
from vitral.base.layout import CELL
from vitral.base.lock import FolderLock
from vitral.presets import model
from vitral.study.fight import pool
from vitral.study.fight.experiment import Budget, Experiment, final_cells
from vitral.study.fight.pool import Pool, run_cells

sys.path.insert(0, str(Path(__file__).parent))
import drive
import works

DIGITS = drive.contender("digits", model("digits"), 1000)
STUDY = Experiment("compare", (DIGITS,), Budget("samples", 100), images=100, seeds=(0, 1, 2, 3))
CELLS = final_cells(STUDY, {"digits": 1e-3})


def squares(finished) -> list[int]:
    return [result["square"] for result in finished.results.values()]


def test_sequential_skips_what_is_done(tmp_path: Path) -> None:
    first = run_cells(CELLS[:2], tmp_path, works.square, Pool(quiet=True))
    assert squares(first) == [0, 1] and not first.skipped
    again = run_cells(CELLS, tmp_path, works.square, Pool(quiet=True))
    assert squares(again) == [0, 1, 4, 9] and again.skipped == [cell.name for cell in CELLS[:2]]
    (tmp_path / CELLS[0].name / CELL).unlink()
    assert len(run_cells(CELLS, tmp_path, works.square, Pool(quiet=True)).skipped) == 3


def test_pool_gives_the_same_and_survives_a_death(tmp_path: Path) -> None:
    finished = run_cells(CELLS, tmp_path, works.die_once, Pool(parallel=2, quiet=True), threads=1)
    assert squares(finished) == [0, 1, 4, 9] and not finished.failed
    assert list(finished.retried) == [CELLS[1].name] and "code 9" in finished.retried[CELLS[1].name]
    processes = {result["process"] for result in finished.results.values()}
    assert os.getpid() not in processes and {result["threads"] for result in finished.results.values()} == {"1"}
    assert not multiprocessing.active_children()


def test_dead_twice_is_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    finished = run_cells(CELLS, tmp_path, works.die_always, Pool(quiet=True))
    assert squares(finished) == [0, 4, 9]
    assert finished.failed == {CELLS[1].name: "RuntimeError: out of luck"} and not finished.retried
    with pytest.raises(VitralError, match="out of luck"):
        finished.raise_failures()


def test_wrong_settings_are_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot work"):
        run_cells(CELLS, tmp_path, works.refuse, Pool(quiet=True))


def test_a_stop_is_not_a_death(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="SIGINT"):
        run_cells(CELLS, tmp_path, works.stop, Pool(quiet=True))


def test_an_interrupted_pool_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_links: object) -> None:
        raise KeyboardInterrupt

    idle = {"cell": None, "link": None, "give": lambda *_: None, "stop": lambda: None}
    monkeypatch.setattr("vitral.study.fight.pool._Worker", lambda *_: types.SimpleNamespace(**idle))
    monkeypatch.setattr("vitral.study.fight.pool.wait", interrupt)
    with pytest.raises(Stopped, match="SIGINT"):
        run_cells(CELLS, tmp_path, works.square, Pool(parallel=2, quiet=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_terminated_pool_keeps_what_is_done_and_says_so(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background without it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, usual))

    def terminate() -> None:
        while not list(tmp_path.glob(f"*/{CELL}")):
            time.sleep(0.05)
        os.kill(os.getpid(), getattr(signal, name))

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(Stopped, match=name):
        run_cells(CELLS, tmp_path, works.linger, Pool(parallel=2, quiet=True))
    assert not multiprocessing.active_children() and signal.getsignal(signal.SIGTERM) == before
    again = run_cells(CELLS, tmp_path, works.square, Pool(quiet=True))
    assert again.skipped == [CELLS[0].name] and squares(again) == [0, 1, 4, 9]


def test_another_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    run_cells(CELLS[:1], tmp_path, works.square, Pool(quiet=True))
    other = dataclasses.replace(CELLS[0], size=99)
    with pytest.raises(UsageError, match="another run"):
        run_cells([other], tmp_path, works.square, Pool(quiet=True))


def test_a_cell_of_an_earlier_version_is_still_done(tmp_path: Path) -> None:
    run_cells(CELLS[:1], tmp_path, works.square, Pool(quiet=True))
    path = tmp_path / CELLS[0].name / CELL
    stored = json.loads(path.read_text())
    del stored["cell"]["run"]["weights"]  # a field that came later
    path.write_text(json.dumps(stored))
    assert run_cells(CELLS[:1], tmp_path, works.square, Pool(quiet=True)).skipped == [CELLS[0].name]


def test_two_cells_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two cells"):
        run_cells([CELLS[0], dataclasses.replace(CELLS[0], contender="other")], tmp_path, works.square, Pool(quiet=True))


@pytest.mark.parametrize("content", ["{}", "[]", '{"cell": {}}', '{"cell": 1, "result": 2}'])
def test_a_damaged_result_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / CELLS[0].name).mkdir()
    (tmp_path / CELLS[0].name / CELL).write_text(content)
    with pytest.raises(DataError, match=r"cell\.json"):
        run_cells(CELLS, tmp_path, works.square, Pool(quiet=True))


def test_one_process_per_folder(tmp_path: Path) -> None:
    with FolderLock(tmp_path, "a study"), pytest.raises(UsageError, match="in use"):
        run_cells(CELLS, tmp_path, works.square, Pool(quiet=True))


@pytest.mark.slow
def test_a_script_without_a_guard_may_use_the_pool(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_pool import CELLS, Pool, run_cells, squares, works\n"
        f"print(squares(run_cells(CELLS, {str(tmp_path / 'cells')!r}, works.square, Pool(parallel=2, quiet=True))))\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False)
    assert ended.stdout.strip() == "[0, 1, 4, 9]" and not ended.stderr


class StandIn(types.ModuleType):
    """As much of Ray as the pool uses: tasks run here when they are waited for, and may end as Ray says that they can."""

    def __init__(self, endings: dict[str, list[BaseException]], cores: int = 8) -> None:
        super().__init__("ray")
        self.exceptions = types.ModuleType("ray.exceptions")
        self.exceptions.RayError = self.RayError = type("RayError", (Exception,), {})  # type: ignore[attr-defined]
        self.exceptions.RayTaskError = self.RayTaskError = type("RayTaskError", (self.RayError,), {})  # type: ignore[attr-defined]
        self.endings, self.cores, self.stopped = endings, cores, False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> StandIn:
        monkeypatch.setitem(sys.modules, "ray", self)
        monkeypatch.setitem(sys.modules, "ray.exceptions", self.exceptions)
        return self

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str, **_: object) -> None:
        if address != "local":
            raise ConnectionError(f"ray did not find a cluster at {address}\nand says so in many lines")

    def shutdown(self) -> None:
        self.stopped = True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": self.cores}}, {"Alive": False, "Resources": {"CPU": 1000}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cores}

    def remote(self, max_retries: int, **_: object) -> Any:
        assert max_retries == 0  # counted here, where the second attempt is announced
        return lambda function: types.SimpleNamespace(remote=lambda *arguments: _Task(function, arguments))

    def wait(self, tasks: list[_Task], num_returns: int) -> tuple[list[_Task], list[_Task]]:
        return tasks[:num_returns], tasks[num_returns:]

    def get(self, task: _Task) -> Any:
        if left := self.endings.get(Path(task.arguments[2]).name):
            raise left.pop(0)
        return task.function(*task.arguments)


@dataclasses.dataclass(eq=False)
class _Task:
    function: Any
    arguments: tuple[Any, ...]


def caused(ray: StandIn, cause: BaseException) -> BaseException:
    error = ray.RayTaskError("a traceback\nof many lines")
    error.cause = cause  # type: ignore[attr-defined]
    return error


def test_a_ray_task_that_dies_is_named_and_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = StandIn({}).install(monkeypatch)
    died = ray.RayError("The worker died unexpectedly\nand more")
    ray.endings = {CELLS[1].name: [died], CELLS[2].name: [caused(ray, Stopped("stopped by SIGTERM"))], CELLS[3].name: [died, died]}
    finished = run_cells(CELLS, tmp_path, works.square, Pool(ray="local"), threads=1)
    assert squares(finished) == [0, 1, 4] and ray.stopped
    assert finished.retried == {CELLS[1].name: "RayError: The worker died unexpectedly", CELLS[2].name: "stopped by SIGTERM"}
    assert finished.failed == {CELLS[3].name: "RayError: The worker died unexpectedly"}
    assert f"cell {CELLS[1].name} died (RayError: The worker died unexpectedly); trying once more" in capsys.readouterr().err
    with pytest.raises(VitralError, match=f"{CELLS[3].name} .*twice"):
        finished.raise_failures()


def test_a_ray_cluster_that_cannot_work_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandIn({}).install(monkeypatch)
    with pytest.raises(UsageError, match="there:1"):
        run_cells(CELLS, tmp_path, works.square, Pool(ray="there:1", quiet=True))
    with pytest.raises(UsageError, match="9 cores"):
        run_cells(CELLS, tmp_path, works.square, Pool(ray="local", quiet=True), threads=9)
    ray.endings = {CELLS[0].name: [caused(ray, ConfigError("these settings cannot work", "use others"))]}
    with pytest.raises(ConfigError, match="cannot work"):
        run_cells(CELLS, tmp_path, works.square, Pool(ray="local", quiet=True))
    monkeypatch.setattr(ray, "wait", lambda *_, **__: (_ for _ in ()).throw(ray.RayError("connection lost")))
    with pytest.raises(FailedError, match=f"connection lost.*{CELLS[0].name}"):
        run_cells(CELLS, tmp_path, works.square, Pool(ray="local", quiet=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_cluster_gives_the_same_and_survives_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task ends its process, another is killed: each is named, and given to Ray again, within 30 s of its death."""
    pytest.importorskip("ray")
    said: dict[str, float] = {}
    monkeypatch.setattr("vitral.study.fight.pool.say", lambda text: said.update({text.split()[1]: time.time()}))
    finished = run_cells(CELLS, tmp_path, works.die_or_be_killed, Pool(ray="local"), threads=1)
    assert squares(finished) == [0, 1, 4, 9] and sorted(finished.retried) == sorted(said) == [CELLS[1].name, CELLS[2].name]
    after = {name: moment - float((tmp_path / name / "died").read_text()) for name, moment in said.items()}
    assert all(0 < seconds < 30 for seconds in after.values()), after


def test_a_cell_that_apple_s_gpu_refuses_names_the_way_out() -> None:
    missing = NotImplementedError("The operator 'aten::_pdist_forward' is not currently implemented for the MPS device.")
    assert pool._reason(missing) == 'PyTorch cannot run aten::_pdist_forward on Apple\'s GPU: use --device cpu, or device="cpu" in Python'
