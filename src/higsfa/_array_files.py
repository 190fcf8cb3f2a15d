"""Arrays of numbers and texts in .npy and .npz files of unknown origin.

A header is taken as numpy writes it, or not at all. Sizes are known from headers before memory is taken, and nothing is
unpickled. Whatever is wrong with a file is a ValueError.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import IO, Any, BinaryIO, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from higsfa._files import open_regular

__all__ = ["Archive", "Header", "open_archive", "read_header"]

MAGIC = b"\x93NUMPY\x01\x00"
MAX_HEADER = 10_000
MAX_DIMENSIONS = 32
HEADER = re.compile(
    r"\{'descr': '([<>|][biufSU][1-9][0-9]{0,8})', 'fortran_order': (True|False), "
    r"'shape': \(((?:[0-9]{1,18}, )*[0-9]{1,18},?|)\), \} *\n"
)
"""Of version 1.0, which numpy writes for all arrays but records with thousands of fields."""
CHUNK = 2**18
"""Bytes that are unpacked at a time."""
MAX_DIRECTORY = 2**20
"""Bytes of the list of members of an archive, some 10,000 of them."""


class Header(NamedTuple):
    """What a .npy file says about its array, and where the numbers begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> Header:
    """The header at the beginning of a .npy file."""
    start = file.read(len(MAGIC) + 2)
    length = int.from_bytes(start[-2:], "little")
    if len(start) != len(MAGIC) + 2 or not start.startswith(MAGIC) or length > MAX_HEADER:
        raise ValueError("it has no header as np.save writes one")
    written = file.read(length).decode("latin-1")
    found = HEADER.fullmatch(written)
    if len(written) != length or found is None:
        raise ValueError("its header is not that of numbers or texts; Python objects, records and dates are not read")
    descr, fortran_order, sizes = found.groups()
    shape = tuple(int(size) for size in sizes.split(",") if size)
    try:
        dtype = np.dtype(descr)
    except TypeError as error:
        raise ValueError(f"its numbers are of an unknown type, {descr}") from error
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"it has {len(shape)} dimensions, more than {MAX_DIMENSIONS}")
    return Header(shape, dtype, fortran_order == "True", len(start) + length)


# ---------------------------------------------------------------------- archives


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """The arrays of a .npz file, to be read one by one."""
    with open_regular(path) as file, _explained(), ZipFile(cast(BinaryIO, _Cautious(file))) as archive:
        yield Archive(archive)


@contextmanager
def _explained() -> Iterator[None]:
    """Damage of many kinds as a ValueError."""
    try:
        yield
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is not a .npz file, or is damaged: {error}") from error


class _Cautious:
    """A file that is never read far at once: a damaged archive may announce a list of members of any length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, MAX_DIRECTORY + 1) if size >= 0 else MAX_DIRECTORY + 1)
        if len(data) > MAX_DIRECTORY:
            raise ValueError(f"its list of arrays takes more than {MAX_DIRECTORY:,} bytes")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Archive:
    """An open .npz file."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self.names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def header(self, name: str) -> Header:
        """What the file says about an array."""
        with self._archive.open(self._entry(name)) as file, _named(name):
            return read_header(file)

    def read(self, name: str) -> NDArray[Any]:
        """An array."""
        entry = self._entry(name)
        with self._archive.open(entry) as file, _named(name):
            header = read_header(file)
            if header.offset + header.n_bytes != entry.file_size:
                raise ValueError(f"it takes {entry.file_size:,} bytes, which are not those of its shape {header.shape}")
            flat = np.empty(prod(header.shape), header.dtype)
            _fill(flat, file)
            if flat.dtype.kind == "U" and np.any(flat.view(f"{flat.dtype.str[0]}u4") > sys.maxunicode):
                raise ValueError("it holds characters that do not exist")
        return flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    def _entry(self, name: str) -> ZipInfo:
        entry = self._archive.getinfo(f"{name}.npy")
        # Other ways of packing may ask for a dictionary of any size.
        if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(f"array {name!r} is packed in another way than numpy does it")
        return entry


def _fill(array: NDArray[Any], file: IO[bytes]) -> None:
    """Read all bytes of an array, a few at a time."""
    room: NDArray[np.uint8] = array.view(np.uint8)
    for start in range(0, len(room), CHUNK):
        part = file.read(min(CHUNK, len(room) - start))
        if len(part) != len(room[start : start + CHUNK]):
            raise ValueError("it unpacks to fewer bytes than the list of arrays says")
        room[start : start + CHUNK] = np.frombuffer(part, np.uint8)


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"array {name!r} cannot be read: {error}") from error
