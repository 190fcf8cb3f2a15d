"""A training graph: vertex weights and edges over N samples, and what can be asked of it.

GSFA looks for features that differ little between samples joined by an edge (the paper's equation 1) under
weighted zero mean, unit variance and decorrelation (equations 2-4). A graph is a sum of parts, each with its own
vertex weights and one kind of edges; adding graphs adds parts, so that a sum can still say whether its parts fit
together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from higsfa.core.graph.edges import EVERY, AtomEdges, Edges, GroupEdges, LowRankEdges, SparseEdges
from higsfa.core.linalg import decorrelating

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MAX_DENSE = 3000
"""Largest eigenproblem for free responses that is solved whole, if a few of them are asked for."""
MAX_WHOLE = 2**14
"""Largest eigenproblem that is solved whole if all are asked for: its matrix takes 2 GiB."""


@dataclass(frozen=True, eq=False)
class Part:
    """One graph of a sum: a name for messages, its vertex weights and its edges.

    Parameters
    ----------
    name : str
    rates : array
        Where edges have atoms, the vertex weight of each atom per unit of sample weight; else of each sample.
    edges : Edges
    """

    name: str
    rates: Floats
    edges: Edges

    @property
    def vertex_weights(self) -> Floats:
        """Vertex weights (N,)."""
        return self.vertex_weights_of(EVERY)

    def vertex_weights_of(self, samples: Ints | slice) -> Floats:
        """Vertex weights of some samples."""
        if isinstance(self.edges, AtomEdges):
            return self.edges.on_samples(self.rates, samples)
        return self.rates[samples]

    def scaled(self, factor: float) -> Part:
        return replace(self, rates=factor * self.rates, edges=self.edges.scaled(factor))


@dataclass(frozen=True, eq=False)
class FreeResponses:
    """The slowest features that a graph allows when the feature space is unlimited.

    Attributes
    ----------
    delta_values : (k,) array
        Delta of each response, ascending. The constant response is left out.
    responses : (k, m) array
        Values on the atoms (sets of samples with the same response), or on the samples.
    atoms : (N,) int array
        The atom of each sample; -1 for samples that are not in the graph.
    """

    delta_values: Floats
    responses: Floats
    atoms: Ints

    def n_below(self, threshold: float = 2.0) -> int:
        """Number of responses slower than noise (Delta < 2), rounding set aside."""
        return int(np.sum(self.delta_values < threshold - 1e-9))

    def on_samples(self) -> Floats:
        """Responses as (N, k); NaN for samples that are not in the graph."""
        table = np.column_stack([self.responses, np.full(len(self.responses), np.nan)])
        return table[:, self.atoms].T


@dataclass(frozen=True)
class SumConditions:
    """The paper's three conditions under which the features of a sum of graphs serve every part.

    Attributes
    ----------
    consistent : bool
        1. Every part is consistent and has the same samples.
    proportional : bool
        2. All parts have the same vertex weights, up to a factor.
    compatible : bool
        3. No response that is slow in one part (Delta < 2) is fast (Delta > 2) in another.
    """

    consistent: bool
    proportional: bool
    compatible: bool
    remarks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.consistent and self.proportional and self.compatible


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """Vertex weights and symmetric edge weights over N samples.

    Graphs add (``a + b``) and scale (``2.0 * a``). Built by the recipes of :mod:`higsfa.graphs`.

    Parameters
    ----------
    parts : tuple of Part
    sample_weight : (N,) array
        Weights of the samples in the plain (unweighted) moments.

    Attributes
    ----------
    n_samples : N.
    total_edge_weight : R of the paper: every edge counted in both directions.

    Examples
    --------
    >>> from higsfa.graphs import SerialGraph
    >>> graph = SerialGraph(n_groups=4).build([20, 25, 31, 38, 45, 52, 60, 70])  # a TrainingGraph
    >>> graph.n_samples, graph.n_edges, graph.is_consistent()
    (8, 12, True)
    """

    parts: tuple[Part, ...]
    sample_weight: Floats
    n_samples: int = field(init=False)
    total_edge_weight: float = field(init=False)

    def __post_init__(self) -> None:
        total = sum(part.edges.total_weight for part in self.parts)
        self.__dict__.update(n_samples=len(self.sample_weight), total_edge_weight=total)

    @cached_property
    def vertex_weights(self) -> Floats:
        """The v of the paper; 0 for samples that are not in the graph."""
        return self.vertex_weights_of(EVERY)

    def vertex_weights_of(self, samples: Ints | slice) -> Floats:
        """Vertex weights of some samples, without those of all others."""
        return _total([part.vertex_weights_of(samples) for part in self.parts])

    @cached_property
    def degrees(self) -> Floats:
        """Sum of the edge weights of each sample, self-loops counted once."""
        return _total([part.edges.degrees() for part in self.parts])

    @property
    def total_vertex_weight(self) -> float:
        """Q of the paper."""
        return float(self.vertex_weights.sum())

    @property
    def n_edges(self) -> int:
        """Number of undirected edges between different samples, added up over the parts of a sum."""
        return sum(part.edges.n_edges() for part in self.parts)

    def __add__(self, other: object) -> TrainingGraph:
        if not isinstance(other, TrainingGraph):
            return NotImplemented
        if other.n_samples != self.n_samples:
            raise ValueError(
                f"graphs over {self.n_samples} and {other.n_samples} samples cannot be added: "
                "build both from labels of the same samples"
            )
        same = self.sample_weight is other.sample_weight or np.array_equal(self.sample_weight, other.sample_weight)
        if not same:
            raise ValueError("graphs built with different sample_weight cannot be added")
        return TrainingGraph(self.parts + other.parts, self.sample_weight)

    def __mul__(self, factor: object) -> TrainingGraph:
        if not isinstance(factor, int | float | np.number) or isinstance(factor, bool):
            return NotImplemented
        if not factor > 0 or not np.isfinite(factor):
            raise ValueError(f"a graph is scaled by a positive finite number, got {factor!r}")
        return replace(self, parts=tuple(part.scaled(float(factor)) for part in self.parts))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        names = " + ".join(part.name for part in self.parts)
        return f"<TrainingGraph {names}: {self.n_samples} samples, {self.n_edges} edges>"

    def is_consistent(self, rtol: float = 1e-9) -> bool:
        """Whether vertex weights are proportional to degrees, as the theory of free responses wants it."""
        return _proportional(self.vertex_weights, self.degrees, rtol)

    def delta(self, Y: ArrayLike) -> Floats:
        """Delta values of features (equation 1), each first brought to weighted variance 1.

        Parameters
        ----------
        Y : array-like of shape (N,) or (N, k)

        Returns
        -------
        (k,) array; NaN for a feature that is constant on the graph.
        """
        values = np.asarray(Y, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape[0] != self.n_samples:
            raise ValueError(f"Y has {values.shape[0]} rows but the graph has {self.n_samples} samples")
        v = self.vertex_weights
        values = values - v @ values / v.sum()
        variance = v @ values**2 / v.sum()
        energy = np.sum([_edge_energy(part.edges, values) for part in self.parts], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(variance > 0, energy / self.total_edge_weight / variance, np.nan))

    def slowness(self, Y: ArrayLike) -> float:
        """The sum of max(0, 1 - Delta / 2) over features (N, k), decorrelated one after the other.

        A feature that says nothing new adds nothing, nor does one that is no slower than noise (Delta 2).
        """
        values = np.asarray(Y, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        v = self.vertex_weights / self.total_vertex_weight
        rounding = 1e-24 * (v @ values**2)
        values = values - v @ values
        new = decorrelating((values.T * v) @ values, rounding)
        return float(np.sum(np.maximum(0.0, 1.0 - self.delta(values @ new) / 2.0))) if new.size else 0.0

    def to_sparse(self) -> sp.csr_array:
        """All edge weights as a symmetric N x N sparse matrix; for small graphs (dense groups fill it)."""
        return sp.csr_array(sum((part.edges.to_sparse() for part in self.parts[1:]), self.parts[0].edges.to_sparse()))

    def to_operator(self) -> scipy.sparse.linalg.LinearOperator:
        """The matrix of edge weights as an operator on vectors (N,); it is not written out, whatever N."""
        parts = [_applied(part.edges) for part in self.parts]

        def apply(x: Floats) -> Floats:
            x = np.asarray(x, dtype=np.float64).reshape(self.n_samples, -1)
            return np.asarray(np.sum([part(x) for part in parts], axis=0))

        shape = (self.n_samples, self.n_samples)
        return scipy.sparse.linalg.LinearOperator(
            shape, matvec=lambda x: apply(x).ravel(), matmat=apply, rmatvec=lambda x: apply(x).ravel(), dtype=float
        )

    def free_responses(self, n_responses: int | None = None) -> FreeResponses:
        """Optimal free responses and their Delta values.

        For graphs made of groups they are found from the groups alone, whatever N, and those of label functions for
        some responses; other graphs are solved on their samples, which suits up to some ten thousand of them.

        Parameters
        ----------
        n_responses : int, optional
            How many of the slowest to return; all of them (on the groups) by default.
        """
        if all(isinstance(part.edges, GroupEdges) for part in self.parts):
            atoms, gamma, v = self._on_atoms()
        elif self.n_samples > MAX_DENSE and any(isinstance(part.edges, LowRankEdges) for part in self.parts):
            return self._few_responses(n_responses)
        else:
            gamma, v = self.to_sparse(), self.vertex_weights
            atoms = np.arange(self.n_samples)
        inside = v > 0
        number = np.where(inside, np.cumsum(inside) - 1, -1)
        gamma = gamma[inside][:, inside]
        values, vectors = _slowest(gamma, v[inside], self.total_edge_weight, n_responses)
        return FreeResponses(values, vectors, np.append(number, -1)[atoms])

    def _few_responses(self, n_responses: int | None) -> FreeResponses:
        """Some free responses of a graph that is too large to be written out."""
        v, n = self.vertex_weights, self.n_samples
        if n_responses is None or n_responses > n // 4:
            raise ValueError(
                f"n_responses={n_responses}: the free responses of this graph over {n:,} samples cannot all be found; "
                f"ask for at most {n // 4:,} of the slowest"
            )
        inside, gamma = v > 0, self.to_operator()
        root, d = np.sqrt(v[inside]), self.degrees[inside]
        constant = root / np.linalg.norm(root)

        def apply(x: Floats) -> Floats:
            """Minus the Laplacian, whose largest eigenvalues are found first, with the constant at the other end."""
            x, whole = x.ravel(), np.zeros(n)
            whole[inside] = x / root
            return np.asarray((gamma @ whole)[inside] / root - d / v[inside] * x - 4.0 * constant * (constant @ x))

        m = int(inside.sum())
        start = np.random.default_rng(0).standard_normal(m)
        operator = scipy.sparse.linalg.LinearOperator((m, m), matvec=apply, dtype=float)
        values, vectors = scipy.sparse.linalg.eigsh(operator, k=n_responses, which="LA", v0=start)
        order = np.argsort(-values)
        Q = v.sum()
        responses = (vectors[:, order] / root[:, None] * np.sqrt(Q)).T
        atoms = np.where(inside, np.cumsum(inside) - 1, -1)
        return FreeResponses(-2 * Q / self.total_edge_weight * values[order], responses, atoms)

    def conditions(self) -> SumConditions:
        """Check the paper's three conditions for a sum of graphs (a single graph fulfils the last two)."""
        remarks = []
        first = self.parts[0]
        consistent = proportional = compatible = True
        for part in self.parts:
            if not _proportional(part.vertex_weights, part.edges.degrees(), 1e-9):
                consistent = False
                remarks.append(f"{part.name} is not consistent: vertex weights differ from degrees")
            if np.any((part.vertex_weights > 0) != (first.vertex_weights > 0)):
                consistent = False
                remarks.append(f"{part.name} and {first.name} do not have the same samples")
            if not _proportional(part.vertex_weights, first.vertex_weights, 1e-9):
                proportional = False
                remarks.append(f"{part.name} and {first.name} have different vertex weights")
        for slow in self.parts if len(self.parts) > 1 else ():
            responses = TrainingGraph((slow,), self.sample_weight).free_responses()
            Y = np.nan_to_num(responses.on_samples()[:, : responses.n_below()])
            for other in self.parts:
                deltas = TrainingGraph((other,), self.sample_weight).delta(Y) if Y.shape[1] else np.zeros(0)
                if other is not slow and np.any(deltas > 2 + 1e-3):
                    compatible = False
                    remarks.append(f"a slow response of {slow.name} has Delta {np.nanmax(deltas):.3f} in {other.name}")
        return SumConditions(consistent, proportional, compatible, tuple(remarks))

    def _on_atoms(self) -> tuple[Ints, sp.csr_array, Floats]:
        """Joint atoms of all parts, their couplings and their vertex weights."""
        codes = np.stack([part.edges.atoms for part in self.parts])  # type: ignore[union-attr]
        table, atoms = np.unique(codes, axis=1, return_inverse=True)
        atoms = atoms.ravel()
        n = table.shape[1]
        masses = np.bincount(atoms, self.sample_weight, minlength=n)
        gamma = sp.csr_array((n, n))
        for own, part in zip(table, self.parts, strict=True):
            edges: Any = part.edges
            there = np.flatnonzero(own >= 0)
            onto = sp.csr_array((masses[there], (there, own[there])), shape=(n, edges.n_atoms))
            taken_out = np.append(edges.loops, 0.0)[own] * masses
            gamma = sp.csr_array(gamma + onto @ edges.couplings @ onto.T - sp.diags_array(taken_out))
        return atoms, gamma, np.asarray(np.bincount(atoms, self.vertex_weights, minlength=n), dtype=np.float64)


