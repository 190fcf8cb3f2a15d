"""Recordings as users have them: one array, a list, a stack, tables with a time index; gaps and missing values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._set_output import _wrap_data_with_container

from higsfa.core.graph.build import recording_lengths
from higsfa.estimators.validation import assert_finite, batches, is_dask, is_harmless, like
from higsfa.training.sources import Array, Delayed, Source, as_source, collected, is_chunked

Ints = NDArray[np.intp]
TIME_INDICES = ("DatetimeIndex", "TimedeltaIndex", "PeriodIndex")


@dataclass(frozen=True, eq=False)
class Recordings:
    """Recordings, one below the other, and the form that they came in.

    Attributes
    ----------
    X : all samples: an array, a table or a source.
    lengths : of the recordings.
    groups : (N,) the recording of each row; None for a single one.
    parts : the recordings of a list, as they were given; else None.
    is_stack : whether they came as a stack.
    gaps : rows that do not follow the row before in their time index.
    """

    X: Any
    lengths: Ints
    groups: NDArray[Any] | None
    parts: Sequence[Any] | None = None
    is_stack: bool = False
    gaps: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    @classmethod
    def of(cls, X: Any, groups: Any = None) -> Recordings:
        """Read one array (with `groups`), a list of recordings, or a stack (recordings, samples, features)."""
        if type(X) is np.ndarray and X.ndim == 2 and groups is None:  # batches of a stream, mostly
            return cls(X, np.array([len(X)]), None)
        if _is_stack(X):
            X, lengths = np.asarray(X), np.full(X.shape[0], X.shape[1])
            cls._refuse_groups(groups, len(X))
            X = X.reshape(-1, X.shape[2])
            return cls(X, lengths, np.repeat(np.arange(len(lengths)), lengths), is_stack=True)
        parts = _parts(X)
        if parts is None:
            if not hasattr(X, "shape") and not hasattr(X, "__len__"):
                X = np.asarray(collected(X))
            has_shape = getattr(X, "shape", ()) and not isinstance(X, Source)  # a source has that of a sample
            n = X.shape[0] if has_shape else len(X) if hasattr(X, "__len__") else 0
            lengths = np.array([n]) if groups is None else recording_lengths(groups, n)
            return cls(X, lengths, None if groups is None else np.asarray(groups), gaps=_gaps(X, lengths))
        cls._refuse_groups(groups, len(parts))
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise ValueError(f"X: recordings must have the same features, but have {sorted(widths)} of them")
        lengths = np.array([len(part) for part in parts])
        begins = np.cumsum(lengths) - lengths
        gaps = [begin + _gaps(part, np.array([len(part)])) for begin, part in zip(begins, parts, strict=True)]
        own = np.repeat(np.arange(len(parts)), lengths)
        return cls(_joined(parts), lengths, own, parts, gaps=np.concatenate(gaps))

    @staticmethod
    def _refuse_groups(groups: Any, n: int) -> None:
        if groups is not None:
            raise ValueError(f"groups: X is {n} recordings already; pass no groups beside them")

    @property
    def are_complete(self) -> bool:
        """Whether X was a list or a stack of recordings, none of which goes on elsewhere."""
        return self.parts is not None or self.is_stack

    def in_form(self, values: Any, kept: Any = None) -> Any:
        """Rows for all samples, or for those that were kept, in the form that the recordings had."""
        if not self.are_complete:
            return values
        lengths = self.lengths
        if kept is not None:
            lengths = np.add.reduceat(kept, np.cumsum(lengths) - lengths) if len(kept) else lengths
        if self.is_stack:
            return values.reshape(len(lengths), -1, values.shape[-1])
        return np.split(values, np.cumsum(lengths)[:-1])

    def starts(self, missing: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Which rows do not follow the row before, because a recording begins or was cut."""
        begins = np.cumsum(self.lengths) - self.lengths
        starts = np.zeros(int(self.lengths.sum()), dtype=bool)
        starts[begins[self.lengths > 0]] = True
        starts[self.gaps] = True
        if missing is not None:
            starts[1:] |= missing[:-1]
        return starts

    def flat(self, values: Any, name: str, width: int | None = None) -> NDArray[np.float64] | None:
        """Weights of samples in the form of the recordings, or (N,), as (N,) or (N, width)."""
        if values is None:
            return None
        if isinstance(values, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array, and its mask would be ignored: fill it first")
        n = int(self.lengths.sum())
        if self.are_complete and len(values) == len(self.lengths) and np.ndim(values[0]) >= 1:
            values = np.concatenate([np.asarray(one, dtype=np.float64) for one in values])
        found = np.array(values, dtype=np.float64)  # the user may change the array
        if found.shape != (n,) and found.shape != (n, width):
            raise ValueError(f"{name} must have one entry per sample, got shape {found.shape} for {n} samples")
        if not np.all(np.isfinite(found)) or np.any(found < 0):
            raise ValueError(f"{name} must be finite and not negative")
        return found

    def warn_of_cuts(self, missing: NDArray[np.bool_] | None) -> None:
        """Say how many gaps and missing values cut the recordings into how many stretches."""
        n_missing = 0 if missing is None else int(missing.sum())
        if not n_missing and not len(self.gaps):
            return
        kept = np.ones(int(self.lengths.sum()), dtype=bool) if missing is None else ~missing
        causes = [f"its time index has {len(self.gaps)} gaps"] if len(self.gaps) else []
        causes += [f"{n_missing} of {len(kept)} samples have missing values and are left out"] if n_missing else []
        n_before, n_after = np.count_nonzero(self.lengths), np.count_nonzero(self.starts(missing) & kept)
        warnings.warn(
            f"X: {' and '.join(causes)}, which cuts {n_before} recording{'' if n_before == 1 else 's'} into {n_after} "
            f"stretch{'' if n_after == 1 else 'es'}; no transition is made over a cut",
            UserWarning,
            stacklevel=4,
        )


def _is_stack(X: Any) -> bool:
    """Whether X is an array (recordings, samples, features); sources hold samples of any shape."""
    is_source = isinstance(X, Source) or (hasattr(X, "chunks") and is_chunked(X))
    return not is_source and getattr(X, "ndim", 0) == 3 and hasattr(X, "__array__")


def _parts(X: Any) -> Sequence[Any] | None:
    """The recordings of a list; None if X is none."""
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype == object:
        X = X.tolist()
    if isinstance(X, list | tuple):
        is_nested = all(isinstance(one, list | tuple) and len(one) and np.ndim(one) == 2 for one in X[:1])
        parts = [np.asarray(one) for one in X] if len(X) and is_nested else list(X)
        return parts if parts and all(getattr(one, "ndim", 0) == 2 and hasattr(one, "shape") for one in parts) else None
    return None


def _joined(parts: Sequence[Any]) -> Any:
    """All recordings one below the other; a table if they are tables with the same columns."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([np.asarray(part) for part in parts])
    columns = getattr(parts[0], "columns", None)
    if columns is None:
        return values
    if any(list(getattr(part, "columns", ())) != list(columns) for part in parts):
        raise ValueError("X: the tables of a list must have the same columns in the same order")
    return type(parts[0])(values, columns=columns)


def _gaps(X: Any, lengths: Ints) -> Ints:
    """Rows that follow the row before by another step than usual: more than half of the median step off."""
    index: Any = getattr(X, "index", None)
    if type(index).__name__ not in TIME_INDICES or len(X) < 2:
        return np.zeros(0, dtype=np.intp)
    steps = np.diff(np.asarray(index.asi8))
    within = np.ones(len(steps), dtype=bool)
    within[np.cumsum(lengths)[:-1] - 1] = False
    back = np.flatnonzero(within & (steps <= 0))
    if len(back):
        raise ValueError(
            f"X: its time index does not increase at row {back[0] + 1} ({index[back[0] + 1]}): sort the rows by time, "
            "and tell recordings apart by groups"
        )
    usual = np.median(steps[within]) if within.any() else 0.0
    return np.flatnonzero(within & (np.abs(steps - usual) > usual / 2)) + 1


def missing_rows(estimator: Any, X: Source) -> NDArray[np.bool_] | None:
    """Samples with missing values (NaN); None if there are none. An error for infinite values."""
    if X.dtype.kind != "f":
        return None
    found = np.zeros(len(X), dtype=bool)
    for rows, part in batches(X, max(1, 2**22 // max(1, prod(X.shape)))):
        found[rows] = _missing(estimator, part.reshape(len(part), -1))
    return found if found.any() else None


def _missing(estimator: Any, X: NDArray[Any]) -> NDArray[np.bool_] | bool:
    with np.errstate(all="ignore"):
        # Far cheaper than looking at every value.
        if X.dtype.kind != "f" or (X.flags.forc and is_harmless(X)) or np.isfinite(X.sum(dtype=np.float64)):
            return False
    found = np.isnan(X).any(axis=1)
    if np.isinf(X).any():
        assert_finite(estimator, np.nan_to_num(X, nan=0.0, posinf=np.inf, neginf=-np.inf))
    return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Series:
    """Samples that sums are taken over: those of unbroken stretches, each with its past.

    Attributes
    ----------
    source : the samples; with delays also those before each of them, as further features.
    lengths : of the stretches.
    rows : the row of each sample.
    """

    source: Source
    lengths: Ints
    rows: Ints

    @classmethod
    def of(
        cls, source: Source, starts: NDArray[np.bool_], missing: Any = None, delays: int = 0, step: int = 1
    ) -> Series:
        """Without missing samples, and without those at the beginning of stretches that have not enough past."""
        rows = np.arange(len(source))
        if not delays and missing is None:
            return cls(source, np.diff(np.flatnonzero(starts), append=len(rows)), rows)
        begin = np.maximum.accumulate(np.where(starts, rows, 0)) if len(rows) else rows
        kept = rows - begin >= delays * step
        if missing is not None:
            kept &= ~missing
        rows, begin = rows[kept], begin[kept]
        lengths = np.diff(np.flatnonzero(np.diff(begin, prepend=-1)), append=len(rows))
        return cls(Delayed.of(source, rows, begin, delays, step) if delays else source[rows], lengths, rows)

    def part(self, which: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Some of the samples: their positions, and the lengths of the stretches that they make."""
        at = np.flatnonzero(which)
        stretch = np.repeat(np.arange(len(self.lengths)), self.lengths)[at]
        begins = np.ones(len(at), dtype=bool)
        begins[1:] = (np.diff(at) != 1) | (np.diff(stretch) != 0)
        return at, np.diff(np.flatnonzero(begins), append=len(at))


class OverRecordings:
    """Transformers of recordings: the output has the form of the input."""

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None, **fit_params: Any) -> Any:
        """Fit, and transform the same recordings.

        Parameters
        ----------
        X, y, groups : as in `fit`
        **fit_params : further parameters of `fit`

        Returns
        -------
        As `transform`.
        """
        given: Any = self
        return given.fit(X, y, groups=groups, **fit_params).transform(X, groups=groups)

    def transform(self, X: Any, out: Any = None, groups: Any = None) -> Any:
        """Extract features of one or several recordings, sample by sample.

        A sample with missing values has features that are NaN.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), source, table, list of recordings, or a stack of them
        out : array or memmap of shape (n_samples, n_components), optional
            Where to put the features, for more samples than fit in memory.
        groups : array-like of shape (n_samples,), optional
            The recording of each sample; it matters for delays only, which do not reach beyond its beginning.

        Returns
        -------
        array of shape (n_samples, n_components), or a list or a stack of those, as X is one
        """
        if is_dask(X):
            return self._dask_features(X)
        given = Recordings.of(X, groups)
        if given.are_complete and out is not None:
            raise ValueError("out goes with one array of samples, not with a list or a stack of recordings")
        values, kept = self._features(given, out)
        found = given.in_form(values, kept)
        if given.parts is None:
            return found if given.is_stack or kept is not None else self._contained(found, X)
        return found if kept is not None else list(map(self._contained, found, given.parts))

    def _contained(self, values: Any, X: Any) -> Any:
        """Features of one array or table, in the container that `set_output` asks for."""
        return _wrap_data_with_container("transform", like(X, values), X, self)

    def _features(self, given: Recordings, out: Any) -> tuple[Any, Any]:
        """Features of all samples, or of those that are kept, and which are; None for all."""
        raise NotImplementedError

    def _dask_features(self, X: Any) -> Any:
        raise TypeError(f"{type(self).__name__} cannot transform a dask array with delays, which reach beyond chunks")

    def inverse_transform(self, Y: Any, groups: Any = None) -> Any:
        """Reconstruct inputs linearly from features.

        With delays each sample is the mean of its reconstructions from all rows that it is part of.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components), or a list or a stack of those
        groups : array-like of shape (n_samples,), optional
            The recording of each row, which matters for delays only.

        Returns
        -------
        array of shape (n_samples, n_features), or a list or a stack of those, as Y is one
        """
        given = Recordings.of(Y, groups)
        values, lengths = self._inverse(given)
        return replace(given, lengths=lengths).in_form(values)

    def _inverse(self, given: Recordings) -> Any:
        """Inputs of all recordings, and how many samples each of them has."""
        raise NotImplementedError


