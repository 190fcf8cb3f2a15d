"""Slow feature analysis of time series: SFA, and ISFA, which preserves information."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from higsfa.core.node.solve import AUTO
from higsfa.core.sums.plan import sequence_plan
from higsfa.estimators.choice import add_folds, divide, subset
from higsfa.estimators.parameters import NO_LABELS, NODE, documented, fit_documented
from higsfa.estimators.recordings import OverRecordings, Recordings, Series, averaged, missing_rows, with_past
from higsfa.estimators.stream import StreamEstimator, exact
from higsfa.estimators.validation import (
    LAG,
    assign,
    check_data,
    check_out,
    dask_transform,
    fit_task,
    is_harmless,
    product_dtype,
    unchanged_on_error,
    warn_if_recording,
)
from higsfa.graphs import SequenceGraph
from higsfa.graphs.recipes import check_weights
from higsfa.training.gather import NodeData
from higsfa.training.sources import Source, as_source
from higsfa.training.statistics import Origin, SequenceStatistics

OTHER = object()
"""A recording that no other one goes on from."""


class SequenceEstimator(OverRecordings, StreamEstimator):
    """`fit`, `partial_fit` and `transform` of time series."""

    _parameter_constraints = {
        **StreamEstimator._parameter_constraints,
        "lag": LAG,
        "delays": [Interval(Integral, 0, None, closed="left")],
        "node_weights": [StrOptions({"degree"}), None],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: Any = 1,
        delays: int = 0,
        node_weights: str | None = None,
        shrinkage: Any = 0.0,
        clip_range: bool = True,
        center: Any = None,
        cv: int = 5,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def fit(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, pair_weight: Any = None
    ) -> Any:
        """Fit on one or several recordings, with samples in time order.

        {parameters}
        """
        with unchanged_on_error(self), fit_task(self, X, y), np.errstate(all="ignore"):
            given = Recordings.of(X, groups)
            source = check_data(self, given.X, reset=True, min_samples=2)
            warn_if_recording(y, groups)
            w, pairs = self._weights(given, sample_weight, pair_weight)
            missing = None
            try:
                self._fit_series(source, given, None, w, pairs)
            except ValueError:  # of NaN, perhaps: sums tell for free whether there is any
                missing = missing_rows(self, source)
                if missing is None:
                    raise
            if missing is not None:
                self._fit_series(source, given, missing, w, pairs)
            given.warn_of_cuts(missing)
            self._tail, self._recording = None, None
        return self

    _tail: dict[str, Any] | None = None  # the last samples, which edges and delays of the next ones reach back to
    _recording: Any = None  # of the last sample that was taken in

    def _weights(self, given: Recordings, sample_weight: Any, pair_weight: Any) -> tuple[Any, Any]:
        """Weights of the samples, and of the pairs that begin with each of them; None for 1."""
        if sample_weight is None and pair_weight is None:
            return None, None
        w, n_lags = given.flat(sample_weight, "sample_weight"), len(self._recipe().lags())
        return None if w is None else check_weights(w, len(w)), given.flat(pair_weight, "pair_weight", n_lags)

    def _fit_series(self, source: Source, given: Recordings, missing: Any, w: Any, pairs: Any) -> None:
        series = Series.of(source, given.starts(missing), missing, self.delays)
        rows = series.rows
        w, pairs = (None if one is None else one[rows] for one in (w, pairs))
        own = np.ones(len(rows)) if w is None else w
        if pairs is not None or series.lengths.max(initial=0) <= min(self._recipe().lags()):
            self._recipe().build_recordings(series.lengths, w=w, pair_weight=_by_lag(pairs))  # an error without pairs
        data, fold = self._data(series.source, own), None
        if AUTO in (self.shrinkage, getattr(self, "n_slow", None)):
            groups = None if given.groups is None else given.groups[rows]
            fold = divide(self._recipe(), None, own, groups, self.cv)
        if fold is None:
            self._adopt(self._sums_of(data, series.lengths, 0, w, pairs), X=series.source)
            return
        parts = []
        for k in range(fold.max() + 1):
            at, lengths = series.part(fold == k)
            some = (None if one is None else one[at] for one in (w, pairs))
            parts.append(self._sums_of(subset(data, at), lengths, 0, *some))
        self._adopt(*add_folds(parts), series.source)

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        pair_weight: Any = None,
        forgetting: float = 1.0,
    ) -> Any:
        """Continue fitting with the next samples; the result is that of `fit` on all of them.

        A recording may continue from one call to the next. Without `groups`, all calls are one recording; with
        `groups`, the first rows continue the last recording if they have its name. Recordings of a list or a stack are
        complete, and `fit` ends a recording. Features are worked out when they are asked for.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            batch, self._recording, is_harmless = self._batch(X, groups, sample_weight, pair_weight)
            if len(batch["X"]):
                self._take_in(batch, forgetting, is_harmless)
        return self

    @exact
    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def unlearn(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, pair_weight: Any = None
    ) -> Any:
        """Take whole recordings out of the fit again: the result is that of a fit that never saw them.

        The range that inputs are clipped to stays as it was.

        {parameters}
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            known = self.statistics_
            self._recording = OTHER  # the recording ends
            batch, _, _ = self._batch(X, groups, sample_weight, pair_weight)
            self._statistics = known - self._sum_stretches(batch, 0)
            self._solved = self._tail = None
        return self

    def _batch(self, X: Any, groups: Any, sample_weight: Any, pair_weight: Any) -> tuple[dict[str, Any], Any, bool]:
        """A batch without missing values; the name of its last recording, which the next batch may continue; whether
        its numbers are known to be harmless."""
        given = Recordings.of(X, groups)
        X, _ = self._check_batch(given.X, look=False)
        X = np.asarray(X).reshape(len(X), -1)
        w, pairs = self._weights(given, sample_weight, pair_weight)
        first = last = None
        if given.are_complete:
            first, last = object(), OTHER
        elif given.groups is not None and len(X):
            first, last = given.groups[[0, -1]].tolist()
        harmless = is_harmless(X)
        missing = None if harmless else missing_rows(self, as_source(X))
        given.warn_of_cuts(missing)
        starts = given.starts(missing)
        starts[:1] = first != self._recording
        batch = {"X": X, "starts": starts, "w": w, "pairs": pairs}
        if missing is not None:
            last = OTHER if missing[-1] else last
            batch = {key: None if value is None else value[~missing] for key, value in batch.items()}
        return batch, last, harmless

    def _sum_batches(self, batches: tuple[dict[str, Any], ...]) -> SequenceStatistics:
        tail, n_before = self._tail, 0
        if tail is not None and not batches[0]["starts"][0]:
            batches, n_before = (tail, *batches), len(tail["X"])
        lengths = [len(one["X"]) for one in batches]
        batch = {key: _joined([one[key] for one in batches], lengths) for key in batches[0] if key != "X"}
        batch["X"] = self._together([one["X"] for one in batches])
        batch["starts"][0] = True
        statistics = self._sum_stretches(batch, n_before)
        reach = max(self._recipe().lags()) + self.delays
        begin = max(len(batch["X"]) - reach, int(np.flatnonzero(batch["starts"])[-1]))
        self._tail = {key: None if value is None else value[begin:].copy() for key, value in batch.items()}
        return statistics

    def _sum_stretches(self, batch: dict[str, Any], n_before: int) -> SequenceStatistics:
        """Statistics of samples, of which the first `n_before` were summed before."""
        series = Series.of(as_source(batch["X"]), batch["starts"], None, self.delays)
        source = as_source(np.asarray(series.source)) if self.delays else series.source
        w, pairs = (None if batch[key] is None else batch[key][series.rows] for key in ("w", "pairs"))
        data = self._with_known_shift(self._data(source))
        return self._sums_of(data, series.lengths, max(0, n_before - self.delays), w, pairs)

    def _sums_of(
        self, data: NodeData, lengths: NDArray[np.intp], n_before: int, w: Any, pairs: Any
    ) -> SequenceStatistics:
        """Statistics of recordings, of which the first `n_before` samples were summed before."""
        given = {"w": w, "pair_weight": _by_lag(pairs), "n_before": n_before}
        graph = self._recipe().build_recordings(lengths, **given, scaled=False, may_be_empty=True)
        return SequenceStatistics(*data.gather(sequence_plan(graph)), self._origin())

    def _features(self, given: Recordings, out: Any) -> tuple[Any, None]:
        self._node  # noqa: B018  an error if nothing was fitted
        source = check_data(self, given.X, reset=False, min_samples=0, look=False)
        out = check_out(out, (len(source), self._node.n_components), product_dtype(source.dtype), source)
        source, missing, _ = with_past(self, source, given, self._fitted_delays)
        self._encode(source, out)
        if missing is not None:
            out[missing] = np.nan
        return out, None

    def _dask_features(self, X: Any) -> Any:
        self._node  # noqa: B018
        return super()._dask_features(X) if self._fitted_delays else dask_transform(self, X)

    def _inverse(self, given: Recordings) -> Any:
        X, delays = self._decode(given.X, "allow-nan"), self._fitted_delays
        return averaged(X, given.starts(), delays, 1) if delays else X, given.lengths

    @property
    def _fitted_delays(self) -> int:
        """The delays of the fit: the parameter may have been changed since."""
        return self._node.frontend.n_inputs // self.n_features_in_ - 1

    def score(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, pair_weight: Any = None, groups: Any = None
    ) -> float:
        """How slow the features of these recordings are.

        The sum of max(0, 1 - Delta / 2) over all features, which are decorrelated one after the other first. Noise
        (Delta 2) adds nothing, nor does a feature that repeats others.

        Parameters
        ----------
        X, sample_weight, pair_weight, groups : as in `fit`
        y : ignored

        Returns
        -------
        float
            From 0 to the number of features; more is better.
        """
        given = Recordings.of(X, groups)
        w, pairs = self._weights(given, sample_weight, pair_weight)
        Y, _ = self._features(given, None)
        missing = np.isnan(Y).any(axis=1)
        series = Series.of(as_source(Y), given.starts(missing), missing, self._fitted_delays)
        own = {"w": w, "pair_weight": pairs}
        own = {name: None if one is None else _by_lag(one[series.rows]) for name, one in own.items()}
        return self._recipe().build_recordings(series.lengths, **own).slowness(Y[series.rows])

    @property
    def timescales_(self) -> NDArray[np.float64]:
        """Time scales of the slow features in samples: tau, if correlations fall off as exp(-t / tau)."""
        lags = self._recipe().lags()
        if len(lags) > 1:
            raise AttributeError(f"timescales_ needs a single lag, and lag={list(lags)}: fit with one of them")
        correlation = 1.0 - self.delta_values_ / 2.0
        with np.errstate(all="ignore"):
            return np.where(correlation > 0, -lags[0] / np.log(correlation), np.nan)

    def _recipe(self) -> SequenceGraph:
        return SequenceGraph(self.lag, self.node_weights)

    def _origin(self) -> Origin:
        origin = self._recipe().origin(None)
        return Origin.of(f"{origin.terms[0][1]} with {self.delays} delays") if self.delays else origin

    def _accepts(self, origin: Origin) -> bool:
        return self._origin().fits(origin)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags


def _by_lag(pairs: Any) -> Any:
    """Weights of pairs (N,) or (N, lags), with lags first."""
    return None if pairs is None else pairs.T


def _joined(parts: list[Any], lengths: list[int]) -> Any:
    """Arrays one after the other; None stands for ones, and None is the whole if all are None."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    shape = given[0].shape[1:]
    return np.concatenate([np.ones((n, *shape)) if one is None else one for one, n in zip(parts, lengths, strict=True)])


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
        lag: Any = 1,
        delays: int = 0,
        node_weights: str | None = None,
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
