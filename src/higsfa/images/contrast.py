"""The same brightness and contrast for all pictures."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from higsfa.images._types import full_range, stored

__all__ = ["normalize_contrast"]

LEAST_DEVIATION = 1e-6
"""A window of floats that varies less than this counts as constant."""
BLOCK_IMAGES = 32
"""Pictures at a time, so that what is computed in between stays in the cache."""


def normalize_contrast(
    images: ArrayLike, mean: ArrayLike = 0.5, std: ArrayLike = 0.16, window: float = 0.7, *, clip: bool = True
) -> NDArray[Any]:
    """Set the mean and the standard deviation of the middle of each picture.

    Grey values are stretched and shifted, all those of a picture by the same amounts, so that the pixels in the middle,
    the face and not the background, have the mean and the standard deviation asked for.

    Parameters
    ----------
    images : array of shape (height, width), (n, height, width) or (n, height, width, channels)
        Integers, or floats from 0 to 1. The channels of a coloured picture are taken together.
    mean, std : float, or array of shape (n,), default=0.5 and 0.16
        On the scale from 0 to 1, whatever the type of the pictures.
    window : float, default=0.7
        Side of the middle, as a part of the height and of the width.
    clip : bool, default=True
        Cut floats off at 0 and 1. Integers are always rounded and cut off.

    Returns
    -------
    array of the same shape and type

    Notes
    -----
    A picture whose middle is constant becomes uniformly grey, of the mean asked for.

    The paper varies mean and standard deviation a little from copy to copy of a training picture. Given normalised
    pictures, :class:`~higsfa.images.Distortion` does that: it stretches about mid-grey, so
    ``Distortion(contrast=0.1, brightness=0.03)`` makes copies whose middle has a mean of 0.5 + b and a standard
    deviation of 0.16 c, with b from -0.03 to 0.03 and c from 0.9 to 1.1, but for what is cut off and what warping
    smooths. For other targets give `mean` and `std` as arrays, one number for each picture.

    Examples
    --------
    >>> dark = np.random.default_rng(0).integers(0, 90, size=(5, 96, 96)).astype(np.uint8)
    >>> even = normalize_contrast(dark)
    >>> middle = even[:, 14:-14, 14:-14] / 255
    >>> np.round(middle.mean(axis=(1, 2)), 2).tolist(), np.round(middle.std(axis=(1, 2)), 2).tolist()
    ([0.5, 0.5, 0.5, 0.5, 0.5], [0.16, 0.16, 0.16, 0.16, 0.16])
    """
    images = np.asarray(images)
    low, high = full_range(images)
    if images.ndim not in (2, 3, 4):
        raise ValueError(f"images: shape (height, width), (n, height, width) or with channels, got {images.shape}")
    if not 0 < window <= 1:
        raise ValueError(f"window={window!r} is a part of the picture and must lie in 0 .. 1")
    batch = images[None] if images.ndim == 2 else images
    try:
        wanted_mean, wanted_std = (np.broadcast_to(value, len(batch)) for value in (mean, std))
    except ValueError:
        raise ValueError(f"mean and std must be numbers, or arrays with one for each of {len(batch)} images") from None
    if not np.all(wanted_std >= 0):
        raise ValueError(f"std={std!r} must not be negative")
    out = np.empty(batch.shape, dtype=images.dtype)
    for lo in range(0, len(batch), BLOCK_IMAGES):
        part = slice(lo, lo + BLOCK_IMAGES)
        gain, offset = _stretch(batch[part], wanted_mean[part], wanted_std[part], window, low, high)
        out[part] = stored(batch[part] * gain + offset, images.dtype, clip)
    return out.reshape(images.shape)


def _stretch(
    batch: NDArray[Any], mean: NDArray[Any], std: NDArray[Any], window: float, low: float, high: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What to multiply the grey values of each picture by, and what to add to them then."""
    rows, columns = (_middle(size, window) for size in batch.shape[1:3])
    middle = batch[:, rows, columns].reshape(len(batch), -1)
    found_mean = middle.mean(axis=1, dtype=np.float64)
    found_std = middle.std(axis=1, dtype=np.float64)
    varies = found_std > LEAST_DEVIATION
    gain = np.divide(std * (high - low), found_std, out=np.zeros(len(batch)), where=varies)
    offset = low + mean * (high - low) - gain * found_mean
    work = np.result_type(batch.dtype, np.float32)
    shape = (len(batch), *(1 for _ in batch.shape[1:]))
    return gain.astype(work).reshape(shape), offset.astype(work).reshape(shape)


def _middle(size: int, window: float) -> slice:
    """At least this part of so many pixels; as many are left out at one end as at the other."""
    left_out = min(floor(size * (1 - window) / 2 + 1e-9), (size - 1) // 2)
    return slice(left_out, size - left_out)
