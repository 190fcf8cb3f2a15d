"""Positions in pictures, and grey values between pixels.

All of :mod:`higsfa.images` follows one convention:

- A picture is an array (height, width) or (height, width, channels). Sizes are (height, width).
- A position is (x, y) in pixels, x to the right and y down. Integers are centres of pixels, (0, 0) that of the top left
  one. So a picture extends from -0.5 to width - 0.5 and has its centre at (width - 1) / 2.
- Angles are in degrees, counter-clockwise as seen. Outside a picture, the pixels at its border are repeated.

:func:`warp` reads one large photograph through Pillow, with antialiasing. :class:`Warp` reads batches of small images,
with the same bits on every machine and for every batch: positions are integers, multiples of 2^-20 pixels, and grey
values are computed by single IEEE operations in a fixed order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import accumulate
from math import ceil, floor, hypot, prod, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from higsfa.core.native.warp import Positions, can_warp
from higsfa.core.native.warp import warp as warp_images

Floats = NDArray[np.float64]

MAX_SAMPLES = 8  # in either direction, averaged for a pixel of a result; larger pictures are reduced first
MAX_POSITION, MAX_SCALE = 1e6, 1e4  # anything beyond is a mistake
FRACTION = 20  # fractional bits of a position
BATCH_PIXELS = 2**15  # the arrays in use then stay in the second-level cache
SINGLE = tuple(np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, np.float16, np.float32))
DOUBLE = tuple(np.dtype(t) for t in (np.uint32, np.int32, np.float64))
POLE = sqrt(3.0) - 2.0  # x + 4 + 1/x = (1 - POLE x) (1 - POLE / x) / -POLE


class Similarity(NamedTuple):
    """A map from positions in a result to the picture it is read from: p -> A p + b, A = [[a, -c], [c, a]], b = (x, y).

    Steps are composed as similarities, so that pixels are read only once.
    """

    a: float
    c: float
    x: float
    y: float

    @property
    def scale(self) -> float:
        """Size of a pixel of the result, in pixels of the picture."""
        return hypot(self.a, self.c)

    def __call__(self, x: Any, y: Any) -> tuple[Any, Any]:
        return self.a * x - self.c * y + self.x, self.c * x + self.a * y + self.y

    def after(self, first: Similarity) -> Similarity:
        """The composition: `first` is applied first, then this map."""
        a, c = self.a * first.a - self.c * first.c, self.a * first.c + self.c * first.a
        return Similarity(a, c, *self(first.x, first.y))


def centered(size: tuple[int, int], shape: tuple[int, int], scale: float, shift_up: float = 0.0) -> Similarity:
    """From the centre of a result of this size to the centre of a picture of this shape, or above it."""
    x = (shape[1] - 1) / 2 - scale * (size[1] - 1) / 2
    return Similarity(scale, 0.0, x, (shape[0] - 1) / 2 - shift_up - scale * (size[0] - 1) / 2)


def warp(picture: NDArray[Any], where: Similarity, size: tuple[int, int]) -> NDArray[np.float32]:
    """Read a picture of this size whose pixel (x, y) is at ``where(x, y)`` in the given picture.

    If the result is coarser than the picture, each pixel is the mean of bilinear samples of its square that are at most
    one pixel of the picture apart.
    """
    height, width = picture.shape[:2]
    # A larger scale would read mostly repeated borders, which take memory.
    max_scale = min(MAX_SCALE, MAX_SAMPLES * max(height, width))
    if not (0 < where.scale <= max_scale and abs(where.x) < MAX_POSITION and abs(where.y) < MAX_POSITION):
        raise ValueError(f"the result would lie at {where}, which is not near the picture of {width} x {height} pixels")
    planes = picture[:, :, None] if picture.ndim == 2 else picture
    warped = [_warp_plane(planes[:, :, channel], where, size) for channel in range(planes.shape[2])]
    return warped[0] if picture.ndim == 2 else np.stack(warped, axis=2)


def _warp_plane(plane: NDArray[Any], where: Similarity, size: tuple[int, int]) -> NDArray[np.float32]:
    if where.scale > MAX_SAMPLES:
        factor = floor(2 * where.scale / MAX_SAMPLES)
        large = Image.fromarray(np.ascontiguousarray(plane)) if plane.dtype == np.uint8 else _as_float(plane)
        plane = np.asarray(large.reduce(factor))
        # The centre of a reduced pixel is the centre of the `factor` pixels that it is the mean of.
        where = Similarity(1 / factor, 0.0, (1 - factor) / (2 * factor), (1 - factor) / (2 * factor)).after(where)
    n = max(1, ceil(where.scale - 1e-9))
    fine = where.after(Similarity(1 / n, 0.0, (1 - n) / (2 * n), (1 - n) / (2 * n)))
    height, width = n * size[0], n * size[1]
    # The part of the picture that the result reads, with repeated borders.
    x, y = fine(np.array([0, width, 0, width]) - 0.5, np.array([0, 0, height, height]) - 0.5)
    columns, rows = (np.arange(floor(p.min()) - 1, ceil(p.max()) + 2) for p in (x, y))
    part = plane[np.ix_(np.clip(rows, 0, plane.shape[0] - 1), np.clip(columns, 0, plane.shape[1] - 1))]
    # Pillow's origin is the corner of the first pixel, not its centre; x[0], y[0] is the corner of the result.
    data = (fine.a, -fine.c, x[0] - columns[0] + 0.5, fine.c, fine.a, y[0] - rows[0] + 0.5)
    read = _as_float(part).transform((width, height), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(read if n == 1 else read.reduce(n))


def _as_float(plane: NDArray[Any]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type to compute pixels of this dtype in."""
    return np.dtype(np.float64 if dtype in DOUBLE else np.float32)


