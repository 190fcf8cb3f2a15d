"""The arrays of ``examples.npz``, read with limits."""

from __future__ import annotations

import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from higsfa.report.checks import ReportError
from higsfa.report.limits import MAX_NPZ
from higsfa.report.records import Examples

MAX_ARRAY = 64 * 2**20

# Kinds of numbers, and the largest shape, of each array.
_ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "images": ("f", (64, 4096, 4096)),
    "reconstructions": ("f", (32, 64, 4096, 4096)),
    "reconstruction_names": ("U", (32,)),
    "features": ("f", (20_000, 100)),
    "feature_rows": ("iu", (20_000,)),
}


def read_examples(path: Path, n_rows: int) -> Examples:
    """The arrays for figures; `n_rows` is the number of rows of ``predictions.csv``."""
    if not path.is_file():
        return Examples()
    if path.stat().st_size > MAX_NPZ:
        raise ReportError(f"{path.name} is larger than {MAX_NPZ // 2**20} MiB, which no run folder needs")
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {key: _read_array(archive, path.name, key) for key in _ARRAYS}
    except ReportError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ReportError(f"{path.name} cannot be read: {str(error).splitlines()[0][:200]}") from error
    _check_shapes(path.name, arrays, n_rows)
    names = arrays.pop("reconstruction_names")
    return Examples(reconstruction_names=() if names is None else tuple(map(str, names)), **arrays)


def _read_array(archive: zipfile.ZipFile, file: str, key: str) -> NDArray[Any] | None:
    """One array, after its header has said that type and size are as expected; None if it is not there."""
    if f"{key}.npy" not in archive.namelist():
        return None
    kinds, largest = _ARRAYS[key]
    entry = archive.getinfo(f"{key}.npy")
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            _refuse(file, key, "an array of .npy version 1 or 2", version)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.kind not in kinds:
            _refuse(file, key, {"f": "real numbers", "iu": "whole numbers", "U": "text"}[kinds], dtype)
        if len(shape) != len(largest) or not all(0 <= n <= most for n, most in zip(shape, largest, strict=True)):
            _refuse(file, key, f"an array of at most {largest}", shape)
        if prod(shape) * dtype.itemsize > MAX_ARRAY or entry.file_size > MAX_ARRAY:
            _refuse(file, key, f"an array of at most {MAX_ARRAY // 2**20} MiB", shape)
    with archive.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _check_shapes(file: str, arrays: dict[str, NDArray[Any] | None], n_rows: int) -> None:
    """Arrays that belong together agree in length."""
    images, rebuilt, names = arrays["images"], arrays["reconstructions"], arrays["reconstruction_names"]
    if rebuilt is not None:
        if images is None or rebuilt.shape[1:] != images.shape:
            _refuse(file, "reconstructions", "as many and as large pictures as images", rebuilt.shape)
        if names is None or len(names) != len(rebuilt):
            _refuse(file, "reconstruction_names", f"{len(rebuilt)} names", None if names is None else names.shape)
    features, rows = arrays["features"], arrays["feature_rows"]
    if features is not None and rows is not None:
        if len(rows) != len(features):
            _refuse(file, "feature_rows", f"{len(features)} rows", rows.shape)
        if n_rows and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
            _refuse(file, "feature_rows", f"rows of predictions.csv, 0 to {n_rows - 1}", int(rows.max()))


def _refuse(file: str, key: str, expected: str, found: object) -> NoReturn:
    raise ReportError(f"{file}: {key} must hold {expected}, found {found}")
