"""The terms of a nonlinear expansion: what one word such as ``quadratic[:10]`` computes.

A term sees its selected inputs as a view ``S`` of shape (children, selected, samples) and writes its rows
into a block of shape (rows, samples). Rows are long and contiguous: every operation runs along samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, pairwise
from math import comb, isfinite
from operator import index
from typing import Any, ClassVar, TypeAlias

import numpy as np

from higsfa.core.expansion.monomials import Array, inverse_norm, monomial_gradient, pair_products, signs
from higsfa.core.native.library import COPY, MAXIMUM, NORMALIZE, POWER, PRODUCT, SIGNED_POWER

MAX_DEGREE = 8
MAX_RELU, MAX_SIGNS = 16_384, 2**24
"""Rows of a relu term, and signs of all its rows, which are held in memory."""
TILE_BYTES = 1 << 18  # a tile of input and one of output stay together in a second-level cache
MAX_FACTORS = 8  # beyond this many multiplications a power is left to numpy

Operation: TypeAlias = tuple[int, int, int, float]
"""A row as a compiled loop makes it: what is done, with which two inputs, and the exponent of a power.

After all rows, one more may say that they are normalised, with the number of inputs that they are products of.
"""


@dataclass(frozen=True)
class Selection:
    """Positions ``start`` <= i < ``stop`` within each child; ``stop`` None means to the end."""

    start: int
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.stop is not None and self.stop <= self.start):
            raise ValueError(f"slice {self} selects nothing")

    def __str__(self) -> str:
        if self.stop is None:
            return f"[{self.start}:]"
        if self.stop == self.start + 1:
            return f"[{self.start}]"
        return f"[{self.start or ''}:{self.stop}]"


@dataclass(frozen=True)
class Term(ABC):
    """One term of an expansion, with an optional selection of positions within each child."""

    selection: Selection | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def label(self) -> str:
        """Name with its number, without the slice."""

    keeps_inputs: ClassVar[bool] = False
    """Whether the first rows are the selected inputs themselves."""

    @property
    def is_linear(self) -> bool:
        """Whether the term is made of plain inputs only."""
        return False

    def __str__(self) -> str:
        return self.label + ("" if self.selection is None else str(self.selection))

    def bounds(self, width: int) -> tuple[int, int]:
        """Return the selected positions [a, b) of a child; a slice beyond its width is an error."""
        if self.selection is None:
            return 0, width
        start, stop = self.selection.start, self.selection.stop
        if start >= width or (stop is not None and stop > width):
            trouble = "selects nothing of" if stop is None else "reaches beyond"
            raise ValueError(
                f"expansion term '{self}': slice {self.selection} {trouble} width {width}; "
                f"positions within each child are 0 to {width - 1}"
            )
        return start, width if stop is None else stop

    def select(self, X: Array) -> Array:
        """Return the view (children, selected, n) of (children, width, n); without a slice, as one child."""
        if self.selection is None:
            return X.reshape(1, X.shape[0] * X.shape[1], X.shape[2])
        start, stop = self.bounds(X.shape[1])
        return X[:, start:stop]

    def size(self, width: int, children: int) -> int:
        """Return the number of rows for ``children`` children of ``width`` inputs each."""
        start, stop = self.bounds(width)
        return self.n_rows(children, stop - start) if self.selection else self.n_rows(1, children * width)

    @abstractmethod
    def n_rows(self, children: int, selected: int) -> int:
        """Return the number of rows for a view of this shape."""

    @abstractmethod
    def fill(self, S: Array, out: Array) -> None:
        """Write the rows of the term into ``out``."""

    def operations(self, numbers: Array) -> list[Operation] | None:
        """Return the rows as elementary operations on inputs, whose numbers are given as (children, selected).

        None if there are none; numpy expands then.
        """
        return None

    @abstractmethod
    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        """Add the vector-Jacobian product of the term's rows with ``G`` to ``dS``."""


@dataclass(frozen=True)
class Identity(Term):
    """x."""

    label = "identity"
    keeps_inputs: ClassVar[bool] = True
    is_linear = True

    def n_rows(self, children: int, selected: int) -> int:
        return children * selected

    def fill(self, S: Array, out: Array) -> None:
        np.copyto(out.reshape(S.shape), S)

    def operations(self, numbers: Array) -> list[Operation]:
        return [(COPY, i, i, 1.0) for i in numbers.ravel().tolist()]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        dS += G.reshape(S.shape)


@dataclass(frozen=True)
class Power(Term):
    """|x|^p, child by child."""

    exponent: float
    operation: ClassVar[int] = POWER

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", float(self.exponent))
        if not (isfinite(self.exponent) and self.exponent > 0):
            raise ValueError(f"the exponent must be a positive number, got {self.exponent!r}")

    @property
    def label(self) -> str:
        return f"power{self.exponent!r}".removesuffix(".0")

    def n_rows(self, children: int, selected: int) -> int:
        return children * selected

    def fill(self, S: Array, out: Array) -> None:
        out = out.reshape(S.shape)
        for tile in tiles(S):
            absolute_power(S[tile], self.exponent, out[tile])

    def operations(self, numbers: Array) -> list[Operation] | None:
        if self.exponent >= 1 or self.exponent == 0.5:
            return None
        return [(self.operation, i, i, self.exponent) for i in numbers.ravel().tolist()]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        slope = np.empty_like(dS)
        self.fill(S, slope)
        np.divide(slope, S, out=slope, where=S != 0)  # where x = 0 the power, and so the slope, is 0
        slope *= self.exponent
        slope *= G.reshape(S.shape)
        dS += slope


