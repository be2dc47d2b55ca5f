"""What a line of the journal is the mean of."""

from __future__ import annotations

import pytest
import torch

from vitral.train.counts import Counts, Window


def test_a_line_is_the_mean_of_the_steps_since_the_last_one() -> None:
    counts = Counts(step=10, seconds=4.0, line_step=10, line_seconds=4.0)
    for steps, loss, correct in ((3, 6.0, 12.0), (1, 4.0, 0.0)):
        window = Window()
        for place in range(steps):
            window.add(torch.tensor(1.0), torch.tensor(1.0), torch.arange(8), 0.1 * (place + 1), 8)
        assert window.images == 8 * steps == 8 * len(window.losses) and len(window.indices) == steps
        counts.step += steps
        counts.seconds += 1.0
        counts.take(window, loss, correct)
        assert counts.lr == pytest.approx(0.1 * steps)
    assert (counts.mean_loss, counts.mean_correct, counts.images_per_second) == (2.5, 12 / 32, 16.0)
    counts.begin_line()
    assert (counts.step, counts.line_step, counts.seconds, counts.line_seconds) == (14, 14, 6.0, 6.0)
    assert (counts.images, counts.loss, counts.correct) == (0, 0.0, 0.0)
