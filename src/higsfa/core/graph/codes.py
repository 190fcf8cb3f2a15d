"""Codes of samples, small whole numbers: counted, looked up and combined.

numpy turns all codes into 64-bit numbers before it counts or looks up any, in what would be the largest array of a fit
of many samples. So both are done some samples at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

AT_ONCE = 2**18
"""Samples that are worked on at once."""
MAX_TABLE = 2**20
"""Longest table of combinations of labels; beyond it, those that occur are found by sorting."""


def code_type(largest: int) -> np.dtype[Any]:
    """The type of codes from -1 up to a number."""
    return np.dtype(np.int16 if largest < 2**15 else np.int32 if largest < 2**31 else np.int64)


def _pieces(n: int) -> Iterator[slice]:
    return (slice(a, a + AT_ONCE) for a in range(0, n, AT_ONCE))


def count_codes(codes: NDArray[Any], n_codes: int, weights: Floats | None = None) -> NDArray[Any]:
    """How many samples have each code 0 .. n_codes - 1, or their total weight; the code -1 is passed over."""
    total = np.zeros(n_codes + 1, np.intp if weights is None else np.float64)
    for some in _pieces(len(codes)):
        own = codes[some].astype(np.intp)
        own += 1
        total += np.bincount(own, None if weights is None else weights[some], minlength=n_codes + 1)
    return total[1:]


def look_up(table: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """The entry of the table for each code; the last one for -1."""
    out = np.empty(len(codes), table.dtype)
    for some in _pieces(len(codes)):
        np.take(table, codes[some], out=out[some], mode="wrap")
    return out


def combine_codes(codes: list[NDArray[Any]], sizes: list[int]) -> tuple[NDArray[Any], Ints, Ints]:
    """Number the distinct combinations of several codings, each with codes -1 .. size - 2.

    Returns
    -------
    joint : (N,) a code of the combination of each sample.
    number : the number of the combination that has this code, for each code that occurs.
    table : (codings, combinations) the codes of each combination.
    """
    joint = codes[0] + 1
    table = np.arange(-1, sizes[0] - 1)[None]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if table.shape[1] * size > min(MAX_TABLE, 2 * len(joint)):
            number, table = _present(joint, table)
            joint = look_up(number, joint)
        span = table.shape[1] * size
        joint = joint.astype(np.int32 if span < 2**31 else np.int64, copy=False)
        joint *= size
        joint += code
        joint += 1
        occurring = np.arange(span) if span <= MAX_TABLE else np.unique(joint)
        if span > MAX_TABLE:
            joint = np.searchsorted(occurring, joint)
        table = np.concatenate([table[:, occurring // size], (occurring % size - 1)[None]])
    return joint, *_present(joint, table)


def _present(joint: NDArray[Any], table: Ints) -> tuple[Ints, Ints]:
    """New numbers for the combinations that occur, and their codes."""
    present = count_codes(joint, table.shape[1]) > 0
    return np.cumsum(present) - 1, table[:, present]
