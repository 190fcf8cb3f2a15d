"""The library compiled from ``kernels.c``, where the package was built with a C compiler.

It has two routines for each precision, which :mod:`higsfa.core.native.tile` calls: sums over a tile, and features. Without it
numpy does the same in several passes over memory: the results agree to rounding, and everything works, more slowly.

``HIGSFA_KERNELS=numpy`` in the environment leaves the library aside; the path of a file there is another build of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

COPY, POWER, SIGNED_POWER, MAXIMUM, PRODUCT, NORMALIZE = range(6)
"""What a row of an expansion is made of; the numbers are those of ``kernels.c``."""

LIBRARY = "kernels" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
VERSION = 3
"""Of the routines and their arguments; that of the library must be the same."""
_NAMES: dict[np.dtype[Any], str] = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_ARGUMENTS: dict[str, list[Any]] = {
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
    wish = os.environ.get("HIGSFA_KERNELS", "")
    path = Path(wish) if wish else Path(__file__).with_name(LIBRARY)
    if wish == "numpy" or not (wish or path.exists()) or np.dtype(np.intp).itemsize != 8:
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
    """Whether the compiled library is used."""
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
