"""Covariances against sums over samples, and slow features that are computed few at a time against all of them."""

import numpy as np
import pytest

from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.linalg import fix_signs
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.solve import NodeOptions, _inverted, slow_features, solve_node, untangle
from higsfa.core.sums.sums import Covariances, Sums, Weighting, covariances


@pytest.mark.parametrize("T", [1, 5, 128, 129, 300])
@pytest.mark.parametrize("has_edges", [False, True])
@pytest.mark.parametrize("mix", [np.eye(3), np.array([[1.0, 1, 0], [0.5, 0, 2], [0, 1, 1]])])
def test_covariances_equal_sums_over_samples(T, has_edges, mix):
    rng = np.random.default_rng(T)
    N, shift = 40, rng.standard_normal(T)
    Z, channels = rng.standard_normal((N, T)), rng.uniform(0.5, 2, (3, N))
    members = np.eye(4)[rng.integers(0, 4, N)].T  # of four groups, in two parts
    couplings = tuple(K + K.T for K in rng.uniform(0, 1, (2, 2, 2)))
    edges = Z.T @ Z / 7
    second = np.array([(w * Z.T) @ Z for w in channels])
    above = np.triu_indices(T, 1)
    half = second.copy()
    half[:, above[0], above[1]] = 1e6  # does not count
    weights = np.vstack([channels, members])
    sums = Sums(3, weights.sum(axis=1), weights @ Z, half, edges if has_edges else None, np.zeros(2), np.zeros(2))
    found = covariances(sums, Weighting(mix, couplings, 11.0), shift, 1e-7)
    v, e, w = mix @ channels
    groups = members @ Z
    between = groups[:2].T @ couplings[0] @ groups[:2] + groups[2:].T @ couplings[1] @ groups[2:]
    C_dot = (2 * (e * Z.T) @ Z - 2 * between + (edges if has_edges else 0)) / 11.0
    assert_same = np.testing.assert_allclose
    assert_same(np.tril(found.C), np.tril(np.cov(Z.T, aweights=v, ddof=0).reshape(T, T)), atol=1e-12)
    assert_same(np.tril(found.C_dot), np.tril(C_dot), atol=1e-11)
    assert_same(np.tril(found.plain), np.tril(np.cov(Z.T, aweights=w, ddof=0).reshape(T, T)), atol=1e-12)
    assert_same(found.mean, np.average(Z, axis=0, weights=v), atol=1e-13)
    assert_same(found.plain_mean, np.average(Z, axis=0, weights=w), atol=1e-13)
    for noise, weights in ((found.noise, v), (found.plain_noise, w)):
        assert_same(noise, (8e-7 * shift) ** 2 + 64e-7 * np.average(Z**2, axis=0, weights=weights), rtol=1e-9)


def with_deltas(deltas, seed=0, noise=0.0):
    """Covariances whose slow features have these Delta values."""
    T = len(deltas)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((T, 2 * T))
    C = X @ X.T / T
    Q = np.linalg.qr(rng.standard_normal((T, T)))[0]
    L = np.linalg.cholesky(C)
    C_dot = L @ (Q * deltas) @ Q.T @ L.T
    return Covariances(np.zeros(T), C, C_dot, np.zeros(T), C, *[np.full(T, noise)] * 2, float(np.finfo(float).eps))


def frontend(T):
    return Frontend(parse_expansion("identity"), 1, T, np.zeros(T))


@pytest.mark.parametrize("T", [6, 60])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_few_features_are_the_first_of_all(T, shrinkage):
    cov = with_deltas(np.linspace(0.1, 2.1, T))
    all_ = slow_features(cov, T, shrinkage, T, T)
    assert all_.B.shape == (T, T)
    assert all_.pencil.rank == T
    for n_deltas, n_features, limit in ((1, 1, np.inf), (4, 2, np.inf), (T, 3, np.inf), (T, T, 0.95), (5, T, 0.95)):
        few = slow_features(cov, T, shrinkage, n_deltas, n_features, limit)
        # With shrinkage, a limit leaves out what is as fast as noise, and Delta values of the others are known.
        least = limit if not shrinkage or limit > 2 else 2.0
        n = min(n_features, int(np.sum(all_.delta_values < least)))
        n_deltas = min(n_deltas, n) if shrinkage and limit < 2 else n_deltas
        assert few.pencil.rank == T
        assert few.delta_values.shape == (n_deltas,)
        np.testing.assert_allclose(few.delta_values, all_.delta_values[:n_deltas], atol=1e-12)
        assert few.B.shape == (T, n)
        np.testing.assert_allclose(few.B, all_.B[:, :n], atol=1e-9)


@pytest.mark.parametrize("T", [9, 80])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_equally_slow_features_are_not_cut_apart(T, n):
    deltas = np.linspace(1, 2, T)
    deltas[1:5] = 0.5
    deltas[0] = 0.2
    cov = with_deltas(deltas)
    all_, few = slow_features(cov, T, 0.0, T, T), slow_features(cov, T, 0.0, n, n)
    np.testing.assert_allclose(few.B, all_.B[:, :n], atol=1e-7)
    np.testing.assert_allclose(few.B.T @ cov.C @ few.B, np.eye(n), atol=1e-10)
    # The order among equals: smallest weights on standardised variables first.
    weights = np.linalg.norm(all_.B * np.sqrt(np.diag(cov.C))[:, None], axis=0)
    assert np.all(np.diff(weights[1:5]) > 0)


