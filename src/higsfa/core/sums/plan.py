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
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.edges import ChainEdges, GroupEdges
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.ordered import OrderedLayout
from higsfa.core.sums.tile import (
    PartMaker,
    Tile,
    Weighting,
    combine_codes,
    find_segments,
    make_selector,
    reduce_weightings,
    sample_levels,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLOCK = 16384
"""Samples in a block: enough that the cells of a graph for several labels fill tiles, and few enough that rows which
are read cell by cell lie close together and products may be added up in single precision."""
MIN_CELL = 64
"""Cells with fewer samples in a block share tiles, and pay for one product per weighting; fewer where that is dear."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The blocks and tiles of a graph. Build with :func:`make_plan`.

    Attributes
    ----------
    weighting : how the K channels that are gathered become vertex, edge and plain weights.
    n_channels, n_atoms : K, and the rows of group sums.
    n_blocks : number of blocks.
    has_edges : whether there are edges along an order or written out one by one.
    """

    weighting: Weighting
    n_channels: int
    n_atoms: int
    n_blocks: int
    has_edges: bool
    _layout: CellLayout | OrderedLayout

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
    layout = CellLayout(fine, np.arange(K), channels, np.eye(K), nothing, np.ones(K), 0, BLOCK, varying)
    return Plan(Weighting(np.eye(K), (), 0.0), K, 0, layout.n_blocks, False, layout)


def sequence_plan(n_before: int, graph: TrainingGraph) -> Plan:
    """A plan for part of a sequence whose first `n_before` samples were summed before; only their edges count."""
    weights = np.ones((1, graph.n_samples))
    weights[:, :n_before] = 0.0
    (part,) = graph.parts
    assert isinstance(part.edges, ChainEdges)
    no_atoms, mix = np.zeros((0, graph.n_samples), dtype=np.intp), np.ones((3, 1))
    edges = ((part.edges, True),)
    layout = OrderedLayout(None, graph.n_samples, weights, mix, no_atoms, weights[0], 0, edges, BLOCK)
    return Plan(Weighting(mix, (), 0.0), 1, 0, layout.n_blocks, True, layout)


def make_plan(graph: TrainingGraph, block: int = BLOCK) -> Plan:
    """Cut the samples of a graph into blocks of a fixed size, and blocks into tiles."""
    groups = [part.edges for part in graph.parts if isinstance(part.edges, GroupEdges)]
    of = CellLayout.of if len(groups) == len(graph.parts) else OrderedLayout.of
    layout: CellLayout | OrderedLayout = of(graph, groups, block)
    weighting = Weighting(layout.mix, tuple(edges.couplings for edges in groups), graph.total_edge_weight)
    has_edges = isinstance(layout, OrderedLayout) and bool(layout.local)
    return Plan(weighting, layout.mix.shape[1], layout.n_atoms, layout.n_blocks, has_edges, layout)


@dataclass(frozen=True, eq=False)
class CellLayout:
    """Row order, sorted by weights within each block; for graphs made of groups only."""

    fine: NDArray[Any]  # (N,) combination of weights and atoms; those of equal weights are neighbours
    cell: Ints  # (F,) which combinations have equal weights
    channels: Floats  # (K, F)
    mix: Floats
    atom_rows: Ints  # (P, F) row of the group sums for each part, -1 for none
    sample_weight: Floats  # (F,)
    n_atoms: int
    block: int
    varying: Floats | None = None  # (N,) weights of samples that multiply those of their cells; None if all are 1

    @classmethod
    def of(cls, graph: TrainingGraph, groups: list[GroupEdges], block: int) -> CellLayout:
        codes, sizes = [edges.atoms for edges in groups], [edges.n_atoms + 1 for edges in groups]
        levels, values, varying = sample_levels(graph.sample_weight)
        if levels is not None:
            codes, sizes = [*codes, levels - 1], [*sizes, len(values)]
        joint, number, table = combine_codes(codes, sizes)
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
        starts, sizes = find_segments(np.diff(self.cell[fine]) != 0, len(fine))
        least = MIN_CELL // max(1, len(self.channels) // 2)
        used = self.channels[:, fine[starts]].any(axis=0)  # weight 0 everywhere is as if absent
        large = used & (sizes >= least)
        places = np.concatenate([np.flatnonzero(np.repeat(which, sizes)) for which in (large, used & ~large)])
        borders = np.append(np.cumsum(sizes[large]), len(places))
        make_part = PartMaker()
        for start in range(0, len(places), rows):
            some = places[start : start + rows]
            yield self._tile(order[some], fine[some], borders - start, int(large.sum()), make_part)

    def _tile(self, rows: Ints, fine: Ints, borders: Ints, n_large: int, make_part: PartMaker) -> Tile:
        """A tile of cells that end at `borders`, counted from its start; the last one holds all small cells."""
        starts, lengths = find_segments(fine[1:] != fine[:-1], len(fine))
        weights = None if self.varying is None else self.varying[rows]
        totals = lengths.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
        own = fine[starts]
        selector = make_selector(self.channels[:, own], self.atom_rows[:, own], self.sample_weight[own], self.n_atoms)
        ends = np.clip(borders, 0, len(rows))
        parts = []
        for number, (a, b) in enumerate(pairwise([0, *ends.tolist()])):
            if b > a:
                parts.append(make_part(a, b, self.channels[:, fine[a] if number < n_large else fine[a:b]]))
        return Tile(rows, len(rows), tuple(parts), starts, totals, selector, sample_weight=weights)
