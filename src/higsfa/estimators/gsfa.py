"""Slow feature analysis with labels or a given graph: GSFA, and IGSFA, which preserves information."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import _fit_context

from higsfa.core.graph.labels import as_labels, label_names, pick_label
from higsfa.core.node.solve import AUTO
from higsfa.core.sums.plan import make_plan
from higsfa.estimators.choice import copies_together, divide, gather_folds, noise_of_folds
from higsfa.estimators.parameters import LABELS, NODE, documented, fit_documented
from higsfa.estimators.stream import StreamEstimator, exact, joined
from higsfa.estimators.validation import BUILT, LABEL_KINDS, assign, check_data, fit_task, unchanged_on_error
from higsfa.graphs import (
    ClusteredGraph,
    GraphRecipe,
    LabelGraph,
    TrainingGraph,
    UniformGraph,
    as_recipe,
    check_weights,
)
from higsfa.graphs.label import gather_graph, why_not_additive
from higsfa.graphs.recipes import _terms
from higsfa.training.sources import as_source
from higsfa.training.statistics import GraphStatistics, Origin, Statistics

BUILT_BEFOREHAND = Origin.of("TrainingGraph")  # a graph that was passed to `fit`


class LabelledEstimator(StreamEstimator):
    """`fit` and `partial_fit` with labels."""

    _needs_labels = True
    label_kinds_: dict[Any, str] | None
    _parameter_constraints = {
        **StreamEstimator._parameter_constraints,
        "graph": [str, GraphRecipe],
        "label_kinds": LABEL_KINDS,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        graph: Any = "auto",
        label_kinds: Any = None,
        expansion: Any = "identity",
        shrinkage: Any = 0.0,
        clip_range: bool = True,
        center: Any = None,
        cv: int = 5,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def fit(self, X: Any, y: Any = None, *, graph: Any = None, sample_weight: Any = None, groups: Any = None) -> Any:
        """Fit on labelled samples, or on samples with a graph.

        {parameters}
        """
        with unchanged_on_error(self), fit_task(self, X, y), np.errstate(all="ignore"):
            X = check_data(self, X, reset=True, min_samples=2)
            n, y = len(X), as_labels(y)
            if not isinstance(graph, TrainingGraph):
                w = check_weights(sample_weight, n)
                given = as_recipe(self.graph if graph is None else graph)
                recipe = given.settled(y, w, self.label_kinds)
                self.label_kinds_ = given.kinds_taken(recipe)
                data, fold = self._data(X, w), None
                if AUTO in (self.shrinkage, getattr(self, "n_slow", None)):
                    fold = divide(recipe, y, w, copies_together(X, groups), self.cv)
                if fold is None:
                    self._adopt(gather_graph(data, recipe, y, w, groups), X=X)
                else:  # what parameters leave open is chosen on folds of the samples
                    noise = noise_of_folds(recipe, y, w, groups, fold)
                    self._adopt(*gather_folds(data, recipe, y, w, groups, fold), X, noise)
            elif sample_weight is not None or groups is not None:
                raise ValueError(BUILT)
            elif graph.n_samples != n:
                raise ValueError(f"graph is for {graph.n_samples} samples but X has {n}")
            else:
                plan, self.label_kinds_ = make_plan(graph), None
                sums = self._data(X, graph.sample_weight).gather(plan)
                self._adopt(GraphStatistics(*sums, BUILT_BEFOREHAND, plan.weighting), X=X)
        return self

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
            batch, is_looked_at = self._batch(X, y, sample_weight)
            recipe = as_recipe(self.graph)
            if forgetting != 1 and isinstance(recipe, ClusteredGraph) and not recipe.self_loops:
                raise ValueError(
                    "forgetting: edges of weight 1 / (N - 1) explode as the N samples of a class are forgotten; use "
                    "ClusteredGraph(self_loops=True)"
                )
            self._take_in(batch, forgetting, is_looked_at)
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
            self._statistics = known - self._sum_batches((self._batch(X, y, sample_weight)[0],))
            self._solved = None
        return self

    def _why_inexact(self) -> str:
        return why_not_additive(self.graph) or super()._why_inexact()

    def _batch(self, X: Any, y: Any, sample_weight: Any) -> tuple[dict[str, Any], bool]:
        """A batch, checked: samples, labels by name, weights; whether its numbers are known to be harmless."""
        (X, is_harmless), y, recipe = self._check_batch(X), as_labels(y), as_recipe(self.graph)
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
        by_name = {f"label {name!r}": values for name, values in labels.items()}
        return {"X": X, "w": w, **by_name, "names": list(labels)}, is_harmless

    def _sum_batches(self, batches: tuple[dict[str, Any], ...]) -> Statistics:
        names = batches[0]["names"]
        y: Any = {name: joined(batches, f"label {name!r}") for name in names}
        y = y[None] if names == [None] else y
        X, w = as_source(self._together([one["X"] for one in batches])), joined(batches, "w")
        data = self._with_known_shift(self._data(X, w))
        return gather_graph(data, as_recipe(self.graph).settled(y, w), y, w, None, np.inf)

    def _accepts(self, origin: Origin) -> bool:
        return origin == BUILT_BEFOREHAND or as_recipe(self.graph).makes(origin)


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
        label_kinds: Any = None,
        expansion: Any = "identity",
        delta_threshold: float = 1.96,
        n_slow: Any = None,
        scaling: str = "sensitivity",
        min_scale: float = 1e-3,
        weighted: bool = False,
        shrinkage: Any = 0.0,
        clip_range: bool = True,
        center: Any = None,
        cv: int = 5,
    ) -> None:
        assign(locals())
