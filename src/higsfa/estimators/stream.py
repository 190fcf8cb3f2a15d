"""Estimators that are fitted batch by batch: samples wait until there are enough of them, features until asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from numbers import Real
from types import MethodType
from typing import Any

import numpy as np

from higsfa.core.expansion.expansion import as_expansion
from higsfa.estimators.node import NodeEstimator
from higsfa.estimators.validation import (
    assert_finite,
    check_data,
    is_harmless,
    is_plain,
    report_not_finite,
    unchanged_on_error,
)
from higsfa.training.gather import NodeData
from higsfa.training.sources import Array as ArraySource
from higsfa.training.sources import Source, as_source
from higsfa.training.statistics import MAX_CLASS_CHANNELS, GraphStatistics, Statistics

MAX_ROWS, MAX_VALUES = 16384, 2**22
"""Samples that wait, and values in them: as many as are summed in a block, and no more memory than a tile."""
TAIL = 64
"""Rows of memory for samples that were summed before, and that edges of those that wait reach back to."""


class exact:
    """A method that is there only where it is exact; elsewhere, asking for it tells why not and what to change."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self._method
        try:
            reason = estimator._why_inexact()
        except (TypeError, ValueError) as error:  # of a parameter: hasattr and dir must not fail
            reason = str(error)
        if reason:
            raise AttributeError(f"{type(estimator).__name__}.{self._method.__name__}: {reason}")
        return MethodType(self._method, estimator)


