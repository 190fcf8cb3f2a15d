"""The term of an expansion that is made of samples: a Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np

from higsfa.core.expansion.monomials import Array
from higsfa.core.expansion.terms import Term, flat

MAX_POINTS = 16_384


def n_points(terms: tuple[Term, ...]) -> int:
    """Points of the kernel that an expansion is; 0 if it is none."""
    return terms[0].n if isinstance(terms[0], Kernel) else 0


@dataclass(frozen=True)
class Kernel(Term):
    """exp(-|x - p|^2 / width) for n points p, jointly over the selected inputs of all children.

    Points are samples that a network takes when it is trained; `width` is their mean square. Without them, a term only
    says what is wanted.
    """

    n: int
    points: Array | None = field(default=None, kw_only=True, repr=False, compare=False)  # (n, inputs)
    width: float = field(default=1.0, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", index(self.n))
        if not 1 <= self.n <= MAX_POINTS:
            raise ValueError(f"the number of points must be an integer from 1 to {MAX_POINTS}, got {self.n!r}")

    @property
    def label(self) -> str:
        return f"kernel{self.n}"

    def n_rows(self, children: int, selected: int) -> int:
        return self.n

    def fill(self, S: Array, out: Array) -> None:
        X, P = flat(S), self._points(S.dtype)
        np.matmul(P, X, out=out)
        out *= 2
        out -= np.einsum("ij,ij->i", P, P)[:, None]
        out -= np.einsum("ij,ij->j", X, X)
        out /= self.width
        np.exp(np.minimum(out, 0, out=out), out=out)

    def pull_back(self, S: Array, G: Array, dS: Array) -> None:
        X, P = flat(S), self._points(S.dtype)
        Z = np.empty((self.n, X.shape[1]), X.dtype)
        self.fill(S, Z)
        Z *= G
        dS += ((P.T @ Z - X * Z.sum(axis=0)) * (2 / self.width)).reshape(S.shape)

    def _points(self, dtype: np.dtype[Any]) -> Array:
        if self.points is None:
            raise ValueError(
                f"expansion term '{self}' needs samples as points, which only a network takes that is trained in one "
                "place: HiGSFA([..., Layer(..., expansion='kernel1000')])"
            )
        return self.points.astype(dtype, copy=False)
