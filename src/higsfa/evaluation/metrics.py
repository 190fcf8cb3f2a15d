"""The paper's metrics: slowness, errors of label estimates, and reconstruction error.

Samples whose true label is missing (NaN, None, pd.NA) do not count in any metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics
from sklearn.utils import check_array, gen_batches

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import encode_classes, missing, numeric, pick_label
from higsfa.graphs import as_recipe

__all__ = [
    "PAPER_THRESHOLDS",
    "ErrorByLabel",
    "ReconstructionSums",
    "chance_level",
    "classification_rate",
    "cumulative_score",
    "delta_values",
    "error_by_label",
    "label_ordered_delta",
    "mean_absolute_error",
    "mean_and_standard_error",
    "reconstruction_error",
    "root_mean_squared_error",
]

Floats = NDArray[np.float64]

PAPER_THRESHOLDS = (*range(13), *range(14, 31, 2))
"""Thresholds, in years, of the paper's table of cumulative scores."""

BLOCK_VALUES = 2**20  # values that `reconstruction_error` reads at a time


def delta_values(
    Y: Any, labels: Any = None, *, graph: Any = "auto", groups: Any = None, sample_weight: Any = None
) -> Floats:
    """Delta values of features on a graph: how much they differ between similar samples.

    Features are first scaled to weighted variance 1. Noise has a Delta of 2, slower features a smaller one.

    Parameters
    ----------
    Y : array-like of shape (n_samples,) or (n_samples, n_features)
        Features.
    labels : array, dict of arrays or DataFrame, optional
        Labels to build the graph from; not needed for a `TrainingGraph` or a graph in time order.
    graph : TrainingGraph, recipe or str, default="auto"
        For instance the `graph` of the estimator that extracted the features.
    groups : array-like of shape (n_samples,), optional
        The recording of each sample, for graphs in time order.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    array of shape (n_features,); NaN for a feature that is constant on the graph

    Examples
    --------
    >>> time = np.linspace(0, 2 * np.pi, 1001)
    >>> delta_values(np.column_stack([np.sin(time), np.sin(3 * time)]), graph="sequence").round(5)
    array([4.0e-05, 3.6e-04])
    """
    Y = _features(Y)
    if isinstance(graph, TrainingGraph):
        return graph.delta(Y)
    return as_recipe(graph).build(labels, sample_weight=sample_weight, groups=groups, n_samples=len(Y)).delta(Y)


