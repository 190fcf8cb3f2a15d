"""What a label is, classes or a number: one rule for graphs, heads and experiments.

Strings, booleans, a pandas Categorical (also one of numbers) and other objects name classes; fractions and dates are
numbers. Whole numbers, also as floats (from a table with missing values), can be either. They are taken as classes if

- there are at most 20 different ones, and each occurs twice on average (or there are only two), or
- they are codes: 0, 1, 2, ... or 1, 2, ... without a gap, each at least twice, none more than 50 times as often as
  another. What is measured rarely begins at 0 or 1, or dies out at its ends: ages, counts, marks.

Others are taken as a number. More than 20 whole numbers taken as classes, and any taken as a number, are a guess that
a warning tells, with the switch that settles it, `label_kinds`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.labels import find_classes, is_categorical, label_names, missing, pick_label, raw_label

CATEGORICAL, NUMERIC = KINDS = ("categorical", "numeric")
FEW = 20  # whole numbers that are classes wherever they begin
UNEVEN = 50  # the most frequent code occurs at most so many times as often as the rarest
LARGEST = 2.0**53  # beyond, all floats are whole numbers


class Kind(NamedTuple):
    """What values were taken for."""

    is_class: bool
    n_whole: int = 0
    """Of whole numbers, which could be either: how many different ones there are."""

    @property
    def is_doubtful(self) -> bool:
        return self.n_whole > (FEW if self.is_class else 0)


def kind_of(values: NDArray[Any]) -> Kind:
    """The rule."""
    gone = missing(values)
    present = values[~gone] if gone.any() else values
    if present.dtype.kind == "O":
        if any(isinstance(value, str | bytes | bool | np.bool_) for value in present):
            return Kind(True)
        try:
            present = present.astype(np.float64)
        except (TypeError, ValueError):
            return Kind(True)
    if present.dtype.kind not in "iuf" or len(present) == 0:
        return Kind(present.dtype.kind in "bSU")
    if present.dtype.kind == "f":
        present = present.astype(np.float64)
        if not np.all((present == np.floor(present)) & (np.abs(present) <= LARGEST)):
            return Kind(False)
    codes, found = find_classes(present)
    counts, distinct = np.bincount(codes), np.asarray(found)
    n, low, high = len(distinct), int(distinct[0]), int(distinct[-1])
    is_few = n <= FEW and (n <= 2 or len(present) >= 2 * n)
    is_coded = low in (0, 1) and high == low + n - 1 and counts.min() >= 2 and UNEVEN * counts.min() >= counts.max()
    return Kind(bool(is_few or is_coded), n)


def read_kinds(label_kinds: Any, y: Any) -> dict[Any, str]:
    """The parameter `label_kinds` as a dict from the labels in y to their kinds."""
    names = label_names(y)
    if isinstance(label_kinds, str):
        if len(names) != 1:
            raise ValueError(
                f"label_kinds={label_kinds!r} is for one label, and y has {names}: name them, as in "
                f"label_kinds={{{names[0] if names else 'name'!r}: {label_kinds!r}}}"
            )
        label_kinds = {names[0]: label_kinds}
    if not isinstance(label_kinds, Mapping | None):
        raise TypeError(f"label_kinds must be a dict from labels to kinds, or a kind, got {label_kinds!r}")
    kinds = dict(label_kinds or {})
    for name, kind in kinds.items():
        if name not in names:
            raise ValueError(f"label_kinds names a label {name!r}, which is not among the labels {names}")
        if kind not in KINDS:
            raise ValueError(
                f"label_kinds: {kind!r} for label {name!r} is unknown; say {' or '.join(map(repr, KINDS))}"
            )
    if not kinds and len(names) > 1 and _is_one_hot([pick_label(y, name) for name in names]):
        warnings.warn(
            f"y: its {len(names)} columns look like one label, one-hot, but were taken as {len(names)} labels; use "
            "np.argmax(y, axis=1) for one label, or name the kinds of several in label_kinds",
            UserWarning,
            stacklevel=2,
        )
    return kinds


def _is_one_hot(columns: list[NDArray[Any]]) -> bool:
    """Whether every sample has a 1 in one column and 0 in the others, and no column is constant."""
    if any(column.dtype.kind not in "biuf" or column.shape != columns[0].shape for column in columns):
        return False
    if not all(np.isin(column, (0, 1)).all() and 0 < np.count_nonzero(column) < len(column) for column in columns):
        return False
    return bool(np.all(np.sum(columns, axis=0, dtype=np.intp) == 1))


def holds_classes(y: Any, name: Any, rows: NDArray[Any], kinds: Mapping[Any, str] | None = None) -> bool:
    """Whether one label names classes: as `kinds` says, or a pandas Categorical, or by its values in `rows`."""
    only = label_names(y)[:1] if name is None else [name]
    if kinds and only[0] in kinds:
        return kinds[only[0]] == CATEGORICAL
    if is_categorical(raw_label(y, name)):
        return True
    values = pick_label(y, name)[rows]
    kind = kind_of(values)
    if kind.is_doubtful:
        _warn(y, only[0], values, kind)
    return kind.is_class


def _warn(y: Any, name: Any, values: NDArray[Any], kind: Kind) -> None:
    present = values[~missing(values)].astype(np.float64)
    is_vector = not isinstance(y, Mapping) and not hasattr(y, "columns") and np.ndim(y) == 1
    switch = [repr(way) if is_vector else f"{{{name!r}: {way!r}}}" for way in KINDS]
    taken, other = ("classes", "measure something") if kind.is_class else ("a number", "name classes")
    right, wrong = switch if kind.is_class else switch[::-1]
    warnings.warn(
        f"{'y' if is_vector else f'label {name!r}'}: {kind.n_whole} different whole numbers from {present.min():g} to "
        f"{present.max():g} were taken as {taken}; say label_kinds={wrong} if they {other}, "
        f"label_kinds={right} if this is right",
        UserWarning,
        stacklevel=2,
    )
