"""The steps that trained models are made of, written once for all formats that they are exported to.

Between steps, samples are rows. Within a layer, arrays are (nodes, rows, samples): one product serves all nodes, and
expansions copy long rows. What an operation is, `Operations` of the format say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.edges import LEAST_CONTRAST, LEAST_EDGES, LEAST_STRENGTH, MEANS, SHARPNESS, Edges
from higsfa.core.expansion.expansion import Expansion
from higsfa.core.expansion.kernel import Kernel
from higsfa.core.expansion.monomials import signs
from higsfa.core.expansion.terms import (
    Identity,
    Max2,
    NormalizedQuadratic,
    Polynomial,
    Power,
    Quadratic,
    Relu,
    SignedPower,
    Term,
)
from higsfa.core.fields import Fields
from higsfa.estimators.label_task import FARTHEST, GaussianClasses
from higsfa.reconstruction.gradients import NodeStack

Array = NDArray[Any]
Value = Any
"""What the operations of a format pass on: the name of a tensor, or a tensor."""


class Operations(ABC):
    """The operations that steps are made of. Those that are called by name take values and numbers."""

    dtype: np.dtype[Any]
    """Precision of the graph."""

    @abstractmethod
    def weight(self, name: str, array: Array, *, exact: bool = False) -> Value:
        """Numbers that were learned, in the precision of the graph or in their own."""

    @abstractmethod
    def constant(self, name: str, array: Array) -> Value:
        """Other numbers, in the precision of the graph if they are real."""

    @abstractmethod
    def exact(self, name: str, array: Array) -> Value:
        """Numbers in their own precision."""

    @abstractmethod
    def call(self, operation: str, *values: Value, **options: Any) -> Value:
        """Apply an operation of ONNX; options are its attributes, or `shape` and `axes` where those are inputs."""

    def take(self, x: Value, name: str, numbers: Array, axis: int) -> Value:
        """Some rows along an axis."""
        return self.call("Gather", x, self.constant(name, np.asarray(numbers, np.int64)), axis=axis)

    @abstractmethod
    def cast(self, x: Value, dtype: Any) -> Value:
        """Numbers of another type."""

    @abstractmethod
    def power(self, x: Value, exponent: float) -> Value:
        """x^p of numbers that are not negative."""


class Step(ABC):
    """From samples as rows to samples as rows; a head gives a dict of its estimates."""

    name: str

    @abstractmethod
    def apply(self, ops: Operations, x: Value) -> Any:
        """Add the operations of this step."""


# ---------------------------------------------------------------------- layers


@dataclass(frozen=True, eq=False)
class LayerStep(Step):
    """Nodes over the fields of the layer below, whose nodes have `width` outputs.

    `mean` (nodes, raw, 1) is subtracted before a projection, which is in float64, and `shift` after it. Of pixels far
    from 0, single precision would lose digits that matter after ten layers.
    """

    name: str
    stack: NodeStack
    fields: Fields
    width: int
    mean: Array | None
    shift: Array

    def apply(self, ops: Operations, x: Value) -> Value:
        call, stack, name = ops.call, self.stack, self.name
        grid = prod(self.fields.grid)
        X = call("Reshape", call("Transpose", x, perm=[1, 0]), shape=[grid, self.width, -1])
        X = ops.take(X, f"{name}.fields", self.fields.index, 0)
        X = call("Reshape", X, shape=[self.fields.n_nodes, self.fields.children * self.width, -1])
        X = self._inputs(ops, X)
        Y = self._features(ops, X)
        D = stack.offset.shape[1]
        return call("Transpose", call("Reshape", Y, shape=[self.fields.n_nodes * D, -1]), perm=[1, 0])

    def _inputs(self, ops: Operations, X: Value) -> Value:
        """Projected, centred and kept in the range of the training data."""
        stack, name = self.stack, self.name
        if stack.projection is not None and self.mean is not None:
            X = ops.call("Sub", ops.cast(X, np.float64), ops.weight(f"{name}.mean", self.mean, exact=True))
            X = ops.call("MatMul", ops.weight(f"{name}.projection", stack.projection, exact=True), X)
            X = ops.cast(X, ops.dtype)
        if self.shift.any():
            X = ops.call("Sub", X, ops.weight(f"{name}.shift", self.shift))
        if stack.low is not None and stack.high is not None:
            X = ops.call("Max", X, ops.constant(f"{name}.low", stack.low))
            X = ops.call("Min", X, ops.constant(f"{name}.high", stack.high))
        return X

    def _features(self, ops: Operations, X: Value) -> Value:
        """y = S (F z + f) + G x' + k, without the products that are 0 or change nothing."""
        call, stack, name = ops.call, self.stack, self.name
        D, J = stack.mix.shape[1:]
        Y = None
        if J:
            Z = expand(ops, X, stack.expansion, stack.children, stack.direct.shape[2], name)
            Y = call("MatMul", ops.weight(f"{name}.slow", stack.slow), Z)
            Y = call("Add", Y, ops.weight(f"{name}.slow_offset", stack.slow_offset))
            if D != J or np.any(stack.mix != np.eye(D)):
                Y = call("MatMul", ops.weight(f"{name}.mix", stack.mix), Y)
        if stack.direct.any() or Y is None:
            H = call("MatMul", ops.weight(f"{name}.direct", stack.direct), X)
            Y = H if Y is None else call("Add", Y, H)
        return call("Add", Y, ops.weight(f"{name}.offset", stack.offset)) if stack.offset.any() else Y


