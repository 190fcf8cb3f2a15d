"""Room for intermediate results, used again and again: fresh memory for every tile costs more than many a sum."""

from __future__ import annotations

import threading
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CHUNK_BYTES = 640 * 1024
"""What is expanded at once stays in the second-level cache until it has been multiplied."""
PADDING = 64
"""Bytes between rows: where rows begin a power of two apart, they push each other out of the cache."""


@cache
def chunk_columns(n_rows: int, itemsize: int) -> int:
    """Samples that are expanded at once, for so many variables: a fixed choice, on which the bits of sums depend."""
    fitting = CHUNK_BYTES // max(1, n_rows * itemsize)
    return int(np.clip(1 << max(fitting.bit_length() - 1, 0), 128, 2048))


class Room(threading.local):
    """Arrays of a thread by name. What was written under a name lasts until the next one of that name is asked for."""

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.uint8]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array with arbitrary content."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        held = self._held.get(name)
        if held is None or held.nbytes < size:
            fresh = np.empty(size + PADDING, np.uint8)
            start = -fresh.ctypes.data % PADDING  # rows that begin with a cache line
            held = self._held[name] = fresh[start : start + size]
        return held[:size].view(kind).reshape(shape)

    def rows(self, name: str, n_rows: int, n: int, dtype: DTypeLike) -> NDArray[Any]:
        """The same for a feature-major block, with some space between its rows."""
        return self(name, (n_rows, n + PADDING // np.dtype(dtype).itemsize), dtype)[:, :n]


room = Room()
