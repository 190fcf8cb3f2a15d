"""Groups of equal weight along a numeric label, and which samples belong to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

GRID = 4096
"""Cells of the grid that a label is sorted into, which is faster than sorting it."""
ROUNDING = 1e-9
"""A border this close to the end of a value, in groups, lies at its end."""


def group_memberships(values: Floats, w: Floats, n_groups: int) -> tuple[NDArray[np.int32], Floats]:
    """Cut the sorted total weight into equal groups.

    Samples whose value lies across a border belong to several groups, in proportion to the weight of that value on
    either side, so that the order of rows does not matter.

    Parameters
    ----------
    values : (N,) array, none of them NaN
    w : (N,) array, all of them positive
    n_groups : int

    Returns
    -------
    atoms : (N,) the atom of each sample; atom g < n_groups is group g.
    P : (A, n_groups) membership of each atom, rows sum to 1.
    """
    cells = _cells(values)
    is_equal = bool(np.all(w == w[0]))
    unit = w[0] if is_equal else 1.0  # equal weights are counted, which is exact
    in_cell = np.bincount(cells, None if is_equal else w)
    reached = np.cumsum(in_cell)
    is_cut = np.zeros(len(in_cell), dtype=bool)
    is_cut[np.searchsorted(reached, (np.arange(1, n_groups) - ROUNDING) * (reached[-1] / n_groups))] = True
    # A cell in which a border falls is taken apart into its values. They and the other cells, which have to do with one
    # group only, are the pieces to be grouped, in ascending order.
    rows, rank = _ranks_within(is_cut, cells, values)
    n_pieces = np.ones(len(in_cell), dtype=np.intp)
    np.maximum.at(n_pieces, cells[rows], rank + 1)
    first_piece = np.cumsum(n_pieces) - n_pieces
    own_piece = first_piece[cells[rows]] + rank
    weights = np.zeros(n_pieces.sum())
    weights[first_piece] = np.where(n_pieces == 1, in_cell, 0)
    np.add.at(weights, own_piece, w[rows] / unit)
    atom_of, P = _grouped(weights, n_groups)
    atoms: NDArray[np.int32] = atom_of[first_piece].take(cells)
    atoms[rows] = atom_of[own_piece]
    return atoms, P


def _grouped(weights: Floats, n_groups: int) -> tuple[NDArray[np.int32], Floats]:
    """The atom of each piece, given the weights of consecutive pieces, and the memberships of atoms."""
    upper = np.cumsum(weights)
    lower = upper - weights
    size = upper[-1] / n_groups
    first = np.clip(np.floor(lower / size + ROUNDING), 0, n_groups - 1).astype(np.int32)
    last = np.clip(np.ceil(upper / size - ROUNDING) - 1, first, n_groups - 1).astype(np.int32)
    across = np.flatnonzero(last > first)
    g = np.arange(n_groups)
    share = np.minimum(upper[across, None], (g + 1) * size) - np.maximum(lower[across, None], g * size)
    share[(g < first[across, None]) | (g > last[across, None])] = 0.0
    atom_of = first
    atom_of[across] = n_groups + np.arange(len(across))
    return atom_of, np.concatenate([np.eye(n_groups), share / share.sum(axis=1, keepdims=True)])


def _ranks_within(is_cut: NDArray[np.bool_], cells: Ints, values: Floats) -> tuple[Ints, Ints]:
    """Samples in cells that are cut and hold several values, and the rank of each one's value in its cell."""
    rows = np.flatnonzero(is_cut.take(cells))
    own, value = cells.take(rows), values.take(rows)
    example = np.empty(len(is_cut))
    example[own] = value
    differs = value != example.take(own)
    if not differs.any():
        return rows[:0], rows[:0]
    has_several = np.zeros(len(is_cut), dtype=bool)
    has_several[own[differs]] = True
    chosen = np.flatnonzero(has_several.take(own))
    chosen = chosen[np.argsort(value[chosen])]
    rows, own, value = rows[chosen], own[chosen], value[chosen]
    number = np.cumsum(np.append(False, value[1:] != value[:-1]))
    starts = np.append(True, own[1:] != own[:-1])
    return rows, number - number[starts][np.cumsum(starts) - 1]


def _cells(values: Floats) -> Ints:
    """The cell of a grid that each value lies in; a greater value never has a smaller cell."""
    low, high = values.min(), values.max()
    with np.errstate(over="ignore", divide="ignore"):
        scale = GRID / (high - low)
    if not 0 < scale < np.inf:
        return np.zeros(len(values), dtype=np.intp)
    offset: Floats = values - low
    offset *= scale
    return offset.astype(np.intp)
