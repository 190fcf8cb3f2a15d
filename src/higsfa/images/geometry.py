"""Where the pixels of a picture come from, and how they are read there.

The convention of this package, the same as in :class:`higsfa.images.Distortion`:

- A picture is an array (height, width), or (height, width, channels); sizes are (height, width).
- A place is (x, y): x to the right, y down, in pixels. Whole numbers are the centres of pixels, (0, 0) that of the one
  at the top left. So a picture reaches from -0.5 to width - 0.5, and its centre is ((width - 1) / 2, (height - 1) / 2).
- Angles are counter-clockwise as seen, in degrees. Beyond the border the pixels at the border are repeated.

A :class:`Similarity` tells where in a picture the pixels of another one lie. Steps are composed as similarities, and
only then are pixels read, once, by :func:`warp`.
"""

from __future__ import annotations

from math import ceil, floor, hypot
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["Similarity", "warp"]

MOST_SAMPLES = 8
"""A pixel of the result is the mean of at most so many samples in either direction; larger pictures shrink first."""
FARTHEST = 1e6
"""Places further out than this are mistakes."""
COARSEST = 1e4
"""Pixels of the result that are larger than this are mistakes."""


class Similarity(NamedTuple):
    """A turn, a change of scale and a shift: place p of one picture is place A p + b of another.

    A = [[a, -c], [c, a]], b = (x, y).
    """

    a: float
    c: float
    x: float
    y: float

    @property
    def scale(self) -> float:
        """Pixels there for one pixel here."""
        return hypot(self.a, self.c)

    def __call__(self, x: Any, y: Any) -> tuple[Any, Any]:
        return self.a * x - self.c * y + self.x, self.c * x + self.a * y + self.y

    def after(self, first: Similarity) -> Similarity:
        """This map of what `first` gives."""
        a, c = self.a * first.a - self.c * first.c, self.a * first.c + self.c * first.a
        return Similarity(a, c, *self(first.x, first.y))

    @property
    def inverse(self) -> Similarity:
        square = self.a**2 + self.c**2
        back = Similarity(self.a / square, -self.c / square, 0.0, 0.0)
        x, y = back(self.x, self.y)
        return back._replace(x=-x, y=-y)


def centered(size: tuple[int, int], on: tuple[float, float], scale: float) -> Similarity:
    """The map that puts the centre of a picture of this size on a place, with so many pixels there for one here."""
    height, width = size
    return Similarity(scale, 0.0, on[0] - scale * (width - 1) / 2, on[1] - scale * (height - 1) / 2)


def center_of(size: tuple[int, int]) -> tuple[float, float]:
    height, width = size
    return (width - 1) / 2, (height - 1) / 2


def warp(picture: NDArray[Any], where: Similarity, size: tuple[int, int]) -> NDArray[np.float32]:
    """The picture of this size whose pixel (x, y) lies at ``where(x, y)``.

    A result that is coarser than the picture is antialiased: each of its pixels is the mean over its square, taken from
    bilinear samples that are at most a pixel of the original apart.

    Parameters
    ----------
    picture : array of shape (height, width) or (height, width, channels)
    where : Similarity
        From places in the result to places in the picture.
    size : (height, width)

    Returns
    -------
    array of the size, with the channels of the picture, in the grey values of the picture
    """
    height, width = picture.shape[:2]
    # Larger ones would be made of repeated borders, which take memory.
    coarsest = min(COARSEST, MOST_SAMPLES * max(height, width))
    if not (0 < where.scale <= coarsest and abs(where.x) < FARTHEST and abs(where.y) < FARTHEST):
        raise ValueError(f"the result would lie at {where}, which is not near the picture of {width} x {height} pixels")
    planes = picture[:, :, None] if picture.ndim == 2 else picture
    warped = [_warp_plane(planes[:, :, channel], where, size) for channel in range(planes.shape[2])]
    return warped[0] if picture.ndim == 2 else np.stack(warped, axis=2)


def _warp_plane(plane: NDArray[Any], where: Similarity, size: tuple[int, int]) -> NDArray[np.float32]:
    if where.scale > MOST_SAMPLES:
        factor = floor(2 * where.scale / MOST_SAMPLES)
        small = Image.fromarray(np.ascontiguousarray(plane)) if plane.dtype == np.uint8 else _as_float(plane)
        plane = np.asarray(small.reduce(factor))
        # The centre of a reduced pixel is that of the `factor` pixels it is made of.
        where = Similarity(1 / factor, 0.0, (1 - factor) / (2 * factor), (1 - factor) / (2 * factor)).after(where)
    n = max(1, ceil(where.scale - 1e-9))
    fine = where.after(Similarity(1 / n, 0.0, (1 - n) / (2 * n), (1 - n) / (2 * n)))
    height, width = n * size[0], n * size[1]
    part, left, top = _surroundings(plane, fine, height, width)
    # Pillow counts from the corner of the first pixel, not from its centre.
    x, y = fine(-0.5, -0.5)
    data = (fine.a, -fine.c, x - left + 0.5, fine.c, fine.a, y - top + 0.5)
    read = _as_float(part).transform((width, height), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(read if n == 1 else read.reduce(n))


def _surroundings(plane: NDArray[Any], where: Similarity, height: int, width: int) -> tuple[NDArray[Any], int, int]:
    """The part of a picture that a result needs, with repeated borders, and the place of its first pixel."""
    x, y = where(np.array([0, width, 0, width]) - 0.5, np.array([0, 0, height, height]) - 0.5)
    columns, rows = (np.arange(floor(p.min()) - 1, ceil(p.max()) + 2) for p in (x, y))
    inside = np.ix_(np.clip(rows, 0, plane.shape[0] - 1), np.clip(columns, 0, plane.shape[1] - 1))
    return plane[inside], int(columns[0]), int(rows[0])


def _as_float(plane: NDArray[Any]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
