"""Arrays → pictures. Nothing here knows what a model is; matplotlib is used through its objects, never through pyplot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitral.base.lazy import lazily

if TYPE_CHECKING:
    from vitral.draw.charts import bar_chart, head_scatter, prediction_chart, reliability_figure
    from vitral.draw.curves import Line, line_chart, training_curves
    from vitral.draw.heatmap import Heatmap
    from vitral.draw.matrices import confusion_figure, grid_of_grids, matrix_figure
    from vitral.draw.overlay import lay_over
    from vitral.draw.provenance import save_figure
    from vitral.draw.style import paint
    from vitral.draw.tiles import class_sheet, filter_tiles, patch_figure, picture_sheet

__all__ = [
    "Heatmap",
    "Line",
    "bar_chart",
    "class_sheet",
    "confusion_figure",
    "filter_tiles",
    "grid_of_grids",
    "head_scatter",
    "lay_over",
    "line_chart",
    "matrix_figure",
    "paint",
    "patch_figure",
    "picture_sheet",
    "prediction_chart",
    "reliability_figure",
    "save_figure",
    "training_curves",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "charts": ("bar_chart", "head_scatter", "prediction_chart", "reliability_figure"),
        "curves": ("Line", "line_chart", "training_curves"),
        "heatmap": ("Heatmap",),
        "matrices": ("confusion_figure", "grid_of_grids", "matrix_figure"),
        "overlay": ("lay_over",),
        "provenance": ("save_figure",),
        "style": ("paint",),
        "tiles": ("class_sheet", "filter_tiles", "patch_figure", "picture_sheet"),
    },
)
