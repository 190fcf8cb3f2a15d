"""Samples of an experiment, from any kind of data; how picture files become samples, in training and later."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import datasets, sources
from higsfa.datasets.readers import read_eyes
from higsfa.experiments import config as tables
from higsfa.experiments.interface import ExperimentError, in_one_line, named, noted
from higsfa.images import FaceSampler, normalize_pose
from higsfa.io.arrays import read_npz
from higsfa.sources import ImageFiles, Source

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
PixelRange = tuple[float, float]  # the values of black and of white
IsTest = NDArray[np.bool_] | None
FILES_RANGE: PixelRange = (0.0, 255.0)  # of picture files once they are decoded
USUAL_RANGES: tuple[PixelRange, ...] = ((0.0, 1.0), FILES_RANGE, (0.0, 65535.0))
WHOLE: dict[str, Any] = {"pose_size": (256, 256), "square": None, "shift_up": 0.0}
"""Options of FaceSampler that take the largest centred square of a picture."""
MAX_ARRAYS = 16 * 2**30  # most bytes of arrays in a .npz file of data
BLOCK_VALUES = 2**22  # pixels read at once


def face_sampler(table: tables.FileData, paths: tuple[Path, ...], eyes: NDArray[np.float64] | None) -> FaceSampler:
    """Faces aligned by their eyes; without eyes, the largest centred square of each picture."""
    if eyes is None:
        return FaceSampler(table.size, contrast=table.normalise_contrast, **WHOLE)
    places = dict(zip(paths, eyes, strict=True))
    return FaceSampler(table.size, eyes=places, contrast=table.normalise_contrast)  # type: ignore[arg-type]


def scaled(image: Any, sampler: Any, pixel_range: PixelRange) -> NDArray[Any]:
    """The picture of a sampler in another range of grey values: float32, unless it is that of bytes."""
    grey, (black, white) = np.asarray(sampler(image)), pixel_range
    if pixel_range == FILES_RANGE:
        return grey
    return np.float32(black) + grey.astype(np.float32) * np.float32((white - black) / 255)


def new_pictures(run: Any, shape: tuple[int, ...], paths: Paths, eyes: Any, cropped: bool) -> ImageFiles:
    """Pictures prepared as those of a run, whose samples have this shape; see `Run.pictures`."""
    found = _files(paths)
    places = None if eyes is None else _eyes(eyes, found)
    if run.cropping == "eyes" and (places is None) != cropped:
        raise ExperimentError(
            f"{run.name} was trained on faces aligned by their eyes: give the eyes of these pictures (--eyes TABLE), "
            "or say that they are cut in the same way already (--cropped), but not both"
        )
    if run.cropping != "eyes" and (places is not None or cropped):
        raise ExperimentError(
            f"{run.name} was trained on pictures cut about their centre, and new ones are cut in the same way; "
            "leave out eyes and cropped (--eyes, --cropped)"
        )
    table = run.config.data
    is_files = isinstance(table, tables.FileData)
    sampler = face_sampler(table, found, places) if is_files else partial(normalize_pose, size=(shape[0], shape[1]))
    with in_one_line("the pictures cannot be read"):
        mode = "RGB" if len(shape) == 3 else "L"
        return sources.images(found, partial(scaled, sampler=sampler, pixel_range=run.pixel_range), mode=mode)


def _eyes(eyes: Any, found: tuple[Path, ...]) -> NDArray[np.float64]:
    with in_one_line("eyes"):
        if isinstance(eyes, str | os.PathLike):
            if not Path(eyes).exists():
                raise FileNotFoundError(f"there is no table {eyes}")
            eyes = read_eyes(eyes, found)
        places = np.asarray(eyes, dtype=np.float64)
    if places.shape != (len(found), 2, 2):
        raise ExperimentError(f"eyes: shape ({len(found)}, 2, 2) for {len(found)} pictures, got {places.shape}")
    unknown = np.isnan(places).any(axis=(1, 2))
    if unknown.any():
        raise ExperimentError(f"eyes: those of {found[int(np.argmax(unknown))]} are not known; add them to the table")
    return places


def _files(paths: Paths) -> tuple[Path, ...]:
    found: list[Path] = []
    given = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    for path in given:
        if path.is_dir():
            with in_one_line(f"{path}"):
                found += datasets.read_folder(path).paths
        elif path.is_file():
            found.append(path.absolute())
        else:
            raise ExperimentError(f"there is no picture or folder {path}")
    if not found:
        raise ExperimentError(f"there are no pictures in {', '.join(map(str, given[:3])) or 'an empty list'}")
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and what is known about them: a data set, a part of it, or copies of a part."""

    source: Source
    labels: dict[str, NDArray[Any]]
    """One value per sample: in a data set all columns that it has, in a part the labels to learn."""
    name: str = ""  # of the data set
    is_test: IsTest = None  # the data set's own split
    pixel_range: PixelRange | None = None  # what grey values mean; None if samples are not images
    cropping: str | None = None
    """How picture files were cut: by the "eyes" or about the "centre"; None if samples are not picture files."""
    warnings: tuple[str, ...] = ()
    rows: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """The indices of the samples in their data set; 0, 1, ... by default."""
    groups: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """What cross-validation keeps together: persons if they are known, else samples."""

    def __post_init__(self) -> None:
        for name in ("rows", "groups"):
            if len(getattr(self, name)) != len(self.source):
                object.__setattr__(self, name, np.arange(len(self.source)))

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, index: NDArray[np.intp], source: Source | None = None) -> Samples:
        """Some of these samples, or copies of them; `source` holds them already, if given."""
        return replace(
            self,
            source=self.source[index] if source is None else source,
            labels={name: values[index] for name, values in self.labels.items()},
            is_test=None if self.is_test is None else self.is_test[index],
            rows=self.rows[index],
            groups=self.groups[index],
        )


