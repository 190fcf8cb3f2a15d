"""Fitting over time: shared by SFA and ISFA."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if

from higsfa.core.expansion.expansion import as_expansion
from higsfa.core.graph import build
from higsfa.core.graph.build import NotEnoughData
from higsfa.core.sums.plan import sequence_plan
from higsfa.estimators.node import NodeEstimator
from higsfa.estimators.validation import check_data, unchanged_on_error
from higsfa.graphs import SequenceGraph
from higsfa.training.gather import ArrayReader
from higsfa.training.statistics import Origin, SequenceStatistics


def _expands_exactly(self: Any) -> bool:
    """Expansions act on centred data, so the centre must be known, or not matter."""
    if self.center is None and not as_expansion(self.expansion).is_linear:
        raise AttributeError(
            f"partial_fit needs the mean of the data beforehand for expansion '{self.expansion}': pass center="
        )
    return True


class SequenceEstimator(NodeEstimator):
    """`fit` and `partial_fit` on time series."""

    _parameter_constraints = {
        **NodeEstimator._parameter_constraints,
        "lag": [Interval(Integral, 1, None, closed="left")],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Fit on one or several recordings.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples in time order.
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The recording of each sample. No transition is made from one recording to the next.

        Returns
        -------
        self
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            X = check_data(self, X, reset=True, min_samples=2)
            graph = build.sequence(build.recording_lengths(groups, len(X)), self.lag, scaled=False)
            data = self._data(X, graph.sample_weight)
            self._adopt(SequenceStatistics(*data.gather(sequence_plan(0, graph)), self._origin()), X)
            self._tail = data.read(np.arange(0))
            self._recording: Any = None
        return self

    @available_if(_expands_exactly)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Go on fitting with the next samples.

        The result is that of `fit` on all samples at once. A recording may go on from one call to the next: without
        `groups` all calls are one recording, with `groups` the first rows continue the last recording if they name
        the same one. After `fit`, a new recording begins.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The recording of each sample.

        Returns
        -------
        self
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            first = not hasattr(self, "n_features_in_")
            source = check_data(self, X, reset=first)
            data = self._data(source)
            X = data.read(np.arange(len(source)))
            lengths = build.recording_lengths(groups, len(X))
            ids = [None] * len(lengths) if groups is None else np.asarray(groups)[np.cumsum(lengths) - lengths].tolist()
            known = getattr(self, "statistics_", None)
            tail = getattr(self, "_tail", X[:0])
            if len(tail) and ids[0] != self._recording:
                tail = tail[:0]
            joined = np.concatenate([tail.astype(X.dtype, copy=False), X]) if len(tail) else X
            lengths = lengths.copy()
            lengths[0] += len(tail)
            graph = build.sequence(lengths, self.lag, scaled=False, may_be_empty=True)
            data = replace(data, read=ArrayReader(joined, data.dtype))
            statistics = SequenceStatistics(*data.gather(sequence_plan(len(tail), graph)), self._origin())
            self._tail = joined[max(len(joined) - lengths[-1], len(joined) - self.lag) :].copy()
            self._recording = ids[-1]
            self.statistics_ = statistics if known is None else known + statistics
            with suppress(NotEnoughData):  # one sample, say: the sums are kept, features come with more data
                self._adopt(self.statistics_, source)
        return self

    def _origin(self) -> Origin:
        return SequenceGraph(self.lag).origin(None)

    def _accepts(self, origin: Origin) -> bool:
        return self._origin().fits(origin)
