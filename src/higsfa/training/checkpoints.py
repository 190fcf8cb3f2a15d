"""Checkpoints of a fit: a folder from which an interrupted fit goes on, to the same bits.

The folder holds a manifest that says what the fit is of, one file for every finished layer, and for the layer that is
being trained either its finished nodes or, where tiles are streamed, the sums so far. Every file is written atomically,
in the container of model files, and read with the same suspicion.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa.core.expansion.terms import Function, Term
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.node.node import Node
from higsfa.core.sums.sums import Sums, Tree, zero
from higsfa.io import open_regular, read_regular, write_atomically
from higsfa.io.container import (
    Tensors,
    open_tensors,
    parse_json,
    read_header,
    refuse,
    serialize,
)
from higsfa.io.nodes import NodeShape, pack_nodes, unpack_nodes
from higsfa.training.identity import UnknownIdentity, identify
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.stores import Schedule

PROTOCOL = 2
INTERVAL = 60.0
"""Seconds between checkpoints within a pass."""
Key = dict[str, str]
Knot = tuple[int, int]
"""Of the tree that merges sums: level and number."""


class CheckpointError(ValueError):
    """A checkpoint does not belong to this fit, or cannot be read."""


@dataclass
class Checkpoint:
    """A folder of checkpoints.

    Parameters
    ----------
    folder : created if it is not there.
    key : what the fit is of: data, labels, settings, version; a checkpoint with another key is refused.
    interval : seconds between checkpoints within a pass.
    """

    folder: Path
    key: Key
    interval: float = field(default_factory=lambda: INTERVAL)
    _last: float = field(default_factory=lambda: time.monotonic())

    def open(self) -> None:
        """Start a new folder, or check that the one that is there belongs to this fit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "manifest.json"
        if os.path.lexists(manifest):
            self._compare(manifest)
            return
        if any(self.folder.glob("layer*.safetensors")):
            raise CheckpointError(f"checkpoint: {self.folder} holds layers but no manifest; use another folder")
        record = {"format": "higsfa-checkpoint", "protocol": PROTOCOL, "key": self.key}
        write_atomically(manifest, (json.dumps(record, indent=1) + "\n").encode())

    def _compare(self, manifest: Path) -> None:
        try:
            record = parse_json(read_regular(manifest, 2**20))
            known, protocol = record["key"], record["protocol"]
            readable = isinstance(known, dict) and record["format"] == "higsfa-checkpoint"
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"checkpoint: {manifest} cannot be read ({error}); use another folder") from None
        if not readable or protocol != PROTOCOL:
            raise CheckpointError(f"checkpoint: {manifest} is of another kind or version; use another folder")
        for name in [*self.key, *known]:
            mine, theirs = self.key.get(name), known.get(name)
            if mine != theirs:
                raise CheckpointError(
                    f"checkpoint: the one in {self.folder} is of another fit; {name} was {theirs!s:.200} there and is "
                    f"{mine!s:.200} now. Use another folder, or remove this one to start again"
                )

    def due(self) -> bool:
        """Whether it is time to write again within a pass."""
        return time.monotonic() - self._last >= self.interval

    # ------------------------------------------------------------------ nodes

    def load_layer(self, k: int, plan: LayerPlan) -> TrainedLayer | None:
        """A finished layer, if there is one."""
        n_nodes = 1 if plan.shared else plan.fields.n_nodes
        nodes = self._read_nodes(self._layer_file(k), k, plan, n_nodes)
        return TrainedLayer(plan, tuple(nodes.values())) if nodes else None

    def save_layer(self, k: int, layer: TrainedLayer) -> None:
        """Write a finished layer, and remove what was written within it."""
        self._write_nodes(self._layer_file(k), k, layer.nodes, list(range(len(layer.nodes))))
        for part in self.folder.glob(f"layer{k + 1}-*.safetensors"):
            part.unlink(missing_ok=True)

    def load_nodes(self, k: int, plan: LayerPlan) -> dict[int, Node]:
        """Finished nodes of a layer that was being trained."""
        nodes: dict[int, Node] = {}
        for path in sorted(self.folder.glob(f"layer{k + 1}-nodes-*.safetensors")):
            nodes |= self._read_nodes(path, k, plan, None)
        return nodes

    def save_nodes(self, k: int, nodes: dict[int, Node]) -> None:
        """Write some more finished nodes."""
        numbers = sorted(nodes)
        path = self.folder / f"layer{k + 1}-nodes-{numbers[0]:06d}-{len(nodes)}.safetensors"
        self._write_nodes(path, k, [nodes[p] for p in numbers], numbers)
        self._last = time.monotonic()

    def _layer_file(self, k: int) -> Path:
        return self.folder / f"layer{k + 1}.safetensors"

    def _write_nodes(self, path: Path, k: int, nodes: Sequence[Node], numbers: list[int]) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        pack_nodes(nodes, arrays, "")
        arrays["numbers"] = np.array(numbers, dtype=np.int64)
        self._write(path, k, arrays)

    def _read_nodes(self, path: Path, k: int, plan: LayerPlan, n_nodes: int | None) -> dict[int, Node]:
        """Nodes by number; all of them if `n_nodes` is given, otherwise some."""
        if not os.path.lexists(path):
            return {}
        with self._reading(path, k) as (tensors, _):
            numbers = tensors.take("numbers", "I64", (n_nodes,)).tolist()
            if any(a >= b for a, b in pairwise([-1, *numbers, plan.fields.n_nodes])):
                refuse(f"its nodes {numbers!s:.100} are not some of {plan.fields.n_nodes}, in ascending order")
            n_raw = None if plan.pca is None else plan.n_raw
            clipped = plan.clip_range and not plan.expansion.is_linear
            shape = NodeShape(plan.expansion, plan.children, plan.n_inputs, n_raw, clipped)
            nodes = unpack_nodes(tensors, "", shape, len(numbers), plan.n_components)
        return dict(zip(numbers, nodes, strict=True))

    # ------------------------------------------------------------------ sums

    def save_sums(self, k: int, place: SumsPlace, next_block: int, trees: list[dict[Knot, Sums]]) -> None:
        """Write the sums of nodes that are being gathered side by side, up to a block."""
        knots = sorted(trees[0])
        arrays: dict[str, NDArray[Any]] = {
            "place": np.array([place.first_node, next_block, place.n_nodes], dtype=np.int64),
            "keys": np.array(knots, dtype=np.int64).reshape(len(knots), 2),
        }
        for i, knot in enumerate(knots):
            for name in _PARTS:
                values = [getattr(tree[knot], name) for tree in trees]
                if values[0] is not None:
                    arrays[f"{i}.{name}"] = np.stack([np.asarray(value, dtype=np.float64) for value in values])
        self._write(self._sums_file(k), k, arrays, inputs=place.inputs)
        self._last = time.monotonic()

    def load_sums(self, k: int, place: SumsPlace) -> tuple[int, list[dict[Knot, Sums]]] | None:
        """Sums of these nodes, and the block to go on with; None if there are none of them."""
        path = self._sums_file(k)
        if not os.path.lexists(path):
            return None
        with self._reading(path, k, whole=False) as (tensors, header):
            first_node, block, n = tensors.take("place", "I64", (3,)).tolist()
            if (first_node, n) != (place.first_node, place.n_nodes):
                return None  # of other nodes, which were gathered side by side before
            if header.get("inputs") != place.inputs:
                warnings.warn(
                    f"checkpoint: the sums in {path} were gathered over other inputs than the layers below give now, "
                    "as on another processor; they are gathered again",
                    stacklevel=2,
                )
                return None
            expected = place.waiting(block)
            knots = [tuple(knot) for knot in tensors.take("keys", "I64", (None, 2)).tolist()]
            if not expected or knots != sorted(expected):
                refuse(f"its sums {knots!s:.100} are not those of the first {block} of {place.n_blocks} blocks")
            trees: list[dict[Knot, Sums]] = [{} for _ in range(n)]
            for i, knot in enumerate(knots):
                parts = {
                    name: tensors.take_any(f"{i}.{name}", "F64", (n, *np.shape(getattr(place.empty, name))))
                    for name in _PARTS
                    if getattr(place.empty, name) is not None
                }
                if np.any(parts["weights"] != expected[knot]):  # added up in the same order, to the same bits
                    refuse(f"its sums {knot} do not have the weights of their blocks")
                for p, tree in enumerate(trees):
                    tree[knot] = _sums(place.empty.n_channels, {name: value[p] for name, value in parts.items()})
            tensors.finish()
        return block, trees

    def _sums_file(self, k: int) -> Path:
        return self.folder / f"layer{k + 1}-sums.safetensors"

    # ------------------------------------------------------------------ files

    def _about(self, k: int) -> dict[str, Any]:
        """What every file of a layer says of itself, so that it is not taken for another one."""
        fit = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        return {"format": "higsfa-checkpoint", "fit": fit, "layer": k + 1}

    def _write(self, path: Path, k: int, arrays: dict[str, NDArray[Any]], **more: str) -> None:
        write_atomically(path, serialize({**self._about(k), **more}, arrays))

    @contextmanager
    def _reading(self, path: Path, k: int, *, whole: bool = True) -> Iterator[tuple[Tensors, dict[str, Any]]]:
        """The arrays and the header of a file, of which all must be taken if it is to be read whole."""
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                header, listing, start = read_header(file, size)
                about = self._about(k)
                if {name: header.get(name) for name in about} != about:
                    refuse("it is of another fit or another layer")
                tensors = open_tensors(file, size, listing, start)
                yield tensors, header
                if whole:
                    tensors.finish()
        except ValueError as error:  # ModelFileError is one
            raise CheckpointError(
                f"checkpoint: {path} cannot be read: {error}; use another folder, or remove this file to train again "
                "what it holds"
            ) from None


