"""A finished run in use: its results, new pictures, its scores again. See docs/run-folder.md."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.evaluation.schema import Label, Metrics, read_metrics
from higsfa.experiments import score
from higsfa.experiments.config import Config
from higsfa.experiments.data import Paths, Samples, new_pictures
from higsfa.experiments.interface import ExperimentError, Progress, Silent, in_one_line, load_config, with_paths
from higsfa.experiments.split import (
    Experiment,
    features_of,
    joined,
    make_sets,
    network_input,
    open_experiment,
    views_of,
)
from higsfa.io.arrays import read_npz
from higsfa.models import load
from higsfa.reconstruction import LinearReconstruction, morph
from higsfa.report.reading import read_columns
from higsfa.sources import ImageFiles, Source
from higsfa.training.sources import evenly_spread

AnyPath = str | os.PathLike[str]
MAX_CSV = 2_000_000_000
MAX_ARRAYS = 1_000_000_000
EXPLORED = 500  # test pictures that the explorer takes its examples and its statistics from


def member_files(number: int) -> tuple[str, str]:
    """The files of a network and its head; 1 is the first."""
    own = "" if number == 1 else str(number)
    return f"model{own}.higsfa", f"head{own}.higsfa"


class Rebuilt(NamedTuple):
    """Pictures that were reconstructed from their features alone.

    Attributes
    ----------
    originals : array of shape (n, height, width)
        As the network sees them.
    pictures : dict of arrays
        "linear", by one linear map for the whole picture, and "top-down", node by node.
    errors : dict of float
        Squared errors relative to those of the mean training picture.
    """

    originals: NDArray[np.float64]
    pictures: dict[str, NDArray[Any]]
    errors: dict[str, float]


class Run:
    """A finished run: its results, and what can be done with its model. Files are read when they are needed.

    Parameters
    ----------
    folder : path
        That `train` wrote.
    data_folder : path, optional
        Where the data of the experiment are, if they have moved; see `with_paths`.
    progress : Progress, optional

    Attributes
    ----------
    folder, name, config : path and name of the folder, Config
    record, metrics : Metrics, dict
        All numbers, as docs/run-folder.md describes them: checked, and as plain lists and dicts.
    predictions, examples : dicts of arrays
        Columns of predictions.csv (NaN or None where unknown), and the arrays of examples.npz.
    network, head : fitted estimators
        Of the last fold; the first ones, if there are several. Features, reconstructions and morphs are theirs.
    members : list of (network, head)
        All of the last fold, whose estimates are averaged.
    decoder : LinearReconstruction
        Pictures from features. If an early version wrote the run, it is learned from the training data, and kept.
    experiment : Experiment
        The data of the run, which are read for it.
    pixel_range : (black, white), or None
        What grey values mean; None if samples are not images, or if an early version wrote the run.
    cropping : {"eyes", "centre"} or None
        How picture files were cut: aligned by the eyes, or about the centre; None for arrays.

    Raises
    ------
    ExperimentError
        If there is no finished run, or its metrics.json is not valid.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from higsfa.experiments import Run, load_config, train, with_values
    >>> quick = {"data.max_samples": 400, "protocol.repeats": 1, "comparison.methods": []}
    >>> config = with_values(load_config("digits"), quick)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(config, f"{folder}/digits", n_jobs=1)
    ...     run = Run(f"{folder}/digits")
    ...     print(run.predict(load_digits().images[:5] / 16)["digit"].tolist())
    ['0', '1', '2', '3', '4']
    """

    def __init__(self, folder: AnyPath, *, data_folder: AnyPath | None = None, progress: Progress | None = None):
        self.folder = folder = Path(folder)
        self.name = folder.resolve().name
        self.progress = progress or Silent()
        self._data_folder = data_folder
        if not folder.is_dir():
            raise ExperimentError(f"there is no folder {folder}; make it: higsfa train CONFIG.toml --out {folder}")
        if not (folder / "metrics.json").is_file():
            if (folder / "config.toml").is_file():
                raise ExperimentError(f"{folder} holds a run that is not finished; continue it with resume (--resume)")
            raise ExperimentError(f"{folder} is not the folder of a run: it has no metrics.json")
        self.config: Config = load_config(folder / "config.toml", of_run=True)
        self.record: Metrics = self._read("metrics.json", read_metrics)
        self.pixel_range, self.cropping = self.record.data.pixel_range, self.record.data.cropping

    def __repr__(self) -> str:
        return f"Run({os.fspath(self.folder)!r})"

    def _read(self, name: str, reader: Callable[[Path], Any]) -> Any:
        path = self.folder / name
        with in_one_line(f"{path} cannot be read"):
            return reader(path)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return self.record.plain()

    @cached_property
    def predictions(self) -> dict[str, NDArray[Any]]:
        texts = {label.name for label in self.record.labels if not label.is_numeric}
        return self._read("predictions.csv", lambda path: read_columns(path, texts, max_bytes=MAX_CSV))

    @cached_property
    def examples(self) -> dict[str, NDArray[Any]]:
        return self._read("examples.npz", lambda path: read_npz(path, limit=MAX_ARRAYS))

    @cached_property
    def network(self) -> Any:
        return self._read("model.higsfa", load)

    @cached_property
    def head(self) -> Any:
        return self._read("head.higsfa", load)

    @cached_property
    def members(self) -> list[tuple[Any, Any]]:
        n_others = self.config.n_members(self.record.data.n_train) - 1
        others = [[self._read(name, load) for name in member_files(number)] for number in range(2, n_others + 2)]
        return [(self.network, self.head), *((network, head) for network, head in others)]

    @cached_property
    def decoder(self) -> LinearReconstruction:
        if self.pixel_range is None:
            raise ExperimentError(f"{self.folder} was not trained on the pixels of pictures: there is nothing to draw")
        found = score.read_decoder(self.folder, int(self.network.n_components_), tuple(self.network.input_shape_))
        if found is not None:
            return found
        supervised = make_sets(self.config, self.experiment.folds[-1]).supervised.source
        self.progress.stage("learning to draw pictures from features", None)
        source = supervised[evenly_spread(len(supervised), score.MOST_TRAIN)]
        decoder = LinearReconstruction().fit(self.network.transform(source), source)
        score.write_decoder(self.folder, decoder)
        return decoder

    @cached_property
    def experiment(self) -> Experiment:
        self.progress.stage("reading the data of the run", None)
        config = self.config if self._data_folder is None else with_paths(self.config, self._data_folder)
        return open_experiment(config, n_jobs=config.network.n_jobs)

    def pictures(self, paths: Paths, *, eyes: Any = None, cropped: bool = False) -> ImageFiles:
        """New pictures, prepared as those of training: of the same colours, size, cut, range and contrast.

        Parameters
        ----------
        paths : files and folders
            A folder stands for all pictures in it and below.
        eyes : array-like of shape (n_pictures, 2, 2), or path of a table, optional
            Positions x, y of the two eyes in each picture; a table has columns name, x, y, x, y. Required if the run
            was trained on faces aligned by their eyes, and only then.
        cropped : bool, default=False
            Instead of `eyes`: the pictures are already cut like those of training; their largest centred square is
            taken.

        Returns
        -------
        source
            For the methods below; its attribute ``paths`` tells which row is which picture.
        """
        shape = tuple(self.record.data.image_shape or ())
        if shape[2:] not in ((), (3,)) or len(shape) < 2 or self.pixel_range is None:
            what = f"samples of shape {tuple(self.network.input_shape_)}, not on grey or RGB pictures"
            raise ExperimentError(f"{self.name} was trained on {what}, or grey values of unknown range: train it again")
        return new_pictures(self, shape, paths, eyes, cropped)

    def _input(self, pictures: Any, eyes: Any, cropped: bool) -> Source:
        """What the network sees of pictures: files, or samples like those of training."""
        if not isinstance(pictures, Source | np.ndarray):
            pictures = self.pictures(pictures, eyes=eyes, cropped=cropped)
        elif isinstance(pictures, np.ndarray) and pictures.size and self.pixel_range is not None:
            (black, white), low, high = self.pixel_range, float(pictures.min()), float(pictures.max())
            is_fraction = pictures.dtype.kind == "f" and 0 <= low <= high <= 1 < 0.1 * white
            if is_fraction or max(high - white, black - low) > 0.5 * (white - black):
                known = f"{self.name} was trained on pictures whose black is {black:g} and whose white is {white:g}"
                warnings.warn(f"pictures: values are {low:g} to {high:g}, but {known}: scale them", stacklevel=3)
        samples = Samples(sources.as_source(pictures), {}, pixel_range=self.pixel_range)
        return network_input(self.config, samples).source

    def transform(self, pictures: Any, *, eyes: Any = None, cropped: bool = False) -> NDArray[Any]:
        """Features (n_pictures, n_features) of pictures.

        Parameters
        ----------
        pictures : files and folders, or an array or a source of samples like those of training
        eyes, cropped
            Of files; see `pictures`.
        """
        return self.network.transform(self._input(pictures, eyes, cropped))

    def _estimates(self, source: Source, names: Sequence[Any]) -> score.Columns:
        """Estimates of labels; heads take means over views, if they were trained on such."""
        networks, heads = zip(*self.members, strict=True)
        Y = features_of(joined(networks), source, views_of(self.config))[1]
        return score.estimate(heads, names, np.split(Y, len(networks), axis=1))

    def predict(self, pictures: Any, *, eyes: Any = None, cropped: bool = False) -> dict[str, NDArray[Any]]:
        """Estimate the labels of pictures; parameters as in `transform`.

        Returns
        -------
        dict of arrays
            One value per picture: its "file", if pictures are files; the estimate of each label by its name; for a
            categorical label also the probability of the estimate, as ``<label>_probability``.
        """
        if not isinstance(pictures, Source | np.ndarray):
            pictures = self.pictures(pictures, eyes=eyes, cropped=cropped)
        found = self._estimates(self._input(pictures, eyes, cropped), self.head.label_names_)
        columns = {"file": np.array([str(path) for path in pictures.paths])} if hasattr(pictures, "paths") else {}
        for name in self.head.label_names_:
            columns[str(name)] = found[f"estimate {name}"]
            if not self.head.is_numeric_[name]:
                columns[f"{name}_probability"] = found[f"probability {name}"]
        return columns

    def reconstruct(self, pictures: Any, *, eyes: Any = None, cropped: bool = False) -> Rebuilt:
        """Reconstruct pictures from their features: what the network keeps of them. Parameters as in `transform`."""
        source, decoder = self._input(pictures, eyes, cropped), self.decoder
        images, Y = np.asarray(source, dtype=np.float64), self.network.transform(source)
        rebuilt = {"linear": decoder.predict(Y), "top-down": self.network.inverse_transform(Y)}
        scatter = np.sum((images - decoder.mean_.reshape(source.shape)) ** 2)
        errors = {name: float(np.sum((images - found) ** 2) / scatter) for name, found in rebuilt.items()}
        return Rebuilt(images, rebuilt, errors)

    def morph(
        self,
        photo: Any,
        labels: Mapping[str, Any] | None = None,
        /,
        *,
        strength: float = 1.0,
        eyes: Any = None,
        cropped: bool = False,
        **label: Any,
    ) -> NDArray[Any]:
        """Show a picture with other values of a label, such as ``age=[20, 60]``.

        Parameters
        ----------
        photo : file, or array of shape (height, width) like the samples of training
        labels : dict, optional
            Instead of `label`, for a label with the name of a parameter here, such as ``{"strength": [1, 2]}``.
        strength : float, default=1.0
            More than 1 exaggerates the change.
        eyes, cropped
            As in `transform`.
        **label : array-like
            One label and the wanted values: numbers, or names of classes.

        Returns
        -------
        array of shape (n_values, height, width)
            In the grey values and the dtype of the samples.
        """
        wanted = {name: self.label_values(name, values) for name, values in {**(labels or {}), **label}.items()}
        picture = photo if isinstance(photo, np.ndarray) else self.photo(photo, eyes=eyes, cropped=cropped)
        with in_one_line("morph"):
            return morph(self.network, self.head, picture, wanted, decoder=self.decoder, strength=strength)

    def photo(self, path: Any, *, eyes: Any = None, cropped: bool = False) -> NDArray[Any]:
        """One picture, prepared as those of training; parameters as in `pictures`."""
        source = self._input(path, eyes, cropped)
        if len(source) != 1:
            raise ExperimentError(f"{path} holds {len(source)} pictures: give one")
        return source.take(np.arange(1))[0]

    def label_values(self, name: str, values: Any) -> list[Any]:
        """Values of a label as the head knows them, given as such or as texts."""
        known = {str(label): label for label in self.head.label_names_}
        if name not in known:
            raise ExperimentError(f"this run has no label {name!r}: its labels are {', '.join(known)}")
        label, given = known[name], [values] if isinstance(values, str) else np.atleast_1d(values).tolist()
        if self.head.is_numeric_[label]:
            return [number(name, value) for value in given]
        classes = {str(value): value for value in self.head.label_classes_[label].tolist()}
        for value in given:
            if str(value) not in classes:
                raise ExperimentError(f"{name} has no class {value!r}: use {', '.join(classes)}")
        return [classes[str(value)] for value in given]

    def report(self, out: AnyPath | None = None) -> Path:
        """Write the results as one HTML file, report.html in the folder by default; returns its path."""
        from higsfa.report import write_report

        return write_report(self.folder, self.folder / "report.html" if out is None else out)

    def card(self, out: AnyPath | None = None) -> Path:
        """Write a model card (data, figures, limits, use) in Markdown, README.md by default; returns its path."""
        from higsfa.report.card import write_card

        return write_card(self.folder, out)

    def explore(self, out: AnyPath | None = None) -> Path:
        """Write a page to move features by hand on test pictures, explorer.html by default; returns its path."""
        from higsfa.report.explorer import write_explorer

        decoder, test = self.decoder, self.experiment.folds[-1].test
        test = test.subset(evenly_spread(len(test), EXPLORED))
        self.progress.stage("drawing the explorer", None)
        about: Any = {"labels": test.labels, "title": f"Explore: {self.record.title}", "value_range": test.pixel_range}
        target = self.folder / "explorer.html" if out is None else out
        return write_explorer(target, self.network, self.head, test.source, decoder=decoder, **about)

    def evaluate(self) -> dict[str, Any]:
        """Compute the scores again from the test data of the last fold.

        Returns a dict with "run", "method", "n_test" and "labels"; the latter as in metrics.json.
        """
        fold, scored = self.experiment.folds[-1], self.experiment.scored
        sets = make_sets(self.config, fold)
        with in_one_line("the model of this run does not fit these data"):
            found = self._estimates(sets.test.source, [label.name for label in scored])
        true = score.truth(self.config, scored, sets.test)
        by_label, labels = score.scores(scored, true, found), {}
        for label in scored:
            name, classes = label.name, []
            if not label.is_numeric:
                columns = fold.train.labels[name], fold.test.labels[name], self.head.label_classes_[name]
                classes = score.classes_of(list(columns))
            labels[name] = score.pooled_scores(label, [by_label[name]], true[name], found[f"estimate {name}"], classes)
        return {"run": self.name, "method": self.record.main.name, "n_test": len(fold.test), "labels": labels}


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """The scores of several runs side by side.

    Parameters
    ----------
    runs : list of Run

    Returns
    -------
    dict
        "labels": the labels of all runs, as records with "name", "kind", "unit" and "classes"; "rows": one for each
        method of each run, with "run" (the name of its folder), "method", "role", and "scores": for each label of that
        run "mae" and "rmse", or "rate", as {"mean", "se", "values"}.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.experiments import compare, load_config, train, with_values
    >>> config = with_values(load_config("toy"), {"data.n_train": 2000, "data.n_test": 500})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = compare([train(config, f"{folder}/toy", n_jobs=1)])["rows"]
    >>> [row["method"] for row in rows]
    ['HiGSFA', 'HGSFA', 'chance']
    """
    if not runs:
        raise ExperimentError("there are no runs to compare; give at least one folder")
    labels: dict[str, Label] = {}
    rows = []
    for run in runs:
        for label in run.record.labels:
            known = labels.setdefault(label.name, label)
            if known.kind != label.kind:
                kinds = f"{known.kind} in one run and {label.kind} in {run.name}"
                raise ExperimentError(f"label {label.name!r} is {kinds}; compare runs with the same labels")
        for method in run.record.methods:
            scores = {
                name: {key: value for key, value in found.plain().items() if key in ("mae", "rmse", "rate") and value}
                for name, found in (method.labels or {}).items()
                if found is not None
            }
            rows.append({"run": run.name, "method": method.name, "role": method.role, "scores": scores})
    return {"labels": [label.plain() for label in labels.values()], "rows": rows}


def number(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not np.isfinite(found):
        raise ExperimentError(f"{name}: {value!r} is not a number; write values such as 20,40,60")
    return found
