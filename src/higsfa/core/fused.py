"""A whole tile in one call: what :mod:`higsfa.core.kernels` does step by step, without coming back in between.

The compiled routines go through a tile a few samples at a time, so that nothing leaves the cache between reading and
multiplying, and other threads run meanwhile. They know the usual case: built-in expansions, and samples in groups.
Everything else, and a package without compiled routines, takes the way of separate steps.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from higsfa.core.blas import routine_address
from higsfa.core.kernels import Program, by_rows, find_routine
from higsfa.core.raw import Raw, Samples
from higsfa.core.room import PADDING, chunk_columns, room
from higsfa.core.tiles import Tile

Array = NDArray[Any]
Kind = np.dtype[Any]

ROWS, BYTES, SAMPLES = range(3)
"""Kinds of sources; the numbers are those of ``_kernels.c``."""
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
        numbers = (None,) * 5 if program is None else program.arrays(kind)
        arrays = (projection, center, low, high, *numbers, shift)
        record = _Front(
            n_raw,
            n_inputs,
            n_variables,
            0 if program is None else len(program.row),
            *(None if a is None else a.ctypes.data for a in arrays),
            *blas,
        )
        return cls(record, kind, arrays)

    def source(self, raw: Raw) -> _Source | None:
        """Raw input as compiled routines read it; None if they cannot."""
        source = raw.source
        if not by_rows(source):
            return None
        if isinstance(raw, Samples):
            kind = SAMPLES if raw.dtype == self.kind else None
        else:
            kind = {self.kind: ROWS, np.dtype(np.uint8): BYTES}.get(raw.dtype)
        if kind is None:
            return None
        which = None if raw.which is None else raw.which.ctypes.data
        return _Source(source.ctypes.data, source.strides[0] // source.itemsize, kind, which)

    def scratch(self, n_rows: int, chunk: int) -> tuple[int, int]:
        """Address and stride of room for so many rows of a chunk."""
        stride = chunk + PADDING // self.kind.itemsize
        return room("tile", (n_rows, stride), self.kind).ctypes.data, stride


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
    source = None if front is None or tile.edges or not tile.parts or tile.counted is not None else front.source(raw)
    if source is None:
        return None
    assert front is not None
    known = _tile_arrays.setdefault(tile, {})
    if front.kind not in known:
        known[front.kind] = _TileArrays(tile, front.kind)
    given, record, T = known[front.kind], front.record, front.record.n_variables
    runs = np.zeros((T, len(tile.starts)))
    chunk = chunk_columns(T, front.kind.itemsize)
    low, high = (None, None) if limits is None else (a.ctypes.data for a in limits)
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
        len(channels),
        product.ctypes.data,
        channels.ctypes.data,
        len(tile.starts),
        given.starts,
        runs.ctypes.data,
        low,
        high,
        *front.scratch(record.n_raw + record.n_inputs + 2 * T, chunk),
    )
    return runs


def encode_tile(
    front: Front | None,
    raw: Raw,
    slow: Array,
    minus_slow_offset: Array,
    rest: Array,
    minus_rest_offset: Array,
    Y: Array,
) -> bool:
    """Write the features of a node into the first rows of Y; False if the routines do not know how."""
    source = None if front is None or not by_rows(Y) else front.source(raw)
    if source is None:
        return False
    assert front is not None
    record, T = front.record, front.record.n_variables
    chunk = chunk_columns(T, front.kind.itemsize)
    find_routine("encode_tile", front.kind)(
        byref(record),
        byref(source),
        Y.shape[1],
        chunk,
        len(slow),
        slow.ctypes.data,
        minus_slow_offset.ctypes.data,
        len(rest),
        rest.ctypes.data,
        minus_rest_offset.ctypes.data,
        Y.ctypes.data,
        Y.strides[0] // Y.itemsize,
        *front.scratch(record.n_raw + record.n_inputs + len(slow) + T, chunk),
    )
    return True
