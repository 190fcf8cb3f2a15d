"""From data and the tables [labels], [protocol] and [distortion] to folds: samples to train and to test on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.core.graph.labels import CATEGORICAL, NUMERIC, encode_classes, kind_of, missing, numeric
from higsfa.evaluation import protocols
from higsfa.evaluation.schema import LARGEST
from higsfa.experiments.config import Config, DataTable, FileData, LabelTable
from higsfa.experiments.data import BLOCK_VALUES, Samples, read_data
from higsfa.experiments.interface import ExperimentError, in_one_line, named, noted
from higsfa.images import Distortion
from higsfa.sources import Source
from higsfa.training.sources import blocks

USUAL_LABELS = {
    **dict.fromkeys(("faces", "morph2", "utkface", "fairface"), ("age", "gender", "race")),
    **{"digits": ("digit",), "toy": ("s1",), "rat": ("x", "y"), "fgnet": ("age",)},
}
MAX_LABEL = LARGEST / 100  # errors of such a label are numbers that metrics.json may hold
CUT = {"eyes": "aligned by the eyes", "centre": "cut about their centre", None: "taken as they are"}


@dataclass(frozen=True)
class Label:
    name: str
    is_numeric: bool
    unit: str | None
    taken: str = ""
    """What it was taken for, and how to say something else, for people."""

    @property
    def kind(self) -> str:
        return NUMERIC if self.is_numeric else CATEGORICAL

    def record(self, classes: list[str] | None) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "unit": self.unit, "classes": classes}


def read_labels(config: Config, data: Samples) -> tuple[list[Label], dict[str, NDArray[Any]]]:
    """The labels to learn, and their values: float64 for numeric ones, texts or None for categorical ones."""
    names = config.data.labels or USUAL_LABELS.get(config.data.kind)
    if names is None:
        raise ExperimentError(f'[data] needs a key labels, such as ["age"]; the data have {named(data.labels)}')
    for name in config.labels:
        if name not in names:
            raise ExperimentError(f"[labels.{name}]: there is no label {name!r}; data.labels are {', '.join(names)}")
    values, labels, taken = {}, [], {"fold", "sample"}
    for name in names:
        if name not in data.labels:
            raise ExperimentError(f"[data] labels: no label {name!r}; the data have {named(data.labels)}")
        # Labels and estimates are columns of one table, so their names must differ.
        columns = {name, f"{name}_estimate", f"{name}_probability"}
        if clash := min(columns & taken, default=None):
            raise ExperimentError(f"data.labels: {name!r} clashes with {clash!r} in predictions.csv; rename it")
        taken |= columns
        label = _label(name, config.labels.get(name, LabelTable()), data.labels[name])
        values[name] = label_values(label, config, data.labels[name])
        if missing(values[name]).all():
            raise ExperimentError(f"label {name!r}: all its values are missing; leave it out of data.labels")
        labels.append(replace(label, taken=_range(values[name], label.is_numeric) + label.taken))
    return labels, values


def _label(name: str, table: LabelTable, values: NDArray[Any]) -> Label:
    if table.names is not None and table.kind == "numeric":
        raise ExperimentError(f"[labels.{name}]: names are for categorical labels; leave them out or change kind")
    if table.kind == "auto" and table.names is None:
        kind = kind_of(values)
        is_numeric, taken = not kind.is_class, ""
        if kind.n_whole:
            other, meant = (NUMERIC, "measure something") if kind.is_class else (CATEGORICAL, "name classes")
            taken = f'; whole numbers, so say kind = "{other}" in [labels.{name}] if they {meant}'
    else:
        is_numeric, taken = table.kind == NUMERIC, f", as [labels.{name}] says"
    usual = "years" if is_numeric and name == "age" else None
    return Label(name, is_numeric, usual if table.unit is None else table.unit, taken)


def _range(values: NDArray[Any], is_numeric: bool) -> str:
    present = values[~missing(values)]
    n = len(set(present.tolist()))
    if not is_numeric:
        return f"{n:,} classes"
    return f"a number, {present.min():g} to {present.max():g} ({n:,} values)"


def label_values(label: Label, config: Config, values: NDArray[Any]) -> NDArray[Any]:
    """A column of a label: numbers, or texts and None."""
    if label.is_numeric:
        with in_one_line(f"[labels.{label.name}] kind = 'numeric'"):
            column = numeric(values, f"label {label.name!r}")
        largest = np.max(np.abs(column), initial=0, where=~np.isnan(column))
        if largest > MAX_LABEL:
            raise ExperimentError(
                f"label {label.name!r} has values up to {largest:.3g}, too large for a report; use a larger unit"
            )
        return column
    out, known = np.full(len(values), None, dtype=object), ~missing(values)
    names = config.labels.get(label.name, LabelTable()).names
    out[known] = [_text(value, names, label.name) for value in values[known].tolist()]
    return out


def _text(value: Any, names: list[str] | None, label: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if names is None:
        return str(value).encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be written
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ExperimentError(f"[labels.{label}] names has {len(names)} entries for the codes 0, 1, ...; got {value!r}")
    return names[value]


class Fold(NamedTuple):
    train: Samples
    test: Samples


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data that are ready for training."""

    name: str
    labels: list[Label]  # labels to learn
    scored: list[Label]  # those that the test data have too
    data: Samples  # what the folds are parts of
    test_data: Samples  # the same, unless the test data are another data set
    folds: list[Fold]
    warnings: tuple[str, ...]


