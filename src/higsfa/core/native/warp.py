"""Images read between their pixels in one compiled call, to the bits that numpy gives in many (``CubicWarp.read``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native import library

Ints = NDArray[np.int32]
SINGLE = np.dtype(np.float32)
MAX_COEFFICIENTS = 2**31 - 1
"""Of an image: the routine counts them in 32 bits."""


class Positions(NamedTuple):
    """Pixel (r, c) of image k is read from x = x_columns[k, c] + x_rows[k, r], y likewise, in fractions of a pixel."""

    x_columns: Ints
    x_rows: Ints
    y_columns: Ints
    y_rows: Ints


def can_warp(n_coefficients: int, real: Any, integer: Any) -> bool:
    """Whether the routine knows images of so many coefficients, given the types of these and of positions."""
    known = ("warp", SINGLE) in library.routines and n_coefficients <= MAX_COEFFICIENTS
    return bool(known and np.dtype(real) == SINGLE and np.dtype(integer) == np.int32)


def warp(
    coefficients: NDArray[Any], shape: tuple[int, int], margin: int, where: Positions, bits: int, out: NDArray[Any]
) -> None:
    """Grey values (n, height, width) of n images from the coefficients of cubic splines.

    There are `shape` coefficients of each image, of which `margin` rows at either end are not read.
    """
    (rows, stride), (n, height, width) = shape, out.shape
    sizes = (width, height, width, height)
    if len(coefficients) < n * rows * stride or rows < height + 3 + 2 * margin or stride < width + 3 or margin < 0:
        raise ValueError(f"{len(coefficients)} coefficients of {shape} for each image are too few for {out.shape}")
    given = [np.ascontiguousarray(part) for part in where]
    arrays = coefficients, out, *given
    good = all(array.flags.c_contiguous and array.flags.aligned for array in arrays) and out.flags.writeable
    good = good and all(array.dtype == SINGLE for array in arrays[:2])
    if not good or any(p.dtype != np.int32 or p.shape != (n, size) for p, size in zip(given, sizes, strict=True)):
        raise ValueError(f"positions of {n} images of {height} x {width} pixels, 32-bit numbers in order, are needed")
    if n and not 0 <= bits <= 30 - max(height, width).bit_length():
        raise ValueError(f"{bits} bits are too many for fractions of {max(height, width)} pixels in 32 bits")
    library.routines["warp", SINGLE](
        coefficients.ctypes.data + margin * stride * coefficients.itemsize,
        *(rows * stride, stride, n, height, width),
        *(part.ctypes.data for part in given),
        *(bits, out.ctypes.data),
    )
