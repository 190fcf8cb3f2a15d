"""From tiles to the sums of a node: the compiled routine where it can, and numpy, its reference, elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.native.tile import Front, Raw, chunk_columns, empty_rows, sum_tile
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.sums import Pool, Sums, Tree, merge, zero
from higsfa.core.sums.tile import LocalEdges, LocalMatrix, LocalPairs, Part, Plan, Tile

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

PILOT = 512
"""Samples that the shift is estimated from."""
FEW_SEGMENTS = 16
"""Up to this number, BLAS adds up one segment after the other faster than numpy adds up all of them."""

CACHED = 2**16
"""Numbers that stay in the cache between two steps."""


class NodeSums:
    """Gathers the sums of one node, tile by tile; block sums are merged in a fixed tree.

    Within a block, products are added up in the precision of the data, beyond it in float64. See :class:`Part` for the
    way they are weighted.

    Parameters
    ----------
    frontend : from raw input to variables.
    plan : blocks and tiles.
    dtype : of the products.
    shift : what variables are taken relative to, see :func:`pilot_shift`.
    pool : where space for sums comes from, and goes to when they have been added to others.

    Attributes
    ----------
    tree : sums of the blocks so far.
    sums : of the present block, None before its first tile.
    product, channels : P (T, T) and S (K, T, T) of :class:`Part`, in the present block.
    low, high : range of the inputs in the present block.
    edges : (M, T, T) for the M sets of edges of a tile, sums in the present block, each to be multiplied by its factor.
    """

    def __init__(
        self, frontend: Frontend, plan: Plan, dtype: np.dtype[Any], shift: Floats, pool: Pool | None = None
    ) -> None:
        self.frontend, self.plan, self.dtype, self.shift = frontend, plan, dtype, shift
        self.pool = Pool() if pool is None else pool
        self.tree = Tree(partial(merge, pool=self.pool))
        self.sums: Sums | None = None
        self._nothing: NDArray[Any] = np.zeros(0)
        self.product, self.channels, self.low, self.high, self.edges = (self._nothing,) * 5
        self._front = Front.of(frontend, dtype, shift)
        self._weights: Floats | None = None  # of the last part that was added to the product
        self._factors: list[float] = []  # of the edges

    def add(self, raw: Raw, tile: Tile) -> None:
        """Add a tile, given the raw input of the node."""
        if self.sums is None:
            self.sums = zero(self.frontend.n_inputs, self.frontend.n_variables, self.plan, self.pool)
            second, n_inputs = self.sums.second, len(self.sums.low)
            self.product = self.pool.zeros(second.shape[1:], self.dtype)
            # Double precision needs no sums of its own.
            self.channels = second if self.dtype == np.float64 else self.pool.zeros(second.shape, self.dtype)
            self.low, self.high = np.full(n_inputs, np.inf, self.dtype), np.full(n_inputs, -np.inf, self.dtype)
            self._weights = None
            self.edges = self.pool.zeros((len(tile.edges), *self.product.shape), self.dtype)
            self._factors = [edges.factor for edges in tile.edges]  # the same in all tiles of a block
        limits = None if self.frontend.expansion.is_linear else (self.low, self.high)
        found = sum_tile(self._front, raw, tile, self.product, self.channels, limits, self.edges)
        segments, by_function = self._add_with_numpy(raw, tile) if found is None else found
        n = tile.selector.shape[0]
        self.sums.weights += tile.weights
        self.sums.first[:n] += tile.selector @ segments.T
        if len(by_function):
            self.sums.first[n:] += by_function
        self.sums.edge_weight += sum(edges.total_weight for edges in tile.edges if isinstance(edges, LocalPairs))
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
            self.pool.take_back(self.channels)
        for factor, edges in zip(self._factors, self.edges, strict=True):
            assert sums.edges is not None
            _add_multiple(sums.edges, factor, edges)
        self.pool.take_back(self.product)
        self.pool.take_back(self.edges)
        self.product, self.channels, self.edges = (self._nothing,) * 3
        np.minimum(sums.low, self.low, out=sums.low)
        np.maximum(sums.high, self.high, out=sums.high)
        self.tree.add(block, sums)

    def _add_product_to_channels(self, factors: Floats) -> None:
        for channel, factor in zip(self.channels, factors.tolist(), strict=True):
            if factor != 0.0:
                _add_multiple(channel, factor, self.product)

    # ---------------------------------------------------------------------------------------------- the reference

    def _add_with_numpy(self, raw: Raw, tile: Tile) -> tuple[Floats, Floats]:
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
            for a in range(0, core.shape[1] if tile.parts else 0, step):
                self._add_chunk(core[:, a : a + step], start + a, tile, segments)
            for m, edges in enumerate(tile.edges):
                for a in range(0, core.shape[1], step):
                    self.edges[m] += _edge_sum(Z, edges, a, min(a + step, core.shape[1]))
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


def pilot_shift(frontend: Frontend, first: Sequence[Raw], dtype: np.dtype[Any], known: Floats | float = 0.0) -> Floats:
    """A shift for the variables whose mean is far from the known shift against their spread; that for the others.

    Subtracting it keeps the variance from drowning in the square of the mean. Exact for constant variables.

    Parameters
    ----------
    frontend : from raw input to variables.
    first : raw input, the same for any batches: of each of some fields that share a node, its first samples.
    dtype : of the variables.
    known : shift that would do.
    """
    some = [raw.columns(0, PILOT // len(first)) for raw in first]
    T = np.concatenate([frontend.variables(frontend.inputs(raw, dtype, clip=False)) for raw in some], axis=1)
    if T.shape[1] == 0:
        return np.zeros(len(T)) + known
    mean = T.mean(axis=1, dtype=np.float64)
    spread = T.std(axis=1, dtype=np.float64)
    low, high = T.min(axis=1), T.max(axis=1)
    mean = np.where(low == high, low, mean)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(mean) & (np.abs(mean - known) > 4 * spread), mean, known)


def _add_multiple(total: Any, factor: float, matrix: Any) -> None:
    """Add a multiple of a matrix, in the precision of the total; some rows at a time, in the cache."""
    step = max(1, CACHED // max(1, matrix.shape[1]))
    for a in range(0, len(matrix), step):
        total[a : a + step] += total.dtype.type(factor) * matrix[a : a + step].astype(total.dtype, copy=False)


def _add_segments(Z: NDArray[Any], starts: Ints, sums: Floats) -> None:
    """Add sums of the columns of Z, over segments that begin at `starts`, to the columns of `sums`."""
    if len(starts) > FEW_SEGMENTS:
        sums += np.add.reduceat(Z, starts, axis=1)
        return
    ones = np.ones(Z.shape[1], dtype=Z.dtype)
    for k, (a, b) in enumerate(pairwise([*starts.tolist(), Z.shape[1]])):
        sums[:, k] += Z[:, a:b] @ ones[: b - a]


def _edge_sum(Z: NDArray[Any], edges: LocalEdges, a: int, b: int) -> NDArray[Any]:
    """The sum over the edges of samples a .. b, up to its factor; all samples of the tile are in Z."""
    if isinstance(edges, LocalPairs):
        some = np.flatnonzero((edges.i >= a) & (edges.i < b))
        i, j = edges.i[some], edges.j[some]
        D = _differences(Z, i, j, np.flatnonzero((np.diff(i) != 1) | (np.diff(j) != 1)) + 1)
        if isinstance(edges.weight, np.ndarray):
            D *= np.sqrt(edges.weight[some]).astype(D.dtype)
        return np.asarray(D @ D.T)
    if isinstance(edges, LocalMatrix):
        reached = (edges.matrix[a:b].astype(Z.dtype) @ Z.T).T
        cross = Z[:, a:b] @ reached.T
        return np.asarray(cross + cross.T)
    first, last = edges.first[:, a:b], edges.last[:, a:b]
    end = int(np.max(last, initial=b - 1)) + 1
    pull = _pull(Z[:, a:end].T.astype(np.float64), first - a, last - a)
    return np.asarray(Z[:, a:end] @ pull.astype(Z.dtype))


def _pull(z: Floats, first: Ints, last: Ints) -> Floats:
    """The sum of z_p - z_q over all edges between samples p and q, for each p: (n, T) -> (n, T).

    The first samples are joined to runs first .. last of later ones, (runs, samples). What samples get from their runs
    is a difference of two cumulative sums. What those of the run get begins at its first one and ends after its last.
    """
    n, T = z.shape
    sums = np.zeros((n + 1, T))
    np.cumsum(z, axis=0, out=sums[1:])
    coming, degrees, joined = np.zeros((n + 1, T)), np.zeros(n + 1), np.zeros((n, T))
    for lower, upper in zip(first, last, strict=True):
        p = np.flatnonzero(upper >= lower)
        lo, hi = lower[p], upper[p] + 1
        joined[p] += sums[hi] - sums[lo]
        coming += sp.csr_array((np.ones(len(p)), (lo, p)), (n + 1, n)) @ z
        coming -= sp.csr_array((np.ones(len(p)), (hi, p)), (n + 1, n)) @ z
        degrees += np.cumsum(np.bincount(lo, minlength=n + 1) - np.bincount(hi, minlength=n + 1))
        degrees[p] += hi - lo
    joined += np.cumsum(coming[:n], axis=0)
    return degrees[:n, None] * z - joined


def _differences(Z: NDArray[Any], i: Ints, j: Ints, breaks: Ints) -> NDArray[Any]:
    """Z[:, j] - Z[:, i]; pairs run side by side but for the breaks."""
    n = len(i)
    feature_major = Z.strides[-1] == Z.itemsize
    D = empty_rows(len(Z), n, Z.dtype) if feature_major else np.empty((n, len(Z)), Z.dtype).T
    if n == 0 or len(breaks) > n // 64:
        np.subtract(Z[:, j], Z[:, i], out=D)
        return D
    for a, b in pairwise([0, *breaks.tolist(), n]):
        np.subtract(Z[:, j[a] : j[a] + b - a], Z[:, i[a] : i[a] + b - a], out=D[:, a:b])
    return D
