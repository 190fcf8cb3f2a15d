"""From a recipe to statistics: of the kind that adds (batches, parts at several places, folds) where that is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from higsfa.core.graph.labels import find_classes, label_names, pick_label
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.tile import unit_of
from higsfa.graphs.label import CodeGraph, LabelGraph
from higsfa.graphs.recipes import ClusteredGraph, GraphRecipe, _terms, as_recipe
from higsfa.training.gather import NodeData
from higsfa.training.statistics import (
    MAX_CLASS_CHANNELS,
    ClassRule,
    GraphStatistics,
    Statistics,
    Summation,
    sum_classes,
    sum_labels,
)


def why_not_additive(graph: Any) -> str:
    """Why sums of parts of the data do not add for this graph; empty if they do."""
    recipe = as_recipe(graph)
    if any(isinstance(part, LabelGraph) and part.label_range is None for part in _terms(recipe)[0]):
        return "a LabelGraph needs to know all labels there may be: give it label_range=(low, high)"
    if not (isinstance(recipe, ClusteredGraph | CodeGraph) or recipe.is_low_rank):
        return (
            f"graph={graph!r} depends on all labels at once; batches add up for numbers with "
            "graph=LabelGraph(label_range=(low, high)) and for classes with graph='clustered' or 'code'"
        )
    return ""


def adds(recipe: GraphRecipe, y: Any, n_samples: int, most: float = np.inf) -> bool:
    """Whether sums of parts of the data add for this recipe, with at most so many classes."""
    if isinstance(recipe, ClusteredGraph | CodeGraph):
        return len(_classes(y, recipe, n_samples)[1]) <= most
    return recipe.is_low_rank


def summation(recipe: GraphRecipe, y: Any, w: np.ndarray, most: float = np.inf) -> Summation | None:
    """How samples are summed such that parts add; None if the recipe or more than `most` classes forbid it."""
    if isinstance(recipe, ClusteredGraph | CodeGraph):
        codes, classes = _classes(y, recipe, len(w))
        return sum_classes(codes, classes, w, recipe.origin(y), _rule(recipe)) if len(classes) <= most else None
    if recipe.is_low_rank:
        unit = unit_of(w)
        return sum_labels(recipe.build(y, sample_weight=w / unit, n_samples=len(w)), unit, recipe.origin(y))
    return None


def gather_graph(
    data: NodeData, recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any, most: float = MAX_CLASS_CHANNELS
) -> Statistics:
    """Statistics of samples; of the kind that adds where the recipe allows it, and at most so many classes."""
    parts = summation(recipe, y, w, most)
    if parts is not None:
        data = replace(data, dtype=np.dtype(np.float64)) if recipe.is_low_rank else data
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
