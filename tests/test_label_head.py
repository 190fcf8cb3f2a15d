"""LabelHead: Gaussians checked against scipy's densities, and everything that labels of users bring along."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, check_cv, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from higsfa import GSFA
from higsfa.estimators import label_task
from higsfa.estimators.label_head import LabelClassifier, LabelHead, LabelRegressor
from higsfa.estimators.label_task import class_moments, fit_gaussians, posteriors


def faces(n=600, d=6, seed=0):
    """Features that tell age (0, 1) and gender (2), and noise; labels as a dict."""
    rng = np.random.default_rng(seed)
    age, gender = rng.uniform(16, 77, n), rng.choice(["F", "M"], n)
    Y = rng.standard_normal((n, d))
    Y[:, 0] += 3 * (age - 46) / 18
    Y[:, 1] += np.cos((age - 16) / 61 * np.pi * 2)
    Y[:, 2] += np.where(gender == "M", 2.0, -2.0)
    return Y @ np.triu(np.full((d, d), 0.1) + np.eye(d)), {"age": age, "gender": gender}


def direct_posterior(Y, members, new):
    """Posterior from scipy's densities; members = one (rows, weights) per class; covariances divided by N."""
    total = sum(w.sum() for _, w in members)
    joint = []
    for rows, w in members:
        mean = np.average(Y[rows], weights=w, axis=0)
        cov = np.cov(Y[rows].T, aweights=w, ddof=0)
        joint.append(np.log(w.sum() / total) + multivariate_normal(mean, cov).logpdf(new))
    return softmax(np.column_stack(joint), axis=1)


def all_features(**params):
    """Nothing is chosen: all features, and a covariance for each class."""
    return LabelHead(**{"n_used_features": None, "covariance": "separate"} | params)


def plain_members(codes):
    return [(np.flatnonzero(codes == c), np.ones(np.sum(codes == c))) for c in np.unique(codes)]


@parametrize_with_checks(
    [
        LabelHead(),
        LabelHead(None, 3, covariance=0.1, integer=True),
        LabelClassifier(),
        LabelClassifier(covariance="shared", cv=2),
        LabelRegressor(),
        LabelRegressor(None, covariance="separate"),
    ]
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


def test_posterior_of_classes_equals_scipys_densities():
    Y, labels = faces()
    new, _ = faces(200, seed=1)
    head = all_features().fit(Y, labels["gender"])
    expected = direct_posterior(Y, plain_members(labels["gender"]), new)
    assert_allclose(head.predict_proba(new), expected, atol=1e-9)
    assert_array_equal(head.predict(new), np.array(["F", "M"])[expected.argmax(axis=1)])


def test_soft_estimate_equals_the_papers_sum_over_equal_count_classes():
    Y, labels = faces(600)
    age = labels["age"]
    new, _ = faces(200, seed=1)
    head = all_features(n_used_features=4, n_classes=12).fit(Y, labels["age"])
    groups = np.array_split(np.argsort(age), 12)
    members = [(rows, np.ones(len(rows))) for rows in groups]
    posterior = direct_posterior(Y[:, :4], members, new[:, :4])
    means = np.array([age[rows].mean() for rows in groups])
    assert_allclose(head.classes_, means, rtol=1e-12)
    assert_allclose(head.predict_proba(new), posterior, atol=1e-9)
    assert_allclose(head.predict(new), posterior @ means, rtol=1e-9)


def test_tied_labels_across_a_border_belong_to_both_classes_in_proportion():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(30.0) + 0.5, 20)
    Y = rng.standard_normal((600, 2)) + label[:, None] / 10
    head = all_features(n_classes=4).fit(Y, label)  # 150 = 7.5 values a class
    members = []
    for c in range(4):
        share = np.clip(
            np.minimum((np.floor(label) + 1) * 20, 150 * (c + 1)) - np.maximum(np.floor(label) * 20, 150 * c), 0, 20
        )
        rows = np.flatnonzero(share > 0)
        members.append((rows, share[rows] / 20))
    assert_allclose(head.predict_proba(Y), direct_posterior(Y, members, Y), atol=1e-9)
    shuffled = rng.permutation(600)
    again = all_features(n_classes=4).fit(Y[shuffled], label[shuffled])
    assert_allclose(again.predict(Y), head.predict(Y), rtol=1e-9)


@pytest.mark.parametrize("covariance", ["shared", 1.0])
def test_a_shared_covariance_is_the_pooled_one(covariance):
    Y, labels = faces()
    codes = labels["gender"]
    centred = np.concatenate([Y[codes == c] - Y[codes == c].mean(axis=0) for c in "FM"])
    pooled = centred.T @ centred / len(Y)
    joint = [
        np.log(np.mean(codes == c)) + multivariate_normal(Y[codes == c].mean(axis=0), pooled).logpdf(Y) for c in "FM"
    ]
    head = LabelHead(None, covariance=covariance).fit(Y, codes)
    assert_allclose(head.predict_proba(Y), softmax(np.column_stack(joint), axis=1), atol=1e-9)


