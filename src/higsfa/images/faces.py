"""From a photograph to the small picture of a face that a network sees: pose normalisation and face sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from higsfa.images.geometry import Similarity, centered, warp
from higsfa.images.pixels import as_picture, full_range, normalize_contrast, stored

POSE_SIZE = (260, 256)
EYE_DISTANCE, EYE_HEIGHT = 60.0, 96.0
SQUARE, SHIFT_UP = 182.4, 3.6


def normalize_pose(
    image: Any,
    eyes: ArrayLike | None = None,
    size: tuple[int, int] = POSE_SIZE,
    eye_distance: float = EYE_DISTANCE,
    eye_height: float = EYE_HEIGHT,
) -> NDArray[Any]:
    """Rotate, scale and crop a photograph so that the eyes get fixed positions.

    Parameters
    ----------
    image : PIL image, or array of shape (height, width) or (height, width, channels)
        Integers, or floats from 0 to 1.
    eyes : array of shape (2, 2), optional
        The centres of the eyes, (x, y) as in :mod:`higsfa.images.geometry`, in any order. Without them, or with NaN,
        the largest centred part of the aspect ratio of `size` is taken.
    size : (height, width), default=(260, 256)
        Size of the result; the default is the paper's.
    eye_distance, eye_height : float, default=60 and 96
        Pixels between the eyes, and their row, in the result. The paper does not give them; the defaults put the middle
        between eyes and mouth of a frontal face near the centre.

    Returns
    -------
    array of that size, with the dtype and the channels of the image

    Examples
    --------
    >>> photo = np.random.default_rng(0).random((480, 400))
    >>> normalize_pose(photo, eyes=[[150, 210], [250, 190]]).shape
    (260, 256)
    """
    picture = as_picture(image)
    where = pose_map(picture.shape[:2], eyes, size, eye_distance, eye_height)
    return stored(warp(picture, where, size), picture.dtype)


def sample_face(image: Any, size: int = 96, square: float | None = SQUARE, shift_up: float = SHIFT_UP) -> NDArray[Any]:
    """Crop the square with the face from a picture and resample it.

    Parameters
    ----------
    image : PIL image, or array of shape (height, width) or (height, width, channels)
        For instance the result of :func:`normalize_pose`.
    size : int, default=96
        Height and width of the result.
    square, shift_up : float, default=182.4 and 3.6
        Side of the square, or None for the largest that fits, and how far its centre is above that of the image.

    Returns
    -------
    array of shape (size, size), with the dtype and the channels of the image

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.images import normalize_pose, sample_face
    >>> photo = np.random.default_rng(0).random((480, 400))
    >>> sample_face(normalize_pose(photo, eyes=[[150, 210], [250, 190]]), size=64).shape
    (64, 64)
    """
    picture = as_picture(image)
    where = square_map(picture.shape[:2], size, square, shift_up)
    return stored(warp(picture, where, (size, size)), picture.dtype)


def pose_map(
    shape: tuple[int, int], eyes: ArrayLike | None, size: tuple[int, int], eye_distance: float, eye_height: float
) -> Similarity:
    """The map from the normalised picture to a photograph of this shape."""
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"size={size!r} must be (height, width)")
    positions = None if eyes is None else np.asarray(eyes, dtype=np.float64)
    if positions is None or np.isnan(positions).any():
        return centered(size, shape, min(shape[0] / size[0], shape[1] / size[1]))
    if positions.shape != (2, 2) or not np.all(np.abs(positions) < 1e6):
        raise ValueError(f"eyes={positions.tolist()} must be two positions (x, y) in the picture")
    if not eye_distance > 0:
        raise ValueError(f"eye_distance={eye_distance!r} must be positive")
    (x0, y0), (x1, y1) = sorted(positions.tolist())
    if np.hypot(x1 - x0, y1 - y0) < 1.0:
        raise ValueError(f"eyes={positions.tolist()} are less than a pixel apart; give the centres of both eyes")
    rotation = Similarity((x1 - x0) / eye_distance, (y1 - y0) / eye_distance, 0.0, 0.0)
    x, y = rotation((size[1] - 1) / 2, eye_height)
    return rotation._replace(x=(x0 + x1) / 2 - x, y=(y0 + y1) / 2 - y)


def square_map(shape: tuple[int, int], size: int, square: float | None, shift_up: float) -> Similarity:
    """The map from the sampled face to a picture of this shape."""
    side = min(shape) if square is None else square
    if size < 1 or not side > 0:
        raise ValueError(f"size={size!r} and square={square!r} must be positive")
    return centered((size, size), shape, side / size, shift_up)


@dataclass(frozen=True)
class FaceSampler:
    """From photographs to small normalised faces: pose, square and contrast in one step, rounded once at the end.

    A sampler for :func:`higsfa.sources.images`. The defaults are the paper's.

    Parameters
    ----------
    size : int, default=96
        Height and width of the result.
    eyes : dict from path to array of shape (2, 2), optional
        The eyes in each photograph, (x, y) in the upright picture; see :meth:`of`. By default centres are cropped.
    without_eyes : {"raise", "center"}, default="raise"
        What to do with a photograph whose eyes are not known, or NaN: raise an error, or crop its centre.
    contrast : bool, default=True
        Whether to normalise the contrast; `mean`, `std` and `window` are as in :func:`normalize_contrast`.
    pose_size, eye_distance, eye_height, square, shift_up
        As in :func:`normalize_pose` and :func:`sample_face`.

    Notes
    -----
    For distorted copies use ``sources.repeat(sources.images(paths, sampler), 22, Distortion(contrast=0.1))``.
    Results have the dtype of the photograph. A digest of the eyes in the repr tells caches when eyes have changed.

    Examples
    --------
    >>> photo = np.random.default_rng(0).integers(0, 256, (480, 400), dtype=np.uint8)
    >>> face = FaceSampler()(photo)
    >>> face.shape, face.dtype
    ((96, 96), dtype('uint8'))
    """

    size: int = 96
    eyes: Mapping[str | PathLike[str], Any] | None = field(default=None, repr=False, compare=False)
    without_eyes: Literal["raise", "center"] = "raise"
    contrast: bool = True
    mean: float = 0.5
    std: float = 0.16
    window: float = 0.7
    pose_size: tuple[int, int] = POSE_SIZE
    eye_distance: float = EYE_DISTANCE
    eye_height: float = EYE_HEIGHT
    square: float | None = SQUARE
    shift_up: float = SHIFT_UP
    eyes_digest: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.without_eyes not in ("raise", "center"):
            raise ValueError(f"without_eyes={self.without_eyes!r} must be 'raise' or 'center'")
        if self.eyes is None:
            return
        positions = {_key(path): np.array(eyes, dtype=np.float64) for path, eyes in self.eyes.items()}
        digest = hashlib.sha256()
        for key, eyes in sorted(positions.items(), key=lambda item: item[0]):
            if eyes.shape != (2, 2):
                raise ValueError(f"eyes: {key} must have two positions (x, y), got an array of shape {eyes.shape}")
            digest.update(key.encode("utf-8", "surrogateescape") + b"\0" + eyes.tobytes())
        object.__setattr__(self, "eyes", positions)
        object.__setattr__(self, "eyes_digest", digest.hexdigest()[:32])

    @classmethod
    def of(cls, images: Any, **options: Any) -> FaceSampler:
        """A sampler for a data set with `paths` and `eyes`, such as a :class:`higsfa.datasets.ImageSet`."""
        eyes = None if images.eyes is None else dict(zip(images.paths, images.eyes, strict=True))
        return cls(eyes=eyes, **options)

    def __call__(self, image: Any) -> NDArray[Any]:
        """The face in a photograph, whose eyes are looked up by ``image.filename``."""
        filename = getattr(image, "filename", "")
        eyes = self.eyes.get(_key(filename)) if self.eyes and filename else None
        known = eyes is not None and not np.isnan(eyes).any()
        if self.eyes is not None and not known and self.without_eyes == "raise":
            raise ValueError(
                f"the eyes in {filename or 'a picture without a file name'} are not known; "
                "give them, or use without_eyes='center' to crop the centre of such pictures"
            )
        return self.sample(image, eyes)

    def sample(self, image: Any, eyes: ArrayLike | None = None) -> NDArray[Any]:
        """The face in a photograph with these eyes."""
        picture = as_picture(image)
        pose = pose_map(picture.shape[:2], eyes, self.pose_size, self.eye_distance, self.eye_height)
        square = square_map(self.pose_size, self.size, self.square, self.shift_up)
        face = warp(picture, pose.after(square), (self.size, self.size))
        if not self.contrast:
            return stored(face, picture.dtype)
        low, high = full_range(picture)
        unit = (face[None] - np.float32(low)) / np.float32(high - low)
        even = normalize_contrast(unit, self.mean, self.std, self.window, clip=False)[0]
        return stored(low + (high - low) * even, picture.dtype)


def _key(path: str | PathLike[str]) -> str:
    return str(Path(path).absolute())
