"""Linear algebra on covariances that may be singular: pairs of matrices with a rank cut, fixed signs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from higsfa.core.blas import mirror
from higsfa.core.lapack import back_substitute, eigenpairs, eigenvalues, reduce_pair

Floats = NDArray[np.float64]

ROWS = 128
"""Rows of a matrix that stay in the cache while something is done to them."""


def lower_blocks(n: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of blocks that cover the lower triangle of an (n, n) matrix."""
    for a in range(0, n, ROWS):
        yield slice(a, min(a + ROWS, n)), slice(0, min(a + ROWS, n))


def rank_tolerance(precision: float) -> float:
    """Eigenvalues of a correlation matrix below this fraction of the largest count as zero.

    `precision` is the machine epsilon of the products that the matrix was summed from. Whitening divides rounding
    errors by the eigenvalue, so the cut lies well above the epsilon itself.
    """
    return float(precision**0.75)


def standard_deviations(C: Floats, noise: Floats) -> Floats:
    """Square roots of the diagonal of a covariance; exactly 0 where the variance is below its noise."""
    variance = np.diag(C)
    return np.sqrt(np.where(variance > noise, variance, 0.0))


class Pencil:
    """The generalised eigenproblem A b = lambda C b on the subspace where C is not singular.

    Variables are standardised by `scale` first, so that their units do not decide about the rank; those of scale 0 are
    left out, and so are directions in which the variance is below `tolerance` times the largest. Only the lower
    triangles of A and C count.

    Attributes
    ----------
    rank : of C; there are so many eigenvalues.
    """

    def __init__(self, A: Floats, C: Floats, scale: Floats, tolerance: float, noise: float = 0.0) -> None:
        """`noise` is the variance of white noise (Delta 2), added to the standardised variables after the rank cut."""
        self._used = np.flatnonzero(scale > 0)
        self._inverse = 1.0 / scale[self._used]
        self._n_variables = len(C)
        C, A = self._standardised(C), self._standardised(A)
        self._whitening = _whitening(C, tolerance, noise)
        C.flat[:: len(C) + 1] += noise
        A.flat[:: len(A) + 1] += 2.0 * noise
        if self._whitening is None:
            self._factor = np.asarray(np.linalg.cholesky(C), np.float64)
            self._reduced = reduce_pair(A, self._factor)
        else:
            mirror(A)
            self._reduced = self._whitening.T @ A @ self._whitening
        self.rank = len(self._reduced)

    def _standardised(self, M: Floats) -> Floats:
        if len(self._used) < len(M):
            M = M[np.ix_(self._used, self._used)]
        out, factors = np.empty(M.shape), self._inverse
        for rows, columns in lower_blocks(len(M)):
            block = np.multiply(M[rows, columns], factors[rows, None], out=out[rows, columns])
            block *= factors[columns]
        return out

    def values(self) -> Floats:
        """All eigenvalues, ascending."""
        return eigenvalues(self._reduced)

    def pairs(self, n: int) -> tuple[Floats, Floats]:
        """The n smallest eigenvalues, or as many as there are, and eigenvectors, as columns B.

        B^T C B = 1, C with the noise.
        """
        values, U = eigenpairs(self._reduced, 0, min(n, self.rank))
        columns = back_substitute(self._factor, U) if self._whitening is None else self._whitening @ U
        B = np.zeros((self._n_variables, len(values)))
        B[self._used] = columns * self._inverse[:, None]
        return values, B


def _whitening(C: Floats, tolerance: float, noise: float) -> Floats | None:
    """W with W^T (C + noise) W = 1, (n, r), on eigenvectors of C whose values are above `tolerance` times the largest.

    None if all are. This is seen without eigenvectors: C stays positive definite when the tolerance times a bound on
    the largest eigenvalue is taken away from its diagonal.
    """
    shifted = C.copy()
    mirror(C)
    shifted.flat[:: len(C) + 1] -= tolerance * _bound(C)
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        values, vectors = eigenpairs(C, 0, len(C))
        kept = values > tolerance * values[-1]
        return np.asarray(vectors[:, kept] / np.sqrt(values[kept] + noise))
    return None


def _bound(C: Floats) -> float:
    """No eigenvalue of C is larger: for any x > 0, the largest entry of |C| x / x is a bound (Collatz and Wielandt).

    Some steps towards the largest eigenvector of |C| make it tight.
    """
    size, x = np.abs(C), np.ones(len(C))
    for _ in range(2):
        x = size @ x
    return float(np.max(size @ x / x, initial=0.0))


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
