"""Some eigenpairs of a symmetric matrix against numpy's decomposition of all of it, on matrices that are hard."""

import ctypes
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import cython_lapack

from capsules import CHANGES, republish
from higsfa.core import lapack
from higsfa.core.lapack import eigenpairs, eigenvalues
from higsfa.core.linalg import fix_signs


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
    "low rank": lambda n: with_values((np.arange(n) > n - 4) * 1.0),
    "steps": lambda n: with_values(np.geomspace(1e-10, 1, n)[np.arange(n) // 3 * 3]),
    "huge": lambda n: 1e200 * np.diag(1.0 + np.arange(n)),
    "tiny": lambda n: 1e-200 * np.diag(1.0 + np.arange(n)),
    "denormal": lambda n: 1e-310 * np.diag(1.0 + np.arange(n)),
    "huge and tiny": lambda n: np.diag(np.geomspace(1e-150, 1e150, n)),
}


def expect_pairs(M, values, vectors, C=None):
    """Right to rounding: M V = C V diag(values), V^T C V = 1; errors in the vectors grow with the condition of C."""
    n, C = len(M), np.eye(len(M)) if C is None else C
    size, spectrum = np.abs(M).max() or 1.0, np.linalg.eigvalsh(C)
    condition = spectrum[-1] / spectrum[0]
    eps = 20 * n * np.finfo(float).eps * condition
    np.testing.assert_allclose(vectors.T @ C @ vectors, np.eye(len(values)), atol=eps)
    np.testing.assert_allclose(M / size @ vectors, C @ vectors * (values / size), atol=eps / np.sqrt(spectrum[0]))


def ranges(n):
    for few in (1, max(1, n // 20), max(1, n // 7), n):
        yield from ((0, few), (n - few, n), ((n - few) // 2, (n + few) // 2))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 26, 130])
@pytest.mark.parametrize("kind", MATRICES)
def test_pairs_are_eigenpairs_of_the_right_numbers(kind, n):
    M = MATRICES[kind](n)
    size = np.abs(M).max() or 1.0
    expected = np.linalg.eigvalsh(M / size)
    np.testing.assert_allclose(eigenvalues(M) / size, expected, atol=1e-15 * n)
    for start, stop in ranges(n):
        given = M.copy()
        values, vectors = eigenpairs(given, start, stop)
        assert np.array_equal(given, M)
        np.testing.assert_allclose(values / size, expected[start:stop], atol=20 * np.finfo(float).eps * n)
        expect_pairs(M, values, vectors)


@pytest.mark.parametrize("n", [1, 2, 7, 26, 130])
@pytest.mark.parametrize("kind", [kind for kind in MATRICES if kind != "denormal"])  # few digits are left of products
def test_pairs_of_two_matrices_are_those_of_the_right_numbers(kind, n):
    """M = L^T N L and C = L^T L have the eigenvalues of N."""
    L, N = np.linalg.cholesky(with_values(np.linspace(0.2, 1, n), 1)).T, MATRICES[kind](n)
    M, C = L.T @ N @ L, L.T @ L
    M = (M + M.T) / 2
    size, expected = np.abs(N).max() or 1.0, np.linalg.eigvalsh(N)
    np.testing.assert_allclose(eigenvalues(M, C) / size, expected / size, atol=100 * np.finfo(float).eps * n)
    for start, stop in ranges(n):
        given, also = M.copy(), C.copy()
        values, vectors = eigenpairs(given, start, stop, also)
        assert np.array_equal(given, M)
        assert np.array_equal(also, C)
        np.testing.assert_allclose(values / size, expected[start:stop] / size, atol=100 * np.finfo(float).eps * n)
        expect_pairs(M, values, vectors, C)


def split(sizes, seed):
    """A tridiagonal matrix of several parts, the same and others, that an exact zero or a tiny number separates."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    diagonal, beside = np.tile([2.0, 2.0, 1.0], n)[:n], rng.choice([1.0, 0.5], n - 1)
    ends = np.cumsum(sizes)[:-1] - 1
    beside[ends] = rng.choice([0.0, 1e-300, 1e-17, 1e-15], len(ends))
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


@pytest.mark.parametrize("seed", range(10))
def test_vectors_of_matrices_that_fall_into_parts_do_not_coincide(seed):
    rng = np.random.default_rng(seed)
    M = split(list(rng.integers(1, 12, rng.integers(2, 9))), seed)
    for start, stop in ranges(len(M)):
        values, vectors = eigenpairs(M, start, stop)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(M)[start:stop], atol=1e-15 * len(M))
        expect_pairs(M, values, vectors)


def test_no_pairs_are_asked_for():
    for n in (0, 5):
        values, vectors = eigenpairs(np.eye(n), 0, 0)
        assert values.shape == (0,)
        assert vectors.shape == (n, 0)
    assert eigenvalues(np.eye(0), np.eye(0)).shape == (0,)


@pytest.mark.parametrize("n", [3, 60])
def test_indefinite_matrices_do_not_define_lengths(n):
    for stop in (1, n):
        with pytest.raises(np.linalg.LinAlgError):
            eigenpairs(np.eye(n), 0, stop, -np.eye(n))


def test_only_the_lower_triangle_counts():
    n = 60
    M, above = with_values(np.linspace(1, 2, n)), np.triu_indices(n, 1)
    half = M.copy()
    half[above] = np.nan
    for C, half_C in ((None, None), (M, half)):
        assert np.array_equal(eigenvalues(M, C), eigenvalues(half, half_C))
        for stop in (3, n):
            whole, lower = eigenpairs(M, 0, stop, C), eigenpairs(half, 0, stop, half_C)
            assert all(np.array_equal(a, b) for a, b in zip(whole, lower, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_refused(bad):
    M = np.eye(30)
    M[7, 3] = bad
    for stop in (1, 30):
        with pytest.raises(np.linalg.LinAlgError, match="not finite"):
            eigenpairs(M, 0, stop)
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        eigenvalues(M)


def test_all_threads_get_the_same_bits():
    matrices = [with_values(np.linspace(0, 2, 90), seed) for seed in range(12)]

    def solve(M):
        pair = M, np.eye(90) + M @ M
        found = [eigenpairs(M, 0, stop, C) for stop in (9, 90) for C in (None, pair[1])]
        return np.column_stack([vectors for _, vectors in found])

    alone = [solve(M) for M in matrices]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solve, matrices))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def publish(monkeypatch, **changes):
    monkeypatch.setattr(lapack, "cython_lapack", republish(cython_lapack, **changes))
    monkeypatch.setattr(lapack, "_drivers", lapack.find_drivers())


def test_routines_are_called_if_their_arguments_are_the_known_ones(monkeypatch):
    publish(monkeypatch)
    assert set(lapack._drivers) == {"dsyevr", "dsygvx", "dsygvd"}


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("change", [*CHANGES.values(), {"without": lambda name: name == "dsygvx"}])
def test_routines_with_other_arguments_are_not_called(monkeypatch, change, n):
    M, C = with_values(np.linspace(-1, 1, n)), with_values(np.linspace(0.5, 1, n), 1)
    cases = [(start, stop, matrix) for start, stop in ranges(n) for matrix in (None, C)]
    expected = [eigenpairs(M, *case) for case in cases]
    publish(monkeypatch, **change)
    assert lapack._drivers == {}
    for case, (values, vectors) in zip(cases, expected, strict=True):
        found, columns = eigenpairs(M, *case)
        np.testing.assert_allclose(found, values, atol=1e-13)
        np.testing.assert_allclose(columns * fix_signs(columns), vectors * fix_signs(vectors), atol=1e-11)
        np.testing.assert_allclose(eigenvalues(M, C), scipy.linalg.eigh(M, C)[0], atol=1e-13)


@pytest.mark.skipif(sys.platform != "linux", reason="semaphores of the C library as Linux has them")
def test_other_threads_run_while_a_driver_works():
    """A C function that waits for a second thread stands for the driver: it is kept waiting if no other thread runs."""
    library, value, began = ctypes.CDLL(None), ctypes.c_int(), threading.Event()
    semaphore, latest = np.zeros(64, np.uint8), np.array([int(time.time()) + 60, 0])
    address = ctypes.c_void_p(semaphore.ctypes.data)
    library.sem_init(address, 0, 0)
    wait = lapack.Driver(ctypes.cast(library.sem_timedwait, ctypes.c_void_p).value, 3)

    def work():
        began.set()
        wait(semaphore, latest)

    worker = threading.Thread(target=work)
    worker.start()
    began.wait()
    library.sem_post(address)
    worker.join()
    library.sem_getvalue(address, ctypes.byref(value))
    assert value.value == 0  # 1: the driver gave up before another thread could run
