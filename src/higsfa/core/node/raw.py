"""Raw input of a node that is not copied yet, and how many samples of it are worked on at once."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

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


Ints = NDArray[np.intp]


class Rows:
    """Some rows (all if None) of an array whose rows are variables and whose columns are samples."""

    def __init__(self, source: NDArray[Any], which: Ints | None = None) -> None:
        self.source, self.which, self.dtype = source, which, source.dtype
        self.shape = (len(source) if which is None else len(which), int(source.shape[1]))

    def columns(self, a: int, b: int) -> Rows:
        """The samples a .. b."""
        return Rows(self.source[:, a:b], self.which)

    def array(self) -> NDArray[Any]:
        """The values, (variables, samples). Read only: they may be those of the source."""
        return _read_only(self.source if self.which is None else self.source[self.which])


class Samples:
    """Some samples of an array whose rows are samples."""

    def __init__(self, source: NDArray[Any], which: Ints) -> None:
        self.source, self.which, self.dtype = source, which, source.dtype
        self.shape = (int(source.shape[1]), len(which))

    def columns(self, a: int, b: int) -> Samples:
        """The samples a .. b."""
        return Samples(self.source, self.which[a:b])

    def array(self) -> NDArray[Any]:
        """The values, (variables, samples). Read only: they are those of the source if its samples are neighbours."""
        which, n = self.which, len(self.which)
        if n and which[-1] - which[0] == n - 1 and which[0] >= 0 and (n < 3 or np.all(np.diff(which) == 1)):
            return _read_only(np.asarray(self.source[which[0] : which[-1] + 1]).T)
        some = np.empty((n, self.source.shape[1]), self.source.dtype)
        check_indices(which, len(self.source))
        np.take(self.source, which, axis=0, out=some, mode="clip")  # other modes copy once more
        return _read_only(some.T)


Raw: TypeAlias = Rows | Samples


def as_raw(X: Raw | NDArray[Any]) -> Raw:
    """Raw input from an array (variables, samples), in either order of memory."""
    if not isinstance(X, np.ndarray):
        return X
    samples_first = X.strides[0] == X.itemsize and X.strides[1] != X.itemsize
    return Samples(X.T, np.arange(X.shape[1])) if samples_first else Rows(X)


def check_indices(which: Ints, n: int) -> None:
    """Raise unless all are indices of n rows."""
    if which.size and which.view(np.uintp).max() >= n:  # negative indices are large as unsigned numbers
        raise IndexError(f"rows {which.min()} to {which.max()} were asked for, but there are {n}")


def _read_only(A: NDArray[Any]) -> NDArray[Any]:
    view = A.view()
    view.flags.writeable = False
    return view
