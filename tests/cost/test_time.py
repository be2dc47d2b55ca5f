import dataclasses

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.cost.time import EFFICIENCY, GPUS, efficiency, find_gpu, fit_time


def test_efficiency_rises_with_the_width_between_measured_points():
    assert [efficiency(width) for width, _ in EFFICIENCY] == [share for _, share in EFFICIENCY]
    assert efficiency(10) == EFFICIENCY[0][1] and efficiency(5000) == EFFICIENCY[-1][1]
    assert EFFICIENCY[2][1] < efficiency(512) < EFFICIENCY[3][1]


def test_gpus_are_found_by_name():
    assert find_gpu("H200") is GPUS["h200"] and all(gpu.memory >= 16 for gpu in GPUS.values())
    with pytest.raises(UsageError, match="h200"):
        find_gpu("h2000")


def test_the_time_law_recovers_planted_costs():
    n = np.array([5, 20, 80, 300])
    linear, quadratic, measured = 1e9 * n, 1e7 * n * n, 0.3 + 0.5 * n + 2 * 0.01 * n * n
    law = fit_time(linear.tolist(), quadratic.tolist(), measured.tolist())
    assert law is not None and np.allclose(dataclasses.astuple(law), [0.3, 0.5, 2, 0], atol=1e-6)
    assert law.ms(linear[1], quadratic[1]) == pytest.approx(measured[1])
    assert fit_time(linear[:3].tolist(), quadratic[:3].tolist(), measured[:3].tolist()) is None
