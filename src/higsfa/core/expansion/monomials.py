"""The gradient of monomials, for the backward pass of products and polynomials."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def monomial_gradient(S: Array, blocks: list[Array | None]) -> Array:
    """Return the gradient of monomials of the rows of ``S``.

    ``blocks[d - 1]`` is dL/dz of degree d, None where that degree is absent.
    """
    walk = _MonomialWalk(S, blocks)
    walk.visit(0, 0, None)
    return walk.dS


class _MonomialWalk:
    """A walk over the tree of monomials, z = (product of prefix) * x_j, depth first.

    It meets the rows of each degree in their order and needs one row of memory a level; the last level is
    taken for all j at once.
    """

    def __init__(self, S: Array, blocks: list[Array | None]) -> None:
        self.S = S
        self.blocks = blocks
        self.dS = np.zeros(S.shape, S.dtype)
        self.scratch = np.empty(S.shape, S.dtype)
        self.row = [0] * len(blocks)

    def visit(self, first: int, level: int, prefix: Array | None) -> Array:
        """Handle all monomials prefix * x_j * ..., j >= first; return dL/d(prefix)."""
        S, dS, block, begin = self.S, self.dS, self.blocks[level], self.row[level]
        self.row[level] += len(S) - first
        if level == len(self.blocks) - 1:
            assert block is not None
            G = block[begin : self.row[level]]
            dS[first:] += G if prefix is None else np.multiply(G, prefix, out=self.scratch[first:])
            last: Array = np.einsum("jn,jn->n", G, S[first:])
            return last
        total = np.zeros(S.shape[1], S.dtype)
        for j in range(first, len(S)):
            A = self.visit(j, level + 1, S[j] if prefix is None else prefix * S[j])
            if block is not None:
                A += block[begin + j - first]
            dS[j] += A if prefix is None else A * prefix
            A *= S[j]
            total += A
        return total
