"""Trained models in files: `save` and `load`.

A model is one safetensors file without pickle, so files of unknown origin may be opened: what is not a valid model is a
:class:`ModelFileError`. ``docs/model-file.md`` describes the layout, and the rules for changing it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

from pydantic import Field
from sklearn.pipeline import Pipeline

from higsfa.estimators import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, LabelClassifier, LabelHead
from higsfa.estimators.label_head import LabelRegressor
from higsfa.io import container, open_regular, write_atomically
from higsfa.io.container import Arrays, Few, ModelFileError, Record, Tensors, Text, refuse
from higsfa.models import fitted, statistics
from higsfa.training.federated import LayerStatistics
from higsfa.training.statistics import ClassStatistics, LabelStatistics, SequenceStatistics

__all__ = ["ModelFileError", "load", "save"]

FORMAT, PROTOCOL = "higsfa-model", 2


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted estimator, a Pipeline of fitted estimators of this library, or the `statistics_` of one.

    An existing file is replaced as a whole or not at all.

    Parameters
    ----------
    estimator : SFA, GSFA, ISFA, IGSFA, HSFA, HGSFA, HiSFA, HiGSFA, a label head, a Pipeline of those, or `statistics_`
        Statistics are those that add (of SFA, of classes, of a LabelGraph): load them elsewhere, and go on with
        `fit_from_statistics` and `partial_fit`. What `layer_statistics` of a network gives can be saved, too. An
        estimator must be fitted. Saved are all constructor parameters and what `transform`, `inverse_transform` and
        `predict` need, but not `statistics_`. Functions as expansions cannot be saved, nor a LabelHead with a
        `regressor`.
    path : str or path
        Any name, such as ``age.higsfa``.

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
    data = container.serialize({"format": FORMAT, "protocol": PROTOCOL, "version": __version__} | record, arrays)
    arrays.clear()
    try:
        _read(io.BytesIO(data), len(data))
    except ModelFileError as error:
        name = type(estimator).__name__
        raise ValueError(f"this {name} cannot be saved, because nobody could load it: {error}") from error
    write_atomically(Path(path), data)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that `save` wrote.

    Files of unknown origin may be loaded: nothing in them is executed, and loading takes about twice their size in
    memory.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    The fitted estimator; it gives the same numbers as the one that was saved, to the bit.

    Raises
    ------
    ModelFileError
        If the file is not a model, or is damaged, or was made by a newer version of higsfa.
    OSError
        If there is no file, or it cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from higsfa import SFA, load, save
    >>> sfa = SFA(n_components=1).fit(np.random.default_rng(0).normal(size=(100, 3)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(sfa, os.path.join(folder, "noise.higsfa"))
    ...     load(os.path.join(folder, "noise.higsfa"))
    SFA(n_components=1)
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
    header, listing, start = container.read_header(file, size)
    if header.get("format") != FORMAT:
        refuse(f"not a model of higsfa: its format is not {FORMAT!r}")
    if "version" not in header:
        header = _from_version_01(header)
    protocol = Frame.read({name: header.get(name) for name in Frame.model_fields}, "header").protocol
    if protocol > PROTOCOL:
        refuse(f"made by a newer higsfa, protocol {protocol}; this version reads up to {PROTOCOL}: update higsfa")
    for old in range(protocol, PROTOCOL):
        header = UPGRADES[old](header)
    for model in _with_parameters(header):
        if "n_inputs" in model:
            model.setdefault("delays", 0)  # the first files of protocol 2 have none
    tensors = container.open_tensors(file, size, listing, start)
    record = {key: value for key, value in header.items() if key not in Frame.model_fields}
    model = _unpack(record, KINDS, tensors, "")
    tensors.finish()
    return model


class Frame(Record):
    """What the headers of all protocols share; the rest is the record of the model."""

    format: str
    protocol: Annotated[int, Field(ge=1, le=2**31)]
    version: Text


RENAMED = {"memory": "memory_limit", "n_features": "n_used_features"}  # parameters, since version 0.1


def _from_version_01(header: dict[str, Any]) -> dict[str, Any]:
    """Version 0.1, before protocol 1 was frozen, wrote its version under "higsfa" and had other parameter names."""
    header = {"version" if key == "higsfa" else key: value for key, value in header.items()}
    for model in _with_parameters(header):
        model["params"] = {RENAMED.get(name, name): value for name, value in model["params"].items()}
    return header


def _from_protocol_1(header: dict[str, Any]) -> dict[str, Any]:
    """A LabelHead had `regularization`, one number for all labels, which was not chosen; networks had no front end."""
    for model in _with_parameters(header):
        if model.get("kind") == "LabelHead":
            fitted.upgrade_regularization(model)
        elif "trained" in model:
            model.setdefault("front", None)
        elif "n_inputs" in model:
            model.setdefault("shrinkage", None)
    return header


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_protocol_1}
"""From headers of protocol n to those of n + 1."""


def _with_parameters(header: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of estimators in a header, that of a Pipeline or of one estimator."""
    steps = header["steps"] if isinstance(header.get("steps"), list) else []
    models = [header, *(step.get("model") for step in steps if isinstance(step, dict))]
    return [model for model in models if isinstance(model, dict) and isinstance(model.get("params"), dict)]


