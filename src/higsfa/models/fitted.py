"""Trained nodes, networks and label heads in a model file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from itertools import product
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from higsfa.core.edges import Edges, EdgesInverse
from higsfa.core.expansion.terms import Relu
from higsfa.core.fields import Fields
from higsfa.core.node.solve import AUTO, NodeOptions
from higsfa.estimators import ISFA, SFA, OrientedEdges
from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.io.container import Arrays, ModelFileError, Record, Some, Tensors, parse_json, refuse
from higsfa.io.nodes import MAX_VALUES, NodeShape, StoredNodes, pack_nodes, unpack_nodes
from higsfa.models.parameters import (
    LabelName,
    Size,
    expansion_text,
    pack_common,
    pack_label_name,
    plain,
    read_expansion,
    unpack_common,
)
from higsfa.models.statistics import SumsNotSaved
from higsfa.training.layer import LayerPlan, TrainedLayer

NUMBERS, MOST_NUMBERS, NUMBERS_PER_INPUT = 2**20, 2**26, 128
"""Limit on the numbers that go in and out of all nodes for one sample, with what each number of the sample adds."""
WORK, WORK_PER_BYTE, WORK_PER_INPUT = 2**28, 32, 2**17
"""Limit on multiplications for one sample, with what each byte of the file and each number of the sample adds."""
CALL_WORK, ROW_WORK = 10_000, 100
"""Multiplications that take as long as calling a node for a field, or a term of its expansion; as a row of it."""
POSITION_BYTES = 40  # of a field on one axis of a grid
MAX_JOBS = 1024
LABEL_BYTES = 4000  # for a label, besides its arrays
CLASS_BYTES = 200  # for reading a class, besides its text
MAX_CLASS_TEXT = 1000  # characters of a class in JSON
# What an array of classes may hold, by the kind of its dtype.
CLASS_TYPES: dict[str, Any] = {"b": {bool}, "i": {int}, "u": {int}, "f": {float}, "U": {str}}
CLASS_TYPES["O"] = {str, bool, int, float}
CLASS_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|O|U[1-9][0-9]{0,3}")
GAUSSIANS = ("center", "scale", "projection", "means", "factors", "log_weights")

Share = Annotated[float, Field(ge=0, le=1)]
FieldSizes = Annotated[list[Size], Field(min_length=1, max_length=3)]


class SingleRecord(Record):
    params: Any
    feature_names_in: bool
    expansion: str
    n_inputs: Size
    clipped: bool
    shrinkage: Annotated[float, Field(ge=0)] | None  # what "auto" came to; files of protocol 1 may have none
    delays: Annotated[int, Field(ge=0, le=MAX_VALUES)]  # that it was fitted with


def pack_single(estimator: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(estimator, "_node")
    frontend = estimator._node.frontend
    delays = frontend.n_inputs // estimator.n_features_in_ - 1
    pack_nodes([estimator._node], arrays, f"{prefix}node.")
    return {
        **pack_common(estimator, arrays, prefix),
        "expansion": expansion_text(frontend.expansion),
        "n_inputs": frontend.n_inputs,
        "clipped": frontend.low is not None,
        "shrinkage": estimator.shrinkage_,
        "delays": delays,
    }


def unpack_single(cls: type, record: SingleRecord, tensors: Tensors, prefix: str) -> Any:
    n_features, rest = divmod(record.n_inputs, 1 + record.delays)
    if rest or not n_features or (record.delays and not issubclass(cls, SFA | ISFA)):
        refuse("the inputs of its node are not those of a sample with its delays")
    estimator = unpack_common(cls, record, n_features, tensors, prefix)
    shape = NodeShape(read_expansion(record.expansion), 1, record.n_inputs, None, record.clipped)
    estimator._solved = unpack_nodes(tensors, f"{prefix}node.", shape, 1, MAX_VALUES)[0]
    estimator._statistics = SumsNotSaved()
    if estimator.shrinkage == AUTO and record.shrinkage is not None:
        estimator._chosen = replace(estimator._options(), shrinkage=record.shrinkage)
    return estimator


class OptionsRecord(Record):
    n_components: Size
    preserve: bool
    delta_threshold: float
    n_slow: int | None
    scaling: Literal["sensitivity", "qr"]
    min_scale: float
    weighted: bool
    shrinkage: float
    all_deltas: bool


class LayerRecord(Record):
    field: FieldSizes
    stride: FieldSizes
    pad: bool
    expansion: str
    pca: Annotated[int, Field(ge=1)] | None
    shared: bool
    clip_range: bool
    clipped: bool
    options: OptionsRecord


class FrontRecord(Record):
    cell: Size
    directions: Annotated[int, Field(ge=1, le=64)]
    black: float
    white: float


class NetworkRecord(Record):
    params: Any
    feature_names_in: bool
    input_shape: Annotated[list[Size], Field(min_length=1, max_length=4)]
    trained: Some[LayerRecord]
    front: FrontRecord | None


class Effort:
    """What a network costs for one sample, and may cost.

    The cost of a node that serves one field is bounded by the file, which stores what it multiplies with. But a shared
    node is used for every field, and outputs beyond those of a node are zeros that are not stored. They are bounded by
    the size of the sample, which comes from the user.
    """

    def __init__(self, n_inputs: int, n_bytes: int) -> None:
        self._numbers = min(NUMBERS + NUMBERS_PER_INPUT * n_inputs, MOST_NUMBERS) + n_bytes
        self._work = WORK + WORK_PER_INPUT * n_inputs + WORK_PER_BYTE * n_bytes

    def add_fields(self, n_nodes: int, n_raw: int, n_components: int) -> None:
        """Count what goes in and out of a layer, before anything of that size is allocated."""
        self._numbers -= n_nodes * (n_raw + n_components)
        if self._numbers < 0:
            refuse("the fields of its layers overlap too much, or have too many outputs, for an input of this size")

    def add_work(self, plan: LayerPlan, nodes: StoredNodes) -> None:
        """Count what the nodes of a layer do."""
        n_fields, call = plan.fields.n_nodes, CALL_WORK
        if nodes.expand:
            call += CALL_WORK * len(plan.expansion.terms) + ROW_WORK * nodes.n_expanded
            call += sum(term.n for term in plan.expansion.terms if isinstance(term, Relu)) * plan.n_inputs
        self._work -= call * n_fields + nodes.n_stored * (n_fields if plan.shared else 1)
        if self._work < 0:
            refuse("its layers take too much work for an input and a file of this size")


class StoredLayer(TrainedLayer):
    """A layer whose nodes are made on demand."""

    def table(self) -> Any:
        return self.nodes.table()  # type: ignore[attr-defined]


def pack_network(network: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(network, "_trained")
    return {
        **pack_common(network, arrays, prefix),
        "input_shape": [int(size) for size in network.input_shape_],
        "front": None if network.front_ is None else _pack_front(network.front_, arrays, prefix),
        "trained": [_pack_layer(layer, arrays, f"{prefix}layers.{k}.") for k, layer in enumerate(network._trained)],
    }


def _pack_front(front: OrientedEdges, arrays: Arrays, prefix: str) -> dict[str, Any]:
    arrays[f"{prefix}front.inverse"] = front._inverse.weights
    return {name: getattr(front.edges_, name) for name in FrontRecord.model_fields}


def _unpack_front(
    record: FrontRecord, params: Any, shape: tuple[int, ...], tensors: Tensors, prefix: str
) -> OrientedEdges:
    if len(shape) not in (2, 3) or record.cell > min(shape[:2]) or not record.white > record.black:
        refuse("front: it must be for pictures of at least one cell, with black below white")
    front = OrientedEdges() if params is None or isinstance(params, str) else clone(params)
    front.edges_ = Edges(shape, record.cell, record.directions, record.black, record.white)
    n_cell = 9 * front.edges_.out_shape[2] + 1, front.edges_.channels * record.cell**2
    front._inverse = EdgesInverse(tensors.take(f"{prefix}front.inverse", "F64", n_cell))
    front.n_features_in_ = prod(shape)
    tensors.spend(16 * sum(shape[:2]) * max(front.edges_.grid))  # weights of pixels in cells
    return front


def _pack_layer(layer: TrainedLayer, arrays: Arrays, prefix: str) -> dict[str, Any]:
    plan = layer.plan
    pack_nodes(layer.nodes, arrays, prefix)
    # numpy's numbers become Python's, and integers become real where real numbers are meant.
    options = {name: plain(value, name) for name, value in asdict(plan.options).items()}
    return {
        "field": [int(size) for size in plan.fields.field],
        "stride": [int(size) for size in plan.fields.stride],
        "pad": plan.fields.pad,
        "expansion": expansion_text(plan.expansion),
        "pca": None if plan.pca is None else int(plan.pca),
        "shared": plan.shared,
        "clip_range": plan.clip_range,
        "clipped": layer.nodes[0].frontend.low is not None,
        "options": OptionsRecord.model_validate(options, strict=False).model_dump(),
    }


def unpack_network(cls: type, record: NetworkRecord, tensors: Tensors, prefix: str) -> Any:
    pixels, n_axes = tuple(record.input_shape), len(record.trained[0].field)
    if prod(pixels) > MAX_VALUES:
        refuse(f"input_shape must have at most {MAX_VALUES:,} values in all")
    network, front, shape = unpack_common(cls, record, prod(pixels), tensors, prefix), None, pixels
    if record.front is not None:
        front = _unpack_front(record.front, network.front, pixels, tensors, prefix)
        shape = front.edges_.out_shape
    if len(shape) not in (n_axes, n_axes + 1):
        refuse(f"input_shape has {len(shape)} dimensions, a field has {n_axes}")
    if network.n_jobs is not None and (network.n_jobs == 0 or network.n_jobs > MAX_JOBS):
        refuse(f"n_jobs must be from 1 to {MAX_JOBS:,}, or negative")
    grid, width = shape[:n_axes], prod(shape[n_axes:])
    tensors.spend(POSITION_BYTES * sum(grid))
    trained: list[TrainedLayer] = []
    effort = Effort(prod(shape), tensors.size)
    for k, layer in enumerate(record.trained):
        trained.append(_unpack_layer(layer, tensors, f"{prefix}layers.{k}.", grid, width, effort))
        grid, width = trained[-1].plan.fields.shape, trained[-1].plan.n_components
    network._adopt(trained, pixels, front)
    return network


def _unpack_layer(
    record: LayerRecord, tensors: Tensors, prefix: str, grid: tuple[int, ...], width: int, effort: Effort
) -> TrainedLayer:
    plan = LayerPlan(
        _unpack_fields(record, grid, tensors, prefix),
        width,
        read_expansion(record.expansion),
        record.pca,
        record.shared,
        record.clip_range,
        NodeOptions(**dict(record.options)),
    )
    n_nodes = plan.fields.n_nodes
    effort.add_fields(n_nodes, plan.n_raw, plan.n_components)
    n_raw = None if plan.pca is None else plan.n_raw
    shape = NodeShape(plan.expansion, plan.children, plan.n_inputs, n_raw, record.clipped)
    nodes = unpack_nodes(tensors, prefix, shape, 1 if plan.shared else n_nodes, plan.n_components)
    effort.add_work(plan, nodes)
    return StoredLayer(plan, nodes)  # type: ignore[arg-type]


def _unpack_fields(record: LayerRecord, grid: tuple[int, ...], tensors: Tensors, prefix: str) -> Fields:
    """Fields that fit the grid; their number is checked before they are listed."""
    sizes, steps = tuple(record.field), tuple(record.stride)
    if len(sizes) != len(grid) or len(steps) != len(grid):
        refuse(f"{prefix}field and stride must have {len(grid)} dimensions")
    n_positions = 0
    for length, size, step in zip(grid, sizes, steps, strict=True):
        n_steps, left = divmod(length - size, step)
        if size > length or (left and not record.pad):
            refuse(f"{prefix}field {sizes} with stride {steps} does not fit the grid {grid}")
        n_positions += n_steps + 1 + bool(left)
    tensors.spend(POSITION_BYTES * n_positions)
    return Fields(grid, sizes, steps, record.pad)


class LabelRecord(Record):
    name: LabelName
    class_type: str | None
    n_features: Size
    covariance: Share
    mixtures: Some[Share]
    cross_validated: bool


class HeadRecord(Record):
    params: Any
    feature_names_in: bool
    n_features_in: Size
    output_form: Literal["frame", "dict", "vector", "table"]
    labels: Some[LabelRecord]


def pack_head(head: LabelHead, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(head, "models_")
    if head.regressor is not None:
        _refuse_regressor(head.regressor)
    if isinstance(head.cv, bool) or not isinstance(head.cv, int | np.integer):
        raise TypeError(
            f"cv of LabelHead is a {type(head.cv).__name__}, but only a number of folds can be saved; "
            "only fit uses cv, so call head.set_params(cv=5) before saving"
        )
    return {
        **pack_common(head, arrays, prefix),
        "n_features_in": head.n_features_in_,
        "output_form": head.output_form_,
        "labels": [_pack_label(head, name, arrays, f"{prefix}labels.{j}.") for j, name in enumerate(head.label_names_)],
    }


def unpack_head(cls: type, record: HeadRecord, tensors: Tensors, prefix: str) -> LabelHead:
    head = unpack_common(cls, record, record.n_features_in, tensors, prefix)
    head.output_form_, head.label_names_ = record.output_form, []
    head.label_classes_, head.n_used_features_, head.covariance_ = {}, {}, {}
    head.is_numeric_, head.models_, head.cv_results_ = {}, {}, {}
    for j, label in enumerate(record.labels):
        tensors.spend(LABEL_BYTES)
        _unpack_label(head, label, tensors, f"{prefix}labels.{j}.")
    if record.output_form == "vector" and list(head.models_) != [0]:
        refuse("a LabelHead must have exactly one label, 0, if it was fitted to a vector")
    kinds = {ClassifierMixin: [False], RegressorMixin: [True]}
    for kind, expected in kinds.items():
        if issubclass(cls, kind) and (record.output_form, list(head.is_numeric_.values())) != ("vector", expected):
            refuse(f"a {cls.__name__} must have one label of its kind")
    return head


def upgrade_regularization(model: dict[str, Any]) -> None:
    """From protocol 1 to 2: the mixture of covariances was a parameter of the same value for all labels."""
    mixture = model["params"].pop("regularization", None)
    model["params"]["covariance"] = mixture
    for label in model["labels"] if isinstance(model.get("labels"), list) else ():
        if isinstance(label, dict):
            label |= {"covariance": mixture, "mixtures": [mixture]}


def _pack_label(head: LabelHead, name: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    model, scores, classes = head.models_[name], head.cv_results_.get(name), head.label_classes_[name]
    if not isinstance(model, GaussianClasses):
        _refuse_regressor(model, f"for label {name!r} ")
    for part in GAUSSIANS:
        arrays[prefix + part] = getattr(model, part)
    numeric = head.is_numeric_[name]
    arrays[f"{prefix}classes"], dtype = (classes, None) if numeric else _pack_classes(classes)
    mixtures = [head.covariance_[name]]
    if scores is not None:
        mixtures = list(dict.fromkeys(mixture for _, mixture in scores))
        arrays[f"{prefix}tried"] = np.array(list(dict.fromkeys(k for k, _ in scores)), dtype=np.int64)
        arrays[f"{prefix}scores"] = np.array(list(scores.values()))
    return {
        "name": pack_label_name(name),
        "class_type": dtype,
        "n_features": head.n_used_features_[name],
        "covariance": float(head.covariance_[name]),
        "mixtures": [float(mixture) for mixture in mixtures],
        "cross_validated": scores is not None,
    }


def _refuse_regressor(model: Any, where: str = "") -> None:
    raise TypeError(
        f"a LabelHead with regressor= {where}({type(model).__name__}) cannot be saved, only one with Gaussians: fit it "
        "without regressor, or save that estimator separately"
    )


def _unpack_label(head: LabelHead, record: LabelRecord, tensors: Tensors, prefix: str) -> None:
    name, k = record.name, record.n_features
    if name in head.models_:
        refuse(f"label {name!r} appears twice")
    if k > head.n_features_in_:
        refuse(f"{prefix}n_features is {k}, more than the {head.n_features_in_} of the head")
    head.label_names_.append(name)
    head.is_numeric_[name] = record.class_type is None
    head.label_classes_[name] = _unpack_classes(record.class_type, tensors, f"{prefix}classes")
    head.n_used_features_[name], head.covariance_[name] = k, record.covariance
    head.models_[name] = _unpack_gaussians(tensors, prefix, k, len(head.label_classes_[name]))
    if record.cross_validated:
        tried = tensors.take(f"{prefix}tried", "I64", (None,))
        scores = tensors.take(f"{prefix}scores", "F64", (len(tried) * len(record.mixtures),))
        tensors.spend(400 * len(scores))
        if np.any(tried < 1) or np.any(tried > head.n_features_in_) or len(set(tried.tolist())) < len(tried):
            refuse(f"{prefix}tried must hold different numbers of features")
        candidates = product(tried.tolist(), record.mixtures)
        head.cv_results_[name] = dict(zip(candidates, scores.tolist(), strict=True))
        if len(head.cv_results_[name]) < len(scores):
            refuse(f"{prefix}mixtures must be different numbers")


def _unpack_gaussians(tensors: Tensors, prefix: str, k: int, n_classes: int) -> GaussianClasses:
    projection = tensors.take(f"{prefix}projection", "F64", (k, None))
    rank = projection.shape[1]
    if rank > k:
        refuse(f"{prefix}projection has more columns than features")
    scale = tensors.take_any(f"{prefix}scale", "F64", (k,))
    if not np.all(scale > 0):
        refuse(f"{prefix}scale must be positive, or infinite where a feature is constant")
    log_weights = tensors.take_any(f"{prefix}log_weights", "F64", (n_classes,))
    if not np.all(log_weights < np.inf) or not np.any(np.isfinite(log_weights)):
        refuse(f"{prefix}log_weights must be finite, or minus infinity for a class without members")
    shapes = {"center": (k,), "means": (n_classes, rank), "factors": (n_classes, rank, rank)}
    rest = {part: tensors.take(prefix + part, "F64", shape) for part, shape in shapes.items()}
    return GaussianClasses(scale=scale, projection=projection, log_weights=log_weights, **rest)


def _pack_classes(classes: NDArray[Any]) -> tuple[NDArray[np.uint8], str]:
    """The classes of a categorical label as JSON, separated by zeros; and their dtype."""
    dtype = "O" if classes.dtype.kind == "O" else classes.dtype.str[1:]
    values = [value.item() if isinstance(value, np.generic) else value for value in classes.tolist()]
    wrong = [value for value in values if type(value) not in CLASS_TYPES.get(dtype[0], ())]
    if wrong or not CLASS_DTYPE.fullmatch(dtype):
        found = f"{type((wrong or values)[0]).__name__} ({classes.dtype})"
        raise TypeError(f"classes of type {found} cannot be saved; fit the head on strings, whole numbers or booleans")
    return np.frombuffer("\0".join(json.dumps(value) for value in values).encode(), dtype=np.uint8), dtype


def _unpack_classes(dtype: str | None, tensors: Tensors, name: str) -> NDArray[Any]:
    if dtype is None:
        return tensors.take(name, "F64", (None,))
    if not CLASS_DTYPE.fullmatch(dtype):
        refuse(f"{name}: classes cannot have this type")
    raw = tensors.take(name, "U8", (None,))
    n_classes = 1 + int(np.count_nonzero(raw == 0))
    tensors.spend(4 * len(raw) + (CLASS_BYTES + np.dtype(dtype).itemsize) * n_classes)
    values = [_class(written, dtype[0], name) for written in raw.tobytes().split(b"\0")]
    if dtype[0] in "iu" and not all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values):
        refuse(f"{name} holds numbers beyond {np.dtype(dtype)}")  # numpy 1 would fold them in
    with np.errstate(over="ignore"):
        classes = np.array(values, dtype=dtype)
    if classes.tolist() != values:
        refuse(f"{name} holds values that do not fit into {np.dtype(dtype)}")
    return classes


def _class(written: bytes, kind: str, name: str) -> Any:
    if len(written) > MAX_CLASS_TEXT:
        refuse(f"{name}: a class takes more than {MAX_CLASS_TEXT:,} characters")
    try:
        value = parse_json(written)
    except ModelFileError:
        refuse(f"{name} holds a text that is not a class: {written[:40]!r}")
    return value if type(value) in CLASS_TYPES[kind] else refuse(f"{name} holds values that are not of its type")
