"""Constructor parameters in a model file: numbers, texts, expansions, recipes and layers."""

from __future__ import annotations

import os
from functools import cache, partial
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, Strict, create_model
from sklearn.base import BaseEstimator

from higsfa import graphs
from higsfa.core.expansion.expansion import Expansion, as_expansion, parse_expansion
from higsfa.estimators import Layer, OrientedEdges
from higsfa.io.container import MAX_LIST, Arrays, Few, Record, Tensors, Text, refuse, refusing, short
from higsfa.io.nodes import MAX_VALUES

_LABELLED = (graphs.AutoGraph, graphs.ClusteredGraph, graphs.SerialGraph, graphs.MixedGraph, graphs.WindowGraph)
_LOW_RANK = (graphs.LabelGraph, graphs.CodeGraph, graphs.UniformGraph)
RECIPES: dict[str, Any] = {
    recipe.__name__: recipe
    for recipe in (*_LABELLED, *_LOW_RANK, graphs.SequenceGraph, graphs.EdgeGraph, graphs.GraphSum)
}
LEFT_OUT = ("regressor",)  # parameters that are not saved
ADDED: dict[str, Any] = {"label_kinds": None, "front": None, "n_fields": None, "delays": 0, "node_weights": None}
"""Parameters that came after the first files of protocol 1, with what those mean."""
MAX_DEPTH = 8  # of sums of recipes within sums
MAX_EXPANSION, MAX_TERM = 4096, 128  # characters
MAX_PATH = 4096  # characters of any other text, such as a path
MAX_CANDIDATES = 2**16


