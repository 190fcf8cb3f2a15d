"""Tiles, and how the samples of a graph made of groups are cut into them.

Training needs the second moments of the same samples under a few weightings: vertex weights v, weights e of the edge
covariance, and plain sample weights w. Samples with equal weights form a cell. A tile holds samples cell by cell, so
that the product z z^T of each is computed once and weighted afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.graph.codes import combine_codes, look_up
from higsfa.core.graph.edges import AtomEdges, GroupEdges, LowRankEdges
from higsfa.core.graph.graph import TrainingGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

NO_FUNCTIONS: Floats = np.zeros((0, 0))
MAX_LEVELS = 32
"""With more distinct sample weights than this, cells would be too small to be of use."""
MIN_CELL = 64
"""Cells with fewer samples in a block share tiles, and pay for one product per weighting; fewer where that is dear."""


@dataclass(frozen=True, eq=False)
class Weighting:
    """How channels and group sums become the weightings of one graph: what a plan adds to the sums.

    Attributes
    ----------
    mix : (3, K) vertex, edge and plain weights as combinations of channels.
    couplings : couplings K of the group parts and of those of low rank, in the order of their sums.
    edge_weight : R.
    rows : which rows of the group sums are those of the couplings; None for all.
    """

    mix: Floats
    couplings: tuple[Any, ...]
    edge_weight: float
    rows: Ints | None = None


def sample_levels(w: Floats) -> tuple[Ints | None, Floats, Floats | None]:
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
            B, size = np.stack(basis), np.max(np.abs(role), initial=0.0)
            if size == 0.0:
                continue
            one = len(B) == 1
            coefficients = B @ role / (B[0] @ B[0]) if one else np.linalg.lstsq(B.T, role, rcond=1e-10)[0]
            if np.max(np.abs(coefficients @ B - role)) <= 1e-14 * size:
                mix[r, : len(basis)] = coefficients
                continue
        mix[r, len(basis)] = unit = unit_of(role)
        basis.append(role / unit)
    return np.stack(basis), mix[:, : len(basis)]


TILE_BYTES = 2**24
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

    @property
    def factor(self) -> float:
        """Of the sum of products of differences, times the roots of weights that are not all the same."""
        return 2.0 if isinstance(self.weight, np.ndarray) else 2.0 * self.weight

    @property
    def total_weight(self) -> float:
        """Both directions."""
        return 2.0 * float(np.sum(self.weight) if isinstance(self.weight, np.ndarray) else len(self.i) * self.weight)


@dataclass(frozen=True, eq=False)
class LocalRuns:
    """Edges from position p of a tile to all positions first[p] .. last[p]."""

    first: Ints
    last: Ints
    weight: float

    @property
    def factor(self) -> float:
        """Of the sum of products of samples with their differences from those that they are joined to."""
        return 2.0 * self.weight


@dataclass(frozen=True, eq=False)
class LocalMatrix:
    """Edges as a sparse matrix (core x tile). Their degrees are among the edge weights of the samples."""

    matrix: sp.csr_array
    factor: ClassVar[float] = -2.0


LocalEdges = LocalPairs | LocalRuns | LocalMatrix

MAX_GROWTH = 4.0
"""Products of samples with other weights are carried on only if no weight grows by more than this factor."""


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive samples of a tile, and what is done with the running product before theirs is added.

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


@dataclass(eq=False)
class PartMaker:
    """Makes the parts of a block, one after the other; remembers the weights of the last one."""

    weights: Floats | None = None

    def __call__(self, begin: int, end: int, weights: Floats) -> Part:
        old = self.weights
        if weights.ndim == 2:
            return Part(begin, end, weights)
        self.weights = weights
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
    parts : consecutive pieces of the core; none if only its edges count.
    starts : of the runs of samples that have the same weights and atoms.
    weights : total weight of each channel, atom and label function in the tile.
    selector : (K + A, runs) matrix that turns sums over runs into weighted sums and group sums.
    edges : edges within the tile, from its core.
    sample_weight : weights of the core samples, which those of the parts are multiplied by; None if all are 1.
    counted : which core samples have a weight; None for all of them.
    functions : (functions, n_core) functions of the labels, times vertex weights, of graphs of low rank.
    """

    rows: Ints
    n_core: int
    parts: tuple[Part, ...]
    starts: Ints
    weights: Floats
    selector: Any
    edges: tuple[LocalEdges, ...] = ()
    sample_weight: Floats | None = None
    counted: NDArray[np.bool_] | None = None
    functions: Floats = field(default_factory=lambda: NO_FUNCTIONS)


