"""Oriented edges pooled in cells: a fixed first step for networks on pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BATCH = 32
"""Pictures at a time: what is made of them stays in the cache."""
SHARPNESS = 4
"""How often the share of a direction is squared: cos^16 falls to one half at 17 degrees."""
LEAST_STRENGTH = 1e-6
LEAST_EDGES = 0.01
"""Strength of edges, with white 1, below which surroundings count as flat."""
LEAST_CONTRAST = 0.05
RIDGE = 1e-4
MEANS = 0.15
"""Weight of mean brightness and colour against edges."""


@dataclass(frozen=True)
class Edges:
    """How pictures of one shape become cells of oriented edges.

    The gradient of each pixel (of its strongest channel) is shared out over directions around the circle, averaged in
    cells with triangular weights that reach half a cell into the next ones, and divided by the mean strength of edges
    in 3 x 3 cells, so that light and contrast matter little. Then follow the mean brightness of the cell and, for
    colour, how far channels differ from it, relative to brightness and contrast of the picture. Pictures that do not
    divide into cells are continued at their borders.
    """

    shape: tuple[int, ...]  # height, width and, for colour, the number of channels
    cell: int
    directions: int
    black: float
    white: float

    @property
    def channels(self) -> int:
        return self.shape[2] if len(self.shape) == 3 else 1

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.shape[0] // self.cell), -(-self.shape[1] // self.cell)

    @property
    def out_shape(self) -> tuple[int, int, int]:
        return *self.grid, self.directions + self.channels

    def padded(self, images: NDArray[Any], dtype: Any = np.float32) -> Array:
        """Pictures (n, ...) with values from 0 to 1, as (n, channels, height, width) that divides into cells."""
        x = np.asarray(images).reshape(len(images), *self.shape[:2], self.channels)
        x = (np.moveaxis(x, 3, 1).astype(dtype) - dtype(self.black)) / dtype(self.white - self.black)
        return np.pad(x, ((0, 0), (0, 0), *self._margins), mode="edge")

    def cropped(self, x: NDArray[Any]) -> NDArray[Any]:
        """The pictures (n, *shape), with their own black and white, of what `padded` made."""
        (top, _), (left, _) = self._margins
        x = x[:, :, top : top + self.shape[0], left : left + self.shape[1]]
        x = np.moveaxis(x, 1, 3) * (self.white - self.black) + self.black
        return np.ascontiguousarray(x).reshape(len(x), *self.shape)

    def __call__(self, images: NDArray[Any], dtype: Any = np.float32) -> Array:
        """Cells (n, rows, columns, directions + channels) of pictures (n, ...)."""
        out = np.empty((len(images), *self.out_shape), dtype)
        for lo in range(0, len(images), BATCH):
            out[lo : lo + BATCH] = self._describe(self.padded(images[lo : lo + BATCH], dtype))
        return out

    def pull_back(self, images: NDArray[Any], G: NDArray[Any]) -> NDArray[Any]:
        """Vector-Jacobian product: dL/dx (n, *shape) from dL/d(cells), in float64.

        Where there is no edge at all, the root has no slope, and 0 is returned for it.
        """
        x = self.padded(images, np.float64)
        G = np.asarray(G, np.float64).reshape(len(x), *self.out_shape)
        dx = self._pull_back_means(x, MEANS * np.moveaxis(G[..., self.directions :], 3, 1))
        dx += self._pull_back_edges(x, G[..., : self.directions])
        (top, bottom), (left, right) = self._margins
        dx[:, :, top] += dx[:, :, :top].sum(axis=2)  # what continues a picture is a copy of its border
        dx[:, :, dx.shape[2] - bottom - 1] += dx[:, :, dx.shape[2] - bottom :].sum(axis=2)
        dx[..., left] += dx[..., :left].sum(axis=3)
        dx[..., dx.shape[3] - right - 1] += dx[..., dx.shape[3] - right :].sum(axis=3)
        dx = dx[:, :, top : top + self.shape[0], left : left + self.shape[1]] / (self.white - self.black)
        return np.ascontiguousarray(np.moveaxis(dx, 1, 3)).reshape(len(x), *self.shape)

    def _pull_back_means(self, x: NDArray[Any], G: NDArray[Any]) -> NDArray[Any]:
        down, right = self._pools
        means = down @ x @ right
        grey = means.mean(axis=1, keepdims=True)
        deviation = grey - grey.mean(axis=(2, 3), keepdims=True)
        spread = grey.std(axis=(2, 3), keepdims=True)
        contrast = spread + LEAST_CONTRAST
        shown = np.concatenate([deviation, means[:, :-1] - grey], axis=1)
        slope = -(G * shown).sum(axis=(1, 2, 3), keepdims=True) / contrast**2
        G = G / contrast
        d_grey = G[:, :1] - G[:, :1].mean(axis=(2, 3), keepdims=True) - G[:, 1:].sum(axis=1, keepdims=True)
        d_grey += slope * deviation / (np.maximum(spread, 1e-12) * deviation[0].size)
        d_means = np.repeat(d_grey / self.channels, self.channels, axis=1)
        d_means[:, :-1] += G[:, 1:]
        return np.asarray(down.T @ d_means @ right.T)

    def _pull_back_edges(self, x: NDArray[Any], G: NDArray[Any]) -> NDArray[Any]:
        down, right = self._pools
        gx, gy, strength = _gradients(x)
        shares = [np.maximum(gx * cos + gy * sin, 0) for cos, sin in self._angles]
        edges = np.stack([down @ (share ** (2**SHARPNESS) * strength) @ right for share in shares], axis=-1)
        energy = np.sqrt(np.sum(edges**2, axis=-1, keepdims=True))
        local = _around(energy) + LEAST_EDGES
        root = np.sqrt(edges / local)
        d_local = -(G * root).sum(axis=-1, keepdims=True) / (2 * local)
        d_edges = np.divide(G, 2 * root * local, out=np.zeros_like(G), where=root > 1e-6)
        d_edges += _around_back(d_local) * np.divide(edges, energy, out=np.zeros_like(edges), where=energy > 0)
        dgx, dgy = np.zeros_like(gx), np.zeros_like(gy)
        power = 2**SHARPNESS
        exact = strength / np.maximum(strength - np.float32(LEAST_STRENGTH), 1e-12)  # makes directions of length 1
        for d, (share, (cos, sin)) in enumerate(zip(shares, self._angles, strict=True)):
            pixels = down.T @ d_edges[..., d] @ right.T * share ** (power - 1)
            dgx += pixels * (power * cos - (power - 1) * share * gx * exact)
            dgy += pixels * (power * sin - (power - 1) * share * gy * exact)
        return _gradients_back(x, dgx, dgy)

    @property
    def _margins(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, columns = (count * self.cell - size for count, size in zip(self.grid, self.shape, strict=False))
        return (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)

    @cached_property
    def _pools(self) -> tuple[Array, Array]:
        """``down @ picture @ right`` averages a picture in cells."""
        down, right = (_triangles(count * self.cell, self.cell) for count in self.grid)
        return down, right.T

    @cached_property
    def _angles(self) -> list[tuple[np.float32, np.float32]]:
        angles = 2 * np.pi / self.directions * np.arange(self.directions)
        return [(np.float32(np.cos(angle)), np.float32(np.sin(angle))) for angle in angles]

    def _describe(self, x: Array) -> Array:
        down, right = self._pools
        gx, gy, strength = _gradients(x)
        pooled = []
        for cos, sin in self._angles:
            share = np.maximum(gx * cos + gy * sin, 0)
            for _ in range(SHARPNESS):
                share *= share
            share *= strength
            pooled.append(down @ share @ right)
        edges = np.stack(pooled, axis=-1)
        local = _around(np.sqrt(np.sum(edges**2, axis=-1, keepdims=True)))
        return np.concatenate([np.sqrt(edges / (local + LEAST_EDGES)), MEANS * self._means(x)], axis=-1)

    def _means(self, x: Array) -> Array:
        """Mean brightness of cells, and how far all channels but the last differ from it."""
        down, right = self._pools
        means = down @ x @ right
        grey = means.mean(axis=1, keepdims=True)
        contrast = grey.std(axis=(2, 3), keepdims=True) + np.float32(LEAST_CONTRAST)
        colour = means[:, :-1] - grey
        grey = grey - grey.mean(axis=(2, 3), keepdims=True)
        return np.moveaxis(np.concatenate([grey, colour], axis=1) / contrast, 1, 3)


@dataclass(frozen=True, eq=False)
class EdgesInverse:
    """Pictures from their cells: the pixels of each cell as a linear function of 3 x 3 cells, the same everywhere.

    Brightness and contrast of a picture as a whole are not in its cells; those of the mean picture are returned.
    """

    weights: NDArray[np.float64]  # (9 (directions + channels) + 1, channels * cell^2)

    @classmethod
    def fit(cls, edges: Edges, images: NDArray[Any]) -> EdgesInverse:
        """Least squares over all cells of some pictures."""
        n_inputs, n_pixels = 9 * edges.out_shape[2] + 1, edges.channels * edges.cell**2
        gram, target = np.zeros((n_inputs, n_inputs)), np.zeros((n_inputs, n_pixels))
        for lo in range(0, len(images), BATCH):
            x = edges.padded(images[lo : lo + BATCH])
            n, channels, cell = len(x), edges.channels, edges.cell
            tiles = x.reshape(n, channels, edges.grid[0], cell, edges.grid[1], cell).transpose(0, 2, 4, 1, 3, 5)
            A = _neighbours(edges._describe(x)).astype(np.float64)
            gram += A.T @ A
            target += A.T @ tiles.reshape(len(A), -1)
        ridge = RIDGE * np.trace(gram) / n_inputs
        return cls(np.linalg.solve(gram + ridge * np.eye(n_inputs), target))

    def __call__(self, edges: Edges, cells: NDArray[Any]) -> NDArray[Any]:
        """Pictures (n, *shape) from cells (n, ...)."""
        (rows, columns), cell = edges.grid, edges.cell
        out = np.empty((len(cells), *edges.shape), cells.dtype)
        for lo in range(0, len(cells), BATCH):
            part = cells[lo : lo + BATCH].reshape(-1, *edges.out_shape)
            tiles = (_neighbours(part) @ self.weights).reshape(len(part), rows, columns, edges.channels, cell, cell)
            x = tiles.transpose(0, 3, 1, 4, 2, 5).reshape(len(part), edges.channels, rows * cell, columns * cell)
            out[lo : lo + BATCH] = edges.cropped(x)
        return out


def _neighbours(cells: NDArray[Any]) -> NDArray[Any]:
    """For each cell of (n, rows, columns, channels) the 3 x 3 cells around it and a one, as rows."""
    h, w = cells.shape[1:3]
    wide = np.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    parts = [wide[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return np.concatenate([*parts, np.ones_like(cells[..., :1])], axis=-1).reshape(-1, 9 * cells.shape[3] + 1)


def _gradients(x: Array) -> tuple[Array, Array, Array]:
    """Directions of unit length and strengths of the gradients of pictures (n, channels, height, width)."""
    gx, gy, strength = _differences(x)
    if x.shape[1] > 1:
        best = strength.argmax(axis=1)[:, None]
        gx, gy, strength = (np.take_along_axis(part, best, axis=1) for part in (gx, gy, strength))
    gx, gy, strength = gx[:, 0], gy[:, 0], strength[:, 0] + np.float32(LEAST_STRENGTH)
    return gx / strength, gy / strength, strength


def _differences(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Central differences to the right and down, and their length, of all channels."""
    gy, gx = np.zeros_like(x), np.zeros_like(x)
    gy[:, :, 1:-1], gx[..., 1:-1] = (x[:, :, 2:] - x[:, :, :-2]) / 2, (x[..., 2:] - x[..., :-2]) / 2
    return gx, gy, np.sqrt(gx**2 + gy**2)


