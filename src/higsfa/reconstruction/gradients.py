"""Features of a fitted estimator or network with gradients, for few samples at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from higsfa.core.node.stack import NodeStack, Trace
from higsfa.estimators.network import Network
from higsfa.estimators.node import NodeEstimator

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Stage:
    """A layer: fields (nodes, children) into the layer below, which has `n_below` nodes of `width` outputs."""

    stack: NodeStack
    index: NDArray[np.intp]
    n_below: int
    width: int

    def forward(self, block: Array) -> tuple[Array, Trace]:
        raw = block[self.index].reshape(len(self.index), -1, block.shape[2])
        return self.stack.forward(raw)

    def backward(self, trace: Trace, G: Array) -> Array:
        raw = self.stack.backward(trace, G)
        parts = raw.reshape(*self.index.shape, self.width, raw.shape[2])
        below = np.zeros((self.n_below, self.width, raw.shape[2]))
        # Fields start at different places, so that no row is there twice.
        for child in range(self.index.shape[1]):
            below[self.index[:, child]] += parts[:, child]
        return below


class Differentiable:
    """A fitted node or network as a function of flat inputs (n, P), with its gradient, in float64.

    The model's arrays are copied once, layer by layer. Matrices are small: callers hold BLAS at one thread.

    Parameters
    ----------
    model : fitted network (HiGSFA, HGSFA, HiSFA, HSFA) or node (IGSFA, GSFA, ISFA, SFA)
    """

    def __init__(self, model: Any) -> None:
        self.input_shape: tuple[int, ...]
        if isinstance(model, Network):
            check_is_fitted(model, "_trained")
            self.input_shape = tuple(model.input_shape_)
            self._stages = [
                _Stage(
                    NodeStack.of(layer.nodes, layer.plan.n_components),
                    layer.plan.fields.index,
                    int(np.prod(layer.plan.fields.grid)),
                    layer.plan.width,
                )
                for layer in model._trained
            ]
        elif isinstance(model, NodeEstimator):
            check_is_fitted(model, "_node")
            self.input_shape = (model.n_features_in_,)
            stack = NodeStack.of([model._node], model.n_components_)
            self._stages = [_Stage(stack, np.zeros((1, 1), np.intp), 1, model.n_features_in_)]
        else:
            raise TypeError(
                f"gradients go through the networks and nodes of this library, not through {type(model).__name__}"
            )
        self.n_features = int(model.n_components_)
        self.n_inputs = int(np.prod(self.input_shape))

    def features(self, X: Array) -> Array:
        """Features (n, k) of flat inputs (n, P)."""
        return self._forward(X)[0]

    def gradient(self, X: Array, G: Array) -> Array:
        """dL/dx (n, P) from dL/dy (n, k)."""
        return self._backward(self._forward(X)[1], G)

    def with_gradient(self, X: Array, outer: Any) -> tuple[Array, Array]:
        """Features y of X, and dL/dx where dL/dy = outer(y)."""
        Y, traces = self._forward(X)
        return Y, self._backward(traces, outer(Y))

    def _forward(self, X: Array) -> tuple[Array, list[Trace]]:
        first = self._stages[0]
        block = np.ascontiguousarray(np.asarray(X, np.float64).T).reshape(first.n_below, first.width, len(X))
        traces = []
        with np.errstate(all="ignore"):
            for stage in self._stages:
                block, trace = stage.forward(block)
                traces.append(trace)
        return block.reshape(self.n_features, len(X)).T, traces

    def _backward(self, traces: list[Trace], G: Array) -> Array:
        top = traces[-1].inputs
        block = np.ascontiguousarray(np.asarray(G, np.float64).T).reshape(len(top), -1, len(G))
        with np.errstate(all="ignore"):
            for stage, trace in zip(reversed(self._stages), reversed(traces), strict=True):
                block = stage.backward(trace, block)
        return block.reshape(self.n_inputs, len(G)).T