def small_class_posterior(Y, codes, w, mixture, new):
    """Classes with less than 2 (k + 1) samples for k features borrow from the pooled covariance, which, if there are
    too few samples for that, borrows from the total one."""
    k, classes = Y.shape[1], np.unique(codes)
    enough = 2.0 * (k + 1)
    means = [np.average(Y[codes == c], weights=w[codes == c], axis=0) for c in classes]
    own = [np.cov(Y[codes == c].T, aweights=w[codes == c], ddof=0) for c in classes]
    masses = [w[codes == c].sum() for c in classes]
    within = sum(n * S for n, S in zip(masses, own, strict=True)) / w.sum()
    share = min(1.0, (w.sum() - len(classes)) / enough)
    pooled = share * within + (1 - share) * np.cov(Y.T, aweights=w, ddof=0)
    joint = []
    for n, mean, S in zip(masses, means, own, strict=True):
        part = min(1.0 - mixture, n / enough, 1.0)
        density = multivariate_normal(mean, part * S + (1 - part) * pooled)
        joint.append(np.log(n / w.sum()) + density.logpdf(new))
    return softmax(np.column_stack(joint), axis=1)


@pytest.mark.parametrize("mixture", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("sizes", [(40, 9, 5), (8, 4, 3), (3, 2, 2), (14, 13, 6)], ids=str)
def test_small_classes_borrow_from_the_pooled_covariance_and_that_from_the_total_one(sizes, mixture):
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1, 2], sizes)
    Y = rng.standard_normal((len(codes), 6)) @ rng.standard_normal((6, 6)) + 0.7 * codes[:, None]
    new = 2 * rng.standard_normal((50, 6)) @ np.diag(Y.std(axis=0))
    for w in (np.ones(len(codes)), rng.uniform(0.5, 2.0, len(codes))):
        head = LabelHead(None, covariance=mixture).fit(Y, codes, sample_weight=w)
        expected = small_class_posterior(Y, codes, w, mixture, new)
        assert_allclose(head.predict_proba(new), expected, atol=1e-7)


def test_models_hold_what_standardises_the_features_and_whitens_the_classes():
    Y, labels = faces(400)
    w = np.random.default_rng(0).uniform(0.5, 2.0, 400)
    Y[:, 3] = 7.0
    model = LabelHead(5, covariance="separate").fit(Y, labels["gender"], sample_weight=w).models_[0]
    center = np.average(Y[:, :5], weights=w, axis=0)
    spread = np.sqrt(np.average((Y[:, :5] - center) ** 2, weights=w, axis=0))
    spread[3] = np.inf
    assert_allclose(model.center, center, rtol=1e-12)
    assert_allclose(model.scale, spread, rtol=1e-12)
    U = np.where(np.isinf(spread), 0.0, (Y[:, :5] - center) / spread) @ model.projection
    assert U.shape[1] == 4
    is_class = labels["gender"][:, None] == np.array(["F", "M"])
    means = np.stack([np.average(U[one], weights=w[one], axis=0) for one in is_class.T])
    assert_allclose(model.means, means, atol=1e-10)
    within = sum(np.cov(U[one].T, aweights=w[one], ddof=0) * w[one].sum() for one in is_class.T) / w.sum()
    assert_allclose(within, np.eye(4), atol=1e-10)
    for one, factor in zip(is_class.T, model.factors, strict=True):
        assert_allclose(factor.T @ np.cov(U[one].T, aweights=w[one], ddof=0) @ factor, np.eye(4), atol=1e-10)


def test_probabilities_are_those_of_each_sample_alone():
    Y, labels = faces(300)
    head = LabelHead(n_classes={"age": 5}).fit(Y, labels)
    many = np.tile(Y, (15, 1))  # more than are looked at at once
    for name in labels:
        assert_allclose(head.predict_proba(many, name), np.tile(head.predict_proba(Y, name), (15, 1)), rtol=1e-9)


def test_numbers_of_features_are_tried_one_by_one_and_then_in_steps_of_a_fifth():
    rng = np.random.default_rng(0)
    Y, codes = rng.standard_normal((60, 30)), rng.integers(0, 2, 60)
    tried = [*range(1, 11), 12, 14, 17, 20, 24, 29, 30]
    head = LabelHead(cv=2).fit(Y, codes)
    assert list(head.cv_results_[0]) == [(k, mixture) for k in tried for mixture in label_task.MIXTURES]
    shared = LabelHead(cv=2, covariance="shared").fit(Y[:, :4], codes)
    assert list(shared.cv_results_[0]) == [(k, 1.0) for k in (1, 2, 3, 4)]
    asked = LabelHead(cv=2, candidates=[7, 3, 3], covariance=0.25).fit(Y, codes)
    assert list(asked.cv_results_[0]) == [(3, 0.25), (7, 0.25)]
    for candidates in ([], [0, 3], [31]):
        with pytest.raises(ValueError, match=r"candidates=.* give numbers from 1 to 30"):
            LabelHead(cv=2, candidates=candidates).fit(Y, codes)


def test_ties_go_to_the_most_features_and_a_shared_covariance():
    codes = np.arange(80) % 2
    Y = np.column_stack([codes * 100.0, *np.random.default_rng(0).standard_normal((5, 80))])
    head = LabelHead().fit(Y, codes)
    assert set(head.cv_results_[0].values()) == {1.0}
    assert (head.n_used_features_[0], head.covariance_[0]) == (6, 1.0)


