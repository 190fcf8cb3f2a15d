"""Small random distortions of images, each a pure function of the seed and the indices of the image and the copy.

A network reads its data several times, in any order, on many threads or machines, and must see the same pixels each
time. So a random number is a hash (splitmix64) of what it is for, and pixels follow from it by integers and single IEEE
operations, without the mathematical library. (Noise comes from a table of normal quantiles in single precision.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import factorial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from higsfa.images.geometry import DOUBLE, SINGLE, CubicWarp, LinearWarp, Warp
from higsfa.images.pixels import check_range, limits, stored

Floats = NDArray[np.float64]
Keys = NDArray[np.uint64]

WARPS: dict[str, type[Warp]] = {"linear": LinearWarp, "cubic": CubicWarp}

# A copy has one random number for each field of Draw; those from NOISE on are for the noise of each channel.
NOISE = 7


class Draw(NamedTuple):
    """Amounts of distortion, one value per copy, in the units of :class:`Distortion`; scale and contrast are factors.

    Shifts go to the right and down, rotations counter-clockwise.
    """

    shift_x: Floats
    shift_y: Floats
    rotation: Floats
    scale: Floats
    mirror: NDArray[np.bool_]
    brightness: Floats
    contrast: Floats


@dataclass(frozen=True)
class Distortion:
    """Shift, rotate, scale, flip and brighten images by small random amounts, and add noise.

    Every amount is uniform between minus and plus the amplitude given here, and independent of the other amplitudes.

    Parameters
    ----------
    seed : int, default=0
    shift : float, default=1.4
        In pixels, independently in both directions.
    rotation : float, default=2.0
        In degrees, about the centre of the image.
    scale : float, default=0.04
        As a fraction, about the centre of the image.
    brightness : float, default=0.0
        Added to all grey values, as a fraction of the full range (that of the dtype for integers, 1 for floats).
    contrast : float, default=0.0
        Change of the factor that scales grey values about the middle of the range.
    mirror : bool, default=False
        Flip half of the copies left to right.
    noise : float, default=0.0
        Standard deviation of independent normal noise in each pixel and channel, as a fraction of the full range.
    identity_first : bool, default=False
        Make copy 0 of an image the image itself.
    interpolation : {"cubic", "linear"}, default="cubic"
        Cubic B-splines keep fine lines and grain. "linear" is nearly three times as fast but blurs them, so that
        undistorted images look different to a network trained on such copies.

    Notes
    -----
    An image is flipped, scaled and rotated, then shifted; pixels at the border are repeated outwards. Then come
    contrast, brightness and noise. Integers are rounded and clipped to the range of their dtype; floats are not
    clipped, and cubic interpolation overshoots a little beside sharp edges. A float that is not finite spoils its
    neighbours with linear interpolation, and pixels up to 33 away with cubic.

    The defaults are those of the data sets DR and S of the paper.

    Examples
    --------
    >>> images = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8)
    >>> copies = Distortion(seed=1).apply(images[[0, 0, 1]], [0, 0, 1], [0, 1, 0])
    >>> copies.shape, copies.dtype
    ((3, 8, 8), dtype('uint8'))
    >>> bool(np.all(copies[2] == Distortion(seed=1).apply(images[[1]], [1], [0])[0]))
    True
    """

    seed: int = 0
    shift: float = 1.4
    rotation: float = 2.0
    scale: float = 0.04
    brightness: float = 0.0
    contrast: float = 0.0
    mirror: bool = False
    noise: float = 0.0
    identity_first: bool = False
    interpolation: Literal["linear", "cubic"] = "cubic"

    def __post_init__(self) -> None:
        if self.interpolation not in WARPS:
            raise ValueError(f"interpolation={self.interpolation!r} must be one of {', '.join(map(repr, WARPS))}")
        largest = {"shift": 1e4, "rotation": 180.0, "scale": 0.99, "brightness": 10.0, "contrast": 1.0, "noise": 10.0}
        for name, limit in ({"seed": 2**64 - 1} | largest).items():
            if not 0 <= getattr(self, name) <= limit:
                raise ValueError(f"{name}={getattr(self, name)} must be between 0 and {limit}")

    def draw(self, samples: ArrayLike, copies: ArrayLike) -> Draw:
        """The amounts of distortion of these copies of these images, whatever `identity_first` is."""
        words = stream(copy_keys(self.seed, samples, copies), 0, NOISE).T
        random = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # uniform in [0, 1)
        amplitudes = (self.shift, self.shift, self.rotation, self.scale, 0.0, self.brightness, self.contrast)
        x, y, rotation, scale, _, brightness, contrast = np.array(amplitudes)[:, None] * (2.0 * random - 1.0)
        return Draw(x, y, rotation, 1.0 + scale, (random[4] < 0.5) & self.mirror, brightness, 1.0 + contrast)

    def apply(self, images: ArrayLike, samples: ArrayLike, copies: ArrayLike) -> NDArray[Any]:
        """Distort images.

        Parameters
        ----------
        images : array of shape (n, height, width) or (n, height, width, channels)
            Integers of at most 32 bits, or floats, which must be from 0 to 1 for brightness, contrast and noise.
        samples, copies : int arrays of shape (n,)
            Index of each image in the whole data set, and of its copy.

        Returns
        -------
        array of the same shape and dtype
        """
        images = np.asarray(images)
        if images.ndim not in (3, 4):
            raise ValueError(f"images must be (n, height, width) or (n, height, width, channels), got {images.shape}")
        if images.dtype not in SINGLE + DOUBLE:
            raise TypeError(f"images must be integers of at most 32 bits or floats, got {images.dtype}; convert them")
        if images.dtype.kind == "f" and (self.brightness or self.contrast or self.noise):
            check_range(images)
        samples, copies = (np.broadcast_to(indices, len(images)) for indices in (samples, copies))
        out = np.empty(images.shape, dtype=images.dtype)
        if images.size == 0:
            return out
        keys, draw = copy_keys(self.seed, samples, copies), self.draw(samples, copies)
        n, height, width = images.shape[:3]
        channels = images.shape[3] if images.ndim == 4 else 1
        planes = images.reshape(n, height, width, channels)
        reach = (height + width + 2 * self.shift) / (1.0 - self.scale) + height + width  # bounds positions and terms
        warp = WARPS[self.interpolation](n, height, width, reach, images.dtype)
        moves = self.shift or self.rotation or self.scale or self.mirror
        for lo in range(0, n, warp.batch):
            part = slice(lo, lo + warp.batch)
            if moves:
                warp.locate(*_positions(Draw._make(amount[part] for amount in draw), height, width))
            for channel in range(channels):
                plane = planes[part, :, :, channel]
                grey = warp.read(plane) if moves else plane.astype(warp.real)
                self._tone(grey, draw.contrast[part], draw.brightness[part], keys[part], images.dtype, channel)
                out.reshape(planes.shape)[part, :, :, channel] = stored(grey, images.dtype, clip=False)
        if self.identity_first:
            first = copies == 0
            out[first] = images[first]
        return out

    def _tone(
        self, grey: NDArray[Any], contrast: Floats, brightness: Floats, keys: Keys, dtype: np.dtype[Any], channel: int
    ) -> None:
        low, high = limits(dtype)
        if self.contrast or self.brightness:
            middle = (low + high) / 2
            offset = middle + brightness * (high - low) - contrast * middle
            grey *= contrast.astype(grey.dtype)[:, None, None]
            grey += offset.astype(grey.dtype)[:, None, None]
        if self.noise:
            rough = normal(keys, NOISE + channel, grey[0].size) * np.float32(self.noise * (high - low))
            grey += rough.reshape(grey.shape)


def _positions(draw: Draw, height: int, width: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The positions to read pixels from, as arguments of :meth:`Warp.locate`."""
    sin, cos = (part / draw.scale for part in sin_cos(np.deg2rad(draw.rotation)))
    x, y = (width - 1) / 2, (height - 1) / 2
    right = np.arange(width) - x - draw.shift_x[:, None]
    down = np.arange(height) - y - draw.shift_y[:, None]
    flip = np.where(draw.mirror, -1.0, 1.0)
    along_x, across_x = right * (cos * flip)[:, None] + x, -down * (sin * flip)[:, None]
    return along_x, across_x, right * sin[:, None], down * cos[:, None] + y


