"""Receptive fields on grids of one, two or three dimensions."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Fields:
    """The fields of one layer.

    Attributes
    ----------
    grid : shape of the layer below, in nodes (or pixels).
    field, stride : size of a field and distance between neighbouring fields, by dimension.
    pad : whether the last field is moved inward where fields do not fit exactly.
    starts : first position of every field, by dimension.
    shape, n_nodes : shape and size of this layer, in nodes.
    children : nodes of the layer below in a field.
    """

    grid: tuple[int, ...]
    field: tuple[int, ...]
    stride: tuple[int, ...]
    pad: bool = False
    starts: tuple[list[int], ...] = dataclass_field(init=False, compare=False, repr=False)
    shape: tuple[int, ...] = dataclass_field(init=False, compare=False, repr=False)
    n_nodes: int = dataclass_field(init=False, compare=False, repr=False)
    children: int = dataclass_field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        starts = []
        for size, length, step in zip(self.grid, self.field, self.stride, strict=True):
            own = list(range(0, size - length + 1, step))
            if self.pad and own and own[-1] + length < size:
                own.append(size - length)
            starts.append(own)
        shape = tuple(map(len, starts))
        self.__dict__.update(starts=tuple(starts), shape=shape, n_nodes=prod(shape), children=prod(self.field))

    @cached_property
    def index(self) -> Ints:
        """(nodes, children): the nodes of the layer below that feed each node, both in row-major order."""
        numbers = np.arange(int(np.prod(self.grid))).reshape(self.grid)
        rows = []
        for corner in product(*self.starts):
            window = tuple(slice(a, a + size) for a, size in zip(corner, self.field, strict=True))
            rows.append(numbers[window].ravel())
        return np.array(rows, dtype=np.intp)

    def some(self, nodes: Ints) -> Fields:
        """The fields of some nodes only."""
        fields = copy(self)
        fields.__dict__.update(index=self.index[nodes], n_nodes=len(nodes))
        return fields


def check_fit(fields: Fields, name: str) -> None:
    """Raise a ValueError that prints the grid and the nearest fitting choices if the fields do not fit the grid."""
    grid, field, stride = fields.grid, fields.field, fields.stride
    shown = "x".join(map(str, grid))
    for axis, (size, f, s) in enumerate(zip(grid, field, stride, strict=True)):
        if f > size:
            raise ValueError(
                f"{name}: field {field} is larger than the grid {shown} below it (dimension {axis}: {f} > {size}); "
                f"use a field of at most {size} there"
            )
        if not fields.pad and (size - f) % s:
            raise ValueError(
                f"{name}: field {field} with stride {stride} does not fit the grid {shown} below it (dimension {axis}: "
                f"({size} - {f}) is not a multiple of {s}); fitting choices there: {_fitting(size, f, s)}, "
                "or pad=True to move the last field inward"
            )


def _fitting(size: int, field: int, stride: int) -> str:
    """The nearest (field, stride) pairs that fit; if there are none near by, one field over everything."""
    stride = min(stride, field)  # a larger one would leave gaps
    near = range(max(1, field - 16), min(size, field + 16) + 1)
    steps = range(max(1, stride - 16), stride + 17)
    pairs = [(f, s) for f in near for s in steps if s <= f and (size - f) % s == 0]
    pairs.sort(key=lambda pair: (abs(pair[0] - field) + abs(pair[1] - stride), pair))
    return ", ".join(f"field {f} stride {s}" for f, s in pairs[:3] or [(size, stride)])


def receptive_fields(layers: list[Fields]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Extent in pixels of the largest receptive field of each layer, and the distance between neighbours."""
    out = []
    spans: list[list[tuple[int, int]]] = [[(i, i + 1) for i in range(size)] for size in layers[0].grid]
    for fields in layers:
        spans = [
            [(below[a][0], below[a + f - 1][1]) for a in starts]
            for below, starts, f in zip(spans, fields.starts, fields.field, strict=True)
        ]
        extent = tuple(max(b - a for a, b in span) for span in spans)
        step = tuple(span[1][0] - span[0][0] if len(span) > 1 else 0 for span in spans)
        out.append((extent, step))
    return out