@dataclass(frozen=True)
class SignedPower(Power):
    """sign(x) |x|^p, child by child."""

    operation: ClassVar[int] = SIGNED_POWER

    @property
    def label(self) -> str:
        return "signed_" + super().label

    def fill(self, S: Array, out: Array) -> None:
        out = out.reshape(S.shape)
        for tile in tiles(S):
            absolute_power(S[tile], self.exponent, out[tile])
            np.copysign(out[tile], S[tile], out=out[tile])


@dataclass(frozen=True)
class Max2(Term):
    """max(x_i, x_i+1): child by child with a slice, across children without."""

    label = "max2"

    def n_rows(self, children: int, selected: int) -> int:
        if selected < 2:
            raise ValueError(f"expansion term '{self}' needs at least 2 inputs to compare, got {selected}")
        return children * (selected - 1)

    def fill(self, S: Array, out: Array) -> None:
        left, right = S[:, :-1], S[:, 1:]
        np.maximum(left, right, out=out.reshape(left.shape))

    def operations(self, numbers: Array) -> list[Operation]:
        pairs = zip(numbers[:, :-1].ravel().tolist(), numbers[:, 1:].ravel().tolist(), strict=True)
        return [(MAXIMUM, i, j, 1.0) for i, j in pairs]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        left, right = S[:, :-1], S[:, 1:]
        G = G.reshape(left.shape)
        to_left = G * (left >= right)
        dS[:, :-1] += to_left
        dS[:, 1:] += np.subtract(G, to_left, out=to_left)


@dataclass(frozen=True)
class Quadratic(Term):
    """x_i x_j for i <= j, jointly over the selected inputs of all children."""

    label = "quadratic"

    def n_rows(self, children: int, selected: int) -> int:
        return comb(children * selected + 1, 2)

    def fill(self, S: Array, out: Array) -> None:
        pair_products(S, out)

    def operations(self, numbers: Array) -> list[Operation]:
        return [(PRODUCT, i, j, 1.0) for i, j in combinations_with_replacement(numbers.ravel().tolist(), 2)]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        dS += monomial_gradient(flat(S), [None, G]).reshape(S.shape)


@dataclass(frozen=True)
class NormalizedQuadratic(Quadratic):
    """x_i x_j / (1 + ||x||^2) for i <= j, jointly over the selected inputs of all children."""

    label = "normalized_quadratic"

    def fill(self, S: Array, out: Array) -> None:
        pair_products(S, out, inverse_norm(S))

    def operations(self, numbers: Array) -> list[Operation]:
        return [*super().operations(numbers), (NORMALIZE, 0, 0, float(numbers.size))]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        # With r = 1/(1 + ||x||^2) and B the gradient of the plain products, Euler's theorem gives
        # dL/dr = sum G_ij x_i x_j = <x, B> / 2, and dr/dx = -2 r^2 x.
        r = inverse_norm(S)
        B = monomial_gradient(flat(S), [None, G]).reshape(S.shape)
        B -= S * (np.einsum("ckn,ckn->n", S, B) * r)
        B *= r
        dS += B


@dataclass(frozen=True)
class Polynomial(Term):
    """All monomials of degree 1 to n, jointly over the selected inputs of all children, degree by degree."""

    degree: int
    keeps_inputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", index(self.degree))
        if not 1 <= self.degree <= MAX_DEGREE:
            raise ValueError(f"the degree must be an integer from 1 to {MAX_DEGREE}, got {self.degree!r}")

    @property
    def label(self) -> str:
        return f"polynomial{self.degree}"

    @property
    def is_linear(self) -> bool:
        return self.degree == 1

    def n_rows(self, children: int, selected: int) -> int:
        return comb(children * selected + self.degree, self.degree) - 1

    def fill(self, S: Array, out: Array) -> None:
        m = S.shape[0] * S.shape[1]
        x = lower = out[:m]
        np.copyto(x.reshape(S.shape), S)
        end = m
        for degree in range(2, self.degree + 1):
            # Monomials x_i x_j ..., i <= j <= ..., are x_i times those of one degree less from j >= i on.
            begin, skip = end, 0
            for i in range(m):
                count = len(lower) - skip
                np.multiply(x[i], lower[skip:], out=out[end : end + count])
                end += count
                skip += comb(m - i + degree - 3, degree - 2)
            lower = out[begin:end]

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        m = S.shape[0] * S.shape[1]
        ends = [comb(m + degree, degree) - 1 for degree in range(self.degree + 1)]
        blocks: list[Array | None] = [G[a:b] for a, b in pairwise(ends)]
        dS += monomial_gradient(flat(S), blocks).reshape(S.shape)