def copy_keys(seed: int, samples: ArrayLike, copies: ArrayLike) -> Keys:
    """A random 64-bit number for each copy."""
    keys = mix(np.array([seed], dtype=np.uint64))
    for indices in (samples, copies):
        keys = mix(keys ^ np.asarray(indices, dtype=np.int64).astype(np.uint64))
    return keys


def mix(x: Keys) -> Keys:
    """The output function of splitmix64 (Steele, Lea and Flood 2014), modulo 2^64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def stream(keys: Keys, first: int, length: int) -> Keys:
    """Random 64-bit numbers first .. first + length - 1 of each key: (n, length)."""
    return mix(keys[:, None] + np.arange(first, first + length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def normal(keys: Keys, parameter: int, length: int) -> NDArray[np.float32]:
    """Normal numbers of shape (n, length), from 16 random bits each."""
    words = stream(stream(keys, parameter, 1)[:, 0], 0, -(-length // 4))
    return quantiles()[words.astype("<u8").view("<u2")[:, :length]]


@cache
def quantiles() -> NDArray[np.float32]:
    """65,536 numbers with a normal distribution of variance 1."""
    values = ndtri((np.arange(2**16) + 0.5) / 2**16)
    table: NDArray[np.float32] = (values / values.std()).astype(np.float32)
    table.setflags(write=False)
    return table


def sin_cos(angle: Floats) -> Iterator[Floats]:
    """Sine and cosine of angles up to pi, to 1e-14, with the same bits on every machine."""
    square = angle * angle
    for first, start in ((angle, 1), (1.0, 0)):
        series = np.zeros_like(angle)
        for power in range(start + 28, start - 1, -2):
            series = series * square + (-1.0) ** ((power - start) // 2) / factorial(power)
        yield series * first
