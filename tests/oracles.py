"""Brute force: dense graphs, sums over all edges, and the paper's algorithms executed on samples.

Nothing here knows how the library works. Graphs are pairs (v, Gamma): vertex weights and a full N x N matrix
of edge weights, filled by loops from the definitions. Features come from `scipy.linalg.eigh` on matrices
built explicitly. All of it is O(N^2) or worse, for tests with a few hundred samples at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np
import scipy.linalg

# --- graphs: (v, Gamma) from labels, weights and recordings -----------------------------------------


def is_missing(label):
    """None, NaN and pandas' NA."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float | np.floating) and bool(np.isnan(label))


def as_weights(n_samples, sample_weight=None):
    return np.ones(n_samples) if sample_weight is None else np.array(sample_weight, dtype=float)


def recordings(n_samples, groups=None):
    """Lists of row numbers: contiguous runs of equal values are recordings."""
    runs = []
    for n in range(n_samples):
        if groups is None:
            same = n > 0
        else:
            same = n > 0 and groups[n] == groups[n - 1]
        if same:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def dense_sequence(n_samples, lag=1, groups=None, sample_weight=None, pair_weight=None, by_degree=False):
    """Edges between samples of a recording that are a lag apart, R = Q; v = 1 or the degree, times sample weights.

    `pair_weight` (N,) or (N, lags) is that of the pair that begins with each sample.
    """
    lags = [lag] if np.ndim(lag) == 0 else sorted(lag)
    gamma = np.zeros((n_samples, n_samples))
    for run in recordings(n_samples, groups):
        for k, one in enumerate(lags):
            for a, b in zip(run, run[one:], strict=False):
                weight = 1.0 if pair_weight is None else np.ravel(pair_weight[a])[k if np.ndim(pair_weight) > 1 else 0]
                gamma[a, b] += weight
                gamma[b, a] += weight
    v = as_weights(n_samples, sample_weight) * (gamma.sum(axis=1) if by_degree else 1.0)
    return v, gamma * (v.sum() / gamma.sum())


def dense_window(order_of_segments, n_samples, half_width, mirrored=False):
    """Edges 1 for 0 < |n - n'| <= d by position within each segment, and reflected pairs; v = degree."""
    d = half_width
    gamma = np.zeros((n_samples, n_samples))
    for segment in order_of_segments:
        N = len(segment)
        for n in range(1, N + 1):
            for m in range(1, N + 1):
                weight = float(0 < abs(n - m) <= d)
                if mirrored:
                    weight += float(n + m <= d + 1)
                    weight += float((N + 1 - n) + (N + 1 - m) <= d + 1)
                gamma[segment[n - 1], segment[m - 1]] += weight
    return gamma.sum(axis=1), gamma


def dense_time_window(n_samples, half_width, mirrored=False, groups=None):
    return dense_window(recordings(n_samples, groups), n_samples, half_width, mirrored)


def dense_label_window(labels, half_width, mirrored=False):
    """Window in label order; only for labels without ties. Samples without a label have no edges."""
    present = [n for n, label in enumerate(labels) if not is_missing(label)]
    assert len({labels[n] for n in present}) == len(present), "the order of tied labels is not defined"
    order = sorted(present, key=lambda n: labels[n])
    return dense_window([order], len(labels), half_width, mirrored)


def dense_clustered(labels, sample_weight=None, self_loops=False):
    """v = w; within a class w w' / (N_s - 1) without self pairs of a copy, or w w' / N_s with them.

    A class of total weight 1 or less has one member and no edge; with self-loops its member is joined to
    itself, as LDA has it.
    """
    N = len(labels)
    w = as_weights(N, sample_weight)
    v, gamma = np.zeros(N), np.zeros((N, N))
    present = [n for n in range(N) if not is_missing(labels[n])]
    for label in {labels[n] for n in present}:
        members = [n for n in present if labels[n] == label]
        N_s = sum(w[n] for n in members)
        if N_s <= (0 if self_loops else 1):
            continue
        for n in members:
            v[n] = w[n]
            for m in members:
                if self_loops:
                    gamma[n, m] = w[n] * w[m] / N_s
                elif n != m:
                    gamma[n, m] = w[n] * w[m] / (N_s - 1)
                else:
                    gamma[n, n] = w[n] * (w[n] - 1) / (N_s - 1)
    return v, gamma


