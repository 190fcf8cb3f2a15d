"""Pictures as users bring them: types of pixels and their range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MODES = ("L", "RGB", "I;16", "F")
"""PIL images whose numbers are grey values: palettes hold indices, and transparency is no colour."""


def as_picture(image: Any) -> NDArray[Any]:
    """A PIL image or an array as an array (height, width) or (height, width, channels)."""
    if isinstance(image, Image.Image) and image.mode not in MODES:
        raise ValueError(f"image: pixels of mode {image.mode!r} are no grey values; use image.convert('L') or 'RGB'")
    picture = np.asarray(image)
    check_range(picture)
    if picture.ndim not in (2, 3) or picture.size == 0:
        raise ValueError(f"image: shape (height, width) or (height, width, channels), got {picture.shape}")
    return picture


def full_range(picture: NDArray[Any]) -> tuple[float, float]:
    """Black and white of the type of a picture."""
    if picture.dtype.kind == "f":
        return 0.0, 1.0
    if picture.dtype.kind not in "iu" or picture.dtype.itemsize > 2:
        raise TypeError(
            f"pictures must be integers of 8 or 16 bits or floats, got {picture.dtype}; convert them to uint8 first"
        )
    limits = np.iinfo(picture.dtype)
    return limits.min, limits.max


def check_range(picture: NDArray[Any]) -> None:
    """Refuse floats that cannot be grey values from 0 to 1, such as 0 to 255; interpolation overshoots a little."""
    low, high = full_range(picture)
    if picture.dtype.kind == "f" and np.any((picture < low - 1) | (picture > high + 1)):
        raise ValueError(
            f"floats must be grey values from 0 to 1, got {np.nanmin(picture):g} to {np.nanmax(picture):g}; "
            "divide by the value of white, such as 255"
        )


def stored(grey: NDArray[Any], dtype: np.dtype[Any], clip: bool) -> NDArray[Any]:
    """Grey values in the range of a type as values of that type."""
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(grey), limits.min, limits.max).astype(dtype)
    return (np.clip(grey, 0.0, 1.0) if clip else grey).astype(dtype)
