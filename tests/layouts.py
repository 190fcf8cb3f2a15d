"""The same numbers in every order of memory that numpy can give an array."""

from __future__ import annotations

import numpy as np

LAYOUTS = ["C", "Fortran", "wide rows", "every second", "unaligned", "rows reversed", "columns reversed", "field"]


def laid_out(A, layout, kind):
    """The values of a matrix in other memory. What lies between and beside them is not a number, or 255."""
    A = np.ascontiguousarray(A, kind)
    rows, n = A.shape
    strange = 255 if kind == np.uint8 else np.nan
    if layout == "Fortran":
        return np.asfortranarray(A)
    if layout == "rows reversed":
        return A[::-1].copy()[::-1]
    if layout == "columns reversed":
        return A[:, ::-1].copy()[:, ::-1]
    if layout in ("wide rows", "every second"):
        step = 1 if layout == "wide rows" else 2
        wide = np.full((rows + 2, step * n + 5), strange, kind)
        inside = wide[1 : rows + 1, 2 : step * n + 2 : step]
    elif layout == "unaligned":
        inside = np.full(A.nbytes + 1, 255, np.uint8)[1:].view(kind).reshape(rows, n)
    elif layout == "field":  # of a packed structured array: rows begin a fraction of a number apart
        inside = np.full(rows, 255, np.uint8).astype([("tag", "u1"), ("values", kind, (n,))])["values"]
    else:
        return A
    inside[...] = A
    return inside