def memberships(labels, n_groups, sample_weight=None):
    """P (N, G): the share of each sample in each of G groups of equal total weight, in label order.

    A label value covers an interval of the sorted total weight; its samples belong to the groups that the
    interval overlaps, in proportion. Samples without a label, or whose label has no weight, are in no group.
    """
    w = as_weights(len(labels), sample_weight)
    P = np.zeros((len(labels), n_groups))
    present = [n for n in range(len(labels)) if not is_missing(labels[n])]
    size = sum(w[n] for n in present) / n_groups
    begin = 0.0
    for label in sorted({labels[n] for n in present}):
        tied = [n for n in present if labels[n] == label]
        weight = sum(w[n] for n in tied)
        if weight == 0:
            continue
        end = begin + weight
        for g in range(n_groups):
            overlap = max(0.0, min(end, (g + 1) * size) - max(begin, g * size))
            for n in tied:
                P[n, g] = overlap / weight
        begin = end
    return P, size


def dense_from_groups(P, W, v_of_group, w):
    """gamma_nn' = w_n w_n' (P W P^T)_nn', each copy's pairs with itself within a group taken out."""
    N, G = P.shape
    gamma = np.zeros((N, N))
    for n in range(N):
        for m in range(N):
            gamma[n, m] = w[n] * w[m] * (P[n] @ W @ P[m])
        gamma[n, n] -= w[n] * sum(P[n, g] * W[g, g] for g in range(G))
    return w * (P @ v_of_group), gamma


def dense_serial(labels, n_groups, sample_weight=None):
    """v = 1 in the first and last group, 2 elsewhere; edges 1/N_g between neighbouring groups."""
    w = as_weights(len(labels), sample_weight)
    P, size = memberships(labels, n_groups, w)
    W = np.zeros((n_groups, n_groups))
    for g in range(n_groups - 1):
        W[g, g + 1] = W[g + 1, g] = 1 / size
    v = np.full(n_groups, 2.0)
    v[0] = v[-1] = 1.0
    return dense_from_groups(P, W, v, w)


def dense_mixed(labels, n_groups, sample_weight=None):
    """v = 3; a third of the degree within the group (two thirds at the ends), a third to each neighbour."""
    w = as_weights(len(labels), sample_weight)
    P, size = memberships(labels, n_groups, w)
    W = np.zeros((n_groups, n_groups))
    for g in range(n_groups):
        W[g, g] = (2.0 if g in (0, n_groups - 1) else 1.0) / (size - 1)
        if g + 1 < n_groups:
            W[g, g + 1] = W[g + 1, g] = 1 / size
    return dense_from_groups(P, W, np.full(n_groups, 3.0), w)


def add_dense(*graphs):
    """Sum of graphs: vertex and edge weights add."""
    return sum(v for v, _ in graphs), sum(gamma for _, gamma in graphs)


def scale_dense(factor, graph):
    v, gamma = graph
    return factor * v, factor * gamma


def count_edges(gamma):
    """Undirected edges between different samples."""
    N = len(gamma)
    return sum(1 for n in range(N) for m in range(n) if gamma[n, m] != 0)


# --- equations 1-4 of the paper -----------------------------------------------------------------------


def dense_delta(Y, v, gamma):
    """Equation 1 by summing over all pairs, for features brought to weighted mean 0 and variance 1."""
    Y = np.asarray(Y, dtype=float)
    Y = Y[:, None] if Y.ndim == 1 else Y
    Q, R = v.sum(), gamma.sum()
    deltas = []
    for y in Y.T:
        y = y - v @ y / Q
        y = y / np.sqrt(v @ y**2 / Q)
        deltas.append(np.sum(gamma * (y[:, None] - y[None, :]) ** 2) / R)
    return np.array(deltas)


def constraint_matrix(Y, v):
    """1/Q sum v y y^T (the identity, by equations 3 and 4) and 1/Q sum v y (zero, by equation 2)."""
    Q = v.sum()
    return (Y * v[:, None]).T @ Y / Q, v @ Y / Q


def dense_covariances(Z, v, gamma):
    """Weighted mean, weighted covariance C and edge covariance C_dot, the latter edge by edge."""
    mean = v @ Z / v.sum()
    C = ((Z - mean) * v[:, None]).T @ (Z - mean) / v.sum()
    i, j = np.nonzero(gamma)
    differences = Z[i] - Z[j]
    C_dot = (differences * gamma[i, j][:, None]).T @ differences / gamma.sum()
    return mean, C, C_dot


@dataclass
class LinearGSFA:
    """s = (z - mean) B, slowest first."""

    mean: np.ndarray
    B: np.ndarray
    deltas: np.ndarray

    def __call__(self, Z):
        return (Z - self.mean) @ self.B


