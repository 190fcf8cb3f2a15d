"""One label: its classes, a Gaussian for each in the space of features, and what cross-validation chooses of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.linalg import eigh
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from higsfa.core.graph.build import group_memberships
from higsfa.core.graph.labels import find_classes, missing, numeric, read_kinds
from higsfa.estimators.choice import divide
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.training.runner import one_blas_thread
from higsfa.training.sources import evenly_spread

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.intp], NDArray[np.intp]]]

MIXTURES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.0)
"""Shares of the pooled covariance that "auto" tries; ties go to the first."""
MAX_JUDGED = 10_000  # samples that candidates are judged by
MAX_PROBABILITIES = 2**24  # of the samples of a fold, for all classes and mixtures
MAX_CLASSES = 39  # of a numeric label by default, as in the paper; fewer if they would hold less than 20 samples
RANK_CUT = 1e-10  # fraction of the largest variance (of standardised features) below which a direction is constant
LEAST_POOLED = 1e-8  # least pooled variance in any direction, relative to the total variance there
LEAST_VARIANCE = 1e-6  # least variance of a class in any direction, relative to the pooled variance there
FARTHEST = 1e100  # standardised features are clipped to it, so that sums of their squares stay finite
BLOCK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class GaussianClasses:
    """C Gaussians over k features of rank r, in coordinates in which the pooled covariance is the identity."""

    center: Floats  # (k,), with scale: they standardise the features
    scale: Floats
    projection: Floats  # (k, r), from standardised features to the coordinates of the Gaussians
    means: Floats  # (C, r)
    factors: Floats  # (C, r, r), whitening matrix of each class
    log_weights: Floats  # (C,), log of prior times normalisation of the density, up to a common constant

    def posterior(self, Y: NDArray[Any]) -> Floats:
        """Probabilities (N, C) of the classes, finite for every finite sample."""
        out = np.empty((len(Y), len(self.log_weights)))
        with one_blas_thread():  # matrices this small gain nothing from threads
            for lo in range(0, len(Y), BLOCK_ROWS):
                out[lo : lo + BLOCK_ROWS] = self._log_joint(Y[lo : lo + BLOCK_ROWS])
        return np.asarray(softmax(out, axis=1))

    def _log_joint(self, Y: NDArray[Any]) -> Floats:
        U = standardise(Y[:, : len(self.center)], self.center, self.scale) @ self.projection
        joint = np.empty((len(Y), len(self.log_weights)))
        for c, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            joint[:, c] = self.log_weights[c] - 0.5 * np.sum(((U - mean) @ factor) ** 2, axis=1)
        return joint


@dataclass(frozen=True, eq=False)
class LabelClasses:
    """Which samples belong to which class, and with what weight; the value of a numeric class is its mean label."""

    rows: list[NDArray[np.intp]]
    weights: list[Floats]
    values: NDArray[Any]
    is_numeric: bool

    def restricted(self, kept: NDArray[np.intp]) -> LabelClasses:
        """The same classes among the samples `kept`, which get new indices."""
        number = np.full(1 + max(int(rows.max(initial=-1)) for rows in self.rows), -1)
        number[kept] = np.arange(len(kept))
        rows = [number[some] for some in self.rows]
        weights = [weight[some >= 0] for weight, some in zip(self.weights, rows, strict=True)]
        return replace(self, rows=[some[some >= 0] for some in rows], weights=weights)


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Weight (C,), mean (C, k) and scatter (C, k, k) of each class, of standardised features."""

    center: Floats
    scale: Floats
    weights: Floats
    means: Floats
    scatters: Floats


def standardise(Y: NDArray[Any], center: Floats, scale: Floats) -> Floats:
    """Standardised features; 0 for constant ones, whose scale is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        Z = np.clip((Y - center) / scale, -FARTHEST, FARTHEST)
    return np.asarray(np.where(np.isinf(scale), 0.0, Z))


def _center_and_scale(Y: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation; infinity for a feature that does not vary."""
    share = w / w.sum()
    center = share @ Y
    with np.errstate(over="ignore"):
        deviation = Y - center
    farthest = np.max(np.abs(deviation), axis=0, initial=0.0)
    if not np.all(np.isfinite(farthest)):
        raise ValueError("X holds numbers so large that their differences overflow: scale X down")
    varies = farthest > 1e-13 * np.max(np.abs(Y), axis=0, initial=0.0)
    scale = np.full(Y.shape[1], np.inf)
    unit = farthest[varies]  # keeps the squares of small and of large numbers in range
    scale[varies] = unit * np.sqrt(share @ (deviation[:, varies] / unit) ** 2)
    return center, scale