def _total(arrays: list[Floats]) -> Floats:
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def _proportional(a: Floats, b: Floats, rtol: float) -> bool:
    return bool(np.allclose(a / a.sum(), b / b.sum(), rtol=rtol, atol=rtol * np.max(b) / b.sum()))


def _applied(edges: Edges) -> Callable[[Floats], Floats]:
    """x (N, k) -> gamma x."""
    if isinstance(edges, LowRankEdges):
        L, strengths = edges.orthonormal_functions, edges.strengths[:, None]
        return lambda x: L.T @ (strengths * (L @ x))
    if isinstance(edges, GroupEdges):
        kept = np.flatnonzero(edges.atoms >= 0)
        shape = (len(edges.atoms), edges.n_atoms)
        onehot = sp.csr_array((edges.sample_weight[kept], (kept, edges.atoms[kept])), shape=shape)
        own = edges.on_samples(edges.loops)[:, None]
        return lambda x: onehot @ (edges.couplings @ (onehot.T @ x)) - own * x
    matrix = edges.to_sparse()
    return lambda x: matrix @ x


def _edge_energy(edges: Edges, Y: Floats) -> Floats:
    """Sum over all edges, both directions, of gamma (y - y')^2; column by column of Y (N, k)."""
    if isinstance(edges, GroupEdges):
        kept = edges.atoms >= 0
        w, atoms = edges.sample_weight[kept], edges.atoms[kept]
        onehot = sp.csr_array((w, (atoms, np.arange(len(w)))), shape=(edges.n_atoms, len(w)))
        S = onehot @ Y[kept]
        pairs = np.sum(S * (edges.couplings @ S), axis=0)
        return np.asarray(2 * ((w * edges.atom_degrees[atoms]) @ Y[kept] ** 2 - pairs))
    if isinstance(edges, LowRankEdges):
        S = edges.orthonormal_functions @ Y
        return np.asarray(2 * (edges.degrees() @ Y**2 - edges.strengths @ S**2))
    if isinstance(edges, SparseEdges):
        upper = sp.coo_array(edges.upper)
        return np.asarray(2 * (upper.data @ (Y[upper.row] - Y[upper.col]) ** 2))
    Y = Y if edges.order is None else Y[edges.order]
    total = np.zeros(Y.shape[1])
    sums = np.concatenate([np.zeros((1, Y.shape[1])), np.cumsum(Y, axis=0)])
    squares = np.concatenate([np.zeros((1, Y.shape[1])), np.cumsum(Y**2, axis=0)])
    for run, (first, last) in enumerate(zip(edges.first, edges.last, strict=True)):
        some = last >= first
        a, b, y, w = first[some], last[some] + 1, Y[some], edges.weights_of(run)[some]
        if np.all(b - a == 1):
            total += w @ (y - Y[a]) ** 2
        else:
            inner = y * (sums[b] - sums[a])
            total += w @ ((b - a)[:, None] * y**2 + squares[b] - squares[a] - 2 * inner)
    return np.asarray(2 * total)


