"""The figures of a report, and its contact sheet. Functions return None if the run has nothing to show."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from higsfa.evaluation.schema import Label, Method, Metrics
from higsfa.metrics import ErrorByLabel, error_by_label
from higsfa.report.reading import RunFolder
from higsfa.report.tables import N_DELTAS, percent, short, shortened
from higsfa.training.sources import evenly_spread

MAX_POINTS, MAX_CURVE, MAX_COUNTED_CLASSES, MAX_GROUPS = 3000, 25, 10, 60
PER_STRIP, MAX_SIDE = 8, 128  # pictures of a strip, and their pixels
DOT: dict[str, Any] = {"s": 5, "linewidths": 0, "rasterized": True}

# These colours are replaced by the page's own, so that figures follow its light and dark schemes.
INK, FAINT, ACCENT, PLATE = "#010203", "#010204", "#010205", "#010206"
_FROM_PAGE = {INK: "currentColor", FAINT: "var(--line)", ACCENT: "var(--accent)", PLATE: "var(--plate)"}

# Okabe and Ito's colours for all kinds of colour vision, without black, low contrast last.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B8A800")
DOTS = "#3C96CF"
_MARKERS = "osD^vP"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (8, 3)))

WIDTH, HEIGHT, RASTER_DPI = 4.5, 3.0, 160  # inches, and dots per inch


class Figure(NamedTuple):
    """An SVG with an explanation and a text for screen readers."""

    title: str
    lead: str
    alt: str
    svg: str


def estimate_figure(run: RunFolder, label: Label) -> Figure | None:
    """Estimates against true labels, their mean, and the band of plus and minus the MAE."""
    if label.name not in run.truth:
        return None
    pair = run.truth[label.name], run.estimate[label.name]
    truth, estimate = (values[np.isfinite(pair).all(axis=0)] for values in pair)
    if len(truth) == 0:
        return None
    curve = _curve(truth, estimate)

    def paint(axes: Any) -> None:
        rows = evenly_spread(len(truth), MAX_POINTS)
        axes.scatter(truth[rows], estimate[rows], color=DOTS, alpha=0.35, **DOT)
        low, high = curve.label - curve.mae, curve.label + curve.mae
        axes.fill_between(curve.label, low, high, color=ACCENT, alpha=0.18, linewidth=0, label="true label ± MAE")
        ends = [truth.min(), truth.max()]
        axes.plot(ends, ends, color=INK, linewidth=0.9, linestyle="--", label="perfect")
        axes.plot(curve.label, curve.mean_estimate, color=ACCENT, linewidth=2, label="mean estimate")
        _finish(axes, _with_unit(f"true {label.name}", label), f"estimated {shortened(label.name)}")

    mae = short(float(np.mean(np.abs(estimate - truth))))
    lead = (
        "Each dot is a test sample; on the dashed line estimates are perfect. The band is as wide as the mean "
        "absolute error there. Where the thick line leaves the dashed one, estimates are biased."
    )
    alt = f"Scatter plot of {len(truth):,} estimates of {label.name}, mean absolute error {mae}."
    return _figure(f"Estimated against true {label.name}", lead, alt, paint)


def _curve(truth: NDArray[Any], estimate: NDArray[Any]) -> ErrorByLabel:
    """Mean estimate and error by whole values of the label if there are 8 to 25 of them, else by bins."""
    n_whole = len(np.unique(np.floor(truth)))
    return error_by_label(truth, estimate, None if 8 <= n_whole <= MAX_CURVE else MAX_CURVE)


def error_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The mean absolute error as a function of the true label."""
    methods = [method for method in metrics.methods if method.role != "chance"]
    curves = {m.name: curve for m in methods if (curve := m.scores(label).by_label) and curve.label}
    if not curves:
        return None
    main = curves.get(metrics.main.name) or next(iter(curves.values()))

    def paint(axes: Any) -> None:
        _plot_methods(axes, metrics, {name: (curve.label, curve.mae) for name, curve in curves.items()})
        axes.set_ylim(bottom=0)
        counts = axes.twinx()
        counts.fill_between(main.label, main.count, step="mid", color=FAINT, linewidth=0)
        counts.set_ylim(0, 4 * max(max(main.count), 1))
        counts.set_axis_off()
        counts.set_zorder(axes.get_zorder() - 1)
        _finish(axes, _with_unit(f"true {label.name}", label), _with_unit("MAE", label))

    lead = (
        "Mean absolute error at each true value; lower is better. The grey area shows how many test samples there "
        "are: where it is thin, errors are less certain."
    )
    alt = f"Mean absolute error of {label.name} against its true value, one line for each of {', '.join(curves)}."
    return _figure(f"Error as a function of {label.name}", lead, alt, paint)


