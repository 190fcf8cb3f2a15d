"""Statistics of one node as users hold them: sums, and how they become a graph's covariances.

Statistics of parts of the data add up (``a + b``), so that parts can be gathered in different places, and what was
added can be taken away again (``a - b``): whole recordings, samples of classes, samples with numbers as labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.graph.build import NotEnoughData, class_rates, code_couplings
from higsfa.core.graph.edges import LowRank
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import check_one_kind
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node
from higsfa.core.node.solve import NodeOptions, solve_node
from higsfa.core.sums.plan import SEQUENCE_MIX, class_plan, label_plan
from higsfa.core.sums.sums import (
    Covariances,
    Pool,
    Sums,
    Tree,
    covariances,
    group_products,
    merge,
    scaled,
    shifted,
    zero,
)
from higsfa.core.sums.tile import Plan, Weighting, unit_of

Floats = NDArray[np.float64]

LABEL_MIX = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
"""Vertex, edge and plain weights from the channels of label statistics."""
MAX_CLASS_CHANNELS = 32
"""Up to this number of classes, sums are kept class by class, so that fits on parts of the data can be added."""


@dataclass(frozen=True)
class Origin:
    """The graph that statistics were gathered for: a sum of recipes.

    Attributes
    ----------
    terms : for each recipe its factor, its name with all parameters but the label, and the name of the label (None for
        the only label there is, or for none).
    """

    terms: tuple[tuple[float, str, Any], ...]

    @classmethod
    def of(cls, recipe: str, label: Any = None) -> Origin:
        """A single recipe."""
        return cls(((1.0, recipe, label),))

    def fits(self, other: Origin) -> bool:
        """Whether both are the same graph, as far as labels have names."""
        return len(self.terms) == len(other.terms) and all(
            (factor, recipe) == (own_factor, own_recipe) and (label is None or own is None or label == own)
            for (factor, recipe, label), (own_factor, own_recipe, own) in zip(self.terms, other.terms, strict=True)
        )

    def __str__(self) -> str:
        return " + ".join(
            ("" if factor == 1.0 else f"{factor:g} * ") + recipe + ("" if label is None else f" of label {label!r}")
            for factor, recipe, label in self.terms
        )


INPUTS = Origin.of("inputs")  # moments that belong to no graph


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Sums over samples, and the way from sums to covariances.

    Attributes
    ----------
    sums, shift : sums of t - shift.
    frontend : the expansion and centre that made t.
    precision : relative rounding of data and products.
    origin : the graph.
    """

    sums: Sums
    shift: Floats
    frontend: Frontend
    precision: float
    origin: Origin

    def weighting(self) -> Weighting:
        """How channels and group sums become weightings."""
        raise TypeError(f"{type(self).__name__} has no weighting")

    def covariances(self) -> Covariances:
        """The covariances of the graph; a FloatingPointError if samples or their squares were not finite."""
        return covariances(self._grouped(), self.weighting(), self.shift, self.precision)

    def as_graph(self) -> GraphStatistics:
        """The same for the graph of the samples so far."""
        shared = self.shift, self.frontend, self.precision, self.origin
        return GraphStatistics(self._grouped(), *shared, self.weighting())

    def _grouped(self) -> Sums:
        """Channels, and below them the group sums that the couplings of the weighting belong to."""
        return self.sums

    @property
    def has_samples(self) -> bool:
        """Whether any sample of a weight was summed."""
        return bool(self.sums.weights.any())

    def n_vanished(self) -> int:
        """Number of variables that are not 0, but so small that their squares are."""
        sums = self.sums
        first = np.abs(sums.first[: sums.n_channels]).max(axis=0)
        is_there = first > 8 * self.precision * np.abs(self.shift) * sums.weights[: sums.n_channels].sum()
        return int(np.count_nonzero(is_there & (np.einsum("kii->i", sums.second) == 0)))

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and covariance (its lower triangle) of the variables, with sample weights."""
        cov = self.covariances()
        return cov.plain_mean + self.shift, cov.plain

    def solve(self, options: NodeOptions, *, clip_range: bool = True) -> Node:
        """Train the node. With `clip_range` it keeps the range of its inputs, against extrapolation."""
        frontend, sums = self.frontend, self.sums
        if clip_range and not frontend.expansion.is_linear:
            # A few roundings wider, so that no training sample is ever clipped.
            margin = 16 * self.precision * np.maximum(np.abs(sums.low), np.abs(sums.high))
            frontend = replace(frontend, low=sums.low - margin, high=sums.high + margin)
        return solve_node(self.covariances(), frontend, self.shift, options)

    def __add__(self, other: object) -> Any:
        return self._combined(other, 1.0) if isinstance(other, type(self)) else NotImplemented

    def __sub__(self, other: object) -> Any:
        """Statistics without the samples of `other`; the range of the inputs stays as it is."""
        if not isinstance(other, type(self)):
            return NotImplemented
        less = self._combined(other, -1.0)
        less._check_left(self)
        return less

    def scaled(self, factor: float) -> Any:
        """Statistics in which every sample counts `factor` times as much: old samples are forgotten by and by."""
        if not 0 < factor <= 1:
            raise ValueError(f"factor must be above 0 and at most 1, got {factor!r}")
        return replace(self, sums=scaled(self.sums, factor))

    def _combined(self, other: Any, sign: float) -> Any:
        """The sum or difference of both."""
        if not self.origin.fits(other.origin):
            raise _different(self, other)
        _check_same_inputs(self.frontend, other.frontend)
        first, second = self._aligned(other)
        moved = shifted(second.sums, second.shift - first.shift)
        sums = merge(first.sums.copy(), moved if sign == 1.0 else scaled(moved, sign))
        if sign != 1.0:
            sums = replace(sums, low=first.sums.low, high=first.sums.high)
        precision = max(first.precision, second.precision)
        origin = first.origin if first.origin.terms[0][2] is not None else second.origin
        return replace(first, sums=sums, precision=precision, origin=origin)

    def _check_left(self, before: Statistics) -> None:
        """Raise if what was taken away cannot have been in: weights or variances would be negative."""
        sums, old = self.sums, before.sums
        K = sums.n_channels
        slack = 1e-9 * np.abs(old.weights[: old.n_channels]).max(initial=0.0)
        mass = np.maximum(sums.weights[:K, None], slack)
        variances = np.einsum("kii->ki", sums.second) - sums.first[:K] ** 2 / np.where(mass > 0, mass, 1.0)
        room = 1e3 * self.precision * np.einsum("kii->i", np.abs(old.second))
        if np.any(sums.weights[:K] < -slack) or np.any(variances < -room):
            raise ValueError(
                f"{self}: the samples that are taken away were not all in: weights or variances would be negative"
            )

    def __radd__(self, other: object) -> Any:
        if isinstance(other, Statistics):
            raise _different(other, self)
        return NotImplemented

    __rsub__ = __radd__

    def __str__(self) -> str:
        return f"statistics for {self.origin}"

    def __repr__(self) -> str:
        return f"<{self}, {self.sums.first.shape[1]} variables>"

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        """Both with the same channels."""
        return self, other


def _different(a: Statistics, b: Statistics) -> ValueError:
    return ValueError(f"statistics of different graphs cannot be added: {a} and {b}")


def _check_same_inputs(a: Frontend, b: Frontend) -> None:
    """Raise if the variables of two parts are not the same functions of the input."""
    if a.n_inputs != b.n_inputs:
        what = f"{a.n_inputs} and {b.n_inputs} inputs"
    elif a.expansion != b.expansion:
        what = f"expansions '{a.expansion}' and '{b.expansion}'"
    elif not np.array_equal(a.center, b.center):
        far = int(np.argmax(np.abs(a.center - b.center)))
        what = (
            f"different centres (input {far}: {a.center[far]:g} and {b.center[far]:g}); "
            "give all parts the same center= before they are fitted"
        )
    else:
        return
    raise ValueError(f"statistics of different variables cannot be added: they have {what}")


@dataclass(frozen=True, eq=False, repr=False)
class GraphStatistics(Statistics):
    """Statistics for a graph that was built from all labels at once; those of two graphs are not those of a third."""

    known: Weighting

    def weighting(self) -> Weighting:
        return self.known

    def without_groups(self) -> GraphStatistics:
        """The same with products of group sums folded into the edge term, so that sums of several fields add."""
        sums, known = self.sums, self.known
        if not known.couplings and not known.mix[1].any():  # differences of neighbours only: there is nothing to fold
            return self
        K, T = sums.n_channels, sums.first.shape[1]
        edges = np.zeros((T, T)) if sums.edges is None else sums.edges.copy()
        edges -= 2.0 * group_products(sums, known)
        # Edge weighting and group term depend on the shift each, but not together, so both are folded.
        edges += 2.0 * np.tensordot(known.mix[1], sums.second, axes=1)
        folded = replace(sums, weights=sums.weights[:K], first=sums.first[:K], edges=edges)
        edgeless = replace(known, mix=known.mix * [[1.0], [0.0], [1.0]], couplings=(), rows=None)
        return replace(self, sums=folded, known=edgeless)

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        raise ValueError(
            f"{self} cannot be added: this graph is built from all samples at once. Statistics of parts add for time "
            "series (SFA, ISFA), for numbers (LabelGraph with a label_range) and for up to "
            f"{MAX_CLASS_CHANNELS} classes of one label (ClusteredGraph, CodeGraph)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class SequenceStatistics(Statistics):
    """Statistics of recordings; adding two adds recordings, without a transition between them."""

    def weighting(self) -> Weighting:
        if self.sums.edge_weight == 0:
            raise NotEnoughData("no two samples are neighbours in time: fit on more samples, or with a smaller lag")
        return Weighting(SEQUENCE_MIX[self.sums.n_channels], (), self.sums.edge_weight)


@dataclass(frozen=True, eq=False, repr=False)
class MomentStatistics(Statistics):
    """Moments with sample weights, for means and principal components; there is no graph."""

    def weighting(self) -> Weighting:
        return Weighting(np.ones((3, 1)), (), 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class LabelStatistics(Statistics):
    """Statistics for graphs of label functions. Channels are vertex weights and sample weights.

    Attributes
    ----------
    label_moments : for each graph, the sums of v h h^T over its functions h.
    deltas : for each graph, the wanted Delta values of its functions.
    """

    label_moments: tuple[NDArray[Any], ...]
    deltas: tuple[Floats, ...]

    def weighting(self) -> Weighting:
        R = float(sum(moments[0, 0] for moments in self.label_moments))
        if not R > 0:
            raise NotEnoughData("no sample has a label yet")
        couplings = [LowRank.of(M, deltas) for M, deltas in zip(self.label_moments, self.deltas, strict=True)]
        return Weighting(LABEL_MIX, tuple(couplings), R)

    def scaled(self, factor: float) -> LabelStatistics:
        less: LabelStatistics = super().scaled(factor)
        return replace(less, label_moments=tuple(factor * moments for moments in self.label_moments))

    def _combined(self, other: Any, sign: float) -> Any:
        both = super()._combined(other, sign)
        moments = (a + sign * b for a, b in zip(self.label_moments, other.label_moments, strict=True))
        return replace(both, label_moments=tuple(moments))


@dataclass(frozen=True)
class ClassRule:
    """How classes are joined: all pairs of a class, with or without self pairs; or by binary codes."""

    self_loops: bool = False
    codes: bool = False
    n_features: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ClassStatistics(Statistics):
    """Statistics class by class: enough for a graph of classes once all samples have been seen."""

    classes: tuple[Any, ...]
    rule: ClassRule

    def weighting(self) -> Weighting:
        """Clustered: edges 1/(N_s - 1) without self pairs, or 1/N_s with them; v = 1 for samples with partners."""
        masses = self.sums.weights[1 : self.sums.n_channels]
        if self.rule.codes:
            return self._coded(masses)
        kept, rates = class_rates(masses, self_loops=self.rule.self_loops, name="clustered")
        edges = np.zeros(self.sums.n_channels)
        edges[1:][kept] = rates
        mix = np.ones((3, self.sums.n_channels))
        mix[0] = edges > 0
        mix[1] = self.sums.weights * edges
        return Weighting(mix, (sp.csr_array(sp.diags_array(edges)),), float(masses[kept].sum()))

    def _coded(self, masses: Floats) -> Weighting:
        """Classes in ascending order have the codes 0, 1, ...; v = 1."""
        order = np.array(
            sorted(np.flatnonzero(masses > 1e-12 * masses.sum()), key=lambda i: self.classes[i]), dtype=np.intp
        )
        K = self.sums.n_channels
        couplings = np.zeros((K, K))
        couplings[np.ix_(1 + order, 1 + order)] = code_couplings(masses[order], self.rule.n_features, name="code")
        mix = np.ones((3, K))
        mix[:2] = np.isin(np.arange(K), 1 + order)
        return Weighting(mix, (sp.csr_array(couplings),), float(masses[order].sum()))

    def _grouped(self) -> Sums:
        # Channels are classes, so their weighted sums are the group sums too.
        weights, first = np.concatenate([self.sums.weights] * 2), np.concatenate([self.sums.first] * 2)
        return replace(self.sums, weights=weights, first=first)

    def _aligned(self, other: Any) -> tuple[Statistics, Statistics]:
        if self.classes == other.classes:
            return self, other
        check_one_kind(self.classes + other.classes)
        classes = self.classes + tuple(c for c in other.classes if c not in set(self.classes))
        return self.with_classes(classes), other.with_classes(classes)

    def with_classes(self, classes: tuple[Any, ...]) -> ClassStatistics:
        """The same sums, with channels for these classes in this order."""
        at = np.array([0] + [1 + classes.index(c) for c in self.classes])
        old = self.sums
        plan = class_plan(np.zeros(0, dtype=np.intp), len(classes), np.ones(1))
        sums = zero(len(old.low), old.first.shape[1], plan)
        sums.weights[at], sums.first[at], sums.second[at] = old.weights, old.first, old.second
        sums = replace(sums, low=old.low.copy(), high=old.high.copy())
        return replace(self, sums=sums, classes=classes)


class FieldTree:
    """Adds up the statistics of one node over several fields, of which each saw all samples; groups are folded already.

    Fields are added as they come, by several threads; they are merged in a fixed tree, so only few of them wait.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self._tree, self._lock = Tree(partial(_merge_fields, pool=pool)), Lock()

    def add(self, p: int, part: GraphStatistics) -> None:
        """Add the statistics over field p, which nobody else may hold: they are added to."""
        with self._lock:
            self._tree.add(p, (p, part))

    def total(self) -> GraphStatistics:
        whole: GraphStatistics = self._tree.total()[1]
        return whole


