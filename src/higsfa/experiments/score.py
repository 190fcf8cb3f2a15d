"""How good a method is: labels estimated from its features, scores, reconstructions, and the results of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from sklearn.metrics import confusion_matrix

from higsfa import LabelHead, metrics
from higsfa.core.graph.labels import kind_of, missing
from higsfa.estimators.label_task import as_values, decide, per_label
from higsfa.evaluation.schema import MAX_CONFUSED, MAX_GROUPED
from higsfa.experiments.config import Config
from higsfa.experiments.data import BLOCK_VALUES, Samples, unit_range
from higsfa.experiments.interface import in_one_line
from higsfa.experiments.methods import Features, Method, n_classes
from higsfa.experiments.split import Experiment, Label, Sets
from higsfa.io import open_regular, read_regular, write_atomically
from higsfa.metrics import ReconstructionSums
from higsfa.reconstruction import LinearReconstruction
from higsfa.sources import Source
from higsfa.training.sources import blocks, evenly_spread

DECODER = "decoder.safetensors"
"""The linear map from features to pixels: these arrays, and `model`, the SHA-256 of the model they belong to."""
ARRAYS = ("components", "intercept", "mean", "feature_mean", "feature_scale")
MOST_TRAIN, MOST_TEST = 20_000, 5_000
"""Samples that reconstructions are learned from, and that their errors are measured on."""
N_FEATURE_ROWS, N_FEATURES = 2000, 20  # test samples, and features of them, that are kept for figures
N_DELTAS = 10
MAX_GROUPS = 12  # groups of a label; one with more is no way to look at people
N_BINS = 10  # of probabilities
LABEL_BINS = 20  # bins of a numeric label, if it has too many or too few whole numbers for one bin each
Columns = dict[str, NDArray[Any]]
Grouping = tuple[list[str], NDArray[np.intp]]
"""Names of groups, and the group of each sample, -1 for none."""
Result = tuple[dict[str, Any], Columns]  # what a method made of a fold: numbers for metrics.json, and arrays
Results = dict[str, list[Result]]  # by method, fold by fold


def fit_head(config: Config, features: Features, samples: Samples, n_features: Any) -> LabelHead:
    """Train the supervised step; `n_features` is a number, "cv", or a dict of these by label ("cv" by default)."""
    labels = {label.name: samples.labels[label.name] for label in features.labels}
    given = n_features if isinstance(n_features, Mapping) else dict.fromkeys(labels, n_features)
    usual = {label.name: n_classes(labels[label.name]) for label in features.labels if label.is_numeric}
    params = config.head.params(LabelHead) | {
        "n_used_features": {name: given.get(name, "cv") for name in labels},
        "n_classes": {name: config.head.n_classes.get(name, n) for name, n in usual.items()},
        "label_kinds": {label.name: label.kind for label in features.labels},
        "integer": {name: name in config.head.integer for name in labels},
    }
    with in_one_line("[head]"):
        return LabelHead(**params).fit(features.of_head[0], labels, groups=samples.groups)


def estimate(heads: Sequence[LabelHead], names: Sequence[str], features: Sequence[NDArray[Any]]) -> Columns:
    """Estimates from mean probabilities over heads, each of its own features; of classes also their probability.

    Heads that learned from the same labels have the same classes.
    """
    columns, first = {}, heads[0]
    for name in names:
        P = np.mean([head.predict_proba(Y, name) for head, Y in zip(heads, features, strict=True)], axis=0)
        classes, is_numeric = first.label_classes_[name], first.is_numeric_[name]
        integer = per_label(first.integer, name, False)
        columns[f"estimate {name}"] = as_values(decide(P, classes, is_numeric), classes, is_numeric, integer)
        if not is_numeric:
            columns[f"probability {name}"] = P.max(axis=1)
    return columns


def chance_estimates(labels: list[Label], true: Columns) -> Columns:
    """The best constant: the median, or the most frequent class."""
    columns = {}
    for label in labels:
        known = true[label.name][~missing(true[label.name])]
        if label.is_numeric:
            best = np.median(known)
        else:
            classes, counts = np.unique(known.astype(str), return_counts=True)
            best = classes[np.argmax(counts)]
        columns[f"estimate {label.name}"] = np.full(len(true[label.name]), best)
    return columns


def truth(config: Config, labels: list[Label], samples: Samples) -> Columns:
    """True labels to score by: the integer part where estimates are integers."""
    columns = {label.name: samples.labels[label.name] for label in labels}
    return {name: np.floor(column) if name in config.head.integer else column for name, column in columns.items()}


def scores(
    labels: list[Label], true: Columns, estimates: Columns, *, chance: bool = False
) -> dict[str, dict[str, float]]:
    """Scores of one fold, by label: mae and rmse, or rate."""
    out: dict[str, dict[str, float]] = {}
    for label in labels:
        pair = true[label.name], estimates[f"estimate {label.name}"]
        if not label.is_numeric:
            out[label.name] = {"rate": metrics.classification_rate(*pair)}
            continue
        # For the squared error, another constant is the best one.
        rmse = metrics.chance_level(pair[0], "rmse") if chance else metrics.root_mean_squared_error(*pair)
        out[label.name] = {"mae": metrics.mean_absolute_error(*pair), "rmse": rmse}
    return out


def pooled_scores(
    label: Label, by_fold: list[dict[str, float]], true: NDArray[Any], estimated: NDArray[Any], classes: list[str]
) -> dict[str, Any]:
    """All scores of a label: means over folds, and curves or counts over the test samples of all folds."""
    out: dict[str, Any] = {}
    for name in by_fold[0]:
        values = [float(fold[name]) for fold in by_fold]
        mean, error = metrics.mean_and_standard_error(values)
        out[name] = {"mean": mean, "se": None if np.isnan(error) else error, "values": values}
    if not label.is_numeric:
        counts = None
        if len(classes) <= MAX_CONFUSED:  # a larger matrix cannot be read
            known = ~missing(true)
            counts = confusion_matrix(true[known].astype(str), estimated[known].astype(str), labels=classes).tolist()
        return {**out, "confusion": counts}
    known = true[~np.isnan(true)]
    thresholds = [float(value) for value in metrics.PAPER_THRESHOLDS]
    if label.unit != "years":
        thresholds = [float(f"{step * known.std() / 10:.4g}") for step in range(21)]
    reached = metrics.cumulative_score(true, estimated, thresholds)
    width = float(np.ptp(known))
    curve = metrics.error_by_label(true, estimated, None if 5 <= width <= 200 else LABEL_BINS if width else None)
    return {
        **out,
        "cumulative": {"thresholds": thresholds, "scores": reached.tolist()},
        "by_label": {"label": curve.label.tolist(), "mae": curve.mae.tolist(), "count": curve.n_samples.tolist()},
    }


def classes_of(columns: list[NDArray[Any]]) -> list[str]:
    """All classes that occur, in order: that of numbers if they are numbers."""
    found = {value for column in columns for value in column[~missing(column)].tolist()}
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


def delta_record(config: Config, labels: list[Label], features: list[Features], sets: Sets) -> dict[str, Any] | None:
    """Delta values of the first features in training and test samples, in the order of a label, or of time."""
    parts = config.graph.parts
    in_time = not isinstance(parts, str) and all(part.kind == "sequence" for part in parts)
    order = next((label for label in labels if label.is_numeric), labels[0])
    found = next((part for part in features if in_time or order in part.labels), None)
    if found is None:
        return None
    out: dict[str, Any] = {"label": "time" if in_time else order.name}
    for key, Y, samples in (("train", found.supervised, sets.supervised), ("test", found.test, sets.test)):
        values: NDArray[Any] = np.arange(len(samples)) if in_time else samples.labels[order.name]
        if not in_time and not order.is_numeric:
            number = {name: float(i) for i, name in enumerate(classes_of([values]))}
            values = np.array([number.get(value, np.nan) for value in values.tolist()])
        deltas = metrics.label_ordered_delta(Y[:, :N_DELTAS], values)
        out[key] = [None if np.isnan(value) else float(value) for value in deltas]
    return out


def rebuild(
    network: Any, features: Features, sets: Sets, n_examples: int
) -> tuple[LinearReconstruction, dict[str, float | None], Columns]:
    """The global linear map, normalised errors on test samples, and reconstructions of examples, if they are images."""
    rows = evenly_spread(len(sets.supervised), MOST_TRAIN)
    linear = LinearReconstruction().fit(features.supervised[rows], sets.supervised.source[rows])
    tested = evenly_spread(len(sets.test), MOST_TEST)
    source, Y = sets.test.source[tested], features.test[tested]
    errors = {
        "global": _error(linear.predict, source, Y),
        "top_down": None if network is None else _error(network.inverse_transform, source, Y),
    }
    if not n_examples or sets.test.pixel_range is None:
        return linear, errors, {}
    shown = linear.predict(features.test[evenly_spread(len(sets.test), n_examples)])
    return linear, errors, {"rebuilt": unit_range(shown.reshape(-1, *source.shape), sets.test.pixel_range)}


def _error(inverse: Any, source: Source, Y: NDArray[Any]) -> float | None:
    parts = (ReconstructionSums.of(images, inverse(Y[where])) for where, images in blocks(source, BLOCK_VALUES))
    total = reduce(add, parts)
    error = total.error() if total.scatter else np.nan
    return float(error) if np.isfinite(error) else None


def figures(features: Features, sets: Sets, n_examples: int) -> Columns:
    """Features of some test samples, and some test images as the network sees them."""
    rows = evenly_spread(len(sets.test), N_FEATURE_ROWS)
    arrays: Columns = {"rows": rows, "features": features.test[rows, :N_FEATURES].astype(np.float32)}
    if n_examples and sets.test.pixel_range is not None:
        images = sets.test.source.take(evenly_spread(len(sets.test), n_examples))
        arrays["images"] = unit_range(images, sets.test.pixel_range)
    return arrays


def write_decoder(folder: Path, decoder: LinearReconstruction) -> None:
    arrays = {name: np.ascontiguousarray(getattr(decoder, f"{name}_"), dtype=np.float64) for name in ARRAYS}
    write_atomically(folder / DECODER, save_tensors({**arrays, "model": _hash(folder)}))


def read_decoder(folder: Path, n_features: int, shape: tuple[int, ...]) -> LinearReconstruction | None:
    """The decoder in a folder; None if it is missing, damaged, or that of another model."""
    k, n_pixels = n_features, int(np.prod(shape))
    shapes = dict(zip(ARRAYS, ((k, n_pixels), (n_pixels,), (n_pixels,), (k,), (k,)), strict=True))
    try:
        n_values = sum(int(np.prod(sizes)) for sizes in shapes.values())
        found = load_tensors(read_regular(folder / DECODER, 8 * n_values + 10_000))
    except (OSError, ValueError, SafetensorError):
        return None
    if set(found) != {"model", *ARRAYS} or not np.array_equal(found["model"], _hash(folder)):
        return None
    decoder = LinearReconstruction()
    for name, sizes in shapes.items():
        array = found[name]
        if array.shape != sizes or array.dtype != np.float64 or not np.isfinite(array).all():
            return None
        setattr(decoder, f"{name}_", array)
    decoder.image_shape_, decoder.n_features_in_ = shape, k
    return decoder


def _hash(folder: Path) -> NDArray[np.uint8]:
    with open_regular(folder / "model.higsfa") as file:
        return np.frombuffer(hashlib.file_digest(file, "sha256").digest(), dtype=np.uint8)


def gather(
    config: Config, experiment: Experiment, methods: list[Method], results: Results
) -> tuple[dict[str, Any], Columns, Columns]:
    """The contents of metrics.json, predictions.csv and examples.npz."""
    folds, scored, data = experiment.folds, experiment.scored, experiment.data
    by_fold = [truth(config, scored, fold.test) for fold in folds]
    true = {label.name: np.concatenate([fold[label.name] for fold in by_fold]) for label in scored}
    parts = [part.labels for fold in folds for part in (fold.train, fold.test)]
    classes = {label.name: classes_of([part[label.name] for part in parts]) for label in scored if not label.is_numeric}
    groups = find_groups(experiment, true)
    shown = [method for method in methods if method.role != "sensitivity"]
    varied = [method for method in methods if method.role == "sensitivity"]
    metrics = {
        "data": {  # of the last fold, without copies
            "name": experiment.name,
            "n_train": len(folds[-1].train),
            "n_supervised": len(folds[-1].train),
            "n_test": len(folds[-1].test),
            "image_shape": None if data.pixel_range is None else list(data.source.shape),
            "pixel_range": None if data.pixel_range is None else list(data.pixel_range),
            "cropping": data.cropping,
            "copies": config.n_copies(len(folds[-1].train))[0],
            "networks": config.n_members(len(folds[-1].train)),
        },
        "labels": [label.record(classes.get(label.name)) for label in scored],
        "n_folds": len(folds),
        "methods": [_method(method, scored, results[method.key], true, classes, groups) for method in shown],
        "layers": results["main"][-1][0]["layers"],
        "sensitivity": [_varied(method, scored, results[method.key]) for method in varied] or None,
        "warnings": list(experiment.warnings),
    }
    return metrics, _predictions(experiment, results["main"], true), _examples(experiment, shown, results)


def _method(
    method: Method,
    labels: list[Label],
    results: list[Result],
    true: Columns,
    classes: dict[str, list[str]],
    groups: dict[str, Grouping],
) -> dict[str, Any]:
    records = [record for record, _ in results]
    by_label = {}
    for label in labels:
        estimated = np.concatenate([arrays[f"estimate {label.name}"] for _, arrays in results])
        folds = [record["scores"][label.name] for record in records]
        own = pooled_scores(label, folds, true[label.name], estimated, classes.get(label.name, []))
        if method.role == "main":
            own["by_group"] = errors_by_group(label, true[label.name], estimated, groups)
        if method.role == "main" and not label.is_numeric:
            probability = np.concatenate([arrays[f"probability {label.name}"] for _, arrays in results])
            own["calibration"] = calibration(true[label.name], estimated, probability)
        by_label[label.name] = own
    return {
        "name": method.name,
        "role": method.role,
        "n_features": records[-1].get("n_features"),
        "labels": by_label,
        **{key: _mean([record.get(key) for record in records]) for key in ("seconds", "delta", "reconstruction_error")},
    }


def _varied(method: Method, labels: list[Label], results: list[Result]) -> dict[str, Any]:
    means = _mean([record["scores"] for record, _ in results])
    delta = _mean([record["delta"] for record, _ in results])
    return {
        "delta_threshold": method.delta_threshold,
        "mae": {label.name: means[label.name]["mae"] for label in labels if label.is_numeric},
        "rate": {label.name: means[label.name]["rate"] for label in labels if not label.is_numeric},
        "delta_test": None if delta is None else delta["test"],
    }


def _mean(records: list[Any]) -> Any:
    """The mean over folds of equally nested numbers; None where one is missing, texts as they are."""
    first = records[0]
    if any(record is None for record in records):
        return None
    if isinstance(first, dict):
        return {key: _mean([record[key] for record in records]) for key in first}
    if isinstance(first, list):
        return [_mean(list(values)) for values in zip(*records, strict=False)]
    return first if isinstance(first, str) else float(np.mean(records))


def _predictions(experiment: Experiment, results: list[Result], true: Columns) -> Columns:
    tested = [fold.test.rows for fold in experiment.folds]
    columns = {"fold": np.repeat(np.arange(len(tested)), list(map(len, tested))), "sample": np.concatenate(tested)}
    for label in experiment.scored:
        columns[label.name] = true[label.name]
        for key in ("estimate",) if label.is_numeric else ("estimate", "probability"):
            columns[f"{label.name}_{key}"] = np.concatenate([arrays[f"{key} {label.name}"] for _, arrays in results])
    return columns


def _examples(experiment: Experiment, methods: list[Method], results: Results) -> Columns:
    """Arrays for figures, from the last fold, whose model is kept."""
    arrays = results["main"][-1][1]
    before = sum(len(fold.test) for fold in experiment.folds[:-1])
    out = {"features": arrays["features"], "feature_rows": before + arrays["rows"]}
    if "images" in arrays:
        rebuilt = {m.name: results[m.key][-1][1]["rebuilt"] for m in methods if "rebuilt" in results[m.key][-1][1]}
        stacked = np.stack(list(rebuilt.values())).astype(np.float32)
        out |= {"images": arrays["images"], "reconstructions": stacked, "reconstruction_names": np.array(list(rebuilt))}
    return out


def find_groups(experiment: Experiment, true: Columns) -> dict[str, Grouping]:
    """Groups of the test samples of all folds, by label: classes, also of labels not learned, and decades of age."""
    units = {label.name: label.unit for label in experiment.scored}
    columns = dict(true)
    for name, values in experiment.test_data.labels.items():
        if name not in columns and name != "identity":
            columns[name] = np.concatenate([values[fold.test.rows] for fold in experiment.folds])
    found = {name: _grouping(values, units.get(name)) for name, values in columns.items()}
    kept = {name: groups for name, groups in found.items() if groups is not None and len(groups[0]) > 1}
    return dict(list(kept.items())[:MAX_GROUPED])


def _grouping(values: NDArray[Any], unit: str | None) -> Grouping | None:
    known, code = ~missing(values), np.full(len(values), -1)
    if unit == "years":
        decade = 10 * np.floor(values[known].astype(np.float64) / 10)
        found, code[known] = np.unique(decade, return_inverse=True)
        names = [f"{low:.0f}–{low + 9:.0f}" for low in found]
    elif kind_of(values).is_class:
        texts = [str(value) for value in values[known].tolist()]
        found, code[known] = np.unique(np.array(texts, dtype=object), return_inverse=True)
        names = found.tolist()
    else:
        return None
    return (names, code) if len(names) <= MAX_GROUPS else None


def errors_by_group(
    label: Label, true: NDArray[Any], estimated: NDArray[Any], groups: dict[str, Grouping]
) -> dict[str, Any]:
    """By grouping: names of groups, MAE or rate, its standard error and the number of samples."""
    known = ~missing(true)
    if label.is_numeric:
        scores = np.abs(estimated[known] - true[known].astype(np.float64))
    else:
        scores = (estimated[known].astype(str) == true[known].astype(str)).astype(np.float64)
    out = {}
    for name, (names, code) in groups.items():
        parts = [scores[code[known] == c] for c in range(len(names))]
        out[name] = {
            "group": names,
            "score": [float(part.mean()) if len(part) else None for part in parts],
            "se": [standard_error(part, label.is_numeric) for part in parts],
            "count": [len(part) for part in parts],
        }
    return out


def standard_error(scores: NDArray[Any], is_numeric: bool) -> float | None:
    """Of a mean; of a rate as if two more samples were right and two wrong, so that five of five are not certain."""
    n = len(scores)
    if n < (2 if is_numeric else 1):
        return None
    if is_numeric:
        return float(scores.std(ddof=1) / np.sqrt(n))
    rate = (scores.sum() + 2) / (n + 4)
    return float(np.sqrt(rate * (1 - rate) / (n + 4)))


def calibration(true: NDArray[Any], estimated: NDArray[Any], probability: NDArray[Any]) -> dict[str, Any]:
    """Mean probability of the estimated class and share that is right, in bins of equal width; and their distance.

    The expected calibration error is the mean distance between the two, bins weighted by their samples.
    """
    known = ~missing(true)
    right = (estimated[known].astype(str) == true[known].astype(str)).astype(np.float64)
    p = np.clip(probability[known].astype(np.float64), 0, 1)
    code = np.minimum((p * N_BINS).astype(np.intp), N_BINS - 1)
    count = np.bincount(code, minlength=N_BINS)
    used = count > 0
    mean, rate = (np.bincount(code, values, N_BINS)[used] / count[used] for values in (p, right))
    error = float(count[used] @ np.abs(mean - rate) / count.sum())
    return {"probability": mean.tolist(), "rate": rate.tolist(), "count": count[used].tolist(), "error": error}
