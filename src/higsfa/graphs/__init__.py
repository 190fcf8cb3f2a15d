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

from higsfa.core.graph.graph import TrainingGraph
from higsfa.graphs.label import AutoGraph, CodeGraph, LabelGraph, UniformGraph
from higsfa.graphs.order import EdgeGraph, WindowGraph
from higsfa.graphs.recipes import (
    SHORTHANDS,
    ClusteredGraph,
    GraphRecipe,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    as_recipe,
    check_weights,
)

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

SHORTHANDS.update(auto=AutoGraph, window=WindowGraph, sequence=SequenceGraph)
SHORTHANDS.update(label=LabelGraph, code=CodeGraph, uniform=UniformGraph)
