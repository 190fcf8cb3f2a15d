"""The sums that training needs, how they merge, and the covariances of the paper that they become.

Everything is additive over samples, so it can be gathered tile by tile, on several threads or machines, and merged.
Products are formed in the precision of the data; sums are kept in float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.edges import LowRank
from higsfa.core.sums.tile import Plan, Weighting

Floats = NDArray[np.float64]


class Pool:
    """Arrays that are used again. The system clears fresh memory page by page, which takes as long as a product."""

    def __init__(self) -> None:
        self._free: defaultdict[Any, list[NDArray[Any]]] = defaultdict(list)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        try:
            array = self._free[shape, dtype].pop()  # a list may be shared by threads
        except IndexError:
            return np.zeros(shape, dtype)
        array[...] = 0
        return array

    def take_back(self, array: NDArray[Any]) -> None:
        """Nobody else may hold the array."""
        self._free[array.shape, array.dtype].append(array)


@dataclass(eq=False)
class Sums:
    r"""Sums over samples of z, the expanded input (with missing inputs beside it), minus a fixed shift.

    Attributes
    ----------
    weights : (K + A,) total weight of each channel, then of each group.
    first : (K + A, T) weighted sums of z, then group sums :math:`s_a = \sum_{n \in a} w_n z_n`.
    second : (K, T, T) weighted sums of :math:`z z^T`; only the lower triangles count.
    edges : (T, T) sum over edges that are not between groups, likewise; None if there are none.
    low, high : (I,) range of the inputs.
    edge_weight : total weight of the edges in `edges`, both directions.
    n_channels : K.
    """

    n_channels: int
    weights: Floats
    first: Floats
    second: Floats
    edges: Floats | None
    low: Floats
    high: Floats
    edge_weight: float = 0.0

    def is_finite(self) -> bool:
        """Whether all samples were finite, and their squares not too large to be added up."""
        squares = [np.einsum("kii->ki", self.second), *([] if self.edges is None else [np.diag(self.edges)])]
        return all(bool(np.all(np.isfinite(part))) for part in squares)

    def copy(self) -> Sums:
        """A copy that shares no array."""
        arrays: Any = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)


def zero(n_inputs: int, n_variables: int, plan: Plan, pool: Pool | None = None) -> Sums:
    """Empty sums for this number of inputs and variables, with the channels, atoms and edges of a plan."""
    K, T = plan.n_channels, n_variables
    pool, double = Pool() if pool is None else pool, np.dtype(np.float64)
    return Sums(
        n_channels=K,
        weights=np.zeros(K + plan.n_atoms),
        first=np.zeros((K + plan.n_atoms, T)),
        second=pool.zeros((K, T, T), double),
        edges=pool.zeros((T, T), double) if plan.has_edges else None,
        low=np.full(n_inputs, np.inf),
        high=np.full(n_inputs, -np.inf),
    )


def shifted(sums: Sums, delta: Floats) -> Sums:
    """The same sums for variables z + delta: sums that were taken relative to different shifts can be merged."""
    if not delta.any():
        return sums
    out = sums.copy()
    for k in range(sums.n_channels):
        cross = np.outer(sums.first[k], delta)
        out.second[k] += cross + cross.T + sums.weights[k] * np.outer(delta, delta)
    out.first += np.outer(sums.weights, delta)
    return out


def scaled(sums: Sums, factor: float) -> Sums:
    """The same sums for samples of other weights; the range of the inputs stays."""
    return replace(
        sums,
        weights=factor * sums.weights,
        first=factor * sums.first,
        second=factor * sums.second,
        edges=None if sums.edges is None else factor * sums.edges,
        low=sums.low.copy(),
        high=sums.high.copy(),
        edge_weight=factor * sums.edge_weight,
    )


def merge(a: Sums, b: Sums, pool: Pool | None = None) -> Sums:
    """Add b into a and return a. With a pool, which gets the matrices of b, nobody else may hold b."""
    a.weights += b.weights
    a.first += b.first
    a.second += b.second
    if a.edges is not None and b.edges is not None:
        a.edges += b.edges
    np.minimum(a.low, b.low, out=a.low)
    np.maximum(a.high, b.high, out=a.high)
    a.edge_weight += b.edge_weight
    if pool is not None:
        pool.take_back(b.second)
        if b.edges is not None:
            pool.take_back(b.edges)
    return a


@dataclass
class Tree:
    """Merges numbered block sums in a fixed binary tree, whatever the order in which they arrive.

    Blocks 2k and 2k + 1 are merged first, then pairs of those, and so on; an odd one out at the end joins the
    sums before it. The shape depends on the number of blocks alone. What is merged may be sums or stand for them, as
    `merge_two` knows.
    """

    merge_two: Callable[[Any, Any], Any] = merge
    waiting: dict[tuple[int, int], Any] = field(default_factory=dict)
    """What has been added so far: sums by level and index, each waiting for its other half."""

    def add(self, block: int, sums: Any) -> None:
        level = 0
        while (level, block ^ 1) in self.waiting:
            sums = self.merge_two(self.waiting.pop((level, block ^ 1)), sums)  # a + b is b + a, to the bit
            level, block = level + 1, block // 2
        self.waiting[level, block] = sums

    def total(self) -> Any:
        """The sum of all blocks added; empties the tree."""
        result: Any = None
        for key in sorted(self.waiting):
            part = self.waiting[key]
            result = part if result is None else self.merge_two(part, result)
        self.waiting.clear()
        return result


# --- covariances ---


@dataclass(frozen=True, eq=False)
class Covariances:
    r"""What a node is solved from. Of matrices only the lower triangles count.

    Attributes
    ----------
    mean, C : weighted mean :math:`\bar z`, relative to the shift, and weighted covariance, with vertex weights.
    C_dot : edge covariance :math:`\dot C`.
    plain_mean, plain : mean and covariance with sample weights.
    noise, plain_noise : (T,) variances below this are rounding, with vertex weights and with sample weights.
    precision : machine epsilon of the products.
    """

    mean: Floats
    C: Floats
    C_dot: Floats
    plain_mean: Floats
    plain: Floats
    noise: Floats
    plain_noise: Floats
    precision: float


def part_of(sums: Sums, weighting: Weighting) -> tuple[Sums, Weighting]:
    """The sums of one of several graphs alone, with its vertex, edge and plain weights as channels."""
    K, mix = sums.n_channels, weighting.mix
    rows = np.arange(len(sums.weights) - K) if weighting.rows is None else weighting.rows
    own = replace(
        sums,
        n_channels=3,
        weights=np.concatenate([mix @ sums.weights[:K], sums.weights[K + rows]]),
        first=np.concatenate([mix @ sums.first[:K], sums.first[K + rows]]),
        second=np.tensordot(mix, sums.second, axes=1),
    )
    return own, replace(weighting, mix=np.eye(3), rows=None)


def group_products(sums: Sums, weighting: Weighting) -> Floats:
    """The sum of gamma z z'^T over all pairs of groups: S^T K S, added up over the group parts."""
    S, coupled = _group_factors(sums, weighting)
    return S.T @ coupled


