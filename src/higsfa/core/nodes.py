"""Trained nodes: one affine map of the expanded input, and its linear inverse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansions import Expansion

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Frontend:
    """From a node's raw input x to the variables t that its sums and its affine map see.

    t is the expansion of the centred input, followed by those inputs that the expansion does not contain, because
    the reconstruction needs all of them.

    Attributes
    ----------
    expansion, children : the expansion, and the number of children that the input is made of.
    n_inputs : I.
    center : (I,) subtracted from the input.
    low, high : (I,) range that the input is clipped to when features are extracted; None for no clipping.
    """

    expansion: Expansion
    children: int
    n_inputs: int
    center: Floats
    low: Floats | None = None
    high: Floats | None = None

    @property
    def n_expanded(self) -> int:
        return self.expansion.size(self.n_inputs // self.children, self.children)

    @property
    def input_rows(self) -> NDArray[np.intp]:
        """The row of t that holds each input."""
        rows = self.expansion.identity_rows(self.n_inputs, self.children)
        missing = rows < 0
        return np.where(missing, self.n_expanded + np.cumsum(missing) - 1, rows)

    @property
    def n_variables(self) -> int:
        """T."""
        missing = self.expansion.identity_rows(self.n_inputs, self.children) < 0
        return self.n_expanded + int(missing.sum())

    @property
    def is_identity(self) -> bool:
        """Whether t is the centred input itself."""
        return self.expansion.is_identity(self.n_inputs)

    def __call__(self, X: NDArray[Any], *, clip: bool = False) -> NDArray[Any]:
        """Variables t (T, n) of a feature-major block X (I, n); a new array unless there is nothing to do."""
        if clip and self.low is not None and self.high is not None:
            X = np.clip(X, self.low[:, None].astype(X.dtype), self.high[:, None].astype(X.dtype))
        if self.center.any():
            X = X - self.center[:, None].astype(X.dtype)
        if self.is_identity:
            return X
        rows = self.expansion.identity_rows(self.n_inputs, self.children)
        T = np.empty((self.n_variables, X.shape[1]), dtype=X.dtype)
        self.expansion.apply(np.ascontiguousarray(X), T[: self.n_expanded], self.children)
        T[self.n_expanded :] = X[rows < 0]
        return T


@dataclass(frozen=True, eq=False)
class Node:
    """A trained node: y = E t + e and x ~ D y + d.

    Attributes
    ----------
    frontend : x to t.
    encoder, offset : E (D, T) and e (D,).
    decoder, decode_offset : D (I, D) and d (I,).
    delta_values : Delta of the slow features, ascending; more than the node keeps, where more were computed.
    n_slow : number of slow features; they come first.
    rank : rank of the covariance of the expanded input.
    output_mean : mean of y over the training data (plain weights).
    """

    frontend: Frontend
    encoder: Floats
    offset: Floats
    decoder: Floats
    decode_offset: Floats
    delta_values: Floats
    n_slow: int
    rank: int
    output_mean: Floats

    @property
    def n_components(self) -> int:
        return len(self.encoder)

    def encode(self, X: NDArray[Any]) -> NDArray[Any]:
        """Features (D, n) of a feature-major block (I, n)."""
        T = self.frontend(X, clip=True)
        Y: NDArray[Any] = self.encoder.astype(X.dtype) @ T
        Y += self.offset[:, None].astype(X.dtype)
        return Y

    def decode(self, Y: NDArray[Any]) -> NDArray[Any]:
        """Linear reconstruction (I, n) from features (D, n): Algorithm 3 of the paper."""
        X: NDArray[Any] = self.decoder.astype(Y.dtype) @ Y
        X += self.decode_offset[:, None].astype(Y.dtype)
        return X
