"""The container of model files and checkpoints: a safetensors file with a JSON header, read with suspicion.

A file is a header (JSON, in the metadata of the safetensors header) and named arrays; what they mean is not known here.
The reader checks sizes before memory is allocated, and counts what is built beyond the arrays against an allowance. See
``docs/model-file.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, prod
from typing import Annotated, Any, BinaryIO, Literal, NoReturn, Self, TypeVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

KEY = "higsfa"  # the one entry of the safetensors metadata
MAX_HEADER = 2**18  # bytes; parsed JSON can take 35 times as much memory
ALLOWANCE = 12 * 2**20  # bytes that may be built beyond the arrays, on top of the size of the file
MAX_DIGITS = 40  # of a number in the header
MAX_TEXT = MAX_LIST = 1000  # characters of a text and entries of a list, by default
DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "U8": np.dtype("u1")}

Arrays = dict[str, NDArray[Any]]


class ModelFileError(ValueError):
    """A file is not a model that this version of higsfa can read.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa import ModelFileError, load
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     try:
    ...         load(file.name)
    ...     except ModelFileError as error:
    ...         print(error)  # doctest: +ELLIPSIS
    cannot load ...
    """


def refuse(reason: str) -> NoReturn:
    raise ModelFileError(reason)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn errors of any checks into errors of the file."""
    try:
        yield
    except ModelFileError:
        raise
    except (ValueError, TypeError) as error:
        refuse(f"{what}: {str(error).splitlines()[0][:300]}")


class Record(BaseModel):
    """An object of the header: exactly these members, each exactly of its type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_members(cls, value: Any) -> Any:
        # Not left to pydantic, so that thousands of unknown members are one error.
        if isinstance(value, dict) and value.keys() != cls.model_fields.keys():
            wrong = ", ".join(map(repr, sorted(value.keys() ^ cls.model_fields.keys())))
            names = ", ".join(cls.model_fields) or "(none)"
            raise ValueError(f"it must have the members {names}; unknown or missing: {wrong:.120}")
        return value

    @classmethod
    def read(cls, value: Any, what: str) -> Self:
        """The record in a value of the header, or a ModelFileError."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            refuse(_explain(error, what))


def _explain(error: ValidationError, what: str) -> str:
    """The most telling error: for a value with several possible types, that of the type it almost has."""
    errors = error.errors(include_url=False, include_context=False)
    worst = max(errors, key=lambda one: (not one["type"].endswith(("_type", "literal_error")), len(one["loc"])))
    where = ".".join(str(step) for step in (what, *worst["loc"]) if "[" not in str(step))
    reason = "a JSON object is needed" if worst["type"] == "model_type" else worst["msg"]
    found = "" if isinstance(worst["input"], list | dict) else f", found {worst['input']!r:.120}"
    return f"{where}: {reason.removeprefix('Value error, ')}{found}"


def short(text: str, longest: int = MAX_TEXT) -> str:
    return text if len(text) <= longest else refuse(f"a text of at most {longest:,} characters is needed")


T = TypeVar("T")
Text = Annotated[str, AfterValidator(short)]  # Field(max_length=...) would refuse lone surrogates
Few = Annotated[list[T], Field(max_length=MAX_LIST, fail_fast=True)]
Some = Annotated[list[T], Field(min_length=1, max_length=MAX_LIST, fail_fast=True)]


