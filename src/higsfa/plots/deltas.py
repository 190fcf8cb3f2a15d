"""Delta values of the nodes of a layer, as in the paper's figure of first-layer Delta values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted


def plot_delta_values(network: Any, layer: int | None = None, *, n_features: int = 40, ax: Any = None) -> Any:
    """Plot the Delta values of slow features, averaged over the nodes of a layer.

    The band spans the middle 80 % of the nodes. The line at 2.0 is the Delta of noise: features close to it carry no
    slow signal, and a node that keeps slow features only loses what else they carry.

    Parameters
    ----------
    network : fitted network
    layer : int, optional
        Counted from 1; all layers by default.
    n_features : int, default=40
        Features to show at most.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    import matplotlib.pyplot as plt

    check_is_fitted(network, "layers_")
    if layer is not None and not 1 <= layer <= len(network.layers_):
        raise ValueError(f"layer must be between 1 and {len(network.layers_)}, got {layer}")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    chosen = range(len(network.layers_)) if layer is None else [layer - 1]
    colors = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(network.layers_)))
    for k in chosen:
        fitted = network.layers_[k]
        deltas = fitted.delta_values[:, :n_features]
        number = np.arange(1, deltas.shape[1] + 1)
        label = f"layer {k + 1} ({'x'.join(map(str, fitted.shape))} nodes)"
        ax.plot(number, np.nanmean(deltas, axis=0), marker="o", markersize=3, color=colors[k], label=label)
        if len(deltas) > 1:
            low, high = np.nanquantile(deltas, [0.1, 0.9], axis=0)
            ax.fill_between(number, low, high, color=colors[k], alpha=0.15, linewidth=0)
    ax.axhline(2.0, color="0.4", linewidth=1, linestyle="--")
    ax.annotate("noise", (1.0, 2.0), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4")
    ax.set_xlabel("slow feature")
    ax.set_ylabel("Delta, mean over nodes")
    ax.legend(fontsize="small", frameon=False)
    return ax