@dataclass(frozen=True, eq=False)
class SumsPlace:
    """Which sums are gathered: of which nodes, over which blocks, of what.

    Attributes
    ----------
    first_node, n_nodes : nodes that are gathered side by side.
    schedule : blocks and tiles.
    empty : sums of one node over no samples.
    inputs : fingerprint of the nodes' frontends and shifts.
    """

    first_node: int
    n_nodes: int
    schedule: Schedule
    empty: Sums
    inputs: str

    @classmethod
    def of(cls, first_node: int, gatherings: Sequence[Any], schedule: Schedule) -> SumsPlace:
        sha = hashlib.sha256()
        for gathering in gatherings:
            frontend = gathering.frontend
            projection = () if frontend.projection is None else (frontend.projection.matrix, frontend.projection.mean)
            for array in (frontend.center, gathering.shift, *projection):
                sha.update(np.ascontiguousarray(array).tobytes())
        empty = zero(frontend.n_inputs, frontend.n_variables, schedule.plan)
        return cls(first_node, len(gatherings), schedule, empty, sha.hexdigest()[:16])

    @property
    def n_blocks(self) -> int:
        return len(self.schedule.blocks)

    def waiting(self, next_block: int) -> dict[Knot, NDArray[np.float64]]:
        """The sums that wait in the tree after the blocks before `next_block`, by their weights; none if out of range.

        Found from the plan alone, in the way of the sums themselves.
        """
        tree = Tree(np.add)
        if 0 < next_block <= self.n_blocks:
            for block, tiles in enumerate(self.schedule.blocks[:next_block]):
                if tiles:
                    tree.add(block, np.sum([tile.weights for tile in tiles], axis=0))
        return tree.waiting


