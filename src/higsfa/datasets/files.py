"""What users have on disk, which is not trusted: tables, landmarks, and image files found by the paths in a table."""

from __future__ import annotations

import csv as csvlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from itertools import chain
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.io import open_regular, read_regular

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_LINE, MAX_ROWS = 65_536, 5_000_000  # of a table; a line is counted in characters
MAX_LANDMARK_BYTES = 100_000
GENDERS = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
MORPH_RACES = {"black": "B", "african american": "B", "white": "W", "caucasian": "W", "asian": "A", "hispanic": "H"}
MORPH_RACES |= {"other": "O"} | {letter.lower(): letter for letter in "BWAHO"}
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%m/%d/%y")
EYES = (
    *(("left_eye_{}", "right_eye_{}"), ("leye_{}", "reye_{}"), ("eye_left_{}", "eye_right_{}"), ("eye1_{}", "eye2_{}")),
    *(("l{}", "r{}"), ("{}1", "{}2"), ("lefteye{}", "righteye{}")),
)
"""Names of columns with x and y of both eyes."""


@dataclass(frozen=True)
class Table:
    """A table with its column names, and the line of each row in the file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, *names: str, required: bool = False) -> Any:
        """The column with the first of these names that exists, stripped of blanks; None if there is none."""
        known = list(map(plain, self.header))
        place = next((known.index(name) for name in map(plain, names) if name in known), None)
        if place is None and required:
            raise ValueError(f"{self.path}: no column {' or '.join(map(repr, names))} among {self.header}")
        return None if place is None else [row[place].strip() for row in self.rows]

    def place(self, row: int) -> str:
        """The location of a row, for error messages."""
        return f"{self.path}, line {self.lines[row]}"


def plain(column: str) -> str:
    """A column name without case and punctuation."""
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
            n_blank, first = next(((n, line) for n, line in enumerate(text) if line.strip()), (0, ""))
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
    names = [name.strip() if header else str(i) for i, name in enumerate(rows[0])]
    for row, line in zip(rows, lines, strict=True):
        if len(row) < len(names) or any(field.strip() for field in row[len(names) :]):
            raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {len(names)}")
    return Table(path, names, rows[header:], lines[header:])


def _limited_lines(file: Any, path: Path) -> Iterator[str]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise ValueError(f"{path}: a line has more than {MAX_LINE} characters; is it a CSV table?")
        yield line


def names_of(column: Sequence[str], spelling: Mapping[str, str]) -> NDArray[Any]:
    """Names in their standard spelling; unknown ones are kept, empty ones become None."""
    return np.array([spelling.get(text.lower(), text) or None for text in column], dtype=object)


def number(text: str) -> float:
    """A finite number, else NaN; 1_11, which is a number in Python, is none here."""
    try:
        value = float(text)
    except ValueError:
        return np.nan
    return value if np.isfinite(value) and "_" not in text else np.nan


def values_of(column: list[str]) -> NDArray[Any]:
    """Numbers if all are, else strings. 001 is a name, and so are more digits than a double holds."""
    blank = np.array([text.lower() in ("", "nan", "na", "none", "null") for text in column])
    numbers = np.array([number(text) for text in column])
    names = any(re.match(r"0\d", text) or re.fullmatch(r"[+-]?\d{16,}", text) for text in column)
    if blank.all() or names or np.isnan(numbers[~blank]).any():
        return names_of(column, {})
    return numbers.astype(np.int64) if all(re.fullmatch(r"[+-]?\d+", text) for text in column) else numbers


def morph_ages(table: Table) -> NDArray[np.float64]:
    """Ages from the dates of birth and photograph where they agree with the column of ages, else from that column."""
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
        if 0 <= exact <= 120 and not abs(np.floor(exact) - ages[i]) > 1:  # NaN agrees with any age
            ages[i] = exact
    return ages


def middle_of_group(text: str, place: str) -> float:
    """The middle of an age group such as "20-29"; five years into one such as "more than 70"."""
    if text == "":
        return np.nan
    match [int(digits) for digits in re.findall(r"\d{1,3}", text)]:
        case [low, high] if low <= high:
            return (low + high) / 2
        case [low]:
            return low + (5.0 if re.search(r"more|over|above|older|\+", text.lower()) else 0.0)
    raise ValueError(f"{place}: age {text!r} is no age group such as '20-29' or 'more than 70'")


def _dates(*columns: list[str]) -> list[tuple[list[date | None], str]]:
    """The dates of each column and their format: the one that fits most of them.

    Of formats that fit a column equally well, the one that fits more of the other columns wins, then the one with the
    month first, as in the United States.
    """
    texts = [[re.split(r"[ T]", text)[0] for text in column] for column in columns]
    read: dict[str, list[dict[str, date]]] = {}
    for form in DATE_FORMATS:
        read[form] = [{text: day for text in set(column) if (day := _date(text, form))} for column in texts]
        if all(len(found) == len(set(column) - {""}) for found, column in zip(read[form], texts, strict=True)):
            break

    chosen = []
    for i, column in enumerate(texts):
        form = max(read, key=lambda form: (len(read[form][i]), sum(map(len, read[form]))))
        chosen.append(([read[form][i].get(text) for text in column], form))
    return chosen


def _date(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()
    except ValueError:
        return None


def _years(born: date, taken: date) -> float:
    """Age whose integer part is the number of birthdays."""
    year = taken.year - (_birthday(born, taken.year) > taken)
    last, following = _birthday(born, year), _birthday(born, year + 1)
    return year - born.year + (taken - last).days / (following - last).days


def _birthday(born: date, year: int) -> date:
    try:
        return born.replace(year=year)
    except ValueError:  # born on the 29th of February
        return date(year, 3, 1)


def eye_array(columns: list[list[str]], table: Table) -> NDArray[np.float64]:
    rows = list(zip(*columns, strict=True))
    for row, texts in enumerate(rows):
        if any(text and np.isnan(number(text)) for text in texts):
            raise ValueError(f"{table.place(row)}: eye coordinates {texts} are not all numbers")
    return left_first(np.array([[number(text) for text in texts] for texts in rows]).reshape(-1, 2, 2))


def left_first(eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The eye further to the left in the image first, because tables differ in whose left they mean."""
    return np.where((eyes[:, 0, 0] > eyes[:, 1, 0])[:, None, None], eyes[:, ::-1], eyes)


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
    eyes = np.array([found.get(stem(photo), np.full((2, 2), np.nan)) for photo in photos])
    if np.isnan(eyes).all():
        raise ValueError(f"{table.path}: none of its names, such as {columns[0][0]!r}, is that of an image")
    return eyes


