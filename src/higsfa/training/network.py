"""Training a network layer by layer: one streaming pass per layer, plus one over the raw input.

Features travel between layers as feature-major blocks, one per tile of the plan: (nodes, width, samples). What the next
pass reads is kept in memory if the budget allows; then each node is trained on its own, start to end, and its sums are
thrown away at once. Otherwise tiles are streamed: the layers below are computed again for every tile, and the sums of
all nodes of the layer grow side by side. Both ways add up the same tiles in the same order: not a bit differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from higsfa.core.covariances import Weighting, covariances
from higsfa.core.expansions import Expansion, parse_expansion
from higsfa.core.fields import Fields
from higsfa.core.linalg import principal_axes
from higsfa.core.nodes import Frontend, Node, Projection
from higsfa.core.solvers import NodeOptions, solve_node
from higsfa.core.statistics import Accumulator, Sums, Tree, merge, shifted, zero_for
from higsfa.core.tiles import Plan, Tile
from higsfa.training.passes import PILOT, add_tile, pilot_shift

Floats = NDArray[np.float64]
Block = NDArray[Any]
"""Features of all nodes of a layer for the samples of a tile: (nodes, width, n)."""


@dataclass(frozen=True)
class LayerPlan:
    """One layer before training: where its fields lie and what its nodes shall do.

    Attributes
    ----------
    fields : receptive fields.
    width : outputs of each node of the layer below, or channels of a pixel.
    expansion : of the nodes' input.
    pca : number of principal components of the raw input that the nodes work on; None for the raw input itself.
    shared : whether one node, trained on all fields, serves them all.
    clip_range : whether the range guard is on.
    options : what the nodes extract; n_components is a number.
    """

    fields: Fields
    width: int
    expansion: Expansion
    pca: int | None
    shared: bool
    clip_range: bool
    options: NodeOptions

    @property
    def n_raw(self) -> int:
        """Raw inputs of a node."""
        return self.fields.children * self.width

    @property
    def n_inputs(self) -> int:
        """Inputs of a node after the projection."""
        return self.n_raw if self.pca is None else min(self.pca, self.n_raw)

    @property
    def children(self) -> int:
        return self.fields.children if self.pca is None else 1

    @property
    def frontend_size(self) -> int:
        """Variables that the sums of a node are over."""
        return self.frontend(np.zeros(self.n_inputs)).n_variables

    @property
    def n_components(self) -> int:
        assert self.options.n_components is not None
        return self.options.n_components

    def frontend(self, center: Floats, projection: Projection | None = None) -> Frontend:
        return Frontend(self.expansion, self.children, self.n_inputs, center, projection=projection)


@dataclass(frozen=True, eq=False)
class TrainedLayer:
    """A layer after training: its plan and one node per field, or one for all of them."""

    plan: LayerPlan
    nodes: tuple[Node, ...]

    def node(self, p: int) -> Node:
        return self.nodes[0] if self.plan.shared else self.nodes[p]

    def encode(self, block: Block, dtype: np.dtype[Any], run: Runner) -> Block:
        """Features of this layer from those of the layer below."""
        index = self.plan.fields.index
        out: Block = np.empty((len(index), self.plan.n_components, block.shape[2]), dtype=dtype)

        def work(p: int) -> None:
            self.node(p).encode(field_of(block, index[p]).astype(dtype, copy=False), out[p])

        run(work, len(index))
        return out

    def decode(self, block: Block, run: Runner) -> Block:
        """Features of the layer below, from those of this layer; where fields overlap, the mean of what they say."""
        fields = self.plan.fields
        below = np.zeros((int(np.prod(fields.grid)), self.plan.width, block.shape[2]), dtype=block.dtype)
        parts: list[Any] = [None] * fields.n_nodes

        def work(p: int) -> None:
            parts[p] = self.node(p).decode(block[p]).reshape(fields.children, self.plan.width, -1)

        run(work, fields.n_nodes)
        counts = np.zeros(len(below), dtype=block.dtype)
        for p, part in enumerate(parts):
            below[fields.index[p]] += part
            counts[fields.index[p]] += 1
        below /= np.maximum(counts, 1)[:, None, None]
        return below

    @property
    def output_means(self) -> Floats:
        """(nodes, D) mean of every output over the training data; zeros beyond the rank of a node."""
        means = np.zeros((self.plan.fields.n_nodes, self.plan.n_components))
        for p in range(len(means)):
            node = self.node(p)
            means[p, : node.n_components] = node.output_mean
        return means


class Runner(Protocol):
    """Calls work(0) .. work(n - 1), maybe on several threads."""

    def __call__(self, work: Callable[[int], None], n: int) -> None: ...


@contextmanager
def threads(n_jobs: int) -> Iterator[Runner]:
    """A runner on `n_jobs` threads, with BLAS held at one thread."""
    with threadpool_limits(1, user_api="blas"):
        if n_jobs == 1:
            yield _one_by_one
            return
        with ThreadPoolExecutor(n_jobs) as pool:

            def run(work: Callable[[int], None], n: int) -> None:
                for done in [pool.submit(work, p) for p in range(n)]:
                    done.result()

            yield run


def _one_by_one(work: Callable[[int], None], n: int) -> None:
    for p in range(n):
        work(p)


def field_of(block: Block, index: NDArray[np.intp]) -> NDArray[Any]:
    """Raw input (children * width, n) of the node whose field is `index`."""
    return block[index].reshape(len(index) * block.shape[1], block.shape[2])


@dataclass(frozen=True, eq=False)
class Schedule:
    """The tiles of a plan, cut once for all layers, block by block."""

    plan: Plan
    blocks: tuple[tuple[Tile, ...], ...]

    @classmethod
    def of(cls, plan: Plan, rows: int) -> Schedule:
        return cls(plan, tuple(tuple(plan.tiles(b, rows)) for b in range(plan.n_blocks)))

    @property
    def tiles(self) -> list[Tile]:
        return [tile for block in self.blocks for tile in block]


class Features:
    """Features of a layer, tile by tile: computed when asked for, and kept if so wished.

    Parameters
    ----------
    compute : the block of a tile.
    n_tiles : number of tiles.
    keep : whether to hold blocks in memory once they are computed.
    """

    def __init__(self, compute: Callable[[int], Block], n_tiles: int, *, keep: bool) -> None:
        self._compute, self._keep = compute, keep
        self._blocks: list[Block | None] = [None] * n_tiles

    @classmethod
    def of_blocks(cls, blocks: list[Block]) -> Features:
        """Features that are all there."""
        features = cls(blocks.__getitem__, len(blocks), keep=True)
        features._blocks = list(blocks)
        return features

    @property
    def kept(self) -> bool:
        """Whether every block is in memory."""
        return all(block is not None for block in self._blocks)

    def tile(self, t: int) -> Block:
        block = self._blocks[t]
        if block is None:
            block = self._compute(t)
            if self._keep:
                self._blocks[t] = block
        return block


def raw_features(
    read: Callable[[NDArray[np.intp]], NDArray[Any]], tiles: list[Tile], channels: int, *, keep: bool
) -> Features:
    """Raw input, read and laid out feature-major."""

    def compute(t: int) -> Block:
        rows = read(tiles[t].rows)
        return np.ascontiguousarray(rows.reshape(len(rows), -1).T).reshape(-1, channels, len(rows))

    return Features(compute, len(tiles), keep=keep)


class NodeSums:
    """Gathers the sums of one node, tile by tile, merging blocks in the fixed tree."""

    def __init__(self, frontend: Frontend, schedule: Schedule, shift: Floats, dtype: np.dtype[Any]) -> None:
        self.frontend, self.schedule, self.shift, self.dtype = frontend, schedule, shift, dtype
        self._tree = Tree()
        self._block: Accumulator | None = None

    def add(self, raw: NDArray[Any], tile: Tile) -> None:
        """Add a tile, given the raw input of the node."""
        if self._block is None:
            n = self.frontend.n_inputs
            self._block = Accumulator(zero_for(self.schedule.plan, n, self.frontend.n_variables))
        add_tile(self._block, raw.astype(self.dtype, copy=False), tile, self.frontend, self.shift)

    def end_block(self, block: int) -> None:
        """All tiles of a block have been added."""
        if self._block is not None:
            self._tree.add(block, self._block.close())
        self._block = None

    def total(self) -> Sums:
        sums: Sums = self._tree.total()
        return sums


def train_layer(
    plan: LayerPlan,
    below: Features,
    means: Floats | None,
    schedule: Schedule,
    dtype: np.dtype[Any],
    run: Runner,
    *,
    keep: bool = False,
    nodes_at_once: int | None = None,
    on_node: Callable[[int], None] = lambda _: None,
) -> tuple[TrainedLayer, Features]:
    """Train all nodes of a layer.

    Parameters
    ----------
    below : features of the layer below.
    means : (nodes below, width) means of those features, or None if they are not known (raw input).
    keep : whether to hold the features of this layer in memory.
    nodes_at_once : how many nodes are trained side by side when tiles are streamed; all by default.
    on_node : called with the number of node-tiles that were added, for progress.

    Returns
    -------
    The trained layer, and its features.
    """
    gather = _Gathering(plan, below, schedule, dtype, run, nodes_at_once)
    frontends = _frontends(gather, means)
    weighting = Weighting.of(schedule.plan)
    precision = float(np.finfo(dtype).eps)
    n_tiles = len(schedule.tiles)
    if plan.shared:
        sums, shift = _shared_sums(gather, frontends[0], weighting, on_node)
        mix = weighting.mix * np.array([[1.0], [0.0], [1.0]])
        whole = Weighting(mix, (), weighting.edge_weight * plan.fields.n_nodes)
        layer = TrainedLayer(plan, (solve(plan, frontends[0], sums, whole, shift, precision),))
        return layer, Features(lambda t: layer.encode(below.tile(t), dtype, run), n_tiles, keep=keep)
    nodes: list[Any] = [None] * plan.fields.n_nodes
    at_once = keep and below.kept
    shapes = [(plan.fields.n_nodes, plan.n_components, tile.n_rows) for tile in schedule.tiles]
    outputs: list[Block] = [np.empty(shape, dtype) for shape in shapes] if at_once else []

    def finish(p: int, sums: Sums, shift: Floats) -> None:
        nodes[p] = solve(plan, frontends[p], sums, weighting, shift, precision)
        for t, out in enumerate(outputs):
            nodes[p].encode(field_of(below.tile(t), plan.fields.index[p]).astype(dtype, copy=False), out[p])

    gather(frontends, finish, on_node)
    layer = TrainedLayer(plan, tuple(nodes))
    if at_once:
        return layer, Features.of_blocks(outputs)
    return layer, Features(lambda t: layer.encode(below.tile(t), dtype, run), n_tiles, keep=keep)


def solve(
    plan: LayerPlan, frontend: Frontend, sums: Sums, weighting: Weighting, shift: Floats, precision: float
) -> Node:
    """One node from its sums."""
    if plan.clip_range and not frontend.expansion.is_linear:
        frontend = replace(frontend, low=sums.low, high=sums.high)
    return solve_node(covariances(sums, weighting, shift, precision), frontend, shift, plan.options)


@dataclass(frozen=True, eq=False)
class _Gathering:
    """One pass over the features below a layer."""

    plan: LayerPlan
    below: Features
    schedule: Schedule
    dtype: np.dtype[Any]
    run: Runner
    nodes_at_once: int | None

    def __call__(
        self,
        frontends: list[Frontend],
        finish: Callable[[int, Sums, Floats], None],
        on_node: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Gather the sums of every node and hand them to `finish(p, sums, shift)`."""
        n = self.plan.fields.n_nodes
        first = self.below.tile(0)
        step = n if self.nodes_at_once is None else self.nodes_at_once
        lo = 0
        while lo < n:  # the first pass may leave everything in memory
            nodes = range(lo, n if self.below.kept else min(lo + step, n))
            pass_over = self._node_by_node if self.below.kept else self._tile_by_tile
            pass_over(nodes, frontends, first, finish, on_node)
            lo = nodes.stop

    def _start(self, p: int, frontend: Frontend, first: Block) -> NodeSums:
        raw = field_of(first[:, :, :PILOT], self.plan.fields.index[p]).astype(self.dtype, copy=False)
        shift = pilot_shift(frontend.variables(frontend.inputs(raw, clip=False)))
        return NodeSums(frontend, self.schedule, shift, self.dtype)

    def _node_by_node(self, nodes: range, frontends: Any, first: Block, finish: Any, on_node: Any) -> None:
        index = self.plan.fields.index

        def work(i: int) -> None:
            p = nodes[i]
            gathering, t = self._start(p, frontends[p], first), 0
            for block, tiles in enumerate(self.schedule.blocks):
                for tile in tiles:
                    gathering.add(field_of(self.below.tile(t), index[p]), tile)
                    t += 1
                gathering.end_block(block)
            finish(p, gathering.total(), gathering.shift)
            on_node(t)

        self.run(work, len(nodes))

    def _tile_by_tile(self, nodes: range, frontends: Any, first: Block, finish: Any, on_node: Any) -> None:
        index = self.plan.fields.index
        gatherings: list[Any] = [self._start(p, frontends[p], first) for p in nodes]
        t = 0
        for block, tiles in enumerate(self.schedule.blocks):
            for tile in tiles:
                features = first if t == 0 else self.below.tile(t)

                def add(i: int, features: Block = features, tile: Tile = tile) -> None:
                    gatherings[i].add(field_of(features, index[nodes[i]]), tile)

                self.run(add, len(nodes))
                on_node(len(nodes))
                t += 1
            for gathering in gatherings:
                gathering.end_block(block)

        def conclude(i: int) -> None:
            gathering, gatherings[i] = gatherings[i], None
            finish(nodes[i], gathering.total(), gathering.shift)

        self.run(conclude, len(nodes))


