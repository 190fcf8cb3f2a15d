"""The parts of a photograph; each function draws one part of all images of a batch.

The face is drawn as relief and reflectance on a canvas, then lit. Hair, body and background are drawn as light.
"""

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
        """Change the reflectance where the mask is 1."""
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
    """Index of each pixel in the flat textures; each person gets a different part of them."""
    column = ((x + p.texture_x) * (n / _PERIOD)).astype(np.int32) & (n - 1)
    row = ((y + p.texture_y) * (n / _PERIOD)).astype(np.int32) & (n - 1)
    return np.asarray(n * row + column)


def outline(x: np.ndarray, y: np.ndarray, p: Any, a: Any, grow: Any = 0.0) -> np.ndarray:
    """Less than 1 inside the head: half an ellipse above, a rounded square that tapers to the chin below."""
    down = (np.maximum(y + 0.05, 0) * (1 / (p.chin + 0.05))) ** 2
    up = (np.minimum(y + 0.05, 0) * (1 / (1.10 + grow))) ** 2
    across = (x * (1 / (p.face_width + grow))) ** 2 * (1 + (2 * p.taper - 0.06 * a.sag) * down)
    return np.asarray(up + across + down - across * down * (p.jaw + 0.05 * a.sag))


def skull(c: Canvas, inside: np.ndarray, p: Any) -> None:
    """The dome of the head with cheeks, chin, mouth area and brow ridge."""
    t = np.minimum(inside, 1.15)
    c.height -= t * (0.20 + 0.32 * t)
    w = c.window(-0.7, 0.7, -0.15, 0.5)
    w.height += (p.cheek + 0.02 * p.smile) * bell(disc(w.side, w.y, 0.36, 0.17 - 0.03 * p.smile, 0.30, 0.30))
    w = c.window(-0.35, 0.35, 0.25, 1.0)
    w.height += 0.06 * bell(disc(w.x, w.y, 0, p.mouth_y - 0.02, 0.34, 0.26))
    w.height += p.chin_size * bell(disc(w.x, w.y, 0, p.chin - 0.15, 0.24, 0.17))
    w.height -= 0.035 * bell(disc(w.x, w.y, 0, p.mouth_y + 0.135, 0.20, 0.07))
    w = c.window(-0.55, 0.55, -0.5, -0.05)
    w.height += p.brow_ridge * bell(disc(w.side, w.y, 0.22, p.eye_y - 0.16, 0.34, 0.13))


def nose(c: Canvas, p: Any) -> None:
    """Bridge, tip, wings and nostrils."""
    w = c.window(-0.24, 0.24, -0.25, 0.42)
    down = np.clip((w.y - p.eye_y) * (1 / (p.nose_y - p.eye_y)) + 0.25, 0, 1.25) * 0.8
    across = w.x / (p.nose_bridge + (p.nose_width - p.nose_bridge + 0.02) * down * down + 0.035)
    end = step(p.nose_y + 0.012 - w.y - 2.0 * w.x * w.x, 0.060)
    w.height += bell(across * across) * (p.nose_height * (0.18 + 0.82 * down) * down) * end
    w.height += 0.30 * p.nose_height * bell(disc(w.x, w.y, 0, p.nose_y - 0.055, 0.085, 0.085))
    w.height += 0.055 * bell(disc(w.side, w.y, p.nose_width * 0.80, p.nose_y - 0.025, 0.062, 0.065))
    w.albedo *= 1 - 0.80 * bell(disc(w.side, w.y - 0.25 * w.side, p.nose_width * 0.46, p.nose_y - 0.028, 0.055, 0.024))
    w.albedo *= 1 - 0.30 * bell(disc(w.x, w.y, 0, p.nose_y + 0.020, p.nose_width * 1.35, 0.055))
    wing = disc(w.side, w.y, p.nose_width * 0.80, p.nose_y - 0.030, 0.068, 0.062) - 1
    w.albedo *= 1 - 0.25 * (bell(wing * wing * 3) * step(w.side - p.nose_width * 0.75, 0.03))


