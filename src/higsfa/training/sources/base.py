"""What a source is: samples that are read when they are asked for.

Training reads its data several times and in parallel. So a source gives the same values each time, several threads may
read it at once, and it can be pickled: a file is pickled as its path and opened again where it is needed.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Delayed", "Derived", "Described", "Rows", "Samples", "Shape", "Source", "Subset", "blocks", "evenly_spread"]

Rows = NDArray[np.intp]
Samples = NDArray[Any]
Shape = tuple[int, ...]


class Source(ABC):
    """Samples that are read when they are asked for.

    ``source[rows]``, with a slice, a mask or row indices, is a source of these rows. ``np.asarray(source)`` reads
    everything.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import sources
    >>> source = sources.as_source(np.arange(8).reshape(4, 2))
    >>> isinstance(source, sources.Source), len(source), source.shape
    (True, 4, (2,))
    >>> np.asarray(source[1:3])
    array([[2, 3],
           [4, 5]])
    """

    n_probes: ClassVar[int] = 4
    """Number of samples that the fingerprint reads."""
    shape: Shape
    """Shape of one sample."""
    dtype: np.dtype[Any]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self, rows: Rows) -> Samples:
        """Read samples by index. There is at least one, and the indices have been checked."""

    @abstractmethod
    def _identity(self) -> Iterable[object]:
        """Objects whose representations tell this source from others."""

    def take(self, rows: ArrayLike) -> Samples:
        """Read samples.

        Parameters
        ----------
        rows : int array of shape (n,)
            Row indices in any order, with or without duplicates.

        Returns
        -------
        array of shape (n, ...)
            Do not write to it: it may be a view of the data.
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (rows.dtype.kind not in "iu" and len(rows)):
            raise TypeError(f"rows must be a 1-dimensional array of integers, got {rows.ndim}-dimensional {rows.dtype}")
        if len(rows) == 0:
            return np.empty((0, *self.shape), dtype=self.dtype)
        low, high = rows.min(), rows.max()
        if low < 0 or high >= len(self):
            raise IndexError(f"rows: {low if low < 0 else high} is not a row of {len(self)} samples")
        return self._take(rows.astype(np.intp, copy=False))

    @property
    def sample_index(self) -> Rows:
        """The sample that each row is a copy of: ``labels[source.sample_index]`` are the labels of the rows.

        Samples are counted in the source that was repeated. Without :func:`repeat` these are the rows themselves.
        """
        return np.arange(len(self))

    @property
    def is_repeated(self) -> bool:
        """Whether rows are copies of fewer samples."""
        return False

    def fingerprint(self) -> str:
        """Hash of sizes, files and their dates, parameters and some rows. It changes when the data do."""
        sha = hashlib.sha256()
        for part in (type(self).__name__, len(self), self.shape, self.dtype.str, *self._identity()):
            sha.update(repr(part).encode() + b"\0")
        if len(self):
            sha.update(np.ascontiguousarray(self.take(evenly_spread(len(self), self.n_probes))).tobytes())
        return sha.hexdigest()[:16]

    def __getitem__(self, rows: Any) -> Source:
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.ndim != 1 or (rows.dtype.kind not in "iub" and len(rows)):
                raise TypeError("a source is indexed by a slice, a mask or an array of row indices; see also take")
            rows = rows if rows.dtype == bool else rows.astype(np.intp)
        return Subset(self, np.arange(len(self))[rows])

    # Without this, Python would iterate by calling __getitem__ with single integers.
    def __iter__(self) -> Iterator[Samples]:
        return (self.take([row])[0] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Samples:
        if copy is False:
            raise ValueError("a source cannot be turned into an array without copying; leave out copy=False")
        return np.array(self.take(np.arange(len(self))), dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        cls = type(self)
        opened = {name for name in vars(self) if isinstance(getattr(cls, name, None), cached_property)}
        return {name: value for name, value in vars(self).items() if name not in opened}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} samples of shape {self.shape}, {self.dtype}>"


@dataclass(frozen=True, eq=False, repr=False)
class Described(Source):
    """A source that stores the shape and dtype of its samples."""

    shape: Shape
    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Source):
    """A source on top of another one, with its length, shape and dtype unless a subclass says otherwise."""

    parent: Source

    def __post_init__(self) -> None:
        for name in ("shape", "dtype"):
            self.__dict__.setdefault(name, getattr(self.parent, name))

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def sample_index(self) -> Rows:
        return self.parent.sample_index

    @property
    def is_repeated(self) -> bool:
        return self.parent.is_repeated