def open_experiment(config: Config, *, n_jobs: int | None = None) -> Experiment:
    """Read the data and cut them into folds. Picture files are decoded when they are read; see `decoded`."""
    data = _grouped(read_data(config.data, n_jobs=n_jobs))
    labels, values = read_labels(config, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for label in labels:
            if not label.is_numeric:
                encode_classes(values[label.name])  # warns of names that differ in nothing but blanks
    data = replace(data, warnings=data.warnings + noted(caught))
    truth = dict(values)
    if config.protocol.binary_race:
        values["race"], truth["race"] = _binary_race(values)
    if config.test_data is not None:
        return _cross_database(config, data, labels, values, n_jobs)
    with in_one_line(f"[protocol] kind = {config.protocol.kind!r}"):
        splits = _splits(config, data)
    learned, tested = replace(data, labels=values), replace(data, labels=truth)
    folds = [Fold(learned.subset(split.train), tested.subset(split.test)) for split in splits]
    _check(folds, labels)
    return Experiment(data.name, labels, labels, data, data, folds, data.warnings)


def decoded(config: Config, experiment: Experiment, folder: Path) -> Experiment:
    """The same experiment with its picture files decoded, into files of a folder."""

    def cached(samples: Samples, table: DataTable, name: str) -> Source:
        if not isinstance(table, FileData):
            return samples.source
        with in_one_line(f"[data] kind = {table.kind!r}"):
            return sources.cache(samples.source, folder / name, rebuild=True)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train = test = cached(experiment.data, config.data, "images.npy")
        if config.test_data is not None:
            test = cached(experiment.test_data, config.test_data, "test_images.npy")
    folds = []
    for part, tested in experiment.folds:
        folds.append(Fold(replace(part, source=train[part.rows]), replace(tested, source=test[tested.rows])))
    return replace(experiment, folds=folds, warnings=experiment.warnings + noted(caught))


def _splits(config: Config, data: Samples) -> list[protocols.Split]:
    table = config.protocol
    if table.kind == "split":
        if data.is_test is None:
            raise ValueError('the data have no split of their own; set kind = "random" in [protocol]')
        return [protocols.Split(np.flatnonzero(~data.is_test), np.flatnonzero(data.is_test))]
    if table.kind == "random":
        persons = _identity(data) if table.by_person else None
        share, repeats = 1 - table.test_share, table.repeats
        return protocols.random_splits(len(data), share, groups=persons, n_repeats=repeats, random_state=table.seed)
    if table.kind == "leave_persons_out":
        return protocols.leave_persons_out(_identity(data), table.n_persons, table.repeats, table.seed)
    sizes = None if table.sizes is None else {str(key): size for key, size in table.sizes.items()}
    return list(protocols.s1_s2_s3(data.labels, table.seed, sizes=sizes).runs)


def _identity(data: Samples) -> NDArray[Any]:
    if "identity" not in data.labels:
        raise ValueError("the data do not say who is in a picture (no label 'identity'); use another protocol")
    return data.labels["identity"]


def _grouped(data: Samples) -> Samples:
    """With a group for each person; a sample of an unknown person is a group of its own."""
    if "identity" not in data.labels:
        return data
    codes, n_known = encode_classes(data.labels["identity"])
    return replace(data, groups=np.where(codes >= 0, codes, n_known + np.arange(len(data))))


def _binary_race(values: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """B against all others, to learn; the same for B and W only, to score by."""
    if "race" not in values:
        raise ExperimentError("[protocol] binary_race needs the label 'race'; add it to data.labels")
    with in_one_line("[protocol] binary_race"):
        label, scored = protocols.binary_race(values["race"])
    shown = label.copy()
    shown[~scored] = None
    return label, shown


def _cross_database(
    config: Config, data: Samples, labels: list[Label], values: dict[str, NDArray[Any]], n_jobs: int | None
) -> Experiment:
    other = _grouped(read_data(config.test_data, n_jobs=n_jobs))
    if other.source.shape != data.source.shape:
        raise ExperimentError(
            f"[test_data]: shape {other.source.shape} of a sample, in [data] {data.source.shape}; set the same size"
        )
    if other.pixel_range != data.pixel_range:
        raise ExperimentError(
            f"[test_data]: black and white are {other.pixel_range}, in [data] {data.pixel_range}; store both alike"
        )
    notes = data.warnings + other.warnings
    if other.cropping != data.cropping:
        notes += (
            f"training pictures are {CUT[data.cropping]}, test pictures are {CUT[other.cropping]}: scores say little; "
            "give eye positions for both, or for none",
        )
    scored = [label for label in labels if label.name in other.labels]
    if not scored:
        raise ExperimentError(f"[test_data] has none of the labels {', '.join(label.name for label in labels)}")
    rows = np.arange(len(other))
    if "age" in other.labels:
        low, high = config.protocol.ages
        with in_one_line("[protocol] ages"):
            rows = np.flatnonzero(protocols.cross_database(other.labels["age"], low, high))
    if len(rows) == 0:
        raise ExperimentError(f"[protocol] ages = {config.protocol.ages}: no test sample has such an age")
    truth = {label.name: label_values(label, config, other.labels[label.name]) for label in scored}
    if config.protocol.binary_race and "race" in truth:
        _, truth["race"] = _binary_race(truth)
    fold = Fold(replace(data, labels=values), replace(other, labels=truth).subset(rows))
    _check([fold], scored)
    return Experiment(f"{data.name}, tested on {other.name}", labels, scored, data, other, [fold], notes)


def _check(folds: list[Fold], labels: list[Label]) -> None:
    for what, part in [pair for fold in folds for pair in zip(("training", "test"), fold, strict=True)]:
        if len(part) < 2:
            raise ExperimentError(f"[protocol]: only {len(part)} samples for {what}; use more data or another split")
        for name in (label.name for label in labels):
            if missing(part.labels[name]).all():
                raise ExperimentError(f"label {name!r}: no sample for {what} has it; leave it out, or check it")


class Sets(NamedTuple):
    """The three sets of a fold, as the network sees them; the paper calls them DR, S and T."""

    network: Samples
    supervised: Samples
    test: Samples


def make_sets(config: Config, fold: Fold) -> Sets:
    """Distorted copies for training, with different distortions for network and supervised step; none for testing."""
    table, test = config.distortion, network_input(config, fold.test)
    if config.averages_mirror_images and test.pixel_range is None:
        raise ExperimentError("[head] mirror = true is for images, and these data are not; leave it out")
    views = views_of(config)
    if views.n > 1 and test.pixel_range is None:
        raise ExperimentError(f"[head] views = {views.n} is for images, and these data are not; leave it out")
    if views.n_copies > 1:
        with in_one_line("[head] views"):  # said now, not when the network has been trained
            sources.repeat(test.source, views.n_copies, views)
    (copies, supervised_copies), n_members = config.n_copies(len(fold.train)), config.n_members(len(fold.train))
    if n_members > copies:
        what = f"[network] members = {n_members}: networks share the copies of [distortion], and there are {copies}"
        raise ExperimentError(f"{what}; make more copies, or fewer networks")
    if table is None:
        train = network_input(config, fold.train)
        return Sets(train, train, test)
    params = table.params(Distortion)
    if fold.train.pixel_range is None:
        raise ExperimentError("[distortion] is for images, and these data are not; leave the table out")
    if not _is_usual(fold.train) and (params["brightness"] or params["contrast"] or params["noise"]):
        what = "[distortion] brightness, contrast and noise"
        raise ExperimentError(f"{what} are for {_unusual(fold.train)}, or set the three to 0")

    def distorted(copies: int, seed: int) -> Samples:
        with in_one_line("[distortion]"):
            source = sources.repeat(fold.train.source, copies, Distortion(**{**params, "seed": seed}))
        return network_input(config, fold.train.subset(source.sample_index, source))

    return Sets(distorted(copies, params["seed"]), distorted(supervised_copies, params["seed"] + 1), test)


def shares(samples: Samples, n_members: int) -> list[Samples]:
    """What each of several networks is trained on: all samples, in other copies than the other networks."""
    if n_members == 1:
        return [samples]
    copy = np.arange(len(samples)) % (len(samples) // len(np.unique(samples.rows)))  # copies of one are neighbours
    return [samples.subset(np.flatnonzero(copy % n_members == member)) for member in range(n_members)]


@dataclass(frozen=True)
class Views:
    """Views of a picture that labels are estimated from: itself, distorted copies, and mirror images of all these.

    All pictures are distorted in the same ways, so an estimate does not depend on what else is estimated. The head
    learns from distorted copies one by one, each with its mirror image: of several ways, this gave the best estimates.
    """

    n: int
    mirror: bool
    distortion: Distortion

    @property
    def n_copies(self) -> int:
        return self.n * (1 + self.mirror)

    @property
    def of_copies(self) -> Views:
        """Those of samples that are distorted already."""
        return replace(self, n=1)

    def apply(self, images: NDArray[Any], samples: NDArray[np.intp], copies: NDArray[np.intp]) -> NDArray[Any]:
        view, is_mirrored = np.divmod(copies, 1 + self.mirror)
        if self.n > 1:
            images = self.distortion.apply(images, 0, view)
        if self.mirror:
            images = np.where(is_mirrored.reshape(-1, *[1] * (images.ndim - 1)) == 1, images[:, :, ::-1], images)
        return images


def views_of(config: Config) -> Views:
    """Of a config; copies are moved only, since contrast and noise change nothing that a picture shows."""
    given = {} if config.distortion is None else config.distortion.params(Distortion)
    moves = {name: given[name] for name in ("shift", "rotation", "scale", "interpolation") if name in given}
    return Views(config.n_views, config.averages_mirror_images, Distortion(**moves, identity_first=True))


def joined(networks: Sequence[Any]) -> Callable[[Source], NDArray[Any]]:
    """The features of several networks side by side; every picture is decoded and distorted once."""

    def transform(source: Source) -> NDArray[Any]:
        parts = [np.hstack([net.transform(images) for net in networks]) for _, images in blocks(source, BLOCK_VALUES)]
        return np.concatenate(parts) if parts else np.hstack([net.transform(source) for net in networks])

    return networks[0].transform if len(networks) == 1 else transform


def features_of(transform: Any, source: Source, views: Views) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features of samples, and what labels are estimated from: the same, or the mean over views."""
    if views.n_copies == 1:
        features = transform(source)
        return features, features
    # Side by side, a picture is decoded and distorted only once.
    found = transform(sources.repeat(source, views.n_copies, views))
    found = found.reshape(len(source), views.n_copies, found.shape[1])
    return np.ascontiguousarray(found[:, 0]), found.mean(axis=1)


def network_input(config: Config, samples: Samples) -> Samples:
    """Samples in the precision of the network."""
    if config.network.dtype is not None:
        samples = replace(samples, source=sources.map(samples.source, partial(np.asarray, dtype=config.network.dtype)))
    return samples


def _is_usual(samples: Samples) -> bool:
    """Whether black and white are those of the dtype; edges and distortions know no others."""
    dtype = samples.source.dtype
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return samples.pixel_range == ((0.0, 1.0) if limits is None else (float(limits.min), float(limits.max)))


def _unusual(samples: Samples) -> str:
    dtype, pixel_range = samples.source.dtype, samples.pixel_range
    return f"bytes and floats from 0 to 1; these are {dtype} with black and white {pixel_range}: convert them"
