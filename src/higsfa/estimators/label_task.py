"""One label to learn, and the choice of features and of covariances by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import check_cv
from sklearn.utils.validation import has_fit_parameter

from higsfa.core.graph.labels import missing, numeric, read_kinds
from higsfa.estimators.choice import divide
from higsfa.estimators.gaussian import (
    GaussianClasses,
    LabelClasses,
    categories,
    class_moments,
    fit_gaussians,
    numeric_classes,
    posteriors,
)
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.training.sources import evenly_spread

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.intp], NDArray[np.intp]]]

MIXTURES = (0.5, 0.75, 0.25, 0.9, 0.1, 1.0, 0.0)
"""Shares of the pooled covariance that "auto" tries; ties go to the first, in the middle of what is equally good."""
MAX_JUDGED = 10_000  # samples that candidates are judged by
MAX_PROBABILITIES = 2**24  # of the samples of a fold, for all classes and mixtures


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
    posterior = model.posterior(Y)
    return posterior @ classes if is_numeric else np.argmax(posterior, axis=1)


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
    """The best score; ties go to the most features, and then to the first mixture.

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
