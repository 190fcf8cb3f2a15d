"""Oriented edges pooled in cells, as a function of pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from higsfa.core.edges import Edges
from higsfa.images.pixels import check_range


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