_PARTS = ("weights", "first", "second", "edges", "low", "high", "edge_weight")


def _sums(n_channels: int, parts: dict[str, NDArray[Any]]) -> Sums:
    arrays = {name: np.array(value) for name, value in parts.items() if name != "edge_weight"}
    arrays.setdefault("edges", None)  # type: ignore[arg-type]
    return Sums(n_channels=n_channels, edge_weight=float(parts["edge_weight"]), **arrays)


def fit_key(fingerprint: str, graph: TrainingGraph, plans: list[LayerPlan], dtype: np.dtype[Any], version: str) -> Key:
    """What a fit is of, in short texts: a difference in any of them can be named."""
    key = {"higsfa version": version, "data": fingerprint, "labels": _hash_of_graph(graph), "precision": str(dtype)}
    key["number of layers"] = str(len(plans))
    return key | describe_layers(plans)


def describe_layers(plans: Sequence[LayerPlan]) -> Key:
    """A text for every layer; layers that differ have different texts."""
    key = {}
    for number, plan in enumerate(plans, 1):
        fields = plan.fields
        expansion = " | ".join(_term(term, number) for term in plan.expansion.terms)
        key[f"layer {number}"] = (
            f"grid {fields.grid}, field {fields.field}, stride {fields.stride}, pad {fields.pad}, width {plan.width}, "
            f"expansion {expansion}, pca {plan.pca}, shared {plan.shared}, clip_range {plan.clip_range}, "
            f"{plan.options}" + ("" if plan.n_fields is None else f", n_fields {plan.n_fields}")
        )
    return key


