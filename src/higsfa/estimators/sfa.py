"""Slow feature analysis of time series: SFA, and ISFA, which preserves information."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval

from higsfa.core.graph import build
from higsfa.core.node.solve import AUTO
from higsfa.core.sums.plan import sequence_plan
from higsfa.estimators.choice import add_folds, divide, subset
from higsfa.estimators.parameters import NO_LABELS, NODE, documented, fit_documented
from higsfa.estimators.stream import StreamEstimator, exact, joined
from higsfa.estimators.validation import assign, check_data, unchanged_on_error, warn_if_recording
from higsfa.graphs import SequenceGraph
from higsfa.training.gather import NodeData
from higsfa.training.sources import as_source
from higsfa.training.statistics import Origin, SequenceStatistics


class SequenceEstimator(StreamEstimator):
    """`fit` and `partial_fit` on time series."""

    _parameter_constraints = {
        **StreamEstimator._parameter_constraints,
        "lag": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: int = 1,
        shrinkage: Any = 0.0,
        clip_range: bool = True,
        center: Any = None,
        cv: int = 5,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Fit on one or several recordings, with samples in time order.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            X = check_data(self, X, reset=True, min_samples=2)
            warn_if_recording(y, groups)
            lengths = build.recording_lengths(groups, len(X))
            build.sequence(lengths, self.lag)  # an error if no two samples are neighbours
            data, fold = self._data(X, np.ones(len(X))), None
            if AUTO in (self.shrinkage, getattr(self, "n_slow", None)):
                fold = divide(SequenceGraph(self.lag), None, np.ones(len(X)), groups, self.cv)
            if fold is None:
                self._adopt(self._sums_of(data, lengths, 0), X=X)
            else:
                folds = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
                of = [build.recording_lengths(np.asarray(groups)[rows], len(rows)) for rows in folds]
                parts = [self._sums_of(subset(data, rows), own, 0) for rows, own in zip(folds, of, strict=True)]
                self._adopt(*add_folds(parts), X)
            self._tail, self._recording = data.read(np.arange(0)), None
        return self

    _tail: Any = None
    _recording: Any = None

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def partial_fit(self, X: Any, y: Any = None, groups: Any = None, *, forgetting: float = 1.0) -> Any:
        """Continue fitting with the next samples; the result is that of `fit` on all of them.

        A recording may continue from one call to the next. Without `groups`, all calls are one recording; with
        `groups`, the first rows continue the last recording if they have its name. `fit` ends a recording. Features are
        worked out when they are asked for.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            self._take_in(self._batch(X, groups), forgetting)
        return self

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def unlearn(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Take whole recordings out of the fit again: the result is that of a fit that never saw them.

        The range that inputs are clipped to stays as it was.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            known, batch = self.statistics_, self._batch(X, groups)
            lengths = build.recording_lengths(batch["groups"], len(batch["X"]))
            self._statistics = known - self._sequence(batch["X"], lengths, 0)
            self._solved = self._tail = self._recording = None  # the recording ends
        return self

    def _batch(self, X: Any, groups: Any) -> dict[str, Any]:
        X = np.asarray(self._check_batch(X))
        groups = None if groups is None else np.array(groups)
        build.recording_lengths(groups, len(X))
        return {"X": X.reshape(len(X), -1), "groups": groups}

    def _sum_batches(self, batches: tuple[dict[str, Any], ...]) -> SequenceStatistics:
        X, groups = joined(batches, "X"), joined(batches, "groups")
        lengths = build.recording_lengths(groups, len(X))
        ids = [None] * len(lengths) if groups is None else groups[np.cumsum(lengths) - lengths].tolist()
        tail = X[:0] if self._tail is None or ids[0] != self._recording else self._tail
        if len(tail):
            X = np.concatenate([tail, X])
            lengths[0] += len(tail)
        statistics = self._sequence(X, lengths, len(tail))
        self._tail, self._recording = X[max(len(X) - lengths[-1], len(X) - self.lag) :].copy(), ids[-1]
        return statistics

    def _sequence(self, X: np.ndarray, lengths: np.ndarray, n_before: int) -> SequenceStatistics:
        return self._sums_of(self._data(as_source(X)), lengths, n_before)

    def _sums_of(self, data: NodeData, lengths: np.ndarray, n_before: int) -> SequenceStatistics:
        """Statistics of recordings, of which the first `n_before` samples were summed before."""
        graph = build.sequence(lengths, self.lag, scaled=False, may_be_empty=True)
        return SequenceStatistics(*data.gather(sequence_plan(n_before, graph)), self._origin())

    def _origin(self) -> Origin:
        return SequenceGraph(self.lag).origin(None)

    def _accepts(self, origin: Origin) -> bool:
        return self._origin().fits(origin)


@documented(NODE)
class SFA(SequenceEstimator):
    r"""Slow feature analysis of time series.

    Finds functions of the input that vary as slowly as possible over time. With the expanded, centred input
    :math:`z = g(x - \bar x)`, the features :math:`y_j = b_j^T (z - \bar z)` minimise

    .. math:: \Delta_j = \langle (y_j(t + \mathrm{lag}) - y_j(t))^2 \rangle_t

    under zero mean, unit variance and decorrelation. They solve the generalised eigenproblem
    :math:`\dot C b = \Delta C b` of the covariances of :math:`z` and of its differences in time. Noise has
    :math:`\Delta = 2`.

    {parameters}

    References
    ----------
    Wiskott, L. and Sejnowski, T. (2002). Slow feature analysis: unsupervised learning of invariances.
    Neural Computation 14, 715-770.

    Examples
    --------
    A slow signal, hidden in noise by multiplying it with more noise, is found by a quadratic expansion:

    >>> import numpy as np
    >>> from higsfa import SFA
    >>> noise = np.random.default_rng(0).choice([-1.0, 1.0], size=2000)
    >>> slow = np.sin(0.01 * np.arange(2000))
    >>> X = np.column_stack([noise, slow * noise])
    >>> sfa = SFA(n_components=1, expansion="identity | quadratic").fit(X)
    >>> found = sfa.transform(X)[:, 0]
    >>> bool(abs(np.corrcoef(found, slow)[0, 1]) > 0.999)
    True
    """


@documented(NODE)
class ISFA(SequenceEstimator):
    r"""Information-preserving slow feature analysis (iSFA) of time series.

    {preserving}

    {parameters}

    {igsfa_paper}

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import ISFA
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.sin(0.01 * np.arange(1000)), rng.standard_normal((1000, 3))])
    >>> isfa = ISFA(n_components=3, n_slow=1).fit(X)
    >>> isfa.get_feature_names_out().tolist()
    ['isfa_slow0', 'isfa_rec0', 'isfa_rec1']
    >>> isfa.inverse_transform(isfa.transform(X)).shape
    (1000, 4)
    """

    _parameter_constraints = {**SequenceEstimator._parameter_constraints, **SequenceEstimator._preserving_constraints}
    _preserve = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: int = 1,
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