def expand(ops: Operations, X: Value, expansion: Expansion, children: int, n_inputs: int, name: str) -> Value:
    """z (nodes, I', n) of inputs (nodes, I, n)."""
    width = n_inputs // children
    inputs = np.arange(n_inputs).reshape(children, width, 1)
    rows = []
    for k, term in enumerate(expansion.terms):
        numbers = term.select(inputs)[:, :, 0]
        whole = numbers.size == n_inputs
        S = X if whole else ops.take(X, f"{name}.term{k}", numbers.ravel(), 1)
        rows.append(TERMS[type(term)](ops, S, term, numbers.shape, f"{name}.term{k}"))
    return rows[0] if len(rows) == 1 else ops.call("Concat", *rows, axis=1)


# Of each term: its rows (nodes, rows, n) from its selected inputs (nodes, selected of all children, n).


def _identity(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    return S


def _power(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    return ops.power(ops.call("Abs", S), term.exponent)


def _signed_power(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    return ops.call("Mul", ops.call("Sign", S), _power(ops, S, term, shape, name))


def _max2(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    numbers = np.arange(prod(shape)).reshape(shape)
    left = ops.take(S, f"{name}.left", numbers[:, :-1].ravel(), 1)
    right = ops.take(S, f"{name}.right", numbers[:, 1:].ravel(), 1)
    return ops.call("Max", left, right)


def _quadratic(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    left, right = np.triu_indices(prod(shape))
    return ops.call("Mul", ops.take(S, f"{name}.left", left, 1), ops.take(S, f"{name}.right", right, 1))


def _normalized_quadratic(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    norm = ops.call("ReduceSum", ops.call("Mul", S, S), axes=[1])
    return ops.call("Div", _quadratic(ops, S, term, shape, name), ops.call("Add", norm, 1.0))


def _polynomial(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    m, lower, blocks = prod(shape), S, [S]
    for degree in range(2, term.degree + 1):
        # Monomials x_i x_j ..., i <= j <= ..., are x_i times those of one degree less from j >= i on.
        n_lower = comb(m + degree - 2, degree - 1)
        counts = [comb(m - i + degree - 2, degree - 1) for i in range(m)]
        left = np.repeat(np.arange(m), counts)
        right = np.concatenate([np.arange(n_lower - count, n_lower) for count in counts])
        first = ops.take(S, f"{name}.left{degree}", left, 1)
        lower = ops.call("Mul", first, ops.take(lower, f"{name}.right{degree}", right, 1))
        blocks.append(lower)
    return S if len(blocks) == 1 else ops.call("Concat", *blocks, axis=1)


def _relu(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    W = signs(term.n, prod(shape), np.dtype(np.float64))[None]
    return ops.call("Relu", ops.call("MatMul", ops.constant(f"{name}.signs", W), S))


def _kernel(ops: Operations, S: Value, term: Any, shape: tuple[int, ...], name: str) -> Value:
    P, call = np.asarray(term.points, np.float64), ops.call
    near = call("MatMul", ops.weight(f"{name}.points", 2 / term.width * P[None]), S)
    near = call("Sub", near, ops.weight(f"{name}.squares", (P**2).sum(axis=1)[None, :, None] / term.width))
    own = call("Div", call("ReduceSum", call("Mul", S, S), axes=[1]), float(term.width))
    return call("Exp", call("Sub", near, own))


TERMS: dict[type[Term], Callable[..., Value]] = {
    Identity: _identity,
    Power: _power,
    SignedPower: _signed_power,
    Max2: _max2,
    Quadratic: _quadratic,
    NormalizedQuadratic: _normalized_quadratic,
    Polynomial: _polynomial,
    Relu: _relu,
    Kernel: _kernel,
}


# ---------------------------------------------------------------------- front ends


@dataclass(frozen=True, eq=False)
class EdgesStep(Step):
    """Oriented edges in cells, as `Edges` computes them."""

    name: str
    edges: Edges

    def apply(self, ops: Operations, x: Value) -> Value:
        edges, call, name = self.edges, ops.call, self.name
        height, width = edges.shape[:2]
        x = call("Transpose", call("Reshape", x, shape=[-1, height, width, edges.channels]), perm=[0, 3, 1, 2])
        x = call("Div", call("Sub", x, edges.black), edges.white - edges.black)
        for axis, (size, (before, after)) in enumerate(zip((height, width), edges._margins, strict=True), 2):
            if before or after:
                x = ops.take(x, f"{name}.pad{axis}", np.arange(-before, size + after).clip(0, size - 1), axis)
        down, right = (ops.constant(f"{name}.{side}", pool) for side, pool in zip("dr", edges._pools, strict=True))

        def pooled(pictures: Value) -> Value:
            return call("MatMul", call("MatMul", down, pictures), right)

        cells = call("Concat", self._edges(ops, x, pooled), self._means(ops, pooled(x)), axis=1)
        return call("Reshape", call("Transpose", cells, perm=[0, 2, 3, 1]), shape=[-1, prod(edges.out_shape)])

    def _edges(self, ops: Operations, x: Value, pooled: Callable[[Value], Value]) -> Value:
        """Edges (n, directions, rows, columns) of pictures (n, channels, height, width), relative to those near by."""
        call, name, edges = ops.call, self.name, self.edges
        gx, gy = self._differences(ops, x, 3), self._differences(ops, x, 2)
        strength = ops.power(call("Add", call("Mul", gx, gx), call("Mul", gy, gy)), 0.5)
        if edges.channels > 1:
            best = call("ArgMax", strength, axis=1)
            gx, gy, strength = (call("GatherElements", part, best, axis=1) for part in (gx, gy, strength))
        strength = call("Add", strength, LEAST_STRENGTH)
        cos, sin = np.array(edges._angles, np.float64).T[:, :, None, None]
        along = call("Mul", call("Div", gx, strength), ops.constant(f"{name}.cos", cos))
        across = call("Mul", call("Div", gy, strength), ops.constant(f"{name}.sin", sin))
        share = call("Relu", call("Add", along, across))
        for _ in range(SHARPNESS):
            share = call("Mul", share, share)
        found = pooled(call("Mul", share, strength))
        local = ops.power(call("ReduceSum", call("Mul", found, found), axes=[1]), 0.5)
        around = [_three(size) for size in edges.grid]
        local = call("MatMul", ops.constant(f"{name}.above_below", around[0]), local)
        local = call("MatMul", local, ops.constant(f"{name}.beside", around[1].T))
        return ops.power(call("Div", found, call("Add", local, LEAST_EDGES)), 0.5)

    def _differences(self, ops: Operations, x: Value, axis: int) -> Value:
        """Central differences; 0 at the borders, where a pixel is compared with itself."""
        size = self.edges.grid[axis - 2] * self.edges.cell
        at = np.arange(size)
        inner = (at > 0) & (at < size - 1)
        after, before = (ops.take(x, f"{self.name}.{axis}{sign}", at + sign * inner, axis) for sign in (1, -1))
        return ops.call("Mul", ops.call("Sub", after, before), 0.5)

    def _means(self, ops: Operations, means: Value) -> Value:
        """Mean brightness of cells, and how far all channels but the last differ from it."""
        call, channels, n_cells = ops.call, self.edges.channels, prod(self.edges.grid)
        grey = means if channels == 1 else call("Div", call("ReduceSum", means, axes=[1]), float(channels))
        deviation = call("Sub", grey, call("Div", call("ReduceSum", grey, axes=[2, 3]), float(n_cells)))
        squares = call("ReduceSum", call("Mul", deviation, deviation), axes=[2, 3])
        contrast = call("Add", ops.power(call("Div", squares, float(n_cells)), 0.5), LEAST_CONTRAST)
        if channels > 1:
            colour = call("Sub", ops.take(means, f"{self.name}.colours", np.arange(channels - 1), 1), grey)
            deviation = call("Concat", deviation, colour, axis=1)
        return call("Mul", call("Div", deviation, contrast), MEANS)


def _three(size: int) -> Array:
    """A matrix (size, size) that takes the mean of three neighbours; the border is continued."""
    mean = np.zeros((size, size))
    for step in (-1, 0, 1):
        np.add.at(mean, (np.arange(size), (np.arange(size) + step).clip(0, size - 1)), 1 / 3)
    return mean


@dataclass(frozen=True, eq=False)
class AffineStep(Step):
    """(x - shift) @ matrix, or times a scale; kept in a range if there is one."""

    name: str
    shift: Array | None
    scale: Array | None
    matrix: Array | None = None
    limits: tuple[float, float] | None = None
    offset: Array | None = None

    def apply(self, ops: Operations, x: Value) -> Value:
        for operation, array, word in (
            ("Sub", self.shift, "shift"),
            ("Mul", self.scale, "scale"),
            ("MatMul", self.matrix, "matrix"),
            ("Add", self.offset, "offset"),
        ):
            if array is not None:
                x = ops.call(operation, x, ops.weight(f"{self.name}.{word}", np.asarray(array, np.float64)))
        if self.limits is not None:
            x = ops.call("Min", ops.call("Max", x, float(self.limits[0])), float(self.limits[1]))
        return x


# ---------------------------------------------------------------------- heads


@dataclass(frozen=True, eq=False)
class LabelOutput:
    """How a label is estimated: by Gaussians over the first features."""

    name: str
    gaussians: GaussianClasses
    classes: Array
    is_numeric: bool
    integer: bool


@dataclass(frozen=True, eq=False)
class HeadStep(Step):
    """Estimates of labels, always in float64: densities of narrow classes leave no digits in single precision."""

    name: str
    labels: tuple[LabelOutput, ...]
    has_probabilities: bool

    def apply(self, ops: Operations, x: Value) -> dict[str, tuple[Value, Value]]:
        """Of each label its estimate (index of the class, or number) and probabilities of classes."""
        x = ops.cast(x, np.float64)
        return {label.name: self._estimate(ops, x, label, f"{self.name}.{label.name}") for label in self.labels}

    def _estimate(self, ops: Operations, x: Value, label: LabelOutput, name: str) -> tuple[Value, Value]:
        call, model = ops.call, label.gaussians
        x = ops.take(x, f"{name}.used", np.arange(len(model.center)), 1)
        x = call("Sub", x, ops.exact(f"{name}.center", model.center))
        x = call("Mul", x, ops.exact(f"{name}.inverse_scale", 1 / model.scale))
        x = call("Max", x, ops.exact(f"{name}.least", np.array(-FARTHEST)))
        x = call("Min", x, ops.exact(f"{name}.farthest", np.array(FARTHEST)))
        U = call("MatMul", x, ops.exact(f"{name}.projection", model.projection))
        U = call("Sub", U, ops.exact(f"{name}.means", model.means[:, None, :]))
        U = call("MatMul", U, ops.exact(f"{name}.factors", model.factors))
        distance = call("ReduceSum", call("Mul", U, U), axes=[2])
        distance = call("Transpose", call("Reshape", distance, shape=[len(model.means), -1]), perm=[1, 0])
        distance = call("Mul", distance, ops.exact(f"{name}.half", np.array(-0.5)))
        probabilities = call("Softmax", call("Add", distance, ops.exact(f"{name}.log_weights", model.log_weights)))
        if not label.is_numeric:
            return call("ArgMax", probabilities, axis=1), probabilities
        values = np.asarray(label.classes, np.float64)
        number = call("MatMul", probabilities, ops.exact(f"{name}.values", values[:, None]))
        if label.integer:  # as in LabelHead: 18 must not become 17 because probabilities sum to 1 - 1e-16
            digits = ops.exact(f"{name}.digits", np.array(1e9))
            number = call("Floor", call("Div", call("Round", call("Mul", number, digits)), digits))
            number = ops.cast(number, np.int64)
        return number, probabilities
