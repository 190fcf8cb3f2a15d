"""Linear algebra on covariances that may be singular: rank-cut whitening, fixed signs."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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


def slowest(A: Floats, C: Floats, scale: Floats, tolerance: float, n_wanted: int) -> tuple[Floats, Floats, int]:
    """Smallest generalised eigenvalues of A b = lambda C b, ascending, on the subspace where C is not singular.

    Variables are standardised by `scale` first, so that their units do not decide about the rank; those of scale 0 are
    left out. numpy's eigen-solver is used because it lets other threads run meanwhile; scipy's does not.

    Returns
    -------
    values : (k,) with k at most n_wanted.
    B : (T, k) eigenvectors, with B^T C B = 1.
    rank : of C.
    """
    used = np.flatnonzero(scale > 0)
    inverse = 1.0 / scale[used]
    grid = np.ix_(used, used)
    correlation, dynamics = C[grid] * inverse[:, None] * inverse, A[grid] * inverse[:, None] * inverse
    W = whitening(correlation, tolerance)
    k = min(n_wanted, W.shape[1])
    B = np.zeros((len(C), k))
    if k == 0:
        return np.zeros(0), B, W.shape[1]
    values, U = np.linalg.eigh(W.T @ dynamics @ W)
    B[used] = (W @ U[:, :k]) * inverse[:, None]
    return values[:k], B, W.shape[1]


def whitening(C: Floats, tolerance: float) -> Floats:
    """Matrix W of shape (T, rank) with W^T C W = 1, on the subspace where C is not singular.

    From a Cholesky factor where all eigenvalues of C are surely above `tolerance` times the largest, else from its
    eigenvectors.
    """
    if len(C) == 0:
        return C
    norm = float(np.abs(C).sum(axis=0).max())
    factor, failed = scipy.linalg.lapack.dpotrf(C, lower=True, clean=True)
    if not failed and scipy.linalg.lapack.dpocon(factor, norm, uplo="L")[0] > tolerance:
        return np.ascontiguousarray(scipy.linalg.lapack.dtrtri(factor, lower=True)[0].T)
    values, vectors = np.linalg.eigh(C)
    kept = values > tolerance * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


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


def principal_axes(C: Floats, floor: float) -> tuple[Floats, Floats]:
    """Eigenvalues above `floor`, descending, and eigenvectors (as columns, signs fixed) of a covariance."""
    values, vectors = np.linalg.eigh(C)
    kept = values > floor
    values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
    return values, vectors * fix_signs(vectors)
