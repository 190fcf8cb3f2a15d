"""The base of all recipes, sums of them, and recipes for time, classes and numbers."""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from higsfa.core.graph import build
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import (
    as_labels,
    encode_classes,
    label_names,
    numeric,
    pick_label,
)
from higsfa.training.statistics import Origin


class GraphRecipe(BaseEstimator):
    """Base of all recipes: ``build``, ``+`` and ``*``.

    Examples
    --------
    >>> isinstance(SerialGraph("age") + 0.5 * ClusteredGraph("gender"), GraphRecipe)
    True
    """

    adds = False
    """Whether all edges are of low rank and of a given range of labels, so that sums of any batches add."""

    def build(
        self, y: Any = None, *, sample_weight: Any = None, groups: Any = None, n_samples: int | None = None
    ) -> TrainingGraph:
        """Build the graph.

        Parameters
        ----------
        y : array, dict of arrays or DataFrame, optional
            Labels: one value per sample, or several labels as columns. Missing values (NaN, None, pd.NA) take a
            sample out of that label's graph.
        sample_weight : array of shape (N,), optional
            Weight w counts a sample w times.
        groups : array of shape (N,), optional
            The recording of each sample, for graphs in time order.
        n_samples : int, optional
            N, where it cannot be told from y.

        Returns
        -------
        TrainingGraph
        """
        y = as_labels(y)
        n = _n_samples(y, sample_weight, groups) if n_samples is None else int(n_samples)
        weights = check_weights(sample_weight, n)
        return self._build(y, weights, groups, n)

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        raise TypeError(f"{type(self).__name__} is no complete recipe")

    def settled(self, y: Any, w: np.ndarray, label_kinds: Any = None) -> GraphRecipe:
        """The recipe with what it takes from all labels and sample weights filled in, told what labels are."""
        return self

    def kinds_taken(self, settled: GraphRecipe) -> dict[Any, str] | None:
        """What labels were taken for when the recipe was settled; None if it does not ask."""
        return None

    def origin(self, y: Any) -> Origin:
        """What statistics that are gathered for the graph of labels y are told apart by."""
        params = self.get_params(deep=False)
        label = params.pop("label", None)
        given = ", ".join(f"{name}={_told(value)}" for name, value in sorted(params.items()))
        if np.ndim(y) == 1:
            label = None  # the only one of an array
        elif label is None and len(names := label_names(y)) == 1:
            label = names[0]
        label = label.item() if isinstance(label, np.generic) else label
        return Origin(((1.0, f"{type(self).__name__}({given})", label),))

    def makes(self, origin: Origin) -> bool:
        """Whether statistics with this origin may have been gathered for a graph of this recipe."""
        return self.origin(None).fits(origin)

    def __add__(self, other: object) -> GraphSum:
        if not isinstance(other, GraphRecipe):
            return NotImplemented
        (a, p), (b, q) = _terms(self), _terms(other)
        return GraphSum([*a, *b], [*p, *q])

    def __mul__(self, factor: object) -> GraphSum:
        if not isinstance(factor, Real) or isinstance(factor, bool):
            return NotImplemented
        graphs, weights = _terms(self)
        return GraphSum(graphs, [float(factor) * weight for weight in weights])

    __rmul__ = __mul__


def _terms(recipe: GraphRecipe) -> tuple[list[GraphRecipe], list[float]]:
    """Recipes that are no sums, and their weights."""
    if not isinstance(recipe, GraphSum):
        return [recipe], [1.0]
    found = [
        (graph, outer * weight)
        for outer, part in zip(recipe._weights(), recipe.graphs, strict=True)
        for graph, weight in zip(*_terms(part), strict=True)
    ]
    return [graph for graph, _ in found], [weight for _, weight in found]


