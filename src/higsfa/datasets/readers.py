"""Readers of face data sets on disk: image paths, labels and eye positions, no pixels. Nothing is downloaded.

Tables and file names are not trusted: sizes are limited, and a path that leads out of the folder is an error. Labels
are what somebody wrote down about pictures; estimates learned from them are guesses about pictures, not facts about
people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.datasets import files
from higsfa.datasets.files import Table, read_table

PUPILS = [31, 36]  # among FG-NET's 68 landmarks


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of a data set and what is known about them.

    Attributes
    ----------
    name : str
    paths : tuple of Path
    labels : dict of arrays
        One value per image. Missing numbers are NaN, missing names are None.
    eyes : array of shape (n_images, 2, 2), or None
        Centres of the eyes, (x, y) in pixels, the one further to the left in the image first; NaN where unknown.
    skipped : tuple of str
        What was left out, and why.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from higsfa.datasets import ImageSet
    >>> found = ImageSet("mine", (Path("a.png"), Path("b.png")), {"age": np.array([31.0, np.nan])})
    >>> found.subset(~np.isnan(found.labels["age"]))
    <ImageSet mine: 1 images, labels ['age'], no eyes>
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
        """The images at these indices, in this order, or those of a slice or mask."""
        index = index if isinstance(index, slice) else np.asarray(index)
        rows = np.arange(len(self))[index if np.size(index) else []]
        return replace(
            self,
            paths=tuple(self.paths[i] for i in rows),
            labels={name: values[rows] for name, values in self.labels.items()},
            eyes=None if self.eyes is None else self.eyes[rows],
        )


def read_morph2(folder: Any, csv: Any, *, eyes: Any = None, on_missing: str = "raise") -> ImageSet:
    """Read MORPH-II (album 2 of MORPH), the data set of the paper.

    55,134 photographs of about 13,000 persons of 16 to 77 years, licensed for research by the University of North
    Carolina Wilmington, for a fee; it may not be passed on. K. Ricanek and T. Tesafaye, MORPH: a longitudinal image
    database of normal adult age-progression, FG 2006.

    Parameters
    ----------
    folder : path
        The folder of the images. Paths in the table, such as ``Album2/009055_1M54.JPG``, may start with other folders.
    csv : path
        A table with columns ``photo`` and ``age`` (or ``dob`` and ``doa``), perhaps ``race``, ``gender``, ``id_num``.
        Case and order do not matter, and some other names are understood.
    eyes : path, optional
        A second table: image name, x, y, x, y. The first one may hold them instead, in columns such as ``left_eye_x``.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that do not exist.

    Returns
    -------
    ImageSet
        Labels "age", "gender" (M, F), "race" (B, W, A, H, O) and "identity", as far as the table has them. Where the
        two dates are known and agree with ``age`` to one year, the age comes from them and is exact to the day.
        The labels come from police records; who assigned "race", and how, is not known.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "009055_1M54.JPG").touch()
    >>> _ = (folder / "morph.csv").write_text("id_num,gender,age,photo\\n9055,M,54,Album2/009055_1M54.JPG\\n")
    >>> read_morph2(folder, folder / "morph.csv")
    <ImageSet MORPH-II: 1 images, labels ['age', 'gender', 'identity'], no eyes>
    """
    table = read_table(csv)
    photos = table.column("photo", "file", "filename", "file_name", "path", "image", required=True)
    labels = {"age": files.morph_ages(table)} | _named(
        table,
        gender=(files.GENDERS, "gender", "sex"),
        race=(files.MORPH_RACES, "race", "ethnicity"),
        identity=({}, "id_num", "id", "subject_id", "subject", "identity", "person"),
    )
    if eyes is None:
        columns = ([table.column(eye.format(axis)) for eye in pair for axis in "xy"] for pair in files.EYES)
        positions = next((files.eye_array(four, table) for four in columns if None not in four), None)
    else:
        positions = read_eyes(eyes, photos)
    return _assemble("MORPH-II", folder, table, photos, labels, positions, on_missing, any_folder=True)


def read_fgnet(folder: Any, *, on_malformed: str = "raise") -> ImageSet:
    """Read the FG-NET aging database.

    1,002 scanned photographs of 82 persons aged 0 to 69, with 68 landmarks each, collected by the European project
    FG-NET (Face and Gesture Recognition Network); free for research.

    Parameters
    ----------
    folder : path
        The folder ``FGNET`` with subfolders ``images`` and ``points``, or the folder of the images.
    on_malformed : {"raise", "skip"}, default="raise"
        What to do about images with names other than ``001A02.JPG`` or ``001A16b.JPG`` (person 1 at 16 years).

    Returns
    -------
    ImageSet
        Labels "age" (whole years) and "identity"; the eyes are the pupils, NaN for images without landmarks.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "001A16b.JPG").touch()
    >>> faces = read_fgnet(folder)
    >>> faces.labels
    {'age': array([16.]), 'identity': array(['001'], dtype=object)}
    """
    folder = files.existing_folder(folder)
    root = files.subfolder(folder, "images") or folder
    points = files.subfolder(folder, "points")
    if points is None and folder.name.lower() == "images":
        points = files.subfolder(folder.parent, "points")
    pattern = r"(\d{3})A(\d{2,3})[a-z]?\.\w+"
    paths, found, skipped = files.parse_names(root, pattern, "such as 001A02.JPG", on_malformed, "FG-NET")
    persons, ages = zip(*found, strict=True)
    labels = {"age": np.array(ages, dtype=np.float64), "identity": np.array(persons, dtype=object)}
    if points is None:
        return ImageSet("FG-NET", paths, labels, None, skipped)
    found_points = {path.name.lower(): path for path in files.files_in(points, (".pts",))}
    eyes = np.full((len(paths), 2, 2), np.nan)
    for i, path in enumerate(paths):
        if (landmarks := found_points.get(path.stem.lower() + ".pts")) is not None:
            eyes[i] = files.landmarks_of(landmarks)[PUPILS]
    return ImageSet("FG-NET", paths, labels, files.left_first(eyes), skipped)


def read_utkface(folder: Any, *, on_malformed: str = "skip") -> ImageSet:
    """Read UTKFace.

    More than 20,000 faces of all ages from the web, for non-commercial research only; the images belong to their
    owners. Z. Zhang, Y. Song and H. Qi, Age progression/regression by conditional adversarial autoencoder, CVPR 2017;
    https://susanqq.github.io/UTKFace

    Parameters
    ----------
    folder : path
        Images named ``[age]_[gender]_[race]_[date].jpg`` or, aligned and cropped, ``....jpg.chip.jpg``, at any depth.
    on_malformed : {"skip", "raise"}, default="skip"
        What to do about images with other names, of which the data set has some: skip them with a warning, or raise.

    Returns
    -------
    ImageSet
        Labels "age" (years), "gender" (M, F) and "race" (White, Black, Asian, Indian, Others), estimated by an
        algorithm and checked by annotators.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "26_1_0_20170116184751658.jpg.chip.jpg").touch()
    >>> faces = read_utkface(folder)
    >>> [values[0] for values in faces.labels.values()]
    [np.float64(26.0), 'F', 'White']
    """
    folder, example = files.existing_folder(folder), "[age]_[gender]_[race]_[date].jpg"
    pattern = r"(\d{1,3})_([01])_([0-4])_\d+(?:\.jpe?g)?(?:\.chip)?\.\w+"
    paths, found, skipped = files.parse_names(folder, pattern, example, on_malformed, "UTKFace")
    ages, genders, races = zip(*found, strict=True)
    labels = {
        "age": np.array(ages, dtype=np.float64),
        "gender": files.names_of(genders, {"0": "M", "1": "F"}),
        "race": files.names_of(races, dict(zip("01234", ("White", "Black", "Asian", "Indian", "Others"), strict=True))),
    }
    return ImageSet("UTKFace", paths, labels, None, skipped)


def read_fairface(csv: Any, folder: Any, *, on_missing: str = "raise") -> ImageSet:
    """Read FairFace.

    108,501 faces, balanced over seven groups, under the licence CC BY 4.0. K. Karkkainen and J. Joo, FairFace: face
    attribute dataset for balanced race, gender, and age, WACV 2021; https://github.com/joojs/fairface

    Parameters
    ----------
    csv : path
        ``fairface_label_train.csv`` or ``fairface_label_val.csv``: columns ``file, age, gender, race, service_test``.
    folder : path
        The folder that paths in the table, such as ``train/1.jpg``, are relative to, or the folder ``train`` itself.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that do not exist.

    Returns
    -------
    ImageSet
        Labels "age" (the middle of the group: 24.5 for 20-29, 75 for more than 70), "age_group" and "race" (as in the
        table), "gender" (M, F) and perhaps "service_test" (bool): the majority opinion of annotators.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "1.jpg").touch()
    >>> _ = (folder / "labels.csv").write_text("file,age,gender,race\\n1.jpg,20-29,Female,Indian\\n")
    >>> read_fairface(folder / "labels.csv", folder).labels["age"]
    array([24.5])
    """
    table = read_table(csv)
    photos = table.column("file", "photo", "path", "image", required=True)
    groups = table.column("age", "age_group", required=True)
    ages = [files.middle_of_group(text, table.place(row)) for row, text in enumerate(groups)]
    labels = {"age": np.array(ages), "age_group": files.names_of(groups, {})}
    labels |= _named(table, gender=(files.GENDERS, "gender"), race=({}, "race"))
    if (column := table.column("service_test")) is not None:
        labels["service_test"] = np.array([text.lower() in ("true", "1", "yes") for text in column])
    return _assemble("FairFace", folder, table, photos, labels, None, on_missing)


def read_eyes(csv: Any, photos: Sequence[Any]) -> NDArray[np.float64]:
    """Eye positions as in :class:`ImageSet`, from a table with columns name, x, y, x, y, perhaps with column names.

    Pictures are found by file name, ignoring folder, suffix and case; the eyes of others are NaN.
    """
    return files.eyes_by_name(read_table(csv, header=False), [str(Path(photo)) for photo in photos])


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
        A table with a line of column names. Without it, all images in the folder and its subfolders are taken, sorted
        by path, without labels.
    path_column : str, default="file"
        The column of image paths, relative to the folder.
    label_columns : list of str, or dict, optional
        Columns to read as labels, all other columns by default. A dict maps columns to names of labels.
    eye_columns : four names, optional
        The columns x, y of one eye and x, y of the other.
    on_missing : {"raise", "skip"}, default="raise"
        What to do about images that do not exist.
    name : str, optional
        The name of the folder by default.

    Returns
    -------
    ImageSet
        Labels are numbers (NaN where empty) if the whole column is, else strings (None where empty). Whether you may
        use pictures of people, and for what, depends on their consent and on the law.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "a.png").touch()
    >>> _ = (folder / "labels.csv").write_text("file,size,colour\\na.png,3,red\\n")
    >>> read_folder(folder, folder / "labels.csv").labels
    {'size': array([3]), 'colour': array(['red'], dtype=object)}
    """
    folder = files.existing_folder(folder)
    name = folder.resolve().name if name is None else name
    if csv is None:
        return ImageSet(name, tuple(files.files_in(folder)), {})
    table = read_table(csv)
    photos = table.column(path_column, required=True)
    used = {files.plain(column) for column in (path_column, *(eye_columns or ()))}
    if label_columns is None:
        label_columns = [column for column in table.header if files.plain(column) not in used]
    wanted = label_columns if isinstance(label_columns, Mapping) else {column: column for column in label_columns}
    labels = {label: files.values_of(table.column(column, required=True)) for column, label in wanted.items()}
    if eye_columns is None:
        return _assemble(name, folder, table, photos, labels, None, on_missing)
    if len(eye_columns) != 4:
        raise ValueError(f"eye_columns={eye_columns!r} must be four columns, x, y of one eye and x, y of the other")
    eyes = files.eye_array([table.column(column, required=True) for column in eye_columns], table)
    return _assemble(name, folder, table, photos, labels, eyes, on_missing)


def _named(table: Table, **labels: Any) -> dict[str, NDArray[Any]]:
    """The labels that the table has; each is given as its spellings and possible columns."""
    found = {label: (table.column(*columns), spelling) for label, (spelling, *columns) in labels.items()}
    return {label: files.names_of(*column) for label, column in found.items() if column[0] is not None}


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
    """The images of a table; rows without an image are an error, or left out."""
    files.check_choice("on_missing", on_missing)
    folder = files.existing_folder(folder)
    find = files.finder(folder, any_folder)
    found = [find(photo, table.place(row)) for row, photo in enumerate(photos)]
    kept = [row for row, path in enumerate(found) if path is not None]
    gone = [photo for photo, path in zip(photos, found, strict=True) if path is None]
    if gone and (on_missing == "raise" or not kept):
        raise FileNotFoundError(
            f"{table.path}: {len(gone)} of {len(photos)} images are not in {folder}: {files.first_few(gone)}"
            + ("; on_missing='skip' leaves them out" if kept else "")
        )
    skipped = tuple(f"{photo}: not in {folder}" for photo in gone)
    return ImageSet(name, tuple(path or folder for path in found), labels, eyes, skipped).subset(kept)