@dataclass(frozen=True)
class Relu(Term):
    """max(0, w'x) for n combinations w of +1 and -1, jointly over the selected inputs of all children.

    The signs look random but are fixed, see `signs`. Without an offset the rows scale with the input, so no width has
    to be chosen as for a Gaussian kernel, which n such rows stand in for.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", index(self.n))
        if not 1 <= self.n <= MAX_RELU:
            raise ValueError(f"the number of rows must be an integer from 1 to {MAX_RELU}, got {self.n!r}")

    @property
    def label(self) -> str:
        return f"relu{self.n}"

    def n_rows(self, children: int, selected: int) -> int:
        if self.n * children * selected > MAX_SIGNS:
            most = MAX_SIGNS // self.n
            raise ValueError(f"expansion term '{self}': {children * selected} inputs are too many, at most {most:,}")
        return self.n

    def fill(self, S: Array, out: Array) -> None:
        np.matmul(signs(self.n, S.shape[0] * S.shape[1], S.dtype), flat(S), out=out)
        np.maximum(out, 0, out=out)

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        W = signs(self.n, S.shape[0] * S.shape[1], S.dtype)
        dS += (W.T @ (G * (W @ flat(S) > 0))).reshape(S.shape)


@dataclass(frozen=True)
class Function(Term):
    """A user's function of samples as rows, (n, I) -> (n, I')."""

    func: Callable[[Array], Any]
    name: str
    gradient: Callable[[Array, Array], Any] | None = None
    _sizes: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def label(self) -> str:
        return f"<function {self.name}>"

    def n_rows(self, children: int, selected: int) -> int:
        n_inputs = children * selected
        if n_inputs not in self._sizes:
            with np.errstate(all="ignore"):
                result = self._call(self.func, np.zeros((2, n_inputs)))
            self._sizes[n_inputs] = result.shape[1]
        return self._sizes[n_inputs]

    def fill(self, S: Array, out: Array) -> None:
        result = self._call(self.func, for_user(S))
        if result.shape[1] != len(out):
            raise ValueError(
                f"expansion {self} returned {result.shape[1]} columns for {S.shape[1]} inputs but {len(out)} "
                "when tried on zeros; the number of columns may depend on the number of inputs only"
            )
        np.copyto(out, result.T, casting="same_kind")

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        if self.gradient is None:
            raise TypeError(
                f"expansion {self} has no gradient; make it by FunctionExpansion(..., gradient=g) with "
                "g(X, G) -> dL/dX, samples as rows, where G = dL/dZ"
            )
        result = self._call(self.gradient, for_user(S), for_user(G))
        if result.shape[1] != S.shape[1]:
            raise ValueError(f"the gradient of expansion {self} must have shape (n, {S.shape[1]}), got {result.shape}")
        dS += result.T

    def _call(self, func: Callable[..., Any], X: Array, *rest: Array) -> Array:
        result = np.asarray(func(X, *rest))
        if result.ndim != 2 or len(result) != len(X) or result.shape[1] == 0:
            raise ValueError(
                f"expansion {self} must map samples as rows, (n, I), to (n, I'); for an input of "
                f"shape {X.shape} it returned shape {result.shape}"
            )
        if result.dtype.kind not in "biuf":
            raise ValueError(f"expansion {self} must return real numbers, got dtype {result.dtype}")
        return result


# --- rows ---


def flat(S: Array) -> Array:
    """Return selected inputs as rows, child-major; a view where memory allows."""
    return S.reshape(S.shape[0] * S.shape[1], S.shape[2])


def for_user(X: Array) -> Array:
    """Return samples as rows, (n, I), for a user's function: a copy, because it may keep them, and to be read only."""
    samples = (flat(X) if X.ndim == 3 else X).copy().T
    samples.flags.writeable = False
    return samples


def tiles(S: Array) -> Iterator[tuple[slice, slice, slice]]:
    """Iterate over index tiles of (children, rows, samples) that fit in the cache."""
    children, rows, n = S.shape
    budget = max(1, TILE_BYTES // (S.itemsize * children))
    columns = max(1, min(n, budget))
    step = max(1, budget // columns)
    for row in range(0, rows, step):
        for column in range(0, n, columns):
            yield slice(None), slice(row, row + step), slice(column, column + columns)


def absolute_power(x: Array, p: float, out: Array) -> None:
    """Compute |x|^p by the cheapest way: a fractional power below 1 times whole factors of x."""
    whole, fraction = divmod(p, 1.0)
    np.abs(x, out=out)
    if whole > MAX_FACTORS:
        np.power(out, p, out=out)
        return
    if fraction == 0:
        whole -= 1
    elif fraction == 0.5:
        np.sqrt(out, out=out)
    else:
        # Twice as fast as np.power in float32; relative error below 2e-6 for 2^-32 < |x| < 2^32.
        np.log2(out, out=out)
        np.multiply(out, fraction, out=out)
        np.exp2(out, out=out)
    for _ in range(int(whole)):
        np.multiply(out, x, out=out)
    if whole:
        np.abs(out, out=out)
