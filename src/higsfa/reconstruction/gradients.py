"""Gradients of features, and what a feature sees: its template, its gradient, its most extreme inputs.

A layer has many small nodes. For few samples, one call per node costs more than the arithmetic, so the arrays of all
nodes are stacked, and the columns of all nodes are expanded in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from higsfa.core.edges import Edges
from higsfa.core.expansion.expansion import Expansion
from higsfa.core.fields import Fields
from higsfa.core.node.node import Node
from higsfa.estimators.network import Network
from higsfa.estimators.node import NodeEstimator
from higsfa.reconstruction.linear import LinearReconstruction, decode

Array = NDArray[Any]
Floats = NDArray[np.float64]


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


@dataclass(frozen=True, eq=False)
class _Stage:
    """A layer: nodes, and their fields in the layer below, whose nodes have `width` outputs."""

    stack: NodeStack
    fields: Fields
    width: int

    def forward(self, block: Array) -> tuple[Array, Trace]:
        return self.stack.forward(block[self.fields.index].reshape(self.fields.n_nodes, -1, block.shape[2]))

    def backward(self, trace: Trace, G: Array) -> Array:
        raw, index = self.stack.backward(trace, G), self.fields.index
        parts = raw.reshape(*index.shape, self.width, raw.shape[2])
        below = np.zeros((prod(self.fields.grid), self.width, raw.shape[2]))
        # The k-th children of all fields are different nodes, so no row is added to twice at once.
        for k, child in enumerate(index.T):
            below[child] += parts[:, k]
        return below


class Differentiable:
    """A fitted node or network as a function of flat inputs (n, P), with its gradient, in float64.

    The model's arrays are copied once, layer by layer. Matrices are small: callers hold BLAS at one thread.
    """

    def __init__(self, model: Any) -> None:
        self.input_shape: tuple[int, ...]
        self._edges: Edges | None = None
        if isinstance(model, Network):
            check_is_fitted(model, "_trained")
            self.input_shape = tuple(model.input_shape_)
            self._edges = None if model.front_ is None else model.front_.edges_
            self._stages = [
                _Stage(NodeStack.of(layer.nodes, layer.plan.n_components), layer.plan.fields, layer.plan.width)
                for layer in model._trained
            ]
        elif isinstance(model, NodeEstimator):
            check_is_fitted(model, "_node")
            self.input_shape = (model.n_features_in_,)
            stack = NodeStack.of([model._node], model.n_components_)
            self._stages = [_Stage(stack, Fields((1,), (1,), (1,), False), model.n_features_in_)]
        else:
            raise TypeError(
                f"gradients go through the networks and nodes of this library, not through {type(model).__name__}"
            )
        self.n_features = int(model.n_components_)
        self.n_inputs = prod(self.input_shape)

    def features(self, X: Array) -> Array:
        """Features (n, k) of flat inputs (n, P)."""
        return self._forward(X)[0]

    def gradient(self, X: Array, G: Array) -> Array:
        """dL/dx (n, P) from dL/dy (n, k)."""
        return self.with_gradient(X, lambda _: G)[1]

    def with_gradient(self, X: Array, outer: Any) -> tuple[Array, Array]:
        """Features y of X, and dL/dx where dL/dy = outer(y)."""
        Y, traces = self._forward(X)
        G = outer(Y)
        block = np.ascontiguousarray(np.asarray(G, np.float64).T).reshape(len(traces[-1].inputs), -1, len(G))
        with np.errstate(all="ignore"):
            for stage, trace in zip(reversed(self._stages), reversed(traces), strict=True):
                block = stage.backward(trace, block)
        seen = block.reshape(-1, len(G)).T
        return Y, seen if self._edges is None else self._edges.pull_back(X, seen).reshape(len(G), -1)

    def _forward(self, X: Array) -> tuple[Array, list[Trace]]:
        width, traces = self._stages[0].width, []
        seen = np.asarray(X, np.float64) if self._edges is None else self._edges(X, np.float64).reshape(len(X), -1)
        block = np.ascontiguousarray(seen.T).reshape(-1, width, len(X))
        with np.errstate(all="ignore"):
            for stage in self._stages:
                block, trace = stage.forward(block)
                traces.append(trace)
        return block.reshape(self.n_features, len(X)).T, traces


# ---------------------------------------------------------------------- what a feature sees


def feature_gradient(net: Any, x: Any, feature: int) -> Floats:
    """Gradient of a feature with respect to the pixels of images: where it looks, and what would raise it there.

    Parameters
    ----------
    net : fitted network or node
    x : array of shape (n_samples, ...), or one image
    feature : int

    Returns
    -------
    array of the shape of x
        0 for pixels that only reach nodes beyond the range of their training data.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import GSFA
    >>> from higsfa.reconstruction import feature_gradient
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> node = GSFA(n_components=1, graph="serial").fit(X, X[:, 1])
    >>> int(np.argmax(np.abs(feature_gradient(node, X[0], 0))))
    1
    """
    model = Differentiable(net)
    x = np.asarray(x, dtype=np.float64)
    if x.size != model.n_inputs and (x.ndim < 2 or x.size != len(x) * model.n_inputs):
        raise ValueError(f"x has shape {x.shape}, but the network sees images of shape {model.input_shape}")
    flat = x.reshape(-1, model.n_inputs)
    seeds = np.zeros((len(flat), model.n_features))
    seeds[:, _check(feature, model.n_features)] = 1.0
    return model.gradient(flat, seeds).reshape(x.shape)


def extreme_inputs(Y: Any, feature: int, n: int = 5) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the inputs for which a feature is largest, and of those for which it is smallest.

    Parameters
    ----------
    Y : array of shape (n_samples, n_features)
    feature : int
    n : int, default=5
        How many of each; fewer if there are fewer samples.

    Returns
    -------
    largest, smallest : int arrays
        The most extreme first; equal values in the order of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.reconstruction import extreme_inputs
    >>> extreme_inputs(np.array([[1.0], [5.0], [-2.0], [5.0]]), feature=0, n=2)
    (array([1, 3]), array([2, 0]))
    """
    values = np.asarray(Y[:, _check(feature, Y.shape[1])], dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"Y: feature {feature} holds NaN or infinite values")
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    return np.argsort(-values, kind="stable")[:n], np.argsort(values, kind="stable")[:n]


def feature_template(decoder: Any, feature: int) -> Floats:
    """The image that a feature adds when it grows by one: a column of the linear reconstruction.

    Parameters
    ----------
    decoder : LinearReconstruction, or fitted network or node
    feature : int

    Returns
    -------
    array of shape input_shape

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import IGSFA
    >>> from higsfa.reconstruction import feature_template
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> node = IGSFA(n_components=3, n_slow=1).fit(X, X[:, 1])
    >>> int(np.argmax(np.abs(feature_template(node, 0))))  # what changes with the label
    1
    """
    linear = isinstance(decoder, LinearReconstruction)
    n_features = int(decoder.n_features_in_ if linear else decoder.n_components_)
    steps = np.zeros((2, n_features))
    steps[1, _check(feature, n_features)] = 1.0
    nothing, one = decode(decoder, steps)
    return np.asarray(one - nothing)


def _check(feature: int, n_features: int) -> int:
    feature = index(feature)
    if not 0 <= feature < n_features:
        raise ValueError(f"feature={feature}: give an index from 0 to {n_features - 1}")
    return feature
