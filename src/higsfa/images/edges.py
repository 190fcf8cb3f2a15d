"""Oriented edges pooled in cells: fixed features of photographs, as the input of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from higsfa.images.pixels import check_range


def oriented_edges(images: ArrayLike, cell: int = 4, directions: int = 12, batch: int = 32) -> NDArray[np.float32]:
    """Strength of edges in each direction, in each cell of grey images.

    A fixed front end for networks on photographs, whose pixels depend more on light and skin than on the label. Train
    on ``sources.map(images, oriented_edges)``; :func:`higsfa.presets.photographs` is a network for its output.

    Parameters
    ----------
    images : array of shape (n, height, width)
        Integers, or floats from 0 to 1. Height and width must be multiples of `cell`.
    cell : int, default=4
        Side of a cell in pixels.
    directions : int, default=12
        Directions from dark to bright around the circle: channel 0 is brighter to the right, the next turn clockwise.
    batch : int, default=32
        Images at a time; it does not change the result.

    Returns
    -------
    array of float32, of shape (n, height / cell, width / cell, directions + 1)
        The last channel is the mean grey value, relative to the image.

    Notes
    -----
    The gradient of each pixel is shared out over the directions, averaged with triangular weights that reach half a
    cell into the next cells, and divided by the mean strength of edges in 3 x 3 cells, so that contrast matters little.

    Examples
    --------
    >>> brighter_to_the_right = np.tile(np.linspace(0, 1, 64), (5, 64, 1))
    >>> edges = oriented_edges(brighter_to_the_right)
    >>> edges.shape, int(edges[0, 8, 8, :12].argmax())
    ((5, 16, 16, 13), 0)
    """
    images = np.asarray(images)
    for name, value in (("cell", cell), ("directions", directions), ("batch", batch)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r} must be an integer of at least 1")
    if images.ndim != 3:
        raise ValueError(f"images must be grey, with shape (n, height, width), got {images.shape}")
    n, height, width = images.shape
    if height % cell or width % cell or not height or not width:
        raise ValueError(f"images of {height} x {width} pixels do not divide into cells of {cell} x {cell}; crop them")
    black, white = check_range(images)
    down, right = _triangles(height, cell), _triangles(width, cell).T
    angles = 2 * np.pi / directions * np.arange(directions, dtype=np.float32)
    out = np.empty((n, height // cell, width // cell, directions + 1), np.float32)
    for lo in range(0, n, batch):
        part = slice(lo, lo + batch)
        out[part] = _describe((images[part].astype(np.float32) - black) / (white - black), down, right, angles)
    return out


def _describe(x: NDArray[Any], down: NDArray[Any], right: NDArray[Any], angles: NDArray[Any]) -> NDArray[Any]:
    """All channels of images with values from 0 to 1; ``down @ image @ right`` pools an image in cells."""
    gy, gx = np.zeros_like(x), np.zeros_like(x)
    gy[:, 1:-1], gx[:, :, 1:-1] = (x[:, 2:] - x[:, :-2]) / 2, (x[:, :, 2:] - x[:, :, :-2]) / 2
    strength = np.sqrt(gx**2 + gy**2) + np.float32(1e-6)
    gy, gx = gy / strength, gx / strength
    pooled = []
    for cos, sin in zip(np.cos(angles), np.sin(angles), strict=True):
        share = np.maximum(gx * cos + gy * sin, 0)
        for _ in range(4):
            share *= share  # cos^16, which falls to one half at 17 degrees
        pooled.append(down @ (share * strength) @ right)
    edges = np.stack(pooled, axis=-1)
    energy = np.sqrt(np.sum(edges**2, axis=-1, keepdims=True))
    h, w = energy.shape[1:3]
    around = np.pad(energy, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    local = sum(around[:, i : i + h, j : j + w] for i in range(3) for j in range(3)) / 9
    grey = down @ x @ right
    grey = (grey - grey.mean((1, 2), keepdims=True)) / (grey.std((1, 2), keepdims=True) + 0.05)
    return np.concatenate([np.sqrt(edges / (local + 0.01)), 0.15 * grey[..., None]], axis=-1, dtype=np.float32)


def _triangles(size: int, cell: int) -> NDArray[np.float32]:
    """Weights of pixels in cells, of shape (size / cell, size)."""
    centres = (cell - 1) / 2 + cell * np.arange(size // cell)
    weights = np.maximum(0, 1 - np.abs(np.arange(size) - centres[:, None]) / cell)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
