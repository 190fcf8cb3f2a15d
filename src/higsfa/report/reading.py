"""Reading the files of a run folder, which are not trusted: with limits, and errors that name file and key."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.evaluation import schema
from higsfa.evaluation.schema import LARGEST, MAX_PREDICTIONS, MAX_ROWS, Metrics, ReportError, unguarded
from higsfa.io import open_regular
from higsfa.io.arrays import Archive, open_archive

COUNTS = ("fold", "sample")
MAX_FILE = 2**20  # bytes of config.toml and of environment.json
MAX_VALUE = 10_000  # characters of a value of environment.json; longer ones are cut
# The type and the largest shape of each array of examples.npz.
_ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "images": ("real numbers", (64, 4096, 4096)),
    "reconstructions": ("real numbers", (32, 64, 4096, 4096)),
    "reconstruction_names": ("text", (32,)),
    "features": ("real numbers", (20_000, 100)),
    "feature_rows": ("whole numbers", (20_000,)),
}
_DTYPES = {"real numbers": "f", "whole numbers": "iu", "text": "U"}


class TooLarge(ReportError):
    """A table has more than a report can show."""


def read_columns(
    path: Path,
    texts: Collection[str],
    wanted: Collection[str] | None = None,
    *,
    max_bytes: int,
    max_rows: float = np.inf,
) -> dict[str, NDArray[Any]]:
    """The wanted columns, or all: texts (None where empty) for the labels `texts` and their estimates, else numbers."""
    if path.stat().st_size > max_bytes:
        raise TooLarge(f"{path.name} is larger than {max_bytes // 2**20} MiB")
    as_text = {*texts, *(f"{name}_estimate" for name in texts)}
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            columns = _read_rows(csv.reader(file, strict=True), path.name, as_text, wanted, max_rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path.name} is no CSV file in UTF-8: {str(error)[:200]}") from error
    dtypes = {name: object if name in as_text else np.intp if name in COUNTS else np.float64 for name in columns}
    return {name: np.array(column, dtype=dtypes[name]) for name, column in columns.items()}


def _read_rows(
    reader: Any, file: str, as_text: Collection[str], wanted: Collection[str] | None, max_rows: float
) -> dict[str, list[Any]]:
    header = [unguarded(name) for name in next(reader, [])]
    if not header or len(set(header)) < len(header):
        raise ReportError(f"{file} must begin with a line of names, all different")
    columns: dict[str, list[Any]] = {name: [] for name in header if wanted is None or name in wanted}
    for number, row in enumerate(reader, start=1):
        if number > max_rows:
            raise TooLarge(f"{file} has more than {max_rows:,} rows")
        if len(row) != len(header):
            raise ReportError(f"{file}: row {number} has {len(row)} fields, but the header has {len(header)}")
        for name, field in zip(header, row, strict=True):
            if name in columns:
                value = (unguarded(field) or None) if name in as_text else _number(field, file, number, name)
                columns[name].append(value)
    return columns


def _number(field: str, file: str, row: int, name: str) -> float:
    """The number in a field; an empty field, or nan, is a missing value. Counts are whole and never missing."""
    try:
        number = int(field) if name in COUNTS else float(field or "nan")
    except ValueError:
        number = np.inf
    if abs(number) > (2**53 if name in COUNTS else LARGEST):
        raise ReportError(f"{file}: row {row} of {name} must be a number, found {field[:80]!r}")
    return number


@dataclass(frozen=True)
class Examples:
    """The arrays found in examples.npz."""

    images: NDArray[Any] | None = None
    reconstructions: NDArray[Any] | None = None
    reconstruction_names: tuple[str, ...] = ()
    features: NDArray[Any] | None = None
    feature_rows: NDArray[Any] | None = None


@dataclass(frozen=True)
class RunFolder:
    """What a report knows about a run. `truth` and `estimate` have the labels in predictions.csv, numbers or texts."""

    name: str
    metrics: Metrics
    truth: dict[str, NDArray[Any]]
    estimate: dict[str, NDArray[Any]]
    examples: Examples
    environment: tuple[tuple[str, str], ...]
    config: str | None


def read_run(folder: Path) -> RunFolder:
    """Read what a report shows of a run folder; only ``metrics.json`` is required."""
    if not (folder / "metrics.json").is_file():
        raise ReportError(f"{folder} holds no metrics.json; give the folder that `higsfa train --out` wrote")
    metrics = schema.read_metrics(folder / "metrics.json", max_text=schema.MAX_TEXT)
    config, predictions = folder / "config.toml", folder / "predictions.csv"
    pairs = {label.name: f"{label.name}_estimate" for label in metrics.labels}
    texts, wanted = [label.name for label in metrics.labels if not label.is_numeric], {*pairs, *pairs.values()}
    columns = {}
    try:
        if predictions.is_file():
            columns = read_columns(predictions, texts, wanted, max_bytes=MAX_PREDICTIONS, max_rows=MAX_ROWS)
    except TooLarge as error:
        note = f"{error}: figures of single samples are left out"
        metrics = metrics.model_copy(update={"warnings": (*(metrics.warnings or ()), note)})
    known = [name for name, estimate in pairs.items() if {name, estimate} <= columns.keys()]
    return RunFolder(
        name=folder.resolve().name,
        metrics=metrics,
        truth={name: columns[name] for name in known},
        estimate={name: columns[pairs[name]] for name in known},
        examples=read_examples(folder / "examples.npz", len(next(iter(columns.values()), ()))),
        environment=_read_environment(folder / "environment.json"),
        config=schema.read_text(config, MAX_FILE) if config.is_file() else None,
    )


def _read_environment(path: Path) -> tuple[tuple[str, str], ...]:
    """Names and values, one line each; deeper nesting is written as JSON."""
    found = schema.read_json(path, MAX_FILE) if path.is_file() else {}
    if not isinstance(found, dict):
        raise ReportError(f"{path.name}: the file must be an object")
    lines = []
    for name, value in found.items():
        for key, item in value.items() if isinstance(value, dict) else [("", value)]:
            text = item if isinstance(item, str) else json.dumps(item)
            lines.append((f"{name} {key}".strip(), text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"))
    return tuple(lines)


def read_examples(path: Path, n_rows: int) -> Examples:
    """The arrays for figures; `n_rows` is the number of rows of ``predictions.csv``."""
    if not path.is_file():
        return Examples()
    if path.stat().st_size > schema.MAX_NPZ:
        raise ReportError(f"{path.name} is larger than {schema.MAX_NPZ // 2**20} MiB, which no run folder needs")
    try:
        with open_archive(path) as archive:
            arrays = {key: _read_array(archive, path.name, key) for key in _ARRAYS if key in archive.names}
    except ReportError:
        raise
    except (ValueError, OSError) as error:
        raise ReportError(f"{path.name} cannot be read: {str(error).splitlines()[0][:200]}") from error
    _check_shapes(path.name, arrays, n_rows)
    names = arrays.pop("reconstruction_names", ())
    return Examples(reconstruction_names=tuple(map(str, names)), **arrays)


def _read_array(archive: Archive, file: str, key: str) -> NDArray[Any]:
    """One array, read only if its header has the expected type and size."""
    (kind, largest), header = _ARRAYS[key], archive.header(key)
    _require(header.dtype.kind in _DTYPES[kind], file, key, kind, header.dtype)
    fits = len(header.shape) == len(largest) and all(n <= most for n, most in zip(header.shape, largest, strict=True))
    _require(fits, file, key, f"an array of at most {largest}", header.shape)
    small = header.n_bytes <= schema.MAX_ARRAY
    _require(small, file, key, f"an array of at most {schema.MAX_ARRAY // 2**20} MiB", header.shape)
    return archive.read(key)


def _check_shapes(file: str, arrays: dict[str, NDArray[Any]], n_rows: int) -> None:
    """Arrays that belong together agree in length."""
    shape = {key: array.shape for key, array in arrays.items()}
    if rebuilt := shape.get("reconstructions"):
        alike, names = rebuilt[1:] == shape.get("images"), shape.get("reconstruction_names")
        _require(alike, file, "reconstructions", "as many and as large pictures as images", rebuilt)
        _require(names == rebuilt[:1], file, "reconstruction_names", f"{rebuilt[0]} names", names)
    if {"features", "feature_rows"} <= shape.keys():
        rows, n = arrays["feature_rows"], shape["features"][0]
        _require(rows.shape == (n,), file, "feature_rows", f"{n} rows", rows.shape)
        if n_rows and n:
            inside = 0 <= int(rows.min()) <= int(rows.max()) < n_rows
            _require(inside, file, "feature_rows", f"rows of predictions.csv, 0 to {n_rows - 1}", int(rows.max()))


def _require(is_right: bool, file: str, key: str, expected: str, found: object) -> None:
    if not is_right:
        raise ReportError(f"{file}: {key} must hold {expected}, found {found}")
