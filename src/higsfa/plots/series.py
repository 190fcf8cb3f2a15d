"""Figures of time series: slow features over time and against each other, their weights, Delta on unseen recordings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from higsfa.estimators.recordings import Recordings
from higsfa.evaluation.dynamics import delta_intervals

COLORS = "tab:blue"


def plot_slow_features(
    Y: Any, times: Any = None, *, n_features: int = 4, names: Sequence[str] | None = None, marks: Any = ()
) -> Any:
    """Plot features over time, one below the other; recordings follow each other, with a line between them.

    Parameters
    ----------
    Y : array-like of shape (n_samples, n_features), or a list or a stack of recordings
        Features, such as ``model.transform(X)``.
    times : array-like of shape (n_samples,), optional
        Time of each sample, of a single recording; sample numbers by default.
    n_features : int, default=4
        Most features to show.
    names : list of str, optional
        Of the features.
    marks : list of numbers
        Times at which something happened, drawn as dashed lines.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.plots import plot_slow_features
    >>> t = np.arange(500)
    >>> figure = plot_slow_features(np.column_stack([np.sin(t / 50), np.sin(t / 20)]), names=["slow", "faster"])
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['slow', 'faster']
    """
    from matplotlib.figure import Figure

    given = Recordings.of(Y)
    values = np.asarray(given.X)
    values = (values[:, None] if values.ndim == 1 else values)[:, :n_features]
    if times is not None and (len(given.lengths) > 1 or len(times) != len(values)):
        raise ValueError(f"times must be {len(values)} numbers or dates, of a single recording")
    t = np.arange(len(values)) if times is None else np.asarray(times)
    k = values.shape[1]
    figure = Figure(figsize=(8, 0.6 + 1.1 * k), layout="constrained")
    axes = figure.subplots(k, 1, sharex=True, squeeze=False)[:, 0]
    ends = np.cumsum(given.lengths)
    for j, ax in enumerate(axes):
        for a, b in zip(ends - given.lengths, ends, strict=True):
            ax.plot(t[a:b], values[a:b, j], color=COLORS, linewidth=0.8)
        for border in ends[:-1]:
            ax.axvline(border - 0.5, color="0.7", linewidth=0.8)
        for mark in marks:
            ax.axvline(mark, color="tab:red", linewidth=1, linestyle="--")
        ax.set_ylabel(f"feature {j + 1}" if names is None else names[j])
        ax.margins(x=0)
        ax.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels(axes)
    axes[-1].set_xlabel("sample" if times is None else "time")
    return figure


def plot_feature_plane(
    Y: Any, features: tuple[int, int] = (0, 1), *, color: Any = None, label: str = "", ax: Any = None
) -> Any:
    """Plot two features against each other, sample by sample.

    Parameters
    ----------
    Y : array-like of shape (n_samples, n_features), or a list or a stack of recordings
    features : pair of int, default=(0, 1)
    color : array-like of shape (n_samples,), optional
        Colours the samples, with a bar that `label` names; by default time does.
    label : str
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.plots import plot_feature_plane
    >>> phase = np.linspace(0, 6, 100)
    >>> ax = plot_feature_plane(np.column_stack([np.sin(phase), np.cos(phase)]), color=phase, label="phase")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('feature 1', 'feature 2')
    """
    import matplotlib.pyplot as plt

    values = np.asarray(Recordings.of(Y).X)
    i, j = features
    if ax is None:
        _, ax = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
    shade = np.arange(len(values)) if color is None else np.asarray(color)
    dots = ax.scatter(values[:, i], values[:, j], c=shade, s=5, linewidths=0, cmap="viridis", rasterized=True)
    ax.figure.colorbar(dots, ax=ax, label=label or ("sample" if color is None else ""))
    ax.set(xlabel=f"feature {i + 1}", ylabel=f"feature {j + 1}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_weights(model: Any, *, n_features: int = 4, scale: Any = None, names: Sequence[str] | None = None) -> Any:
    """Plot how features depend on the inputs about their mean: the weights, if the expansion is linear.

    With delays, one row of each picture is an input and one column a delay.

    Parameters
    ----------
    model : fitted SFA, ISFA, GSFA or IGSFA
    n_features : int, default=4
        Most features to show.
    scale : array-like of shape (n_inputs,), optional
        What weights are multiplied by, such as the standard deviations of the inputs, so that inputs in different units
        can be compared.
    names : list of str, optional
        Of the inputs.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import SFA
    >>> from higsfa.plots import plot_weights
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> figure = plot_weights(SFA(n_components=2).fit(X), names=["a", "b", "c"])
    >>> [tick.get_text() for tick in figure.axes[-1].get_xticklabels()]
    ['a', 'b', 'c']
    """
    from matplotlib.figure import Figure

    node, n_inputs = model._node, model.n_features_in_
    center, delays = node.frontend.center, node.frontend.n_inputs // n_inputs - 1
    step = 1e-3 * (np.ones(n_inputs) if scale is None else np.asarray(scale, dtype=np.float64))
    if step.shape != (n_inputs,):
        raise ValueError(f"scale must have one entry for each of {n_inputs} inputs, got shape {step.shape}")
    moves = np.diag(np.tile(step, delays + 1))
    weights = (node.encode(center[:, None] + moves) - node.encode(center[:, None] - moves)) / 2e-3
    weights = weights[:n_features].reshape(-1, delays + 1, n_inputs)
    k = len(weights)
    names = getattr(model, "feature_names_in_", None) if names is None else names
    if delays:
        return _maps(
            Figure(figsize=(1.2 + 2.0 * k, 0.8 + 0.22 * max(6, n_inputs)), layout="constrained"), weights, names
        )
    figure = Figure(figsize=(8, 0.7 + 1.0 * k), layout="constrained")
    axes = figure.subplots(k, 1, sharex=True, squeeze=False)[:, 0]
    for j, (ax, own) in enumerate(zip(axes, weights[:, 0], strict=True)):
        ax.bar(np.arange(n_inputs), own, color=COLORS)
        ax.axhline(0, color="0.4", linewidth=0.8)
        ax.set_ylabel(f"feature {j + 1}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("input")
    if names is not None:
        axes[-1].set_xticks(np.arange(n_inputs), names, rotation=90 if n_inputs > 8 else 0)
    figure.align_ylabels(axes)
    return figure


def _maps(figure: Any, weights: np.ndarray, names: Any) -> Any:
    """One picture of inputs by delays for each feature."""
    axes = figure.subplots(1, len(weights), sharey=True, squeeze=False)[0]
    limit = np.abs(weights).max() or 1.0
    for j, (ax, own) in enumerate(zip(axes, weights, strict=True)):
        shown = ax.imshow(own.T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        ax.set(title=f"feature {j + 1}", xlabel="delay")
    axes[0].set_ylabel("input")
    if names is not None:
        axes[0].set_yticks(np.arange(len(names)), names)
    figure.colorbar(shown, ax=axes, label="weight")
    return figure


def plot_unseen_delta(
    model: Any,
    training: Any,
    unseen: Any,
    *,
    n_features: int = 20,
    groups: Any = None,
    level: float = 0.9,
    ax: Any = None,
) -> Any:
    """Plot Delta values on training recordings and on unseen ones, with intervals.

    Where unseen recordings are much faster, features are overfitted.

    Parameters
    ----------
    model : fitted SFA or ISFA
    training, unseen : recordings, as in `fit`
    n_features : int, default=20
        Most features to show.
    groups : pair of arrays, optional
        The recording of each sample, of training and of unseen recordings.
    level : float, default=0.9
        Of the intervals; see :func:`higsfa.metrics.delta_intervals`.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import SFA
    >>> from higsfa.plots import plot_unseen_delta
    >>> training, unseen = np.random.default_rng(0).normal(size=(2, 400, 5))
    >>> ax = plot_unseen_delta(SFA(n_components=3).fit(training), training, unseen)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['training', 'unseen']
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    (lag, *_) = model._recipe().lags()
    parts = zip((training, unseen), ("training", "unseen"), ("0.55", COLORS), groups or (None, None), strict=True)
    for X, name, color, own in parts:
        Y = model.transform(X, groups=own)
        Y = [one[:, :n_features] for one in Y] if isinstance(Y, list) else np.asarray(Y)[..., :n_features]
        found = delta_intervals(Y, lag=lag, groups=own, level=level)
        number = np.arange(1, len(found.delta_values) + 1) + (0.08 if name == "unseen" else -0.08)
        errors = np.abs(np.stack([found.low, found.high]) - found.delta_values)
        ax.errorbar(
            number,
            found.delta_values,
            errors,
            color=color,
            marker="o",
            markersize=4,
            linewidth=1,
            capsize=2,
            label=name,
        )
    ax.axhline(2.0, color="0.4", linewidth=1, linestyle="--")
    ax.annotate("noise", (0.01, 2.0), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.4")
    ax.set(xlabel="slow feature", ylabel="Delta", ylim=(0, max(2.2, ax.get_ylim()[1])))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(fontsize="small", frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
