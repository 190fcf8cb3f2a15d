"""Recipes for training graphs: how labels or time become similarities between samples.

A recipe is a small scikit-learn object without data. ``recipe.build(y)`` turns labels into a
:class:`~higsfa.core.graph.graph.TrainingGraph`; estimators do that themselves. Recipes add and scale, so that one
set of features serves several labels:

>>> from higsfa.graphs import ClusteredGraph, SerialGraph
>>> recipe = SerialGraph("age", n_groups=4) + 0.5 * ClusteredGraph("gender")
>>> graph = recipe.build({"age": [20, 31, 45, 52, 38, 27, 60, 70], "gender": list("mfmfmfmf")})
>>> graph.is_consistent(), graph.n_edges
(True, 24)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import holds_classes, label_names, pick_label
from higsfa.graphs.label import CodeGraph, LabelGraph, UniformGraph
from higsfa.graphs.recipes import (
    ClusteredGraph,
    EdgeGraph,
    GraphRecipe,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
    check_weights,
)
from higsfa.training.statistics import Origin

__all__ = [
    "AutoGraph",
    "ClusteredGraph",
    "CodeGraph",
    "EdgeGraph",
    "GraphRecipe",
    "GraphSum",
    "LabelGraph",
    "MixedGraph",
    "SequenceGraph",
    "SerialGraph",
    "TrainingGraph",
    "UniformGraph",
    "WindowGraph",
    "as_recipe",
    "check_weights",
]


class AutoGraph(GraphRecipe):
    """Clustered for each label that names classes, else serial.

    Classes are strings, booleans, up to 20 distinct integers, and whatever is a pandas Categorical.
    """

    def settled(self, y: Any, w: np.ndarray) -> GraphRecipe:
        names = label_names(y)
        if not names:
            raise ValueError(
                "y: graph='auto' requires y to be passed, but the target y is None; "
                "pass labels, or a graph such as SequenceGraph() for time series"
            )
        recipes: list[GraphRecipe] = []
        for name in names:
            pick_label(y, name, len(w))
            recipes.append(ClusteredGraph(name) if holds_classes(y, name, w > 0) else SerialGraph(name))
        return recipes[0] if len(recipes) == 1 else GraphSum(recipes)

    def makes(self, origin: Origin) -> bool:
        possible = [recipe.origin(None).terms[0][:2] for recipe in (ClusteredGraph(), SerialGraph())]
        return all(term[:2] in possible for term in origin.terms)

    def _build(self, y: Any, w: np.ndarray, groups: Any, n: int) -> TrainingGraph:
        return self.settled(y, w)._build(y, w, groups, n)


_SHORTHANDS: dict[str, type[GraphRecipe]] = {
    "auto": AutoGraph,
    "clustered": ClusteredGraph,
    "code": CodeGraph,
    "label": LabelGraph,
    "serial": SerialGraph,
    "mixed": MixedGraph,
    "window": WindowGraph,
    "sequence": SequenceGraph,
    "uniform": UniformGraph,
}


def as_recipe(graph: Any) -> GraphRecipe:
    """A recipe from a recipe or a shorthand such as "serial"."""
    if isinstance(graph, GraphRecipe):
        return graph
    if isinstance(graph, str) and graph in _SHORTHANDS:
        return _SHORTHANDS[graph]()
    if isinstance(graph, str):
        raise ValueError(f"graph={graph!r} is unknown; use one of {sorted(_SHORTHANDS)} or a recipe of higsfa.graphs")
    raise TypeError(f"graph must be a recipe of higsfa.graphs or a string, got {type(graph).__name__}")
