"""Arrays from .npz files of unknown origin: sizes are checked before memory is taken, and nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import prod
from typing import Any, BinaryIO, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_npz"]


def read_npz(
    path: str | os.PathLike[str], names: Iterable[str] | None = None, *, limit: int
) -> dict[str, NDArray[Any]]:
    """Arrays of a .npz file.

    Parameters
    ----------
    path : path
    names : names of arrays, optional
        All by default.
    limit : int
        Most bytes of all arrays together, as their headers announce them.

    Returns
    -------
    dict of arrays
    """
    try:
        with ZipFile(path) as archive:
            there = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            wanted = there if names is None else list(dict.fromkeys(names))
            for name in wanted:
                if name not in there:
                    raise ValueError(f"it has no array {name!r}; it has {', '.join(map(repr, there[:20]))}")
            total = sum(_announced(archive, name) for name in wanted)
            if total > limit:
                raise ValueError(f"its arrays take {total:,} bytes, more than the {limit:,} allowed")
            return {name: _read(archive, name) for name in wanted}
    except BadZipFile as error:
        raise ValueError(f"it is not a .npz file, or is damaged: {error}") from error


def _announced(archive: ZipFile, name: str) -> int:
    with archive.open(f"{name}.npy") as file:
        stream = cast(BinaryIO, file)
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"array {name!r} is of an unknown format; save it with a current numpy")
        shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(f"array {name!r} holds Python objects, which are not read; save numbers or texts")
    return prod(shape) * dtype.itemsize


def _read(archive: ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as file:
        return np.asarray(np.lib.format.read_array(cast(BinaryIO, file), allow_pickle=False))