def class_moments(Y: Floats, classes: LabelClasses) -> ClassMoments:
    """Moments of the classes; empty ones get weight 0."""
    w = np.zeros(len(Y))
    for rows, weights in zip(classes.rows, classes.weights, strict=True):
        w[rows] += weights
    center, scale = _center_and_scale(Y, w)
    C, k = len(classes.rows), Y.shape[1]
    totals, means, scatters = np.zeros(C), np.zeros((C, k)), np.zeros((C, k, k))
    for c, (rows, weights) in enumerate(zip(classes.rows, classes.weights, strict=True)):
        if len(rows) == 0:
            continue
        Z = standardise(Y[rows], center, scale)
        totals[c] = weights.sum()
        means[c] = weights @ Z / totals[c]
        Z = (Z - means[c]) * np.sqrt(weights)[:, None]
        scatters[c] = Z.T @ Z
    return ClassMoments(center, scale, totals, means, scatters)


def _support(n: float, rank: int) -> float:
    """How much to trust a covariance estimated from n samples, from 0 to 1."""
    return float(np.clip(n / (2.0 * (rank + 1)), 0.0, 1.0))


def _whiten(moments: ClassMoments, k: int) -> Floats:
    """Projection (k, r) of the first k features to coordinates in which the pooled covariance is the identity."""
    n, m, within = moments.weights, moments.means[:, :k], moments.scatters[:, :k, :k].sum(axis=0)
    total = n.sum()
    between = m - n @ m / total
    values, vectors = eigh((within + (between.T * n) @ between) / total)
    kept = values > RANK_CUT * values[-1]
    A = vectors[:, kept] / np.sqrt(values[kept])
    # Pooled covariance, in the coordinates in which the total covariance is the identity.
    share = _support(total - np.count_nonzero(n), A.shape[1])
    values, vectors = eigh(share * (A.T @ within @ A) / total + (1 - share) * np.eye(A.shape[1]))
    return np.asarray(A @ (vectors / np.sqrt(np.maximum(values, LEAST_POOLED))))


def _spreads(moments: ClassMoments, B: Floats, c: Any, mixtures: Floats) -> tuple[Floats, Floats, Floats]:
    """Of one class: axes (r, r) of its covariance, and for each mixture variances (M, r) and log of its weight (M,)."""
    n, k, r = moments.weights[c], *B.shape
    own = np.minimum(1.0 - mixtures, _support(n, r))[:, None]
    e, U = eigh(B.T @ moments.scatters[c, :k, :k] @ B / n) if own.any() else (np.ones(r), np.eye(r))
    variances = np.maximum(own * e + (1 - own), LEAST_VARIANCE)
    return U, variances, np.log(n / moments.weights.sum()) - 0.5 * np.log(variances).sum(axis=1)


def fit_gaussians(moments: ClassMoments, k: int, mixture: float) -> GaussianClasses:
    """Gaussians over the first k features; classes without members get probability 0.

    The covariance of a class is its own one, mixed with the pooled one: `mixture` is the share of the latter.
    """
    B, C = _whiten(moments, k), len(moments.weights)
    factors, log_weights = np.zeros((C, B.shape[1], B.shape[1])), np.full(C, -np.inf)
    for c in np.flatnonzero(moments.weights > 0):
        U, variances, log_weight = _spreads(moments, B, c, np.array([mixture]))
        factors[c], log_weights[c] = U / np.sqrt(variances[0]), log_weight[0]
    return GaussianClasses(moments.center[:k], moments.scale[:k], B, moments.means[:, :k] @ B, factors, log_weights)


