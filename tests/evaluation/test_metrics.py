"""Metrics against their definitions, written as loops."""

from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import accuracy_score, mean_absolute_error

from higsfa import metrics
from higsfa.graphs import ClusteredGraph, SerialGraph


def estimates(n=200, seed=0):
    rng = np.random.default_rng(seed)
    true = rng.integers(16, 60, n)
    return true, true + rng.integers(-9, 10, n)


def all_orders(label):
    """Every order of the rows in which the label increases."""
    values = np.unique(label)
    orders = [[]]
    for value in values:
        rows = np.flatnonzero(label == value)
        orders = [[*order, *tied] for order in orders for tied in permutations(rows)]
    return orders


@given(st.lists(st.integers(0, 3), min_size=2, max_size=7), st.integers(0, 99))
def test_label_ordered_delta_is_the_mean_over_all_orders_of_tied_samples(label, seed):
    Y = np.random.default_rng(seed).standard_normal((len(label), 2)) * [1e-3, 1e3] + [1.0, 500.0]
    Z = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    expected = np.mean(
        [
            [sum((Z[b, j] - Z[a, j]) ** 2 for a, b in pairwise(order)) for j in range(2)]
            for order in all_orders(np.array(label))
        ],
        axis=0,
    ) / (len(label) - 1)
    assert_allclose(metrics.label_ordered_delta(Y, label), expected, rtol=1e-9)


def test_label_ordered_delta_without_ties_is_the_papers_formula():
    rng = np.random.default_rng(0)
    Y, label = rng.standard_normal((50, 3)), rng.permutation(50) / 7
    y = (Y / Y.std(axis=0))[np.argsort(label)]
    expected = [sum((y[n + 1, j] - y[n, j]) ** 2 for n in range(49)) / 49 for j in range(3)]
    assert_allclose(metrics.label_ordered_delta(Y, label), expected)
    shuffled = rng.permutation(50)
    assert_allclose(metrics.label_ordered_delta(Y[shuffled], label[shuffled]), expected)


def test_label_ordered_delta_of_noise_is_two_and_of_a_constant_nan():
    rng = np.random.default_rng(0)
    Y = np.column_stack([rng.standard_normal(20_000), np.full(20_000, 0.1)])
    noise, constant = metrics.label_ordered_delta(Y, rng.integers(16, 77, 20_000))
    assert noise == pytest.approx(2.0, abs=0.05)
    assert np.isnan(constant)


def test_label_ordered_delta_leaves_missing_labels_out():
    rng = np.random.default_rng(0)
    Y, label = rng.standard_normal(30), rng.standard_normal(30)
    label[5:9] = np.nan
    known = ~np.isnan(label)
    assert_allclose(metrics.label_ordered_delta(Y, label), metrics.label_ordered_delta(Y[known], label[known]))


def test_delta_values_are_weighted_sums_over_all_edges():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 20)
    Y = rng.standard_normal((20, 2))
    graph = ClusteredGraph().build(label)
    v, gamma = graph.vertex_weights, graph.to_sparse().toarray()
    expected = []
    for y in Y.T:
        y = y - v @ y / v.sum()
        y = y / np.sqrt(v @ y**2 / v.sum())
        expected.append(sum(gamma[a, b] * (y[a] - y[b]) ** 2 for a in range(20) for b in range(20)) / gamma.sum())
    assert_allclose(metrics.delta_values(Y, graph=graph), expected)
    assert_allclose(metrics.delta_values(Y, label, graph="clustered"), expected)
    assert_allclose(metrics.delta_values(Y, label), expected)
    both = SerialGraph("age", n_groups=3) + ClusteredGraph("sex")
    labels = {"age": rng.standard_normal(20), "sex": label}
    assert_allclose(metrics.delta_values(Y, labels, graph=both), both.build(labels).delta(Y))
    weight = rng.integers(1, 4, 20)
    copies = np.repeat(np.arange(20), weight)
    assert_allclose(
        metrics.delta_values(Y, label, graph="clustered", sample_weight=weight),
        metrics.delta_values(Y[copies], label[copies], graph="clustered"),
    )