def cumulative_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The share of estimates within an allowed error, as a curve."""
    curves = {m.name: curve for m in metrics.methods if (curve := m.scores(label).cumulative) and curve.thresholds}
    if not curves:
        return None

    def paint(axes: Any) -> None:
        points = {name: sorted(zip(curve.thresholds, curve.scores, strict=True)) for name, curve in curves.items()}
        _plot_methods(axes, metrics, {name: np.array(pairs).T * [[1], [100]] for name, pairs in points.items()})
        axes.set_ylim(0, 102)
        _finish(axes, _with_unit("allowed error", label), "test samples within it (%)")

    lead = "How many estimates are good enough, for every idea of good enough. Further up and left is better."
    alt = f"Cumulative scores of {label.name}, one rising curve for each of {', '.join(curves)}."
    return _figure(f"Cumulative scores, {label.name}", lead, alt, paint)


def confusion_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The main method's confusion matrix, rows adding up to 100 per cent."""
    counts = metrics.main.scores(label).confusion
    if not counts:
        return None
    from matplotlib.colors import to_rgba

    matrix = np.array(counts, dtype=np.float64)
    totals = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    n = len(matrix)
    classes = label.classes if label.classes and len(label.classes) == n else tuple(map(str, range(n)))

    def paint(axes: Any) -> None:
        colors = np.tile(to_rgba(DOTS), (n, n, 1))
        colors[..., 3] = 0.05 + 0.6 * shares
        axes.pcolormesh(np.arange(n), np.arange(n), colors, rasterized=n > MAX_COUNTED_CLASSES)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        ticks = evenly_spread(n, 20)
        names = [shortened(classes[i], 16) for i in ticks]
        axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) * len(names) > 40 else 0)
        axes.set_yticks(ticks, names)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        for i, j in np.ndindex(*shares.shape) if n <= MAX_COUNTED_CLASSES else ():
            text = f"{100 * shares[i, j]:.0f}" + (f" %\n({matrix[i, j]:,.0f})" if n <= 4 else "")
            axes.text(j, i, text, ha="center", va="center")
        axes.set(xlabel=f"estimated {shortened(label.name)}", ylabel=f"true {shortened(label.name)}")

    correct = float(np.trace(matrix) / max(matrix.sum(), 1))
    lead = (
        "Each row is a true class and adds up to 100\N{NO-BREAK SPACE}%; stronger colour is more. The diagonal is "
        "right, everything beside it is mistaken for the class of its column."
    )
    alt = f"Confusion matrix of {n} classes of {label.name}; {percent(correct)} of the samples lie on the diagonal."
    return _figure(f"Confusion matrix, {label.name}", lead, alt, paint, height=3.6)


def group_figure(metrics: Metrics, label: Label) -> Figure | None:
    """The main method's scores by group, with twice their standard errors, and the score of all samples."""
    own = metrics.main.scores(label)
    if not own.by_group:
        return None
    overall, factor = (own.mae, 1) if label.is_numeric else (own.rate, 100)
    rows = [
        (place + gap / 2, f"{shortened(name, 14)}: {shortened(group, 16)} ({count:,})", factor * score, error)
        for place, (gap, name, group, score, error, count) in enumerate(
            (gap, name, group, score, 2 * factor * (error or 0), count)
            for gap, (name, part) in enumerate(own.by_group.items())
            for group, score, error, count in zip(part.group, part.score, part.se, part.count, strict=True)
            if score is not None
        )
    ][:MAX_GROUPS]

    def paint(axes: Any) -> None:
        places, names, scores, errors = zip(*rows, strict=True)
        ends = np.clip(np.array(scores) + np.outer([-1, 1], errors), 0, np.inf if label.is_numeric else 100)
        if overall is not None:
            axes.axvline(factor * overall.mean, color=INK, linewidth=0.9, linestyle="--")
        axes.hlines(places, *ends, color=ACCENT, linewidth=1.4)
        axes.scatter(scores, places, color=ACCENT, s=24, zorder=3)
        axes.set_yticks(places, names)
        axes.set(ylim=(places[-1] + 0.5, -0.5), xlim=(0 if label.is_numeric else None, None))
        axes.tick_params(axis="y", length=0)
        axes.grid(True, axis="x")
        axes.set_xlabel(_with_unit("MAE", label) if label.is_numeric else "correct (%)")

    if not rows:
        return None
    better = "Further left" if label.is_numeric else "Further right"
    lead = (
        f"Each dot is a group of test samples, their number in parentheses; bars are two standard errors. {better} is "
        "better; the dashed line is the score of all samples. A bar that does not reach the line tells a difference."
    )
    alt = f"Scores of {label.name} for {len(rows)} groups of test samples, with error bars."
    return _figure(f"For whom it works: {label.name}", lead, alt, paint, height=1.0 + 0.24 * len(rows))


