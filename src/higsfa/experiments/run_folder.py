"""The folder of a run: its files, written whole or not at all, and read back. See docs/run-folder.md."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa._files import open_regular, write_atomically
from higsfa.evaluation.schema import Metrics, read_metrics, to_json
from higsfa.experiments._toml import to_toml
from higsfa.experiments.config import Config
from higsfa.experiments.errors import ExperimentError, in_one_line
from higsfa.experiments.npz import read_npz
from higsfa.experiments.reading import load_config
from higsfa.persistence import load
from higsfa.report.predictions import guarded, read_columns

__all__ = ["Run", "begin_folder", "check_folder", "open_run", "write_table"]

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
MADE_LATER = ("report.html", "explorer.html", "decoder.npz")
"""What is made of a finished run, and put beside it."""
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
    record : Metrics
        All numbers, as described in docs/run-folder.md.
    metrics : dict
        The same as plain lists and dicts, as metrics.json has them.
    predictions : dict of arrays
        Columns of predictions.csv: numbers for `fold`, `sample`, numeric labels and probabilities (NaN where unknown),
        texts for categorical labels (None where unknown).
    examples : dict of arrays
    network, head : fitted estimators
        Of the last fold.
    pixel_range : (black, white), or None
        What grey values mean; None for a run on other samples than images, or by an early version of higsfa.
    cropping : {"eyes", "centre"} or None
        How the picture files to train on were cut: aligned by the eyes, or about the centre; None for arrays, or for
        a run by an early version of higsfa.
    """

    folder: Path
    config: Config

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def record(self) -> Metrics:
        path = self.folder / "metrics.json"
        with in_one_line(f"{path} cannot be read"):
            return read_metrics(path)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return self.record.plain()

    @property
    def pixel_range(self) -> tuple[float, float] | None:
        found = self.record.data.pixel_range
        return None if found is None else (found[0], found[1])

    @property
    def cropping(self) -> str | None:
        return self.record.data.cropping

    @cached_property
    def predictions(self) -> dict[str, NDArray[Any]]:
        texts = {label.name for label in self.record.labels if not label.is_numeric}
        path = self.folder / "predictions.csv"
        with in_one_line(f"{path} cannot be read"):
            return read_columns(path, texts, max_bytes=MAX_CSV)

    @cached_property
    def examples(self) -> dict[str, NDArray[Any]]:
        path = self.folder / "examples.npz"
        with in_one_line(f"{path} cannot be read"), open_regular(path):
            return read_npz(path, limit=MAX_ARRAYS)

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
        If there is no finished run, or its metrics.json is not as it should be.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ExperimentError(f"there is no folder {folder}; train writes one: higsfa train CONFIG.toml --out {folder}")
    if not (folder / "metrics.json").is_file():
        if (folder / "config.toml").is_file():
            raise ExperimentError(f"{folder} holds a run that is not finished; go on with resume (--resume)")
        raise ExperimentError(f"{folder} is not the folder of a run: it has no metrics.json")
    run = Run(folder, load_config(folder / "config.toml"))
    _ = run.record  # what is wrong with it shows here
    return run


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
        if _essence(load_config(folder / "config.toml")) != _essence(config):
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
    write_text(folder / "config.toml", to_toml(config.plain()))


def _essence(config: Config) -> dict[str, Any]:
    tables = config.plain()
    for key in ("n_jobs", "memory"):
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


# ---------------------------------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, to_json(content))


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """A CSV file with a line of names; unknown values are empty, and no text is taken for a formula."""
    values = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values())
    rows = zip(*(map(_cell, column) for column in values), strict=True)
    text = "".join(",".join(row) + "\n" for row in (map(_cell, columns), *rows))
    # Names of files are bytes; those that are not UTF-8 are written as they are.
    write_atomically(path, text.encode("utf-8", "surrogateescape"))


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = guarded(value)
        return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]', text) else text
    return format(value, ".7g") if isinstance(value, float) else str(value)
