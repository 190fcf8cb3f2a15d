"""Features between layers, tile by tile: kept, or computed when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.tiles import Plan, Tile
from higsfa.training.layers import Block


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
    def keeps(self) -> bool:
        """Whether blocks stay in memory once they are computed."""
        return self._keep

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
                if self.kept:  # what they were computed from is not needed any more
                    self._compute = _nothing
        return block


def _nothing(t: int) -> Block:
    raise RuntimeError(f"tile {t} is in memory")


def feature_major(samples: NDArray[Any], channels: int) -> Block:
    """Samples (n, ...) as a block (pixels, channels, n)."""
    return np.ascontiguousarray(samples.reshape(len(samples), -1).T).reshape(-1, channels, len(samples))


def raw_features(
    read: Callable[[NDArray[np.intp]], NDArray[Any]], tiles: list[Tile], channels: int, *, keep: bool
) -> Features:
    """Raw input, read and laid out feature-major."""

    def compute(t: int) -> Block:
        return feature_major(read(tiles[t].rows), channels)

    return Features(compute, len(tiles), keep=keep)
