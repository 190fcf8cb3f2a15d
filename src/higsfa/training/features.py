"""Features between layers, tile by tile: kept on a shelf, or computed when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.raw import Raw
from higsfa.core.tiles import Plan, Tile
from higsfa.training.runner import Runner
from higsfa.training.shelves import Block, Shelf, field_of


@dataclass(frozen=True, eq=False)
class Schedule:
    """The tiles of a plan, cut once for all layers, block by block."""

    plan: Plan
    blocks: tuple[tuple[Tile, ...], ...]

    @classmethod
    def of(cls, plan: Plan, rows: int) -> Schedule:
        return cls(plan, tuple(tuple(plan.tiles(b, rows)) for b in range(plan.n_blocks)))

    @cached_property
    def tiles(self) -> list[Tile]:
        return [tile for block in self.blocks for tile in block]

    @property
    def samples(self) -> list[int]:
        """Number of samples of every tile."""
        return [tile.n_rows for tile in self.tiles]


READ_ROWS = 1024
"""Samples that are read at once."""


class Features:
    """Features of a layer, tile by tile: computed when asked for, and kept on a shelf if there is one.

    Parameters
    ----------
    compute : the block of a tile.
    shelf : where blocks stay once they are computed; None to compute them every time.
    """

    def __init__(self, compute: Callable[[int], Block], shelf: Shelf | None) -> None:
        self._compute, self.shelf = compute, shelf

    @classmethod
    def on(cls, shelf: Shelf) -> Features:
        """Features that are all there."""
        shelf.filled()
        return cls(_nothing, shelf)

    @property
    def kept(self) -> bool:
        """Whether every block is on the shelf."""
        return self.shelf is not None and self.shelf.complete

    def tile(self, t: int) -> Block:
        """The block of a tile."""
        if self.shelf is None:
            return self._compute(t)
        if self.shelf.has(t):
            return self.shelf.tile(t)
        block = self._compute(t)
        self.shelf.put(t, block)
        if self.shelf.complete:  # what they were computed from is not needed any more
            self._compute = _nothing
        return block

    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        """Raw input (children * width, n) of the node whose field is `index`."""
        if self.shelf is not None and self.shelf.has(t):
            return self.shelf.field(t, index)
        return field_of(self.tile(t), index)


def _nothing(t: int) -> Block:
    raise RuntimeError(f"tile {t} is on the shelf")


def feature_major(samples: NDArray[Any], channels: int) -> Block:
    """Samples (n, ...) as a block (pixels, channels, n)."""
    return np.ascontiguousarray(samples.reshape(len(samples), -1).T).reshape(-1, channels, len(samples))


def raw_features(
    read: Callable[[NDArray[np.intp]], NDArray[Any]], schedule: Schedule, channels: int, shelf: Shelf | None
) -> Features:
    """Raw input, read and laid out feature-major."""
    tiles = schedule.tiles

    def compute(t: int) -> Block:
        return feature_major(read(tiles[t].rows), channels)

    return Features(compute, shelf)


def shelve(
    features: Features,
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    channels: int,
    block_bytes: int,
    limit: int,
    run: Runner,
) -> None:
    """Put the raw input on its shelf, block by block, reading rows in the order in which the data hold them.

    The rows of a tile lie scattered over its block; read one tile after the other, a chunked file would be decoded
    many times. Blocks of more than `limit` bytes are left to be read tile by tile.
    """
    shelf = features.shelf
    if shelf is None or block_bytes > limit:
        return
    t = 0
    for tiles in schedule.blocks:
        if tiles:
            _shelve_block(shelf, t, tiles, read, channels, run)
        t += len(tiles)


def _shelve_block(
    shelf: Shelf,
    first: int,
    tiles: tuple[Tile, ...],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    channels: int,
    run: Runner,
) -> None:
    rows = np.unique(np.concatenate([tile.rows for tile in tiles]))
    samples = np.empty((len(rows), shelf.nodes * shelf.width), shelf.dtype)

    def read_some(i: int) -> None:
        some = read(rows[i * READ_ROWS : (i + 1) * READ_ROWS])
        samples[i * READ_ROWS : (i + 1) * READ_ROWS] = some.reshape(len(some), -1)

    def put(i: int) -> None:
        shelf.put(first + i, feature_major(samples[np.searchsorted(rows, tiles[i].rows)], channels))

    run(read_some, -(-len(rows) // READ_ROWS))
    run(put, len(tiles))
