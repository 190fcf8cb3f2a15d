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
from higsfa.core import linalg as lapack
from higsfa.core.linalg import back_substitute, eigenpairs, eigenvalues, reduce_pair


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
    "almost too large": lambda n: with_values(np.linspace(-1, 1, n)) * 1e307,
}


def expect_pairs(M, start, stop, values, vectors):
    """Right to rounding: the eigenvalues of these numbers, M V = V diag(values) and V^T V = 1."""
    size = np.abs(M).max() or 1.0
    eps = len(M) * np.finfo(float).eps
    np.testing.assert_allclose(values / size, np.linalg.eigvalsh(M / size)[start:stop], atol=20 * eps)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(stop - start), atol=100 * eps)
    np.testing.assert_allclose(M / size @ vectors, vectors * (values / size), atol=20 * eps)


def ranges(n):
    for few in (1, max(1, n // 20), max(1, n // 7), n):
        yield from ((0, few), (n - few, n), ((n - few) // 2, (n + few) // 2))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 26, 130])
@pytest.mark.parametrize("kind", MATRICES)
def test_pairs_are_eigenpairs_of_the_right_numbers(kind, n):
    M = MATRICES[kind](n)
    for start, stop in ranges(n):
        given = M.copy()
        expect_pairs(M, start, stop, *eigenpairs(given, start, stop))
        assert np.array_equal(given, M)
    assert np.array_equal(eigenvalues(M), np.linalg.eigvalsh(M))


def tiny_rest(level, seed):
    """A tridiagonal matrix of one large block of two rows; the rest is rounding errors of that level."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 60))
    diagonal, beside = level * rng.standard_normal(n), level * rng.standard_normal(n - 1)
    diagonal[:2], beside[0] = n / 2, n / 2
    order = slice(None, None, int(rng.choice([-1, 1])))
    return (np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))[order, order]


@pytest.mark.parametrize("level", [0, 1e-300, 1e-20, 1e-17, 1e-16, 1e-15, 1e-14])
def test_vectors_of_the_same_eigenvalue_up_to_rounding_do_not_coincide(level):
    for seed in range(40):
        M = tiny_rest(level, seed)
        for start, stop in ranges(len(M)):
            expect_pairs(M, start, stop, *eigenpairs(M, start, stop))


def split(sizes, seed):
    """A tridiagonal matrix of several parts, the same and others, that an exact zero or a tiny number separates."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    diagonal, beside = np.tile([2.0, 2.0, 1.0], n)[:n], rng.choice([1.0, 0.5], n - 1)
    ends = np.cumsum(sizes)[:-1] - 1
    beside[ends] = rng.choice([0.0, 1e-300, 1e-17, 1e-15], len(ends))
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


@pytest.mark.parametrize("seed", range(10))
def test_matrices_may_fall_into_parts(seed):
    rng = np.random.default_rng(seed)
    M = split(list(rng.integers(1, 12, rng.integers(2, 9))), seed)
    for start, stop in ranges(len(M)):
        expect_pairs(M, start, stop, *eigenpairs(M, start, stop))


def fail(*arguments):
    return 1


def find_too_few(*arguments):
    arguments[11].value = 4
    return 0


def find_the_first_all_over(*arguments):
    M, values, rows = (arguments[i] for i in (4, 12, 13))
    values[:5], rows[:] = np.linalg.eigh(M)[0][:5], np.linalg.eigh(M)[1][:, 0]
    arguments[11].value = 5
    return 0


def find_nothing_finite(*arguments):
    arguments[13][:] = np.nan
    arguments[11].value = 5
    return 0


@pytest.mark.parametrize("driver", [fail, find_too_few, find_the_first_all_over, find_nothing_finite])
def test_a_driver_that_does_not_find_what_it_should_is_not_trusted(driver, monkeypatch):
    monkeypatch.setitem(lapack._routines, "dsyevr", driver)
    M = with_values(np.linspace(0, 1, 40))
    expect_pairs(M, 0, 5, *eigenpairs(M, 0, 5))


@pytest.mark.parametrize("n", [1, 2, 30, 150])
def test_a_pair_of_matrices_is_reduced_to_one(n):
    rng = np.random.default_rng(0)
    A, C, Y = with_values(rng.standard_normal(n)), with_values(rng.uniform(0.1, 2, n), 1), rng.standard_normal((n, 3))
    L = np.linalg.cholesky(C)
    given = A.copy(), L.copy(), Y.copy()
    M, columns = reduce_pair(A, L), back_substitute(L, Y)
    assert all(np.array_equal(a, b) for a, b in zip(given, (A, L, Y), strict=True))
    inverse = np.linalg.inv(L)
    np.testing.assert_allclose(np.tril(M), np.tril(inverse @ A @ inverse.T), atol=1e-12)
    np.testing.assert_allclose(columns, inverse.T @ Y, atol=1e-12)
    np.testing.assert_allclose(eigenvalues(M), scipy.linalg.eigh(A, C)[0], atol=1e-12)


def test_nothing_is_asked_for():
    for n in (0, 5):
        values, vectors = eigenpairs(np.eye(n), 0, 0)
        assert values.shape == (0,)
        assert vectors.shape == (n, 0)
        assert back_substitute(np.eye(n), vectors).shape == (n, 0)
    assert eigenvalues(np.eye(0)).shape == (0,)
    assert reduce_pair(np.eye(0), np.eye(0)).shape == (0, 0)


def test_only_the_lower_triangle_counts():
    n = 60
    M, above = with_values(np.linspace(1, 2, n)), np.triu_indices(n, 1)
    half = M.copy()
    half[above] = np.nan
    assert np.array_equal(eigenvalues(M), eigenvalues(half))
    for stop in (3, n):
        for whole, lower in zip(eigenpairs(M, 0, stop), eigenpairs(half, 0, stop), strict=True):
            assert np.array_equal(whole, lower)
    L = np.linalg.cholesky(M)
    upper = L.copy()
    upper[above] = np.nan
    assert np.array_equal(np.tril(reduce_pair(M, L)), np.tril(reduce_pair(half, upper)))
    assert np.array_equal(back_substitute(L, M), back_substitute(upper, M))


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
        L = np.linalg.cholesky(np.eye(90) + M @ M)
        M = reduce_pair(M, L)
        return np.column_stack([back_substitute(L, eigenpairs(M, 0, stop)[1]) for stop in (9, 90)])

    alone = [solve(M) for M in matrices]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solve, matrices))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def publish(monkeypatch, **changes):
    monkeypatch.setattr(lapack, "cython_lapack", republish(cython_lapack, **changes))
    monkeypatch.setattr(lapack, "_routines", lapack.find_routines())


def test_routines_are_called_if_their_arguments_are_the_known_ones(monkeypatch):
    publish(monkeypatch)
    assert set(lapack._routines) == {"dpstrf", "dsyevr", "dsygst", "dtrtrs"}


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("change", [*CHANGES.values(), {"without": lambda name: name == "dsygst"}])
def test_routines_with_other_arguments_are_not_called(monkeypatch, change, n):
    M, L = with_values(np.linspace(-1, 1, n)), np.linalg.cholesky(with_values(np.linspace(0.5, 1, n), 1))
    reduced, columns = reduce_pair(M, L), back_substitute(L, M[:, :3])
    publish(monkeypatch, **change)
    assert lapack._routines == {}
    for start, stop in ranges(n):
        expect_pairs(M, start, stop, *eigenpairs(M, start, stop))
    np.testing.assert_allclose(np.tril(reduce_pair(M, L)), np.tril(reduced), atol=1e-14 * n)
    np.testing.assert_allclose(back_substitute(L, M[:, :3]), columns, atol=1e-14 * n)


@pytest.mark.skipif(sys.platform != "linux", reason="semaphores of the C library as Linux has them")
def test_other_threads_run_while_a_driver_works():
    """A C function that waits for a second thread stands for the driver: it is kept waiting if no other thread runs."""
    library, value, began = ctypes.CDLL(None), ctypes.c_int(), threading.Event()
    semaphore, latest = np.zeros(64, np.uint8), np.array([int(time.time()) + 60, 0])
    address = ctypes.c_void_p(semaphore.ctypes.data)
    library.sem_init(address, 0, 0)
    wait = lapack.Routine(ctypes.cast(library.sem_timedwait, ctypes.c_void_p).value, 3)

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
