"""The supervised step: label estimates from a few features, by one Gaussian per class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context, clone, is_classifier, is_regressor
from sklearn.model_selection import GroupKFold, KFold, check_cv
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from higsfa.core.graph.kinds import holds_classes, read_kinds
from higsfa.core.graph.labels import label_names, missing, numeric, pick_label
from higsfa.estimators.gaussian import (
    GaussianClasses,
    LabelClasses,
    categories,
    class_moments,
    fit_gaussians,
    numeric_classes,
)
from higsfa.estimators.validation import LABEL_KINDS, assign, unchanged_on_error
from higsfa.graphs import check_weights
from higsfa.training.runner import one_blas_thread

__all__ = ["GaussianClasses", "LabelHead"]

Floats = NDArray[np.float64]


class LabelHead(BaseEstimator):
    r"""Label estimates from features: the supervised step on top of a network.

    For every label, one full-covariance Gaussian per class is fitted to the first few features, with the class
    frequencies as priors. A categorical label is estimated by its most probable class. A numeric label is cut into
    classes :math:`C_l` of increasing label and equal size, with mean labels :math:`\ell_l`, and estimated by
    :math:`\ell = \sum_l \ell_l \, P(C_l \mid y)`, which suits the root mean squared error.

    Labels of faces such as age, gender or race are what annotators wrote down about pictures; their estimates are
    statistical guesses about pictures, not facts about people.

    Parameters
    ----------
    n_used_features : int, "cv" or dict of them by label, optional
        How many of the first features the estimate of a label uses; all by default. "cv" chooses by cross-validation
        on the training set: least mean squared error of a numeric label, best classification rate of a categorical
        one; ties go to the smallest number.
    n_classes : int or dict of int by label, optional
        Number of classes of a numeric label; min(39, N // 20) by default. A label with fewer distinct values gets a
        class for each. A dict entry makes a label numeric that would count as categorical.
    label_kinds : dict from labels to "categorical" or "numeric", or one of these for a single label, optional
        What labels are, where the guess is wrong or unsure: text, booleans and a pandas Categorical are classes; so are
        at most 20 different whole numbers that repeat, and codes 0, 1, 2, ... without a gap that repeat.
    integer : bool or dict of bool by label, default=False
        Round numeric estimates down to integers, as the paper does with ages.
    regressor : scikit-learn estimator or dict of them by label, optional
        Used instead of the Gaussians: a regressor for a numeric label, a classifier for a categorical one.
    regularization : float, default=0.0
        From 0, a covariance for each class, to 1, the pooled one for all. Classes with less than 2 (k + 1) samples for
        k features are drawn towards the pooled covariance in any case, the smaller the more.
    cv : int, splitter or iterable of splits, default=5
        Folds for ``n_used_features="cv"``. An integer means shuffled folds, the same in every run, or folds of whole
        groups if `fit` gets groups.
    candidates : array-like of int, optional
        Numbers of features to try; by default 1 to 10 and then steps of about a fifth.

    Attributes
    ----------
    label_names_ : list
        Columns or keys of the labels; [0] for an array of one label.
    classes_ : dict of arrays
        The classes of each label; of a numeric one, their mean labels.
    n_used_features_ : dict of int
        How many features the estimate of each label uses.
    is_numeric_ : dict of bool
    models_ : dict
        :class:`GaussianClasses` or fitted regressor of each label.
    cv_results_ : dict of dict
        Where cross-validation chose: the score (larger is better) of each number of features.
    n_features_in_ : int

    Notes
    -----
    Samples without a label (NaN, None, pd.NA) are left out for that label. Tied samples on
    the border of two classes belong to both in proportion, so the order of rows does not matter. Constant features
    are ignored.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA
    >>> from higsfa.estimators.label_head import LabelHead
    >>> X, cultivar = load_wine(return_X_y=True)
    >>> labels = {"cultivar": cultivar, "alcohol": X[:, 0]}
    >>> Y = GSFA(n_components=6, graph="clustered").fit_transform(X, cultivar)
    >>> head = LabelHead(n_used_features={"cultivar": 2, "alcohol": "cv"}).fit(Y, labels)
    >>> estimates = head.predict(Y)
    >>> bool((estimates["cultivar"] == cultivar).mean() > 0.98)
    True
    >>> head.predict_proba(Y, "cultivar").shape
    (178, 3)
    """

    _parameter_constraints: dict[str, Any] = {
        "n_used_features": [Interval(Integral, 1, None, closed="left"), StrOptions({"cv"}), dict, None],
        "n_classes": [Interval(Integral, 1, None, closed="left"), dict, None],
        "label_kinds": LABEL_KINDS,
        "integer": ["boolean", dict],
        "regressor": [HasMethods(["fit", "predict"]), dict, None],
        "regularization": [Interval(Real, 0, 1, closed="both")],
        "cv": ["cv_object"],
        "candidates": ["array-like", None],
    }

    def __init__(
        self,
        n_used_features: Any = None,
        n_classes: Any = None,
        *,
        label_kinds: Any = None,
        integer: Any = False,
        regressor: Any = None,
        regularization: float = 0.0,
        cv: Any = 5,
        candidates: Any = None,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> LabelHead:
        """Fit one model per label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features, the most informative first, as networks extract them.
        y : DataFrame, dict of arrays, or array of shape (n_samples,) or (n_samples, n_labels)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weight w counts a sample w times.
        groups : array-like of shape (n_samples,), optional
            Samples to keep together in cross-validation: copies of one image, or pictures of one person.

        Returns
        -------
        self
        """
        with unchanged_on_error(self):
            X = validate_data(self, X, dtype=np.float64)
            self.label_names_ = names = label_names(y)
            if not names:
                raise ValueError("y: LabelHead requires y to be passed, but the target y is None or holds no label")
            self._check_names(names)
            kinds = _kinds(self.label_kinds, self.n_classes, y)
            w = check_weights(sample_weight, len(X))
            self.output_form_ = _form(y)
            self.classes_: dict[Any, Any] = {}
            self.n_used_features_: dict[Any, int] = {}
            self.is_numeric_: dict[Any, bool] = {}
            self.models_: dict[Any, Any] = {}
            self.cv_results_: dict[Any, dict[int, float]] = {}
            cv = self.cv if isinstance(self.cv, Integral) or hasattr(self.cv, "split") else list(self.cv)
            for name in names:
                column = pick_label(y, name)
                if len(column) != len(X):
                    raise ValueError(f"y: label {name!r} has {len(column)} values for {len(X)} samples")
                task = _task(name, X, column, holds_classes(y, name, w > 0, kinds), w, groups, self.n_classes)
                self._fit_label(task, sample_weight is not None, cv)
        return self

    def predict(self, X: Any) -> Any:
        """Estimate all labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        In the form in which `fit` got the labels: a DataFrame, a dict of arrays, or an array.
        """
        check_is_fitted(self, "models_")
        index = getattr(X, "index", None)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        estimates = {name: self._predict_label(name, X) for name in self.label_names_}
        if self.output_form_ == "frame":
            import pandas as pd

            return pd.DataFrame(estimates, index=index if isinstance(index, pd.Index) else None)
        if self.output_form_ == "dict":
            return estimates
        columns = list(estimates.values())
        return columns[0] if self.output_form_ == "vector" else np.column_stack(columns)

    def predict_proba(self, X: Any, label: Any = None) -> Floats:
        """Probabilities of the classes of one label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        label : name of a label, optional
            Not needed if there is only one.

        Returns
        -------
        array of shape (n_samples, n_classes), in the order of ``classes_[label]``
        """
        check_is_fitted(self, "models_")
        if label is None and len(self.label_names_) == 1:
            label = self.label_names_[0]
        if label not in self.label_names_:
            raise ValueError(f"label={label!r} is not one of the labels that fit saw: {self.label_names_}")
        X = validate_data(self, X, dtype=np.float64, reset=False)[:, : self.n_used_features_[label]]
        model = self.models_[label]
        if isinstance(model, GaussianClasses):
            return model.posterior(X)
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"label={label!r}: {type(model).__name__} has no predict_proba; give a regressor that has it, or none "
                "for this label, to use Gaussians"
            )
        out = np.zeros((len(X), len(self.classes_[label])))
        out[:, np.asarray(model.classes_, dtype=np.intp)] = model.predict_proba(X)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _check_names(self, names: list[Any]) -> None:
        for parameter in ("n_used_features", "n_classes", "integer", "regressor"):
            value = getattr(self, parameter)
            unknown = [key for key in value if key not in names] if isinstance(value, Mapping) else []
            if unknown:
                raise ValueError(f"{parameter} names labels {unknown}, which are not among the labels {names}")

    def _fit_label(self, task: _Task, weighted: bool, cv: Any) -> None:
        name, is_numeric = task.name, task.classes.is_numeric
        if is_numeric and _per_label(self.integer, name, False) and np.max(np.abs(task.target)) > 2**53:
            raise ValueError(f"integer: label {name!r} has values beyond 2**53, whose integer part is not exact")
        regressor = _check_regressor(_per_label(self.regressor, name, None), task, weighted)
        regularization = float(self.regularization)

        def trainer(task: _Task) -> Callable[[int], Any]:
            """A function that fits a model to the first k features; what the models share is done once."""
            if regressor is None:
                moments = class_moments(task.Y, task.classes)
                return lambda k: fit_gaussians(moments, k, regularization)
            weights = {"sample_weight": task.w} if weighted else {}
            return lambda k: clone(regressor).fit(task.Y[:, :k], task.target, **weights)

        k = _check_n_features(_per_label(self.n_used_features, name, None), task)
        with one_blas_thread() if regressor is None else nullcontext():
            if k == "cv":
                scores = _cross_validate(task, trainer, _check_candidates(self.candidates, task.Y.shape[1]), cv)
                self.cv_results_[name] = scores
                k = max(scores, key=lambda number: (scores[number], -number))
            self.models_[name] = trainer(replace(task, Y=task.Y[:, :k]))(k)
        self.n_used_features_[name] = k
        self.is_numeric_[name] = is_numeric
        self.classes_[name] = task.classes.values

    def _predict_label(self, name: Any, X: Floats) -> NDArray[Any]:
        is_numeric, classes = self.is_numeric_[name], self.classes_[name]
        estimate = _estimate(self.models_[name], X[:, : self.n_used_features_[name]], classes, is_numeric)
        if not is_numeric:
            return classes[estimate]
        if _per_label(self.integer, name, False):
            # An estimate of 18 must not become 17 because probabilities sum to 1 - 1e-16.
            return np.floor(np.round(estimate, 9)).astype(np.int64)
        return estimate


@dataclass(frozen=True, eq=False)
class _Task:
    """One label to learn, and the samples that have it; the target is the label, or the index of the class."""

    name: Any
    Y: Floats
    target: NDArray[Any]
    w: Floats
    classes: LabelClasses
    groups: NDArray[Any] | None
    known: NDArray[np.bool_]

    def restricted(self, rows: NDArray[np.intp]) -> _Task:
        arrays = {"Y": self.Y[rows], "target": self.target[rows], "w": self.w[rows]}
        return replace(self, **arrays, classes=self.classes.restricted(rows))


def _task(
    name: Any, Y: Floats, column: NDArray[Any], is_discrete: bool, w: Floats, groups: Any, n_classes: Any
) -> _Task:
    known = ~missing(column) & (w > 0)
    if not known.any():
        raise ValueError(f"y: all values of label {name!r} are missing (or of weight 0); leave the label out")
    Y, column, w = Y[known], column[known], w[known]
    groups = None if groups is None else np.asarray(groups)[known]
    asked = _per_label(n_classes, name, None)
    demanded = isinstance(n_classes, Mapping) and asked is not None
    if not demanded and is_discrete:
        codes, classes = categories(column, w)
        return _Task(name, Y, codes, w, classes, groups, known)
    try:
        values = numeric(column, f"label {name!r}")
    except ValueError:
        if not demanded:
            raise
        raise ValueError(
            f"n_classes={n_classes!r} names label {name!r}, which holds values such as {column.tolist()[0]!r}, "
            "but is for numeric labels; leave this one out"
        ) from None
    return _Task(name, Y, values, w, numeric_classes(values, w, asked, name), groups, known)


def _kinds(label_kinds: Any, n_classes: Any, y: Any) -> dict[Any, str]:
    """What is said about labels: by `label_kinds`, or by a number of classes, which is for numbers."""
    kinds = read_kinds(label_kinds, y)
    for name, n in n_classes.items() if isinstance(n_classes, Mapping) else ():
        if n is not None and kinds.setdefault(name, "numeric") != "numeric":
            raise ValueError(
                f"n_classes={n_classes!r} is for numbers, but label_kinds says that {name!r} is categorical"
            )
    return kinds


def _estimate(model: Any, Y: Floats, classes: NDArray[Any], is_numeric: bool) -> NDArray[Any]:
    """The estimate sum of l_c P(c | y) of a numeric label (the paper's equation), else the index of the class."""
    if not isinstance(model, GaussianClasses):
        return np.asarray(model.predict(Y)).ravel()
    posterior = model.posterior(Y)
    return posterior @ classes if is_numeric else np.argmax(posterior, axis=1)


def _cross_validate(
    task: _Task, trainer: Callable[[_Task], Callable[[int], Any]], candidates: list[int], cv: Any
) -> dict[int, float]:
    """Score of each number of features: minus the mean squared error, or the classification rate."""
    task = replace(task, Y=task.Y[:, : candidates[-1]])
    classes, is_numeric = task.classes.values, task.classes.is_numeric
    errors, total = np.zeros(len(candidates)), 0.0
    for train, test in _folds(cv, task):
        if len(train) == 0:
            raise ValueError(f"cv: no sample of one of the training folds has the label {task.name!r}; use fewer folds")
        fit = trainer(task.restricted(train))
        Y, target, w = task.Y[test], task.target[test], task.w[test]
        total += w.sum()
        for i, k in enumerate(candidates):
            estimate = _estimate(fit(k), Y[:, :k], classes, is_numeric)
            errors[i] += w @ ((estimate - target) ** 2 if is_numeric else estimate != target)
    if total == 0:
        raise ValueError(f"cv={cv!r}: no sample of the test folds has the label {task.name!r}")
    scores = -errors / total if is_numeric else 1 - errors / total
    return {k: float(score) for k, score in zip(candidates, scores, strict=True)}


def _folds(cv: Any, task: _Task) -> Iterable[tuple[Any, Any]]:
    """Folds of the samples that have the label; a list of splits refers to all samples."""
    if isinstance(cv, list):
        number = np.where(task.known, np.cumsum(task.known) - 1, -1)
        return [(train[train >= 0], test[test >= 0]) for train, test in ((number[a], number[b]) for a, b in cv)]
    if isinstance(cv, Integral):
        n = len(task.Y) if task.groups is None else len(np.unique(task.groups))
        n_folds = min(int(cv), n)
        if n_folds < 2:
            what = "samples" if task.groups is None else "groups"
            raise ValueError(
                f"n_used_features='cv' for label {task.name!r} with cv={cv}: needs at least two folds, but "
                f"n_{what}={n} with that label; give a number of features instead"
            )
        cv = KFold(n_folds, shuffle=True, random_state=0) if task.groups is None else GroupKFold(n_folds)
    return check_cv(cv).split(task.Y, task.target, task.groups)


def _per_label(value: Any, name: Any, default: Any) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else value


def _check_n_features(k: Any, task: _Task) -> Any:
    available = task.Y.shape[1]
    if k is None or (isinstance(k, str) and k == "cv"):
        return k or available
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= available:
        wanted = f"a number from 1 to {available}, the features in X, or 'cv', or None for all"
        raise ValueError(f"n_used_features={k!r} for label {task.name!r}: give {wanted}")
    return int(k)


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


def _check_regressor(model: Any, task: _Task, weighted: bool) -> Any:
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


def _form(labels: Any) -> str:
    if isinstance(labels, Mapping):
        return "dict"
    if hasattr(labels, "columns"):
        return "frame" if type(labels).__module__.partition(".")[0] == "pandas" else "dict"
    return "vector" if np.asarray(labels).ndim == 1 else "table"
