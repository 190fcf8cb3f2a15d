"""Fitting with labels or a given graph: shared by GSFA and IGSFA."""

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
from higsfa.estimators.sequence import _expands_exactly
from higsfa.estimators.validation import check_data, check_left_out, unchanged_on_error
from higsfa.graphs import AutoGraph, ClusteredGraph, GraphRecipe, TrainingGraph, as_recipe, check_weights
from higsfa.training.statistics import (
    MAX_CLASS_CHANNELS,
    ClassStatistics,
    GraphStatistics,
    NodeData,
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
            y = as_labels(y)
            if isinstance(graph, TrainingGraph):
                built, origin = graph, BUILT_BEFOREHAND
            else:
                recipe = as_recipe(self.graph if graph is None else graph)
                if isinstance(recipe, AutoGraph):
                    recipe = recipe.chosen(y, check_weights(sample_weight, len(X)))
                if isinstance(recipe, ClusteredGraph):
                    classes = _classes(y, recipe, len(X))
                    if len(classes[1]) <= MAX_CLASS_CHANNELS:
                        w = check_weights(sample_weight, len(X))
                        check_left_out(self, X, w)
                        self._adopt(_gather_classes(self._data(X, w), classes, w, recipe, y), X)
                        return self
                built = recipe.build(y, sample_weight=sample_weight, groups=groups, n_samples=len(X))
                origin = recipe.origin(y)
            if len(built.sample_weight) != len(X):
                raise ValueError(f"graph is for {built.n_samples} samples but X has {len(X)}")
            check_left_out(self, X, built.sample_weight)
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
    values = pick_label(y, recipe.label)
    if len(values) != n:
        raise ValueError(f"y: inconsistent numbers of samples: the label has {len(values)} values for {n} samples")
    codes, classes = find_classes(values)
    return codes, tuple(_plain(value) for value in classes)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _gather_classes(
    data: NodeData, classes: tuple[np.ndarray, tuple[Any, ...]], w: np.ndarray, recipe: ClusteredGraph, y: Any
) -> ClassStatistics:
    return gather_classes(data, *classes, w, recipe.origin(y), self_loops=bool(recipe.self_loops))