class Warp(ABC):
    """Reads batches of images at given positions; subclasses interpolate."""

    taps: ClassVar[int]
    """Number of neighbours, in either direction, that a grey value is computed from."""
    margin = 0
    """Number of pixels beyond the neighbours, to either side, that a grey value depends on."""

    def __init__(self, n_images: int, height: int, width: int, reach: float, dtype: np.dtype[Any]) -> None:
        self.height, self.width = height, width
        self.batch = min(n_images, max(1, BATCH_PIXELS // (height * width)))
        self.real = real_of(dtype)
        self.integer = np.int32 if reach * 2**FRACTION < 2**31 else np.int64
        # Size of an image in memory, with the neighbours of pixels at the border.
        self.rows, self.stride = height + self.taps - 1 + 2 * self.margin, width + self.taps - 1

    def locate(self, along_x: Floats, across_x: Floats, along_y: Floats, across_y: Floats) -> None:
        """Set positions to x = along_x[c] + across_x[r], y = along_y[c] + across_y[r] for columns c and rows r."""
        parts = (np.rint(part * 2**FRACTION) for part in (along_x, across_x, along_y, across_y))
        self.positions = Positions(*(part.astype(self.integer) for part in parts))

    def _indices(self) -> None:
        """Positions of all pixels: the index of the top left neighbour, and the distances right and down from there."""
        x_columns, x_rows, y_columns, y_rows = self.positions
        self.index = np.empty((len(x_columns), self.height, self.width), dtype=np.intp)
        self.index[...] = (np.arange(len(x_columns)) * self.rows * self.stride)[:, None, None]
        offsets = []
        axes = (x_columns, x_rows, self.width, 1), (y_columns, y_rows, self.height, self.stride)
        for column, row, size, step in axes:
            position = column[:, None, :] + row[:, :, None]
            np.clip(position, 0, (size - 1) << FRACTION, out=position)
            self.index += np.multiply(position >> FRACTION, step, dtype=np.intp)
            position &= (1 << FRACTION) - 1
            offsets.append(np.multiply(position, 2.0**-FRACTION, dtype=self.real, casting="unsafe"))
        self.right, self.down = offsets

    @abstractmethod
    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        """Grey values of a batch at the positions set by `locate`; the next call may overwrite them."""


class LinearWarp(Warp):
    """Bilinear interpolation between 2 x 2 neighbours."""

    taps = 2

    def locate(self, along_x: Floats, across_x: Floats, along_y: Floats, across_y: Floats) -> None:
        super().locate(along_x, across_x, along_y, across_y)
        self._indices()

    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        padded = np.empty((len(plane), self.rows, self.stride), dtype=self.real)
        padded[:, :-1, :-1], padded[:, :-1, -1] = plane, plane[:, :, -1]
        padded[:, -1] = padded[:, -2]
        offsets = (0, 1, self.stride, self.stride + 1)
        a, b, c, d = (padded.reshape(-1)[offset:].take(self.index, mode="clip") for offset in offsets)
        for left, right, weight in ((a, b, self.right), (c, d, self.right), (a, c, self.down)):
            right -= left
            right *= weight
            left += right
        return np.asarray(a)


class CubicWarp(Warp):
    """Interpolation by cubic B-splines: a smooth, piecewise cubic surface through all pixels.

    A grey value is a weighted sum of the coefficients of 4 x 4 neighbours. At a pixel the weights are (1, 4, 1) / 6 in
    either direction, so the coefficients are the image divided by (x + 4 + 1/x) / 6, where x is a step by one pixel.
    The 6 is left out both there and in the weights. Borders are repeated before coefficients are computed.
    """

    taps = 4

    def __init__(self, n_images: int, height: int, width: int, reach: float, dtype: np.dtype[Any]) -> None:
        # Factors of the inverse. What is left out, POLE^16 = 7e-10 or POLE^32, is less than rounding errors.
        self.steps = 4 if real_of(dtype) == np.float32 else 5
        self.margin = 2**self.steps - 1
        super().__init__(n_images, height, width, reach, dtype)
        self.wide = self.stride + 2 * self.margin
        length = self.batch * max(height * self.wide, self.rows * self.stride)
        self.buffers = [np.zeros(length, dtype=self.real) for _ in range(2)]
        self.scratch = np.empty((3, self.batch, height, width), dtype=self.real)
        self.is_compiled = can_warp(self.rows * self.stride, self.real, self.integer)

    def locate(self, along_x: Floats, across_x: Floats, along_y: Floats, across_y: Floats) -> None:
        super().locate(along_x, across_x, along_y, across_y)
        if self.is_compiled:
            return
        self._indices()
        weights = []
        for offset in (self.right, self.down):  # six times the B-spline at -1, 0, 1 and 2 minus the offset
            rest, square = 1.0 - offset, offset * offset
            a, b, d = rest * rest * rest, (3.0 * offset - 6.0) * square + 4.0, square * offset
            weights.append((a, b, 6.0 - a - b - d, d))
        self.rights, self.downs = weights

    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        coefficients = self._coefficients(plane)
        grey, line, term = (array[: len(plane)] for array in self.scratch)
        if self.is_compiled:
            warp_images(coefficients, (self.rows, self.stride), self.margin, self.positions, FRACTION, grey)
            return grey
        flat = coefficients[self.margin * self.stride :]
        for i, down in enumerate(self.downs):
            for j, right in enumerate(self.rights):
                read = term if j else line
                np.take(flat[i * self.stride + j :], self.index, out=read, mode="clip")
                read *= right
                if j:
                    line += term
            np.multiply(line, down, out=term if i else grey)
            if i:
                grey += term
        return grey

    def _coefficients(self, plane: NDArray[Any]) -> NDArray[Any]:
        """Coefficients of a batch, flat; `margin` rows above and below each image are not valid."""
        n, before = len(plane), self.margin + 1
        image, scratch = self.buffers
        across = image[: n * self.height * self.wide].reshape(n, self.height, self.wide)
        across[:, :, before : before + self.width] = plane
        across[:, :, :before] = plane[:, :, :1]
        across[:, :, before + self.width :] = plane[:, :, -1:]
        image, scratch = _divided(image, scratch, across.size, 1, self.steps)
        across = image[: across.size].reshape(across.shape)[:, :, self.margin : self.margin + self.stride]
        down = scratch[: n * self.rows * self.stride].reshape(n, self.rows, self.stride)
        inner = down[:, before : before + self.height]
        gain = -POLE * prod(1.0 + power * power for power in _powers(self.steps))  # which _divided leaves out
        np.multiply(across, gain**2, out=inner)
        down[:, :before] = inner[:, :1]
        down[:, before + self.height :] = inner[:, -1:]
        return _divided(scratch, image, down.size, self.stride, self.steps)[0]


def _divided(values: NDArray[Any], scratch: NDArray[Any], size: int, step: int, steps: int) -> tuple[Any, Any]:
    """Divide the first `size` values by x + 4 + 1/x, where x is a shift by `step`, up to a factor.

    1 / (1 - p x) is the product of 1 + p x, 1 + p^2 x^2, 1 + p^4 x^4 and so on. `steps` of these factors are taken,
    each together with its mirror image, which makes 2^steps - 1 shifts at either end invalid. Returns the result and
    the other array.
    """
    for k, power in enumerate(_powers(steps)):
        reach = step << k
        old, new = values[:size], scratch[reach : size - reach]
        np.add(old[: -2 * reach], old[2 * reach :], out=new)
        new *= power / (1.0 + power * power)
        new += old[reach:-reach]
        values, scratch = scratch, values
    return values, scratch


def _powers(steps: int) -> list[float]:
    """POLE to the powers 1, 2, 4 and so on, by products: libraries differ in the last bit of powers."""
    return list(accumulate(range(1, steps), lambda power, _: power * power, initial=POLE))
