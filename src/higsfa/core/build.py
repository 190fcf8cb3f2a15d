"""From labels to training graphs: the constructions behind the recipes, as functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.edges import ChainEdges, GroupEdges, SparseEdges, chain
from higsfa.core.graph import Part, TrainingGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MAX_TIED_VALUES = 2048
"""Most distinct values of a label with ties that a window graph is built over."""


def clustered(classes: Ints, n_classes: int, w: Floats, *, self_loops: bool, name: str) -> TrainingGraph:
    """All pairs within a class; v = 1 and degree 1.

    Classes of total weight 1 or less have nobody to be joined to and stay out, unless self-loops are kept.
    """
    known = classes >= 0
    masses = np.bincount(classes[known], w[known], minlength=n_classes)
    kept = masses > (0 if self_loops else 1 + 1e-12)
    if kept.sum() < 2:
        n_found = int((masses > 0).sum())
        raise ValueError(
            f"{name}: needs at least two classes with two or more samples, found {int(kept.sum())} such classes "
            f"among {n_found} in the label" + (" (all values are missing)" if not known.any() else "")
        )
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    atoms = np.append(number, -1)[classes]
    inverse = np.asarray(1.0 / (masses[kept] if self_loops else masses[kept] - 1.0), dtype=np.float64)
    loops = np.zeros(len(inverse)) if self_loops else inverse
    atoms[w == 0] = -1
    edges = GroupEdges(atoms, np.diag(inverse), loops, w)
    return TrainingGraph((Part(name, np.where(atoms >= 0, w, 0.0), edges),), w)


def group_memberships(values: Floats, w: Floats, n_groups: int) -> tuple[Ints, Floats]:
    """Cut the sorted total weight into equal groups.

    Samples whose value lies across a border belong to several groups, in proportion to the weight of that value on
    either side, so that the order of rows does not matter.

    Returns
    -------
    atoms : (N,) the atom of each sample, -1 for missing values; atom g < n_groups is group g.
    P : (A, n_groups) membership of each atom, rows sum to 1.
    """
    left_out = np.isnan(values) | (w <= 0)
    if left_out.any():
        known = np.flatnonzero(~left_out)
        order = known[np.argsort(values[known])]
    else:
        order = np.argsort(values)
    ordered = values[order]
    new = np.empty(len(order), dtype=bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    ends = np.append(np.flatnonzero(new)[1:], len(order))
    upper = ends * w[order[0]] if np.all(w == w[0]) else np.cumsum(w[order])[ends - 1]
    lower = np.concatenate([[0.0], upper[:-1]])
    size = upper[-1] / n_groups
    first = np.clip(np.floor(lower / size + 1e-9), 0, n_groups - 1).astype(np.intp)
    last = np.clip(np.ceil(upper / size - 1e-9) - 1, first, n_groups - 1).astype(np.intp)
    across = np.flatnonzero(last > first)
    atom_of_value = first.copy()
    atom_of_value[across] = n_groups + np.arange(len(across))
    P = np.eye(n_groups + len(across), n_groups)
    for a, value in enumerate(across):
        groups = np.arange(first[value], last[value] + 1)
        share = np.minimum(upper[value], (groups + 1) * size) - np.maximum(lower[value], groups * size)
        P[n_groups + a, groups] = share / share.sum()
    atoms = np.full(len(values), -1, dtype=np.intp)
    atoms[order] = atom_of_value[np.cumsum(new) - 1]
    return atoms, P


def chained_groups(values: Floats, w: Floats, n_groups: int | None, *, mixed: bool, name: str) -> TrainingGraph:
    """Serial graph (edges between neighbouring groups) or mixed graph (and within groups)."""
    known = ~np.isnan(values) & (w > 0)
    distinct = values[known]
    if len(distinct) == 0:
        raise ValueError(f"{name}: all values of the label are missing")
    if distinct.min() == distinct.max():
        raise ValueError(f"{name}: the label has one distinct value ({distinct[0]!r}); there is nothing to order")
    total = max(float(w[known].sum()), float(known.sum()))
    L = max(2, min(32, int(total) // 2)) if n_groups is None else n_groups
    if known.sum() < L and w[known].sum() < L:
        raise ValueError(f"{name}: n_groups={L} but only {int(known.sum())} samples have a label; use fewer groups")
    atoms, P = group_memberships(values, w, L)
    mass = w[known].sum() / L
    W = np.zeros((L, L))
    g = np.arange(L - 1)
    W[g, g + 1] = W[g + 1, g] = 1.0 / mass
    v = np.full(L, 2.0)
    v[[0, -1]] = 1.0
    if mixed:
        if mass <= 1:
            raise ValueError(f"{name}: n_groups={L} leaves less than two samples a group; use fewer groups")
        W[np.arange(L), np.arange(L)] = (3.0 - v) / (mass - 1.0)
        v = np.full(L, 3.0)
    edges = GroupEdges(atoms, P @ W @ P.T, P @ np.diag(W), w)
    weights = w * np.append(P @ v, 0.0)[atoms]
    return TrainingGraph((Part(name, weights, edges),), w)


def sequence(lengths: Ints, lag: int, *, scaled: bool = True, may_be_empty: bool = False) -> TrainingGraph:
    """Edges between samples `lag` apart in the same recording; v = 1, and R = Q if `scaled`, else edges of weight 1."""
    n = int(lengths.sum())
    if lengths.max(initial=0) <= lag and not may_be_empty:
        raise ValueError(
            f"SequenceGraph: no recording is longer than lag={lag} samples (longest: {lengths.max(initial=0)}), "
            "so no two samples are neighbours"
        )
    first, last, loops = chain(lengths, lag, 1, mirrored=False)
    edges = ChainEdges(None, n, first, last, loops, 1.0)
    if scaled:
        edges = edges.scaled(n / (2.0 * edges.n_forward))
    return TrainingGraph((Part(f"sequence(lag={lag})", np.ones(n), edges),), np.ones(n))


def window(order: Ints | None, lengths: Ints, n: int, half_width: int, *, mirrored: bool, name: str) -> TrainingGraph:
    """Edges between samples up to `half_width` apart in an order; v = degree."""
    first, last, loops = chain(lengths, 1, half_width, mirrored=mirrored)
    edges = ChainEdges(order, n, first, last, loops, 1.0)
    if edges.n_forward == 0:
        raise ValueError(f"{name}: needs at least two samples in order, got {int(lengths.sum())}")
    return TrainingGraph((Part(name, edges.degrees(), edges),), np.ones(n))


def tied_window(values: Floats, order: Ints, n: int, half_width: int, *, mirrored: bool, name: str) -> TrainingGraph:
    """Window over a label with ties: the mean of the window graphs over all orders of tied samples.

    The weight of an edge then depends only on the two label values, so this is a graph of groups, and the order of rows
    does not matter.
    """
    ordered = values[order]
    group = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
    U, m = int(group[-1]) + 1, len(order)
    if U > MAX_TIED_VALUES:
        raise ValueError(
            f"{name}: the label has ties among {U} distinct values; windows over tied labels work for up to "
            f"{MAX_TIED_VALUES} values: round the label, or use SerialGraph"
        )
    pairs, own = np.zeros((U, U)), np.zeros(U)
    for lag in range(1, min(half_width, m - 1) + 1):
        np.add.at(pairs, (group[:-lag], group[lag:]), 1.0)
    if mirrored:
        for mirror in (group, group[::-1]):  # windows that reach beyond the first sample, then beyond the last
            for p in range(min(half_width, m)):
                partners = np.arange(min(half_width - p, m))
                np.add.at(pairs, (mirror[p], mirror[partners[partners > p]]), 1.0)
                own[mirror[p]] += np.sum(partners == p)
    pairs = pairs + pairs.T
    sizes = np.bincount(group, minlength=U).astype(np.float64)
    possible = np.outer(sizes, sizes) - np.diag(sizes)
    K = np.divide(pairs, possible, out=np.zeros_like(pairs), where=possible > 0)
    atoms = np.full(n, -1, dtype=np.intp)
    atoms[order] = group
    w = np.ones(n)
    edges = GroupEdges(atoms, K, np.diag(K) - own / sizes, w)
    return TrainingGraph((Part(name, edges.degrees(), edges),), w)


def recording_lengths(groups: Any, n_samples: int) -> Ints:
    """Lengths of the recordings, from the recording of each row; each must be one unbroken stretch of rows."""
    if groups is None:
        return np.array([n_samples])
    groups = np.asarray(groups)
    if groups.shape != (n_samples,):
        raise ValueError(f"groups must have one entry per sample, got shape {groups.shape} for {n_samples} samples")
    if n_samples == 0:
        return np.zeros(0, dtype=np.intp)
    starts = np.concatenate([[0], np.flatnonzero(groups[1:] != groups[:-1]) + 1])
    seen: set[Any] = set()
    for start in starts:
        key = groups[start].item() if hasattr(groups[start], "item") else groups[start]
        if key in seen:
            raise ValueError(
                f"groups: recording {key!r} appears in two separate stretches of rows (the second begins at row "
                f"{start}); bring the rows of each recording together, in time order"
            )
        seen.add(key)
    return np.diff(np.append(starts, n_samples))


def explicit(edges: Any, node_weights: Any, n_samples: int | None) -> TrainingGraph:
    """A graph from a symmetric sparse matrix or an edge list, with own vertex weights; R = Q."""
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
        v = np.asarray(node_weights, dtype=np.float64)
        if v.shape != (n,) or not np.all(np.isfinite(v)) or np.any(v < 0) or not v.any():
            raise ValueError(
                f"node_weights must be {n} finite numbers, not negative and not all 0, got shape {v.shape}"
            )
    form = form.scaled(float(v.sum() / form.degrees().sum()))
    return TrainingGraph((Part("edges", v, form),), np.ones(n))


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
