"""Statistics in a model file: sums that a stream goes on from, or that parties exchange."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from higsfa.core.graph.edges import EXTENDED
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.sums import Sums
from higsfa.io.container import Arrays, Few, Record, Some, Tensors, Text, refuse
from higsfa.models.parameters import LabelName, Size, expansion_text, pack_label_name, plain, read_expansion
from higsfa.training.federated import LayerStatistics, placeholder
from higsfa.training.statistics import (
    INPUTS,
    ClassRule,
    ClassStatistics,
    LabelStatistics,
    MomentStatistics,
    Origin,
    SequenceStatistics,
)

MAX_GRAPHS, MAX_FUNCTIONS = 64, 1024


class RuleRecord(Record):
    self_loops: bool
    codes: bool
    n_features: Size | None


Term = Annotated[tuple[float, Text, LabelName | None], Strict(False)]  # a list in JSON


class StatisticsRecord(Record):
    origin: Some[Term]
    expansion: str
    n_inputs: Size
    n_channels: Annotated[int, Field(ge=1, le=2**16)]
    precision: Annotated[float, Field(gt=0, lt=1e-2)]
    edge_weight: Annotated[float, Field(ge=0)]
    classes: Few[bool | int | float | Text] | None
    rule: RuleRecord | None
    n_graphs: Annotated[int, Field(ge=0, le=MAX_GRAPHS)]


class LayerStatisticsRecord(Record):
    layer: Size
    network: Some[Text]
    below: Text
    marks: Few[float]
    parts: Some[Text]
    origin: Some[Term]
    n_channels: Annotated[int, Field(ge=1, le=2**16)]
    precision: Annotated[float, Field(gt=0, lt=1e-2)]
    classes: Few[bool | int | float | Text] | None
    rule: RuleRecord | None
    n_graphs: Annotated[int, Field(ge=0, le=MAX_GRAPHS)]


CHANNELS: dict[type, int] = {SequenceStatistics: 2, MomentStatistics: 1}  # at most, of statistics without classes
SUMS = ("weights", "first", "second", "low", "high")


def pack_statistics(statistics: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    sums, frontend = statistics.sums, statistics.frontend
    for name in SUMS:
        arrays[prefix + name] = getattr(sums, name)
    if sums.edges is not None:
        arrays[f"{prefix}edges"] = sums.edges
    arrays[f"{prefix}shift"], arrays[f"{prefix}center"] = statistics.shift, frontend.center
    return {
        **_pack_origin(statistics, arrays, prefix),
        "expansion": expansion_text(frontend.expansion),
        "n_inputs": frontend.n_inputs,
        "precision": float(statistics.precision),
        "edge_weight": float(sums.edge_weight),
    }


def pack_layer_statistics(layer: LayerStatistics, arrays: Arrays, prefix: str) -> dict[str, Any]:
    """Sums of all nodes, one array for each of their members; what they are for is the same for all nodes."""
    for name in SUMS:
        arrays[prefix + name] = np.stack([getattr(node.sums, name) for node in layer.nodes])
    arrays[f"{prefix}shift"] = np.stack([node.shift for node in layer.nodes])
    return {
        **_pack_origin(layer.nodes[0], arrays, prefix),
        "layer": layer.layer,
        "network": list(layer.network),
        "below": layer.below,
        "marks": list(layer.marks),
        "parts": list(layer.parts),
        "precision": max(float(node.precision) for node in layer.nodes),
    }


def _pack_origin(statistics: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    """What sums are for: the graph, its classes or label functions."""
    record: dict[str, Any] = {"classes": None, "rule": None, "n_graphs": 0}
    if isinstance(statistics, ClassStatistics):
        rule = statistics.rule
        record["classes"] = [plain(value, "a class") for value in statistics.classes]
        record["rule"] = {"self_loops": rule.self_loops, "codes": rule.codes, "n_features": rule.n_features}
    if isinstance(statistics, LabelStatistics):
        record["n_graphs"] = len(statistics.label_moments)
        for k, (moments, deltas) in enumerate(zip(statistics.label_moments, statistics.deltas, strict=True)):
            high = moments.astype(np.float64)
            arrays[f"{prefix}{k}.moments"] = np.stack([high, (moments - high).astype(np.float64)])
            arrays[f"{prefix}{k}.deltas"] = deltas
    terms = [
        [float(factor), name, None if label is None else pack_label_name(label)]
        for factor, name, label in statistics.origin.terms
    ]
    return {"origin": terms, "n_channels": statistics.sums.n_channels, **record}


def unpack_statistics(cls: type, record: StatisticsRecord, tensors: Tensors, prefix: str) -> Any:
    expansion, K, I = read_expansion(record.expansion), record.n_channels, record.n_inputs
    center = tensors.take(f"{prefix}center", "F64", (I,))
    graphs = [_unpack_graph(tensors, f"{prefix}{k}.") for k in range(record.n_graphs)]
    shift = tensors.take(f"{prefix}shift", "F64", (None,))
    T, n_rows = len(shift), K + sum(len(deltas) for _, deltas in graphs)
    layout = expansion.layout(I)
    if layout.size > T or layout.size + len(layout.missing) != T:
        refuse(f"its shift has {T} entries, but the expansion of {I} inputs has {layout.size + len(layout.missing)}")
    sums = Sums(
        n_channels=K,
        weights=tensors.take(f"{prefix}weights", "F64", (n_rows,)),
        first=tensors.take(f"{prefix}first", "F64", (n_rows, T)),
        second=tensors.take(f"{prefix}second", "F64", (K, T, T)),
        edges=tensors.take(f"{prefix}edges", "F64", (T, T)) if cls is SequenceStatistics else None,
        low=tensors.take_any(f"{prefix}low", "F64", (I,)),
        high=tensors.take_any(f"{prefix}high", "F64", (I,)),
        edge_weight=record.edge_weight,
    )
    return _make(cls, record, sums, shift, Frontend(expansion, 1, I, center), graphs)


def unpack_layer_statistics(cls: type, record: LayerStatisticsRecord, tensors: Tensors, prefix: str) -> Any:
    K, graphs = record.n_channels, [_unpack_graph(tensors, f"{prefix}{k}.") for k in range(record.n_graphs)]
    shift = tensors.take(f"{prefix}shift", "F64", (None, None))
    (P, T), n_rows = shift.shape, K + sum(len(deltas) for _, deltas in graphs)
    if P == 0 or T == 0 or len(set(record.parts)) < len(record.parts):
        refuse("a layer has nodes, nodes have variables, and the parties must differ")
    tensors.spend(4096 * P)
    weights = tensors.take(f"{prefix}weights", "F64", (P, n_rows))
    first = tensors.take(f"{prefix}first", "F64", (P, n_rows, T))
    second = tensors.take(f"{prefix}second", "F64", (P, K, T, T))
    low = tensors.take_any(f"{prefix}low", "F64", (P, None))
    high = tensors.take_any(f"{prefix}high", "F64", low.shape)
    kind = MomentStatistics if record.origin == list(INPUTS.terms) else LabelStatistics if graphs else ClassStatistics
    frontend = placeholder(T)
    nodes = [
        _make(kind, record, Sums(K, weights[p], first[p], second[p], None, low[p], high[p]), shift[p], frontend, graphs)
        for p in range(P)
    ]
    below = record.below, tuple(record.marks)
    return LayerStatistics(record.layer, tuple(record.network), *below, tuple(record.parts), tuple(nodes))


def _make(cls: type, record: Any, sums: Sums, shift: Any, frontend: Frontend, graphs: list[Any]) -> Any:
    """Statistics of this class, if sums and record are such."""
    K = sums.n_channels
    if np.any(sums.weights[:K] < 0) or np.any(np.isnan(sums.low)) or np.any(np.isnan(sums.high)):
        refuse("weights must not be negative, and ranges must be numbers")
    if np.any(np.einsum("kii->ki", sums.second) < 0):
        refuse("sums of squares must not be negative")
    origin = Origin(tuple(record.origin))
    shared = sums, shift, frontend, record.precision, origin
    without_classes = record.rule is None and record.classes is None
    if without_classes and not graphs and CHANNELS.get(cls, 0) >= K:
        return cls(*shared)
    if cls is LabelStatistics and without_classes and graphs and K == 2:
        return LabelStatistics(*shared, tuple(moments for moments, _ in graphs), tuple(deltas for _, deltas in graphs))
    if cls is ClassStatistics and record.rule is not None and record.classes is not None and not graphs:
        if len(record.classes) + 1 != K or len(set(record.classes)) < len(record.classes):
            refuse("there must be a channel for each class, and the classes must differ")
        rule = ClassRule(record.rule.self_loops, record.rule.codes, record.rule.n_features)
        return ClassStatistics(*shared, tuple(record.classes), rule)
    refuse(f"its members are not those of {cls.__name__}")


def _unpack_graph(tensors: Tensors, prefix: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Moments and wanted Delta values of the functions of one label."""
    deltas = tensors.take(f"{prefix}deltas", "F64", (None,))
    m = len(deltas)
    if not 1 <= m <= MAX_FUNCTIONS or np.any((deltas < 0) | (deltas > 2)):
        refuse(f"a graph has 1 to {MAX_FUNCTIONS} functions, with Delta values from 0 to 2")
    high, low = tensors.take(f"{prefix}moments", "F64", (2, m, m))
    tensors.spend(16 * m * m)
    moments = high.astype(EXTENDED) + low
    if np.any(np.diag(moments) < 0):
        refuse("moments of label functions must not be negative")
    return moments, deltas


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