def eyes(c: Canvas, p: Any, a: Any) -> None:
    """Sockets, lids, sclera, iris and pupil with a highlight."""
    w = c.window(-0.56, 0.56, -0.42, 0.12)
    w.height -= p.eye_depth * bell(disc(w.side, w.y, p.eye_distance - 0.03, p.eye_y - 0.015, 0.25, 0.17))
    w.height += 0.055 * bell(disc(w.side, w.y, p.eye_distance, p.eye_y, 0.19, 0.11))
    w.albedo *= 1 - 0.22 * bell(disc(w.side, w.y, p.eye_distance - 0.09, p.eye_y - 0.01, 0.13, 0.12))

    u = (w.side - p.eye_distance) * (1 / p.eye_width)
    y = w.y - p.eye_y + p.eye_slant * (w.side - p.eye_distance)
    arch = 1 - u * u
    opening = p.eye_open * (1 + p.lids) * (1 - 0.12 * a.sag - 0.18 * p.smile)
    upper = y + opening * arch * (1 - 0.18 * u)
    lower = 0.72 * p.eye_open * arch * (1 + 0.15 * u) - y
    near = bell(u * u * 0.62)
    w.crease(u * 0.85, upper + 0.036 - 0.012 * a.sag, 0.016, 0.8, 0.30)
    soft = 0.55 * c.pixel + 0.006

    gaze = u * p.eye_width - p.gaze * np.sign(w.x)
    radius = np.sqrt(gaze * gaze + (y + 0.006) ** 2)
    white = 0.60 - 0.25 * u * u
    ball = white + step(0.060 - radius, soft) * (p.iris * (0.6 + 5.0 * radius) - white)
    ball *= 1 - 0.9 * step(0.026 - radius, soft)
    ball *= 0.45 + 0.55 * step(upper - 0.020, 0.025)  # the upper lid casts a shadow
    ball += bell(disc(gaze, y, -0.016 + 0.05 * p.light_x, -0.022, 0.024, 0.024)) * 0.55
    w.paint(step(upper, soft) * step(lower, soft), ball)
    w.albedo *= 1 - 0.78 * (bell((upper * (1 / 0.019)) ** 2) * near)
    w.albedo *= 1 - 0.30 * bell((lower * (1 / 0.016)) ** 2) * near


def brows(c: Canvas, p: Any, hair: Any, pores: np.ndarray) -> None:
    """Arcs of hair that get thinner towards the outside."""
    w = c.window(-0.58, 0.58, -0.48, -0.12)
    u = (w.side - p.eye_distance - 0.005) * (1 / 0.205)
    middle = p.eye_y - p.brow_height - 0.028 * p.brow_raise
    curve = w.y - (middle - 0.09 * p.brow_arch * (0.55 - (u - 0.25) ** 2)) + 0.020 * p.brow_raise * u
    thick = p.brow_thickness * (1 - 0.36 * u) + 0.004
    mask = bell((curve / thick) ** 2 * 0.8) * bell((u * u) ** 2) * (p.brow_dark * (1 + 0.15 * pores.take(w.texel)))
    w.paint(np.clip(mask, 0, 1), hair)


