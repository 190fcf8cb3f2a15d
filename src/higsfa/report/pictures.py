"""The contact sheet: test images above what can be rebuilt from their features."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from higsfa.report.numbers import short, shortened
from higsfa.report.records import Metrics, RunFolder

PER_STRIP = 8
MAX_SIDE = 128


@dataclass(frozen=True)
class Strip:
    """Pictures side by side, as a data address."""

    name: str
    note: str
    alt: str
    url: str


@dataclass(frozen=True)
class Block:
    strips: tuple[Strip, ...]
    n_pictures: int


def contact_sheet(run: RunFolder) -> tuple[Block, ...]:
    """Blocks of up to eight images, each with one strip for the input and one for each method."""
    images, rebuilt = run.examples.images, run.examples.reconstructions
    if images is None or rebuilt is None or images.size == 0:
        return ()
    names = run.examples.reconstruction_names
    blocks = []
    for lo in range(0, len(images), PER_STRIP):
        part = slice(lo, lo + PER_STRIP)
        n = len(images[part])
        strips = [Strip("input", "", f"{n} test images", _strip(images[part]))]
        for name, pictures in zip(names, rebuilt, strict=True):
            note, alt = _error_note(run.metrics, name), f"the same images rebuilt from the features of {name}"
            strips.append(Strip(shortened(name, 30), note, alt, _strip(pictures[part])))
        blocks.append(Block(tuple(strips), n))
    return tuple(blocks)


def _error_note(metrics: Metrics, name: str) -> str:
    errors = [m.error_global for m in metrics.methods if m.name == name and m.error_global is not None]
    return f"error {short(errors[0])}" if errors else ""


def _strip(pictures: NDArray[Any]) -> str:
    """Pictures in a row with clear gaps between them; PNG as a data address."""
    grey = np.rint(255 * np.clip(np.nan_to_num(pictures), 0, 1)).astype(np.uint8)
    tiles = []
    for picture in grey:
        tile = Image.fromarray(picture)
        tile.thumbnail((MAX_SIDE, MAX_SIDE))
        tiles.append(tile)
    width, height = tiles[0].size
    gap = max(2, width // 16)
    strip = Image.new("LA", (len(tiles) * (width + gap) - gap, height))
    for i, tile in enumerate(tiles):
        tile = tile.convert("LA")
        strip.paste(tile, (i * (width + gap), 0))
    file = io.BytesIO()
    strip.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
