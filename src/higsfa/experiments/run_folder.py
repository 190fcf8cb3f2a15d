"""The folder of a run: its files, written whole or not at all, and read back. See docs/run-folder.md."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa._files import write_atomically
from higsfa.experiments._toml import to_toml
from higsfa.experiments.config import Config
from higsfa.experiments.errors import ExperimentError, in_one_line
from higsfa.experiments.npz import read_npz
from higsfa.experiments.reading import load_config
from higsfa.persistence import load

__all__ = ["FORMAT", "Run", "open_run", "prepare_folder"]

FORMAT = 1
MAX_JSON = 100_000_000
"""Largest metrics.json, in bytes."""
MAX_CSV = 2_000_000_000
MAX_ARRAYS = 1_000_000_000
FILES = (
    "config.toml",
    "model.higsfa",
    "head.higsfa",
    "metrics.json",
    "predictions.csv",
    "examples.npz",
    "environment.json",
    "log.txt",
)
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Run:
    """A finished run. Files are read when they are asked for.

    Attributes
    ----------
    folder : Path
    config : Config
    name : str
        That of the folder.
    metrics : dict
        As described in docs/run-folder.md.
    predictions : dict of arrays
        Columns of predictions.csv: numbers for `fold`, `sample`, numeric labels and probabilities (NaN where unknown),
        texts for categorical labels (None where unknown).
    examples : dict of arrays
    network, head : fitted estimators
        Of the last fold.
    """

    folder: Path
    config: Config

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return read_json(self.folder / "metrics.json")

    @cached_property
    def predictions(self) -> dict[str, NDArray[Any]]:
        kinds = {label["name"]: label["kind"] for label in self.metrics["labels"]}
        return read_predictions(self.folder / "predictions.csv", kinds)

    @cached_property
    def examples(self) -> dict[str, NDArray[Any]]:
        with in_one_line(f"{self.folder / 'examples.npz'} cannot be read"):
            return read_npz(self.folder / "examples.npz", limit=MAX_ARRAYS)

    @cached_property
    def network(self) -> Any:
        with in_one_line("the network of this run cannot be loaded"):
            return load(self.folder / "model.higsfa")

    @cached_property
    def head(self) -> Any:
        with in_one_line("the head of this run cannot be loaded"):
            return load(self.folder / "head.higsfa")


def open_run(folder: str | os.PathLike[str]) -> Run:
    """Open the folder of a finished run.

    Parameters
    ----------
    folder : path

    Returns
    -------
    Run

    Raises
    ------
    ExperimentError
        If there is no finished run.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ExperimentError(f"there is no folder {folder}; train writes one: higsfa train CONFIG.toml --out {folder}")
    if not (folder / "metrics.json").is_file():
        if (folder / "config.toml").is_file():
            raise ExperimentError(f"{folder} holds a run that is not finished; go on with resume (--resume)")
        raise ExperimentError(f"{folder} is not the folder of a run: it has no metrics.json")
    run = Run(folder, load_config(folder / "config.toml"))
    found = run.metrics.get("format")
    if found != FORMAT:
        raise ExperimentError(
            f"{folder}: metrics.json has format {found!r}, this version reads {FORMAT}; update higsfa"
        )
    missing = [name for name in ("methods", "labels", "data") if name not in run.metrics]
    if missing:
        raise ExperimentError(f"{folder}: metrics.json lacks {', '.join(missing)}; train again")
    return run


def prepare_folder(folder: Path, config: Config, *, resume: bool, overwrite: bool) -> bool:
    """Make the folder ready for a run; True if it holds a finished one that is to be kept.

    Settings that do not change results (threads, memory) may differ when a run goes on.
    """
    if folder.exists() and not folder.is_dir():
        raise ExperimentError(f"{folder} is a file; give a folder for the run")
    finished, begun = (folder / "metrics.json").is_file(), (folder / "config.toml").is_file()
    if folder.is_dir() and not begun and any(folder.iterdir()):
        raise ExperimentError(f"{folder} is not empty and holds no run; give a new folder")
    if overwrite and begun:
        clear(folder)
    elif resume and begun:
        if _essence(load_config(folder / "config.toml")) != _essence(config):
            raise ExperimentError(
                f"{folder} holds a run of another experiment, or of other settings; give a new folder, "
                "or overwrite it (--force)"
            )
        if finished:
            return True
    elif finished:
        raise ExperimentError(f"{folder} holds a finished run; give another folder, or overwrite it (--force)")
    elif begun:
        raise ExperimentError(
            f"{folder} holds an unfinished run; go on with resume (--resume), or overwrite it (--force)"
        )
    (folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", to_toml(config.plain()))
    return False


def _essence(config: Config) -> dict[str, Any]:
    tables = config.plain()
    for key in ("n_jobs", "memory"):
        tables["network"].pop(key, None)
    return tables


def clear(folder: Path) -> None:
    """Delete the files of a run, and no others; metrics.json first, so that no half of a run looks finished."""
    for name in sorted(FILES, key=lambda name: name != "metrics.json"):
        (folder / name).unlink(missing_ok=True)
    drop_checkpoint(folder)


def drop_checkpoint(folder: Path) -> None:
    checkpoint = folder / CHECKPOINT
    if checkpoint.is_symlink():
        checkpoint.unlink()
    elif checkpoint.is_dir():
        shutil.rmtree(checkpoint)


# ---------------------------------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """JSON that every reader understands: numbers that are not finite become null."""
    write_text(path, json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def read_json(path: Path) -> dict[str, Any]:
    with in_one_line(f"{path} cannot be read"):
        if path.stat().st_size > MAX_JSON:
            raise ValueError(f"it is larger than {MAX_JSON:,} bytes")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(content, dict):
            raise ValueError("it does not hold a JSON object")
    return content


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def write_predictions(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """One row per test sample; unknown values are empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*([_cell(value) for value in column.tolist()] for column in columns.values()), strict=True))
    write_text(path, buffer.getvalue())


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    return format(value, ".7g") if isinstance(value, float) else str(value)


def read_predictions(path: Path, kinds: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Columns of predictions.csv, given the kinds of the labels."""
    texts = {name for name, kind in kinds.items() if kind == "categorical"}
    texts |= {f"{name}_estimate" for name in texts}
    with in_one_line(f"{path} cannot be read"):
        if path.stat().st_size > MAX_CSV:
            raise ValueError(f"it is larger than {MAX_CSV:,} bytes")
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = next(rows, None)
            if not header:
                raise ValueError("it is empty")
            columns = list(zip(*rows, strict=True)) or [()] * len(header)
        if len(columns) != len(header):
            raise ValueError(f"it has {len(header)} column names for {len(columns)} columns")
        out: dict[str, NDArray[Any]] = {}
        for name, column in zip(header, columns, strict=True):
            if name in texts:
                out[name] = np.array([text or None for text in column], dtype=object)
            elif name in ("fold", "sample"):
                out[name] = np.array([int(text) for text in column], dtype=np.intp)
            else:
                out[name] = np.array([float(text) if text else np.nan for text in column])
    return out
