"""Slow feature analysis with labels or a given graph: GSFA, and IGSFA, which preserves information."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils.metaestimators import available_if

from higsfa.core.graph.build import NotEnoughData
from higsfa.core.graph.labels import as_labels, find_classes, label_names, pick_label
from higsfa.core.sums.plan import make_plan
from higsfa.estimators.node import NodeEstimator
from higsfa.estimators.parameters import LABELS, NODE, documented, fit_documented
from higsfa.estimators.sfa import _expands_exactly
from higsfa.estimators.validation import assign, check_data, unchanged_on_error
from higsfa.graphs import AutoGraph, ClusteredGraph, GraphRecipe, TrainingGraph, as_recipe, check_weights
from higsfa.training.sources import Source
from higsfa.training.statistics import MAX_CLASS_CHANNELS, ClassStatistics, GraphStatistics, Origin, gather_classes

BUILT_BEFOREHAND = Origin.of("TrainingGraph")  # a graph that was passed to `fit`


def _counts_exactly(self: Any) -> bool:
    """Only a clustered graph can grow sample by sample; the groups of a serial graph depend on all labels."""
    if not isinstance(as_recipe(self.graph), ClusteredGraph):
        raise AttributeError(
            "partial_fit is exact for graph='clustered' only: other graphs depend on all labels at once"
        )
    return _expands_exactly(self)


class LabelledEstimator(NodeEstimator):
    """`fit` and `partial_fit` with labels."""

    _needs_labels = True
    _parameter_constraints = {**NodeEstimator._parameter_constraints, "graph": [str, GraphRecipe]}

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
            if isinstance(graph, TrainingGraph):
                built, origin = graph, BUILT_BEFOREHAND
            else:
                recipe = as_recipe(self.graph if graph is None else graph)
                if isinstance(recipe, AutoGraph):
                    recipe = recipe.chosen(y, check_weights(sample_weight, n))
                if isinstance(recipe, ClusteredGraph):
                    classes = _classes(y, recipe, n)
                    if len(classes[1]) <= MAX_CLASS_CHANNELS:
                        self._adopt(self._gather_classes(X, y, recipe, classes, sample_weight), X)
                        return self
                origin = recipe.origin(y)
                built = recipe.build(y, sample_weight=sample_weight, groups=groups, n_samples=n)
            if built.n_samples != n:
                raise ValueError(f"graph is for {built.n_samples} samples but X has {n}")
            plan = make_plan(built)
            sums = self._data(X, built.sample_weight).gather(plan)
            self._adopt(GraphStatistics(*sums, origin, plan.weighting), X)
        return self

    @available_if(_counts_exactly)
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Continue fitting with more labelled samples, in any order; the result is that of `fit` on all of them.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            source = check_data(self, X, reset=not hasattr(self, "n_features_in_"))
            known = getattr(self, "statistics_", None)
            if known is not None and not isinstance(known, ClassStatistics):
                raise ValueError(
                    "partial_fit cannot continue this fit: its sums are not kept class by class, as they are for up "
                    f"to {MAX_CLASS_CHANNELS} classes of one label"
                )
            recipe = as_recipe(self.graph)
            assert isinstance(recipe, ClusteredGraph)
            classes = _classes(y, recipe, len(source))
            statistics = self._gather_classes(source, y, recipe, classes, sample_weight)
            self.statistics_ = statistics if known is None else known + statistics
            with suppress(NotEnoughData):  # with one class there are sums but no features yet
                self._adopt(self.statistics_, source)
        return self

    def _gather_classes(
        self, X: Source, y: Any, recipe: ClusteredGraph, classes: tuple[np.ndarray, tuple[Any, ...]], weights: Any
    ) -> ClassStatistics:
        w = check_weights(weights, len(X))
        return gather_classes(self._data(X, w), *classes, w, recipe.origin(y), self_loops=bool(recipe.self_loops))

    def _accepts(self, origin: Origin) -> bool:
        return origin == BUILT_BEFOREHAND or as_recipe(self.graph).makes(origin)


def _classes(y: Any, recipe: ClusteredGraph, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
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