def with_past(
    estimator: Any, source: Source, given: Recordings, delays: int, step: int = 1
) -> tuple[Source, NDArray[np.bool_] | None, Ints]:
    """All samples with those before them; which have missing values (0 stands for them); positions in stretches."""
    missing = missing_rows(estimator, source) if isinstance(source, Array) else None
    if missing is not None:
        filled = np.array(source.take(np.arange(len(source))))
        filled[missing] = 0.0
        source = as_source(filled)
    if not delays:  # nobody asks how much past there is
        return source, missing, np.zeros(len(source), dtype=np.intp)
    rows = np.arange(len(source))
    begin = np.maximum.accumulate(np.where(given.starts(missing), rows, 0)) if len(rows) else rows
    return Delayed.of(source, rows, begin, delays, step), missing, rows - begin


def averaged(embedded: NDArray[Any], starts: NDArray[np.bool_], delays: int, step: int) -> NDArray[Any]:
    """The signal (n, I) from reconstructions (n, (delays + 1) I) of each sample with its past: means over all rows."""
    n, width = len(embedded), embedded.shape[1] // (delays + 1)
    total, count = np.zeros((n, width)), np.zeros((n, 1))
    position = np.arange(n) - np.maximum.accumulate(np.where(starts, np.arange(n), 0)) if n else np.zeros(0)
    there = np.isfinite(embedded).all(axis=1)
    for k in range(delays + 1):
        rows = np.flatnonzero(there & (position >= k * step))  # earlier ones repeat the first sample
        total[rows - k * step] += embedded[rows, k * width : (k + 1) * width]
        count[rows - k * step] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.where(count > 0, count, np.nan), dtype=embedded.dtype)
