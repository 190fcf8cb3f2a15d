"""Vertex, edge and plain weights of all samples as combinations of few channels."""

from __future__ import annotations

from dataclasses import dataclass
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