def posteriors(moments: ClassMoments, k: int, mixtures: Floats, Y: Floats) -> Floats:
    """What `fit_gaussians` would find with each mixture, (M, N, C): only variances along the same axes differ."""
    B = _whiten(moments, k)
    Z = standardise(Y[:, :k], moments.center[:k], moments.scale[:k]) @ B
    joint = np.full((len(mixtures), len(Y), len(moments.weights)), -np.inf)
    for c in np.flatnonzero(moments.weights > 0):
        U, variances, log_weights = _spreads(moments, B, c, mixtures)
        squares = ((Z - moments.means[c, :k] @ B) @ U) ** 2
        joint[:, :, c] = log_weights[:, None] - 0.5 * (1 / variances) @ squares.T
    return np.asarray(softmax(joint, axis=2))


def numeric_classes(values: Floats, w: Floats, asked: Any, name: Any) -> LabelClasses:
    """Classes of increasing label and equal weight, or one class per value if there are few values."""
    if asked is not None and (not isinstance(asked, int | np.integer) or isinstance(asked, bool) or asked < 1):
        raise ValueError(f"n_classes={asked!r} for label {name!r}: give a whole number of at least 1")
    if asked is not None and asked > len(values):
        raise ValueError(f"n_classes={asked} for label {name!r}, but only {len(values)} samples have it; use fewer")
    n = max(len(values), int(w.sum()))
    n_classes = min(MAX_CLASSES, max(2, n // 20)) if asked is None else int(asked)
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) <= n_classes:
        return LabelClasses(*_members(codes, len(distinct), w), distinct, True)
    atoms, P = group_memberships(values, w, n_classes)
    rows = [np.flatnonzero(share[atoms] > 0) for share in P.T]
    weights = [w[some] * share[atoms[some]] for some, share in zip(rows, P.T, strict=True)]
    means = [np.average(values[some], weights=weight) for some, weight in zip(rows, weights, strict=True)]
    return LabelClasses(rows, weights, np.array(means), True)


def categories(column: NDArray[Any], w: Floats) -> tuple[NDArray[np.intp], LabelClasses]:
    """Class index of each sample, and the classes, sorted if possible."""
    codes, found = find_classes(column)
    if isinstance(found, list):  # of objects, in order of appearance
        try:
            values = sorted(found)
        except TypeError:
            values = sorted(found, key=lambda value: (type(value).__name__, str(value)))
        rank = {value: c for c, value in enumerate(values)}
        codes = np.array([rank[value] for value in found])[codes]
        kinds = {bool if isinstance(value, bool | np.bool_) else type(value) for value in values}
        fits = kinds == {int} and all(-(2**63) <= value < 2**63 for value in values)
        found = np.empty(len(values), dtype=bool if kinds == {bool} else np.int64 if fits else object)
        found[:] = values
    return codes, LabelClasses(*_members(codes, len(found), w), found, False)


def _members(codes: NDArray[np.intp], n_classes: int, w: Floats) -> tuple[list[NDArray[np.intp]], list[Floats]]:
    order = np.argsort(codes, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(codes, minlength=n_classes))[:-1])
    return rows, [w[some] for some in rows]


@dataclass(frozen=True, eq=False)
class Task:
    """One label to learn, and the samples that have it; the target is the label, or the index of the class."""

    name: Any
    Y: Floats
    target: NDArray[Any]
    w: Floats
    classes: LabelClasses
    groups: NDArray[Any] | None
    known: NDArray[np.bool_]

    def restricted(self, rows: NDArray[np.intp]) -> Task:
        arrays = {"Y": self.Y[rows], "target": self.target[rows], "w": self.w[rows]}
        return replace(self, **arrays, classes=self.classes.restricted(rows))


def make_task(
    name: Any, Y: Floats, column: NDArray[Any], is_discrete: bool, w: Floats, groups: Any, n_classes: Any
) -> Task:
    """The samples that have a label, and its classes; a numeric label is cut into `n_classes`."""
    known = ~missing(column) & (w > 0)
    if not known.any():
        raise ValueError(f"y: all values of label {name!r} are missing (or of weight 0); leave the label out")
    Y, column, w = Y[known], column[known], w[known]
    groups = None if groups is None else np.asarray(groups)[known]
    asked = per_label(n_classes, name, None)
    demanded = isinstance(n_classes, Mapping) and asked is not None
    if not demanded and is_discrete:
        codes, classes = categories(column, w)
        return Task(name, Y, codes, w, classes, groups, known)
    try:
        values = numeric(column, f"label {name!r}")
    except ValueError:
        if not demanded:
            raise
        raise ValueError(
            f"n_classes={n_classes!r} names label {name!r}, which holds values such as {column.tolist()[0]!r}, "
            "but is for numeric labels; leave this one out"
        ) from None
    return Task(name, Y, values, w, numeric_classes(values, w, asked, name), groups, known)


