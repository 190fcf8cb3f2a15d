"""Algorithms 1 to 3 of the paper, run on samples, for nodes of a network: the reference of the network oracle.

Written from the paper and from the conventions it leaves open, not from the library. A graph is a vector of vertex
weights and a full N x N matrix of edge weights; features come from `scipy.linalg.eigh` on covariances of all samples,
in float64, one node after the other. Samples are rows.

How exact a result can be is found by trial, too: the node is computed again from samples that differ by rounding
errors, and what changes in its features, times a margin, is the tolerance. So tolerances follow precision and
condition, column by column, and a column that the data leave open (two equal Delta values) shows itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
import scipy.linalg

SUMMED = {"float64": 4, "float32": 1}
"""How much larger than sqrt(N) roundings the errors of a sum of N products are taken to be.

In float64 the reference is no more exact than the library, and its sums over edges have up to N^2 terms.
"""

TIE = {"float64": 1e3 * 2.0**-52, "float32": 8 * 2.0**-23}
"""Delta values that differ by no more, or by 1e-9 of themselves, are taken as equal."""

# --- graphs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dense:
    """Vertex weights v, edge weights gamma (N, N), sample weights w."""

    v: np.ndarray
    gamma: np.ndarray
    w: np.ndarray

    def over_edges(self, Z):
        """sum_nn' gamma_nn' (z - z')(z - z')^T, edge by edge."""
        i, j = self._edges
        differences = Z[i] - Z[j]
        return (differences * self.gamma[i, j][:, None]).T @ differences

    @cached_property
    def _edges(self):
        return np.nonzero(self.gamma)


# --- expansions --------------------------------------------------------------------------------------------------

TERM = re.compile(r"(max2|[a-z_]+)(\d*\.?\d*)(?:\[(-?\d*)(:?)(-?\d*)\])?")


def expand(expansion, X, children):
    """z = g(x): a list of texts and functions; slices are positions within each of the children."""
    return np.concatenate([_expand_term(term, X, children) for term in expansion], axis=1)


def _expand_term(term, X, children):
    if callable(term):
        return np.asarray(term(X), dtype=float)
    name, number, first, colon, last = TERM.fullmatch(term).groups()
    by_child = X.reshape(len(X), children, -1)
    if first is not None:
        chosen = slice(int(first or 0), int(last) if last else None) if colon else slice(int(first), int(first) + 1)
        by_child = by_child[:, :, chosen]
    x = by_child.reshape(len(X), -1)
    if name == "identity":
        return x
    if name == "power":
        return np.abs(x) ** float(number)
    if name == "signed_power":
        return np.sign(x) * np.abs(x) ** float(number)
    if name == "max2":
        if first is None:
            return np.maximum(x[:, :-1], x[:, 1:])
        return np.maximum(by_child[:, :, :-1], by_child[:, :, 1:]).reshape(len(X), -1)
    if name == "quadratic":
        return _products(x, 2)
    if name == "normalized_quadratic":
        return _products(x, 2) / (1 + np.sum(x**2, axis=1, keepdims=True))
    if name == "polynomial":
        return np.concatenate([_products(x, degree) for degree in range(1, int(number) + 1)], axis=1)
    if name == "relu":
        m = x.shape[1]
        signs = [[_sign(row * m + i + 1) for i in range(m)] for row in range(int(number))]
        return np.maximum(0, x @ np.array(signs, dtype=float).T / np.sqrt(m))
    raise ValueError(f"no reference for the term {term!r}")


def _sign(number):
    """The highest bit of splitmix64, in Python's integers."""
    x = number * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return 1 if (x ^ (x >> 31)) >> 63 else -1


def _products(x, degree):
    factors = combinations_with_replacement(range(x.shape[1]), degree)
    return np.stack([np.prod(x[:, list(chosen)], axis=1) for chosen in factors], axis=1)


def is_linear(expansion):
    return all(isinstance(term, str) and term.startswith("identity") for term in expansion)


# --- a node ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSpec:
    """What a node shall compute; `eps` is the precision of the library's products."""

    n_components: int
    expansion: tuple
    children: int = 1
    preserve: bool = True
    pca: int | None = None
    n_slow: int | None = None
    delta_threshold: float = 1.96
    scaling: str = "sensitivity"
    min_scale: float = 1e-3
    weighted: bool = False
    shrinkage: float = 0.0
    clip_range: bool = True
    center: tuple | None = None
    eps: float = 2.0**-52


