"""Arrays from .npz files of unknown origin: sizes are checked before memory is taken, and nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from higsfa._array_files import open_archive

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

    Raises
    ------
    ValueError
        If the file is no .npz file, damaged, too large, or holds anything but numbers and texts.
    OSError
        If there is no file, or it cannot be read.
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
