"""Trained nodes: features of the expanded input, and their linear inverse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansions import Expansion
from higsfa.core.room import room

Floats = NDArray[np.float64]


class _Cast:
    """Arrays of a record in the precision of the data, made once."""

    def cast(self, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
        """The array of this name; vectors as columns."""
        made: dict[tuple[str, str], NDArray[Any]] = self.__dict__.setdefault("_made", {})
        key = (name, kind.str)
        if key not in made:
            values = getattr(self, name)
            made[key] = (values if values.ndim == 2 else values[:, None]).astype(kind)
        return made[key]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}


@dataclass(frozen=True, eq=False)
class Projection(_Cast):
    """Principal components before the node: x to P (x - mean), not whitened."""

    matrix: Floats
    mean: Floats

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        Y: NDArray[Any] = self.cast("matrix", X.dtype) @ X
        Y -= self.cast("projected_mean", X.dtype)
        return Y

    @cached_property
    def projected_mean(self) -> Floats:
        return np.asarray(self.matrix @ self.mean)


@dataclass(frozen=True, eq=False)
class Frontend(_Cast):
    """From a node's raw input to the variables t that its sums are gathered over.

    The raw input may be projected on principal components first; the result is the node's input x. The variables are
    the expansion of the centred input, followed by those inputs that the expansion does not contain, because the
    reconstruction needs all of them.

    Attributes
    ----------
    expansion, children : the expansion, and the number of children that the input is made of.
    n_inputs : I.
    center : (I,) subtracted from the input.
    low, high : (I,) range that the centred input is clipped to when features are extracted; None for no clipping.
    projection : principal components before the node, or None.
    """

    expansion: Expansion
    children: int
    n_inputs: int
    center: Floats
    low: Floats | None = None
    high: Floats | None = None
    projection: Projection | None = None

    @cached_property
    def n_expanded(self) -> int:
        """I'."""
        return self.expansion.size(self.n_inputs // self.children, self.children)

    @cached_property
    def _identity_rows(self) -> NDArray[np.intp]:
        return self.expansion.identity_rows(self.n_inputs, self.children)

    @cached_property
    def missing(self) -> NDArray[np.intp]:
        """Inputs that the expansion does not contain."""
        return np.flatnonzero(self._identity_rows < 0)

    @cached_property
    def input_rows(self) -> NDArray[np.intp]:
        """The row of t that holds each input."""
        rows = self._identity_rows.copy()
        rows[self.missing] = self.n_expanded + np.arange(len(self.missing))
        return rows

    @property
    def n_variables(self) -> int:
        """T."""
        return self.n_expanded + len(self.missing)

    @cached_property
    def is_identity(self) -> bool:
        """Whether t is the centred input itself."""
        return self.expansion.is_identity(self.n_inputs)

    def inputs(self, X: NDArray[Any], *, clip: bool) -> NDArray[Any]:
        """Centred input of the node from raw input (feature-major blocks); never written to X."""
        kind, fresh = X.dtype, False
        if self.projection is not None:
            X, fresh = self.projection(X), True
        if self._is_centered:
            X, fresh = np.subtract(X, self.cast("center", kind), out=X if fresh else None), True
        if clip and self.low is not None:
            X = np.clip(X, self.cast("low", kind), self.cast("high", kind), out=X if fresh else None)
        return X

    @cached_property
    def _is_centered(self) -> bool:
        return bool(self.center.any())

    def variables(self, X: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Variables t (T, n) from centred input (I, n), in `out` or in a new array; X itself if they are the same."""
        if self.is_identity:
            return X
        T = np.empty((self.n_variables, X.shape[1]), dtype=X.dtype) if out is None else out
        self.expansion.apply(np.ascontiguousarray(X), T[: self.n_expanded], self.children)
        T[self.n_expanded :] = X[self.missing]
        return T

    def expand(self, X: NDArray[Any]) -> NDArray[Any]:
        """The expansion z (I', n) alone, in room that is used again by the next call."""
        if self.is_identity:
            return X
        Z = room("expanded", (self.n_expanded, X.shape[1]), X.dtype)
        self.expansion.apply(np.ascontiguousarray(X), Z, self.children)
        return Z


@dataclass(frozen=True, eq=False)
class Node(_Cast):
    r"""A trained node: y' = F z + f (slow part), h = G x' + H y' + k (reconstructive part), x ~ D y + d.

    As a whole an affine map of the expanded input; kept in two steps because the second one needs no expansion.

    Attributes
    ----------
    frontend : raw input to x' and z.
    slow, slow_offset : F (J, I') and f (J,).
    rest_inputs, rest_slow, rest_offset : G (D - J, I), H (D - J, J) and k (D - J,).
    decoder, decode_offset : D (I, D) and d (I,); of the node's input, before the projection is undone.
    delta_values : Delta of the slow features, ascending; more than the node keeps, where more were computed.
    rank : rank of the covariance of the expanded input.
    output_mean : mean of y over the training data (plain weights).
    """

    frontend: Frontend
    slow: Floats
    slow_offset: Floats
    rest_inputs: Floats
    rest_slow: Floats
    rest_offset: Floats
    decoder: Floats
    decode_offset: Floats
    delta_values: Floats
    rank: int
    output_mean: Floats

    @property
    def n_slow(self) -> int:
        """J."""
        return len(self.slow)

    @property
    def n_components(self) -> int:
        """D."""
        return len(self.slow) + len(self.rest_inputs)

    def encode(self, X: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Features (D, n) of a feature-major block of raw input; rows of `out` beyond D are set to 0."""
        J, D, kind = self.n_slow, self.n_components, X.dtype
        Y: NDArray[Any] = np.empty((D, X.shape[1]), kind) if out is None else out
        X = self.frontend.inputs(X, clip=True)
        if J:
            np.matmul(self.cast("slow", kind), self.frontend.expand(X), out=Y[:J])
            Y[:J] += self.cast("slow_offset", kind)
        if D > J:
            np.matmul(self.cast("rest_inputs", kind), X, out=Y[J:D])
            Y[J:D] += self.cast("rest_slow", kind) @ Y[:J]
            Y[J:D] += self.cast("rest_offset", kind)
        Y[D:] = 0
        return Y

    def decode(self, Y: NDArray[Any]) -> NDArray[Any]:
        """Linear reconstruction of the raw input from features (D, n): Algorithm 3 of the paper."""
        X: NDArray[Any] = self.cast("decoder", Y.dtype) @ Y[: self.n_components]
        X += self.cast("decode_offset", Y.dtype)
        projection = self.frontend.projection
        if projection is None:
            return X
        X = projection.matrix.T.astype(Y.dtype) @ X
        X += projection.mean[:, None].astype(Y.dtype)
        return X