def test_mixtures_judged_together_are_those_fitted_one_by_one():
    Y, labels = faces(300)
    new, _ = faces(50, seed=1)
    for label in (labels["age"], labels["gender"]):
        task = label_task.make_task(0, Y, label, label.dtype.kind == "U", np.ones(300), None, None)
        moments = class_moments(Y, task.classes)
        mixtures = np.array([0.0, 0.2, 1.0])
        for k in (1, 4, 6):
            found = posteriors(moments, k, mixtures, new)
            for mixture, one in zip(mixtures, found, strict=True):
                assert_allclose(one, fit_gaussians(moments, k, mixture).posterior(new), atol=1e-10)


@pytest.mark.parametrize(("equal", "n", "expected"), [(True, 120, 1.0), (False, 600, 0.0)])
def test_the_covariance_is_chosen_as_the_classes_are(equal, n, expected):
    rng = np.random.default_rng(0)
    codes = np.arange(n) % 3
    roots = [np.diag(rng.permutation([0.3, 0.3, 1, 1, 1, 1, 3, 3])) for _ in range(3)]
    Y = np.stack([rng.standard_normal(8) @ roots[0 if equal else c] + 0.4 * (c == np.arange(8)) for c in codes])
    head = LabelHead(None).fit(Y, codes)
    assert head.cv_results_[0][8, expected] > head.cv_results_[0][8, 1 - expected]
    assert abs(head.covariance_[0] - expected) <= 0.5


def test_at_most_so_many_samples_are_judged(monkeypatch):
    Y, labels = faces(400)
    judged = []

    def counting(moments, k, mixtures, new):
        judged.append(len(new))
        return posteriors(moments, k, mixtures, new)

    monkeypatch.setattr(label_task, "posteriors", counting)
    monkeypatch.setattr(label_task, "MAX_JUDGED", 100)
    LabelHead(3).fit(Y, labels["gender"])
    assert judged == [20] * 5
    monkeypatch.setattr(label_task, "MAX_PROBABILITIES", 7 * 20 * 4)
    judged.clear()
    LabelHead(3).fit(Y, labels["age"])
    assert judged == [4] * 5


@pytest.mark.parametrize(("n", "groups"), [(1, None), (6, np.zeros(6))])
def test_what_cannot_be_divided_gets_all_features_and_a_shared_covariance(n, groups):
    Y, labels = faces(6)
    head = LabelHead().fit(Y[:n], labels["gender"][:n], groups=groups)
    assert (head.n_used_features_[0], head.covariance_[0], head.cv_results_) == (6, 1.0, {})


def test_units_of_the_features_do_not_matter():
    Y, labels = faces()
    mixing = np.random.default_rng(1).standard_normal((6, 6))
    reference = all_features().fit(Y, labels).predict(Y)
    for changed in (Y * 10.0 ** np.arange(-9, 9, 3), Y @ mixing + 100.0):
        estimate = all_features().fit(changed, labels).predict(changed)
        assert_allclose(estimate["age"], reference["age"], rtol=1e-6)
        assert_array_equal(estimate["gender"], reference["gender"])


def test_constant_and_repeated_features_change_nothing():
    Y, labels = faces()
    padded = np.column_stack([np.full(len(Y), 0.1), Y, Y[:, :2], np.full(len(Y), 1e20), Y.sum(axis=1)])
    plain, head = all_features().fit(Y, labels), all_features().fit(padded, labels)
    assert_allclose(head.predict(padded)["age"], plain.predict(Y)["age"], rtol=1e-8)
    moved = padded.copy()
    moved[:, 0] = 7e299
    assert_array_equal(head.predict(moved)["gender"], head.predict(padded)["gender"])


def test_features_that_are_all_constant_leave_the_priors():
    head = LabelHead().fit(np.ones((10, 2)), ["a"] * 7 + ["b"] * 3)
    assert_allclose(head.predict_proba(np.ones((2, 2))), [[0.7, 0.3]] * 2)
    assert_array_equal(head.predict([[5.0, -1e300]]), ["a"])


def test_a_constant_feature_is_ignored_even_where_its_difference_overflows():
    Y, labels = faces()
    padded = np.column_stack([np.full(len(Y), 1e308), Y])
    head = all_features().fit(padded, labels)
    padded[:, 0] = -1e308
    assert_allclose(head.predict(padded)["age"], all_features().fit(Y, labels).predict(Y)["age"])


@pytest.mark.parametrize("size", [1e3, 1e30, 1e150, 1.7e308])
def test_samples_far_out_get_finite_answers(size):
    Y, labels = faces()
    head = LabelHead().fit(Y, labels)
    far = size * np.array([[1, 0, 0, 0, 0, 0], [-1, 1, -1, 1, -1, 1], [0, 0, 0, 0, 0, 1e-3]])
    estimate = head.predict(far)
    assert np.all((estimate["age"] > 16) & (estimate["age"] < 77))
    for name in labels:
        assert_allclose(head.predict_proba(far, name).sum(axis=1), 1.0)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_every_finite_sample_gets_an_estimate_within_the_range_of_the_label(sample):
    Y, labels = faces(120, 3)
    estimate = LabelHead().fit(Y, labels).predict([sample])
    assert 16 < estimate["age"][0] < 77
    assert estimate["gender"][0] in ("F", "M")