def calibration_figure(metrics: Metrics, label: Label) -> Figure | None:
    """A reliability diagram: the share of right estimates against their probability, with counts."""
    found = metrics.main.scores(label).calibration
    if not found or not found.count:
        return None

    def paint(axes: Any) -> None:
        percents = [100 * np.array(values) for values in (found.probability, found.rate)]
        axes.plot([0, 100], [0, 100], color=INK, linewidth=0.9, linestyle="--", label="perfect")
        axes.plot(*percents, color=ACCENT, linewidth=2, marker="o", markersize=4, label="estimates")
        counts = axes.twinx()
        bars = counts.bar(percents[0], found.count, width=6, color=FAINT, linewidth=0)
        counts.bar_label(bars, [f"{count:,}" for count in found.count], fontsize=8.5, padding=1)
        # Below the curve, so that neither hides the other: the largest bar is as high as 22 of 138 per cent.
        counts.set_ylim(0, 138 / 22 * max(*found.count, 1))
        counts.set_axis_off()
        axes.set(xlim=(0, 104), ylim=(-34, 104), yticks=range(0, 101, 20))
        _finish(axes, "probability of the estimate (%)", "of these, correct (%)")

    lead = (
        "On the dashed line, probabilities can be believed; below it, estimates are less often right than they claim. "
        f"Numbers and grey bars tell how many test samples there are. Calibration error {percent(found.error)}."
    )
    alt = f"Reliability diagram of {label.name}; expected calibration error {percent(found.error)}."
    return _figure(f"Calibration, {label.name}", lead, alt, paint, height=3.5)


def delta_figure(metrics: Metrics) -> Figure | None:
    """Delta values of the first features on test samples."""
    values = {m.name: m.delta.test[:N_DELTAS] for m in metrics.methods if m.delta and m.delta.test}
    if not values:
        return None

    def paint(axes: Any) -> None:
        _plot_methods(axes, metrics, {name: (range(1, len(deltas) + 1), deltas) for name, deltas in values.items()})
        _finish_deltas(axes, "feature", "Delta, test samples")

    lead = "Delta: 0 is constant, 2 is noise; lower is slower. Features near the dashed line carry no slow signal."
    alt = f"Delta values of the first features on test samples, one line for each of {', '.join(values)}."
    return _figure("Delta of the first features", lead, alt, paint)


def layer_figure(metrics: Metrics) -> Figure | None:
    """The slowest feature's Delta from layer to layer."""
    layers = [x for x in metrics.layers or () if x.mean_delta_1 is not None or x.min_delta_1 is not None]
    if not layers:
        return None

    def paint(axes: Any) -> None:
        rows = [(layer.layer, layer.mean_delta_1, layer.min_delta_1) for layer in layers]
        numbers, mean, least = np.array(rows, dtype=np.float64).T
        axes.plot(numbers, mean, color=ACCENT, linewidth=2.2, marker="o", markersize=4, label="mean over nodes")
        axes.plot(numbers, least, color=PALETTE[1], linestyle="--", marker="s", markersize=4, label="slowest node")
        _finish_deltas(axes, "layer", "Delta of the first feature")

    lead = "The first feature of each layer's nodes. A falling line shows that higher layers find slower features."
    alt = f"Delta of the first feature over {len(layers)} layers, mean over nodes and slowest node."
    return _figure("Delta per layer", lead, alt, paint)


