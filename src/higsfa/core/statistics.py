"""The sums that training needs: zero, update, merge.

Everything is additive over samples, so it can be gathered tile by tile, on several threads or machines, and merged.
Products are formed in the precision of the data; sums are kept in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.blas import gram
from higsfa.core.tiles import LocalEdges, LocalMatrix, LocalPairs, LocalRuns, Plan, Tile

Floats = NDArray[np.float64]


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

    @property
    def n_variables(self) -> int:
        return int(self.first.shape[1])

    def copy(self) -> Sums:
        """A copy that shares no array."""
        return merge(empty_like(self), self)


def zero(n_inputs: int, n_variables: int, n_channels: int, n_atoms: int, *, has_edges: bool) -> Sums:
    """Empty sums for so many inputs, variables, channels and groups."""
    K, T = n_channels, n_variables
    return Sums(
        n_channels=K,
        weights=np.zeros(K + n_atoms),
        first=np.zeros((K + n_atoms, T)),
        second=np.zeros((K, T, T)),
        edges=np.zeros((T, T)) if has_edges else None,
        low=np.full(n_inputs, np.inf),
        high=np.full(n_inputs, -np.inf),
    )


def zero_for(plan: Plan, n_inputs: int, n_variables: int) -> Sums:
    """Empty sums for the channels, groups and edges of a plan."""
    return zero(n_inputs, n_variables, plan.n_channels, plan.n_atoms, has_edges=plan.has_edges)


def empty_like(sums: Sums) -> Sums:
    """Empty sums of the same shapes."""
    n_atoms = len(sums.weights) - sums.n_channels
    return zero(len(sums.low), sums.n_variables, sums.n_channels, n_atoms, has_edges=sums.edges is not None)


SINGLE_ROWS = 16384
"""Products are added up in the precision of the data over at most so many samples, then in float64."""


class Accumulator:
    """Adds tiles to sums.

    Products of tiles with the same weights are added up first and weighted once, when the weights change.
    """

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self._weights: Floats | None = None  # of the product
        self._product: NDArray[Any] | None = None  # of tiles with these weights
        self._second: NDArray[Any] | None = None  # weighted products that have not been added to the sums yet
        self._scratch: NDArray[Any] | None = None
        self._rows = 0

    def add(self, Z: NDArray[Any], tile: Tile) -> None:
        """Add the samples of a tile, given as a feature-major block Z of shape (T, rows of the tile)."""
        sums, core = self.sums, Z[:, : tile.n_core]
        if tile.parts:
            sums.weights += tile.selector @ tile.lengths
            sums.first += tile.selector @ run_sums(core, tile.starts, tile.lengths).T
            self._prepare(core)
        for a, b, weights in tile.parts:
            if weights.ndim == 1:
                self._add_product(core[:, a:b], weights)
            else:
                self._add_weighted(core[:, a:b], weights)
        for edges in tile.edges:
            assert sums.edges is not None
            sums.edges += _edge_sum(Z, tile.n_core, edges)
            if isinstance(edges, LocalPairs):
                sums.edge_weight += 2.0 * float(np.sum(np.broadcast_to(edges.weight, edges.i.shape)))

    def close(self) -> Sums:
        """The sums, complete."""
        self._settle()
        return self.sums

    def _prepare(self, core: NDArray[Any]) -> None:
        """Room for products in the precision of the data; double precision needs no sums of its own."""
        if self._rows + core.shape[1] > SINGLE_ROWS:
            self._settle()
        self._rows += core.shape[1]
        if self._product is None:
            shape, kind = self.sums.second.shape, core.dtype
            self._product, self._scratch = np.zeros(shape[1:], kind), np.zeros(shape[1:], kind)
            self._second = self.sums.second if kind == np.float64 else np.zeros(shape, kind)

    def _add_product(self, core: NDArray[Any], weights: Floats) -> None:
        """Add samples that have the same weights."""
        assert self._product is not None
        same = self._weights is not None and np.array_equal(weights, self._weights)
        if not same:
            self._weigh()
            self._weights = weights
        gram(core, self._product, add=same)

    def _add_weighted(self, core: NDArray[Any], weights: Floats) -> None:
        """Add samples that have weights of their own, (K, n)."""
        assert self._second is not None
        for second, own in zip(self._second, weights, strict=True):
            gram(core * np.sqrt(own).astype(core.dtype), second, add=True)

    def _weigh(self) -> None:
        """Add the product to every channel, with its weight."""
        if self._weights is None:
            return
        assert self._product is not None
        assert self._second is not None
        for second, weight in zip(self._second, self._weights, strict=True):
            if weight == 1.0:
                second += self._product
            elif weight != 0.0:
                second += np.multiply(self._product, self._product.dtype.type(weight), out=self._scratch)
        self._weights = None

    def _settle(self) -> None:
        """Add what was summed in the precision of the data to the sums."""
        self._weigh()
        if self._second is not None and self._second is not self.sums.second:
            self.sums.second += self._second
            self._second.fill(0)
        self._rows = 0


def observe_range(sums: Sums, X: NDArray[Any], tile: Tile) -> None:
    """Widen the range of the inputs by the samples of a tile that have a weight; X is feature-major."""
    X = X[:, : tile.n_core]
    if tile.counted is not None:
        X = X[:, tile.counted]
    if X.shape[1]:
        np.minimum(sums.low, X.min(axis=1), out=sums.low)
        np.maximum(sums.high, X.max(axis=1), out=sums.high)


def shifted(sums: Sums, delta: Floats) -> Sums:
    """The same sums for variables z + delta: sums that were taken relative to different shifts can be merged."""
    out = sums.copy()
    for k in range(sums.n_channels):
        cross = np.outer(sums.first[k], delta)
        out.second[k] += cross + cross.T + sums.weights[k] * np.outer(delta, delta)
    out.first += np.outer(sums.weights, delta)
    return out


def merge(a: Sums, b: Sums) -> Sums:
    """Add b into a and return a."""
    a.weights += b.weights
    a.first += b.first
    a.second += b.second
    if a.edges is not None and b.edges is not None:
        a.edges += b.edges
    np.minimum(a.low, b.low, out=a.low)
    np.maximum(a.high, b.high, out=a.high)
    a.edge_weight += b.edge_weight
    return a


class Tree:
    """Merges numbered block sums in a fixed binary tree, whatever the order in which they arrive.

    Blocks 2k and 2k + 1 are merged first, then pairs of those, and so on; an odd one out at the end joins the
    sums before it. The shape depends on the number of blocks alone. What is merged may be sums or stand for them, as
    `merge_two` knows.
    """

    def __init__(self, merge_two: Callable[[Any, Any], Any] | None = None) -> None:
        self._merge = merge if merge_two is None else merge_two
        self._waiting: dict[tuple[int, int], Any] = {}

    def add(self, block: int, sums: Any) -> None:
        level = 0
        while (level, block ^ 1) in self._waiting:
            other = self._waiting.pop((level, block ^ 1))
            sums = self._merge(sums, other) if block % 2 == 0 else self._merge(other, sums)
            level, block = level + 1, block // 2
        self._waiting[level, block] = sums

    @property
    def waiting(self) -> dict[tuple[int, int], Any]:
        """What has been added so far: sums by level and number, each waiting for its other half."""
        return self._waiting

    def total(self) -> Any:
        """The sum of all blocks added; empties the tree."""
        result: Any = None
        for key in sorted(self._waiting):
            part = self._waiting[key]
            result = part if result is None else self._merge(part, result)
        self._waiting.clear()
        return result


def run_sums(Z: NDArray[Any], starts: NDArray[np.intp], lengths: Floats) -> Floats:
    """Sums of the columns of Z over runs that begin at `starts`, in float64: (T, runs)."""
    if Z.flags.c_contiguous or Z.strides[1] == Z.itemsize:
        return np.add.reduceat(Z, starts, axis=1).astype(np.float64)
    out = np.empty((len(Z), len(starts)))
    ones = np.ones(int(lengths.max()), dtype=Z.dtype)
    for k, (a, b) in enumerate(_spans(starts, Z.shape[1])):
        out[:, k] = Z[:, a:b] @ ones[: b - a]
    return out


def _spans(starts: NDArray[np.intp], end: int) -> Iterator[tuple[int, int]]:
    return pairwise([*starts.tolist(), end])


def _edge_sum(Z: NDArray[Any], n_core: int, edges: LocalEdges) -> Floats:
    """Sum over edges, both directions, of gamma (z - z')(z - z')^T; for runs and matrices without the degree terms,
    which are in the edge weighting of the second moments."""
    if isinstance(edges, LocalPairs):
        D = _differences(Z, edges.i, edges.j)
        if isinstance(edges.weight, np.ndarray):
            D *= np.sqrt(edges.weight).astype(Z.dtype)
            return np.asarray(2.0 * (D @ D.T), dtype=np.float64)
        return np.asarray(2.0 * edges.weight * (D @ D.T).astype(np.float64))
    if isinstance(edges, LocalMatrix):
        ahead = (edges.matrix.astype(Z.dtype) @ Z.T).T
        cross = (Z[:, :n_core] @ ahead.T).astype(np.float64)
    else:
        cross = edges.weight * _run_cross(Z, edges)
    return np.asarray(-2.0 * (cross + cross.T))


def _run_cross(Z: NDArray[Any], edges: LocalRuns) -> Floats:
    """Sum over p of z_p times the sum of z over the run of p, from cumulative sums."""
    sums = np.zeros((len(Z), Z.shape[1] + 1))
    np.cumsum(Z, axis=1, dtype=np.float64, out=sums[:, 1:])
    n = edges.first.shape[1]
    ahead = np.zeros((len(Z), n))
    for first, last in zip(edges.first, edges.last, strict=True):
        ahead += sums[:, last + 1] - sums[:, first]
    return np.asarray(Z[:, :n] @ ahead.T.astype(Z.dtype), dtype=np.float64)


def _differences(Z: NDArray[Any], i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[Any]:
    """Z[:, j] - Z[:, i], from slices where the pairs run side by side."""
    if len(i) == 0:
        return np.zeros((len(Z), 0), dtype=Z.dtype)
    breaks = np.flatnonzero((np.diff(i) != 1) | (np.diff(j) != 1)) + 1
    if len(breaks) > len(i) // 64:
        return np.asarray(Z[:, j] - Z[:, i])
    feature_major = Z.strides[-1] == Z.itemsize
    D: NDArray[Any] = np.empty((len(Z), len(i)), Z.dtype) if feature_major else np.empty((len(i), len(Z)), Z.dtype).T
    for a, b in _spans(np.concatenate([[0], breaks]), len(i)):
        n = b - a
        np.subtract(Z[:, j[a] : j[a] + n], Z[:, i[a] : i[a] + n], out=D[:, a:b])
    return D
