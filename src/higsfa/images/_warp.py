"""Grey values between pixels, for batches of images, in memory that is used again for each batch.

A place is where a pixel comes from; its coordinates are sums of a term for the column and a term for the row, rounded
to 2^-20 pixels, so that from there on places are integers. Grey values are made by single IEEE operations, each with
its own rounding and in a fixed order: they depend neither on the machine nor on the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import accumulate
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["DOUBLE", "SINGLE", "CubicWarp", "LinearWarp", "Warp"]

Floats = NDArray[np.float64]

FRACTION = 20
"""Bits of a position behind the point."""
BATCH_PIXELS = 2**15
"""Pixels that are warped at a time: the arrays in use then stay in the second-level cache."""
SINGLE = tuple(np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, np.float16, np.float32))
DOUBLE = tuple(np.dtype(t) for t in (np.uint32, np.int32, np.float64))
POLE = sqrt(3.0) - 2.0
"""x + 4 + 1/x = (1 - POLE x) (1 - POLE / x) / -POLE."""


class Warp(ABC):
    """Where the pixels of a batch come from; subclasses read them there."""

    taps: ClassVar[int]
    """Neighbours in either direction that a grey value is made of."""

    def __init__(self, n_images: int, height: int, width: int, reach: float, dtype: np.dtype[Any]) -> None:
        self.height, self.width = height, width
        self.batch = min(n_images, max(1, BATCH_PIXELS // (height * width)))
        self.size = (self.batch, height, width)
        self.real = np.dtype(np.float64 if dtype in DOUBLE else np.float32)
        # Rows and columns of the memory that is read, with those for the neighbours of a pixel at the border.
        self.rows, self.stride = self._layout()
        self.base = (np.arange(self.batch) * self.rows * self.stride)[:, None, None]
        whole = np.int32 if reach * 2**FRACTION < 2**31 else np.int64
        self.x, self.y, self.spare = (np.empty(self.size, dtype=whole) for _ in range(3))
        self.place = np.empty(self.size, dtype=np.intp)
        self.right, self.down, self.grey = (np.empty(self.size, dtype=self.real) for _ in range(3))

    def _layout(self) -> tuple[int, int]:
        return self.height + self.taps - 1, self.width + self.taps - 1

    def aim(self, along_x: Floats, across_x: Floats, along_y: Floats, across_y: Floats) -> None:
        """Note the neighbours of all pixels of a batch, and how far to the right and down of them these lie."""
        n = len(along_x)
        for position, along, across, last in (
            (self.x[:n], along_x, across_x, self.width - 1),
            (self.y[:n], along_y, across_y, self.height - 1),
        ):
            column, row = (np.rint(part * 2**FRACTION).astype(position.dtype) for part in (along, across))
            np.add(column[:, None, :], row[:, :, None], out=position)
            np.clip(position, 0, last << FRACTION, out=position)
        place, spare = self.place[:n], self.spare[:n]
        np.right_shift(self.y[:n], FRACTION, out=spare)
        np.multiply(spare, self.stride, out=place)
        np.right_shift(self.x[:n], FRACTION, out=spare)
        place += spare
        place += self.base[:n]
        for position, offset in ((self.x[:n], self.right[:n]), (self.y[:n], self.down[:n])):
            np.bitwise_and(position, (1 << FRACTION) - 1, out=position)
            np.multiply(position, 2.0**-FRACTION, out=offset, casting="unsafe", dtype=offset.dtype)

    def copy(self, plane: NDArray[Any]) -> NDArray[Any]:
        """The batch as it is, for changing."""
        out = self.grey[: len(plane)]
        out[...] = plane
        return out

    @abstractmethod
    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        """Grey values of a batch at the places aimed at; overwritten by the next call."""


class LinearWarp(Warp):
    """Bilinear interpolation between 2 x 2 neighbours."""

    taps = 2

    def __init__(self, *parameters: Any) -> None:
        super().__init__(*parameters)
        self.padded = np.zeros((self.batch, self.rows, self.stride), dtype=self.real)
        self.corners = [self.grey, *(np.empty(self.size, dtype=self.real) for _ in range(3))]

    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        n = len(plane)
        self.padded[:n, :-1, :-1] = plane
        self.padded[:n, :-1, -1] = plane[:, :, -1]
        self.padded[:n, -1] = self.padded[:n, -2]
        flat, place = self.padded.reshape(-1), self.place[:n]
        a, b, c, d = (corner[:n] for corner in self.corners)
        for corner, offset in ((a, 0), (b, 1), (c, self.stride), (d, self.stride + 1)):
            np.take(flat[offset:], place, out=corner, mode="clip")
        for left, right, weight in ((a, b, self.right), (c, d, self.right), (a, c, self.down)):
            right -= left
            right *= weight[:n]
            left += right
        return a


class CubicWarp(Warp):
    """Interpolation by cubic B-splines: a smooth, piecewise cubic surface through all pixels.

    A grey value is a weighted sum of the coefficients of 4 x 4 neighbours. At a pixel the weights are (1, 4, 1) / 6 in
    either direction, so the coefficients are the image divided by (x + 4 + 1/x) / 6, where x is a step by one pixel.
    The 6 is left out both there and in the weights. Edge pixels are repeated outwards, for the coefficients too.
    """

    taps = 4

    def __init__(self, *parameters: Any) -> None:
        super().__init__(*parameters)
        n, height, width = self.size
        self.wide = width + self.taps - 1 + 2 * self.margin
        room = max(n * height * self.wide, n * self.rows * self.stride)
        self.rooms = [np.zeros(room, dtype=self.real) for _ in range(2)]
        self.rights, self.downs = ([np.empty(self.size, dtype=self.real) for _ in range(4)] for _ in range(2))
        self.line, self.term = (np.empty(self.size, dtype=self.real) for _ in range(2))

    @property
    def steps(self) -> int:
        """Factors of the inverse: enough for what is left out, POLE^16 = 7e-10 or POLE^32, to be less than rounding."""
        return 4 if self.real == np.float32 else 5

    @property
    def margin(self) -> int:
        """How many pixels to either side a coefficient depends on."""
        return 2**self.steps - 1

    def _layout(self) -> tuple[int, int]:
        rows, stride = super()._layout()
        return rows + 2 * self.margin, stride

    def aim(self, along_x: Floats, across_x: Floats, along_y: Floats, across_y: Floats) -> None:
        super().aim(along_x, across_x, along_y, across_y)
        n = len(along_x)
        for offset, weights in ((self.right[:n], self.rights), (self.down[:n], self.downs)):
            spline_weights(offset, *(weight[:n] for weight in weights))

    def read(self, plane: NDArray[Any]) -> NDArray[Any]:
        n = len(plane)
        flat = self._coefficients(plane)[self.margin * self.stride :]
        place, grey, line, term = self.place[:n], self.grey[:n], self.line[:n], self.term[:n]
        for i, down in enumerate(self.downs):
            for j, right in enumerate(self.rights):
                read = term if j else line
                np.take(flat[i * self.stride + j :], place, out=read, mode="clip")
                read *= right[:n]
                if j:
                    line += term
            np.multiply(line, down[:n], out=term if i else grey)
            if i:
                grey += term
        return grey

    def _coefficients(self, plane: NDArray[Any]) -> NDArray[Any]:
        """Those of a batch, in one row; `margin` rows above and below each image are spoilt."""
        n, before = len(plane), self.margin + 1
        image, spare = self.rooms
        across = image[: n * self.height * self.wide].reshape(n, self.height, self.wide)
        across[:, :, before : before + self.width] = plane
        across[:, :, :before] = plane[:, :, :1]
        across[:, :, before + self.width :] = plane[:, :, -1:]
        image, spare = divided(image, spare, across.size, 1, self.steps)
        across = image[: across.size].reshape(across.shape)[:, :, self.margin : self.margin + self.stride]
        down = spare[: n * self.rows * self.stride].reshape(n, self.rows, self.stride)
        inner = down[:, before : before + self.height]
        np.multiply(across, gain(self.steps) ** 2, out=inner)
        down[:, :before] = inner[:, :1]
        down[:, before + self.height :] = inner[:, -1:]
        return divided(spare, image, down.size, self.stride, self.steps)[0]


def spline_weights(offset: NDArray[Any], *weights: NDArray[Any]) -> None:
    """Six times the cubic B-spline at -1 - offset, -offset, 1 - offset and 2 - offset."""
    a, b, c, d = weights
    np.subtract(1.0, offset, out=c)
    np.multiply(c, c, out=a)
    a *= c
    np.multiply(offset, offset, out=c)
    np.multiply(c, offset, out=d)
    # b = 4 - 6 offset^2 + 3 offset^3
    np.multiply(offset, 3.0, out=b)
    b -= 6.0
    b *= c
    b += 4.0
    np.subtract(6.0, a, out=c)
    c -= b
    c -= d


def divided(values: NDArray[Any], spare: NDArray[Any], size: int, step: int, steps: int) -> tuple[Any, Any]:
    """The first `size` values, divided by x + 4 + 1/x, where x is `step` places, and by :func:`gain`.

    1 / (1 - p x) is the product of 1 + p x, 1 + p^2 x^2, 1 + p^4 x^4 and so on. `steps` of these are taken, each
    together with its mirror image, which spoils 2^steps - 1 steps at either end.

    Returns
    -------
    result, spare : the two arrays that were given, in this order or the other
    """
    for k, power in enumerate(powers(steps)):
        reach = step << k
        old, new = values[:size], spare[reach : size - reach]
        np.add(old[: -2 * reach], old[2 * reach :], out=new)
        new *= power / (1.0 + power * power)
        new += old[reach:-reach]
        values, spare = spare, values
    return values, spare


def gain(steps: int) -> float:
    """The factor that :func:`divided` leaves out."""
    return -POLE * prod(1.0 + power * power for power in powers(steps))


def powers(steps: int) -> list[float]:
    """POLE to the powers 1, 2, 4 and so on, by products, because libraries differ in the last bit of powers."""
    return list(accumulate(range(1, steps), lambda power, _: power * power, initial=POLE))
