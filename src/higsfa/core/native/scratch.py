"""Memory for intermediate results that is used again and again: fresh memory for every tile costs more than many a sum.

An array from here is like any other, only its memory goes back to a pool when neither the array nor any view of it is
left. So whoever asks meanwhile, be it a user's function that calls another estimator, gets other memory, and what is
kept is never written over.
"""

from __future__ import annotations

import threading
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CHUNK_BYTES = 640 * 1024
"""What is expanded at once stays in the second-level cache until it has been multiplied."""
MIN_CHUNK, MAX_CHUNK = 128, 2048
"""Samples that are expanded at once; the compiled routines have no room for more."""
PADDING = 64
"""Bytes between rows: where rows begin a power of two apart, they push each other out of the cache."""
SMALL = 2**15
"""Bytes that the allocator hands out quickly enough by itself."""


@cache
def chunk_columns(n_rows: int, itemsize: int) -> int:
    """Samples that are expanded at once, for so many variables: a fixed choice, on which the bits of sums depend."""
    fitting = CHUNK_BYTES // max(1, n_rows * itemsize)
    return int(np.clip(1 << max(fitting.bit_length() - 1, 0), MIN_CHUNK, MAX_CHUNK))


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array with arbitrary content, whose memory is used again once nothing refers to it."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    if size <= SMALL:
        return np.empty(shape, kind)
    return np.asarray(_Loan(_pool.free, size))[:size].view(kind).reshape(shape)


def empty_rows(n_rows: int, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """The same for a feature-major block, with some space between its rows."""
    return empty((n_rows, n + PADDING // np.dtype(dtype).itemsize), dtype)[:, :n]


class _Pool(threading.local):
    """Memory of a thread that nothing refers to."""

    def __init__(self) -> None:
        self.free: list[NDArray[np.uint8]] = []


_pool = _Pool()


class _Loan:
    """Memory from a pool. Every view of an array that was made of it keeps the loan alive; its end gives it back."""

    def __init__(self, free: list[NDArray[np.uint8]], size: int) -> None:
        self._free, self._memory = free, _taken(free, size)
        self.__array_interface__ = self._memory.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._memory)


def _taken(free: list[NDArray[np.uint8]], size: int) -> NDArray[np.uint8]:
    """The smallest memory that suffices. If there is none, the largest makes way for new memory, so the pool holds no
    more pieces than were ever in use at once."""
    by_size = sorted(range(len(free)), key=lambda place: free[place].nbytes)
    for place in by_size:
        if free[place].nbytes >= size:
            return free.pop(place)
    if by_size:
        free.pop(by_size[-1])
    fresh = np.empty(size + PADDING, np.uint8)
    start = -fresh.ctypes.data % PADDING  # rows that begin with a cache line
    return fresh[start : start + size]