def range_of(images: NDArray[Any]) -> tuple[PixelRange, bool]:
    """Black and white of an array of unknown range, and whether they are only its smallest and largest value.

    The range of bytes is 0 to 255, that of other dtypes the first of 0 to 1, 255 and 65,535 that holds the values.
    They may exceed it by half of it, as after interpolation and noise.
    """
    if images.dtype == np.uint8:
        return FILES_RANGE, False
    low, high = float(images.min()), float(images.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("the images hold values that are not finite; leave such images out")
    for black, white in USUAL_RANGES:
        if low >= black - 0.5 * white and high <= 1.5 * white:
            return (black, white), False
    return (low, max(high, low + 1e-6 * max(1.0, abs(low)))), True


def unit_range(images: Any, pixel_range: PixelRange) -> NDArray[np.float32]:
    black, white = pixel_range
    unit = (np.asarray(images, dtype=np.float64) - black) / (white - black)
    return np.clip(unit, 0, 1).astype(np.float32)


def read_data(table: Any, *, n_jobs: int | None = None) -> Samples:
    """Read what a table [data] describes, with `n_jobs` threads."""
    with in_one_line(f"[data] kind = {table.kind!r}"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(table, tables.FileData):
            data = _pictures(table, n_jobs)
        else:
            data = _npz(table) if isinstance(table, tables.NpzData) else _made(table, n_jobs)
        if len(data) == 0:
            raise ValueError("there are no samples; check the folder")
        if table.max_samples is not None and len(data) > table.max_samples:
            rows = np.random.default_rng(0).choice(len(data), table.max_samples, replace=False)
            data = data.subset(np.sort(rows))
    return replace(data, rows=np.arange(len(data)), warnings=data.warnings + noted(caught))


def _made(table: Any, n_jobs: int | None) -> Samples:
    """Data that need no files."""
    if isinstance(table, tables.DigitsData):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = sources.array((digits.images / 16).astype(np.float32))
        return Samples(images, {"digit": digits.target}, "digits", pixel_range=(0.0, 1.0))
    n = table.n_train + table.n_test
    is_test = np.arange(n) >= table.n_train
    if isinstance(table, tables.ToyData):
        X, signals = datasets.make_toy(n, random_state=table.seed)
        return Samples(sources.array(X), dict(signals), "toy signals", is_test)
    if isinstance(table, tables.RatData):
        moves = {name: getattr(table, name) for name in ("speed", "turn", "persistence", "turn_persistence")}
        views, walk = datasets.make_rat_views(n, table.seed, lazy=True, **moves)
        return Samples(views, dict(walk), "rat in a box", is_test, FILES_RANGE)
    people: Any = {"images_per_person": table.images_per_person, "races": tuple(table.races)}
    images, labels = datasets.make_faces(n, table.size, table.seed, n_jobs=n_jobs, **people)
    return Samples(sources.array(images), dict(labels), "synthetic faces", is_test, FILES_RANGE)


def _npz(table: tables.NpzData) -> Samples:
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
        if images.ndim not in (2, 3) and (images.ndim != 4 or images.shape[3] not in (1, 3)):
            wanted = "(n, height, width), with 1 or 3 channels last or none, or (n, values)"
            raise ValueError(f"array {table.images!r} must be {wanted}, got {images.shape}")
    is_test, chosen = None, np.arange(len(images))
    if table.split is not None:
        is_test, chosen = _split(arrays[table.split], table.train, table.test, f"array {table.split!r}")
    labels = {name: arrays[name] for name in table.labels}
    data = Samples(sources.array(images), labels, table.file.stem, is_test, _pixel_range(table, images))
    return data if len(chosen) == len(images) else data.subset(chosen)


def _pixel_range(table: tables.NpzData, images: NDArray[Any]) -> PixelRange | None:
    """Black and white of images; None for other samples."""
    if images.ndim < 3 or images.size == 0:
        return None
    if table.pixel_range is not None:
        return table.pixel_range[0], table.pixel_range[1]
    found, is_guess = range_of(images)
    if is_guess:
        text = "black and white are taken to be the smallest and the largest grey value"
        way = "if they are not, set data.pixel_range = [black, white]"
        warnings.warn(f"{table.file}: {text}, {found[0]:g} and {found[1]:g}; {way}", UserWarning, stacklevel=2)
    return found


def _split(values: NDArray[Any], train: str, test: str, what: str) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which samples are for testing, and which are used at all."""
    texts = np.array([str(value) for value in values.tolist()])
    for key, value in (("train", train), ("test", test)):
        if value not in texts:
            found = ", ".join(map(repr, sorted(set(texts.tolist()))[:5]))
            raise ValueError(f"{what} has no value {value!r} (data.{key}); it has {found}")
    return texts == test, np.flatnonzero((texts == train) | (texts == test))


def _fairface(table: tables.FairfaceData) -> tuple[datasets.ImageSet, IsTest]:
    files = [table.csv] + ([table.test_csv] if table.test_csv is not None else [])
    parts = [datasets.read_fairface(csv, table.folder, on_missing=table.on_bad_file) for csv in files]
    shared = [name for name in parts[0].labels if all(name in part.labels for part in parts)]
    whole = datasets.ImageSet(
        parts[0].name,
        tuple(path for part in parts for path in part.paths),
        {name: np.concatenate([part.labels[name] for part in parts]) for name in shared},
        None,
        tuple(text for part in parts for text in part.skipped),
    )
    return whole, None if len(parts) == 1 else np.arange(len(whole)) >= len(parts[0])


def _folder(table: tables.FolderData) -> tuple[datasets.ImageSet, IsTest]:
    skip, eyes = table.on_bad_file, table.eye_columns
    found = datasets.read_folder(
        table.folder, table.csv, path_column=table.path_column, eye_columns=eyes, on_missing=skip
    )
    for key in ("person_column", "split_column"):
        column = getattr(table, key)
        if column is not None and column not in found.labels:
            raise ValueError(f"{key}: no column {column!r}; there are {named(found.labels)}")
    if table.person_column is not None:
        found = replace(found, labels={**found.labels, "identity": found.labels[table.person_column]})
    if table.split_column is None:
        return found, None
    column = table.split_column
    is_test, chosen = _split(found.labels[column], table.train, table.test, f"column {column!r}")
    return found.subset(chosen), is_test[chosen]


def _pictures(table: tables.FileData, n_jobs: int | None) -> Samples:
    is_test = None
    if isinstance(table, tables.FairfaceData):
        found, is_test = _fairface(table)
    elif isinstance(table, tables.FolderData):
        found, is_test = _folder(table)
    elif isinstance(table, tables.Morph2Data):
        found = datasets.read_morph2(table.folder, table.csv, eyes=table.eyes, on_missing=table.on_bad_file)
    elif isinstance(table, tables.NamedFilesData) and table.kind == "fgnet":
        found = datasets.read_fgnet(table.folder, on_malformed=table.on_bad_file)
    else:
        found = datasets.read_utkface(table.folder, on_malformed="skip")
    if len(found) == 0:
        raise ValueError(f"there are no pictures in {table.folder}; check data.folder")
    sampler = face_sampler(table, found.paths, found.eyes)
    threads = n_jobs if n_jobs is not None and n_jobs > 0 else None
    mode = "auto" if table.colour == "auto" else "RGB" if table.colour else "L"
    pictures = sources.images(found.paths, sampler, mode=mode, on_error=table.on_bad_file, n_threads=threads)
    notes = [*found.skipped, *(f"{path}: {reason}" for path, reason in pictures.skipped.items())]
    if len(notes) > 10:
        notes = [*notes[:10], f"... and {len(notes) - 10} more files left out"]
    kept = pictures.kept
    return Samples(
        pictures,
        {name: values[kept] for name, values in found.labels.items()},
        found.name,
        None if is_test is None else is_test[kept],
        FILES_RANGE,
        "centre" if found.eyes is None else "eyes",
        tuple(f"left out: {note}" for note in notes),
    )
