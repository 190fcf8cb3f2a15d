"""Slow feature analysis of time series: SFA, and ISFA, which preserves information."""

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
from higsfa.estimators.parameters import NO_LABELS, NODE, documented, fit_documented
from higsfa.estimators.validation import assign, check_data, unchanged_on_error
from higsfa.graphs import SequenceGraph
from higsfa.training.gather import ArrayReader
from higsfa.training.statistics import Origin, SequenceStatistics


def _expands_exactly(self: Any) -> bool:
    """A nonlinear expansion acts on centred data, so the centre must be known beforehand."""
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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: int = 1,
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
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
            graph = build.sequence(build.recording_lengths(groups, len(X)), self.lag, scaled=False)
            data = self._data(X, graph.sample_weight)
            self._adopt(SequenceStatistics(*data.gather(sequence_plan(0, graph)), self._origin()), X)
            self._tail = data.read(np.arange(0))
            self._recording: Any = None
        return self

    @available_if(_expands_exactly)
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Continue fitting with the next samples; the result is that of `fit` on all of them.

        A recording may continue from one call to the next. Without `groups`, all calls are one recording; with
        `groups`, the first rows continue the last recording if they have its name. `fit` ends a recording.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            source = check_data(self, X, reset=not hasattr(self, "n_features_in_"))
            data = self._data(source)
            X = data.read(np.arange(len(source)))
            lengths = build.recording_lengths(groups, len(X))
            ids = [None] * len(lengths) if groups is None else np.asarray(groups)[np.cumsum(lengths) - lengths].tolist()
            known = getattr(self, "statistics_", None)
            tail = self._tail if hasattr(self, "_tail") and ids[0] == self._recording else X[:0]
            joined = np.concatenate([tail.astype(X.dtype, copy=False), X]) if len(tail) else X
            lengths[0] += len(tail)
            graph = build.sequence(lengths, self.lag, scaled=False, may_be_empty=True)
            data = replace(data, read=ArrayReader(joined, data.dtype))
            statistics = SequenceStatistics(*data.gather(sequence_plan(len(tail), graph)), self._origin())
            self._tail = joined[max(len(joined) - lengths[-1], len(joined) - self.lag) :].copy()
            self._recording = ids[-1]
            self.statistics_ = statistics if known is None else known + statistics
            with suppress(NotEnoughData):  # after one sample, say, there are sums but no features yet
                self._adopt(self.statistics_, source)
        return self

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
        n_slow: int | None = None,
        scaling: str = "sensitivity",
        min_scale: float = 1e-3,
        weighted: bool = False,
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        assign(locals())
