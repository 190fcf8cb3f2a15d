"""The supervised step: label estimates from a few features, by one Gaussian per class."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, _fit_context
from sklearn.metrics import r2_score
from sklearn.utils import ClassifierTags, RegressorTags, assert_all_finite, column_or_1d
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from higsfa.core.graph.labels import holds_classes, label_names, missing, numeric, pick_label
from higsfa.estimators.label_task import (
    GaussianClasses,
    Task,
    as_values,
    best_of,
    check_regressor,
    cross_validate,
    estimate,
    find_folds,
    fit_model,
    form_of,
    kinds_of,
    make_task,
    mixtures_of,
    numbers_of_features,
    per_label,
)
from higsfa.estimators.validation import LABEL_KINDS, Estimator, assign, fit_task, read_data, unchanged_on_error
from higsfa.graphs import check_weights
from higsfa.training.runner import one_blas_thread

__all__ = ["GaussianClasses", "LabelClassifier", "LabelHead", "LabelRegressor"]

Floats = NDArray[np.float64]


class LabelHead(Estimator):
    r"""Label estimates from features: the supervised step on top of a network.

    For every label, one full-covariance Gaussian per class is fitted to the first few features, with the class
    frequencies as priors. A categorical label is estimated by its most probable class. A numeric label is cut into
    classes :math:`C_l` of increasing label and equal size, with mean labels :math:`\ell_l`, and estimated by
    :math:`\ell = \sum_l \ell_l \, P(C_l \mid y)`, which suits the root mean squared error.

    Labels of faces such as age, gender or race are what annotators wrote down about pictures; their estimates are
    statistical guesses about pictures, not facts about people.

    For one label, :class:`LabelClassifier` and :class:`LabelRegressor` are the same as scikit-learn's classifiers and
    regressors are, already before they are fitted; tools such as ``cross_val_score`` ask for that.

    Parameters
    ----------
    n_used_features : int, "cv", None or dict of them by label, default="cv"
        How many of the first features the estimate of a label uses; None for all. "cv" chooses by cross-validation on
        the training set: least mean squared error of a numeric label, best classification rate of a categorical one;
        ties go to the largest number.
    n_classes : int or dict of int by label, optional
        Number of classes of a numeric label; min(39, N // 20) by default. A label with fewer distinct values gets a
        class for each. A dict entry makes a label numeric that would count as categorical.
    label_kinds : dict from labels to "categorical" or "numeric", or one of these for a single label, optional
        What labels are, where the guess is wrong or unsure: text, booleans and a pandas Categorical are classes; so are
        at most 20 different whole numbers that repeat, and codes 0, 1, 2, ... without a gap that repeat.
    covariance : {"auto", "shared", "separate"}, float or dict of them by label, default="auto"
        Covariances of the classes: one for all (1, "shared"), one for each class (0, "separate"), or a mixture of
        these two with so much of the shared one. Classes with less than 2 (k + 1) samples for k features are drawn
        towards the shared one in any case, the smaller the more. "auto" chooses by cross-validation, together with the
        number of features.
    integer : bool or dict of bool by label, default=False
        Round numeric estimates down to integers, as the paper does with ages.
    regressor : scikit-learn estimator or dict of them by label, optional
        Used instead of the Gaussians: a regressor for a numeric label, a classifier for a categorical one. If it is
        slow, give a number of features.
    cv : int, splitter or iterable of splits, default=5
        Folds for "cv" and "auto". An integer means folds with like proportions of labels, the same in every run, in
        which groups stay together if `fit` gets groups. Where there are less than two samples or groups, all features
        and a shared covariance are used.
    candidates : array-like of int, optional
        Numbers of features to try; by default 1 to 10 and then steps of about a fifth.

    Attributes
    ----------
    label_names_ : list
        Columns or keys of the labels; [0] for an array of one label.
    classes_ : array or dict of arrays
        The classes of the label that was given as a vector, else a dict by label; of a numeric label, the mean labels
        of its classes.
    label_classes_ : dict of arrays
        The same, always by label.
    n_used_features_ : dict of int
        How many features the estimate of each label uses.
    covariance_ : dict of float
        Share of the shared covariance, by label; None where a regressor is used.
    is_numeric_ : dict of bool
    models_ : dict
        :class:`GaussianClasses` or fitted regressor of each label.
    cv_results_ : dict of dict
        Where cross-validation chose: the score (larger is better) of each pair of a number of features and a share of
        the shared covariance. At most 10,000 samples are judged.
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
        "covariance": [StrOptions({"auto", "shared", "separate"}), Interval(Real, 0, 1, closed="both"), dict],
        "integer": ["boolean", dict],
        "regressor": [HasMethods(["fit", "predict"]), dict, None],
        "cv": ["cv_object"],
        "candidates": ["array-like", None],
    }

    def __init__(
        self,
        n_used_features: Any = "cv",
        n_classes: Any = None,
        *,
        label_kinds: Any = None,
        covariance: Any = "auto",
        integer: Any = False,
        regressor: Any = None,
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
        with unchanged_on_error(self), fit_task(self, X, y):
            X = read_data(self, X, dtype=np.float64)
            y = self._checked_labels(y)
            self.label_names_ = names = label_names(y)
            if not names:
                name = type(self).__name__
                raise ValueError(f"y: {name} requires y to be passed, but the target y is None or holds no label")
            self._check_names(names)
            kinds = kinds_of(self.label_kinds, self.n_classes, y)
            w = check_weights(sample_weight, len(X))
            self.output_form_ = form_of(y)
            self.label_classes_: dict[Any, Any] = {}
            self.n_used_features_: dict[Any, int] = {}
            self.covariance_: dict[Any, Any] = {}
            self.is_numeric_: dict[Any, bool] = {}
            self.models_: dict[Any, Any] = {}
            self.cv_results_: dict[Any, dict[tuple[int, Any], float]] = {}
            cv = self.cv if isinstance(self.cv, Integral | None) or hasattr(self.cv, "split") else list(self.cv)
            for name in names:
                column = pick_label(y, name)
                if len(column) != len(X):
                    raise ValueError(f"y: label {name!r} has {len(column)} values for {len(X)} samples")
                task = make_task(name, X, column, self._holds_classes(y, name, w > 0, kinds), w, groups, self.n_classes)
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
        X = read_data(self, X, dtype=np.float64, reset=False)
        estimates = {name: self._predict_label(name, X) for name in self.label_names_}
        if self.output_form_ == "frame":
            import pandas as pd

            return pd.DataFrame(estimates, index=index if isinstance(index, pd.Index) else None)
        if self.output_form_ == "dict":
            return estimates
        columns = list(estimates.values())
        return columns[0] if self.output_form_ == "vector" else np.column_stack(columns)

    @available_if(lambda self: not isinstance(self, RegressorMixin))
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
        array of shape (n_samples, n_classes), in the order of ``label_classes_[label]``
        """
        check_is_fitted(self, "models_")
        if label is None and len(self.label_names_) == 1:
            label = self.label_names_[0]
        if label not in self.label_names_:
            raise ValueError(f"label={label!r} is not one of the labels that fit saw: {self.label_names_}")
        X = read_data(self, X, dtype=np.float64, reset=False)[:, : self.n_used_features_[label]]
        model = self.models_[label]
        if isinstance(model, GaussianClasses):
            return model.posterior(X)
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"label={label!r}: {type(model).__name__} has no predict_proba; give a regressor that has it, or none "
                "for this label, to use Gaussians"
            )
        out = np.zeros((len(X), len(self.label_classes_[label])))
        out[:, np.asarray(model.classes_, dtype=np.intp)] = model.predict_proba(X)
        return out

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """How good the estimates are: the classification rate, or R² of a numeric label; the mean over labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : labels, as `fit` takes them
            Samples without a label do not count for that label.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        score : float
        """
        check_is_fitted(self, "models_")
        X = read_data(self, X, dtype=np.float64, reset=False)
        w = check_weights(sample_weight, len(X))
        columns = {name: pick_label(y, name, len(X)) for name in self.label_names_}
        return float(np.mean([self._score_label(name, X, column, w) for name, column in columns.items()]))

    @property
    def classes_(self) -> Any:
        check_is_fitted(self, "models_")
        return self.label_classes_[0] if self.output_form_ == "vector" else self.label_classes_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if getattr(self, "output_form_", None) == "vector":  # known only now
            is_numeric = self.is_numeric_[0]
            tags.estimator_type = "regressor" if is_numeric else "classifier"
            tags.regressor_tags, tags.classifier_tags = (
                (RegressorTags(), None) if is_numeric else (None, ClassifierTags())
            )
        return tags

    def _checked_labels(self, y: Any) -> Any:
        return y

    def _holds_classes(self, y: Any, name: Any, rows: NDArray[Any], kinds: dict[Any, str]) -> bool:
        return holds_classes(y, name, rows, kinds)

    def _check_names(self, names: list[Any]) -> None:
        for parameter in ("n_used_features", "n_classes", "covariance", "integer", "regressor"):
            value = getattr(self, parameter)
            unknown = [key for key in value if key not in names] if isinstance(value, Mapping) else []
            if unknown:
                raise ValueError(f"{parameter} names labels {unknown}, which are not among the labels {names}")

    def _fit_label(self, task: Task, weighted: bool, cv: Any) -> None:
        name, is_numeric = task.name, task.classes.is_numeric
        if is_numeric and per_label(self.integer, name, False) and np.max(np.abs(task.target)) > 2**53:
            raise ValueError(f"integer: label {name!r} has values beyond 2**53, whose integer part is not exact")
        regressor = check_regressor(per_label(self.regressor, name, None), task, weighted)
        numbers = numbers_of_features(per_label(self.n_used_features, name, "cv"), self.candidates, task)
        mixtures: list[Any] = mixtures_of(per_label(self.covariance, name, "auto"), name)
        mixtures = mixtures if regressor is None else [None]
        k, mixture = numbers[-1], mixtures[0] if len(mixtures) == 1 else 1.0
        with one_blas_thread() if regressor is None else nullcontext():
            several = len(numbers) * len(mixtures) > 1
            folds = find_folds(cv, task) if several else None
            if folds is not None:
                scores = cross_validate(task, numbers, mixtures, folds, regressor, weighted)
                self.cv_results_[name] = scores
                k, mixture = best_of(scores)
            self.models_[name] = fit_model(task, k, mixture, regressor, weighted)
        self.n_used_features_[name], self.covariance_[name] = k, mixture
        self.is_numeric_[name] = is_numeric
        self.label_classes_[name] = task.classes.values

    def _predict_label(self, name: Any, X: Floats) -> NDArray[Any]:
        is_numeric, classes = self.is_numeric_[name], self.label_classes_[name]
        found = estimate(self.models_[name], X[:, : self.n_used_features_[name]], classes, is_numeric)
        return as_values(found, classes, is_numeric, per_label(self.integer, name, False))

    def _score_label(self, name: Any, X: Floats, column: NDArray[Any], w: Floats) -> float:
        known = ~missing(column) & (w > 0)
        if not known.any():
            raise ValueError(f"y: all values of label {name!r} are missing (or of weight 0), so there is no score")
        found, true, w = self._predict_label(name, X[known]), column[known], w[known]
        if self.is_numeric_[name]:
            return float(r2_score(numeric(true, f"label {name!r}"), found, sample_weight=w))
        return float(np.average(found.astype(object) == true.astype(object), weights=w))


class LabelClassifier(ClassifierMixin, LabelHead):
    """Estimates of one label that names classes, whatever its values; a classifier of scikit-learn.

    A :class:`LabelHead` for tools that must know before `fit` what they have: ``cross_val_score`` and ``GridSearchCV``
    with stratified folds, ``VotingClassifier``, ``CalibratedClassifierCV``.

    Parameters
    ----------
    n_used_features : int, "cv" or None, default="cv"
    covariance : {"auto", "shared", "separate"} or float, default="auto"
    cv : int, splitter or iterable of splits, default=5
    candidates : array-like of int, optional
        All as in :class:`LabelHead`, whose attributes it has.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from higsfa import LabelClassifier
    >>> X, cultivar = load_wine(return_X_y=True)
    >>> bool(cross_val_score(LabelClassifier(), X, cultivar).mean() > 0.95)
    True
    """

    n_classes, integer, regressor, label_kinds = None, False, None, None
    _parameter_constraints = {
        name: LabelHead._parameter_constraints[name] for name in ("n_used_features", "covariance", "cv", "candidates")
    }
    score = LabelHead.score

    def __init__(
        self, n_used_features: Any = "cv", *, covariance: Any = "auto", cv: Any = 5, candidates: Any = None
    ) -> None:
        assign(locals())

    def _checked_labels(self, y: Any) -> Any:
        y = _one_label(y)
        if y is not None and y.dtype.kind == "f":
            known = y[~missing(y)]
            assert_all_finite(known, input_name="y")
            check_classification_targets(known)
        return y

    def _holds_classes(self, y: Any, name: Any, rows: NDArray[Any], kinds: dict[Any, str]) -> bool:
        return True


class LabelRegressor(RegressorMixin, LabelHead):
    """Estimates of one label that is a number, however few values it has; a regressor of scikit-learn.

    A :class:`LabelHead` for tools that must know before `fit` what they have.

    Parameters
    ----------
    n_used_features : int, "cv" or None, default="cv"
    n_classes : int, optional
    covariance : {"auto", "shared", "separate"} or float, default="auto"
    integer : bool, default=False
    cv : int, splitter or iterable of splits, default=5
    candidates : array-like of int, optional
        All as in :class:`LabelHead`, whose attributes it has.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import cross_val_score
    >>> from higsfa import LabelRegressor
    >>> X, progression = load_diabetes(return_X_y=True)
    >>> bool(cross_val_score(LabelRegressor(), X, progression).mean() > 0.4)
    True
    """

    regressor, label_kinds = None, None
    _parameter_constraints = {
        name: constraints for name, constraints in LabelHead._parameter_constraints.items() if name != "regressor"
    }
    score = LabelHead.score

    def __init__(
        self,
        n_used_features: Any = "cv",
        n_classes: Any = None,
        *,
        covariance: Any = "auto",
        integer: Any = False,
        cv: Any = 5,
        candidates: Any = None,
    ) -> None:
        assign(locals())

    def _checked_labels(self, y: Any) -> Any:
        return _one_label(y)

    def _holds_classes(self, y: Any, name: Any, rows: NDArray[Any], kinds: dict[Any, str]) -> bool:
        return False


def _one_label(y: Any) -> Any:
    return None if y is None else column_or_1d(y, warn=True)
