"""Room for intermediate results, used again and again: fresh memory for every tile costs more than many a sum."""

from __future__ import annotations

import threading
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Room(threading.local):
    """Arrays of a thread by name. What was written under a name lasts until the next one of that name is asked for."""

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.uint8]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array with arbitrary content."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        held = self._held.get(name)
        if held is None or held.nbytes < size:
            held = self._held[name] = np.empty(size, np.uint8)
        return held[:size].view(kind).reshape(shape)


room = Room()