def rows_of(groups: Sequence[AtomEdges], *, raw: bool = False) -> tuple[Ints, tuple[Any, ...], Floats]:
    """Where the group sums of each part begin, couplings of all rows, and label functions times vertex weights.

    The functions are orthonormal, or `raw` as they are, so that sums of several graphs add.
    """
    offsets = np.cumsum([0] + [edges.n_atoms if isinstance(edges, GroupEdges) else 0 for edges in groups])
    low = [edges for edges in groups if isinstance(edges, LowRankEdges)]
    couplings = [edges.couplings for edges in groups if isinstance(edges, GroupEdges)]
    functions = [edges.weighted_functions() if raw else edges.orthonormal_functions for edges in low]
    couplings += [sp.csr_array(sp.diags_array(edges.strengths)) for edges in low]
    return offsets, tuple(couplings), np.concatenate([*functions] or [NO_FUNCTIONS])


def _own_rows(groups: list[Any], n_atoms: int) -> list[Ints]:
    """Rows of the group sums and then of the label functions of each graph; those of all graphs come in this order."""
    found, atom, function = [], 0, n_atoms
    for own in groups:
        a = sum(edges.n_atoms for edges in own if isinstance(edges, GroupEdges))
        f = sum(len(edges.deltas) for edges in own if isinstance(edges, LowRankEdges))
        found.append(np.r_[atom : atom + a, function : function + f].astype(np.intp))
        atom, function = atom + a, function + f
    return found


def find_segments(change: NDArray[np.bool_], n: int) -> tuple[Ints, Ints]:
    """Starts and lengths of runs, from where neighbours differ."""
    borders = np.concatenate([[-1], np.flatnonzero(change), [n - 1]])
    return borders[:-1] + 1, np.diff(borders)


