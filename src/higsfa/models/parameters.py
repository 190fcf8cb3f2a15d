"""Constructor parameters in a model file: numbers, texts, expansions, recipes and layers."""

from __future__ import annotations

import os
from math import isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from higsfa.core.expansions import Expansion, as_expansion, parse_expansion
from higsfa.estimators import Layer
from higsfa.graphs import (
    AutoGraph,
    ClusteredGraph,
    EdgeGraph,
    GraphRecipe,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
    as_recipe,
)
from higsfa.io.container import Arrays, Tensors, listed, members, refuse, refusing, text, truth

RECIPES: dict[str, type[GraphRecipe]] = {
    recipe.__name__: recipe
    for recipe in (AutoGraph, ClusteredGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph)
}
"""Recipes whose parameters are plain values."""
RECIPE_TYPES: dict[str, tuple[type, ...]] = {
    "label": (str, int, bool, type(None)),
    "n_groups": (int, type(None)),
    "lag": (int,),
    "half_width": (int,),
    "mirrored": (bool,),
    "self_loops": (bool,),
}
MAX_DEPTH = 8
"""Sums of recipes within sums."""
MAX_EXPANSION, MAX_TERM = 4096, 128
"""Characters of an expansion, and of one of its terms."""
MAX_TEXT = 4096
"""Characters of any other text, such as a path."""


def pack_params(estimator: BaseEstimator, arrays: Arrays, prefix: str) -> dict[str, Any]:
    """All constructor parameters as JSON values; what is large goes to the arrays."""
    packed: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "expansion":
            written = expansion_text(as_expansion(value))
            packed[name] = value if isinstance(value, str) else {"text": written}
        elif name == "graph":
            packed[name] = value if isinstance(value, str) else _pack_recipe(value, arrays, f"{prefix}graph.")
        elif name == "layers":
            packed[name] = None if value is None else [pack_params(layer, arrays, prefix) for layer in value]
        elif name == "center":
            packed[name] = _pack_array(value, arrays, f"{prefix}params.center")
        else:
            packed[name] = plain(value, f"{name} of {type(estimator).__name__}")
    return packed


def unpack_params(cls: type, record: Any, tensors: Tensors, prefix: str) -> Any:
    """An object of a known class, with parameters that it accepts."""
    what = f"parameters of {cls.__name__}"
    names = cls._get_param_names()  # type: ignore[attr-defined]
    params = dict(zip(names, members(record, what, *names), strict=True))
    for name, value in params.items():
        if name == "expansion":
            given = value if isinstance(value, str) else members(value, f"{what}: expansion", "text")[0]
            expansion = read_expansion(given)
            params[name] = value if isinstance(value, str) else expansion
        elif name == "graph":
            params[name] = _unpack_graph(value, tensors, f"{prefix}graph.")
        elif name == "layers" and value is not None:
            params[name] = [unpack_params(Layer, layer, tensors, prefix) for layer in listed(value, what)]
        elif name == "center":
            params[name] = _unpack_array(value, tensors, f"{prefix}params.center")
        else:
            params[name] = _checked(value, f"{what}: {name}")
    made = cls(**params)
    with refusing(what):
        made._validate_params()
    return made


# ---------------------------------------------------------------------- expansions


def expansion_text(expansion: Expansion) -> str:
    """The text form, which must say everything."""
    written = str(expansion)
    try:
        complete = parse_expansion(written) == expansion
    except ValueError:
        complete = False
    if not complete:
        raise TypeError(f"expansion '{written}' cannot be saved: a function has no text form; use named terms instead")
    return written


def read_expansion(written: Any) -> Expansion:
    """An expansion from its text; short pieces only, because that is what the parser is quick with."""
    written = text(written, "expansion", MAX_EXPANSION)
    if max(map(len, written.split("|"))) > MAX_TERM:
        refuse(f"expansion: a term has more than {MAX_TERM} characters")
    with refusing("expansion"):
        return parse_expansion(written)


# ---------------------------------------------------------------------- recipes


def _pack_recipe(recipe: Any, arrays: Arrays, prefix: str, depth: int = 0) -> dict[str, Any]:
    name = type(recipe).__name__
    if depth > MAX_DEPTH:
        raise ValueError(f"sums of recipes within sums cannot be saved beyond a depth of {MAX_DEPTH}")
    if type(recipe) is GraphSum:
        graphs = [_pack_recipe(part, arrays, f"{prefix}{k}.", depth + 1) for k, part in enumerate(recipe.graphs)]
        weights = None if recipe.weights is None else [float(weight) for weight in recipe.weights]
        return {"recipe": name, "graphs": graphs, "weights": plain(weights, "weights of GraphSum")}
    if type(recipe) is EdgeGraph:
        if sp.issparse(recipe.edges):
            edges = sp.csr_array(recipe.edges, dtype=np.float64, copy=True)
            if edges.shape[0] != edges.shape[1]:
                raise ValueError(f"edges: a sparse matrix of edges must be square, got shape {edges.shape}")
            edges.sum_duplicates()
            arrays[f"{prefix}indptr"] = edges.indptr.astype(np.int64)
            arrays[f"{prefix}indices"] = edges.indices.astype(np.int64)
            arrays[f"{prefix}weights"] = edges.data
        else:
            arrays[f"{prefix}edges"] = np.asarray(recipe.edges, dtype=np.float64)
        node_weights = _pack_array(recipe.node_weights, arrays, f"{prefix}node_weights")
        return {"recipe": name, "sparse": sp.issparse(recipe.edges), "node_weights": node_weights}
    if type(recipe) is not RECIPES.get(name):
        raise TypeError(f"graph: a {name} cannot be saved; recipes of higsfa.graphs and their sums can")
    params = recipe.get_params(deep=False)
    return {"recipe": name} | {
        key: typed(plain(value, f"{key} of {name}"), RECIPE_TYPES[key]) for key, value in params.items()
    }


