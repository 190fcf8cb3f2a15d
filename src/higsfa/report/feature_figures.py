"""Figures of features and their slowness. Each function gives None where the run has nothing to show."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.report.drawing import ACCENT, INK, PALETTE, PLATE, Figure, draw, finish, looks_of, thinned, with_unit
from higsfa.report.numbers import shortened
from higsfa.report.records import Label, Metrics, RunFolder

MAX_POINTS = 3000


def delta_figure(metrics: Metrics) -> Figure | None:
    """Delta values of the first features on test samples."""
    values = {m.name: m.delta.test for m in metrics.methods if m.delta and m.delta.test}
    if not values:
        return None
    looks = looks_of(metrics.methods)

    title = "Delta of the first features"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        for method, deltas in values.items():
            heights = [np.nan if delta is None else delta for delta in deltas[:10]]
            axes.plot(range(1, len(heights) + 1), heights, label=shortened(method, 24), **looks[method])
        _noise_line(axes)
        _whole_ticks(axes)
        finish(axes, "feature", "Delta, test samples")

    return Figure(
        title=title,
        lead="Delta: 0 is constant, 2 is noise; lower is slower. Features near the dashed line carry no slow signal.",
        alt=f"Delta values of the first features on test samples, one line for each of {', '.join(values)}.",
        svg=draw(title, paint),
    )


def layer_figure(metrics: Metrics) -> Figure | None:
    """The slowest feature's Delta from layer to layer."""
    layers = [layer for layer in metrics.layers if layer.mean_delta_1 is not None or layer.min_delta_1 is not None]
    if not layers:
        return None

    title = "Delta per layer"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        number = [layer.layer for layer in layers]
        mean = [np.nan if layer.mean_delta_1 is None else layer.mean_delta_1 for layer in layers]
        least = [np.nan if layer.min_delta_1 is None else layer.min_delta_1 for layer in layers]
        axes.plot(number, mean, color=ACCENT, linewidth=2.2, marker="o", markersize=4, label="mean over nodes")
        axes.plot(number, least, color=PALETTE[1], linestyle="--", marker="s", markersize=4, label="slowest node")
        _noise_line(axes)
        _whole_ticks(axes)
        finish(axes, "layer", "Delta of the first feature")

    return Figure(
        title=title,
        lead="The first feature of each layer's nodes. A falling line shows that higher layers find slower features.",
        alt=f"Delta of the first feature over {len(layers)} layers, mean over nodes and slowest node.",
        svg=draw(title, paint),
    )


def feature_figure(run: RunFolder, label: Label) -> Figure | None:
    """The first features of test samples, coloured by a label."""
    features, rows = run.examples.features, run.examples.feature_rows
    if features is None or rows is None or features.shape[1] < 2 or run.predictions is None:
        return None
    if label.name not in run.predictions.truth:
        return None
    values = run.predictions.truth[label.name][rows]
    usable = np.isfinite(features).all(axis=1)
    if label.is_numeric:
        usable &= np.isfinite(values)
    features, values = features[usable], values[usable]
    if len(features) == 0:
        return None
    pairs = [(0, 1), (2, 3)] if features.shape[1] >= 4 else [(0, 1)]

    title = f"First features, coloured by {label.name}"

    def paint(canvas: Any) -> None:
        panels = canvas.subplots(1, len(pairs), squeeze=False)[0]
        kept = thinned(len(features), MAX_POINTS)
        paint_panel = _numeric_panel if label.is_numeric else _class_panel
        for axes, (i, j) in zip(panels, pairs, strict=True):
            handle = paint_panel(axes, features[kept, i], features[kept, j], values[kept], label)
            axes.set_facecolor(PLATE)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_xlabel(f"feature {i + 1}")
            axes.set_ylabel(f"feature {j + 1}")
        if label.is_numeric:
            bar = canvas.colorbar(handle, ax=panels.tolist(), location="bottom", aspect=40, pad=0.03)
            bar.solids.set(alpha=1, rasterized=True)
            bar.outline.set_visible(False)
            bar.set_label(with_unit(label.name, label))
        else:
            handles, names = panels[0].get_legend_handles_labels()
            columns = min(len(names), 4)
            legend = canvas.legend(handles, names, loc="outside lower center", ncols=columns, markerscale=3)
            for dot in legend.legend_handles:
                dot.set(alpha=1, rasterized=False)

    return Figure(
        title=title,
        lead=(
            "Each dot is a test sample. Colours that lie in order, or in clusters, mean that these features say "
            f"something about {label.name}."
        ),
        alt=f"Scatter plots of the first features of {len(features):,} test samples, coloured by {label.name}.",
        svg=draw(title, paint, height=3.2),
    )


def _numeric_panel(axes: Any, x: Any, y: Any, values: Any, label: Label) -> Any:
    return axes.scatter(x, y, c=values, cmap="viridis", s=5, alpha=0.8, linewidths=0, rasterized=True)


def _class_panel(axes: Any, x: Any, y: Any, values: Any, label: Label) -> Any:
    """One colour for each of the first classes, grey for all others."""
    named = (label.classes or tuple(sorted({v for v in values if v is not None})))[: len(PALETTE)]
    look = {"s": 5, "alpha": 0.7, "linewidths": 0, "rasterized": True}
    others = ~np.isin(values, named)
    if others.any():
        axes.scatter(x[others], y[others], color="0.6", label="others", **look)
    for name, color in zip(named, PALETTE, strict=False):
        chosen = values == name
        axes.scatter(x[chosen], y[chosen], color=color, label=shortened(name, 18), **look)


def _noise_line(axes: Any) -> None:
    axes.axhline(2.0, color=INK, alpha=0.6, linewidth=1, linestyle="--")
    axes.annotate(
        "noise", (0.02, 2), xycoords=("axes fraction", "data"), ha="left", va="bottom", alpha=0.8, fontsize=8.5
    )
    axes.set_ylim(bottom=0)


def _whole_ticks(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
