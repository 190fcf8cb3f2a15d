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
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from higsfa._files import open_regular, read_regular, write_atomically
from higsfa._model_file import (
    ModelFileError,
    Tensors,
    open_tensors,
    parse_json,
    read_header,
    serialize,
)
from higsfa._model_nodes import NodeShape, pack_nodes, unpack_nodes
from higsfa.core.graph import TrainingGraph
from higsfa.core.nodes import Node
from higsfa.core.statistics import Sums, zero_for
from higsfa.core.tiles import Plan
from higsfa.training.layers import LayerPlan, TrainedLayer

PROTOCOL = 1
INTERVAL = 60.0
"""Seconds between checkpoints within a pass."""
Key = dict[str, str]


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
    _last: float = field(default_factory=time.monotonic)

    def open(self) -> None:
        """Start a new folder, or check that the one that is there belongs to this fit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "manifest.json"
        if manifest.exists():
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
        found = self._read(self._layer_file(k), plan, n_nodes)
        return None if found is None else TrainedLayer(plan, tuple(found[1]))

    def save_layer(self, k: int, layer: TrainedLayer) -> None:
        """Write a finished layer, and remove what was written within it."""
        self._write_nodes(self._layer_file(k), layer.nodes, list(range(len(layer.nodes))))
        for part in self.folder.glob(f"layer{k + 1}-*.safetensors"):
            part.unlink(missing_ok=True)

    def load_nodes(self, k: int, plan: LayerPlan) -> dict[int, Node]:
        """Finished nodes of a layer that was being trained."""
        nodes: dict[int, Node] = {}
        for path in sorted(self.folder.glob(f"layer{k + 1}-nodes-*.safetensors")):
            found = self._read(path, plan, None)
            if found is not None:
                nodes.update(zip(found[0], found[1], strict=True))
        return nodes

    def save_nodes(self, k: int, nodes: dict[int, Node]) -> None:
        """Write some more finished nodes."""
        if nodes:
            numbers = sorted(nodes)
            path = self.folder / f"layer{k + 1}-nodes-{numbers[0]:06d}-{len(nodes)}.safetensors"
            self._write_nodes(path, [nodes[p] for p in numbers], numbers)
        self._last = time.monotonic()

    def _layer_file(self, k: int) -> Path:
        return self.folder / f"layer{k + 1}.safetensors"

    def _write_nodes(self, path: Path, nodes: Sequence[Node], numbers: list[int]) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        pack_nodes(nodes, arrays, "")
        arrays["numbers"] = np.array(numbers, dtype=np.int64)
        clipped = nodes[0].frontend.low is not None
        write_atomically(path, serialize({"format": "higsfa-checkpoint", "clipped": clipped}, arrays))

    def _read(self, path: Path, plan: LayerPlan, n_nodes: int | None) -> tuple[list[int], list[Node]] | None:
        opened = self._open(path)
        if opened is None:
            return None
        with opened[2]:
            header, tensors, _ = opened
            try:
                numbers = tensors.take("numbers", "I64", (n_nodes,)).tolist()
                n_raw = None if plan.pca is None else plan.n_raw
                clipped = bool(header.get("clipped"))
                shape = NodeShape(plan.expansion, plan.children, plan.n_inputs, n_raw, clipped)
                nodes = list(unpack_nodes(tensors, "", shape, len(numbers), plan.n_components))
                tensors.finish()
            except ModelFileError as error:
                raise CheckpointError(f"checkpoint: {path} cannot be read: {error}") from None
        if not all(0 <= p < plan.fields.n_nodes for p in numbers):
            raise CheckpointError(f"checkpoint: {path} holds nodes that the layer does not have")
        return numbers, nodes

    def _open(self, path: Path) -> tuple[dict[str, Any], Tensors, Any] | None:
        if not path.exists():
            return None
        try:
            file = open_regular(path)
        except ValueError as error:
            raise CheckpointError(f"checkpoint: {error}") from None
        try:
            size = os.fstat(file.fileno()).st_size
            header, listing, start = read_header(file, size)
            return header, open_tensors(file, size, listing, start), file
        except ModelFileError as error:
            file.close()
            raise CheckpointError(f"checkpoint: {path} cannot be read: {error}") from None

    # ------------------------------------------------------------------ sums

    def save_sums(self, k: int, first_node: int, next_block: int, trees: list[dict[tuple[int, int], Sums]]) -> None:
        """Write the sums of nodes that are being gathered side by side, up to a block."""
        keys = sorted(trees[0])
        arrays: dict[str, NDArray[Any]] = {
            "place": np.array([first_node, next_block, len(trees)], dtype=np.int64),
            "keys": np.array(keys, dtype=np.int64).reshape(len(keys), 2),
        }
        for i, key in enumerate(keys):
            for name in _PARTS:
                values = [getattr(tree[key], name) for tree in trees]
                if values[0] is not None:
                    arrays[f"{i}.{name}"] = np.stack([np.asarray(value, dtype=np.float64) for value in values])
        write_atomically(self._sums_file(k), serialize({"format": "higsfa-checkpoint"}, arrays))
        self._last = time.monotonic()

    def load_sums(
        self, k: int, first_node: int, sizes: list[tuple[int, int]], plan: Any
    ) -> tuple[int, list[dict[tuple[int, int], Sums]]] | None:
        """Sums of the nodes from `first_node` on, and the block to go on with; None if there are none.

        `sizes` are the numbers of inputs and variables of these nodes, all the same within a layer.
        """
        opened = self._open(self._sums_file(k))
        if opened is None:
            return None
        with opened[2]:
            tensors = opened[1]
            try:
                start, block, n = tensors.take("place", "I64", (3,)).tolist()
                if start != first_node or n != len(sizes):
                    return None
                keys = [tuple(key) for key in tensors.take("keys", "I64", (None, 2)).tolist()]
                empty = zero_for(plan, *sizes[0])
                trees: list[dict[tuple[int, int], Sums]] = [{} for _ in range(n)]
                for i, key in enumerate(keys):
                    parts = {}
                    for name in _PARTS:
                        value = getattr(empty, name)
                        if value is not None:
                            shape = (n, *np.shape(value))
                            parts[name] = tensors.take_any(f"{i}.{name}", "F64", shape)
                    for p, tree in enumerate(trees):
                        tree[key] = _sums(empty.n_channels, {name: value[p] for name, value in parts.items()})
                tensors.finish()
            except ModelFileError as error:
                raise CheckpointError(f"checkpoint: {self._sums_file(k)} cannot be read: {error}") from None
        return block, trees

    def _sums_file(self, k: int) -> Path:
        return self.folder / f"layer{k + 1}-sums.safetensors"


_PARTS = ("weights", "first", "second", "edges", "low", "high", "edge_weight")


def _sums(n_channels: int, parts: dict[str, NDArray[Any]]) -> Sums:
    arrays = {name: np.array(value) for name, value in parts.items() if name != "edge_weight"}
    arrays.setdefault("edges", None)  # type: ignore[arg-type]
    return Sums(n_channels=n_channels, edge_weight=float(parts["edge_weight"]), **arrays)


def fit_key(fingerprint: str, graph: TrainingGraph, plans: list[LayerPlan], dtype: np.dtype[Any], version: str) -> Key:
    """What a fit is of, in short texts: a difference in any of them can be named."""
    key = {"higsfa version": version, "data": fingerprint, "labels": _hash_of_graph(graph), "precision": str(dtype)}
    key["number of layers"] = str(len(plans))
    for number, plan in enumerate(plans, 1):
        fields = plan.fields
        key[f"layer {number}"] = (
            f"grid {fields.grid}, field {fields.field}, stride {fields.stride}, pad {fields.pad}, width {plan.width}, "
            f"expansion {plan.expansion}, pca {plan.pca}, shared {plan.shared}, clip_range {plan.clip_range}, "
            f"{plan.options}"
        )
    return key


def _hash_of_graph(graph: TrainingGraph) -> str:
    sha = hashlib.sha256(np.ascontiguousarray(graph.sample_weight).tobytes())
    for part in graph.parts:
        sha.update(part.vertex_weights.tobytes())
        for value in (getattr(part.edges, one.name) for one in fields(part.edges)):
            if sp.issparse(value):
                value = np.concatenate([value.data, value.indices, value.indptr])
            sha.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return sha.hexdigest()[:16]


class LayerStore:
    """What one layer leaves in a checkpoint while it is being trained."""

    def __init__(self, checkpoint: Checkpoint, k: int, layer: LayerPlan, plan: Plan) -> None:
        self._checkpoint, self._k, self._layer, self._plan = checkpoint, k, layer, plan
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
        sizes = [(g.frontend.n_inputs, g.frontend.n_variables) for g in gatherings]
        found = self._checkpoint.load_sums(self._k, first_node, sizes, self._plan)
        if found is None:
            return 0
        block, trees = found
        for gathering, tree in zip(gatherings, trees, strict=True):
            gathering.waiting.update(tree)
        return block

    def after_block(self, first_node: int, next_block: int, gatherings: Sequence[Any]) -> None:
        """A block has been added to all nodes; written when it is time."""
        if self._checkpoint.due():
            self._checkpoint.save_sums(self._k, first_node, next_block, [dict(g.waiting) for g in gatherings])
