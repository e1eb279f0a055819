"""The curves of a forecast: error against epsilon."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from od_core.evaluation.figures import SETTINGS
from od_core.evaluation.forecast import ALL_SIZES


def draw_forecast(errors: pd.DataFrame, path: Path) -> None:
    """Mean absolute error over all cells of each level against epsilon, on logarithmic axes; the same bytes each time.

    Args:
        errors: epsilon, declared, and the columns of :func:`od_core.evaluation.forecast.forecast`.
        path: of the SVG file.
    """
    import matplotlib
    from matplotlib.figure import Figure

    shown = errors[(errors["size_class"] == ALL_SIZES) & (errors["mean_abs_error"] > 0)]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(6.5, 4.0), layout="constrained")
        axes = figure.subplots()
        colours = matplotlib.colormaps["viridis"]
        levels = shown["level"].drop_duplicates().to_list()
        for number, level in enumerate(levels):
            rows = shown[shown["level"] == level]
            label = f"{level}: {rows['origin_level'].iloc[0]} to {rows['destination_level'].iloc[0]}"
            colour = colours(0.9 * number / max(len(levels) - 1, 1))
            axes.plot(rows["epsilon"], rows["mean_abs_error"], marker="o", markersize=3.5, color=colour, label=label)
        for epsilon in errors.loc[errors["declared"], "epsilon"].unique():
            axes.axvline(epsilon, color="#222222", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="epsilon (dotted: declared)", ylabel="mean absolute error (trips)")
        if levels:
            figure.legend(loc="outside right upper", title="level")
        figure.savefig(path, metadata={"Date": None})
