"""The pictures of docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

OURS, THEIRS, THIRD, GREY = "#1f5fa8", "#e08a1e", "#7fb2dd", "0.55"
DPI = 90

Row = dict[str, Any]


def draw(sections: dict[str, Any], folder: Path) -> list[str]:
    """Draw what was measured; names of the files."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "floor": (_floor, ("estimators", "graphs", "expansions")),
        "layers": (_layers, ("layers",)),
        "rivals": (_rivals, ("libraries", "mdp")),
        "scaling": (_scaling, ("size", "parallel")),
    }
    made = []
    for name, (function, needed) in figures.items():
        if all(sections.get(key) for key in needed[:1]):
            figure = Figure(layout="constrained")
            function(figure, *(sections.get(key) or [] for key in needed))
            made.append(f"performance_{name}.png")
            figure.savefig(folder / made[-1], dpi=DPI)
    return made


def _floor(figure: Any, *groups: list[Row]) -> None:
    """Bars: each fit in units of its bare product."""
    rows = [row for group in groups for row in group if row["name"] != "bare product"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    figure.set_size_inches(8, 1 + 0.34 * len(names))
    ax = figure.subplots()
    for offset, dtype, colour in ((0.2, "float32", THIRD), (-0.2, "float64", OURS)):
        values = {row["name"]: row["ratio"] for row in rows if row["dtype"] == dtype}
        places = [k + offset for k, name in enumerate(names) if name in values]
        shown = [values[name] for name in names if name in values]
        bars = ax.barh(places, [value - 1 for value in shown], 0.38, left=1, color=colour, label=dtype)
        ax.bar_label(bars, [f"{value:.1f}" for value in shown], padding=3, fontsize=8)
    _log_axis(ax)
    ax.axvline(1, color=GREY, linestyle="--")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("times the bare product (1: no training can be faster)")
    ax.margins(x=0.12)
    ax.legend(frameon=False, loc="lower right")


def _log_axis(ax: Any) -> None:
    """Ratios on a logarithmic axis, written as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _layers(figure: Any, rows: list[Row]) -> None:
    """Stacked bars: sums and features of one node, in units of its bare product."""
    figure.set_size_inches(8, 3.4)
    ax = figure.subplots()
    x = [f"{row['layer']}\nT = {row['expanded']}" for row in rows]
    sums = [row["sums_ratio"] for row in rows]
    ax.bar(x, sums, color=OURS, label="sums")
    bars = ax.bar(
        x, [row["features_ratio"] for row in rows], bottom=sums, color=THIRD, label="features for the next layer"
    )
    ax.bar_label(bars, [f"{row['ratio']:.1f}" for row in rows], fontsize=8)
    ax.axhline(1, color=GREY, linestyle="--")
    ax.margins(y=0.1)
    ax.set_xlabel("layer of the paper's network, and variables of a node")
    ax.set_ylabel("times the bare product")
    ax.legend(frameon=False)


def _rivals(figure: Any, libraries: list[Row], mdp: list[Row]) -> None:
    """Bars: others in units of our time for the same work."""
    rows = [row for row in libraries + mdp if not row["name"].startswith("higsfa ")]
    rows = [row for row in rows if row["dtype"] == "float64"]
    figure.set_size_inches(8, 1 + 0.32 * len(rows))
    ax = figure.subplots()
    colours = [OURS if row["ratio"] >= 1 else THEIRS for row in rows]
    bars = ax.barh([row["name"] for row in rows], [row["ratio"] - 1 for row in rows], left=1, color=colours)
    _log_axis(ax)
    ax.bar_label(bars, [f"{row['ratio']:.2g}" for row in rows], padding=3, fontsize=8)
    ax.axvline(1, color=GREY, linestyle="--")
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlabel("time in units of ours for the same work, float64 (orange: faster than we are)")


def _scaling(figure: Any, size: Row, parallel: Row | list[Any]) -> None:
    """Curves of time, with a line of the expected slope."""
    curves = [("samples", size["samples"], 1), ("inputs", size["inputs"], 1)]
    if parallel:
        assert isinstance(parallel, dict)
        curves += [(kind, parallel[kind], -1) for kind in ("threads", "workers") if kind in parallel]
    figure.set_size_inches(2.4 * len(curves), 2.9)
    for ax, (name, curve, slope) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        x, seconds = curve["x"], curve["seconds"]
        ax.loglog(x, seconds, "o-", color=OURS)
        ax.loglog(x, [seconds[0] * (value / x[0]) ** slope for value in x], "--", color=GREY)
        ax.set_xticks(x, [f"{value / 1000:g}k" if value >= 1000 else str(value) for value in x])
        ax.set_yticks(seconds, [f"{value:.2g}" for value in seconds])
        ax.minorticks_off()
        ax.set_xlabel(name)
        ax.set_title(f"exponent {curve['exponent']:.2f}", fontsize=10)
    figure.get_axes()[0].set_ylabel("seconds to fit")
