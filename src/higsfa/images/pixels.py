"""Pixels: the range of each dtype, equal brightness and contrast in all pictures, and oriented edges."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from higsfa.core.edges import Edges

MODES = ("L", "RGB", "I;16", "F")  # of PIL images whose numbers are grey values, not indices or transparency
LEAST_DEVIATION = 1e-6  # a window with a smaller standard deviation counts as constant
BLOCK_IMAGES = 32  # at a time, so that intermediate results stay in the cache


def as_picture(image: Any) -> NDArray[Any]:
    """A PIL image or an array as an array (height, width) or (height, width, channels)."""
    if isinstance(image, Image.Image) and image.mode not in MODES:
        raise ValueError(f"image: pixels of mode {image.mode!r} are no grey values; use image.convert('L') or 'RGB'")
    picture = np.asarray(image)
    check_range(picture)
    if picture.ndim not in (2, 3) or picture.size == 0:
        raise ValueError(f"image must have shape (height, width) or (height, width, channels), got {picture.shape}")
    return picture


def limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Black and white in pixels of this dtype."""
    return (0.0, 1.0) if dtype.kind == "f" else (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))


def full_range(picture: NDArray[Any]) -> tuple[float, float]:
    """Black and white of a picture; unusual dtypes are refused."""
    dtype = picture.dtype
    if dtype.kind not in "fiu" or (dtype.kind != "f" and dtype.itemsize > 2):
        raise TypeError(
            f"pictures must be integers of 8 or 16 bits or floats, got {dtype}; convert them to uint8 first"
        )
    return limits(dtype)


def check_range(picture: NDArray[Any]) -> tuple[float, float]:
    """Black and white; floats must be from 0 to 1, but interpolation may overshoot a little."""
    low, high = full_range(picture)
    if picture.dtype.kind == "f" and np.any((picture < low - 1) | (picture > high + 1)):
        raise ValueError(
            f"floats must be grey values from 0 to 1, got {np.nanmin(picture):g} to {np.nanmax(picture):g}; "
            "divide by the value of white, such as 255"
        )
    return low, high


def stored(grey: NDArray[Any], dtype: np.dtype[Any], clip: bool = True) -> NDArray[Any]:
    """Grey values in a dtype: integers are rounded and clipped to their range, floats clipped if asked for."""
    if dtype.kind != "f":
        whole = np.rint(grey)
        return np.clip(whole, *limits(dtype), out=whole).astype(dtype)
    return (np.clip(grey, 0.0, 1.0) if clip else grey).astype(dtype)


def normalize_contrast(
    images: ArrayLike, mean: ArrayLike = 0.5, std: ArrayLike = 0.16, window: float = 0.7, *, clip: bool = True
) -> NDArray[Any]:
    """Scale and shift the grey values of each picture so that its middle gets a given mean and standard deviation.

    Parameters
    ----------
    images : array of shape (height, width), (n, height, width) or (n, height, width, channels)
        Integers, or floats from 0 to 1. The channels of a colour picture are treated as one.
    mean, std : float, or array of shape (n,), default=0.5 and 0.16
        On a scale from 0 to 1 for every dtype; an array has one value per picture.
    window : float, default=0.7
        Side of the middle, which shows the face, as a fraction of height and width.
    clip : bool, default=True
        Clip floats to 0 .. 1. Integers are always rounded and clipped.

    Returns
    -------
    array of the same shape and dtype

    Notes
    -----
    A picture whose middle is constant becomes a constant of the given mean. The paper varies mean and standard
    deviation slightly between training copies; ``Distortion(contrast=0.1, brightness=0.03)`` does so, with means from
    0.47 to 0.53 and standard deviations from 0.9 to 1.1 times 0.16.

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
        raise ValueError(f"images must be (height, width), (n, height, width) or with channels, got {images.shape}")
    if not 0 < window <= 1:
        raise ValueError(f"window={window!r} is a fraction of the picture and must be above 0 and at most 1")
    batch = images[None] if images.ndim == 2 else images
    try:
        wanted_mean, wanted_std = (np.broadcast_to(value, len(batch)) for value in (mean, std))
    except ValueError:
        raise ValueError(f"mean and std must be numbers, or arrays with one for each of {len(batch)} images") from None
    if not np.all(wanted_std >= 0):
        raise ValueError(f"std={std!r} must be at least 0")
    borders = (min(floor(size * (1 - window) / 2 + 1e-9), (size - 1) // 2) for size in batch.shape[1:3])
    rows, columns = (slice(border, size - border) for border, size in zip(borders, batch.shape[1:3], strict=True))
    out, work = np.empty(batch.shape, dtype=images.dtype), np.result_type(images.dtype, np.float32)
    for lo in range(0, len(batch), BLOCK_IMAGES):
        part = slice(lo, lo + BLOCK_IMAGES)
        middle = batch[part, rows, columns].reshape(len(batch[part]), -1)
        found_mean, found_std = middle.mean(axis=1, dtype=np.float64), middle.std(axis=1, dtype=np.float64)
        gain = np.zeros(len(middle))
        np.divide(wanted_std[part] * (high - low), found_std, out=gain, where=found_std > LEAST_DEVIATION)
        offset = low + wanted_mean[part] * (high - low) - gain * found_mean
        gain, offset = (values.astype(work).reshape(-1, *[1] * (batch.ndim - 1)) for values in (gain, offset))
        out[part] = stored(batch[part] * gain + offset, images.dtype, clip)
    return out.reshape(images.shape)


def oriented_edges(images: ArrayLike, cell: int = 4, directions: int = 12) -> NDArray[np.float32]:
    """Strength of edges in each direction, in each cell of pictures.

    What :class:`higsfa.OrientedEdges` computes, without anything to fit. Networks do it by themselves, see the
    parameter `front` of :class:`higsfa.HiGSFA`.

    Parameters
    ----------
    images : array of shape (n, height, width) or (n, height, width, channels)
        Integers, or floats from 0 to 1. Pictures that do not divide into cells are continued at their borders.
    cell : int, default=4
        Side of a cell in pixels.
    directions : int, default=12
        Directions from dark to bright around the circle: channel 0 is brighter to the right, the next turn clockwise.

    Returns
    -------
    array of float32, of shape (n, height / cell, width / cell, directions + channels)
        The last channels are the mean brightness, relative to the picture, and how far colours differ from it.

    Examples
    --------
    >>> brighter_to_the_right = np.tile(np.linspace(0, 1, 64), (5, 64, 1))
    >>> edges = oriented_edges(brighter_to_the_right)
    >>> edges.shape, int(edges[0, 8, 8, :12].argmax())
    ((5, 16, 16, 13), 0)
    """
    images = np.asarray(images)
    for name, value in (("cell", cell), ("directions", directions)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r} must be an integer of at least 1")
    if images.ndim not in (3, 4) or 0 in images.shape[1:]:
        raise ValueError(
            f"images must have shape (n, height, width) or (n, height, width, channels), got {images.shape}"
        )
    black, white = check_range(images)
    return Edges(images.shape[1:], int(cell), int(directions), black, white)(images)
