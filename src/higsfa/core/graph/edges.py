"""The four kinds of edges: between groups, of low rank, along an order, and written out one by one.

None of them ever holds N x N numbers. Each can say how many edges there are, their total weight, the degree of every
vertex and what the edges look like as a sparse matrix (for small N); the sums of training use the kinds directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
EVERY = slice(None)


class AtomEdges:
    """Edges whose vertex weights and degrees are those of atoms, per unit of sample weight."""

    atoms: NDArray[Any]
    sample_weight: Floats
    n_atoms: int
    atom_degrees: Floats
    total_weight: float

    def on_samples(self, values: Floats, samples: Ints | slice = EVERY) -> Floats:
        """Values of the atoms times sample weights, sample by sample; 0 for samples without edges."""
        rates: Floats = np.append(values, 0.0)[self.atoms[samples]]
        return self.sample_weight[samples] * rates


@dataclass(frozen=True, eq=False)
class GroupEdges(AtomEdges):
    r"""Edges whose weight depends only on the groups of the two samples they join.

    With sample weights :math:`w` and atoms (sets of samples that behave alike) :math:`a(n)`,

    .. math:: \gamma_{nn'} = w_n w_{n'} K_{a(n) a(n')} - \delta_{nn'} w_n k_{a(n)} .

    The second term takes the pairs of a copy with itself out again: a sample of weight w stands for w copies,
    and copies are joined to each other but not to themselves.

    Parameters
    ----------
    atoms : (N,) int array
        The atom of each sample, -1 for samples without edges.
    masses : (A,) array
        Total sample weight of each atom.
    couplings : (A, A) sparse array
        K, symmetric. Of classes it holds a diagonal only, and thousands of them are usual.
    loops : (A,) array
        k, the self pairs taken out; zeros where self-loops are kept.
    sample_weight : (N,) array
        w.

    Attributes
    ----------
    n_atoms : A.
    atom_degrees : degree of each atom per unit of sample weight, the loops that were taken out included.
    total_weight : sum of all degrees.
    """

    atoms: NDArray[Any]
    masses: Floats
    couplings: sp.csr_array
    loops: Floats
    sample_weight: Floats
    n_atoms: int = field(init=False)
    atom_degrees: Floats = field(init=False)
    total_weight: float = field(init=False)

    def __post_init__(self) -> None:
        degrees = np.asarray(self.couplings @ self.masses)
        total = float(self.masses @ (degrees - self.loops))
        self.__dict__.update(n_atoms=len(self.loops), atom_degrees=degrees, total_weight=total)

    def scaled(self, factor: float) -> GroupEdges:
        return replace(self, couplings=factor * self.couplings, loops=factor * self.loops)

    def degrees(self) -> Floats:
        return self.on_samples(self.atom_degrees - self.loops)

    @property
    def self_weight(self) -> float:
        """Of the pairs of samples with themselves."""
        own = self.on_samples(self.couplings.diagonal()) * self.sample_weight - self.on_samples(self.loops)
        return float(own.sum())

    def n_edges(self) -> int:
        inside = (self.atoms >= 0) & (self.sample_weight > 0)
        counts = np.bincount(self.atoms[inside], minlength=self.n_atoms).astype(float)
        joined = (self.couplings != 0).astype(float)
        pairs = counts @ (joined @ counts) - joined.diagonal() @ counts
        return round(float(pairs) / 2)

    def to_sparse(self) -> sp.csr_array:
        kept = np.flatnonzero(self.atoms >= 0)
        onehot = sp.csr_array(
            (self.sample_weight[kept], (kept, self.atoms[kept])), shape=(len(self.atoms), self.n_atoms)
        )
        own = sp.diags_array(self.on_samples(self.loops))
        return sp.csr_array(onehot @ self.couplings @ onehot.T - own)


MAX_DENSE = 5000
"""Most samples of a graph of low rank that is written out: its matrix is full."""
EXTENDED = np.longdouble
"""Functions of a label that fills little of its range are nearly dependent: what is left of one, once those before it
are taken away, may be 1e-10 of it, and rounding errors grow by as much."""
DEPENDENT = 1e-10
"""A function of which less than this part is left, once those before it are taken away, depends on them."""


@dataclass(frozen=True, eq=False)
class LowRankEdges(AtomEdges):
    r"""Edges that are a sum of few products, whose free responses are given functions of the labels.

    With vertex weights :math:`v`, :math:`Q = \sum v`, and functions :math:`l_0 = 1, l_1, ...` made orthonormal in this
    order under :math:`v / Q`,

    .. math:: \gamma = \frac{1}{Q} \sum_j \lambda_j (v l_j)(v l_j)^T , \qquad \lambda_j = 1 - \Delta_j / 2 .

    Its row sums are :math:`v` (:math:`\lambda_0 = 1`), so it is consistent, and :math:`R = Q`.

    Parameters
    ----------
    atoms : (N,) int array
        0 for samples in the graph, -1 for others.
    functions : (N, m) array
        Functions of the labels before they are made orthonormal; the first is 1. Of samples outside it is not used.
    deltas : (m,) array
        The wanted Delta of each; 0 for the first.
    sample_weight : (N,) array
        w.
    rate : float
        Vertex weight per unit of sample weight.

    Attributes
    ----------
    strengths : (m,) lambda / Q.
    """

    atoms: NDArray[Any]
    functions: Floats
    deltas: Floats
    sample_weight: Floats
    rate: float = 1.0
    n_atoms: int = field(init=False, default=1)
    atom_degrees: Floats = field(init=False)
    total_weight: float = field(init=False)
    strengths: Floats = field(init=False)

    def __post_init__(self) -> None:
        degrees = np.array([self.rate])
        self.__dict__.update(atom_degrees=degrees)
        Q = float(self.on_samples(degrees).sum())
        strengths = (1.0 - self.deltas / 2.0) / Q if Q > 0 else np.zeros(len(self.deltas))
        self.__dict__.update(total_weight=Q, strengths=strengths)

    def moments(self) -> NDArray[Any]:
        """(m, m) sums of v h h^T over the functions h, in extended precision."""
        v = self.on_samples(self.atom_degrees)
        inside = v > 0
        H, v = self.functions[inside].astype(EXTENDED), v[inside].astype(EXTENDED)
        return np.asarray((H.T * v) @ H)

    def weighted_functions(self) -> Floats:
        """(m, N) functions times vertex weights."""
        v = self.on_samples(self.atom_degrees)
        return np.asarray(np.where(v > 0, self.functions.T * v, 0.0))

    @cached_property
    def orthonormal_functions(self) -> Floats:
        """(m, N) functions l times vertex weights: gamma is the sum of their products, each times its strength.

        Made orthonormal on the samples, which loses no digits where functions are nearly dependent.
        """
        v = self.on_samples(self.atom_degrees)
        return orthonormal(np.where(v > 0, self.functions.T, 0.0), v) * v

    def scaled(self, factor: float) -> LowRankEdges:
        return replace(self, rate=factor * self.rate)

    def degrees(self) -> Floats:
        return self.on_samples(self.atom_degrees)

    @property
    def self_weight(self) -> float:
        """Of the pairs of samples with themselves."""
        return float(self.strengths @ np.sum(self.orthonormal_functions**2, axis=1))

    def n_edges(self) -> int:
        n = int(np.count_nonzero((self.atoms >= 0) & (self.sample_weight > 0)))
        return n * (n - 1) // 2

    def to_sparse(self) -> sp.csr_array:
        if len(self.atoms) > MAX_DENSE:
            raise ValueError(
                f"to_sparse: this graph joins all pairs of {len(self.atoms):,} samples, and its matrix would be full; "
                f"it is written out for up to {MAX_DENSE:,} of them. Use to_operator()"
            )
        L = self.orthonormal_functions
        return sp.csr_array((L.T * self.strengths) @ L)


def orthonormal(functions: Floats, v: Floats, most: float = np.inf) -> Floats:
    """Functions (m, n) made orthonormal under v / Q, one after the other; 0 for those that depend on earlier ones.

    None beyond the first `most` that do not: there are no more.
    """
    out, kept, Q = np.zeros(functions.shape), 0, v.sum()
    basis = np.zeros(functions.shape)
    for j, f in enumerate(functions if Q > 0 else ()):
        size = v @ f**2
        for _ in range(2):  # twice is enough
            f = f - (basis[:kept] @ (v * f) / Q) @ basis[:kept]
        left = v @ f**2
        if left > DEPENDENT * size:
            out[j] = basis[kept] = f / np.sqrt(left / Q)
            kept += 1
            if kept >= most:
                break
    return out


class LowRank(NamedTuple):
    """Couplings B^T diag(strengths) B of label functions: rows of B make orthonormal ones of them.

    The product is never formed: where functions are nearly dependent, its entries are as large as 1e10.
    """

    basis: Floats
    strengths: Floats

    @classmethod
    def of(cls, moments: NDArray[Any], deltas: Floats) -> LowRank:
        """Orthonormal functions in the given order, from M = sum v h h^T; those that depend on others are left out."""
        m, Q = len(moments), moments[0, 0]
        moments = moments.astype(EXTENDED)
        kept: list[int] = []
        basis = np.zeros((m, m), EXTENDED)
        for j in range(m if Q > 0 else 0):
            row = np.zeros(m, EXTENDED)
            row[j] = 1.0
            for _ in range(2):  # twice is enough
                row = row - basis[kept].T @ (basis[kept] @ (moments @ row) / Q)
            left = row @ moments @ row / Q
            if left > DEPENDENT * moments[j, j] / Q:
                basis[j] = row / np.sqrt(left)
                kept.append(j)
        strengths = (1.0 - deltas / 2.0) / float(Q) if Q > 0 else np.zeros(m)
        return cls(basis.astype(np.float64), strengths)


@dataclass(frozen=True, eq=False)
class ChainEdges:
    """Edges along an order: each position is joined to one or more runs of later positions.

    Parameters
    ----------
    order : (M,) int array or None
        The sample at each position; None is row order.
    n_samples : int
        N; samples that stand nowhere in `order` have no edges.
    first, last : (r, M) int arrays
        Position p is joined to the positions first[i, p] .. last[i, p], all of them after p. An empty run has
        last < first.
    loops : (M,) array
        Number of self pairs at each position (mirrored windows only).
    weight : float or (r, M) array
        The weight of every edge; or of each run, where runs have one position at most.
    """

    order: Ints | None
    n_samples: int
    first: Ints
    last: Ints
    loops: Floats
    weight: float | Floats

    def scaled(self, factor: float) -> ChainEdges:
        return replace(self, weight=factor * self.weight)

    @cached_property
    def n_forward(self) -> int:
        """Pairs, each counted once in the direction of the order (a mirrored pair counts again)."""
        return int(np.maximum(self.last - self.first + 1, 0).sum())

    def n_edges(self) -> int:
        if not self.loops.any():
            return self.n_forward
        return int(np.maximum(self.last[0] - self.first[0] + 1, 0).sum())  # mirrored: pairs of later runs come again

    def weights_of(self, run: int) -> Floats:
        """The weight of the edges from each position, of one of the runs."""
        return self.weight[run] if isinstance(self.weight, np.ndarray) else np.full(self.first.shape[1], self.weight)

    def pair_degrees(self) -> Floats:
        """Degrees without self pairs, by sample."""
        m = self.first.shape[1]
        degrees, steps = np.zeros(m), np.zeros(m + 1)
        for run, (first, last) in enumerate(zip(self.first, self.last, strict=True)):
            some = np.flatnonzero(last >= first)
            a, b = first[some], last[some] + 1
            w = self.weight[run][some] if isinstance(self.weight, np.ndarray) else self.weight
            if np.array_equal(b, a + 1) and np.all(a[1:] > a[:-1]):
                degrees[some] += w
                degrees[a] += w
            else:
                degrees[some] += w * (b - a)
                steps += np.bincount(a, minlength=m + 1) - np.bincount(b, minlength=m + 1)
        if steps.any():  # runs of several positions, which have one weight for all
            degrees += self.weight * np.cumsum(steps[:-1])
        return self._by_sample(degrees)

    def degrees(self) -> Floats:
        return self.pair_degrees() + self._by_sample(self._loop_weights())

    def _loop_weights(self) -> Floats:
        return self.loops if isinstance(self.weight, np.ndarray) else self.weight * self.loops

    @property
    def total_weight(self) -> float:
        """Sum of all degrees."""
        if isinstance(self.weight, np.ndarray):
            return 2.0 * float(self.weight[self.last >= self.first].sum())
        return self.weight * (2.0 * self.n_forward + float(self.loops.sum()))

    @property
    def self_weight(self) -> float:
        """Of the pairs of samples with themselves."""
        return float(self._loop_weights().sum())

    def to_sparse(self) -> sp.csr_array:
        i, j, w = [], [], []
        for run, (first, last) in enumerate(zip(self.first, self.last, strict=True)):
            length = np.maximum(last - first + 1, 0)
            i.append(np.repeat(np.arange(len(first)), length))
            j.append(np.repeat(first, length) + _within(length))
            w.append(np.repeat(self.weights_of(run), length))
        rows, cols, weights = np.concatenate(i), np.concatenate(j), np.concatenate(w)
        own = np.arange(len(self.loops))
        order = np.arange(self.n_samples) if self.order is None else self.order
        values = np.r_[weights, weights, self._loop_weights()]
        where = (order[np.r_[rows, cols, own]], order[np.r_[cols, rows, own]])
        return sp.csr_array(sp.coo_array((values, where), shape=(self.n_samples, self.n_samples)))

    def _by_sample(self, values: Floats) -> Floats:
        if self.order is None:
            return values
        out = np.zeros(self.n_samples)
        out[self.order] = values
        return out


@dataclass(frozen=True, eq=False)
class SparseEdges:
    """Edges written out: the upper triangle of a symmetric sparse matrix, and its diagonal."""

    upper: sp.csr_array
    diagonal: Floats

    def scaled(self, factor: float) -> SparseEdges:
        return SparseEdges(sp.csr_array(factor * self.upper), factor * self.diagonal)

    @property
    def n_forward(self) -> int:
        return int(self.upper.nnz)

    def n_edges(self) -> int:
        return int(self.upper.nnz)

    def pair_degrees(self) -> Floats:
        return np.asarray(self.upper.sum(axis=0) + self.upper.sum(axis=1), dtype=np.float64).ravel()

    def degrees(self) -> Floats:
        return self.pair_degrees() + self.diagonal

    @property
    def total_weight(self) -> float:
        """Sum of all degrees."""
        return float(2.0 * self.upper.sum() + self.diagonal.sum())

    @property
    def self_weight(self) -> float:
        """Of the pairs of samples with themselves."""
        return float(self.diagonal.sum())

    def to_sparse(self) -> sp.csr_array:
        return sp.csr_array(self.upper + self.upper.T + sp.diags_array(self.diagonal))


Edges = GroupEdges | LowRankEdges | ChainEdges | SparseEdges


def chain(lengths: Ints, lag: int, width: int, *, mirrored: bool) -> tuple[Ints, Ints, Floats]:
    """Runs of neighbours lag .. lag + width - 1 positions ahead, within segments of the given lengths.

    With mirrored ends the window that reaches beyond an end of its segment is folded back into it, as if the
    segment went on as its own mirror image; a position whose image lies within its window gets self pairs.
    """
    here = np.arange(int(lengths.sum()))
    end = np.repeat(np.cumsum(lengths) - 1, lengths)
    first = here + lag
    last = np.minimum(first + (width - 1), end)
    loops = np.zeros(len(here))
    if not mirrored:
        return first[None], last[None], loops
    position, left = _within(lengths), end - here
    d = width
    to_start = np.minimum(d - 1 - position, position + left)
    to_end = np.minimum(d - 1 - left, position + left)
    start_of = here - position
    head = (here + 1, start_of + to_start)
    tail = (np.maximum(end - to_end, here + 1), end)
    loops += (2 * position <= d - 1).astype(float) + (2 * left <= d - 1)
    return np.stack([first, head[0], tail[0]]), np.stack([last, head[1], tail[1]]), loops


def _within(lengths: Ints) -> Ints:
    """0 .. length-1 for each length in turn."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
