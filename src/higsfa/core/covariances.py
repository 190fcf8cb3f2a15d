"""From sums to the covariances of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from higsfa.core.blas import mirror
from higsfa.core.statistics import Sums
from higsfa.core.tiles import Plan

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weighting:
    """How channels and group sums become the weightings of one graph: what a plan adds to the sums.

    Attributes
    ----------
    mix : (3, K) vertex, edge and plain weights as combinations of channels.
    couplings : couplings K of the group parts.
    edge_weight : R.
    """

    mix: Floats
    couplings: tuple[Floats, ...]
    edge_weight: float

    @classmethod
    def of(cls, plan: Plan) -> Weighting:
        return cls(plan.mix, plan.couplings, plan.edge_weight)


@dataclass(frozen=True, eq=False)
class Covariances:
    r"""What a node is solved from.

    Attributes
    ----------
    mean, C : weighted mean :math:`\bar z`, relative to the shift, and weighted covariance, with vertex weights.
    C_dot : edge covariance :math:`\dot C`.
    plain_mean, plain : the same with sample weights.
    noise : (T,) variances below this are rounding.
    precision : machine epsilon of the products.
    """

    mean: Floats
    C: Floats
    C_dot: Floats
    plain_mean: Floats
    plain: Floats
    noise: Floats
    precision: float


def group_products(sums: Sums, weighting: Weighting) -> Floats:
    """The sum of gamma z z'^T over all pairs of groups: S^T K S, added up over the group parts."""
    total = np.zeros((sums.n_variables, sums.n_variables))
    offset = sums.n_channels
    for couplings in weighting.couplings:
        S = sums.first[offset : offset + len(couplings)]
        total += S.T @ couplings @ S
        offset += len(couplings)
    return total


def covariances(sums: Sums, weighting: Weighting, shift: Floats, precision: float) -> Covariances:
    """Turn sums of z - shift into covariances."""
    K = sums.n_channels
    totals = weighting.mix @ sums.weights[:K]
    first = weighting.mix @ sums.first[:K]
    v, e, w = (np.tensordot(row, sums.second, axes=1) for row in weighting.mix)
    edge = 2.0 * e
    if sums.edges is not None:
        edge += sums.edges
    edge -= 2.0 * group_products(sums, weighting)
    mean, plain_mean = first[0] / totals[0], first[2] / totals[2]
    C = _symmetric(v / totals[0] - np.outer(mean, mean))
    plain = _symmetric(w / totals[2] - np.outer(plain_mean, plain_mean))
    C_dot = _symmetric(edge / weighting.edge_weight)
    # A column like 1e6 + rounding is constant; so is one whose variance drowns in the subtraction of the mean.
    noise = (8 * precision * np.abs(shift)) ** 2 + 64 * precision * np.abs(np.diag(w)) / totals[2]
    return Covariances(mean, C, C_dot, plain_mean, plain, noise, precision)


def _symmetric(A: Floats) -> Floats:
    """The matrix whose lower triangle A holds."""
    mirror(A)
    return A
