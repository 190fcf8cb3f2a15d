"""Where samples come from: one small interface over arrays, files, zarr and dask, and what can be put on top of them.

A source has a length, and the shape and type of its samples; ``take(rows)`` reads some of them, in any order. Training
reads its data several times and in parallel, so a source gives the same values each time, may be read by several
threads at once, and can be pickled: what is a file comes out of a pickle as its path and is opened again where it is
needed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from higsfa.io import open_regular, read_regular, replacing, write_atomically
from higsfa.io.arrays import read_header

__all__ = ["Distorts", "Source", "array", "as_source", "cache", "dask", "map", "npy", "repeat", "zarr"]

Rows = NDArray[np.intp]
Samples = NDArray[Any]
Shape = tuple[int, ...]
Batch = Callable[[Samples], ArrayLike]
"""A function of a batch of samples, (n, ...) -> (n, ...)."""

SPAN_BYTES = 2**26
"""Most bytes of neighbouring zarr chunks that are read in one go."""
FILL_BYTES = 2**25
"""Bytes that a cache is filled with at a time."""


class Distorts(Protocol):
    """What :func:`repeat` wants of a distortion; :class:`higsfa.images.Distortion` is one."""

    def apply(self, images: Samples, samples: Rows, copies: Rows) -> Samples: ...


class Source(ABC):
    """Samples that are read when they are asked for.

    ``source[rows]``, with a slice, a mask or row numbers, is a source of these rows only; ``np.asarray(source)`` reads
    everything.
    """

    n_probes: ClassVar[int] = 4
    """Samples that the fingerprint looks at."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Of one sample."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self, rows: Rows) -> Samples:
        """Samples by number; there is at least one, and the numbers have been checked."""

    @abstractmethod
    def _identity(self) -> Iterable[object]:
        """Things whose representation tells this source from others."""

    def take(self, rows: ArrayLike) -> Samples:
        """Read samples.

        Parameters
        ----------
        rows : int array of shape (n,)
            In any order; a number may stand there more than once.

        Returns
        -------
        array of shape (n, *shape)
            Not for writing: it may be a view of the data.
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (rows.dtype.kind not in "iu" and len(rows)):
            raise TypeError(f"rows: a one-dimensional array of integers, got {rows.ndim}-dimensional {rows.dtype}")
        if len(rows) == 0:
            return np.empty((0, *self.shape), dtype=self.dtype)
        low, high = rows.min(), rows.max()
        if low < 0 or high >= len(self):
            raise IndexError(f"rows: {low if low < 0 else high} is not a row of {len(self)} samples")
        return self._take(rows.astype(np.intp, copy=False))

    @property
    def sample_index(self) -> Rows:
        """Which sample each row is a copy of, counted in the source that was repeated; the rows themselves if none was.

        So the labels of the copies are ``labels[source.sample_index]``.
        """
        return np.arange(len(self))

    @property
    def is_repeated(self) -> bool:
        """Whether rows are copies of fewer samples."""
        return False

    def fingerprint(self) -> str:
        """A short text that changes when the data do: a hash of sizes, files and their dates, parameters, some rows."""
        sha = hashlib.sha256()
        for part in (type(self).__name__, len(self), self.shape, self.dtype.str, *self._identity()):
            sha.update(repr(part).encode() + b"\0")
        if len(self):
            rows = np.unique(np.linspace(0, len(self) - 1, self.n_probes).astype(np.intp))
            sha.update(np.ascontiguousarray(self.take(rows)).tobytes())
        return sha.hexdigest()[:16]

    def __getitem__(self, rows: Any) -> Source:
        if isinstance(rows, slice):
            chosen = np.arange(len(self))[rows]
        else:
            chosen = np.asarray(rows)
            if chosen.dtype == bool and chosen.shape != (len(self),):
                raise IndexError(f"a mask of shape {chosen.shape} does not go with {len(self)} samples")
            if chosen.ndim != 1 or (chosen.dtype.kind not in "iub" and len(chosen)):
                raise TypeError("a source is indexed by a slice, a mask or an array of row numbers; see also take")
            try:
                chosen = np.arange(len(self))[chosen.astype(np.intp) if chosen.dtype != bool else chosen]
            except IndexError:
                raise IndexError(f"there are only {len(self)} samples") from None
        return Subset(self, chosen)

    # Without it, iteration would go through __getitem__ one number at a time.
    def __iter__(self) -> Iterator[Samples]:
        return (self.take([row])[0] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Samples:
        if copy is False:
            raise ValueError("a source cannot be turned into an array without copying")
        return np.array(self.take(np.arange(len(self))), dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} samples of shape {self.shape}, {self.dtype}>"


# ---------------------------------------------------------------------------------------------- arrays


def array(X: ArrayLike) -> Source:
    """Samples of an array, along its first axis.

    A ``np.memmap`` of a whole file is pickled as the name of the file, not as its contents.
    """
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError("X is a masked array, and masks would be ignored: fill it first")
    kept = X if isinstance(X, np.memmap) else np.asarray(X)
    _check_array(kept.shape, kept.dtype, "X")
    if isinstance(kept, np.memmap) and _is_whole_map(kept):
        order = "C" if kept.flags.c_contiguous else "F"
        source = MappedFile(Path(str(kept.filename)).absolute(), kept.offset, kept.shape, kept.dtype, order)
        vars(source)["_open"] = kept
        return source
    return Array(np.asarray(kept))


def npy(path: str | os.PathLike[str]) -> Source:
    """Samples of a ``.npy`` file, read from disk when they are needed."""
    try:
        with open_regular(path) as file:
            header = read_header(file)
            n_bytes = os.fstat(file.fileno()).st_size
        if n_bytes < header.offset + header.n_bytes:
            raise ValueError(f"it has {n_bytes:,} bytes, too few for its shape {header.shape}")
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a .npy file of numbers: {error}") from None
    _check_array(header.shape, header.dtype, os.fspath(path))
    order = "F" if header.fortran_order else "C"
    return MappedFile(Path(path).absolute(), header.offset, header.shape, header.dtype, order)


def _is_whole_map(X: np.memmap[Any, Any]) -> bool:
    """Whether the file has all there is to know: X is no part of another map, and changes to it go to the file."""
    contiguous = X.flags.c_contiguous or X.flags.f_contiguous
    return contiguous and isinstance(X.base, mmap.mmap) and X.filename is not None and X.mode != "c"


def _check_array(shape: Shape, dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiub":
        raise TypeError(f"{name}: samples must hold numbers, got dtype {dtype}")
    if len(shape) < 2:
        raise ValueError(f"{name}: an array of samples has at least two dimensions, got shape {shape}")


@dataclass(frozen=True, eq=False, repr=False)
class Array(Source):
    """An array in memory."""

    n_probes: ClassVar[int] = 64
    X: Samples

    @property
    def shape(self) -> Shape:
        return self.X.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype

    def __len__(self) -> int:
        return len(self.X)

    def _take(self, rows: Rows) -> Samples:
        if _is_stretch(rows):
            view = self.X[rows[0] : rows[-1] + 1].view()
            view.setflags(write=False)
            return view
        return np.take(self.X, rows, axis=0)

    def _identity(self) -> Iterable[object]:
        return ()


@dataclass(frozen=True, eq=False, repr=False)
class MappedFile(Source):
    """An array in a file that is mapped into memory."""

    n_probes: ClassVar[int] = 16
    path: Path
    offset: int
    whole_shape: Shape
    kind: np.dtype[Any]
    order: str = "C"

    @property
    def shape(self) -> Shape:
        return self.whole_shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind

    def __len__(self) -> int:
        return self.whole_shape[0]

    @cached_property
    def _open(self) -> Samples:
        order = cast(Any, self.order)
        return np.memmap(self.path, self.kind, mode="r", offset=self.offset, shape=self.whole_shape, order=order)

    def _take(self, rows: Rows) -> Samples:
        # Always a copy, so that the disk is waited for here, in the thread that reads.
        if _is_stretch(rows):
            taken = np.array(self._open[rows[0] : rows[-1] + 1])
        else:
            taken = np.asarray(np.take(self._open, rows, axis=0))
        self._let_go()
        return taken

    def _let_go(self) -> None:
        """Give pages that were read back to the system, which may cache them; they count as our memory otherwise."""
        mapping = getattr(self._open, "_mmap", None)
        if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)

    def _identity(self) -> Iterable[object]:
        return (*_file_identity(self.path), self.offset, self.order)


def _is_stretch(rows: Rows) -> bool:
    return bool(rows[-1] - rows[0] == len(rows) - 1 and np.all(np.diff(rows) == 1))


def _file_identity(path: str | os.PathLike[str]) -> tuple[str, int, int]:
    status = os.stat(path)
    return str(path), status.st_size, status.st_mtime_ns


# ---------------------------------------------------------------------------------------------- chunked arrays


def zarr(store: Any) -> Source:
    """Samples of a zarr array.

    Parameters
    ----------
    store : zarr.Array, or path or address of one
    """
    if isinstance(store, str | os.PathLike):
        text = os.fspath(store)
        source = ZarrArray(text if "://" in text else os.path.abspath(text))
    else:
        source = ZarrArray(None, store)
    X = source._open
    if not all(hasattr(X, name) for name in ("chunks", "shape", "dtype")):
        raise TypeError(f"store: a zarr array or a path to one, got {type(X).__name__}")
    _check_array(X.shape, X.dtype, "store")
    return source


@dataclass(frozen=True, eq=False, repr=False)
class ZarrArray(Source):
    """An array that lies in a store as chunks. Each chunk that is needed is read once, in ascending order."""

    path: str | None
    given: Any = None

    @cached_property
    def _open(self) -> Any:
        if self.path is None:
            return self.given
        import zarr

        return zarr.open_array(self.path, mode="r")

    @property
    def shape(self) -> Shape:
        return tuple(self._open.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = np.dtype(self._open.dtype)
        return kind

    def __len__(self) -> int:
        return int(self._open.shape[0])

    def _take(self, rows: Rows) -> Samples:
        wanted, back = np.unique(rows, return_inverse=True)
        out = np.empty((len(wanted), *self.shape), dtype=self.dtype)
        for lo, hi in self._spans(wanted):
            first = wanted[lo]
            out[lo:hi] = np.asarray(self._open[first : wanted[hi - 1] + 1])[wanted[lo:hi] - first]
        return out if len(wanted) == len(rows) and np.all(np.diff(back) == 1) else out[back]

    def _spans(self, wanted: Rows) -> Iterator[tuple[int, int]]:
        """Cut ascending rows where a chunk is left out, or where the chunks since the last cut are large enough."""
        per_chunk = int(self._open.chunks[0])
        chunks = wanted // per_chunk
        most = max(1, SPAN_BYTES // (per_chunk * self.dtype.itemsize * max(1, int(np.prod(self.shape)))))
        starts = [int(start) for start in np.flatnonzero(np.diff(chunks, prepend=-2) > 0)]
        begin = 0
        for previous, start in pairwise(starts):
            if chunks[start] - chunks[previous] > 1 or chunks[start] - chunks[begin] >= most:
                yield begin, start
                begin = start
        yield begin, len(wanted)

    def _identity(self) -> Iterable[object]:
        return (self.path if self.path is not None else str(getattr(self.given, "store", "")), self._open.chunks)


def dask(X: Any, *, scheduler: str | None = None) -> Source:
    """Samples of a dask array; the blocks that are needed are computed when they are.

    Parameters
    ----------
    X : dask.array.Array
    scheduler : str, optional
        Passed on to ``compute``; dask's own choice by default.
    """
    if not hasattr(X, "dask") or not hasattr(X, "chunks"):
        raise TypeError(f"X: a dask array, got {type(X).__name__}")
    _check_array(X.shape, X.dtype, "X")
    if np.any(np.isnan(X.shape)):
        raise ValueError(f"X: its shape {X.shape} is not known; call X.compute_chunk_sizes() first")
    return DaskArray(X, scheduler)


@dataclass(frozen=True, eq=False, repr=False)
class DaskArray(Source):
    """An array that dask computes."""

    X: Any
    scheduler: str | None = None

    @property
    def shape(self) -> Shape:
        return tuple(self.X.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = np.dtype(self.X.dtype)
        return kind

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def _take(self, rows: Rows) -> Samples:
        wanted, back = np.unique(rows, return_inverse=True)
        chosen = slice(wanted[0], wanted[-1] + 1) if _is_stretch(wanted) else wanted
        options = {} if self.scheduler is None else {"scheduler": self.scheduler}
        # The type that dask announces is a guess where the user's own functions are mapped over blocks.
        read = np.asarray(self.X[chosen].compute(**options), dtype=self.dtype)
        return read if len(wanted) == len(rows) and np.all(np.diff(back) == 1) else read[back]

    def _identity(self) -> Iterable[object]:
        return ()


# ---------------------------------------------------------------------------------------------- on top of a source


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Source):
    """A source on top of another one, with its length, shape and type unless told otherwise."""

    parent: Source

    @property
    def shape(self) -> Shape:
        return self.parent.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parent.dtype

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


def map(source: Any, function: Batch) -> Source:
    """Samples with a function applied to them.

    Parameters
    ----------
    source : source, or what :func:`as_source` makes one of
    function : callable
        Of a batch (n, *shape), which it must not change; returns (n, ...). What it makes of a sample must not depend
        on the other samples of the batch. Its shape and type are found by trying the first sample.
    """
    source = as_source(source)
    tried = np.asarray(function(_first(source)))
    if tried.ndim < 2 or len(tried) != 1:
        raise ValueError(f"function: for one sample, an array of shape (1, ...) was expected, got {tried.shape}")
    _check_array(tried.shape, tried.dtype, "function")
    return Mapped(source, function, tried.shape[1:], tried.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Mapped(Derived):
    """A function of a source."""

    function: Batch
    new_shape: Shape
    new_dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        return self.new_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.new_dtype

    def _take(self, rows: Rows) -> Samples:
        return _same_kind(np.asarray(self.function(self.parent.take(rows))), len(rows), self, "function")

    def _identity(self) -> Iterable[object]:
        return self.parent.fingerprint(), _describe(self.function)


def repeat(source: Any, copies: int, distortion: Distorts | None = None) -> Source:
    """Several copies of every sample, each distorted in its own way.

    Row r is copy ``r % copies`` of sample ``r // copies``: copies of a sample stand next to each other. The labels of
    the rows are ``labels[repeated.sample_index]``.

    Parameters
    ----------
    source : source, or what :func:`as_source` makes one of
    copies : int
    distortion : optional
        With a method ``apply(images, sample numbers, copy numbers)``, such as :class:`higsfa.images.Distortion`.
    """
    source = as_source(source)
    if not isinstance(copies, int | np.integer) or copies < 1:
        raise ValueError(f"copies={copies!r} must be an integer of at least 1")
    repeated = Repeated(source, int(copies), distortion)
    if distortion is not None and len(source):
        repeated.take([0])
    return repeated


@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """Copies of the samples of a source."""

    copies: int
    distortion: Distorts | None

    def __len__(self) -> int:
        return len(self.parent) * self.copies

    @property
    def sample_index(self) -> Rows:
        return np.repeat(self.parent.sample_index, self.copies)

    @property
    def is_repeated(self) -> bool:
        return True

    def _take(self, rows: Rows) -> Samples:
        samples, copies = np.divmod(rows, self.copies)
        wanted, back = np.unique(samples, return_inverse=True)
        read = self.parent.take(wanted)[back]
        if self.distortion is None:
            return read
        return _same_kind(np.asarray(self.distortion.apply(read, samples, copies)), len(rows), self, "distortion")

    def _identity(self) -> Iterable[object]:
        return self.parent.fingerprint(), self.copies, _describe(self.distortion)


def cache(source: Any, path: str | os.PathLike[str], *, rebuild: bool = False) -> Source:
    """The samples of a source in a ``.npy`` file, which is written now if it is not there.

    A file that is there is used if it was made of the same data, by the fingerprint in ``path + ".json"``. The file
    appears under its name only when it is whole.

    Parameters
    ----------
    source : source, or what :func:`as_source` makes one of
    path : path ending in ``.npy``
    rebuild : bool, default=False
        Whether a file made of other data is written anew; otherwise it is an error.
    """
    source = as_source(source)
    path = Path(path).absolute()
    if path.suffix != ".npy":
        raise ValueError(f"path: {path} must end in .npy")
    made_of = source.fingerprint()
    there = path.exists()
    problem = _unfit(path, made_of) if there else ""
    if problem and not rebuild:
        raise ValueError(f"{path} {problem}; delete it, or pass rebuild=True to write it anew")
    if problem or not there:
        _fill(path, source, made_of)
    stored = npy(path)
    if (len(stored), stored.shape, stored.dtype) != (len(source), source.shape, source.dtype):
        raise ValueError(f"{path} holds {stored!r} instead of {source!r}; delete it")
    return Cached(stored, made_of, source.sample_index if source.is_repeated else None)


@dataclass(frozen=True, eq=False, repr=False)
class Cached(Derived):
    """A copy of a source in a file."""

    made_of: str
    index: Rows | None

    @property
    def sample_index(self) -> Rows:
        return np.arange(len(self)) if self.index is None else self.index

    @property
    def is_repeated(self) -> bool:
        return self.index is not None

    def _take(self, rows: Rows) -> Samples:
        return self.parent.take(rows)

    def _identity(self) -> Iterable[object]:
        return (self.made_of,)


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _unfit(path: Path, made_of: str) -> str:
    """Why a file is not a cache of the data with this fingerprint; empty if it is."""
    try:
        found = json.loads(read_regular(_sidecar(path), 2**20))["fingerprint"]
    except FileNotFoundError:
        return f"was not written as a cache, or its {_sidecar(path).name} was lost"
    except (ValueError, KeyError, TypeError):
        return f"has an unreadable {_sidecar(path).name}"
    return "" if found == made_of else "was made of other data, or of data that have changed since"


def _fill(path: Path, source: Source, made_of: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {
        "descr": np.lib.format.dtype_to_descr(source.dtype),
        "fortran_order": False,
        "shape": (len(source), *source.shape),
    }
    rows = max(1, FILL_BYTES // max(1, source.dtype.itemsize * int(np.prod(source.shape))))

    # Plain writing: with a memory map, a full disk would end the process instead of raising an error.
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for lo in range(0, len(source), rows):
            file.write(np.ascontiguousarray(source.take(np.arange(lo, min(lo + rows, len(source))))).tobytes())
        # The note that data are whole comes after them; an old one goes before the old data do.
        _sidecar(path).unlink(missing_ok=True)
    write_atomically(_sidecar(path), json.dumps({"fingerprint": made_of, "of": repr(source)}).encode())


# ---------------------------------------------------------------------------------------------- anything


def as_source(X: Any) -> Source:
    """A source of whatever holds samples: a source, a numpy array or memmap, a zarr array, a dask array."""
    if isinstance(X, Source):
        return X
    if isinstance(X, np.ndarray):
        return array(X)
    package = type(X).__module__.partition(".")[0]
    if package == "zarr" and hasattr(X, "chunks"):
        return zarr(X)
    if package == "dask" and hasattr(X, "chunks"):
        return dask(X)
    hint = "; use sources.npy, sources.zarr or sources.images for a path" if isinstance(X, str | os.PathLike) else ""
    raise TypeError(
        f"samples come from a numpy array, a zarr array, a dask array or a source, not from {type(X).__name__}{hint}"
    )


def _first(source: Source) -> Samples:
    if len(source) == 0:
        raise ValueError("the source has no samples")
    return source.take([0])


def _same_kind(out: Samples, n: int, source: Source, name: str) -> Samples:
    """What a function returned, if it is of the shape and type it had for the first sample."""
    expected = (n, *source.shape)
    if out.shape != expected or out.dtype != source.dtype:
        raise ValueError(f"{name} returned {out.shape} of {out.dtype}, but {expected} of {source.dtype} was expected")
    return out


def _describe(function: Any) -> object:
    """A text for a function or an object that is the same in the next process."""
    if isinstance(function, partial):
        return _describe(function.func), function.args, sorted(function.keywords.items())
    if is_dataclass(function):
        return repr(function)
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"
