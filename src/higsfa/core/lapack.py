"""Eigenvalues of symmetric matrices and of pairs of them, all or some, by LAPACK's drivers.

numpy has no driver that stops at some eigenvectors and none for pairs, and scipy's wrappers keep other threads from
running. So the drivers are called by ctypes, which lets other threads run, at the addresses that
``scipy.linalg.cython_lapack`` publishes for compiled code. Should scipy ever publish routines with other arguments
there (64-bit integers, say), its wrappers are called after all: the same drivers, one thread at a time.

Matrices are C-contiguous float64; only their lower triangles count, and they are left as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char, c_double, c_int
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

from higsfa.core.blas import published

Floats = NDArray[np.float64]

FEW = 6
"""Eigenvectors are found one by one if n / 6 of them are wanted or fewer, else all at once."""
BLOCK = 64
"""LAPACK works on so many columns at a time, or fewer."""

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


class Driver:
    """A driver of LAPACK. Its last argument tells whether it went well (0); it is added here, and returned."""

    def __init__(self, address: int, n_arguments: int) -> None:
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)

    def __call__(self, *values: Any) -> int:
        info = c_int()
        self._call(*[_GIVEN[type(value)](value) for value in values], byref(info))
        return info.value


_ARGUMENTS = {"dsyevr": "cccididdiididdiidiiii", "dsygvx": "icccidididdiididdidiiii", "dsygvd": "iccidididdiiii"}


def find_drivers() -> dict[str, Driver]:
    """The drivers by name; none if scipy publishes one of them with other arguments."""
    drivers = {}
    for name, kinds in _ARGUMENTS.items():
        address = published(cython_lapack, name, kinds)
        if address is None:
            return {}
        drivers[name] = Driver(address, len(kinds))
    return drivers


_drivers = find_drivers()


def eigenpairs(M: Floats, start: int, stop: int, C: Floats | None = None) -> tuple[Floats, Floats]:
    """Eigenvalues of M, ascending, from number `start` up to, but without, `stop`, and eigenvectors V as columns.

    M V = V diag(values) and V^T V = 1; with a positive definite C, M V = C V diag(values) and V^T C V = 1.
    """
    _expect_finite(M)
    n, k = len(M), stop - start
    if k == 0:
        return np.zeros(0), np.zeros((n, 0))
    if not _drivers:
        part = [start, stop - 1] if k * FEW <= n else None
        values, vectors = scipy.linalg.eigh(M, C, subset_by_index=part, check_finite=False)
        return (values, vectors) if part else (values[start:stop], vectors[:, start:stop])
    found = _some(M, start, stop, C) if k * FEW <= n else None
    if found is not None:
        return found
    values, vectors = np.linalg.eigh(M) if C is None else _all(M, C, "V")
    return values[start:stop], vectors[:, start:stop]


def eigenvalues(M: Floats, C: Floats | None = None) -> Floats:
    """All eigenvalues of M, or of M with respect to a positive definite C, ascending."""
    _expect_finite(M)
    if C is None or len(M) == 0:
        return np.asarray(np.linalg.eigvalsh(M), np.float64)
    if not _drivers:
        return np.asarray(scipy.linalg.eigh(M, C, eigvals_only=True, check_finite=False))
    return _all(M, C, "N")[0]


def _some(M: Floats, start: int, stop: int, C: Floats | None) -> tuple[Floats, Floats] | None:
    """Eigenpairs one by one, by bisection and inverse iteration; None if that fails."""
    n, k = len(M), stop - start
    values, rows, found = np.empty(n), np.empty((k, n)), c_int()
    work, iwork, marks = np.empty((BLOCK + 26) * n), np.empty(10 * n, np.intc), np.empty(2 * n, np.intc)
    wanted = 0.0, 0.0, start + 1, stop, 0.0  # no bounds; numbers of the eigenvalues; LAPACK's own tolerance
    if C is None:
        out = found, values, rows, n, marks, work, work.size, iwork, iwork.size
        info = _drivers["dsyevr"]("V", "I", _LOWER, n, M.copy(), n, *wanted, *out)
    else:
        result = found, values, rows, n, work, work.size, iwork, marks
        info = _drivers["dsygvx"](1, "V", "I", _LOWER, n, M.copy(), n, C.copy(), n, *wanted, *result)
    return (values[:k], rows.T) if info == 0 and found.value == k else None


def _all(M: Floats, C: Floats, job: str) -> tuple[Floats, Floats]:
    """All eigenvalues of a pair and, for the job "V", all eigenvectors, by divide and conquer."""
    n = len(M)
    values, rows = np.empty(n), M.copy()
    work = np.empty(1 + 6 * n + 2 * n * n if job == "V" else (BLOCK + 2) * n + 1)
    iwork = np.empty(3 + 5 * n, np.intc)
    info = _drivers["dsygvd"](1, job, _LOWER, n, rows, n, C.copy(), n, values, work, work.size, iwork, iwork.size)
    if info:
        raise np.linalg.LinAlgError("the eigenvalues of a pair of matrices did not converge")
    return values, rows.T


def _expect_finite(M: Floats) -> None:
    if not np.all(np.isfinite(np.tril(M))):
        raise np.linalg.LinAlgError("a matrix whose eigenvalues are wanted has entries that are not finite")
