"""Trained models in files: `save` and `load`.

A model is one safetensors file without pickle, so a file from anywhere may be opened: either it is a valid model, or
there is a :class:`ModelFileError`. The layout is described in ``docs/model-file.md``, together with the rules for
changing it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from higsfa.core.nodes import Node
from higsfa.estimators import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, LabelHead
from higsfa.io.container import (
    Arrays,
    ModelFileError,
    Tensors,
    listed,
    members,
    open_tensors,
    read_header,
    refuse,
    serialize,
    text,
    truth,
    whole,
)
from higsfa.io.files import open_regular, write_atomically
from higsfa.io.nodes import MAX_VALUES, NodeShape, pack_nodes, unpack_nodes
from higsfa.models.head import pack_head, unpack_head
from higsfa.models.parameters import expansion_text, pack_params, read_expansion, unpack_params
from higsfa.models.texts import pack_names, unpack_names
from higsfa.models.trained import POSITION_BYTES, Effort, pack_layer, unpack_layer
from higsfa.training.gathered import ClassStatistics
from higsfa.training.layers import TrainedLayer

__all__ = ["ModelFileError", "load", "save"]

FORMAT, PROTOCOL = "higsfa-model", 1
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older protocol n, how its header becomes one of protocol n + 1."""

MAX_JOBS = 1024


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted estimator, or a Pipeline of fitted estimators of this library.

    The file is written next to its place and moved there when it is complete: a file that was there before is replaced
    as a whole or not at all.

    Parameters
    ----------
    estimator : SFA, GSFA, ISFA, IGSFA, HSFA, HGSFA, HiSFA, HiGSFA, LabelHead, or a Pipeline of those
        Fitted. All constructor parameters are saved, and all that `transform`, `inverse_transform` and `predict` need;
        not `statistics_`. Functions as expansions cannot be saved, nor a LabelHead with a `regressor`.
    path : str or path
        Where to; any name, such as ``age.higsfa``.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA, load, save
    >>> X, y = load_wine(return_X_y=True)
    >>> gsfa = GSFA(n_components=2).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(gsfa, os.path.join(folder, "wine.higsfa"))
    ...     same = load(os.path.join(folder, "wine.higsfa"))
    >>> bool((same.transform(X) == gsfa.transform(X)).all())
    True
    """
    from higsfa import __version__

    arrays: Arrays = {}
    record = _pack(estimator, KINDS, arrays, "")
    data = serialize({"format": FORMAT, "protocol": PROTOCOL, "higsfa": __version__} | record, arrays)
    arrays.clear()
    try:
        _read(io.BytesIO(data), len(data))
    except ModelFileError as error:
        raise ValueError(
            f"this {type(estimator).__name__} cannot be saved, because nobody could load it: {error}"
        ) from error
    write_atomically(Path(path), data)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that `save` wrote.

    Nothing in the file is executed, and memory is bounded by about twice the size of the file, so files of unknown
    origin may be loaded.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    The estimator, as fitted; it gives the same numbers as the one that was saved, to the bit.

    Raises
    ------
    ModelFileError
        If the file is not a model, or is damaged, or was made by a newer version of higsfa.
    OSError
        If there is no file, or it cannot be read.
    """
    try:
        file = open_regular(path)
    except (ValueError, IsADirectoryError):
        raise ModelFileError(f"cannot load {os.fspath(path)}: not a regular file") from None
    with file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size)
        except ModelFileError as error:
            raise ModelFileError(f"cannot load {os.fspath(path)}: {error}") from None


def _read(file: BinaryIO, size: int) -> Any:
    header, listing, start = read_header(file, size)
    if header.get("format") != FORMAT:
        refuse(f"no model of higsfa: its format is not {FORMAT!r}")
    protocol = whole(header.get("protocol"), "protocol", 1, 2**31)
    if protocol > PROTOCOL:
        refuse(f"made by a newer higsfa, protocol {protocol}; this version reads up to {PROTOCOL}: update higsfa")
    for old in range(protocol, PROTOCOL):
        header = UPGRADES[old](header)
    text(header.get("higsfa"), "version")
    record = {key: value for key, value in header.items() if key not in ("format", "protocol", "higsfa")}
    tensors = open_tensors(file, size, listing, start)
    model = _unpack(record, KINDS, tensors, "")
    tensors.finish()
    return model


# ---------------------------------------------------------------------- single nodes


