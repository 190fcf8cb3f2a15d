"""Linear algebra on covariances that may be singular: pairs of matrices with a rank cut, fixed signs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from higsfa.core.blas import mirror
from higsfa.core.lapack import ITERATED, Tridiagonal, back_substitute, cholesky, reduce_pair

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
    left out, and so are directions in which the variance is below `tolerance` times the largest. A Cholesky factor of
    the rest turns the problem into an ordinary one, of which only the eigenvectors that are asked for are computed.
    Only the lower triangles of A and C count.

    Attributes
    ----------
    rank : of C; there are so many eigenvalues.
    """

    def __init__(self, A: Floats, C: Floats, scale: Floats, tolerance: float, noise: float = 0.0) -> None:
        """`noise` is the variance of white noise (Delta 2) that is added to all variables, once the rank is known."""
        self._used = np.flatnonzero(scale > 0)
        self._inverse = 1.0 / scale[self._used]
        self._n_variables, self.rank = len(C), len(self._used)
        if self.rank == 0:
            return
        C, A = self._standardised(C), self._standardised(A)
        mirror(C)
        self._space = _regular(C, tolerance)
        if noise:
            C.flat[:: len(C) + 1] += noise * self._inverse**2
            A.flat[:: len(A) + 1] += 2.0 * noise * self._inverse**2
        if self._space is not None:
            mirror(A)
            C, A = self._space.restrict(C), self._space.restrict(A)
        self.rank, self._factor = len(C), C
        if not cholesky(C):
            raise np.linalg.LinAlgError("a covariance without its singular directions is not positive definite")
        reduce_pair(A, C)
        self._reduced = Tridiagonal(A)

    def _standardised(self, M: Floats) -> Floats:
        if len(self._used) < len(M):
            M = M[np.ix_(self._used, self._used)]
        out, factors = np.empty(M.shape), self._inverse
        for rows, columns in lower_blocks(len(M)):
            block = np.multiply(M[rows, columns], factors[rows, None], out=out[rows, columns])
            block *= factors[columns]
        return out

    def values(self, n: int) -> Floats:
        """The n smallest eigenvalues, ascending, or as many as there are."""
        n = min(n, self.rank)
        return self._reduced.values(0, n) if n else np.zeros(0)

    def vectors(self, n: int) -> Floats:
        """Their eigenvectors, as columns B with B^T C B = 1 (C with the noise)."""
        n = min(n, self.rank)
        B = np.zeros((self._n_variables, n))
        if n:
            columns = back_substitute(self._factor, self._reduced.pairs(0, n)[1])
            columns = columns if self._space is None else self._space.embed(columns)
            B[self._used] = columns * self._inverse[:, None]
        return B


class _Span:
    """The space that orthonormal columns (n, r) span."""

    def __init__(self, columns: Floats) -> None:
        self._columns = columns

    def restrict(self, M: Floats) -> Floats:
        """A symmetric matrix in coordinates of this space, (r, r)."""
        return self._columns.T @ M @ self._columns

    def embed(self, columns: Floats) -> Floats:
        """Vectors given in coordinates of this space, as columns (r, k), in those of the whole space, (n, k)."""
        return self._columns @ columns


class _Complement:
    """The space orthogonal to a few orthonormal columns (n, m).

    A reflection 1 - U G U^T takes the columns to the first m axes, so the other axes are the coordinates.
    """

    def __init__(self, columns: Floats) -> None:
        m = self._m = columns.shape[1]
        left, cosines, right = np.linalg.svd(columns[:m])
        self._U = columns.copy()
        self._U[:m] += left @ right
        self._G = (right.T / (1.0 + cosines)) @ right

    def restrict(self, M: Floats) -> Floats:
        """A symmetric matrix in coordinates of this space, (n - m, n - m)."""
        m, U = self._m, self._U
        P = M @ U @ self._G
        P -= 0.5 * U @ (self._G @ (U.T @ P))
        left, right = np.hstack([U[m:], P[m:]]), np.hstack([P[m:], U[m:]]).T
        inner = M[m:, m:]
        out = np.empty(inner.shape)
        for rows, columns in lower_blocks(len(inner)):
            np.subtract(inner[rows, columns], left[rows] @ right[:, columns], out=out[rows, columns])
        return out

    def embed(self, columns: Floats) -> Floats:
        """Vectors given in coordinates of this space, as columns (n - m, k), in those of the whole space, (n, k)."""
        whole: Floats = -self._U @ (self._G @ (self._U[self._m :].T @ columns))
        whole[self._m :] += columns
        return whole


def _regular(C: Floats, tolerance: float) -> _Span | _Complement | None:
    """The space of eigenvectors of C whose values are above `tolerance` times the largest; None for the whole space.

    That it is the whole space is seen without eigenvectors: C stays positive definite when the tolerance times a bound
    on the largest eigenvalue is taken away from its diagonal.
    """
    n = len(C)
    shifted = C.copy()
    shifted.flat[:: n + 1] -= tolerance * _bound(C)
    if cholesky(shifted):
        return None
    reduced = Tridiagonal(C.copy())
    m = reduced.count(tolerance * float(reduced.values(n - 1, n)[0]))
    if m * ITERATED > n:
        return _Span(reduced.pairs(m, n)[1])
    return _Complement(reduced.pairs(0, m)[1]) if m else None


def _bound(C: Floats) -> float:
    """No eigenvalue of C is larger: for any x > 0, the largest entry of |C| x / x is a bound (Collatz and Wielandt).

    Some steps towards the largest eigenvector of |C| make it tight.
    """
    size, x = np.abs(C), np.ones(len(C))
    for _ in range(2):
        x = size @ x
    return float(np.max(size @ x / x))


def fix_signs(columns: Floats, scale: Floats | None = None) -> Floats:
    """Signs (+1 or -1, one a column) that make the leading weight of every column positive.

    The leading weight is the first one whose size, in units of the variable's standard deviation, is within 0.1 %
    of the largest. "First within", not "largest": ties such as x1 - x2 must not be decided by rounding.
    """
    weights = columns if scale is None else columns * scale[:, None]
    size = np.abs(weights)
    leading = np.argmax(size >= 0.999 * size.max(axis=0, initial=0.0), axis=0)
    if len(weights) == 0:
        return np.ones(weights.shape[1])
    return np.where(weights[leading, np.arange(weights.shape[1])] < 0, -1.0, 1.0)


def principal_axes(C: Floats, floor: float, n_wanted: int | None = None) -> tuple[Floats, Floats]:
    """Eigenvalues above `floor`, descending, and eigenvectors (as columns, signs fixed) of a covariance.

    All of them, or the first `n_wanted`.
    """
    n = len(C)
    start = 0 if n_wanted is None else max(n - n_wanted, 0)
    if start == n:
        return np.zeros(0), np.zeros((n, 0))
    values, vectors = Tridiagonal(C.copy()).pairs(start, n)
    kept = values > floor
    values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
    return values, vectors * fix_signs(vectors)
