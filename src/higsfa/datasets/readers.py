"""Readers of face data sets that users have on disk: image paths, labels and eye positions, no pixels.

Nothing is downloaded. Each function says where its data set comes from and on what terms. Two things hold for all:
tables and file names are treated as untrusted (a path that leads out of the folder is an error, and sizes are
limited), and labels are what somebody wrote down about pictures. Estimates of age, gender or race that are learned
from them are statistical guesses about pictures, not facts about people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.datasets._reader_ages import middle_of_group, morph_ages
from higsfa.datasets._reader_eyes import PUPILS, eye_array, eye_columns_of, eyes_by_name, landmarks_of, left_first
from higsfa.datasets._reader_files import (
    IMAGE_SUFFIXES,
    check_choice,
    existing_folder,
    files_in,
    finder,
    first_few,
    parse_names,
    path_parts,
    subfolder,
)
from higsfa.datasets._reader_tables import Table, plain, read_table
from higsfa.datasets._reader_values import GENDERS, MORPH_RACES, names_of, objects, values_of

__all__ = ["ImageSet", "read_eyes", "read_fairface", "read_fgnet", "read_folder", "read_morph2", "read_utkface"]

MAX_LINE = 65_536
"""Longest line of a table, in characters."""
MAX_ROWS = 5_000_000
"""Most rows of a table."""


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
    table = _table(csv)
    photos = table.column("photo", "file", "filename", "file_name", "path", "image", required=True)
    ages = morph_ages(table)
    labels: dict[str, NDArray[Any]] = {"age": ages}
    for name, aliases, spelling in (
        ("gender", ("gender", "sex"), GENDERS),
        ("race", ("race", "ethnicity"), MORPH_RACES),
        ("identity", ("id_num", "id", "subject_id", "subject", "identity", "person"), {}),
    ):
        column = table.column(*aliases)
        if column is not None:
            labels[name] = names_of(column, spelling)
    positions = eye_columns_of(table)
    if eyes is not None:
        positions = eyes_by_name(_table(eyes, header=False), photos)
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
    folder = existing_folder(folder)
    root = subfolder(folder, "images") or folder
    points = subfolder(folder, "points") or (
        subfolder(folder.parent, "points") if folder.name.lower() == "images" else None
    )
    paths, found, skipped = parse_names(
        root, r"(\d{3})A(\d{2,3})[a-z]?\.\w+", "such as 001A02.JPG", on_malformed, "FG-NET"
    )
    labels = {"age": np.array([float(age) for _, age in found]), "identity": objects([who for who, _ in found])}
    eyes = None
    if points is not None:
        files = {path.name.lower(): path for path in files_in(points, (".pts",))}
        eyes = np.full((len(paths), 2, 2), np.nan)
        for i, path in enumerate(paths):
            if (landmarks := files.get(path.stem.lower() + ".pts")) is not None:
                eyes[i] = landmarks_of(landmarks)[list(PUPILS)]
        eyes = left_first(eyes)
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
    paths, found, skipped = parse_names(
        existing_folder(folder),
        r"(\d{1,3})_([01])_([0-4])_\d+(?:\.jpe?g)?(?:\.chip)?\.\w+",
        "[age]_[gender]_[race]_[date].jpg",
        on_malformed,
        "UTKFace",
    )
    races = ("White", "Black", "Asian", "Indian", "Others")
    labels = {
        "age": np.array([float(age) for age, _, _ in found]),
        "gender": objects(["MF"[int(gender)] for _, gender, _ in found]),
        "race": objects([races[int(race)] for _, _, race in found]),
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
    table = _table(csv)
    photos = table.column("file", "photo", "path", "image", required=True)
    groups = table.column("age", "age_group", required=True)
    labels: dict[str, NDArray[Any]] = {
        "age": np.array([middle_of_group(text, table, row) for row, text in enumerate(groups)]),
        "age_group": names_of(groups, {}),
    }
    for name, spelling in (("gender", GENDERS), ("race", {})):
        if (column := table.column(name)) is not None:
            labels[name] = names_of(column, spelling)
    if (column := table.column("service_test")) is not None:
        labels["service_test"] = np.array([text.lower() in ("true", "1", "yes") for text in column])
    return _assemble("FairFace", folder, table, photos, labels, None, on_missing)


def read_eyes(csv: Any, photos: Sequence[Any]) -> NDArray[np.float64]:
    """Positions of the eyes in some pictures, from a table of your own.

    Parameters
    ----------
    csv : path
        A table with columns name of the picture, x, y, x, y; with or without a line of column names.
    photos : list of paths
        Pictures are found by the names of their files, without folder and ending, in capitals or not.

    Returns
    -------
    array of shape (n_pictures, 2, 2)
        Centres of the eyes, (x, y) in pixels, first the eye further to the left; NaN for pictures that the table lacks.
    """
    return eyes_by_name(_table(csv, header=False), [Path(photo).name for photo in photos])


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
    folder = existing_folder(folder)
    name = folder.resolve().name if name is None else name
    if csv is None:
        return ImageSet(name, tuple(files_in(folder, IMAGE_SUFFIXES)), {})
    table = _table(csv)
    photos = table.column(path_column, required=True)
    used = {plain(path_column), *(plain(column) for column in eye_columns or ())}
    if label_columns is None:
        label_columns = [column for column in table.header if plain(column) not in used]
    wanted = label_columns if isinstance(label_columns, Mapping) else {column: column for column in label_columns}
    labels = {label: values_of(table.column(column, required=True)) for column, label in wanted.items()}
    eyes = None
    if eye_columns is not None:
        if len(eye_columns) != 4:
            raise ValueError(f"eye_columns={eye_columns!r}: name four columns, x, y of one eye and x, y of the other")
        eyes = eye_array([table.column(column, required=True) for column in eye_columns], table)
    return _assemble(name, folder, table, photos, labels, eyes, on_missing)


def _assemble(
    name: str,
    folder: Any,
    table: Table,
    photos: list[str],
    labels: dict[str, NDArray[Any]],
    eyes: NDArray[np.float64] | None,
    on_missing: str,
    any_folder: bool = False,
) -> ImageSet:
    """Find the images of a table, and leave out rows without one if that is wanted."""
    check_choice("on_missing", on_missing)
    folder = existing_folder(folder)
    find = finder(folder, any_folder)
    found = [find(path_parts(photo, table, row)) for row, photo in enumerate(photos)]
    kept = [row for row, path in enumerate(found) if path is not None]
    gone = [photo for photo, path in zip(photos, found, strict=True) if path is None]
    if gone and (on_missing == "raise" or not kept):
        raise FileNotFoundError(
            f"{table.path}: {len(gone)} of {len(photos)} images are not in {folder}: {first_few(gone)}"
            + ("; on_missing='skip' leaves them out" if kept else "")
        )
    return ImageSet(
        name,
        tuple(path for path in found if path is not None),
        {label: values[kept] for label, values in labels.items()},
        None if eyes is None else eyes[kept],
        tuple(f"{photo}: not in {folder}" for photo in gone),
    )


def _table(path: Any, header: bool = True) -> Table:
    return read_table(path, MAX_ROWS, MAX_LINE, header)