def label_ordered_delta(Y: Any, label: Any) -> Floats:
    """Delta values on samples ordered by a label: the mean of (y(n+1) - y(n))^2, with y of variance 1.

    The paper measures slowness on unseen images this way, ordered by age. Tied samples count as the exact mean over
    all their orders, so the order of rows does not matter.

    Parameters
    ----------
    Y : array-like of shape (n_samples,) or (n_samples, n_features)
        Features.
    label : array-like of shape (n_samples,)
        A numeric label.

    Returns
    -------
    array of shape (n_features,); NaN for a constant feature

    Examples
    --------
    >>> label_ordered_delta([0.0, 1.0, 2.0, 3.0], [16, 17, 18, 19])
    array([0.8])
    """
    Y = _features(Y)
    values = numeric(pick_label(label, None), "label_ordered_delta")
    if len(values) != len(Y):
        raise ValueError(f"label has {len(values)} values for {len(Y)} samples (rows of Y)")
    known = ~np.isnan(values)
    if known.sum() < 2:
        raise ValueError(f"label: at least two samples must have a label, got {int(known.sum())}")
    Y = Y[known]
    farthest = np.max(np.abs(Y - Y[0]), axis=0)
    Y = (Y - Y[0]) / np.where(farthest > 0, farthest, 1.0)
    variance = Y.var(axis=0)
    _, codes, counts = np.unique(values[known], return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(Y[order], starts) / counts[:, None]
    scatter = np.add.reduceat((Y[order] - means[codes[order]]) ** 2, starts)
    # Within n tied samples, the n - 1 squared differences between neighbours are 2 scatter / (n - 1) on average.
    # From one tie to the next, the neighbours are independent random samples of each.
    spread = scatter / counts[:, None]
    across = spread[1:] + spread[:-1] + np.diff(means, axis=0) ** 2
    total = 2 * scatter.sum(axis=0) + across.sum(axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 for a constant feature
        return np.asarray(total / (len(Y) - 1) / variance)


def mean_absolute_error(y_true: Any, y_pred: Any) -> float:
    """MAE: scikit-learn's ``mean_absolute_error`` of the samples that have a label.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)

    Examples
    --------
    >>> mean_absolute_error([20, 30, 40], [21, 30, 38])
    1.0
    """
    return float(sklearn_metrics.mean_absolute_error(*_numbers(y_true, y_pred)))


def root_mean_squared_error(y_true: Any, y_pred: Any) -> float:
    """RMSE: scikit-learn's ``root_mean_squared_error`` of the samples that have a label.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)

    Examples
    --------
    >>> root_mean_squared_error([20, 30, 40, 50], [21, 31, 39, 49])
    1.0
    """
    return float(sklearn_metrics.root_mean_squared_error(*_numbers(y_true, y_pred)))


def cumulative_score(y_true: Any, y_pred: Any, thresholds: Any = PAPER_THRESHOLDS) -> Any:
    """CS(t): the fraction of estimates with an error of at most t.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
    thresholds : float or array-like of float
        Those of the paper's table by default, from 0 to 30 years.

    Returns
    -------
    float, or array of the shape of `thresholds`

    Examples
    --------
    >>> cumulative_score([20, 30, 40, 50], [20, 31, 38, 60], [0, 1, 5])
    array([0.25, 0.5 , 0.75])
    """
    limits = np.asarray(thresholds, dtype=np.float64)
    if np.any(np.isnan(limits)) or np.any(limits < 0):
        raise ValueError(f"thresholds={thresholds!r} must be numbers of at least 0")
    true, pred = _numbers(y_true, y_pred)
    errors = np.sort(np.abs(pred - true))
    scores = np.searchsorted(errors, limits, side="right") / len(errors)
    return float(scores) if limits.ndim == 0 else scores


def classification_rate(y_true: Any, y_pred: Any) -> float:
    """CR: scikit-learn's ``accuracy_score`` of the samples that have a label. Missing estimates count as wrong.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)

    Examples
    --------
    >>> classification_rate(["f", "m", "m", None], ["f", "f", "m", "m"])
    0.6666666666666666
    """
    true, pred = _pairs(y_true, y_pred)
    # As codes: accuracy_score accepts no missing values, no fractions, and no numbers in arrays of objects.
    codes, _ = encode_classes(np.concatenate([true, pred], dtype=object))
    return float(sklearn_metrics.accuracy_score(codes[: len(true)], codes[len(true) :]))


def chance_level(y_true: Any, metric: str) -> float:
    """Score of the best constant estimate, for comparison.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
    metric : {"mae", "rmse", "cr"}
        The best constant is the median, the mean or the most frequent class.

    Examples
    --------
    >>> chance_level([1, 2, 9], "mae"), chance_level(["a", "a", "b", "a"], "cr")
    (2.6666666666666665, 0.75)
    """
    if metric not in ("mae", "rmse", "cr"):
        raise ValueError(f"metric={metric!r} is unknown; use 'mae', 'rmse' or 'cr'")
    true, _ = _pairs(y_true, y_true)
    if metric == "cr":
        return float(np.bincount(encode_classes(true)[0]).max() / len(true))
    values = numeric(true, f"chance_level({metric!r})")
    return float(np.std(values) if metric == "rmse" else np.mean(np.abs(values - np.median(values))))


class ErrorByLabel(NamedTuple):
    """Errors as a function of the true label; one entry per label value or bin that occurs.

    Examples
    --------
    >>> from higsfa.metrics import error_by_label
    >>> curve = error_by_label([20, 20, 21], [19, 23, 22])  # an ErrorByLabel
    >>> curve.n_samples.tolist(), curve.mae.tolist()
    ([2, 1], [2.0, 1.0])
    """

    label: Floats
    """The value, or the mean true label in the bin."""
    mean_estimate: Floats
    mae: Floats
    n_samples: NDArray[np.intp]


def error_by_label(y_true: Any, y_pred: Any, bins: Any = None) -> ErrorByLabel:
    """Mean estimate and MAE as functions of the true label.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
    bins : int or array-like, optional
        Number of bins of equal width, or their edges (the last one included). By default labels are grouped by their
        integer part, such as ages by years.

    Returns
    -------
    ErrorByLabel

    Examples
    --------
    >>> curve = error_by_label([20, 20, 21], [19, 23, 22])
    >>> curve.label, curve.mean_estimate, curve.mae
    (array([20., 21.]), array([21., 22.]), array([2., 1.]))
    """
    true, pred = _numbers(y_true, y_pred)
    if bins is None:
        keys = np.floor(true)
    else:
        edges = np.histogram_bin_edges(true, bins) if np.ndim(bins) == 0 else np.asarray(bins, dtype=np.float64)
        if edges.ndim != 1 or len(edges) < 2 or np.any(np.diff(edges) <= 0):
            raise ValueError(f"bins={bins!r} must be a number of bins, or at least two increasing edges")
        inside = (true >= edges[0]) & (true <= edges[-1])
        if not inside.any():
            raise ValueError(f"bins={bins!r}: no label lies in them; labels run from {true.min()} to {true.max()}")
        true, pred = true[inside], pred[inside]
        keys = np.minimum(np.searchsorted(edges, true, side="right"), len(edges) - 1).astype(np.float64)
    _, codes, count = np.unique(keys, return_inverse=True, return_counts=True)
    label, estimate, error = (np.bincount(codes, x) / count for x in (true, pred, np.abs(pred - true)))
    return ErrorByLabel(label, estimate, error, count)


@dataclass(frozen=True)
class ReconstructionSums:
    """Sums for a reconstruction error; those of parts of the data are added with ``+``.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> parts = [ReconstructionSums.of(X[:2], X[:2] + 1), ReconstructionSums.of(X[2:], X[2:] - 1)]
    >>> round((parts[0] + parts[1]).error(), 6)
    0.088889
    """

    count: int
    mean: Floats
    scatter: float
    """Sum of the squared distances to the mean."""
    residual: float
    """Sum of the squared distances between inputs and reconstructions."""

    @classmethod
    def of(cls, X: Any, X_hat: Any) -> ReconstructionSums:
        """Sums over samples X (n_samples, ...) and their reconstructions."""
        X, X_hat = np.asarray(X, dtype=np.float64), np.asarray(X_hat, dtype=np.float64)
        X, X_hat = X.reshape(len(X), -1), X_hat.reshape(len(X_hat), -1)
        if X.shape != X_hat.shape or len(X) == 0:
            raise ValueError(f"X_hat has shape {X_hat.shape} for samples X of shape {X.shape}, each a row of values")
        mean = X.mean(axis=0)
        return cls(len(X), mean, float(np.sum((X - mean) ** 2)), float(np.sum((X - X_hat) ** 2)))

    def __add__(self, other: ReconstructionSums) -> ReconstructionSums:
        n = self.count + other.count
        step = other.mean - self.mean
        scatter = self.scatter + other.scatter + self.count * other.count / n * float(step @ step)
        return ReconstructionSums(n, self.mean + other.count / n * step, scatter, self.residual + other.residual)

    def error(self, mean: Any = None) -> float:
        """The normalised reconstruction error; see :func:`reconstruction_error`."""
        scatter = self.scatter
        if mean is not None:
            mean = np.asarray(mean, dtype=np.float64).ravel()
            if mean.shape != self.mean.shape:
                raise ValueError(f"mean has {len(mean)} values, samples have {len(self.mean)}")
            scatter += self.count * float(np.sum((self.mean - mean) ** 2))
        if scatter == 0:
            raise ValueError("X: all samples are equal, so there is no variance to divide the error by")
        return self.residual / scatter


def reconstruction_error(X: Any, X_hat: Any, mean: Any = None) -> float:
    """The paper's normalised reconstruction error: energy of the error over energy of the centred data.

    A perfect reconstruction has error 0, the mean of all samples error 1. X is read once, in blocks, and may be a
    memmap. For data in parts see :class:`ReconstructionSums`.

    Parameters
    ----------
    X : array-like of shape (n_samples, ...)
        Inputs, such as images.
    X_hat : array-like of as many values, or callable
        Reconstructions, or a function that takes a block of X and returns its reconstructions.
    mean : array-like, optional
        The constant reconstruction that has error 1; the mean of X by default, as in the paper.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> reconstruction_error(X, X), reconstruction_error(X, lambda block: np.full(block.shape, X.mean(axis=0)))
    (0.0, 1.0)
    """
    X = _sliceable(X)
    if len(X.shape) < 2 or X.shape[0] == 0:
        raise ValueError(f"X must hold samples as rows, shape (n_samples, ...), got shape {tuple(X.shape)}")
    if not callable(X_hat):
        X_hat = _sliceable(X_hat)
        if X_hat.shape[0] != X.shape[0]:
            raise ValueError(f"X_hat holds {X_hat.shape[0]} reconstructions for {X.shape[0]} samples")

    def part(where: slice) -> ReconstructionSums:
        block = np.asarray(X[where])
        return ReconstructionSums.of(block, X_hat(block) if callable(X_hat) else X_hat[where])

    blocks = gen_batches(X.shape[0], max(1, BLOCK_VALUES // max(1, int(np.prod(X.shape[1:])))))
    return reduce(add, map(part, blocks)).error(mean)


def mean_and_standard_error(values: Any) -> tuple[float, float]:
    """Mean over runs and its standard error; for two runs that is half their difference.

    Parameters
    ----------
    values : array-like of shape (n_runs,)

    Returns
    -------
    mean, standard error : float
        The standard error of a single run is NaN.

    Examples
    --------
    >>> mean_and_standard_error([3.0, 4.0])
    (3.5, 0.5)
    """
    values = np.asarray(values, dtype=np.float64).ravel()
    if len(values) == 0:
        raise ValueError("values is empty: give the results of at least one run")
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(error)


def _sliceable(X: Any) -> Any:
    return X if hasattr(X, "shape") and hasattr(X, "__getitem__") else np.asarray(X)


def _features(Y: Any) -> Floats:
    Y = check_array(Y, dtype=np.float64, ensure_2d=False, input_name="Y")
    return np.asarray(Y[:, None] if Y.ndim == 1 else Y)


def _pairs(y_true: Any, y_pred: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels that are not missing and their estimates."""
    pair = []
    for name, values in (("y_true", y_true), ("y_pred", y_pred)):
        is_numpy = isinstance(getattr(values, "dtype", np.dtype(object)), np.dtype)  # else an extension of pandas
        pair.append(np.asarray(values, dtype=None if is_numpy else object))
        if pair[-1].ndim != 1:
            raise ValueError(f"{name} must have one value per sample, got an array of shape {pair[-1].shape}")
    true, pred = pair
    if len(true) != len(pred):
        raise ValueError(f"y_pred has {len(pred)} values for the {len(true)} of y_true")
    known = ~missing(true)
    if not known.any():
        raise ValueError("y_true holds no label: it is empty, or all its values are missing")
    return true[known], pred[known]


def _numbers(y_true: Any, y_pred: Any) -> tuple[Floats, Floats]:
    true, pred = _pairs(y_true, y_pred)
    try:
        true, pred = true.astype(np.float64), pred.astype(np.float64)
    except (TypeError, ValueError):
        found = f"{true.tolist()[0]!r} and {pred.tolist()[0]!r}"
        raise ValueError(f"y_true, y_pred: {found} must be numbers; use classification_rate for classes") from None
    if not np.all(np.isfinite(true)) or not np.all(np.isfinite(pred)):
        raise ValueError("y_pred (or y_true) holds NaN or infinite values where there is a label; leave these out")
    return true, pred