def _shared_sums(
    gather: _Gathering, frontend: Frontend, weighting: Weighting, on_node: Callable[[int], None]
) -> tuple[Sums, Floats]:
    """Sums over all fields, edges within a field only: group terms are settled field by field, then all add up."""
    n = gather.plan.fields.n_nodes
    settled: list[Any] = [None] * n

    def finish(p: int, sums: Sums, shift: Floats) -> None:
        settled[p] = settle_groups(sums, weighting), shift

    gather([frontend] * n, finish, on_node)
    total, shift = settled[0]
    for p in range(1, n):
        sums, own = settled[p]
        total = merge(total, shifted(sums, own - shift))
    return total, shift


def settle_groups(sums: Sums, weighting: Weighting) -> Sums:
    """Sums without groups: the products of group sums go into the edge term, so that sums of fields can be added."""
    K, T = sums.n_channels, sums.n_variables
    edges = np.zeros((T, T)) if sums.edges is None else sums.edges.copy()
    offset = K
    for couplings in weighting.couplings:
        S = sums.first[offset : offset + len(couplings)]
        edges -= 2.0 * (S.T @ couplings @ S)
        offset += len(couplings)
    # Edge weighting and group term depend on the shift each, but not together, so both are settled here.
    edges += 2.0 * np.tensordot(weighting.mix[1], sums.second, axes=1)
    return replace(sums, weights=sums.weights[:K], first=sums.first[:K], edges=edges)


