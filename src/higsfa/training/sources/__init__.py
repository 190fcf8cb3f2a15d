"""Sources of samples: one small interface over arrays, files, zarr, dask and images, and what is derived from them."""

from typing import Any

from higsfa.training.sources.arrays import Array, MappedFile, as_source, is_chunked
from higsfa.training.sources.base import Delayed, Derived, Rows, Samples, Source, blocks, evenly_spread

__all__ = [
    "Array",
    "Delayed",
    "Derived",
    "MappedFile",
    "Rows",
    "Samples",
    "Source",
    "as_source",
    "blocks",
    "collected",
    "evenly_spread",
    "is_chunked",
]


def collected(X: Any) -> Any:
    """What :func:`higsfa.training.sources.lists.collected` makes of a list; pictures wait until there may be some."""
    from higsfa.training.sources import lists

    return lists.collected(X)
