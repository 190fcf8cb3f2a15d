"""What can be done with finished runs: compute their scores again, compare them, and read pictures for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.datasets import read_folder
from higsfa.datasets.readers import read_eyes
from higsfa.evaluation.schema import Label
from higsfa.experiments.config import FileData
from higsfa.experiments.errors import ExperimentError, in_one_line
from higsfa.experiments.pictures import PlainSampler, Scaled, face_sampler
from higsfa.experiments.protocol import open_experiment
from higsfa.experiments.reading import with_paths
from higsfa.experiments.run_folder import Run
from higsfa.experiments.scoring import classes_of, estimate, pooled_scores, scores, truth
from higsfa.experiments.sets import make_sets
from higsfa.sources import ImageFiles

__all__ = ["compare", "evaluate", "read_pictures"]


def evaluate(run: Run, *, folder_of_data: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Scores of a saved model, computed anew from the test data of its experiment (the last fold).

    Parameters
    ----------
    run : Run
    folder_of_data : path, optional
        Where the data are, if they have moved; see `with_paths`.

    Returns
    -------
    dict
        With "run", "method", "n_test" and "labels"; the latter as in metrics.json.
    """
    config = run.config if folder_of_data is None else with_paths(run.config, folder_of_data)
    experiment = open_experiment(config, n_jobs=config.network.n_jobs)
    fold = experiment.folds[-1]
    sets = make_sets(config, experiment, fold)
    with in_one_line("the model of this run does not go with these data"):
        Y = run.network.transform(sets.test.source)
        found = estimate(run.head, experiment.scored, Y)
    true = truth(config, experiment.scored, sets.test)
    by_label = scores(experiment.scored, true, found)
    labels = {}
    for label in experiment.scored:
        columns = [part.labels[label.name] for part in (fold.train, fold.test)]
        classes = [] if label.is_numeric else classes_of(label, [*columns, run.head.classes_[label.name]])
        name = label.name
        labels[name] = pooled_scores(label, [by_label[name]], true[name], found.values[name], classes)
    return {"run": run.name, "method": run.record.main.name, "n_test": len(fold.test), "labels": labels}


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
    """
    if not runs:
        raise ExperimentError("there are no runs to compare; give at least one folder")
    labels: dict[str, Label] = {}
    rows = []
    for run in runs:
        for label in run.record.labels:
            known = labels.setdefault(label.name, label)
            if known.kind != label.kind:
                raise ExperimentError(
                    f"label {label.name!r} is {known.kind} in one run and {label.kind} in {run.name}; "
                    "compare runs with the same labels"
                )
        for method in run.record.methods:
            found = {
                name: {key: score.plain() for key in ("mae", "rmse", "rate") if (score := getattr(scores, key))}
                for name, scores in (method.labels or {}).items()
                if scores is not None
            }
            rows.append({"run": run.name, "method": method.name, "role": method.role, "scores": found})
    return {"labels": [label.plain() for label in labels.values()], "rows": rows}


def read_pictures(
    run: Run, paths: Iterable[str | os.PathLike[str]], *, eyes: Any = None, cropped: bool = False
) -> ImageFiles:
    """New pictures, prepared as those that a run was trained on: grey, of the same size, cut, range and contrast.

    Parameters
    ----------
    run : Run
    paths : files and folders
        Of a folder, all pictures in it and below.
    eyes : array-like of shape (n_pictures, 2, 2), or path of a table, optional
        Positions x, y of the two eyes in each picture; a table has columns name, x, y, x, y. Needed for a run that was
        trained on faces aligned by their eyes, and only for such a run.
    cropped : bool, default=False
        Instead of `eyes`: the pictures are cut like those of training already, so that their largest centred square
        is taken.

    Returns
    -------
    source
        For ``run.network.transform``; its attribute ``paths`` tells which row is which picture.

    Raises
    ------
    ExperimentError
        If the run was trained on other samples than pictures, if a picture is missing, or if its eyes are.
    """
    shape, table = run.network.input_shape_, run.config.data
    pixel_range, cropping = run.pixel_range, run.cropping
    if len(shape) != 2 or pixel_range is None:
        old = "" if len(shape) != 2 else ", or does not say what their grey values mean: train it again"
        raise ExperimentError(f"{run.name} was trained on samples of shape {tuple(shape)}, not on grey pictures{old}")
    found = _files(paths)
    places = None if eyes is None else _eyes(eyes, found)
    if cropping == "eyes" and (places is None) != cropped:
        raise ExperimentError(
            f"{run.name} was trained on faces aligned by their eyes: give the eyes of these pictures (--eyes TABLE), "
            "or say that they are cut in the same way already (--cropped), but not both"
        )
    if cropping != "eyes" and (places is not None or cropped):
        raise ExperimentError(
            f"{run.name} was trained on pictures that were cut about their centre, and new ones are cut in the same "
            "way; leave eyes and cropped out (--eyes, --cropped)"
        )
    sampler = face_sampler(table, found, places) if isinstance(table, FileData) else PlainSampler((shape[0], shape[1]))
    with in_one_line("the pictures cannot be read"):
        return sources.images(found, Scaled(sampler, pixel_range, run.config.network.dtype))


def _eyes(eyes: Any, found: tuple[Path, ...]) -> NDArray[np.float64]:
    with in_one_line("eyes"):
        if isinstance(eyes, str | os.PathLike):
            places = read_eyes(eyes, found)
        else:
            places = np.asarray(eyes, dtype=np.float64)
    if places.shape != (len(found), 2, 2):
        raise ExperimentError(f"eyes: shape ({len(found)}, 2, 2) for {len(found)} pictures, got {places.shape}")
    unknown = np.isnan(places).any(axis=(1, 2))
    if unknown.any():
        raise ExperimentError(f"eyes: those of {found[int(np.argmax(unknown))]} are not known; add them to the table")
    return places


def _files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            with in_one_line(f"{path}"):
                found += read_folder(path).paths
        elif path.is_file():
            found.append(path.absolute())
        else:
            raise ExperimentError(f"there is no picture or folder {path}")
    if not found:
        raise ExperimentError("no pictures were given")
    return tuple(found)
