"""Tiles: some samples, and what the sums need to know about them; weights of samples as few channels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MAX_LEVELS = 32
"""With more distinct sample weights than this, cells would be too small to be of use."""
MAX_TABLE = 2**20
"""Longest table of combinations of labels; beyond it, those that occur are found by sorting."""


@dataclass(frozen=True, eq=False)
class Weighting:
    """How channels and group sums become the weightings of one graph: what a plan adds to the sums.

    Attributes
    ----------
    mix : (3, K) vertex, edge and plain weights as combinations of channels.
    couplings : couplings K of the group parts, in the order of their group sums.
    edge_weight : R.
    """

    mix: Floats
    couplings: tuple[sp.csr_array, ...]
    edge_weight: float


def sample_levels(w: Floats) -> tuple[Ints | None, Floats, Floats | None]:
    """Sample weights as cells need them.

    Returns
    -------
    levels : number of each sample's weight among the distinct ones; None if there is one, or too many of them.
    values : the distinct weights, or a unit for all.
    varying : weights in that unit, sample by sample, if there are too many of them.
    """
    if np.all(w == w[0]):
        return None, w[:1], None
    values = np.unique(w[: 4 * MAX_LEVELS])
    if len(values) <= MAX_LEVELS:
        values = np.unique(w)
    if len(values) <= MAX_LEVELS:
        return np.searchsorted(values, w), values, None
    unit = unit_of(w)
    return None, np.array([unit]), w / unit


def unit_of(weights: Floats) -> float:
    """A power of two that brings the largest weight to between 1 and 2: products in single precision stay in range."""
    return float(np.ldexp(1.0, int(np.frexp(np.max(weights, initial=0.0))[1]) - 1))


def reduce_weightings(roles: Floats) -> tuple[Floats, Floats]:
    """Channels that span the weightings, each one of the rows in its own unit, and the mix that gives the rows back."""
    basis: list[Floats] = []
    mix = np.zeros((len(roles), len(roles)))
    for r, role in enumerate(roles):
        if basis:
            B = np.stack(basis, axis=1)
            coefficients = np.linalg.lstsq(B, role, rcond=1e-10)[0]
            if np.max(np.abs(B @ coefficients - role), initial=0.0) <= 1e-14 * np.max(np.abs(role), initial=0.0):
                mix[r, : len(basis)] = coefficients
                continue
        mix[r, len(basis)] = unit = unit_of(role)
        basis.append(role / unit)
    return np.stack(basis), mix[:, : len(basis)]


def combine_codes(codes: list[NDArray[Any]], sizes: list[int]) -> tuple[NDArray[Any], Ints, Ints]:
    """Number the distinct combinations of several codings, each with codes -1 .. size - 2.

    Returns
    -------
    joint : (N,) a code of the combination of each sample.
    number : the number of the combination that has this code, for each code that occurs.
    table : (codings, combinations) the codes of each combination.
    """
    joint = codes[0] + 1
    table = np.arange(-1, sizes[0] - 1)[None]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if table.shape[1] * size > MAX_TABLE:
            number, table = _present(joint, table)
            joint = number.take(joint)
        span = table.shape[1] * size
        joint = joint.astype(np.int32 if span < 2**31 else np.int64, copy=False)
        joint *= size
        joint += code
        joint += 1
        occurring = np.arange(span) if span <= MAX_TABLE else np.unique(joint)
        if span > MAX_TABLE:
            joint = np.searchsorted(occurring, joint)
        table = np.concatenate([table[:, occurring // size], (occurring % size - 1)[None]])
    return joint, *_present(joint, table)


def _present(joint: NDArray[Any], table: Ints) -> tuple[Ints, Ints]:
    """New numbers for the combinations that occur, and their codes."""
    present = np.bincount(joint, minlength=table.shape[1]) > 0
    return np.cumsum(present) - 1, table[:, present]


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
