"""The container of model files: one safetensors file, written whole or not at all, and read with suspicion.

Nothing here knows what a model is. A file is a header (JSON, in the metadata of the safetensors header) and named
arrays. The reader believes nothing: sizes are checked by arithmetic before memory is taken, and what it builds beyond
the arrays themselves is counted against an allowance. See ``docs/model-file.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, prod
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

KEY = "higsfa"
"""The one entry of the safetensors metadata."""
MAX_HEADER = 2**18
"""Bytes of the safetensors header; parsed JSON can take 35 times as much memory."""
ALLOWANCE = 12 * 2**20
"""Bytes that may be built beyond the arrays, on top of the size of the file."""
MAX_DIGITS = 40
"""Characters of a number in the header."""
DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "U8": np.dtype("u1")}

Arrays = dict[str, NDArray[Any]]


class ModelFileError(ValueError):
    """A file is not a model that this version of higsfa can read."""


def refuse(reason: str) -> NoReturn:
    raise ModelFileError(reason)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Errors of our own checks, met while reading a file, are errors of the file."""
    try:
        yield
    except ModelFileError:
        raise
    except (ValueError, TypeError) as error:
        refuse(f"{what}: {str(error).splitlines()[0][:300]}")


# ---------------------------------------------------------------------- values of the header


def members(record: Any, what: str, *names: str) -> list[Any]:
    """The values of a record that has exactly these members."""
    if not isinstance(record, dict):
        refuse(f"{what} must be a JSON object, found {_shown(record)}")
    if record.keys() != set(names):
        wrong = sorted(set(names) ^ record.keys())
        refuse(f"{what} must have the members {', '.join(names) or '(none)'}; unknown or missing: {_names(wrong)}")
    return [record[name] for name in names]


def whole(value: Any, what: str, least: int, most: int) -> int:
    """An integer between two bounds."""
    if type(value) is not int or not least <= value <= most:
        refuse(f"{what} must be an integer from {least:,} to {most:,}, found {_shown(value)}")
    return int(value)


def truth(value: Any, what: str) -> bool:
    if type(value) is not bool:
        refuse(f"{what} must be true or false, found {_shown(value)}")
    return bool(value)


def text(value: Any, what: str, longest: int = 1000) -> str:
    if not isinstance(value, str) or len(value) > longest:
        refuse(f"{what} must be a text of at most {longest:,} characters, found {_shown(value)}")
    return value


