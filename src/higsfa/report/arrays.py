"""The arrays of ``examples.npz``, read with limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import NDArray

from higsfa.io.arrays import Archive, open_archive
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
        with open_archive(path) as archive:
            arrays = {key: _read_array(archive, path.name, key) for key in _ARRAYS}
    except ReportError:
        raise
    except (ValueError, OSError) as error:
        raise ReportError(f"{path.name} cannot be read: {str(error).splitlines()[0][:200]}") from error
    _check_shapes(path.name, arrays, n_rows)
    names = arrays.pop("reconstruction_names")
    return Examples(reconstruction_names=() if names is None else tuple(map(str, names)), **arrays)


def _read_array(archive: Archive, file: str, key: str) -> NDArray[Any] | None:
    """One array, after its header has said that type and size are as expected; None if it is not there."""
    if key not in archive.names:
        return None
    kinds, largest = _ARRAYS[key]
    header = archive.header(key)
    if header.dtype.kind not in kinds:
        _refuse(file, key, {"f": "real numbers", "iu": "whole numbers", "U": "text"}[kinds], header.dtype)
    if len(header.shape) != len(largest) or not all(n <= most for n, most in zip(header.shape, largest, strict=True)):
        _refuse(file, key, f"an array of at most {largest}", header.shape)
    if header.n_bytes > MAX_ARRAY:
        _refuse(file, key, f"an array of at most {MAX_ARRAY // 2**20} MiB", header.shape)
    return archive.read(key)


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
