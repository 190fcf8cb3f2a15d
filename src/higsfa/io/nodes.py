"""Trained nodes in a file: the nodes of a layer as a few stacked arrays.

A network has thousands of nodes, so a loaded layer keeps the stacked arrays and makes nodes, views of them, on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion
from higsfa.core.expansion.kernel import Kernel
from higsfa.core.node.frontend import Frontend, Projection
from higsfa.core.node.node import Node
from higsfa.io.container import Arrays, Tensors, refuse, refusing

MAX_VALUES = 2**24  # in a sample, in the expanded input of a node, or in the output of a layer
STACKED = ("slow", "slow_offset", "rest_inputs", "rest_offset", "output_mean")  # the rows of all nodes
FLAT = ("rest_slow", "decoder")  # the matrices of all nodes, flattened
MATRICES = ("slow", "rest_inputs", "rest_slow", "decoder")
NODE_BYTES = 100  # for a node of a layer: where its arrays begin, and a copy of its sizes


@dataclass(frozen=True)
class NodeShape:
    """What the nodes of a layer have in common; see `Frontend`."""

    expansion: Expansion
    children: int
    n_inputs: int
    n_raw: int | None  # inputs before the projection on principal components; None without one
    clipped: bool  # whether inputs are clipped to a range

    @property
    def n_expanded(self) -> int:
        return self.expansion.size(self.n_inputs // self.children, self.children)

    @property
    def has_kernel(self) -> bool:
        return isinstance(self.expansion.terms[0], Kernel)


def pack_nodes(nodes: Sequence[Node], arrays: Arrays, prefix: str) -> None:
    """Stack the arrays of a layer's nodes."""
    nodes = list(nodes)
    frontends = [node.frontend for node in nodes]
    arrays[f"{prefix}nodes"] = np.array([_sizes(node) for node in nodes], dtype=np.int64)
    arrays[f"{prefix}center"] = np.stack([f.center for f in frontends])
    if frontends[0].low is not None:
        arrays[f"{prefix}low"] = np.stack([f.low for f in frontends])  # type: ignore[misc]
        arrays[f"{prefix}high"] = np.stack([f.high for f in frontends])  # type: ignore[misc]
    if frontends[0].projection is not None:
        projections: list[Any] = [f.projection for f in frontends]
        arrays[f"{prefix}axes"] = np.stack([p.matrix.T for p in projections])
        arrays[f"{prefix}axes_mean"] = np.stack([p.mean for p in projections])
    kernel = frontends[0].expansion.terms[0]
    if isinstance(kernel, Kernel):
        assert kernel.points is not None
        arrays[f"{prefix}points"] = kernel.points
        arrays[f"{prefix}width"] = np.array([kernel.width])
    for name in STACKED:
        arrays[prefix + name] = np.concatenate([getattr(node, name) for node in nodes])
    for name in FLAT:
        arrays[prefix + name] = np.concatenate([getattr(node, name).ravel() for node in nodes])
    arrays[f"{prefix}decode_offset"] = np.stack([node.decode_offset for node in nodes])
    deltas = np.full((len(nodes), max(len(node.delta_values) for node in nodes)), np.nan)
    for row, node in zip(deltas, nodes, strict=True):
        row[: len(node.delta_values)] = node.delta_values
    arrays[f"{prefix}delta_values"] = deltas


def _sizes(node: Node) -> list[int]:
    """J, D, rank, number of Delta values, and bits for the matrices that are column-major."""
    matrices = [getattr(node, name) for name in MATRICES]
    if node.frontend.projection is not None:
        matrices.append(node.frontend.projection.matrix)
    layout = sum(1 << k for k, matrix in enumerate(matrices) if _column_major(matrix))
    return [node.n_slow, node.n_components, node.rank, len(node.delta_values), layout]


def _column_major(matrix: NDArray[Any]) -> bool:
    """Whether a copy of the matrix is column-major; the last bits of a product depend on it."""
    flags = np.empty_like(matrix).flags
    return bool(flags.f_contiguous and not flags.c_contiguous)


