"""Labels as users bring them: arrays, dicts, data frames, with missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]


def label_names(y: Any) -> list[Any]:
    """Names of the labels in y: columns of a data frame, keys of a dict, numbers of array columns."""
    if y is None:
        return []
    if isinstance(y, Mapping):
        return list(y)
    if hasattr(y, "columns"):
        return list(y.columns)
    shape = np.asarray(y).shape
    return list(range(shape[1])) if len(shape) == 2 else [0]


def pick_label(y: Any, name: Any) -> NDArray[Any]:
    """One label as a 1-D array; with name None the only one there is."""
    names = label_names(y)
    if not names:
        raise ValueError("y: this graph requires y to be passed, but the target y is None; it is built from labels")
    if name is None:
        if len(names) > 1:
            raise ValueError(f"y has several labels {names}: name the one to use, as in SerialGraph({names[0]!r})")
        name = names[0]
    if name not in names:
        raise ValueError(f"y has no label {name!r}; it has {names}")
    if isinstance(y, Mapping) or hasattr(y, "columns"):
        column = y[name]
    else:
        y = np.asarray(y)
        column = y[:, name] if y.ndim == 2 else y
    column = _plain_array(column)
    if column.ndim != 1:
        raise ValueError(f"label {name!r} must have one value per sample, got an array of shape {column.shape}")
    return column


def _plain_array(column: Any) -> NDArray[Any]:
    dtype = getattr(column, "dtype", None)
    extension = dtype is not None and not isinstance(dtype, np.dtype)
    return np.asarray(column, dtype=object) if extension else np.asarray(column)


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are NaN, None, NaT or pandas' NA."""
    kind = values.dtype.kind
    if kind in "biuSU":
        return np.zeros(len(values), dtype=bool)
    if kind in "fc":
        return np.asarray(np.isnan(values))
    if kind in "mM":
        return np.asarray(np.isnat(values))
    return np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def encode_classes(values: NDArray[Any]) -> tuple[Ints, int]:
    """Class number of each value, -1 where it is missing, and the number of classes."""
    codes = np.full(len(values), -1, dtype=np.intp)
    known = ~missing(values)
    present = values[known]
    if len(present) == 0:
        return codes, 0
    if present.dtype.kind in "iub":
        present = present.astype(np.int64) if present.dtype.kind != "u" else present
        low, high = present.min(), present.max()
        if int(high) - int(low) <= 4 * len(present):
            offset = (present - low).astype(np.intp)
            used = np.bincount(offset) > 0
            codes[known] = (np.cumsum(used) - 1)[offset]
            return codes, int(used.sum())
    if present.dtype.kind == "O":
        numbers: dict[Any, int] = {}
        codes[known] = [numbers.setdefault(value, len(numbers)) for value in present]
        return codes, len(numbers)
    distinct, inverse = np.unique(present, return_inverse=True)
    codes[known] = inverse.ravel()
    return codes, len(distinct)


def numeric(values: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Values as float64 with NaN for missing; a ValueError if they are not numbers."""
    gone = missing(values)
    if values.dtype.kind in "mM":
        unit = "datetime64[ns]" if values.dtype.kind == "M" else "timedelta64[ns]"
        return np.asarray(np.where(gone, np.nan, values.astype(unit).astype(np.int64)), dtype=np.float64)
    try:
        out = np.full(len(values), np.nan)
        out[~gone] = values[~gone].astype(np.float64)
    except (TypeError, ValueError):
        example = next((value for value in values[~gone]), None)
        raise ValueError(
            f"{what} orders samples by a numeric label, but the label holds values such as {example!r}; "
            "use ClusteredGraph for classes"
        ) from None
    if np.isinf(out).any():
        raise ValueError(f"{what}: the label holds infinite values; use NaN for missing ones")
    return out


def is_discrete(values: NDArray[Any]) -> bool:
    """Whether a label names classes: strings, booleans, or at most 20 distinct whole numbers."""
    present = values[~missing(values)]
    if present.dtype.kind in "bSU":
        return True
    if present.dtype.kind == "O":
        if any(isinstance(value, str | bytes | bool | np.bool_) for value in present):
            return True
        try:
            present = present.astype(np.float64)
        except (TypeError, ValueError):
            return True
    if present.dtype.kind not in "iuf" or len(present) == 0:
        return False
    head = np.unique(present[:1000])
    if len(head) > 20 or np.any(head != np.floor(head)):
        return False
    distinct = np.unique(present)
    return len(distinct) <= 20 and bool(np.all(distinct == np.floor(distinct)))
