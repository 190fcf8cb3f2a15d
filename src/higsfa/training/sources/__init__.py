"""Sources of samples: one small interface over arrays, files, zarr, dask and images, and what is derived from them."""

from higsfa.training.sources.arrays import Array, MappedFile, as_source, is_chunked
from higsfa.training.sources.base import Delayed, Derived, Rows, Samples, Source, blocks, evenly_spread
from higsfa.training.sources.lists import collected

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
