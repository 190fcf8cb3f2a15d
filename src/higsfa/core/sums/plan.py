"""From a graph to its plan: numbered blocks of samples, and in them tiles.

Blocks have a fixed size, whatever the batches that the data came in, and block sums are merged in a fixed tree: this is
why threads, workers and restarts cannot change a bit of the result. Graphs made of groups are cut into cells of equal
weights; graphs with edges along an order keep that order, and each tile brings along the samples that its edges reach
(its halo).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.graph.edges import AtomEdges, ChainEdges, SparseEdges
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.tile import (
    CellPlan,
    LocalEdges,
    LocalMatrix,
    LocalPairs,
    LocalRuns,
    Part,
    PartMaker,
    Plan,
    Tile,
    Weighting,
    find_segments,
    make_selector,
    reduce_weightings,
    rows_of,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLOCK = 16384
"""Samples in a block: enough that the cells of a graph for several labels fill tiles, and few enough that rows which
are read cell by cell lie close together and products may be added up in single precision."""


def make_plan(graph: TrainingGraph, block: int = BLOCK) -> Plan:
    """Cut the samples of a graph into blocks of a fixed size, and blocks into tiles."""
    groups = [part.edges for part in graph.parts if isinstance(part.edges, AtomEdges)]
    return CellPlan.of([graph], block) if len(groups) == len(graph.parts) else OrderedPlan.of(graph, groups, block)


def label_plan(graph: TrainingGraph) -> Plan:
    """A plan for graphs of label functions, with a channel for vertex weights and one for sample weights.

    The channels do not depend on the samples, so that sums of any batches add.
    """
    return CellPlan.of([graph], BLOCK, fixed=True)


def class_plan(classes: Ints, n_classes: int, w: Floats) -> Plan:
    """A plan with one channel per class, for graphs whose weights are known only when all classes have been counted.

    Channel 0 is for samples without a class.
    """
    K = n_classes + 1
    varying = None if np.all(w == w[:1]) else w
    return CellPlan(
        weighting=Weighting(np.eye(K), (), 0.0),
        n_channels=K,
        n_atoms=0,
        n_blocks=-(-len(classes) // BLOCK),
        fine=(classes + 1).astype(np.uint16 if K < 2**16 else np.intp),
        cell=np.arange(K),
        channels=np.eye(K) * (w[:1] if varying is None else 1.0),
        atom_rows=np.zeros((0, K), dtype=np.intp),
        sample_weight=np.ones(K),
        block=BLOCK,
        varying=varying,
    )


def sequence_plan(graph: TrainingGraph) -> Plan:
    """A plan for recordings, whose sums add: a channel for vertex weights, and one for sample weights if they differ.

    Edges are summed by their differences.
    """
    (part,) = graph.parts
    assert isinstance(part.edges, ChainEdges)
    same = part.rates is graph.sample_weight
    weights = graph.sample_weight[None] if same else np.stack([part.rates, graph.sample_weight])
    return OrderedPlan(
        weighting=Weighting(SEQUENCE_MIX[len(weights)], (), 0.0),
        n_channels=len(weights),
        n_atoms=0,
        n_blocks=-(-graph.n_samples // BLOCK),
        has_edges=True,
        order=None,
        n_samples=graph.n_samples,
        channels=weights,
        atom_rows=np.zeros((0, graph.n_samples), dtype=np.intp),
        sample_weight=graph.sample_weight,
        local=((part.edges, True),),
        block=BLOCK,
    )


SEQUENCE_MIX = {1: np.array([[1.0], [0.0], [1.0]]), 2: np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])}
"""Vertex, edge and plain weights from the channels of recordings."""


# --- edges along an order ---

Members = list[tuple[ChainEdges | SparseEdges, bool]]
"""Edges, and whether differences are summed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderedPlan(Plan):
    """Samples in the order of the edges, tiles with halos; weights sample by sample."""

    order: Ints | None  # order of the main track, None is row order
    n_samples: int
    channels: Floats  # (K, N)
    atom_rows: Ints  # (P, N)
    sample_weight: Floats
    local: tuple[tuple[ChainEdges | SparseEdges, bool], ...]  # edges and whether to sum differences
    block: int

    @classmethod
    def of(cls, graph: TrainingGraph, groups: Sequence[AtomEdges], block: int) -> OrderedPlan:
        w = graph.sample_weight
        e = np.zeros(graph.n_samples)
        for edges in groups:
            e += w * np.append(edges.atom_degrees, 0.0)[edges.atoms]
        local = []
        for part in graph.parts:
            if isinstance(part.edges, AtomEdges):
                continue
            weight = getattr(part.edges, "weight", 0.0)
            differences = part.edges.n_forward <= 2 * graph.n_samples or isinstance(weight, np.ndarray)
            if not differences and isinstance(part.edges, SparseEdges):
                e += part.edges.pair_degrees()
            local.append((part.edges, differences))
        channels, mix = reduce_weightings(np.stack([graph.vertex_weights, e, w]))
        offsets, couplings, functions = rows_of(groups)
        atoms = np.array([edges.atoms for edges in groups], dtype=np.intp).reshape(len(groups), graph.n_samples)
        order = _whole(_order_of(local[0][0]), graph.n_samples)
        lengths = (length for _, _, length in _tracks(order, graph.n_samples, local))
        return cls(
            weighting=Weighting(mix, couplings, graph.total_edge_weight),
            n_channels=len(channels),
            n_atoms=int(offsets[-1]) + len(functions),
            functions=functions,
            n_blocks=sum(-(-length // block) for length in lengths),
            has_edges=True,
            order=order,
            n_samples=graph.n_samples,
            channels=channels,
            atom_rows=np.where((atoms >= 0) & (offsets[1:] > offsets[:-1])[:, None], atoms + offsets[:-1, None], -1),
            sample_weight=w,
            local=tuple(local),
            block=block,
        )

    @cached_property
    def _uniform(self) -> bool:
        """Whether all samples have the same weights and there are no groups."""
        return self.n_atoms == 0 and bool(np.all(self.channels == self.channels[:, :1]))

    @cached_property
    def tracks(self) -> list[tuple[Ints | None, Members, int]]:
        return _tracks(self.order, self.n_samples, self.local)

    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        for number, (order, members, length) in enumerate(self.tracks):
            blocks = -(-length // self.block)
            if block < blocks:
                make_part = PartMaker()
                for lo in range(block * self.block, min((block + 1) * self.block, length), rows):
                    hi = min(lo + rows, (block + 1) * self.block, length)
                    yield self._tile(order, members, lo, hi, make_part if number == 0 else None)
                return
            block -= blocks

    def _tile(self, order: Ints | None, members: list[Any], lo: int, hi: int, make_part: PartMaker | None) -> Tile:
        pieces = [_local(edges, differences, lo, hi) for edges, differences in members]
        halo = np.unique(np.concatenate([np.zeros(0, dtype=np.intp)] + [outside for outside, _ in pieces]))
        local = tuple(build(halo) for _, build in pieces)
        positions = np.concatenate([np.arange(lo, hi), halo])
        rows = positions if order is None else order[positions]
        core, n_atoms = rows[: hi - lo], self.n_atoms - len(self.functions)
        functions = self.functions[:, core] if len(self.functions) else self.functions
        if make_part is None:
            nothing = np.zeros((len(self.channels) + n_atoms, 0))
            none = np.zeros(hi - lo, dtype=bool)  # they are counted in the first track
            weights = np.zeros(len(self.channels) + self.n_atoms)
            return Tile(rows, hi - lo, (), np.zeros(0, dtype=np.intp), weights, nothing, local, counted=none)
        if self._uniform:
            weights = self.channels[:, 0]
            part, starts = make_part(0, hi - lo, weights), np.zeros(1, dtype=np.intp)
            return Tile(rows, hi - lo, (part,), starts, (hi - lo) * weights, weights[:, None].copy(), local)
        weights, atoms = self.channels.take(core, axis=1), self.atom_rows.take(core, axis=1)
        counted = weights[0] != 0 if len(weights) == 1 else np.asarray(weights.any(axis=0))
        moved = _changes(weights)
        starts, lengths = find_segments(moved | _changes(atoms) if len(atoms) else moved, len(core))
        selector = make_selector(weights[:, starts], atoms[:, starts], self.sample_weight[core[starts]], n_atoms)
        return Tile(
            rows,
            hi - lo,
            _parts(weights, moved, make_part),
            starts,
            np.concatenate([selector @ lengths.astype(np.float64), functions.sum(axis=1)]),
            selector,
            local,
            counted=None if counted.all() else counted,
            functions=functions,
        )


MAX_RUNS = 8
"""Up to so many runs of equal weights in a tile have a product each; with more, samples are weighted one by one."""


def _changes(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Where columns differ from the one before, (n - 1,)."""
    change = np.zeros(max(0, rows.shape[1] - 1), dtype=bool)
    for row in rows:
        change |= row[1:] != row[:-1]
    return change


def _parts(weights: Floats, moved: NDArray[np.bool_], make_part: PartMaker) -> tuple[Part, ...]:
    """Parts of a tile, given the weights of its samples and where they change: mostly near its ends, if at all."""
    starts, lengths = find_segments(moved, weights.shape[1])
    if len(starts) > MAX_RUNS:
        return (make_part(0, weights.shape[1], weights),)
    runs = ((a, a + n, weights[:, a]) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True))
    return tuple(make_part(a, b, own) for a, b, own in runs if own.any())


def _tracks(order: Ints | None, n_samples: int, local: Iterable[Any]) -> list[tuple[Ints | None, Members, int]]:
    """Orders in which the samples are read: order, the edges along it, number of positions."""
    found: list[tuple[Ints | None, Members, int]] = [(order, [], n_samples)]
    for item in local:
        own = _order_of(item[0])
        for known, members, _ in found:
            if _extends(known, own):
                members.append(item)
                break
        else:
            found.append((own, [item], n_samples if own is None else len(own)))
    return found


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
    """Positions outside lo..hi that the edges from lo..hi reach, and a function that, given the halo of the
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
    first, last, weight = edges.first[:, lo:end], edges.last[:, lo:end], edges.weight
    some = last >= first
    is_everywhere = bool(some.all())
    reach = int((last if is_everywhere else last[some]).max(initial=hi - 1))
    outside = np.arange(hi, reach + 1)

    def build_chain(halo: Ints) -> LocalEdges:
        if differences:
            if is_everywhere and len(first) == 1 and np.array_equal(first, last):  # most tiles: no selection is needed
                i, j = np.arange(first.shape[1]), first[0]
            elif np.all((last == first)[some]):
                i, j = np.nonzero(some)[1], first[some]
            else:
                i, j = _spell_out(first, last)
            own = weight[:, lo:end][some] if isinstance(weight, np.ndarray) else weight
            return LocalPairs(i, _place(j, lo, hi, halo), own)
        assert not isinstance(weight, np.ndarray)
        a, b = _place(np.where(some, first, lo), lo, hi, halo), _place(np.where(some, last, lo), lo, hi, halo)
        return LocalRuns(np.where(some, a, 0), np.where(some, b, -1), weight)

    return outside, build_chain


def _spell_out(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    length = np.maximum(last - first + 1, 0).ravel()
    ends = np.cumsum(length)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - length, length)
    i = np.tile(np.arange(first.shape[1]), len(first))
    return np.repeat(i, length), np.repeat(first.ravel(), length) + within


def _place(positions: Ints, lo: int, hi: int, halo: Ints) -> Ints:
    """Positions within the tile: the core first, then the halo."""
    if len(halo) == 0 or (halo[0] == hi and halo[-1] - hi == len(halo) - 1):
        return positions - lo
    return np.where(positions < hi, positions - lo, hi - lo + np.searchsorted(halo, positions))
