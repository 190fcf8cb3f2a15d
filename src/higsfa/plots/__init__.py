"""Figures of networks and of time series. Needs matplotlib: ``pip install higsfa[plots]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from higsfa.plots.series import plot_feature_plane, plot_slow_features, plot_unseen_delta, plot_weights
from higsfa.reconstruction import extreme_inputs, feature_gradient, feature_template

__all__ = [
    "plot_delta_values",
    "plot_feature_plane",
    "plot_features",
    "plot_held_out",
    "plot_slow_features",
    "plot_tuning",
    "plot_unseen_delta",
    "plot_weights",
]


def plot_delta_values(network: Any, layer: int | None = None, *, n_features: int = 40, ax: Any = None) -> Any:
    """Plot the Delta values of slow features, averaged over the nodes of a layer.

    The band spans the middle 80 % of the nodes. Features close to the line at 2.0, the Delta of noise, are not slow.

    Parameters
    ----------
    network : fitted network
    layer : int, optional
        Counted from 1; all layers by default.
    n_features : int, default=40
        Most features to show.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HiGSFA, Layer
    >>> from higsfa.plots import plot_delta_values
    >>> X, digit = load_digits(return_X_y=True)
    >>> layers = [Layer(field=(4, 4), n_components=8, n_slow=3), Layer(field=(2, 2), n_components=12, n_slow=9)]
    >>> net = HiGSFA(layers, graph="clustered", input_shape=(8, 8)).fit(X, digit)
    >>> ax = plot_delta_values(net)
    >>> [line.get_label() for line in ax.get_lines()[:2]]
    ['layer 1 (2x2 nodes)', 'layer 2 (1x1 nodes)']
    """
    import matplotlib.pyplot as plt

    check_is_fitted(network, "layers_")
    if layer is not None and not 1 <= layer <= len(network.layers_):
        raise ValueError(f"layer must be between 1 and {len(network.layers_)}, got {layer}")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    colors = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(network.layers_)))
    for k, (fitted, color) in enumerate(zip(network.layers_, colors, strict=True), start=1):
        if layer not in (None, k):
            continue
        deltas = fitted.delta_values[:, :n_features]
        number = np.arange(1, deltas.shape[1] + 1)
        label = f"layer {k} ({'x'.join(map(str, fitted.shape))} nodes)"
        ax.plot(number, np.nanmean(deltas, axis=0), marker="o", markersize=3, color=color, label=label)
        if len(deltas) > 1:
            ax.fill_between(number, *np.nanquantile(deltas, [0.1, 0.9], axis=0), color=color, alpha=0.15, linewidth=0)
    ax.axhline(2.0, color="0.4", linewidth=1, linestyle="--")
    ax.annotate("noise", (1.0, 2.0), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4")
    ax.set(xlabel="slow feature", ylabel="Delta, mean over nodes")
    ax.legend(fontsize="small", frameon=False)
    return ax


def plot_features(
    network: Any,
    images: Any,
    Y: Any = None,
    *,
    features: int | Sequence[int] = 4,
    decoder: Any = None,
    n_extremes: int = 3,
) -> Any:
    """Show three views of features, one row for each feature.

    From left to right: the template, which is what the feature adds to a reconstruction; its gradient at the mean;
    and the images for which it is smallest and largest. Red raises the feature, blue lowers it.

    Parameters
    ----------
    network : fitted network for grey images
    images : array of shape (n_samples, height, width)
        Images to choose from.
    Y : array of shape (n_samples, n_components), optional
        Their features; computed if not given.
    features : int or list of int, default=4
        The number of first features to show, or their indices.
    decoder : LinearReconstruction, optional
        Gives the templates; ``network.inverse_transform`` by default.
    n_extremes : int, default=3
        Images with the smallest values, and as many with the largest.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HiGSFA, Layer
    >>> from higsfa.plots import plot_features
    >>> digits = load_digits()
    >>> layers = [Layer(field=(4, 4), n_components=8, n_slow=3), Layer(field=(2, 2), n_components=12, n_slow=9)]
    >>> net = HiGSFA(layers, graph="clustered").fit(digits.images, digits.target)
    >>> figure = plot_features(net, digits.images, features=2)
    >>> len(figure.axes)  # two rows: template, gradient, three smallest, three largest
    16
    """
    from matplotlib.figure import Figure

    check_is_fitted(network)
    images = np.asarray(images)
    shape = tuple(network.input_shape_)
    if len(shape) != 2 or images.shape[1:] != shape:
        raise ValueError(f"images have shape {images.shape}; this figure needs grey images (n, *{shape})")
    Y = network.transform(images) if Y is None else np.asarray(Y)
    chosen = list(range(features)) if isinstance(features, int) else list(features)
    names = network.get_feature_names_out()
    mean = images.mean(axis=0, dtype=np.float64)
    titles = ["template", "gradient", *["smallest"] * n_extremes, *["largest"] * n_extremes]
    figure = Figure(figsize=(1.25 * len(titles) + 0.5, 1.35 * len(chosen) + 0.3), layout="constrained")
    axes = figure.subplots(len(chosen), len(titles), squeeze=False)
    for row, feature in zip(axes, chosen, strict=True):
        template = feature_template(network if decoder is None else decoder, feature).reshape(shape)
        for ax, signed in zip(row, (template, feature_gradient(network, mean, feature)), strict=False):
            limit = np.quantile(np.abs(signed), 0.995) or 1.0
            ax.imshow(signed, cmap="RdBu_r", vmin=-limit, vmax=limit)
        largest, smallest = extreme_inputs(Y, feature, n_extremes)
        for ax, number in zip(row[2:], [*smallest, *largest[::-1]], strict=False):
            ax.imshow(images[number], cmap="gray")
        row[0].set_ylabel(names[feature], fontsize="small")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize="small")
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    return figure


def plot_held_out(model: Any, layer: int | None = None, *, ax: Any = None) -> Any:
    """Plot Delta values on training samples and on samples that were left out, with and without shrinkage.

    Where the two lines of a colour lie far apart, features are overfitted.

    Parameters
    ----------
    model : estimator or network that was fitted with ``shrinkage="auto"``
    layer : int, optional
        Of a network, counted from 1; by default the last one whose shrinkage was chosen.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import GSFA
    >>> from higsfa.plots import plot_held_out
    >>> X = np.random.default_rng(0).normal(size=(200, 30))
    >>> gsfa = GSFA(n_components=5, graph="serial", shrinkage="auto").fit(X, X[:, 0])
    >>> plot_held_out(gsfa).get_ylabel()
    'Delta'
    """
    import matplotlib.pyplot as plt

    found = model.held_out_ if isinstance(model.held_out_, list) else [model.held_out_]
    chosen = [k for k, one in enumerate(found, 1) if one is not None]
    if not chosen or layer not in (None, *chosen):
        raise ValueError(
            "nothing was held out: fit with shrinkage='auto'" + (f"; layers {chosen} have it" if chosen else "")
        )
    one = found[(chosen[-1] if layer is None else layer) - 1]
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    number = np.arange(1, one.delta_values.shape[2] + 1)
    for i, color in {0: "0.6", one.best: "tab:blue"}.items():
        name = "without shrinkage" if one.ladder[i] == 0 else f"shrinkage {one.ladder[i]:g}"
        style = {"color": color, "marker": "o", "markersize": 3}
        ax.plot(number, one.mean_deltas(i), label=f"{name}, held out", **style)
        training = one.mean_deltas(i, training=True)
        ax.plot(number, training, label=f"{name}, training", linestyle=":", **style)
    ax.axhline(2.0, color="0.4", linewidth=1, linestyle="--")
    ax.annotate("noise", (0.01, 2.0), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.4")
    ax.set(xlabel="slow feature", ylabel="Delta", ylim=(0, max(2.2, ax.get_ylim()[1])))
    ax.legend(fontsize="small", frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def plot_tuning(results: Sequence[Mapping[str, Any]], *, best: int = 0) -> Any:
    """Plot a search for settings: errors by number of samples, and of which settings they were.

    Left: each line is a candidate, trained on more and more samples; bars are standard errors. Right: every setting
    that was tried, with the errors of all candidates that had it, on the fewest samples, and their mean.

    Parameters
    ----------
    results : list of dict
        Of :func:`higsfa.experiments.tune`.
    best : int, default=0
        The candidate that was chosen; 0 is the config as given.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> from higsfa.plots import plot_tuning
    >>> def tried(candidate, settings, error):
    ...     return {"candidate": candidate, "settings": settings, "rung": 0, "n_train": 500, "error": error, "se": 0.01}
    >>> figure = plot_tuning([tried(0, {}, 0.5), tried(1, {"copies": "4"}, 0.4)], best=1)
    >>> len(figure.axes)
    2
    """
    from matplotlib.figure import Figure

    known = [done for done in results if done["error"] is not None]
    names = list(dict.fromkeys(name for done in known for name in done["settings"]))
    first = [done for done in known if done["rung"] == 0]
    strips = []
    for name in names:
        tried = dict.fromkeys(done["settings"].get(name, "as given") for done in first)
        for text in sorted(tried, key=_place):
            errors = [done["error"] for done in first if done["settings"].get(name, "as given") == text]
            strips.append((f"{name}: {text}", errors))
    height = max(3.6, 0.9 + 0.24 * len(strips))
    figure = Figure(figsize=(10, min(height, 40)), layout="constrained")
    left, right = figure.subplots(1, 2)
    for candidate in sorted({done["candidate"] for done in known}, key=lambda c: (c == best, c == 0)):
        own = sorted((done["n_train"], done["error"]) for done in known if done["candidate"] == candidate)
        look: dict[str, Any] = {"color": "0.75", "linewidth": 1, "markersize": 3}
        if candidate == 0:
            look = {"color": "black", "linewidth": 1.5, "markersize": 5, "linestyle": "--", "label": "as given"}
        if candidate == best:
            look |= {"color": "tab:blue", "linewidth": 2, "markersize": 5}
            look["label"] = "chosen: as given" if candidate == 0 else "chosen"
        left.plot(*zip(*own, strict=True), marker="o", **look)
        if candidate in (0, best):
            spread = {done["n_train"]: done.get("se") or 0 for done in known if done["candidate"] == candidate}
            left.errorbar(
                *zip(*own, strict=True), [spread[n] for n, _ in own], fmt="none", color=look["color"], capsize=3
            )
    sizes = sorted({done["n_train"] for done in known})
    if len(sizes) > 1:
        left.set_xscale("log")
    left.set_xticks(sizes, [f"{size:,}" for size in sizes])
    left.set_xticks([], minor=True)
    left.set(xlabel="training samples", ylabel="error on held-out samples (1: chance)")
    left.legend(frameon=False)
    for place, (_, errors) in enumerate(strips):
        right.plot(errors, [place] * len(errors), "o", color="tab:blue", alpha=0.4, markersize=4, markeredgewidth=0)
        right.plot(np.mean(errors), place, "|", color="black", markersize=12, markeredgewidth=2)
    right.set_yticks(range(len(strips)), [_cut(text, 34) for text, _ in strips], fontsize="small")
    right.set_ylim(len(strips) - 0.5, -0.5)
    for place in range(1, len(strips)):
        if strips[place][0].endswith(": as given"):
            right.axhline(place - 0.5, color="0.85", linewidth=1)
    right.set_xlabel(f"error after {sizes[0]:,} training samples (bar: mean)" if sizes else "error")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _place(text: str) -> tuple[int, float]:
    """The order of settings: as given, texts, numbers."""
    try:
        return 2, float(text)
    except ValueError:
        return int(text != "as given"), 0.0


def _cut(text: str, most: int) -> str:
    """A text for a figure: short, and no formula."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")
