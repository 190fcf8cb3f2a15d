"""Samples set aside, on which estimators choose what their parameters leave open ("auto")."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.graphs.folds import divide, graph_of
from higsfa.graphs.recipes import GraphRecipe
from higsfa.training.choice import MAX_SAMPLES, Half
from higsfa.training.layer import LayerPlan
from higsfa.training.sources import Source


def copies_together(source: Source, groups: Any) -> Any:
    """What must not be divided: the groups that are given, or the copies of each sample."""
    return source.sample_index if groups is None and source.is_repeated else groups


def find_halves(
    plans: list[LayerPlan], source: Source, recipe: GraphRecipe, y: Any, w: np.ndarray, groups: Any
) -> tuple[Half, Half] | None:
    """Two halves of the samples, or two parts of MAX_SAMPLES; None if nothing is open or samples are too few."""
    if not any(plan.options.is_open for plan in plans):
        return None
    recipe, n = recipe.settled(y, w), len(source)
    fold = divide(recipe, y, copies_together(source, groups), n, max(2, -(-n // MAX_SAMPLES)))
    if fold is None:
        return None
    halves = []
    for k in (0, 1):
        rows = np.flatnonzero(fold == k)
        try:
            halves.append(Half(source[rows], graph_of(recipe, y, w, groups, rows)))
        except ValueError:  # the graph of all samples was built, so there are too few of them here
            return None
    return halves[0], halves[1]
