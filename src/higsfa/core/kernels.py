"""Loops over feature-major blocks: compiled from ``_kernels.c`` where the package was built with a C compiler.

Without the compiled library numpy does the same in several passes over memory: the results agree to rounding, and
everything works, more slowly. ``HIGSFA_KERNELS=numpy`` in the environment leaves the library aside.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.intp]

COPY, POWER, SIGNED_POWER, MAXIMUM, PRODUCT, NORMALIZE = range(6)
"""What a row of an expansion is made of; the numbers are those of ``_kernels.c``."""

LIBRARY = "_kernels" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
VERSION = 2
"""Of the routines and their arguments; that of the library must be the same."""
_NAMES: dict[np.dtype[Any], str] = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_ARGUMENTS: dict[str, list[Any]] = {
    "expand": [c_void_p, c_int64, c_int64, *[c_void_p] * 5, c_int64, c_void_p, c_int64],
    "widen": [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p],
    "add_runs": [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64],
    "load": [c_void_p, c_int64, c_void_p, c_int64, c_int64, *[c_void_p] * 4, c_int64],
    "load_bytes": [c_void_p, c_int64, c_void_p, c_int64, c_int64, *[c_void_p] * 4, c_int64],
    "sum_tile": [
        *[c_void_p] * 2,
        *[c_int64] * 3,
        *[c_void_p] * 4,
        c_int64,
        *[c_void_p] * 2,
        c_int64,
        *[c_void_p] * 5,
        c_int64,
    ],
    "encode_tile": [
        *[c_void_p] * 2,
        *[c_int64] * 3,
        *[c_void_p] * 2,
        c_int64,
        *[c_void_p] * 3,
        c_int64,
        c_void_p,
        c_int64,
    ],
}


def _load_library() -> dict[tuple[str, np.dtype[Any]], Any]:
    """The compiled routines by name and type; none if there is no library for this machine."""
    path = Path(__file__).with_name(LIBRARY)
    if os.environ.get("HIGSFA_KERNELS") == "numpy" or not path.exists() or np.dtype(np.intp).itemsize != 8:
        return {}
    try:
        library = ctypes.CDLL(str(path))
        version = library.higsfa_kernels_version()
    except (OSError, AttributeError):
        version = None
    if version != VERSION:
        warnings.warn(f"{path} does not fit this version of higsfa and is not used: install higsfa again", stacklevel=2)
        return {}
    routines = {}
    for name, arguments in _ARGUMENTS.items():
        for kind, suffix in _NAMES.items():
            routine = getattr(library, f"{name}_{suffix}")
            routine.argtypes, routine.restype = arguments, None
            routines[name, kind] = routine
    return routines


_routines = _load_library()


def find_routine(name: str, kind: np.dtype[Any]) -> Any:
    """A compiled routine; None if there is none."""
    return _routines.get((name, kind))


def compiled() -> bool:
    """Whether the compiled loops are used."""
    return bool(_routines)


@dataclass(frozen=True, eq=False)
class Program:
    """Rows of an expansion as elementary operations: row[r] of z from inputs first[r] and second[r]."""

    operation: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    row: NDArray[np.int32]
    exponent: NDArray[np.float64]

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int, float]]) -> Program:
        """From one (operation, first, second, row, exponent) for each row."""
        columns = list(zip(*rows, strict=True)) or [()] * 5
        operation, first, second, row = (np.array(column, np.int32) for column in columns[:4])
        return cls(operation, first, second, row, np.array(columns[4], np.float64))

    def arrays(self, kind: np.dtype[Any]) -> tuple[Array, ...]:
        """What the routines need, exponents in the type of the data."""
        return self.operation, self.first, self.second, self.row, self._exponents[kind]

    @cached_property
    def _exponents(self) -> dict[np.dtype[Any], Array]:
        return {kind: self.exponent.astype(kind) for kind in _NAMES}

    def with_copies(self, inputs: list[int], first_row: int) -> Program:
        """The same, and these inputs themselves from row `first_row` on."""
        copies = Program.of([(COPY, i, i, first_row + k, 1.0) for k, i in enumerate(inputs)])
        return Program(*(np.concatenate(pair) for pair in zip(self._columns, copies._columns, strict=True)))

    @property
    def _columns(self) -> tuple[Any, ...]:
        return self.operation, self.first, self.second, self.row, self.exponent

    def run(self, X: Array, Z: Array) -> None:
        """Write the rows into Z; rows of both arrays must be contiguous. Only with the compiled library."""
        _routines["expand", X.dtype](
            X.ctypes.data,
            X.strides[0] // X.itemsize,
            X.shape[1],
            *(a.ctypes.data for a in self.arrays(X.dtype)),
            len(self.row),
            Z.ctypes.data,
            Z.strides[0] // Z.itemsize,
        )


def by_rows(A: Array) -> bool:
    """Whether every row of an array is contiguous."""
    return A.ndim == 2 and (A.strides[1] == A.itemsize or A.shape[1] < 2)


def load(
    source: Array, rows: Ints | None, center: Array | None, limits: tuple[Array, Array] | None, out: Array
) -> None:
    """Rows of the source (all if None) minus `center`, clipped to `limits`, in the type of `out`.

    `center` and the two limits are columns of that type.
    """
    name = "load_bytes" if source.dtype == np.uint8 else "load"
    known = name == "load_bytes" or source.dtype == out.dtype
    if not (_routines and known and by_rows(source) and by_rows(out)):
        _load(source, rows, center, limits, out)
        return
    _routines[name, out.dtype](
        source.ctypes.data,
        source.strides[0] // source.itemsize,
        None if rows is None else rows.ctypes.data,
        len(out),
        out.shape[1],
        None if center is None else center.ctypes.data,
        None if limits is None else limits[0].ctypes.data,
        None if limits is None else limits[1].ctypes.data,
        out.ctypes.data,
        out.strides[0] // out.itemsize,
    )


def _load(
    source: Array, rows: Ints | None, center: Array | None, limits: tuple[Array, Array] | None, out: Array
) -> None:
    some = source if rows is None else source[rows]
    if center is None:
        np.copyto(out, some, casting="unsafe")
    else:
        np.subtract(some, center, out=out, casting="unsafe")
    if limits is not None:
        np.clip(out, *limits, out=out)


def widen(X: Array, low: Array, high: Array) -> None:
    """Widen low .. high (vectors of the type of X) by the samples of each row of X."""
    if X.shape[1] == 0:
        return
    if not _routines or not by_rows(X):
        np.fmin(low, X.min(axis=1), out=low)
        np.fmax(high, X.max(axis=1), out=high)
        return
    stride = X.strides[0] // X.itemsize
    _routines["widen", X.dtype](X.ctypes.data, stride, *X.shape, low.ctypes.data, high.ctypes.data)


def add_runs(Z: Array, starts: Ints, sums: NDArray[np.float64]) -> None:
    """Add the sums of the columns of Z over runs that begin at `starts` to the columns of `sums`, (rows, runs)."""
    if not by_rows(Z):
        ones = np.ones(Z.shape[1], dtype=Z.dtype)
        for k, (a, b) in enumerate(pairwise([*starts.tolist(), Z.shape[1]])):
            sums[:, k] += Z[:, a:b] @ ones[: b - a]
    elif not _routines:
        sums += np.add.reduceat(Z, starts, axis=1)
    else:
        _routines["add_runs", Z.dtype](
            Z.ctypes.data,
            Z.strides[0] // Z.itemsize,
            *Z.shape,
            starts.ctypes.data,
            len(starts),
            sums.ctypes.data,
            sums.strides[0] // sums.itemsize,
        )
