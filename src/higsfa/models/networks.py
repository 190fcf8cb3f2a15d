"""Trained nodes and networks in a model file."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from higsfa.core.edges import Edges, EdgesInverse
from higsfa.core.expansion.terms import Relu
from higsfa.core.fields import Fields
from higsfa.core.node.solve import AUTO, NodeOptions
from higsfa.estimators import ISFA, SFA, OrientedEdges
from higsfa.io.container import Arrays, Record, Some, Tensors, refuse
from higsfa.io.nodes import MAX_VALUES, NodeShape, StoredNodes, pack_nodes, unpack_nodes
from higsfa.models.parameters import Size, expansion_text, pack_common, plain, read_expansion, unpack_common
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.statistics import ClassStatistics

NUMBERS, MOST_NUMBERS, NUMBERS_PER_INPUT = 2**20, 2**26, 128
"""Limit on the numbers that go in and out of all nodes for one sample, with what each number of the sample adds."""
WORK, WORK_PER_BYTE, WORK_PER_INPUT = 2**28, 32, 2**17
"""Limit on multiplications for one sample, with what each byte of the file and each number of the sample adds."""
CALL_WORK, ROW_WORK = 10_000, 100
"""Multiplications that take as long as calling a node for a field, or a term of its expansion; as a row of it."""
POSITION_BYTES = 40  # of a field on one axis of a grid
MAX_JOBS = 1024

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


class SumsNotSaved(ClassStatistics):
    """Stands for the sums of a loaded model, which are not in its file."""

    has_samples = True
    message = (
        "a model that was loaded from a file has no statistics_: they are not saved, so partial_fit cannot continue "
        "it; call fit to train it again"
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
