"""Some eigenvectors of a symmetric matrix instead of all, and the steps that lead from a pair of matrices to one.

numpy only knows whole decompositions of whole matrices, and scipy's wrappers keep other threads from running. So
routines of LAPACK are called here at the addresses that ``scipy.linalg.cython_lapack`` publishes for compiled code, by
ctypes, which lets other threads run meanwhile. Matrices are C-contiguous float64; of symmetric ones, only the lower
triangle counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char, c_double, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

from higsfa.core.blas import address_of, name_of

Floats = NDArray[np.float64]

BISECTED = 18
"""Eigenvalues of a tridiagonal matrix are found one by one if n / 18 of them are wanted or fewer, else all at once."""
ITERATED = 6
"""Its eigenvectors are found one by one if n / 6 of them are wanted or fewer, else all at once."""

_LETTERS = {letter: c_char(letter.encode()) for letter in "EILNRTUV"}
_LOWER = "U"  # to Fortran, which stores by columns, C-contiguous arrays are transposed


_GIVEN: dict[type, Callable[[Any], Any]] = {
    np.ndarray: lambda array: array.ctypes.data,
    str: lambda letter: byref(_LETTERS[letter]),
    int: lambda number: byref(c_int(number)),
    float: lambda number: byref(c_double(number)),
    c_int: byref,
}
"""Arguments as Fortran wants them: by their addresses."""


class _Routine:
    """A routine of LAPACK. The last argument of all tells whether it went well (0); it is added here, and returned."""

    def __init__(self, name: str) -> None:
        capsule = cython_lapack.__pyx_capi__[name]
        signature = name_of(capsule)
        n_arguments = signature.count(b",") + 1
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address_of(capsule, signature))

    def __call__(self, *values: Any) -> int:
        info = c_int()
        self._call(*[_GIVEN[type(value)](value) for value in values], byref(info))
        return info.value


_dlarrc, _dormtr, _dpotrf, _dstebz, _dstedc = map(_Routine, ["dlarrc", "dormtr", "dpotrf", "dstebz", "dstedc"])
_dstein, _dsterf, _dsygst, _dsytrd, _dtrtrs = map(_Routine, ["dstein", "dsterf", "dsygst", "dsytrd", "dtrtrs"])


def _room(n: int) -> tuple[Floats, int]:
    """Work space for blocks of 64 rows or columns and their triangular factors, and its size."""
    size = 64 * n + 65 * 64
    return np.empty(size), size


def cholesky(C: Floats) -> bool:
    """Put L with C = L L^T into the lower triangle of C; False if C is not positive definite."""
    return _dpotrf(_LOWER, len(C), C, len(C)) == 0


def reduce_pair(A: Floats, L: Floats) -> None:
    """Put the symmetric matrix L^-1 A L^-T into the lower triangle of A."""
    _dsygst(1, _LOWER, len(A), A, len(A), L, len(A))


def back_substitute(L: Floats, columns: Floats) -> Floats:
    """L^-T times columns (n, k); they are used as work space."""
    rows = np.ascontiguousarray(columns.T)
    _dtrtrs(_LOWER, "N", "N", len(L), len(rows), L, len(L), rows, len(L))
    return rows.T


class Tridiagonal:
    """A symmetric matrix, brought into tridiagonal form; eigenvalues are numbered from 0, ascending."""

    def __init__(self, M: Floats) -> None:
        """The matrix must have a row or more; it is overwritten."""
        n = self._n = len(M)
        self._M, self._factors = M, np.empty(n)
        self._first, self._values = 0, np.zeros(0)  # the values found last, and the number of the first of them
        self._diagonal, self._beside = np.empty(n), np.zeros(n)
        _dsytrd(_LOWER, n, M, n, self._diagonal, self._beside, self._factors, *_room(n))
        if not np.isfinite(self._diagonal.sum() + self._beside.sum()):
            raise np.linalg.LinAlgError("a matrix whose eigenvalues are wanted has entries that are not finite")

    def count(self, bound: float) -> int:
        """How many eigenvalues are below `bound`."""
        smallest = float(np.finfo(np.float64).tiny * max(1.0, np.max(self._beside**2)))
        within, below, same = c_int(), c_int(), c_int()
        _dlarrc("T", self._n, bound, bound, self._diagonal, self._beside, smallest, within, below, same)
        return below.value

    def values(self, start: int, stop: int) -> Floats:
        """Eigenvalues from number `start` up to, but without, `stop`."""
        if not self._first <= start <= stop <= self._first + len(self._values):
            found = self._some_values(start, stop) if (stop - start) * BISECTED <= self._n else None
            self._first, self._values = (0, self._all_values()) if found is None else (start, found)
        return self._values[start - self._first : stop - self._first]

    def _some_values(self, start: int, stop: int) -> Floats | None:
        """By bisection; None if it does not converge."""
        n = self._n
        values, marks, work, iwork = np.empty(n), np.empty((2, n), np.intc), np.empty(4 * n), np.empty(3 * n, np.intc)
        wanted = "I", "E", n, 0.0, 0.0, start + 1, stop, 0.0
        info = _dstebz(*wanted, self._diagonal, self._beside, c_int(), c_int(), values, *marks, work, iwork)
        return values[: stop - start] if info == 0 else None

    def _all_values(self) -> Floats:
        values = self._diagonal.copy()
        _expect_convergence(_dsterf(self._n, values, self._beside.copy()))
        return values

    def pairs(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """These eigenvalues and their eigenvectors, orthonormal, as columns."""
        n = self._n
        found = self._some_pairs(start, stop) if (stop - start) * ITERATED <= n else None
        values, rows = self._all_pairs(start, stop) if found is None else found
        _dormtr("L", _LOWER, "N", n, len(rows), self._M, n, self._factors, rows, n, *_room(n))
        return values, rows.T

    def _some_pairs(self, start: int, stop: int) -> tuple[Floats, Floats] | None:
        """Those of the tridiagonal matrix, vectors as rows, by inverse iteration; None if that fails."""
        n, k = self._n, stop - start
        values, rows = self.values(start, stop), np.empty((k, n))
        blocks, ends = np.ones(max(k, 1), np.intc), np.full(n, n, np.intc)  # the matrix is taken as one block
        work, iwork, failed = np.empty(5 * n), np.empty(n, np.intc), np.empty(max(k, 1), np.intc)
        info = _dstein(n, self._diagonal, self._beside, k, values, blocks, ends, rows, n, work, iwork, failed)
        return (values, rows) if info == 0 and np.all(np.isfinite(rows)) else None

    def _all_pairs(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """The same by divide and conquer."""
        n = self._n
        values, rows = self._diagonal.copy(), np.empty((n, n))
        work, iwork = np.empty(1 + 4 * n + n * n), np.empty(3 + 5 * n, np.intc)
        info = _dstedc("I", n, values, self._beside.copy(), rows, n, work, work.size, iwork, iwork.size)
        _expect_convergence(info)
        return values[start:stop], rows[start:stop]


def _expect_convergence(info: int) -> None:
    if info:
        raise np.linalg.LinAlgError("the eigenvalues of a matrix did not converge")