def landmarks_of(path: Path) -> NDArray[np.float64]:
    """The 68 points of a landmark file: ``version: 1``, ``n_points: 68``, and lines "x y" between braces."""
    text = read_regular(path, MAX_LANDMARK_BYTES).decode("ascii", "replace")
    numbers = np.array([number(field) for field in text.partition("{")[2].partition("}")[0].split()])
    if len(numbers) != 136 or np.isnan(numbers).any():
        raise ValueError(f"{path}: expected 68 landmarks, that is 136 numbers between braces, found {len(numbers)}")
    return numbers.reshape(68, 2)


def existing_folder(folder: Any) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"folder: there is no folder {folder}")
    return Path(folder)


def subfolder(folder: Path, name: str) -> Path | None:
    """The subfolder of that name, ignoring case."""
    return next((path for path in sorted(folder.iterdir()) if path.name.lower() == name and path.is_dir()), None)


def files_in(folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Files with these suffixes in the folder and its subfolders, sorted by path."""
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names if not name.startswith("."))
    return sorted(path for path in found if path.name.lower().endswith(suffixes))


def stem(path: str) -> str:
    """The name of an image file in lower case, without folders and suffix."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return name.rpartition(".")[0] if name.endswith(IMAGE_SUFFIXES) else name


def parse_names(
    folder: Path, pattern: str, example: str, on_malformed: str, data_set: str
) -> tuple[tuple[Path, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Images whose names match the pattern, the groups of each match, and notes on the images left out."""
    check_choice("on_malformed", on_malformed)
    matches = {path: re.fullmatch(pattern, path.name, re.IGNORECASE | re.ASCII) for path in files_in(folder)}
    found = {path: match.groups() for path, match in matches.items() if match}
    form = f"of the form {example}"
    skipped = [f"{path.relative_to(folder)}: the name is not {form}" for path in matches if path not in found]
    if not found:
        raise FileNotFoundError(f"folder: no image with a name {form} in {folder}")
    if skipped:
        some = f"{data_set}: {len(skipped)} images have names that are not {form}: {first_few(skipped)}"
        if on_malformed == "raise":
            raise ValueError(f"{some}; on_malformed='skip' leaves them out")
        warnings.warn(f"{some}; they are left out", UserWarning, stacklevel=3)
    return tuple(found), list(found.values()), tuple(skipped)


def finder(folder: Path, any_folder: bool) -> Callable[[str, str], Path | None]:
    """A function that finds the file of a path in a table, ignoring case; it refuses paths that lead out of the folder.

    A path may start with the names of the folder and its parents or, with `any_folder`, with any names. Links are
    followed, because the folder is the user's own even if the table is not.
    """
    above = [part.lower() for part in folder.resolve().parts]

    @cache
    def listing(where: str) -> dict[str, str]:
        entries = sorted(os.listdir(where)) if os.path.isdir(where) else []
        return {entry.lower(): entry for entry in entries} | {entry: entry for entry in entries}

    def descend(parts: list[str]) -> Path | None:
        where = str(folder)
        for part in parts:
            entry = listing(where).get(part) or listing(where).get(part.lower())
            if entry is None:
                return None
            where = os.path.join(where, entry)
        return Path(where) if os.path.isfile(where) else None

    def find(photo: str, where: str) -> Path | None:
        parts = [part for part in photo.replace("\\", "/").split("/") if part not in ("", ".")]
        outside = photo.startswith(("/", "\\")) or PureWindowsPath(photo).drive or ".." in parts or "\0" in photo
        if outside or not parts:
            raise ValueError(f"{where}: path {photo!r} must name a file inside the folder, without '..', drive or root")
        lower = [part.lower() for part in parts]
        ends = (parts[i:] for i in range(len(parts)) if i == 0 or any_folder or lower[:i] == above[-i:])
        return next((path for path in map(descend, ends) if path is not None), None)

    return find


def check_choice(name: str, value: str) -> None:
    if value not in ("raise", "skip"):
        raise ValueError(f"{name}={value!r} is unknown; use 'raise' or 'skip'")


def first_few(texts: list[str], n: int = 5) -> str:
    return ", ".join(texts[:n]) + (", ..." if len(texts) > n else "")