def mouth(c: Canvas, p: Any, a: Any) -> None:
    """Two lips around a line that can open and smile."""
    w = c.window(-0.32, 0.32, 0.34, 0.78)
    u = w.side * (1 / (p.mouth_width * (1 + 0.14 * p.smile)))
    u2 = u * u
    y = w.y - p.mouth_y + 0.050 * (p.smile - 0.12 - 0.30 * a.sag) * u2
    arch = np.maximum(1 - u2, 0)
    gap = 0.030 * p.mouth_open * arch
    thin = 1 - 0.12 * a.lips
    upper = p.lip_upper * thin * (1 - bell(u2 * 14.0) * 0.22) * arch + gap
    lower = p.lip_lower * thin * arch * (0.55 + 0.45 * arch) + gap
    soft = 0.55 * c.pixel + 0.007
    lips = step(y + upper, soft) * step(lower - y, soft) * step(1.02 - u, 0.06)
    w.height += 0.030 * lips * bell(((y - gap - 0.5 * p.lip_lower) / (p.lip_lower * 1.1)) ** 2)
    w.height += 0.018 * lips * bell(((y + gap + 0.5 * p.lip_upper) / (p.lip_upper * 1.1)) ** 2)
    w.albedo *= 1 - lips * p.lip_dark * (1 + 0.35 * (y < 0))
    inside = step(gap - np.abs(y), soft) * step(0.96 - u, 0.08) * (p.mouth_open > 0)
    w.paint(inside, 0.03 + 0.45 * step(0.6 * gap - np.abs(y + 0.2 * gap), soft) * (p.smile > 0.3))
    w.albedo *= 1 - 0.62 * (bell((y * (1 / 0.017)) ** 2) * bell(u2 * u2 * 0.72))
    w.albedo *= 1 - 0.35 * bell(disc(u, y, 1.02, 0.002, 0.16, 0.024))
    w.albedo *= 1 - 0.16 * bell(disc(w.x, y, 0, p.lip_lower + 0.035, 0.17, 0.035))
    w.height -= 0.012 * bell(disc(w.x, w.y, 0, p.mouth_y - 0.105, 0.03, 0.07))


def forehead_lines(c: Canvas, p: Any, a: Any) -> None:
    """Four lines across the forehead and two between the brows."""
    w = c.window(-0.46, 0.46, -0.70, -0.30)
    square = w.x * w.x
    for k in range(4):
        own, other = p.line[k], p.line[(k + 1) % 4]
        level = -0.375 - 0.085 * k - 0.028 * p.brow_raise + 0.010 * own
        across = w.y - level - (0.25 - 0.10 * own * w.x) * square + 0.012 * other * w.x
        along = (w.x - 0.05 * other) * (1 / (0.40 - 0.03 * k + 0.04 * own))
        w.crease(along, across, 0.018, 1.3 * a.forehead * (1 - 0.12 * k + 0.15 * other), 0.20)
    w = c.window(-0.08, 0.08, -0.42, -0.14)
    along = (w.y + 0.275 + 0.02 * p.line[4]) * (1 / 0.10)
    w.crease(along, w.side - 0.045 - 0.006 * p.line[5] + 0.02 * along * along, 0.014, 0.9 * a.frown, 0.22)


def eye_lines(c: Canvas, p: Any, a: Any) -> None:
    """Crow's feet, and bags under the eyes."""
    w = c.window(-0.66, 0.66, -0.30, 0.10)
    out = w.side - p.eye_distance - p.eye_width - 0.015
    y = w.y - p.eye_y + 0.01 - 0.8 * out * out
    for k in range(4):
        slope = -0.75 + 0.50 * k + 0.06 * p.line[6] + 0.05 * p.line[(7 + k) % 12]
        along = (out - 0.055 - 0.005 * p.line[k]) * (1 / 0.085)
        w.crease(along, y - slope * (out + 0.03), 0.014, 1.3 * a.crow, 0.26)
    w = c.window(-0.56, 0.56, -0.12, 0.22)
    u = (w.side - p.eye_distance + 0.01) * (1 / 0.155)
    y = w.y - p.eye_y
    for k, (drop, amount) in enumerate(((0.075, 0.8), (0.115, 1.0))):
        across = y - drop - 0.008 * p.line[8 + k] + (0.045 * u - 0.012) * u
        w.crease(u, across, 0.016 + 0.006 * k, 1.25 * amount * a.bag, 0.17)
    w.height += 0.020 * a.bag * bell(disc(u, y, 0, 0.078, 0.8, 0.055))