def feature_figure(run: RunFolder, label: Label) -> Figure | None:
    """The first features of test samples, coloured by a label."""
    features, rows = run.examples.features, run.examples.feature_rows
    if features is None or rows is None or features.shape[1] < 2 or label.name not in run.truth:
        return None
    values = run.truth[label.name][rows]
    usable = np.isfinite(features).all(axis=1)
    if label.is_numeric:
        usable &= np.isfinite(values)
    if not usable.any():
        return None
    kept = np.flatnonzero(usable)[evenly_spread(int(usable.sum()), MAX_POINTS)]
    pairs = [(0, 1), (2, 3)] if features.shape[1] >= 4 else [(0, 1)]

    def paint(canvas: Any) -> None:
        panels = canvas.subplots(1, len(pairs), squeeze=False)[0]
        for axes, (i, j) in zip(panels, pairs, strict=True):
            x, y, own = features[kept, i], features[kept, j], values[kept]
            if label.is_numeric:
                handle = axes.scatter(x, y, c=own, cmap="viridis", alpha=0.8, **DOT)
            else:
                _scatter_classes(axes, x, y, own, label)
            axes.set(facecolor=PLATE, xticks=[], yticks=[], xlabel=f"feature {i + 1}", ylabel=f"feature {j + 1}")
        if label.is_numeric:
            bar = canvas.colorbar(handle, ax=panels.tolist(), location="bottom", aspect=40, pad=0.03)
            bar.solids.set(alpha=1, rasterized=True)
            bar.outline.set_visible(False)
            bar.set_label(_with_unit(label.name, label))
        else:
            handles, names = panels[0].get_legend_handles_labels()
            columns = min(len(names), 4)
            legend = canvas.legend(handles, names, loc="outside lower center", ncols=columns, markerscale=3)
            for dot in legend.legend_handles:
                dot.set(alpha=1, rasterized=False)

    title = f"First features, coloured by {label.name}"
    lead = (
        f"Each dot is a test sample. Colours in order, or in clusters, mean that these features depend on {label.name}."
    )
    alt = f"Scatter plots of the first features of {usable.sum():,} test samples, coloured by {label.name}."
    return Figure(title, lead, alt, draw(title, paint, 3.2))


def _scatter_classes(axes: Any, x: Any, y: Any, values: Any, label: Label) -> None:
    """One colour for each of the first classes, grey for all others."""
    named = (label.classes or tuple(sorted({v for v in values if v is not None})))[: len(PALETTE)]
    groups = [("others", "0.6", ~np.isin(values, named))] if not np.isin(values, named).all() else []
    groups += [(shortened(name, 18), color, values == name) for name, color in zip(named, PALETTE, strict=False)]
    for name, color, chosen in groups:
        axes.scatter(x[chosen], y[chosen], color=color, label=name, alpha=0.7, **DOT)


def _figure(title: str, lead: str, alt: str, paint: Callable[[Any], None], height: float = HEIGHT) -> Figure:
    """A figure whose axes `paint` fills."""
    return Figure(title, lead, alt, draw(title, lambda canvas: paint(canvas.subplots()), height))


def _plot_methods(axes: Any, metrics: Metrics, curves: Mapping[str, Any]) -> None:
    """One line for each method; missing values are gaps, and long lines have no markers."""
    for method, (x, y) in curves.items():
        look = looks_of(metrics.methods)[method] | ({"marker": ""} if len(x) > MAX_CURVE else {})
        axes.plot(x, np.array(y, dtype=np.float64), label=shortened(method, 24), **look)


def _finish(axes: Any, x: str, y: str) -> None:
    """Label the axes, add a grid, and a legend if there are several lines."""
    axes.set(xlabel=x, ylabel=y)
    axes.grid(True)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(loc="best")


