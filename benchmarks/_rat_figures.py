"""The pictures of docs/rat.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "hisfa": "HiSFA",
    "hisfa6": "HiSFA, 6 slow features in both steps",
    "hisfa16": "HiSFA, 16 slow features in both steps",
    "hsfa": "HSFA",
    "sfa": "quadratic SFA on 32 principal components",
}
COLOURS = {"hisfa": "#1f5fa8", "hisfa6": "#9cc3e6", "hisfa16": "#4aa3a0", "hsfa": "#e08a1e", "sfa": "0.5"}
DPI = 90


def _save(figure: Any, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"rat_{name}.png", dpi=DPI)


def views(folder: Path, box: Any, walk: dict[str, Any], every: int = 15) -> None:
    """A piece of the walk from above, and what is seen along it."""
    from matplotlib.figure import Figure

    rows = np.arange(0, 6 * every, every)
    poses = np.column_stack([walk["x"], walk["y"], walk["direction"]])[rows]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    grid = figure.add_gridspec(len(rows), 2, width_ratios=(1, 1.6))
    above = figure.add_subplot(grid[:, 0])
    above.plot(walk["x"][: rows[-1] + 1], walk["y"][: rows[-1] + 1], color="0.6", linewidth=1)
    above.quiver(*poses[:, :2].T, np.cos(poses[:, 2]), np.sin(poses[:, 2]), color=COLOURS["hisfa"], angles="xy")
    for number, (x, y, _) in enumerate(poses, 1):
        above.annotate(str(number), (x, y), textcoords="offset points", xytext=(5, 5))
    above.set(xlim=(0, box.size[0]), ylim=(box.size[1], 0), aspect="equal", xlabel="x", ylabel="y")
    for number, view in enumerate(box(poses), 1):
        ax = figure.add_subplot(grid[number - 1, 1])
        ax.imshow(view, extent=(-160, 160, -20, 20), interpolation="nearest", aspect="auto")
        ax.set(yticks=[], ylabel=str(number), xticks=[-160, -80, 0, 80, 160] if number == len(rows) else [])
        ax.yaxis.label.set(rotation=0, ha="right", va="center")
    ax.set_xlabel("degrees from the direction of the head")
    _save(figure, folder, "views")


def maps(
    folder: Path, name: str, pictures: list[Any], titles: list[str], size: tuple[float, float], n_columns: int
) -> None:
    """Mean activity over places, one small map for each feature or unit."""
    from matplotlib.figure import Figure

    n_rows = -(-len(pictures) // n_columns)
    figure = Figure(figsize=(9, 9 / n_columns * n_rows * 0.9), layout="constrained")
    axes = np.atleast_1d(figure.subplots(n_rows, n_columns)).ravel()
    for ax in axes:
        ax.set_axis_off()
    for ax, picture, title in zip(axes, pictures, titles, strict=False):
        reach = np.abs(picture).max()
        extent = (0.15, size[0] - 0.15, size[1] - 0.15, 0.15)
        ax.imshow(picture.T, extent=extent, cmap="RdBu_r", vmin=-reach, vmax=reach)
        ax.set_title(title, fontsize=8, pad=2)
    _save(figure, folder, name)


def directions(folder: Path, curves: list[Any]) -> None:
    """Tuning of units to the direction of the head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6 * -(-len(curves) // 4)), layout="constrained")
    axes = figure.subplots(-(-len(curves) // 4), 4, subplot_kw={"projection": "polar"}, squeeze=False).ravel()
    angles = (np.arange(len(curves[0]) + 1) + 0.5) / len(curves[0]) * 2 * np.pi - np.pi
    for number, (ax, curve) in enumerate(zip(axes, curves, strict=False), 1):
        ax.plot(angles, np.append(curve, curve[0]) - curve.min(), color=COLOURS["hisfa"])
        ax.fill(angles, np.append(curve, curve[0]) - curve.min(), color=COLOURS["hisfa"], alpha=0.2)
        ax.set_xticks(np.arange(4) * np.pi / 2, ["0°", "90°", "180°", "270°"], fontsize=7)
        ax.set_yticks([])
        ax.set_title(f"unit {number}", fontsize=8)
    _save(figure, folder, "directions")


def curve(folder: Path, rows: dict[str, Any], theory: Any) -> None:
    """Mean Delta of the first 6 and of all 32 features on an unseen walk, by training size."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure = Figure(figsize=(9, 4.0), layout="constrained")
    for ax, n in zip(figure.subplots(1, 2), (6, 32), strict=True):
        for method, name in NAMES.items():
            sizes = sorted(
                int(key.split("/")[1]) for key in rows if key.startswith("place/") and key.endswith(f"/{method}")
            )
            found = [rows[f"place/{size}/{method}"] for size in sizes]
            for part, style in (("test", "o-"), ("train", ":")):
                values = [np.mean(row[f"delta_{part}"][:n]) for row in found]
                label = name if part == "test" else None
                ax.loglog(sizes, values, style, color=COLOURS[method], label=label, markersize=4)
        ax.axhline(np.mean(theory[:n]), color="0.7", linestyle="--", linewidth=1, label="products of cosines")
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, rotation=30)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.minorticks_off()
        ax.set(xlabel="frames of training", title=f"mean Delta of the first {n} features")
        ax.title.set_fontsize(10)
    ax.plot([], [], ":", color="0.3", label="on the training walk")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    _save(figure, folder, "curve")