class GraphSum(GraphRecipe):
    """Weighted sum of recipes; usually written ``a + 0.5 * b``.

    Parameters
    ----------
    graphs : list of recipes
    weights : list of float, optional
        1.0 each by default.

    Examples
    --------
    >>> GraphSum([SerialGraph("age"), ClusteredGraph("sex")], [1.0, 0.5]).set_params(graph1__n_groups=8).graphs[0]
    SerialGraph(label='age', n_groups=8)
    """

    def __init__(self, graphs: Any, weights: Any = None) -> None:
        self.graphs = graphs
        self.weights = weights

    def _weights(self) -> list[float]:
        weights = [1.0] * len(self.graphs) if self.weights is None else [float(weight) for weight in self.weights]
        if len(weights) != len(self.graphs):
            raise ValueError(f"weights: {len(weights)} given for {len(self.graphs)} graphs")
        return weights

    @property
    def adds(self) -> bool:  # type: ignore[override]
        return all(graph.adds for graph in self.graphs)

    def settled(self, y: Any, w: np.ndarray, label_kinds: Any = None) -> GraphRecipe:
        return GraphSum([graph.settled(y, w, label_kinds) for graph in self.graphs], self.weights)

    def makes(self, origin: Origin) -> bool:
        graphs, weights = _terms(self)
        return len(graphs) == len(origin.terms) and all(
            weight == factor and graph.makes(Origin(((1.0, *name),)))
            for graph, weight, (factor, *name) in zip(graphs, weights, origin.terms, strict=True)
        )

    def origin(self, y: Any) -> Origin:
        parts = zip(self._weights(), (graph.origin(y) for graph in self.graphs), strict=True)
        return Origin(tuple((weight * own, *name) for weight, part in parts for own, *name in part.terms))

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        if not self.graphs:
            raise ValueError("graphs: a sum of graphs needs at least one of them")
        built = [graph._build(y, w, groups, n) for graph in self.graphs]
        total = None
        for weight, graph in zip(self._weights(), built, strict=True):
            total = weight * graph if total is None else total + weight * graph
        assert total is not None
        return total

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with deep also those of the graphs, as ``graph1__n_groups``."""
        params = super().get_params(deep=False)
        if deep:
            for number, graph in enumerate(self.graphs, 1):
                params[f"graph{number}"] = graph
                params.update({f"graph{number}__{key}": value for key, value in graph.get_params().items()})
        return params

    def set_params(self, **params: Any) -> GraphSum:
        """Set parameters, also ``graph1=...`` and ``graph1__n_groups=...``."""
        own = {key: params.pop(key) for key in ("graphs", "weights") if key in params}
        super().set_params(**own)
        for key, value in params.items():
            head, _, rest = key.partition("__")
            number = int(head[5:]) if head.startswith("graph") and head[5:].isdigit() else 0
            if not 1 <= number <= len(self.graphs):
                raise ValueError(f"Invalid parameter {key!r} for {self}: it has {len(self.graphs)} graphs")
            if rest:
                self.graphs[number - 1].set_params(**{rest: value})
            else:
                self.graphs = [*self.graphs[: number - 1], value, *self.graphs[number:]]
        return self


class SequenceGraph(GraphRecipe):
    """Time: each sample is joined to the one `lag` steps later in the same recording, as in classical SFA.

    Sample weights multiply the vertex weights.

    Parameters
    ----------
    lag : int or list of int, default=1
        Several lags make one graph, in which all pairs of samples count alike.
    node_weights : {"degree"}, optional
        Vertex weights: 1 by default; "degree" counts each sample as often as it is in a pair. Then Delta is 2 (1 - r),
        with r the correlation between the two samples of a pair, as in TICA.

    Examples
    --------
    >>> SequenceGraph().build(groups=["monday"] * 3 + ["tuesday"] * 2)  # no edge from one day to the next
    <TrainingGraph sequence(lag=1): 5 samples, 3 edges>
    """

    def __init__(self, lag: Any = 1, node_weights: str | None = None) -> None:
        self.lag = lag
        self.node_weights = node_weights

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        return self.build_recordings(build.recording_lengths(groups, n), w=w)

    def build_recordings(self, lengths: np.ndarray, **given: Any) -> TrainingGraph:
        """The graph of recordings of these lengths; see :func:`higsfa.core.graph.build.sequence`."""
        if self.node_weights not in (None, "degree"):
            raise ValueError(f'node_weights must be None or "degree", got {self.node_weights!r}')
        return build.sequence(lengths, self.lags(), by_degree=self.node_weights is not None, **given)

    def lags(self) -> tuple[int, ...]:
        """The lags, ascending."""
        lags = [self.lag] if np.ndim(self.lag) == 0 else list(self.lag)
        for lag in lags:
            _check_count("lag", lag, 1)
        if not lags or len(set(lags)) < len(lags):
            raise ValueError(f"lag must be an integer, or some different ones, got {self.lag!r}")
        return tuple(sorted(int(lag) for lag in lags))

    def origin(self, y: Any) -> Origin:
        lags = self.lags()
        weighting = "" if self.node_weights is None else f", node_weights={self.node_weights!r}"
        return Origin.of(f"SequenceGraph(lag={lags[0] if len(lags) == 1 else list(lags)}{weighting})")


class ClusteredGraph(GraphRecipe):
    """Classes: all pairs of samples of the same class are joined. The features are those of Fisher's LDA.

    Parameters
    ----------
    label : str or int, optional
        Which label, where there are several.
    self_loops : bool, default=False
        Join samples to themselves too. Then the features span LDA's subspace for any class sizes; without, for equal
        sizes.

    Examples
    --------
    >>> ClusteredGraph().build(["cat", "dog", "cat", "cat", None, "dog"])  # a triangle of cats, a pair of dogs
    <TrainingGraph clustered: 6 samples, 4 edges>
    """

    def __init__(self, label: Any = None, self_loops: bool = False) -> None:
        self.label = label
        self.self_loops = self_loops

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        name = _name("clustered", self.label)
        classes, n_classes = encode_classes(pick_label(y, self.label, n))
        return build.clustered(classes, n_classes, w, self_loops=bool(self.self_loops), name=name)


class SerialGraph(GraphRecipe):
    """Regression: samples are cut into groups by increasing label, and neighbouring groups are joined.

    Parameters
    ----------
    label : str or int, optional
        Which label, where there are several.
    n_groups : int, optional
        min(32, N // 2) by default.

    Examples
    --------
    >>> SerialGraph(n_groups=3).build([20, 21, 40, 41, 60, 61])  # 20 and 21 with 40 and 41, these with 60 and 61
    <TrainingGraph serial: 6 samples, 8 edges>
    """

    _mixed = False

    def __init__(self, label: Any = None, n_groups: int | None = None) -> None:
        self.label = label
        self.n_groups = n_groups

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        if self.n_groups is not None:
            _check_count("n_groups", self.n_groups, 2)
        kind = type(self).__name__
        name = _name(kind.removesuffix("Graph").lower(), self.label)
        values = numeric(pick_label(y, self.label, n), kind)
        return build.chained_groups(values, w, self.n_groups, mixed=self._mixed, name=name)


class MixedGraph(SerialGraph):
    """Regression: as the serial graph, and the samples within each group are joined as well.

    Parameters
    ----------
    label : str or int, optional
        Which label, where there are several.
    n_groups : int, optional
        min(32, N // 2) by default.

    Examples
    --------
    >>> MixedGraph(n_groups=3).build([20, 21, 40, 41, 60, 61])  # also 20 with 21, 40 with 41, 60 with 61
    <TrainingGraph mixed: 6 samples, 11 edges>
    """

    _mixed = True


SHORTHANDS: dict[str, type[GraphRecipe]] = {
    "clustered": ClusteredGraph,
    "serial": SerialGraph,
    "mixed": MixedGraph,
}


def as_recipe(graph: Any) -> GraphRecipe:
    """A recipe from a recipe or a shorthand such as "serial".

    Examples
    --------
    >>> as_recipe("serial")
    SerialGraph()
    """
    if isinstance(graph, GraphRecipe):
        return graph
    if isinstance(graph, str) and graph in SHORTHANDS:
        return SHORTHANDS[graph]()
    if isinstance(graph, str):
        raise ValueError(f"graph={graph!r} is unknown; use one of {sorted(SHORTHANDS)} or a recipe of higsfa.graphs")
    raise TypeError(f"graph must be a recipe of higsfa.graphs or a string, got {type(graph).__name__}")


MIN_WEIGHT, MAX_WEIGHT = 1e-100, 1e100
"""Of the largest sample weight: products of weights, and sums of them, stay in range."""


def check_weights(sample_weight: Any, n: int) -> np.ndarray:
    """sample_weight as (N,) float64.

    Examples
    --------
    >>> check_weights([2, 1, 1], 3)
    array([2., 1., 1.])
    """
    if sample_weight is None:
        return np.broadcast_to(1.0, n)  # no memory for what is the same for all
    if isinstance(sample_weight, np.ma.MaskedArray):
        raise TypeError("sample_weight is a masked array, and its mask would be ignored: fill it first")
    weights = np.array(sample_weight, dtype=np.float64)  # the user may change the array
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), one entry per sample, got {weights.shape}")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("sample_weight must be finite and not negative: weight w counts a sample w times")
    largest = float(weights.max(initial=0.0))
    if largest == 0:
        raise build.NotEnoughData(
            "sample_weight is 0 for every sample: Sample weights must contain at least one non-zero number"
        )
    if not MIN_WEIGHT <= largest <= MAX_WEIGHT:
        raise ValueError(
            f"sample_weight: the largest weight is {largest:g}, but sums of weights work for {MIN_WEIGHT:g} to "
            f"{MAX_WEIGHT:g} only; weight w counts a sample w times, so divide all weights by their mean"
        )
    return weights


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _told(value: Any) -> str:
    """A parameter in words, such that equal values have equal words; of large ones a checksum."""
    if sp.issparse(value):
        value = sp.coo_array(value)
        value = np.column_stack([*value.coords, value.data])
    if isinstance(value, np.ndarray | list | tuple) and np.size(value) > 16:
        values = np.ascontiguousarray(value, dtype=np.float64)
        return f"<{values.shape} {hashlib.sha256(values.tobytes()).hexdigest()[:8]}>"
    if isinstance(value, np.ndarray | list | tuple):
        return f"({', '.join(repr(float(number)) for number in np.ravel(value))})"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _name(kind: str, label: Any) -> str:
    return kind if label is None else f"{kind}({label!r})"


def _n_samples(y: Any, sample_weight: Any, groups: Any) -> int:
    if y is not None:
        names = label_names(y)
        if not names:
            raise ValueError("y holds no label")
        return len(pick_label(y, names[0]))
    for values in (groups, sample_weight):
        if values is not None:
            return len(values)
    raise ValueError("n_samples: pass the number of samples, it cannot be told without y")
