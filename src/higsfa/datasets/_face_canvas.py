"""What parts of a face are drawn with: a grid of coordinates with maps on it, soft shapes, creases, textures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

_MARGIN = 0.14  # how far pose may carry a part out of its window
_PERIOD = 4.0  # textures repeat after two image widths


@dataclass
class Canvas:
    """Coordinates of the face at each pixel and the maps to draw on, all of shape (images, rows, columns)."""

    x: np.ndarray
    y: np.ndarray
    side: np.ndarray  # distance from the middle line: both halves of a face are drawn at once
    height: np.ndarray  # relief towards the camera
    albedo: np.ndarray  # share of light the surface gives back
    texel: np.ndarray  # where the pixel falls in the textures
    pixel: float

    def window(self, left: float, right: float, top: float, bottom: float) -> Canvas:
        """The part of the canvas that can show something between these face coordinates, as views."""
        n = self.x.shape[1]
        cut = [
            slice(max(0, int((low - _MARGIN + 1) / 2 * n)), min(n, int((high + _MARGIN + 1) / 2 * n) + 1))
            for low, high in ((top, bottom), (left, right))
        ]
        maps = {f.name: getattr(self, f.name)[:, cut[0], cut[1]] for f in fields(self) if f.name != "pixel"}
        return Canvas(pixel=self.pixel, **maps)

    def paint(self, mask: np.ndarray, value: Any) -> None:
        """Cover the surface with something of another reflectance."""
        self.albedo += mask * (value - self.albedo)

    def crease(self, along: np.ndarray, across: np.ndarray, width: float, depth: Any, shadow: float) -> None:
        """A line in the skin, deepest where along = 0, gone where |along| = 1; fainter if thinner than a pixel."""
        seen = float(np.hypot(width, 0.8 * self.pixel))
        line = bell(along * along) * bell((across * (1 / seen)) ** 2)
        line *= depth * (width / seen)
        self.height -= line * (0.55 * width)
        line *= -shadow
        line += 1
        self.albedo *= line


def bell(square: np.ndarray) -> np.ndarray:
    """(1 - t²)² within |t| < 1, else 0: a bell with an end, from t²."""
    m = np.subtract(1, square)
    np.maximum(m, 0, out=m)
    m *= m
    return m


def step(distance: np.ndarray, width: Any) -> np.ndarray:
    """From 0 to 1 as the distance grows from -width to width."""
    t = distance * (0.5 / width)
    t += 0.5
    np.clip(t, 0, 1, out=t)
    u = t * -2.0
    u += 3
    u *= t
    u *= t
    return u


def disc(x: np.ndarray, y: np.ndarray, cx: Any, cy: Any, rx: Any, ry: Any) -> np.ndarray:
    """Squared distance from the centre of an ellipse, in radii."""
    u = x - cx
    u *= 1 / rx
    u *= u
    v = y - cy
    v *= 1 / ry
    v *= v
    u += v
    return u


@lru_cache(maxsize=4)
def textures(size: int) -> tuple[int, dict[str, np.ndarray]]:
    """Random fields as pixels of this size see them: texels in a period, and the fields, flat and of unit variance.

    Every size shows the same fields; the aperture of larger pixels blurs them more.
    """
    full = 1024
    n = next((n for n in (256, 512) if n >= 4 * size), full)
    f = np.fft.fftfreq(full, _PERIOD / full)
    fy, fx = np.meshgrid(f, f, indexing="ij")
    radius = np.hypot(fx, fy) + 1e-9
    bands = {  # in cycles per unit length
        "pores": np.exp(-0.5 * (np.log(radius / 17) / 0.35) ** 2),
        "mottle": np.exp(-0.5 * (np.log(radius / 7.5) / 0.35) ** 2),
        "strands": np.exp(-0.5 * (np.log((np.abs(fx) + 0.5) / 11) / 0.5) ** 2 - 0.5 * (fy / 2.5) ** 2),
    }
    aperture = np.exp(-0.5 * (1.2 * np.pi / size * radius) ** 2)
    keep = np.r_[0 : n // 2, full - n // 2 : full]
    rng = np.random.Generator(np.random.Philox(key=[0, 0]))
    result = {}
    for name, band in bands.items():
        spectrum = np.fft.fft2(rng.standard_normal((full, full))) * band
        deviation = np.sqrt(np.mean(np.abs(spectrum) ** 2)) / full
        field = np.fft.ifft2((spectrum * aperture)[np.ix_(keep, keep)]).real * (n / full) ** 2 / deviation
        result[name] = field.astype(np.float32).ravel()
    return n, result


def texels(x: np.ndarray, y: np.ndarray, p: Any, n: int) -> np.ndarray:
    """Where each pixel of a face falls in the flat texture fields; every person wears another part of them."""
    column = ((x + p.texture_x) * (n / _PERIOD)).astype(np.int32)
    row = ((y + p.texture_y) * (n / _PERIOD)).astype(np.int32)
    column &= n - 1
    row &= n - 1
    row *= n
    row += column
    return row