def fit_model(task: Task, k: int, mixture: Any, regressor: Any, weighted: bool) -> Any:
    """Gaussians, or a copy of the regressor, fitted to the first k features."""
    if regressor is None:
        return fit_gaussians(class_moments(task.Y[:, :k], task.classes), k, mixture)
    weights = {"sample_weight": task.w} if weighted else {}
    return clone(regressor).fit(task.Y[:, :k], task.target, **weights)


def estimate(model: Any, Y: Floats, classes: NDArray[Any], is_numeric: bool) -> NDArray[Any]:
    """The estimate sum of l_c P(c | y) of a numeric label (the paper's equation), else the index of the class."""
    if not isinstance(model, GaussianClasses):
        return np.asarray(model.predict(Y)).ravel()
    return decide(model.posterior(Y), classes, is_numeric)


def decide(posterior: Floats, classes: NDArray[Any], is_numeric: bool) -> NDArray[Any]:
    """The mean of a numeric label, or the index of the most probable class."""
    return np.asarray(posterior @ classes if is_numeric else np.argmax(posterior, axis=1))


def as_values(found: NDArray[Any], classes: NDArray[Any], is_numeric: bool, integer: bool) -> NDArray[Any]:
    """Estimates as users get them: names of classes, or numbers, of which perhaps only the integer part is wanted."""
    if not is_numeric:
        return classes[found]
    # An estimate of 18 must not become 17 because probabilities sum to 1 - 1e-16.
    return np.floor(np.round(found, 9)).astype(np.int64) if integer else found


