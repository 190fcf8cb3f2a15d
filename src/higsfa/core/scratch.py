"""How many samples are worked on at once, and arrays for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CHUNK_BYTES = 640 * 1024
"""What is expanded at once stays in the second-level cache until it has been multiplied."""
MIN_CHUNK, MAX_CHUNK = 128, 2048
"""Samples that are expanded at once; the compiled routines have no space for more."""
PADDING = 64
"""Bytes between rows: rows that begin a power of two apart push each other out of the cache."""


@cache
def chunk_columns(n_rows: int, itemsize: int) -> int:
    """Samples that are expanded at once, given the number of variables; fixed, as the bits of sums depend on it."""
    fitting = CHUNK_BYTES // max(1, n_rows * itemsize)
    return int(np.clip(1 << max(fitting.bit_length() - 1, 0), MIN_CHUNK, MAX_CHUNK))


def empty_rows(n_rows: int, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """A feature-major array with arbitrary content and some space between its rows."""
    return np.empty((n_rows, n + PADDING // np.dtype(dtype).itemsize), dtype)[:, :n]
