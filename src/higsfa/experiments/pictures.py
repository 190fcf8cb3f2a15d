"""How picture files become samples: the same way for training data and for new pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.datasets import read_folder
from higsfa.datasets.readers import read_eyes
from higsfa.experiments.config import FileData
from higsfa.experiments.reporting import ExperimentError, in_one_line
from higsfa.images import FaceSampler, normalize_pose
from higsfa.sources import ImageFiles

__all__ = ["FILES_RANGE", "Paths", "PixelRange", "PlainSampler", "Scaled", "face_sampler", "new_pictures"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
PixelRange = tuple[float, float]
"""The values of black and of white."""
FILES_RANGE: PixelRange = (0.0, 255.0)
"""Of picture files once they are decoded."""
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
    """What a sampler makes of a picture file, in the range of other samples: bytes where it is theirs, else float32."""

    sampler: Any
    pixel_range: PixelRange

    def __call__(self, image: Any) -> NDArray[Any]:
        grey = np.asarray(self.sampler(image))
        if self.pixel_range != FILES_RANGE:
            black, white = self.pixel_range
            grey = np.float32(black) + grey.astype(np.float32) * np.float32((white - black) / 255)
        return grey


def new_pictures(run: Any, shape: tuple[int, ...], paths: Paths, eyes: Any, cropped: bool) -> ImageFiles:
    """Pictures prepared as those of a run, whose samples have this shape; see `Run.pictures`."""
    found = _files(paths)
    places = None if eyes is None else _eyes(eyes, found)
    if run.cropping == "eyes" and (places is None) != cropped:
        raise ExperimentError(
            f"{run.name} was trained on faces aligned by their eyes: give the eyes of these pictures (--eyes TABLE), "
            "or say that they are cut in the same way already (--cropped), but not both"
        )
    if run.cropping != "eyes" and (places is not None or cropped):
        raise ExperimentError(
            f"{run.name} was trained on pictures that were cut about their centre, and new ones are cut in the same "
            "way; leave eyes and cropped out (--eyes, --cropped)"
        )
    table = run.config.data
    sampler = face_sampler(table, found, places) if isinstance(table, FileData) else PlainSampler((shape[0], shape[1]))
    with in_one_line("the pictures cannot be read"):
        return sources.images(found, Scaled(sampler, run.pixel_range))


def _eyes(eyes: Any, found: tuple[Path, ...]) -> NDArray[np.float64]:
    with in_one_line("eyes"):
        if isinstance(eyes, str | os.PathLike):
            if not Path(eyes).exists():
                raise FileNotFoundError(f"there is no table {eyes}")
            places = read_eyes(eyes, found)
        else:
            places = np.asarray(eyes, dtype=np.float64)
    if places.shape != (len(found), 2, 2):
        raise ExperimentError(f"eyes: shape ({len(found)}, 2, 2) for {len(found)} pictures, got {places.shape}")
    unknown = np.isnan(places).any(axis=(1, 2))
    if unknown.any():
        raise ExperimentError(f"eyes: those of {found[int(np.argmax(unknown))]} are not known; add them to the table")
    return places


def _files(paths: Paths) -> tuple[Path, ...]:
    found: list[Path] = []
    given = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    for path in given:
        if path.is_dir():
            with in_one_line(f"{path}"):
                found += read_folder(path).paths
        elif path.is_file():
            found.append(path.absolute())
        else:
            raise ExperimentError(f"there is no picture or folder {path}")
    if not found:
        raise ExperimentError(f"there are no pictures in {', '.join(map(str, given[:3])) or 'an empty list'}")
    return tuple(found)
