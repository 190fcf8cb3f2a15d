"""Slow feature analysis with labels or a given graph: GSFA, and IGSFA, which preserves information."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import _fit_context

from higsfa.core.graph.labels import as_labels, find_classes, label_names, pick_label
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.tile import unit_of
from higsfa.estimators.parameters import LABELS, NODE, documented, fit_documented
from higsfa.estimators.stream import StreamEstimator, exact, joined, samples_of
from higsfa.estimators.validation import BUILT, assign, check_data, unchanged_on_error
from higsfa.graphs import (
    ClusteredGraph,
    CodeGraph,
    GraphRecipe,
    LabelGraph,
    TrainingGraph,
    UniformGraph,
    as_recipe,
    check_weights,
)
from higsfa.graphs.recipes import _terms
from higsfa.training.sources import Source
from higsfa.training.statistics import (
    MAX_CLASS_CHANNELS,
    ClassRule,
    GraphStatistics,
    Origin,
    Statistics,
    Summation,
    sum_classes,
    sum_labels,
)

BUILT_BEFOREHAND = Origin.of("TrainingGraph")  # a graph that was passed to `fit`


class LabelledEstimator(StreamEstimator):
    """`fit` and `partial_fit` with labels."""

    _needs_labels = True
    _parameter_constraints = {**StreamEstimator._parameter_constraints, "graph": [str, GraphRecipe]}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        graph: Any = "auto",
        expansion: Any = "identity",
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def fit(self, X: Any, y: Any = None, *, graph: Any = None, sample_weight: Any = None, groups: Any = None) -> Any:
        """Fit on labelled samples, or on samples with a graph.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            X = check_data(self, X, reset=True, min_samples=2)
            n, y = len(X), as_labels(y)
            if not isinstance(graph, TrainingGraph):
                recipe = as_recipe(self.graph if graph is None else graph)
                self._adopt(self._gather(X, y, recipe, check_weights(sample_weight, n), groups), X)
            elif sample_weight is not None or groups is not None:
                raise ValueError(BUILT)
            elif graph.n_samples != n:
                raise ValueError(f"graph is for {graph.n_samples} samples but X has {n}")
            else:
                plan = make_plan(graph)
                sums = self._data(X, graph.sample_weight).gather(plan)
                self._adopt(GraphStatistics(*sums, BUILT_BEFOREHAND, plan.weighting), X)
        return self

    def _gather(
        self, X: Source, y: Any, recipe: GraphRecipe, w: np.ndarray, groups: Any, most: float = MAX_CLASS_CHANNELS
    ) -> Statistics:
        """Statistics of samples; of the kind that adds where the recipe allows it, and at most so many classes."""
        recipe = recipe.settled(y, w)
        parts = summation(recipe, y, w, most)
        if parts is not None:
            data = self._data(X, w)
            data = replace(data, dtype=np.dtype(np.float64)) if recipe.is_low_rank else data
            return parts.statistics(*data.gather(parts.plan))
        graph = recipe.build(y, sample_weight=w, groups=groups, n_samples=len(X))
        plan = make_plan(graph)
        return GraphStatistics(*self._data(X, w).gather(plan), recipe.origin(y), plan.weighting)

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, forgetting: float = 1.0) -> Any:
        """Continue fitting with more labelled samples, in any order; the result is that of `fit` on all of them.

        It is exact for classes (ClusteredGraph, CodeGraph) and for numbers (LabelGraph with a `label_range`, or sums of
        several). Features are worked out when they are asked for.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            batch = self._batch(X, y, sample_weight)
            recipe = as_recipe(self.graph)
            if forgetting != 1 and isinstance(recipe, ClusteredGraph) and not recipe.self_loops:
                raise ValueError(
                    "forgetting: edges of weight 1 / (N - 1) explode as the N samples of a class are forgotten; use "
                    "ClusteredGraph(self_loops=True)"
                )
            self._take_in(batch, forgetting)
        return self

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def unlearn(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Take labelled samples out of the fit again: the result is that of a fit that never saw them.

        The range that inputs are clipped to stays as it was.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            known = self.statistics_
            self._statistics = known - self._sum_batches((self._batch(X, y, sample_weight),))
            self._solved = None
        return self

    def _why_inexact(self) -> str:
        return why_not_additive(self.graph) or super()._why_inexact()

    def _batch(self, X: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        """A batch, checked: samples, labels by name, weights."""
        X, y, recipe = self._check_batch(X), as_labels(y), as_recipe(self.graph)
        w = np.array(check_weights(sample_weight, len(X)))
        labels: dict[Any, np.ndarray] = {}
        for part in _terms(recipe)[0]:
            if not isinstance(part, UniformGraph):
                labels[part.label] = np.array(pick_label(y, part.label, len(X)))
            if isinstance(part, LabelGraph):
                part.check(labels[part.label], w)
        names = label_names(y)
        if list(labels) == [None] and np.ndim(y) != 1 and len(names) == 1:
            labels = {names[0]: labels[None]}
        return {"X": X, "w": w, **{f"label {name!r}": values for name, values in labels.items()}, "names": list(labels)}

    def _sum_batches(self, batches: tuple[dict[str, Any], ...]) -> Statistics:
        names = batches[0]["names"]
        y: Any = {name: joined(batches, f"label {name!r}") for name in names}
        y = y[None] if names == [None] else y
        return self._gather(samples_of(batches), y, as_recipe(self.graph), joined(batches, "w"), None, np.inf)

    def _accepts(self, origin: Origin) -> bool:
        return origin == BUILT_BEFOREHAND or as_recipe(self.graph).makes(origin)


def why_not_additive(graph: Any) -> str:
    """Why sums of parts of the data do not add for this graph; empty if they do."""
    recipe = as_recipe(graph)
    if any(isinstance(part, LabelGraph) and part.label_range is None for part in _terms(recipe)[0]):
        return "a LabelGraph needs to know all labels there may be: give it label_range=(low, high)"
    if not (isinstance(recipe, ClusteredGraph | CodeGraph) or recipe.is_low_rank):
        return (
            f"graph={graph!r} depends on all labels at once; batches add up for numbers with "
            "graph=LabelGraph(label_range=(low, high)) and for classes with graph='clustered' or 'code'"
        )
    return ""


def summation(recipe: GraphRecipe, y: Any, w: np.ndarray, most: float = np.inf) -> Summation | None:
    """How samples are summed such that parts add; None if the recipe or more than `most` classes forbid it."""
    if isinstance(recipe, ClusteredGraph | CodeGraph):
        codes, classes = _classes(y, recipe, len(w))
        return sum_classes(codes, classes, w, recipe.origin(y), _rule(recipe)) if len(classes) <= most else None
    if recipe.is_low_rank:
        unit = unit_of(w)
        return sum_labels(recipe.build(y, sample_weight=w / unit, n_samples=len(w)), unit, recipe.origin(y))
    return None


def _rule(recipe: ClusteredGraph | CodeGraph) -> ClassRule:
    if isinstance(recipe, CodeGraph):
        return ClassRule(codes=True, n_features=recipe.n_features)
    return ClassRule(self_loops=bool(recipe.self_loops))


def _classes(y: Any, recipe: ClusteredGraph | CodeGraph, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class index of each sample (-1 for none), and the classes in that order."""
    if not label_names(y):
        raise ValueError("y: requires y to be passed, but the target y is None; a clustered graph is built from labels")
    codes, classes = find_classes(pick_label(y, recipe.label, n))
    return codes, tuple(value.item() if isinstance(value, np.generic) else value for value in classes)


