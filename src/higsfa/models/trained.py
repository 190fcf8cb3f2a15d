"""Trained layers of a network in a model file: receptive fields, plan and nodes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from higsfa.core.fields import Fields
from higsfa.core.solvers import NodeOptions
from higsfa.io.container import MAX_DIGITS, Arrays, Tensors, listed, members, refuse, truth, whole
from higsfa.io.nodes import MAX_VALUES, NodeShape, StoredNodes, pack_nodes, unpack_nodes
from higsfa.models.parameters import expansion_text, plain, read_expansion, typed
from higsfa.training.layers import LayerPlan, TrainedLayer

NUMBERS, MOST_NUMBERS, NUMBERS_PER_INPUT = 2**20, 2**26, 128
"""Numbers that go in and out of all nodes for one sample: so many, and some more for each number of the sample."""
WORK, WORK_PER_BYTE, WORK_PER_INPUT = 2**28, 32, 2**17
"""Multiplications for one sample: so many, and some more for each byte of the file and each number of the sample."""
CALL_WORK, ROW_WORK = 10_000, 100
"""Calling a node for one field, or a term of its expansion, takes as long as so many multiplications; so does a row."""
POSITION_BYTES = 40
"""Memory of one position of a field on one axis of a grid."""
OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "float": (float,),
    "int | None": (int, type(None)),
    "str": (str,),
}
"""Types of values by how NodeOptions declares them."""


def pack_layer(layer: TrainedLayer, arrays: Arrays, prefix: str) -> dict[str, Any]:
    plan = layer.plan
    pack_nodes(layer.nodes, arrays, prefix)
    return {
        "field": [int(size) for size in plan.fields.field],
        "stride": [int(size) for size in plan.fields.stride],
        "pad": plan.fields.pad,
        "expansion": expansion_text(plan.expansion),
        "pca": None if plan.pca is None else int(plan.pca),
        "shared": plan.shared,
        "clip_range": plan.clip_range,
        "clipped": layer.nodes[0].frontend.low is not None,
        "options": {
            option.name: typed(plain(getattr(plan.options, option.name), option.name), OPTION_TYPES[str(option.type)])
            for option in fields(NodeOptions)
        },
    }


class Effort:
    """What a network costs for one sample.

    A node of its own stores what it multiplies with, so that its cost is bounded by the size of the file. A shared node
    is used as often as the grid has fields, and outputs beyond those of the nodes are zeros that nobody stores. What is
    left is bounded by the size of the sample, which whoever uses the network has to bring along.
    """

    def __init__(self, n_inputs: int, n_bytes: int) -> None:
        self._numbers = min(NUMBERS + NUMBERS_PER_INPUT * n_inputs, MOST_NUMBERS) + n_bytes
        self._work = WORK + WORK_PER_INPUT * n_inputs + WORK_PER_BYTE * n_bytes

    def add_fields(self, n_nodes: int, n_raw: int, n_components: int) -> None:
        """Count what goes in and out of a layer, before anything of that size is made."""
        self._numbers -= n_nodes * (n_raw + n_components)
        if self._numbers < 0:
            refuse("the fields of its layers overlap too much, or have too many outputs, for an input of this size")

    def add_work(self, plan: LayerPlan, nodes: StoredNodes) -> None:
        """Count what the nodes of a layer do."""
        n_fields, call = plan.fields.n_nodes, CALL_WORK
        if nodes.expand:
            call += CALL_WORK * len(plan.expansion.terms) + ROW_WORK * nodes.n_expanded
        self._work -= call * n_fields + nodes.n_stored * (n_fields if plan.shared else 1)
        if self._work < 0:
            refuse("its layers take too much work for an input and a file of this size")


class StoredLayer(TrainedLayer):
    """A layer whose nodes are made when they are asked for."""

    def table(self) -> Any:
        return self.nodes.table()  # type: ignore[attr-defined]


def unpack_layer(
    record: Any, tensors: Tensors, prefix: str, grid: tuple[int, ...], width: int, effort: Effort
) -> TrainedLayer:
    field, stride, pad, expansion, pca, shared, clip_range, clipped, options = members(
        record, prefix, "field", "stride", "pad", "expansion", "pca", "shared", "clip_range", "clipped", "options"
    )
    plan = LayerPlan(
        _unpack_fields(grid, field, stride, truth(pad, f"{prefix}pad"), tensors, prefix),
        width,
        read_expansion(expansion),
        None if pca is None else whole(pca, f"{prefix}pca", 1, 10**MAX_DIGITS),
        truth(shared, f"{prefix}shared"),
        truth(clip_range, f"{prefix}clip_range"),
        _unpack_options(options, f"{prefix}options"),
    )
    n_nodes = plan.fields.n_nodes
    effort.add_fields(n_nodes, plan.n_raw, plan.n_components)
    n_raw = None if plan.pca is None else plan.n_raw
    shape = NodeShape(plan.expansion, plan.children, plan.n_inputs, n_raw, truth(clipped, f"{prefix}clipped"))
    nodes = unpack_nodes(tensors, prefix, shape, 1 if plan.shared else n_nodes, plan.n_components)
    effort.add_work(plan, nodes)
    return StoredLayer(plan, nodes)  # type: ignore[arg-type]


def _unpack_fields(grid: tuple[int, ...], field: Any, stride: Any, pad: bool, tensors: Tensors, prefix: str) -> Fields:
    """Fields that fit the grid. Their number is computed before any of them is listed."""
    sizes, steps = (
        tuple(whole(n, f"{prefix}{name}", 1, MAX_VALUES) for n in listed(value, f"{prefix}{name}", 3))
        for name, value in (("field", field), ("stride", stride))
    )
    if len(sizes) != len(grid) or len(steps) != len(grid):
        refuse(f"{prefix}field and stride must have {len(grid)} dimensions")
    shape = []
    for length, size, step in zip(grid, sizes, steps, strict=True):
        n_steps, left = divmod(length - size, step)
        if size > length or (left and not pad):
            refuse(f"{prefix}field {sizes} with stride {steps} does not fit the grid {grid}")
        shape.append(n_steps + 1 + bool(left))
    tensors.spend(POSITION_BYTES * sum(shape))
    return Fields(grid, sizes, steps, pad)


def _unpack_options(record: Any, what: str) -> NodeOptions:
    names = [option.name for option in fields(NodeOptions)]
    values = dict(zip(names, members(record, what, *names), strict=True))
    for option in fields(NodeOptions):
        if type(values[option.name]) not in OPTION_TYPES[str(option.type)]:
            refuse(f"{what}: {option.name} has a value of the wrong type")
    whole(values["n_components"], f"{what}: n_components", 1, MAX_VALUES)
    if values["scaling"] not in ("sensitivity", "qr"):
        refuse(f"{what}: unknown scaling")
    return NodeOptions(**values)
