"""From a node's raw input to the variables that its sums are gathered over: project, centre, clip, expand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion, Layout
from higsfa.core.native.tile import Raw, empty_rows

Floats = NDArray[np.float64]


class Record:
    """Arrays of a frozen record in the dtype of the data, made once; pickled without what was worked out."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def cast(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The array of this name, C-contiguous; vectors as columns."""
        made: dict[tuple[str, str], NDArray[Any]] = self.__dict__.setdefault("_made", {})
        key = (name, dtype.str)
        if key not in made:
            values = getattr(self, name)
            made[key] = np.ascontiguousarray(values if values.ndim == 2 else values[:, None], dtype=dtype)
        return made[key]

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in self.__dataclass_fields__.values() if one.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state)


@dataclass(frozen=True, eq=False)
class Projection(Record):
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


@dataclass(frozen=True, eq=False)
class Frontend(Record):
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
    n_raw, n_expanded, n_variables : number of raw inputs, I' and T.
    is_identity : whether t is the centred input itself.
    offset : what is subtracted after the projection; None for nothing.
    """

    expansion: Expansion
    children: int
    n_inputs: int
    center: Floats
    low: Floats | None = None
    high: Floats | None = None
    projection: Projection | None = None
    layout: Layout = field(init=False)
    n_raw: int = field(init=False)
    n_expanded: int = field(init=False)
    n_variables: int = field(init=False)
    is_identity: bool = field(init=False)
    offset: Floats | None = field(init=False)

    def __post_init__(self) -> None:
        layout = self.expansion.layout(self.n_inputs // self.children, self.children)
        projection, offset = self.projection, self.center
        if projection is not None:
            offset = offset + projection.matrix @ projection.mean
        made = {
            "layout": layout,
            "n_raw": self.n_inputs if projection is None else int(projection.matrix.shape[1]),
            "n_expanded": layout.size,
            "n_variables": layout.size + len(layout.missing),
            "is_identity": layout.is_identity,
            "offset": offset if offset.any() else None,
        }
        self.__dict__.update(made)

    def inputs(
        self,
        raw: Raw,
        dtype: np.dtype[Any],
        *,
        clip: bool,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Centred input (I, n) of the node from raw input (feature-major).

        Written to `out`. Without it, a new array, or one to be read only where nothing has to be done to raw input.
        """
        if raw.shape[0] != self.n_raw:
            raise ValueError(f"raw input must have {self.n_raw} variables, got shape {raw.shape}")
        clip = clip and self.low is not None
        if out is None:
            if self.projection is None and self.offset is None and not clip and raw.dtype == dtype:
                return raw.array()
            out = np.empty((self.n_inputs, raw.shape[1]), dtype)
        if self.projection is not None:
            self.projection.project(raw, out)
        X = out if self.projection is not None else raw.array()
        if self.offset is not None:
            np.subtract(X, self.cast("offset", dtype), out=out, casting="unsafe")
        elif X is not out:
            np.copyto(out, X, casting="unsafe")
        if clip:
            np.clip(out, self.cast("low", dtype), self.cast("high", dtype), out=out)
        return out

    def variables(self, X: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Variables t (T, n) from centred input (I, n), in `out` or in a new array; X itself if they are the same."""
        if self.is_identity:
            return X
        T = np.empty((self.n_variables, X.shape[1]), dtype=X.dtype) if out is None else out
        self.expansion.fill(X, T[: self.n_expanded], self.children)
        if self.n_variables > self.n_expanded:
            T[self.n_expanded :] = X[self.layout.missing]
        return T
