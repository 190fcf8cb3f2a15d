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
from higsfa.estimators.sfa import _expands_exactly
from higsfa.estimators.validation import check_data, check_left_out, unchanged_on_error
from higsfa.graphs import AutoGraph, ClusteredGraph, GraphRecipe, TrainingGraph, as_recipe, check_weights
from higsfa.training.gather import NodeData
from higsfa.training.statistics import (
    MAX_CLASS_CHANNELS,
    ClassRule,
    ClassStatistics,
    GraphStatistics,
    Origin,
    gather_classes,
)

BUILT_BEFOREHAND = Origin.of("TrainingGraph")
"""A graph that was given to `fit` instead of the parameter `graph`."""


def _counts_exactly(self: Any) -> bool:
    """Only a clustered graph can be completed sample by sample: the groups of a serial graph depend on all labels."""
    if not isinstance(as_recipe(self.graph), ClusteredGraph):
        raise AttributeError(
            "partial_fit is exact for graph='clustered' only: other graphs depend on all labels at once"
        )
    return _expands_exactly(self)


class LabelledEstimator(NodeEstimator):
    """`fit` and `partial_fit` with labels."""

    _needs_labels = True

    _parameter_constraints = {**NodeEstimator._parameter_constraints, "graph": [str, GraphRecipe]}

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, graph: Any = None, sample_weight: Any = None, groups: Any = None) -> Any:
        """Fit on labelled samples, or on samples with a graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_labels), DataFrame or dict of arrays, optional
            Labels. Missing values take a sample out of the graph of that label only.
        graph : recipe, TrainingGraph or str, optional
            Used instead of the parameter `graph`.
        sample_weight : array-like of shape (n_samples,), optional
            Weight w counts a sample w times.
        groups : array-like of shape (n_samples,), optional
            The recording of each sample, for graphs in time order.

        Returns
        -------
        self
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            X = check_data(self, X, reset=True, min_samples=2)
            n, y = len(X), as_labels(y)
            if isinstance(graph, TrainingGraph):
                built, origin = graph, BUILT_BEFOREHAND
            else:
                recipe = as_recipe(self.graph if graph is None else graph)
                if isinstance(recipe, AutoGraph):
                    recipe = recipe.settled(y, check_weights(sample_weight, n))
                if isinstance(recipe, ClusteredGraph):
                    classes = _classes(y, recipe, n)
                    if len(classes[1]) <= MAX_CLASS_CHANNELS:
                        w = check_weights(sample_weight, n)
                        self._adopt(_gather_classes(self._data(X, w), classes, w, recipe, y), X)
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
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Go on fitting with more labelled samples, in any order; the result is that of `fit` on all of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : labels, as in `fit`
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            source = check_data(self, X, reset=not hasattr(self, "n_features_in_"))
            known = getattr(self, "statistics_", None)
            if known is not None and not isinstance(known, ClassStatistics):
                raise ValueError(
                    f"partial_fit cannot go on from this fit: its sums are not kept class by class "
                    f"(they are for up to {MAX_CLASS_CHANNELS} classes of one label)"
                )
            recipe = as_recipe(self.graph)
            assert isinstance(recipe, ClusteredGraph)
            classes = _classes(y, recipe, len(source))
            w = check_weights(sample_weight, len(source))
            check_left_out(self, source, w)
            statistics = _gather_classes(self._data(source), classes, w, recipe, y)
            self.statistics_ = statistics if known is None else known + statistics
            with suppress(NotEnoughData):  # one class so far: the sums are kept, features come with more data
                self._adopt(self.statistics_, source)
        return self

    def _accepts(self, origin: Origin) -> bool:
        return origin == BUILT_BEFOREHAND or as_recipe(self.graph).makes(origin)


def _classes(y: Any, recipe: ClusteredGraph, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class number of each sample (-1 for none), and the classes themselves in that order."""
    if not label_names(y):
        raise ValueError("y: requires y to be passed, but the target y is None; a clustered graph is built from labels")
    codes, classes = find_classes(pick_label(y, recipe.label, n))
    return codes, tuple(_plain(value) for value in classes)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _gather_classes(
    data: NodeData, classes: tuple[np.ndarray, tuple[Any, ...]], w: np.ndarray, recipe: ClusteredGraph, y: Any
) -> ClassStatistics:
    return gather_classes(data, *classes, w, recipe.origin(y), ClassRule(bool(recipe.self_loops)))


