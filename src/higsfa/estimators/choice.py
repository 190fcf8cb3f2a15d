"""Samples set aside, on which estimators choose what their parameters leave open ("auto")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from numbers import Integral
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from higsfa.core.graph.build import NotEnoughData, check_groups
from higsfa.core.graph.edges import AtomEdges, LowRankEdges
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import as_labels, find_classes, numeric, pick_label
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.held_out import noise_level
from higsfa.core.sums.plan import BLOCK, make_plan
from higsfa.core.sums.sums import Sums, part_of
from higsfa.core.sums.tile import CellPlan, Weighting
from higsfa.graphs.label import CodeGraph, adds, gather_graph
from higsfa.graphs.order import EdgeGraph, WindowGraph
from higsfa.graphs.recipes import ClusteredGraph, GraphRecipe, SequenceGraph, _terms
from higsfa.training.gather import NodeData
from higsfa.training.sources import Source
from higsfa.training.statistics import MAX_CLASS_CHANNELS, GraphStatistics, Statistics

if TYPE_CHECKING:
    from higsfa.training.choice import Part

Division = tuple[Statistics, Statistics]
"""Statistics of the samples that features are trained on, and of those that they are judged by."""
Gathered = tuple[Sums, np.ndarray, Frontend, float]
"""Sums, shift, frontend and precision."""
MAX_SAMPLES = 5_000
"""Most samples of each half."""
MAX_BYTES = 2**31
"""Sums of all folds are gathered in one pass as long as they take no more memory."""


def divide(recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, cv: Any) -> np.ndarray | None:
    """The fold of each sample, (N,) from 0 on; None if the graph cannot be cut.

    Samples of a group (a recording, a person, copies of an image) stay together, so there are no more folds than
    groups. Folds have all labels in like proportions: groups are dealt out in the order of their labels, each to the
    fold of the smallest weight, so that a sample of weight k counts as a group of k copies.
    """
    parts, n = _terms(recipe)[0], len(w)
    is_time = any(
        isinstance(part, SequenceGraph)
        or (isinstance(part, WindowGraph) and (part.label is False or (part.label is None and y is None)))
        for part in parts
    )
    groups = None if groups is None else check_groups(groups, n)
    if any(isinstance(part, EdgeGraph) for part in parts) or (is_time and groups is None):
        return None
    if not isinstance(cv, Integral | None):
        return _given_folds(cv, y, groups, n)
    group = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    order = np.lexsort(_sort_keys(parts, y, w))
    order = order[w[order] > 0]
    _, first = np.unique(group[order], return_index=True)  # the first sample of each group, in the order of labels
    dealt = group[order][np.sort(first)]
    n_folds = min(5 if cv is None else int(cv), len(dealt))
    if n_folds < 2:
        return None
    sizes = np.bincount(group, w)
    fold_of = np.zeros(len(sizes), dtype=np.intp)  # groups without weight are in no sum, whatever their fold
    if np.all(sizes[dealt] == sizes[dealt[0]]):
        fold_of[dealt] = np.arange(len(dealt)) % n_folds
    else:
        filled = np.zeros(n_folds)
        for one in dealt.tolist():
            fold_of[one] = smallest = int(np.argmin(filled))
            filled[smallest] += sizes[one]
    return fold_of[group]


def _given_folds(cv: Any, y: Any, groups: Any, n_samples: int) -> np.ndarray:
    """Folds of a splitter of scikit-learn, or of pairs of rows for training and for testing."""
    from sklearn.model_selection import check_cv  # takes longer to import than the rest of us

    label = y if isinstance(y, np.ndarray) and y.ndim == 1 else None
    fold, is_good = np.full(n_samples, -1, dtype=np.intp), True
    for k, (train, test) in enumerate(check_cv(cv).split(np.zeros((n_samples, 1)), label, groups)):
        is_good &= len(train) + len(test) == n_samples and bool(np.all(fold[test] < 0))
        fold[test] = k
    if not is_good or np.any(fold < 0):
        raise ValueError("cv must divide the samples into folds, each tested once and trained on all others")
    return fold


def _sort_keys(parts: list[GraphRecipe], y: Any, w: np.ndarray) -> list[np.ndarray]:
    """Keys for `lexsort`: the labels that a graph uses, as numbers; rows keep their order among equals."""
    keys: list[Any] = [np.arange(len(w))]
    for part in reversed(parts):
        label = getattr(part, "label", False)
        if label is not False and y is not None:
            values = pick_label(y, label, len(w))
            is_class = isinstance(part, ClusteredGraph | CodeGraph)
            keys.append(_in_order(find_classes(values)[0], w > 0) if is_class else numeric(values, "label"))
    return keys


def _in_order(codes: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Codes of classes, numbered in the order in which they come first among the samples that count."""
    found, first = np.unique(codes[counted], return_index=True)
    rank = np.zeros(codes.max(initial=-1) + 2, dtype=np.intp)
    rank[found] = np.argsort(np.argsort(first))  # the last entry is that of -1, no class
    return rank[codes]


def take_labels(y: Any, rows: np.ndarray) -> Any:
    """The labels of some samples."""
    if isinstance(y, Mapping):
        return {name: take_labels(column, rows) for name, column in y.items()}
    return None if y is None else y.iloc[rows] if hasattr(y, "iloc") else as_labels(y)[rows]


