"""The supervised step on top of features, and how good its estimates are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import LabelHead, metrics
from higsfa.core.labels import missing
from higsfa.evaluation.schema import MAX_CONFUSED
from higsfa.experiments.config import Config
from higsfa.experiments.errors import in_one_line
from higsfa.experiments.labels import Label
from higsfa.experiments.methods import Features
from higsfa.experiments.protocol import Part
from higsfa.experiments.sets import Samples

__all__ = ["Estimates", "chance_estimates", "delta_record", "estimate", "fit_head", "pooled_scores", "scores", "truth"]

N_DELTAS = 10
LABEL_BINS = 20
"""Bins of a numeric label whose whole numbers are too many or too few to tell errors apart by."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of labels for the test samples; probabilities (of the estimated class) for categorical ones."""

    values: dict[str, NDArray[Any]]
    probabilities: dict[str, NDArray[np.float64]]


def fit_head(config: Config, features: Features, samples: Samples, n_features: Any) -> LabelHead:
    """Train the supervised step.

    Parameters
    ----------
    config : Config
    features : Features
    samples : Samples
        Those of `features.supervised`.
    n_features : int, "cv" or dict by label
        Labels that a dict leaves out get "cv".
    """
    names = [label.name for label in features.labels]
    given = n_features if isinstance(n_features, Mapping) else dict.fromkeys(names, n_features)
    # Naming the number of classes is what makes LabelHead treat a label as numeric.
    n_classes = {}
    for label in features.labels:
        if label.is_numeric:
            n_known = int((~missing(samples.labels[label.name])).sum())
            n_classes[label.name] = config.head.n_classes.get(label.name, int(np.clip(n_known // 20, 2, 39)))
    head = LabelHead(
        n_features={name: given.get(name, "cv") for name in names},
        n_classes=n_classes,
        integer={name: name in config.head.integer for name in names},
    )
    with in_one_line("[head]"):
        labels = {name: samples.labels[name] for name in names}
        return head.fit(features.supervised, labels, groups=samples.groups)


def estimate(head: LabelHead, labels: list[Label], Y: NDArray[Any]) -> Estimates:
    """Estimates of a fitted head."""
    values = head.predict(Y)
    probabilities = {
        label.name: head.predict_proba(Y, label.name).max(axis=1) for label in labels if not label.is_numeric
    }
    return Estimates({label.name: np.asarray(values[label.name]) for label in labels}, probabilities)


def chance_estimates(labels: list[Label], true: Mapping[str, NDArray[Any]]) -> Estimates:
    """The best constant: the median, or the most frequent class."""
    values = {}
    for label in labels:
        column = true[label.name]
        known = column[~missing(column)]
        if label.is_numeric:
            values[label.name] = np.full(len(column), np.median(known))
        else:
            classes, counts = np.unique(known.astype(str), return_counts=True)
            values[label.name] = np.full(len(column), classes[np.argmax(counts)], dtype=object)
    return Estimates(values, {})


def truth(config: Config, labels: list[Label], samples: Samples | Part) -> dict[str, NDArray[Any]]:
    """True labels to score by: the integer part where estimates are integers."""
    columns = {label.name: samples.labels[label.name] for label in labels}
    return {name: np.floor(column) if name in config.head.integer else column for name, column in columns.items()}


def scores(
    labels: list[Label], true: Mapping[str, NDArray[Any]], estimates: Estimates, *, chance: bool = False
) -> dict[str, dict[str, float]]:
    """Scores of one fold, by label: mae and rmse, or rate."""
    out: dict[str, dict[str, float]] = {}
    for label in labels:
        column, estimated = true[label.name], estimates.values[label.name]
        if not label.is_numeric:
            out[label.name] = {"rate": metrics.classification_rate(column, estimated)}
            continue
        # The best constant is another one for the squared error.
        rmse = metrics.chance_level(column, "rmse") if chance else metrics.root_mean_squared_error(column, estimated)
        out[label.name] = {"mae": metrics.mean_absolute_error(column, estimated), "rmse": rmse}
    return out


def over_folds(values: list[float]) -> dict[str, Any]:
    """A score as metrics.json has it."""
    mean, error = metrics.mean_and_standard_error(values)
    return {"mean": mean, "se": None if np.isnan(error) else error, "values": [float(value) for value in values]}


def pooled_scores(
    label: Label, by_fold: list[dict[str, float]], true: NDArray[Any], estimated: NDArray[Any], classes: list[str]
) -> dict[str, Any]:
    """All scores of a label: means over folds, and curves or counts over the test samples of all folds.

    The confusion of very many classes is None: nobody could read it, and it grows with their square.
    """
    out: dict[str, Any] = {name: over_folds([fold[name] for fold in by_fold]) for name in by_fold[0]}
    if not label.is_numeric and len(classes) > MAX_CONFUSED:
        return {**out, "confusion": None}
    if not label.is_numeric:
        number = {name: i for i, name in enumerate(classes)}
        counts = np.zeros((len(classes), len(classes)), dtype=int)
        known = ~missing(true)
        np.add.at(counts, ([number[a] for a in true[known]], [number[b] for b in estimated[known]]), 1)
        return {**out, "confusion": counts.tolist()}
    known = true[~np.isnan(true)]
    thresholds = _thresholds(label, known)
    reached = metrics.cumulative_score(true, estimated, thresholds)
    width = float(np.ptp(known))
    curve = metrics.error_by_label(true, estimated, None if 5 <= width <= 200 else LABEL_BINS if width else None)
    return {
        **out,
        "cumulative": {"thresholds": thresholds, "scores": reached.tolist()},
        "by_label": {"label": curve.label.tolist(), "mae": curve.mae.tolist(), "count": curve.n_samples.tolist()},
    }


def _thresholds(label: Label, known: NDArray[np.float64]) -> list[float]:
    """Those of the paper for years, else steps of a tenth of the standard deviation."""
    if label.unit == "years":
        return [float(value) for value in metrics.PAPER_THRESHOLDS]
    return [float(f"{step * known.std() / 10:.4g}") for step in range(21)]


def classes_of(label: Label, columns: list[NDArray[Any]]) -> list[str]:
    """All classes that occur, in order; numbers in the order of numbers."""
    found = {value for column in columns for value in column[~missing(column)].tolist()}
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


def delta_order(config: Config, labels: list[Label]) -> Label | None:
    """The label in whose order slowness is measured, or None for the order of time."""
    parts = config.graph.parts
    if not isinstance(parts, str) and all(part.kind == "sequence" for part in parts):
        return None
    return next((label for label in labels if label.is_numeric), labels[0])


def delta_record(
    order: Label | None, features: list[Features], supervised: Samples, test: Samples
) -> dict[str, Any] | None:
    """Delta values of the first features, in training and test samples."""
    part = next((part for part in features if order is None or order in part.labels), None)
    if part is None:
        return None
    out: dict[str, Any] = {"label": "time" if order is None else order.name}
    for key, Y, samples in (("train", part.supervised, supervised), ("test", part.test, test)):
        values = np.arange(len(samples)) if order is None else _in_order(order, samples)
        deltas = metrics.label_ordered_delta(Y[:, :N_DELTAS], values)
        out[key] = [None if np.isnan(value) else float(value) for value in deltas]
    return out


def _in_order(order: Label, samples: Samples) -> NDArray[np.float64]:
    column = samples.labels[order.name]
    if order.is_numeric:
        return column
    number = {name: float(i) for i, name in enumerate(classes_of(order, [column]))}
    return np.array([np.nan if value is None else number[value] for value in column.tolist()])
