"""Row operations of the expansion terms: powers, products of pairs, and the gradient of monomials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

TILE_BYTES = 1 << 18  # a tile of input and one of output stay together in a second-level cache
MAX_FACTORS = 8  # beyond this many multiplications a power is left to numpy


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
