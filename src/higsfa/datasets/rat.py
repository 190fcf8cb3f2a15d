"""The views of a simulated rat that walks in a box: a video without labels, for slow features of place and direction.

A view is a panorama on a cylinder around the eye, so each of its columns looks in one direction and hits one wall. What
it sees there depends on the place on the wall (along the perimeter of the box) and on the distance. Both are tabulated:
columns of pixels, filtered vertically, for many places and distances, summed up along the perimeter. A column of a view
is the mean of the table over the stretch of wall that the pixel covers, a difference of two such sums: exact area
antialiasing at any distance and slant, so that no texture flickers when the head turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.signal import lfilter
from sklearn.utils import check_random_state

from higsfa import sources

Floats = NDArray[np.float64]
WIDTH, HEIGHT, FIELD_OF_VIEW = 320, 40, np.deg2rad(320.0)
PIXEL = FIELD_OF_VIEW / WIDTH  # a degree; rows are as far apart as columns
WALL_HEIGHT, EYE = 1.0, 0.25
_PLACES, _LEVELS = 1024, 96  # of the table: along the perimeter, and distances
_SUBSAMPLES = 8  # of a row
_FLOOR, _CEILING = np.array([78, 62, 50]), np.array([190, 205, 220])
_GREY = 128.0
_CHUNK = 64  # views at once


@dataclass(frozen=True)
class RatBox:
    """A rectangular box with textured walls, and the eye of a rat in it.

    ``box(poses)`` renders views: a pure function of the poses, so ``sources.map(poses, box)`` is a source of any length
    that holds no pictures.

    Parameters
    ----------
    size : (float, float), default=(3.0, 2.0)
        Lengths of the walls along x and y. Walls are 1 high, and the eye is at a height of 0.25.
    seed : int, default=0
        Of the textures.

    Examples
    --------
    >>> from higsfa.datasets import RatBox
    >>> RatBox()([[1.5, 1.0, 0.0]]).shape  # x, y, direction
    (1, 40, 320, 3)
    """

    size: tuple[float, float] = (3.0, 2.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.size) != 2 or not all(np.isfinite(side) and side > 0 for side in self.size):
            raise ValueError(f"size={self.size!r}: give two positive lengths")

    def __call__(self, poses: Any) -> NDArray[np.uint8]:
        """Views from some poses.

        Parameters
        ----------
        poses : array-like of shape (n, 3)
            x, y and the direction of the head in radians, from x towards y.

        Returns
        -------
        uint8 array of shape (n, 40, 320, 3)
            RGB. Directions grow from left to right; the head points to the middle.
        """
        poses = np.asarray(poses, dtype=np.float64)
        if poses.ndim != 2 or poses.shape[1] != 3:
            raise ValueError(f"poses must have shape (n, 3): x, y, direction; got {poses.shape}")
        outside = ~np.all((poses[:, :2] > 0) & (poses[:, :2] < self.size) & np.isfinite(poses[:, 2:]), axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(f"poses: row {row}, {poses[row].tolist()}, is not in the box of size {self.size}")
        out = np.empty((len(poses), HEIGHT, WIDTH, 3), dtype=np.uint8)
        for start in range(0, len(poses), _CHUNK):
            some = poses[start : start + _CHUNK]
            columns = self._mixture(some) @ self._table
            columns += _GREY + 0.5  # rounded below
            as_bytes = columns.astype(np.uint8).reshape(len(some), WIDTH, HEIGHT, 3)
            for channel in range(3):  # four times as fast as all at once
                out[start : start + _CHUNK, ..., channel] = as_bytes[..., channel].transpose(0, 2, 1)
        return out

    def hit(self, x: Floats, y: Floats, angle: Floats) -> tuple[Floats, Floats]:
        """Where a ray from (x, y) meets the walls: its place on the perimeter and its length.

        The perimeter runs from (0, 0) along x, then y, and back.
        """
        (a, b), (dx, dy) = self.size, (np.cos(angle), np.sin(angle))
        with np.errstate(divide="ignore"):
            to_x = np.where(dx > 0, a - x, -x) / np.where(dx == 0, 1e-300, dx)
            to_y = np.where(dy > 0, b - y, -y) / np.where(dy == 0, 1e-300, dy)
        distance = np.minimum(to_x, to_y)
        at_x, at_y = np.clip(x + distance * dx, 0, a), np.clip(y + distance * dy, 0, b)
        on_x_wall = np.where(dx > 0, a + at_y, 2 * a + 2 * b - at_y)
        place = np.where(to_x < to_y, on_x_wall, np.where(dy > 0, 2 * a + b - at_x, at_x))
        return place, distance

    @property
    def perimeter(self) -> float:
        return 2.0 * sum(self.size)

    @cached_property
    def _distances(self) -> Floats:
        """Of the levels of the table: evenly spaced logarithms, from a hundredth of the box to its diagonal."""
        diagonal = float(np.hypot(*self.size))
        return np.geomspace(0.01 * diagonal, diagonal, _LEVELS)

    @cached_property
    def _textures(self) -> Floats:
        """(places, heights, 3): colours of the walls, which are smooth; each wall has a hue of its own."""
        rng = np.random.default_rng(self.seed)
        per_unit = _PLACES / self.perimeter
        n_high = round(WALL_HEIGHT * per_unit)
        corners = np.round(np.cumsum([0, *self.size, *self.size]) * per_unit).astype(int)
        texture = np.empty((_PLACES, n_high, 3))
        hues = rng.permutation([[150, 95, 70], [80, 130, 95], [85, 100, 155], [150, 135, 75]])
        for hue, begin, end in zip(hues, corners[:-1], corners[1:], strict=True):
            wall = np.zeros((end - begin, n_high, 3))
            for width in (0.05, 0.12, 0.3):
                noise = rng.standard_normal(wall.shape)
                smooth = gaussian_filter(noise, (width * per_unit, width * per_unit, 0), mode="reflect")
                wall += smooth / smooth.std() * 22.0
            texture[begin:end] = hue + wall
        return np.clip(texture, 5, 250)

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        """(places + 1 + half of them, levels) columns of pixels, summed up along the perimeter.

        The first place follows the last once more, so that a pixel may cover the end of the perimeter.
        """
        texture = self._textures
        n_high = texture.shape[1]
        rows = np.arange(HEIGHT * _SUBSAMPLES) + 0.5
        elevation = np.tan((HEIGHT / 2 - rows / _SUBSAMPLES) * PIXEL)
        table = np.zeros((_PLACES + _PLACES // 2 + 1, _LEVELS, HEIGHT * 3), dtype=np.float32)
        for level, distance in enumerate(self._distances):
            height = EYE + distance * elevation
            # Weights of texture heights, floor and ceiling in each row: the mean of its subsamples.
            at = np.where(height < 0, n_high, np.minimum(height / WALL_HEIGHT * n_high, n_high + 1)).astype(int)
            at = np.where(height >= WALL_HEIGHT, n_high + 1, at)
            weights = np.zeros((HEIGHT, n_high + 2))
            np.add.at(weights, (np.repeat(np.arange(HEIGHT), _SUBSAMPLES), at), 1 / _SUBSAMPLES)
            outside = weights[:, n_high:] @ np.array([_FLOOR, _CEILING])
            columns = np.tensordot(texture, weights[:, :n_high], axes=(1, 1)).transpose(0, 2, 1) + outside
            columns = columns.reshape(_PLACES, HEIGHT * 3)
            # Taken relative to grey, sums stay small, and differences of them exact enough in single precision.
            sums = np.cumsum(np.concatenate([columns, columns[: _PLACES // 2]]) - _GREY, axis=0)
            table[1:, level] = sums
        return table.reshape(-1, HEIGHT * 3)

    def _segments(self, poses: Floats) -> tuple[Floats, Floats, Floats]:
        """Borders of pixels and corners of the box: their columns in the view, ascending, and directions and places.

        Corners that are out of sight lie on the right border of the view.
        """
        x, y, direction = (poses[:, i, None] for i in range(3))
        a, b = self.size
        towards = np.arctan2(np.array([0, 0, b, b]) - y, np.array([0, a, 0, a]) - x)
        corners = (towards - direction) / PIXEL + WIDTH / 2
        corners = np.minimum(corners % (2 * np.pi / PIXEL), WIDTH)
        pixels = np.broadcast_to(np.arange(WIDTH + 1.0), (len(poses), WIDTH + 1))
        column = np.sort(np.concatenate([pixels, corners], axis=1), axis=1)
        angle = direction + (column - WIDTH / 2) * PIXEL
        return column, angle, self.hit(x, y, angle)[0]

    def _mixture(self, poses: Floats) -> Any:
        """The sparse matrix that makes columns of views from the table; see the top of this module.

        A pixel is one stretch of wall, or two beside a corner. Each is the mean of the table over it, at its distance.
        """
        n = len(poses)
        column, angle, places = self._segments(poses)
        share = np.diff(column, axis=1)
        _, distance = self.hit(poses[:, :1], poses[:, 1:2], (angle[:, 1:] + angle[:, :-1]) / 2)
        begin, end = (some * (_PLACES / self.perimeter) for some in (places[:, :-1], places[:, 1:]))
        end = np.where(end < begin - 1e-6, end + _PLACES, end)
        share /= np.maximum(end - begin, 1e-6)
        level = np.log(distance / self._distances[0]) / np.log(self._distances[1] / self._distances[0])
        level = np.clip(level, 0, _LEVELS - 1)
        low = np.minimum(level.astype(np.int32), _LEVELS - 2)
        far = level - low
        indices, weights = np.empty((*share.shape, 8), dtype=np.int32), np.empty((*share.shape, 8), dtype=np.float32)
        for k, (place, sign) in enumerate(((end, 1.0), (begin, -1.0))):
            cell = np.minimum(place.astype(np.int32), _PLACES + _PLACES // 2 - 1)
            within = place - cell
            for i, part in enumerate((sign * share * (1 - within), sign * share * within)):
                at = (cell + i) * _LEVELS + low
                for j, level_part in enumerate((1 - far, far)):
                    indices[:, :, 4 * k + 2 * i + j] = at + j
                    weights[:, :, 4 * k + 2 * i + j] = part * level_part
        pixel = np.minimum(((column[:, 1:] + column[:, :-1]) / 2).astype(np.intp), WIDTH - 1)
        counts = np.bincount((pixel + WIDTH * np.arange(n)[:, None]).ravel(), minlength=n * WIDTH)
        starts = np.concatenate([[0], 8 * np.cumsum(counts)]).astype(np.int32)
        return sp.csr_array((weights.ravel(), indices.ravel(), starts), shape=(n * WIDTH, len(self._table)))

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "seed": self.seed}  # the table is made again where it is needed


def make_rat_views(
    n_samples: int,
    random_state: Any = 0,
    *,
    box: RatBox | None = None,
    speed: float = 0.06,
    turn: float = 0.5,
    persistence: float = 10.0,
    turn_persistence: float = 2.0,
    margin: float = 0.15,
    lazy: bool = False,
    n_jobs: int | None = None,
) -> tuple[Any, dict[str, NDArray[np.float64]]]:
    """Let a rat walk in a box, and draw what it sees.

    Velocity and angular velocity are independent noise with momentum, and the rat bounces off the walls, so that in the
    long run it is everywhere equally often, in all directions. How fast it turns against how fast it walks decides what
    varies slowly: for the defaults (it looks around quickly) its place, for ``speed=0.3, persistence=1, turn=0.03,
    turn_persistence=10`` the direction of its head.

    Parameters
    ----------
    n_samples : int
        Number of frames.
    random_state : int, RandomState or None, default=0
        Of the walk. The walls are those of `box`, so walks with different seeds are in the same world.
    box : RatBox, optional
        ``RatBox()`` by default, of 3 x 2.
    speed : float, default=0.06
        Root mean square of the step along x and along y, per frame.
    turn : float, default=0.5
        Root mean square of the change of direction per frame, in radians.
    persistence, turn_persistence : float, default=10.0 and 2.0
        Frames after which velocity and angular velocity are forgotten to a share of 1/e; 0 for no momentum.
    margin : float, default=0.15
        Least distance from a wall.
    lazy : bool, default=False
        Return a source that draws views when they are read, instead of an array of 38,400 bytes a frame.
    n_jobs : int, optional
        Threads for drawing. They do not change the views.

    Returns
    -------
    views : uint8 array of shape (n_samples, 40, 320, 3), or a source of such samples
        RGB panoramas of 320 degrees.
    walk : dict of arrays of shape (n_samples,)
        ``x``, ``y``, and ``direction`` in radians, between -pi and pi.

    Examples
    --------
    >>> from higsfa.datasets import make_rat_views
    >>> views, walk = make_rat_views(10)
    >>> views.shape, views.dtype, sorted(walk)
    ((10, 40, 320, 3), dtype('uint8'), ['direction', 'x', 'y'])
    """
    box = RatBox() if box is None else box
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples} must be at least 1")
    given = {"speed": speed, "turn": turn, "persistence": persistence, "turn_persistence": turn_persistence}
    for name, value in given.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value!r} must be a finite number of at least 0")
    if not 0 < 2 * margin < min(box.size):
        raise ValueError(f"margin={margin!r} must be positive and leave some space in a box of size {box.size}")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    walk = {}
    for name, side in zip("xy", box.size, strict=True):
        space = side - 2 * margin
        path = rng.uniform(0, 2 * space) + np.cumsum(_momentum(rng, n_samples, speed, persistence))
        # A path that bounces off walls is a straight one, folded.
        walk[name] = margin + space - np.abs(path % (2 * space) - space)
    direction = rng.uniform(0, 2 * np.pi) + np.cumsum(_momentum(rng, n_samples, turn, turn_persistence))
    walk["direction"] = (direction + np.pi) % (2 * np.pi) - np.pi
    poses = np.column_stack([walk["x"], walk["y"], walk["direction"]])
    if lazy:
        return sources.map(poses, box), walk
    views = np.empty((n_samples, HEIGHT, WIDTH, 3), dtype=np.uint8)
    box(poses[:1])  # makes the table, for all threads

    def draw(start: int) -> None:
        views[start : start + _CHUNK] = box(poses[start : start + _CHUNK])

    Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(draw)(start) for start in range(0, n_samples, _CHUNK))
    return views, walk


def _momentum(rng: np.random.Generator, n: int, rms: float, persistence: float) -> Floats:
    """Stationary noise whose autocorrelation falls by 1/e in so many frames."""
    kept = np.exp(-1 / persistence) if persistence > 0 else 0.0
    noise = rng.standard_normal(n)
    noise[1:] *= np.sqrt(1 - kept**2)
    return np.asarray(rms * lfilter([1.0], [1.0, -kept], noise))
