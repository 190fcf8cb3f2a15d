"""Labels of an experiment: which there are, whether they are numbers or classes, and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.labels import is_discrete, missing, numeric
from higsfa.evaluation.schema import LARGEST
from higsfa.experiments.config import Config
from higsfa.experiments.data import Data
from higsfa.experiments.errors import ExperimentError, in_one_line, named

__all__ = ["Label", "label_values", "read_labels"]

USUAL_LABELS = {
    "faces": ("age", "gender", "race"),
    "digits": ("digit",),
    "toy": ("s1",),
    "morph2": ("age", "gender", "race"),
    "fgnet": ("age",),
    "utkface": ("age", "gender", "race"),
    "fairface": ("age", "gender", "race"),
}
UNITS = {"age": "years"}
MAX_LABEL = LARGEST / 100
"""Errors of such a label are numbers that metrics.json may hold."""


@dataclass(frozen=True)
class Label:
    """A label: its name, whether it is numeric, and its unit."""

    name: str
    is_numeric: bool
    unit: str | None

    def record(self, classes: list[str] | None) -> dict[str, Any]:
        """As in metrics.json."""
        kind = "numeric" if self.is_numeric else "categorical"
        return {"name": self.name, "kind": kind, "unit": self.unit, "classes": None if self.is_numeric else classes}


def read_labels(config: Config, data: Data) -> tuple[list[Label], dict[str, NDArray[Any]]]:
    """The labels to learn, and their values: float64 for numeric ones, texts or None for categorical ones."""
    names = config.data.labels or USUAL_LABELS.get(config.data.kind)
    if names is None:
        raise ExperimentError(
            f'[data] needs a key labels, such as labels = ["age"]; the data have {named(data.columns)}'
        )
    for name in config.labels:
        if name not in names:
            raise ExperimentError(f"[labels.{name}]: there is no label {name!r}; data.labels are {', '.join(names)}")
    labels, values = [], {}
    for name in names:
        if name not in data.columns:
            raise ExperimentError(f"[data] labels: no label {name!r}; the data have {named(data.columns)}")
        label, column = _label(config, name, data.columns[name])
        labels.append(label)
        values[name] = column
    _check_columns(labels)
    return labels, values


def _check_columns(labels: list[Label]) -> None:
    """Labels and their estimates are columns of one table, whose names must differ."""
    taken = {"fold", "sample"}
    for label in labels:
        wanted = {label.name, f"{label.name}_estimate", f"{label.name}_probability"}
        if wanted & taken:
            clash = min(wanted & taken)
            raise ExperimentError(f"data.labels: {label.name!r} clashes with {clash!r} in predictions.csv; rename it")
        taken |= wanted


def label_values(label: Label, config: Config, values: NDArray[Any]) -> NDArray[Any]:
    """A column in the form that its label has."""
    table = config.labels.get(label.name)
    if label.is_numeric:
        with in_one_line(f"[labels.{label.name}] kind = 'numeric'"):
            column = numeric(values, f"label {label.name!r}")
        largest = np.max(np.abs(column), initial=0, where=~np.isnan(column))
        if largest > MAX_LABEL:
            raise ExperimentError(
                f"label {label.name!r} has values up to {largest:.3g}, too large to report errors of; "
                "give it in a larger unit"
            )
        return column
    out = np.full(len(values), None, dtype=object)
    known = ~missing(values)
    names = table.names if table is not None else None
    out[known] = [_text(value, names, label.name) for value in values[known].tolist()]
    return out


def _label(config: Config, name: str, values: NDArray[Any]) -> tuple[Label, NDArray[Any]]:
    table = config.labels.get(name)
    kind = table.kind if table is not None else "auto"
    if table is not None and table.names is not None and kind == "numeric":
        raise ExperimentError(f"[labels.{name}]: names are for categorical labels; leave them out or change kind")
    has_names = table is not None and table.names is not None
    is_numeric = kind == "numeric" or (kind == "auto" and not has_names and not is_discrete(values))
    unit = table.unit if table is not None and table.unit is not None else UNITS.get(name) if is_numeric else None
    label = Label(name, is_numeric, unit)
    column = label_values(label, config, values)
    if missing(column).all():
        raise ExperimentError(f"label {name!r}: all its values are missing; leave it out of data.labels")
    return label, column


def _text(value: Any, names: list[str] | None, label: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if names is None:
        return str(value).encode("utf-8", "replace").decode("utf-8")  # halves of characters cannot be written
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ExperimentError(f"[labels.{label}] names has {len(names)} entries for the codes 0, 1, ...; got {value!r}")
    return names[value]
