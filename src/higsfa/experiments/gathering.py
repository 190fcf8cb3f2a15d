"""From the results of all methods on all folds to metrics.json, predictions.csv and examples.npz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.experiments.config import Config
from higsfa.experiments.labels import Label
from higsfa.experiments.methods import Method
from higsfa.experiments.protocol import Experiment
from higsfa.experiments.scoring import classes_of, pooled_scores, truth

__all__ = ["Gathered", "gather"]

Results = dict[str, list[tuple[dict[str, Any], dict[str, NDArray[Any]]]]]
"""By method, and fold by fold: numbers and arrays."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """The contents of the files of a run."""

    metrics: dict[str, Any]
    predictions: dict[str, NDArray[Any]]
    examples: dict[str, NDArray[Any]]


def gather(config: Config, experiment: Experiment, methods: list[Method], results: Results) -> Gathered:
    """Put results together."""
    by_fold = [truth(config, experiment.scored, fold.test) for fold in experiment.folds]
    true = {label.name: np.concatenate([fold[label.name] for fold in by_fold]) for label in experiment.scored}
    classes = {label.name: _classes(experiment, label) for label in experiment.scored if not label.is_numeric}
    shown = [method for method in methods if method.role != "sensitivity"]
    varied = [method for method in methods if method.role == "sensitivity"]
    metrics = {
        "data": _data_record(config, experiment),
        "labels": [label.record(classes.get(label.name)) for label in experiment.scored],
        "n_folds": len(experiment.folds),
        "methods": [_method(method, experiment.scored, results[method.key], true, classes) for method in shown],
        "layers": results["main"][-1][0]["layers"],
        "sensitivity": [_varied(method, experiment.scored, results[method.key]) for method in varied] or None,
        "warnings": list(experiment.warnings),
    }
    return Gathered(metrics, _predictions(experiment, results["main"], true), _examples(experiment, shown, results))


def _classes(experiment: Experiment, label: Label) -> list[str]:
    columns = [part.labels[label.name] for fold in experiment.folds for part in (fold.train, fold.test)]
    return classes_of(label, columns)


def _data_record(config: Config, experiment: Experiment) -> dict[str, Any]:
    """Sizes of the last fold, without copies."""
    fold = experiment.folds[-1]
    shape = list(fold.train.samples.shape)
    return {
        "name": experiment.name,
        "n_train": len(fold.train),
        "n_supervised": len(fold.train),
        "n_test": len(fold.test),
        "image_shape": shape if experiment.are_images else None,
        "pixel_range": None if experiment.pixel_range is None else list(experiment.pixel_range),
        "cropping": experiment.cropping,
        "copies": 1 if config.distortion is None else config.distortion.copies,
    }


def _method(
    method: Method, labels: list[Label], results: Any, true: dict[str, NDArray[Any]], classes: dict[str, list[str]]
) -> dict[str, Any]:
    records = [record for record, _ in results]
    by_label = {}
    for label in labels:
        estimated = np.concatenate([arrays[f"estimate {label.name}"] for _, arrays in results])
        folds = [record["scores"][label.name] for record in records]
        by_label[label.name] = pooled_scores(label, folds, true[label.name], estimated, classes.get(label.name, []))
    return {
        "name": method.name,
        "role": method.role,
        "n_features": records[-1].get("n_features"),
        "seconds": _mean([record.get("seconds") for record in records]),
        "labels": by_label,
        "delta": _mean([record.get("delta") for record in records]),
        "reconstruction_error": _mean([record.get("reconstruction_error") for record in records]),
    }


def _varied(method: Method, labels: list[Label], results: Any) -> dict[str, Any]:
    records = [record for record, _ in results]
    means = _mean([record["scores"] for record in records])
    numeric = [label.name for label in labels if label.is_numeric]
    named = [label.name for label in labels if not label.is_numeric]
    delta = _mean([record["delta"] for record in records])
    return {
        "delta_threshold": method.delta_threshold,
        "mae": {name: means[name]["mae"] for name in numeric},
        "rate": {name: means[name]["rate"] for name in named},
        "delta_test": None if delta is None else delta["test"],
    }


def _mean(records: list[Any]) -> Any:
    """The mean over folds of numbers that are nested in the same way; None where one is missing, texts as they are."""
    first = records[0]
    if any(record is None for record in records):
        return None
    if isinstance(first, dict):
        return {key: _mean([record[key] for record in records]) for key in first}
    if isinstance(first, list):
        return [_mean(list(values)) for values in zip(*records, strict=False)]
    return first if isinstance(first, str) else float(np.mean(records))


def _predictions(experiment: Experiment, results: Any, true: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    sizes = [len(fold.test) for fold in experiment.folds]
    columns: dict[str, NDArray[Any]] = {
        "fold": np.repeat(np.arange(len(sizes)), sizes),
        "sample": np.concatenate([fold.test.rows for fold in experiment.folds]),
    }
    for label in experiment.scored:
        columns[label.name] = true[label.name]
        wanted = {"estimate": f"{label.name}_estimate"}
        if not label.is_numeric:
            wanted["probability"] = f"{label.name}_probability"
        for key, column in wanted.items():
            columns[column] = np.concatenate([arrays[f"{key} {label.name}"] for _, arrays in results])
    return columns


def _examples(experiment: Experiment, methods: list[Method], results: Results) -> dict[str, NDArray[Any]]:
    """Of the last fold, whose model is kept."""
    arrays = results["main"][-1][1]
    before = sum(len(fold.test) for fold in experiment.folds[:-1])
    out = {"features": arrays["features"], "feature_rows": before + arrays["rows"]}
    if "images" not in arrays:
        return out
    rebuilt = {m.name: results[m.key][-1][1]["rebuilt"] for m in methods if "rebuilt" in results[m.key][-1][1]}
    return {
        **out,
        "images": arrays["images"],
        "reconstructions": np.stack(list(rebuilt.values())).astype(np.float32),
        "reconstruction_names": np.array(list(rebuilt)),
    }
