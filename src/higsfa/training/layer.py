"""Layers before and after training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion
from higsfa.core.fields import Fields
from higsfa.core.node.node import Frontend, Node, Projection
from higsfa.core.node.solve import NodeOptions
from higsfa.training.runner import Runner
from higsfa.training.stores import Block, field_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LayerPlan:
    """One layer before training: where its fields lie and what its nodes shall do.

    Attributes
    ----------
    fields : receptive fields.
    width : outputs of each node of the layer below, or channels of a pixel.
    expansion : of the nodes' input.
    pca : number of principal components of the raw input that the nodes work on; None for the raw input itself.
    shared : whether one node, trained on all fields, serves them all.
    clip_range : whether the range guard is on.
    options : what the nodes extract; n_components is a number.
    rounding : relative rounding of the data, where it is coarser than that of the products.
    """

    fields: Fields
    width: int
    expansion: Expansion
    pca: int | None
    shared: bool
    clip_range: bool
    options: NodeOptions
    rounding: float = field(default=0.0, compare=False)  # of the data, not of the layer

    def precision(self, dtype: np.dtype[Any]) -> float:
        """Relative precision of sums whose products are of this type."""
        return max(float(np.finfo(dtype).eps), self.rounding)

    @property
    def n_raw(self) -> int:
        """Raw inputs of a node."""
        return self.fields.children * self.width

    @property
    def n_inputs(self) -> int:
        """Inputs of a node after the projection."""
        return self.n_raw if self.pca is None else min(self.pca, self.n_raw)

    @property
    def children(self) -> int:
        return self.fields.children if self.pca is None else 1

    @property
    def frontend_size(self) -> int:
        """Variables that the sums of a node are over."""
        return self.frontend(np.zeros(self.n_inputs)).n_variables

    @property
    def n_components(self) -> int:
        assert self.options.n_components is not None
        return self.options.n_components

    def frontend(self, center: Floats, projection: Projection | None = None) -> Frontend:
        return Frontend(self.expansion, self.children, self.n_inputs, center, projection=projection)


@dataclass(frozen=True, eq=False)
class TrainedLayer:
    """A layer after training: its plan and one node per field, or one for all of them."""

    plan: LayerPlan
    nodes: tuple[Node, ...]

    def node(self, p: int) -> Node:
        return self.nodes[0] if self.plan.shared else self.nodes[p]

    def encode(self, block: Block, dtype: np.dtype[Any], run: Runner) -> Block:
        """Features of this layer from those of the layer below."""
        index = self.plan.fields.index
        out: Block = np.empty((len(index), self.plan.n_components, block.shape[2]), dtype=dtype)

        def work(p: int) -> None:
            self.node(p).encode(field_of(block, index[p]), out[p])

        run(work, len(index))
        return out

    def decode(self, block: Block, run: Runner) -> Block:
        """Features of the layer below, from those of this layer; where fields overlap, the mean of what they say."""
        fields = self.plan.fields
        below = np.zeros((int(np.prod(fields.grid)), self.plan.width, block.shape[2]), dtype=block.dtype)
        parts: list[Any] = [None] * fields.n_nodes

        def work(p: int) -> None:
            parts[p] = self.node(p).decode(block[p]).reshape(fields.children, *below.shape[1:])

        run(work, fields.n_nodes)
        counts = np.zeros(len(below), dtype=block.dtype)
        for p, part in enumerate(parts):
            below[fields.index[p]] += part
            counts[fields.index[p]] += 1
        below /= np.maximum(counts, 1)[:, None, None]
        return below

    def table(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        """J and rank of every node, and the Delta values of its slow features, NaN beyond its last."""
        sizes = np.array([(node.n_slow, node.rank, len(node.delta_values)) for node in self.nodes], dtype=np.intp)
        deltas = np.full((len(sizes), sizes[:, 2].max()), np.nan)
        for row, node in zip(deltas, self.nodes, strict=True):
            row[: len(node.delta_values)] = node.delta_values
        return sizes[:, 0], sizes[:, 1], deltas

    @property
    def output_means(self) -> Floats | None:
        """(nodes, D) mean of every output over the training data; zeros beyond the rank of a node.

        None if weights are shared: the node knows its mean over all fields, not over each of them.
        """
        if self.plan.shared:
            return None
        means = np.zeros((self.plan.fields.n_nodes, self.plan.n_components))
        for p in range(len(means)):
            node = self.node(p)
            means[p, : node.n_components] = node.output_mean
        return means