@dataclass(frozen=True, eq=False, repr=False)
class Subset(Derived):
    """Some rows of a source."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sample_index(self) -> Rows:
        return self.parent.sample_index[self.rows] if self.is_repeated else np.arange(len(self))

    def _take(self, rows: Rows) -> Samples:
        return self.parent.take(self.rows[rows])

    def _identity(self) -> Iterable[object]:
        return self.parent.fingerprint(), hashlib.sha256(self.rows.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class Delayed(Described, Derived):
    """Samples of time series together with those before them, newest first, as one row of features each.

    Attributes
    ----------
    rows : the newest sample of each row.
    begin : the first sample that a row may reach back to; it stands for earlier ones.
    delays, step : a row holds the samples 0, step, ..., delays * step earlier.
    """

    rows: Rows
    begin: Rows
    delays: int
    step: int

    @classmethod
    def of(cls, parent: Source, rows: Rows, begin: Rows, delays: int, step: int) -> Delayed:
        return cls(parent, (prod(parent.shape) * (delays + 1),), parent.dtype, rows, begin, delays, step)

    def __len__(self) -> int:
        return len(self.rows)

    def _take(self, rows: Rows) -> Samples:
        newest, begin = self.rows[rows], self.begin[rows]
        wanted = [np.maximum(newest - k * self.step, begin) for k in range(self.delays + 1)]
        lo, hi = int(wanted[-1].min()), int(newest.max()) + 1
        if hi - lo > 2 * len(rows) + self.delays * self.step:  # far apart: read no more than is asked for
            found, back = distinct(np.concatenate(wanted))
            samples = self.parent.take(found)[back]
            return np.concatenate(samples.reshape(self.delays + 1, len(rows), -1), axis=1)
        near = self.parent.take(np.arange(lo, hi)).reshape(hi - lo, -1)
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        width = near.shape[1]
        for k, those in enumerate(wanted):
            consecutive = those[-1] - those[0] == len(those) - 1 and bool(np.all(np.diff(those) == 1))
            picked = near[those[0] - lo : those[-1] - lo + 1] if consecutive else near[those - lo]
            out[:, k * width : (k + 1) * width] = picked
        return out

    def _identity(self) -> Iterable[object]:
        places = (hashlib.sha256(which.astype("<i8").tobytes()).hexdigest() for which in (self.rows, self.begin))
        return self.parent.fingerprint(), *places, self.delays, self.step


def evenly_spread(n: int, k: int) -> Rows:
    """At most k of the rows 0 .. n - 1, evenly spread, ascending, from the first to the last.

    >>> evenly_spread(10, 4), evenly_spread(3, 8)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    return np.unique(np.linspace(0, n - 1, min(n, k)).astype(np.intp))


def blocks(source: Source, max_values: int) -> Iterator[tuple[slice, Samples]]:
    """The whole source in order, in blocks of at most `max_values` values but at least one sample."""
    step = max(1, max_values // max(1, prod(source.shape)))
    for lo in range(0, len(source), step):
        hi = min(lo + step, len(source))
        yield slice(lo, hi), source.take(np.arange(lo, hi))


def distinct(rows: Rows) -> tuple[Rows, Rows | slice]:
    """Distinct rows in ascending order, and the index that turns them back into `rows`."""
    wanted, back = np.unique(rows, return_inverse=True)
    return wanted, slice(None) if np.array_equal(wanted, rows) else back


def file_identity(path: str | os.PathLike[str]) -> tuple[str, int, int]:
    """What tells a file from an older version of it, without reading it."""
    status = os.stat(path)
    return str(path), status.st_size, status.st_mtime_ns


def describe(function: Any) -> object:
    """A description of a function or an object that is the same in the next process."""
    if isinstance(function, partial):
        return describe(function.func), function.args, sorted(function.keywords.items())
    if is_dataclass(function):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
