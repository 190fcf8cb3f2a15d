"""Statistics of one node as users hold them: sums, and how they become a graph's covariances.

Statistics of parts of the data add up (``a + b``), so that parts can be gathered in different places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.covariances import Covariances, Weighting, covariances
from higsfa.core.edges import ChainEdges
from higsfa.core.graph import TrainingGraph
from higsfa.core.nodes import Frontend, Node
from higsfa.core.solvers import NodeOptions, solve_node
from higsfa.core.statistics import Sums, merge, shifted, zero
from higsfa.core.tiles import Plan, class_plan, make_plan, sequence_plan
from higsfa.training.passes import Reader, gather, guarded

Floats = NDArray[np.float64]


class NotEnoughData(ValueError):
    """The samples seen so far do not make a graph."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over samples, and the way from sums to covariances.

    Attributes
    ----------
    sums, shift : sums of t - shift.
    frontend : the expansion and centre that made t.
    precision : machine epsilon of the products.
    """

    sums: Sums
    shift: Floats
    frontend: Frontend
    precision: float

    def weighting(self) -> Weighting:
        """How channels and group sums become weightings."""
        raise TypeError(f"{type(self).__name__} has no weighting")

    def covariances(self) -> Covariances:
        return covariances(self.sums, self.weighting(), self.shift, self.precision)

    def solve(self, options: NodeOptions, *, clip_range: bool = True) -> Node:
        """Train the node."""
        frontend = self.frontend
        if clip_range and not frontend.expansion.is_linear:
            frontend = guarded(frontend, self.sums, self.precision)
        return solve_node(self.covariances(), frontend, self.shift, options)

    def __add__(self, other: object) -> Any:
        if not isinstance(other, Statistics):
            return NotImplemented
        if type(other) is not type(self):
            raise ValueError(
                f"statistics of different kinds cannot be added: {type(self).__name__}, {type(other).__name__}"
            )
        a, b = self.frontend, other.frontend
        if (a.expansion, a.n_inputs) != (b.expansion, b.n_inputs) or not np.array_equal(a.center, b.center):
            raise ValueError("statistics of different inputs, expansions or centres cannot be added")
        first, second = self._aligned(other)
        moved = shifted(second.sums, second.shift - first.shift)
        precision = max(first.precision, second.precision)
        return replace(first, sums=merge(first.sums.copy(), moved), precision=precision)

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        """Both with the same channels."""
        return self, other


@dataclass(frozen=True, eq=False)
class GraphStatistics(Statistics):
    """Statistics for a graph that was known beforehand; parts add up if they are parts of the same graph."""

    known: Weighting

    def weighting(self) -> Weighting:
        return self.known

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        mine, theirs = self.known, other.known
        same = len(mine.couplings) == len(theirs.couplings) and mine.mix.shape == theirs.mix.shape
        same = same and np.array_equal(mine.mix, theirs.mix) and mine.edge_weight == theirs.edge_weight
        if not same:
            raise ValueError("statistics of different graphs cannot be added: build one graph from all labels first")
        return self, other


@dataclass(frozen=True, eq=False)
class SequenceStatistics(Statistics):
    """Statistics of recordings; adding two adds recordings, without a transition between them."""

    def weighting(self) -> Weighting:
        if self.sums.edge_weight == 0:
            raise NotEnoughData("no two samples are neighbours in time: fit on more samples, or with a smaller lag")
        return Weighting(np.array([[1.0], [0.0], [1.0]]), (), self.sums.edge_weight)


@dataclass(frozen=True, eq=False)
class ClassStatistics(Statistics):
    """Statistics class by class: enough for a clustered graph once all samples have been seen."""

    classes: tuple[Any, ...]
    self_loops: bool

    def weighting(self) -> Weighting:
        """Edges 1/(N_s - 1) without self pairs, or 1/N_s with them; v = 1 for samples with partners."""
        masses = self.sums.weights[1 : self.sums.n_channels]
        kept = masses > (0 if self.self_loops else 1 + 1e-12)
        if kept.sum() < 2:
            raise NotEnoughData(
                f"a clustered graph needs at least two classes with two or more samples, found {int(kept.sum())}"
            )
        inverse = np.zeros(len(masses))
        inverse[kept] = 1.0 / (masses[kept] - (0.0 if self.self_loops else 1.0))
        K = np.zeros((len(masses) + 1, len(masses) + 1))
        K[1:, 1:] = np.diag(inverse)
        mix = np.ones((3, self.sums.n_channels))
        mix[0] = np.concatenate([[0.0], kept])
        mix[1] = np.concatenate([[0.0], masses * inverse])
        return Weighting(mix, (K,), float(masses[kept].sum()))

    def covariances(self) -> Covariances:
        sums = self.sums
        doubled = replace(
            sums, weights=np.concatenate([sums.weights] * 2), first=np.concatenate([sums.first] * 2)
        )  # channels are classes, so their weighted sums are the group sums too
        return covariances(doubled, self.weighting(), self.shift, self.precision)

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        if self.self_loops != other.self_loops:
            raise ValueError("statistics with and without self-loops cannot be added")
        classes = self.classes + tuple(c for c in other.classes if c not in set(self.classes))
        return self.with_classes(classes), other.with_classes(classes)

    def with_classes(self, classes: tuple[Any, ...]) -> ClassStatistics:
        """The same sums, with channels for these classes in this order."""
        at = np.array([0] + [1 + classes.index(c) for c in self.classes])
        old = self.sums
        sums = zero(len(old.low), old.n_variables, len(classes) + 1, 0, has_edges=False)
        sums.weights[at], sums.first[at], sums.second[at] = old.weights, old.first, old.second
        sums = replace(sums, low=old.low.copy(), high=old.high.copy())
        return replace(self, sums=sums, classes=classes)


@dataclass(frozen=True)
class Setting:
    """What is fixed before gathering: the frontend and the precision of the products."""

    frontend: Frontend
    dtype: np.dtype[Any]

    def run(self, read: Reader, plan: Plan) -> tuple[Sums, Floats, Frontend, float]:
        sums, shift = gather(read, plan, self.frontend, self.dtype)
        return sums, shift, self.frontend, float(np.finfo(self.dtype).eps)


def gather_graph(read: Reader, graph: TrainingGraph, setting: Setting) -> Statistics:
    """Statistics of all samples of a graph."""
    plan = make_plan(graph)
    return GraphStatistics(*setting.run(read, plan), Weighting.of(plan))


def gather_sequence(read: Reader, graph: TrainingGraph, setting: Setting, n_before: int = 0) -> SequenceStatistics:
    """Statistics of recordings; of the first `n_before` samples only the edges that start there are counted."""
    assert all(isinstance(part.edges, ChainEdges) for part in graph.parts)
    return SequenceStatistics(*setting.run(read, sequence_plan(n_before, graph)))


def gather_classes(
    read: Reader,
    codes: NDArray[np.intp],
    classes: tuple[Any, ...],
    w: Floats,
    setting: Setting,
    *,
    self_loops: bool,
) -> ClassStatistics:
    """Statistics class by class; code -1 is a sample without a class."""
    plan = class_plan(codes, len(classes), w)
    return ClassStatistics(*setting.run(read, plan), classes, self_loops)
