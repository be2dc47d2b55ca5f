from __future__ import annotations

import subprocess
import sys
import time

from vitral.run.times import Times, process_start


def test_the_process_began_before_its_first_line() -> None:
    """Not when the module was imported: a second of imports would be missing from every table."""
    code = "import time; began = time.time(); time.sleep(0.3); from vitral.run.times import process_start; print(began - process_start())"
    gap = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert -0.05 < gap < 30 and abs(process_start() - process_start()) < 0.05


def test_parts_add_up_to_no_more_than_the_whole() -> None:
    times = Times(time.time() - 5)
    for _ in range(2):
        with times.taking("validation"):
            time.sleep(0.01)
    times.until_now("preparation")
    told = times.to_dict()
    assert told["start"] >= 5 and told["validation"] >= 0.02 and told["began"].endswith("+00:00")
    parts = sum(told[name] for name in ("start", "validation", "preparation"))
    assert parts <= told["total"] + 0.01 and told["total"] < 60
    assert Times().to_dict()["start"] < 1
