"""Labels as users bring them: arrays, dicts, data frames, with missing values; and what they are.

A label is classes or a number, by one rule for graphs, heads and experiments.
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
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.codes import count_codes, look_up

Ints = NDArray[Any]

ALIKE = "differ only in case or in blanks"
HASH_BITS = 16
"""Size of the table that values are looked up in by their bits; up to some dozens of classes rarely collide in it."""
CATEGORICAL, NUMERIC = KINDS = ("categorical", "numeric")
FEW = 20  # whole numbers that are classes wherever they begin
UNEVEN = 50  # the most frequent code occurs at most so many times as often as the rarest
LARGEST = 2.0**53  # beyond, all floats are whole numbers


def as_labels(y: Any) -> Any:
    """Labels in a form that need not be converted again: an array, unless that would lose names or what they mean."""
    if isinstance(y, np.ma.MaskedArray):  # what is masked is missing
        hidden, y = np.ma.getmaskarray(y), np.array(y.data, dtype=y.dtype if y.dtype.kind == "f" else object)
        y[hidden] = np.nan if y.dtype.kind == "f" else None
    as_they_are = isinstance(y, np.ndarray | None | Mapping) or hasattr(y, "columns") or is_categorical(y)
    return y if as_they_are else np.asarray(y)


def is_categorical(column: Any) -> bool:
    """Whether values were declared to be categories: a pandas Categorical, or a Series of them."""
    return type(getattr(column, "dtype", None)).__name__ == "CategoricalDtype"


def label_names(y: Any) -> list[Any]:
    """Names of the labels in y: columns of a data frame, keys of a dict, indices of array columns."""
    if y is None:
        return []
    if isinstance(y, Mapping):
        return list(y)
    if hasattr(y, "columns"):
        return list(y.columns)
    shape = np.asarray(y).shape
    return list(range(shape[1])) if len(shape) == 2 else [0]


def pick_label(y: Any, name: Any, n_samples: int | None = None) -> NDArray[Any]:
    """One label as a 1-D array, of `n_samples` values if given; with name None the only label there is."""
    column = y if name is None and isinstance(y, np.ndarray) and y.ndim == 1 else raw_label(y, name)
    dtype = getattr(column, "dtype", None)
    extension = dtype is not None and not isinstance(dtype, np.dtype)  # of pandas
    column = np.asarray(column, dtype=object) if extension else np.asarray(column)
    if column.ndim != 1:
        shown = label_names(y)[0] if name is None else name
        raise ValueError(f"label {shown!r} must have one value per sample, got an array of shape {column.shape}")
    if n_samples is not None and len(column) != n_samples:
        raise ValueError(f"y: inconsistent numbers of samples: the label has {len(column)} values for {n_samples}")
    return column


def raw_label(y: Any, name: Any) -> Any:
    """One label as the user gave it."""
    names = label_names(y)
    if not names:
        raise ValueError("y: this graph requires y to be passed, but the target y is None; it is built from labels")
    if name is None:
        if len(names) > 1:
            raise ValueError(f"y has several labels {names}: name the one to use, as in SerialGraph({names[0]!r})")
        name = names[0]
    if name not in names:
        raise ValueError(f"y has no label {name!r}; it has {names}")
    if isinstance(y, Mapping) or hasattr(y, "columns"):
        return y[name]
    if not isinstance(y, np.ndarray) and is_categorical(y):
        return y
    y = np.asarray(y)
    return y[:, name] if y.ndim == 2 else y


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are NaN, None, NaT or pandas' NA."""
    kind = values.dtype.kind
    if kind in "biuSU":
        return np.zeros(len(values), dtype=bool)
    if kind in "fc":
        return np.asarray(np.isnan(values))
    if kind in "mM":
        return np.asarray(np.isnat(values))
    listed = values.tolist()
    suspects = {kind for kind in set(map(type, listed)) if _may_be_missing(kind)}
    if not suspects:
        return np.zeros(len(values), dtype=bool)
    return np.fromiter((type(value) in suspects and _is_missing(value) for value in listed), bool, len(values))


def _is_missing(value: Any) -> bool:
    return _may_be_missing(type(value)) and not (isinstance(value, float) and value == value)


def _may_be_missing(kind: type) -> bool:
    """Whether values of this type may be missing ones."""
    return kind is type(None) or kind.__name__ in ("NAType", "NaTType") or issubclass(kind, float)


def encode_classes(values: NDArray[Any]) -> tuple[Ints, int]:
    """Class number of each value, -1 where it is missing, and the number of classes."""
    codes, classes = find_classes(values)
    return codes, len(classes)


def find_classes(values: NDArray[Any]) -> tuple[Ints, NDArray[Any] | list[Any]]:
    """Class number of each value, -1 where it is missing, and the classes themselves.

    Classes are in ascending order, or as they first appear where values are Python objects.
    """
    if values.dtype.kind == "O":
        return _object_classes(values.tolist())
    gone = missing(values)
    if not gone.any():
        codes, classes = _distinct(values)
        if values.dtype.kind in "SU":
            _warn_if_alike(classes.tolist())
        return codes, classes
    codes = np.full(len(values), -1, dtype=np.intp)
    codes[~gone], classes = _distinct(values[~gone])
    return codes, classes