def _dictionary(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else refuse("a label is named twice")


T = TypeVar("T")
LabelName = int | Text
LabelKind = Literal["categorical", "numeric"]
Size = Annotated[int, Field(ge=1, le=MAX_VALUES)]
Path = Annotated[str, AfterValidator(partial(short, longest=MAX_PATH))]
Sizes = Annotated[list[int], Field(max_length=8, fail_fast=True), AfterValidator(tuple)]
Plain = bool | int | float | Path | Sizes | None
Pair = Annotated[tuple[LabelName, T], Strict(False)]  # a list in JSON
ByLabel = Annotated[list[Pair[T]], Field(max_length=MAX_LIST, fail_fast=True), AfterValidator(_dictionary)]


Covariance = Literal["auto", "shared", "separate"]


class ExpansionRecord(Record):
    text: str


# Parameters with a form of their own, and further checks.
SPECIAL: dict[str, Any] = {
    "expansion": str | ExpansionRecord,
    "graph": Any,
    "graphs": Few[Any],
    "layers": Few[Any] | None,
    "front": Any,
    "center": bool,
    "candidates": Annotated[list[int], Field(max_length=MAX_CANDIDATES, fail_fast=True)] | None,
}
# Parameters that scikit-learn does not check: those of recipes, and what is in a dictionary.
TYPES: dict[str, Any] = {
    "label": LabelName | bool | None,
    "n_groups": int | None,
    "lag": int | Annotated[list[int], Field(min_length=1, max_length=MAX_LIST, fail_fast=True)],
    "node_weights": Literal["degree"] | None,
    "half_width": int,
    "mirrored": bool,
    "self_loops": bool,
    "weights": Few[float] | None,
    "n_harmonics": int,
    "n_features": int | None,
    "label_range": Annotated[list[float], Field(min_length=2, max_length=2), AfterValidator(tuple)] | None,
    "deltas": Annotated[list[float], Field(max_length=MAX_LIST, fail_fast=True), AfterValidator(tuple)] | None,
    "n_used_features": int | Literal["cv"] | ByLabel[int | Literal["cv"] | None] | None,
    "n_classes": int | ByLabel[int | None] | None,
    "label_kinds": LabelKind | ByLabel[LabelKind] | None,
    "integer": bool | ByLabel[bool],
    "covariance": float | Covariance | ByLabel[float | Covariance],
    "cv": int,
}
TRUTH = ("mirrored", "self_loops", "integer")


@cache
def _record(cls: type) -> type[Record]:
    """The parameters of a class; those without a type above are plain values."""
    names = [name for name in cls._get_param_names() if name not in LEFT_OUT]  # type: ignore[attr-defined]
    types: dict[str, Any] = {name: ((SPECIAL | TYPES).get(name, Plain), ...) for name in names}
    return create_model(cls.__name__, __base__=Record, **types)


def _read_params(cls: type, record: Any, what: str) -> dict[str, Any]:
    expected = _record(cls)
    if isinstance(record, dict):
        record = {name: value for name, value in ADDED.items() if name in expected.model_fields} | record
    return dict(expected.read(record, what))


class EdgesRecord(Record):
    sparse: bool
    node_weights: bool


def pack_params(estimator: BaseEstimator, arrays: Arrays, prefix: str) -> dict[str, Any]:
    """All constructor parameters as JSON values; large ones go to the arrays."""
    packed: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "expansion":
            written = expansion_text(as_expansion(value))
            packed[name] = value if isinstance(value, str) else {"text": written}
        elif name == "graph":
            packed[name] = value if isinstance(value, str) else _pack_recipe(value, arrays, f"{prefix}graph.")
        elif name == "layers":
            packed[name] = None if value is None else [pack_params(layer, arrays, prefix) for layer in value]
        elif name == "front":
            packed[name] = pack_params(value, arrays, prefix) if isinstance(value, OrientedEdges) else value
        elif name == "center":
            packed[name] = _pack_array(value, arrays, f"{prefix}params.center")
        elif name == "candidates":
            packed[name] = None if value is None else [int(k) for k in value]
        elif name not in LEFT_OUT:
            packed[name] = _pack_value(value, name, type(estimator).__name__)
    return packed


def unpack_params(cls: type, record: Any, tensors: Tensors, prefix: str) -> Any:
    """An object of a known class with valid parameters."""
    what = f"parameters of {cls.__name__}"
    params = _read_params(cls, record, what)
    if "expansion" in params:
        given = params["expansion"]
        expansion = read_expansion(getattr(given, "text", given))
        params["expansion"] = given if isinstance(given, str) else expansion
    if "graph" in params:
        params["graph"] = _unpack_graph(params["graph"], tensors, f"{prefix}graph.")
    if params.get("layers") is not None:
        params["layers"] = [unpack_params(Layer, layer, tensors, prefix) for layer in params["layers"]]
    if isinstance(params.get("front"), dict):
        params["front"] = unpack_params(OrientedEdges, params["front"], tensors, prefix)
    if "center" in params:
        params["center"] = _unpack_array(params["center"], tensors, f"{prefix}params.center")
    made = cls(**params)
    with refusing(what):
        made._validate_params()
    return made


def pack_common(estimator: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    """Parameters, and names of the input features: one text, separated by zeros."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if any("\0" in name for name in names):
            raise ValueError("feature names with a zero character cannot be saved")
        written = "\0".join(names).encode("utf-8", "surrogatepass")
        arrays[f"{prefix}feature_names_in"] = np.frombuffer(written, dtype=np.uint8)
    return {"params": pack_params(estimator, arrays, prefix), "feature_names_in": names is not None}


def unpack_common(cls: type, record: Any, n_features: int, tensors: Tensors, prefix: str) -> Any:
    estimator = unpack_params(cls, record.params, tensors, prefix)
    estimator.n_features_in_ = n_features
    if record.feature_names_in:
        estimator.feature_names_in_ = _unpack_names(tensors, f"{prefix}feature_names_in", n_features)
    return estimator


def _unpack_names(tensors: Tensors, name: str, n_features: int) -> NDArray[Any]:
    raw = tensors.take(name, "U8", (None,))
    # Twice the text for a moment; beyond ASCII, a character takes four bytes in memory.
    tensors.spend((8 if np.any(raw > 127) else 2) * len(raw))
    with refusing(name):
        written = str(raw.data, "utf-8", "surrogatepass")
    if written.count("\0") != n_features - 1:
        refuse(f"{name} must hold {n_features:,} names")
    tensors.spend(80 * n_features)
    return np.array(written.split("\0"), dtype=object)


def expansion_text(expansion: Expansion) -> str:
    """The text form, from which the same expansion can be read."""
    written = str(expansion)
    try:
        complete = parse_expansion(written) == expansion
    except ValueError:
        complete = False
    if not complete:
        raise TypeError(f"expansion '{written}' cannot be saved: a function has no text form; use named terms instead")
    return written


def read_expansion(written: str) -> Expansion:
    """An expansion from its text, whose length is limited, so that the parser is quick."""
    with refusing("expansion"):
        if max(map(len, short(written, MAX_EXPANSION).split("|"))) > MAX_TERM:
            refuse(f"expansion: a term has more than {MAX_TERM} characters")
        return parse_expansion(written)


# ---------------------------------------------------------------------- recipes


def _pack_recipe(recipe: Any, arrays: Arrays, prefix: str, depth: int = 0) -> dict[str, Any]:
    name = type(recipe).__name__
    if RECIPES.get(name) is not type(recipe):
        raise TypeError(f"graph: a {name} cannot be saved; recipes of higsfa.graphs and their sums can")
    if depth > MAX_DEPTH:
        raise ValueError(f"sums of recipes within sums cannot be saved beyond a depth of {MAX_DEPTH}")
    if name == "GraphSum":
        parts = [_pack_recipe(part, arrays, f"{prefix}{k}.", depth + 1) for k, part in enumerate(recipe.graphs)]
        weights = None if recipe.weights is None else [float(weight) for weight in recipe.weights]
        return {"recipe": name, "graphs": parts, "weights": plain(weights, "weights of GraphSum")}
    if name == "EdgeGraph":
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
    params = recipe.get_params(deep=False).items()
    return {"recipe": name, **{key: _pack_value(value, key, name) for key, value in params}}


def _unpack_graph(value: Any, tensors: Tensors, prefix: str, depth: int = 0) -> Any:
    """A recipe; at the top also the name of one."""
    if isinstance(value, str) and depth == 0:
        with refusing("graph"):
            graphs.as_recipe(short(value, 100))
        return value
    if depth > MAX_DEPTH:
        refuse("graph: sums within sums are nested too deeply")
    name = value.get("recipe") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in RECIPES:
        refuse("graph: unknown recipe")
    rest = {key: entry for key, entry in value.items() if key != "recipe"}
    if name == "EdgeGraph":
        given = EdgesRecord.read(rest, "graph")
        edges = _unpack_edges(tensors, prefix, given.sparse)
        return graphs.EdgeGraph(edges, _unpack_array(given.node_weights, tensors, f"{prefix}node_weights"))
    params = _read_params(RECIPES[name], rest, f"graph {name}")
    if name == "GraphSum":
        parts = enumerate(params["graphs"])
        params["graphs"] = [_unpack_graph(part, tensors, f"{prefix}{k}.", depth + 1) for k, part in parts]
        if params["weights"] is not None and len(params["weights"]) != len(params["graphs"]):
            refuse("graph: weights must be one real number for each graph")
    return RECIPES[name](**params)


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


def _pack_value(value: Any, name: str, owner: str) -> Any:
    """A value that JSON can hold; pairs for a dictionary by label."""
    if isinstance(value, dict):
        return [[pack_label_name(label), _pack_value(own, name, f"label {label!r}")] for label, own in value.items()]
    if name in ("label_range", "deltas") and value is not None:
        value = [float(number) for number in np.ravel(value)]
    if name == "lag" and np.ndim(value):
        value = [int(lag) for lag in value]
    value = plain(value, f"{name} of {owner}")
    if name in TRUTH:
        return bool(value)
    return int(value) if isinstance(value, bool) and name in TYPES and name != "label" else value


def pack_label_name(name: Any) -> Any:
    if isinstance(name, bool | np.bool_) or not isinstance(name, str | int | np.integer):
        raise TypeError(f"label {name!r} cannot be saved: names of labels must be strings or integers")
    return plain(name, "name of a label")


def _pack_array(value: Any, arrays: Arrays, name: str) -> bool:
    """Put a one-dimensional array-like, or None, into the arrays, and return whether there is one."""
    if value is not None:
        arrays[name] = np.array(value, dtype=np.float64)
    return value is not None


def _unpack_array(given: bool, tensors: Tensors, name: str) -> Any:
    return tensors.take(name, "F64", (None,)) if given else None


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
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if isinstance(value, str) else value  # of a subclass of str, too
    raise TypeError(f"{what} is a {type(value).__name__}, which cannot be saved")