@pytest.mark.parametrize("T", [9, 80])
def test_equally_slow_features_are_sorted_by_variance_with_shrinkage_too(T):
    """All have Delta 2, with noise and without; on standardised variables they are principal components."""
    cov = with_deltas(np.full(T, 2.0))
    scale = np.sqrt(np.diag(cov.C))
    values, vectors = np.linalg.eigh(cov.C / np.outer(scale, scale))
    expected = vectors[:, ::-1] / np.sqrt(values[::-1]) / scale[:, None]
    expected = expected * fix_signs(expected, scale)
    for n in (1, 3, T):
        found = slow_features(cov, T, 0.1, n, n)
        np.testing.assert_allclose(found.B * scale[:, None], expected[:, :n] * scale[:, None], atol=1e-8)
        np.testing.assert_allclose(found.delta_values, 2.0, atol=1e-9)


@pytest.mark.parametrize("T", [8, 70])
def test_features_across_the_limit_that_are_equally_slow_are_untangled_together(T):
    deltas = np.linspace(1.5, 2, T)
    deltas[:4] = 1.0
    cov, limit = with_deltas(deltas), 1.0
    all_ = slow_features(cov, T, 0.0, T, T)
    few = slow_features(cov, T, 0.0, T, T, limit)
    n = few.B.shape[1]  # rounding decides how many of the four are below the limit
    assert n <= 4
    np.testing.assert_allclose(few.B, all_.B[:, :n], atol=1e-7)


@pytest.mark.parametrize("part", [{"n_slow": 2}, {"n_slow": 0}, {"delta_threshold": 0.7}, {"delta_threshold": 1.96}])
@pytest.mark.parametrize("rank", [5, 12])
@pytest.mark.parametrize("all_deltas", [False, True])
def test_slow_part_grows_until_all_components_are_there(part, rank, all_deltas):
    """The plain covariance has fewer directions than components are wanted, so slow features must fill the gap."""
    T, D = 30, 18
    cov = with_deltas(np.linspace(0.1, 2.0, T))
    low = np.random.default_rng(3).standard_normal((T, rank))
    cov = Covariances(cov.mean, cov.C, cov.C_dot, cov.mean, low @ low.T, cov.noise, cov.noise, cov.precision)
    node = solve_node(cov, frontend(T), np.zeros(T), NodeOptions(D, preserve=True, all_deltas=all_deltas, **part))
    everything = slow_features(cov, T, 0.0, T, T)
    assert len(node.slow) == D  # J features leave rank - J components, too few whatever J is
    lengths = np.linalg.norm(node.slow, axis=1) * np.linalg.norm(everything.B[:, :D], axis=0)
    np.testing.assert_allclose(np.einsum("ji,ij->j", node.slow, everything.B[:, :D]), lengths, rtol=1e-9)
    np.testing.assert_allclose(node.delta_values, everything.delta_values[: len(node.delta_values)], atol=1e-10)
    assert len(node.delta_values) == (T if all_deltas else D)


def test_weighted_regression_needs_only_the_lower_triangle():
    T = 12
    cov = with_deltas(np.linspace(0.1, 2.0, T))
    above = np.triu_indices(T, 1)
    C, C_dot = cov.C.copy(), cov.C_dot.copy()
    C[above], C_dot[above] = 1e20, 1e20
    lower = Covariances(cov.mean, C, C_dot, cov.mean, cov.plain, cov.noise, cov.noise, cov.precision)
    options = NodeOptions(6, preserve=True, n_slow=3, weighted=True)
    a, b = (solve_node(c, frontend(T), np.zeros(T), options) for c in (cov, lower))
    np.testing.assert_allclose(a.decoder, b.decoder, atol=1e-12)


@pytest.mark.parametrize("diagonal", [[], [1.0], [2.0, 0.5, 1e-3], [1.0, 0.0, 3.0], [0.0, 0.0], [1.0, 1e-16]])
def test_scales_are_inverted_as_by_a_decomposition(diagonal):
    A = np.diag(np.array(diagonal))
    np.testing.assert_allclose(_inverted(A), np.linalg.pinv(A, rcond=1e-14) if diagonal else A, rtol=1e-12)
    if len(diagonal) > 1:
        A[0, 1] = 0.3
        np.testing.assert_allclose(_inverted(A), np.linalg.pinv(A, rcond=1e-14))


@pytest.mark.parametrize("deltas", [[-1e6, -1.0, 2.0], [np.nan, np.nan], [0.0, 0.0, 1e-300]])
def test_whatever_the_delta_values_features_are_untangled_in_the_end(deltas):
    B, found = untangle(np.eye(3)[:, : len(deltas)], np.array(deltas), np.ones(3), 1e-13, 3)
    assert B.shape == (3, len(deltas)) == (3, len(found))
