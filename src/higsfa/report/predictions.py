"""``predictions.csv``, of unknown origin: its values are checked, and spreadsheets run none of its texts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.evaluation.schema import LARGEST, MAX_PREDICTIONS, MAX_ROWS, Label, ReportError
from higsfa.io import open_regular

COUNTS = ("fold", "sample")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class TooLarge(ReportError):
    """A table has more than a report can show."""


@dataclass(frozen=True)
class Predictions:
    """True labels and estimates of the test samples; numbers for numeric labels, text for categorical ones."""

    n_rows: int
    truth: dict[str, NDArray[Any]]
    estimate: dict[str, NDArray[Any]]


def guarded(text: str) -> str:
    """A text for a table; one that a spreadsheet would take for a formula, as it begins with = or the like, is quoted.

    Examples
    --------
    >>> from higsfa.report.predictions import guarded
    >>> [guarded(text) for text in ("=1+1", "-1.5", "@home", "home", "'tis")]
    ["'=1+1", '-1.5', "'@home", 'home', "''tis"]
    """
    is_formula = text.startswith(("=", "+", "-", "@", "\t", "\r", "'")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given."""
    return text.removeprefix("'")


def read_predictions(path: Path, labels: Sequence[Label]) -> Predictions | None:
    """The columns of the given labels; None if there is no such file."""
    if not path.is_file():
        return None
    texts = {label.name for label in labels if not label.is_numeric}
    wanted = {column for label in labels for column in (label.name, f"{label.name}_estimate")}
    n_rows, columns = _read(path, texts, wanted, MAX_PREDICTIONS, MAX_ROWS)
    known = [label.name for label in labels if {label.name, f"{label.name}_estimate"} <= columns.keys()]
    truth, estimate = ({name: columns[f"{name}{end}"] for name in known} for end in ("", "_estimate"))
    return Predictions(n_rows, truth, estimate)


def read_columns(path: Path, texts: Collection[str], *, max_bytes: int) -> dict[str, NDArray[Any]]:
    """All columns: texts (None where empty) for the labels `texts` and their estimates, else numbers (NaN)."""
    return _read(path, texts, None, max_bytes, None)[1]


def _read(
    path: Path, texts: Collection[str], wanted: Collection[str] | None, max_bytes: int, max_rows: int | None
) -> tuple[int, dict[str, NDArray[Any]]]:
    """The number of rows, and the wanted columns."""
    if path.stat().st_size > max_bytes:
        raise TooLarge(f"{path.name} is larger than {max_bytes // 2**20} MiB")
    as_text = {*texts, *(f"{name}_estimate" for name in texts)}
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            n_rows, columns = _read_rows(csv.reader(file, strict=True), path.name, as_text, wanted, max_rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path.name} is no CSV file in UTF-8: {str(error)[:200]}") from error
    dtypes = {name: object if name in as_text else np.intp if name in COUNTS else np.float64 for name in columns}
    return n_rows, {name: np.array(column, dtype=dtypes[name]) for name, column in columns.items()}


def _read_rows(
    reader: Any, file: str, as_text: Collection[str], wanted: Collection[str] | None, max_rows: int | None
) -> tuple[int, dict[str, list[Any]]]:
    header = [unguarded(name) for name in next(reader, [])]
    if not header or len(set(header)) < len(header):
        raise ReportError(f"{file} must begin with a line of names, all different")
    columns: dict[str, list[Any]] = {name: [] for name in header if wanted is None or name in wanted}
    places = [(place, name, columns[name]) for place, name in enumerate(header) if name in columns]
    n_rows = 0
    for n_rows, row in enumerate(reader, start=1):
        if max_rows is not None and n_rows > max_rows:
            raise TooLarge(f"{file} has more than {max_rows:,} rows")
        if len(row) != len(header):
            raise ReportError(f"{file}: row {n_rows} has {len(row)} fields, but the header has {len(header)}")
        for place, name, column in places:
            field = row[place]
            column.append((unguarded(field) or None) if name in as_text else _number(field, file, n_rows, name))
    return n_rows, columns


def _number(field: str, file: str, row: int, name: str) -> float:
    """The number in a field; an empty field, or nan, is a missing value. Counts are whole and there."""
    try:
        number = int(field) if name in COUNTS else float(field or "nan")
    except ValueError:
        number = np.inf
    if abs(number) > (2**53 if name in COUNTS else LARGEST):
        raise ReportError(f"{file}: row {row} of {name} must be a number, found {field[:80]!r}")
    return number
