"""Delay embedding: each sample of a time series together with those before it."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_feature_names_in, check_array, check_is_fitted

from higsfa.estimators.recordings import OverRecordings, Recordings, averaged, with_past
from higsfa.estimators.validation import Estimator, assign, check_data, fit_task


class DelayEmbedding(OverRecordings, TransformerMixin, Estimator):
    """Put the samples before each sample beside it: x(t), x(t - step), ..., x(t - delays * step).

    A function of one sample cannot tell in which direction a signal moves, or where a hidden variable is; a function of
    several in a row can. Delays do not reach beyond the beginning of a recording (see `transform`), nor over gaps and
    missing values: there, the first sample stands for those before it. `drop` leaves such rows out instead.

    Parameters
    ----------
    delays : int, default=1
        Number of earlier samples beside each sample.
    step : int, default=1
        Number of time steps between them.
    drop : bool, default=False
        Leave out rows that have not enough past. Then the output has fewer rows than the input: pass recordings as a
        list, so that their shorter forms stay apart.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of a sample.

    See Also
    --------
    SFA : has a parameter `delays`, which leaves such rows out when it is fitted and keeps them in `transform`.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import DelayEmbedding
    >>> X = np.arange(5.0)[:, None]
    >>> DelayEmbedding(delays=2).fit_transform(X)
    array([[0., 0., 0.],
           [1., 0., 0.],
           [2., 1., 0.],
           [3., 2., 1.],
           [4., 3., 2.]])
    >>> embedding = DelayEmbedding(delays=2, drop=True)
    >>> [part.shape for part in embedding.fit_transform([X, X[:4]])]
    [(3, 3), (2, 3)]
    """

    _parameter_constraints = {
        "delays": [Interval(Integral, 0, None, closed="left")],
        "step": [Interval(Integral, 1, None, closed="left")],
        "drop": ["boolean"],
    }
    _needs_labels = False

    def __init__(self, delays: int = 1, step: int = 1, drop: bool = False) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Note the number of features; nothing else is learned.

        Parameters
        ----------
        X : one or several recordings, as in `SFA.fit`
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The recording of each sample.

        Returns
        -------
        self
        """
        with fit_task(self, X, y):
            check_data(self, Recordings.of(X, groups).X, reset=True, look=False)
        return self

    def _features(self, given: Recordings, out: Any) -> tuple[Any, Any]:
        check_is_fitted(self, "n_features_in_")
        if out is not None:
            raise ValueError("out: an embedding is made in memory; read a source in pieces, or use SFA(delays=...)")
        source = check_data(self, given.X, reset=False, min_samples=0, look=False)
        embedded, missing, position = with_past(self, source, given, self.delays, self.step)
        values = np.array(embedded)
        if missing is not None:
            values[missing] = np.nan
        if not self.drop:
            return values, None
        kept = position >= self.delays * self.step
        kept = kept if missing is None else kept & ~missing
        return values[kept], kept

    def _inverse(self, given: Recordings) -> Any:
        check_is_fitted(self, "n_features_in_")
        Y = check_array(given.X, dtype=[np.float64, np.float32], ensure_min_samples=0, ensure_all_finite="allow-nan")
        width = self.n_features_in_ * (self.delays + 1)
        if Y.shape[1] != width:
            raise ValueError(f"Y has {Y.shape[1]} features, but {type(self).__name__} makes {width}")
        lengths, missed = given.lengths, self.delays * self.step
        if not self.drop:
            return averaged(Y, given.starts(), self.delays, self.step), lengths
        # The rows that were dropped at the beginning of each recording are in later ones.
        longer = np.where(lengths > 0, lengths + missed, 0)
        ends = np.cumsum(longer)
        is_new = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - longer, longer) < missed
        whole = np.full((len(is_new), width), np.nan, Y.dtype)
        whole[~is_new] = Y
        starts = np.zeros(len(is_new), dtype=bool)
        starts[(ends - longer)[longer > 0]] = True
        return averaged(whole, starts, self.delays, self.step), longer

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the features, and of earlier ones with their delay: ``x0``, ``x0_delay1``, ..."""
        names = _check_feature_names_in(self, input_features)
        delays = ["" if k == 0 else f"_delay{k * self.step}" for k in range(self.delays + 1)]
        return np.asarray([f"{name}{delay}" for delay in delays for name in names], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
