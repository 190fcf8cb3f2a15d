"""A tile in one compiled call: read, expanded, multiplied and added up, or turned into features.

The routines go through a tile a few samples at a time, so that nothing leaves the cache between reading and
multiplying, and other threads run meanwhile. They know the usual case: built-in expansions, samples in groups, and
arrays in the ordinary order of memory. Everything else, and a package without compiled routines, is left to numpy:
``Accumulator.add`` and ``Node._encode`` say what the routines compute.

What is handed over is checked here, once: compiled code does not look at sizes and types.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from higsfa.core.blas import routine_address, row_stride
from higsfa.core.native.library import Program, find_routine
from higsfa.core.native.scratch import PADDING, chunk_columns, empty
from higsfa.core.node.raw import Raw, Samples, check_numbers
from higsfa.core.sums.plan import Tile

Array = NDArray[Any]
Kind = np.dtype[Any]

ROWS, BYTES, SAMPLES = range(3)
"""Kinds of sources; the numbers are those of ``kernels.c``."""
MAX_VARIABLES = 2**15
"""BLAS counts the elements of a matrix in 32 bits."""


class _Front(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("n_raw", "n_inputs", "n_variables", "n_operations")),
        *((name, c_void_p) for name in ("projection", "center", "low", "high")),
        *((name, c_void_p) for name in ("operation", "first", "second", "row", "exponent", "shift")),
        *((name, c_void_p) for name in ("syrk", "gemm", "axpy")),
    ]


class _Source(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("stride", c_int64), ("kind", c_int64), ("which", c_void_p)]
    kept: tuple[Any, Any]  # what the record points to


@dataclass(frozen=True, eq=False)
class Front:
    """The way of a node from raw input to expanded variables, as compiled routines read it."""

    record: _Front
    kind: Kind
    arrays: tuple[Any, ...]  # what the record points to

    @classmethod
    def of(
        cls,
        kind: Kind,
        n_raw: int,
        n_inputs: int,
        n_variables: int,
        program: Program | None,
        *,
        projection: Array | None = None,
        center: Array | None = None,
        limits: tuple[Array, Array] | None = None,
        shift: Array | None = None,
    ) -> Front | None:
        """None if there are no compiled routines. All arrays are of type `kind`; no program for z = x."""
        letter = "s" if kind == np.float32 else "d"
        blas = [routine_address(letter + name) for name in ("syrk", "gemm", "axpy")]
        if find_routine("sum_tile", kind) is None or None in blas or n_variables > MAX_VARIABLES:
            return None
        low, high = (None, None) if limits is None else limits
        given = [(projection, n_inputs * n_raw), (center, n_inputs), (low, n_inputs), (high, n_inputs)]
        arrays = (*(a for a, _ in given), *((None,) * 5 if program is None else program.arrays(kind)), shift)
        record = _Front(
            n_raw,
            n_inputs,
            n_variables,
            0 if program is None else len(program.row),
            *(_address(a, kind, size) for a, size in given),
            *(None if a is None else a.ctypes.data for a in arrays[len(given) : -1]),
            _address(shift, kind, n_variables),
            *blas,
        )
        return cls(record, kind, arrays)

    def source(self, raw: Raw, n: int) -> _Source | None:
        """At least n samples of raw input as compiled routines read them; None for types that they do not know.

        What lies in memory in a way that they cannot read is copied, so the layout of data changes no bit.
        """
        if isinstance(raw, Samples):
            kind = SAMPLES if raw.dtype == self.kind else None
        else:
            kind = {self.kind: ROWS, np.dtype(np.uint8): BYTES}.get(raw.dtype)
        if kind is None:
            return None
        if raw.shape[0] != self.record.n_raw or raw.shape[1] < n:
            raise ValueError(
                f"raw input must have {self.record.n_raw} variables and {n} samples or more, got shape {raw.shape}"
            )
        source, which = raw.source, raw.which
        if which is not None:
            check_numbers(which, len(source))
        if not _by_rows(source):
            samples = isinstance(raw, Samples)
            source = np.array(raw.array().T if samples else raw.array(), order="C")
            which = np.arange(len(source)) if samples else None
        found = _Source(source.ctypes.data, source.strides[0] // source.itemsize, kind, None)
        found.kept = (source, which)
        if which is not None:
            which = np.ascontiguousarray(which)
            found.kept, found.which = (source, which), which.ctypes.data
        return found

    def scratch(self, n_rows: int, chunk: int) -> Array:
        """Room for so many rows of a chunk."""
        return empty((n_rows, chunk + PADDING // self.kind.itemsize), self.kind)


def _by_rows(A: Array) -> bool:
    """Whether compiled routines can read an array: whole numbers of elements from row to row, and none between two
    elements of a row."""
    return (
        A.ndim == 2
        and A.flags.aligned
        and A.strides[0] % A.itemsize == 0
        and (A.strides[1] == A.itemsize or A.shape[1] < 2)
    )


def _address(A: Array | None, kind: DTypeLike, size: int) -> int | None:
    """Where an array lies, elements one after the other; None for none."""
    if A is None:
        return None
    in_order = A.flags.c_contiguous and A.flags.aligned
    if A.dtype != kind or not in_order or A.size != size:
        raise ValueError(f"compiled routines need {size} numbers of {np.dtype(kind)}, got {A.dtype} of shape {A.shape}")
    return int(A.ctypes.data)


class _TileArrays:
    """Weights of a tile as compiled routines read them."""

    def __init__(self, tile: Tile, kind: Kind) -> None:
        weights = [_array(np.sqrt(part.weights), kind) if part.weights.ndim == 2 else None for part in tile.parts]
        factors = [None if part.factors is None else _array(part.factors, kind) for part in tile.parts]
        given = [tile.borders, _addresses(weights), _addresses(factors), tile.anew, _array(tile.starts, np.intp)]
        self.begin, self.weights, self.factors, self.anew, self.starts = (array.ctypes.data for array in given)
        self.arrays = (given, weights, factors)


def _array(values: Array, kind: DTypeLike) -> Array:
    return np.ascontiguousarray(values, dtype=kind)


def _addresses(arrays: list[Array | None]) -> Array:
    return np.array([0 if array is None else array.ctypes.data for array in arrays], np.uintp)


_tile_arrays: WeakKeyDictionary[Tile, dict[Kind, _TileArrays]] = WeakKeyDictionary()


def sum_tile(
    front: Front | None,
    raw: Raw,
    tile: Tile,
    product: Array,
    channels: Array,
    limits: tuple[Array, Array] | None,
) -> NDArray[np.float64] | None:
    """Add the samples of a tile to product and channels, and widen the limits of the inputs.

    Returns
    -------
    (T, runs) sums over the runs of the tile; None if nothing was done, because the routines do not know how.
    """
    by_steps = tile.edges or not tile.parts or tile.counted is not None or tile.sample_weight is not None
    if front is None or by_steps:
        return None
    source = front.source(raw, tile.n_core)
    if source is None:
        return None
    known = _tile_arrays.setdefault(tile, {})
    if front.kind not in known:
        known[front.kind] = _TileArrays(tile, front.kind)
    given, record, T, K = known[front.kind], front.record, front.record.n_variables, len(channels)
    runs = np.zeros((T, len(tile.starts)))
    chunk = chunk_columns(T, front.kind.itemsize)
    low, high = (None, None) if limits is None else limits
    scratch = front.scratch(record.n_raw + record.n_inputs + 2 * T, chunk)
    find_routine("sum_tile", front.kind)(
        byref(record),
        byref(source),
        tile.n_core,
        chunk,
        len(tile.parts),
        given.begin,
        given.weights,
        given.factors,
        given.anew,
        K,
        _address(product, front.kind, T * T),
        _address(channels, front.kind, K * T * T),
        len(tile.starts),
        given.starts,
        runs.ctypes.data,
        _address(low, front.kind, record.n_inputs),
        _address(high, front.kind, record.n_inputs),
        scratch.ctypes.data,
        scratch.shape[1],
    )
    return runs


@dataclass(frozen=True, eq=False)
class Encoder:
    """A trained node as compiled routines read it: y' = F z - f, then G [x; y'] - k."""

    front: Front
    n_slow: int
    n_rest: int
    arrays: tuple[Array, ...]
    addresses: tuple[int | None, ...]  # of the arrays

    @classmethod
    def of(cls, front: Front, F: Array, f: Array, G: Array, k: Array) -> Encoder:
        """All arrays are of the type of the front; without F, the variables of the front may be any."""
        kind, J, K, record = front.kind, len(F), len(G), front.record
        sizes = (J * record.n_variables, J, K * (record.n_inputs + J), K)
        addresses = tuple(_address(array, kind, size) for array, size in zip((F, f, G, k), sizes, strict=True))
        return cls(front, J, K, (F, f, G, k), addresses)


def encode_tile(encoder: Encoder | None, raw: Raw, Y: Array) -> bool:
    """Write the features of a node into the first rows of Y; False if the routines do not know how."""
    stride = row_stride(Y)
    if encoder is None or stride is None or not Y.flags.writeable:
        return False
    front, J, K, n = encoder.front, encoder.n_slow, encoder.n_rest, Y.shape[1]
    source = front.source(raw, n)
    if source is None:
        return False
    if Y.dtype != front.kind or len(Y) < J + K:
        raise ValueError(f"features need {J + K} rows of {front.kind}, got {len(Y)} of {Y.dtype}")
    record = front.record
    chunk = min(chunk_columns(record.n_variables, front.kind.itemsize), max(1, n))  # no room for absent samples
    scratch = front.scratch(record.n_raw + record.n_inputs + J + record.n_variables, chunk)
    F, f, G, k = encoder.addresses
    find_routine("encode_tile", front.kind)(
        byref(record),
        byref(source),
        n,
        chunk,
        J,
        F,
        f,
        K,
        G,
        k,
        Y.ctypes.data,
        stride,
        scratch.ctypes.data,
        scratch.shape[1],
    )
    return True
