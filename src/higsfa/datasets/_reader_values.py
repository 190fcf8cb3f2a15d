"""Values of labels: names in one spelling, numbers where all are numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

GENDERS = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
MORPH_RACES = {
    "black": "B",
    "african american": "B",
    "white": "W",
    "caucasian": "W",
    "asian": "A",
    "hispanic": "H",
    "other": "O",
    **{letter.lower(): letter for letter in "BWAHO"},
}


def objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def names_of(column: list[str], spelling: Mapping[str, str]) -> NDArray[Any]:
    """Names in one spelling; unknown ones as they are, None where empty."""
    return objects([spelling.get(text.lower(), text) or None for text in column])


def number(text: str) -> float:
    """A finite number, or NaN. 1_11 is a name, though Python would read it as 111."""
    try:
        value = float("nan" if "_" in text else text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def values_of(column: list[str]) -> NDArray[Any]:
    """Numbers if all are, else strings. 001 is a name, and so is a row of more digits than a double tells apart."""
    blank = np.array([text.lower() in ("", "nan", "na", "none", "null") for text in column])
    numbers = np.array([number(text) for text in column])
    names = any(re.match(r"0\d", text) or re.fullmatch(r"[+-]?\d{16,}", text) for text in column)
    if blank.all() or names or np.isnan(numbers[~blank]).any():
        return objects([text or None for text in column])
    if all(re.fullmatch(r"[+-]?\d+", text) for text in column):
        return numbers.astype(np.int64)
    return numbers