def _finish_deltas(axes: Any, x: str, y: str) -> None:
    """The same, with a line at the Delta of noise and integers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.axhline(2.0, color=INK, alpha=0.6, linewidth=1, linestyle="--")
    axes.annotate("noise", (0.02, 2), xycoords=("axes fraction", "data"), va="bottom", alpha=0.8, fontsize=8.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes, x, y)


def _with_unit(text: str, label: Label) -> str:
    """The name of an axis, with the unit of the label in parentheses."""
    return shortened(text) + (f" ({shortened(label.unit, 20)})" if label.unit else "")


class Strip(NamedTuple):
    """A row of pictures, as a data address."""

    name: str
    note: str
    alt: str
    url: str


class Block(NamedTuple):
    strips: tuple[Strip, ...]
    n_pictures: int


def contact_sheet(run: RunFolder) -> tuple[Block, ...]:
    """Blocks of up to eight images, each with one strip for the input and one for each method."""
    images, rebuilt = run.examples.images, run.examples.reconstructions
    if images is None or rebuilt is None or images.size == 0:
        return ()
    errors = {m.name: m.reconstruction_error.global_ for m in run.metrics.methods if m.reconstruction_error}
    rows = [("input", "", "test images", images)]
    for name, pictures in zip(run.examples.reconstruction_names, rebuilt, strict=True):
        note = "" if (error := errors.get(name)) is None else f"error {short(error)}"
        rows.append((shortened(name, 30), note, f"the same images rebuilt from the features of {name}", pictures))
    blocks = []
    for lo in range(0, len(images), PER_STRIP):
        part = slice(lo, lo + PER_STRIP)
        strips = tuple(Strip(name, note, alt, _strip(pictures[part])) for name, note, alt, pictures in rows)
        blocks.append(Block(strips, len(images[part])))
    return tuple(blocks)


def _strip(pictures: NDArray[Any]) -> str:
    """Pictures in a row with clear gaps between them, as a data address."""
    tiles = []
    for picture in np.rint(255 * np.clip(np.nan_to_num(pictures), 0, 1)).astype(np.uint8):
        tile = Image.fromarray(picture)
        tile.thumbnail((MAX_SIDE, MAX_SIDE))
        tiles.append(tile)
    width, height = tiles[0].size
    gap = max(2, width // 16)
    strip = Image.new("LA", (len(tiles) * (width + gap) - gap, height))
    for i, tile in enumerate(tiles):
        strip.paste(tile.convert("LA"), (i * (width + gap), 0))
    return png_address(strip)


def draw(name: str, paint: Callable[[Any], None], height: float = HEIGHT) -> str:
    """The svg element of a figure that `paint` fills; identifiers come from `name`, which is unique within the page."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    style: dict[Any, Any] = dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False)
    style |= dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK)
    style |= {"axes.axisbelow": True, "axes.facecolor": "none", "axes.linewidth": 0.7, "grid.color": FAINT}
    style |= {"font.family": ["DejaVu Sans"], "font.size": 9.5, "legend.fontsize": 8.5, "grid.linewidth": 0.7}
    style |= {"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False, "text.usetex": False}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # The browser chooses the font, so it does not matter that DejaVu lacks a sign.
        warnings.filterwarnings("ignore", message="Glyph|Matplotlib currently does not support")
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained", facecolor="none")
        paint(canvas)
        file = io.StringIO()
        canvas.savefig(file, format="svg", dpi=RASTER_DPI, facecolor="none")
    # The bare element, of any size, with the page's colours.
    svg = file.getvalue()
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg[svg.index("<svg") :], count=2, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    for color, of_page in _FROM_PAGE.items():
        svg = svg.replace(color, of_page)
    return re.sub(r"\n\s*", "\n", svg)


def looks_of(methods: Sequence[Method]) -> dict[str, dict[str, Any]]:
    """Line styles of methods, which differ in colour, dash and marker. The main method stands out, chance is faint."""
    looks: dict[str, dict[str, Any]] = {}
    n_others = 0
    for method in methods:
        if method.role == "main":
            look = dict(color=ACCENT, linewidth=2.2, marker=_MARKERS[0], zorder=3)
        elif method.role == "chance":
            look = dict(color=INK, alpha=0.55, linewidth=1.2, linestyle=":", marker="")
        else:
            n_others += 1
            color, dash, marker = (options[n_others % len(options)] for options in (PALETTE, _DASHES, _MARKERS))
            look = dict(color=color, linewidth=1.5, linestyle=dash, marker=marker)
        looks[method.name] = dict(markersize=3.5, **look)
    return looks


def png_address(picture: Image.Image) -> str:
    """A picture as a data address."""
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
