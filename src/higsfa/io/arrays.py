"""Arrays of numbers and texts in .npy and .npz files of unknown origin.

Headers must be as numpy writes them. Sizes are checked before memory is allocated, and nothing is unpickled. Whatever
is wrong with a file is a ValueError.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import IO, Any, BinaryIO, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from higsfa.io import open_regular

__all__ = ["Archive", "Header", "open_archive", "read_header", "read_npz"]

MAGIC = b"\x93NUMPY\x01\x00"
MAX_HEADER = 10_000
MAX_DIMENSIONS = 32
HEADER = re.compile(
    r"\{'descr': '([<>|][biufSU][1-9][0-9]{0,8})', 'fortran_order': (True|False), "
    r"'shape': \(((?:[0-9]{1,18}, )*[0-9]{1,18},?|)\), \} *\n"
)
"""Version 1.0, which numpy writes for all arrays except records with thousands of fields."""
CHUNK = 2**18  # bytes that are unpacked at a time
MAX_DIRECTORY = 2**20  # bytes of the directory of an archive, enough for about 10,000 arrays


class Header(NamedTuple):
    """Shape and dtype of the array in a .npy file, and where its data begin."""

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


def read_npz(
    path: str | os.PathLike[str], names: Iterable[str] | None = None, *, limit: int
) -> dict[str, NDArray[Any]]:
    """Arrays of a .npz file by name, all of them by default.

    A ValueError if it is not a .npz file, is damaged, holds anything but numbers and texts, or if its arrays take more
    than `limit` bytes by their headers; an OSError if it cannot be opened.
    """
    with open_archive(path) as archive:
        there = list(dict.fromkeys(archive.names))
        wanted = there if names is None else list(dict.fromkeys(names))
        for name in wanted:
            if name not in there:
                raise ValueError(f"it has no array {name!r}; it has {', '.join(map(repr, there[:20]))}")
        total = sum(archive.header(name).n_bytes for name in wanted)
        if total > limit:
            raise ValueError(f"its arrays take {total:,} bytes, more than the {limit:,} allowed")
        return {name: archive.read(name) for name in wanted}


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    try:
        with open_regular(path) as file, ZipFile(cast(BinaryIO, _Limited(file))) as archive:
            yield Archive(archive)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is not a .npz file, or is damaged: {error}") from error


class _Limited:
    """A file of which little is read at once: a damaged archive may claim a directory of any size."""

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
    """An open .npz file, whose arrays are read one by one."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self.names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def header(self, name: str) -> Header:
        with self._open(name) as (file, _):
            return read_header(file)

    def read(self, name: str) -> NDArray[Any]:
        with self._open(name) as (file, entry):
            header = read_header(file)
            if header.offset + header.n_bytes != entry.file_size:
                raise ValueError(f"it takes {entry.file_size:,} bytes, which do not match its shape {header.shape}")
            flat = np.empty(prod(header.shape), header.dtype)
            data: NDArray[np.uint8] = flat.view(np.uint8)
            for part in (data[start : start + CHUNK] for start in range(0, len(data), CHUNK)):
                found = file.read(len(part))
                if len(found) != len(part):
                    raise ValueError("it unpacks to fewer bytes than the list of arrays says")
                part[:] = np.frombuffer(found, np.uint8)
            if flat.dtype.kind == "U" and np.any(flat.view(f"{flat.dtype.str[0]}u4") > sys.maxunicode):
                raise ValueError("it holds characters that do not exist")
        return flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], ZipInfo]]:
        entry = self._archive.getinfo(f"{name}.npy")
        # Other compressions may need a dictionary of any size.
        if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(f"array {name!r} has a compression that numpy does not write")
        with self._archive.open(entry) as file:
            try:
                yield file, entry
            except ValueError as error:
                raise ValueError(f"array {name!r} cannot be read: {error}") from error