def _object_classes(values: list[Any]) -> tuple[Ints, list[Any]]:
    numbers = dict.fromkeys(values, -1)
    classes = [value for value in numbers if not _is_missing(value)]
    check_one_kind(classes)
    _warn_if_alike(classes)
    numbers.update(zip(classes, range(len(classes)), strict=True))
    return np.fromiter(map(numbers.__getitem__, values), dtype=np.intp, count=len(values)), classes


def check_one_kind(classes: Iterable[Any]) -> None:
    """Raise if some classes are numbers and others text: 1 and "1" would become two classes."""
    examples: dict[str, Any] = {}
    for value in classes:
        kind = "numbers" if isinstance(value, Number | np.bool_) else "texts" if isinstance(value, str | bytes) else ""
        examples.setdefault(kind, value)
    if "numbers" in examples and "texts" in examples:
        raise ValueError(
            f"y: classes must be all numbers or all texts, but there are numbers such as {examples['numbers']!r} and "
            f"texts such as {examples['texts']!r}; convert the labels to one type, for instance with str"
        )


def _warn_if_alike(classes: list[Any]) -> None:
    """Warn if names of classes differ only in case, or in blanks around them."""
    known: dict[Any, Any] = {}
    for value in classes:
        if isinstance(value, str | bytes):
            other = known.setdefault(value.strip().lower(), value)
            if other != value:
                warnings.warn(
                    f"y: {other!r} and {value!r} {ALIKE}, and were taken as different classes; "
                    "if they are one, write them alike, for instance with strip() and lower()",
                    UserWarning,
                    stacklevel=2,
                )
                return


def _distinct(values: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
    """Number of each value among the distinct ones, which are in ascending order: `np.unique` without sorting."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.intp), values
    found = None
    if values.dtype.kind in "biu":
        found = _distinct_integers(values)
    elif values.dtype.kind in "fcSUmM":
        found = _distinct_by_bits(values)
    if found is None:
        distinct, inverse = np.unique(values, return_inverse=True)
        return inverse.ravel(), distinct
    return found


def _distinct_integers(values: NDArray[Any]) -> tuple[Ints, NDArray[Any]] | None:
    """Integers that lie close together, counted; None if they do not."""
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values):
        return None
    # In arithmetic modulo a power of two a difference is right whatever the type of the values.
    kind = np.dtype(np.int32 if high - low < 2**31 - 1 else np.intp)
    offset = np.subtract(values, values.dtype.type(low), dtype=kind, casting="unsafe")
    used = count_codes(offset, high - low + 1) > 0
    distinct = np.array([low + i for i in np.flatnonzero(used).tolist()], dtype=values.dtype)
    return (offset if used.all() else look_up((np.cumsum(used) - 1).astype(kind), offset)), distinct


def _distinct_by_bits(values: NDArray[Any]) -> tuple[Ints, NDArray[Any]] | None:
    """Values looked up by a hash of their bits; None if two different values have the same hash."""
    bits = _words(values)
    hashes = np.zeros(len(values), dtype=np.uint64)
    for word in bits.T:
        hashes ^= word
        hashes *= np.uint64(0x9E3779B97F4A7C15)
    place = (hashes >> np.uint64(64 - HASH_BITS)).astype(np.intp)
    table = np.full(2**HASH_BITS, -1, dtype=np.intp)
    table[place] = np.arange(len(values))
    found = np.flatnonzero(table >= 0)
    if len(found) > 2 ** (HASH_BITS // 2):
        return None
    examples = table[found]
    table[found] = np.arange(len(found))
    nearest = table.take(place)
    if not np.array_equal(bits[examples].take(nearest, axis=0), bits):
        return None
    distinct, number = np.unique(values[examples], return_inverse=True)
    return number.ravel().take(nearest), distinct


def _words(values: NDArray[Any]) -> NDArray[Any]:
    """The bits of each value as a row of integers."""
    values = np.ascontiguousarray(values)
    size = next(size for size in (8, 4, 2, 1) if values.dtype.itemsize % size == 0)
    return values.view(f"u{size}").reshape(len(values), values.dtype.itemsize // size)


def numeric(values: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Values as float64 with NaN for missing; a ValueError if they are not numbers."""
    kind = values.dtype.kind
    gone = np.zeros(0, dtype=bool) if kind in "biuf" else missing(values)
    try:
        if kind in "biuf":
            out = values.astype(np.float64, copy=False)
        elif kind in "mM":
            unit = "datetime64[ns]" if kind == "M" else "timedelta64[ns]"
            out = np.where(gone, np.nan, values.astype(unit).astype(np.int64))
        else:
            out = np.full(len(values), np.nan)
            out[~gone] = values[~gone].astype(np.float64)
    except (TypeError, ValueError):
        example = next((value for value in values[~gone]), None)
        raise ValueError(
            f"{what} orders samples by a numeric label, but the label holds values such as {example!r}; "
            "use ClusteredGraph, or label_kinds 'categorical', for classes"
        ) from None
    if np.isinf(out).any():
        raise ValueError(f"{what}: the label holds infinite values; use NaN for missing ones")
    return out


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
