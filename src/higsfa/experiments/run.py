"""Training: every method on every fold, and the files of the run folder. See docs/run-folder.md."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import sys
import time
import warnings
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

from higsfa import LabelHead, __version__
from higsfa.core.graph.labels import ALIKE
from higsfa.evaluation.schema import FORMAT, MAX_NPZ, Metrics, guarded, to_json
from higsfa.experiments import interface, score
from higsfa.experiments.config import MAX_MEMBERS, Config
from higsfa.experiments.interface import ExperimentError, Log, Progress, Silent, in_one_line
from higsfa.experiments.methods import Extracted, Method, extract, layer_records, make_network, methods_of
from higsfa.experiments.split import Experiment, Sets, decoded, make_sets, open_experiment
from higsfa.experiments.use import Run, member_files
from higsfa.io import write_atomically
from higsfa.io.arrays import read_npz
from higsfa.models import save

FILES = ["metrics.json", "model.higsfa", "head.higsfa", score.DECODER, "config.toml", "predictions.csv"]
FILES += ["examples.npz", "environment.json", "log.txt", "report.html", "explorer.html", "decoder.npz"]
FILES += [name for number in range(2, MAX_MEMBERS + 1) for name in member_files(number)]
"""What may be in a run folder, also by earlier versions. metrics.json is last to come and first to go."""
CHECKPOINT = "checkpoint"
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
    """Run an experiment and write its folder. What the user can fix is an ExperimentError, in one line.

    Parameters
    ----------
    config : Config
        From `load_config`.
    folder : path
        Made once the data are found. docs/run-folder.md describes its files; metrics.json comes last.
    resume : bool, default=False
        Continue an interrupted run; a finished one is opened and left as it is.
    overwrite : bool, default=False
        Delete the run in the folder once the data are found, and start again.
    dask : str, optional
        Address of a dask scheduler; networks are trained on its workers.
    n_jobs : int, optional
        Threads, instead of those in the config.
    progress : Progress, optional

    Returns
    -------
    Run

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.experiments import load_config, with_values
    >>> config = with_values(load_config("toy"), {"data.n_train": 2000, "data.n_test": 500})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(config, f"{folder}/toy", n_jobs=1)
    ...     run.metrics["methods"][0]["labels"]["s1"]["rate"]["mean"] > 0.95
    True
    """
    folder, progress = Path(folder), progress or Silent()
    config = interface.located(config, Path.cwd())
    if n_jobs is not None:
        config = interface.with_values(config, {"network.n_jobs": n_jobs})
    with interface.of_the_disk(folder):
        if check_folder(folder, config, resume=resume, overwrite=overwrite):
            return Run(folder, progress=progress)
        with _workers(dask) as engine, warnings.catch_warnings():
            warnings.filterwarnings("ignore", f".*{ALIKE}", UserWarning)  # told already
            progress.stage("read the data", None)
            experiment = _opened(config)
            begin_folder(folder, config, overwrite=overwrite)
            log = Log(folder / "log.txt", progress)
            try:
                _run(config, experiment, folder, log, engine)
            except ExperimentError as error:
                log.note(f"stopped: {error}")
                raise
    return Run(folder, progress=progress)


def _opened(config: Config) -> Experiment:
    """The data of an experiment; wrong settings show here, before a folder is made."""
    experiment = open_experiment(config, n_jobs=config.network.n_jobs)
    shape = make_sets(config, experiment.folds[0]).network.source.shape
    for method in methods_of(config):
        if method.network is not None:
            make_network(config, experiment.labels, shape, method.network)
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
    log.note(f"{config.title}, higsfa {__version__}")
    for label in experiment.labels:
        log.remark(f"{label.name}: {label.taken}")
    started, checkpoint = time.monotonic(), folder / CHECKPOINT
    experiment = decoded(config, experiment, checkpoint)
    for text in experiment.warnings:
        log.note(f"warning: {text}")
    methods, n_folds = methods_of(config), len(experiment.folds)
    results: score.Results = {method.key: [] for method in methods}
    for number, fold in enumerate(experiment.folds, 1):
        log.note(f"fold {number} of {n_folds}: {len(fold.train):,} to train, {len(fold.test):,} to test")
        sets = make_sets(config, fold)
        for method in methods:
            place = checkpoint / f"fold{number - 1}-{method.key}"
            finished = Path(f"{place}.npz")
            if finished.is_file():
                results[method.key].append(_saved(finished))
                continue
            what = method.name if n_folds == 1 else f"{method.name}, fold {number}"
            record, arrays, model = _one(method, config, experiment, sets, place, log, engine, what)
            if model is not None and method.role == "main" and number == n_folds:
                _keep(folder, *model)
            write_npz(finished, {"record": np.array(json.dumps(record)), **arrays})
            shutil.rmtree(place, ignore_errors=True)
            results[method.key].append((record, arrays))
    log.stage("write the results")
    content, predictions, examples = score.gather(config, experiment, methods, results)
    write_table(folder / "predictions.csv", predictions)
    write_npz(folder / "examples.npz", examples)
    write_atomically(folder / "environment.json", to_json(_environment(time.monotonic() - started)))
    head = {"format": FORMAT, "title": config.title, "created": _now(), "higsfa": __version__}
    metrics = Metrics.of({**head, **content})
    log.note("finished")
    write_atomically(folder / "metrics.json", metrics.to_json())
    drop_checkpoint(folder)


def _saved(path: Path) -> score.Result:
    with in_one_line(f"{path} cannot be read, delete it"):
        arrays = read_npz(path, limit=MAX_RESULT)
        return json.loads(str(arrays.pop("record"))), arrays


def _one(
    method: Method, config: Config, experiment: Experiment, sets: Sets, place: Path, log: Log, engine: str, what: str
) -> tuple[dict[str, Any], score.Columns, tuple[Any, ...] | None]:
    """One method on one fold: its result, and its network, head and decoder (None if there are no pictures)."""
    scored = experiment.scored
    true = score.truth(config, scored, sets.test)
    if method.role == "chance":
        arrays = score.chance_estimates(scored, true)
        return {"scores": score.scores(scored, true, arrays, chance=True)}, arrays, None
    made, heads, arrays, used = estimated(method, config, experiment, sets, place, log, engine, what)
    record: dict[str, Any] = {
        "scores": score.scores(scored, true, arrays),
        "n_features": int(made.features[0].test.shape[1]) if len(made.features) == 1 else None,
        "used": {str(name): int(number) for name, number in used.items()},
        "seconds": made.seconds,
        "delta": score.delta_record(config, scored, made.features, sets),
        "layers": None if made.network is None else layer_records(made.network),
    }
    told = (f"{name} {key} {value:.4g}" for name, by_key in record["scores"].items() for key, value in by_key.items())
    log.note(f"{what}: {', '.join(told)}; features used: {record['used']}")
    arrays = {name: column.astype(str) if column.dtype == object else column for name, column in arrays.items()}
    n_examples, decoder = _n_examples(config, sets), None
    if method.is_rebuilt:
        log.stage(f"{what}: reconstruct")
        decoder, errors, rebuilt = score.rebuild(made.network, made.features[0], sets, n_examples)
        record["reconstruction_error"] = errors
        arrays |= rebuilt
    if method.role == "main":
        arrays |= score.figures(made.features[0], sets, n_examples)
    return record, arrays, (made.networks, heads, None if sets.test.pixel_range is None else decoder)


def estimated(
    method: Method, config: Config, experiment: Experiment, sets: Sets, place: Path, log: Log, engine: str, what: str
) -> tuple[Extracted, list[LabelHead], score.Columns, dict[Any, int]]:
    """A method (any but chance) trained on a fold: features, the last heads, estimates, numbers of features used."""
    made = extract(method, config, experiment.labels, sets, place, log, engine, what)
    log.stage(f"{what}: estimate labels")
    n_used: Any = config.head.n_used_features
    if method.role == "comparison":
        n_used = config.comparison.n_used_features.get(method.key, "cv")  # type: ignore[call-overload]
    arrays: score.Columns = {}
    used: dict[Any, int] = {}
    for members in zip(*made.members, strict=True):
        heads = [score.fit_head(config, features, sets.supervised, n_used) for features in members]
        known = [label.name for label in members[0].labels if label in experiment.scored]
        arrays |= score.estimate(heads, known, [features.of_head[1] for features in members])
        used.update(heads[0].n_used_features_)
    return made, heads, arrays, used


def _keep(folder: Path, networks: Sequence[Any], heads: Sequence[Any], decoder: Any) -> None:
    for number, pair in enumerate(zip(networks, heads, strict=True), 1):
        for name, fitted in zip(member_files(number), pair, strict=True):
            save(fitted, folder / name)
    if decoder is not None:
        score.write_decoder(folder, decoder)


def _n_examples(config: Config, sets: Sets) -> int:
    """As many as the config asks for, or as fit into examples.npz with their reconstructions by all methods."""
    n_rebuilt = sum(method.is_rebuilt for method in methods_of(config))
    bytes_of_one = 4 * int(np.prod(sets.test.source.shape)) * (1 + n_rebuilt)
    return min(config.output.examples, MAX_NPZ * 3 // 4 // bytes_of_one)


def _environment(seconds: float) -> dict[str, Any]:
    packages = ("numpy", "scipy", "scikit-learn", "joblib", "safetensors", "pillow", "pydantic")
    return {
        "python": sys.version.split()[0],
        "packages": {"higsfa": __version__, **{name: version(name) for name in packages}},
        "platform": platform.platform(),
        "processors": joblib.cpu_count(),
        "time": _now(),
        "seconds": round(seconds, 1),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_folder(
    folder: Path, config: Config, *, resume: bool, overwrite: bool, name: str = "config.toml", what: str = "run"
) -> bool:
    """Whether the folder holds this run, finished; an error if it may not be used. Nothing is changed.

    A folder of something else than a run keeps the config under another name.
    """
    if folder.exists() and not folder.is_dir():
        raise ExperimentError(f"{folder} is a file; give a folder for the {what}")
    finished, begun = (folder / "metrics.json").is_file(), (folder / name).is_file()
    if folder.is_dir() and not begun and any(folder.iterdir()):
        raise ExperimentError(f"{folder} is not empty and holds no {what}; give a new folder")
    if not begun or overwrite:
        return False
    if not resume:
        state, way = ("a finished", "give another folder") if finished else ("an unfinished", "continue it (--resume)")
        raise ExperimentError(f"{folder} holds {state} {what}; {way}, or overwrite it (--force)")
    if _essence(interface.load_config(folder / name, of_run=True)) != _essence(config):
        other = f"holds a {what} with other settings; give a new folder, or overwrite it (--force)"
        raise ExperimentError(f"{folder} {other}")
    return finished


def _essence(config: Config) -> dict[str, Any]:
    """The settings that change results, so not threads and memory."""
    tables = config.plain()
    for key in ("n_jobs", "spill", "memory_limit"):
        tables["network"].pop(key, None)
    tables["head"] |= {"mirror": config.averages_mirror_images, "views": config.n_views}
    tables["network"]["members"] = config.n_members(1)
    return tables


def begin_folder(
    folder: Path, config: Config, *, overwrite: bool, name: str = "config.toml", files: Sequence[str] = FILES
) -> None:
    """Make the folder of a run; of one that is overwritten, delete the files of the run and no others."""
    if overwrite:
        for file in files:
            (folder / file).unlink(missing_ok=True)
        drop_checkpoint(folder)
    (folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / name, tomli_w.dumps(config.plain()).encode())


def drop_checkpoint(folder: Path) -> None:
    checkpoint = folder / CHECKPOINT
    if checkpoint.is_symlink():
        checkpoint.unlink()
    elif checkpoint.is_dir():
        shutil.rmtree(checkpoint)


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """A CSV file with a line of names; unknown values are empty, and no text can be taken for a formula."""
    values = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values())
    text = "".join(",".join(map(_cell, row)) + "\n" for row in (columns, *zip(*values, strict=True)))
    # Names of files that are not UTF-8 are written as they are.
    write_atomically(path, text.encode("utf-8", "surrogateescape"))


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = guarded(value)
        # The csv module of Python 3.11 does not quote a carriage return.
        return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]', text) else text
    return format(value, ".7g") if isinstance(value, float) else str(value)
