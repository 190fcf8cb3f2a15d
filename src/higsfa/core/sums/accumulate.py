"""From tiles to the sums of a node: the compiled routine where it can, and numpy, its reference, elsewhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native.tile import Front, Raw, chunk_columns, empty_rows, sum_tile
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.sums import Sums, Tree, zero
from higsfa.core.sums.tile import LocalMatrix, LocalPairs, LocalRuns, Part, Plan, Tile

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

PILOT = 512
"""Samples that the shift is estimated from."""
FEW_SEGMENTS = 16
"""Up to this number, BLAS adds up one segment after the other faster than numpy adds up all of them."""


class NodeSums:
    """Gathers the sums of one node, tile by tile; block sums are merged in a fixed tree.

    Within a block, products are added up in the precision of the data, beyond it in float64. See :class:`Part` for the
    way they are weighted.

    Parameters
    ----------
    frontend : from raw input to variables.
    plan : blocks and tiles.
    dtype : of the products.
    first : raw input of the first samples, PILOT at most, from which the shift is taken: the same for any batches.
    shift : given instead of `first` where it is known.

    Attributes
    ----------
    tree : sums of the blocks so far.
    sums : of the present block, None before its first tile.
    product, channels : P (T, T) and S (K, T, T) of :class:`Part`, in the present block.
    low, high : range of the inputs in the present block.
    """

    def __init__(
        self, frontend: Frontend, plan: Plan, dtype: np.dtype[Any], *, first: Raw | None = None, shift: Any = None
    ) -> None:
        if first is not None:
            shift = pilot_shift(frontend.variables(frontend.inputs(first, dtype, clip=False)))
        self.frontend, self.plan, self.dtype, self.shift = frontend, plan, dtype, shift
        self.tree = Tree()
        self.sums: Sums | None = None
        self.product: NDArray[Any] = np.zeros(0)
        self.channels, self.low, self.high = self.product, self.product, self.product
        self._front = Front.of(frontend, dtype, shift)
        self._weights: Floats | None = None  # of the last part that was added to the product

    def add(self, raw: Raw, tile: Tile) -> None:
        """Add a tile, given the raw input of the node."""
        if self.sums is None:
            self.sums = zero(self.frontend.n_inputs, self.frontend.n_variables, self.plan)
            second, n_inputs = self.sums.second, len(self.sums.low)
            self.product = np.zeros(second.shape[1:], self.dtype)
            # Double precision needs no sums of its own.
            self.channels = second if self.dtype == np.float64 else np.zeros(second.shape, self.dtype)
            self.low, self.high = np.full(n_inputs, np.inf, self.dtype), np.full(n_inputs, -np.inf, self.dtype)
            self._weights = None
        limits = None if self.frontend.expansion.is_linear else (self.low, self.high)
        found = sum_tile(self._front, raw, tile, self.product, self.channels, limits)
        segments, by_function = self._add_with_numpy(raw, tile, self.sums) if found is None else found
        n = tile.selector.shape[0]
        self.sums.weights += tile.weights
        self.sums.first[:n] += tile.selector @ segments.T
        if len(by_function):
            self.sums.first[n:] += by_function
        constant = [part.weights for part in tile.parts if part.weights.ndim == 1]
        self._weights = constant[-1] if constant else self._weights

    def end_block(self, block: int) -> None:
        """All tiles of a block have been added."""
        sums, self.sums = self.sums, None
        if sums is None:
            return
        if self._weights is not None:
            self._add_product_to_channels(self._weights)
        if self.channels is not sums.second:
            sums.second += self.channels
        np.minimum(sums.low, self.low, out=sums.low)
        np.maximum(sums.high, self.high, out=sums.high)
        self.tree.add(block, sums)

    def _add_product_to_channels(self, factors: Floats) -> None:
        for channel, factor in zip(self.channels, factors.tolist(), strict=True):
            if factor != 0.0:
                channel += self.dtype.type(factor) * self.product

    # ---------------------------------------------------------------------------------------------- the reference

    def _add_with_numpy(self, raw: Raw, tile: Tile, sums: Sums) -> tuple[Floats, Floats]:
        """Add second moments, edges and range of a tile; returns what :func:`sum_tile` does."""
        segments = np.zeros((self.frontend.n_variables, len(tile.starts)))
        by_function = np.zeros((len(tile.functions), self.frontend.n_variables))
        step = chunk_columns(self.frontend.n_variables, self.dtype.itemsize)
        at_once = len(tile.rows) if tile.edges else step
        for start in range(0, len(tile.rows), at_once):
            Z = self._variables(raw.columns(start, min(start + at_once, len(tile.rows))), start, tile)
            core = Z[:, : tile.n_core - start]  # a tile with a halo comes at once
            if len(tile.functions):
                by_function += tile.functions[:, start : start + core.shape[1]].astype(self.dtype) @ core.T
            pairs = [_PairSum(Z, edges) for edges in tile.edges if isinstance(edges, LocalPairs)]
            for a in range(0, max([core.shape[1], *(pair.n_pairs for pair in pairs)]), step):
                if tile.parts and a < core.shape[1]:
                    self._add_chunk(core[:, a : a + step], start + a, tile, segments)
                for pair in pairs:  # the samples are still in the cache
                    pair.add(a, a + step)
            _add_edges(sums, Z, tile, pairs)
        return segments, by_function

    def _variables(self, raw: Raw, start: int, tile: Tile) -> NDArray[Any]:
        """Variables of samples from position `start` of a tile on, relative to the shift; their range is noted."""
        frontend, dtype, n = self.frontend, self.dtype, raw.shape[1]
        own = None if frontend.is_identity else empty_rows(frontend.n_inputs, n, dtype)
        X = frontend.inputs(raw, dtype, clip=False, out=own)
        if not frontend.expansion.is_linear:
            self._observe(X, start, tile)
        Z = frontend.variables(X, None if own is None else empty_rows(frontend.n_variables, n, dtype))
        shifted = np.flatnonzero(self.shift)
        if not len(shifted):
            return Z
        if not Z.flags.writeable:
            return np.asarray(Z - self.shift[:, None].astype(dtype))
        Z[shifted] -= self.shift[shifted, None].astype(dtype)
        return Z

    def _observe(self, X: NDArray[Any], start: int, tile: Tile) -> None:
        """Widen the range of the inputs by those samples, from position `start` on, that have a weight."""
        X = X[:, : tile.n_core - start]
        if tile.counted is not None:
            X = X[:, tile.counted[start : start + X.shape[1]]]
        if X.shape[1]:
            np.fmin(self.low, np.fmin.reduce(X, axis=1), out=self.low)
            np.fmax(self.high, np.fmax.reduce(X, axis=1), out=self.high)

    def _add_chunk(self, core: NDArray[Any], start: int, tile: Tile, segments: Floats) -> None:
        """Add second moments of the samples from position `start` on, and their sums to those over segments."""
        first, last = np.searchsorted(tile.starts, (start, start + core.shape[1] - 1), side="right")
        weighted = core
        if tile.sample_weight is not None:
            weights = tile.sample_weight[start : start + core.shape[1]].astype(self.dtype)
            weighted, core = core * weights, core * np.sqrt(weights)
        starts = np.maximum(tile.starts[first - 1 : last] - start, 0)
        _add_segments(weighted, starts, segments[:, first - 1 : last])
        for part in tile.parts:
            a, b = max(part.begin, start), min(part.end, start + core.shape[1])
            if a < b:
                self._add_part(core[:, a - start : b - start], a, b, part)

    def _add_part(self, some: NDArray[Any], a: int, b: int, part: Part) -> None:
        """Add second moments of samples at positions a .. b, which belong to a part."""
        if part.weights.ndim == 2:
            for channel, weights in zip(self.channels, part.weights[:, a - part.begin : b - part.begin], strict=True):
                weighted = some * np.sqrt(weights).astype(self.dtype)
                channel += weighted @ weighted.T
            return
        begins = a == part.begin
        if begins and part.factors is not None:
            self._add_product_to_channels(part.factors)
        if begins and part.anew:
            self.product[...] = 0
        self.product += some @ some.T


def pilot_shift(T: NDArray[Any]) -> Floats:
    """A shift for the variables (T, n) whose mean is large against their spread, 0 for the others.

    Subtracting it keeps the variance from drowning in the square of the mean. Exact for constant variables.
    """
    if T.shape[1] == 0:
        return np.zeros(len(T))
    T = T[:, :PILOT]
    mean = T.mean(axis=1, dtype=np.float64)
    spread = T.std(axis=1, dtype=np.float64)
    low, high = T.min(axis=1), T.max(axis=1)
    mean = np.where(low == high, low, mean)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(mean) & (np.abs(mean) > 4 * spread), mean, 0.0)


def _add_edges(sums: Sums, Z: NDArray[Any], tile: Tile, pairs: list[_PairSum]) -> None:
    """Add edges within the tile, which is all in Z."""
    for pair in pairs:
        assert sums.edges is not None
        sums.edges += pair.total()
        sums.edge_weight += pair.weight
    for edges in tile.edges:
        if not isinstance(edges, LocalPairs):
            assert sums.edges is not None
            sums.edges += _cross_sum(Z, tile.n_core, edges)


def _add_segments(Z: NDArray[Any], starts: Ints, sums: Floats) -> None:
    """Add sums of the columns of Z, over segments that begin at `starts`, to the columns of `sums`."""
    if len(starts) > FEW_SEGMENTS:
        sums += np.add.reduceat(Z, starts, axis=1)
        return
    ones = np.ones(Z.shape[1], dtype=Z.dtype)
    for k, (a, b) in enumerate(pairwise([*starts.tolist(), Z.shape[1]])):
        sums[:, k] += Z[:, a:b] @ ones[: b - a]


def _cross_sum(Z: NDArray[Any], n_core: int, edges: LocalRuns | LocalMatrix) -> Floats:
    """Sum over edges, both directions, of gamma (z - z')(z - z')^T without the degree terms, which are in the edge
    weighting of the second moments."""
    if isinstance(edges, LocalMatrix):
        reached = (edges.matrix.astype(Z.dtype) @ Z.T).T
        cross = (Z[:, :n_core] @ reached.T).astype(np.float64)
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
        self._sum += D @ D.T

    def total(self) -> Floats:
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
        reached = np.zeros((first.shape[1], len(Z)))
        for lower, upper, there in zip(first, last, some, strict=True):
            reached += sums[np.where(there, upper + 1 - begin, 0)]
            reached -= sums[np.where(there, lower - begin, 0)]
        total += samples[a : a + step][: len(reached)].T @ reached.astype(Z.dtype)
    return total


def _differences(Z: NDArray[Any], i: Ints, j: Ints, breaks: Ints) -> NDArray[Any]:
    """Z[:, j] - Z[:, i]; pairs run side by side but for the breaks."""
    n = len(i)
    feature_major = Z.strides[-1] == Z.itemsize
    D = empty_rows(len(Z), n, Z.dtype) if feature_major else np.empty((n, len(Z)), Z.dtype).T
    if len(breaks) > n // 64:
        np.subtract(Z[:, j], Z[:, i], out=D)
        return D
    for a, b in pairwise([0, *breaks.tolist(), n]):
        np.subtract(Z[:, j[a] : j[a] + b - a], Z[:, i[a] : i[a] + b - a], out=D[:, a:b])
    return D
