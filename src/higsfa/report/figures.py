"""Figures of estimates and their errors. Each function gives None where the run has nothing to show."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.metrics import ErrorByLabel, error_by_label
from higsfa.report.drawing import ACCENT, DOTS, FAINT, INK, Figure, draw, finish, looks_of, thinned, with_unit
from higsfa.report.numbers import percent, short, shortened
from higsfa.report.records import Label, Metrics, RunFolder

MAX_POINTS = 3000
MAX_COUNTED_CLASSES = 10
MAX_CURVE = 25


def estimate_figure(run: RunFolder, label: Label) -> Figure | None:
    """Estimates against true labels, their mean, and the band of plus and minus the MAE."""
    if run.predictions is None or label.name not in run.predictions.truth:
        return None
    truth, estimate = run.predictions.truth[label.name], run.predictions.estimate[label.name]
    known = np.isfinite(truth) & np.isfinite(estimate)
    truth, estimate = truth[known], estimate[known]
    if len(truth) == 0:
        return None
    curve = _curve(truth, estimate)

    title = f"Estimated against true {label.name}"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        rows = thinned(len(truth), MAX_POINTS)
        axes.scatter(truth[rows], estimate[rows], s=5, color=DOTS, alpha=0.35, linewidths=0, rasterized=True)
        band = {"color": ACCENT, "alpha": 0.18, "linewidth": 0, "label": "true label ± MAE"}
        axes.fill_between(curve.label, curve.label - curve.mae, curve.label + curve.mae, **band)
        ends = [truth.min(), truth.max()]
        axes.plot(ends, ends, color=INK, linewidth=0.9, linestyle="--", label="perfect")
        axes.plot(curve.label, curve.mean_estimate, color=ACCENT, linewidth=2, label="mean estimate")
        finish(axes, with_unit(f"true {label.name}", label), f"estimated {shortened(label.name)}")

    mae = float(np.mean(np.abs(estimate - truth)))
    return Figure(
        title=title,
        lead=(
            "Each dot is a test sample; on the dashed line estimates are perfect. The band is as wide as the mean "
            "absolute error there. Where the thick line leaves the dashed one, estimates lean to one side."
        ),
        alt=f"Scatter plot of {len(truth):,} estimates of {label.name}, mean absolute error {short(mae)}.",
        svg=draw(title, paint),
    )


def error_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The mean absolute error as a function of the true label."""
    methods = [method for method in metrics.methods if method.role != "chance"]
    curves = {m.name: curve for m in methods if (curve := m.scores(label).by_label) and curve.label}
    if not curves:
        return None
    looks = looks_of(metrics.methods)
    main = curves.get(metrics.main.name) or next(iter(curves.values()))

    title = f"Error as a function of {label.name}"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        for method, curve in curves.items():
            mae = np.array([np.nan if value is None else value for value in curve.mae])
            look = looks[method] | ({"marker": ""} if len(mae) > 25 else {})
            axes.plot(curve.label, mae, label=shortened(method, 24), **look)
        axes.set_ylim(bottom=0)
        counts = axes.twinx()
        counts.fill_between(main.label, main.count, step="mid", color=FAINT, linewidth=0)
        counts.set_ylim(0, 4 * max(max(main.count), 1))
        counts.set_axis_off()
        counts.set_zorder(axes.get_zorder() - 1)
        finish(axes, with_unit(f"true {label.name}", label), with_unit("MAE", label))

    return Figure(
        title=title,
        lead=(
            "Mean absolute error at each true value; lower is better. The grey area shows how many test samples there "
            "are: where it is thin, errors are larger and less certain."
        ),
        alt=f"Mean absolute error of {label.name} against its true value, one line for each of {', '.join(curves)}.",
        svg=draw(title, paint),
    )


def cumulative_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The share of estimates within an allowed error, as a curve."""
    curves = {m.name: curve for m in metrics.methods if (curve := m.scores(label).cumulative) and curve.thresholds}
    if not curves:
        return None
    looks = looks_of(metrics.methods)

    title = f"Cumulative scores, {label.name}"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        for method, curve in curves.items():
            order = np.argsort(curve.thresholds)
            scores = 100 * np.array(curve.scores)[order]
            axes.plot(np.array(curve.thresholds)[order], scores, label=shortened(method, 24), **looks[method])
        axes.set_ylim(0, 102)
        finish(axes, with_unit("allowed error", label), "test samples within it (%)")

    return Figure(
        title=title,
        lead="How many estimates are good enough, for every idea of good enough. Further up and left is better.",
        alt=f"Cumulative scores of {label.name}, one rising curve for each of {', '.join(curves)}.",
        svg=draw(title, paint),
    )


def confusion_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The main method's confusion matrix, rows adding up to 100 per cent."""
    counts = metrics.main.scores(label).confusion
    if not counts:
        return None
    matrix = np.array(counts, dtype=np.float64)
    totals = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    n = len(matrix)
    from matplotlib.colors import to_rgba

    classes = label.classes if len(label.classes) == n else tuple(map(str, range(n)))

    title = f"Confusion matrix, {label.name}"

    def paint(canvas: Any) -> None:
        axes = canvas.subplots()
        colors = np.empty((n, n, 4))
        colors[:] = to_rgba(DOTS)
        colors[..., 3] = 0.05 + 0.6 * shares
        axes.pcolormesh(np.arange(n), np.arange(n), colors, rasterized=n > MAX_COUNTED_CLASSES)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        ticks = thinned(n, 20)
        names = [shortened(classes[i], 12) for i in ticks]
        axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) * len(names) > 40 else 0)
        axes.set_yticks(ticks, names)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        for i, j in np.ndindex(*shares.shape) if n <= MAX_COUNTED_CLASSES else ():
            text = f"{100 * shares[i, j]:.0f}" + (f" %\n({matrix[i, j]:,.0f})" if n <= 4 else "")
            axes.text(j, i, text, ha="center", va="center")
        axes.set_xlabel(f"estimated {shortened(label.name)}")
        axes.set_ylabel(f"true {shortened(label.name)}")

    correct = float(np.trace(matrix) / max(matrix.sum(), 1))
    return Figure(
        title=title,
        lead=(
            "Each row is a true class and adds up to 100\N{NO-BREAK SPACE}%; stronger colour is more. The diagonal is "
            "right, everything beside it is mistaken for the class of its column."
        ),
        alt=f"Confusion matrix of {n} classes of {label.name}; {percent(correct)} of the samples lie on the diagonal.",
        svg=draw(title, paint, height=3.6),
    )


def _curve(truth: Any, estimate: Any) -> ErrorByLabel:
    """Mean estimate and error by whole values of the label if their number suits a curve, else by bins."""
    n_whole = len(np.unique(np.floor(truth)))
    return error_by_label(truth, estimate, None if 8 <= n_whole <= MAX_CURVE else MAX_CURVE)
