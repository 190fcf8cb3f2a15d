"""One pass over the data of a single node: read tiles, expand, add up, merge blocks in a fixed tree."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native.scratch import chunk_columns, empty_rows
from higsfa.core.native.tile import Front, sum_tile
from higsfa.core.node.node import Frontend
from higsfa.core.node.raw import Raw, Samples
from higsfa.core.sums.plan import Plan, Tile, tile_rows
from higsfa.core.sums.sums import Accumulator, Sums, Tree, zero_for

Floats = NDArray[np.float64]
Reader = Callable[[NDArray[np.intp]], NDArray[Any]]
"""Rows of the data by number, in the precision of the products: (n,) -> (n, I); to be read only."""
PILOT = 512
"""Samples that the shift is estimated from."""


@dataclass(frozen=True, eq=False)
class ArrayReader:
    """Reads rows of an array or memmap."""

    X: NDArray[Any]
    dtype: np.dtype[Any]

    def __call__(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        return Samples(self.X, rows).array().T.astype(self.dtype, copy=False)


def array_reader(X: NDArray[Any], dtype: np.dtype[Any]) -> Reader:
    """Read rows of an array or memmap."""
    return ArrayReader(X, dtype)


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


def first_rows(plan: Plan, rows_per_tile: int) -> NDArray[np.intp]:
    """The samples that the pilot shift is taken from: a fixed choice, whatever the batches."""
    for block in range(plan.n_blocks):
        for tile in plan.tiles(block, rows_per_tile):
            return tile.rows
    return np.zeros(0, dtype=np.intp)


def gather(read: Reader, plan: Plan, frontend: Frontend, dtype: np.dtype[Any]) -> tuple[Sums, Floats]:
    """All sums of one node, and the shift that its variables were taken relative to."""
    rows_per_tile = tile_rows(frontend.n_variables, dtype.itemsize)
    shift = pilot_shift(variables(read(first_rows(plan, rows_per_tile)[:PILOT]).T, frontend))
    front = frontend.front(dtype, shift=shift)
    tree = Tree()
    for block in range(plan.n_blocks):
        sums = Accumulator(zero_for(plan, frontend.n_inputs, frontend.n_variables), dtype)
        for tile, raw in _read(read, plan.tiles(block, rows_per_tile)):
            add_tile(sums, raw, tile, frontend, shift, front)
        tree.add(block, sums.close())
    return tree.total(), shift


def _read(read: Reader, tiles: Iterable[Tile]) -> Iterator[tuple[Tile, Samples]]:
    """Tiles with their samples, which stay in the array that they are in; what must be decoded first is read ahead."""
    if isinstance(read, ArrayReader) and read.X.dtype == read.dtype:
        for tile in tiles:
            yield tile, Samples(read.X, tile.rows)
    else:
        # Copied: a reader may use its array again, and tiles are read ahead.
        for tile, X in ahead(lambda tile: np.array(read(tile.rows), order="C"), tiles):
            yield tile, Samples(X, np.arange(len(X)))


def ahead(prepare: Callable[[Tile], NDArray[Any]], tiles: Iterable[Tile]) -> Iterator[tuple[Tile, NDArray[Any]]]:
    """Tiles with what was prepared for them; the next ones are read while the present one is summed."""
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
        while producer.is_alive():  # a producer that waits for room must find some
            with suppress(queue.Empty):
                ready.get(timeout=0.01)
        producer.join()


def variables(X: NDArray[Any], frontend: Frontend) -> NDArray[Any]:
    """Variables t of raw input (feature-major)."""
    return frontend.variables(frontend.inputs(X, clip=False))


def guarded(frontend: Frontend, sums: Sums, precision: float) -> Frontend:
    """The frontend with the range of its inputs, a few roundings wider so that no training sample is ever clipped."""
    margin = 16 * precision * np.maximum(np.abs(sums.low), np.abs(sums.high))
    return replace(frontend, low=sums.low - margin, high=sums.high + margin)


def add_tile(sums: Accumulator, raw: Raw, tile: Tile, frontend: Frontend, shift: Floats, front: Front | None) -> None:
    """Expand the raw input of a tile, a few samples at a time, and add it to the sums.

    `front` is that of the frontend with this shift.
    """
    limits = None if frontend.expansion.is_linear else (sums.low, sums.high)
    runs = sum_tile(front, raw, tile, sums.product, sums.channels, limits)
    if runs is None:
        sums.add(tile, _expanded(sums, raw, tile, frontend, shift))
    else:
        sums.end_tile(tile, runs)


def _expanded(
    sums: Accumulator, raw: Raw, tile: Tile, frontend: Frontend, shift: Floats
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Variables of a tile relative to the shift, with the position of their first sample; ranges are noted."""
    step = tile.n_rows if tile.edges else chunk_columns(frontend.n_variables, sums.dtype.itemsize)
    for a in range(0, tile.n_rows, step):
        yield a, _expanded_chunk(sums, raw.columns(a, min(a + step, tile.n_rows)), a, tile, frontend, shift)


def _expanded_chunk(
    sums: Accumulator, raw: Raw, start: int, tile: Tile, frontend: Frontend, shift: Floats
) -> NDArray[Any]:
    """Those of the samples from position `start` on."""
    n, dtype, is_identity = raw.shape[1], sums.dtype, frontend.is_identity
    X = frontend.inputs(raw, dtype, clip=False, out=None if is_identity else empty_rows(frontend.n_inputs, n, dtype))
    if not frontend.expansion.is_linear:
        sums.observe(X, start, tile)
    Z = frontend.variables(X, None if is_identity else empty_rows(frontend.n_variables, n, dtype))
    shifted = np.flatnonzero(shift)
    if not len(shifted):
        return Z
    if not Z.flags.writeable:
        return np.asarray(Z - shift[:, None].astype(dtype))
    Z[shifted] -= shift[shifted, None].astype(dtype)
    return Z
