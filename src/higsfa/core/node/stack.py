"""Forward and backward pass through a stack of nodes: gradients of a function of features by the raw inputs.

A layer has many small nodes. For few samples, one call per node costs more than the arithmetic, so
the arrays of all nodes are stacked, and the columns of all nodes are expanded in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion
from higsfa.core.node.node import Node

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trace:
    """What the backward pass needs from the forward pass.

    Attributes
    ----------
    inputs : (nodes, I, n) centred inputs after the range guard.
    inside : (nodes, I, n) whether the range guard left an input alone; None without a guard.
    """

    inputs: Array
    inside: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class NodeStack:
    """Nodes of equal structure as stacked arrays: y = S (F z + f) + G x' + k, all with as many outputs as the widest.

    The first dimension of all arrays is the node; it is 1 where one node serves all fields.

    Attributes
    ----------
    expansion, children : as in the nodes' frontend.
    projection : (nodes, I, raw), or None.
    shift : (nodes, I, 1) subtracted after the projection.
    low, high : (nodes, I, 1) of the range guard, or None.
    slow, slow_offset : F (nodes, J, I') and f; J is that of the node with the largest slow part.
    mix : S (nodes, D, J), from slow features to outputs.
    direct : G (nodes, D, I).
    offset : k (nodes, D, 1).
    """

    expansion: Expansion
    children: int
    projection: Array | None
    shift: Array
    low: Array | None
    high: Array | None
    slow: Array
    slow_offset: Array
    mix: Array
    direct: Array
    offset: Array

    @classmethod
    def of(cls, nodes: Sequence[Node], n_components: int) -> NodeStack:
        """Stack nodes; outputs beyond those of a node are 0."""
        first = nodes[0].frontend
        J, I, P = max(node.n_slow for node in nodes), first.n_inputs, len(nodes)
        slow, slow_offset = np.zeros((P, J, first.n_expanded)), np.zeros((P, J, 1))
        mix, direct = np.zeros((P, n_components, J)), np.zeros((P, n_components, I))
        offset = np.zeros((P, n_components, 1))
        for p, node in enumerate(nodes):
            own, rest = slice(node.n_slow), slice(node.n_slow, node.n_components)
            slow[p, own], slow_offset[p, own, 0] = node.slow, node.slow_offset
            mix[p, own, own], mix[p, rest, own] = np.eye(node.n_slow), node.rest_slow
            direct[p, rest], offset[p, rest, 0] = node.rest_inputs, node.rest_offset
        fronts = [node.frontend for node in nodes]
        shift = [np.zeros(I) if front.offset is None else front.offset for front in fronts]
        projection = None
        if first.projection is not None:
            found = [front.projection for front in fronts if front.projection is not None]
            projection = np.array([each.matrix for each in found], np.float64)
        return cls(
            first.expansion,
            first.children,
            projection,
            _columns(shift),
            None if first.low is None else _columns([front.low for front in fronts]),
            None if first.high is None else _columns([front.high for front in fronts]),
            slow,
            slow_offset,
            mix,
            direct,
            offset,
        )

    def forward(self, X: Array) -> tuple[Array, Trace]:
        """Features (nodes, D, n) of raw inputs (nodes, raw, n), and their trace."""
        X = X if self.projection is None else self.projection @ X
        X = X - self.shift
        inside = None
        if self.low is not None and self.high is not None:
            clipped = np.clip(X, self.low, self.high)
            inside = clipped == X
            X = clipped
        Y = self.direct @ X
        if self.slow.shape[1]:
            Z = _by_node(self.expansion(_side_by_side(X), self.children), X)
            Y += self.mix @ (self.slow @ Z + self.slow_offset)
        Y += self.offset
        return Y, Trace(X, inside)

    def backward(self, trace: Trace, G: Array) -> Array:
        """dL/dx of raw inputs (nodes, raw, n) from dL/dy (nodes, D, n); the derivative of a clipped input is 0."""
        X = trace.inputs
        dX = _transposed(self.direct) @ G
        if self.slow.shape[1]:
            dZ = _transposed(self.slow) @ (_transposed(self.mix) @ G)
            dX += _by_node(self.expansion.backward(_side_by_side(X), _side_by_side(dZ), self.children), X)
        if trace.inside is not None:
            dX *= trace.inside
        return dX if self.projection is None else np.asarray(_transposed(self.projection) @ dX)


def _columns(vectors: Sequence[Any]) -> Array:
    return np.array(vectors, np.float64)[:, :, None]


def _transposed(matrices: Array) -> Array:
    return matrices.transpose(0, 2, 1)


def _side_by_side(X: Array) -> Array:
    """(nodes, rows, n) as (rows, nodes * n): all nodes as samples of one block."""
    return np.ascontiguousarray(X.transpose(1, 0, 2)).reshape(X.shape[1], -1)


def _by_node(Z: Array, like: Array) -> Array:
    """The inverse: (rows, nodes * n) as (nodes, rows, n)."""
    return np.ascontiguousarray(Z.reshape(len(Z), len(like), like.shape[2]).transpose(1, 0, 2))
