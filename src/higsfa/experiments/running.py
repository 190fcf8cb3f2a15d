"""A whole experiment: every method on every fold, and the files of its folder."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import __version__
from higsfa._files import write_atomically
from higsfa.evaluation.schema import FORMAT, MAX_NPZ, Metrics
from higsfa.experiments import run_folder
from higsfa.experiments.config import Config
from higsfa.experiments.errors import ExperimentError, in_one_line, of_the_disk
from higsfa.experiments.gathering import gather
from higsfa.experiments.methods import Extracted, Method, extract, methods_of
from higsfa.experiments.networks import layer_records, make_network
from higsfa.experiments.npz import read_npz
from higsfa.experiments.protocol import Experiment, decoded, open_experiment
from higsfa.experiments.reading import located, with_values
from higsfa.experiments.rebuilding import example_images, rebuild
from higsfa.experiments.reporting import Log, Progress, Silent
from higsfa.experiments.run_folder import CHECKPOINT, Run, begin_folder, check_folder, open_run
from higsfa.experiments.scoring import (
    chance_estimates,
    delta_order,
    delta_record,
    estimate,
    fit_head,
    scores,
    truth,
)
from higsfa.experiments.sets import Sets, make_sets, spread
from higsfa.persistence import save

__all__ = ["train"]

N_FEATURE_ROWS, N_FEATURES = 2000, 20
"""Test samples and features of them that are kept for figures."""
MAX_RESULT = 8 * 2**30


def train(
    config: Config,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    dask: str | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run an experiment and write its folder.

    Parameters
    ----------
    config : Config
        From `load_config`.
    folder : path
        Made if it is not there, once the data are found. What it holds at the end is described in docs/run-folder.md;
        metrics.json comes last.
    resume : bool, default=False
        Go on with a run that was interrupted; one that is finished is opened and left as it is.
    overwrite : bool, default=False
        Delete the run that the folder holds once the data are found, and begin anew.
    dask : str, optional
        Address of a dask scheduler on whose workers the networks are trained.
    n_jobs : int, optional
        Threads, instead of those in the config.
    progress : Progress, optional

    Returns
    -------
    Run

    Raises
    ------
    ExperimentError
        For everything that the user can mend, in one line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from higsfa.experiments import load_config, train, with_values
    >>> config = with_values(load_config("toy"), {"data.n_train": 2000, "data.n_test": 500})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(config, pathlib.Path(folder) / "toy", n_jobs=1)
    ...     run.metrics["methods"][0]["labels"]["s1"]["rate"]["mean"] > 0.95
    True
    """
    folder = Path(folder)
    config = located(config, Path.cwd())
    if n_jobs is not None:
        config = with_values(config, {"network.n_jobs": n_jobs})
    progress = progress or Silent()
    with of_the_disk(folder):
        if check_folder(folder, config, resume=resume, overwrite=overwrite):
            return open_run(folder)
        with _workers(dask) as engine:
            progress.stage("read the data", None)
            experiment = _opened(config)
            begin_folder(folder, config, overwrite=overwrite)
            log = Log(folder / "log.txt", progress)
            log.note(f"{config.title}, higsfa {__version__}")
            try:
                _run(config, experiment, folder, log, engine)
            except ExperimentError as error:
                log.note(f"stopped: {error}")
                raise
    return open_run(folder)


def _opened(config: Config) -> Experiment:
    """The data of an experiment that can begin: what is wrong with settings shows before a folder is made."""
    experiment = open_experiment(config, n_jobs=config.network.n_jobs)
    sets = make_sets(config, experiment, experiment.folds[0])
    for method in methods_of(config):
        if method.network is not None:
            make_network(config, experiment.labels, sets.network.source.shape, method.network)
    return experiment


@contextmanager
def _workers(address: str | None) -> Iterator[str]:
    """The engine for networks, with a connection to the cluster if there is one."""
    if address is None:
        yield "threads"
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ExperimentError("dask is not installed; install it with: pip install 'higsfa[dask]'") from error
    with in_one_line(f"the dask scheduler at {address}"):
        client = Client(address, timeout="20s")
    with client:
        yield "dask"


@dataclass(frozen=True, eq=False)
class Result:
    """What a method made of a fold: numbers for metrics.json, and arrays."""

    record: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def _run(config: Config, experiment: Experiment, folder: Path, log: Log, engine: str) -> None:
    started = time.monotonic()
    checkpoint = folder / CHECKPOINT
    experiment = decoded(config, experiment, checkpoint)
    for text in experiment.warnings:
        log.note(f"warning: {text}")
    methods = methods_of(config)
    results: dict[str, list[Result]] = {method.key: [] for method in methods}
    for number, fold in enumerate(experiment.folds):
        last = number + 1 == len(experiment.folds)
        log.note(
            f"fold {number + 1} of {len(experiment.folds)}: {len(fold.train):,} to train, {len(fold.test):,} to test"
        )
        sets = make_sets(config, experiment, fold)
        for method in methods:
            place = checkpoint / f"fold{number}-{method.key}"
            result = _saved(place)
            if result is None:
                what = method.name if len(experiment.folds) == 1 else f"{method.name}, fold {number + 1}"
                keep = folder if last and method.role == "main" else None
                result = _one(method, config, experiment, sets, place, log, engine, what, keep)
                _save(place, result)
            results[method.key].append(result)
    log.stage("write the results")
    gathered = gather(
        config, experiment, methods, {key: [(r.record, r.arrays) for r in rs] for key, rs in results.items()}
    )
    run_folder.write_table(folder / "predictions.csv", gathered.predictions)
    run_folder.write_npz(folder / "examples.npz", gathered.examples)
    run_folder.write_json(folder / "environment.json", _environment(time.monotonic() - started))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"format": FORMAT, "title": config.title, "created": now, "higsfa": __version__}
    metrics = Metrics.of({**head, **gathered.metrics})
    log.note("finished")
    write_atomically(folder / "metrics.json", metrics.to_json())
    run_folder.drop_checkpoint(folder)


