"""The only loop over tiles, for one node or many: read, expand, add up, merge blocks in a fixed tree."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native.tile import Raw, Samples
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.accumulate import PILOT, NodeSums, pilot_shift
from higsfa.core.sums.sums import Sums, zero
from higsfa.core.sums.tile import Plan, Tile, tile_rows
from higsfa.training.runner import Runner, one_by_one
from higsfa.training.sources import Array, Source
from higsfa.training.sources.base import evenly_spread

Floats = NDArray[np.float64]
Reader = Callable[[NDArray[np.intp]], NDArray[Any]]
"""Rows of the data by index, in the precision of the products: (n,) -> (n, I); to be read only."""
MEAN_VALUES = 2**21
"""Values that are read at once for the means of the inputs."""
PILOT_FIELDS = 16
"""Fields that the common shift of a shared node is taken from."""
TileInputs = tuple[Tile, Callable[[int], Raw]]
"""A tile, and the raw input of each node for it, by the position of the node."""


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


def first_shifts(
    n_nodes: int, shared: bool, frontends: tuple[Frontend, ...], raw: Callable[[int], Raw], dtype: np.dtype[Any]
) -> Callable[[int], Floats]:
    """The shift of each node, by its number, from its raw input in the first tile.

    Where weights are shared, one shift serves all fields but those whose own mean is far from it.
    """
    if not shared:
        return lambda p: pilot_shift(frontends[p if len(frontends) > 1 else 0], [raw(p)], dtype)
    shift = pilot_shift(frontends[0], [raw(p) for p in evenly_spread(n_nodes, PILOT_FIELDS)], dtype)
    return lambda p: pilot_shift(frontends[0], [raw(p).columns(0, PILOT // PILOT_FIELDS)], dtype, shift)


def in_blocks(
    blocks: Sequence[Sequence[Tile]], fields: Callable[[int], Callable[[int], Raw]], begin: int = 0
) -> Iterator[tuple[int, Iterator[TileInputs]]]:
    """Blocks from `begin` on, with their tiles; `fields(t)` gives the raw input of each node for tile t."""
    t = 0
    for block, tiles in enumerate(blocks):
        if block >= begin:
            yield block, ((tile, fields(i)) for i, tile in enumerate(tiles, t))
        t += len(tiles)


@dataclass(frozen=True)
class NodeData:
    """What the sums of a single node are gathered from.

    Attributes
    ----------
    read : rows of the data by index.
    frontend : from samples to variables.
    dtype : of the products.
    precision : relative rounding of data and products.
    shift : what variables are taken relative to; None for that of the first samples.
    """

    read: Reader
    frontend: Frontend
    dtype: np.dtype[Any]
    precision: float
    shift: Floats | None = None

    def gather(self, plan: Plan) -> tuple[Sums, Floats, Frontend, float]:
        """Sums, the shift that variables were taken relative to, frontend and precision, as statistics hold them."""
        shift = self.shift
        read, rows = self.read, tile_rows(self.frontend.n_variables, self.dtype.itemsize)
        blocks = [plan.tiles(block, rows) for block in range(plan.n_blocks)]
        indices = np.zeros(0, np.intp)
        for block, tiles in enumerate(blocks if shift is None else ()):
            first = next(tiles, None)
            if first is not None:
                indices, blocks[block] = first.rows[:PILOT], chain([first], tiles)
                break
        if shift is None:
            shift = pilot_shift(self.frontend, [Samples(read(indices))], self.dtype)
        node = NodeSums(self.frontend, plan, self.dtype, shift)
        gather([node], ((block, _inputs(read, tiles)) for block, tiles in enumerate(blocks)))
        sums = node.tree.total()
        if sums is None:  # no samples
            sums = zero(self.frontend.n_inputs, self.frontend.n_variables, plan)
        return sums, node.shift, self.frontend, self.precision


def _inputs(read: Reader, tiles: Iterable[Tile]) -> Iterator[TileInputs]:
    """Tiles with their samples, which stay in the array that they are in; what must be decoded is prefetched."""
    if isinstance(read, ArrayReader) and read.X.dtype == read.dtype:
        for tile in tiles:
            samples = Samples(read.X, tile.rows)
            yield tile, lambda _, samples=samples: samples  # type: ignore[misc]
    else:
        # Copied: a reader may use its array again, and tiles are prefetched.
        for tile, X in prefetch(lambda tile: np.array(read(tile.rows), order="C"), tiles):
            samples = Samples(X)
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


def reader_of(source: Source, dtype: np.dtype[Any]) -> Reader:
    """Samples of a source as rows of features, in the precision of the products."""
    n_features = prod(source.shape)
    if isinstance(source, Array):
        return ArrayReader(source.X.reshape(len(source), n_features), dtype)

    def read(rows: NDArray[np.intp]) -> NDArray[Any]:
        samples = source.take(rows)
        return samples.reshape(len(samples), n_features).astype(dtype, copy=False)

    return read


@dataclass(frozen=True, eq=False)
class ArrayReader:
    """Reads rows of an array or memmap."""

    X: NDArray[Any]
    dtype: np.dtype[Any]

    def __call__(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        return Samples(self.X, rows).array().T.astype(self.dtype, copy=False)


def column_means(read: Reader, n_samples: int, n_inputs: int, weights: Floats) -> Floats:
    """Weighted mean of every input, in one pass; exact for constant inputs."""
    at_once = max(1, MEAN_VALUES // n_inputs)
    total, low, high = np.zeros(n_inputs), np.full(n_inputs, np.inf), np.full(n_inputs, -np.inf)
    pilot: Floats | None = None
    for lo in range(0, n_samples, at_once):
        rows = np.arange(lo, min(lo + at_once, n_samples))
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
