"""Training: every method on every fold, and the files of the folder. See docs/run-folder.md."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import tomli_w
from numpy.typing import NDArray

from higsfa import __version__
from higsfa.evaluation.schema import FORMAT, MAX_NPZ, Metrics, to_json
from higsfa.experiments import score
from higsfa.experiments.config import RENAMED, USED, Config
from higsfa.experiments.methods import Extracted, Method, extract, layer_records, make_network, methods_of
from higsfa.experiments.reading import load_config, located, with_values
from higsfa.experiments.reporting import ExperimentError, Log, Progress, Silent, in_one_line, of_the_disk
from higsfa.experiments.split import Experiment, Sets, decoded, make_sets, open_experiment
from higsfa.experiments.use import Run
from higsfa.io import write_atomically
from higsfa.io.arrays import read_npz
from higsfa.models import save
from higsfa.report.reading import guarded
from higsfa.training.sources import evenly_spread

__all__ = ["train", "write_table"]

FILES = [score.DECODER, *(f"{name}.higsfa" for name in ("model", "head")), "config.toml", "predictions.csv"]
FILES += ["metrics.json", "examples.npz", "environment.json", "log.txt"]
MADE_LATER = ("report.html", "explorer.html", "decoder.npz")
"""What is made of a finished run and put beside it; decoder.npz by earlier versions."""
CHECKPOINT = "checkpoint"
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
    """Run an experiment and write its folder. What the user can mend is an ExperimentError, in one line.

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

    Examples
    --------
    >>> import tempfile
    >>> config = with_values(load_config("toy"), {"data.n_train": 2000, "data.n_test": 500})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(config, f"{folder}/toy", n_jobs=1)
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
            return Run(folder, progress=progress)
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
    return Run(folder, progress=progress)


def _opened(config: Config) -> Experiment:
    """The data of an experiment that can begin: what is wrong with settings shows before a folder is made."""
    experiment = open_experiment(config, n_jobs=config.network.n_jobs)
    sets = make_sets(config, experiment.folds[0])
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


def _run(config: Config, experiment: Experiment, folder: Path, log: Log, engine: str) -> None:
    started = time.monotonic()
    checkpoint = folder / CHECKPOINT
    experiment = decoded(config, experiment, checkpoint)
    for text in experiment.warnings:
        log.note(f"warning: {text}")
    methods = methods_of(config)
    results: score.Results = {method.key: [] for method in methods}
    for number, fold in enumerate(experiment.folds):
        last = number + 1 == len(experiment.folds)
        log.note(
            f"fold {number + 1} of {len(experiment.folds)}: {len(fold.train):,} to train, {len(fold.test):,} to test"
        )
        sets = make_sets(config, fold)
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
    gathered = score.gather(config, experiment, methods, results)
    write_table(folder / "predictions.csv", gathered.predictions)
    write_npz(folder / "examples.npz", gathered.examples)
    write_json(folder / "environment.json", _environment(time.monotonic() - started))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"format": FORMAT, "title": config.title, "created": now, "higsfa": __version__}
    metrics = Metrics.of({**head, **gathered.metrics})
    log.note("finished")
    write_atomically(folder / "metrics.json", metrics.to_json())
    drop_checkpoint(folder)


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
) -> score.Result:
    """One method on one fold; the model goes to the folder `keep`."""
    scored = experiment.scored
    true = score.truth(config, scored, sets.test)
    if method.role == "chance":
        estimates = score.chance_estimates(scored, true)
        record: dict[str, Any] = {"scores": score.scores(scored, true, estimates, chance=True)}
        return record, _packed(estimates.values, "estimate")
    made = extract(method, config, experiment.labels, sets, place, log, engine, what)
    log.stage(f"{what}: estimate labels")
    chosen = getattr(config.head, USED)
    if method.role == "comparison":
        chosen = getattr(config.comparison, USED).get(method.key, "cv")
    values, probabilities, used = {}, {}, {}
    for features in made.features:
        head = score.fit_head(config, features, sets.supervised, chosen)
        found = score.estimate(head, [label for label in features.labels if label in scored], features.test)
        values.update(found.values)
        probabilities.update(found.probabilities)
        used.update(head.n_used_features_)
    estimates = score.Estimates(values, probabilities)
    record = {
        "scores": score.scores(scored, true, estimates),
        "n_features": int(made.features[0].test.shape[1]) if len(made.features) == 1 else None,
        "used": {str(name): int(number) for name, number in used.items()},
        "seconds": made.seconds,
        "delta": score.delta_record(score.delta_order(config, scored), made.features, sets.supervised, sets.test),
        "layers": None if made.network is None else layer_records(made.network),
    }
    told = (f"{name} {key} {value:.4g}" for name, found in record["scores"].items() for key, value in found.items())
    log.note(f"{what}: {', '.join(told)}; features used: {record['used']}")
    arrays = _packed(values, "estimate") | _packed(probabilities, "probability")
    if method.is_rebuilt:
        log.stage(f"{what}: reconstruct")
        decoder, errors, rebuilt = score.rebuild(made.network, made.features[0], sets, _n_examples(config, sets))
        record["reconstruction_error"] = errors
        if rebuilt is not None:
            arrays["rebuilt"] = rebuilt
    if method.role == "main":
        arrays |= _figures(made, sets, _n_examples(config, sets))
    if keep is not None:
        save(made.network, keep / "model.higsfa")
        save(head, keep / "head.higsfa")
        if sets.test.pixel_range is not None:
            score.write_decoder(keep, decoder)
    return record, arrays


