from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.draw.curves import Line, _log_tick_values, line_chart, read_curve, training_curves


def journal(offset: float, epochs: int = 4) -> list[dict]:
    rows = [
        {
            "step": epoch,
            "epoch": epoch,
            "split": split,
            "accuracy": offset + epoch / 10 + (0.05 if split == "train" else 0),
            "loss": 1 / epoch,
        }
        for epoch in range(1, epochs + 1)
        for split in ("train", "validation")
    ]
    return [*rows, {"step": 9, "epoch": epochs, "split": "test", "accuracy": 0.1, "loss": 9.0}]


def labelled(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.lines}


def test_without_labels_effective_rank_is_shown(whole: Callable) -> None:
    rows = [{"epoch": epoch, "split": "validation", "loss": 1.0, "effective_rank": 3.0 + epoch} for epoch in range(4)]
    figure = training_curves({"blind": rows})
    whole(figure)
    assert figure.axes[0].get_ylabel() == "effective rank" and labelled(figure.axes[0])["validation"].tolist() == [3, 4, 5, 6]


def test_one_run(whole: Callable) -> None:
    figure = training_curves({"digits": journal(0.5)}, title="digits")
    whole(figure)
    accuracy, loss = figure.axes
    assert set(labelled(accuracy)) == {"train", "validation"}
    assert np.allclose(labelled(accuracy)["validation"], [60, 70, 80, 90])
    assert np.allclose(labelled(loss)["train"], [1, 1 / 2, 1 / 3, 1 / 4])
    assert accuracy.lines[0].get_linestyle() != accuracy.lines[1].get_linestyle()


def test_several_seeds_get_mean_and_range(whole: Callable, golden: Callable) -> None:
    figure = training_curves({"ViT": [journal(0.1), journal(0.3), journal(0.2, epochs=3)], "CNN": journal(0.5)})
    whole(figure)
    golden(figure, "training_curves")
    accuracy = figure.axes[0]
    lines = labelled(accuracy)
    assert np.allclose(lines["ViT validation"], [30, 40, 50]), "at the epochs that all seeds have"
    assert len(lines["CNN validation"]) == 4
    band = accuracy.collections[1].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(20)
    assert band[:, 1].max() == pytest.approx(60)
    assert {line.get_color() for line in accuracy.lines if line.get_label().startswith("ViT")} != {
        line.get_color() for line in accuracy.lines if line.get_label().startswith("CNN")
    }


def test_long_names_are_not_cut_off(whole: Callable) -> None:
    names = ("vit-small norm_order=pre", "vit-small norm_order=post", "a name of a model that is so long that nobody would type it twice")
    figure = training_curves({name: [journal(0.1), journal(0.2)] for name in names})
    whole(figure)
    (box,) = figure.legends
    ends = box.get_window_extent()
    assert ends.x0 >= 0 and ends.x1 <= figure.bbox.width and len(box.get_texts()) == 6


def test_large_numbers_of_a_log_axis_are_powers_of_ten(whole: Callable) -> None:
    figure = line_chart([Line([4, 256], [2e4, 2e8])], x="tokens", y="FLOPs", log_x=True, log_y=True)
    whole(figure)
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "10⁶" in shown and not any("e+" in label or len(label) > 6 for label in shown)


def test_broken_and_repeated_values() -> None:
    rows = [
        {"epoch": 1, "split": "train", "loss": 2.0},
        {"epoch": 1, "split": "train", "loss": 4.0},
        {"epoch": 2, "split": "train", "loss": float("nan")},
        {"epoch": 3, "split": "train", "loss": None},
        {"epoch": 4, "split": "train", "loss": 1.0, "accuracy": 0.5},
    ]
    epochs, values = read_curve(rows, "train", "loss")
    assert epochs.tolist() == [1, 4]
    assert values.tolist() == [3, 1]