def test_training_on_huge_and_tiny_features_stays_finite():
    Y, labels = faces()
    reference = LabelHead().fit(Y, labels).predict(Y)["age"]
    for factor in (1e-200, 1e200):
        assert_allclose(LabelHead().fit(factor * Y, labels).predict(factor * Y)["age"], reference, rtol=1e-8)


def test_training_on_numbers_that_overflow_is_an_error():
    with pytest.raises(ValueError, match="differences overflow: scale X down"):
        LabelHead().fit([[1.7e308]] * 9 + [[-1.7e308]], [True] * 5 + [False] * 5)


def test_small_and_degenerate_classes_work():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((203, 5))
    label = np.array(["common"] * 100 + ["constant"] * 100 + ["pair"] * 2 + ["single"])
    Y[100:200] = [9.0, 0, 0, 0, 0]
    Y[200:202] += [0, 9, 0, 0, 0]
    Y[202] += [0, 0, 9, 0, 0]
    head = LabelHead().fit(Y, label)
    assert np.all(np.isfinite(head.predict_proba(Y)))
    assert_array_equal(head.predict(Y), label)
    # A small class has about the spread of the others, not that of its few samples.
    assert head.predict([[0.5, 0.5, 9.5, 0.5, 0.5]]) == ["single"]


def test_every_class_a_single_sample_is_still_the_nearest_mean():
    Y = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    head = LabelHead().fit(Y, ["a", "b", "c"])
    assert_array_equal(head.predict(Y + 0.5), ["a", "b", "c"])


def test_missing_labels_are_left_out_label_by_label():
    Y, labels = faces()
    age, gender = labels["age"].copy(), labels["gender"].astype(object)
    age[::3] = np.nan
    gender[1::4] = None
    head = LabelHead().fit(Y, {"age": age, "gender": gender})
    known = ~np.isnan(age)
    assert_allclose(head.predict(Y)["age"], LabelHead().fit(Y[known], age[known]).predict(Y))
    known = gender != np.array(None)
    assert_array_equal(head.predict(Y)["gender"], LabelHead().fit(Y[known], gender[known]).predict(Y))


def test_strings_booleans_and_few_whole_numbers_are_classes_and_keep_their_type():
    Y, labels = faces()
    male = labels["gender"] == "M"
    for label in (
        labels["gender"],
        labels["gender"].astype(object),
        male,
        male.astype(np.int32),
        np.where(male, 3.0, 1),
    ):
        head = LabelHead().fit(Y, label)
        assert not head.is_numeric_[0]
        estimate = head.predict(Y)
        assert estimate.dtype == label.dtype
        assert np.mean(estimate == label) > 0.95
    head = LabelHead().fit(Y, np.where(male, True, None))
    assert head.predict(Y).dtype == bool


def test_many_whole_numbers_are_numeric_and_naming_a_label_makes_it_numeric():
    Y, labels = faces()
    age = labels["age"].astype(int)
    with pytest.warns(UserWarning, match="61 different whole numbers from 16 to 76 were taken as a number"):
        assert LabelHead().fit(Y, age).is_numeric_[0]
    decade = age // 10 * 10
    assert not LabelHead().fit(Y, decade).is_numeric_[0]
    head = LabelHead(n_classes={"decade": 4}).fit(Y, {"decade": decade})
    assert head.is_numeric_["decade"]
    assert len(head.classes_["decade"]) == 4


def test_few_distinct_values_get_a_class_each():
    Y, labels = faces()
    middle = labels["age"] // 10 * 10 + 4.5
    head = all_features().fit(Y, middle)
    assert head.is_numeric_[0]
    assert_array_equal(head.classes_, np.unique(middle))
    assert_allclose(head.predict(Y), direct_posterior(Y, plain_members(middle), Y) @ np.unique(middle), rtol=1e-9)
    as_many = LabelHead(n_classes=len(np.unique(middle))).fit(Y, middle)
    assert_array_equal(as_many.classes_, np.unique(middle))


def test_number_of_classes_is_39_or_what_the_samples_allow():
    Y, labels = faces(1000)
    assert len(LabelHead().fit(Y, labels).classes_["age"]) == 39
    assert len(LabelHead().fit(Y[:100], labels["age"][:100]).classes_) == 5
    head = LabelHead(n_classes=7).fit(Y, labels)
    assert (len(head.classes_["age"]), len(head.classes_["gender"])) == (7, 2)


def test_integer_keeps_the_integer_part():
    Y, labels = faces()
    soft = LabelHead().fit(Y, labels).predict(Y)["age"]
    whole = LabelHead(integer=True).fit(Y, labels).predict(Y)["age"]
    assert whole.dtype == np.int64
    assert_array_equal(whole, np.floor(soft))
    only = LabelHead(integer={"age": False}).fit(Y, labels).predict(Y)["age"]
    assert_allclose(only, soft)


