"""How figures are drawn: style, colours that follow the page, and matplotlib's SVG made fit for a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from higsfa.evaluation.schema import Method

# Colours that stand for the page's own, so that figures follow its light and dark schemes.
INK, FAINT, ACCENT, PLATE = "#010203", "#010204", "#010205", "#010206"
_FROM_PAGE = {INK: "currentColor", FAINT: "var(--line)", ACCENT: "var(--accent)", PLATE: "var(--plate)"}

# Okabe and Ito's colours for all kinds of colour vision, without black and with those of low contrast last.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B8A800")
DOTS = "#3C96CF"
_MARKERS = "osD^vP"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (8, 3)))

WIDTH, HEIGHT = 4.5, 3.0
RASTER_DPI = 160


class Figure(NamedTuple):
    """A drawing as SVG, with what to see in it and a text for those who cannot."""

    title: str
    lead: str
    alt: str
    svg: str


def draw(name: str, paint: Callable[[Any], None], height: float = HEIGHT) -> str:
    """SVG of a figure that `paint` fills; text stays text, and colours come from the page.

    `name` is unique within the page; identifiers in the SVG are derived from it.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    style: dict[Any, Any] = {
        "axes.axisbelow": True,
        "axes.edgecolor": INK,
        "axes.facecolor": "none",
        "axes.labelcolor": INK,
        "axes.linewidth": 0.7,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 9.5,
        "grid.color": FAINT,
        "grid.linewidth": 0.7,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.color": INK,
        "text.parse_math": False,
        "text.usetex": False,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # The browser, not matplotlib, chooses the font: that DejaVu lacks a sign does not matter.
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained", facecolor="none")
        paint(canvas)
        file = io.StringIO()
        canvas.savefig(file, format="svg", dpi=RASTER_DPI, facecolor="none")
    return _for_page(file.getvalue())


def _for_page(svg: str) -> str:
    """The bare svg element, of any size, with the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    for color, name in _FROM_PAGE.items():
        svg = svg.replace(color, name)
    return re.sub(r"\n\s*", "\n", svg)


def looks_of(methods: Sequence[Method]) -> dict[str, dict[str, Any]]:
    """Line styles of methods, told apart by colour, dash and marker. The main method stands out, chance is faint."""
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


def thinned(n: int, most: int) -> np.ndarray[Any, Any]:
    """At most so many indices of n rows, evenly spaced."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)
