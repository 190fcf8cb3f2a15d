"""The only loop over tiles, for one node or many: read, expand, add up, merge blocks in a fixed tree."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.node.frontend import Frontend
from higsfa.core.node.raw import Raw, Samples
from higsfa.core.sums.accumulate import Accumulator
from higsfa.core.sums.plan import Plan
from higsfa.core.sums.sums import Sums, Tree, zero
from higsfa.core.sums.tile import Tile, tile_rows
from higsfa.training.runner import Runner, one_by_one

Floats = NDArray[np.float64]
Reader = Callable[[NDArray[np.intp]], NDArray[Any]]
"""Rows of the data by index, in the precision of the products: (n,) -> (n, I); to be read only."""
TileInputs = tuple[Tile, Callable[[int], Raw]]
"""A tile, and the raw input of each node for it, by the position of the node."""
PILOT = 512
"""Samples that the shift is estimated from."""


class NodeSums:
    """Gathers the sums of one node, tile by tile.

    Parameters
    ----------
    frontend : from raw input to variables.
    plan : blocks and tiles.
    first : raw input of the first tile, from which the shift is taken: a fixed choice, whatever the batches.
    dtype : of the products.
    shift : given instead of `first` where it is known.
    """

    def __init__(
        self, frontend: Frontend, plan: Plan, dtype: np.dtype[Any], *, first: Raw | None = None, shift: Any = None
    ) -> None:
        if first is not None:
            pilot = frontend.variables(frontend.inputs(first.columns(0, PILOT), dtype, clip=False))
            shift = pilot_shift(pilot)
        self.frontend, self.plan, self.dtype, self.shift = frontend, plan, dtype, shift
        self.tree = Tree()
        self._front = frontend.front(dtype, shift=shift)
        self._block: Accumulator | None = None

    def empty(self) -> Sums:
        """Sums over no samples."""
        plan, frontend = self.plan, self.frontend
        return zero(frontend.n_inputs, frontend.n_variables, plan.n_channels, plan.n_atoms, has_edges=plan.has_edges)

    def add(self, raw: Raw, tile: Tile) -> None:
        """Add a tile, given the raw input of the node."""
        if self._block is None:
            self._block = Accumulator(self.frontend, self.shift, self._front, self.empty(), self.dtype)
        self._block.add(raw, tile)

    def end_block(self, block: int) -> None:
        """All tiles of a block have been added."""
        if self._block is not None:
            self.tree.add(block, self._block.close())
        self._block = None


def gather(
    nodes: Sequence[NodeSums],
    blocks: Iterable[tuple[int, Iterable[TileInputs]]],
    run: Runner = one_by_one,
    after_block: Callable[[int], None] = lambda _: None,
) -> None:
    """Add tiles to the sums of nodes, block by block; `after_block` is called with the index of each block."""
    for block, tiles in blocks:
        for tile, raw_of in tiles:
            if len(nodes) == 1:
                nodes[0].add(raw_of(0), tile)
                continue

            def add(i: int, tile: Tile = tile, raw_of: Callable[[int], Raw] = raw_of) -> None:
                nodes[i].add(raw_of(i), tile)

            run(add, len(nodes))
        for node in nodes:
            node.end_block(block)
        after_block(block)


def gather_node(read: Reader, plan: Plan, frontend: Frontend, dtype: np.dtype[Any]) -> tuple[Sums, Floats]:
    """All sums of a single node, and the shift that its variables were taken relative to."""
    rows = tile_rows(frontend.n_variables, dtype.itemsize)
    tiles = (tile for block in range(plan.n_blocks) for tile in plan.tiles(block, rows))
    first = next(tiles, None)
    indices = np.zeros(0, np.intp) if first is None else first.rows[:PILOT]
    node = NodeSums(frontend, plan, dtype, first=Samples(read(indices), np.arange(len(indices))))
    gather([node], ((block, _inputs(read, plan.tiles(block, rows))) for block in range(plan.n_blocks)))
    return node.tree.total(), node.shift


def _inputs(read: Reader, tiles: Iterable[Tile]) -> Iterator[TileInputs]:
    """Tiles with their samples, which stay in the array that they are in; what must be decoded is prefetched."""
    if isinstance(read, ArrayReader) and read.X.dtype == read.dtype:
        for tile in tiles:
            samples = Samples(read.X, tile.rows)
            yield tile, lambda _, samples=samples: samples  # type: ignore[misc]
    else:
        # Copied: a reader may use its array again, and tiles are prefetched.
        for tile, X in prefetch(lambda tile: np.array(read(tile.rows), order="C"), tiles):
            samples = Samples(X, np.arange(len(X)))
            yield tile, lambda _, samples=samples: samples  # type: ignore[misc]


def prefetch(prepare: Callable[[Tile], NDArray[Any]], tiles: Iterable[Tile]) -> Iterator[tuple[Tile, NDArray[Any]]]:
    """Tiles with what was prepared for them; the next ones are prepared while the present one is used."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=2)
    stopped = threading.Event()

    def produce() -> None:
        try:
            with np.errstate(all="ignore"):
                for tile in tiles:
                    if stopped.is_set():
                        return
                    ready.put((tile, prepare(tile)))
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        while producer.is_alive():  # a producer that waits for a place in the queue must find one
            with suppress(queue.Empty):
                ready.get(timeout=0.01)
        producer.join()


@dataclass(frozen=True, eq=False)
class ArrayReader:
    """Reads rows of an array or memmap."""

    X: NDArray[Any]
    dtype: np.dtype[Any]

    def __call__(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        return Samples(self.X, rows).array().T.astype(self.dtype, copy=False)


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


def column_means(read: Reader, n_samples: int, n_inputs: int, weights: Floats, itemsize: int) -> Floats:
    """Weighted mean of every input, in one pass; exact for constant inputs."""
    rows_per_tile = tile_rows(n_inputs, itemsize)
    total, low, high = np.zeros(n_inputs), np.full(n_inputs, np.inf), np.full(n_inputs, -np.inf)
    pilot: Floats | None = None
    for lo in range(0, n_samples, rows_per_tile):
        rows = np.arange(lo, min(lo + rows_per_tile, n_samples))
        rows = rows[weights[rows] > 0]
        if len(rows) == 0:
            continue
        X = read(rows)
        if pilot is None:
            pilot = X.mean(axis=0, dtype=np.float64)
        total += weights[rows] @ (X - pilot)
        np.minimum(low, X.min(axis=0), out=low)
        np.maximum(high, X.max(axis=0), out=high)
    mean = np.zeros(n_inputs) if pilot is None else pilot + total / weights.sum()
    return np.where(low == high, low, mean)