def test_the_integer_part_of_negative_estimates_is_not_above_them():
    rng = np.random.default_rng(0)
    label = rng.uniform(-10, 10, 800)
    Y = np.column_stack([label + rng.standard_normal(800), rng.standard_normal(800)])
    soft = LabelHead().fit(Y, label).predict(Y)
    whole = LabelHead(integer=True).fit(Y, label).predict(Y)
    assert (soft < 0).sum() > 100
    assert_array_equal(whole, np.floor(soft))
    # As scores compare integer parts, neither sign is favoured.
    error = whole - np.floor(label)
    assert abs(error[label < 0].mean() + error[label > 0].mean()) < 0.3


def test_a_pandas_categorical_is_classes_however_many_numbers_it_holds():
    rng = np.random.default_rng(0)
    values = np.arange(600) % 30
    Y = np.column_stack([np.cos(values * 0.2), np.sin(values * 0.2)]) + 0.01 * rng.standard_normal((600, 2))
    for y in (pd.Categorical(values), pd.Series(values).astype("category"), {"k": pd.Categorical(values)}):
        head = LabelHead().fit(Y, y)
        name = head.label_names_[0]
        assert not head.is_numeric_[name]
        assert head.label_classes_[name].tolist() == list(range(30))
        found = head.predict(Y)
        found = found["k"] if isinstance(found, dict) else found
        assert found.dtype == np.int64
        assert_array_equal(found, values)
    assert LabelHead(label_kinds="numeric").fit(Y, values).is_numeric_[0]
    asked = LabelHead(n_classes={"k": 5}).fit(Y, {"k": pd.Categorical(values)})
    assert asked.is_numeric_["k"]


def test_numbers_and_texts_are_not_classes_of_one_label():
    Y = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(ValueError, match="numbers such as 1 and texts such as '1'"):
        LabelHead().fit(Y, np.array([1, "1"] * 20, dtype=object))


def test_integer_part_of_a_certain_label_is_not_rounded_down():
    rng = np.random.default_rng(0)
    for n_certain in range(3, 16):  # so many classes of age 18, whose probabilities add up to about 1
        label = np.r_[np.full(50 * n_certain, 18.0), 40.5 + np.arange(100)]
        Y = rng.standard_normal((len(label), 2)) + 50.0 * (label > 18)[:, None]
        head = all_features(n_classes=n_certain + 2, integer=True).fit(Y, label)
        assert_array_equal(head.predict(Y[label == 18]), 18)


def test_cross_validation_picks_the_informative_features():
    Y, labels = faces(400, 30)
    head = LabelHead("cv", candidates=[1, 2, 3, 10, 30]).fit(Y, labels)
    assert head.n_used_features_["gender"] >= 3
    assert head.n_used_features_["age"] in (2, 3)
    assert {k for k, _ in head.cv_results_["age"]} == {1, 2, 3, 10, 30}
    mixed = LabelHead({"gender": 4}, covariance={"gender": 0.5}).fit(Y, labels)
    assert mixed.n_used_features_["gender"] == 4
    assert list(mixed.cv_results_) == ["age"]
    assert mixed.n_used_features_["age"] < 10


@pytest.mark.parametrize("covariance", ["separate", "auto"])
def test_cross_validation_scores_are_those_of_refitted_heads(covariance):
    Y, labels = faces(300)
    folds = KFold(3, shuffle=True, random_state=1)
    gender = labels["gender"]
    head = LabelHead("cv", cv=folds, candidates=[2, 5], covariance=covariance).fit(Y, gender)
    for (k, mixture), score in head.cv_results_[0].items():
        hits = [
            np.sum(LabelHead(k, covariance=mixture).fit(Y[train], gender[train]).predict(Y[test]) == gender[test])
            for train, test in folds.split(Y)
        ]
        assert_allclose(score, sum(hits) / len(Y))
    listed = LabelHead("cv", cv=list(folds.split(Y)), candidates=[2, 5], covariance=covariance).fit(Y, gender)
    assert listed.cv_results_ == head.cv_results_


def test_listed_splits_refer_to_all_rows_also_where_labels_are_missing():
    Y, labels = faces(300)
    age = labels["age"].copy()
    age[:100] = np.nan
    splits = list(KFold(3, shuffle=True, random_state=1).split(Y))
    known = np.flatnonzero(~np.isnan(age))
    renumbered = [tuple(np.flatnonzero(np.isin(known, rows)) for rows in split) for split in splits]
    head = LabelHead("cv", 8, cv=splits).fit(Y, age)
    assert_allclose(
        list(head.cv_results_[0].values()),
        list(LabelHead("cv", 8, cv=renumbered).fit(Y[known], age[known]).cv_results_[0].values()),
    )


def test_groups_stay_together_in_cross_validation():
    rng = np.random.default_rng(0)
    noise, codes = rng.standard_normal((40, 10)), rng.integers(0, 2, 40)
    copies = np.repeat(np.arange(40), 3)
    divided = LabelHead(covariance="separate").fit(noise[copies], codes[copies])
    together = LabelHead(covariance="separate").fit(noise[copies], codes[copies], groups=copies)
    assert max(divided.cv_results_[0].values()) > 0.8  # copies are remembered
    assert max(together.cv_results_[0].values()) < 0.7
    for train, test in label_task.find_folds(
        5, label_task.make_task(0, noise[copies], codes[copies], True, np.ones(120), copies, None)
    ):
        assert not set(copies[train]) & set(copies[test])