def test_training_lines_are_averaged_by_epoch_and_validation_is_not() -> None:
    places = [0.5, 1.0001, 1.5, 2.0, 2.5, 3.0]
    rows = [
        {"epoch": place, "split": split, "loss": float(index)} for index, place in enumerate(places) for split in ("train", "validation")
    ]
    epochs, values = read_curve(rows, "train", "loss")
    assert epochs.tolist() == [1, 2, 3]
    assert values.tolist() == [0.5, 2.5, 4.5]
    assert read_curve(rows, "validation", "loss")[0].tolist() == places
    assert len(read_curve(rows[:8], "train", "loss")[0]) == 4, "a short run shows every line"
    inside = [*rows, {"epoch": 3.2, "split": "train", "loss": 9.0}]
    assert read_curve(inside, "train", "loss")[0].tolist() == [1, 2, 3, 3.2], "no line goes on after the end of the run"


def test_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="validation"):
        training_curves({"x": [{"split": "test", "epoch": 1, "accuracy": 1.0}]})
    with pytest.raises(UsageError, match="no lines"):
        line_chart([], x="a", y="b")
    with pytest.raises(UsageError, match="1 values"):
        line_chart([Line([1, 2], [1], "a")], x="a", y="b")


def test_lines_with_bands_on_log_axes(whole: Callable, golden: Callable) -> None:
    sizes = [1250, 5000, 45000]
    lines = [Line(sizes, [0.5, 0.6, 0.7], "ViT", [0.4, 0.5, 0.6], [0.6, 0.7, 0.8]), Line(sizes, [0.6, 0.7, 0.8], "CNN", dashed=True)]
    figure = line_chart(lines, x="training pictures", y="accuracy", log_x=True, log_y=True, percent=True, title="Data", note="band: 95 %")
    whole(figure)
    golden(figure, "line_chart")
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,250", "5,000", "45,000"]
    assert np.allclose(labelled(axes)["ViT"], [50, 60, 70])
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(80)
    assert axes.get_ylabel() == "accuracy (%)"


def test_many_lines_keep_their_names_outside(whole: Callable) -> None:
    figure = line_chart([Line([1, 2], [n, n + 1], f"model number {n}") for n in range(9)], x="x", y="y")
    whole(figure)
    assert len(figure.axes[0].get_legend().get_texts()) == 9


@pytest.mark.parametrize(
    ("low", "high", "places"),
    [
        (70, 100, [70, 75, 80, 85, 90, 95, 100]),
        (9, 70, [10, 20, 30, 40, 60]),
        (7.1, 19, [8, 10, 12, 14, 16, 18]),
        (0.9, 1200, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        (0.5, 2e11, [10.0**exponent for exponent in range(12)]),
    ],
)
def test_places_of_a_log_axis(low: float, high: float, places: list[float]) -> None:
    assert _log_tick_values(low, high) == places


@pytest.mark.parametrize("values", [(0.72, 0.98), (0.3, 0.31), (0.01, 0.9), (0.41, 0.57), (1e-6, 0.9)])
def test_labels_of_a_log_axis_are_three_or_more_and_apart(values: tuple[float, float], whole: Callable) -> None:
    figure = line_chart([Line([1, 10], values, "ViT")], x="pictures", y="error", log_x=True, log_y=True, percent=True)
    whole(figure)
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    shown = [
        label for label, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True) if label.get_text() and low <= place <= high
    ]
    assert len(shown) >= 3
    boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.y0)
    assert all(below.y1 < above.y0 for below, above in pairwise(boxes))


@pytest.mark.parametrize("places", [(2.5e13, 6e14), (1e13, 1.4e13), (1e9, 1e18), (3e9, 4e11), (2.4e13, 1.4e14), (1e13, 1.02e13)])
def test_flops_on_a_log_axis_do_not_run_into_each_other(places: tuple[float, float], whole: Callable) -> None:
    figure = line_chart([Line(places, [0.4, 0.5], "ViT")], x="training FLOPs", y="accuracy", log_x=True, percent=True)
    whole(figure)
    axes = figure.axes[0]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 3 and all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_line_may_have_the_colour_of_one_series_and_the_marker_of_another() -> None:
    axes = line_chart([Line([1], [1], "a", colour=0), Line([1], [2], "b", colour=0, marker=1)], x="x", y="y").axes[0]
    first, second = axes.lines
    assert first.get_color() == second.get_color() and first.get_marker() != second.get_marker()


def test_whole_numbers_have_whole_ticks() -> None:
    axes = line_chart([Line([1, 2, 3], [0.1, 0.2, 0.3])], x="block", y="norm").axes[0]
    axes.figure.canvas.draw()
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
