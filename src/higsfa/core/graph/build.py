"""From label arrays to graphs: groups along a numeric label, and the constructions behind the recipes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.graph.codes import code_type, count_codes, look_up
from higsfa.core.graph.edges import ChainEdges, GroupEdges, LowRankEdges, SparseEdges, chain, orthonormal
from higsfa.core.graph.graph import Part, TrainingGraph
from higsfa.core.graph.labels import as_labels, missing

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
    # The cell of a grid that each value lies in; a greater value never has a smaller cell.
    low, high = values.min(), values.max()
    with np.errstate(over="ignore", divide="ignore"):
        scale = GRID / (high - low)
    is_grid = 0 < scale < np.inf
    cells = ((values - low) * scale).astype(np.intp) if is_grid else np.zeros(len(values), dtype=np.intp)
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


MAX_TIED_VALUES = 2048
"""Most distinct values of a label with ties that a window graph is built over."""


class NotEnoughData(ValueError):
    """The samples seen so far do not make a graph."""


def class_rates(masses: Floats, *, self_loops: bool, name: str) -> tuple[NDArray[np.bool_], Floats]:
    """Which classes a clustered graph joins, given their total weights, and the edges within each of those: degree 1.

    Classes of total weight 1 or less have no partners and stay out, unless self-loops are kept.
    """
    kept = masses > (0 if self_loops else 1 + 1e-12)
    if kept.sum() < 2:
        n_found = int((masses > 0).sum())
        raise NotEnoughData(
            f"{name}: needs at least two classes with two or more samples, found {int(kept.sum())} such classes "
            f"among {n_found} in the label"
            + (" (all values are missing)" if n_found == 0 else _counted(np.any((masses > 0) & (masses < 1))))
        )
    return kept, np.asarray(1.0 / (masses[kept] if self_loops else masses[kept] - 1.0), dtype=np.float64)


def _counted(is_cause: Any) -> str:
    """What to say of weights that make less than one sample."""
    return (
        "; sample_weight w counts a sample w times, and here samples count less than once: multiply all weights by a "
        "constant, such as one over their mean"
        if is_cause
        else ""
    )


def clustered(classes: Ints, n_classes: int, w: Floats, *, self_loops: bool, name: str) -> TrainingGraph:
    """All pairs within a class; v = 1 and degree 1. See `class_rates`."""
    masses = count_codes(classes, n_classes, w)
    kept, inverse = class_rates(masses, self_loops=self_loops, name=name)
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    atoms = look_up(number.astype(code_type(n_classes)), classes)
    absent = w == 0
    if absent.any():
        atoms[absent] = -1
    loops = np.zeros(len(inverse)) if self_loops else inverse
    edges = GroupEdges(atoms, masses[kept], sp.csr_array(sp.diags_array(inverse)), loops, w)
    return TrainingGraph((Part(name, np.ones(len(inverse)), edges),), w)


def chained_groups(values: Floats, w: Floats, n_groups: int | None, *, mixed: bool, name: str) -> TrainingGraph:
    """Serial graph (edges between neighbouring groups) or mixed graph (and within groups)."""
    left_out = np.isnan(values) | (w <= 0)
    known = np.flatnonzero(~left_out) if left_out.any() else None
    present, weights = (values, w) if known is None else (values[known], w[known])
    if len(present) == 0:
        raise NotEnoughData(f"{name}: all values of the label are missing")
    if present.min() == present.max():
        raise NotEnoughData(f"{name}: the label has one distinct value ({present[0]!r}); there is nothing to order")
    total = float(weights.sum())
    L = max(2, min(32, int(max(total, len(present))) // 2)) if n_groups is None else n_groups
    if len(present) < L and total < L:
        raise NotEnoughData(f"{name}: n_groups={L} but only {len(present)} samples have a label; use fewer groups")
    inside, P = group_memberships(present, weights, L)
    masses = np.bincount(inside, weights, minlength=len(P)).astype(np.float64)
    atoms = inside
    if known is not None:
        atoms = np.full(len(values), -1, dtype=np.int32)
        atoms[known] = inside
    mass = total / L
    v, inside_groups = np.full(L, 2.0), np.zeros(L)
    v[[0, -1]] = 1.0
    if mixed:
        if mass <= 1:
            raise NotEnoughData(
                f"{name}: n_groups={L} leaves less than two samples a group; use fewer groups"
                + _counted(total < len(present))
            )
        inside_groups, v = (3.0 - v) / (mass - 1.0), np.full(L, 3.0)
    between = np.full(L - 1, 1.0 / mass)
    W, onto = sp.diags_array([between, inside_groups, between], offsets=[-1, 0, 1]), sp.csr_array(P)
    edges = GroupEdges(atoms, masses, sp.csr_array(onto @ W @ onto.T), onto @ inside_groups, w)
    return TrainingGraph((Part(name, onto @ v, edges),), w)


def low_rank(functions: Floats, deltas: Floats, present: NDArray[np.bool_], w: Floats, *, name: str) -> TrainingGraph:
    """Edges of low rank over the samples that are present; v = 1 and degree 1 per unit of sample weight."""
    atoms = np.where(present & (w > 0), 0, -1).astype(np.int32)
    edges = LowRankEdges(atoms, functions, deltas, w)
    return TrainingGraph((Part(name, np.ones(1), edges),), w)


def coded(classes: Ints, n_classes: int, n_features: int | None, w: Floats, *, name: str) -> TrainingGraph:
    """Classes by binary codes; v = 1 and degree 1. Pairs of a sample with itself are kept."""
    masses = np.bincount(classes + 1, w, minlength=n_classes + 1)[1:].astype(np.float64)
    kept = masses > 0
    couplings = code_couplings(masses[kept], n_features, name=name)
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    atoms = np.where(w > 0, number[classes], -1).astype(np.int32)
    edges = GroupEdges(atoms, masses[kept], sp.csr_array(couplings), np.zeros(len(couplings)), w)
    return TrainingGraph((Part(name, np.ones(len(couplings)), edges),), w)


def code_couplings(masses: Floats, n_features: int | None, *, name: str) -> Floats:
    """Edge weights between classes of these total weights, whose free responses are binary codes."""
    C = len(masses)
    if C < 2:
        raise NotEnoughData(f"{name}: needs at least two classes, found {C} in the label")
    n_digits = (C - 1).bit_length()
    digits = 1.0 - 2.0 * ((np.arange(C)[:, None] >> np.arange(n_digits - 1, -1, -1)) & 1)
    products = [
        digits[:, list(chosen)].prod(axis=1)
        for order in range(n_digits, 1, -1)
        for chosen in combinations(range(n_digits), order)
    ]
    codes = np.vstack([np.ones(C), digits.T, *products])
    deltas = np.concatenate([np.zeros(1 + n_digits), 2.0 * np.arange(1, len(products) + 1) / (len(products) + 1)])
    if n_features is not None:
        codes, deltas = codes[: n_features + 1], deltas[: n_features + 1]
    L = orthonormal(codes, masses, C)
    return np.asarray((L.T * ((1.0 - deltas / 2.0) / masses.sum())) @ L)


def sequence(
    lengths: Ints,
    lags: tuple[int, ...],
    *,
    w: Floats | None = None,
    pair_weight: Floats | None = None,
    by_degree: bool = False,
    n_before: int = 0,
    scaled: bool = True,
    may_be_empty: bool = False,
) -> TrainingGraph:
    """Edges between samples that are one of the lags apart in the same recording.

    Parameters
    ----------
    lengths : of the recordings.
    lags : several of them make one graph, in which all pairs count alike.
    w : (N,) weights of the samples: they multiply vertex weights, which are 1, or degrees if `by_degree`.
    pair_weight : (N,) weights of the pairs that begin with each sample, or (lags, N); 1 by default.
    n_before : the first samples, if their weights and the edges among them are in another graph already.
    scaled : whether edges are scaled to R = Q.
    """
    n = int(lengths.sum())
    chains = [chain(lengths, lag, 1, mirrored=False) for lag in lags]
    first, last = np.concatenate([one[0] for one in chains]), np.concatenate([one[1] for one in chains])
    if n_before:
        last[first < n_before] = -1
    weight = 1.0 if pair_weight is None else np.array(np.broadcast_to(pair_weight, first.shape))
    edges = ChainEdges(None, n, first, last, np.zeros(n), weight)
    total = edges.total_weight
    if total == 0 and not may_be_empty:
        longest = lengths.max(initial=0)
        told = lags[0] if len(lags) == 1 else list(lags)
        raise NotEnoughData(
            f"SequenceGraph: no recording is longer than lag={told} samples (longest: {longest}), so no two samples "
            "are neighbours"
            if longest <= min(lags)
            else f"SequenceGraph: all pairs of samples lag={told} apart have weight 0"
        )
    own = np.ones(n) if w is None else w.copy()
    v = own * edges.pair_degrees() if by_degree else own
    own[:n_before] = 0.0
    if scaled:
        edges = edges.scaled(float(v.sum()) / total)
    return TrainingGraph((Part(f"sequence(lag={', '.join(map(str, lags))})", v, edges),), own)


def window(order: Ints | None, lengths: Ints, n: int, half_width: int, *, mirrored: bool, name: str) -> TrainingGraph:
    """Edges between samples up to `half_width` apart in an order; v = degree."""
    first, last, loops = chain(lengths, 1, half_width, mirrored=mirrored)
    edges = ChainEdges(order, n, first, last, loops, 1.0)
    if edges.n_forward == 0:
        raise NotEnoughData(f"{name}: needs at least two samples in order, got {int(lengths.sum())}")
    return TrainingGraph((Part(name, edges.degrees(), edges),), np.ones(n))


def tied_window(ordered: Floats, order: Ints, n: int, half_width: int, *, mirrored: bool, name: str) -> TrainingGraph:
    """Window over a label with ties: the mean of the window graphs over all orders of tied samples.

    The weight of an edge then depends only on the two label values, so this is a graph of groups, and the order of rows
    does not matter.
    """
    m = len(order)
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    U, sizes = len(starts), np.diff(starts, append=m)
    if U > MAX_TIED_VALUES:
        raise ValueError(
            f"{name}: the label has ties among {U} distinct values; windows over tied labels work for up to "
            f"{MAX_TIED_VALUES} values: round the label, or use SerialGraph"
        )
    group = np.repeat(np.arange(U, dtype=np.int32), sizes)
    pairs, own = np.zeros((U, U)), np.zeros(U)
    for lag in range(1, min(half_width, m - 1) + 1):
        # Positions between two cuts have the same group, and so have those that are `lag` further on.
        cuts = np.union1d(starts, starts[starts > lag] - lag)
        cuts = cuts[cuts < m - lag]
        np.add.at(pairs, (group[cuts], group[cuts + lag]), np.diff(cuts, append=m - lag))
    if mirrored:
        for mirror in (group, group[::-1]):  # windows that reach beyond the first sample, then beyond the last
            for p in range(min(half_width, m)):
                partners = np.arange(min(half_width - p, m))
                np.add.at(pairs, (mirror[p], mirror[partners[partners > p]]), 1.0)
                own[mirror[p]] += np.sum(partners == p)
    pairs = pairs + pairs.T
    masses = sizes.astype(np.float64)
    possible = np.outer(masses, masses) - np.diag(masses)
    K = np.divide(pairs, possible, out=np.zeros_like(pairs), where=possible > 0)
    atoms = np.full(n, -1, dtype=np.int32)
    atoms[order] = group
    w = np.ones(n)
    loops = np.diag(K) - own / masses
    edges = GroupEdges(atoms, masses, sp.csr_array(K), loops, w)
    return TrainingGraph((Part(name, edges.atom_degrees - loops, edges),), w)


def check_groups(groups: Any, n_samples: int) -> NDArray[Any]:
    """The group of each row, none of them missing."""
    found: NDArray[Any] = np.asarray(as_labels(groups))
    if found.shape != (n_samples,):
        raise ValueError(f"groups must have one entry per sample, got shape {found.shape} for {n_samples} samples")
    unknown = missing(found)
    if unknown.any():
        raise ValueError(
            f"groups: that of {int(unknown.sum())} samples is missing (the first is row {int(np.argmax(unknown))}); "
            "name it, or leave these rows out"
        )
    return found


def recording_lengths(groups: Any, n_samples: int) -> Ints:
    """Lengths of the recordings, from the recording of each row; each must be one unbroken stretch of rows."""
    if groups is None:
        return np.array([n_samples])
    groups = check_groups(groups, n_samples)
    if n_samples == 0:
        return np.zeros(0, dtype=np.intp)
    starts = np.concatenate([[0], np.flatnonzero(groups[1:] != groups[:-1]) + 1])
    names = groups[starts].tolist()
    if len(set(names)) < len(names):
        first = {name: i for i, name in reversed(list(enumerate(names)))}
        again = next(i for i, name in enumerate(names) if first[name] < i)
        raise ValueError(
            f"groups: recording {names[again]!r} appears in two separate stretches of rows (the second begins at row "
            f"{starts[again]}); bring the rows of each recording together, in time order"
        )
    return np.diff(starts, append=n_samples)


def explicit(edges: Any, node_weights: Any, n_samples: int | None, w: Floats | None = None) -> TrainingGraph:
    """A graph from a symmetric sparse matrix or an edge list, with own vertex weights, times sample weights; R = Q."""
    matrix = _edge_matrix(edges, n_samples)
    n = matrix.shape[0]
    if n_samples is not None and n != n_samples:
        raise ValueError(f"edges: the matrix is for {n} samples but the data have {n_samples}")
    if not np.all(np.isfinite(matrix.data)) or np.any(matrix.data < 0):
        raise ValueError("edges: weights must be finite and not negative")
    if abs(matrix - matrix.T).max() > 1e-12 * abs(matrix).max():
        raise ValueError("edges: the matrix must be symmetric; pass (edges + edges.T) / 2")
    diagonal = matrix.diagonal()
    upper = sp.csr_array(sp.triu(matrix, k=1))
    upper.eliminate_zeros()
    if upper.nnz == 0:
        raise ValueError("edges: there is no edge between two different samples")
    form = SparseEdges(upper, diagonal)
    if node_weights is None:
        v = form.degrees()
    else:
        v = np.array(node_weights, dtype=np.float64)  # the user may change the array
        if v.shape != (n,) or not np.all(np.isfinite(v)) or np.any(v < 0) or not v.any():
            raise ValueError(
                f"node_weights must be {n} finite numbers, not negative and not all 0, got shape {v.shape}"
            )
    w = np.ones(n) if w is None else w
    v = v * w
    if not v.any():
        raise NotEnoughData("sample_weight is 0 for every sample that has edges")
    form = form.scaled(float(v.sum() / form.degrees().sum()))
    return TrainingGraph((Part("edges", v, form),), w)


def _edge_matrix(edges: Any, n_samples: int | None) -> sp.csr_array:
    if sp.issparse(edges):
        if edges.shape[0] != edges.shape[1]:
            raise ValueError(f"edges: a sparse matrix of edges must be square, got shape {edges.shape}")
        return sp.csr_array(edges, dtype=np.float64)
    listed = np.asarray(edges, dtype=np.float64)
    if listed.ndim != 2 or listed.shape[1] not in (2, 3):
        raise ValueError(
            "edges must be a scipy sparse matrix (N, N) or a list of edges (i, j) or (i, j, weight), "
            f"got an array of shape {listed.shape}"
        )
    ends = listed[:, :2]
    if len(ends) == 0 or np.any(ends != np.floor(ends)) or ends.min() < 0:
        raise ValueError("edges: the first two columns must be sample numbers 0, 1, 2, ...")
    n = int(ends.max()) + 1 if n_samples is None else n_samples
    if ends.max() >= n:
        raise ValueError(f"edges: sample number {int(ends.max())} is out of range for {n} samples")
    i, j = ends.astype(np.intp).T
    weight = listed[:, 2] if listed.shape[1] == 3 else np.ones(len(listed))
    apart = i != j
    where = (np.r_[i, j[apart]], np.r_[j, i[apart]])
    return sp.csr_array(sp.coo_array((np.r_[weight, weight[apart]], where), shape=(n, n)))