class StepRecord(Record):
    name: Text
    model: Any


class PipelineRecord(Record):
    verbose: bool
    transform_input: Few[Text] | None
    steps: Few[StepRecord]


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


def _unpack_pipeline(cls: type, record: PipelineRecord, tensors: Tensors, prefix: str) -> Pipeline:
    steps = [
        (step.name, _unpack(step.model, ESTIMATORS, tensors, f"{prefix}steps.{k}."))
        for k, step in enumerate(record.steps)
    ]
    names = [name for name, _ in steps]
    if not steps or len(set(names)) < len(names) or any("__" in name for name in names):
        refuse("the steps of a Pipeline must have names, all different, without '__'")
    for (_, below), (_, above) in pairwise(steps):
        if isinstance(below, LabelHead):
            refuse("a LabelHead must be the last step of a Pipeline")
        if below.n_components_ != above.n_features_in_:
            refuse(f"a step takes {above.n_features_in_} features, the step before makes {below.n_components_}")
    return Pipeline(steps, transform_input=record.transform_input, verbose=record.verbose)


class Kind(NamedTuple):
    """How a class is saved.

    `pack(estimator, arrays, prefix)` adds arrays with names that begin with the prefix and returns the JSON object of a
    `record`; `unpack(cls, record, tensors, prefix)` makes an estimator of them, and trusts neither.
    """

    record: type[Record]
    pack: Callable[[Any, Arrays, str], dict[str, Any]]
    unpack: Callable[[type, Any, Tensors, str], Any]


_NODE = Kind(fitted.SingleRecord, fitted.pack_single, fitted.unpack_single)
_NETWORK = Kind(fitted.NetworkRecord, fitted.pack_network, fitted.unpack_network)
_HEAD = Kind(fitted.HeadRecord, fitted.pack_head, fitted.unpack_head)
ESTIMATORS: dict[type, Kind] = {
    **dict.fromkeys((SFA, GSFA, ISFA, IGSFA), _NODE),
    **dict.fromkeys((HSFA, HGSFA, HiSFA, HiGSFA), _NETWORK),
    **dict.fromkeys((LabelHead, LabelClassifier, LabelRegressor), _HEAD),
}
_SUMS = Kind(statistics.StatisticsRecord, statistics.pack_statistics, statistics.unpack_statistics)
KINDS: dict[type, Kind] = {
    **ESTIMATORS,
    Pipeline: Kind(PipelineRecord, _pack_pipeline, _unpack_pipeline),
    **dict.fromkeys((SequenceStatistics, ClassStatistics, LabelStatistics), _SUMS),
    LayerStatistics: Kind(
        statistics.LayerStatisticsRecord, statistics.pack_layer_statistics, statistics.unpack_layer_statistics
    ),
}


def _pack(estimator: Any, kinds: dict[type, Kind], arrays: Arrays, prefix: str) -> dict[str, Any]:
    name = type(estimator).__name__
    if type(estimator) not in kinds:
        where = "" if kinds is KINDS else " in a Pipeline"
        can = ", ".join(cls.__name__ for cls in kinds)
        raise TypeError(f"a {name}{where} cannot be saved; these can: fitted {can}")
    return {"kind": name} | kinds[type(estimator)].pack(estimator, arrays, prefix)


def _unpack(record: Any, kinds: dict[type, Kind], tensors: Tensors, prefix: str) -> Any:
    name = record.get("kind") if isinstance(record, dict) else None
    for cls, kind in kinds.items():
        if cls.__name__ == name:
            rest = {key: value for key, value in record.items() if key != "kind"}
            return kind.unpack(cls, kind.record.read(rest, name), tensors, prefix)
    refuse(f"unknown kind of model; known are {', '.join(cls.__name__ for cls in kinds)}")