def test_delta_values_in_time_do_not_cross_recordings():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.standard_normal(30), rng.standard_normal(20) + 100])
    z = (y - y.mean()) / y.std()
    steps = np.delete(np.diff(z), 29)
    assert_allclose(metrics.delta_values(y, graph="sequence", groups=np.repeat([0, 1], [30, 20])), np.mean(steps**2))
    assert_allclose(metrics.delta_values(y, graph="sequence"), np.mean(np.diff(z) ** 2))


def test_errors_are_means_over_samples():
    true, pred = estimates()
    n = len(true)
    assert metrics.mean_absolute_error(true, pred) == pytest.approx(
        sum(abs(int(p) - int(t)) for t, p in zip(true, pred, strict=True)) / n
    )
    assert metrics.root_mean_squared_error(true, pred) == pytest.approx(
        (sum((int(p) - int(t)) ** 2 for t, p in zip(true, pred, strict=True)) / n) ** 0.5
    )


def test_numbers_are_plain():
    """They go into reports and messages, where np.float64(1.0) has no place."""
    true, pred = estimates()
    X = np.eye(3)
    for value in (
        metrics.mean_absolute_error(true, pred),
        metrics.root_mean_squared_error(true, pred),
        metrics.cumulative_score(true, pred, 5),
        metrics.classification_rate(true, pred),
        *(metrics.chance_level(true, metric) for metric in ("mae", "rmse", "cr")),
        *metrics.mean_and_standard_error([1.0, 2.0]),
        *metrics.mean_and_standard_error(np.ones(1)),
        metrics.reconstruction_error(X, 2 * X),
        (metrics.ReconstructionSums.of(X, X + 1) + metrics.ReconstructionSums.of(X, X)).error(mean=[0, 0, 1]),
    ):
        assert type(value) is float


def test_unsigned_labels_do_not_wrap_around():
    assert metrics.mean_absolute_error(np.array([3], dtype=np.uint8), np.array([5], dtype=np.uint8)) == 2
    assert metrics.cumulative_score(np.array([5], dtype=np.uint8), np.array([3], dtype=np.uint8), 2) == 1.0


def test_cumulative_score_counts_errors_up_to_and_including_the_threshold():
    true, pred = estimates()
    thresholds = [0, 1, 2.5, 5, 100]
    expected = [sum(abs(p - t) <= limit for t, p in zip(true, pred, strict=True)) / len(true) for limit in thresholds]
    assert_allclose(metrics.cumulative_score(true, pred, thresholds), expected)
    assert metrics.cumulative_score(true, pred, 5) == expected[3]
    assert len(metrics.cumulative_score(true, pred)) == len(metrics.PAPER_THRESHOLDS) == 22


def test_classification_rate_and_mae_are_those_of_scikit_learn_where_no_label_is_missing():
    rng = np.random.default_rng(0)
    true, pred = rng.choice(list("abc"), (2, 57))
    assert metrics.classification_rate(true, pred) == accuracy_score(true, pred)
    true, pred = estimates()
    assert metrics.mean_absolute_error(true, pred) == mean_absolute_error(true, pred)


def test_numbers_and_names_of_classes_are_not_compared():
    with pytest.raises(ValueError, match="all numbers or all texts"):
        metrics.classification_rate([1, 2], ["1", "2"])