def _pack_single(estimator: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(estimator, "_node")
    frontend = estimator._node.frontend
    pack_nodes([estimator._node], arrays, f"{prefix}node.")
    return {
        **_pack_common(estimator, arrays, prefix),
        "expansion": expansion_text(frontend.expansion),
        "n_inputs": frontend.n_inputs,
        "clipped": frontend.low is not None,
    }


def _unpack_single(cls: type, record: dict[str, Any], tensors: Tensors, prefix: str) -> Any:
    *common, expansion, n_inputs, clipped = members(
        record, cls.__name__, "params", "feature_names_in", "expansion", "n_inputs", "clipped"
    )
    n_inputs = whole(n_inputs, "n_inputs", 1, MAX_VALUES)
    estimator = _unpack_common(cls, common, n_inputs, tensors, prefix)
    shape = NodeShape(read_expansion(expansion), 1, n_inputs, None, truth(clipped, "clipped"))
    node: Node = unpack_nodes(tensors, f"{prefix}node.", shape, 1, MAX_VALUES)[0]
    estimator._node = node
    estimator.n_components_, estimator.n_slow_, estimator.rank_ = node.n_components, node.n_slow, node.rank
    estimator.delta_values_ = node.delta_values if cls._preserve else node.delta_values[: node.n_components]  # type: ignore[attr-defined]
    estimator.mean_ = node.frontend.center
    estimator.statistics_ = SumsNotSaved()
    return estimator


class SumsNotSaved(ClassStatistics):
    """Stands for the sums of a loaded model, which are not in its file: nothing can be added to them."""

    message = (
        "a model that was loaded from a file has no statistics_: they are not saved, so partial_fit cannot go on from "
        "it; call fit to train it anew"
    )

    def __init__(self) -> None:
        pass

    def __add__(self, other: object) -> Any:
        raise ValueError(self.message)

    __radd__ = __add__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self.message)

    def __repr__(self) -> str:
        return "<statistics that were not saved>"


# ---------------------------------------------------------------------- networks


