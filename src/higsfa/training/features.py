"""Features between layers, tile by tile: on a shelf, or computed when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.node.raw import Raw
from higsfa.core.sums.plan import Plan, Tile
from higsfa.training.runner import Runner
from higsfa.training.stores import Block, Shelf


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
    """Features of a layer, tile by tile: all on a shelf, or computed each time they are asked for.

    Parameters
    ----------
    compute : the block of a tile.
    shelf : where blocks wait; None to compute them every time.
    put_all : puts all blocks on the shelf; by default they are computed one after the other.
    """

    def __init__(
        self, compute: Callable[[int], Block], shelf: Shelf | None, put_all: Callable[[Shelf], None] | None = None
    ) -> None:
        self._compute, self.shelf, self._put_all = compute, shelf, put_all

    @classmethod
    def on(cls, shelf: Shelf) -> Features:
        """Features that are all there."""
        shelf.filled()
        return cls(_nothing, shelf)

    @property
    def kept(self) -> bool:
        """Whether every block is on the shelf."""
        return self.shelf is not None and self.shelf.complete

    def fill(self) -> None:
        """Put all blocks on the shelf, if there is one. Nothing is trained on a shelf that is half full."""
        if self.shelf is None or self.shelf.complete:
            return
        self.shelf.reserve()
        if self._put_all is not None:
            self._put_all(self.shelf)
        else:
            for t in range(len(self.shelf.samples)):
                self.shelf.write(t, 0, self._compute(t))
        self.shelf.filled()
        self._compute, self._put_all = _nothing, None  # what they were made of is not needed any more

    def tile(self, t: int) -> Block:
        """The block of a tile."""
        self.fill()
        return self._compute(t) if self.shelf is None else self.shelf.tile(t)

    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        """Raw input (children * width, n) of the node whose field is `index`, from the shelf."""
        assert self.shelf is not None
        return self.shelf.field(t, index)


def _nothing(t: int) -> Block:
    raise RuntimeError(f"tile {t} is on the shelf")


def feature_major(samples: NDArray[Any], channels: int) -> Block:
    """Samples (n, ...) as a block (pixels, channels, n), always a copy: a source may use its array again."""
    flat = samples.reshape(len(samples), -1)
    return np.array(flat.T, order="C").reshape(-1, channels, len(samples))


def raw_features(
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    channels: int,
    shelf: Shelf | None,
    run: Runner,
    *,
    by_blocks: bool,
) -> Features:
    """Raw input, read and laid out feature-major.

    The rows of a tile lie scattered over its block; read one tile after the other, a chunked file would be decoded
    many times. So they go to the shelf block by block, in the order in which the data hold them, unless blocks are too
    large for that.
    """

    def compute(t: int) -> Block:
        return feature_major(read(schedule.tiles[t].rows), channels)

    def put_all(shelf: Shelf) -> None:
        t = 0
        for tiles in schedule.blocks:
            if tiles:
                _put_block(shelf, t, tiles, read, channels, run)
            t += len(tiles)

    return Features(compute, shelf, put_all if by_blocks else None)


def _put_block(
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
        shelf.write(first + i, 0, feature_major(samples[np.searchsorted(rows, tiles[i].rows)], channels))

    run(read_some, -(-len(rows) // READ_ROWS))
    run(put, len(tiles))
