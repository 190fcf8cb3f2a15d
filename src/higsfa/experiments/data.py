"""From the table [data] to samples, and to what is known about them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import datasets, sources
from higsfa.experiments.config import (
    DigitsData,
    FacesData,
    FairfaceData,
    FgnetData,
    FileData,
    FolderData,
    Morph2Data,
    NpzData,
    ToyData,
    UtkfaceData,
)
from higsfa.experiments.errors import in_one_line, named, noted
from higsfa.experiments.pictures import FILES_RANGE, PixelRange, face_sampler, range_of
from higsfa.io.arrays import read_npz
from higsfa.sources import Source

__all__ = ["Data", "read_data"]

MAX_ARRAYS = 16 * 2**30
"""Most bytes of arrays in a .npz file of data."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples and what is known about them.

    Attributes
    ----------
    name : str
    source : Source
    columns : dict of arrays
        One value per sample: labels, and others such as "identity".
    is_test : array of bool, or None
        The data set's own split.
    pixel_range : (black, white), or None
        What grey values mean; None if samples are no images.
    cropping : {"eyes", "centre"} or None
        How picture files were cut: aligned by the eyes, or about the centre; None if samples are no picture files.
    warnings : tuple of str
    """

    name: str
    source: Source
    columns: dict[str, NDArray[Any]]
    is_test: NDArray[np.bool_] | None = None
    pixel_range: PixelRange | None = None
    cropping: str | None = None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, rows: NDArray[np.intp]) -> Data:
        return replace(
            self,
            source=self.source[rows],
            columns={name: values[rows] for name, values in self.columns.items()},
            is_test=None if self.is_test is None else self.is_test[rows],
        )


def read_data(table: Any, *, n_jobs: int | None = None) -> Data:
    """Read what a table [data] describes.

    Parameters
    ----------
    table : one of the data tables of a Config
    n_jobs : int, optional
        Threads.
    """
    with in_one_line(f"[data] kind = {table.kind!r}"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = READERS[type(table)](table, n_jobs)
        if len(data) == 0:
            raise ValueError("there are no samples; check the folder")
        if table.max_samples is not None and len(data) > table.max_samples:
            rows = np.random.default_rng(0).choice(len(data), table.max_samples, replace=False)
            data = data.subset(np.sort(rows))
    return replace(data, warnings=data.warnings + noted(caught))


# ---------------------------------------------------------------------------------------------- kinds of data


def _faces(table: FacesData, n_jobs: int | None) -> Data:
    n = table.n_train + table.n_test
    images, labels = datasets.make_faces(
        n, table.size, table.seed, images_per_person=table.images_per_person, races=tuple(table.races), n_jobs=n_jobs
    )
    return Data("synthetic faces", sources.array(images), dict(labels), np.arange(n) >= table.n_train, FILES_RANGE)


def _digits(table: DigitsData, n_jobs: int | None) -> Data:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    return Data("digits", sources.array(images), {"digit": digits.target}, pixel_range=(0.0, 1.0))


def _toy(table: ToyData, n_jobs: int | None) -> Data:
    n = table.n_train + table.n_test
    X, signals = datasets.make_toy(n, random_state=table.seed)
    return Data("toy signals", sources.array(X), dict(signals), np.arange(n) >= table.n_train)


def _npz(table: NpzData, n_jobs: int | None) -> Data:
    if not table.file.is_file():
        raise FileNotFoundError(f"there is no file {table.file}; set data.file")
    if not table.labels:
        raise ValueError("it needs a key labels, with the names of arrays in the file")
    names = [table.images, *table.labels] + ([table.split] if table.split is not None else [])
    with in_one_line(os.fspath(table.file)):
        arrays = read_npz(table.file, names, limit=MAX_ARRAYS)
        images = arrays[table.images]
        for name in names:
            if arrays[name].ndim < 1 or len(arrays[name]) != len(images):
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, but there are {len(images)} images")
            if name != table.images and arrays[name].ndim != 1:
                raise ValueError(f"array {name!r} must have one value per image, got shape {arrays[name].shape}")
        if images.ndim not in (2, 3):
            raise ValueError(f"array {table.images!r} must be (n, height, width) or (n, values), got {images.shape}")
    is_test, chosen = None, np.arange(len(images))
    if table.split is not None:
        is_test, chosen = _split(arrays[table.split], table.train, table.test, f"array {table.split!r}")
    columns = {name: arrays[name] for name in table.labels}
    data = Data(table.file.stem, sources.array(images), columns, is_test, _pixel_range(table, images))
    return data if len(chosen) == len(images) else data.subset(chosen)


def _pixel_range(table: NpzData, images: NDArray[Any]) -> PixelRange | None:
    """Black and white of images; None for other samples."""
    if images.ndim != 3 or images.size == 0:
        return None
    if table.pixel_range is not None:
        return table.pixel_range[0], table.pixel_range[1]
    found, is_guess = range_of(images)
    if is_guess:
        warnings.warn(
            f"{table.file}: black and white are taken to be the smallest and the largest grey value, {found[0]:g} and "
            f"{found[1]:g}; if they are not, set data.pixel_range = [black, white]",
            UserWarning,
            stacklevel=2,
        )
    return found


def _split(values: NDArray[Any], train: str, test: str, what: str) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which samples are for testing, and which are for either."""
    texts = np.array([str(value) for value in values.tolist()])
    for key, value in (("train", train), ("test", test)):
        if value not in texts:
            found = ", ".join(map(repr, sorted(set(texts.tolist()))[:5]))
            raise ValueError(f"{what} has no value {value!r} (data.{key}); it has {found}")
    return texts == test, np.flatnonzero((texts == train) | (texts == test))