def make_selector(weights: Floats, atoms: Ints, w: Floats, n_atoms: int) -> Any:
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(ABC):
    """The blocks and tiles of a graph. Build with :func:`higsfa.core.sums.plan.make_plan`.

    Attributes
    ----------
    weighting : how the K channels that are gathered become vertex, edge and plain weights.
    n_channels, n_atoms : K, and the rows of group sums, followed by those of label functions.
    n_blocks : number of blocks.
    has_edges : whether there are edges along an order or written out one by one.
    functions : (functions, N) functions of labels times vertex weights, of graphs of low rank.
    """

    weighting: Weighting
    n_channels: int
    n_atoms: int
    n_blocks: int
    has_edges: bool = False
    functions: Floats = field(default_factory=lambda: NO_FUNCTIONS)

    @abstractmethod
    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        """Tiles of one block, of at most `rows` core samples each."""

    def only(self, blocks: range) -> Plan:
        """The plan with what the tiles of these blocks need; it may hold more."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class CellPlan(Plan):
    """Row order, sorted by weights within each block; for graphs made of groups and label functions only."""

    fine: NDArray[Any]  # (N,) combination of weights and atoms; those of equal weights are neighbours
    cell: Ints  # (F,) which combinations have equal weights
    channels: Floats  # (K, F)
    atom_rows: Ints  # (P, F) row of the group sums for each part, -1 for none
    sample_weight: Floats  # (F,)
    block: int
    first: int = 0  # number of the first sample that fine, varying and functions tell of
    varying: Floats | None = None  # (N,) weights of samples that multiply those of their cells; None if all are 1
    weightings: tuple[Weighting, ...] = ()  # of each graph

    @classmethod
    def of(
        cls,
        graphs: Sequence[TrainingGraph],
        block: int,
        *,
        fixed: bool = False,
        folds: tuple[Ints, NDArray[np.bool_]] | None = None,
    ) -> CellPlan:
        """A plan for one or several graphs of the same samples; `weightings` has one entry for each of them.

        With `fixed` channels do not depend on the weights. `folds` are the fold of each sample, and which folds
        (graphs, folds) each graph is made of; the first graph is made of all.
        """
        groups: list[Any] = [[part.edges for part in graph.parts] for graph in graphs]
        every = [edges for own in groups for edges in own]
        codes, sizes = [edges.atoms for edges in every], [edges.n_atoms + 1 for edges in every]
        levels, values, varying = sample_levels(graphs[0].sample_weight)
        if folds is not None:
            codes, sizes = [*codes, folds[0] - 1], [*sizes, folds[1].shape[1]]
        if levels is not None:
            codes, sizes = [*codes, levels - 1], [*sizes, len(values)]
        joint, number, table = combine_codes(codes, sizes)
        atoms = table[: len(every)]
        w = np.full(table.shape[1], values[0]) if levels is None else values[table[-1] + 1]
        roles = []
        for g, (graph, own) in enumerate(
            zip(graphs, np.split(atoms, np.cumsum([len(own) for own in groups])[:-1]), strict=True)
        ):
            v, e = np.zeros(len(w)), np.zeros(len(w))
            for part, edges, its in zip(graph.parts, groups[g], own, strict=True):
                v += w * np.append(part.rates, 0.0)[its]
                e += w * np.append(edges.atom_degrees, 0.0)[its]
            roles += [v, e, w if folds is None else w * folds[1][g][table[len(every)] + 1]]
        # Channels that do not depend on the weights: v, which is e where functions are the only edges, and w.
        channels, mix = (np.stack(roles[::2]), np.eye(2)) if fixed else reduce_weightings(np.stack(roles))
        order = np.lexsort((*atoms[::-1], *-channels))  # large weights first, see Part
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        channels, atoms = channels[:, order], atoms[:, order]
        change = np.any(channels[:, 1:] != channels[:, :-1], axis=0)
        offsets, _, functions = rows_of(every, raw=fixed)
        own_rows: list[Any] = [None] if len(graphs) == 1 else _own_rows(groups, int(offsets[-1]))
        weightings = tuple(
            Weighting(
                mix if fixed else mix[3 * g : 3 * g + 3], rows_of(own, raw=True)[1], graph.total_edge_weight, rows
            )
            for g, (graph, own, rows) in enumerate(zip(graphs, groups, own_rows, strict=True))
        )
        return cls(
            weighting=weightings[0],
            weightings=weightings,
            n_channels=len(channels),
            n_atoms=int(offsets[-1]) + len(functions),
            functions=functions,
            n_blocks=-(-graphs[0].n_samples // block),
            fine=look_up(rank.astype(np.uint16 if len(order) < 2**16 else np.intp)[number], joint),
            cell=np.concatenate([[0], np.cumsum(change)]),
            channels=channels,
            atom_rows=np.where((atoms >= 0) & (offsets[1:] > offsets[:-1])[:, None], atoms + offsets[:-1, None], -1),
            sample_weight=w[order],
            block=block,
            varying=varying,
        )

    def only(self, blocks: range) -> CellPlan:
        some = slice(blocks.start * self.block - self.first, blocks.stop * self.block - self.first)
        return replace(
            self,
            fine=self.fine[some],
            varying=None if self.varying is None else self.varying[some],
            functions=self.functions[:, some],
            first=blocks.start * self.block,
        )

    def tiles(self, block: int, rows: int) -> Iterator[Tile]:
        lo = block * self.block - self.first
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
        """A tile of cells that end at `borders`, counted from its start; the last one holds all small cells.

        Rows are counted from the first sample of the plan.
        """
        starts, lengths = find_segments(fine[1:] != fine[:-1], len(fine))
        weights = None if self.varying is None else self.varying[rows]
        totals = lengths.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
        own = fine[starts]
        n_atoms = self.n_atoms - len(self.functions)
        selector = make_selector(self.channels[:, own], self.atom_rows[:, own], self.sample_weight[own], n_atoms)
        functions = self.functions[:, rows] if len(self.functions) else self.functions
        ends = np.clip(borders, 0, len(rows))
        parts = []
        for number, (a, b) in enumerate(pairwise([0, *ends.tolist()])):
            if b > a:
                parts.append(make_part(a, b, self.channels[:, fine[a] if number < n_large else fine[a:b]]))
        return Tile(
            rows + self.first,
            len(rows),
            tuple(parts),
            starts,
            np.concatenate([selector @ totals, functions.sum(axis=1)]),
            selector,
            sample_weight=weights,
            functions=functions,
        )