def dense_gsfa(Z, v, gamma, rank_tolerance=1e-11):
    """All slow features of linear GSFA on the subspace where the weighted covariance is not singular."""
    mean, C, C_dot = dense_covariances(Z, v, gamma)
    spread = np.sqrt(np.diag(C))
    used = spread > 1e-10 * max(spread.max(), 1e-300)
    inverse = np.where(used, 1 / np.where(used, spread, 1.0), 0.0)
    values, vectors = scipy.linalg.eigh(C * np.outer(inverse, inverse))
    kept = values > rank_tolerance * values.max()
    whiten = inverse[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    deltas, rotation = scipy.linalg.eigh(whiten.T @ C_dot @ whiten)
    return LinearGSFA(mean, whiten @ rotation, deltas)


def dense_free_responses(v, gamma):
    """Delta values and responses of unrestricted GSFA on the samples with v > 0, the constant left out."""
    inside = v > 0
    v, G = v[inside], gamma[np.ix_(inside, inside)]
    laplacian = np.diag(G.sum(axis=1)) - G
    # The constant has Delta 0, but so may others: take the direction of the constant out of the space.
    constant = np.sqrt(v) / np.sqrt(v.sum())
    basis = scipy.linalg.null_space(constant[None, :])
    root = np.sqrt(v)
    A = 2 * v.sum() / gamma.sum() * laplacian / np.outer(root, root)
    values, U = scipy.linalg.eigh(basis.T @ A @ basis)
    Y = (basis @ U) / root[:, None] * np.sqrt(v.sum())
    responses = np.full((len(inside), len(values)), np.nan)
    responses[inside] = Y
    return values, responses


@dataclass
class EdgeList:
    """A graph for many samples: v, undirected edges (i, j, weight), and self-loops, which count in R only."""

    v: np.ndarray
    i: np.ndarray
    j: np.ndarray
    weight: np.ndarray
    loops: np.ndarray

    @property
    def degrees(self):
        n = len(self.v)
        return np.bincount(self.i, self.weight, n) + np.bincount(self.j, self.weight, n) + self.loops

    def __add__(self, other):
        joined = (np.concatenate(pair) for pair in ((self.i, other.i), (self.j, other.j), (self.weight, other.weight)))
        return EdgeList(self.v + other.v, *joined, self.loops + other.loops)

    def gsfa(self, Z):
        """Features, each edge visited once."""
        mean = self.v @ Z / self.v.sum()
        C = ((Z - mean) * self.v[:, None]).T @ (Z - mean) / self.v.sum()
        differences = Z[self.i] - Z[self.j]
        C_dot = 2 * (differences * self.weight[:, None]).T @ differences / self.degrees.sum()
        deltas, B = scipy.linalg.eigh(C_dot, C)
        return LinearGSFA(mean, B, deltas)


def listed_sequence(n_samples, lag, lengths):
    """The sequence graph of recordings of these lengths, R = Q."""
    starts = np.cumsum(lengths) - lengths
    i = np.concatenate([np.arange(a, a + m - lag) for a, m in zip(starts, lengths, strict=True) if m > lag])
    weight = np.full(len(i), n_samples / (2 * len(i)))
    return EdgeList(np.ones(n_samples), i, i + lag, weight, np.zeros(n_samples))


def listed_window(order, n_samples, half_width, mirrored=False):
    """The window graph along an order, distance by distance; v = degree."""
    pairs = [(order[:-k], order[k:]) for k in range(1, half_width + 1)]
    loops = np.zeros(n_samples)
    if mirrored:
        for a in range(1, half_width + 1):
            for b in range(a, half_width + 2 - a):
                for end in (order[[a - 1, b - 1]], order[[-a, -b]]):
                    if a == b:
                        loops[end[0]] += 1
                    else:
                        pairs.append((end[:1], end[1:]))
    i, j = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    graph = EdgeList(np.zeros(n_samples), i, j, np.ones(len(i)), loops)
    graph.v = graph.degrees
    return graph


def classical_sfa(X, lag=1, groups=None):
    """Linear SFA as of 2002: covariance of the signal, mean of squared differences in time, no graph."""
    transitions = [X[b] - X[a] for run in recordings(len(X), groups) for a, b in zip(run, run[lag:], strict=False)]
    A = np.mean([np.outer(x, x) for x in transitions], axis=0)
    C = np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1])
    deltas, B = scipy.linalg.eigh(A, C)
    return LinearGSFA(X.mean(axis=0), B, deltas)


