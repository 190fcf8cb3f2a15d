"""What surrounds the face: light, background, hair, neck and clothes, camera."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.datasets._face_canvas import bell, disc, step
from higsfa.datasets._face_parts import outline


def lit(height: np.ndarray, albedo: np.ndarray, p: Any, pixel: float) -> np.ndarray:
    """Light that comes back from a relief: ambient, diffuse after Lambert, and a soft gloss."""
    zx, zy = np.empty_like(height), np.empty_like(height)
    np.subtract(height[:, :, 2:], height[:, :, :-2], out=zx[:, :, 1:-1])
    np.subtract(height[:, 2:], height[:, :-2], out=zy[:, 1:-1])
    zx[:, :, 0], zx[:, :, -1] = zx[:, :, 1], zx[:, :, -2]
    zy[:, 0], zy[:, -1] = zy[:, 1], zy[:, -2]
    scale = 0.5 / pixel
    zx *= scale
    zy *= scale
    steep = zx * zx
    steep += zy * zy
    steep += 1
    np.sqrt(steep, out=steep)
    np.divide(1, steep, out=steep)  # the normal's share towards the camera
    zx *= p.light_x
    zy *= p.light_y
    zx += zy
    np.subtract(1, zx, out=zx)  # normal times light, both of length other than 1
    far = np.sqrt(1 + p.light_x**2 + p.light_y**2)
    gloss = (zx + far) * steep
    gloss *= 1 / np.sqrt(p.light_x**2 + p.light_y**2 + (1 + far) ** 2)
    for _ in range(4):
        gloss *= gloss
    gloss *= 0.5 * p.gloss
    zx *= steep
    np.maximum(zx, 0, out=zx)
    zx *= (1.35 - p.ambient) / far
    steep *= 0.45 * p.ambient
    zx += steep
    zx += 0.55 * p.ambient
    zx *= albedo
    zx += gloss
    return zx


def backdrop(x: np.ndarray, y: np.ndarray, p: Any) -> np.ndarray:
    """A wall with a gradient of light."""
    return np.asarray(p.background**2 + p.background_x * x + p.background_y * y)


def cover(image: np.ndarray, mask: np.ndarray, value: Any) -> None:
    """Lay something opaque over the image where the mask is 1."""
    mask *= value - image
    image += mask


def hair_light(x: np.ndarray, y: np.ndarray, p: Any, a: Any, tone: Any, strands: np.ndarray) -> np.ndarray:
    """Light that comes back from hair: brighter on top, streaked."""
    light = x * (0.45 * p.light_x)
    light += (y + 0.45) * (0.55 * p.light_y)
    light += 0.62
    light += 0.35 * bell(disc(x, y, 0.3 * p.light_x, -0.85, 0.75, 0.30))
    light *= 1 + p.hair_contrast * (1 - 0.4 * a.grey) * strands
    light *= tone
    return np.maximum(light, 0.006, out=light)


def hair_masks(x: np.ndarray, y: np.ndarray, p: Any, a: Any, strands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where hair hangs down behind face and neck, and where it lies on the head, down to hairline and sideburns."""
    long = np.clip((p.hair_length + 0.1) * 3, 0, 1)
    # Short hair lies closer to the head towards the ears.
    thick = p.hair_volume * (long + (1 - long) * step(-y - 0.35, 0.35))
    crown = step(1 - outline(x, np.minimum(y, -0.05), p, a, thick), 0.06)
    behind = step(p.hair_length - y + 0.03 * strands, 0.09)
    behind *= crown
    side = np.abs(x)
    line = side * side
    line *= p.hairline_curve * (1 - 0.5 * a.recession)
    line += p.hairline - 0.10 * a.recession
    line += p.parting * x
    line += 4.5 * np.maximum(side - p.temple - 0.03 * a.recession, 0)
    np.minimum(line, 0.02, out=line)
    line -= y
    line += 0.012 * strands
    above = step(line, 0.055)
    above *= crown
    return behind, above


def body(image: np.ndarray, x: np.ndarray, y: np.ndarray, p: Any) -> None:
    """Ears, neck and clothes."""
    side = np.abs(x)
    tone = p.skin**2
    n = image.shape[1]
    low = slice(int(0.6 * n), n)
    x_, y_, side_ = x[:, low], y[:, low], side[:, low]
    neck = 0.68 * p.face_width + np.maximum(y_ - 0.86, 0) * 0.7
    shadow = 0.36 + 0.5 * np.maximum(y_ - p.chin, 0) + 0.18 * x_ * p.light_x
    cover(image[:, low], step(neck - side_, 0.02) * step(y_ - 0.4, 0.05), tone * shadow)
    collar = y_ - 1.00 + 0.3 * (p.collar - 0.3) + 0.30 * (0.55 - side_)
    cover(image[:, low], step(collar, 0.02), p.clothes**2)
    rows = slice(int(0.3 * n), int(0.72 * n))
    ear = disc(side[:, rows], y[:, rows], p.face_width - 0.005, 0.03, p.ear, 0.17)
    np.minimum(ear, 3, out=ear)
    cover(image[:, rows], step(1 - ear, 0.25), tone * (0.55 + 0.3 * ear))


def photographed(image: np.ndarray, p: Any, seeds: np.ndarray) -> np.ndarray:
    """What the camera makes of light: gain, display curve, noise, 256 levels."""
    np.maximum(image, 0, out=image)
    image *= p.gain
    np.sqrt(image, out=image)
    image += p.brightness
    for one, seed, noise in zip(image, seeds, p.noise, strict=True):
        rng = np.random.Generator(np.random.Philox(key=[int(seed), 3]))
        one += rng.standard_normal(one.shape, dtype=np.float32) * noise
    image *= 255
    image += 0.5
    return np.clip(image, 0, 255, out=image).astype(np.uint8)
