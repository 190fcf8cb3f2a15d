"""Synthetic faces growing older: a row for each person, a column for each age.

    python examples/contact_sheet.py [docs/images/faces.png]

All images of a row come from the same parameters; only the age is changed.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from higsfa.datasets import draw_faces, face_parameters, with_age

AGES = (18, 26, 34, 42, 50, 58, 66, 75)
SIZE = 128
HEADER = 20
PERSONS_OF_A_KIND = 2


def contact_sheet(random_state: int = 0) -> Image.Image:
    """Two persons of each gender and ethnicity at all ages."""
    parameters = face_parameters(200, random_state)
    kinds = product(("F", "M"), ("B", "W"))
    chosen = [np.flatnonzero((parameters["gender"] == g) & (parameters["race"] == r)) for g, r in kinds]
    persons = np.stack([rows[:PERSONS_OF_A_KIND] for rows in chosen], axis=1).ravel()
    rows = np.repeat(persons, len(AGES))
    repeated = {name: values[rows] for name, values in parameters.items()}
    faces = draw_faces(with_age(repeated, np.tile(AGES, len(persons))), SIZE)
    grid = faces.reshape(len(persons), len(AGES), SIZE, SIZE).swapaxes(1, 2).reshape(-1, len(AGES) * SIZE)

    sheet = Image.new("L", (grid.shape[1], grid.shape[0] + HEADER), color=255)
    sheet.paste(Image.fromarray(grid), (0, HEADER))
    pen = ImageDraw.Draw(sheet)
    for column, age in enumerate(AGES):
        pen.text(((column + 0.5) * SIZE, HEADER / 2), f"{age} years", fill=0, anchor="mm")
    return sheet


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/faces.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet().save(path, optimize=True)
    print(f"{path}: ages {', '.join(map(str, AGES))}")
