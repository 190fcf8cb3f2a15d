"""From sums to the covariances of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from higsfa.core.sums.sums import Sums
from higsfa.core.sums.tile import Weighting

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Covariances:
    r"""What a node is solved from. Of matrices only the lower triangles count.

    Attributes
    ----------
    mean, C : weighted mean :math:`\bar z`, relative to the shift, and weighted covariance, with vertex weights.
    C_dot : edge covariance :math:`\dot C`.
    plain_mean, plain : mean and covariance with sample weights.
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
    S, coupled = _group_factors(sums, weighting)
    return S.T @ coupled


def _group_factors(sums: Sums, weighting: Weighting) -> tuple[Floats, Floats]:
    """S and K S, for all group parts one below the other."""
    coupled, offset = [np.zeros((0, sums.first.shape[1]))], sums.n_channels
    for couplings in weighting.couplings:
        n_atoms = couplings.shape[0]
        coupled.append(couplings @ sums.first[offset : offset + n_atoms])
        offset += n_atoms
    return sums.first[sums.n_channels : offset], np.concatenate(coupled)


def covariances(sums: Sums, weighting: Weighting, shift: Floats, precision: float) -> Covariances:
    """Turn sums of z - shift into covariances."""
    K, R = sums.n_channels, weighting.edge_weight
    totals = weighting.mix @ sums.weights[:K]
    first = weighting.mix @ sums.first[:K]
    mean, plain_mean = first[0] / totals[0], first[2] / totals[2]
    vertex, edge, plain_mix = weighting.mix / np.array([[totals[0]], [R / 2.0], [totals[2]]])
    S, coupled = _group_factors(sums, weighting)
    coupled *= 2.0 / R
    C = np.tensordot(vertex, sums.second, axes=1) - np.outer(mean, mean)
    C_dot = np.tensordot(edge, sums.second, axes=1) - S.T @ coupled
    if sums.edges is not None:
        C_dot += sums.edges / R
    plain = np.tensordot(plain_mix, sums.second, axes=1) - np.outer(plain_mean, plain_mean)
    # A column like 1e6 + rounding is constant; so is one whose variance drowns in the subtraction of the mean.
    squares = plain_mix @ np.einsum("kii->ki", sums.second)
    noise = (8 * precision * np.abs(shift)) ** 2 + 64 * precision * np.abs(squares)
    return Covariances(mean, C, C_dot, plain_mean, plain, noise, precision)
