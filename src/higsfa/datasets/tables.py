"""Labels, ages and eye positions from text files that users have, which are not trusted: tables and landmarks."""

from __future__ import annotations

import csv as csvlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.datasets.image_files import stem
from higsfa.io import open_regular, read_regular

MAX_LINE = 65_536
"""Longest line of a table, in characters."""
MAX_ROWS = 5_000_000
"""Most rows of a table."""
MAX_LANDMARK_BYTES = 100_000
"""Size of the largest landmark file that is read."""
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
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%m/%d/%y")
EYE_COLUMNS = [
    (f"{left}_x", f"{left}_y", f"{right}_x", f"{right}_y")
    for left, right in (("left_eye", "right_eye"), ("leye", "reye"), ("eye_left", "eye_right"), ("eye1", "eye2"))
] + [("lx", "ly", "rx", "ry"), ("x1", "y1", "x2", "y2"), ("lefteyex", "lefteyey", "righteyex", "righteyey")]


@dataclass(frozen=True)
class Table:
    """A table with its column names, and the line of each row in the file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, *names: str, required: bool = False) -> Any:
        """The column with the first of these names that exists, stripped of blanks; None if there is none."""
        known = {plain(column): i for i, column in reversed(list(enumerate(self.header)))}
        for name in names:
            if (i := known.get(plain(name))) is not None:
                return [row[i].strip() for row in self.rows]
        if required:
            raise ValueError(f"{self.path}: no column {' or '.join(map(repr, names))} among {self.header}")
        return None

    def place(self, row: int) -> str:
        """Where a row is, for error messages."""
        return f"{self.path}, line {self.lines[row]}"


def plain(column: str) -> str:
    """The name of a column without case and punctuation."""
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def read_table(path: Any, header: bool = True) -> Table:
    """Read a table in UTF-8 that is separated by commas, semicolons or tabs."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"csv: there is no file {path}")
    rows, lines = [], []
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        try:
            text = _limited_lines(file, path)
            n_blank, first = 0, next(text, "")
            while first and not first.strip():
                n_blank, first = n_blank + 1, next(text, "")
            reader = csvlib.reader(chain([first], text), delimiter=max(",;\t", key=first.count))
            for row in reader:
                if any(field.strip() for field in row):
                    rows.append(row)
                    lines.append(n_blank + reader.line_num)
                if len(rows) > MAX_ROWS:
                    raise ValueError(f"{path}: more than {MAX_ROWS} rows; split the table")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a table in UTF-8 ({error.reason}); save it as CSV in UTF-8") from None
        except csvlib.Error as error:
            raise ValueError(f"{path}: not a readable CSV table: {error}") from None
    if not rows or (header and len(rows) < 2):
        raise ValueError(f"{path}: the table is empty; it needs a line of column names and at least one row")
    names = [name.strip() for name in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    start, width = int(header), len(names)
    for row, line in zip(rows, lines, strict=True):
        if len(row) < width or any(field.strip() for field in row[width:]):
            raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {width}")
    return Table(path, names, rows[start:], lines[start:])


def _limited_lines(file: Any, path: Path) -> Iterator[str]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise ValueError(f"{path}: a line has more than {MAX_LINE} characters; is it a CSV table?")
        yield line


# ---------------------------------------------------------------------- labels


def objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def names_of(column: list[str], spelling: Mapping[str, str]) -> NDArray[Any]:
    """Names in one spelling. Unknown ones stay as they are; empty ones become None."""
    return objects([spelling.get(text.lower(), text) or None for text in column])


def number(text: str) -> float:
    """A finite number, or NaN. Python would read 1_11 as 111, but here it is a name."""
    try:
        value = float("nan" if "_" in text else text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def values_of(column: list[str]) -> NDArray[Any]:
    """Numbers if all are, else strings. 001 is a name, and so are more digits than a double can tell apart."""
    blank = np.array([text.lower() in ("", "nan", "na", "none", "null") for text in column])
    numbers = np.array([number(text) for text in column])
    names = any(re.match(r"0\d", text) or re.fullmatch(r"[+-]?\d{16,}", text) for text in column)
    if blank.all() or names or np.isnan(numbers[~blank]).any():
        return objects([text or None for text in column])
    return numbers.astype(np.int64) if all(re.fullmatch(r"[+-]?\d+", text) for text in column) else numbers


# ---------------------------------------------------------------------- ages


def morph_ages(table: Table) -> NDArray[np.float64]:
    """Ages from the dates of birth and acquisition where they agree with the column of ages, else from that column."""
    column = table.column("age")
    born = table.column("dob", "date_of_birth", "birth_date", "birthdate")
    taken = table.column("doa", "date_of_acquisition", "date_of_arrest", "photo_date", "acquisition_date")
    if column is None and (born is None or taken is None):
        raise ValueError(f"{table.path}: no column 'age', and not both of 'dob' and 'doa', among {table.header}")
    ages = np.full(len(table.rows), np.nan) if column is None else np.array([number(text) for text in column])
    if born is None or taken is None:
        return ages
    (starts, form), (ends, _) = _dates(born, taken)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start is None or end is None or not 1900 <= start.year <= 2100 or not 1900 <= end.year <= 2100:
            continue
        if start > end and form.endswith("%y"):  # Python reads years of two digits as 1969 to 2068
            start = _birthday(start, start.year - 100)
        exact = _years(start, end)
        agrees = np.isnan(ages[i]) or abs(np.floor(exact) - ages[i]) <= 1
        if 0 <= exact <= 120 and agrees:
            ages[i] = exact
    return ages


def middle_of_group(text: str, place: str) -> float:
    """The middle of an age group such as "20-29"; five years into one such as "more than 70"."""
    if text == "":
        return float("nan")
    numbers = [int(digits) for digits in re.findall(r"\d{1,3}", text)]
    if len(numbers) == 2 and numbers[0] <= numbers[1]:
        return sum(numbers) / 2
    if len(numbers) == 1:
        open_ended = re.search(r"more|over|above|older|\+", text.lower())
        return numbers[0] + 5.0 if open_ended else float(numbers[0])
    raise ValueError(f"{place}: age {text!r} is no age group such as '20-29' or 'more than 70'")


def _dates(*columns: list[str]) -> list[tuple[list[date | None], str]]:
    """The dates of each column and their format, the one that fits most of them.

    A column has one format, so 3/4/1970 is read in the same way as 13/4/1970. If several formats fit a column equally
    well, the one that fits most of the other columns wins. If day and month can still be exchanged, the month comes
    first, as in the United States.
    """
    texts = [[re.split(r"[ T]", text)[0] for text in column] for column in columns]
    read: dict[str, list[dict[str, date]]] = {}
    for form in DATE_FORMATS:
        read[form] = [{text: day for text in set(column) if (day := _date(text, form))} for column in texts]
        if all(len(found) == len(set(column) - {""}) for found, column in zip(read[form], texts, strict=True)):
            break

    def best(i: int) -> str:
        return max(read, key=lambda form: (len(read[form][i]), sum(map(len, read[form]))))

    chosen = [best(i) for i in range(len(columns))]
    return [([read[form][i].get(text) for text in texts[i]], form) for i, form in enumerate(chosen)]


def _date(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()
    except ValueError:
        return None


def _years(born: date, taken: date) -> float:
    """Age whose integer part is the number of birthdays."""
    birthday, following = _birthday(born, taken.year), _birthday(born, taken.year + 1)
    if birthday > taken:
        birthday, following = _birthday(born, taken.year - 1), birthday
    return birthday.year - born.year + (taken - birthday).days / (following - birthday).days


def _birthday(born: date, year: int) -> date:
    try:
        return born.replace(year=year)
    except ValueError:  # born on the 29th of February
        return date(year, 3, 1)


# ---------------------------------------------------------------------- eyes


def eye_columns_of(table: Table) -> NDArray[np.float64] | None:
    """Eye positions from columns with one of the usual names."""
    for names in EYE_COLUMNS:
        columns = [table.column(name) for name in names]
        if all(column is not None for column in columns):
            return eye_array(columns, table)
    return None


def eye_array(columns: list[list[str]], table: Table) -> NDArray[np.float64]:
    numbers = np.array([[number(text) for text in column] for column in columns]).T
    for row, texts in enumerate(zip(*columns, strict=True)):
        if any(text and np.isnan(value) for text, value in zip(texts, numbers[row], strict=True)):
            raise ValueError(f"{table.place(row)}: eye coordinates {texts} are not all numbers")
    return left_first(numbers.reshape(-1, 2, 2))


def left_first(eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The eye further to the left in the image comes first, because tables differ in whose left they mean."""
    swapped = eyes[:, 0, 0] > eyes[:, 1, 0]
    return np.where(swapped[:, None, None], eyes[:, ::-1], eyes)


def eyes_by_name(table: Table, photos: list[str]) -> NDArray[np.float64]:
    """Eye positions from a table with columns name, x, y, x, y, with or without column names."""
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
    text = read_regular(path, MAX_LANDMARK_BYTES).decode("ascii", "replace")
    inner = text.partition("{")[2].partition("}")[0]
    numbers = np.array([number(field) for field in inner.split()])
    if len(numbers) != 136 or np.isnan(numbers).any():
        raise ValueError(f"{path}: expected 68 landmarks, that is 136 numbers between braces, found {len(numbers)}")
    return numbers.reshape(68, 2)
