"""Linear algebra on covariances that may be singular: eigenpairs, pairs of matrices with a rank cut, fixed signs.

This is the only module that calls LAPACK. numpy has no driver that stops at some eigenvectors and nothing for pairs of
matrices, and scipy's wrappers hold the interpreter lock. So LAPACK's routines are called through ctypes, which releases
it, at the addresses that ``scipy.linalg.cython_lapack`` publishes. If scipy publishes them with other arguments one day
(64-bit integers, say), its wrappers are called instead: the same routines, one thread at a time.

Matrices are C-contiguous float64. Only the lower triangle of a symmetric matrix counts. Arguments are not changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from ctypes import byref, c_char, c_double, c_int
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, lapack

from higsfa.core.native.library import published

Floats = NDArray[np.float64]

MIRROR_STEP = 64
"""Rows and columns of a matrix that stay in the cache while they are transposed."""
_ABOVE = np.triu(np.ones((MIRROR_STEP, MIRROR_STEP), dtype=bool), 1)
FEW = 6
"""Eigenvectors are found one by one if n / 6 of them are wanted or fewer, else all at once."""
BLOCK = 64
"""Largest block of columns that LAPACK works on at a time."""
TINY = float(np.finfo(np.float64).tiny)
ACCURATE = 2 * TINY
"""Errors of eigenvalues, relative to the largest entry: tiny, because LAPACK tells by them which vectors are close."""
SKEWED = 100 * float(np.finfo(np.float64).eps)
"""Largest deviation of V^T V from 1 for orthonormal columns, divided by n."""
MOST_STEPS = 100
"""Of the power method."""
RANK_CUT = 0.75
"""Eigenvalues of a correlation matrix below eps^0.75 times the largest count as zero; eps is that of the products that
the matrix was summed from. Whitening divides rounding errors by the eigenvalue, so the cut lies well above eps."""

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


_ARGUMENTS = {
    "dpstrf": "cidiiiddi",
    "dsyevr": "cccididdiididdiidiiii",
    "dsygst": "icididii",
    "dtrtrs": "ccciididii",
}


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
    error = ACCURATE * _largest_entry(M)
    n, k = len(M), stop - start
    if k == 0:
        return np.zeros(0), np.zeros((n, 0))
    if k * FEW <= n:
        n_work, n_iwork = (BLOCK + 26) * n, 10 * n
        if _routines:
            values, rows, found = np.empty(n), np.empty((k, n)), c_int()
            work, iwork, support = np.empty(n_work), np.empty(n_iwork, np.intc), np.empty(2 * n, np.intc)
            wanted = 0.0, 0.0, start + 1, stop, error  # by their numbers, not by bounds
            out = found, values, rows, n, support, work, n_work, iwork, n_iwork
            info = _routines["dsyevr"]("V", "I", _LOWER, n, M.copy(), n, *wanted, *out)
            vectors, n_found = rows.T, found.value
        else:
            values, vectors, n_found, _, info = lapack.dsyevr(
                M, range="I", il=start + 1, iu=stop, lower=1, abstol=error, lwork=n_work, liwork=n_iwork
            )
            vectors = vectors[:, :n_found]
        # Bisection and inverse iteration may lose orthogonality where eigenvalues crowd; divide and conquer does not.
        if info == 0 and n_found == k and np.max(np.abs(vectors.T @ vectors - np.eye(k))) < SKEWED * n:
            return values[:k], vectors
    values, vectors = np.linalg.eigh(M)
    return values[start:stop], vectors[:, start:stop]


def eigenvalues(M: Floats) -> Floats:
    """All eigenvalues, ascending."""
    _largest_entry(M)
    return np.asarray(np.linalg.eigvalsh(M), np.float64)


def positive_directions(M: Floats, floor: float) -> int:
    """So many eigenvalues, or more, are above the floor: steps of a pivoted Cholesky decomposition of M - floor."""
    n, M = len(M), M.copy()
    M.flat[:: n + 1] -= floor
    if n == 0:
        return 0
    if not _routines:
        return int(lapack.dpstrf(M, tol=0.0, lower=1)[2])
    rank = c_int()
    _routines["dpstrf"](_LOWER, n, M, n, np.empty(n, np.intc), rank, 0.0, np.empty(2 * n))
    return rank.value


def _largest_entry(M: Floats) -> float:
    size = max(float(np.max(M, initial=0.0)), -float(np.min(M, initial=0.0)))
    if not np.isfinite(size):
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


def whole(C: NDArray[Any]) -> NDArray[Any]:
    """A symmetric matrix with both of its triangles, given the lower one."""
    C = C.copy()
    for a in range(0, len(C), MIRROR_STEP):
        b = a + MIRROR_STEP
        corner = C[a:b, a:b]
        np.copyto(corner, corner.T.copy(), where=_ABOVE[: len(corner), : len(corner)])
        C[a:b, b:] = C[b:, a:b].T
    return C


class Reflection:
    """Coordinates of the subspace orthogonal to k orthonormal columns V (n, k).

    With V turned so that its first k rows are positive semidefinite, and U = V + the first k unit vectors, the matrix
    Q = 1 - 2 U (U^T U)^-1 U^T is orthogonal and symmetric and takes V to unit vectors. So its other n - k rows span the
    rest, and Q M Q differs from M by 2 k dyads: far less work than products with a basis.
    """

    def __init__(self, V: Floats) -> None:
        k = V.shape[1]
        left, _, right = np.linalg.svd(V[:k])
        U = V @ (left @ right).T
        U[:k] += np.eye(k)
        self._U, self._W = U, U @ np.linalg.inv(U[:k])  # U^T U = 2 U[:k]

    def restrict(self, M: Floats) -> Floats:
        """A symmetric matrix (n, n) in these coordinates, (n - k, n - k)."""
        U, W = self._U, self._W
        k = U.shape[1]
        G = M @ W
        H = G - 0.5 * U @ (W.T @ G)
        dyads = np.hstack([U[k:], H[k:]]) @ np.hstack([H[k:], U[k:]]).T
        np.subtract(M[k:, k:], dyads, out=dyads)
        return np.asarray(dyads)

    def extend(self, columns: Floats) -> Floats:
        """Vectors (n - k, m) in all n coordinates."""
        k = self._U.shape[1]
        whole_columns = np.vstack([np.zeros((k, columns.shape[1])), columns])
        return np.asarray(whole_columns - self._W @ (self._U[k:].T @ columns))


class Pencil:
    """The generalised eigenproblem A b = lambda C b on the subspace where C is not singular.

    Variables are standardised by `scale` first, so that their units do not decide about the rank; those of scale 0 are
    left out, and so are directions in which the variance is below `tolerance` times the largest. Only the lower
    triangles of A and C count.

    Attributes
    ----------
    rank : of C, the number of eigenvalues.
    """

    def __init__(
        self, A: Floats, C: Floats, scale: Floats, tolerance: float, noise: float = 0.0, *, diagonal: bool = False
    ) -> None:
        """`noise` is the variance of white noise (Delta 2), added to the standardised variables after the rank cut.

        With `diagonal`, C is decomposed even if it is regular: after that each `plus` is cheap.
        """
        self._used = np.flatnonzero(scale > 0)
        self._inverse = 1.0 / scale[self._used]
        self._n_variables = len(C)
        self._C, self._A, self._noise = self._standardised(C), self._standardised(A), noise
        self._axes: Floats | None = None
        self._reflection: Reflection | None = None
        if len(self._C) and (diagonal or not self._leave_out(tolerance)):
            values, vectors = eigenpairs(self._C, 0, len(self._C))
            kept = values > tolerance * values[-1]
            self._variances, self._axes = values[kept], vectors[:, kept]
            self._A = self._axes.T @ whole(self._A) @ self._axes
        self.rank = len(self._A)

    def _standardised(self, M: Floats) -> Floats:
        """A matrix of the variables that are used, in units of their scales."""
        some = M if len(self._used) == len(M) else M[np.ix_(self._used, self._used)]
        out = some * self._inverse
        out *= self._inverse[:, None]
        return out

    def _leave_out(self, tolerance: float) -> bool:
        """Leave out the directions in which C has hardly any variance; False if they may be many."""
        n = len(self._C)
        C = whole(self._C)
        n_most = n - positive_directions(C, tolerance * _bound(C))
        if n_most == 0 or n_most * FEW > n:
            return n_most == 0
        values, vectors = eigenpairs(C, 0, n_most)
        n_out = int(np.searchsorted(values, tolerance * _largest_eigenvalue(C), side="right"))
        if n_out:
            self._reflection = Reflection(vectors[:, :n_out])
            self._C, self._A = self._reflection.restrict(C), self._reflection.restrict(whole(self._A))
        return True

    def plus(self, noise: float) -> Pencil:
        """The same pair with this noise; 2 C - A does not change with it."""
        other = copy(self)
        other._noise = noise
        other.__dict__.pop("_reduced", None)
        return other

    @cached_property
    def _reduced(self) -> tuple[Floats, Floats]:
        """A matrix with the same eigenvalues, and what makes eigenvectors of the pair from its own.

        This is the Cholesky factor of C, or the columns W with W^T C W = 1 if C was decomposed.
        """
        A = _with_diagonal(self._A, 2.0 * self._noise)
        if self._axes is not None:
            lengths = 1.0 / np.sqrt(self._variances + self._noise)
            return A * np.outer(lengths, lengths), self._axes * lengths
        factor = np.asarray(np.linalg.cholesky(_with_diagonal(self._C, self._noise)), np.float64)
        return reduce_pair(A, factor), factor

    def values(self) -> Floats:
        """All eigenvalues, ascending."""
        return eigenvalues(self._reduced[0])

    def pairs(self, n: int) -> tuple[Floats, Floats]:
        """The n smallest eigenvalues, or as many as there are, and eigenvectors, as columns B.

        B^T C B = 1, C with the noise.
        """
        reduced, whitening = self._reduced
        values, U = eigenpairs(reduced, 0, min(n, self.rank))
        columns = back_substitute(whitening, U) if self._axes is None else whitening @ U
        if self._reflection is not None:
            columns = self._reflection.extend(columns)
        B = np.zeros((self._n_variables, len(values)))
        B[self._used] = columns * self._inverse[:, None]
        return values, B


def _with_diagonal(M: Floats, added: float) -> Floats:
    """A matrix with a number added to its diagonal; itself for 0."""
    if added:
        M = M.copy()
        M.flat[:: len(M) + 1] += added
    return M


def _bound(C: Floats) -> float:
    """No eigenvalue of C is larger: for any x > 0, the largest entry of |C| x / x is a bound (Collatz and Wielandt).

    Some steps towards the largest eigenvector of |C| make it tight.
    """
    size, x = np.abs(C), np.ones(len(C))
    for _ in range(2):
        x = size @ x
    return float(np.max(size @ x / x, initial=0.0))


def _largest_eigenvalue(C: Floats) -> float:
    """The largest eigenvalue of a positive semidefinite matrix, to about 1e-6: some steps of the power method."""
    # Not from a column, nor from ones: variables that are uncorrelated with it may have the largest eigenvalue.
    x, value = C @ np.random.default_rng(0).standard_normal(len(C)), 0.0
    for _ in range(MOST_STEPS):
        x = x / max(float(np.sqrt(x @ x)), TINY)
        y = C @ x
        before, value = value, float(x @ y)
        if value - before <= 1e-7 * value:
            break
        x = y
    return value


def fix_signs(columns: Floats, scale: Floats | None = None) -> Floats:
    """Signs (+1 or -1, one a column) that make the leading weight of every column positive.

    The leading weight is the first one whose size, in units of the variable's standard deviation, is within 0.1 %
    of the largest. "First within", not "largest": ties such as x1 - x2 must not be decided by rounding.
    """
    if columns.size == 0:
        return np.ones(columns.shape[1])
    weights = columns if scale is None else columns * scale[:, None]
    size = np.abs(weights)
    leading = np.argmax(size >= 0.999 * size.max(axis=0), axis=0)
    return np.where(weights[leading, np.arange(weights.shape[1])] < 0, -1.0, 1.0)


def decorrelating(variances: Floats, least: Floats | float = 0.0) -> Floats:
    """Columns W (n, m) that make features with these covariances uncorrelated, of variance 1, one after the other.

    Features of which less than 1e-10 of the variance, or no more than `least`, is left by those before them are left
    out.
    """
    n = len(variances)
    new, least = np.zeros((n, n)), np.broadcast_to(least, n)
    kept = 0
    for j, column in enumerate(np.eye(n)):
        for _ in range(2):  # twice is enough
            column = column - new[:, :kept] @ (new[:, :kept].T @ (variances @ column))
        left = column @ variances @ column
        if left > max(1e-10 * variances[j, j], least[j]):
            new[:, kept] = column / np.sqrt(left)
            kept += 1
    return new[:, :kept]


def principal_axes(C: Floats, floor: float, n_wanted: int | None = None) -> tuple[Floats, Floats]:
    """Eigenvalues above `floor`, descending, and eigenvectors (as columns, signs fixed) of a covariance.

    All of them, or the first `n_wanted`.
    """
    n = len(C)
    start = 0 if n_wanted is None else max(n - n_wanted, 0)
    values, vectors = eigenpairs(C, start, n)
    kept = values > floor
    values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
    return values, vectors * fix_signs(vectors)