def _unpack_graph(value: Any, tensors: Tensors, prefix: str) -> Any:
    if isinstance(value, str):
        with refusing("graph"):
            as_recipe(text(value, "graph", 100))
        return value
    return _unpack_recipe(value, tensors, prefix, 0)


def _unpack_recipe(record: Any, tensors: Tensors, prefix: str, depth: int) -> GraphRecipe:
    name = record.get("recipe") if isinstance(record, dict) else None
    if depth > MAX_DEPTH:
        refuse("graph: sums within sums are nested too deeply")
    if name == "GraphSum":
        _, parts, weights = members(record, "graph", "recipe", "graphs", "weights")
        graphs = [
            _unpack_recipe(part, tensors, f"{prefix}{k}.", depth + 1) for k, part in enumerate(listed(parts, "graphs"))
        ]
        if weights is not None:
            weights = listed(weights, "graph: weights", len(graphs))
            if len(weights) != len(graphs) or not all(type(weight) is float for weight in weights):
                refuse("graph: weights must be one real number for each graph")
        return GraphSum(graphs, weights)
    if name == "EdgeGraph":
        _, sparse, weighted = members(record, "graph", "recipe", "sparse", "node_weights")
        edges = _unpack_edges(tensors, prefix, truth(sparse, "graph: sparse"))
        return EdgeGraph(edges, _unpack_array(weighted, tensors, f"{prefix}node_weights"))
    if not isinstance(name, str) or name not in RECIPES:
        refuse("graph: unknown recipe")
    keys = RECIPES[name]._get_param_names()
    values = members(record, f"graph {name}", "recipe", *keys)[1:]
    for key, value in zip(keys, values, strict=True):
        if type(value) not in RECIPE_TYPES[key]:
            refuse(f"graph {name}: {key} has a value of the wrong type")
    return RECIPES[name](**dict(zip(keys, values, strict=True)))


def _unpack_edges(tensors: Tensors, prefix: str, sparse: bool) -> Any:
    if not sparse:
        edges = tensors.take(f"{prefix}edges", "F64", (None, None))
        return edges if edges.shape[1] in (2, 3) else refuse("graph: edges must have 2 or 3 columns")
    indptr = tensors.take(f"{prefix}indptr", "I64", (None,))
    indices = tensors.take(f"{prefix}indices", "I64", (None,))
    n, nnz = len(indptr) - 1, len(indices)
    weights = tensors.take(f"{prefix}weights", "F64", (nnz,))
    tensors.spend(indices.nbytes + 2 * indptr.nbytes)
    ordered = n >= 1 and indptr[0] == 0 and indptr[-1] == nnz and bool(np.all(indptr[:-1] <= indptr[1:]))
    if not ordered or np.any(indices < 0) or np.any(indices >= n):
        refuse("graph: the sparse matrix of edges is not valid")
    return sp.csr_array((weights, indices, indptr), shape=(n, n))


# ---------------------------------------------------------------------- plain values


def _pack_array(value: Any, arrays: Arrays, name: str) -> bool:
    """One-dimensional array-like or None; tells whether there is one."""
    if value is not None:
        arrays[name] = np.array(value, dtype=np.float64)
    return value is not None


def _unpack_array(given: Any, tensors: Tensors, name: str) -> Any:
    return tensors.take(name, "F64", (None,)) if truth(given, name) else None


def plain(value: Any, what: str) -> Any:
    """A value that JSON can hold; a path becomes its text."""
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.longdouble) else value.item()
    if isinstance(value, os.PathLike):
        value = os.fsdecode(value)
    if isinstance(value, list | tuple):
        return [plain(entry, what) for entry in value]
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{what} is {value}, which cannot be saved")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{what} is a {type(value).__name__}, which cannot be saved")


def typed(value: Any, types: tuple[type, ...]) -> Any:
    """True where a number is meant is 1; 1, or None, where a truth value is meant is True, or False."""
    if types == (bool,):
        return bool(value)
    return int(value) if isinstance(value, bool) and bool not in types else value


def _checked(value: Any, what: str) -> Any:
    """A plain value, or a few integers, which become a tuple."""
    if isinstance(value, list):
        if not all(type(entry) is int for entry in listed(value, what, 8)):
            refuse(f"{what} must hold integers")
        return tuple(value)
    if isinstance(value, dict):
        refuse(f"{what} must be a plain value")
    return text(value, what, MAX_TEXT) if isinstance(value, str) else value