def _merge_fields(a: Any, b: Any, pool: Pool | None) -> tuple[int, GraphStatistics]:
    """Both, relative to the shift of the first field."""
    (p, first), (_, second) = sorted((a, b), key=lambda one: one[0])
    delta = second.shift - first.shift
    sums = merge(first.sums, shifted(second.sums, delta), pool)
    known = replace(first.known, edge_weight=first.known.edge_weight + second.known.edge_weight)
    return p, replace(first, sums=sums, known=known)


def add_fields(parts: Iterable[GraphStatistics]) -> GraphStatistics:
    """The total of a :class:`FieldTree`; the parts stay as they are."""
    tree = FieldTree()
    for p, part in enumerate(parts):
        tree.add(p, replace(part, sums=part.sums.copy()))
    return tree.total()


@dataclass(frozen=True, eq=False)
class Summation:
    """How samples are summed such that parts of the data add.

    Attributes
    ----------
    plan : of the samples of this part, with weights divided by `unit`.
    kind : of the statistics.
    known : what they hold besides sums, shift, frontend and precision.
    """

    plan: Plan
    unit: float
    kind: Callable[..., Statistics]
    known: tuple[Any, ...]

    def statistics(self, sums: Sums, shift: Floats, frontend: Frontend, precision: float) -> Statistics:
        return self.kind(sums if self.unit == 1.0 else scaled(sums, self.unit), shift, frontend, precision, *self.known)


def sum_inputs(w: Floats) -> Summation:
    """Moments with sample weights, without a graph."""
    nowhere = np.full(len(w), -1, dtype=np.intp)
    return Summation(class_plan(nowhere, 0, w / unit_of(w)), unit_of(w), MomentStatistics, (INPUTS,))


def sum_classes(
    codes: NDArray[np.intp], classes: tuple[Any, ...], w: Floats, origin: Origin, rule: ClassRule
) -> Summation:
    """Class by class; code -1 is a sample without a class."""
    plan = class_plan(codes, len(classes), w / unit_of(w))
    return Summation(plan, unit_of(w), ClassStatistics, (origin, classes, rule))


def sum_labels(graph: TrainingGraph, unit: float, origin: Origin) -> Summation:
    """For graphs of label functions, of which `graph` was built with sample weights divided by `unit`.

    Sums must be in double precision: functions of a label that fills little of its range are nearly dependent.
    """
    edges: list[Any] = [part.edges for part in graph.parts]
    moments, deltas = tuple(unit * one.moments() for one in edges), tuple(one.deltas for one in edges)
    return Summation(label_plan(graph), unit, LabelStatistics, (origin, moments, deltas))
