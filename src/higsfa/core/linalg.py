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


def whitening(C: Floats, scale: Floats, tolerance: float) -> Floats:
    """Matrix W of shape (T, rank) with W^T C W = 1, on the subspace where C is not singular.

    Variables are standardised by `scale` first, so that their units do not decide about the rank.
    """
    used = np.flatnonzero(scale > 0)
    W = np.zeros((len(C), 0))
    if len(used) == 0:
        return W
    inverse = 1.0 / scale[used]
    correlation = C[np.ix_(used, used)] * inverse[:, None] * inverse
    values, vectors = scipy.linalg.eigh(correlation, driver="evd", check_finite=False)
    kept = values > tolerance * values[-1]
    W = np.zeros((len(C), int(kept.sum())))
    W[used] = vectors[:, kept] / np.sqrt(values[kept]) * inverse[:, None]
    return W


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
    values, vectors = scipy.linalg.eigh(C, driver="evd", check_finite=False)
    kept = values > floor
    values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
    return values, vectors * fix_signs(vectors)
