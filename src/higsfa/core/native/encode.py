"""Trained nodes in one compiled call: read, expanded, and turned into features, a few samples at a time.

What they compute is said by numpy: ``Node._encode_with_numpy``. As for tiles, what is handed over is checked here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from higsfa.core.native import library
from higsfa.core.native.tile import Array, Front, Ints, Raw, Rows, address, chunk_columns, empty_rows


class _Encoder(ctypes.Structure):
    _fields_ = [
        ("front", c_void_p),
        *((name, c_int64) for name in ("chunk", "n_slow", "n_rest")),
        *((name, c_void_p) for name in ("slow", "slow_offset", "rest", "rest_offset")),
    ]


@dataclass(frozen=True, eq=False)
class Encoder:
    """A trained node as compiled routines read it: y' = F z - f, then G [x; y'] - k."""

    front: Front
    record: _Encoder
    arrays: tuple[Array, ...]  # what the record points to

    @classmethod
    def of(cls, front: Front, F: Array, f: Array, G: Array, k: Array) -> Encoder:
        """All arrays have the dtype of the front; without F, the variables of the front may be any."""
        J, K, record = len(F), len(G), front.record
        sizes = (J * record.n_variables, J, K * (record.n_inputs + J), K)
        addresses = (address(array, front.dtype, size) for array, size in zip((F, f, G, k), sizes, strict=True))
        chunk = chunk_columns(record.n_variables, front.dtype.itemsize)
        return cls(front, _Encoder(ctypes.addressof(record), chunk, J, K, *addresses), (F, f, G, k))

    @property
    def n_features(self) -> int:
        return int(self.record.n_slow + self.record.n_rest)

    @property
    def n_scratch(self) -> int:
        """Rows that are needed for what is computed on the way."""
        record = self.front.record
        return int(record.n_raw + record.n_inputs + self.record.n_slow + record.n_variables)


class Encoders:
    """Nodes whose raw inputs are rows of one array: node i reads the rows `which[i]` of it, (nodes, n_raw)."""

    def __init__(self, nodes: Sequence[Encoder], which: Ints) -> None:
        self.which = np.ascontiguousarray(which, np.intp)
        sizes = {node.front.record.n_raw for node in nodes}
        if sizes != {self.which.shape[1]} or len(nodes) != len(which) or self.which.min() < 0:
            raise ValueError(f"{len(nodes)} nodes of {sizes} raw inputs do not fit numbers of rows {which.shape}")
        self.nodes, self.front, self.last = tuple(nodes), nodes[0].front, int(self.which.max())
        self.n_features = max(node.n_features for node in nodes)
        self.n_scratch = max(node.n_scratch for node in nodes)
        self.chunk = max(int(node.record.chunk) for node in nodes)
        self.records = np.array([ctypes.addressof(node.record) for node in nodes], np.uintp)
        self.places = self.which.ctypes.data + self.which.strides[0] * np.arange(len(which), dtype=np.uintp)

    def encode(self, source: Array, out: Array, begin: int, end: int) -> bool:
        """Write features of nodes begin .. end into `out` (nodes, width, n); False if the routines do not know how."""
        n, front = source.shape[1], self.front
        by_rows = all(array.flags.c_contiguous and array.flags.aligned for array in (source, out)) and 0 < n < 2**31
        # Where it lies is asked for the rows of one node: they must not be copied, as the others follow them.
        found = front.source(Rows(source[: self.which.shape[1]]), n) if by_rows and out.flags.writeable else None
        if found is None or out.dtype != front.dtype:
            return False
        fits = 0 <= begin < end <= len(self.nodes) <= len(out) and self.last < len(source)
        if not fits or out.shape[1] < self.n_features or out.shape[2] != n:
            raise IndexError(f"nodes {begin} .. {end} do not fit input {source.shape} and features {out.shape}")
        scratch = empty_rows(self.n_scratch, min(self.chunk, n), front.dtype)
        some = slice(begin, end)
        _call(front, self.records[some], found, self.places[some], n, out[begin], n, scratch)
        return True


def encode_tile(encoder: Encoder | None, raw: Raw, Y: Array) -> bool:
    """Write the features of a node into the first rows of Y; False if the routines do not know how."""
    rows, n = Y.shape
    stride, rest = divmod(Y.strides[0], Y.itemsize) if rows > 1 else (max(1, n), 0)
    in_rows = Y.flags.aligned and (Y.strides[1] == Y.itemsize or n < 2) and rest == 0 and max(1, n) <= stride < 2**31
    if encoder is None or not in_rows or not Y.flags.writeable:
        return False
    front = encoder.front
    source = front.source(raw, n)
    if source is None:
        return False
    if Y.dtype != front.dtype or len(Y) < encoder.n_features:
        raise ValueError(f"features need {encoder.n_features} rows of {front.dtype}, got {len(Y)} of {Y.dtype}")
    scratch = empty_rows(encoder.n_scratch, min(encoder.record.chunk, max(1, n)), front.dtype)
    record = np.array([ctypes.addressof(encoder.record)], np.uintp)
    _call(front, record, source, None, n, Y[: encoder.n_features], stride, scratch)
    return True


def _call(
    front: Front, records: Array, source: Any, places: Array | None, n: int, Y: Array, stride: int, scratch: Array
) -> None:
    """Y (rows, n) is where the features of the first node go, and those of the others follow it."""
    library.routines["encode_nodes", front.dtype](
        len(records),
        records.ctypes.data,
        byref(source),
        None if places is None else places.ctypes.data,
        n,
        len(Y),
        Y.ctypes.data,
        stride,
        scratch.ctypes.data,
        scratch.strides[0] // scratch.itemsize,
    )


def encode_samples(front: Front | None, raw: Raw, W: Array, f: Array, Y: Array) -> bool:
    """Write y = W^T x' + f, with the centred raw input x', into Y (n, D); False if the routines do not know how."""
    (n, D), by_rows = Y.shape, Y.flags.aligned and Y.strides[1] == Y.itemsize and Y.strides[0] % Y.itemsize == 0
    if front is None or not raw.by_samples or not by_rows or not Y.flags.writeable or Y.dtype != front.dtype:
        return False
    source = front.source(raw, n)
    stride = Y.strides[0] // Y.itemsize
    if source is None or not D <= stride < 2**31:
        return False
    chunk = chunk_columns(raw.shape[0], front.dtype.itemsize)
    scratch = empty_rows(raw.shape[0], min(chunk, max(1, n)), front.dtype)
    addresses = address(W, front.dtype, raw.shape[0] * D), address(f, front.dtype, D)
    library.routines["encode_samples", front.dtype](
        byref(front.record), byref(source), n, chunk, D, *addresses, Y.ctypes.data, stride, scratch.ctypes.data
    )
    return True
