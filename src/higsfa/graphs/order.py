"""Recipes for windows along an order, and for edges that are given one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.core.graph import build
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import numeric, pick_label
from higsfa.graphs.recipes import GraphRecipe, _check_count, _name


class WindowGraph(GraphRecipe):
    """Sliding window: each sample is joined to its neighbours in label order, or in time.

    Parameters
    ----------
    label : str, int or False, optional
        The label that orders the samples; tied samples are treated alike. Without it, y orders them if given, else the
        rows are in time order (within recordings). False is time order whatever y.
    half_width : int, default=5
        How many neighbours on either side.
    mirrored : bool, default=False
        Fold windows that reach beyond the first or last sample back in, so that all samples weigh the same;
        otherwise windows are cut off at the ends.

    Examples
    --------
    >>> from higsfa.graphs import WindowGraph
    >>> graph = WindowGraph(half_width=1).build([40, 20, 60, 30])
    >>> graph.to_sparse()[[0]].indices.tolist()  # 40 is next to 30 and 60, and to itself
    [0, 2, 3]
    """

    def __init__(self, label: Any = None, half_width: int = 5, mirrored: bool = False) -> None:
        self.label = label
        self.half_width = half_width
        self.mirrored = mirrored

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        if np.any(w != 1.0):
            raise ValueError(
                "WindowGraph takes no sample_weight: its edges join neighbours one by one; leave samples out, or use "
                "an EdgeGraph"
            )
        _check_count("half_width", self.half_width, 1)
        d, mirrored, name = int(self.half_width), bool(self.mirrored), _name("window", self.label)
        if self.label is False or (y is None and self.label is None):
            return build.window(None, build.recording_lengths(groups, n), n, d, mirrored=mirrored, name="window")
        values = numeric(pick_label(y, self.label, n), "WindowGraph")
        order = np.argsort(values)[: n - np.count_nonzero(np.isnan(values))]
        ordered = values[order]
        if np.any(ordered[1:] == ordered[:-1]):
            return build.tied_window(ordered, order, n, d, mirrored=mirrored, name=name)
        return build.window(order, np.array([len(order)]), n, d, mirrored=mirrored, name=name)


class EdgeGraph(GraphRecipe):
    """Any graph: edges as a symmetric sparse matrix or a list, with own vertex weights.

    Sample weights multiply the vertex weights; edges keep theirs.

    Parameters
    ----------
    edges : scipy sparse matrix (N, N), or array of edges (i, j) or (i, j, weight)
    node_weights : array of shape (N,), optional
        The degrees by default.

    Examples
    --------
    >>> from higsfa.graphs import EdgeGraph
    >>> graph = EdgeGraph([[0, 1, 1.0], [1, 2, 0.5]]).build(n_samples=3)
    >>> graph.degrees.tolist(), graph.is_consistent()
    ([1.0, 1.5, 0.5], True)
    """

    def __init__(self, edges: Any, node_weights: Any = None) -> None:
        self.edges = edges
        self.node_weights = node_weights

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        return build.explicit(self.edges, self.node_weights, n, w)

    def build(
        self, y: Any = None, *, sample_weight: Any = None, groups: Any = None, n_samples: int | None = None
    ) -> TrainingGraph:
        """Build the graph; labels are not used."""
        if n_samples is None and y is None and hasattr(self.edges, "shape") and not isinstance(self.edges, np.ndarray):
            n_samples = self.edges.shape[0]
        if n_samples is None and y is None:
            return build.explicit(self.edges, self.node_weights, _length(self.node_weights))
        return super().build(y, sample_weight=sample_weight, groups=groups, n_samples=n_samples)


def _length(values: Any) -> int | None:
    return None if values is None else len(values)
