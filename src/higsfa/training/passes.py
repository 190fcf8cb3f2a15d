"""One pass over the data of a single node: read tiles, expand, add up, merge blocks in a fixed tree."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.nodes import Frontend
from higsfa.core.room import room
from higsfa.core.statistics import Accumulator, Sums, Tree, observe_range, zero_for
from higsfa.core.tiles import Plan, Tile, tile_rows

Floats = NDArray[np.float64]
Reader = Callable[[NDArray[np.intp]], NDArray[Any]]
"""Rows of the data by number, in the precision of the products: (n,) -> (n, I)."""
PILOT = 512
"""Samples that the shift is estimated from."""


def array_reader(X: NDArray[Any], dtype: np.dtype[Any]) -> Reader:
    """Read rows of an array or memmap; a stretch of consecutive rows is a view, not for writing."""

    def read(rows: NDArray[np.intp]) -> NDArray[Any]:
        n = len(rows)
        if n and rows[-1] - rows[0] == n - 1 and (n < 3 or np.all(np.diff(rows) == 1)):
            view = np.asarray(X[rows[0] : rows[-1] + 1]).view()
            view.flags.writeable = False
            return view.astype(dtype, copy=False)
        return np.asarray(np.take(X, rows, axis=0)).astype(dtype, copy=False)

    return read


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


def gather(read: Reader, plan: Plan, frontend: Frontend, itemsize: int) -> tuple[Sums, Floats]:
    """All sums of one node, and the shift that its variables were taken relative to."""
    rows_per_tile = tile_rows(frontend.n_variables, itemsize)
    shift = pilot_shift(variables(read(first_rows(plan, rows_per_tile)).T, frontend))
    tree = Tree()
    for block in range(plan.n_blocks):
        sums = Accumulator(zero_for(plan, frontend.n_inputs, frontend.n_variables))

        def prepare(tile: Tile, ranges: Sums = sums.sums) -> NDArray[Any]:
            return prepared(read(tile.rows).T, tile, frontend, shift, ranges)

        for tile, T in ahead(prepare, plan.tiles(block, rows_per_tile)):
            sums.add(T, tile)
        tree.add(block, sums.close())
    return tree.total(), shift


def ahead(prepare: Callable[[Tile], NDArray[Any]], tiles: Iterable[Tile]) -> Iterator[tuple[Tile, NDArray[Any]]]:
    """Tiles with what was prepared for them; the next ones are read and expanded while the present one is summed."""
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


def prepared(
    raw: NDArray[Any],
    tile: Tile,
    frontend: Frontend,
    shift: Floats,
    ranges: Sums,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Variables of a tile relative to the shift, from its raw input (feature-major); the range of inputs is noted."""
    X = frontend.inputs(raw, clip=False)
    if not frontend.expansion.is_linear:
        observe_range(ranges, X, tile)
    T = frontend.variables(X, out)
    rows = np.flatnonzero(shift)
    if len(rows) == 0:
        return T
    if T is raw and not T.flags.writeable:
        T = T.copy()
    if 2 * len(rows) > len(T):
        T -= shift[:, None].astype(T.dtype)
    else:
        T[rows] -= shift[rows, None].astype(T.dtype)
    return T


def add_tile(sums: Accumulator, raw: NDArray[Any], tile: Tile, frontend: Frontend, shift: Floats) -> None:
    """Expand the raw input (feature-major) of a tile and add it to the sums."""
    out = room("variables", (frontend.n_variables, raw.shape[1]), raw.dtype)
    sums.add(prepared(raw, tile, frontend, shift, sums.sums, out), tile)