class Entry(Record):
    """Where an array lies: its type, its shape, and its first and last byte after the header."""

    dtype: Literal["F64", "I64", "U8"]
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**48)]], Field(max_length=4)]
    data_offsets: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Tensors:
    """The arrays of a file, which begin at `start`; each is compared with what is expected before it is read."""

    def __init__(self, file: BinaryIO, start: int, entries: dict[str, Entry], size: int) -> None:
        self._file, self._start, self._entries, self.size = file, start, entries, size
        self._spare = size + ALLOWANCE

    def take(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Read an array of this dtype and shape (None for any length); real numbers must be finite."""
        array = self.take_any(name, dtype, shape)
        if dtype == "F64" and not np.all(np.isfinite(array)):
            refuse(f"array {name} holds numbers that are not finite")
        return array

    def take_any(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The same, but numbers need not be finite."""
        entry = self._entries.pop(name, None)
        if entry is None:
            refuse(f"array {name} is missing")
        fits = len(shape) == len(entry.shape) and all(w in (None, n) for w, n in zip(shape, entry.shape, strict=True))
        if entry.dtype != dtype or not fits:
            wanted = ["any" if size is None else size for size in shape]
            refuse(f"array {name} must be {dtype} of shape {wanted}, found {entry.dtype} of {entry.shape}")
        array = np.empty(entry.shape, DTYPES[dtype])
        self._file.seek(self._start + entry.data_offsets[0])
        if self._file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
            refuse("the file ends too early")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def spend(self, n_bytes: int) -> None:
        """Count memory that is about to be allocated, besides the arrays."""
        self._spare -= n_bytes
        if self._spare < 0:
            refuse(f"what the header describes takes too much memory for a file of {self.size:,} bytes")

    def finish(self) -> None:
        """All arrays must have been taken."""
        if self._entries:
            refuse(f"unknown arrays: {', '.join(map(repr, sorted(self._entries))):.120}")


def read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], Any, int]:
    """The header, the list of arrays (not checked yet), and where the arrays begin."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        refuse(f"not a model file, or not all of it: it has {size:,} bytes")
    if length > MAX_HEADER:
        refuse(f"its header has {length:,} bytes, more than the {MAX_HEADER:,} of any model")
    outer = parse_json(file.read(length))
    metadata = outer.pop("__metadata__", None) if isinstance(outer, dict) else None
    if not isinstance(metadata, dict) or list(metadata) != [KEY] or not isinstance(metadata[KEY], str):
        refuse(f"not a model of higsfa: its metadata must hold one text, {KEY!r}")
    header = parse_json(metadata[KEY].encode("utf-8", "surrogatepass"))
    if not isinstance(header, dict):
        refuse("its header is not a JSON object")
    return header, outer, 8 + length


def open_tensors(file: BinaryIO, size: int, listing: Any, start: int) -> Tensors:
    """Check the list of arrays: types, shapes, and that they fill the file without gaps or overlaps."""
    entries = {name: Entry.read(value, f"array {name[:80]}") for name, value in listing.items()}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        first, last = entry.data_offsets
        if last - first != prod(entry.shape) * DTYPES[entry.dtype].itemsize:
            refuse(f"array {name[:80]}: {last - first:,} bytes do not match {entry.dtype} of shape {entry.shape}")
        if first != position:
            refuse("arrays overlap or leave a gap")
        position = last
    if position != size - start:
        refuse(f"arrays take {position:,} bytes, the file has {size - start:,} for them")
    return Tensors(file, start, entries, size)


def parse_json(raw: bytes) -> Any:
    """JSON without duplicate keys, NaN, infinity or numbers of unusual length."""
    try:
        return json.loads(
            raw.decode("utf-8", "surrogatepass"),
            object_pairs_hook=_object,
            parse_constant=lambda name: refuse(f"its header holds {name}"),
            parse_int=lambda digits: _number(int, digits),
            parse_float=lambda digits: _number(float, digits),
        )
    except RecursionError:
        refuse("its header is nested too deeply")
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        refuse(f"its header is not JSON: {error!s:.200}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    return record if len(record) == len(pairs) else refuse("its header holds a key twice")


def _number(kind: type[int] | type[float], digits: str) -> float:
    if len(digits) > MAX_DIGITS:
        refuse(f"its header holds a number of more than {MAX_DIGITS} digits")
    value = kind(digits)
    return value if isfinite(value) else refuse("its header holds a number that is too large")


def serialize(header: dict[str, Any], arrays: Arrays) -> bytes:
    """Header and arrays as the bytes of a safetensors file."""
    metadata = {KEY: json.dumps(header, allow_nan=False, separators=(",", ":"))}
    return safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, metadata)
