"""Tiles: some samples, and what the sums need to know about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

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


@dataclass(frozen=True, eq=False)
class LocalRuns:
    """Edges from position p of a tile to all positions first[p] .. last[p]."""

    first: Ints
    last: Ints
    weight: float


@dataclass(frozen=True, eq=False)
class LocalMatrix:
    """Edges as a sparse matrix (core x tile)."""

    matrix: sp.csr_array


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


class PartMaker:
    """Makes the parts of a block, one after the other."""

    def __init__(self) -> None:
        self._weights: Floats | None = None

    def __call__(self, begin: int, end: int, weights: Floats) -> Part:
        old = self._weights
        if weights.ndim == 2:
            return Part(begin, end, weights)
        self._weights = weights
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
    starts, lengths : the runs of samples that have the same weights and atoms; their total weight (their number, where
        samples have no weights of their own).
    selector : (K + A, runs) matrix that turns sums over runs into weighted sums and group sums.
    edges : edges within the tile, from its core.
    sample_weight : weights of the core samples, which those of the parts are multiplied by; None if all are 1.
    """

    rows: Ints
    n_core: int
    parts: tuple[Part, ...]
    starts: Ints
    lengths: Floats
    selector: Any
    edges: tuple[LocalEdges, ...] = ()
    sample_weight: Floats | None = None

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def counted(self) -> NDArray[np.bool_] | None:
        """Which core samples have a weight; None for all of them."""
        seen = np.zeros(self.n_core, dtype=bool)
        for part in self.parts:
            seen[part.begin : part.end] = part.weights.any(axis=0)
        return None if seen.all() else seen


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