# --- expansions, for samples as rows ------------------------------------------------------------------


def expand(text, X):
    """The expansions that the tests use, written once more."""
    columns = []
    for term in (part.strip() for part in text.split("|")):
        if term == "identity":
            columns += list(X.T)
        elif term == "quadratic":
            pairs = combinations_with_replacement(range(X.shape[1]), 2)
            columns += [X[:, i] * X[:, j] for i, j in pairs]
        elif term == "power0.8":
            columns += [np.abs(x) ** 0.8 for x in X.T]
        elif term == "power0.8[:3]":
            columns += [np.abs(x) ** 0.8 for x in X.T[:3]]
        else:
            raise ValueError(f"no oracle for expansion {term!r}")
    return np.column_stack(columns)


# --- Algorithms 1, 2 and 3 of the paper ---------------------------------------------------------------


class LiteralIGSFA:
    """iGSFA line by line; regression and PCA are weighted by sample weights, or by vertex weights."""

    def __init__(
        self,
        X,
        v,
        gamma,
        expansion,
        D,
        *,
        delta_threshold=1.96,
        n_slow=None,
        scaling="sensitivity",
        sample_weight=None,
        weighted=False,
    ):
        w = as_weights(len(X), sample_weight)
        importance = v if weighted else w
        self.expansion, self.scaling = expansion, scaling
        # Algorithm 1, lines 2-6
        self.x_mean = w @ X / w.sum()
        X_ = X - self.x_mean
        Z = expand(expansion, X_)
        self.gsfa = dense_gsfa(Z, v, gamma)
        S = self.gsfa(Z)
        if n_slow is None:
            J = int(min(np.sum(self.gsfa.deltas < delta_threshold), min(Z.shape[1], D) - 1))
        else:
            J = n_slow
        self.J, self.D = J, D
        S_ = S[:, :J]
        # Line 7: M and b by weighted least squares
        root = np.sqrt(importance)[:, None]
        design = np.column_stack([S_, np.ones(len(S_))])
        solution = scipy.linalg.lstsq(root * design, root * X_)[0]
        self.M, self.b = solution[:J].T, solution[J]
        # Line 8: the scaling, and the matrix that undoes it (Q, or M Lambda^-1)
        if scaling == "qr":
            self.Q, self.scale = scipy.linalg.qr(self.M, mode="economic")
        else:
            lengths = np.array([np.sqrt(np.sum(column**2)) for column in self.M.T])
            self.scale = np.diag(lengths)
            self.Q = self.M / lengths
        # Lines 9-11: residual and its principal components
        U = X_ - (S_ @ self.M.T + self.b)
        u_mean = importance @ U / importance.sum()
        covariance = ((U - u_mean) * importance[:, None]).T @ (U - u_mean) / importance.sum()
        values, vectors = scipy.linalg.eigh(covariance)
        self.variances = values[::-1]
        self.W_pca = vectors[:, ::-1][:, : D - J].T

    def extract(self, x):
        """Algorithm 2, for one sample."""
        x_ = x - self.x_mean
        z = expand(self.expansion, x_[None])[0]
        s_ = self.gsfa(z)[: self.J]
        y_ = self.scale @ s_
        a = self.Q @ y_ + self.b
        u = x_ - a
        h = self.W_pca @ u
        return np.concatenate([y_, h])

    def reconstruct(self, y):
        """Algorithm 3, for one sample."""
        y_, h = y[: self.J], y[self.J :]
        return (self.Q @ y_ + self.b) + self.W_pca.T @ h + self.x_mean

    def extract_all(self, X):
        return np.array([self.extract(x) for x in X])

    def reconstruct_all(self, Y):
        return np.array([self.reconstruct(y) for y in Y])


# --- comparisons --------------------------------------------------------------------------------------


def align_signs(Y, reference):
    """Y with the sign of each column chosen to agree with the reference."""
    return Y * np.where(np.sum(Y * reference, axis=0) < 0, -1.0, 1.0)


def assert_same_up_to_sign(Y, reference, atol):
    assert Y.shape == reference.shape
    np.testing.assert_allclose(align_signs(Y, reference), reference, rtol=0, atol=atol)


def orthonormal(Y, weights=None, tolerance=1e-9):
    """Orthonormal basis of the columns of Y, each centred and scaled to length 1 first."""
    Y = np.asarray(Y, dtype=float)
    Y = Y - (Y.mean(axis=0) if weights is None else weights @ Y / weights.sum())
    if weights is not None:
        Y = Y * np.sqrt(weights)[:, None]
    lengths = np.linalg.norm(Y, axis=0)
    U, s, _ = np.linalg.svd(Y[:, lengths > 0] / lengths[lengths > 0], full_matrices=False)
    return U[:, s > tolerance * s.max(initial=0)]