@dataclass
class Decisions:
    """Whole numbers that a node settles on: rank, J, number of features; and whether rounding could change them."""

    rank: int = 0
    n_slow: int = 0
    n_features: int = 0
    doubts: list = field(default_factory=list)


class LiteralNode:
    """Algorithm 1 on the samples of one field, or of all fields of a layer with shared weights.

    Parameters
    ----------
    fields : list of arrays (N, I)
    graph : Dense
    spec : NodeSpec
    like : LiteralNode, optional
        Take whole numbers and signs from it instead of finding them.
    rng : Generator, optional
        Rounding errors for the samples.
    n_slow : int, optional
        J as the library found it, where a Delta lies within rounding of the threshold.
    """

    def __init__(self, fields, graph, spec, *, like=None, rng=None):
        self.spec, self.like, self.rng = spec, like, rng
        self.decided = Decisions() if like is None else like.decided
        w, v = graph.w, graph.v
        counted = w > 0
        self.n_summed = sum(map(len, fields))
        fields = [np.asarray(F, dtype=float) for F in fields]
        fields = [self._disturbed(F, training=True) for F in fields]

        # Line 2: the average sample; and what a network puts before its nodes, a PCA that does not whiten
        self.center = _mean(fields, w)
        constant = np.ptp(np.concatenate(fields), axis=0) == 0  # not off by a rounding error
        self.center[constant] = fields[0][0, constant]
        if spec.center is not None:
            self.center = np.asarray(spec.center, dtype=float)
        elif rng is not None:
            # A network takes the means from the nodes below, and their features are rounded at the size of the largest.
            largest = max(np.sqrt(np.mean(F**2, axis=0)).max() for F in fields)
            self.center = self.center + 4 * spec.eps * largest * rng.standard_normal(len(self.center)) * ~constant
        self.axes = self._front_axes(fields, w) if spec.pca else None
        inputs = [self._project(F) for F in fields]
        self.low = np.min([x[counted].min(axis=0) for x in inputs], axis=0)
        self.high = np.max([x[counted].max(axis=0) for x in inputs], axis=0)

        # Lines 3 to 5: expansion and linear GSFA
        expanded = [self._disturbed(expand(spec.expansion, x, self._children), training=True) for x in inputs]
        self._train_gsfa(expanded, graph)
        slow = [(z - self.z_mean) @ self.B for z in expanded]
        importance = v if spec.weighted else w
        if like is None:
            self._decide(inputs, slow, importance, expanded[0].shape[1])

        # Lines 6 to 11
        J = self.decided.n_slow
        self.M, self.b = _regress(inputs, [s[:, :J] for s in slow], importance)
        residuals = [x - s[:, :J] @ self.M.T - self.b for x, s in zip(inputs, slow, strict=True)]
        variances, W = _principal(self._summed(_covariance(residuals, importance)))
        n_rec = self.decided.n_features - J
        self._scale(np.sqrt(max(variances[0], 0.0)) if n_rec else 0.0)
        self.W = self._signed(W[:n_rec].T, "residual").T
        self.variances = variances

    # --- how precise ---

    def _disturbed(self, A, *, training):
        """Samples with rounding errors: of the size of the numbers while sums are gathered, of each one elsewhere."""
        if self.rng is None:
            return A
        noise = self.rng.standard_normal(A.shape) * (np.ptp(A, axis=0) > 0)
        if training:
            return A + noise * (100 * self.spec.eps * np.sqrt(np.mean(A**2, axis=0)))
        return A + noise * (4 * self.spec.eps * np.maximum(np.abs(A), np.sqrt(np.mean(A**2, axis=0))))

    def _summed(self, C, variances=None):
        """A covariance with the rounding errors of its sums: of N products, about sqrt(N) roundings of their size."""
        if self.rng is None:
            return C
        size = np.sqrt(np.diag(C) if variances is None else variances)
        noise = self.rng.standard_normal(C.shape) * np.outer(size, size)
        precision = "float64" if self.spec.eps < 1e-10 else "float32"
        return C + SUMMED[precision] * np.sqrt(self.n_summed) * self.spec.eps * (noise + noise.T)

    def _signed(self, vectors, what):
        """Columns with signs: the first entry within 0.1 % of the largest is positive."""
        if self.like is not None:
            model = self.like.signed[what]
            signs = np.sign(np.sum(vectors * model, axis=0))
            return vectors * np.where(signs == 0, 1, signs)
        self.signed = getattr(self, "signed", {})
        leading = np.argmax(np.abs(vectors) >= 0.999 * np.abs(vectors).max(axis=0, initial=0), axis=0)
        self.signed[what] = vectors * np.where(vectors[leading, np.arange(vectors.shape[1])] < 0, -1, 1)
        return self.signed[what]

    # --- training ---

    @property
    def _children(self):
        return 1 if self.spec.pca else self.spec.children

    def _front_axes(self, fields, w):
        """Principal axes as rows; none where nothing varies."""
        variances, axes = _principal(self._summed(_covariance(fields, w)))
        if self.like is None:
            ratios, cut = variances[: self.spec.pca] / max(variances.sum(), 1e-300), max(1e-12, 16 * self.spec.eps)
            self.n_axes = int(np.sum(ratios > cut))
            _doubt_near(self.decided.doubts, ratios, cut, "PCA")
        else:
            self.n_axes = self.like.n_axes
        axes[self.n_axes :] = 0
        return self._signed(axes[: self.spec.pca].T, "front").T

    def _project(self, F):
        x = F - self.center
        return x if self.axes is None else x @ self.axes.T

    def _train_gsfa(self, expanded, graph):
        """Slow features s = (z - mean) B of the directions in which the standardised data vary."""
        self.z_mean = _mean(expanded, graph.v)
        C = self._summed(_covariance(expanded, graph.v))
        # Differences over edges are as inexact as the samples, however small they are.
        C_dot = sum(graph.over_edges(z) for z in expanded) / (len(expanded) * graph.gamma.sum())
        C_dot = self._summed(C_dot, np.diag(C))
        spread = np.sqrt(np.diag(C))
        if self.like is None:
            self.used = spread > 1e-10 * np.sqrt(np.max([np.mean(z**2, axis=0) for z in expanded], axis=0)) + 1e-300
        else:
            self.used = self.like.used
        inverse = np.where(self.used, 1 / np.where(self.used, spread, 1.0), 0.0)
        values, vectors = scipy.linalg.eigh(C * np.outer(inverse, inverse))
        if self.like is None:
            cut = self.spec.eps**0.75
            self.decided.rank = int(np.sum(values > cut * values.max())) if self.used.any() else 0
            _doubt_near(self.decided.doubts, values / max(values.max(), 1e-300), cut, "rank")
        kept = slice(len(values) - self.decided.rank, None)
        # With shrinkage every variable has noise of this variance on top, whose Delta is 2, while features are sought;
        # they are sorted by what they are with it, and described by what they are without it.
        noise, directions = self.spec.shrinkage, inverse[:, None] * vectors[:, kept]
        whiten = directions / np.sqrt(values[kept] + noise)
        A = whiten.T @ C_dot @ whiten + 2 * noise * np.diag(1 / (values[kept] + noise))
        values, vectors = scipy.linalg.eigh(A)
        standard = np.where(self.used, spread, 1.0)[:, None]
        B = self._untied(whiten @ vectors, values, standard)
        B = B / np.sqrt(np.sum(B * (C @ B), axis=0))
        self.deltas = np.sum(B * (C_dot @ B), axis=0)
        self.B = self._signed(standard * B, "slow") / standard

    def _untied(self, B, values, standard):
        """Features whose Delta values are equal within the tie, rotated: smallest standardised weights first."""
        tie, start = TIE["float64" if self.spec.eps < 1e-10 else "float32"], 0
        self.ties = []
        while start < len(values):
            stop = int(np.sum(values <= values[start] + 1e-9 * abs(values[start]) + tie))
            self.ties.append(slice(start, stop))
            start = stop
        B = B.copy()
        for tied in self.ties:
            if tied.stop - tied.start > 1:
                weights = B[:, tied] * standard
                B[:, tied] = B[:, tied] @ scipy.linalg.eigh(weights.T @ weights)[1]
        return B

    def _decide(self, inputs, slow, importance, n_expanded):
        """J and the number of features, after METHOD: "slow part"."""
        spec, decided = self.spec, self.decided
        D, most = spec.n_components, min(decided.rank, spec.n_components)
        if not spec.preserve:
            decided.n_slow = decided.n_features = most
            return
        if spec.n_slow is not None:
            J = min(spec.n_slow, most)
        elif spec.delta_threshold >= 4:
            J = most
        else:
            J = min(int(np.sum(self.deltas < spec.delta_threshold)), min(n_expanded, D) - 1, most)
            near = np.abs(self.deltas[: D + 1] - spec.delta_threshold)
            if np.any(near < max(1e-7, 3e4 * spec.eps)):
                decided.doubts.append("threshold")
        # Slow features fill the places for which the residual has too few components.
        only_slow = spec.n_slow is None and spec.delta_threshold >= 4
        while True:
            n_rec = 0 if only_slow else self._n_residual(inputs, slow, importance, J)
            if J + n_rec >= D or most == J:
                break
            J += 1
        decided.n_slow, decided.n_features = J, min(D, J + n_rec)

    def _n_residual(self, inputs, slow, importance, J):
        M, b = _regress(inputs, [s[:, :J] for s in slow], importance)
        residuals = [x - s[:, :J] @ M.T - b for x, s in zip(inputs, slow, strict=True)]
        variances = _principal(_covariance(residuals, importance))[0]
        whole = _principal(_covariance(inputs, importance))[0]
        ratio = variances / max(whole.max(), 1e-300)
        cut = 100 * self.spec.eps
        _doubt_near(self.decided.doubts, ratio, cut, "residual", factor=1e3)
        return int(np.sum(ratio > cut))

    def _scale(self, largest_rest):
        """Line 8: y' = R s', and the matrix that undoes it (Q of M = Q R, or M Lambda^-1).

        Scales below min_scale times the largest amplitude, of a slow feature or of the residual, are raised to it.
        """
        J = self.decided.n_slow
        if not self.spec.preserve:
            self.scale, self.undo = np.eye(J), self.M
            return
        if self.spec.scaling == "qr":
            # More slow features than inputs: the last rows of R are 0 but for the lower bound.
            R = scipy.linalg.qr(np.vstack([self.M, np.zeros((J, J))]), mode="r")[0][:J]
            R = R * np.where(np.diag(R) < 0, -1, 1)[:, None]
        else:
            R = np.diag(np.linalg.norm(self.M, axis=0))
        lengths = np.diag(R).copy()
        bound = self.spec.min_scale * max(lengths.max(initial=0), largest_rest)
        self.scale = R + np.diag(np.maximum(lengths, bound) - lengths)
        self.undo = self.M @ np.linalg.inv(self.scale)

    # --- use ---

    def extract(self, F):
        """Algorithm 2, for samples as rows; zeros where there are fewer features than n_components."""
        x = self._project(self._disturbed(np.asarray(F, dtype=float), training=False))
        if self.spec.clip_range and not is_linear(self.spec.expansion):
            x = np.clip(x, self.low, self.high)
        z = self._disturbed(expand(self.spec.expansion, x, self._children), training=False)
        s = ((z - self.z_mean) @ self.B)[:, : self.decided.n_slow]
        y = s @ self.scale.T
        h = (x - y @ self.undo.T - self.b) @ self.W.T
        zeros = np.zeros((len(x), self.spec.n_components - self.decided.n_features))
        return np.concatenate([y, h, zeros], axis=1)

    def rebuild_inputs(self, Y):
        """Algorithm 3, for samples as rows: what goes into the expansion, behind the PCA if there is one."""
        J, n = self.decided.n_slow, self.decided.n_features
        x = Y[:, :J] @ self.undo.T + self.b + Y[:, J:n] @ self.W
        return x + self.center if self.axes is None else x

    def reconstruct(self, Y):
        """The input of the node."""
        x = self.rebuild_inputs(Y)
        return x if self.axes is None else x @ self.axes + self.center


def _doubt_near(doubts, ratios, cut, what, factor=30.0):
    if np.any((ratios > cut / factor) & (ratios < cut * factor)):
        doubts.append(what)


def _mean(fields, weights):
    return sum(weights @ F for F in fields) / (len(fields) * weights.sum())


def _covariance(fields, weights):
    mean = _mean(fields, weights)
    return sum(((F - mean) * weights[:, None]).T @ (F - mean) for F in fields) / (len(fields) * weights.sum())


def _principal(covariance):
    """Variances, largest first, and axes as rows."""
    values, vectors = scipy.linalg.eigh(covariance)
    return values[::-1], vectors[:, ::-1].T.copy()


def _regress(inputs, slow, importance):
    """Line 7: M and b with M s' + b ~ x', by least squares."""
    root = np.sqrt(importance)[:, None]
    design = np.concatenate([root * np.column_stack([s, np.ones(len(s))]) for s in slow])
    wanted = np.concatenate([root * x for x in inputs])
    solution = scipy.linalg.lstsq(design, wanted)[0]
    return solution[:-1].T, solution[-1]