class GSFA(LabelledEstimator):
    r"""Graph-based slow feature analysis: supervised dimensionality reduction.

    Samples are the vertices of a graph (weights :math:`v_n`), and edges (weights :math:`\gamma_{nn'}`) join samples
    with similar labels. With :math:`Q = \sum_n v_n` and :math:`R = \sum_{nn'} \gamma_{nn'}`, the features minimise

    .. math:: \Delta_j = \frac{1}{R} \sum_{n, n'} \gamma_{nn'} (y_j(n') - y_j(n))^2

    under weighted zero mean, unit variance and decorrelation. For a clustered graph they are those of Fisher's
    discriminant analysis; a serial graph orders them along a numeric label; a sum of graphs serves several labels.

    Parameters
    ----------
    n_components : int, optional
        Number of features; all of them by default.
    graph : recipe or str, default="auto"
        How labels become similarities: a recipe of :mod:`higsfa.graphs` or one of "clustered", "serial", "mixed",
        "window", "sequence". "auto" is clustered for discrete labels and serial for continuous ones.
    expansion : str, Expansion or callable, default="identity"
        Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
        :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
    shrinkage : float, default=0.0
        Against over-fitting: solve as if every expanded variable had white noise of this fraction of its variance on
        top. Features are sorted by their Delta values with the noise; their own Delta values need not ascend then.
    clip_range : bool, default=True
        Clip inputs to their range in the training data before a nonlinear expansion, so that unseen data cannot blow
        up. It changes nothing on the training data.
    center : array-like of shape (n_features,), optional
        What to subtract from the input before the expansion; the mean by default. Given beforehand, `partial_fit`
        works with nonlinear expansions too.

    Attributes
    ----------
    delta_values_ : array
        Delta values, slowest first.
    n_slow_ : int
        Number of slow features; they are the first columns of the output.
    n_components_ : int
        Number of features.
    rank_ : int
        Rank of the covariance of the expanded data.
    mean_ : array of shape (n_features,)
        The centre that is subtracted from the input.
    statistics_ : Statistics
        The sums behind the fit. They add: ``a.statistics_ + b.statistics_``; see `fit_from_statistics`.
    n_features_in_ : int
        Number of inputs.

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
        self.n_components = n_components
        self.graph = graph
        self.expansion = expansion
        self.shrinkage = shrinkage
        self.clip_range = clip_range
        self.center = center


class IGSFA(LabelledEstimator):
    r"""Information-preserving graph-based slow feature analysis (iGSFA).

    The features have two parts. The slow part :math:`s'` holds the GSFA features with :math:`\Delta` below
    `delta_threshold`. The input is predicted from them, :math:`x' \approx M s' + b`, and the reconstructive part holds
    the first principal components of what is left, :math:`u = x' - M s' - b`. Slow features are scaled to
    :math:`y' = \Lambda s'` (or :math:`R s'`), so that a change of a feature changes the reconstruction by as much.
    `inverse_transform` rebuilds the input: :math:`\tilde x = M \Lambda^{-1} y' + b + W^T h + \bar x`.
    Written with a lower-case i in the paper; independent SFA is another method.

    Parameters
    ----------
    n_components : int, optional
        Number of features; all of them by default.
    graph : recipe or str, default="auto"
        How labels become similarities: a recipe of :mod:`higsfa.graphs` or one of "clustered", "serial", "mixed",
        "window", "sequence". "auto" is clustered for discrete labels and serial for continuous ones.
    expansion : str, Expansion or callable, default="identity"
        Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
        :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
    delta_threshold : float, default=1.96
        Features with Delta below it form the slow part; noise has Delta 2. Negative: no slow part, that is PCA.
        4 or more: slow features only.
    n_slow : int, optional
        The number of slow features, instead of `delta_threshold`.
    scaling : {"sensitivity", "qr"}, default="sensitivity"
        How slow features get amplitudes that match the reconstructive ones: by the norm of their column of M, without
        mixing them, or by the QR decomposition of M.
    min_scale : float, default=1e-3
        Lower bound on the scales, relative to the largest amplitude.
    weighted : bool, default=False
        Whether regression and PCA use the vertex weights of the graph, too.
    shrinkage : float, default=0.0
        Against over-fitting: solve as if every expanded variable had white noise of this fraction of its variance on
        top. Features are sorted by their Delta values with the noise; their own Delta values need not ascend then.
    clip_range : bool, default=True
        Clip inputs to their range in the training data before a nonlinear expansion, so that unseen data cannot blow
        up. It changes nothing on the training data.
    center : array-like of shape (n_features,), optional
        What to subtract from the input before the expansion; the mean by default. Given beforehand, `partial_fit`
        works with nonlinear expansions too.

    Attributes
    ----------
    delta_values_ : array
        Delta values, slowest first; the first `n_slow_` of them are the slow part.
    n_slow_ : int
        Number of slow features; they are the first columns of the output.
    n_components_ : int
        Number of features.
    rank_ : int
        Rank of the covariance of the expanded data.
    mean_ : array of shape (n_features,)
        The centre that is subtracted from the input.
    statistics_ : Statistics
        The sums behind the fit. They add: ``a.statistics_ + b.statistics_``; see `fit_from_statistics`.
    n_features_in_ : int
        Number of inputs.

    References
    ----------
    Escalante-B., A. N. and Wiskott, L. (2020). Improved graph-based SFA: information preservation complements the
    slowness principle. Machine Learning 109, 999-1037.

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
        self.n_components = n_components
        self.graph = graph
        self.expansion = expansion
        self.delta_threshold = delta_threshold
        self.n_slow = n_slow
        self.scaling = scaling
        self.min_scale = min_scale
        self.weighted = weighted
        self.shrinkage = shrinkage
        self.clip_range = clip_range
        self.center = center
