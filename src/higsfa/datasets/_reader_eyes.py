"""Positions of the eyes, from columns, from tables of their own and from landmark files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from higsfa.datasets._reader_files import stem
from higsfa.datasets._reader_tables import Table
from higsfa.datasets._reader_values import number
from higsfa.io import read_regular

PUPILS = (31, 36)
"""Positions, from 0, of the pupils among FG-NET's 68 landmarks."""
MAX_POINTS_FILE = 100_000
"""Largest file of landmarks, in bytes."""
_EYE_NAMES = [
    (f"{left}_x", f"{left}_y", f"{right}_x", f"{right}_y")
    for left, right in (("left_eye", "right_eye"), ("leye", "reye"), ("eye_left", "eye_right"), ("eye1", "eye2"))
] + [("lx", "ly", "rx", "ry"), ("x1", "y1", "x2", "y2"), ("lefteyex", "lefteyey", "righteyex", "righteyey")]


def eye_columns_of(table: Table) -> NDArray[np.float64] | None:
    for names in _EYE_NAMES:
        columns = [table.column(name) for name in names]
        if all(column is not None for column in columns):
            return eye_array(columns, table)
    return None


def eye_array(columns: list[list[str]], table: Table) -> NDArray[np.float64]:
    numbers = np.array([[number(text) for text in column] for column in columns]).T
    for row, texts in enumerate(zip(*columns, strict=True)):
        if any(text and np.isnan(value) for text, value in zip(texts, numbers[row], strict=True)):
            raise ValueError(f"{table.path}, line {table.lines[row]}: eye coordinates {texts} are not all numbers")
    return left_first(numbers.reshape(-1, 2, 2))


def left_first(eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tables differ in whose left they mean: the eye further to the left in the image comes first."""
    swapped = eyes[:, 0, 0] > eyes[:, 1, 0]
    return np.where(swapped[:, None, None], eyes[:, ::-1], eyes)


def eyes_by_name(table: Table, photos: list[str]) -> NDArray[np.float64]:
    """Eye coordinates from a table of its own: name, x, y, x, y, with or without a line of column names."""
    if len(table.header) < 5:
        raise ValueError(f"{table.path}: needs five columns, name, x, y, x, y; got {len(table.header)}")
    if all(np.isnan(number(field)) for field in table.rows[0][1:5]):
        table = replace(table, rows=table.rows[1:], lines=table.lines[1:])
    if not table.rows:
        raise ValueError(f"{table.path}: the table is empty; it needs a row with the eyes of each image")
    columns = [[row[i].strip() for row in table.rows] for i in range(5)]
    found = dict(zip(map(stem, columns[0]), eye_array(columns[1:], table), strict=True))
    unknown = np.full((2, 2), np.nan)
    eyes = np.array([found.get(stem(photo), unknown) for photo in photos])
    if np.isnan(eyes).all():
        raise ValueError(f"{table.path}: none of its names, such as {columns[0][0]!r}, is that of an image")
    return eyes


def landmarks_of(path: Path) -> NDArray[np.float64]:
    """The 68 points of a landmark file: ``version: 1``, ``n_points: 68``, and lines "x y" between braces."""
    text = read_regular(path, MAX_POINTS_FILE).decode("ascii", "replace")
    inner = text.partition("{")[2].partition("}")[0]
    numbers = np.array([number(field) for field in inner.split()])
    if len(numbers) != 136 or np.isnan(numbers).any():
        raise ValueError(f"{path}: expected 68 landmarks, that is 136 numbers between braces, found {len(numbers)}")
    return numbers.reshape(68, 2)
