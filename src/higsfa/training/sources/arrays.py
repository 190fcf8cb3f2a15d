"""Samples in arrays: numpy, files mapped into memory, zarr and dask."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from higsfa.io import open_regular
from higsfa.io.arrays import read_header
from higsfa.training.sources.base import (
    Described,
    Rows,
    Samples,
    Shape,
    Source,
    distinct,
    file_identity,
)

__all__ = ["MappedFile", "array", "as_source", "dask", "npy", "zarr"]


def npy(path: str | os.PathLike[str]) -> Source:
    """Samples of a ``.npy`` file, read from disk when they are needed.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from higsfa import SFA, sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(os.path.join(folder, "X.npy"), np.random.default_rng(0).normal(size=(500, 4)))
    ...     SFA(n_components=2).fit(sources.npy(os.path.join(folder, "X.npy"))).n_features_in_
    4
    """
    try:
        with open_regular(path) as file:
            header = read_header(file)
            n_bytes = os.fstat(file.fileno()).st_size
        if n_bytes < header.offset + header.n_bytes:
            raise ValueError(f"it has {n_bytes:,} bytes, too few for its shape {header.shape}")
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a .npy file of numbers: {error}") from None
    check_array(header.shape, header.dtype, os.fspath(path))
    n_samples, *shape = header.shape
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    return MappedFile(tuple(shape), header.dtype, Path(path).absolute(), header.offset, n_samples, order)


def mapped(X: np.memmap[Any, Any]) -> Source | None:
    """A source that is pickled as the path of a memory map, if the file says everything about the map.

    It does not if X is a part of another map, or if changes to X do not go to the file.
    """
    contiguous = X.flags.c_contiguous or X.flags.f_contiguous
    if not contiguous or not isinstance(X.base, mmap.mmap) or X.filename is None or X.mode == "c":
        return None
    order: Literal["F", "C"] = "C" if X.flags.c_contiguous else "F"
    source = MappedFile(X.shape[1:], X.dtype, Path(str(X.filename)).absolute(), X.offset, len(X), order)
    vars(source)["_open"] = X
    return source


@dataclass(frozen=True, eq=False, repr=False)
class MappedFile(Described):
    """An array in a file that is mapped into memory."""

    n_probes: ClassVar[int] = 16
    path: Path
    offset: int
    n_samples: int
    order: Literal["F", "C"] = "C"

    def __len__(self) -> int:
        return self.n_samples

    @cached_property
    def _open(self) -> Samples:
        shape = (self.n_samples, *self.shape)
        opened = np.memmap(self.path, self.dtype, mode="r", offset=self.offset, shape=shape, order=self.order)
        return cast(Samples, opened)

    def _take(self, rows: Rows) -> Samples:
        # Always a copy, so that the thread that reads is the one that waits for the disk.
        if is_consecutive(rows):
            taken = np.array(self._open[rows[0] : rows[-1] + 1])
        else:
            taken = np.asarray(np.take(self._open, rows, axis=0))
        self._release_pages()
        return taken

    def _release_pages(self) -> None:
        """Tell the system that pages are no longer needed: it may keep them cached, but not as memory of ours."""
        mapping = getattr(self._open, "_mmap", None)
        if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)

    def _identity(self) -> Iterable[object]:
        return (*file_identity(self.path), self.offset, self.order)


SPAN_BYTES = 2**26
"""Most bytes of neighbouring zarr chunks that are read in one go."""


def is_chunked(X: Any) -> bool:
    """Whether X is a zarr array or a dask array."""
    return type(X).__module__.partition(".")[0] in ("zarr", "dask") and hasattr(X, "chunks")


def as_source(X: Any) -> Source:
    """Make a source from a source, a numpy array or memmap, a zarr array or a dask array.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import sources
    >>> sources.as_source(np.zeros((5, 8, 8)))
    <Array: 5 samples of shape (8, 8), float64>
    """
    if isinstance(X, Source):
        return X
    if isinstance(X, np.ndarray):
        return array(X)
    if is_chunked(X):
        return dask(X) if hasattr(X, "dask") else zarr(X)
    hint = "; use sources.npy, sources.zarr or sources.images for a path" if isinstance(X, str | os.PathLike) else ""
    raise TypeError(
        f"samples come from a numpy array, a zarr array, a dask array or a source, not from {type(X).__name__}{hint}"
    )


def array(X: ArrayLike) -> Source:
    """Samples of an array, along its first axis.

    A ``np.memmap`` of a whole file is pickled as the path of the file, not as its contents.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import sources
    >>> source = sources.array(np.arange(6).reshape(3, 2))
    >>> source.take([2, 0])
    array([[4, 5],
           [0, 1]])
    """
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError("X is a masked array, and masks would be ignored: fill it first")
    X = X if isinstance(X, np.memmap) else np.asarray(X)
    check_array(X.shape, X.dtype, "X")
    return (mapped(X) if isinstance(X, np.memmap) else None) or Array(X.shape[1:], X.dtype, np.asarray(X))


def is_consecutive(rows: Rows) -> bool:
    return bool(rows[-1] - rows[0] == len(rows) - 1 and np.all(np.diff(rows) == 1))


def check_array(shape: Shape, dtype: np.dtype[Any], name: str) -> None:
    """Refuse arrays that cannot hold samples."""
    if dtype.kind not in "fiub":
        raise TypeError(f"{name}: samples must be numbers, got dtype {dtype}")
    if len(shape) < 2:
        raise ValueError(f"{name}: an array of samples has at least two dimensions, got shape {shape}")


@dataclass(frozen=True, eq=False, repr=False)
class ArrayLikeSource(Described):
    """A source whose samples are the rows of `X`, which is like an array."""

    X: Any

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def _identity(self) -> Iterable[object]:
        return ()


@dataclass(frozen=True, eq=False, repr=False)
class Array(ArrayLikeSource):
    """An array in memory."""

    def _identity(self) -> Iterable[object]:
        sha = hashlib.sha256()
        for lo in range(0, len(self.X), 4096):
            sha.update(np.ascontiguousarray(self.X[lo : lo + 4096]).tobytes())
        return (sha.hexdigest(),)

    def _take(self, rows: Rows) -> Samples:
        return self.between(rows[0], rows[-1] + 1) if is_consecutive(rows) else np.take(self.X, rows, axis=0)

    def between(self, begin: int, end: int) -> Samples:
        """The samples from `begin` to before `end`; to be read only."""
        view: Samples = self.X[begin:end]
        view.setflags(write=False)
        return view


def zarr(store: Any) -> Source:
    """Samples of a zarr array.

    Parameters
    ----------
    store : zarr.Array, or path or URL of one

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, zarr
    >>> from higsfa import sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = zarr.save_array(folder, np.arange(6).reshape(3, 2))
    ...     sources.zarr(folder).take([1])
    array([[2, 3]])
    """
    path = None
    if isinstance(store, str | os.PathLike):
        import zarr

        text = os.fspath(store)
        path = text if "://" in text else os.path.abspath(text)
        store = zarr.open_array(path, mode="r")
    if not all(hasattr(store, name) for name in ("chunks", "shape", "dtype")):
        raise TypeError(f"store must be a zarr array or a path to one, got {type(store).__name__}")
    check_array(store.shape, store.dtype, "store")
    return ZarrArray(tuple(store.shape[1:]), np.dtype(store.dtype), store, path)


@dataclass(frozen=True, eq=False, repr=False)
class ZarrArray(ArrayLikeSource):
    """An array that is stored in chunks. Each chunk that is needed is read once, in ascending order."""

    path: str | None

    def _take(self, rows: Rows) -> Samples:
        wanted, back = distinct(rows)
        out = np.empty((len(wanted), *self.shape), dtype=self.dtype)
        for lo, hi in self._spans(wanted):
            first = wanted[lo]
            out[lo:hi] = np.asarray(self.X[first : wanted[hi - 1] + 1])[wanted[lo:hi] - first]
        return out[back]

    def _spans(self, wanted: Rows) -> Iterator[tuple[int, int]]:
        """Cut ascending rows where a chunk is not needed, or where the chunks since the last cut are large enough."""
        per_chunk = int(self.X.chunks[0])
        chunks = wanted // per_chunk
        most = max(1, SPAN_BYTES // (per_chunk * self.dtype.itemsize * max(1, prod(self.shape))))
        starts = [int(start) for start in np.flatnonzero(np.diff(chunks, prepend=-2) > 0)]
        begin = 0
        for previous, start in pairwise(starts):
            if chunks[start] - chunks[previous] > 1 or chunks[start] - chunks[begin] >= most:
                yield begin, start
                begin = start
        yield begin, len(wanted)

    def _identity(self) -> Iterable[object]:
        return (self.path if self.path is not None else str(getattr(self.X, "store", "")), self.X.chunks)


def dask(X: Any, *, scheduler: str | None = None) -> Source:
    """Samples of a dask array; blocks are computed when they are needed.

    Parameters
    ----------
    X : dask.array.Array
    scheduler : str, optional
        Passed on to ``compute``; dask's own choice by default.

    Examples
    --------
    >>> import dask.array
    >>> from higsfa import sources
    >>> sources.dask(dask.array.ones((100, 3), chunks=(10, 3)))
    <DaskArray: 100 samples of shape (3,), float64>
    """
    if not hasattr(X, "dask") or not hasattr(X, "chunks"):
        raise TypeError(f"X must be a dask array, got {type(X).__name__}")
    check_array(X.shape, X.dtype, "X")
    if np.any(np.isnan(X.shape)):
        raise ValueError(f"X: its shape {X.shape} is not known; call X.compute_chunk_sizes() first")
    return DaskArray(tuple(X.shape[1:]), np.dtype(X.dtype), X, scheduler)


@dataclass(frozen=True, eq=False, repr=False)
class DaskArray(ArrayLikeSource):
    """An array that dask computes."""

    scheduler: str | None = None

    def _identity(self) -> Iterable[object]:
        return (self.X.name,)  # dask's own, made of what it computes

    def _take(self, rows: Rows) -> Samples:
        wanted, back = distinct(rows)
        chosen = slice(wanted[0], wanted[-1] + 1) if is_consecutive(wanted) else wanted
        options = {} if self.scheduler is None else {"scheduler": self.scheduler}
        # The dtype that dask announces is a guess where functions of the user are mapped over blocks.
        computed = np.asarray(self.X[chosen].compute(**options), dtype=self.dtype)
        return computed[back]
