"""Contact sheets: pictures in rows and columns with captions, and animations of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from higsfa.cli.terminal import one_line
from higsfa.io import replacing

Grey = NDArray[np.uint8]

SIDE = 128  # pictures are shown at least this large, enlarged by a whole factor
GAP, TEXT = 8, 22
FRAME_MS = 120


def as_bytes(pictures: Any, pixel_range: tuple[float, float]) -> Grey:
    """Grey values 0 to 255, given the values of black and of white."""
    black, white = pixel_range
    grey = (np.asarray(pictures, dtype=np.float64) - black) * (255.0 / (white - black))
    return np.asarray(np.clip(np.rint(grey), 0, 255), dtype=np.uint8)


def enlarged(picture: Grey) -> Image.Image:
    """A picture enlarged by a whole factor, so that small ones can be seen."""
    factor = max(1, round(SIDE / max(picture.shape[:2])))
    image = Image.fromarray(picture)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.BICUBIC)


def sheet(rows: Iterable[Iterable[Grey]], row_names: Sequence[str] = (), captions: Sequence[str] = ()) -> Image.Image:
    """Rows of pictures of one size, with names at the left and captions above the columns."""
    shown = [[enlarged(picture) for picture in row] for row in rows]
    width, height = shown[0][0].size
    font = ImageFont.load_default(size=15)
    names = [one_line(name)[:40] for name in row_names]
    left = GAP + (GAP + int(max(font.getlength(name) for name in names)) if names else 0)
    top = GAP + (TEXT if captions else 0)
    n_columns = max(map(len, shown))
    canvas = Image.new("L", (left + n_columns * (width + GAP), top + len(shown) * (height + GAP)), 255)
    draw = ImageDraw.Draw(canvas)
    for r, row in enumerate(shown):
        y = top + r * (height + GAP)
        if names:
            draw.text((GAP, y + height // 2), names[r], fill=0, font=font, anchor="lm")
        for c, image in enumerate(row):
            canvas.paste(image, (left + c * (width + GAP), y))
    for c, caption in enumerate(captions):
        x = left + c * (width + GAP) + width // 2
        draw.text((x, GAP + TEXT // 2 - 2), one_line(caption)[:24], fill=0, font=font, anchor="mm")
    return canvas


def write_picture(path: Path, image: Image.Image) -> None:
    """A PNG file, whole or not at all."""
    with replacing(path) as file:
        image.save(file, "PNG", optimize=True)


def write_animation(path: Path, frames: Iterable[Grey]) -> None:
    """Forwards and backwards, in an endless loop; GIF or WebP, by the ending of the name."""
    there = [enlarged(frame) for frame in frames]
    images = [*there, *there[-2:0:-1]]
    kind = "WEBP" if path.suffix.lower() == ".webp" else "GIF"
    with replacing(path) as file:
        images[0].save(file, kind, save_all=True, append_images=images[1:], duration=FRAME_MS, loop=0)
