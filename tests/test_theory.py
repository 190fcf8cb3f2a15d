"""What the paper says about slowness, information loss and scalings, on data small enough to check."""

from __future__ import annotations

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.graphs import ClusteredGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from oracles import assert_same_span, assert_same_up_to_sign, dense_delta, dense_free_responses

# --- unnecessary information loss: the toy experiment --------------------------------------------------


def _telegraph(rng, n, flip):
    """A binary signal in {-1, +1} that changes sign with probability `flip`: Delta = 4 flip."""
    return np.where(np.cumsum(rng.random(n) < flip) % 2, 1.0, -1.0)


@pytest.fixture(scope="module")
def toy():
    """x = (s2, s1 n, s3, n), s1 the slowest, n noise."""
    rng = np.random.default_rng(0)
    s1, s2, s3, noise = (_telegraph(rng, 20_000, flip) for flip in (0.01, 0.03, 0.08, 0.5))
    return np.column_stack([s2, s1 * noise, s3, noise]), s1, s2, s3


def _correlation(a, b):
    return abs(np.corrcoef(a.ravel(), b)[0, 1])


def _two_layers(node, top, X):
    bottom = [node().fit(X[:, :2]).transform(X[:, :2]), node().fit(X[:, 2:]).transform(X[:, 2:])]
    joined = np.column_stack(bottom)
    return bottom, top().fit(joined).transform(joined)


def test_quadratic_sfa_of_all_inputs_finds_the_slowest_signal(toy):
    X, s1, _, _ = toy
    model = SFA(1, expansion="identity | quadratic").fit(X)
    assert _correlation(model.transform(X), s1) > 0.99
    assert model.delta_values_[0] == pytest.approx(0.04, abs=0.01)


def test_a_network_of_sfa_nodes_keeps_what_is_slow_locally_and_misses_the_slowest_signal(toy):
    X, s1, s2, s3 = toy
    node = lambda: SFA(1, expansion="identity | quadratic")  # noqa: E731
    (left, right), top = _two_layers(node, node, X)
    assert _correlation(left, s2) > 0.99
    assert _correlation(right, s3) > 0.99
    assert _correlation(top, s2) > 0.99
    assert _correlation(top, s1) < 0.1


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_a_network_of_isfa_nodes_finds_the_slowest_signal(toy, scaling):
    X, s1, _, _ = toy
    node = lambda: ISFA(2, expansion="identity | quadratic", scaling=scaling)  # noqa: E731
    (left, right), top = _two_layers(node, node, X)
    assert left.shape[1] == right.shape[1] == 2
    assert _correlation(top[:, 0], s1) > 0.99


def test_noise_is_not_taken_for_slow(toy):
    X, *_ = toy
    model = ISFA(2, expansion="identity | quadratic").fit(X[:, :2])
    assert model.n_slow_ == 1
    np.testing.assert_allclose(model.delta_values_[1:], 2.0, atol=0.1)


# --- free responses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (10, 12)])
def test_two_crossed_labels_need_as_many_features_as_both_have_alone(sizes):
    """C1 C2 - 1 features would be needed for a class of each combination; the sum needs C1 - 1 + C2 - 1."""
    a, b = (grid.ravel() for grid in np.meshgrid(*map(np.arange, sizes), indexing="ij"))
    labels = {"a": np.repeat(a, 3), "b": np.repeat(b, 3)}
    free = (ClusteredGraph("a") + ClusteredGraph("b")).build(labels).free_responses()
    assert free.n_below() == sizes[0] - 1 + sizes[1] - 1


def test_the_first_features_of_a_sum_tell_both_labels():
    rng = np.random.default_rng(1)
    gender, race = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    X = rng.standard_normal((200, 6)) * 0.1
    X[:, 0] += gender
    X[:, 3] += race
    X = X @ rng.standard_normal((6, 6))
    graph = ClusteredGraph("gender") + ClusteredGraph("race")
    Y = GSFA(2, graph=graph).fit(X, {"gender": gender, "race": race}).transform(X)
    for label in (gender, race):
        design = np.column_stack([Y, np.ones(200)])
        guess = design @ np.linalg.lstsq(design, label, rcond=None)[0] > 0.5
        assert np.mean(guess == label) > 0.99


def test_slowest_response_of_a_serial_graph_orders_the_groups():
    y = np.random.default_rng(2).permutation(96).astype(float)
    free = SerialGraph(n_groups=12).build(y).free_responses()
    slowest = free.on_samples()[:, 0]
    groups = np.argsort(np.argsort(y)) // 8
    means = np.array([slowest[groups == g].mean() for g in range(12)])
    assert np.all(np.diff(means) > 0) or np.all(np.diff(means) < 0)


