"""Recipes whose edges are of low rank, what labels get by themselves, and statistics that add, also for classes.

The features that graphs of low rank ask for are functions of the labels themselves. Their sums need no sorting and no
groups, so they can be gathered batch by batch, at several places and fold by fold, added and subtracted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from higsfa.core.graph import build
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import KINDS, find_classes, holds_classes, label_names, numeric, pick_label, read_kinds
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.tile import unit_of
from higsfa.graphs.recipes import ClusteredGraph, GraphRecipe, GraphSum, _check_count, _name, _terms, as_recipe
from higsfa.training.gather import NodeData
from higsfa.training.statistics import (
    MAX_CLASS_CHANNELS,
    ClassRule,
    GraphStatistics,
    Origin,
    Statistics,
    Summation,
    sum_classes,
    sum_labels,
)

N_NUMBER_FUNCTIONS = 32
"""Functions of the rank of a number in an automatic graph; as many as there are groups in a serial graph."""
_RANGE = re.compile(r"(?<=label_range=)\([^)]*\)")


class LabelGraph(GraphRecipe):
    r"""Regression, exactly: the slowest features that the graph allows are the label and cosines of it.

    Functions :math:`1, l, \cos(\pi u), \cos(2 \pi u), ...` of the label l, with u from 0 to 1 over its range, are
    made orthonormal in this order. Function j shall have :math:`\Delta_j`; edges of weight
    :math:`\gamma_{nn'} = \frac{v_n v_{n'}}{Q} \sum_j (1 - \Delta_j / 2) l_j(n) l_j(n')` do that (Escalante-B. and
    Wiskott, JMLR 17(157), 2016). With a given range all sums add, so `partial_fit` is exact for any batches.

    Parameters
    ----------
    label : str or int, optional
        Which label, where there are several.
    n_harmonics : int, default=9
        Number of cosines.
    label_range : (low, high), optional
        The range of the label; that of the data by default. Labels outside are refused. Needed for `partial_fit`.
    deltas : sequence of float, optional
        The wanted Delta values of the label and of each cosine, from 0 to 2; 2 j / (J + 1) by default, j = 1 .. J.
    ranks : bool, default=False
        Take functions of the rank of the label, from 0 to 1, instead of its value, so that a few very large values do
        not matter. Ranks depend on all labels, so batches do not add up then.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.graphs import LabelGraph
    >>> graph = LabelGraph(n_harmonics=2).build(np.array([20.0, 30.0, 31.0, 45.0, 60.0]))
    >>> graph.free_responses().delta_values[:3].round(3).tolist()
    [0.5, 1.0, 1.5]
    """

    def __init__(
        self,
        label: Any = None,
        n_harmonics: int = 9,
        label_range: Any = None,
        deltas: Any = None,
        ranks: bool = False,
    ) -> None:
        self.label = label
        self.n_harmonics = n_harmonics
        self.label_range = label_range
        self.deltas = deltas
        self.ranks = ranks

    @property
    def adds(self) -> bool:  # type: ignore[override]
        return not self.ranks

    def settled(self, y: Any, w: np.ndarray, label_kinds: Any = None) -> LabelGraph:
        if self.label_range is not None or self.ranks:
            return self
        _, _, *found = self.check(pick_label(y, self.label, len(w)), w)
        return LabelGraph(self.label, self.n_harmonics, tuple(found), self.deltas)

    def makes(self, origin: Origin) -> bool:
        if self.label_range is not None:
            return super().makes(origin)
        any_range = Origin(tuple((factor, _RANGE.sub("None", name), label) for factor, name, label in origin.terms))
        return super().makes(any_range)

    def check(self, values: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Labels as numbers, which of them are present, and their range; an error if they do not fit the recipe."""
        values = numeric(values, "LabelGraph")
        present = ~np.isnan(values) & (w > 0)
        return values, present, *self._range(values[present], _name("label", self.label))

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        _check_count("n_harmonics", self.n_harmonics, 0)
        name = _name("label", self.label)
        values, present, low, high = self.check(pick_label(y, self.label, n), w)
        if self.ranks:
            u = _ranks(values, np.where(present, w, 0.0))
        else:
            u = (np.where(present, values, low) - low) / (high - low)
        harmonics = np.cos(np.pi * u[:, None] * np.arange(1, self.n_harmonics + 1))
        functions = np.column_stack([np.ones(n), 2.0 * u - 1.0, harmonics])
        return build.low_rank(functions, self._deltas(), present, w, name=name)

    def _range(self, present: np.ndarray, name: str) -> tuple[float, float]:
        """The range of the label; all values that are present lie in it."""
        if self.label_range is None:
            if len(present) == 0:
                raise build.NotEnoughData(f"{name}: all values of the label are missing")
            low, high = float(present.min()), float(present.max())
            if low == high:
                raise build.NotEnoughData(
                    f"{name}: the label has one distinct value ({low!r}); there is nothing to order"
                )
            return low, high
        if self.ranks:
            raise ValueError(f"{name}: label_range and ranks=True exclude each other; leave one out")
        low, high = self._given_range()
        outside = present[(present < low) | (present > high)]
        if len(outside):
            raise ValueError(
                f"{name}: {len(outside)} labels such as {outside[0]:g} lie outside label_range=({low:g}, {high:g}); "
                "give a range that holds all labels there may be"
            )
        return low, high

    def _given_range(self) -> tuple[float, float]:
        try:
            low, high = (float(value) for value in self.label_range)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"label_range must be two numbers, the lower one first, got {self.label_range!r}")
        return low, high

    def _deltas(self) -> np.ndarray:
        J = int(self.n_harmonics) + 1
        if self.deltas is None:
            return np.concatenate([[0.0], 2.0 * np.arange(1, J + 1) / (J + 1)])
        deltas = np.asarray(self.deltas, dtype=np.float64)
        if deltas.shape != (J,) or not np.all((deltas >= 0) & (deltas <= 2)):
            raise ValueError(f"deltas must be {J} numbers from 0 to 2, one for the label and each harmonic")
        return np.concatenate([[0.0], deltas])


