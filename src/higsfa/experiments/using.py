"""What can be done with finished runs: compute their scores again, compare them, and read pictures for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from higsfa import sources
from higsfa.datasets import read_folder
from higsfa.experiments.config import FileData
from higsfa.experiments.errors import ExperimentError, in_one_line
from higsfa.experiments.pictures import PlainSampler, Typed, face_sampler
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
    return {"run": run.name, "method": run.metrics["methods"][0]["name"], "n_test": len(fold.test), "labels": labels}


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
    labels: dict[str, dict[str, Any]] = {}
    rows = []
    for run in runs:
        for label in run.metrics["labels"]:
            known = labels.setdefault(label["name"], label)
            if known["kind"] != label["kind"]:
                raise ExperimentError(
                    f"label {label['name']!r} is {known['kind']} in one run and {label['kind']} in {run.name}; "
                    "compare runs with the same labels"
                )
        for method in run.metrics["methods"]:
            found = {
                name: {key: numbers[key] for key in ("mae", "rmse", "rate") if key in numbers}
                for name, numbers in method["labels"].items()
            }
            rows.append({"run": run.name, "method": method["name"], "role": method["role"], "scores": found})
    return {"labels": list(labels.values()), "rows": rows}


def read_pictures(run: Run, paths: Iterable[str | os.PathLike[str]], *, eyes: Any = None) -> ImageFiles:
    """New pictures, prepared as those that a run was trained on: grey, of the same size and contrast.

    Parameters
    ----------
    run : Run
    paths : files and folders
        Of a folder, all pictures in it and below.
    eyes : array-like of shape (n_pictures, 2, 2), optional
        Positions x, y of the two eyes in each picture. Give them for a run whose training pictures had them; without,
        the largest centred square of each picture is taken.

    Returns
    -------
    source
        For ``run.network.transform``; its attribute ``paths`` tells which row is which picture.
    """
    shape = run.network.input_shape_
    table = run.config.data
    if len(shape) != 2 or table.kind == "toy":
        raise ExperimentError(f"{run.name} was trained on samples of shape {tuple(shape)}, not on grey pictures")
    found = _files(paths)
    positions = None
    if eyes is not None:
        positions = np.asarray(eyes, dtype=np.float64)
        if positions.shape != (len(found), 2, 2):
            raise ExperimentError(f"eyes: shape ({len(found)}, 2, 2) for {len(found)} pictures, got {positions.shape}")
    sampler = (
        face_sampler(table, found, positions) if isinstance(table, FileData) else PlainSampler((shape[0], shape[1]))
    )
    prepared = Typed(sampler, table.kind == "digits", run.config.network.dtype)
    with in_one_line("the pictures cannot be read"):
        return sources.images(found, prepared)


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