def test_with_one_input_per_sample_gsfa_finds_the_free_responses():
    """An unrestricted feature space: X is the identity matrix."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(24)
    for recipe in (SerialGraph(n_groups=6), MixedGraph(n_groups=6), WindowGraph(half_width=2)):
        built = recipe.build(y)
        free = built.free_responses()
        k = free.n_below()
        model = GSFA(graph=recipe).fit(np.eye(24), y)
        np.testing.assert_allclose(model.delta_values_[:k], free.delta_values[:k], atol=1e-8)
        assert_same_span(model.transform(np.eye(24))[:, :k], free.on_samples()[:, :k], atol=1e-6)


def test_no_feature_is_slower_than_the_free_response_of_its_rank():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    for recipe in (SerialGraph(n_groups=6), WindowGraph(half_width=3), SequenceGraph()):
        built = recipe.build(y)
        deltas = GSFA(expansion="identity | quadratic").fit(X, graph=built).delta_values_
        free, _ = dense_free_responses(built.vertex_weights, built.to_sparse().toarray())
        assert np.all(deltas >= free[: len(deltas)] - 1e-9)


# --- expansions and scalings -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(5)
    t = np.linspace(0, 12 * np.pi, 600)
    X = np.column_stack([np.sin(t) + np.cos(11 * t) ** 2, np.cos(11 * t), rng.standard_normal(600)])
    return X @ rng.standard_normal((3, 3)) + 0.02 * rng.standard_normal((600, 3))


def test_quadratic_sfa_is_invariant_to_mixing_of_its_input(series):
    U = np.array([[1.0, 0.4, 0.0], [-0.3, 2.0, 0.5], [0.2, 0.1, 0.7]])
    one = SFA(4, expansion="identity | quadratic").fit(series)
    other = SFA(4, expansion="identity | quadratic").fit(series @ U)
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, atol=1e-9)
    assert_same_up_to_sign(one.transform(series), other.transform(series @ U), atol=1e-7)


def test_powers_are_invariant_to_units_but_not_to_mixing(series):
    units = np.array([3.0, -0.01, 7e4])
    one = SFA(4, expansion="identity | power0.8").fit(series)
    scaled = SFA(4, expansion="identity | power0.8").fit(series * units)
    assert_same_up_to_sign(one.transform(series), scaled.transform(series * units), atol=1e-7)
    U = np.array([[1.0, 0.4, 0.0], [-0.3, 2.0, 0.5], [0.2, 0.1, 0.7]])
    mixed = SFA(4, expansion="identity | power0.8").fit(series @ U)
    assert np.max(np.abs(one.delta_values_ - mixed.delta_values_)) > 1e-3


def _decoder(model):
    """How much the reconstruction moves with each feature."""
    D = model.n_components_
    return (model.inverse_transform(np.eye(D)) - model.inverse_transform(np.zeros((D, D)))).T


def test_noise_on_one_feature_adds_as_much_noise_to_the_reconstruction(series):
    for scaling in ("sensitivity", "qr"):
        model = ISFA(3, expansion="identity | quadratic", n_slow=2, scaling=scaling, min_scale=0.0).fit(series)
        np.testing.assert_allclose(np.linalg.norm(_decoder(model), axis=0), 1.0, atol=1e-9)


def test_noise_on_several_features_adds_up_with_qr_scaling(series):
    model = ISFA(3, expansion="identity | quadratic", n_slow=2, scaling="qr").fit(series)
    slow = _decoder(model)[:, :2]
    np.testing.assert_allclose(slow.T @ slow, np.eye(2), atol=1e-9)


def test_a_slow_part_is_cheaper_for_labels_than_principal_components():
    """The label hides in a direction of small variance: PCA drops it, iGSFA keeps it and still reconstructs."""
    rng = np.random.default_rng(6)
    y = rng.uniform(-1, 1, 400)
    X = rng.standard_normal((400, 6)) * [10, 8, 6, 4, 2, 0.01]
    X[:, 5] += 0.1 * y
    X = X @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    pca = IGSFA(3, graph="serial", delta_threshold=-1.0).fit(X, y)
    both = IGSFA(3, graph="serial", n_slow=1).fit(X, y)

    def explained(Y):
        design = np.column_stack([Y, np.ones(400)])
        residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        return 1 - residual.var() / y.var()

    assert explained(pca.transform(X)) < 0.1
    assert explained(both.transform(X)) > 0.9
    error = np.mean((both.inverse_transform(both.transform(X)) - X) ** 2)
    best = np.mean((pca.inverse_transform(pca.transform(X)) - X) ** 2)
    assert best < error < 3 * best


def test_delta_of_a_sine_is_that_of_its_derivative():
    """For slow time series Delta is the mean squared time derivative: omega^2 for a unit-variance sine."""
    omega = 0.05
    t = np.arange(int(40 * 2 * np.pi / omega))
    x = np.sin(omega * t)
    built = SequenceGraph().build(None, n_samples=len(t))
    assert built.delta(x)[0] == pytest.approx(2 - 2 * np.cos(omega), rel=1e-3)
    v, gamma = np.ones(200), np.zeros((200, 200))
    for n in range(199):
        gamma[n, n + 1] = gamma[n + 1, n] = 1
    short = SequenceGraph().build(None, n_samples=200)
    np.testing.assert_allclose(short.delta(x[:200]), dense_delta(x[:200], v, gamma), rtol=1e-9)