@documented(NODE)
class GSFA(LabelledEstimator):
    r"""Graph-based slow feature analysis: supervised dimensionality reduction.

    Samples are the vertices of a graph (weights :math:`v_n`), and edges (weights :math:`\gamma_{nn'}`) join samples
    with similar labels. With :math:`Q = \sum_n v_n` and :math:`R = \sum_{nn'} \gamma_{nn'}`, the features minimise

    .. math:: \Delta_j = \frac{1}{R} \sum_{n, n'} \gamma_{nn'} (y_j(n') - y_j(n))^2

    under weighted zero mean, unit variance and decorrelation. For a clustered graph they are those of Fisher's
    discriminant analysis; a serial graph orders them along a numeric label; a sum of graphs serves several labels.

    {parameters}

    References
    ----------
    Escalante-B., A. N. and Wiskott, L. (2013). How to solve classification and regression problems on high-dimensional
    data with a supervised extension of slow feature analysis. Journal of Machine Learning Research 14, 3683-3719.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA
    >>> X, y = load_wine(return_X_y=True)
    >>> gsfa = GSFA(n_components=2, graph="clustered").fit(X, y)
    >>> gsfa.transform(X).shape
    (178, 2)
    >>> bool(gsfa.delta_values_[0] < 0.25)
    True
    """


@documented(NODE)
class IGSFA(LabelledEstimator):
    r"""Information-preserving graph-based slow feature analysis (iGSFA).

    {preserving}

    {parameters}

    {igsfa_paper}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from higsfa import IGSFA
    >>> X, y = load_diabetes(return_X_y=True)
    >>> node = IGSFA(n_components=6, graph="serial", n_slow=2).fit(X, y)
    >>> node.get_feature_names_out().tolist()
    ['igsfa_slow0', 'igsfa_slow1', 'igsfa_rec0', 'igsfa_rec1', 'igsfa_rec2', 'igsfa_rec3']
    >>> X_hat = node.inverse_transform(node.transform(X))
    >>> bool(((X - X_hat) ** 2).sum() < 0.4 * (X**2).sum())
    True
    """

    _parameter_constraints = {**LabelledEstimator._parameter_constraints, **LabelledEstimator._preserving_constraints}
    _preserve = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        graph: Any = "auto",
        expansion: Any = "identity",
        delta_threshold: float = 1.96,
        n_slow: int | None = None,
        scaling: str = "sensitivity",
        min_scale: float = 1e-3,
        weighted: bool = False,
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        assign(locals())