def _slowest(gamma: Any, v: Floats, R: float, n_responses: int | None) -> tuple[Floats, Floats]:
    """Smallest Delta values and responses (unit weighted variance, constant left out) of weights gamma, v."""
    n, Q = len(v), v.sum()
    k = n - 1 if n_responses is None else min(n_responses, n - 1)
    d = np.asarray(gamma.sum(axis=1)).ravel()
    root = np.sqrt(v)
    constant = root / np.linalg.norm(root)
    if n <= MAX_DENSE or k > n // 4:
        if n > MAX_WHOLE:
            raise ValueError(
                f"n_responses={n_responses}: {k:,} free responses of {n:,} groups or samples are too many to be found "
                f"at once; ask for at most {n // 4:,} of the slowest"
            )
        A = 2 * Q / R * (np.diag(d) - gamma.toarray()) / np.outer(root, root)
        # Delta is at most 4 for consistent graphs; the constant response is moved out of the way.
        bound = max(8.0, 2 * float(np.abs(A).sum(axis=1).max()))
        values, vectors = scipy.linalg.eigh(A + bound * np.outer(constant, constant), driver="evd")
        values, vectors = values[:k], vectors[:, :k]
    else:
        inverse = sp.diags_array(1 / root)
        laplacian = sp.csc_array(2 * Q / R * (inverse @ (sp.diags_array(d) - gamma) @ inverse))
        values, vectors = _few_slowest(laplacian, constant, k)
    return values, np.asarray((vectors / root[:, None] * np.sqrt(Q)).T)


def _few_slowest(laplacian: sp.csc_array, constant: Floats, k: int) -> tuple[Floats, Floats]:
    """Smallest eigenvalues and eigenvectors of a sparse Laplacian, other than the constant one.

    Many responses may be as slow as the constant (a graph in several pieces), so it is taken out beforehand.
    """
    n = len(constant)
    solve = scipy.sparse.linalg.splu(laplacian + 1e-3 * sp.eye_array(n, format="csc")).solve

    def without_constant(x: Floats) -> Floats:
        return np.asarray(x - constant * (constant @ x))

    inverse = scipy.sparse.linalg.LinearOperator(
        (n, n), matvec=lambda x: without_constant(solve(without_constant(x.ravel()))), dtype=np.float64
    )
    start = without_constant(np.random.default_rng(0).standard_normal(n))
    values, vectors = scipy.sparse.linalg.eigsh(inverse, k=k, which="LA", v0=start)
    order = np.argsort(values)[::-1]
    return 1 / values[order] - 1e-3, vectors[:, order]