def listed(value: Any, what: str, longest: int = 1000) -> list[Any]:
    if not isinstance(value, list) or len(value) > longest:
        refuse(f"{what} must be a list of at most {longest:,} entries, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return _short(repr(value))


def _names(names: list[str]) -> str:
    return _short(", ".join(map(repr, names)))


def _short(shown: str) -> str:
    return shown if len(shown) <= 120 else shown[:117] + "..."


# ---------------------------------------------------------------------- reading


class Entry(NamedTuple):
    """Where an array lies: its type, its shape, and its first and last byte after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Tensors:
    """The arrays of a file, each compared with what is expected before it is read.

    Parameters
    ----------
    file : open file, or bytes in memory.
    start : where the arrays begin.
    entries : where each of them lies.
    size : of the whole file.
    """

    def __init__(self, file: BinaryIO, start: int, entries: dict[str, Entry], size: int) -> None:
        self._file, self._start, self._entries, self.size = file, start, entries, size
        self._spare = size + ALLOWANCE

    def take(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Read an array of this type and shape, None standing for any length; real numbers must be finite."""
        array = self.take_any(name, dtype, shape)
        if dtype == "F64" and not np.all(np.isfinite(array)):
            refuse(f"array {name} holds numbers that are not finite")
        return array

    def take_any(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The same, of any numbers."""
        entry = self._entries.pop(name, None)
        if entry is None:
            refuse(f"array {name} is missing")
        fits = len(shape) == len(entry.shape) and all(w in (None, n) for w, n in zip(shape, entry.shape, strict=True))
        if entry.dtype != dtype or not fits:
            refuse(f"array {name} must be {dtype} of shape {_by(shape)}, found {entry.dtype} of {_by(entry.shape)}")
        array = np.empty(entry.shape, DTYPES[dtype])
        self._file.seek(self._start + entry.start)
        if self._file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
            refuse("the file ends too early")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def spend(self, n_bytes: int) -> None:
        """Count memory that is about to be taken for something other than the arrays."""
        self._spare -= n_bytes
        if self._spare < 0:
            refuse(f"what the header describes takes too much memory for a file of {self.size:,} bytes")

    def finish(self) -> None:
        """All arrays must have been taken."""
        if self._entries:
            refuse(f"unknown arrays: {_names(sorted(self._entries))}")


def _by(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"


def read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], Any, int]:
    """The header, the list of arrays, not checked yet, and where the arrays begin."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        refuse(f"no model file, or not all of it: it has {size:,} bytes")
    if length > MAX_HEADER:
        refuse(f"its header has {length:,} bytes, more than the {MAX_HEADER:,} of any model")
    outer = parse_json(file.read(length))
    metadata = outer.pop("__metadata__", None) if isinstance(outer, dict) else None
    if not isinstance(metadata, dict) or list(metadata) != [KEY] or not isinstance(metadata[KEY], str):
        refuse(f"no model of higsfa: its metadata must hold one text, {KEY!r}")
    header = parse_json(metadata[KEY].encode("utf-8", "surrogatepass"))
    if not isinstance(header, dict):
        refuse("its header is no JSON object")
    return header, outer, 8 + length


def open_tensors(file: BinaryIO, size: int, listing: Any, start: int) -> Tensors:
    """Check the list of arrays: types, shapes, and that they fill the file without gap or overlap."""
    n_bytes = size - start
    entries = {name: _entry(name, value, n_bytes) for name, value in listing.items()}
    position = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            refuse("arrays overlap or leave a gap")
        position = entry.stop
    if position != n_bytes:
        refuse(f"arrays take {position:,} bytes, the file has {n_bytes:,} for them")
    return Tensors(file, start, entries, size)


def _entry(name: str, value: Any, n_bytes: int) -> Entry:
    what = f"array {name[:80]}"
    dtype, shape, offsets = members(value, what, "dtype", "shape", "data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        refuse(f"{what}: type {_shown(dtype)} is none of {', '.join(DTYPES)}")
    sizes = tuple(whole(n, f"{what}: shape", 0, 2**48) for n in listed(shape, f"{what}: shape", 4))
    if not isinstance(offsets, list) or len(offsets) != 2:
        refuse(f"{what}: data_offsets must be two numbers, found {_shown(offsets)}")
    start, stop = (whole(n, f"{what}: data_offsets", 0, n_bytes) for n in offsets)
    if stop - start != prod(sizes) * DTYPES[dtype].itemsize:
        refuse(f"{what}: {stop - start:,} bytes are not those of {dtype} of shape {_by(sizes)}")
    return Entry(dtype, sizes, start, stop)


def parse_json(raw: bytes) -> Any:
    """JSON without duplicate keys, NaN, infinity or numbers of unusual length."""
    try:
        return json.loads(
            raw.decode("utf-8", "surrogatepass"),
            object_pairs_hook=_record,
            parse_constant=lambda name: refuse(f"its header holds {name}"),
            parse_int=_integer,
            parse_float=_real,
        )
    except RecursionError:
        refuse("its header is nested too deeply")
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        refuse(f"its header is no JSON: {error!s:.200}")


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        refuse("its header holds a key twice")
    return record


def _integer(digits: str) -> int:
    return int(_short_number(digits))


def _real(digits: str) -> float:
    value = float(_short_number(digits))
    return value if isfinite(value) else refuse("its header holds a number that is too large")


def _short_number(digits: str) -> str:
    return (
        digits if len(digits) <= MAX_DIGITS else refuse(f"its header holds a number of more than {MAX_DIGITS} digits")
    )


# ---------------------------------------------------------------------- writing


def serialize(header: dict[str, Any], arrays: Arrays) -> bytes:
    """Header and arrays as the bytes of a safetensors file."""
    metadata = {KEY: json.dumps(header, allow_nan=False, separators=(",", ":"))}
    return safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, metadata)
