"""Compiled routines: our own library, and the BLAS and LAPACK routines that scipy publishes for compiled code.

The library is built from ``kernels.c`` where there is a C compiler. It has three routines for each precision, which
:mod:`higsfa.core.native` calls: sums over a tile, and features, of expanded variables or of samples as they are; a
fourth one rounds features to 16 bits, and a fifth one reads images between their pixels. Without it numpy does the same
in several passes over memory: the results agree to rounding (those of the last two to the bit), more slowly.

``HIGSFA_KERNELS=numpy`` in the environment leaves the library aside; the path of a file there is another build of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

Array = NDArray[Any]

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def published(module: Any, name: str, kinds: str) -> int | None:
    """Where a Fortran routine that scipy publishes for compiled code lies in memory; None if its arguments are others.

    `kinds` has a letter for each argument: c for char, i for a 32-bit integer, s and d for single and double precision.
    """
    capsule = getattr(module, "__pyx_capi__", {}).get(name)
    signature = b"" if capsule is None else _name_of(capsule)
    types = {"c": "char *", "i": "int *", "s": "_s *", "d": "_d *"}
    arguments = signature.decode().removeprefix("void (").removesuffix(")").split(", ")
    fits = len(arguments) == len(kinds) and all(
        argument == types[kind] if kind in "ci" else argument.endswith(types[kind])
        for argument, kind in zip(arguments, kinds, strict=True)
    )
    address: int | None = _address_of(capsule, signature) if fits else None
    return address


_BLAS = {"syrk": "cciixxixxi", "gemm": "cciiixxixixxi", "axpy": "ixxixi"}


@cache
def blas_addresses(dtype: np.dtype[Any]) -> list[int] | None:
    """Where syrk, gemm and axpy lie in memory; None if scipy publishes one of them with other arguments."""
    letter = "s" if dtype == np.float32 else "d"
    found = [published(cython_blas, letter + name, kinds.replace("x", letter)) for name, kinds in _BLAS.items()]
    return None if None in found else found  # type: ignore[return-value]


COPY, POWER, SIGNED_POWER, MAXIMUM, PRODUCT, NORMALIZE = range(6)
"""What a row of an expansion is made of; the numbers are those of ``kernels.c``."""


class Program(NamedTuple):
    """Rows of an expansion as elementary operations: row[r] of z from inputs first[r] and second[r].

    From r on, alike[r] rows are made in the same way of inputs that follow each other; of products, the first input
    stays the same.
    """

    operation: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    row: NDArray[np.int32]
    alike: NDArray[np.int32]
    exponent: NDArray[np.float64]

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int, float]]) -> Program:
        """From one (operation, first, second, row, exponent) for each row."""
        columns = list(zip(*rows, strict=True)) or [()] * 5
        operation, first, second, row = (np.array(column, np.int32) for column in columns[:4])
        exponent = np.array(columns[4], np.float64)
        product, pairs = operation == PRODUCT, np.isin(operation, (PRODUCT, MAXIMUM))
        goes_on = (np.diff(operation) == 0) & (np.diff(row) == 1) & (np.diff(exponent) == 0)
        goes_on &= (np.diff(first) == ~product[1:]) & ((np.diff(second) == 1) | ~pairs[1:])
        ends = np.append(np.flatnonzero(~goes_on | (operation[1:] == NORMALIZE)) + 1, len(row))
        alike = ends[np.searchsorted(ends, np.arange(len(row)), side="right")] - np.arange(len(row))
        return cls(operation, first, second, row, alike.astype(np.int32), exponent)


LIBRARY = "kernels" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
VERSION = 10
"""Of the routines and their arguments; that of the library must be the same."""
_NAMES: dict[np.dtype[Any], str] = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_ARGUMENTS: dict[str, list[Any]] = {
    "sum_tile": [*[c_void_p] * 3, *[c_int64] * 2, *[c_void_p] * 8, c_int64, c_void_p],
    "encode_samples": [*[c_void_p] * 2, *[c_int64] * 3, *[c_void_p] * 3, c_int64, c_void_p],
    "shorten": [c_void_p, *[c_int64] * 3, c_void_p, c_int64, *[c_void_p] * 2],
    "warp": [c_void_p, *[c_int64] * 5, *[c_void_p] * 4, c_int64, c_void_p],
    "encode_nodes": [
        c_int64,
        *[c_void_p] * 3,
        *[c_int64] * 2,
        c_void_p,
        c_int64,
        c_void_p,
        c_int64,
    ],
}


def _load_library() -> dict[tuple[str, np.dtype[Any]], Any]:
    """The compiled routines by name and type; none if there is no library for this machine."""
    chosen = os.environ.get("HIGSFA_KERNELS", "")
    path = Path(chosen) if chosen else Path(__file__).with_name(LIBRARY)
    if chosen == "numpy" or not (chosen or path.exists()) or np.dtype(np.intp).itemsize != 8:
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
        for dtype, suffix in _NAMES.items():
            routine = getattr(library, f"{name}_{suffix}", None)
            if routine is not None:  # only single precision is rounded
                routine.argtypes, routine.restype = arguments, None
                routines[name, dtype] = routine
    return routines


routines = _load_library()
"""Our compiled routines by name and dtype; empty if the library is not used."""


def compiled() -> bool:
    """Whether the compiled library is used."""
    return bool(routines)