def mouth_lines(c: Canvas, p: Any, a: Any) -> None:
    """Folds from the nose to the corners of the mouth, lines down from there, and jowls."""
    w = c.window(-0.42, 0.42, 0.12, 0.62)
    t = (w.y - p.nose_y + 0.03) * (1 / (p.mouth_y - p.nose_y + 0.06))
    reach = p.nose_width + 0.025 + (p.mouth_width * (1 + 0.14 * p.smile) - p.nose_width + 0.035) * t
    across = w.side - reach - (0.09 + 0.04 * p.smile + 0.012 * p.line[10]) * (t - t * t)
    w.crease((t - 0.5) * 1.55, across, 0.022, 1.4 * a.fold, 0.20)
    w.height += 0.022 * a.fold * bell(disc(across, t, 0.055, 0.5, 0.075, 0.7))
    w = c.window(-0.54, 0.54, 0.46, 0.84)
    t = (w.y - p.mouth_y - 0.09) * (1 / 0.12)
    w.crease(t, w.side - p.mouth_width - 0.030 - 0.02 * t - 0.004 * p.line[11], 0.018, 1.2 * a.marionette, 0.22)
    w.height += 0.020 * a.sag * bell(disc(w.side, w.y, 0.40, 0.70, 0.14, 0.12))


def skin(c: Canvas, p: Any, a: Any, pores: np.ndarray, mottle: np.ndarray) -> None:
    """Tone and grain. With age the grain gets stronger and coarser, and spots appear."""
    fine, coarse = pores.take(c.texel), mottle.take(c.texel)
    grain = ((1 - 0.30 * a.coarseness) * fine + (0.45 + 0.35 * a.coarseness) * coarse) * a.roughness
    spots = np.clip(coarse + 0.3 * fine - 1.1, 0, 1.2)
    c.height += 0.0016 * grain
    c.albedo[...] = (1 + 0.068 * grain) * p.skin**2 * (1 - 0.15 * a.spots * spots)


def freckles(c: Canvas, p: Any, pores: np.ndarray) -> None:
    """Specks on cheeks and nose, independent of age."""
    w = c.window(-0.55, 0.55, -0.1, 0.4)
    specks = np.maximum(pores.take(w.texel) - 0.9, 0) * bell(disc(w.side, w.y, 0.2, 0.14, 0.42, 0.28))
    w.albedo *= 1 - 0.35 * p.freckles * specks


def beard(c: Canvas, p: Any, a: Any, hair: Any, pores: np.ndarray) -> None:
    """A shadow on jaw and upper lip, with stubble."""
    w = c.window(-0.7, 0.7, 0.2, 1.05)
    jaw = step(0.75 * w.side + w.y - 0.70, 0.20) * step(w.y - 0.12, 0.2)
    moustache = bell(disc(w.x, w.y, 0, p.mouth_y - 0.095, 0.27, 0.10))
    bare = bell(disc(w.x, w.y, 0, p.mouth_y + 0.01, p.mouth_width * 1.2, 0.11))
    mask = np.maximum(jaw, moustache) * (1 - bare) * (a.beard * (1 + 0.12 * pores.take(w.texel)))
    w.paint(np.clip(mask, 0, 0.9), hair)


def lit(height: np.ndarray, albedo: np.ndarray, p: Any, pixel: float) -> np.ndarray:
    """Light reflected by a relief: ambient, diffuse (Lambert) and a soft gloss."""
    zx = np.pad(height[:, :, 2:] - height[:, :, :-2], ((0, 0), (0, 0), (1, 1)), "edge") * (0.5 / pixel)
    zy = np.pad(height[:, 2:] - height[:, :-2], ((0, 0), (1, 1), (0, 0)), "edge") * (0.5 / pixel)
    front = 1 / np.sqrt(zx * zx + zy * zy + 1)  # component of the normal towards the camera
    facing = 1 - (zx * p.light_x + zy * p.light_y)  # normal times light, neither normalised yet
    far = np.sqrt(1 + p.light_x**2 + p.light_y**2)
    gloss = (facing + far) * front * (1 / np.sqrt(p.light_x**2 + p.light_y**2 + (1 + far) ** 2))
    for _ in range(4):
        gloss *= gloss
    diffuse = np.maximum(facing * front, 0) * ((1.35 - p.ambient) / far)
    return np.asarray((diffuse + 0.45 * p.ambient * front + 0.55 * p.ambient) * albedo + 0.5 * p.gloss * gloss)


