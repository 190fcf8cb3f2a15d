"""How picture files become samples: the same way for training data and for new pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.experiments.config import FileData
from higsfa.images import FaceSampler, normalize_pose

__all__ = ["PlainSampler", "Typed", "face_sampler"]

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
class Typed:
    """What a sampler makes, as another type.

    Parameters
    ----------
    sampler : FaceSampler or PlainSampler
    unit : bool
        Whether grey values go from 0 to 1, as float32, instead of from 0 to 255.
    dtype : str or None
    """

    sampler: Any
    unit: bool
    dtype: str | None

    def __call__(self, image: Any) -> NDArray[Any]:
        grey = self.sampler(image)
        if self.unit:
            grey = grey.astype(np.float32) / np.float32(255)
        return np.asarray(grey if self.dtype is None else grey.astype(self.dtype))