class StoredNodes(Sequence[Node]):
    """The nodes of a loaded layer, made on demand. Those taken by index are kept; iteration keeps none."""

    def __init__(self, shape: NodeShape, arrays: Arrays) -> None:
        self._shape, self._arrays = shape, arrays
        J, D = arrays["nodes"][:, :2].T
        self._slow, self._rest, self._cross = (
            np.concatenate([[0], np.cumsum(sizes)]) for sizes in (J, D - J, (D - J) * J)
        )
        self._made: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._arrays["nodes"])

    @property
    def n_stored(self) -> int:
        """How many numbers all nodes have."""
        return sum(array.size for array in self._arrays.values())

    @property
    def n_expanded(self) -> int:
        return self._shape.n_expanded

    @property
    def expand(self) -> bool:
        """Whether any node has slow features, which need the expansion."""
        return bool(self._slow[-1])

    def table(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """J, rank and Delta values of all nodes, without making them."""
        sizes, deltas = self._arrays["nodes"], self._arrays["delta_values"]
        return sizes[:, 0].astype(np.intp), sizes[:, 2].astype(np.intp), deltas.copy()

    def __iter__(self) -> Iterator[Node]:
        return map(self._make, range(len(self)))

    def __getitem__(self, p: Any) -> Any:
        if isinstance(p, slice):
            return tuple(self[q] for q in range(*p.indices(len(self))))
        p = range(len(self))[p]
        if p not in self._made:
            self._made[p] = self._make(p)
        return self._made[p]

    @np.errstate(all="ignore")  # a damaged file may hold numbers whose products overflow
    def _make(self, p: int) -> Node:
        arrays, n_inputs = self._arrays, self._shape.n_inputs
        J, D, rank, n_deltas, layout = arrays["nodes"][p].tolist()
        slow, rest, cross = (slice(*ends[p : p + 2].tolist()) for ends in (self._slow, self._rest, self._cross))
        first, last = slow.start + rest.start, slow.stop + rest.stop
        matrices = {
            "slow": arrays["slow"][slow],
            "rest_inputs": arrays["rest_inputs"][rest],
            "rest_slow": arrays["rest_slow"][cross].reshape(D - J, J),
            "decoder": arrays["decoder"][first * n_inputs : last * n_inputs].reshape(n_inputs, D),
        }
        return Node(
            frontend=self._frontend(p, bool(layout >> len(MATRICES) & 1)),
            slow_offset=arrays["slow_offset"][slow],
            rest_offset=arrays["rest_offset"][rest],
            decode_offset=arrays["decode_offset"][p],
            delta_values=arrays["delta_values"][p, :n_deltas],
            rank=rank,
            output_mean=arrays["output_mean"][first:last],
            **{name: _laid_out(matrices[name], bool(layout >> k & 1)) for k, name in enumerate(MATRICES)},
        )

    def _frontend(self, p: int, column_major: bool) -> Frontend:
        arrays, shape, projection = self._arrays, self._shape, None
        low, high = (arrays["low"][p], arrays["high"][p]) if shape.clipped else (None, None)
        if shape.n_raw is not None:
            projection = Projection(_laid_out(arrays["axes"][p].T, column_major), arrays["axes_mean"][p])
        expansion = shape.expansion
        if shape.has_kernel:
            kernel: Any = expansion.terms[0]
            expansion = Expansion((replace(kernel, points=arrays["points"], width=float(arrays["width"][0])),))
        return Frontend(expansion, shape.children, shape.n_inputs, arrays["center"][p], low, high, projection)


def _laid_out(matrix: NDArray[Any], column_major: bool) -> NDArray[Any]:
    return np.asfortranarray(matrix) if column_major else np.ascontiguousarray(matrix)


def unpack_nodes(tensors: Tensors, prefix: str, shape: NodeShape, n_nodes: int, n_components: int) -> StoredNodes:
    """Read the nodes of a layer, each with at most `n_components` outputs."""
    with refusing(f"{prefix}expansion"):
        n_expanded = shape.n_expanded
    if n_expanded > MAX_VALUES:
        refuse(f"{prefix}expansion: an expanded size of more than {MAX_VALUES:,} is not possible")
    tensors.spend(NODE_BYTES * n_nodes)
    I = shape.n_inputs
    table = tensors.take(f"{prefix}nodes", "I64", (n_nodes, 5))
    _check_sizes(table, prefix, shape, n_components)
    J, D = table[:, 0], table[:, 1]
    n_slow, n_rest = int(J.sum()), int((D - J).sum())
    shapes: dict[str, tuple[int | None, ...]] = {
        "center": (n_nodes, I),
        "slow": (n_slow, n_expanded),
        "slow_offset": (n_slow,),
        "rest_inputs": (n_rest, I),
        "rest_slow": (int(((D - J) * J).sum()),),
        "rest_offset": (n_rest,),
        "decoder": (I * (n_slow + n_rest),),
        "decode_offset": (n_nodes, I),
        "output_mean": (n_slow + n_rest,),
    }
    if shape.clipped:
        shapes |= {"low": (n_nodes, I), "high": (n_nodes, I)}
    if shape.n_raw is not None:
        shapes |= {"axes": (n_nodes, shape.n_raw, I), "axes_mean": (n_nodes, shape.n_raw)}
    if any(isinstance(term, Kernel) for term in shape.expansion.terms):
        if n_nodes > 1 or len(shape.expansion.terms) > 1 or shape.expansion.terms[0].selection is not None:
            refuse(f"{prefix}expansion: a kernel is for one node, alone and without a slice")
        shapes |= {"points": (n_expanded, I), "width": (1,)}
    arrays = {"nodes": table, "delta_values": _deltas(tensors, f"{prefix}delta_values", table[:, 3])}
    arrays |= {name: tensors.take(prefix + name, "F64", size) for name, size in shapes.items()}
    if shape.clipped and np.any(arrays["low"] > arrays["high"]):
        refuse(f"{prefix}low is above {prefix}high")
    if shape.has_kernel and not arrays["width"][0] > 0:
        refuse(f"{prefix}width must be positive")
    return StoredNodes(shape, arrays)


def _check_sizes(table: NDArray[Any], prefix: str, shape: NodeShape, n_components: int) -> None:
    n_expanded, n_matrices = shape.n_expanded, len(MATRICES) + (shape.n_raw is not None)
    most = [min(n_components, n_expanded), n_components, n_expanded, n_expanded, (1 << n_matrices) - 1]
    if np.any(table < 0) or np.any(table > np.array(most)):
        refuse(f"{prefix}nodes holds sizes that are out of range")
    J, D, rank, n_deltas, _ = table.T
    if np.any(D < J) or np.any(shape.n_inputs < D - J) or np.any(n_deltas < J) or np.any(rank < J):
        refuse(f"{prefix}nodes holds sizes that do not fit together")


def _deltas(tensors: Tensors, name: str, counts: NDArray[Any]) -> NDArray[Any]:
    """Delta values, one row per node, NaN beyond its last one."""
    longest = int(counts.max())
    tensors.spend(8 * len(counts) * longest)
    deltas = tensors.take_any(name, "F64", (len(counts), longest))
    if np.any(np.isfinite(deltas) != (np.arange(longest) < counts[:, None])):
        refuse(f"array {name} does not hold the numbers that its nodes have")
    return deltas