def _pack_network(network: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(network, "_trained")
    return {
        **_pack_common(network, arrays, prefix),
        "input_shape": [int(size) for size in network.input_shape_],
        "trained": [pack_layer(layer, arrays, f"{prefix}layers.{k}.") for k, layer in enumerate(network._trained)],
    }


def _unpack_network(cls: type, record: dict[str, Any], tensors: Tensors, prefix: str) -> Any:
    *common, sizes, layers = members(record, cls.__name__, "params", "feature_names_in", "input_shape", "trained")
    shape = tuple(whole(n, "input_shape", 1, MAX_VALUES) for n in listed(sizes, "input_shape", 4))
    if not shape or prod(shape) > MAX_VALUES:
        refuse(f"input_shape must have 1 to 4 sizes, and at most {MAX_VALUES:,} values in all")
    network = _unpack_common(cls, common, prod(shape), tensors, prefix)
    if network.n_jobs is not None and (network.n_jobs == 0 or network.n_jobs > MAX_JOBS):
        refuse(f"n_jobs must be from 1 to {MAX_JOBS:,}, or negative")
    trained: list[TrainedLayer] = []
    effort = Effort(prod(shape), tensors.size)
    for k, layer in enumerate(listed(layers, "trained")):
        if k == 0:
            grid, width = _first_grid(shape, layer)
            tensors.spend(POSITION_BYTES * sum(grid))
        trained.append(unpack_layer(layer, tensors, f"{prefix}layers.{k}.", grid, width, effort))
        grid, width = trained[-1].plan.fields.shape, trained[-1].plan.n_components
    if not trained:
        refuse("a network must have at least one layer")
    network._adopt(trained, shape)
    return network


def _first_grid(shape: tuple[int, ...], layer: Any) -> tuple[tuple[int, ...], int]:
    """Grid of pixels, and channels of a pixel."""
    n_dimensions = len(listed(layer.get("field") if isinstance(layer, dict) else None, "field", 3))
    if n_dimensions == 0 or len(shape) not in (n_dimensions, n_dimensions + 1):
        refuse(f"input_shape has {len(shape)} dimensions, a field has {n_dimensions}")
    return shape[:n_dimensions], shape[n_dimensions] if len(shape) > n_dimensions else 1


# ---------------------------------------------------------------------- what estimators share


def _pack_common(estimator: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    named = pack_names(estimator, arrays, prefix)
    return {"params": pack_params(estimator, arrays, prefix), "feature_names_in": named}


def _unpack_common(cls: type, common: list[Any], n_features: int, tensors: Tensors, prefix: str) -> Any:
    params, has_names = common
    estimator = unpack_params(cls, params, tensors, prefix)
    estimator.n_features_in_ = n_features
    if truth(has_names, "feature_names_in"):
        estimator.feature_names_in_ = unpack_names(tensors, prefix, n_features)
    return estimator


# ---------------------------------------------------------------------- pipelines


def _pack_pipeline(pipeline: Pipeline, arrays: Arrays, prefix: str) -> dict[str, Any]:
    chosen = pipeline.transform_input
    return {
        "verbose": bool(pipeline.verbose),
        "transform_input": None if chosen is None else [str(name) for name in chosen],
        "steps": [
            {"name": name, "model": _pack(step, ESTIMATORS, arrays, f"{prefix}steps.{k}.")}
            for k, (name, step) in enumerate(pipeline.steps)
        ],
    }


def _unpack_pipeline(cls: type, record: dict[str, Any], tensors: Tensors, prefix: str) -> Pipeline:
    verbose, chosen, listing = members(record, "Pipeline", "verbose", "transform_input", "steps")
    if chosen is not None:
        chosen = [text(name, "transform_input") for name in listed(chosen, "transform_input")]
    steps = []
    for k, step in enumerate(listed(listing, "steps")):
        name, model = members(step, "a step of the Pipeline", "name", "model")
        steps.append((text(name, "name of a step"), _unpack(model, ESTIMATORS, tensors, f"{prefix}steps.{k}.")))
    names = [name for name, _ in steps]
    if not steps or len(set(names)) < len(names) or any("__" in name for name in names):
        refuse("the steps of a Pipeline must have names, all different, without '__'")
    for (_, below), (_, above) in pairwise(steps):
        if isinstance(below, LabelHead):
            refuse("a LabelHead must be the last step of a Pipeline")
        if below.n_components_ != above.n_features_in_:
            refuse(f"a step takes {above.n_features_in_} features, the step before makes {below.n_components_}")
    return Pipeline(steps, transform_input=chosen, verbose=truth(verbose, "verbose"))


# ---------------------------------------------------------------------- the classes that can be saved


class Kind(NamedTuple):
    """A class that can be saved, and how.

    `pack(estimator, arrays, prefix)` puts arrays under names that begin with the prefix and returns a JSON object;
    `unpack(cls, record, tensors, prefix)` takes them back and trusts neither.
    """

    cls: type
    pack: Callable[[Any, Arrays, str], dict[str, Any]]
    unpack: Callable[[type, dict[str, Any], Tensors, str], Any]


ESTIMATORS: dict[str, Kind] = {
    "SFA": Kind(SFA, _pack_single, _unpack_single),
    "GSFA": Kind(GSFA, _pack_single, _unpack_single),
    "ISFA": Kind(ISFA, _pack_single, _unpack_single),
    "IGSFA": Kind(IGSFA, _pack_single, _unpack_single),
    "HSFA": Kind(HSFA, _pack_network, _unpack_network),
    "HGSFA": Kind(HGSFA, _pack_network, _unpack_network),
    "HiSFA": Kind(HiSFA, _pack_network, _unpack_network),
    "HiGSFA": Kind(HiGSFA, _pack_network, _unpack_network),
    "LabelHead": Kind(LabelHead, pack_head, unpack_head),
}
KINDS: dict[str, Kind] = ESTIMATORS | {"Pipeline": Kind(Pipeline, _pack_pipeline, _unpack_pipeline)}


def _pack(estimator: Any, kinds: dict[str, Kind], arrays: Arrays, prefix: str) -> dict[str, Any]:
    name = type(estimator).__name__
    kind = kinds.get(name)
    if kind is None or kind.cls is not type(estimator):
        where = "" if kinds is KINDS else " in a Pipeline"
        raise TypeError(f"a {name}{where} cannot be saved; these can: fitted {', '.join(kinds)}")
    return {"kind": name} | kind.pack(estimator, arrays, prefix)


def _unpack(record: Any, kinds: dict[str, Kind], tensors: Tensors, prefix: str) -> Any:
    name = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(name, str) or name not in kinds:
        refuse(f"unknown kind of model; known are {', '.join(kinds)}")
    rest = {key: value for key, value in record.items() if key != "kind"}
    return kinds[name].unpack(kinds[name].cls, rest, tensors, prefix)
