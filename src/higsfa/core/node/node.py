"""Trained nodes: features of the expanded input, and their linear inverse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion, parse_expansion
from higsfa.core.native.scratch import chunk_columns, empty_rows
from higsfa.core.native.tile import Encoder, Front, encode_tile
from higsfa.core.node.raw import Raw, as_raw

Floats = NDArray[np.float64]

IDENTITY = parse_expansion("identity")


class _Cast:
    """Arrays of a record in the precision of the data, made once."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def cast(self, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
        """The array of this name, C-contiguous; vectors as columns."""
        made: dict[tuple[str, str], NDArray[Any]] = self.__dict__.setdefault("_made", {})
        key = (name, kind.str)
        if key not in made:
            values = getattr(self, name)
            made[key] = np.ascontiguousarray(values if values.ndim == 2 else values[:, None], dtype=kind)
        return made[key]

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was worked out from them."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Projection(_Cast):
    """Principal components before the node: x to P (x - mean), not whitened."""

    matrix: Floats
    mean: Floats

    def project(self, raw: Raw, out: NDArray[Any]) -> None:
        """Write the projection of raw input to `out`, before the mean is subtracted."""
        given = X = raw.array()
        if X.dtype != out.dtype:
            X = empty_rows(len(X), X.shape[1], out.dtype)
            np.copyto(X, given, casting="unsafe")
        np.matmul(self.cast("matrix", out.dtype), X, out=out)

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

    @property
    def n_raw(self) -> int:
        """Variables of the raw input."""
        return self.n_inputs if self.projection is None else int(self.projection.matrix.shape[1])

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

    def inputs(
        self,
        raw: Raw | NDArray[Any],
        kind: np.dtype[Any] | None = None,
        *,
        clip: bool,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Centred input (I, n) of the node from raw input (feature-major), in the precision `kind`.

        Written to `out`. Without it, a new array, or one to be read only where nothing has to be done to raw input.
        """
        raw = as_raw(raw)
        kind = raw.dtype if kind is None else kind
        if raw.shape[0] != self.n_raw:
            raise ValueError(f"raw input must have {self.n_raw} variables, got shape {raw.shape}")
        center, limits = self._center(kind), self._limits(kind) if clip else None
        if out is None:
            if self.projection is None and center is None and limits is None and raw.dtype == kind:
                return raw.array()
            out = np.empty((self.n_inputs, raw.shape[1]), kind)
        if self.projection is not None:
            self.projection.project(raw, out)
        X = out if self.projection is not None else raw.array()
        if center is not None:
            np.subtract(X, center, out=out, casting="unsafe")
        elif X is not out:
            np.copyto(out, X, casting="unsafe")
        if limits is not None:
            np.clip(out, *limits, out=out)
        return out

    def front(self, kind: np.dtype[Any], *, shift: Floats | None = None) -> Front | None:
        """The way from raw input to variables t - shift, for compiled routines; None if they do not know it.

        Without a shift, the way to features: clipped, and without the inputs that the expansion does not contain.
        """
        program = None
        if not self.is_identity:
            program = self.expansion.program(self.n_inputs // self.children, self.children)
            if program is None:
                return None
            if shift is not None:
                program = program.with_copies(self.missing.tolist(), self.n_expanded)
        return Front.of(
            kind,
            self.n_raw,
            self.n_inputs,
            self.n_expanded if shift is None else self.n_variables,
            program,
            projection=None if self.projection is None else self.projection.cast("matrix", kind),
            center=self._center(kind),
            limits=self._limits(kind) if shift is None else None,
            shift=shift.astype(kind) if shift is not None and shift.any() else None,
        )

    def _center(self, kind: np.dtype[Any]) -> NDArray[Any] | None:
        return self.cast("_offset", kind) if self._is_centered else None

    def _limits(self, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        return None if self.low is None else (self.cast("low", kind), self.cast("high", kind))

    @cached_property
    def _offset(self) -> Floats:
        """What is subtracted from the raw input, after the projection."""
        return self.center if self.projection is None else self.center + self.projection.projected_mean

    @cached_property
    def _is_centered(self) -> bool:
        return bool(self._offset.any())

    def variables(self, X: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Variables t (T, n) from centred input (I, n), in `out` or in a new array; X itself if they are the same."""
        if self.is_identity:
            return X
        T = np.empty((self.n_variables, X.shape[1]), dtype=X.dtype) if out is None else out
        self.expansion.fill(X, T[: self.n_expanded], self.children)
        if len(self.missing):
            T[self.n_expanded :] = X[self.missing]
        return T

    def expand(self, X: NDArray[Any]) -> NDArray[Any]:
        """The expansion z (I', n) alone; X itself if it is the same."""
        if self.is_identity:
            return X
        Z = empty_rows(self.n_expanded, X.shape[1], X.dtype)
        self.expansion.fill(X, Z, self.children)
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
    delta_values : Delta of the slow features, ascending unless there is shrinkage; more than the node keeps, where more
        were computed.
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

    @cached_property
    def fits_single(self) -> bool:
        """Whether single precision holds the expanded variables: their weights are about one over their size."""
        if not self.n_slow:
            return True
        weights = np.max(np.abs(self.slow), axis=0, initial=0.0)
        return not np.any((weights > 0) & ((weights < 1e-15) | (weights > 1e15)))

    @cached_property
    def rest(self) -> Floats:
        """G and H side by side."""
        return np.hstack([self.rest_inputs, self.rest_slow])

    @cached_property
    def _minus_slow_offset(self) -> Floats:
        return -self.slow_offset

    @cached_property
    def _minus_rest_offset(self) -> Floats:
        return -self.rest_offset

    def encode(self, raw: Raw | NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Features (D, n) of raw input (feature-major); rows of `out` beyond D are set to 0."""
        raw = as_raw(raw)
        D, n = self.n_components, raw.shape[1]
        Y: NDArray[Any] = np.empty((D, n), raw.dtype) if out is None else out
        if Y.ndim != 2 or len(Y) < D or Y.shape[1] != n:
            raise ValueError(f"out must have shape ({D}, {n}), or more rows, got {Y.shape}")
        if not encode_tile(self._encoder(Y.dtype), raw, Y):
            step = chunk_columns(self._needed.n_expanded, Y.itemsize)
            for a in range(0, n, step):
                self._encode(raw.columns(a, a + step), Y[:, a : a + step])
        Y[D:] = 0
        return Y

    def _encoder(self, kind: np.dtype[Any]) -> Encoder | None:
        """What compiled routines need to know, made once."""
        made: dict[Any, Any] = self.__dict__.setdefault("_encoders", {})
        if kind not in made:
            names = "slow", "_minus_slow_offset", "rest", "_minus_rest_offset"
            front = self._needed.front(kind)
            made[kind] = None if front is None else Encoder.of(front, *(self.cast(name, kind) for name in names))
        encoder: Encoder | None = made[kind]
        return encoder

    @cached_property
    def _needed(self) -> Frontend:
        """The frontend, without its expansion where no slow feature is made of that."""
        return self.frontend if self.n_slow else replace(self.frontend, expansion=IDENTITY)

    def _encode(self, raw: Raw, Y: NDArray[Any]) -> None:
        """Write the features of a few samples, whose expansion stays in the cache."""
        J, D, I, kind = self.n_slow, self.n_components, self.frontend.n_inputs, Y.dtype
        both = empty_rows(I + J, Y.shape[1], kind)
        X = self.frontend.inputs(raw, kind, clip=True, out=both[:I])
        if J:
            np.matmul(self.cast("slow", kind), self.frontend.expand(X), out=both[I:])
            both[I:] -= self.cast("_minus_slow_offset", kind)
            Y[:J] = both[I:]
        if D > J:
            np.matmul(self.cast("rest", kind), both, out=Y[J:D])
            Y[J:D] -= self.cast("_minus_rest_offset", kind)

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