class CodeGraph(GraphRecipe):
    """Classes in few features: the slowest features are binary digits of the number of the class.

    C classes need C - 1 features of a clustered graph, but log2 C digits tell them apart. The digits shall have Delta
    0; products of digits follow, highest order first, with Delta values that rise to 2 (Escalante-B. and Wiskott, JMLR
    17(157), 2016). Classes are numbered in ascending order.

    Parameters
    ----------
    label : str or int, optional
        Which label, where there are several.
    n_features : int, optional
        How many codes are asked for, digits and products of them; all by default.

    Examples
    --------
    >>> from higsfa.graphs import CodeGraph
    >>> graph = CodeGraph().build(list("aabbccdd"))
    >>> graph.free_responses().n_below(0.01)  # two digits tell four classes apart
    2
    """

    def __init__(self, label: Any = None, n_features: int | None = None) -> None:
        self.label = label
        self.n_features = n_features

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        if self.n_features is not None:
            _check_count("n_features", self.n_features, 1)
        name = _name("code", self.label)
        codes, classes = find_classes(pick_label(y, self.label, n))
        rank = np.empty(len(classes) + 1, dtype=np.intp)
        rank[sorted(range(len(classes)), key=lambda i: classes[i])] = np.arange(len(classes))
        rank[-1] = -1  # no class
        return build.coded(rank[codes], len(classes), self.n_features, w, name=name)


class AutoGraph(GraphRecipe):
    """Clustered for each label that names classes; for a number a label graph of its rank.

    :mod:`higsfa.core.graph.labels` has the rule; `label_kinds` of estimators overrules it. Of a number, four functions
    count: its rank and three cosines, with Delta values of 0.4 to 1.6. Cosines beyond are worth having only where
    there is room for more slow features, so they have Delta values just below 2. See ``docs/heads.md`` for why.

    Examples
    --------
    >>> from higsfa.graphs import AutoGraph
    >>> AutoGraph().build({"age": [20.5, 31.0, 45.5, 52.0], "gender": list("mfmf")})
    <TrainingGraph label('age') + clustered('gender'): 4 samples, 8 edges>
    """

    def settled(self, y: Any, w: np.ndarray, label_kinds: Any = None) -> GraphRecipe:
        names = label_names(y)
        if not names:
            raise ValueError(
                "y: graph='auto' requires y to be passed, but the target y is None; "
                "pass labels, or a graph such as SequenceGraph() for time series"
            )
        recipes: list[GraphRecipe] = []
        kinds = read_kinds(label_kinds, y)
        for name in names:
            pick_label(y, name, len(w))
            recipes.append(ClusteredGraph(name) if holds_classes(y, name, w > 0, kinds) else number_graph(name))
        return recipes[0] if len(recipes) == 1 else GraphSum(recipes)

    def kinds_taken(self, settled: GraphRecipe) -> dict[Any, str] | None:
        return {part.label: KINDS[isinstance(part, LabelGraph)] for part in _terms(settled)[0]}

    def makes(self, origin: Origin) -> bool:
        possible = [recipe.origin(None).terms[0][:2] for recipe in (ClusteredGraph(), number_graph())]
        return all(term[:2] in possible for term in origin.terms)

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        return self.settled(y, w)._build(y, w, groups, n)