def _term(term: Term, number: int) -> str:
    """A term of an expansion; functions that differ have different texts."""
    if not isinstance(term, Function):
        return str(term)
    try:
        return f"{term} {identify(term.func)}"
    except UnknownIdentity as error:
        raise CheckpointError(
            f"checkpoint: the expansion {term} of layer {number} cannot be told from others after an interruption, "
            f"because {error}; write it as a function of arrays and plain values, or fit without checkpoint"
        ) from None


def _hash_of_graph(graph: TrainingGraph) -> str:
    sha = hashlib.sha256(np.ascontiguousarray(graph.sample_weight).tobytes())
    for part in graph.parts:
        sha.update(part.vertex_weights.tobytes())
        for value in (getattr(part.edges, one.name) for one in fields(part.edges) if one.init):
            if sp.issparse(value):
                value = np.concatenate([value.data, value.indices, value.indptr])
            sha.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return sha.hexdigest()[:16]


class LayerProgress:
    """What one layer leaves in a checkpoint while it is being trained."""

    def __init__(self, checkpoint: Checkpoint, k: int, layer: LayerPlan, schedule: Schedule) -> None:
        self._checkpoint, self._k, self._layer, self._schedule = checkpoint, k, layer, schedule
        self._fresh: dict[int, Node] = {}
        self._lock = threading.Lock()

    def finished(self) -> dict[int, Node]:
        """Nodes that were finished before an interruption."""
        return self._checkpoint.load_nodes(self._k, self._layer)

    def add(self, p: int, node: Node) -> None:
        """A node is finished; written when it is time."""
        with self._lock:
            self._fresh[p] = node
            if self._checkpoint.due():
                self._checkpoint.save_nodes(self._k, self._fresh)
                self._fresh = {}

    def resume(self, first_node: int, gatherings: Sequence[Any]) -> int:
        """Restore the sums of nodes that are gathered side by side; returns the block to go on with."""
        found = self._checkpoint.load_sums(self._k, SumsPlace.of(first_node, gatherings, self._schedule))
        if found is None:
            return 0
        block, trees = found
        for gathering, tree in zip(gatherings, trees, strict=True):
            gathering.tree.waiting.update(tree)
        return block

    def after_block(self, first_node: int, next_block: int, gatherings: Sequence[Any]) -> None:
        """A block has been added to all nodes; written when it is time."""
        if self._checkpoint.due():
            place = SumsPlace.of(first_node, gatherings, self._schedule)
            self._checkpoint.save_sums(self._k, place, next_block, [g.tree.waiting for g in gatherings])
