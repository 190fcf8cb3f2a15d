"""Pictures as users bring them: types of pixels and their range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_picture(image: Any) -> NDArray[Any]:
    """A PIL image or an array as an array (height, width) or (height, width, channels)."""
    picture = np.asarray(image)
    full_range(picture)
    if picture.ndim not in (2, 3) or picture.size == 0:
        raise ValueError(f"image: shape (height, width) or (height, width, channels), got {picture.shape}")
    return picture


def full_range(picture: NDArray[Any]) -> tuple[float, float]:
    """Black and white of the type of a picture."""
    if picture.dtype.kind == "f":
        return 0.0, 1.0
    if picture.dtype.kind not in "iu":
        raise TypeError(f"pictures must be integers or floats, got {picture.dtype}; convert them to uint8 first")
    limits = np.iinfo(picture.dtype)
    return float(limits.min), float(limits.max)


def stored(grey: NDArray[Any], dtype: np.dtype[Any], clip: bool = True) -> NDArray[Any]:
    """Grey values in the range of a type as values of that type."""
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(grey), limits.min, limits.max).astype(dtype)
    return (np.clip(grey, 0.0, 1.0) if clip else grey).astype(dtype, copy=False)