def test_classification_rate_counts_hits_whatever_the_types():
    true = ["a", "b", "b", "c"]
    assert metrics.classification_rate(true, np.array(["a", "b", "c", "c"], dtype=object)) == 0.75
    assert metrics.classification_rate(np.array([True, False]), pd.array([True, True], dtype="boolean")) == 0.5
    assert metrics.classification_rate([0, 1, 1], [0.0, 1.0, 0.0]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_a_missing_estimate_of_a_class_is_wrong(nothing):
    assert metrics.classification_rate(["a", "b"], pd.array(["a", nothing], dtype="string")) == 0.5
    assert metrics.classification_rate(["a", "b", None], np.array([nothing, "b", nothing], dtype=object)) == 0.5


def test_missing_true_labels_are_left_out():
    assert metrics.mean_absolute_error([20, np.nan, 30], [21, 99, 33]) == 2
    assert metrics.mean_absolute_error(pd.Series([20, pd.NA, 30], dtype="Int64"), [21, 99, 33]) == 2
    assert metrics.classification_rate(["a", None, "b"], ["a", "a", "a"]) == 0.5


@pytest.mark.parametrize("metric", ["mae", "rmse"])
def test_chance_level_is_the_best_of_all_constants(metric):
    true, _ = estimates()
    measure = metrics.mean_absolute_error if metric == "mae" else metrics.root_mean_squared_error
    constants = np.append(np.linspace(10, 70, 2401), [np.mean(true), np.median(true)])
    best = min(measure(true, np.full(len(true), constant)) for constant in constants)
    assert metrics.chance_level(true, metric) == pytest.approx(best, abs=1e-12)


def test_chance_level_of_classes_is_the_share_of_the_most_frequent():
    assert metrics.chance_level(["m", "f", "m", "m", None], "cr") == 0.75
    assert metrics.chance_level([3, 3, 1, 2], "cr") == 0.5


def test_chance_levels_of_gender_and_race_in_the_papers_table():
    # Composition of S1-test = S2 + S3, from the paper. Its race figure counts B against W.
    male, female = 3980 + 28872 + 3980 + 1 + 141 + 1667 + 44, 1285 + 3187 + 1285 + 28 + 13 + 102 + 19
    gender = np.repeat(["M", "F"], [male, female])
    assert metrics.chance_level(gender, "cr") == pytest.approx(0.8673, abs=5e-5)
    race = np.repeat(["B", "W"], [3980 + 28872 + 1285 + 3187, 3980 + 1 + 1285 + 28])
    assert metrics.chance_level(race, "cr") == pytest.approx(0.8758, abs=5e-5)


def test_reconstruction_error_is_the_papers_ratio(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((23, 4, 3)) + 1000
    X_hat = X + 0.3 * rng.standard_normal(X.shape)
    flat, mean = X.reshape(23, -1), X.reshape(23, -1).mean(axis=0)
    above = sum(np.sum((x - x_hat) ** 2) for x, x_hat in zip(X, X_hat, strict=True))
    expected = above / sum(np.sum((x - mean) ** 2) for x in flat)
    for block in (1, 40, 10**6):
        monkeypatch.setattr("higsfa.evaluation.metrics.BLOCK_VALUES", block)
        assert metrics.reconstruction_error(X, X_hat) == pytest.approx(expected, rel=1e-12)
        assert metrics.reconstruction_error(flat, lambda block: block + 0.0) == 0
    assert metrics.reconstruction_error(X, X_hat.reshape(23, -1)) == pytest.approx(expected)
    other = mean + 1
    expected = above / sum(np.sum((x - other) ** 2) for x in flat)
    assert metrics.reconstruction_error(X, X_hat, mean=other) == pytest.approx(expected)


def test_a_single_sample_is_measured_against_a_given_mean():
    assert metrics.reconstruction_error([[1.0, 2.0]], [[1.0, 3.0]], mean=[0.0, 0.0]) == 1 / 5
    with pytest.raises(ValueError, match="all samples are equal"):
        metrics.reconstruction_error([[1.0, 2.0]], [[1.0, 3.0]])


def test_reconstruction_error_of_bytes_does_not_wrap_around():
    X = np.array([[0, 255], [255, 0]], dtype=np.uint8)
    assert metrics.reconstruction_error(X, X[::-1]) == 4


def test_reconstruction_sums_add_in_any_order():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5))
    X_hat = X + rng.standard_normal(X.shape)
    parts = [metrics.ReconstructionSums.of(X[i : i + n], X_hat[i : i + n]) for i, n in ((0, 1), (1, 20), (21, 9))]
    for a, b, c in permutations(parts):
        assert (a + (b + c)).error() == pytest.approx(metrics.reconstruction_error(X, X_hat), rel=1e-12)


def test_reconstruction_error_reads_a_memmap_in_blocks(tmp_path):
    X = np.random.default_rng(0).standard_normal((100, 7))
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert metrics.reconstruction_error(mapped, X * 0.9) == pytest.approx(metrics.reconstruction_error(X, X * 0.9))


def test_error_by_label_is_a_mean_over_each_label():
    true, pred = estimates()
    curve = metrics.error_by_label(true, pred)
    assert_array_equal(curve.label, np.unique(true))
    for value, estimate, mae, count in zip(*curve, strict=True):
        some = pred[true == value]
        assert (estimate, mae, count) == pytest.approx((some.mean(), np.abs(some - value).mean(), len(some)))


