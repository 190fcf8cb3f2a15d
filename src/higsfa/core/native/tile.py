"""A tile in one compiled call: read, expanded, multiplied and added up.

The routines go through a tile a few samples at a time, so that nothing leaves the cache between reading and
multiplying, and the interpreter lock is released. They know the usual case: built-in expansions, samples in groups,
or joined along an order, arrays in the ordinary order of memory. numpy does the rest, and everything where nothing was
compiled. What they compute is said by numpy: ``NodeSums._add_with_numpy``.

What is handed over is checked here, once: compiled code does not look at sizes and types. Raw input of a node is handed
over where it lies, as rows or samples of an array (:class:`Rows`, :class:`Samples`); numpy reads it the same way.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from higsfa.core.native import library
from higsfa.core.native.short import Grid
from higsfa.core.sums.tile import LocalEdges, LocalPairs, LocalRuns, Tile

if TYPE_CHECKING:
    from higsfa.core.node.frontend import Frontend

Array = NDArray[Any]
Ints = NDArray[np.intp]
DType = np.dtype[Any]

CHUNK_BYTES = 640 * 1024
"""What is expanded at once stays in the second-level cache until it has been multiplied."""
MIN_CHUNK, MAX_CHUNK = 128, 2048
"""Samples that are expanded at once; the compiled routines have no space for more."""
PADDING = 64
"""Bytes between rows: rows that begin a power of two apart push each other out of the cache."""
ROWS, BYTES, SAMPLES, SHORTS = range(4)
"""Kinds of sources; the numbers are those of ``kernels.c``."""
PAIRS, RUNS = range(2)
"""Kinds of edges; the numbers are those of ``kernels.c``."""
MAX_RUNS = 4
"""That a sample is joined to; as in ``kernels.c``."""
MAX_REACH = 5
"""Edges that would have more chunks than this at hand at once are left to numpy."""
MAX_VARIABLES = 2**15
"""BLAS counts the elements of a matrix in 32 bits."""


# --- raw input ---


@cache
def chunk_columns(n_rows: int, itemsize: int) -> int:
    """Samples that are expanded at once, given the number of variables; fixed, as the bits of sums depend on it."""
    fitting = CHUNK_BYTES // max(1, n_rows * itemsize)
    return int(np.clip(1 << max(fitting.bit_length() - 1, 0), MIN_CHUNK, MAX_CHUNK))


def empty_rows(n_rows: int, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """A feature-major array with arbitrary content and some space between its rows.

    Rows of a single sample lie side by side: compiled routines work on many of them at once.
    """
    return np.empty((n_rows, n + (PADDING // np.dtype(dtype).itemsize if n > 1 else 0)), dtype)[:, :n]


class Raw:
    """Raw input of a node, where it lies: some rows (all if None) of an array."""

    by_samples: ClassVar[bool]
    """Whether the rows of the array are samples; else they are variables."""
    grid: Grid | None = None

    def __init__(self, source: Array, which: Ints | None = None) -> None:
        if which is not None and which.size and which.view(np.uintp).max() >= len(source):
            # Negative indices are large as unsigned numbers.
            raise IndexError(f"rows {which.min()} to {which.max()} were asked for, but there are {len(source)}")
        n = len(source) if which is None else len(which)
        self.source, self.which, self.dtype = source, which, source.dtype
        self.shape = (int(source.shape[1]), n) if self.by_samples else (n, int(source.shape[1]))

    def columns(self, a: int, b: int) -> Raw:
        """The samples a .. b."""
        raise NotImplementedError

    def array(self) -> Array:
        """The values, (variables, samples). Read only: they may be those of the source."""
        raise NotImplementedError


class Rows(Raw):
    """Rows are variables, columns are samples; with a grid, all rows are codes of 16 bits (see :mod:`short`)."""

    by_samples = False

    def __init__(self, source: Array, which: Ints | None = None, grid: Grid | None = None) -> None:
        super().__init__(source, which)
        if grid is not None:
            if source.dtype != np.uint16 or any(len(one) != len(source) for one in grid):
                raise ValueError(f"a grid of {len(grid.step)} rows is not that of {source.dtype} {source.shape}")
            self.dtype = grid.step.dtype
        self.grid = grid

    def columns(self, a: int, b: int) -> Rows:
        return Rows(self.source[:, a:b], self.which, self.grid)

    def array(self) -> Array:
        which = slice(None) if self.which is None else self.which
        A = self.source[which]
        if self.grid is not None:
            A = self.grid.some(which).numbers(A)
        return np.broadcast_to(A, A.shape)


class Samples(Raw):
    """Rows are samples."""

    by_samples = True

    def columns(self, a: int, b: int) -> Samples:
        return Samples(self.source[a:b]) if self.which is None else Samples(self.source, self.which[a:b])

    def array(self) -> Array:
        which, n = self.which, self.shape[1]
        if which is None:
            some = self.source
        elif n and which[-1] - which[0] == n - 1 and (n < 3 or np.all(np.diff(which) == 1)):
            some = self.source[which[0] : which[-1] + 1]
        else:
            some = np.empty((n, self.source.shape[1]), self.dtype)
            np.take(self.source, which, axis=0, out=some, mode="clip")  # other modes copy once more
        return np.broadcast_to(some.T, self.shape)


def as_raw(X: Array) -> Raw:
    """Raw input from an array (variables, samples), in either order of memory."""
    return Samples(X.T) if X.strides[0] == X.itemsize and X.strides[1] != X.itemsize else Rows(X)


# --- compiled routines ---


class _Front(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("n_raw", "n_inputs", "n_variables", "n_operations")),
        *((name, c_void_p) for name in ("projection", "center", "low", "high")),
        *((name, c_void_p) for name in ("operation", "first", "second", "row", "alike", "exponent", "shift")),
        *((name, c_void_p) for name in ("syrk", "gemm", "axpy")),
    ]


class _Source(ctypes.Structure):
    _fields_ = [
        *(("data", c_void_p), ("stride", c_int64), ("kind", c_int64)),
        *((name, c_void_p) for name in ("which", "step", "first")),
    ]
    kept: tuple[Any, ...]  # what the record points to


@dataclass(frozen=True, eq=False)
class Front:
    """The way of a node from raw input to expanded variables, as compiled routines read it."""

    record: _Front
    dtype: DType
    arrays: tuple[Any, ...]  # what the record points to

    @classmethod
    def of(cls, frontend: Frontend, dtype: DType, shift: NDArray[np.float64] | None = None) -> Front | None:
        """The way from raw input to variables t - shift; None if the routines do not know it.

        Without a shift, the way to features: clipped, and without the inputs that the expansion does not contain.
        """
        blas, for_sums = library.blas_addresses(dtype), shift is not None
        n_raw, n_inputs = frontend.n_raw, frontend.n_inputs
        n_variables = frontend.n_variables if for_sums else frontend.n_expanded
        programs = None if frontend.is_identity else frontend.layout.programs
        unknown = programs is None and not frontend.is_identity
        if not library.routines or blas is None or n_variables > MAX_VARIABLES or unknown:
            return None
        low, high = (None, None) if for_sums or frontend.low is None else ("low", "high")
        given = [
            (None if frontend.projection is None else frontend.projection.cast("matrix", dtype), n_inputs * n_raw),
            (None if frontend.offset is None else frontend.cast("offset", dtype), n_inputs),
            *((None if name is None else frontend.cast(name, dtype), n_inputs) for name in (low, high)),
        ]
        program = None if programs is None else programs[for_sums]
        steps = (None,) * 6 if program is None else (*program[:5], program.exponent.astype(dtype))
        shift = shift.astype(dtype) if shift is not None and shift.any() else None
        record = _Front(
            n_raw,
            n_inputs,
            n_variables,
            0 if program is None else len(program.row),
            *(address(array, dtype, size) for array, size in given),
            *(None if array is None else array.ctypes.data for array in steps),
            address(shift, dtype, n_variables),
            *blas,
        )
        return cls(record, dtype, (given, steps, shift))

    def source(self, raw: Raw, n: int) -> _Source | None:
        """At least n samples of raw input as compiled routines read them; None for dtypes that they do not know.

        What lies in memory in a way that they, or BLAS, cannot read (backwards, overlapping) is copied: the layout of
        data changes no bit.
        """
        kinds = {self.dtype: SAMPLES} if raw.by_samples else {self.dtype: ROWS, np.dtype(np.uint8): BYTES}
        grid = raw.grid
        kind = kinds.get(raw.dtype) if grid is None else SHORTS if all(one.flags.c_contiguous for one in grid) else None
        if kind is None:
            return None
        if raw.shape[0] != self.record.n_raw or raw.shape[1] < n:
            raise ValueError(
                f"raw input must have {self.record.n_raw} variables and {n} samples or more, got shape {raw.shape}"
            )
        array, which = raw.source, raw.which
        in_rows = array.flags.aligned and (array.strides[1] == array.itemsize or array.shape[1] < 2)
        apart = not raw.by_samples or array.shape[1] <= array.strides[0] // array.itemsize < 2**31
        if not (in_rows and apart) or array.strides[0] % array.itemsize:
            if grid is not None:
                return None
            array, which = np.array(raw.array().T if raw.by_samples else raw.array(), order="C"), None
        if which is None and raw.by_samples:
            which = np.arange(len(array))
        if which is not None:
            which = np.ascontiguousarray(which)
        found = _Source(
            array.ctypes.data,
            array.strides[0] // array.itemsize,
            kind,
            None if which is None else which.ctypes.data,
            *((None, None) if grid is None else (grid.step.ctypes.data, grid.first.ctypes.data)),
        )
        found.kept = (array, which, grid)
        return found


def address(A: Array | None, dtype: DTypeLike, size: int) -> int | None:
    """Where an array lies, elements one after the other; None for none."""
    if A is None:
        return None
    in_order = A.flags.c_contiguous and A.flags.aligned
    if A.dtype != dtype or not in_order or A.size != size:
        raise ValueError(
            f"compiled routines need {size} numbers of {np.dtype(dtype)}, got {A.dtype} of shape {A.shape}"
        )
    return int(A.ctypes.data)


class _Edges(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("kind", "n_runs", "reach")),
        *((name, c_void_p) for name in ("first", "last", "at", "weights")),
    ]


class _Tile(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("n", "n_parts")),
        *((name, c_void_p) for name in ("begin", "end", "weights", "factors", "anew")),
        *(("n_runs", c_int64), ("starts", c_void_p)),
        *(("n_functions", c_int64), ("functions", c_void_p)),
        *(("n_edges", c_int64), ("edges", c_void_p), ("reached", c_void_p)),
    ]


class _TileArrays:
    """A tile as compiled routines read it, so many samples at a time.

    `columns` samples are at hand at once: those of a chunk, and those that its edges reach. Edges need `room` for so
    many numbers per variable, and one more. `fits` tells whether the routines know them, and they do not reach too far.
    """

    def __init__(self, tile: Tile, dtype: DType, chunk: int) -> None:
        weights = [
            np.ascontiguousarray(np.sqrt(part.weights), dtype) if part.weights.ndim == 2 else None
            for part in tile.parts
        ]
        factors = [None if part.factors is None else np.ascontiguousarray(part.factors, dtype) for part in tile.parts]
        parts = [
            np.array([part.begin for part in tile.parts], dtype=np.intp),
            np.array([part.end for part in tile.parts], dtype=np.intp),
            *(np.array([0 if a is None else a.ctypes.data for a in one], np.uintp) for one in (weights, factors)),
            np.array([part.anew for part in tile.parts], dtype=bool),
        ]
        starts, functions = np.ascontiguousarray(tile.starts, np.intp), np.ascontiguousarray(tile.functions, dtype)
        begins = np.arange(0, tile.n_core, chunk)
        reached = np.minimum(begins + chunk, tile.n_core)
        edges = [_edge_arrays(one, tile, begins, reached, dtype) for one in tile.edges]
        self.columns = int(np.max(reached - begins, initial=0))
        self.fits = None not in edges and self.columns <= MAX_REACH * chunk
        records = (_Edges * len(edges))(*([record for record, _ in edges if record] if self.fits else []))
        self.room = max((6 + record.reach + record.n_runs for record in records), default=0)
        self.record = _Tile(
            tile.n_core,
            len(tile.parts),
            *(array.ctypes.data for array in parts),
            len(starts),
            starts.ctypes.data,
            len(functions),
            address(functions, dtype, len(functions) * tile.n_core),
            len(edges),
            ctypes.addressof(records),
            reached.ctypes.data,
        )
        self.arrays = (parts, weights, factors, starts, functions, edges, records, reached)


def _edge_arrays(edges: LocalEdges, tile: Tile, begins: Ints, reached: Ints, dtype: DType) -> Any:
    """Edges as compiled routines read them, with the arrays that the record points to; None if they do not.

    What the edges of each chunk reach is noted in `reached`.
    """
    n = tile.n_core
    if isinstance(edges, LocalPairs):
        first, last = edges.i, edges.j
        weights = np.sqrt(edges.weight).astype(dtype) if isinstance(edges.weight, np.ndarray) else None
        if np.any(first[1:] < first[:-1]):
            order = np.argsort(first, kind="stable")
            first, last, weights = first[order], last[order], None if weights is None else weights[order]
        at = np.searchsorted(first, np.append(begins, n))
        some = at[1:] > at[:-1]
        reached[some] = np.maximum(reached[some], np.maximum.reduceat(last, at[:-1][some]) + 1 if some.any() else 0)
        record = PAIRS, 0, 0
        is_good = bool(np.all((first >= 0) & (first < n) & (last >= first)))
    elif isinstance(edges, LocalRuns) and len(edges.first) <= MAX_RUNS:
        there = edges.last >= edges.first
        first, last = np.zeros((len(there), n), np.intp), np.full((len(there), n), -1, np.intp)
        first[:, : there.shape[1]], last[:, : there.shape[1]] = edges.first, np.where(there, edges.last, -1)
        weights, at = None, None
        furthest = last.max(axis=0, initial=-1)
        np.maximum(reached, np.maximum.reduceat(furthest, begins) + 1, out=reached)
        record = RUNS, len(there), int(np.max(furthest - np.arange(n), initial=0))
        is_good = bool(np.all((first > np.arange(n)) | (last < 0)))
    else:
        return None
    if not is_good or np.max(last, initial=-1) >= len(tile.rows):
        raise IndexError("edges must lead from the core of a tile to later positions in it")
    arrays = np.ascontiguousarray(first, np.intp), np.ascontiguousarray(last, np.intp), at, weights
    return _Edges(*record, *(None if array is None else array.ctypes.data for array in arrays)), arrays


_tile_arrays: WeakKeyDictionary[Tile, dict[tuple[DType, int], _TileArrays]] = WeakKeyDictionary()


def sum_tile(
    front: Front | None,
    raw: Raw,
    tile: Tile,
    product: Array,
    channels: Array,
    limits: tuple[Array, Array] | None,
    edge_sums: Array,
) -> tuple[NDArray[np.float64], Array] | None:
    """Add the samples of a tile to product and channels, and its edges to their sums; widen the limits of the inputs.

    Returns
    -------
    Sums over the segments of the tile, (T, segments), and by its functions, (functions, T); None if nothing was done,
    because the routines do not know how.
    """
    by_steps = tile.sample_weight is not None or (tile.counted is not None and limits is not None)
    source = None if front is None or by_steps else front.source(raw, len(tile.rows) if tile.edges else tile.n_core)
    if front is None or source is None:
        return None
    record, T, K = front.record, front.record.n_variables, len(channels)
    chunk = chunk_columns(T, front.dtype.itemsize)
    known = _tile_arrays.setdefault(tile, {})
    if (front.dtype, chunk) not in known:
        known[front.dtype, chunk] = _TileArrays(tile, front.dtype, chunk)
    given = known[front.dtype, chunk]
    if not given.fits:
        return None
    segments = np.zeros((T, len(tile.starts)))
    by_function = np.zeros((len(tile.functions), T), front.dtype)
    low, high = (None, None) if limits is None else limits
    scratch = empty_rows(record.n_raw + record.n_inputs + (3 if tile.edges else 2) * T, given.columns, front.dtype)
    room = np.empty(given.room * (T + 1))
    library.routines["sum_tile", front.dtype](
        byref(record),
        byref(source),
        byref(given.record),
        chunk,
        K,
        address(product, front.dtype, T * T),
        address(channels, front.dtype, K * T * T),
        segments.ctypes.data,
        by_function.ctypes.data,
        address(low, front.dtype, record.n_inputs),
        address(high, front.dtype, record.n_inputs),
        address(edge_sums, front.dtype, len(tile.edges) * T * T),
        scratch.ctypes.data,
        scratch.strides[0] // scratch.itemsize,
        room.ctypes.data,
    )
    return segments, by_function
