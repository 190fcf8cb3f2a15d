"""How picture files become samples: the same way for training data and for new pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.experiments.config import FileData
from higsfa.images import FaceSampler, normalize_pose

__all__ = ["FILES_RANGE", "PixelRange", "PlainSampler", "Scaled", "face_sampler", "range_of", "unit_range"]

PixelRange = tuple[float, float]
"""The values of black and of white."""
FILES_RANGE: PixelRange = (0.0, 255.0)
"""Of picture files once they are decoded."""
USUAL_RANGES: tuple[PixelRange, ...] = ((0.0, 1.0), FILES_RANGE, (0.0, 65535.0))
WHOLE: dict[str, Any] = {"pose_size": (256, 256), "square": None, "shift_up": 0.0}
"""Options of FaceSampler that take the largest centred square of a picture."""


def face_sampler(table: FileData, paths: tuple[Path, ...], eyes: NDArray[np.float64] | None) -> FaceSampler:
    """Faces aligned by their eyes; without eyes, the largest centred square of each picture."""
    if eyes is None:
        return FaceSampler(table.size, contrast=table.normalise_contrast, **WHOLE)
    places = dict(zip(paths, eyes, strict=True))
    return FaceSampler(table.size, eyes=places, contrast=table.normalise_contrast)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlainSampler:
    """The largest centred part of a picture that has this shape (height, width), resized."""

    shape: tuple[int, int]

    def __call__(self, image: Any) -> NDArray[Any]:
        return normalize_pose(image, size=self.shape)


@dataclass(frozen=True)
class Scaled:
    """What a sampler makes of a picture file, in the grey values and the type of other samples.

    Parameters
    ----------
    sampler : FaceSampler or PlainSampler
    pixel_range : PixelRange
    dtype : str or None
        None leaves bytes as they are where the range is theirs, and takes float32 elsewhere.
    """

    sampler: Any
    pixel_range: PixelRange
    dtype: str | None

    def __call__(self, image: Any) -> NDArray[Any]:
        grey = np.asarray(self.sampler(image))
        if self.pixel_range != FILES_RANGE:
            black, white = self.pixel_range
            grey = np.float32(black) + grey.astype(np.float32) * np.float32((white - black) / 255)
        return grey if self.dtype is None else grey.astype(self.dtype)


def range_of(images: NDArray[Any]) -> tuple[PixelRange, bool]:
    """Black and white of an array that does not tell, and whether they are only its smallest and largest value.

    Bytes go from 0 to 255. The values of other types tell themselves: they lie between 0 and 1, 255 or 65,535 up to
    half of that range, so that interpolation and noise may overshoot.
    """
    if images.dtype == np.uint8:
        return FILES_RANGE, False
    low, high = float(images.min()), float(images.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("the images hold values that are not finite; leave such images out")
    for black, white in USUAL_RANGES:
        if low >= black - 0.5 * white and high <= 1.5 * white:
            return (black, white), False
    return (low, max(high, low + 1e-6 * max(1.0, abs(low)))), True


def unit_range(images: Any, pixel_range: PixelRange) -> NDArray[np.float32]:
    """Grey values from 0 to 1."""
    black, white = pixel_range
    unit = (np.asarray(images, dtype=np.float64) - black) / (white - black)
    return np.clip(unit, 0, 1).astype(np.float32)
