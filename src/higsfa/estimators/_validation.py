"""Checks that all estimators share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """A failed call leaves the estimator as it was."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def product_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Precision of the products for data of this type."""
    single = dtype in (np.float32, np.float16, np.uint8)
    return np.dtype(np.float32 if single else np.float64)


def check_data(estimator: BaseEstimator, X: Any, *, reset: bool, min_samples: int = 1) -> np.ndarray:
    """X as a numeric (N, I) array or memmap, not copied if it is one.

    When fitting, NaN and infinity are found afterwards, from the sums, which is free; see `report_not_finite`.
    """
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype="numeric",
        ensure_all_finite=not reset,
        ensure_min_samples=min_samples,
    )
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")
    return X


def report_not_finite(estimator: BaseEstimator, X: np.ndarray) -> None:
    """Raise the error that explains why sums are not finite."""
    step = max(1, 2**22 // max(1, X.shape[1]))
    for lo in range(0, len(X), step):
        assert_all_finite(X[lo : lo + step], estimator_name=type(estimator).__name__, input_name="X")
    raise ValueError(
        f"X holds numbers too large for {product_dtype(X.dtype)} (their products overflow): scale X down"
        + (", or pass it as float64" if product_dtype(X.dtype) == np.float32 else "")
    )
