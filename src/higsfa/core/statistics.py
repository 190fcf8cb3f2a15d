"""The sums that training needs: zero, update, merge.

Everything is additive over samples, so it can be gathered tile by tile, on several threads or machines, and merged.
Products are formed in the precision of the data; sums are kept in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.blas import add_multiple, gram
from higsfa.core.room import chunk_columns, empty, empty_rows
from higsfa.core.tiles import LocalMatrix, LocalPairs, LocalRuns, Part, Plan, Tile

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FEW_RUNS = 16
"""Up to so many, BLAS adds up the samples of a run faster than numpy adds up those of all runs."""


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

    def is_finite(self) -> bool:
        """Whether all samples were finite, and their squares not too large to be added up."""
        squares = [np.einsum("kii->ki", self.second), *([] if self.edges is None else [np.diag(self.edges)])]
        return all(bool(np.all(np.isfinite(part))) for part in squares)

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


class Accumulator:
    """Adds the tiles of a block to sums.

    Products are added up in the precision of the data within a block, in float64 beyond it. See :class:`Part` for the
    way they are weighted.

    Attributes
    ----------
    product : P, (T, T).
    channels : S, (K, T, T).
    low, high : range of the inputs.
    """

    def __init__(self, sums: Sums, dtype: np.dtype[Any]) -> None:
        self.sums, self.dtype = sums, dtype
        self.product: NDArray[Any] = np.zeros(sums.second.shape[1:], dtype)
        # Double precision needs no sums of its own.
        self.channels = sums.second if dtype == np.float64 else np.zeros(sums.second.shape, dtype)
        self.low, self.high = np.full(len(sums.low), np.inf, dtype), np.full(len(sums.low), -np.inf, dtype)
        self._weights: Floats | None = None  # of the last part that was added to the product

    def add(self, tile: Tile, chunks: Iterable[tuple[int, NDArray[Any]]]) -> None:
        """Add the samples of a tile.

        Parameters
        ----------
        chunks : feature-major blocks (T, n) that follow each other, each with the position of its first sample; only
            one, with the whole tile, if the tile has edges.
        """
        runs = np.zeros((self.sums.n_variables, len(tile.starts)))
        step = chunk_columns(self.sums.n_variables, self.dtype.itemsize)
        for start, Z in chunks:
            self._add_block(Z, start, step, tile, runs)
            del Z  # the next one may have its memory
        self.end_tile(tile, runs)

    def _add_block(self, Z: NDArray[Any], start: int, step: int, tile: Tile, runs: Floats) -> None:
        """Add samples from position `start` on, `step` at a time, and their edges."""
        core = Z[:, : tile.n_core - start]  # what has a halo comes at once
        pairs = [_PairSum(Z, edges) for edges in tile.edges if isinstance(edges, LocalPairs)]
        for a in range(0, max([core.shape[1], *(pair.n_pairs for pair in pairs)]), step):
            if tile.parts and a < core.shape[1]:
                self._add_chunk(core[:, a : a + step], start + a, tile, runs)
            for pair in pairs:  # the samples are still in the cache
                pair.add(a, a + step)
        for pair in pairs:
            self._add_edges(pair.total())
            self.sums.edge_weight += pair.weight
        for edges in tile.edges:
            if not isinstance(edges, LocalPairs):
                self._add_edges(_cross_sum(Z, tile.n_core, edges))

    def _add_chunk(self, core: NDArray[Any], start: int, tile: Tile, runs: Floats) -> None:
        """Add second moments of the samples from position `start` on, and their sums to those over runs."""
        first, last = np.searchsorted(tile.starts, (start, start + core.shape[1] - 1), side="right")
        weighted = core
        if tile.sample_weight is not None:
            weights = tile.sample_weight[start : start + core.shape[1]].astype(self.dtype)
            weighted, core = core * weights, core * np.sqrt(weights)
        _add_runs(weighted, np.maximum(tile.starts[first - 1 : last] - start, 0), runs[:, first - 1 : last])
        for part in tile.parts:
            self._add_part(core, start, part)

    def _add_edges(self, total: Floats) -> None:
        assert self.sums.edges is not None
        self.sums.edges += total

    def end_tile(self, tile: Tile, runs: Floats) -> None:
        """Add what is known when all second moments of a tile are there: the sums over its runs, (T, runs)."""
        self.sums.weights += tile.selector @ tile.lengths
        self.sums.first += tile.selector @ runs.T
        constant = [part.weights for part in tile.parts if part.weights.ndim == 1]
        self._weights = constant[-1] if constant else self._weights

    def observe(self, X: NDArray[Any], start: int, tile: Tile) -> None:
        """Widen the range of the inputs by those samples of a tile, from position `start` on, that have a weight."""
        X = X[:, : tile.n_core - start]
        if tile.counted is not None:
            X = X[:, tile.counted[start : start + X.shape[1]]]
        if X.shape[1]:
            np.fmin(self.low, np.fmin.reduce(X, axis=1), out=self.low)
            np.fmax(self.high, np.fmax.reduce(X, axis=1), out=self.high)

    def close(self) -> Sums:
        """The sums, complete."""
        if self._weights is not None:
            self._add_product_to_channels(self._weights)
        if self.channels is not self.sums.second:
            self.sums.second += self.channels
        np.minimum(self.sums.low, self.low, out=self.sums.low)
        np.maximum(self.sums.high, self.high, out=self.sums.high)
        return self.sums

    def _add_part(self, core: NDArray[Any], start: int, part: Part) -> None:
        """Add second moments of those samples of a part that are in the chunk that begins at `start`."""
        a, b = max(part.begin, start), min(part.end, start + core.shape[1])
        if a >= b:
            return
        some = core[:, a - start : b - start]
        if part.weights.ndim == 2:
            for channel, weights in zip(self.channels, part.weights[:, a - part.begin : b - part.begin], strict=True):
                gram(some * np.sqrt(weights).astype(self.dtype), channel, add=True)
            return
        begins = a == part.begin
        if begins and part.factors is not None:
            self._add_product_to_channels(part.factors)
        gram(some, self.product, add=not (begins and part.anew))

    def _add_product_to_channels(self, factors: Floats) -> None:
        for channel, factor in zip(self.channels, factors.tolist(), strict=True):
            if factor != 0.0:
                add_multiple(factor, self.product, channel)


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
            sums = self._merge(self._waiting.pop((level, block ^ 1)), sums)  # a + b is b + a, to the bit
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


def _add_runs(Z: NDArray[Any], starts: Ints, sums: Floats) -> None:
    """Add the sums of the columns of Z over runs that begin at `starts` to the columns of `sums`, (rows, runs)."""
    if len(starts) > FEW_RUNS:
        sums += np.add.reduceat(Z, starts, axis=1)
        return
    ones = np.ones(Z.shape[1], dtype=Z.dtype)
    for k, (a, b) in enumerate(pairwise([*starts.tolist(), Z.shape[1]])):
        sums[:, k] += Z[:, a:b] @ ones[: b - a]


def _cross_sum(Z: NDArray[Any], n_core: int, edges: LocalRuns | LocalMatrix) -> Floats:
    """Sum over edges, both directions, of gamma (z - z')(z - z')^T without the degree terms, which are in the edge
    weighting of the second moments. Only the lower triangle counts."""
    if isinstance(edges, LocalMatrix):
        ahead = (edges.matrix.astype(Z.dtype) @ Z.T).T
        cross = (Z[:, :n_core] @ ahead.T).astype(np.float64)
    else:
        cross = edges.weight * _run_cross(Z, edges)
    return np.asarray(-2.0 * (cross + cross.T))


class _PairSum:
    """The whole sum for edges between pairs, from their differences, a few at a time."""

    def __init__(self, Z: NDArray[Any], edges: LocalPairs) -> None:
        self._Z, self._edges = Z, edges
        self._sum = np.zeros((len(Z), len(Z)), Z.dtype)
        self._breaks = np.flatnonzero((np.diff(edges.i) != 1) | (np.diff(edges.j) != 1)) + 1

    @property
    def n_pairs(self) -> int:
        return len(self._edges.i)

    @property
    def weight(self) -> float:
        """Of all edges, both directions."""
        return 2.0 * float(np.sum(np.broadcast_to(self._edges.weight, self._edges.i.shape)))

    def add(self, a: int, b: int) -> None:
        """Add pairs number a .. b."""
        b = min(b, self.n_pairs)
        if a >= b:
            return
        within = self._breaks[np.searchsorted(self._breaks, a, side="right") : np.searchsorted(self._breaks, b)]
        D = _differences(self._Z, self._edges.i[a:b], self._edges.j[a:b], within - a)
        if isinstance(self._edges.weight, np.ndarray):
            D *= np.sqrt(self._edges.weight[a:b]).astype(D.dtype)
        gram(D, self._sum, add=True)

    def total(self) -> Floats:
        """Only the lower triangle counts."""
        factor = 2.0 if isinstance(self._edges.weight, np.ndarray) else 2.0 * self._edges.weight
        return np.asarray(factor * self._sum.astype(np.float64))


def _run_cross(Z: NDArray[Any], edges: LocalRuns) -> Floats:
    """Sum over p of z_p times the sum of z over the run of p, from cumulative sums, a few samples at a time."""
    samples, n = Z.T, edges.first.shape[1]
    total = np.zeros((len(Z), len(Z)))
    reach = int(np.max(edges.last - np.arange(n), initial=0))
    step = max(chunk_columns(len(Z), Z.itemsize), reach)
    for a in range(0, n, step):
        first, last = edges.first[:, a : a + step], edges.last[:, a : a + step]
        some = last >= first
        begin, end = int(first[some].min(initial=n)), int(last[some].max(initial=-1)) + 1
        if end <= begin:
            continue
        sums = np.zeros((end - begin + 1, len(Z)))
        np.cumsum(samples[begin:end], axis=0, dtype=np.float64, out=sums[1:])
        ahead = np.zeros((first.shape[1], len(Z)))
        for lower, upper, there in zip(first, last, some, strict=True):
            ahead += sums[np.where(there, upper + 1 - begin, 0)]
            ahead -= sums[np.where(there, lower - begin, 0)]
        total += samples[a : a + step][: len(ahead)].T @ ahead.astype(Z.dtype)
    return total


def _differences(Z: NDArray[Any], i: Ints, j: Ints, breaks: Ints) -> NDArray[Any]:
    """Z[:, j] - Z[:, i]; pairs run side by side but for the breaks."""
    n = len(i)
    feature_major = Z.strides[-1] == Z.itemsize
    D = empty_rows(len(Z), n, Z.dtype) if feature_major else empty((n, len(Z)), Z.dtype).T
    if len(breaks) > n // 64:
        np.subtract(Z[:, j], Z[:, i], out=D)
        return D
    for a, b in pairwise([0, *breaks.tolist(), n]):
        np.subtract(Z[:, j[a] : j[a] + b - a], Z[:, i[a] : i[a] + b - a], out=D[:, a:b])
    return D
