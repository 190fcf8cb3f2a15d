"""For whom a method works: errors by group of test samples, and whether probabilities can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.kinds import kind_of
from higsfa.core.graph.labels import missing
from higsfa.evaluation.schema import MAX_GROUPED
from higsfa.experiments.split import Experiment, Label

MAX_GROUPS = 12  # groups of a label; one with more is no way to look at people
N_BINS = 10  # of probabilities
Columns = dict[str, NDArray[Any]]
Grouping = tuple[list[str], NDArray[np.intp]]
"""Names of groups, and the group of each sample, -1 for none."""


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
