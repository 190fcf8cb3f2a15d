"""Trained nodes: features of the expanded input, and their linear inverse."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.native.encode import Encoder, encode_samples, encode_tile
from higsfa.core.native.tile import Front, Raw, as_raw, chunk_columns, empty_rows
from higsfa.core.node.frontend import Frontend, Record

Floats = NDArray[np.float64]

IDENTITY = parse_expansion("identity")


@dataclass(frozen=True, eq=False)
class Node(Record):
    r"""A trained node: y' = F z + f (slow part), h = G x' + H y' + k (reconstructive part), x ~ D y + d.

    As a whole an affine map of the expanded input; kept in two steps because the second one needs no expansion.

    Attributes
    ----------
    frontend : raw input to x' and z.
    slow, slow_offset : F (J, I') and f (J,).
    rest_inputs, rest_slow, rest_offset : G (D - J, I), H (D - J, J) and k (D - J,).
    decoder, decode_offset : D (I, D) and d (I,); of the node's input, before the projection is undone.
    delta_values : Delta of the slow features, ascending unless there is shrinkage; more than the node keeps, where more
        were computed.
    rank : rank of the covariance of the expanded input.
    output_mean : mean of y over the training data (plain weights).
    n_slow, n_components : J and D.
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
    n_slow: int = field(init=False)
    n_components: int = field(init=False)

    def __post_init__(self) -> None:
        self.__dict__.update(n_slow=len(self.slow), n_components=len(self.slow) + len(self.rest_inputs))

    @cached_property
    def fits_single(self) -> bool:
        """Whether single precision holds the expanded variables: their weights are about one over their size."""
        if not self.n_slow:
            return True
        weights = np.max(np.abs(self.slow), axis=0, initial=0.0)
        return not np.any((weights > 0) & ((weights < 1e-15) | (weights > 1e15)))

    def encode(self, raw: Raw | NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Features (D, n) of raw input (feature-major); rows of `out` beyond D are set to 0."""
        raw = raw if isinstance(raw, Raw) else as_raw(raw)
        D, n = self.n_components, raw.shape[1]
        Y: NDArray[Any] = np.empty((D, n), raw.dtype) if out is None else out
        if Y.ndim != 2 or len(Y) < D or Y.shape[1] != n:
            raise ValueError(f"out must have shape ({D}, {n}), or more rows, got {Y.shape}")
        by_samples = self.is_affine and D > 0 and Y.strides[0] == Y.itemsize != Y.strides[1]
        done = by_samples and encode_samples(*self._affine(Y.dtype, raw), Y[:D].T)
        if not done and not encode_tile(self.encoder(Y.dtype), raw, Y):
            step = chunk_columns(self._needed.n_expanded, Y.itemsize)
            for a in range(0, n, step):
                self._encode_with_numpy(raw.columns(a, a + step), Y[:, a : a + step])
        Y[D:] = 0
        return Y

    def encoder(self, dtype: np.dtype[Any]) -> Encoder | None:
        """What compiled routines need to know, made once."""
        made: dict[Any, Encoder | None] = self.__dict__.setdefault("_encoders", {})
        if dtype not in made:
            front = Front.of(self._needed, dtype)
            arrays = self.slow, -self.slow_offset, np.hstack([self.rest_inputs, self.rest_slow]), -self.rest_offset
            contiguous = (np.ascontiguousarray(array, dtype) for array in arrays)
            made[dtype] = None if front is None else Encoder.of(front, *contiguous)
        return made[dtype]

    @property
    def is_affine(self) -> bool:
        """Whether features are an affine map of the raw input: then samples as they follow each other serve best."""
        return self._needed.is_identity and self._needed.projection is None and self._needed.low is None

    def _affine(self, dtype: np.dtype[Any], raw: Raw) -> tuple[Front | None, Raw, NDArray[Any], NDArray[Any]]:
        """What is needed for y = W^T x' + f; matrices are made once."""
        made: dict[Any, Any] = self.__dict__.setdefault("_affine_maps", {})
        if dtype not in made:
            F, f = (self.slow, self.slow_offset) if self.n_slow else (self.rest_inputs[:0], self.slow_offset)
            W = np.vstack([F, self.rest_inputs + self.rest_slow @ F]).T
            both = np.concatenate([f, self.rest_offset + self.rest_slow @ f])
            made[dtype] = Front.of(self._needed, dtype), *(np.ascontiguousarray(A, dtype) for A in (W, both))
        front, W, f = made[dtype]
        return front, raw, W, f

    @cached_property
    def _needed(self) -> Frontend:
        """The frontend, without its expansion where no slow feature is made of that."""
        return self.frontend if self.n_slow else replace(self.frontend, expansion=IDENTITY)

    def _encode_with_numpy(self, raw: Raw, Y: NDArray[Any]) -> None:
        """Write the features of a few samples, whose expansion stays in the cache."""
        J, D, I, dtype, frontend = self.n_slow, self.n_components, self.frontend.n_inputs, Y.dtype, self.frontend
        both = empty_rows(I + J, Y.shape[1], dtype)
        Z = X = frontend.inputs(raw, dtype, clip=True, out=both[:I])
        if J:
            if not frontend.is_identity:
                Z = empty_rows(frontend.n_expanded, X.shape[1], dtype)
                frontend.expansion.fill(X, Z, frontend.children)
            np.matmul(self.cast("slow", dtype), Z, out=both[I:])
            both[I:] += self.cast("slow_offset", dtype)
            Y[:J] = both[I:]
        if D > J:
            np.matmul(self.cast("rest_inputs", dtype), X, out=Y[J:D])
            Y[J:D] += self.cast("rest_slow", dtype) @ both[I:]
            Y[J:D] += self.cast("rest_offset", dtype)

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
