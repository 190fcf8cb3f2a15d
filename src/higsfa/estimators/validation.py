"""What all estimators share: a base class, and checks of what users pass."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import assert_all_finite
from sklearn.utils._array_api import get_namespace
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_array, validate_data

from higsfa.core.expansion.expansion import Expansion
from higsfa.core.graph.labels import KINDS, as_labels, label_names
from higsfa.core.sums.accumulate import PILOT
from higsfa.graphs import AutoGraph, GraphSum, SequenceGraph, as_recipe, check_weights
from higsfa.training.sources import Array, MappedFile, Source, as_source, collected, is_chunked

BUILT = "graph: a graph that is built has its sample_weight and groups already; pass them to recipe.build, not to fit"
LABEL_KINDS: list[Any] = [dict, StrOptions(set(KINDS)), None]
"""What the parameter `label_kinds` may be."""
LAG: list[Any] = [Interval(Integral, 1, None, closed="left"), "array-like"]
"""What the parameter `lag` may be."""
CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
"""What scikit-learn notes on an estimator whose fit has callbacks."""
LAZY_PILOT = 64
"""Samples that are looked at beforehand where reading them takes work."""


class Callbacks:
    """What scikit-learn's own mixin for callbacks does; its module takes long to import, so not before it is used."""

    def set_callbacks(self, *callbacks: Any) -> Any:
        """Set callbacks, which are told how far a fit is.

        Parameters
        ----------
        *callbacks : callbacks of scikit-learn

        Returns
        -------
        self
        """
        from sklearn.callback import CallbackSupportMixin

        return CallbackSupportMixin.set_callbacks(self, *callbacks)

    def _init_callback_context(self, **task: Any) -> Any:
        from sklearn.callback import CallbackSupportMixin

        return CallbackSupportMixin._init_callback_context(self, **task)


class Estimator(*([Callbacks] if find_spec("sklearn.callback") else []), BaseEstimator):  # type: ignore[misc]
    """An estimator whose HTML form links to our pages, and which takes callbacks where scikit-learn has them (1.9)."""

    def _get_doc_link(self) -> str:
        address = docs_address()
        return f"{address}/generated/higsfa.{type(self).__name__}.html" if address else ""


def docs_address() -> str:
    """Where the site is: ``HIGSFA_DOCS`` in the environment, or what ``make docs`` built beside this source; or ""."""
    built = Path(__file__).resolve().parents[3] / "docs" / "_build" / "html"
    return os.environ.get("HIGSFA_DOCS", built.as_uri() if (built / "index.html").exists() else "").rstrip("/")


@contextmanager
def fit_task(estimator: Any, X: Any, y: Any, max_subtasks: int = 0) -> Iterator[Any]:
    """A fit as a task that callbacks of scikit-learn are told of; yields its context, None if there are none."""
    if not getattr(estimator, "_skl_callbacks", None):
        yield None
        return
    context = estimator._init_callback_context(max_subtasks=max_subtasks)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    yield context
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=dict)


