"""Training one layer: a pass over the features below it gathers the sums of its nodes, and nodes are solved from them.

Features travel between layers as feature-major blocks, one per tile of the plan: (nodes, width, samples). Where they
are in memory, each node is trained on its own, start to end, and its sums are thrown away at once. Otherwise tiles are
streamed: the layers below are computed again for every tile, and the sums of many nodes grow side by side. Both ways
add up the same tiles in the same order: not a bit differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.linalg import principal_axes
from higsfa.core.native.scratch import empty
from higsfa.core.node.node import Frontend, Node, Projection
from higsfa.core.node.raw import Raw
from higsfa.core.node.solve import solve_node
from higsfa.core.sums.covariances import Weighting, covariances, group_products
from higsfa.core.sums.plan import Tile
from higsfa.core.sums.sums import Accumulator, Sums, Tree, merge, shifted, zero_for
from higsfa.training.features import Features, Schedule
from higsfa.training.gather import PILOT, add_tile, guarded, pilot_shift
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.runner import Runner
from higsfa.training.stores import Block, Shelf, field_of

Floats = NDArray[np.float64]


class NodeSums:
    """Gathers the sums of one node, tile by tile, merging blocks in the fixed tree."""

    def __init__(self, frontend: Frontend, schedule: Schedule, shift: Floats, dtype: np.dtype[Any]) -> None:
        self.frontend, self.schedule, self.shift, self.dtype = frontend, schedule, shift, dtype
        self._front = frontend.front(dtype, shift=shift)
        self._tree = Tree()
        self._block: Accumulator | None = None

    def add(self, raw: Raw, tile: Tile) -> None:
        """Add a tile, given the raw input of the node."""
        if self._block is None:
            n = self.frontend.n_inputs
            self._block = Accumulator(zero_for(self.schedule.plan, n, self.frontend.n_variables), self.dtype)
        add_tile(self._block, raw, tile, self.frontend, self.shift, self._front)

    def end_block(self, block: int) -> None:
        """All tiles of a block have been added."""
        if self._block is not None:
            self._tree.add(block, self._block.close())
        self._block = None

    @property
    def waiting(self) -> dict[tuple[int, int], Sums]:
        """Sums of the blocks so far, as the tree holds them."""
        return self._tree.waiting

    def total(self) -> Sums:
        sums: Sums = self._tree.total()
        return sums


class Reduce(Protocol):
    """What becomes of the sums of a node: called with its number, its sums and their shift."""

    def __call__(self, p: int, sums: Sums, shift: Floats, /) -> Any: ...


def check_finite(sums: Sums) -> None:
    """Raise if data were not finite, or so large that their products are not."""
    if not sums.is_finite():
        raise FloatingPointError("sums are not finite")


@dataclass(frozen=True, eq=False)
class Solve:
    """Sums to trained nodes."""

    plan: LayerPlan
    frontends: tuple[Frontend, ...]
    weighting: Weighting
    precision: float

    def __call__(self, p: int, sums: Sums, shift: Floats, /) -> Node:
        check_finite(sums)
        frontend = self.frontends[p if len(self.frontends) > 1 else 0]
        if self.plan.clip_range and not frontend.expansion.is_linear:
            frontend = guarded(frontend, sums, self.precision)
        return solve_node(covariances(sums, self.weighting, shift, self.precision), frontend, shift, self.plan.options)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums to mean and covariance of the raw input."""

    weighting: Weighting
    precision: float

    def __call__(self, p: int, sums: Sums, shift: Floats, /) -> tuple[Floats, Floats]:
        check_finite(sums)
        cov = covariances(sums, self.weighting, shift, self.precision)
        return cov.plain_mean + shift, cov.plain


@dataclass(frozen=True, eq=False)
class Settle:
    """Sums without groups, so that sums of different fields can be added."""

    weighting: Weighting

    def __call__(self, p: int, sums: Sums, shift: Floats, /) -> tuple[Sums, Floats]:
        return settle_groups(sums, self.weighting), shift


def _ignore(steps: int) -> None:
    """Progress that is not shthis."""


class PassStore(Protocol):
    """Where a pass leaves what it has done so far, and finds it after an interruption."""

    def finished(self) -> dict[int, Node]: ...
    def add(self, p: int, node: Node) -> None: ...
    def resume(self, first_node: int, gatherings: list[NodeSums]) -> int: ...
    def after_block(self, first_node: int, next_block: int, gatherings: list[NodeSums]) -> None: ...


@runtime_checkable
class Again(Protocol):
    """A reduction that has something to do for nodes that were finished before an interruption, too."""

    def again(self, p: int, node: Node, /) -> Node: ...


class Gathering(Protocol):
    """One pass over the features below a layer: the sums of every node, reduced; on threads, or on workers."""

    @property
    def plan(self) -> LayerPlan: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def run(self) -> Runner: ...

    def __call__(self, plan: LayerPlan, frontends: tuple[Frontend, ...], reduce: Reduce) -> list[Any]: ...


