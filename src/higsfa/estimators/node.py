"""What SFA, GSFA, ISFA and IGSFA have in common: one node behind a scikit-learn facade."""

from __future__ import annotations

import warnings
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array

from higsfa.core.expansion.expansion import Expansion, as_expansion
from higsfa.core.graph.build import NotEnoughData
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.held_out import HeldOut, cross_validated
from higsfa.core.node.node import Node
from higsfa.core.node.solve import AUTO, NodeOptions
from higsfa.core.sums.tile import tile_rows
from higsfa.estimators.validation import (
    Extractor,
    assert_finite,
    batches,
    check_data,
    check_left_out,
    check_n_slow,
    check_out,
    dask_transform,
    explained,
    feature_names,
    is_dask,
    like,
    product_dtype,
    read_features,
    report_not_finite,
    unchanged_on_error,
    working_dtype,
)
from higsfa.training.gather import NodeData, column_means, reader_of
from higsfa.training.sources import Array, Source
from higsfa.training.statistics import Origin, Statistics


class NodeEstimator(Extractor):
    """A single node: shared parameters, `transform`, `inverse_transform`, `fit_from_statistics`."""

    _preserve = False
    _statistics: Statistics | None = None
    _solved: Node | None = None
    _pending: tuple[dict[str, Any], ...] = ()  # batches whose sums have not been taken yet
    _known_kind: Any = None  # of the batches so far
    _chosen: NodeOptions | None = None  # on folds
    held_out_: HeldOut | None = None
    _final: HeldOut | None = None  # all features, with the shrinkage that was chosen

    _parameter_constraints: dict[str, Any] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "expansion": [str, Expansion, callable, list, tuple],
        "shrinkage": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "clip_range": ["boolean"],
        "center": ["array-like", None],
        "cv": ["cv_object"],
    }
    _preserving_constraints: dict[str, Any] = {
        "delta_threshold": [Interval(Real, None, None, closed="neither")],
        "n_slow": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"}), None],
        "scaling": [StrOptions({"sensitivity", "qr"})],
        "min_scale": [Interval(Real, 0, 1, closed="left")],
        "weighted": ["boolean"],
    }

    def _accepts(self, origin: Origin) -> bool:
        """Whether statistics for this graph are what the estimator would gather."""
        raise NotImplementedError

    def _options(self, *, as_given: bool = False) -> NodeOptions:
        """What the node shall extract: with what was chosen, or only what the parameters say."""
        shared: dict[str, Any] = {
            "n_components": self.n_components,
            "preserve": self._preserve,
            "shrinkage": self.shrinkage if self.shrinkage == AUTO else float(self.shrinkage),
        }
        if self._preserve:
            shared |= {
                "delta_threshold": float(self.delta_threshold),
                "n_slow": self.n_slow,
                "scaling": self.scaling,
                "min_scale": float(self.min_scale),
                "weighted": bool(self.weighted),
                "all_deltas": True,
            }
        wanted = NodeOptions(**shared)
        if as_given or AUTO not in (self.shrinkage, wanted.n_slow):
            return wanted
        return wanted.settled() if self._chosen is None else self._chosen

    def _data(self, X: Source, weights: NDArray[np.float64] | None = None) -> NodeData:
        """What sums are gathered from; the centre is found in a pass of its own where it matters and is not given."""
        n_features = int(np.prod(X.shape))
        center = self._given_center(n_features)
        expansion = as_expansion(self.expansion)
        expansion.layout(n_features)  # a slice that does not fit is an error before anything is read
        if weights is not None:
            check_left_out(self, X, weights)
        dtype, precision = working_dtype(X, [expansion])
        read = reader_of(X, dtype)
        if center is None:
            assert weights is not None
            center = column_means(read, len(X), n_features, weights)
            if not np.all(np.isfinite(center)):
                report_not_finite(self, X)
        return NodeData(read, Frontend(expansion, 1, n_features, center), dtype, precision)

    def _given_center(self, n_features: int) -> NDArray[np.float64] | None:
        """The centre if it is known before the data are: given, or 0 where the expansion is linear."""
        if self.center is not None:
            center = check_array(self.center, ensure_2d=False, dtype=np.float64, input_name="center")
            if center.shape != (n_features,):
                raise ValueError(f"center must have shape ({n_features},), one entry per feature, got {center.shape}")
            return np.array(center)  # the user may change the array
        return np.zeros(n_features) if as_expansion(self.expansion).is_linear else None

    def _adopt(self, statistics: Statistics, divisions: Any = (), X: Source | None = None, noise: float = 2.0) -> None:
        """Take these sums for those of all samples, choose by divisions of them what is open, and solve.

        `noise` is the Delta of noise on unseen samples.
        """
        self._statistics, self._pending, self._known_kind = statistics, (), None
        self._chosen, self.held_out_, self._final = None, None, None
        found = []
        for train, test in divisions:
            with suppress(NotEnoughData), explained(self, X):
                found.append((train.covariances(), test.covariances()))
        if found:
            n_expanded, options = statistics.frontend.n_expanded, self._options(as_given=True)
            self._chosen, self.held_out_, self._final = cross_validated(found, n_expanded, options, noise)
        self._solved = self._solve(X)

    def _solve(self, X: Source | None = None) -> Node:
        """The node; X is read again only to explain what is wrong with it."""
        options, statistics = self._options(), self._statistics
        assert statistics is not None
        n_vanished, asked = statistics.n_vanished(), self.n_components
        with explained(self, X):
            node = statistics.solve(options, clip_range=bool(self.clip_range))
        if self._preserve:
            check_n_slow(self.n_slow, asked)
        if n_vanished:
            is_single = statistics.precision > 1e-10
            warnings.warn(
                f"X: {n_vanished} of {statistics.frontend.n_variables} variables are so small that their squares "
                f"vanish in {'single' if is_single else 'double'} precision, so they count as constant: scale X up"
                + (", or pass it as float64" if is_single else ""),
                UserWarning,
                stacklevel=4,
            )
        if asked is not None and node.n_components < asked:
            warnings.warn(
                f"n_components={asked} asked for, but the data support {node.n_components}: the covariance of the "
                f"{node.frontend.n_expanded} expanded variables has rank {node.rank}",
                UserWarning,
                stacklevel=4,
            )
        elif node.n_components == 0:
            warnings.warn(
                "X is constant up to rounding: there are no features, and transform returns no columns",
                UserWarning,
                stacklevel=4,
            )
        return node

    def _settle(self) -> None:
        """Add the sums of batches that wait; there are none unless an estimator is fitted batch by batch."""

    @property
    def statistics_(self) -> Statistics:
        """The sums behind the fit."""
        self._settle()
        if self._statistics is None:
            raise NotFittedError(f"this {type(self).__name__} has no statistics_: call fit first")
        return self._statistics

    @property
    def _node(self) -> Node:
        """The trained node, worked out when it is asked for."""
        if self._solved is None:
            self._settle()
            if self._statistics is None:
                raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
            try:
                self._solved = self._solve()
            except NotEnoughData as error:
                raise NotFittedError(str(error)) from error
        return self._solved

    @property
    def n_components_(self) -> int:
        """Number of features."""
        return self._node.n_components

    @property
    def n_slow_(self) -> int:
        """Number of slow features."""
        return self._node.n_slow

    @property
    def rank_(self) -> int:
        """Rank of the covariance of the expanded data."""
        return self._node.rank

    @property
    def delta_values_(self) -> NDArray[np.float64]:
        """Delta values, slowest first."""
        node = self._node
        return node.delta_values[: None if self._preserve else node.n_components].copy()

    @property
    def shrinkage_(self) -> float:
        """The shrinkage that was used."""
        return float(self._options().shrinkage)

    @property
    def held_out_delta_values_(self) -> NDArray[np.float64] | None:
        """Delta values on samples that were left out of training, means over folds; None if there were no folds."""
        self._node  # noqa: B018  an error if nothing was fitted
        if self._final is None:
            return None
        deltas = self._final.mean_deltas(0)
        return deltas[np.isfinite(deltas)]

    @property
    def mean_(self) -> NDArray[np.float64]:
        """The centre that is subtracted from the input."""
        return self._node.frontend.center.copy()

    def fit_from_statistics(self, statistics: Statistics) -> Any:
        """Train from sums that were gathered elsewhere.

        Parameters
        ----------
        statistics : Statistics
            The `statistics_` of estimators with the same graph (or lag) and expansion, or a sum of several of them.

        Returns
        -------
        self
        """
        self._validate_params()
        if not isinstance(statistics, Statistics):
            raise TypeError(f"statistics must be the statistics_ of an estimator, got {type(statistics).__name__}")
        frontend = statistics.frontend
        if as_expansion(self.expansion) != frontend.expansion:
            raise ValueError(
                f"statistics were gathered with expansion '{frontend.expansion}', "
                f"this estimator has '{as_expansion(self.expansion)}'"
            )
        center = None if self.center is None else self._given_center(frontend.n_inputs)
        if center is not None and not np.array_equal(center, frontend.center):
            raise ValueError("statistics were gathered with another center than this estimator has")
        if not self._accepts(statistics.origin):
            raise ValueError(f"statistics were gathered for {statistics.origin}, which does not fit {self!r}")
        with unchanged_on_error(self):
            self._adopt(statistics)
        for name in ("feature_names_in_", "_tail", "_recording"):  # of what was fitted before
            self.__dict__.pop(name, None)
        self.n_features_in_ = statistics.frontend.n_inputs // (1 + getattr(self, "delays", 0))
        return self

    def transform(self, X: Any, out: Any = None) -> Any:
        """Extract features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a source, zarr array or dask array
        out : array or memmap of shape (n_samples, n_components), optional
            Where to put the features, for more samples than fit in memory.

        Returns
        -------
        array of shape (n_samples, n_components)
            float32 for float32 and uint8 input, else float64; a dask array if X is one.
        """
        self._node  # noqa: B018  an error if nothing was fitted
        if is_dask(X):
            return dask_transform(self, X)
        source = check_data(self, X, reset=False, min_samples=0)
        out = check_out(out, (len(source), self._node.n_components), product_dtype(source.dtype), source)
        return like(X, self._encode(source, out))

    def _encode(self, X: Source, out: Any) -> Any:
        work = product_dtype(X.dtype) if self._node.fits_single else np.dtype(np.float64)
        for rows, part in batches(X, 4 * tile_rows(self._node.frontend.n_variables, work.itemsize)):
            if not isinstance(X, Array):  # arrays were looked at
                assert_finite(self, part)
            flat = part.reshape(len(part), -1).astype(work, copy=False)
            if out.dtype == work and self._node.is_affine:
                self._node.encode(flat.T, out[rows].T)
            else:
                out[rows] = self._node.encode(flat.T).T
        return out

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Reconstruct inputs linearly from features: Algorithm 3 of the paper, least squares for SFA and GSFA.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components)

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        return self._decode(Y)

    def _decode(self, Y: Any, finite: Any = True) -> np.ndarray:
        self._node  # noqa: B018
        if getattr(Y, "shape", ())[1:] == (0,):
            Y = np.asarray(Y, dtype=np.float64)  # a DataFrame without columns has no type that could be checked
        given, Y = Y, read_features(Y, ensure_min_features=0, ensure_all_finite=finite)
        if Y.shape[1] != self._node.n_components:
            raise ValueError(f"Y has {Y.shape[1]} features, but {type(self).__name__} makes {self._node.n_components}")
        return like(given, np.ascontiguousarray(self._node.decode(Y.T).T))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the class and kind: ``igsfa_slow0`` ... for slow features, ``igsfa_rec0`` ... for the others."""
        names = feature_names(type(self).__name__.lower(), self.n_slow_, self.n_components_)
        return np.asarray(names, dtype=object)
