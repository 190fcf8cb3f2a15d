"""From tiles to sums: the compiled routine where it can, and numpy, its reference, elsewhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native.tile import Front, sum_tile
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.raw import Raw, chunk_columns, empty_rows
from higsfa.core.sums.sums import Sums
from higsfa.core.sums.tile import LocalMatrix, LocalPairs, LocalRuns, Part, Tile

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FEW_SEGMENTS = 16
"""Up to this number, BLAS adds up one segment after the other faster than numpy adds up all of them."""


class Accumulator:
    """Adds the tiles of a block to the sums of a node.

    Products are added up in the precision of the data within a block, in float64 beyond it. See :class:`Part` for the
    way they are weighted.

    Parameters
    ----------
    frontend, shift : from raw input to variables relative to the shift.
    front : the same for compiled routines; None to leave everything to numpy.
    sums : where the block is added.
    dtype : of the products.

    Attributes
    ----------
    product : P, (T, T).
    channels : S, (K, T, T).
    low, high : range of the inputs.
    """

    def __init__(
        self, frontend: Frontend, shift: Floats, front: Front | None, sums: Sums, dtype: np.dtype[Any]
    ) -> None:
        self.frontend, self.shift, self.front, self.sums, self.dtype = frontend, shift, front, sums, dtype
        self.product: NDArray[Any] = np.zeros(sums.second.shape[1:], dtype)
        # Double precision needs no sums of its own.
        self.channels = sums.second if dtype == np.float64 else np.zeros(sums.second.shape, dtype)
        self.low, self.high = np.full(len(sums.low), np.inf, dtype), np.full(len(sums.low), -np.inf, dtype)
        self._weights: Floats | None = None  # of the last part that was added to the product

    def add(self, raw: Raw, tile: Tile) -> None:
        """Expand the raw input of a tile, a few samples at a time, and add it."""
        limits = None if self.frontend.expansion.is_linear else (self.low, self.high)
        segments = sum_tile(self.front, raw, tile, self.product, self.channels, limits)
        if segments is None:
            segments = self._add_with_numpy(raw, tile)
        self.sums.weights += tile.selector @ tile.lengths
        self.sums.first += tile.selector @ segments.T
        constant = [part.weights for part in tile.parts if part.weights.ndim == 1]
        self._weights = constant[-1] if constant else self._weights

    def close(self) -> Sums:
        """The sums, complete."""
        if self._weights is not None:
            self._add_product_to_channels(self._weights)
        if self.channels is not self.sums.second:
            self.sums.second += self.channels
        np.minimum(self.sums.low, self.low, out=self.sums.low)
        np.maximum(self.sums.high, self.high, out=self.sums.high)
        return self.sums

    def _add_product_to_channels(self, factors: Floats) -> None:
        for channel, factor in zip(self.channels, factors.tolist(), strict=True):
            if factor != 0.0:
                channel += self.dtype.type(factor) * self.product

    # ---------------------------------------------------------------------------------------------- the reference

    def _add_with_numpy(self, raw: Raw, tile: Tile) -> Floats:
        """Add second moments, edges and range of a tile; returns the sums over its segments, (T, segments)."""
        segments = np.zeros((self.frontend.n_variables, len(tile.starts)))
        step = chunk_columns(self.frontend.n_variables, self.dtype.itemsize)
        at_once = len(tile.rows) if tile.edges else step
        for start in range(0, len(tile.rows), at_once):
            Z = self._variables(raw.columns(start, min(start + at_once, len(tile.rows))), start, tile)
            core = Z[:, : tile.n_core - start]  # a tile with a halo comes at once
            pairs = [_PairSum(Z, edges) for edges in tile.edges if isinstance(edges, LocalPairs)]
            for a in range(0, max([core.shape[1], *(pair.n_pairs for pair in pairs)]), step):
                if tile.parts and a < core.shape[1]:
                    self._add_chunk(core[:, a : a + step], start + a, tile, segments)
                for pair in pairs:  # the samples are still in the cache
                    pair.add(a, a + step)
            self._add_edges(Z, tile, pairs)
        return segments

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

    def _add_edges(self, Z: NDArray[Any], tile: Tile, pairs: list[_PairSum]) -> None:
        """Add edges within the tile, which is all in Z."""
        for pair in pairs:
            assert self.sums.edges is not None
            self.sums.edges += pair.total()
            self.sums.edge_weight += pair.weight
        for edges in tile.edges:
            if not isinstance(edges, LocalPairs):
                assert self.sums.edges is not None
                self.sums.edges += _cross_sum(Z, tile.n_core, edges)


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
