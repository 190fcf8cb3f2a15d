"""Metrics of features in time: time scales, VAMP scores, kinetic variance, and Delta with intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from higsfa.estimators.recordings import Recordings, Series, missing_rows
from higsfa.graphs import SequenceGraph
from higsfa.training.sources import as_source

__all__ = ["DeltaIntervals", "delta_intervals", "kinetic_variance", "timescales", "vamp_score"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
CHUNK = 8192
"""Pairs of samples whose products are taken at once."""
RANK_CUT = 1e-12
"""Directions of a correlation matrix whose share of the largest eigenvalue is smaller are left out."""


def timescales(delta_values: Any, lag: int = 1) -> Floats:
    """Time scales tau of features, in samples, if their correlations fall off as exp(-t / tau).

    Parameters
    ----------
    delta_values : array-like
    lag : int, default=1
        The lag that they were measured at.

    Returns
    -------
    array
        -lag / ln(1 - Delta / 2); NaN for features that are not slower than noise (Delta 2).

    Examples
    --------
    >>> timescales([0.02, 1.0, 2.5]).round(1)
    array([99.5,  1.4,  nan])
    """
    correlation = 1.0 - np.asarray(delta_values, dtype=np.float64) / 2.0
    with np.errstate(all="ignore"):
        return np.asarray(np.where(correlation > 0, -lag / np.log(correlation), np.nan))


def kinetic_variance(delta_values: Any) -> Floats:
    """How much of the kinetic variance of all features the first 1, 2, ... of them have, those that matter most first.

    That of a feature is the square of the correlation lambda = 1 - Delta / 2 between samples that are a lag apart.

    Parameters
    ----------
    delta_values : array-like
        Of all features.

    Returns
    -------
    array
        Ascends to 1.

    Examples
    --------
    >>> kinetic_variance([0.0, 1.0, 2.0]).round(2)
    array([0.8, 1. , 1. ])
    """
    squares = np.sort((1.0 - np.asarray(delta_values, dtype=np.float64) / 2.0) ** 2)[::-1]
    return np.asarray(np.cumsum(squares) / squares.sum())


def vamp_score(Y: Any, *, lag: int = 1, groups: Any = None, r: int = 2, reversible: bool = False) -> float:
    """VAMP-r score of features: 1 + the sum of r-th powers of singular values of their transition in time.

    It says how much of their future their past tells, and does not depend on how they are scaled or mixed. With
    features of unseen recordings, ``vamp_score(model.transform(unseen), ...)``, it serves cross-validation.

    Parameters
    ----------
    Y : array-like of shape (n_samples, n_features), or a list or a stack of recordings
    lag : int, default=1
    groups : array-like of shape (n_samples,), optional
        The recording of each sample.
    r : int, default=2
    reversible : bool, default=False
        Whether forward and backward transitions count alike, as in SFA and TICA; then singular values are
        abs(1 - Delta / 2) of the slow features, with ``node_weights="degree"``.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> turning = np.exp(0.3j * np.arange(1000))
    >>> Y = np.column_stack([turning.real, turning.imag])
    >>> round(vamp_score(Y), 3), round(vamp_score(Y, reversible=True), 3)
    (3.0, 2.825)
    """
    first, second, cross = _lagged_covariances(Y, int(lag), groups, reversible)
    U, V = _whitening(first), _whitening(second)
    singular = scipy.linalg.svdvals(U.T @ cross @ V) if U.size and V.size else np.zeros(0)
    return float(1.0 + np.sum(singular**r))


def _lagged_covariances(Y: Any, lag: int, groups: Any, reversible: bool) -> tuple[Floats, Floats, Floats]:
    """Covariances of samples, of those a lag later, and between the two: sums over all pairs, chunk by chunk."""
    X, lengths = _read(Y, groups)
    i = _pairs(lengths, lag)
    if not len(i):
        raise ValueError(f"lag={lag}: no recording is longer (longest: {int(lengths.max(initial=0))} samples)")
    shift = X[: min(len(X), 512)].mean(axis=0, dtype=np.float64)
    k = X.shape[1]
    AA, BB, AB, a, b = np.zeros((k, k)), np.zeros((k, k)), np.zeros((k, k)), np.zeros(k), np.zeros(k)
    for lo in range(0, len(i), CHUNK):
        own = i[lo : lo + CHUNK]
        if own[-1] - own[0] == len(own) - 1:  # overlapping: the two products differ by their ends only
            Z = X[own[0] : own[-1] + 1 + lag] - shift.astype(X.dtype)
            A, B, n = Z[: len(own)], Z[lag:], len(own)
            product = A.T @ A
            AA += product
            BB += product - Z[:lag].T @ Z[:lag] + Z[n:].T @ Z[n:] if 2 * lag < n else B.T @ B
        else:
            A, B = X[own] - shift.astype(X.dtype), X[own + lag] - shift.astype(X.dtype)
            AA += A.T @ A
            BB += B.T @ B
        AB += A.T @ B
        a += A.sum(axis=0, dtype=np.float64)
        b += B.sum(axis=0, dtype=np.float64)
    n = len(i)
    AA, BB, AB, a, b = AA / n, BB / n, AB / n, a / n, b / n
    if reversible:
        a = b = (a + b) / 2.0
        AA = BB = (AA + BB) / 2.0
        AB = (AB + AB.T) / 2.0
    return AA - np.outer(a, a), BB - np.outer(b, b), AB - np.outer(a, b)


def _read(Y: Any, groups: Any) -> tuple[NDArray[Any], Ints]:
    """Features without missing samples, and the lengths of their stretches."""
    given = Recordings.of(Y, groups)
    X = np.asarray(given.X)
    X = X[:, None] if X.ndim == 1 else X
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    source = as_source(X)
    missing = missing_rows(None, source)
    series = Series.of(source, given.starts(missing), missing)
    return (X if missing is None else X[series.rows]), series.lengths


def _pairs(lengths: Ints, lag: int) -> Ints:
    """Rows that a later one of the same stretch follows by the lag."""
    graph = SequenceGraph(lag).build_recordings(lengths, scaled=False, may_be_empty=True)
    edges: Any = graph.parts[0].edges
    return np.flatnonzero(edges.last[0] >= edges.first[0])


def _whitening(C: Floats) -> Floats:
    """W with W^T C W = 1 on the directions that have variance."""
    spread = np.sqrt(np.maximum(np.diag(C), 0.0))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    values, vectors = scipy.linalg.eigh(C * np.outer(scale, scale))
    kept = values > RANK_CUT * max(values.max(initial=0.0), 1e-300)
    return np.asarray(scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]))


class DeltaIntervals(NamedTuple):
    """Delta values with intervals.

    Attributes
    ----------
    delta_values, low, high : (k,) arrays.
    block : samples in a block.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.metrics import delta_intervals
    >>> found = delta_intervals(np.sin(np.arange(2000) / 20)[:, None])  # a DeltaIntervals
    >>> bool(found.low[0] <= found.delta_values[0] <= found.high[0])
    True
    """

    delta_values: Floats
    low: Floats
    high: Floats
    block: int


def delta_intervals(
    Y: Any,
    *,
    lag: int = 1,
    groups: Any = None,
    level: float = 0.9,
    block: int | None = None,
    n_resamples: int = 1000,
    random_state: Any = 0,
) -> DeltaIntervals:
    """Delta values of features in time, with intervals by a block bootstrap.

    Neighbouring samples are not independent, so whole blocks of them are drawn with replacement. Blocks must be longer
    than the time scales of the features, and there must be many of them: for features so slow that a recording shows
    only a few of their ups and downs, intervals are too narrow.

    Parameters
    ----------
    Y : array-like of shape (n_samples, n_features), or a list or a stack of recordings
    lag : int, default=1
    groups : array-like of shape (n_samples,), optional
        The recording of each sample; a block lies within one recording.
    level : float, default=0.9
        Share of the resamples between the two limits.
    block : int, optional
        Samples in a block; by default the root of their number or five times the longest time scale, whichever is
        more, but at most a tenth of all samples.
    n_resamples : int, default=1000
    random_state : int or RandomState, default=0

    Returns
    -------
    DeltaIntervals : `delta_values`, `low`, `high` and `block`

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(5000, 1))
    >>> found = delta_intervals(noise)
    >>> bool(found.low[0] < 2.0 < found.high[0]), bool(found.high[0] - found.low[0] < 0.2)
    (True, True)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    X, lengths = _read(Y, groups)
    X = X.astype(np.float64)
    i = _pairs(lengths, int(lag))
    if not len(i):
        raise ValueError(f"lag={lag}: no recording is longer (longest: {int(lengths.max(initial=0))} samples)")
    X = X - X.mean(axis=0)
    n = len(X)
    whole = ((X[i + lag] - X[i]) ** 2).mean(axis=0) / np.where(X.var(axis=0) > 0, X.var(axis=0), np.nan)
    if block is None:
        slowest = np.nanmax(np.append(timescales(whole, lag), 0.0))
        block = int(np.clip(max(np.sqrt(n), 5.0 * slowest), 1, max(1, n // 10)))
    within = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    code = np.cumsum(within % block == 0) - 1  # a new block at the beginning of every stretch, too
    n_blocks = int(code[-1]) + 1

    def by_block(values: Floats, rows: Any = slice(None)) -> Floats:
        out = np.zeros((n_blocks, values.shape[1]))
        np.add.at(out, code[rows], values)
        return out

    changes, n_pairs = by_block((X[i + lag] - X[i]) ** 2, i), np.bincount(code[i], minlength=n_blocks)
    first, second, count = by_block(X), by_block(X**2), np.bincount(code, minlength=n_blocks)
    rng = check_random_state(random_state)
    drawn = rng.multinomial(n_blocks, np.full(n_blocks, 1.0 / n_blocks), size=int(n_resamples)).astype(np.float64)
    with np.errstate(all="ignore"):
        mean = (drawn @ first) / (drawn @ count)[:, None]
        variance = (drawn @ second) / (drawn @ count)[:, None] - mean**2
        deltas = (drawn @ changes) / (drawn @ n_pairs)[:, None] / variance
    low, high = np.nanquantile(deltas, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return DeltaIntervals(whole, low, high, block)