def test_weights_are_copies_that_stay_together():
    Y, labels = faces(200)
    w = np.random.default_rng(0).integers(0, 3, 200)
    rows = np.repeat(np.arange(200), w)
    for name in labels:
        weighted = LabelHead().fit(Y, labels[name], sample_weight=w)
        copied = LabelHead().fit(Y[rows], labels[name][rows], groups=rows)
        assert weighted.covariance_ == copied.covariance_
        assert_allclose(list(weighted.cv_results_[0].values()), list(copied.cv_results_[0].values()), rtol=1e-9)


def test_sample_weight_counts_copies():
    Y, labels = faces(300)
    w = np.random.default_rng(0).integers(0, 3, 300)
    repeated = np.repeat(np.arange(300), w)
    head = all_features().fit(Y, labels, sample_weight=w)
    copies = all_features().fit(Y[repeated], {name: label[repeated] for name, label in labels.items()})
    for name in labels:
        assert_allclose(head.predict_proba(Y, name), copies.predict_proba(Y, name), atol=1e-9)


def test_regressors_replace_the_gaussians():
    Y, labels = faces()
    head = LabelHead(3, regressor={"age": KNeighborsRegressor(7), "gender": LogisticRegression()}).fit(Y, labels)
    assert_allclose(head.predict(Y)["age"], KNeighborsRegressor(7).fit(Y[:, :3], labels["age"]).predict(Y[:, :3]))
    logistic = LogisticRegression().fit(Y[:, :3], labels["gender"])
    assert_array_equal(head.predict(Y)["gender"], logistic.predict(Y[:, :3]))
    assert_allclose(head.predict_proba(Y, "gender"), logistic.predict_proba(Y[:, :3]), rtol=1e-6)
    mixed = LabelHead(None, regressor={"age": LinearRegression()}, integer=True).fit(Y, labels)
    linear = LinearRegression().fit(Y, labels["age"]).predict(Y)
    assert_array_equal(mixed.predict(Y)["age"], np.floor(linear))
    assert_allclose(mixed.predict_proba(Y, "gender"), LabelHead(None).fit(Y, labels).predict_proba(Y, "gender"))


def test_regressors_take_part_in_cross_validation_and_get_weights():
    Y, labels = faces(200, 12)
    head = LabelHead("cv", regressor={"age": KNeighborsRegressor(), "gender": KNeighborsClassifier()})
    head.fit(Y, labels)
    assert head.n_used_features_["age"] <= 4
    assert 3 <= head.n_used_features_["gender"] < 12
    given = {"age": LinearRegression(), "gender": LogisticRegression()}
    fitted = LabelHead(None, regressor=given).fit(Y, labels)
    assert not any(hasattr(model, "coef_") for model in given.values())  # copies are fitted, not what was given
    assert all(hasattr(model, "coef_") for model in fitted.models_.values())
    w = np.r_[np.ones(100), np.zeros(100)]
    weighted = LabelHead(None, regressor=LinearRegression()).fit(Y, labels["age"], sample_weight=w)
    assert_allclose(weighted.predict(Y), LinearRegression().fit(Y[:100], labels["age"][:100]).predict(Y))


def test_output_has_the_form_of_the_labels():
    Y, labels = faces()
    as_dict = LabelHead().fit(Y, labels).predict(Y)
    assert list(as_dict) == ["age", "gender"]
    frame = pd.DataFrame(labels, index=np.arange(len(Y)) + 5)
    out = LabelHead().fit(Y, frame).predict(pd.DataFrame(Y[:9], index=list("abcdefghi")).to_numpy())
    assert list(out.columns) == ["age", "gender"]
    assert_allclose(out["age"], as_dict["age"][:9])
    names = [f"slow{j}" for j in range(6)]
    X = pd.DataFrame(Y, columns=names, index=frame.index)
    out = LabelHead().fit(X, frame).predict(X[:4])
    assert list(out.index) == [5, 6, 7, 8]
    assert list(LabelHead().fit(X, frame).feature_names_in_) == names
    series = LabelHead().fit(X, frame["age"]).predict(X)
    assert_allclose(series, as_dict["age"])
    table = all_features().fit(Y, np.column_stack([labels["age"], labels["age"] / 2])).predict(Y)
    assert table.shape == (600, 2)
    assert_allclose(table[:, 1], table[:, 0] / 2)


def test_nullable_pandas_columns_work():
    Y, labels = faces()
    frame = pd.DataFrame(
        {
            "male": pd.array(labels["gender"] == "M", dtype="boolean"),
            "gender": pd.Categorical(labels["gender"]),
            "age": pd.array(labels["age"].astype(int), dtype="Int64"),
        }
    )
    frame.loc[:50, "male"] = pd.NA
    frame.loc[:30, "age"] = pd.NA
    out = LabelHead(label_kinds={"age": "numeric"}).fit(Y, frame).predict(Y)
    assert np.mean(out["male"] == (labels["gender"] == "M")) > 0.95
    assert np.mean(out["gender"] == labels["gender"]) > 0.95
    assert np.mean(np.abs(out["age"] - labels["age"])) < 8