@dataclass(frozen=True, eq=False)
class ThreadGathering:
    """A pass on the threads of this process.

    Attributes
    ----------
    nodes_at_once : how many nodes are summed side by side when tiles are streamed.
    on_node : called with the number of node-tiles that were added, for progress.
    """

    plan: LayerPlan
    below: Features
    schedule: Schedule
    dtype: np.dtype[Any]
    run: Runner
    nodes_at_once: int
    on_node: Callable[[int], None] = lambda _: None
    saved: PassStore | None = None

    def __call__(self, plan: LayerPlan, frontends: tuple[Frontend, ...], reduce: Reduce) -> list[Any]:
        own = plan is self.plan  # else a pass before it, for means and principal components
        store = self.saved if own and not plan.shared else None
        finished = {} if store is None else store.finished()
        this = _Pass(plan, frontends, reduce, store, finished, self.on_node if own else _ignore)
        n = plan.fields.n_nodes
        results: list[Any] = [finished.get(p) for p in range(n)]
        if self.below.kept:
            self._node_by_node(this, results)
        else:
            for lo in range(0, n, self.nodes_at_once):
                self._tile_by_tile(range(lo, min(lo + self.nodes_at_once, n)), this, results)
        return results

    def _node_by_node(self, this: _Pass, results: list[Any]) -> None:
        index = this.plan.fields.index

        def work(p: int) -> None:
            if p in this.finished:
                results[p] = this.reduce.again(p, results[p]) if isinstance(this.reduce, Again) else results[p]
                this.on_node(len(self.schedule.tiles))
                return
            gathering, t = start_node(p, this.frontends, self.schedule, self.below.field(0, index[p]), self.dtype), 0
            for block, tiles in enumerate(self.schedule.blocks):
                for tile in tiles:
                    gathering.add(self.below.field(t, index[p]), tile)
                    t += 1
                gathering.end_block(block)
            results[p] = this.reduce(p, gathering.total(), gathering.shift)
            this.on_node(t)
            if this.store is not None:
                this.store.add(p, results[p])

        self.run(work, len(results))

    def _tile_by_tile(self, nodes: range, this: _Pass, results: list[Any]) -> None:
        if all(p in this.finished for p in nodes):
            this.on_node(len(nodes) * len(self.schedule.tiles))
            return
        index = this.plan.fields.index
        first = self.below.tile(0)
        gatherings: list[Any] = [
            start_node(p, this.frontends, self.schedule, field_of(first, index[p]), self.dtype) for p in nodes
        ]
        begin = 0 if this.store is None else this.store.resume(nodes.start, gatherings)
        t = 0
        for block, tiles in enumerate(self.schedule.blocks):
            if block < begin:
                t += len(tiles)
                this.on_node(len(nodes) * len(tiles))
                continue
            for tile in tiles:
                features = first if t == 0 else self.below.tile(t)

                def add(i: int, features: Block = features, tile: Tile = tile) -> None:
                    gatherings[i].add(field_of(features, index[nodes[i]]), tile)

                self.run(add, len(nodes))
                this.on_node(len(nodes))
                t += 1
            for gathering in gatherings:
                gathering.end_block(block)
            if this.store is not None:
                this.store.after_block(nodes.start, block + 1, gatherings)

        def conclude(i: int) -> None:
            p, gathering, gatherings[i] = nodes[i], gatherings[i], None
            if p in this.finished:
                return
            results[p] = this.reduce(p, gathering.total(), gathering.shift)
            if this.store is not None:
                this.store.add(p, results[p])

        self.run(conclude, len(nodes))


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one call of a gathering is for.

    Attributes
    ----------
    store, finished : where its nodes and sums are saved, if they are, and the nodes that were there at its beginning.
    on_node : called with the number of node-tiles that were added.
    """

    plan: LayerPlan
    frontends: tuple[Frontend, ...]
    reduce: Reduce
    store: PassStore | None
    finished: dict[int, Node]
    on_node: Callable[[int], None]


def start_node(p: int, frontends: tuple[Frontend, ...], schedule: Schedule, raw: Raw, dtype: np.dtype[Any]) -> NodeSums:
    """Empty sums of node p, with a shift from its raw input in the first tile."""
    frontend = frontends[p if len(frontends) > 1 else 0]
    shift = pilot_shift(frontend.variables(frontend.inputs(raw.columns(0, PILOT), dtype, clip=False)))
    return NodeSums(frontend, schedule, shift, dtype)


def train_nodes(
    gather: Gathering, means: Floats | None, reduce_with: Callable[[Solve], Reduce] = lambda s: s
) -> TrainedLayer:
    """Train all nodes of a layer.

    Parameters
    ----------
    gather : a pass over the features below.
    means : (nodes below, width) means of those features, or None if they are not known (raw input).
    reduce_with : may wrap the solving of a node, to do more with it right away.
    """
    plan = gather.plan
    frontends = make_frontends(gather, means)
    weighting = Weighting.of(gather.schedule.plan)
    precision = plan.precision(gather.dtype)
    if plan.shared:
        sums, shift = _added(gather(plan, frontends, Settle(weighting)))
        mix = weighting.mix * np.array([[1.0], [0.0], [1.0]])
        whole = Weighting(mix, (), weighting.edge_weight * plan.fields.n_nodes)
        return TrainedLayer(plan, (Solve(plan, frontends, whole, precision)(0, sums, shift),))
    reduce = reduce_with(Solve(plan, frontends, weighting, precision))
    return TrainedLayer(plan, tuple(gather(plan, frontends, reduce)))


def train_layer(gather: ThreadGathering, means: Floats | None, shelf: Shelf | None) -> tuple[TrainedLayer, Features]:
    """Train a layer on threads; returns it and its features, which are kept on the shelf if there is one."""
    if gather.plan.shared or shelf is None or not gather.below.kept:
        layer = train_nodes(gather, means)
        return layer, computed_features(layer, gather.below, shelf, gather.dtype, gather.run)
    shelf.reserve()
    layer = train_nodes(gather, means, lambda solve: SolveAndEncode(solve, gather.below, shelf))
    return layer, Features.on(shelf)


def computed_features(
    layer: TrainedLayer, below: Features, shelf: Shelf | None, dtype: np.dtype[Any], run: Runner
) -> Features:
    """Features of a trained layer, computed when asked for."""
    return Features(lambda t: layer.encode(below.tile(t), dtype, run), shelf)


@dataclass(frozen=True, eq=False)
class SolveAndEncode:
    """Sums to trained nodes, whose features are computed right away."""

    solve: Solve
    below: Features
    shelf: Shelf

    def __call__(self, p: int, sums: Sums, shift: Floats, /) -> Node:
        return self.again(p, self.solve(p, sums, shift))

    def again(self, p: int, node: Node, /) -> Node:
        index = self.solve.plan.fields.index[p]
        for t, n in enumerate(self.shelf.samples):
            out = empty((1, self.shelf.width, n), self.shelf.dtype)
            node.encode(self.below.field(t, index), out[0])
            self.shelf.write(t, p, out)
        return node


def _added(settled: list[tuple[Sums, Floats]]) -> tuple[Sums, Floats]:
    """Sums over all fields."""
    first, shift = settled[0]
    total = first.copy()  # sums that a worker returned may still be its own
    for sums, own in settled[1:]:
        total = merge(total, shifted(sums, own - shift))
    return total, shift


def settle_groups(sums: Sums, weighting: Weighting) -> Sums:
    """Sums without groups: the products of group sums go into the edge term, so that sums of fields can be added."""
    K, T = sums.n_channels, sums.n_variables
    edges = np.zeros((T, T)) if sums.edges is None else sums.edges.copy()
    edges -= 2.0 * group_products(sums, weighting)
    # Edge weighting and group term depend on the shift each, but not together, so both are settled here.
    edges += 2.0 * np.tensordot(weighting.mix[1], sums.second, axes=1)
    return replace(sums, weights=sums.weights[:K], first=sums.first[:K], edges=edges)


def make_frontends(gather: Gathering, means: Floats | None) -> tuple[Frontend, ...]:
    """The frontend of every node (one for all if they are the same): centre and principal components."""
    plan = gather.plan
    n_nodes, index = plan.fields.n_nodes, plan.fields.index
    if plan.pca is None and means is not None:
        centers = [means[index[p]].ravel() for p in range(n_nodes)]
        if plan.shared:
            centers = [np.mean(centers, axis=0)]
        return tuple(plan.frontend(center) for center in centers)
    if plan.pca is None and plan.expansion.is_linear:
        return (plan.frontend(np.zeros(plan.n_inputs)),)
    raw = replace(plan, expansion=parse_expansion("identity"), pca=None)
    reduce = Moments(Weighting.of(gather.schedule.plan), plan.precision(gather.dtype))
    moments = gather(raw, (raw.frontend(np.zeros(raw.n_inputs)),), reduce)
    if plan.shared:
        mean = np.mean([m for m, _ in moments], axis=0)
        moments = [(mean, np.mean([C + np.outer(m - mean, m - mean) for m, C in moments], axis=0))]
    if plan.pca is None:
        return tuple(plan.frontend(mean) for mean, _ in moments)
    out: list[Any] = [None] * len(moments)

    def project(p: int) -> None:
        mean, C = moments[p]
        found = principal_axes(C, 1e-12 * max(float(np.trace(C)), 0.0), plan.n_inputs)[1]
        axes = np.zeros((plan.n_raw, plan.n_inputs))
        axes[:, : found.shape[1]] = found
        out[p] = plan.frontend(np.zeros(plan.n_inputs), Projection(axes.T, mean))

    gather.run(project, len(moments))
    return tuple(out)
