"""Some eigenpairs of a symmetric matrix, and the way from a pair of matrices to one, by LAPACK.

numpy has no driver that stops at some eigenvectors and nothing for pairs, and scipy's wrappers keep other threads from
running. So routines of LAPACK are called by ctypes, which lets other threads run, at the addresses that
``scipy.linalg.cython_lapack`` publishes for compiled code. Should scipy ever publish them with other arguments (64-bit
integers, say), its wrappers are called after all: the same routines, one thread at a time.

Matrices are C-contiguous float64; only the lower triangles of symmetric ones count, and all are left as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char, c_double, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, lapack

from higsfa.core.blas import published

Floats = NDArray[np.float64]

FEW = 6
"""Eigenvectors are found one by one if n / 6 of them are wanted or fewer, else all at once."""
BLOCK = 64
"""LAPACK works on so many columns at a time, or fewer."""
ACCURATE = 2 * float(np.finfo(np.float64).tiny)
"""Errors of eigenvalues, relative to the largest entry: tiny, because LAPACK tells by them which vectors are close."""
SKEWED = 100 * float(np.finfo(np.float64).eps)
"""V^T V of orthonormal columns may differ by so much from 1, times n."""

_LETTERS = {letter: c_char(letter.encode()) for letter in "INUV"}
_LOWER = "U"  # to Fortran, which stores by columns, C-contiguous arrays are transposed

_GIVEN: dict[type, Callable[[Any], Any]] = {
    np.ndarray: lambda array: array.ctypes.data,
    str: lambda letter: byref(_LETTERS[letter]),
    int: lambda number: byref(c_int(number)),
    float: lambda number: byref(c_double(number)),
    c_int: byref,
}
"""Arguments as Fortran wants them: by their addresses."""


class Routine:
    """A routine of LAPACK. Its last argument tells whether it went well (0); it is added here, and returned."""

    def __init__(self, address: int, n_arguments: int) -> None:
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)

    def __call__(self, *values: Any) -> int:
        info = c_int()
        self._call(*[_GIVEN[type(value)](value) for value in values], byref(info))
        return info.value


_ARGUMENTS = {"dsyevr": "cccididdiididdiidiiii", "dsygst": "icididii", "dtrtrs": "ccciididii"}


def find_routines() -> dict[str, Routine]:
    """The routines by name; none if scipy publishes one of them with other arguments."""
    routines = {}
    for name, kinds in _ARGUMENTS.items():
        address = published(cython_lapack, name, kinds)
        if address is None:
            return {}
        routines[name] = Routine(address, len(kinds))
    return routines


_routines = find_routines()


def eigenpairs(M: Floats, start: int, stop: int) -> tuple[Floats, Floats]:
    """Eigenvalues, ascending, from number `start` to before `stop`, and orthonormal eigenvectors, as columns."""
    size = _largest_entry(M)
    n, k = len(M), stop - start
    if k == 0:
        return np.zeros(0), np.zeros((n, 0))
    if k * FEW <= n:
        values, vectors = _some_pairs(M, start, stop, ACCURATE * size)
        # Bisection and inverse iteration may lose orthogonality where eigenvalues crowd; divide and conquer does not.
        if vectors.shape == (n, k) and np.max(np.abs(vectors.T @ vectors - np.eye(k))) < SKEWED * n:
            return values, vectors
    values, vectors = np.linalg.eigh(M)
    return values[start:stop], vectors[:, start:stop]


def _some_pairs(M: Floats, start: int, stop: int, error: float) -> tuple[Floats, Floats]:
    """What LAPACK's driver finds of these pairs; `error` of the eigenvalues is allowed, or rounding errors if 0."""
    n, k = len(M), stop - start
    if not _routines:
        values, columns, n_found, _, info = lapack.dsyevr(
            M, range="I", il=start + 1, iu=stop, lower=1, abstol=error, lwork=(BLOCK + 26) * n, liwork=10 * n
        )
        return values[:n_found], columns[:, : n_found if info == 0 else 0]
    values, rows, found = np.empty(n), np.empty((k, n)), c_int()
    work, iwork, support = np.empty((BLOCK + 26) * n), np.empty(10 * n, np.intc), np.empty(2 * n, np.intc)
    wanted = 0.0, 0.0, start + 1, stop, error  # by their numbers, not by bounds
    out = found, values, rows, n, support, work, work.size, iwork, iwork.size
    info = _routines["dsyevr"]("V", "I", _LOWER, n, M.copy(), n, *wanted, *out)
    return values[:k], rows[: found.value if info == 0 else 0].T


def eigenvalues(M: Floats) -> Floats:
    """All eigenvalues, ascending."""
    _largest_entry(M)
    return np.asarray(np.linalg.eigvalsh(M), np.float64)


def _largest_entry(M: Floats) -> float:
    size = float(np.max(np.abs(np.tril(M)), initial=0.0))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("a matrix whose eigenvalues are wanted has entries that are not finite")
    return size


def reduce_pair(A: Floats, L: Floats) -> Floats:
    """The symmetric matrix L^-1 A L^-T for a triangular L, in its lower triangle."""
    n, M = len(A), A.copy()
    if n == 0:
        return M
    if not _routines:
        return np.asarray(lapack.dsygst(M, L, lower=1)[0])
    _routines["dsygst"](1, _LOWER, n, M, n, L, n)
    return M


def back_substitute(L: Floats, columns: Floats) -> Floats:
    """L^-T times columns (n, k)."""
    n, rows = len(L), columns.T.copy()
    if rows.size == 0:
        return rows.T
    if not _routines:
        return np.asarray(lapack.dtrtrs(L, columns, lower=1, trans=1)[0])
    _routines["dtrtrs"](_LOWER, "N", "N", n, len(rows), L, n, rows, n)
    return rows.T