def cross_validate(
    task: Task, numbers: list[int], mixtures: list[Any], folds: Folds, regressor: Any, weighted: bool
) -> dict[tuple[int, Any], float]:
    """Score of each number of features with each mixture: minus the mean squared error, or the classification rate."""
    classes, is_numeric = task.classes.values, task.classes.is_numeric
    errors, total = np.zeros((len(numbers), len(mixtures))), 0.0
    most = max(1, min(MAX_JUDGED // len(folds), MAX_PROBABILITIES // (len(mixtures) * len(classes))))
    for train, test in folds:
        if len(train) == 0:
            raise ValueError(f"cv: no sample of one of the training folds has the label {task.name!r}; use fewer folds")
        if regressor is None:
            test = test[evenly_spread(len(test), most)]
        part, Y, target, w = task.restricted(train), task.Y[test], task.target[test], task.w[test]
        moments = class_moments(part.Y[:, : numbers[-1]], part.classes) if regressor is None else None
        total += w.sum()
        for i, k in enumerate(numbers):
            if moments is None:
                found = estimate(fit_model(part, k, None, regressor, weighted), Y[:, :k], classes, is_numeric)[None]
            else:
                posterior = posteriors(moments, k, np.array(mixtures), Y)
                found = posterior @ classes if is_numeric else np.argmax(posterior, axis=2)
            errors[i] += ((found - target) ** 2 if is_numeric else found != target) @ w
    if total == 0:
        raise ValueError(f"cv: no sample of the test folds has the label {task.name!r}")
    scores = -errors / total if is_numeric else 1 - errors / total
    return {(k, mixture): float(scores[i, j]) for i, k in enumerate(numbers) for j, mixture in enumerate(mixtures)}


def best_of(scores: dict[tuple[int, Any], float]) -> tuple[int, Any]:
    """The best score; ties go to the most features, and then to the first mixture, the shared covariance.

    Features of a network tell the samples that it was trained on apart almost without error, a few as well as all.
    These ties say nothing about unseen samples, for which all features are then better than a few.
    """
    return max(scores, key=lambda candidate: (scores[candidate], candidate[0]))


def find_folds(cv: Any, task: Task) -> Folds | None:
    """Folds of the samples that have the label; a list of splits refers to all samples. None for less than two folds.

    A number means folds that have all labels in like proportions, and in which the samples of a group stay together.
    """
    if isinstance(cv, list):
        number = np.where(task.known, np.cumsum(task.known) - 1, -1)
        return [(train[train >= 0], test[test >= 0]) for train, test in ((number[a], number[b]) for a, b in cv)]
    if not isinstance(cv, Integral | None):
        from sklearn.model_selection import check_cv  # takes long to import

        return list(check_cv(cv).split(task.Y, task.target, task.groups))
    recipe = SerialGraph() if task.classes.is_numeric else ClusteredGraph()
    fold = divide(recipe, task.target, task.w, task.groups, cv)
    if fold is None:
        return None
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def per_label(value: Any, name: Any, default: Any) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else value


def numbers_of_features(k: Any, candidates: Any, task: Task) -> list[int]:
    """The numbers of features to choose from."""
    available = task.Y.shape[1]
    if isinstance(k, str) and k == "cv":
        return _check_candidates(candidates, available)
    if k is None:
        return [available]
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= available:
        wanted = f"a number from 1 to {available}, the features in X, or 'cv', or None for all"
        raise ValueError(f"n_used_features={k!r} for label {task.name!r}: give {wanted}")
    return [int(k)]


def mixtures_of(covariance: Any, name: Any) -> list[float]:
    """Shares of the pooled covariance to choose from."""
    named = {"auto": MIXTURES, "shared": (1.0,), "separate": (0.0,)}
    if isinstance(covariance, str) and covariance in named:
        return list(named[covariance])
    if not isinstance(covariance, Real) or isinstance(covariance, bool) or not 0 <= float(covariance) <= 1:
        wanted = "'auto', 'shared', 'separate', or a number from 0 (separate) to 1 (shared)"
        raise ValueError(f"covariance={covariance!r} for label {name!r}: give {wanted}")
    return [float(covariance)]


def _check_candidates(candidates: Any, available: int) -> list[int]:
    if candidates is None:
        ladder = list(range(1, 11))
        while ladder[-1] < available:
            ladder.append(round(1.2 * ladder[-1]))
        return sorted({min(k, available) for k in ladder})
    numbers = sorted({int(k) for k in candidates})
    if not numbers or numbers[0] < 1 or numbers[-1] > available:
        raise ValueError(f"candidates={candidates!r}: give numbers from 1 to {available}, the number of features in X")
    return numbers


def check_regressor(model: Any, task: Task, weighted: bool) -> Any:
    if model is None:
        return None
    is_numeric = task.classes.is_numeric
    if is_classifier(model) if is_numeric else is_regressor(model):
        kind, needed = ("numeric", "a regressor") if is_numeric else ("categorical", "a classifier")
        raise ValueError(
            f"regressor: label {task.name!r} is {kind} and needs {needed}, got {type(model).__name__}; "
            "give a dict by label, without the labels that keep the Gaussians"
        )
    if weighted and not has_fit_parameter(model, "sample_weight"):
        raise ValueError(f"sample_weight: {type(model).__name__}, the regressor of label {task.name!r}, takes none")
    return model


def kinds_of(label_kinds: Any, n_classes: Any, y: Any) -> dict[Any, str]:
    """What is said about labels: by `label_kinds`, or by a number of classes, which is for numbers."""
    kinds = read_kinds(label_kinds, y)
    for name, n in n_classes.items() if isinstance(n_classes, Mapping) else ():
        if n is not None and kinds.setdefault(name, "numeric") != "numeric":
            raise ValueError(
                f"n_classes={n_classes!r} is for numbers, but label_kinds says that {name!r} is categorical"
            )
    return kinds


def form_of(labels: Any) -> str:
    """How labels were given, so that estimates come back in the same form."""
    if isinstance(labels, Mapping):
        return "dict"
    if hasattr(labels, "columns"):
        return "frame" if type(labels).__module__.partition(".")[0] == "pandas" else "dict"
    return "vector" if np.asarray(labels).ndim == 1 else "table"