def _morph2(table: Morph2Data, n_jobs: int | None) -> Data:
    found = datasets.read_morph2(table.folder, table.csv, eyes=table.eyes, on_missing=table.on_bad_file)
    return _pictures(table, found, n_jobs)


def _fgnet(table: FgnetData, n_jobs: int | None) -> Data:
    return _pictures(table, datasets.read_fgnet(table.folder, on_malformed=table.on_bad_file), n_jobs)


def _utkface(table: UtkfaceData, n_jobs: int | None) -> Data:
    return _pictures(table, datasets.read_utkface(table.folder, on_malformed="skip"), n_jobs)


def _fairface(table: FairfaceData, n_jobs: int | None) -> Data:
    tables = [table.csv] + ([table.test_csv] if table.test_csv is not None else [])
    parts = [datasets.read_fairface(csv, table.folder, on_missing=table.on_bad_file) for csv in tables]
    shared = [name for name in parts[0].labels if all(name in part.labels for part in parts)]
    whole = datasets.ImageSet(
        parts[0].name,
        tuple(path for part in parts for path in part.paths),
        {name: np.concatenate([part.labels[name] for part in parts]) for name in shared},
        None,
        tuple(text for part in parts for text in part.skipped),
    )
    is_test = np.repeat(np.arange(len(parts)) == 1, [len(part) for part in parts]) if len(parts) == 2 else None
    return _pictures(table, whole, n_jobs, is_test)


def _folder(table: FolderData, n_jobs: int | None) -> Data:
    found = datasets.read_folder(
        table.folder,
        table.csv,
        path_column=table.path_column,
        eye_columns=table.eye_columns,
        on_missing=table.on_bad_file,
    )
    if table.person_column is not None:
        if table.person_column not in found.labels:
            raise ValueError(f"person_column: no column {table.person_column!r}; there are {named(found.labels)}")
        found = replace(found, labels={**found.labels, "identity": found.labels[table.person_column]})
    if table.split_column is None:
        return _pictures(table, found, n_jobs)
    if table.split_column not in found.labels:
        raise ValueError(f"split_column: no column {table.split_column!r}; there are {named(found.labels)}")
    is_test, chosen = _split(
        found.labels[table.split_column], table.train, table.test, f"column {table.split_column!r}"
    )
    return _pictures(table, found.subset(chosen), n_jobs, is_test[chosen])


def _pictures(
    table: FileData, found: datasets.ImageSet, n_jobs: int | None, is_test: NDArray[np.bool_] | None = None
) -> Data:
    if len(found) == 0:
        raise ValueError(f"there are no pictures in {table.folder}; check data.folder")
    sampler = face_sampler(table, found.paths, found.eyes)
    pictures = sources.images(found.paths, sampler, on_error=table.on_bad_file, n_threads=_threads(n_jobs))
    notes = [*found.skipped, *(f"{path}: {reason}" for path, reason in pictures.skipped.items())]
    if len(notes) > 10:
        notes = [*notes[:10], f"... and {len(notes) - 10} more files left out"]
    kept = pictures.kept
    return Data(
        found.name,
        pictures,
        {name: values[kept] for name, values in found.labels.items()},
        None if is_test is None else is_test[kept],
        FILES_RANGE,
        "centre" if found.eyes is None else "eyes",
        warnings=tuple(f"left out: {note}" for note in notes),
    )


def _threads(n_jobs: int | None) -> int | None:
    return n_jobs if n_jobs is not None and n_jobs > 0 else None


READERS: dict[type, Callable[[Any, int | None], Data]] = {
    FacesData: _faces,
    DigitsData: _digits,
    ToyData: _toy,
    NpzData: _npz,
    Morph2Data: _morph2,
    FgnetData: _fgnet,
    UtkfaceData: _utkface,
    FairfaceData: _fairface,
    FolderData: _folder,
}