def _n_examples(config: Config, sets: Sets) -> int:
    """As many as wanted, or as fit into examples.npz together with what all methods make of them."""
    n_rebuilt = sum(method.is_rebuilt for method in methods_of(config))
    bytes_of_one = 4 * int(np.prod(sets.test.source.shape)) * (1 + n_rebuilt)
    return min(config.output.examples, MAX_NPZ * 3 // 4 // bytes_of_one)


def _figures(made: Extracted, sets: Sets, n_examples: int) -> dict[str, NDArray[Any]]:
    rows = evenly_spread(len(sets.test), N_FEATURE_ROWS)
    arrays: dict[str, NDArray[Any]] = {
        "rows": rows,
        "features": made.features[0].test[rows, :N_FEATURES].astype(np.float32),
    }
    images = score.example_images(sets, n_examples)
    return arrays if images is None else {**arrays, "images": images}


def _packed(columns: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Columns as arrays without Python objects."""
    return {
        f"{prefix} {name}": np.asarray(values, dtype=str) if values.dtype == object else values
        for name, values in columns.items()
    }


# ---------------------------------------------------------------------------------------------- what is finished


def _save(place: Path, result: score.Result) -> None:
    record, arrays = result
    write_npz(place.with_name(place.name + ".npz"), {"record": np.array(json.dumps(record)), **arrays})
    shutil.rmtree(place, ignore_errors=True)


def _saved(place: Path) -> score.Result | None:
    path = place.with_name(place.name + ".npz")
    if not path.is_file():
        return None
    with in_one_line(f"{path} cannot be read, delete it"):
        arrays = read_npz(path, limit=MAX_RESULT)
        record = json.loads(str(arrays.pop("record")))
    return record, arrays


def _environment(seconds: float) -> dict[str, Any]:
    packages = ("numpy", "scipy", "scikit-learn", "joblib", "safetensors", "pillow", "pydantic")
    return {
        "python": sys.version.split()[0],
        "packages": {"higsfa": __version__, **{name: version(name) for name in packages}},
        "platform": platform.platform(),
        "processors": joblib.cpu_count(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
    }


# ---------------------------------------------------------------------------------------------- the folder


def check_folder(folder: Path, config: Config, *, resume: bool, overwrite: bool) -> bool:
    """Whether the folder holds this run, finished; an error if it may not be used. Nothing is changed.

    Settings that do not change results (threads, memory) may differ when a run goes on.
    """
    if folder.exists() and not folder.is_dir():
        raise ExperimentError(f"{folder} is a file; give a folder for the run")
    finished, begun = (folder / "metrics.json").is_file(), (folder / "config.toml").is_file()
    if folder.is_dir() and not begun and any(folder.iterdir()):
        raise ExperimentError(f"{folder} is not empty and holds no run; give a new folder")
    if not begun or overwrite:
        return False
    if resume:
        if _essence(load_config(folder / "config.toml", of_run=True)) != _essence(config):
            raise ExperimentError(
                f"{folder} holds a run of another experiment, or of other settings; give a new folder, "
                "or overwrite it (--force)"
            )
        return finished
    if finished:
        raise ExperimentError(f"{folder} holds a finished run; give another folder, or overwrite it (--force)")
    raise ExperimentError(f"{folder} holds an unfinished run; go on with resume (--resume), or overwrite it (--force)")


def begin_folder(folder: Path, config: Config, *, overwrite: bool) -> None:
    """Make the folder of a run, or clear the one that is to be overwritten."""
    if overwrite:
        clear(folder)
    (folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", tomli_w.dumps(config.plain()).encode())


def _essence(config: Config) -> dict[str, Any]:
    tables = config.plain()
    for key in ("n_jobs", "spill", "memory", RENAMED["memory"]):
        tables["network"].pop(key, None)
    return tables


def clear(folder: Path) -> None:
    """Delete the files of a run, and no others; metrics.json first, so that no half of a run looks finished."""
    for name in sorted((*FILES, *MADE_LATER), key=lambda name: name != "metrics.json"):
        (folder / name).unlink(missing_ok=True)
    drop_checkpoint(folder)


def drop_checkpoint(folder: Path) -> None:
    checkpoint = folder / CHECKPOINT
    if checkpoint.is_symlink():
        checkpoint.unlink()
    elif checkpoint.is_dir():
        shutil.rmtree(checkpoint)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, to_json(content))


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """A CSV file with a line of names; unknown values are empty, and no text is taken for a formula."""
    values = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values())
    text = "".join(",".join(map(_cell, row)) + "\n" for row in (columns, *zip(*values, strict=True)))
    # Names of files are bytes; those that are not UTF-8 are written as they are.
    write_atomically(path, text.encode("utf-8", "surrogateescape"))


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = guarded(value)
        # The csv module of Python 3.11 does not quote a carriage return.
        return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]', text) else text
    return format(value, ".7g") if isinstance(value, float) else str(value)