def test_error_by_label_groups_fractions_by_year_or_by_bins():
    true, pred = np.array([20.2, 20.8, 21.0, 35.0]), np.array([21.0, 21.0, 21.0, 30.0])
    assert_array_equal(metrics.error_by_label(true, pred).n_samples, [2, 1, 1])
    assert_allclose(metrics.error_by_label(true, pred).label, [20.5, 21, 35])
    two = metrics.error_by_label(true, pred, bins=2)
    assert_array_equal(two.n_samples, [3, 1])
    edges = metrics.error_by_label(true, pred, bins=[20.5, 21, 35])
    assert_array_equal(edges.n_samples, [1, 2])
    assert_allclose(edges.label, [20.8, 28.0])
    assert_allclose(edges.mean_estimate, [21.0, 25.5])
    assert_allclose(edges.mae, [0.2, 2.5])
    assert metrics.error_by_label(true, pred, bins=[30, 40, 50]).n_samples.tolist() == [1]
    assert metrics.error_by_label([-0.5, -1.0, 0.5], [0, 0, 0]).n_samples.tolist() == [2, 1]  # floor, not truncation


def test_standard_error_of_two_runs_is_half_their_difference():
    assert metrics.mean_and_standard_error([3.489, 3.505]) == pytest.approx((3.497, 0.008))
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    mean = sum(values) / 5
    error = (sum((v - mean) ** 2 for v in values) / 4 / 5) ** 0.5
    assert metrics.mean_and_standard_error(values) == pytest.approx((mean, error))
    assert np.isnan(metrics.mean_and_standard_error([1.0])[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.mean_absolute_error([1, 2], [1]), "y_pred has 1 values for the 2"),
        (lambda: metrics.mean_absolute_error([[1, 2]], [[1, 2]]), r"y_true must have one value per sample.*\(1, 2\)"),
        (lambda: metrics.mean_absolute_error([1, 2], [1, np.nan]), "NaN or infinite"),
        (lambda: metrics.mean_absolute_error(["a"], ["b"]), "'a' and .*must be numbers; use classification_rate"),
        (lambda: metrics.mean_absolute_error([], []), "no label"),
        (lambda: metrics.mean_absolute_error([np.nan], [1]), "no label"),
        (lambda: metrics.cumulative_score([1], [1], -1), "thresholds=-1"),
        (lambda: metrics.chance_level([1, 2], "mse"), "metric='mse' is unknown"),
        (lambda: metrics.chance_level([None], "cr"), "no label"),
        (lambda: metrics.label_ordered_delta([1.0, 2.0], [1, 2, 3]), "3 values for 2 samples"),
        (lambda: metrics.label_ordered_delta([1.0, 2.0], [1, np.nan]), "at least two"),
        (lambda: metrics.label_ordered_delta([1.0, np.nan], [1, 2]), "NaN"),
        (lambda: metrics.delta_values([[1.0], [2.0]]), "SequenceGraph"),
        (lambda: metrics.reconstruction_error(np.ones((3, 2)), np.ones((2, 2))), "2 reconstructions for 3 samples"),
        (lambda: metrics.reconstruction_error(np.ones((3, 2)), np.ones((3, 4))), r"X_hat has shape \(3, 4\)"),
        (lambda: metrics.reconstruction_error(np.ones((3, 2)), np.ones((3, 2))), "all samples are equal"),
        (lambda: metrics.reconstruction_error(np.ones(3), np.ones(3)), r"shape \(3,\)"),
        (lambda: metrics.reconstruction_error(np.eye(2), np.eye(2), mean=[0]), "mean has 1 values"),
        (lambda: metrics.error_by_label([1, 2], [1, 2], bins=[3]), r"bins=\[3\]"),
        (lambda: metrics.error_by_label([1, 2], [1, 2], bins=[1, 1, 2]), "increasing edges"),
        (lambda: metrics.error_by_label([1, 2], [1, 2], bins=[[1, 2]]), "increasing edges"),
        (lambda: metrics.cumulative_score([1], [1], [1, np.nan]), "thresholds="),
        (lambda: metrics.mean_absolute_error([1, np.inf], [1, 2]), "NaN or infinite"),
        (lambda: metrics.reconstruction_error(np.ones((0, 3)), np.ones((0, 3))), r"shape \(0, 3\)"),
        (lambda: metrics.error_by_label([1, 2], [1, 2], bins=[3, 4]), "no label lies in them"),
        (lambda: metrics.mean_and_standard_error([]), "empty"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
