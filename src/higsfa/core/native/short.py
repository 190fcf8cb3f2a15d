"""Rows of features in 16 bits, for those that wait between two layers of a large network.

A row of a tile is rounded to whole multiples of a power of two, the step, so that it has at most 65,536 values. Reading
them again is exact, whoever does it: features have the same bits whether they were kept or are computed and rounded
again. What the compiled routine computes is said by numpy: ``_shorten_with_numpy``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native import library

Singles = NDArray[np.float32]
Codes = NDArray[np.uint16]

LARGEST = 2**16 - 1
NO_EXPONENT = -200
"""Of a number too small to have one; as in ``kernels.c``."""


class Grid(NamedTuple):
    """The values that a row can have: (code + first) step, one of each a row."""

    step: Singles
    first: Singles

    def some(self, rows: Any) -> Grid:
        return Grid(self.step[rows], self.first[rows])

    def numbers(self, codes: Codes) -> Singles:
        """The rounded features of rows of codes (rows, n)."""
        out = np.add(codes, self.first[:, None], dtype=np.float32)
        out *= self.step[:, None]
        return out


def shorten(rows: Singles, codes: Codes, grid: Grid) -> None:
    """Round rows (rows, n) to codes of the same shape and their grid; a row that is not finite becomes all nan."""
    n_rows, n = rows.shape
    routine = library.routines.get(("shorten", rows.dtype))
    arrays = (rows, codes)
    in_rows = all(array.flags.aligned and (array.strides[1] == array.itemsize or n < 2) for array in arrays)
    fits = codes.shape == rows.shape and len(grid.step) == len(grid.first) == n_rows and rows.dtype == np.float32
    apart = all(array.strides[0] % array.itemsize == 0 for array in arrays)
    side_by_side = all(array.flags.c_contiguous and array.dtype == np.float32 for array in grid)
    if not fits or codes.dtype != np.uint16 or not side_by_side:
        raise ValueError(f"{rows.dtype} {rows.shape} does not fit codes {codes.dtype} {codes.shape} and their grid")
    if routine is None or not in_rows or not apart or n == 0:
        _shorten_with_numpy(rows, codes, grid)
        return
    strides = [array.strides[0] // array.itemsize for array in arrays]
    routine(
        rows.ctypes.data,
        strides[0],
        n_rows,
        n,
        codes.ctypes.data,
        strides[1],
        grid.step.ctypes.data,
        grid.first.ctypes.data,
    )


def rounded(rows: Singles) -> Singles:
    """Rows as they are after they have been kept in 16 bits."""
    codes, grid = np.empty(rows.shape, np.uint16), Grid(*np.empty((2, len(rows)), np.float32))
    shorten(rows, codes, grid)
    return grid.numbers(codes)


def _shorten_with_numpy(rows: Singles, codes: Codes, grid: Grid) -> None:
    if rows.shape[1] == 0:
        grid.step[:], grid.first[:] = 1.0, 0.0
        return
    low, high = rows.min(axis=1), rows.max(axis=1)
    finite = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(finite, low, 0), np.where(finite, high, 0)
    # So small that codes suffice for the range, and so large that sums of code and first are exact in single precision.
    exponent = np.maximum(_exponents(high / 2 - low / 2) + 1 - 16, _exponents(np.maximum(high, -low)) - 24)
    exponent = np.maximum(exponent, -126)
    factor = np.ldexp(np.float32(1), -exponent)
    first = np.rint(low * factor)
    with np.errstate(invalid="ignore", over="ignore"):
        code = np.rint(rows * factor[:, None] - first[:, None])
        codes[...] = np.where(finite[:, None], np.clip(code, 0, LARGEST), 0)
    grid.step[:] = np.where(finite, np.ldexp(np.float32(1), exponent), np.nan)
    grid.first[:] = np.where(finite, first, np.nan)


def _exponents(x: NDArray[Any]) -> NDArray[np.int32]:
    """e with x < 2^e <= 2 x."""
    return np.where(x < np.finfo(np.float32).tiny, NO_EXPONENT, np.frexp(x)[1]).astype(np.int32)
