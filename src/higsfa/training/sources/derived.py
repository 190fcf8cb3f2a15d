"""Sources on top of other sources: functions of samples, distorted copies, caches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from higsfa.io import read_regular, replacing, write_atomically
from higsfa.training.sources.arrays import as_source, check_array, npy
from higsfa.training.sources.base import (
    Derived,
    Described,
    Rows,
    Samples,
    Source,
    blocks,
    describe,
    distinct,
)

__all__ = ["Distorts", "cache", "map", "repeat"]

Batch = Callable[[Samples], ArrayLike]
"""A function of a batch of samples, (n, ...) -> (n, ...)."""

FILL_BYTES = 2**25
"""Bytes that are written to a cache at a time."""


class Distorts(Protocol):
    """What :func:`repeat` needs of a distortion; :class:`higsfa.images.Distortion` is one."""

    def apply(self, images: Samples, samples: Rows, copies: Rows) -> Samples: ...


def map(source: Any, function: Batch) -> Source:
    """Samples with a function applied to them.

    Parameters
    ----------
    source : source, or anything that :func:`as_source` accepts
    function : callable
        Takes a batch ``(n, *shape)``, which it must not change, and returns (n, ...). What it returns for a sample must
        not depend on the other samples of the batch. It is called with the first sample to find the shape and dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import sources
    >>> pixels = np.array([[0, 51], [255, 102]], dtype=np.uint8)
    >>> sources.map(pixels, lambda batch: batch / 255.0).take([1])
    array([[1. , 0.4]])
    """
    source = as_source(source)
    if len(source) == 0:
        raise ValueError("source has no samples, so the shape that function returns cannot be found")
    tried = np.asarray(function(source.take([0])))
    if tried.ndim < 2 or len(tried) != 1:
        raise ValueError(f"function: for one sample, an array of shape (1, ...) was expected, got {tried.shape}")
    check_array(tried.shape, tried.dtype, "function")
    return Mapped(source, tried.shape[1:], tried.dtype, function)


@dataclass(frozen=True, eq=False, repr=False)
class Mapped(Described, Derived):
    """A function of a source."""

    function: Batch

    def _take(self, rows: Rows) -> Samples:
        return _checked(np.asarray(self.function(self.parent.take(rows))), len(rows), self, "function")

    def _identity(self) -> Iterable[object]:
        return self.parent.fingerprint(), describe(self.function)


def repeat(source: Any, copies: int, distortion: Distorts | None = None) -> Source:
    """Several copies of every sample, each distorted differently.

    Row r is copy ``r % copies`` of sample ``r // copies``, so the copies of a sample are neighbours. The labels of the
    rows are ``labels[repeated.sample_index]``.

    Parameters
    ----------
    source : source, or anything that :func:`as_source` accepts
    copies : int
    distortion : optional
        Has a method ``apply(images, samples, copies)``, as :class:`higsfa.images.Distortion` has.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import sources
    >>> from higsfa.images import Distortion
    >>> twice = sources.repeat(np.ones((3, 8, 8), np.float32), copies=2, distortion=Distortion(seed=0, shift=1))
    >>> len(twice), np.array(["a", "b", "c"])[twice.sample_index].tolist()
    (6, ['a', 'a', 'b', 'b', 'c', 'c'])
    """
    source = as_source(source)
    if not isinstance(copies, int | np.integer) or copies < 1:
        raise ValueError(f"copies={copies!r} must be an integer of at least 1")
    repeated = Repeated(source, int(copies), distortion)
    if distortion is not None and len(source):
        repeated.take([0])
    return repeated


@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """Copies of the samples of a source."""

    copies: int
    distortion: Distorts | None

    def __len__(self) -> int:
        return len(self.parent) * self.copies

    @property
    def sample_index(self) -> Rows:
        return np.repeat(self.parent.sample_index, self.copies)

    @property
    def is_repeated(self) -> bool:
        return True

    def _take(self, rows: Rows) -> Samples:
        samples, copies = np.divmod(rows, self.copies)
        wanted, back = distinct(samples)
        images = self.parent.take(wanted)[back]
        if self.distortion is None:
            return images
        return _checked(np.asarray(self.distortion.apply(images, samples, copies)), len(rows), self, "distortion")

    def _identity(self) -> Iterable[object]:
        return self.parent.fingerprint(), self.copies, describe(self.distortion)


def _checked(out: Samples, n: int, source: Source, name: str) -> Samples:
    """What a function returned, if it has the shape and dtype of the source."""
    expected = (n, *source.shape)
    if out.shape != expected or out.dtype != source.dtype:
        raise ValueError(f"{name} returned {out.shape} of {out.dtype}, but {expected} of {source.dtype} was expected")
    return out


def cache(source: Any, path: str | os.PathLike[str], *, rebuild: bool = False) -> Source:
    """The samples of a source in a ``.npy`` file, which is written now if it does not exist.

    An existing file is used if it was made from the same data, by the fingerprint in ``path + ".json"``. A file that is
    being written appears under its name only when it is complete.

    Parameters
    ----------
    source : source, or anything that :func:`as_source` accepts
    path : path ending in ``.npy``
    rebuild : bool, default=False
        Whether to overwrite a file that was made from other data; otherwise it is an error.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from higsfa import sources
    >>> slow = sources.map(np.arange(6.0).reshape(3, 2), np.sqrt)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = sources.cache(slow, os.path.join(folder, "roots.npy"))  # computed once
    ...     bool(np.all(np.asarray(kept) == np.asarray(slow)))
    True
    """
    source = as_source(source)
    path = Path(path).absolute()
    if path.suffix != ".npy":
        raise ValueError(f"path={str(path)!r} must end in .npy")
    made_from = source.fingerprint()
    exists = path.exists()
    problem = _mismatch(path, made_from) if exists else ""
    if problem and not rebuild:
        raise ValueError(f"{path} {problem}; delete it, or pass rebuild=True to overwrite it")
    if problem or not exists:
        _fill(path, source, made_from)
    stored = npy(path)
    if (len(stored), stored.shape, stored.dtype) != (len(source), source.shape, source.dtype):
        raise ValueError(f"{path} holds {stored!r} instead of {source!r}; delete it")
    return Cached(stored, made_from, source.sample_index if source.is_repeated else None)


@dataclass(frozen=True, eq=False, repr=False)
class Cached(Derived):
    """A copy of a source in a file."""

    made_from: str
    index: Rows | None

    @property
    def sample_index(self) -> Rows:
        return np.arange(len(self)) if self.index is None else self.index

    @property
    def is_repeated(self) -> bool:
        return self.index is not None

    def _take(self, rows: Rows) -> Samples:
        return self.parent.take(rows)

    def _identity(self) -> Iterable[object]:
        return (self.made_from,)


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _mismatch(path: Path, made_from: str) -> str:
    """Why a file is not a cache of the data with this fingerprint; empty if it is."""
    try:
        found = json.loads(read_regular(_sidecar(path), 2**20))["fingerprint"]
    except FileNotFoundError:
        return f"was not written as a cache, or its {_sidecar(path).name} was lost"
    except (ValueError, KeyError, TypeError):
        return f"has an unreadable {_sidecar(path).name}"
    return "" if found == made_from else "was made from other data, or from data that have changed since"


def _fill(path: Path, source: Source, made_from: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descr = np.lib.format.dtype_to_descr(source.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": (len(source), *source.shape)}
    # Plain writing: with a memory map, a full disk would kill the process instead of raising an error.
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _, samples in blocks(source, FILL_BYTES // source.dtype.itemsize):
            file.write(np.ascontiguousarray(samples).tobytes())
        # The old fingerprint is deleted before the old data, the new one written after the new data: whenever the
        # process stops, a fingerprint stands only beside the data it belongs to.
        _sidecar(path).unlink(missing_ok=True)
    write_atomically(_sidecar(path), json.dumps({"fingerprint": made_from, "of": repr(source)}).encode())
