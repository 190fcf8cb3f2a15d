"""Samples divided into folds, so that features can be judged on samples that training has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import as_labels, find_classes, numeric, pick_label
from higsfa.graphs.label import CodeGraph
from higsfa.graphs.recipes import ClusteredGraph, EdgeGraph, GraphRecipe, SequenceGraph, WindowGraph, _terms


def divide(recipe: GraphRecipe, y: Any, groups: Any, n_samples: int, n_folds: int) -> np.ndarray | None:
    """The fold of each sample, (N,) from 0 to n_folds - 1; None if the graph cannot be cut into so many.

    Samples of a group (a recording, a person, copies of an image) stay together. Folds have all labels in like
    proportions: groups are dealt out in the order of their labels, each to the smallest fold.
    """
    parts = _terms(recipe)[0]
    is_time = any(
        isinstance(part, SequenceGraph)
        or (isinstance(part, WindowGraph) and (part.label is False or (part.label is None and y is None)))
        for part in parts
    )
    is_odd = groups is not None and np.shape(groups) != (n_samples,)  # an error that is told elsewhere
    if any(isinstance(part, EdgeGraph) for part in parts) or (is_time and groups is None) or is_odd:
        return None
    group = np.arange(n_samples) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].ravel()
    order = np.lexsort(_sort_keys(parts, y, n_samples))
    _, first = np.unique(group[order], return_index=True)  # the first sample of each group, in the order of labels
    dealt = group[order][np.sort(first)]
    if len(dealt) < n_folds:
        return None
    sizes = np.bincount(group)
    fold_of = np.empty(len(sizes), dtype=np.intp)
    if np.all(sizes == sizes[0]):
        fold_of[dealt] = np.arange(len(dealt)) % n_folds
    else:
        filled = np.zeros(n_folds, dtype=np.intp)
        for one in dealt.tolist():
            fold_of[one] = smallest = int(np.argmin(filled))
            filled[smallest] += sizes[one]
    return fold_of[group]


def _sort_keys(parts: list[GraphRecipe], y: Any, n_samples: int) -> list[np.ndarray]:
    """Keys for `lexsort`: the labels that a graph uses, as numbers; rows keep their order among equals."""
    keys: list[Any] = [np.arange(n_samples)]
    for part in reversed(parts):
        label = getattr(part, "label", False)
        if label is not False and y is not None:
            values = pick_label(y, label, n_samples)
            is_class = isinstance(part, ClusteredGraph | CodeGraph)
            keys.append(_in_order(find_classes(values)[0]) if is_class else numeric(values, "label"))
    return keys


def _in_order(codes: np.ndarray) -> np.ndarray:
    """Codes of classes, numbered in the order in which they come first."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def take_labels(y: Any, rows: np.ndarray) -> Any:
    """The labels of some samples."""
    if isinstance(y, Mapping):
        return {name: take_labels(column, rows) for name, column in y.items()}
    return None if y is None else y.iloc[rows] if hasattr(y, "iloc") else as_labels(y)[rows]


def graph_of(recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, rows: np.ndarray) -> TrainingGraph:
    """The graph of some of the samples."""
    groups = None if groups is None else np.asarray(groups)[rows]
    return recipe.build(take_labels(y, rows), sample_weight=w[rows], groups=groups, n_samples=len(rows))