def test_pipeline_grid_search_and_clone_work():
    Y, labels = faces(300)
    model = make_pipeline(GSFA(n_components=4), LabelHead()).fit(Y, labels)
    assert set(model.predict(Y)) == {"age", "gender"}
    head = LabelHead({"age": 5}, regressor={"age": LinearRegression()})
    assert clone(head).get_params()["n_used_features"] == {"age": 5}
    search = GridSearchCV(LabelHead(), {"n_used_features": [1, 6]}, scoring="accuracy", cv=3).fit(Y, labels["gender"])
    assert search.best_params_ == {"n_used_features": 6}


def test_a_failed_fit_leaves_the_head_as_it_was():
    Y, labels = faces()
    head = LabelHead().fit(Y, labels)
    before = head.predict(Y)["age"]
    with pytest.raises(ValueError, match="700 values"):
        head.fit(Y, {"gender": labels["gender"], "age": np.zeros(700)})
    assert_array_equal(head.predict(Y)["age"], before)


@pytest.mark.parametrize(
    ("parameters", "labels", "message"),
    [
        ({"n_used_features": 7}, None, r"n_used_features=7 for label 'age'.*from 1 to 6"),
        ({"n_used_features": {"age": 0}}, None, r"n_used_features=0 for label 'age'"),
        ({"n_used_features": {"age": 2.5}}, None, r"n_used_features=2.5 for label 'age'"),
        ({"n_used_features": {"agee": 2}}, None, r"n_used_features names labels \['agee'\].*\['age', 'gender'\]"),
        ({"n_used_features": "all"}, None, r"'n_used_features' parameter"),
        ({"n_classes": {"gender": 3}}, None, r"n_classes=.* names label 'gender'.* leave this one out"),
        ({"n_classes": 1000}, None, r"n_classes=1000 for label 'age'.*600 samples"),
        ({"n_classes": {"age": 0}}, None, r"n_classes=0 for label 'age'"),
        ({"regressor": LinearRegression()}, None, r"regressor: label 'gender' is categorical and needs a classifier"),
        ({"regressor": LogisticRegression()}, None, r"regressor: label 'age' is numeric and needs a regressor"),
        ({"covariance": 2.0}, None, r"'covariance' parameter"),
        ({"covariance": {"age": "full"}}, None, r"covariance='full' for label 'age'"),
        ({"covariance": {"agee": 0.5}}, None, r"covariance names labels \['agee'\]"),
        ({"n_used_features": "cv", "candidates": [3, 9]}, None, r"candidates=\[3, 9\].*from 1 to 6"),
        ({}, {"age": np.full(600, np.nan)}, r"all values of label 'age' are missing"),
        ({}, {"age": np.zeros(5)}, r"label 'age' has 5 values for 600 samples"),
        ({}, {}, r"requires y"),
        ({"integer": True}, {"age": np.linspace(1e17, 2e17, 600)}, r"integer: label 'age' has values beyond"),
        ({"covariance": "full"}, None, r"'covariance' parameter"),
        ({}, {"age": np.r_[np.inf, np.arange(599.0)]}, r"infinite"),
    ],
)
def test_mistakes_are_named(parameters, labels, message):
    Y, good = faces()
    with pytest.raises(ValueError, match=message):
        LabelHead(**parameters).fit(Y, good if labels is None else labels)


def test_mistakes_when_predicting_are_named():
    Y, labels = faces()
    with pytest.raises(NotFittedError):
        LabelHead().predict(Y)
    head = LabelHead(regressor={"gender": LinearSVC()}).fit(Y, labels)
    with pytest.raises(ValueError, match=r"label='race' is not one of .*\['age', 'gender'\]"):
        head.predict_proba(Y, "race")
    with pytest.raises(ValueError, match=r"label=None"):
        head.predict_proba(Y)
    with pytest.raises(ValueError, match=r"LinearSVC has no predict_proba"):
        head.predict_proba(Y, "gender")
    with pytest.raises(ValueError, match=r"6 features"):
        head.predict(Y[:, :3])
    with pytest.raises(ValueError, match=r"sample_weight: KNeighborsRegressor"):
        LabelHead(regressor=KNeighborsRegressor()).fit(Y, labels["age"], sample_weight=np.ones(600))


# ---------------------------------------------------------------------------------------------- scikit-learn's tools


