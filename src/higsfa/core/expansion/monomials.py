"""Rows that terms of an expansion are made of: products, signs of sums, and the gradient of monomials."""

from __future__ import annotations

from functools import lru_cache
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


@lru_cache(maxsize=8)
def signs(n: int, n_inputs: int, dtype: np.dtype[Any]) -> Array:
    """A matrix (n, n_inputs) of +-1 / sqrt(n_inputs): the highest bits of splitmix64, the same on every machine."""
    W = np.empty((n, n_inputs), dtype)
    for row in range(n):
        x = np.arange(row * n_inputs + 1, (row + 1) * n_inputs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        x ^= x >> np.uint64(31)
        W[row] = np.where(x >> np.uint64(63), 1, -1) / np.sqrt(n_inputs)
    W.flags.writeable = False
    return W


def pair_products(S: Array, out: Array, scale: Array | None = None) -> None:
    """Write rows x_i x_j, i <= j, times ``scale``: x_i with the rest of its child, then later children."""
    children, selected, n = S.shape
    row = 0
    for child in range(children):
        later = children - child - 1
        for i in range(selected):
            x = S[child, i] if scale is None else S[child, i] * scale
            end = row + selected - i
            np.multiply(x, S[child, i:], out=out[row:end])
            row = end + later * selected
            if later:
                np.multiply(x, S[child + 1 :], out=out[end:row].reshape(later, selected, n))


def inverse_norm(S: Array) -> Array:
    """Return 1 / (1 + ||x||^2) for each sample."""
    norm = np.ones(S.shape[2], S.dtype)
    for child in S:
        for x in child:  # row by row: the order of the sum, and so its bits, do not depend on the layout
            norm += x * x
    return np.divide(1, norm, out=norm)
