"""The canvas that a face is drawn on, soft shapes, creases and textures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

_MARGIN = 0.14  # how far pose may move a part out of its window
_PERIOD = 4.0  # of textures, which is two image widths


@dataclass
class Canvas:
    """Face coordinates of each pixel and the maps to draw on, all of shape (images, rows, columns)."""

    x: np.ndarray
    y: np.ndarray
    side: np.ndarray  # distance from the midline: both halves of a face are drawn at once
    height: np.ndarray  # relief towards the camera
    albedo: np.ndarray  # fraction of light that is reflected
    texel: np.ndarray  # index of the pixel in the flat textures
    pixel: float

    def window(self, left: float, right: float, top: float, bottom: float) -> Canvas:
        """Views of the part of the canvas that may show something between these face coordinates."""
        n = self.x.shape[1]
        cut = [
            slice(max(0, int((low - _MARGIN + 1) / 2 * n)), min(n, int((high + _MARGIN + 1) / 2 * n) + 1))
            for low, high in ((top, bottom), (left, right))
        ]
        maps = {f.name: getattr(self, f.name)[:, cut[0], cut[1]] for f in fields(self) if f.name != "pixel"}
        return Canvas(pixel=self.pixel, **maps)

    def paint(self, mask: np.ndarray, value: Any) -> None:
        """Give the surface another reflectance where the mask is 1."""
        self.albedo += mask * (value - self.albedo)

    def crease(self, along: np.ndarray, across: np.ndarray, width: float, depth: Any, shadow: float) -> None:
        """Draw a line in the skin that is deepest at along = 0, ends at |along| = 1 and is faint if thin as a pixel."""
        seen = float(np.hypot(width, 0.8 * self.pixel))
        line = bell(along * along) * bell((across * (1 / seen)) ** 2) * (depth * (width / seen))
        self.height -= line * (0.55 * width)
        self.albedo *= 1 - shadow * line


def bell(square: np.ndarray) -> np.ndarray:
    """A bell of finite width from t²: (1 - t²)² for |t| < 1, else 0."""
    return np.asarray(np.maximum(1 - square, 0) ** 2)


def step(distance: np.ndarray, width: Any) -> np.ndarray:
    """A smooth step from 0 at distance -width to 1 at distance width."""
    t = np.clip(distance * (0.5 / width) + 0.5, 0, 1)
    return np.asarray((3 - 2 * t) * t * t)


def disc(x: np.ndarray, y: np.ndarray, cx: Any, cy: Any, rx: Any, ry: Any) -> np.ndarray:
    """Squared distance from the centre of an ellipse, in radii."""
    return np.asarray(((x - cx) * (1 / rx)) ** 2 + ((y - cy) * (1 / ry)) ** 2)


@lru_cache(maxsize=4)
def textures(size: int) -> tuple[int, dict[str, np.ndarray]]:
    """Texels in a period, and random fields of unit variance, flattened, for images of this size.

    The fields are the same for every size, but larger pixels blur them more.
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
    """Index of each pixel in the flat textures; every person has another part of them."""
    column = ((x + p.texture_x) * (n / _PERIOD)).astype(np.int32) & (n - 1)
    row = ((y + p.texture_y) * (n / _PERIOD)).astype(np.int32) & (n - 1)
    return np.asarray(n * row + column)