def _frontends(gather: _Gathering, means: Floats | None) -> list[Frontend]:
    """The frontend of every node: its centre, and its principal components, from known means or from a pass."""
    plan = gather.plan
    n_nodes, index = plan.fields.n_nodes, plan.fields.index
    if plan.pca is None and means is not None:
        centers = [means[index[p]].ravel() for p in range(n_nodes)]
        if plan.shared:
            centers = [np.mean(centers, axis=0)] * n_nodes
        return [plan.frontend(center) for center in centers]
    if plan.pca is None and plan.expansion.is_linear:
        return [plan.frontend(np.zeros(plan.n_inputs))] * n_nodes
    moments = _raw_moments(gather)
    if plan.shared:
        mean = np.mean([m for m, _ in moments], axis=0)
        C = np.mean([C + np.outer(m - mean, m - mean) for m, C in moments], axis=0)
        moments = [(mean, C)] * n_nodes
    if plan.pca is None:
        return [plan.frontend(mean) for mean, _ in moments]
    out: list[Any] = [None] * n_nodes

    def project(p: int) -> None:
        mean, C = moments[p]
        found = principal_axes(C, 1e-12 * max(float(np.trace(C)), 0.0))[1][:, : plan.n_inputs]
        axes = np.zeros((plan.n_raw, plan.n_inputs))
        axes[:, : found.shape[1]] = found
        out[p] = plan.frontend(np.zeros(plan.n_inputs), Projection(axes.T, mean))

    gather.run(project, n_nodes)
    return out


def _raw_moments(gather: _Gathering) -> list[tuple[Floats, Floats]]:
    """Mean and covariance of the raw input of every node."""
    raw = replace(gather.plan, expansion=parse_expansion("identity"), pca=None)
    n_nodes = raw.fields.n_nodes
    weighting = Weighting.of(gather.schedule.plan)
    moments: list[Any] = [None] * n_nodes

    def finish(p: int, sums: Sums, shift: Floats) -> None:
        cov = covariances(sums, weighting, shift, float(np.finfo(gather.dtype).eps))
        moments[p] = cov.plain_mean + shift, cov.plain

    replace(gather, plan=raw)([raw.frontend(np.zeros(raw.n_inputs))] * n_nodes, finish)
    return moments
