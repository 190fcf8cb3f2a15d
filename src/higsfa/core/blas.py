"""Z Z^T added in place to a sum (one triangle only), and multiples of a sum added to another: what numpy cannot do.

The routines are BLAS's syrk and axpy. Their addresses come from ``scipy.linalg.cython_blas``, which scipy publishes
for compiled code; ctypes calls them and lets other threads run meanwhile (scipy's own Python wrappers do not). Should
scipy ever publish routines with other arguments there (64-bit integers, say), numpy does the same with more memory.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_double, c_float, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

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


_ARGUMENTS = {"syrk": "cciixxixxi", "axpy": "ixxixi", "gemm": "cciiixxixixxi"}
_NUMBERS: dict[np.dtype[Any], Any] = {np.dtype(np.float32): c_float, np.dtype(np.float64): c_double}


def routine_address(name: str) -> int | None:
    """Where syrk, axpy or gemm, with s or d in front, lies in memory; None if its arguments are not the known ones."""
    return published(cython_blas, name, _ARGUMENTS[name[1:]].replace("x", name[0]))


def find_routines() -> dict[tuple[str, np.dtype[Any]], Any]:
    """Routines by name and type, all of whose arguments are addresses."""
    routines = {}
    for dtype, letter in zip(_NUMBERS, "sd", strict=True):
        for name in ("syrk", "axpy"):
            address = routine_address(letter + name)
            if address is not None:
                arguments = [ctypes.c_void_p] * len(_ARGUMENTS[name])
                routines[name, dtype] = ctypes.CFUNCTYPE(None, *arguments)(address)
    return routines


_routines = find_routines()
_UPPER, _TRANSPOSED, _PLAIN = c_char(b"U"), c_char(b"T"), c_char(b"N")

MAX_COUNT = 2**30
"""BLAS counts in 32 bits."""
MIRROR_STEP = 64
"""Rows and columns of a matrix that stay in the cache while they are transposed."""
_ABOVE = np.triu(np.ones((MIRROR_STEP, MIRROR_STEP), dtype=bool), 1)


def row_stride(A: NDArray[Any]) -> int | None:
    """Elements from row to row of a matrix, if BLAS can work on it; None if it cannot.

    It can if the elements of a row follow each other, and rows do not overlap.
    """
    rows, n = int(A.shape[0]), int(A.shape[1])
    if not A.flags.aligned or not (A.strides[1] == A.itemsize or n < 2):
        return None
    if rows < 2:
        return max(1, n)
    stride, rest = divmod(int(A.strides[0]), int(A.itemsize))
    return stride if rest == 0 and max(1, n) <= stride < 2**31 else None


def gram(Z: NDArray[Any], out: NDArray[Any], *, add: bool) -> None:
    """Lower triangle of Z Z^T, put or added into `out`; the upper triangle is left as it is.

    Parameters
    ----------
    Z : (T, n) array of float32 or float64; copied unless its rows, or its columns, are contiguous.
    out : (T, T) array of the same type, C-contiguous.
    """
    number = _NUMBERS[Z.dtype]
    T, n = Z.shape
    if out.shape != (T, T) or out.dtype != Z.dtype or not out.flags.c_contiguous:
        raise ValueError(f"out must be a C-contiguous ({T}, {T}) array of {Z.dtype}")
    if T == 0:
        return
    routine = _routines.get(("syrk", Z.dtype))
    if routine is None:
        np.copyto(out, Z @ Z.T + out if add else Z @ Z.T, where=np.tri(T, dtype=bool))
        return
    stride, by_rows = row_stride(Z), True
    if stride is None:
        stride, by_rows = row_stride(Z.T), False
    if stride is None:
        Z, stride, by_rows = Z.copy("C"), max(1, n), True
    # To Fortran, which stores by columns, C-contiguous arrays are transposed: the upper triangle is our lower one.
    routine(
        byref(_UPPER),
        byref(_TRANSPOSED if by_rows else _PLAIN),
        byref(c_int(T)),
        byref(c_int(n)),
        byref(number(1.0)),
        Z.ctypes.data,
        byref(c_int(stride)),
        byref(number(1.0 if add else 0.0)),
        out.ctypes.data,
        byref(c_int(T)),
    )


def add_multiple(factor: float, A: NDArray[Any], out: NDArray[Any]) -> None:
    """Add a multiple of A to `out`; both C-contiguous, of the same shape and of float32 or float64."""
    number = _NUMBERS[A.dtype]
    if out.shape != A.shape or out.dtype != A.dtype or not (A.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError(f"A and out must be C-contiguous arrays of one shape and type, got {A.shape}, {out.shape}")
    routine, one = _routines.get(("axpy", A.dtype)), byref(c_int(1))
    if routine is None:
        out += number(factor).value * A
        return
    for a in range(0, A.size, MAX_COUNT):
        at = a * A.itemsize
        n = byref(c_int(min(MAX_COUNT, A.size - a)))
        routine(n, byref(number(factor)), A.ctypes.data + at, one, out.ctypes.data + at, one)


def mirror(C: NDArray[Any]) -> None:
    """Copy the lower triangle onto the upper one, in place."""
    for a in range(0, len(C), MIRROR_STEP):
        b = a + MIRROR_STEP
        corner = C[a:b, a:b]
        np.copyto(corner, corner.T.copy(), where=_ABOVE[: len(corner), : len(corner)])
        C[a:b, b:] = C[b:, a:b].T