def _group_factors(sums: Sums, weighting: Weighting) -> tuple[Floats, Floats]:
    """S and K S, for all parts one below the other; sums of label functions made orthonormal."""
    groups = sums.first[sums.n_channels :]
    groups = groups if weighting.rows is None else groups[weighting.rows]
    rows, coupled, offset = [groups[:0]], [groups[:0]], 0
    for couplings in weighting.couplings:
        low_rank = isinstance(couplings, LowRank)
        n = len(couplings.strengths) if low_rank else couplings.shape[0]
        own = groups[offset : offset + n]
        rows.append(couplings.basis @ own if low_rank else own)
        coupled.append(couplings.strengths[:, None] * rows[-1] if low_rank else couplings @ own)
        offset += n
    return np.concatenate(rows), np.concatenate(coupled)


def covariances(sums: Sums, weighting: Weighting, shift: Floats, precision: float) -> Covariances:
    """Turn sums of z - shift into covariances; a FloatingPointError if they are not finite."""
    squares = np.einsum("kii->ki", sums.second)
    if not sums.is_finite():
        raise FloatingPointError("sums are not finite")
    K, R = sums.n_channels, weighting.edge_weight
    totals = weighting.mix @ sums.weights[:K]
    first = weighting.mix @ sums.first[:K]
    mean, plain_mean = first[0] / totals[0], first[2] / totals[2]
    mix = weighting.mix / np.array([[totals[0]], [R / 2.0], [totals[2]]])
    S, coupled = _group_factors(sums, weighting)
    coupled *= 2.0 / R
    C, C_dot, plain = np.tensordot(mix, sums.second, axes=1)
    C -= np.outer(mean, mean)
    C_dot -= S.T @ coupled
    if sums.edges is not None:
        C_dot += sums.edges / R
    plain -= np.outer(plain_mean, plain_mean)
    # A column like 1e6 + rounding is constant; so is one whose variance drowns in the subtraction of the mean.
    least = (8 * precision * np.abs(shift)) ** 2
    noise, plain_noise = (least + 64 * precision * np.abs(factors @ squares) for factors in (mix[0], mix[2]))
    return Covariances(mean, C, C_dot, plain_mean, plain, noise, plain_noise, precision)