def _one(
    method: Method,
    config: Config,
    experiment: Experiment,
    sets: Sets,
    place: Path,
    log: Log,
    engine: str,
    what: str,
    keep: Path | None,
) -> Result:
    """One method on one fold; the model goes to the folder `keep`."""
    scored = experiment.scored
    true = truth(config, scored, sets.test)
    arrays: dict[str, NDArray[Any]] = {}
    if method.role == "chance":
        estimates = chance_estimates(scored, true)
        record: dict[str, Any] = {"scores": scores(scored, true, estimates, chance=True)}
        return Result(record, _packed(estimates.values, "estimate"))
    made = extract(method, config, experiment.labels, sets, place, log, engine, what)
    log.stage(f"{what}: estimate labels")
    chosen = config.head.n_features
    if method.role == "comparison":
        chosen = config.comparison.n_features.get(method.key, "cv")  # type: ignore[call-overload]
    values, probabilities, used = {}, {}, {}
    for features in made.features:
        head = fit_head(config, features, sets.supervised, chosen)
        found = estimate(head, [label for label in features.labels if label in scored], features.test)
        values.update(found.values)
        probabilities.update(found.probabilities)
        used.update(head.n_features_)
    estimates = type(found)(values, probabilities)
    record = {
        "scores": scores(scored, true, estimates),
        "n_features": int(made.features[0].test.shape[1]) if len(made.features) == 1 else None,
        "used": {str(name): int(number) for name, number in used.items()},
        "seconds": made.seconds,
        "delta": delta_record(delta_order(config, scored), made.features, sets.supervised, sets.test),
        "layers": None if made.network is None else layer_records(made.network),
    }
    log.note(f"{what}: {_told(record['scores'])}; features used: {record['used']}")
    arrays |= _packed(values, "estimate") | _packed(probabilities, "probability")
    if method.is_rebuilt:
        log.stage(f"{what}: reconstruct")
        errors, rebuilt = rebuild(made.network, made.features[0], sets, _n_examples(config, sets))
        record["reconstruction_error"] = errors
        if rebuilt is not None:
            arrays["rebuilt"] = rebuilt
    if method.role == "main":
        arrays |= _figures(made, sets, _n_examples(config, sets))
    if keep is not None:
        save(made.network, keep / "model.higsfa")
        save(head, keep / "head.higsfa")
    return Result(record, arrays)


def _n_examples(config: Config, sets: Sets) -> int:
    """As many as wanted, or as fit into examples.npz together with what all methods make of them."""
    n_rebuilt = sum(method.is_rebuilt for method in methods_of(config))
    bytes_of_one = 4 * int(np.prod(sets.test.source.shape)) * (1 + n_rebuilt)
    return min(config.output.examples, MAX_NPZ * 3 // 4 // bytes_of_one)


def _figures(made: Extracted, sets: Sets, n_examples: int) -> dict[str, NDArray[Any]]:
    rows = spread(len(sets.test), N_FEATURE_ROWS)
    arrays: dict[str, NDArray[Any]] = {
        "rows": rows,
        "features": made.features[0].test[rows, :N_FEATURES].astype(np.float32),
    }
    images = example_images(sets, n_examples)
    return arrays if images is None else {**arrays, "images": images}


def _packed(columns: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Columns as arrays without Python objects."""
    return {
        f"{prefix} {name}": np.asarray(values, dtype=str) if values.dtype == object else values
        for name, values in columns.items()
    }


def _told(by_label: dict[str, dict[str, float]]) -> str:
    return ", ".join(
        f"{name} {score} {value:.4g}" for name, found in by_label.items() for score, value in found.items()
    )


# ---------------------------------------------------------------------------------------------- what is finished


def _save(place: Path, result: Result) -> None:
    record = np.array(json.dumps(result.record))
    run_folder.write_npz(place.with_name(place.name + ".npz"), {"record": record, **result.arrays})
    shutil.rmtree(place, ignore_errors=True)


def _saved(place: Path) -> Result | None:
    path = place.with_name(place.name + ".npz")
    if not path.is_file():
        return None
    with in_one_line(f"{path} cannot be read, delete it"):
        arrays = read_npz(path, limit=MAX_RESULT)
        record = json.loads(str(arrays.pop("record")))
    return Result(record, arrays)


def _environment(seconds: float) -> dict[str, Any]:
    packages = ("numpy", "scipy", "scikit-learn", "joblib", "safetensors", "pillow", "pydantic")
    return {
        "python": sys.version.split()[0],
        "packages": {"higsfa": __version__, **{name: _version(name) for name in packages}},
        "platform": platform.platform(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
