"""Where samples come from: arrays, files, zarr, dask, images; and functions, copies, subsets and caches of them.

>>> import numpy as np
>>> from higsfa import sources
>>> X = np.arange(12).reshape(6, 2)
>>> halves = sources.map(sources.array(X), lambda batch: batch / 2)
>>> halves.take([4, 0])
array([[4. , 4.5],
       [0. , 0.5]])
>>> twice = sources.repeat(X, copies=2)
>>> len(twice), twice.sample_index
(12, array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]))
"""

from higsfa.training.sources.arrays import array, as_source, dask, npy, zarr
from higsfa.training.sources.base import Source
from higsfa.training.sources.derived import cache, map, repeat
from higsfa.training.sources.images import ImageFileError, ImageFiles, images

__all__ = [
    "ImageFileError",
    "ImageFiles",
    "Source",
    "array",
    "as_source",
    "cache",
    "dask",
    "images",
    "map",
    "npy",
    "repeat",
    "zarr",
]