class Extractor(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """A scikit-learn transformer that makes `n_components_` features."""

    __metadata_request__transform = {"out": UNUSED}
    _needs_labels = False

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, groups: Any = None) -> float:
        """How slow the features of these samples are, on the graph of their labels or of time.

        The sum of max(0, 1 - Delta / 2) over all features, which are decorrelated one after the other first. Noise
        (Delta 2) adds nothing, nor does a feature that repeats others.

        Parameters
        ----------
        X : samples, as in `transform`
        y : labels, as in `fit`, optional
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            The recording of each sample, for graphs in time order.

        Returns
        -------
        float
            From 0 to the number of features; more is better.
        """
        Y = np.asarray(self.transform(X))
        recipe = as_recipe(self.graph) if hasattr(self, "graph") else SequenceGraph(self.lag)
        if isinstance(recipe, AutoGraph | GraphSum):
            taken, y = getattr(self, "label_kinds_", None) or {}, as_labels(y)
            kinds = taken if set(taken) == set(label_names(y)) else self.label_kinds
            recipe = recipe.settled(y, check_weights(sample_weight, len(Y)), kinds)
        graph = recipe.build(y, sample_weight=sample_weight, groups=groups, n_samples=len(Y))
        return float(graph.slowness(Y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = self._needs_labels
        return tags


def assign(given: dict[str, Any]) -> None:
    """Set the parameters of an estimator: called by its `__init__` with `locals()`, before anything else is there."""
    for name, value in given.items():
        if name != "self":
            setattr(given["self"], name, value)


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """A failed call leaves the estimator as it was."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        kept = {name: value for name, value in estimator.__dict__.items() if name in CALLBACKS}  # still to be ended
        estimator.__dict__.clear()
        estimator.__dict__.update(before | kept)
        raise


def product_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Precision of the products for data of this type."""
    single = dtype == np.uint8 or (dtype.kind == "f" and dtype.itemsize <= 4)
    return np.dtype(np.float32 if single else np.float64)


def working_dtype(X: Source, expansions: Iterable[Expansion]) -> tuple[np.dtype[Any], float]:
    """Type of the products when fitting, and the relative rounding of data and products.

    Products have the precision of the data, or double where that would not hold them.

    In single precision, numbers from 1e-38 to 1e38 have all their digits. Expanded inputs of degree d, squared, leave
    that range for inputs of 1e-19 or 1e19 (d = 1), of 1e-9 or 1e9 (d = 2), ..., so such data are multiplied in double
    precision. Some samples tell; the choice depends on nothing else, so that two fits agree.
    """
    dtype = product_dtype(X.dtype)
    precision = float(np.finfo(dtype).eps)
    if X.dtype != np.float32 or len(X) == 0:
        return dtype, precision
    at_hand = isinstance(X, Array | MappedFile)
    n = min(len(X), PILOT if at_hand else LAZY_PILOT)
    rows = np.linspace(0, len(X) - 1, n).astype(np.intp) if at_hand else np.arange(n)
    samples = X.take(rows).reshape(n, -1).astype(np.float64)
    low, high = samples.min(axis=0), samples.max(axis=0)
    spread = high - low
    varies = spread > 64 * np.finfo(np.float32).eps * np.abs(high)
    limit = 1e16 ** (1 / max(_degree(expansion) for expansion in expansions))
    fits = (spread >= 1 / limit) & (spread <= limit)
    return dtype if np.all(fits[varies]) else np.dtype(np.float64), precision


def _degree(expansion: Expansion) -> float:
    """The largest power of an input in its expansion; 2 where it is not known."""
    powers = (
        1.0 if term.is_linear else max(2.0, getattr(term, "degree", 2.0), getattr(term, "exponent", 2.0))
        for term in expansion.terms
    )
    return max(powers)


def _collected(estimator: Any, X: Any, allow_nd: bool) -> Any:
    """Samples from a list or a tensor; for a single node each is a row."""
    found, is_list = collected(X), isinstance(X, list | tuple) or getattr(X, "ndim", 0) == 1
    if is_list and len(X) == 0:
        if not hasattr(estimator, "n_features_in_"):
            raise ValueError("X: Found 0 sample(s): the list is empty")
        return np.empty((0, estimator.n_features_in_))
    if allow_nd or not is_list or not isinstance(found, np.ndarray) or found.ndim < 3:
        return found
    return found.reshape(len(found), -1)


def read_data(estimator: BaseEstimator, X: Any, **options: Any) -> np.ndarray:
    """Checked by scikit-learn, and numpy's whatever array X is; `like` turns features back."""
    with config_context(array_api_dispatch=False):
        return validate_data(estimator, X, **options)


def read_features(Y: Any, **options: Any) -> np.ndarray:
    """Features that inputs are rebuilt from; numpy's whatever array Y is, in its precision."""
    Y = np.asarray(Y) if hasattr(Y, "__dlpack__") else Y
    with config_context(array_api_dispatch=False):
        return check_array(Y, dtype=[np.float64, np.float32], ensure_min_samples=0, input_name="Y", **options)


def is_plain(estimator: Any, X: Any) -> bool:
    """Whether X is an array of numbers as it should be: most are, and then scikit-learn need not look at it."""
    is_array = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float64, np.float32) and len(X) > 0
    known = getattr(estimator, "n_features_in_", None)
    return bool(is_array and X.shape[1] == known and not hasattr(estimator, "feature_names_in_"))


def is_harmless(X: np.ndarray) -> bool:
    """Whether all numbers are finite and below 1e9, as one product tells; False if that is not certain."""
    if X.dtype.kind != "f":
        return bool(X.min(initial=0) >= -1e9 and X.max(initial=0) <= 1e9)  # abs of the least integer is negative
    with np.errstate(all="ignore"):
        flat = X.ravel(order="K")
        return bool(flat @ flat < 1e18)


def check_data(
    estimator: BaseEstimator,
    X: Any,
    *,
    reset: bool,
    min_samples: int = 1,
    allow_nd: bool = False,
    look: bool | None = None,
) -> Source:
    """X as a source of numeric samples; arrays and memmaps are not copied.

    `look` says whether arrays are searched for NaN and infinity; by default they are unless fitting.

    When fitting, NaN and infinity are found afterwards, from the sums, which is free; see `report_not_finite`. Only
    samples of weight 0 have to be looked at; see `check_left_out`.
    """
    if not reset and is_plain(estimator, X) and (look is False or (X.flags.forc and is_harmless(X))):
        return as_source(X)
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError("X is a masked array, and its mask would be ignored: fill it first")
    if not isinstance(X, np.ndarray) or X.dtype.kind in "OSU":
        X = _collected(estimator, X, allow_nd)
    lazy = isinstance(X, Source) or (hasattr(X, "chunks") and is_chunked(X))
    if lazy:
        source = as_source(X)
        n_features = int(np.prod(source.shape))
        if len(source) < min_samples:
            raise ValueError(f"Found {len(source)} sample(s) while a minimum of {min_samples} is required.")
        if reset:
            estimator.n_features_in_ = n_features
            if hasattr(estimator, "feature_names_in_"):
                del estimator.feature_names_in_
        elif n_features != estimator.n_features_in_:
            raise ValueError(
                f"X has {n_features} features, but {type(estimator).__name__} is expecting "
                f"{estimator.n_features_in_} features as input"
            )
    else:
        shape = None
        if allow_nd and getattr(X, "ndim", 2) > 2:
            X = np.asarray(X)
            shape, X = X.shape, X.reshape(len(X), prod(X.shape[1:]))  # no samples are samples, too
        X = read_data(
            estimator,
            X,
            reset=reset,
            dtype="numeric",
            ensure_all_finite=not reset if look is None else look,
            ensure_min_samples=min_samples,
        )
        source = X
    if source.dtype.kind not in "fiub":
        raise ValueError(f"X must hold numbers, got dtype {source.dtype}")
    if not lazy:
        source = as_source(X if shape is None else X.reshape(shape))
    return source


def warn_if_recording(y: Any, groups: Any) -> None:
    """Warn if labels, which are not used, look like the recording of each sample: long runs of one value each."""
    values = np.asarray(y) if groups is None else np.empty(0)
    if values.ndim != 1 or len(values) < 2 or values.dtype.kind not in "iuSUO":
        return
    if values.dtype.kind == "O" and not all(isinstance(value, str) for value in values):
        return
    n_runs = 1 + np.count_nonzero(values[1:] != values[:-1])
    if 1 < n_runs == len(set(values.tolist())) and len(values) >= 4 * n_runs:
        warnings.warn(
            f"y is not used: samples were taken as one recording; if y tells which of {n_runs} recordings each belongs "
            "to, pass it as groups=y",
            UserWarning,
            stacklevel=3,
        )


def warn_if_channels_first(shape: tuple[int, ...], n_dimensions: int) -> None:
    """Warn if samples look like pictures with the channels in front."""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 4:
        a, b, c = shape
        taken = f"{a} x {b} pixels with {c} channels" if n_dimensions == 2 else f"volumes of {a} x {b} x {c} points"
        warnings.warn(
            f"X: samples of shape {shape} were taken as {taken}; if they are pictures with {a} channel(s) in front, "
            "put these last: np.moveaxis(X, 1, -1)",
            UserWarning,
            stacklevel=4,
        )


def check_n_slow(n_slow: Any, n_components: Any, what: str = "") -> None:
    """Warn if more slow features are asked for than features."""
    if n_components is not None and isinstance(n_slow, Integral) and n_slow > n_components:
        warnings.warn(
            f"{what}n_slow={n_slow} is more than n_components={n_components}: all features are slow, and none are left "
            "to rebuild the input from",
            UserWarning,
            stacklevel=4,
        )


def batches(source: Source, rows: int) -> Iterator[tuple[slice, np.ndarray]]:
    """The whole source in order, `rows` samples at a time."""
    for lo in range(0, len(source), rows):
        hi = min(lo + rows, len(source))
        yield slice(lo, hi), source.between(lo, hi) if isinstance(source, Array) else source.take(np.arange(lo, hi))


@contextmanager
def explained(estimator: BaseEstimator, X: Source | None) -> Iterator[None]:
    """Sums that are not finite come from data that are not, or that are too large."""
    try:
        yield
    except FloatingPointError:
        if X is None:
            raise ValueError("statistics are not finite: the data were not, or their products overflowed") from None
        report_not_finite(estimator, X)


def report_not_finite(estimator: BaseEstimator, X: Source) -> None:
    """Raise the error that explains why sums are not finite."""
    for _, part in batches(X, _rows_at_once(X)):
        assert_finite(estimator, part)
    raise ValueError(
        f"X holds numbers too large for {product_dtype(X.dtype)} (their products overflow), or a function of the "
        "expansion returns some that are not finite: scale X down"
        + (", or pass it as float64" if product_dtype(X.dtype) == np.float32 else "")
    )


def check_left_out(estimator: BaseEstimator, X: Source, weights: np.ndarray) -> None:
    """NaN and infinity in samples of weight 0, which no sum may show."""
    rows = np.flatnonzero(weights == 0)
    if len(rows):
        step = _rows_at_once(X)
        for lo in range(0, len(rows), step):
            assert_finite(estimator, X.take(rows[lo : lo + step]))


def _rows_at_once(X: Source) -> int:
    return max(1, 2**22 // max(1, int(np.prod(X.shape))))


def assert_finite(estimator: BaseEstimator, samples: np.ndarray) -> None:
    flat = samples.reshape(len(samples), -1)
    assert_all_finite(flat, estimator_name=type(estimator).__name__, input_name="X")


def check_out(out: Any, shape: tuple[int, int], dtype: np.dtype[Any], source: Source) -> np.ndarray:
    """Where features go: a new array, or the array or memmap given."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if getattr(out, "shape", None) != shape:
        raise ValueError(f"out must be an array of shape {shape}, got {getattr(out, 'shape', type(out).__name__)}")
    if np.dtype(out.dtype).kind != "f":
        raise ValueError(f"out must hold floating-point numbers, got dtype {out.dtype}")
    if isinstance(source, Array) and isinstance(out, np.ndarray) and np.may_share_memory(out, source.X):
        raise ValueError("out must not share memory with X: samples would be overwritten before they are read")
    return out


def dask_transform(estimator: Any, X: Any) -> Any:
    """Features of a dask array, as a dask array: one block of samples at a time, inside workers."""
    whole = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    return whole.map_blocks(
        estimator.transform,
        dtype=product_dtype(X.dtype),
        chunks=(whole.chunks[0], (estimator.n_components_,)),
        drop_axis=list(range(2, X.ndim)),
        meta=np.empty((0, 0), dtype=product_dtype(X.dtype)),
    )


def like(X: Any, Y: Any) -> Any:
    """Features as the kind of array that X is, where ``array_api_dispatch`` of scikit-learn asks for it."""
    if not get_config()["array_api_dispatch"] or isinstance(X, np.ndarray | Source | list | tuple):
        return Y
    xp, is_array_api = get_namespace(X)
    return xp.asarray(Y, device=X.device) if is_array_api else Y


def is_dask(X: Any) -> bool:
    """Whether X is a dask array."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "map_blocks")


def feature_names(prefix: str, n_slow: int, n_components: int) -> list[str]:
    """Names of a node's features: the slow ones, then the reconstructive ones."""
    return [f"{prefix}_slow{j}" for j in range(n_slow)] + [f"{prefix}_rec{j}" for j in range(n_components - n_slow)]