def _gradients_back(x: NDArray[Any], dgx: NDArray[Any], dgy: NDArray[Any]) -> NDArray[Any]:
    """dL/dx of central differences, which go to the strongest channel of each pixel."""
    best = _differences(x)[2].argmax(axis=1)[:, None]
    dx, along, across = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    np.put_along_axis(along, best, dgx[:, None] / 2, axis=1)
    np.put_along_axis(across, best, dgy[:, None] / 2, axis=1)
    dx[..., 2:] += along[..., 1:-1]
    dx[..., :-2] -= along[..., 1:-1]
    dx[:, :, 2:] += across[:, :, 1:-1]
    dx[:, :, :-2] -= across[:, :, 1:-1]
    return dx


def _around(cells: Array) -> Array:
    """Means over 3 x 3 cells of (n, rows, columns, 1), which are continued at the borders."""
    h, w = cells.shape[1:3]
    wide = np.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    total = np.zeros_like(cells)
    for i in range(3):
        for j in range(3):
            total += wide[:, i : i + h, j : j + w]
    return total / np.float32(9)


def _around_back(G: NDArray[Any]) -> NDArray[Any]:
    """The transpose of `_around`."""
    h, w = G.shape[1:3]
    wide = np.zeros((len(G), h + 2, w + 2, 1), G.dtype)
    for i in range(3):
        for j in range(3):
            wide[:, i : i + h, j : j + w] += G / 9
    wide[:, 1] += wide[:, 0]
    wide[:, h] += wide[:, h + 1]
    wide[:, :, 1] += wide[:, :, 0]
    wide[:, :, w] += wide[:, :, w + 1]
    return wide[:, 1 : h + 1, 1 : w + 1]


def _triangles(size: int, cell: int) -> Array:
    """Weights of pixels in cells, of shape (size / cell, size)."""
    centres = (cell - 1) / 2 + cell * np.arange(size // cell)
    weights = np.maximum(0, 1 - np.abs(np.arange(size) - centres[:, None]) / cell)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)
