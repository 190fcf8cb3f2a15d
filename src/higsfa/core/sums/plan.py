"""How samples are cut for the sums: numbered blocks, and in them tiles of samples with equal weights.

Training needs the second moments of the same samples under a few weightings: the vertex weights v, the weights e of
the edge covariance, and the plain sample weights w. Samples with equal weights form a cell; a tile holds samples cell
by cell, so that the product z z^T of each is computed once and weighted afterwards. Blocks have a fixed size, whatever
the batches that the data came in, and block sums are merged in a fixed tree: this is why threads, workers and restarts
cannot change a bit of the result.

Graphs with edges along an order keep that order instead, and each tile brings along the samples that its edges reach
(its halo).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.graph.edges import ChainEdges, GroupEdges, SparseEdges
from higsfa.core.graph.graph import TrainingGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLOCK = 16384
"""Samples in a block: enough that the cells of a graph for several labels fill tiles, and few enough that rows which
are read cell by cell lie close together and products may be added up in single precision."""
MIN_CELL = 64
"""Cells with fewer samples in a block share tiles, and pay for one product per weighting; fewer where that is dear."""
MAX_LEVELS = 32
"""With more distinct sample weights than this, cells would be too small to be of use."""
TILE_BYTES = 2**24
MAX_TABLE = 2**20
"""Longest table of combinations of labels; beyond it, those that occur are found by sorting."""
MAX_TILE = 8192


def tile_rows(n_features: int, itemsize: int) -> int:
    """Samples in a tile: as many as bounded memory allows, because every tile costs some work of its own."""
    fitting = TILE_BYTES // max(1, n_features * itemsize)
    return int(np.clip(1 << max(fitting.bit_length() - 1, 0), 128, MAX_TILE))


@dataclass(frozen=True, eq=False)
class LocalPairs:
    """Edges from positions i to positions j of a tile, with weights."""

    i: Ints
    j: Ints
    weight: Floats | float


@dataclass(frozen=True, eq=False)
class LocalRuns:
    """Edges from position p of a tile to all positions first[p] .. last[p]."""

    first: Ints
    last: Ints
    weight: float


@dataclass(frozen=True, eq=False)
class LocalMatrix:
    """Edges as a sparse matrix (core x tile)."""

    matrix: sp.csr_array


LocalEdges = LocalPairs | LocalRuns | LocalMatrix

MAX_GROWTH = 4.0
"""Products of samples with other weights are carried on only if no weight grows by more than this factor."""


@dataclass(frozen=True, eq=False)
class Part:
    """A stretch of a tile, and what is done with the product of all samples so far before its own is added.

    Cells follow each other with slightly different weights, so their products are not weighted one by one: P sums up
    the products of all cells so far, and what a channel has to get is S + w P, with w its weight in the present cell
    and S a sum of its own. Where the weight changes from w to w', (w - w') P is added to S. Weights must not grow much
    on the way, or small differences of large numbers would be taken; then w P is added, and P begins anew.

    Attributes
    ----------
    begin, end : positions in the tile.
    weights : in the K channels: (K,) if all samples have the same, else (K, end - begin).
    factors : (K,) multiples of P that are added to the channels first; None for nothing.
    anew : whether P begins anew.
    """

    begin: int
    end: int
    weights: Floats
    factors: Floats | None = None
    anew: bool = False


class _Parts:
    """Makes the parts of a block, one after the other."""

    def __init__(self) -> None:
        self._weights: Floats | None = None

    def __call__(self, begin: int, end: int, weights: Floats) -> Part:
        old = self._weights
        if weights.ndim == 2:
            return Part(begin, end, weights)
        self._weights = weights
        if old is None or np.array_equal(weights, old):
            return Part(begin, end, weights, None, anew=old is None)
        fewer = np.count_nonzero(weights != old) < np.count_nonzero(old)
        if fewer and np.all(weights <= MAX_GROWTH * old):
            return Part(begin, end, weights, old - weights)
        return Part(begin, end, weights, old, anew=True)


@dataclass(frozen=True, eq=False)
class Tile:
    """Some samples and what the sums need to know about them.

    Attributes
    ----------
    rows : sample numbers; the first `n_core` are summed, the others are the halo.
    parts : stretches that the core consists of; none if only its edges count.
    starts, lengths : the runs of samples that have the same weights and atoms; their total weight (their number, where
        samples have no weights of their own).
    selector : (K + A, runs) matrix that turns sums over runs into weighted sums and group sums.
    edges : edges within the tile, from its core.
    sample_weight : weights of the core samples, which those of the parts are multiplied by; None if all are 1.
    """

    rows: Ints
    n_core: int
    parts: tuple[Part, ...]
    starts: Ints
    lengths: Floats
    selector: Any
    edges: tuple[LocalEdges, ...] = ()
    sample_weight: Floats | None = None

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def borders(self) -> Ints:
        """Where the parts begin, and the end of the last."""
        return np.array([part.begin for part in self.parts] + [self.n_core], dtype=np.intp)

    @cached_property
    def anew(self) -> NDArray[np.bool_]:
        """Which parts begin a product anew."""
        return np.array([part.anew for part in self.parts], dtype=bool)

    @cached_property
    def counted(self) -> NDArray[np.bool_] | None:
        """Which core samples have a weight; None for all of them."""
        seen = np.zeros(self.n_core, dtype=bool)
        for part in self.parts:
            seen[part.begin : part.end] = part.weights.any(axis=0)
        return None if seen.all() else seen


@dataclass(frozen=True, eq=False)
class Plan:
    """The blocks and tiles of a graph. Build with :func:`make_plan`.

    Attributes
    ----------
    mix : (3, K) array
        The three weightings (vertex, edge, plain) as combinations of the K channels that are gathered.
    n_atoms : int
        Rows of group sums.
    couplings : tuple of (A_p, A_p) sparse arrays
        Of the group parts, in the order of their group sums.
    edge_weight : float
        R.
    """

    mix: Floats
    n_channels: int
    couplings: tuple[sp.csr_array, ...]
    edge_weight: float
    n_blocks: int
    has_edges: bool
    _layout: _Cells | _Ordered

    @property
    def n_atoms(self) -> int:
        return sum(int(K.shape[0]) for K in self.couplings)

    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        """Tiles of one block, of at most `rows` core samples each."""
        return self._layout.tiles(block, rows)


def class_plan(classes: Ints, n_classes: int, w: Floats) -> Plan:
    """A plan with one channel per class, for graphs whose weights are known only when all classes have been counted.

    Channel 0 is for samples without a class.
    """
    K = n_classes + 1
    fine = (classes + 1).astype(np.uint16 if K < 2**16 else np.intp)
    varying = None if np.all(w == w[:1]) else w
    channels = np.eye(K) * (w[:1] if varying is None else 1.0)
    nothing = np.zeros((0, K), dtype=np.intp)
    layout = _Cells(fine, np.arange(K), channels, np.eye(K), nothing, np.ones(K), 0, varying=varying)
    return Plan(np.eye(K), K, (), 0.0, layout.n_blocks, False, layout)


def sequence_plan(n_before: int, graph: TrainingGraph) -> Plan:
    """A plan for a stretch of a sequence whose first `n_before` samples were summed before; only their edges count."""
    weights = np.ones((1, graph.n_samples))
    weights[:, :n_before] = 0.0
    (part,) = graph.parts
    assert isinstance(part.edges, ChainEdges)
    no_atoms = np.zeros((0, graph.n_samples), dtype=np.intp)
    layout = _Ordered(None, graph.n_samples, weights, np.ones((3, 1)), no_atoms, weights[0], 0, ((part.edges, True),))
    return Plan(np.ones((3, 1)), 1, (), 0.0, layout.n_blocks, True, layout)


def make_plan(graph: TrainingGraph, block: int = BLOCK) -> Plan:
    """Cut the samples of a graph into blocks of a fixed size, and blocks into tiles."""
    groups = [part.edges for part in graph.parts if isinstance(part.edges, GroupEdges)]
    of = _Cells.of if len(groups) == len(graph.parts) else _Ordered.of
    layout: _Cells | _Ordered = of(graph, groups, block)
    return Plan(
        mix=layout.mix,
        n_channels=layout.mix.shape[1],
        couplings=tuple(edges.couplings for edges in groups),
        edge_weight=graph.total_edge_weight,
        n_blocks=layout.n_blocks,
        has_edges=isinstance(layout, _Ordered) and bool(layout.local),
        _layout=layout,
    )


def _levels(w: Floats) -> tuple[Ints | None, Floats, Floats | None]:
    """Sample weights as cells need them.

    Returns
    -------
    levels : number of each sample's weight among the distinct ones; None if there is one, or too many of them.
    values : the distinct weights, or a unit for all.
    varying : weights in that unit, sample by sample, if there are too many of them.
    """
    if np.all(w == w[0]):
        return None, w[:1], None
    values = np.unique(w[: 4 * MAX_LEVELS])
    if len(values) <= MAX_LEVELS:
        values = np.unique(w)
    if len(values) <= MAX_LEVELS:
        return np.searchsorted(values, w), values, None
    unit = unit_of(w)
    return None, np.array([unit]), w / unit


def unit_of(weights: Floats) -> float:
    """A power of two that brings the largest weight to between 1 and 2: products in single precision stay in range."""
    return float(np.ldexp(1.0, int(np.frexp(np.max(weights, initial=0.0))[1]) - 1))


def reduce_weightings(roles: Floats) -> tuple[Floats, Floats]:
    """Channels that span the weightings, each one of the rows in its own unit, and the mix that gives the rows back."""
    basis: list[Floats] = []
    mix = np.zeros((len(roles), len(roles)))
    for r, role in enumerate(roles):
        if basis:
            B = np.stack(basis, axis=1)
            coefficients = np.linalg.lstsq(B, role, rcond=1e-10)[0]
            if np.max(np.abs(B @ coefficients - role), initial=0.0) <= 1e-14 * np.max(np.abs(role), initial=0.0):
                mix[r, : len(basis)] = coefficients
                continue
        mix[r, len(basis)] = unit = unit_of(role)
        basis.append(role / unit)
    return np.stack(basis), mix[:, : len(basis)]


def _combine(codes: list[NDArray[Any]], sizes: list[int]) -> tuple[NDArray[Any], Ints, Ints]:
    """Number the distinct combinations of several codings, each with codes -1 .. size - 2.

    Returns
    -------
    joint : (N,) a code of the combination of each sample.
    number : the number of the combination that has this code, for each code that occurs.
    table : (codings, combinations) the codes of each combination.
    """
    joint = codes[0] + 1
    table = np.arange(-1, sizes[0] - 1)[None]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if table.shape[1] * size > MAX_TABLE:
            number, table = _present(joint, table)
            joint = number.take(joint)
        span = table.shape[1] * size
        joint = joint.astype(np.int32 if span < 2**31 else np.int64, copy=False)
        joint *= size
        joint += code
        joint += 1
        occurring = np.arange(span) if span <= MAX_TABLE else np.unique(joint)
        if span > MAX_TABLE:
            joint = np.searchsorted(occurring, joint)
        table = np.concatenate([table[:, occurring // size], (occurring % size - 1)[None]])
    return joint, *_present(joint, table)


def _present(joint: NDArray[Any], table: Ints) -> tuple[Ints, Ints]:
    """New numbers for the combinations that occur, and their codes."""
    present = np.bincount(joint, minlength=table.shape[1]) > 0
    return np.cumsum(present) - 1, table[:, present]


@dataclass(frozen=True, eq=False)
class _Cells:
    """Row order, sorted by weights within each block; for graphs made of groups only."""

    fine: NDArray[
        Any
    ]  # (N,) combination of weights and atoms, numbered so that combinations of equal weights are adjacent
    cell: Ints  # (F,) which combinations have equal weights
    channels: Floats  # (K, F)
    mix: Floats
    atom_rows: Ints  # (P, F) row of the group sums for each part, -1 for none
    sample_weight: Floats  # (F,)
    n_atoms: int
    block: int = BLOCK
    varying: Floats | None = None  # (N,) weights of samples that multiply those of their cells; None if all are 1

    @classmethod
    def of(cls, graph: TrainingGraph, groups: list[GroupEdges], block: int) -> _Cells:
        codes, sizes = [edges.atoms for edges in groups], [edges.n_atoms + 1 for edges in groups]
        levels, values, varying = _levels(graph.sample_weight)
        if levels is not None:
            codes, sizes = [*codes, levels - 1], [*sizes, len(values)]
        joint, number, table = _combine(codes, sizes)
        atoms = table[: len(groups)]
        w = np.full(table.shape[1], values[0]) if levels is None else values[table[-1] + 1]
        v, e = np.zeros(len(w)), np.zeros(len(w))
        for part, edges, own in zip(graph.parts, groups, atoms, strict=True):
            v += w * np.append(part.rates, 0.0)[own]
            e += w * np.append(edges.atom_degrees, 0.0)[own]
        channels, mix = reduce_weightings(np.stack([v, e, w]))
        order = np.lexsort((*atoms[::-1], *-channels))  # large weights first, see Part
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        channels, atoms = channels[:, order], atoms[:, order]
        change = np.any(channels[:, 1:] != channels[:, :-1], axis=0)
        offsets = np.cumsum([0] + [edges.n_atoms for edges in groups])
        return cls(
            fine=rank.astype(np.uint16 if len(order) < 2**16 else np.intp)[number].take(joint),
            cell=np.concatenate([[0], np.cumsum(change)]),
            channels=channels,
            mix=mix,
            atom_rows=np.where(atoms >= 0, atoms + offsets[:-1, None], -1),
            sample_weight=w[order],
            n_atoms=int(offsets[-1]),
            block=block,
            varying=varying,
        )

    @property
    def n_blocks(self) -> int:
        return -(-len(self.fine) // self.block)

    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        lo = block * self.block
        fine = self.fine[lo : lo + self.block]
        order = np.argsort(fine, kind="stable")
        if self.varying is not None:
            order = order[self.varying[lo + order] > 0]
        fine = fine[order]
        order += lo
        if len(fine) == 0:
            return
        starts, sizes = _runs(np.diff(self.cell[fine]) != 0, len(fine))
        least = MIN_CELL // max(1, len(self.channels) // 2)
        used = self.channels[:, fine[starts]].any(axis=0)  # weight 0 everywhere is as if absent
        large = used & (sizes >= least)
        places = np.concatenate([np.flatnonzero(np.repeat(which, sizes)) for which in (large, used & ~large)])
        borders = np.append(np.cumsum(sizes[large]), len(places))
        make_part = _Parts()
        for start in range(0, len(places), rows):
            some = places[start : start + rows]
            yield self._tile(order[some], fine[some], borders - start, int(large.sum()), make_part)

    def _tile(self, rows: Ints, fine: Ints, borders: Ints, n_large: int, make_part: _Parts) -> Tile:
        """A tile of cells that end at `borders`, counted from its start; the last one holds all small cells."""
        starts, lengths = _runs(fine[1:] != fine[:-1], len(fine))
        weights = None if self.varying is None else self.varying[rows]
        totals = lengths.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
        own = fine[starts]
        selector = _selector(self.channels[:, own], self.atom_rows[:, own], self.sample_weight[own], self.n_atoms)
        ends = np.clip(borders, 0, len(rows))
        parts = []
        for number, (a, b) in enumerate(pairwise([0, *ends.tolist()])):
            if b > a:
                parts.append(make_part(a, b, self.channels[:, fine[a] if number < n_large else fine[a:b]]))
        return Tile(rows, len(rows), tuple(parts), starts, totals, selector, sample_weight=weights)


@dataclass(frozen=True, eq=False)
class _Ordered:
    """Samples in the order of the edges, tiles with halos; weights sample by sample."""

    order: Ints | None  # order of the main track, None is row order
    n_samples: int
    channels: Floats  # (K, N)
    mix: Floats
    atom_rows: Ints  # (P, N)
    sample_weight: Floats
    n_atoms: int
    local: tuple[tuple[ChainEdges | SparseEdges, bool], ...]  # edges and whether to sum differences
    block: int = BLOCK

    @classmethod
    def of(cls, graph: TrainingGraph, groups: list[GroupEdges], block: int) -> _Ordered:
        w = graph.sample_weight
        e = np.zeros(graph.n_samples)
        for edges in groups:
            e += w * np.append(edges.atom_degrees, 0.0)[edges.atoms]
        local = []
        for part in graph.parts:
            if isinstance(part.edges, GroupEdges):
                continue
            differences = part.edges.n_forward <= 2 * graph.n_samples
            if not differences:
                e += part.edges.pair_degrees()
            local.append((part.edges, differences))
        channels, mix = reduce_weightings(np.stack([graph.vertex_weights, e, w]))
        offsets = np.cumsum([0] + [edges.n_atoms for edges in groups])
        atoms = np.array([edges.atoms for edges in groups], dtype=np.intp).reshape(len(groups), graph.n_samples)
        orders = [_order_of(edges) for edges, _ in local]
        return cls(
            order=_whole(orders[0], graph.n_samples) if orders else None,
            n_samples=graph.n_samples,
            channels=channels,
            mix=mix,
            atom_rows=np.where(atoms >= 0, atoms + offsets[:-1, None], -1),
            sample_weight=w,
            n_atoms=int(offsets[-1]),
            local=tuple(local),
            block=block,
        )

    @cached_property
    def _uniform(self) -> bool:
        """Whether all samples have the same weights and there are no groups."""
        return self.n_atoms == 0 and bool(np.all(self.channels == self.channels[:, :1]))

    @cached_property
    def tracks(self) -> list[tuple[Ints | None, list[tuple[ChainEdges | SparseEdges, bool]], int]]:
        """Orders in which the samples are read: order, the edges along it, number of positions."""
        found: list[tuple[Ints | None, list[tuple[ChainEdges | SparseEdges, bool]], int]] = [
            (self.order, [], self.n_samples)
        ]
        for item in self.local:
            order = _order_of(item[0])
            for known, members, _ in found:
                if _extends(known, order):
                    members.append(item)
                    break
            else:
                found.append((order, [item], self.n_samples if order is None else len(order)))
        return found

    @property
    def n_blocks(self) -> int:
        return sum(-(-length // self.block) for _, _, length in self.tracks)

    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        for number, (order, members, length) in enumerate(self.tracks):
            blocks = -(-length // self.block)
            if block < blocks:
                make_part = _Parts()
                for lo in range(block * self.block, min((block + 1) * self.block, length), rows):
                    hi = min(lo + rows, (block + 1) * self.block, length)
                    yield self._tile(order, members, lo, hi, make_part if number == 0 else None)
                return
            block -= blocks

    def _tile(self, order: Ints | None, members: list[Any], lo: int, hi: int, make_part: _Parts | None) -> Tile:
        pieces = [_local(edges, differences, lo, hi) for edges, differences in members]
        halo = np.unique(np.concatenate([np.zeros(0, dtype=np.intp)] + [outside for outside, _ in pieces]))
        local = tuple(build(halo) for _, build in pieces)
        positions = np.concatenate([np.arange(lo, hi), halo])
        rows = positions if order is None else order[positions]
        core = rows[: hi - lo]
        if make_part is None:
            nothing = np.zeros((len(self.channels) + self.n_atoms, 0))
            return Tile(rows, hi - lo, (), np.zeros(0, dtype=np.intp), np.zeros(0), nothing, local)
        if self._uniform:
            weights = self.channels[:, 0]
            starts, lengths = np.zeros(1, dtype=np.intp), np.array([float(hi - lo)])
            part = make_part(0, hi - lo, weights)
            return Tile(rows, hi - lo, (part,), starts, lengths, weights[:, None].copy(), local)
        weights, atoms = self.channels[:, core], self.atom_rows[:, core]
        change = np.any(weights[:, 1:] != weights[:, :-1], axis=0) | np.any(atoms[:, 1:] != atoms[:, :-1], axis=0)
        starts, lengths = _runs(change, len(core))
        selector = _selector(weights[:, starts], atoms[:, starts], self.sample_weight[core[starts]], self.n_atoms)
        constant = np.all(weights == weights[:, :1])
        part = make_part(0, hi - lo, weights[:, 0] if constant else weights)
        return Tile(rows, hi - lo, (part,), starts, lengths.astype(np.float64), selector, local)


def _runs(change: NDArray[np.bool_], n: int) -> tuple[Ints, Ints]:
    """Starts and lengths of runs, from where neighbours differ."""
    borders = np.concatenate([[-1], np.flatnonzero(change), [n - 1]])
    return borders[:-1] + 1, np.diff(borders)


def _selector(weights: Floats, atoms: Ints, w: Floats, n_atoms: int) -> Any:
    """(K + A, runs): weighted sums and group sums from the sums over runs."""
    n_channels, runs = weights.shape
    part, run = np.nonzero(atoms >= 0)
    rows, values = atoms[part, run], w[run]
    if (n_channels + n_atoms) * runs <= 2**16:
        S = np.zeros((n_channels + n_atoms, runs))
        S[:n_channels] = weights
        np.add.at(S, (n_channels + rows, run), values)
        return S
    groups = sp.csr_array((values, (rows, run)), shape=(n_atoms, runs))
    return sp.csr_array(sp.vstack([sp.csr_array(weights), groups]))


def _order_of(edges: ChainEdges | SparseEdges) -> Ints | None:
    return edges.order if isinstance(edges, ChainEdges) else None


def _whole(order: Ints | None, n_samples: int) -> Ints | None:
    """An order of all samples: those without a place in it follow at its end."""
    if order is None or len(order) == n_samples:
        return order
    absent = np.ones(n_samples, dtype=bool)
    absent[order] = False
    return np.concatenate([order, np.flatnonzero(absent)])


def _extends(known: Ints | None, order: Ints | None) -> bool:
    if known is None or order is None:
        return known is order
    return len(known) >= len(order) and bool(np.array_equal(known[: len(order)], order))


def _local(edges: ChainEdges | SparseEdges, differences: bool, lo: int, hi: int) -> tuple[Ints, Any]:
    """Positions outside lo..hi that the edges of this stretch reach, and a function that, given the halo of the
    tile, writes the edges down in positions of the tile."""
    if isinstance(edges, SparseEdges):
        matrix = edges.upper[lo:hi]
        i, j = sp.coo_array(matrix).coords

        def build_sparse(halo: Ints) -> LocalEdges:
            at = _place(j, lo, hi, halo)
            if differences:
                return LocalPairs(i, at, matrix.data)
            return LocalMatrix(sp.csr_array((matrix.data, (i, at)), shape=(hi - lo, hi - lo + len(halo))))

        return np.unique(j[j >= hi]), build_sparse

    end = min(hi, edges.first.shape[1])
    first, last = edges.first[:, lo:end], edges.last[:, lo:end]
    some = last >= first
    reach = int(last[some].max(initial=hi - 1))
    outside = np.arange(hi, reach + 1)

    def build_chain(halo: Ints) -> LocalEdges:
        if differences and len(first) == 1 and np.all((last == first)[some]):
            i = np.flatnonzero(some[0])
            return LocalPairs(i, _place(first[0, i], lo, hi, halo), edges.weight)
        if differences:
            i, j = _spell_out(first, last)
            return LocalPairs(i, _place(j, lo, hi, halo), edges.weight)
        a, b = _place(np.where(some, first, lo), lo, hi, halo), _place(np.where(some, last, lo), lo, hi, halo)
        return LocalRuns(np.where(some, a, 0), np.where(some, b, -1), edges.weight)

    return outside, build_chain


def _spell_out(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    length = np.maximum(last - first + 1, 0).ravel()
    ends = np.cumsum(length)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - length, length)
    i = np.tile(np.arange(first.shape[1]), len(first))
    return np.repeat(i, length), np.repeat(first.ravel(), length) + within


def _place(positions: Ints, lo: int, hi: int, halo: Ints) -> Ints:
    """Positions within the tile: the core first, then the halo."""
    return np.where(positions < hi, positions - lo, hi - lo + np.searchsorted(halo, positions))