def test_classifiers_work_in_the_tools_of_scikit_learn():
    X, y = load_wine(return_X_y=True)
    assert is_classifier(LabelClassifier())
    assert is_regressor(LabelRegressor())
    pipeline = make_pipeline(GSFA(2), LabelClassifier())
    assert isinstance(check_cv(3, y, classifier=is_classifier(pipeline)), StratifiedKFold)
    model = LabelClassifier(covariance="shared").fit(X, y)
    assert_array_equal(model.classes_, [0, 1, 2])
    expected = LinearDiscriminantAnalysis().fit(X[:, : model.n_used_features_[0]], y)
    assert np.mean(model.predict(X) == expected.predict(X[:, : model.n_used_features_[0]])) > 0.98
    assert cross_val_score(LabelClassifier(), X, y).mean() > 0.95
    search = GridSearchCV(LabelClassifier(), {"covariance": ["shared", "separate"]}, cv=3).fit(X, y)
    assert search.score(X, y) > 0.95
    voting = VotingClassifier([("a", LabelClassifier(None)), ("b", GaussianNB())], voting="soft").fit(X, y)
    assert_allclose(
        voting.predict_proba(X), (voting.estimators_[0].predict_proba(X) + voting.estimators_[1].predict_proba(X)) / 2
    )
    calibrated = CalibratedClassifierCV(LabelClassifier(), cv=3).fit(X, y)
    assert calibrated.score(X, y) > 0.95
    assert pipeline.fit(X, y).score(X, y) > 0.95
    names = np.array(["a", "b", "c"])[y]
    assert cross_val_score(pipeline, X, names).mean() > 0.95


def test_regressors_work_in_the_tools_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    assert cross_val_score(LabelRegressor(), X, y).mean() > 0.4
    assert cross_val_score(LabelRegressor(), X, y, scoring="neg_mean_absolute_error").mean() > -50
    voting = VotingRegressor([("a", LabelRegressor()), ("b", LinearRegression())]).fit(X, y)
    assert voting.score(X, y) > 0.45
    assert not hasattr(LabelRegressor().fit(X, y), "predict_proba")


def test_a_classifier_takes_all_values_for_classes_and_a_regressor_for_numbers():
    rng = np.random.default_rng(0)
    signs = np.arange(860) % 43
    Y = rng.standard_normal((860, 5)) + 4 * rng.standard_normal((43, 5))[signs]
    model = LabelClassifier().fit(Y, signs.astype(np.int16))
    assert model.classes_.dtype == np.int16
    assert model.predict(Y).dtype == np.int16
    assert model.predict_proba(Y).shape == (860, 43)
    assert model.score(Y, signs) == np.mean(model.predict(Y) == signs) > 0.9
    binary = LabelRegressor().fit(Y, signs % 2)
    assert_allclose(binary.predict(Y), LabelHead(n_classes={0: 2}).fit(Y, signs % 2).predict(Y))
    with pytest.raises(ValueError, match="Unknown label type"):
        LabelClassifier().fit(Y, Y[:, 0])


def test_a_fitted_head_of_one_label_says_what_it_is():
    Y, labels = faces(200)
    assert not is_classifier(LabelHead())
    assert is_classifier(LabelHead().fit(Y, labels["gender"]))
    assert is_regressor(LabelHead().fit(Y, labels["age"]))
    several = LabelHead().fit(Y, labels)
    assert not is_classifier(several)
    assert not is_regressor(several)
    assert_array_equal(LabelHead().fit(Y, labels["gender"]).classes_, ["F", "M"])
    assert list(several.classes_) == ["age", "gender"]


def test_scores_are_rates_and_r2_and_their_mean():
    Y, labels = faces(400)
    w = np.random.default_rng(0).integers(0, 3, 400)
    for weight in (None, w):
        head = LabelHead().fit(Y, labels)
        found = head.predict(Y)
        rate = accuracy_score(labels["gender"], found["gender"], sample_weight=weight)
        r2 = r2_score(labels["age"], found["age"], sample_weight=weight)
        assert_allclose(head.score(Y, labels, weight), (rate + r2) / 2)
        assert_allclose(head.score(Y, pd.DataFrame(labels), weight), (rate + r2) / 2)
    gender = labels["gender"].astype(object)
    alone = LabelHead().fit(Y, gender)
    assert_allclose(alone.score(Y, gender), np.mean(alone.predict(Y) == gender))
    gender[::2] = None
    assert_allclose(alone.score(Y, gender), np.mean(alone.predict(Y)[1::2] == gender[1::2]))
    with pytest.raises(ValueError, match="no score"):
        alone.score(Y, np.full(400, None))
    table = np.column_stack([labels["gender"] == "M", labels["age"] > 40]).astype(np.int16)
    assert cross_val_score(LabelHead(), Y, table, cv=3).min() > 0.8


@pytest.mark.filterwarnings("ignore:.*columns look like one label")
def test_integer_classes_come_back_as_integers_in_whatever_form():
    Y, labels = faces(200)
    male = (labels["gender"] == "M").astype(np.int16)
    for table in (np.column_stack([male, 1 - male]), pd.DataFrame({"a": male, "b": 1 - male}), {"a": male, "b": male}):
        found = LabelHead(covariance="shared").fit(Y, table).predict(Y)
        columns = found.T if isinstance(found, np.ndarray) else [np.asarray(found[name]) for name in ("a", "b")]
        assert [column.dtype for column in columns] == [np.int16, np.int16]
    nullable = pd.DataFrame({"a": pd.array(male, dtype="Int64")})
    nullable.loc[:9, "a"] = pd.NA
    assert LabelHead().fit(Y, nullable).predict(Y)["a"].dtype == np.int64
    huge = np.array([2**70, 3], dtype=object)[male]
    assert set(LabelHead().fit(Y, pd.Categorical(huge)).predict(Y)) == {2**70, 3}
