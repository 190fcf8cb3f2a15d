"""A tile in one compiled call: read, expanded, multiplied and added up, or turned into features.

The routines go through a tile a few samples at a time, so that nothing leaves the cache between reading and
multiplying, and the interpreter lock is released. They know the usual case: built-in expansions, samples in groups,
arrays in the ordinary order of memory. numpy does the rest, and everything where nothing was compiled. Each routine has
one numpy reference that says what it computes: ``Accumulator._add_with_numpy`` and ``Node._encode_with_numpy``.

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

from higsfa.core.native import library
from higsfa.core.native.library import Program
from higsfa.core.node.raw import Raw, Samples, check_indices, chunk_columns, empty_rows
from higsfa.core.sums.tile import Tile

Array = NDArray[Any]
DType = np.dtype[Any]

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
    dtype: DType
    arrays: tuple[Any, ...]  # what the record points to

    @classmethod
    def of(
        cls,
        dtype: DType,
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
        """None if there are no compiled routines. All arrays have this dtype; no program for z = x."""
        blas = library.blas_addresses(dtype)
        if not library.routines or blas is None or n_variables > MAX_VARIABLES:
            return None
        low, high = (None, None) if limits is None else limits
        given = [(projection, n_inputs * n_raw), (center, n_inputs), (low, n_inputs), (high, n_inputs)]
        steps = (None,) * 5 if program is None else (*program[:4], program.exponent.astype(dtype))
        record = _Front(
            n_raw,
            n_inputs,
            n_variables,
            0 if program is None else len(program.row),
            *(_address(array, dtype, size) for array, size in given),
            *(None if array is None else array.ctypes.data for array in steps),
            _address(shift, dtype, n_variables),
            *blas,
        )
        return cls(record, dtype, (given, steps, shift))

    def source(self, raw: Raw, n: int) -> _Source | None:
        """At least n samples of raw input as compiled routines read them; None for dtypes that they do not know.

        What lies in memory in a way that they cannot read is copied, so the layout of data changes no bit.
        """
        by_samples = isinstance(raw, Samples)
        if by_samples:
            kind = SAMPLES if raw.dtype == self.dtype else None
        else:
            kind = {self.dtype: ROWS, np.dtype(np.uint8): BYTES}.get(raw.dtype)
        if kind is None:
            return None
        if raw.shape[0] != self.record.n_raw or raw.shape[1] < n:
            raise ValueError(
                f"raw input must have {self.record.n_raw} variables and {n} samples or more, got shape {raw.shape}"
            )
        array, which = raw.source, raw.which
        if which is not None:
            check_indices(which, len(array))
        in_rows = array.flags.aligned and (array.strides[1] == array.itemsize or array.shape[1] < 2)
        if not in_rows or array.strides[0] % array.itemsize:
            array = np.array(raw.array().T if by_samples else raw.array(), order="C")
            which = np.arange(len(array)) if by_samples else None
        if which is not None:
            which = np.ascontiguousarray(which)
        found = _Source(
            array.ctypes.data, array.strides[0] // array.itemsize, kind, None if which is None else which.ctypes.data
        )
        found.kept = (array, which)
        return found


def _address(A: Array | None, dtype: DTypeLike, size: int) -> int | None:
    """Where an array lies, elements one after the other; None for none."""
    if A is None:
        return None
    in_order = A.flags.c_contiguous and A.flags.aligned
    if A.dtype != dtype or not in_order or A.size != size:
        raise ValueError(
            f"compiled routines need {size} numbers of {np.dtype(dtype)}, got {A.dtype} of shape {A.shape}"
        )
    return int(A.ctypes.data)


class _TileArrays:
    """Weights of a tile as compiled routines read them."""

    def __init__(self, tile: Tile, dtype: DType) -> None:
        weights = [
            np.ascontiguousarray(np.sqrt(part.weights), dtype) if part.weights.ndim == 2 else None
            for part in tile.parts
        ]
        factors = [None if part.factors is None else np.ascontiguousarray(part.factors, dtype) for part in tile.parts]
        given = [
            np.array([part.begin for part in tile.parts] + [tile.n_core], dtype=np.intp),
            *(np.array([0 if a is None else a.ctypes.data for a in one], np.uintp) for one in (weights, factors)),
            np.array([part.anew for part in tile.parts], dtype=bool),
            np.ascontiguousarray(tile.starts, np.intp),
        ]
        self.begin, self.weights, self.factors, self.anew, self.starts = (array.ctypes.data for array in given)
        self.arrays = (given, weights, factors)


_tile_arrays: WeakKeyDictionary[Tile, dict[DType, _TileArrays]] = WeakKeyDictionary()


def sum_tile(
    front: Front | None, raw: Raw, tile: Tile, product: Array, channels: Array, limits: tuple[Array, Array] | None
) -> NDArray[np.float64] | None:
    """Add the samples of a tile to product and channels, and widen the limits of the inputs.

    Returns
    -------
    (T, segments) sums over the segments of the tile; None if nothing was done, because the routines do not know how.
    """
    by_steps = tile.edges or not tile.parts or tile.counted is not None or tile.sample_weight is not None
    source = None if front is None or by_steps else front.source(raw, tile.n_core)
    if front is None or source is None:
        return None
    known = _tile_arrays.setdefault(tile, {})
    if front.dtype not in known:
        known[front.dtype] = _TileArrays(tile, front.dtype)
    given, record, T, K = known[front.dtype], front.record, front.record.n_variables, len(channels)
    segments = np.zeros((T, len(tile.starts)))
    chunk = chunk_columns(T, front.dtype.itemsize)
    low, high = (None, None) if limits is None else limits
    rows = record.n_raw + record.n_inputs + 2 * T
    scratch = empty_rows(rows, chunk, front.dtype)
    library.routines["sum_tile", front.dtype](
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
        _address(product, front.dtype, T * T),
        _address(channels, front.dtype, K * T * T),
        len(tile.starts),
        given.starts,
        segments.ctypes.data,
        _address(low, front.dtype, record.n_inputs),
        _address(high, front.dtype, record.n_inputs),
        scratch.ctypes.data,
        scratch.strides[0] // scratch.itemsize,
    )
    return segments


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
        """All arrays have the dtype of the front; without F, the variables of the front may be any."""
        J, K, record = len(F), len(G), front.record
        sizes = (J * record.n_variables, J, K * (record.n_inputs + J), K)
        addresses = tuple(_address(array, front.dtype, size) for array, size in zip((F, f, G, k), sizes, strict=True))
        return cls(front, J, K, (F, f, G, k), addresses)


def encode_tile(encoder: Encoder | None, raw: Raw, Y: Array) -> bool:
    """Write the features of a node into the first rows of Y; False if the routines do not know how."""
    rows, n = Y.shape
    stride, rest = divmod(Y.strides[0], Y.itemsize) if rows > 1 else (max(1, n), 0)
    in_rows = Y.flags.aligned and (Y.strides[1] == Y.itemsize or n < 2) and rest == 0 and max(1, n) <= stride < 2**31
    if encoder is None or not in_rows or not Y.flags.writeable:
        return False
    front, J, K = encoder.front, encoder.n_slow, encoder.n_rest
    source = front.source(raw, n)
    if source is None:
        return False
    if Y.dtype != front.dtype or len(Y) < J + K:
        raise ValueError(f"features need {J + K} rows of {front.dtype}, got {len(Y)} of {Y.dtype}")
    record = front.record
    chunk = min(chunk_columns(record.n_variables, front.dtype.itemsize), max(1, n))  # no space for absent samples
    rows = record.n_raw + record.n_inputs + J + record.n_variables
    scratch = empty_rows(rows, chunk, front.dtype)
    F, f, G, k = encoder.addresses
    library.routines["encode_tile", front.dtype](
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
        scratch.strides[0] // scratch.itemsize,
    )
    return True