def graph_of(recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, rows: np.ndarray) -> TrainingGraph:
    """The graph of some of the samples."""
    groups = None if groups is None else np.asarray(groups)[rows]
    return recipe.build(take_labels(y, rows), sample_weight=w[rows], groups=groups, n_samples=len(rows))


def copies_together(source: Source, groups: Any) -> Any:
    """What must not be divided: the groups that are given, or the copies of each sample."""
    return source.sample_index if groups is None and source.is_repeated else groups


def find_parts(source: Source, recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any) -> tuple[Part, Part] | None:
    """Two thirds of the samples to train on, and one to judge by, for a settled recipe; None if there are too few.

    No more than MAX_SAMPLES to train on, and half of that to judge by.
    """
    from higsfa.training.choice import Part  # here, as single nodes need not wait for networks

    n_folds = max(3, -(-2 * len(source) // MAX_SAMPLES))
    fold = divide(recipe, y, w, copies_together(source, groups), n_folds)
    if fold is None:
        return None
    parts = []
    for own in ((1, 2), (0,)):
        rows = np.flatnonzero(np.isin(fold, own))
        try:
            share = float(w[rows].sum() / w.sum())
            parts.append(Part(source[rows], graph_of(recipe, y, w, groups, rows), share))
        except NotEnoughData:
            return None
    return parts[0], parts[1]


def noise_of_folds(recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, fold: np.ndarray) -> float:
    """Delta of noise on unseen samples."""
    graphs = []
    for k in range(fold.max() + 1):
        with suppress(NotEnoughData):
            graphs.append(graph_of(recipe, y, w, groups, np.flatnonzero(fold == k)))
    return noise_level(graphs)


def gather_folds(
    data: NodeData, recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, fold: np.ndarray
) -> tuple[Statistics, list[Division]]:
    """Statistics of all samples, and of every fold and its complement, as if each had been gathered alone.

    Where sums add, those of the folds are all that is needed. Elsewhere graphs are cut anew without each fold, and the
    sums of all these graphs are gathered side by side: the products of samples are the same, only their weights differ.
    """
    rows = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
    if adds(recipe, y, len(w), MAX_CLASS_CHANNELS):
        return add_folds([gather_graph(subset(data, own), recipe, take_labels(y, own), w[own], None) for own in rows])
    whole = recipe.build(y, sample_weight=w, groups=groups, n_samples=len(w))
    graphs, within = [whole], [np.ones(len(rows), dtype=bool)]
    for k in range(len(rows)):
        others = np.arange(len(rows)) != k
        try:
            pair = [graph_of(recipe, y, w, groups, np.flatnonzero(which[fold])) for which in (others, ~others)]
        except NotEnoughData:
            continue
        graphs, within = [*graphs, *pair], [*within, others, ~others]
    several = _gather_several(data, graphs, within, fold)
    found: list[Any] = [GraphStatistics(*sums, recipe.origin(y), weighting) for sums, weighting in several]
    return found[0], list(zip(found[1::2], found[2::2], strict=True))


def add_folds(folds: list[Any]) -> tuple[Any, list[Any]]:
    """Statistics of all samples, and of every complement and its fold, where those of parts add."""
    return reduce(add, folds), [(reduce(add, folds[:k] + folds[k + 1 :]), folds[k]) for k in range(len(folds))]


def subset(data: NodeData, rows: np.ndarray) -> NodeData:
    """Some of the samples."""
    read: Callable[..., Any] = data.read
    return replace(data, read=lambda some: read(rows[some]))


def _gather_several(
    data: NodeData, graphs: list[TrainingGraph], within: list[np.ndarray], fold: np.ndarray
) -> list[tuple[Gathered, Weighting]]:
    """For each graph its sums, shift, frontend and precision, and its weighting."""
    n = len(fold)
    if all(isinstance(part.edges, AtomEdges) for graph in graphs for part in graph.parts):
        several = [graphs[0]] + [
            _embedded(graph, np.flatnonzero(which[fold]), n)
            for graph, which in zip(graphs[1:], within[1:], strict=True)
        ]
        plan = CellPlan.of(several, BLOCK, folds=(fold, np.stack(within)))
        if 24 * plan.n_channels * data.frontend.n_variables**2 <= MAX_BYTES:
            sums, shift, frontend, precision = data.gather(plan)
            parts = [part_of(sums, plan.weightings[0])] + [(sums, weighting) for weighting in plan.weightings[1:]]
            return [((own, shift, frontend, precision), weighting) for own, weighting in parts]
    found = []
    for graph, which in zip(graphs, within, strict=True):
        plan_of_one = make_plan(graph)
        found.append((subset(data, np.flatnonzero(which[fold])).gather(plan_of_one), plan_of_one.weighting))
    return found


def _embedded(graph: TrainingGraph, rows: np.ndarray, n: int) -> TrainingGraph:
    """A graph of some of n samples as a graph of all of them; the others have no edges and weight 0."""

    def spread(values: np.ndarray, rest: float) -> np.ndarray:
        out = np.full((n, *values.shape[1:]), rest, dtype=values.dtype)
        out[rows] = values
        return out

    parts = []
    for part in graph.parts:
        edges: Any = part.edges
        moved = {"atoms": spread(edges.atoms, -1), "sample_weight": spread(edges.sample_weight, 0)}
        if isinstance(edges, LowRankEdges):
            moved["functions"] = spread(edges.functions, 0)
        parts.append(replace(part, edges=replace(edges, **moved)))
    return TrainingGraph(tuple(parts), spread(graph.sample_weight, 0))
