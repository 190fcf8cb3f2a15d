"""A video without labels: the view through a small window that slowly moves, turns and zooms over a textured world."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d, map_coordinates
from sklearn.utils import check_random_state

_WORLD, _OBJECTS = 256, 24  # pixels of the world, which is periodic, and objects on it
_TAIL = 4.0  # of the smoothing kernel, in widths
_SPREAD = {"x": 40.0, "y": 40.0, "angle": 0.5, "zoom": 0.2}  # standard deviations; zoom as a logarithm
_CHUNK = 4096


def make_moving_patches(
    n_samples: int, size: int = 16, n_recordings: int = 1, random_state: Any = 0, *, slowness: float = 50.0
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Draw a video for unsupervised slow feature analysis.

    The world has the power spectrum of natural images, 1/f², and some objects with edges. Pixels change quickly, but
    position, angle and zoom of the window change slowly.

    Parameters
    ----------
    n_samples : int
        Number of frames in all recordings together.
    size : int, default=16
        Height and width of a frame.
    n_recordings : int, default=1
        Separate walks over the same world, of nearly equal length.
    random_state : int, RandomState or None, default=0
    slowness : float, default=50.0
        Frames over which the slow parameters hardly change; their Delta is about ``0.5 / slowness**2``.

    Returns
    -------
    frames : array of shape (n_samples, size, size), float32 between 0 and 1
    parameters : dict of arrays of shape (n_samples,)
        ``x`` and ``y``, the centre of the window in pixels of the world; ``angle`` in radians; ``zoom`` as a factor.
    recording : int array of shape (n_samples,)
        Index of the recording of each frame, for ``fit(X, groups=recording)``.

    Examples
    --------
    >>> frames, parameters, recording = make_moving_patches(100, n_recordings=2)
    >>> frames.shape, sorted(parameters), recording[[0, -1]]
    ((100, 16, 16), ['angle', 'x', 'y', 'zoom'], array([0, 1]))
    """
    if not 1 <= n_recordings <= n_samples:
        raise ValueError(f"n_recordings={n_recordings} must be between 1 and n_samples={n_samples}")
    if slowness <= 0:
        raise ValueError(f"slowness={slowness} must be positive")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    world = _world(rng)
    recording = np.arange(n_samples) * n_recordings // n_samples
    lengths = np.bincount(recording)
    walks = {name: std * np.concatenate([_smooth(rng, n, slowness) for n in lengths]) for name, std in _SPREAD.items()}
    walks["zoom"] = np.exp(walks["zoom"])
    frames = np.empty((n_samples, size, size), dtype=np.float32)
    for start in range(0, n_samples, _CHUNK):
        rows = slice(start, start + _CHUNK)
        frames[rows] = _seen(world, size, *(walk[rows, None, None] for walk in walks.values()))
    return frames, walks, recording


def _smooth(rng: np.random.Generator, n: int, width: float) -> np.ndarray:
    """Stationary Gaussian noise of unit variance whose autocorrelation at lag t is exp(-t² / (2 width)²)."""
    tail = int(_TAIL * width + 0.5)
    smooth = gaussian_filter1d(rng.standard_normal(n + 2 * tail), width, truncate=_TAIL)[tail : tail + n]
    kernel = gaussian_filter1d(np.eye(1, 2 * tail + 1, tail)[0], width, truncate=_TAIL)
    return smooth / np.linalg.norm(kernel)


def _world(rng: np.random.Generator) -> np.ndarray:
    """A periodic image of 1/f noise with soft-edged discs and bars on it, between 0 and 1."""
    f = np.fft.fftfreq(_WORLD)
    frequency = np.hypot(f[:, None], f)
    frequency[0, 0] = np.inf
    texture = np.fft.ifft2(np.fft.fft2(rng.standard_normal((_WORLD, _WORLD))) / frequency).real
    world = 0.5 + 0.12 * texture / texture.std()
    grid = np.arange(_WORLD) + 0.0
    for _ in range(_OBJECTS):
        (cy, cx), angle = rng.uniform(0, _WORLD, 2), rng.uniform(0, np.pi)
        along, across = rng.uniform(6, 34), rng.uniform(3, 12)
        # Shortest distance from the centre in the periodic world.
        dy, dx = ((grid - c + _WORLD / 2) % _WORLD - _WORLD / 2 for c in (cy, cx))
        s = np.abs(np.cos(angle) * dx + np.sin(angle) * dy[:, None])
        t = np.abs(np.cos(angle) * dy[:, None] - np.sin(angle) * dx)
        outside = np.maximum(s - along, t - across) if rng.uniform() < 0.5 else np.hypot(s, t) - 2 * across
        mask = np.clip(0.5 - outside, 0, 1)
        world += mask * (rng.uniform(-0.35, 0.35) - 0.6 * (world - 0.5))  # the texture shows through
    return np.clip(world, 0, 1)


def _seen(
    world: np.ndarray, size: int, x: np.ndarray, y: np.ndarray, angle: np.ndarray, zoom: np.ndarray
) -> np.ndarray:
    axis = np.arange(size) - (size - 1) / 2
    u, v = axis / zoom, axis[:, None] / zoom
    column = x + np.cos(angle) * u - np.sin(angle) * v
    row = y + np.sin(angle) * u + np.cos(angle) * v
    return np.asarray(map_coordinates(world, [row, column], order=1, mode="grid-wrap"))