def assert_same_span(Y, reference, atol, weights=None):
    """Centred columns span the same space, up to `atol`."""
    A, B = orthonormal(Y, weights), orthonormal(reference, weights)
    assert A.shape == B.shape, f"dimensions {A.shape[1]} and {B.shape[1]}"
    assert np.abs(A - B @ (B.T @ A)).max(initial=0.0) < atol


def ties(deltas, gap=1e-5):
    """Slices of (nearly) equal Delta values."""
    slices, start = [], 0
    for k in range(1, len(deltas) + 1):
        if k == len(deltas) or deltas[k] - deltas[k - 1] > gap:
            slices.append(slice(start, k))
            start = k
    return slices


def assert_same_features(Y, reference, deltas, atol, gap=1e-5):
    """Columns agree up to sign, and as spaces where Delta values tie.

    `deltas` are those of all features, also of those that were not kept: ties cut in two are left out.
    """
    assert Y.shape[1] <= reference.shape[1]
    for span in ties(deltas, gap):
        if span.stop > Y.shape[1]:
            break
        if span.stop - span.start == 1:
            assert_same_up_to_sign(Y[:, span], reference[:, span], atol)
        else:
            assert_same_span(Y[:, span], reference[:, span], atol)


# --- graphs of low rank ----------------------------------------------------------------------------------------------


def gram_schmidt(functions, v):
    """Gram and Schmidt, one function after the other; zeros for those that depend on others."""
    found = []
    for f in functions:
        size = v @ f**2 / v.sum()
        for g in found * 2:
            f = f - (v @ (f * g)) / v.sum() * g
        left = v @ f**2 / v.sum()
        found.append(f / np.sqrt(left) if left > 1e-10 * size else np.zeros(len(f)))
    return np.array(found)


def label_functions(label, n_harmonics, low, high):
    u = (np.nan_to_num(label, nan=low) - low) / (high - low)
    return [np.ones(len(u)), u, *(np.cos(np.pi * i * u) for i in range(1, n_harmonics + 1))]


def dense_label(label, w, n_harmonics=9, label_range=None):
    """v and gamma of the label and its cosines, pair by pair."""
    present = ~np.isnan(label) & (w > 0)
    v = np.where(present, w, 0.0)
    low, high = (label[present].min(), label[present].max()) if label_range is None else label_range
    L = gram_schmidt(label_functions(label, n_harmonics, low, high), v)
    deltas = 2 * np.arange(len(L)) / len(L)
    return v, sum((1 - d / 2) * np.outer(v * f, v * f) for d, f in zip(deltas, L, strict=True)) / v.sum()


def dense_ranks(label, w):
    """Half of the weight of samples with the same label and all of that below it, of all the weight; one by one."""
    weight = np.where(np.isnan(label), 0.0, w)
    below = [sum(weight[m] for m in range(len(label)) if label[m] < value) for value in label]
    same = [sum(weight[m] for m in range(len(label)) if label[m] == value) for value in label]
    return np.where(np.isnan(label), np.nan, (np.array(below) + np.array(same) / 2) / weight.sum())


def dense_uniform(w):
    return w, np.outer(w, w) / w.sum()


def dense_code(classes, w):
    """v and gamma of binary codes of classes 0 .. 7 (NaN for none): digits with Delta 0, then products."""
    present = ~np.isnan(classes) & (w > 0)
    v = np.where(present, w, 0.0)
    names = np.unique(classes[present])
    k = np.where(present, np.searchsorted(names, np.nan_to_num(classes)), 0)
    n_digits = int(np.ceil(np.log2(len(names))))
    digits = [1.0 - 2 * ((k >> i) & 1) for i in reversed(range(n_digits))]
    products = [
        np.prod([digits[i] for i in chosen], axis=0)
        for order in range(n_digits, 1, -1)
        for chosen in combinations(range(n_digits), order)
    ]
    wanted = [0.0] * (1 + n_digits) + [2 * i / (len(products) + 1) for i in range(1, len(products) + 1)]
    L = gram_schmidt([np.ones(len(k)), *digits, *products], v)
    return v, sum((1 - d / 2) * np.outer(v * f, v * f) for d, f in zip(wanted, L, strict=True)) / v.sum()