class StreamEstimator(NodeEstimator):
    """What estimators share that are fitted batch by batch."""

    def _why_inexact(self) -> str:
        """Why batches do not add up to a fit of all samples; empty if they do."""
        if self.center is None and not as_expansion(self.expansion).is_linear:
            return f"the expansion '{self.expansion}' acts on centred data: pass their mean beforehand, as center="
        return ""

    def _sum_batches(self, batches: tuple[dict[str, Any], ...]) -> Statistics:
        """Statistics of batches."""
        raise NotImplementedError

    def _with_known_shift(self, data: NodeData) -> NodeData:
        """The shift of the first batch serves all, so that their sums need not be brought together."""
        known, shift = self._statistics, getattr(self._statistics, "shift", None)  # a loaded model has no sums
        fits = known is not None and shift is not None and known.has_samples and len(shift) == data.frontend.n_variables
        return replace(data, shift=shift) if fits else data

    def _check_batch(self, X: Any, *, look: bool = True) -> tuple[Any, bool]:
        """Samples of a batch, as an array, or as a source where they are read piece by piece; whether they were looked
        at and are harmless."""
        is_first = not hasattr(self, "n_features_in_")
        if not is_first and is_plain(self, X) and (not look or is_harmless(X)):
            return X, look
        source = check_data(self, X, reset=is_first, look=None if look else False)
        if not isinstance(source, ArraySource):
            return source, False
        if is_first and look:  # later ones were looked at
            assert_finite(self, source.X)
        return source.X, False

    def _take_in(self, batch: dict[str, Any], forgetting: float, is_looked_at: bool = False) -> None:
        """Add a batch, of which `is_looked_at` says that it is harmless; features are worked out when asked for.

        A batch of a new kind is added at once, so that whatever is wrong with it is said here. Samples that wait are
        copied: the user may change the array.
        """
        if not isinstance(forgetting, Real) or not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}")
        params = [getattr(self, name) for name in _param_names(type(self))]
        params = [value.tobytes() if isinstance(value, np.ndarray) else value for value in params]
        kind = [*batch, *map(_kind, batch.values()), *params]
        is_new = self._known_kind is None or not _same(kind, self._known_kind)
        if forgetting < 1 or is_new:
            self._settle()
            if forgetting < 1 and self._statistics is not None:
                self._statistics = self._statistics.scaled(forgetting)
        X, n = batch["X"], sum(len(one["X"]) for one in self._pending)
        limit = most_rows(self.n_features_in_)
        is_large = not is_looked_at and not (isinstance(X, np.ndarray) and is_harmless(X))  # overflows are told here
        is_due = n + 2 * len(X) > limit or is_new or is_large  # no other one like it has place
        waits = not is_due or (n > 0 and n + len(X) <= limit)  # then they are side by side
        self._pending = (*self._pending, batch | {"X": self._behind(n, X)} if waits else batch)
        self._solved = None
        if is_due:
            self._settle()
            self._known_kind = kind

    _memory: Any = None  # of samples that wait, used again; a tail has room before them

    def _behind(self, n: int, X: np.ndarray) -> np.ndarray:
        """A copy of samples, behind n others that wait."""
        if n == 0:
            self._reserve(most_rows(X.shape[1]), X.shape[1], X.dtype)
        kept: np.ndarray = self._memory[TAIL + n : TAIL + n + len(X)]
        kept[...] = X
        return kept

    def _reserve(self, n: int, width: int, dtype: np.dtype[Any]) -> None:
        """Memory for so many samples: fresh memory is cleared page by page, which takes longer than to copy them."""
        known = self._memory
        if known is None or len(known) < TAIL + n or known.shape[1] != width or known.dtype != dtype:
            self._memory = np.empty((TAIL + n, width), dtype)

    def _together(self, parts: list[Any]) -> Any:
        """Batches one after the other; those that wait lie so already."""
        if len(parts) == 1:
            return parts[0]
        n, n_tail = sum(map(len, parts)), len(parts[0])
        wait = [self._memory is not None and part.base is self._memory for part in parts]
        if all(wait):
            return self._memory[TAIL : TAIL + n]
        if all(wait[1:]) and n_tail <= TAIL and parts[0].dtype == self._memory.dtype:
            whole = self._memory[TAIL - n_tail : TAIL - n_tail + n]
            whole[:n_tail] = parts[0]
            return whole
        if any(wait) or n * parts[0].shape[1] > MAX_VALUES:
            return np.concatenate(parts)
        self._reserve(n, parts[0].shape[1], np.result_type(*parts))
        return np.concatenate(parts, out=self._memory[TAIL : TAIL + n])

    def _settle(self) -> None:
        """Add the sums of all batches that wait; after an error they wait as before."""
        if not self._pending:
            return
        with unchanged_on_error(self), np.errstate(all="ignore"):
            new = self._sum_batches(self._pending)
            if not new.sums.is_finite():
                report_not_finite(self, as_source(joined(self._pending, "X")))
            if isinstance(self._statistics, GraphStatistics):
                raise ValueError(
                    f"partial_fit cannot continue this fit: its {self._statistics} are not kept class by class, as "
                    f"they are for up to {MAX_CLASS_CHANNELS} classes of one label"
                )
            # Sums without samples have no shift, which is that of the first samples.
            has_samples = self._statistics is not None and self._statistics.has_samples
            self._statistics = self._statistics + new if has_samples else new
            self._pending = ()

    def __getstate__(self) -> Any:
        self._settle()  # no samples in a pickle
        self._memory = None
        return super().__getstate__()

    def set_params(self, **params: Any) -> Any:
        """Set parameters; batches that wait are summed with the old ones first."""
        self._settle()
        return super().set_params(**params)


@cache
def _param_names(cls: type) -> tuple[str, ...]:
    return tuple(cls._get_param_names())  # type: ignore[attr-defined]


def most_rows(n_features: int) -> int:
    """Samples with so many features that may wait."""
    return min(MAX_ROWS, MAX_VALUES // n_features)


def joined(batches: tuple[dict[str, Any], ...], key: str) -> Any:
    """What the batches hold under a key, one after the other; None if they hold nothing."""
    values = [batch[key] for batch in batches]
    if values[0] is None or len(values) == 1:
        return values[0]
    return np.concatenate(values)


def _kind(value: Any) -> Any:
    """What tells batches apart that cannot be put one after the other without changing a value."""
    if isinstance(value, Source):
        return type(value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "O":
        return sorted({issubclass(one, str | bytes) for one in map(type, value.tolist()) if one is not type(None)})
    return value.dtype.kind if value.dtype.kind in "SU" else value.dtype


def _same(kind: list[Any], other: list[Any]) -> bool:
    plain = str | bytes | float | int | list | np.dtype
    return len(kind) == len(other) and all(
        a is b or (isinstance(a, plain) and type(a) is type(b) and a == b) for a, b in zip(kind, other, strict=True)
    )
