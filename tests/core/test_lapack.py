"""Some eigenpairs of a symmetric matrix against numpy's decomposition of all of it, on matrices that are hard."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg

from higsfa.core.lapack import Tridiagonal, back_substitute, cholesky, reduce_pair


def with_values(values, seed=0):
    """A symmetric matrix that has these eigenvalues."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    M = (Q * values) @ Q.T
    return (M + M.T) / 2


def blocks(n):
    """Four equal blocks: every eigenvalue comes four times, and the tridiagonal matrix falls into parts."""
    B = with_values(np.linspace(1, 2, -(-n // 4)))
    return np.kron(np.eye(4), B)[:n, :n]


MATRICES = {
    "random": lambda n: with_values(np.random.default_rng(1).standard_normal(n)),
    "identity": np.eye,
    "zero": lambda n: np.zeros((n, n)),
    "ones": lambda n: np.ones((n, n)),
    "diagonal with ties": lambda n: np.diag(np.arange(n) // 5 * 1.0),
    "two values": lambda n: with_values((np.arange(n) > n // 3) * 1.0),
    "graded": lambda n: with_values(np.geomspace(1e-14, 1, n)),
    "nearly equal": lambda n: with_values(2 + 1e-9 * np.arange(n)),
    "slow features and noise": lambda n: with_values(np.minimum(0.2 * np.arange(n), 2.0)),
    "four equal blocks": blocks,
    "Wilkinson": lambda n: np.diag(np.abs(np.arange(n) - n // 2) * 1.0) + np.eye(n, k=1) + np.eye(n, k=-1),
    "huge": lambda n: 1e200 * np.diag(1.0 + np.arange(n)),
    "tiny": lambda n: 1e-200 * np.diag(1.0 + np.arange(n)),
}


@pytest.mark.parametrize("n", [1, 2, 3, 7, 26, 130])
@pytest.mark.parametrize("kind", MATRICES)
def test_pairs_are_eigenpairs_of_the_right_numbers(kind, n):
    M = MATRICES[kind](n)
    size = np.abs(M).max() or 1.0
    expected = np.linalg.eigvalsh(M / size)
    for few in (1, max(1, n // 20), max(1, n // 7), n):
        for start, stop in ((0, few), (n - few, n), ((n - few) // 2, (n + few) // 2)):
            reduced = Tridiagonal(M.copy())
            values, vectors = reduced.pairs(start, stop)
            np.testing.assert_allclose(values / size, expected[start:stop], atol=1e-13 * n)
            np.testing.assert_allclose(reduced.values(start, stop), values, atol=1e-13 * n * size)
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(stop - start), atol=1e-12)
            np.testing.assert_allclose(M / size @ vectors, vectors * (values / size), atol=1e-13 * n)


@pytest.mark.parametrize("n", [5, 40, 200])
def test_values_do_not_depend_on_what_was_asked_for_before(n):
    M = with_values(np.linspace(-1, 1, n))
    reduced, expected = Tridiagonal(M.copy()), np.linspace(-1, 1, n)
    for start, stop in ((n - 1, n), (0, 2), (1, 2), (0, n), (2, 4), (0, 1)):
        np.testing.assert_allclose(reduced.values(start, stop), expected[start:stop], atol=1e-13)
    assert len(reduced.values(0, 0)) == 0


@pytest.mark.parametrize("n", [1, 4, 90])
def test_count_is_the_number_of_smaller_eigenvalues(n):
    values = np.sort(np.random.default_rng(0).standard_normal(n))
    reduced = Tridiagonal(with_values(values))
    between = np.concatenate([[-9.0], (values[1:] + values[:-1]) / 2, [9.0]])
    assert [reduced.count(float(bound)) for bound in between] == list(range(n + 1))


@pytest.mark.parametrize("n", [1, 2, 30, 150])
def test_a_pair_of_matrices_is_reduced_to_one(n):
    rng = np.random.default_rng(0)
    A, C, Y = with_values(rng.standard_normal(n)), with_values(rng.uniform(0.1, 2, n), 1), rng.standard_normal((n, 3))
    L, R = C.copy(), A.copy()
    assert cholesky(L)
    reduce_pair(R, L)
    expected = np.linalg.cholesky(C)
    np.testing.assert_allclose(np.tril(L), expected, atol=1e-12)
    inverse = np.linalg.inv(expected)
    np.testing.assert_allclose(np.tril(R), np.tril(inverse @ A @ inverse.T), atol=1e-11)
    np.testing.assert_allclose(back_substitute(L, Y.copy()), inverse.T @ Y, atol=1e-11)
    values, vectors = Tridiagonal(R).pairs(0, 1)
    b = back_substitute(L, vectors)[:, 0]
    np.testing.assert_allclose(values[0], scipy.linalg.eigh(A, C)[0][0], atol=1e-11)
    np.testing.assert_allclose(A @ b, values[0] * (C @ b), atol=1e-11)


def test_indefinite_matrices_have_no_factor():
    assert not cholesky(with_values(np.array([-0.1, 1.0, 2.0])))


def test_only_the_lower_triangle_counts():
    n = 60
    M, above = with_values(np.linspace(1, 2, n)), np.triu_indices(n, 1)
    half = M.copy()
    half[above] = np.nan
    for part in (slice(0, 3), slice(0, n)):
        for whole, lower in zip(
            Tridiagonal(M.copy()).pairs(part.start, part.stop),
            Tridiagonal(half.copy()).pairs(part.start, part.stop),
            strict=True,
        ):
            assert np.array_equal(whole, lower)
    A, B, L = M.copy(), half.copy(), half.copy()
    assert cholesky(L)
    reduce_pair(B, L)
    reduce_pair(A, np.linalg.cholesky(M))
    np.testing.assert_allclose(np.tril(A), np.tril(B), atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_refused(bad):
    M = np.eye(30)
    M[7, 3] = bad
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        Tridiagonal(M)


def test_all_threads_get_the_same_bits():
    matrices = [with_values(np.linspace(0, 2, 90), seed) for seed in range(12)]

    def solve(M):
        reduced = Tridiagonal(M.copy())
        return np.column_stack([reduced.pairs(0, 9)[1], reduced.pairs(0, 90)[1]])

    alone = [solve(M) for M in matrices]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solve, matrices))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_other_threads_run_meanwhile():
    M, ready, span = with_values(np.linspace(0, 1, 700)), threading.Event(), []

    def reduce():
        ready.set()
        span.append(time.perf_counter())
        Tridiagonal(M)
        span.append(time.perf_counter())

    interval, moments = sys.getswitchinterval(), []
    worker = threading.Thread(target=reduce)
    try:
        sys.setswitchinterval(60)  # a thread that does not let go by itself keeps the interpreter
        worker.start()
        ready.wait()
        while worker.is_alive():
            moments.append(time.perf_counter())
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
        worker.join()
    within = (span[0] + 0.25 * (span[1] - span[0]), span[0] + 0.75 * (span[1] - span[0]))
    assert any(within[0] < moment < within[1] for moment in moments)