def backdrop(x: np.ndarray, y: np.ndarray, p: Any) -> np.ndarray:
    """A wall with a brightness gradient."""
    return np.asarray(p.background**2 + p.background_x * x + p.background_y * y)


def cover(image: np.ndarray, mask: np.ndarray, value: Any) -> None:
    """Cover the image with an opaque value where the mask is 1."""
    mask *= value - image
    image += mask


def hair_light(x: np.ndarray, y: np.ndarray, p: Any, a: Any, tone: Any, strands: np.ndarray) -> np.ndarray:
    """Light reflected by hair: brighter on top, with streaks."""
    light = 0.45 * p.light_x * x + 0.55 * p.light_y * (y + 0.45) + 0.62
    light += 0.35 * bell(disc(x, y, 0.3 * p.light_x, -0.85, 0.75, 0.30))
    return np.maximum(light * (1 + p.hair_contrast * (1 - 0.4 * a.grey) * strands) * tone, 0.006)


def hair_masks(x: np.ndarray, y: np.ndarray, p: Any, a: Any, strands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the hair behind face and neck, and of the hair on the head down to hairline and sideburns."""
    long = np.clip((p.hair_length + 0.1) * 3, 0, 1)
    # Short hair gets closer to the head towards the ears.
    thick = p.hair_volume * (long + (1 - long) * step(-y - 0.35, 0.35))
    crown = step(1 - outline(x, np.minimum(y, -0.05), p, a, thick), 0.06)
    behind = step(p.hair_length - y + 0.03 * strands, 0.09) * crown
    side = np.abs(x)
    line = side * side * (p.hairline_curve * (1 - 0.5 * a.recession)) + (p.hairline - 0.10 * a.recession)
    line += p.parting * x
    line += 4.5 * np.maximum(side - p.temple - 0.03 * a.recession, 0)
    above = step(np.minimum(line, 0.02) - y + 0.012 * strands, 0.055) * crown
    return behind, above


def body(image: np.ndarray, x: np.ndarray, y: np.ndarray, p: Any) -> None:
    """Ears, neck and clothes."""
    side, tone, n = np.abs(x), p.skin**2, image.shape[1]
    low = slice(int(0.6 * n), n)
    x_, y_, side_ = x[:, low], y[:, low], side[:, low]
    neck = 0.68 * p.face_width + np.maximum(y_ - 0.86, 0) * 0.7
    shadow = 0.36 + 0.5 * np.maximum(y_ - p.chin, 0) + 0.18 * x_ * p.light_x
    cover(image[:, low], step(neck - side_, 0.02) * step(y_ - 0.4, 0.05), tone * shadow)
    collar = y_ - 1.00 + 0.3 * (p.collar - 0.3) + 0.30 * (0.55 - side_)
    cover(image[:, low], step(collar, 0.02), p.clothes**2)
    rows = slice(int(0.3 * n), int(0.72 * n))
    ear = np.minimum(disc(side[:, rows], y[:, rows], p.face_width - 0.005, 0.03, p.ear, 0.17), 3)
    cover(image[:, rows], step(1 - ear, 0.25), tone * (0.55 + 0.3 * ear))


def photographed(image: np.ndarray, p: Any, seeds: np.ndarray) -> np.ndarray:
    """Turn light into a photograph: gain, display curve, noise, 256 levels."""
    image = np.sqrt(np.maximum(image, 0) * p.gain) + p.brightness
    for one, seed, noise in zip(image, seeds, p.noise, strict=True):
        rng = np.random.Generator(np.random.Philox(key=[int(seed), 3]))
        one += rng.standard_normal(one.shape, dtype=np.float32) * noise
    return np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8)
