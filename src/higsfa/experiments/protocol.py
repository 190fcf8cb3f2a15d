"""From data and the table [protocol] to folds: what to train on, and what to test on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.core.graph.labels import encode_classes, missing
from higsfa.evaluation import protocols
from higsfa.experiments.config import Config, DataTable, FileData
from higsfa.experiments.data import Data, read_data
from higsfa.experiments.errors import ExperimentError, in_one_line, noted
from higsfa.experiments.labels import Label, label_values, read_labels
from higsfa.experiments.pictures import PixelRange
from higsfa.sources import Source

__all__ = ["Experiment", "Fold", "Part", "decoded", "open_experiment"]

CUT = {"eyes": "aligned by the eyes", "centre": "cut about their centre", None: "taken as they are"}


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of a fold.

    Attributes
    ----------
    samples : Source
        All of the data set.
    labels : dict of arrays
        Of the samples of this part.
    groups : array
        What must not be torn apart in cross-validation: persons where they are known, else samples.
    rows : array of int
        The numbers of the samples of this part in their data set.
    source : Source
        The samples of this part, without copies.
    """

    samples: Source
    labels: dict[str, NDArray[Any]]
    groups: NDArray[np.intp]
    rows: NDArray[np.intp]

    @property
    def source(self) -> Source:
        return self.samples[self.rows]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Fold:
    """One run of training and testing."""

    train: Part
    test: Part


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data that are ready for training.

    Attributes
    ----------
    name : str
        Of the data.
    labels : list of Label
        Those to learn.
    scored : list of Label
        Those that the test data have too.
    folds : list of Fold
    pixel_range : (black, white), or None
        Of the images of all folds; None if samples are no images.
    cropping : {"eyes", "centre"} or None
        How the picture files to train on were cut.
    warnings : tuple of str
    """

    name: str
    labels: list[Label]
    scored: list[Label]
    folds: list[Fold]
    pixel_range: PixelRange | None
    cropping: str | None
    warnings: tuple[str, ...]

    @property
    def are_images(self) -> bool:
        return self.pixel_range is not None


def open_experiment(config: Config, *, n_jobs: int | None = None) -> Experiment:
    """Read the data and cut them into folds. Picture files are decoded when they are asked for; see `decoded`.

    Parameters
    ----------
    config : Config
    n_jobs : int, optional
        Threads.
    """
    data = read_data(config.data, n_jobs=n_jobs)
    labels, values = read_labels(config, data)
    truth = dict(values)
    if config.protocol.binary_race:
        values["race"], truth["race"] = _binary_race(values)
    if config.test_data is not None:
        return _cross_database(config, data, labels, values, n_jobs)
    with in_one_line(f"[protocol] kind = {config.protocol.kind!r}"):
        splits = _splits(config, data)
    groups = _groups(data)
    folds = []
    for split in splits:
        parts = [
            Part(data.source, {name: column[rows] for name, column in columns.items()}, groups[rows], rows)
            for rows, columns in ((split.train, values), (split.test, truth))
        ]
        folds.append(Fold(*parts))
    _check(folds, labels)
    return Experiment(data.name, labels, labels, folds, data.pixel_range, data.cropping, data.warnings)


def decoded(config: Config, experiment: Experiment, folder: Path) -> Experiment:
    """The same experiment with its picture files decoded once, into files of a folder."""
    held: dict[int, Source] = {}

    def kept(part: Part, table: DataTable, name: str) -> Part:
        if not isinstance(table, FileData):
            return part
        if id(part.samples) not in held:
            with in_one_line(f"[data] kind = {table.kind!r}"):
                held[id(part.samples)] = sources.cache(part.samples, folder / name, rebuild=True)
        return replace(part, samples=held[id(part.samples)])

    tested = (config.data, "images.npy") if config.test_data is None else (config.test_data, "test_images.npy")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folds = [Fold(kept(f.train, config.data, "images.npy"), kept(f.test, *tested)) for f in experiment.folds]
    return replace(experiment, folds=folds, warnings=experiment.warnings + noted(caught))


def _splits(config: Config, data: Data) -> list[protocols.Split]:
    table = config.protocol
    if table.kind == "split":
        if data.is_test is None:
            raise ValueError('the data have no split of their own; set kind = "random" in [protocol]')
        return [protocols.Split(np.flatnonzero(~data.is_test), np.flatnonzero(data.is_test))]
    if table.kind == "random":
        persons = _identity(data) if table.by_person else None
        return protocols.random_splits(
            len(data), 1 - table.test_share, groups=persons, n_repeats=table.repeats, random_state=table.seed
        )
    if table.kind == "leave_persons_out":
        return protocols.leave_persons_out(_identity(data), table.n_persons, table.repeats, table.seed)
    sizes = None if table.sizes is None else {str(key): size for key, size in table.sizes.items()}
    return list(protocols.s1_s2_s3(data.columns, table.seed, sizes=sizes).runs)


def _identity(data: Data) -> NDArray[Any]:
    if "identity" not in data.columns:
        raise ValueError("the data do not say who is in a picture (no label 'identity'); use another protocol")
    return data.columns["identity"]


def _groups(data: Data) -> NDArray[np.intp]:
    """Persons, or samples where persons are not known."""
    samples = np.arange(len(data))
    if "identity" not in data.columns:
        return samples
    codes, n_known = encode_classes(data.columns["identity"])
    return np.where(codes >= 0, codes, n_known + samples)


def _binary_race(values: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """B against all others, to learn; and the same for B and W only, to be scored."""
    if "race" not in values:
        raise ExperimentError("[protocol] binary_race needs the label 'race'; add it to data.labels")
    with in_one_line("[protocol] binary_race"):
        label, scored = protocols.binary_race(values["race"])
    shown = label.copy()
    shown[~scored] = None
    return label, shown


def _cross_database(
    config: Config,
    data: Data,
    labels: list[Label],
    values: dict[str, NDArray[Any]],
    n_jobs: int | None,
) -> Experiment:
    other = read_data(config.test_data, n_jobs=n_jobs)
    if other.source.shape != data.source.shape:
        raise ExperimentError(
            f"[test_data]: samples have shape {other.source.shape}, those of [data] {data.source.shape}; "
            "set the same size in both"
        )
    if other.pixel_range != data.pixel_range:
        raise ExperimentError(
            f"[test_data]: black and white are {other.pixel_range}, those of [data] {data.pixel_range}; "
            "store grey values of both in the same way"
        )
    notes = data.warnings + other.warnings
    if other.cropping != data.cropping:
        notes += (
            f"pictures to train on are {CUT[data.cropping]}, those to test on are {CUT[other.cropping]}: scores say "
            "little; give eye positions for both, or for none",
        )
    scored = [label for label in labels if label.name in other.columns]
    if not scored:
        raise ExperimentError(f"[test_data] has none of the labels {', '.join(label.name for label in labels)}")
    rows = np.arange(len(other))
    if "age" in other.columns:
        low, high = config.protocol.ages
        with in_one_line("[protocol] ages"):
            rows = np.flatnonzero(protocols.cross_database(other.columns["age"], low, high))
    if len(rows) == 0:
        raise ExperimentError(f"[protocol] ages = {config.protocol.ages}: no test sample has such an age")
    truth = {label.name: label_values(label, config, other.columns[label.name]) for label in scored}
    if config.protocol.binary_race and "race" in truth:
        _, truth["race"] = _binary_race(truth)
    everything = np.arange(len(data))
    fold = Fold(
        Part(data.source, values, _groups(data), everything),
        Part(other.source, {name: column[rows] for name, column in truth.items()}, _groups(other)[rows], rows),
    )
    _check([fold], scored)
    name = f"{data.name}, tested on {other.name}"
    return Experiment(name, labels, scored, [fold], data.pixel_range, data.cropping, notes)


def _check(folds: list[Fold], labels: list[Label]) -> None:
    for fold in folds:
        for what, part in (("training", fold.train), ("test", fold.test)):
            if len(part) < 2:
                raise ExperimentError(
                    f"[protocol]: only {len(part)} samples for {what}; use more data or another split"
                )
            for label in labels:
                if missing(part.labels[label.name]).all():
                    raise ExperimentError(
                        f"label {label.name!r}: no sample for {what} has it; leave it out, or check it"
                    )
