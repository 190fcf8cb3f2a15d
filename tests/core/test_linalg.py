"""Pairs of matrices with a rank cut against whitening with all eigenvectors; principal axes against numpy."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from higsfa.core import linalg
from higsfa.core.linalg import RANK_CUT, Pencil, Reflection, _bound, fix_signs, principal_axes

TOLERANCE = 1e-5


def random_pair(correlations, seed=0, units=True):
    """A and C, positive definite and semidefinite, and scales: C has these eigenvalues before its units are changed."""
    rng, n = np.random.default_rng(seed), len(correlations)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    S = rng.standard_normal((n, n))
    root = Q * np.sqrt(correlations)
    factors = np.geomspace(1e-3, 1e3, n) if units else np.ones(n)
    C = root @ root.T * np.outer(factors, factors)
    A = root @ (S @ S.T / n) @ root.T * np.outer(factors, factors)
    return A, C, np.sqrt(np.diag(C))


def by_eigenvectors(A, C, scale, tolerance):
    """The same problem by the book: standardise, whiten with the eigenvectors that are kept, decompose."""
    used = scale > 0
    s = scale[used]
    values, vectors = np.linalg.eigh(C[np.ix_(used, used)] / np.outer(s, s))
    kept = values > tolerance * values[-1]
    W = vectors[:, kept] / np.sqrt(values[kept]) / s[:, None]
    deltas, U = np.linalg.eigh(W.T @ A[np.ix_(used, used)] @ W)
    B = np.zeros((len(C), len(deltas)))
    B[used] = W @ U
    return deltas, B


SPECTRA = {
    "full rank": np.geomspace(1e-3, 1, 50),
    "nearly singular": np.geomspace(3e-4, 10, 50),
    "one direction missing": np.concatenate([[1e-12], np.linspace(0.1, 1, 49)]),
    "some directions missing": np.concatenate([np.geomspace(1e-14, 1e-9, 7), np.linspace(0.1, 1, 43)]),
    "most directions missing": np.concatenate([np.full(40, 1e-13), np.linspace(0.5, 1, 10)]),
    "exact zeros": np.concatenate([np.zeros(5), np.linspace(0.5, 1, 45)]),
    "one variable": np.ones(1),
    "two variables": np.array([0.0, 1.0]),
    "large": np.concatenate([np.full(4, 1e-13), np.geomspace(0.01, 1, 196)]),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n", [1, 4, 200])
def test_pencil_equals_whitening_with_eigenvectors(spectrum, n):
    A, C, scale = random_pair(SPECTRA[spectrum])
    expected, B = by_eigenvectors(A, C, scale, TOLERANCE)
    pencil = Pencil(A, C, scale, TOLERANCE)
    assert pencil.rank == len(expected)
    np.testing.assert_allclose(pencil.values(), expected, atol=1e-9)
    values, found = pencil.pairs(n)
    np.testing.assert_allclose(values, expected[:n], atol=1e-9)
    assert found.shape == B[:, :n].shape
    found, B = (found * fix_signs(found, scale))[:, :4], (B * fix_signs(B, scale))[:, : min(n, 4)]
    np.testing.assert_allclose(found * scale[:, None], B * scale[:, None], atol=1e-7 * np.abs(B * scale[:, None]).max())
    np.testing.assert_allclose(found.T @ C @ found, np.eye(found.shape[1]), atol=1e-9)


def test_pencil_of_full_rank_equals_scipy():
    A, C, scale = random_pair(np.linspace(0.1, 1, 40), units=False)
    values, vectors = scipy.linalg.eigh(A, C)
    pencil = Pencil(A, C, scale, TOLERANCE)
    found, B = pencil.pairs(40)
    np.testing.assert_allclose(found, values, atol=1e-12)
    np.testing.assert_allclose(B * fix_signs(B), vectors * fix_signs(vectors), atol=1e-9)


@pytest.mark.parametrize("precision", [np.finfo(np.float32).eps, np.finfo(np.float64).eps])
@pytest.mark.parametrize("seed", range(8))
def test_rank_is_the_number_of_eigenvalues_above_the_cut(precision, seed):
    rng, tolerance = np.random.default_rng(seed), float(precision) ** RANK_CUT
    n = int(rng.integers(2, 90))
    near = tolerance * np.exp(rng.uniform(-4, 4, n))
    spectrum = np.where(rng.random(n) < rng.choice([0.05, 0.5, 0.9]), near, 1.0)
    A, C, scale = random_pair(spectrum, seed)
    values = np.linalg.eigvalsh(C / np.outer(scale, scale))
    pencil = Pencil(A, C, scale, tolerance)
    assert pencil.rank == np.sum(values > tolerance * values[-1])
    assert np.all(np.isfinite(pencil.pairs(n)[1]))


@pytest.mark.parametrize("spectrum", ["full rank", "some directions missing", "most directions missing"])
def test_variables_without_variance_are_left_out(spectrum):
    A, C, scale = random_pair(SPECTRA[spectrum])
    n, kept = len(C) + 3, np.arange(len(C)) + 1
    wide_A, wide_C, wide_scale = np.full((n, n), 7.0), np.full((n, n), 7.0), np.zeros(n)
    wide_A[np.ix_(kept, kept)], wide_C[np.ix_(kept, kept)], wide_scale[kept] = A, C, scale
    some, all_ = Pencil(A, C, scale, TOLERANCE), Pencil(wide_A, wide_C, wide_scale, TOLERANCE)
    assert some.rank == all_.rank
    values, B = all_.pairs(5)
    assert np.array_equal(some.values(), all_.values())
    assert np.array_equal(some.pairs(5)[0], values)
    assert np.array_equal(some.pairs(5)[1], B[kept])
    assert not np.any(np.delete(B, kept, axis=0))


def test_no_variable_at_all_is_rank_zero():
    for n in (0, 3):
        pencil = Pencil(np.eye(n), np.zeros((n, n)), np.zeros(n), TOLERANCE)
        assert pencil.rank == 0
        assert pencil.values().shape == (0,)
        assert pencil.pairs(2)[0].shape == (0,)
        assert pencil.pairs(2)[1].shape == (n, 0)


@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize("spectrum", ["full rank", "some directions missing", "most directions missing"])
def test_noise_is_added_where_the_covariance_is_not_singular(spectrum, path):
    A, C, scale = random_pair(SPECTRA[spectrum])
    noise = 0.3
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    V = vectors[:, values > TOLERANCE * values[-1]]
    W, more = V / scale[:, None], noise * np.eye(V.shape[1])
    expected, U = scipy.linalg.eigh(W.T @ A @ W + 2 * more, W.T @ C @ W + more)
    pencil, B = Pencil(A, C, scale, TOLERANCE, noise), V @ U
    if path:
        pencil = Pencil(A, C, scale, TOLERANCE, 5.0, diagonal=True).plus(0.0).plus(noise)
    found = pencil.pairs(6)[1] * scale[:, None]
    np.testing.assert_allclose(pencil.values(), expected, atol=1e-9)
    np.testing.assert_allclose(found * fix_signs(found), (B * fix_signs(B))[:, :6], atol=1e-8)


@pytest.mark.parametrize("spectrum", ["full rank", "some directions missing", "most directions missing"])
def test_only_lower_triangles_count_and_nothing_is_overwritten(spectrum):
    A, C, scale = random_pair(SPECTRA[spectrum])
    expected = Pencil(A, C, scale, TOLERANCE)
    above = np.triu_indices(len(C), 1)
    A[above], C[above] = 1e30, -1e30
    given = A.copy(), C.copy()
    found = Pencil(A, C, scale, TOLERANCE)
    assert np.array_equal(found.values(), expected.values())
    assert np.array_equal(found.pairs(9)[1], expected.pairs(9)[1])
    assert np.array_equal(A, given[0])
    assert np.array_equal(C, given[1])


@pytest.mark.parametrize("seed", range(20))
def test_no_eigenvalue_is_above_the_bound(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, int(rng.integers(1, 30)))) + rng.uniform(0, 2)
    R = np.corrcoef(X, rowvar=False).reshape(X.shape[1], X.shape[1])
    largest = np.linalg.eigvalsh(R)[-1]
    assert largest <= _bound(R) * (1 + 1e-12)
    assert _bound(R) <= np.abs(R).sum(axis=0).max() * (1 + 1e-12)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_wanted_axes_are_the_first_of_all(n):
    rng = np.random.default_rng(n)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    variances = np.geomspace(1, 1e-6, n)
    C, floor = (Q * variances) @ Q.T, 1.2e-4  # no variance is that close to the floor that rounding decides
    kept = int(np.sum(variances > floor))
    for wanted in (None, 0, 1, 2, kept, kept + 1, n, n + 3):
        values, axes = principal_axes(C, floor, wanted)
        k = kept if wanted is None else min(kept, wanted)
        assert values.shape == (k,)
        assert axes.shape == (n, k)
        np.testing.assert_allclose(values, variances[:k], rtol=1e-9)
        np.testing.assert_allclose(axes, (Q * fix_signs(Q))[:, :k], atol=1e-9)


def test_a_covariance_of_nothing_has_no_axes():
    values, axes = principal_axes(np.zeros((0, 0)), 0.0)
    assert values.shape == (0,)
    assert axes.shape == (0, 0)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 1), (7, 7), (60, 9)])
def test_a_reflection_gives_coordinates_of_what_is_orthogonal_to_its_columns(n, k):
    rng = np.random.default_rng(n + k)
    V, M = np.linalg.qr(rng.standard_normal((n, k)))[0], rng.standard_normal((n, n))
    M = M + M.T
    reflection = Reflection(V.copy())
    basis = reflection.extend(np.eye(n - k))
    assert_allclose(basis.T @ basis, np.eye(n - k), atol=1e-13)
    assert_allclose(V.T @ basis, 0, atol=1e-13)
    assert_allclose(reflection.restrict(M), basis.T @ M @ basis, atol=1e-12)


@pytest.mark.parametrize("by_wrappers", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_more_directions_are_positive_than_counted_and_all_of_a_definite_matrix(seed, by_wrappers, monkeypatch):
    if by_wrappers:
        monkeypatch.setattr(linalg, "_routines", {})
    rng, n = np.random.default_rng(seed), 5 + 20 * seed
    values, floor = rng.uniform(0.1, 1, n), seed - 2.0
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    assert linalg.positive_directions(Q * (floor + values) @ Q.T, floor) == n
    values[: 1 + seed] *= -1
    M = np.tril(Q * (floor + values) @ Q.T)
    assert n - n // 2 <= linalg.positive_directions(M, floor) <= n - 1 - seed
    assert linalg.positive_directions(np.zeros((0, 0)), 0.0) == 0


@pytest.mark.parametrize("seed", range(10))
def test_the_largest_eigenvalue_is_found(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10 + 5 * seed, 30)) * (0.0 if seed == 0 else np.geomspace(1, 10**-seed, 30))
    C = X.T @ X
    assert_allclose(linalg._largest_eigenvalue(C), np.linalg.eigvalsh(C)[-1], rtol=1e-4)


@pytest.mark.parametrize(("n_copies", "n_others"), [(2, 60), (3, 300)])
def test_a_group_of_copies_does_not_hide_larger_eigenvalues_from_the_rank_cut(n_copies, n_others):
    """Copies have the longest column, and are uncorrelated with the others, which share the largest eigenvalue."""
    n = n_copies + n_others
    C = np.eye(n)
    C[:n_copies, :n_copies] = 1.0
    C[n_copies:, n_copies:] = 0.95 * np.sqrt((n_copies - 1) / (n_others - 1))
    np.fill_diagonal(C, 1.0)
    tolerance = 1e-6
    C[0, 1] = C[1, 0] = 1.0 - 3 * tolerance  # a direction that is too weak for the others, not for the copies
    if n_copies > 2:
        C[0, 2] = C[2, 0] = C[0, 1]
    assert linalg._largest_eigenvalue(C) == pytest.approx(np.linalg.eigvalsh(C)[-1], rel=1e-5)
    ranks = {linalg.Pencil(np.eye(n), C, np.ones(n), tolerance, diagonal=each).rank for each in (False, True)}
    assert len(ranks) == 1