def number_graph(label: Any = None) -> LabelGraph:
    """What an automatic graph takes for a number."""
    J = N_NUMBER_FUNCTIONS
    first, rest = [0.4, 0.8, 1.2, 1.6], [2.0 - 0.01 * (J + 1 - j) / (J + 1) for j in range(5, J + 1)]
    return LabelGraph(label, J - 1, deltas=[*first, *rest], ranks=True)


class UniformGraph(GraphRecipe):
    """All pairs of samples, labelled or not, with the same weight: every feature has Delta 2.

    Added to a graph of labels, ``SerialGraph() + 0.1 * UniformGraph()``, it lets samples without labels count in the
    covariance, and makes features that vary with noise less attractive: semi-supervised learning.

    Examples
    --------
    >>> from higsfa.graphs import SerialGraph, UniformGraph
    >>> recipe = SerialGraph(n_groups=2) + 0.1 * UniformGraph()
    >>> graph = recipe.build([20.0, 30.0, None, 50.0, 60.0])
    >>> graph.vertex_weights.round(2).tolist()  # the third sample has no label, but counts
    [1.1, 1.1, 0.1, 1.1, 1.1]
    """

    adds = True

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        return build.low_rank(np.ones((n, 1)), np.zeros(1), w > 0, w, name="uniform")


def _ranks(values: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1, in the middle of those of equal values; a sample of weight w counts w times."""
    ordered, inverse = np.unique(np.where(w > 0, values, np.inf), return_inverse=True)
    masses = np.bincount(inverse, w, minlength=len(ordered))
    middle = np.cumsum(masses) - masses / 2.0
    return np.asarray((middle / masses.sum())[inverse])


def why_not_additive(graph: Any) -> str:
    """Why sums of parts of the data do not add for this graph; empty if they do."""
    recipe = as_recipe(graph)
    if any(isinstance(part, LabelGraph) and part.label_range is None for part in _terms(recipe)[0]):
        return "a LabelGraph needs to know all labels there may be: give it label_range=(low, high), and no ranks"
    if not (isinstance(recipe, ClusteredGraph | CodeGraph) or recipe.adds):
        return (
            f"graph={graph!r} depends on all labels at once; batches add up for numbers with "
            "graph=LabelGraph(label_range=(low, high)) and for classes with graph='clustered' or 'code'"
        )
    return ""


def adds(recipe: GraphRecipe, y: Any, n_samples: int, most: float = np.inf) -> bool:
    """Whether sums of parts of the data add for this recipe, with at most so many classes."""
    if isinstance(recipe, ClusteredGraph | CodeGraph):
        return len(_classes(y, recipe, n_samples)[1]) <= most
    return recipe.adds


def summation(recipe: GraphRecipe, y: Any, w: np.ndarray, most: float = np.inf) -> Summation | None:
    """How samples are summed such that parts add; None if the recipe or more than `most` classes forbid it."""
    if isinstance(recipe, ClusteredGraph | CodeGraph):
        codes, classes = _classes(y, recipe, len(w))
        return sum_classes(codes, classes, w, recipe.origin(y), _rule(recipe)) if len(classes) <= most else None
    if recipe.adds:
        unit = unit_of(w)
        return sum_labels(recipe.build(y, sample_weight=w / unit, n_samples=len(w)), unit, recipe.origin(y))
    return None


def gather_graph(
    data: NodeData, recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, most: float = MAX_CLASS_CHANNELS
) -> Statistics:
    """Statistics of samples; of the kind that adds where the recipe allows it, and at most so many classes."""
    parts = summation(recipe, y, w, most)
    if parts is not None:
        data = replace(data, dtype=np.dtype(np.float64)) if recipe.adds else data
        return parts.statistics(*data.gather(parts.plan))
    origin, graph = recipe.origin(y), recipe.build(y, sample_weight=w, groups=groups, n_samples=len(w))
    plan = make_plan(graph)
    return GraphStatistics(*data.gather(plan), origin, plan.weighting)


def _rule(recipe: ClusteredGraph | CodeGraph) -> ClassRule:
    if isinstance(recipe, CodeGraph):
        return ClassRule(codes=True, n_features=recipe.n_features)
    return ClassRule(self_loops=bool(recipe.self_loops))


def _classes(y: Any, recipe: ClusteredGraph | CodeGraph, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class index of each sample (-1 for none), and the classes in that order."""
    if not label_names(y):
        raise ValueError("y: requires y to be passed, but the target y is None; a clustered graph is built from labels")
    codes, classes = find_classes(pick_label(y, recipe.label, n))
    return codes, tuple(value.item() if isinstance(value, np.generic) else value for value in classes)
