"""Samples in one file, mapped into memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from higsfa.io import open_regular
from higsfa.io.arrays import read_header
from higsfa.training.sources.base import Described, Rows, Samples, Source, check_array, file_identity, is_consecutive

__all__ = ["MappedFile", "npy"]


def npy(path: str | os.PathLike[str]) -> Source:
    """Samples of a ``.npy`` file, read from disk when they are needed."""
    try:
        with open_regular(path) as file:
            header = read_header(file)
            n_bytes = os.fstat(file.fileno()).st_size
        if n_bytes < header.offset + header.n_bytes:
            raise ValueError(f"it has {n_bytes:,} bytes, too few for its shape {header.shape}")
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a .npy file of numbers: {error}") from None
    check_array(header.shape, header.dtype, os.fspath(path))
    n_samples, *shape = header.shape
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    return MappedFile(tuple(shape), header.dtype, Path(path).absolute(), header.offset, n_samples, order)


def mapped(X: np.memmap[Any, Any]) -> Source | None:
    """A source that is pickled as the path of a memory map, if the file says everything about the map.

    It does not if X is a part of another map, or if changes to X do not go to the file.
    """
    contiguous = X.flags.c_contiguous or X.flags.f_contiguous
    if not contiguous or not isinstance(X.base, mmap.mmap) or X.filename is None or X.mode == "c":
        return None
    order: Literal["F", "C"] = "C" if X.flags.c_contiguous else "F"
    source = MappedFile(X.shape[1:], X.dtype, Path(str(X.filename)).absolute(), X.offset, len(X), order)
    vars(source)["_open"] = X
    return source


@dataclass(frozen=True, eq=False, repr=False)
class MappedFile(Described):
    """An array in a file that is mapped into memory."""

    n_probes: ClassVar[int] = 16
    path: Path
    offset: int
    n_samples: int
    order: Literal["F", "C"] = "C"

    def __len__(self) -> int:
        return self.n_samples

    @cached_property
    def _open(self) -> Samples:
        shape = (self.n_samples, *self.shape)
        opened = np.memmap(self.path, self.dtype, mode="r", offset=self.offset, shape=shape, order=self.order)
        return cast(Samples, opened)

    def _take(self, rows: Rows) -> Samples:
        # Always a copy, so that the thread that reads is the one that waits for the disk.
        if is_consecutive(rows):
            taken = np.array(self._open[rows[0] : rows[-1] + 1])
        else:
            taken = np.asarray(np.take(self._open, rows, axis=0))
        self._release_pages()
        return taken

    def _release_pages(self) -> None:
        """Tell the system that pages are no longer needed: it may keep them cached, but not as memory of ours."""
        mapping = getattr(self._open, "_mmap", None)
        if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)

    def _identity(self) -> Iterable[object]:
        return (*file_identity(self.path), self.offset, self.order)
