"""How figures are drawn: their style, colours that follow the page, and matplotlib's SVG made fit for a page."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from PIL import Image

from higsfa.evaluation.schema import Method

# These colours are replaced by the page's own, so that figures follow its light and dark schemes.
INK, FAINT, ACCENT, PLATE = "#010203", "#010204", "#010205", "#010206"
_FROM_PAGE = {INK: "currentColor", FAINT: "var(--line)", ACCENT: "var(--accent)", PLATE: "var(--plate)"}

# Okabe and Ito's colours for all kinds of colour vision, without black, low contrast last.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B8A800")
DOTS = "#3C96CF"
_MARKERS = "osD^vP"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (8, 3)))

WIDTH, HEIGHT = 4.5, 3.0
RASTER_DPI = 160


class Figure(NamedTuple):
    """A drawing as SVG, with what to see in it and a text for those who cannot see it."""

    title: str
    lead: str
    alt: str
    svg: str


def draw(name: str, paint: Callable[[Any], None], height: float = HEIGHT) -> str:
    """SVG of a figure that `paint` fills; its identifiers come from `name`, which is unique within the page."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    style: dict[Any, Any] = {
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
        **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
        **{"axes.axisbelow": True, "axes.facecolor": "none", "axes.linewidth": 0.7},
        **{"font.family": ["DejaVu Sans"], "font.size": 9.5, "legend.fontsize": 8.5},
        **{"grid.color": FAINT, "grid.linewidth": 0.7},
        **{"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False, "text.usetex": False},
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # The browser chooses the font, so it does not matter that DejaVu lacks a sign.
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
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, count=2, flags=re.DOTALL)
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


def png_address(picture: Image.Image) -> str:
    """A picture as a data address."""
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
