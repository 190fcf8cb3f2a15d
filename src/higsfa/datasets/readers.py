"""Readers of face data sets that users have on disk: image paths, labels and eye positions, no pixels.

Nothing is downloaded. Each function says where its data set comes from and on what terms. Two things hold for all:
tables and file names are treated as untrusted (a path that leads out of the folder is an error, and sizes are
limited), and labels are what somebody wrote down about pictures. Estimates of age, gender or race that are learned
from them are statistical guesses about pictures, not facts about people.
"""

from __future__ import annotations

import csv as csvlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ImageSet", "read_fairface", "read_fgnet", "read_folder", "read_morph2", "read_utkface"]

MAX_LINE = 65_536
"""Longest line of a table, in characters."""
MAX_ROWS = 5_000_000
"""Most rows of a table."""
MAX_POINTS_FILE = 100_000
"""Largest file of landmarks, in bytes."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

PUPILS = (31, 36)
"""Positions, from 0, of the pupils among FG-NET's 68 landmarks."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of a data set and what is known about them.

    Attributes
    ----------
    name : str
    paths : tuple of Path
    labels : dict of arrays
        One value per image. Unknown values are NaN among numbers and None among names.
    eyes : array of shape (n_images, 2, 2), or None
        Centres of the eyes, (x, y) in pixels, first the eye further to the left in the image; NaN where unknown.
    skipped : tuple of str
        What was left out, and why.
    """

    name: str
    paths: tuple[Path, ...]
    labels: dict[str, NDArray[Any]]
    eyes: NDArray[np.float64] | None = None
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        eyes = "eyes" if self.eyes is not None else "no eyes"
        return f"<ImageSet {self.name}: {len(self)} images, labels {list(self.labels)}, {eyes}>"

    def subset(self, index: Any) -> ImageSet:
        """The images chosen by numbers or by a mask, in that order."""
        index = index if isinstance(index, slice) else np.asarray(index)
        rows = np.arange(len(self))[index if np.size(index) else []]
        return replace(
            self,
            paths=tuple(self.paths[i] for i in rows),
            labels={name: values[rows] for name, values in self.labels.items()},
            eyes=None if self.eyes is None else self.eyes[rows],
        )


def read_morph2(folder: Any, csv: Any, *, eyes: Any = None, on_missing: str = "raise") -> ImageSet:
    """Read MORPH-II, that is album 2 of MORPH, the data set of the paper.

    55,134 photographs of about 13,000 persons of 16 to 77 years. University of North Carolina Wilmington licenses it
    for research, for a fee; it may not be passed on. K. Ricanek and T. Tesafaye, MORPH: a longitudinal image database
    of normal adult age-progression, FG 2006.

    Parameters
    ----------
    folder : path
        Where the images are; the table's paths, such as ``Album2/009055_1M54.JPG``, may begin with folders above it.
    csv : path
        The table, with columns ``id_num, picture_num, dob, doa, race, gender, facial_hair, age, age_diff, glasses,
        photo``. Case and order do not matter, some other names are understood, and only ``photo`` and ``age`` (or both
        ``dob`` and ``doa``) must be there.
    eyes : path, optional
        A second table with the eye coordinates: name of the image, x, y, x, y. They may also stand in the first one,
        in columns such as ``left_eye_x``.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that are not there.

    Returns
    -------
    ImageSet
        With labels "age", "gender" (M, F), "race" (B, W, A, H, O) and "identity", as far as there are columns. The age
        has a resolution of days where the dates of birth and acquisition are known and agree with the column ``age``
        to one year; its integer part is then the age in completed years.

    Notes
    -----
    The labels come from police records; who assigned "race", and how, is not known. Learned estimates are statistical
    guesses about pictures, not facts about people.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "009055_1M54.JPG").touch()
    >>> _ = (folder / "morph.csv").write_text(
    ...     "id_num,dob,doa,race,gender,age,photo\\n9055,10/09/1950,10/09/2004,W,M,54,Album2/009055_1M54.JPG\\n"
    ... )
    >>> faces = read_morph2(folder, folder / "morph.csv")
    >>> faces, float(faces.labels["age"][0])
    (<ImageSet MORPH-II: 1 images, labels ['age', 'gender', 'race', 'identity'], no eyes>, 54.0)
    """
    table = _read_table(csv)
    photos = table.column("photo", "file", "filename", "file_name", "path", "image", required=True)
    ages = _morph_ages(table)
    labels: dict[str, NDArray[Any]] = {"age": ages}
    for name, aliases, spelling in (
        ("gender", ("gender", "sex"), _GENDERS),
        ("race", ("race", "ethnicity"), _MORPH_RACES),
        ("identity", ("id_num", "id", "subject_id", "subject", "identity", "person"), {}),
    ):
        column = table.column(*aliases)
        if column is not None:
            labels[name] = _names(column, spelling)
    positions = _eye_columns(table)
    if eyes is not None:
        positions = _eyes_by_name(eyes, photos)
    return _assemble("MORPH-II", folder, table, photos, labels, positions, on_missing, any_folder=True)


def read_fgnet(folder: Any, *, on_malformed: str = "raise") -> ImageSet:
    """Read the FG-NET aging database.

    1,002 scanned photographs of 82 persons from birth to 69 years, with 68 landmarks each, collected for research in
    the European project FG-NET (Face and Gesture Recognition Network); free for research.

    Parameters
    ----------
    folder : path
        The folder ``FGNET`` with its subfolders ``images`` and ``points``, or the one with the images.
    on_malformed : {"raise", "skip"}, default="raise"
        What to do about images with names other than ``001A02.JPG`` or ``001A16b.JPG`` (person 1 at 16 years).

    Returns
    -------
    ImageSet
        With labels "age" (whole years) and "identity"; the eyes are the landmarks of the pupils, NaN for images
        without landmarks.

    Notes
    -----
    Learned estimates of age are statistical guesses about pictures, not facts about people.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "001A16b.JPG").touch()
    >>> faces = read_fgnet(folder)
    >>> faces.labels
    {'age': array([16.]), 'identity': array(['001'], dtype=object)}
    """
    folder = _folder(folder)
    root = _child(folder, "images") or folder
    points = _child(folder, "points") or (_child(folder.parent, "points") if folder.name.lower() == "images" else None)
    paths, found, skipped = _parse_names(
        root, r"(\d{3})A(\d{2,3})[a-z]?\.\w+", "such as 001A02.JPG", on_malformed, "FG-NET"
    )
    labels = {"age": np.array([float(age) for _, age in found]), "identity": _objects([who for who, _ in found])}
    eyes = None
    if points is not None:
        files = {path.name.lower(): path for path in _files(points, (".pts",))}
        eyes = np.full((len(paths), 2, 2), np.nan)
        for i, path in enumerate(paths):
            if (landmarks := files.get(path.stem.lower() + ".pts")) is not None:
                eyes[i] = _landmarks(landmarks)[list(PUPILS)]
        eyes = _left_first(eyes)
    return ImageSet("FG-NET", paths, labels, eyes, skipped)


def read_utkface(folder: Any, *, on_malformed: str = "skip") -> ImageSet:
    """Read UTKFace.

    More than 20,000 faces of all ages from the web, for non-commercial research only; the copyright of the images
    belongs to their owners. Z. Zhang, Y. Song and H. Qi, Age progression/regression by conditional adversarial
    autoencoder, CVPR 2017; https://susanqq.github.io/UTKFace

    Parameters
    ----------
    folder : path
        Images named ``[age]_[gender]_[race]_[date].jpg`` or, aligned and cropped, ``....jpg.chip.jpg``; subfolders are
        searched too.
    on_malformed : {"skip", "raise"}, default="skip"
        What to do about images with other names, of which the data set has some. Those skipped are counted in a
        warning and listed in ``skipped``.

    Returns
    -------
    ImageSet
        With labels "age" (years), "gender" (M, F) and "race" (White, Black, Asian, Indian, Others), as the data set
        has them: estimated by an algorithm and checked by annotators.

    Notes
    -----
    Learned estimates are statistical guesses about pictures, not facts about people.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "26_1_0_20170116184751658.jpg.chip.jpg").touch()
    >>> faces = read_utkface(folder)
    >>> [values[0] for values in faces.labels.values()]
    [np.float64(26.0), 'F', 'White']
    """
    paths, found, skipped = _parse_names(
        _folder(folder),
        r"(\d{1,3})_([01])_([0-4])_\d+(?:\.jpe?g)?(?:\.chip)?\.\w+",
        "[age]_[gender]_[race]_[date].jpg",
        on_malformed,
        "UTKFace",
    )
    races = ("White", "Black", "Asian", "Indian", "Others")
    labels = {
        "age": np.array([float(age) for age, _, _ in found]),
        "gender": _objects(["MF"[int(gender)] for _, gender, _ in found]),
        "race": _objects([races[int(race)] for _, _, race in found]),
    }
    return ImageSet("UTKFace", paths, labels, None, skipped)


def read_fairface(csv: Any, folder: Any, *, on_missing: str = "raise") -> ImageSet:
    """Read FairFace.

    108,501 faces, balanced over seven groups, under the licence CC BY 4.0. K. Karkkainen and J. Joo, FairFace: face
    attribute dataset for balanced race, gender, and age, WACV 2021; https://github.com/joojs/fairface

    Parameters
    ----------
    csv : path
        ``fairface_label_train.csv`` or ``fairface_label_val.csv``, with columns ``file, age, gender, race,
        service_test``.
    folder : path
        Where the paths of the table, such as ``train/1.jpg``, begin, or the folder ``train`` itself.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that are not there.

    Returns
    -------
    ImageSet
        With labels "age" (the middle of the age group, such as 24.5 for 20-29, and 75 for more than 70), "age_group"
        (as in the table), "gender" (M, F), "race" (as in the table) and, if there, "service_test" (bool).

    Notes
    -----
    The labels are the majority opinion of annotators about pictures. Learned estimates are statistical guesses about
    pictures, not facts about people.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "train").mkdir()
    >>> (folder / "train" / "1.jpg").touch()
    >>> _ = (folder / "labels.csv").write_text("file,age,gender,race\\ntrain/1.jpg,20-29,Female,Indian\\n")
    >>> read_fairface(folder / "labels.csv", folder).labels["age"]
    array([24.5])
    """
    table = _read_table(csv)
    photos = table.column("file", "photo", "path", "image", required=True)
    groups = table.column("age", "age_group", required=True)
    labels: dict[str, NDArray[Any]] = {
        "age": np.array([_middle(text, table, row) for row, text in enumerate(groups)]),
        "age_group": _names(groups, {}),
    }
    for name, spelling in (("gender", _GENDERS), ("race", {})):
        if (column := table.column(name)) is not None:
            labels[name] = _names(column, spelling)
    if (column := table.column("service_test")) is not None:
        labels["service_test"] = np.array([text.lower() in ("true", "1", "yes") for text in column])
    return _assemble("FairFace", folder, table, photos, labels, None, on_missing)


def read_folder(
    folder: Any,
    csv: Any = None,
    *,
    path_column: str = "file",
    label_columns: Sequence[str] | Mapping[str, str] | None = None,
    eye_columns: Sequence[str] | None = None,
    on_missing: str = "raise",
    name: str | None = None,
) -> ImageSet:
    """Read a folder of images, with labels from a table of your own.

    Parameters
    ----------
    folder : path
    csv : path, optional
        A table with a line of column names. Without one, all images in the folder and its subfolders are taken, in the
        order of their names, and there are no labels.
    path_column : str, default="file"
        The column with the paths of the images, relative to the folder.
    label_columns : list of str, or dict, optional
        Columns to read as labels; a dict names the label of each column. All other columns by default.
    eye_columns : four names, optional
        The columns x, y of one eye and x, y of the other.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that are not there.
    name : str, optional
        The name of the folder by default.

    Returns
    -------
    ImageSet
        A column that holds numbers only becomes an array of numbers (NaN where empty), any other one an array of
        strings (None where empty).

    Notes
    -----
    Estimates of age, gender or race that are learned from labels are statistical guesses about pictures, not facts
    about people. Whether you may use pictures of people, and for what, depends on their consent and on the law.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "a.png").touch()
    >>> _ = (folder / "labels.csv").write_text("file,size,colour\\na.png,3,red\\n")
    >>> read_folder(folder, folder / "labels.csv").labels
    {'size': array([3]), 'colour': array(['red'], dtype=object)}
    """
    folder = _folder(folder)
    name = folder.resolve().name if name is None else name
    if csv is None:
        return ImageSet(name, tuple(_files(folder, IMAGE_SUFFIXES)), {})
    table = _read_table(csv)
    photos = table.column(path_column, required=True)
    used = {_plain(path_column), *(_plain(column) for column in eye_columns or ())}
    if label_columns is None:
        label_columns = [column for column in table.header if _plain(column) not in used]
    wanted = label_columns if isinstance(label_columns, Mapping) else {column: column for column in label_columns}
    labels = {label: _values(table.column(column, required=True)) for column, label in wanted.items()}
    eyes = None
    if eye_columns is not None:
        if len(eye_columns) != 4:
            raise ValueError(f"eye_columns={eye_columns!r}: name four columns, x, y of one eye and x, y of the other")
        eyes = _eye_array([table.column(column, required=True) for column in eye_columns], table)
    return _assemble(name, folder, table, photos, labels, eyes, on_missing)


# Tables


@dataclass(frozen=True)
class _Table:
    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, *names: str, required: bool = False) -> Any:
        """The column with the first of these names that exists, stripped of blanks; None if there is none."""
        known = {_plain(column): i for i, column in reversed(list(enumerate(self.header)))}
        for name in names:
            if (i := known.get(_plain(name))) is not None:
                return [row[i].strip() for row in self.rows]
        if required:
            raise ValueError(f"{self.path}: no column {' or '.join(map(repr, names))} among {self.header}")
        return None


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def _read_table(path: Any, header: bool = True) -> _Table:
    """A table of text in UTF-8, separated by commas, semicolons or tabs."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"csv: there is no file {path}")
    rows, lines = [], []
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            text = _limited_lines(file, path)
            first = next(text, "")
            delimiter = max(",;\t", key=first.count)
            reader = csvlib.reader(_chain(first, text), delimiter=delimiter)
            for row in reader:
                if any(field.strip() for field in row):
                    rows.append(row)
                    lines.append(reader.line_num)
                if len(rows) > MAX_ROWS:
                    raise ValueError(f"{path}: more than {MAX_ROWS} rows; split the table")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a table in UTF-8 ({error.reason}); save it as CSV in UTF-8") from None
        except csvlib.Error as error:
            raise ValueError(f"{path}: not a readable CSV table: {error}") from None
    if not rows or (header and len(rows) < 2):
        raise ValueError(f"{path}: the table is empty; it needs a line of column names and at least one row")
    names = [name.strip() for name in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    start = 1 if header else 0
    width = len(names)
    for i, row in enumerate(rows):
        if len(row) < width or any(field.strip() for field in row[width:]):
            raise ValueError(f"{path}, line {lines[i]}: {len(row)} fields where the first line has {width}")
    return _Table(path, names, rows[start:], lines[start:])


def _limited_lines(file: Any, path: Path) -> Iterator[str]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise ValueError(f"{path}: a line has more than {MAX_LINE} characters; is it a CSV table?")
        yield line


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


# Values


_GENDERS = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
_MORPH_RACES = {
    "black": "B",
    "african american": "B",
    "white": "W",
    "caucasian": "W",
    "asian": "A",
    "hispanic": "H",
    "other": "O",
    **{letter.lower(): letter for letter in "BWAHO"},
}


def _objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _names(column: list[str], spelling: Mapping[str, str]) -> NDArray[Any]:
    """Names in one spelling; unknown ones as they are, None where empty."""
    return _objects([spelling.get(text.lower(), text) or None for text in column])


def _number(text: str) -> float:
    """A finite number, or NaN."""
    try:
        value = float(text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def _values(column: list[str]) -> NDArray[Any]:
    """Numbers if all are (001 is a name, not a number), else strings."""
    blank = np.array([text.lower() in ("", "nan", "na", "none", "null") for text in column])
    numbers = np.array([_number(text) for text in column])
    padded = any(re.match(r"0\d", text) for text in column)
    if blank.all() or padded or np.isnan(numbers[~blank]).any():
        return _objects([text or None for text in column])
    if all(re.fullmatch(r"[+-]?\d{1,15}", text) for text in column):
        return numbers.astype(np.int64)
    return numbers


def _middle(text: str, table: _Table, row: int) -> float:
    """The middle of an age group such as "20-29"; five years into one such as "more than 70"."""
    if text == "":
        return float("nan")
    numbers = [int(digits) for digits in re.findall(r"\d{1,3}", text)]
    if len(numbers) == 2 and numbers[0] <= numbers[1]:
        return sum(numbers) / 2
    if len(numbers) == 1:
        open_ended = re.search(r"more|over|above|older|\+", text.lower())
        return numbers[0] + 5.0 if open_ended else float(numbers[0])
    raise ValueError(
        f"{table.path}, line {table.lines[row]}: age {text!r} is no age group such as '20-29' or 'more than 70'"
    )


DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%m/%d/%y")


def _dates(column: list[str]) -> tuple[list[date | None], str]:
    """Dates, and the format that fits most of the column; the same for all, so that 3/4/1970 is read as 13/4/1970 is.

    Where days and months fit both ways the month comes first, as in the United States.
    """
    texts = [re.split(r"[ T]", text)[0] for text in column]
    distinct = set(texts) - {""}
    best: dict[str, date] = {}
    chosen = DATE_FORMATS[0]
    for form in DATE_FORMATS:
        found = {text: day for text in distinct if (day := _date(text, form)) is not None}
        if len(found) > len(best):
            best, chosen = found, form
        if len(found) == len(distinct):
            break
    return [best.get(text) for text in texts], chosen


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


def _morph_ages(table: _Table) -> NDArray[np.float64]:
    column = table.column("age")
    born = table.column("dob", "date_of_birth", "birth_date", "birthdate")
    taken = table.column("doa", "date_of_acquisition", "date_of_arrest", "photo_date", "acquisition_date")
    if column is None and (born is None or taken is None):
        raise ValueError(f"{table.path}: no column 'age', and not both of 'dob' and 'doa', among {table.header}")
    ages = np.full(len(table.rows), np.nan) if column is None else np.array([_number(text) for text in column])
    if born is None or taken is None:
        return ages
    (starts, form), (ends, _) = _dates(born), _dates(taken)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start is None or end is None or not 1900 <= start.year <= 2100 or not 1900 <= end.year <= 2100:
            continue
        if start > end and form.endswith("%y"):  # a year of two digits is read as one from 1969 to 2068
            start = _birthday(start, start.year - 100)
        exact = _years(start, end)
        agrees = np.isnan(ages[i]) or abs(np.floor(exact) - ages[i]) <= 1
        if 0 <= exact <= 120 and agrees:
            ages[i] = exact
    return ages


# Eyes


_EYE_NAMES = [
    (f"{left}_x", f"{left}_y", f"{right}_x", f"{right}_y")
    for left, right in (("left_eye", "right_eye"), ("leye", "reye"), ("eye_left", "eye_right"), ("eye1", "eye2"))
] + [("lx", "ly", "rx", "ry"), ("x1", "y1", "x2", "y2"), ("lefteyex", "lefteyey", "righteyex", "righteyey")]


def _eye_columns(table: _Table) -> NDArray[np.float64] | None:
    for names in _EYE_NAMES:
        columns = [table.column(name) for name in names]
        if all(column is not None for column in columns):
            return _eye_array(columns, table)
    return None


def _eye_array(columns: list[list[str]], table: _Table) -> NDArray[np.float64]:
    numbers = np.array([[_number(text) for text in column] for column in columns]).T
    for row, texts in enumerate(zip(*columns, strict=True)):
        if any(text and np.isnan(value) for text, value in zip(texts, numbers[row], strict=True)):
            raise ValueError(f"{table.path}, line {table.lines[row]}: eye coordinates {texts} are not all numbers")
    return _left_first(numbers.reshape(-1, 2, 2))


def _left_first(eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tables differ in whose left they mean: the eye further to the left in the image comes first."""
    swapped = eyes[:, 0, 0] > eyes[:, 1, 0]
    return np.where(swapped[:, None, None], eyes[:, ::-1], eyes)


def _eyes_by_name(path: Any, photos: list[str]) -> NDArray[np.float64]:
    """Eye coordinates from a table of its own: name, x, y, x, y, with or without a line of column names."""
    table = _read_table(path, header=False)
    if len(table.header) < 5:
        raise ValueError(f"{table.path}: needs five columns, name, x, y, x, y; got {len(table.header)}")
    if all(np.isnan(_number(field)) for field in table.rows[0][1:5]):
        table = replace(table, rows=table.rows[1:], lines=table.lines[1:])
    columns = [[row[i].strip() for row in table.rows] for i in range(5)]
    found = dict(zip(map(_stem, columns[0]), _eye_array(columns[1:], table), strict=True))
    unknown = np.full((2, 2), np.nan)
    eyes = np.array([found.get(_stem(photo), unknown) for photo in photos])
    if np.isnan(eyes).all():
        raise ValueError(f"{table.path}: none of its names, such as {columns[0][0]!r}, is that of an image")
    return eyes


def _stem(path: str) -> str:
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return name.rpartition(".")[0] if name.endswith(IMAGE_SUFFIXES) else name


def _landmarks(path: Path) -> NDArray[np.float64]:
    """The 68 points of a landmark file: ``version: 1``, ``n_points: 68``, and lines "x y" between braces."""
    if path.stat().st_size > MAX_POINTS_FILE:
        raise ValueError(f"{path}: more than {MAX_POINTS_FILE} bytes; is it a landmark file?")
    text = path.read_text(encoding="ascii", errors="replace")
    inner = text.partition("{")[2].partition("}")[0]
    numbers = np.array([_number(field) for field in inner.split()])
    if len(numbers) != 136 or np.isnan(numbers).any():
        raise ValueError(f"{path}: expected 68 landmarks, that is 136 numbers between braces, found {len(numbers)}")
    return numbers.reshape(68, 2)


# Files


def _folder(folder: Any) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"folder: there is no folder {folder}")
    return folder


def _child(folder: Path, name: str) -> Path | None:
    """The subfolder of that name, in capitals or not."""
    for path in sorted(folder.iterdir()):
        if path.name.lower() == name and path.is_dir():
            return path
    return None


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files with these suffixes in the folder and its subfolders, in the order of their paths."""
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(where, name) for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
    return sorted(found)


def _parse_names(
    folder: Path, pattern: str, example: str, on_malformed: str, name: str
) -> tuple[tuple[Path, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Images whose names match, the parts of those names, and the images left out."""
    _check_choice("on_malformed", on_malformed)
    paths, found, skipped = [], [], []
    for path in _files(folder, IMAGE_SUFFIXES):
        match = re.fullmatch(pattern, path.name, re.IGNORECASE | re.ASCII)
        if match is None:
            skipped.append(f"{path.relative_to(folder)}: the name is not of the form {example}")
        else:
            paths.append(path)
            found.append(match.groups())
    if not paths:
        raise FileNotFoundError(f"folder: no image with a name of the form {example} in {folder}")
    if skipped:
        some = f"{name}: {len(skipped)} images have names that are not of the form {example}: {_first(skipped)}"
        if on_malformed == "raise":
            raise ValueError(f"{some}; on_malformed='skip' leaves them out")
        warnings.warn(f"{some}; they are left out", UserWarning, stacklevel=3)
    return tuple(paths), found, tuple(skipped)


def _assemble(
    name: str,
    folder: Any,
    table: _Table,
    photos: list[str],
    labels: dict[str, NDArray[Any]],
    eyes: NDArray[np.float64] | None,
    on_missing: str,
    any_folder: bool = False,
) -> ImageSet:
    """Find the images of a table, and leave out rows without one if that is wanted."""
    _check_choice("on_missing", on_missing)
    folder = _folder(folder)
    find = _finder(folder, any_folder)
    found = [find(_parts(photo, table, row)) for row, photo in enumerate(photos)]
    kept = [row for row, path in enumerate(found) if path is not None]
    gone = [photo for photo, path in zip(photos, found, strict=True) if path is None]
    if gone and (on_missing == "raise" or not kept):
        raise FileNotFoundError(
            f"{table.path}: {len(gone)} of {len(photos)} images are not in {folder}: {_first(gone)}"
            + ("; on_missing='skip' leaves them out" if kept else "")
        )
    return ImageSet(
        name,
        tuple(path for path in found if path is not None),
        {label: values[kept] for label, values in labels.items()},
        None if eyes is None else eyes[kept],
        tuple(f"{photo}: not in {folder}" for photo in gone),
    )


def _parts(photo: str, table: _Table, row: int) -> list[str]:
    """The path of a table, part by part; it must not lead out of the folder, whatever system it was written for."""
    parts = [part for part in photo.replace("\\", "/").split("/") if part not in ("", ".")]
    outside = photo.startswith(("/", "\\")) or PureWindowsPath(photo).drive or ".." in parts or "\0" in photo
    if outside or not parts:
        raise ValueError(
            f"{table.path}, line {table.lines[row]}: path {photo!r} must name a file inside the folder; "
            "absolute paths and '..' are not allowed"
        )
    return parts


def _finder(folder: Path, any_folder: bool) -> Callable[[list[str]], Path | None]:
    """Finds files, in capitals or not.

    A path may begin with the name of the folder itself, or, if `any_folder`, with any names: that is for data sets
    whose file names are unique. Links in the folder are followed: the folder is the user's own, the table may be
    anybody's.
    """
    above = [part.lower() for part in folder.resolve().parts]
    listings: dict[str, dict[str, str]] = {}

    def listing(where: str) -> dict[str, str]:
        if where not in listings:
            entries = sorted(os.listdir(where)) if os.path.isdir(where) else []
            listings[where] = {entry.lower(): entry for entry in entries} | {entry: entry for entry in entries}
        return listings[where]

    def descend(parts: list[str]) -> Path | None:
        where = str(folder)
        for part in parts:
            entry = listing(where).get(part) or listing(where).get(part.lower())
            if entry is None:
                return None
            where = os.path.join(where, entry)
        return Path(where) if os.path.isfile(where) else None

    def find(parts: list[str]) -> Path | None:
        for i in range(len(parts)):
            begins_above = i == 0 or any_folder or [part.lower() for part in parts[:i]] == above[-i:]
            if begins_above and (path := descend(parts[i:])) is not None:
                return path
        return None

    return find


def _first(texts: list[str], n: int = 5) -> str:
    return ", ".join(texts[:n]) + (", ..." if len(texts) > n else "")


def _check_choice(name: str, value: str) -> None:
    if value not in ("raise", "skip"):
        raise ValueError(f"{name}={value!r} is unknown; use 'raise' or 'skip'")
