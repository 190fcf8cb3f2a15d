"""The least change of an image that gives a few of its features wanted values: Gauss-Newton steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.prior import ImagePrior

Floats = NDArray[np.float64]

DAMPING = 1e-3
"""Part of the mean diagonal of J C J^T that is added to it."""
SHORTEST = 1 / 64
"""Step, as a part of the full one, below which nothing better is to be found."""


def steer(
    model: Differentiable,
    x: Floats,
    wanted: Floats,
    units: Floats,
    *,
    prior: ImagePrior | None,
    bounds: tuple[float, float] | None,
    n_steps: int,
) -> Floats:
    """Move a flat image x (P,) until its first len(wanted) features have the wanted values, measured in `units`.

    Each step is the smallest one, in the units of the prior (of pixels without one), that would do if features were
    linear. It is halved until the features come closer.
    """
    k = len(wanted)
    seeds = np.zeros((k, model.n_features))
    seeds[np.arange(k), np.arange(k)] = 1 / units

    def missing(image: Floats) -> Floats:
        return np.asarray((wanted - model.features(image[None])[0, :k]) / units)

    gap = missing(x)
    for _ in range(n_steps):
        J = model.gradient(np.repeat(x[None], k, axis=0), seeds)
        CJ = J if prior is None else np.array([prior.root(prior.root(row)) for row in J])
        A = J @ CJ.T
        A[np.diag_indices(k)] += DAMPING * np.trace(A) / k
        direction = np.linalg.lstsq(A, gap, rcond=None)[0] @ CJ
        found = _closer(x, direction, gap, missing, bounds)
        if found is None:
            break
        x, gap = found
    return x


def _closer(x: Floats, direction: Floats, gap: Floats, missing: Any, bounds: Any) -> tuple[Floats, Floats] | None:
    step = 1.0
    while step >= SHORTEST:
        trial = x + step * direction
        trial = trial if bounds is None else np.clip(trial, *bounds)
        left = missing(trial)
        if left @ left < gap @ gap:
            return trial, left
        step /= 2
    return None
