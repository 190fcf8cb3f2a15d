"""The paper's global linear reconstruction, x ~ D y + c, learned from sums over the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from numbers import Real
from operator import add
from typing import Any

import numpy as np
from numpy.linalg import eigh
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_array, check_is_fitted

from higsfa.estimators.validation import batches, unchanged_on_error
from higsfa.training.sources import Source, as_source, is_chunked

Floats = NDArray[np.float64]

BLOCK_VALUES = 2**22  # pixels that are read at once
RANK_CUT = 1e-10  # fraction of the largest variance (of standardised features) below which a direction is constant


@dataclass(frozen=True, eq=False)
class PairSums:
    """Moments of features y (k) and pixels x (P): what linear regression of x on y needs."""

    count: int
    mean_y: Floats
    mean_x: Floats
    yy: Floats  # (k, k): sums of products of deviations from the means
    yx: Floats  # (k, P)
    xx: float  # of all pixels together

    @classmethod
    def of(cls, Y: NDArray[Any], X: NDArray[Any]) -> PairSums:
        Y, X = Y.astype(np.float64), X.astype(np.float64)
        mean_y, mean_x = Y.mean(axis=0), X.mean(axis=0)
        Y, X = Y - mean_y, X - mean_x
        return cls(len(Y), mean_y, mean_x, Y.T @ Y, Y.T @ X, float(np.vdot(X, X)))

    def __add__(self, other: PairSums) -> PairSums:
        n = self.count + other.count
        dy, dx = other.mean_y - self.mean_y, other.mean_x - self.mean_x
        share = other.count / n
        w = self.count * share
        return PairSums(
            n,
            self.mean_y + share * dy,
            self.mean_x + share * dx,
            self.yy + other.yy + w * np.outer(dy, dy),
            self.yx + other.yx + w * np.outer(dy, dx),
            self.xx + other.xx + w * float(dx @ dx),
        )

    def solve(self, alpha: float) -> tuple[Floats, Floats]:
        """Components (k, P) and intercept (P,) of least |x - D y - c|^2 + alpha |D|^2; ties go to the smallest."""
        A = self.yy + alpha * np.eye(len(self.yy))
        scale = np.sqrt(np.diag(A))
        unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        values, vectors = eigh(A * np.outer(unit, unit))
        kept = values > RANK_CUT * values.max(initial=0.0)
        V = (unit[:, None] * vectors[:, kept]) / np.sqrt(values[kept])
        components = V @ (V.T @ self.yx)
        return components, self.mean_x - self.mean_y @ components

    def error(self, components: Floats, intercept: Floats) -> float:
        """The normalised reconstruction error; NaN if all images are equal."""
        shift = self.mean_x - self.mean_y @ components - intercept
        fitted = self.yy @ components - 2 * self.yx
        residual = self.xx + float(np.vdot(components, fitted)) + self.count * float(shift @ shift)
        return max(0.0, residual) / self.xx if self.xx else float("nan")


class LinearReconstruction(BaseEstimator):
    r"""Images from features by one linear map for all of them, :math:`\hat x = D y + c`.

    This is how the paper measures what features retain of the input. The map is learned by least squares, in float64
    and one pass over the data.

    Parameters
    ----------
    alpha : float, default=0.0
        Weight of the squared length of D (ridge regression). With 0, features may still be constant or linearly
        dependent: of the best maps, the shortest is taken.

    Attributes
    ----------
    components_ : array of shape (n_features, n_pixels)
        The transpose of D.
    intercept_ : array of shape (n_pixels,)
        c.
    mean_ : array of shape (n_pixels,)
        Mean training image.
    feature_mean_, feature_scale_ : arrays of shape (n_features,)
        Mean and standard deviation of the training features.
    error_ : float
        Normalised reconstruction error on the training data: 0 is perfect, 1 is that of the mean image. NaN if all
        images are equal.
    image_shape_ : tuple of int
    n_samples_seen_ : int
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.reconstruction import LinearReconstruction
    >>> Y = np.random.default_rng(0).normal(size=(50, 3))
    >>> images = (Y @ np.arange(12.0).reshape(3, 4) + 1).reshape(50, 2, 2)
    >>> model = LinearReconstruction().fit(Y, images)
    >>> model.predict(Y[:5]).shape, bool(model.error_ < 1e-12)
    ((5, 2, 2), True)
    """

    _parameter_constraints: dict[str, Any] = {"alpha": [Interval(Real, 0, None, closed="left")]}

    def __init__(self, alpha: float = 0.0) -> None:
        self.alpha = alpha

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, Y: Any, images: Any) -> LinearReconstruction:
        """Learn the map.

        Parameters
        ----------
        Y : array, memmap or source of shape (n_samples, n_features)
            Features.
        images : array, memmap or source of shape (n_samples, ...)
            What they were extracted from: images, or rows of pixels. Read once, block by block.

        Returns
        -------
        self
        """
        return self._learn(Y, images, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, Y: Any, images: Any) -> LinearReconstruction:
        """Learn from more samples, given as in `fit`; the result is that of `fit` on all of them, up to rounding."""
        return self._learn(Y, images, getattr(self, "sums_", None))

    def _learn(self, Y: Any, images: Any, before: PairSums | None) -> LinearReconstruction:
        with unchanged_on_error(self):
            sums, shape = _gather(Y, images), samples(images, "images").shape
            if before is None:
                self.image_shape_ = tuple(shape)
            else:
                self._check_sizes(len(sums.mean_y), shape)
                sums = before + sums
            self.sums_ = sums
            self.components_, self.intercept_ = sums.solve(float(self.alpha))
            self.error_ = sums.error(self.components_, self.intercept_)
            self.mean_ = sums.mean_x
            self.feature_mean_ = sums.mean_y
            self.feature_scale_ = np.sqrt(np.diag(sums.yy) / sums.count)
            self.n_samples_seen_ = sums.count
            self.n_features_in_ = len(sums.mean_y)
        return self

    def predict(self, Y: Any) -> NDArray[Any]:
        """Reconstruct images.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, ...)
            float32 for float32 features, else float64.
        """
        check_is_fitted(self, "components_")
        Y = check_array(Y, dtype=[np.float64, np.float32], ensure_min_features=0, input_name="Y")
        self._check_sizes(Y.shape[1], self.image_shape_)
        images = Y @ self.components_.astype(Y.dtype) + self.intercept_.astype(Y.dtype)
        return np.asarray(images.reshape(len(Y), *self.image_shape_))

    def transform(self, Y: Any) -> NDArray[Any]:
        """The same as `predict`, for pipelines."""
        return self.predict(Y)

    def error(self, Y: Any, images: Any) -> float:
        """Normalised reconstruction error on other data, relative to their own variance as in the paper."""
        check_is_fitted(self, "components_")
        sums = _gather(Y, images)
        self._check_sizes(len(sums.mean_y), samples(images, "images").shape)
        return sums.error(self.components_, self.intercept_)

    def score(self, Y: Any, images: Any) -> float:
        """Explained part of the variance of all pixels together: 1 minus the normalised reconstruction error."""
        return 1.0 - self.error(Y, images)

    def _check_sizes(self, n_features: int, shape: tuple[int, ...]) -> None:
        if n_features != self.n_features_in_:
            raise ValueError(f"Y has {n_features} features, but the map was learned for {self.n_features_in_}")
        if int(np.prod(shape)) != len(self.intercept_):
            raise ValueError(f"images have shape {tuple(shape)}, but the map was learned for {self.image_shape_}")


def samples(X: Any, name: str) -> Source:
    """Samples that the user gave, as a source; none at all is a ValueError."""
    source = as_source(X if isinstance(X, Source) or is_chunked(X) else np.asarray(X))
    if len(source) == 0:
        raise ValueError(f"{name}: there are no samples")
    return source


def decode(decoder: Any, Y: Any) -> NDArray[Any]:
    """Images (n, ...) of features, by a LinearReconstruction or a model with `inverse_transform`."""
    if isinstance(decoder, LinearReconstruction):
        return decoder.predict(Y)
    if hasattr(decoder, "inverse_transform"):
        return np.asarray(decoder.inverse_transform(Y))
    raise TypeError(f"decoder must be a LinearReconstruction or a fitted network, got {type(decoder).__name__}")


def pairs(Y: Any, images: Any) -> tuple[Source, Source]:
    """Features and their images as sources of equal length."""
    features, pictures = samples(Y, "Y"), samples(images, "images")
    if len(features) != len(pictures):
        raise ValueError(f"Y holds features of {len(features)} samples, but there are {len(pictures)} images")
    if len(features.shape) != 1:
        raise ValueError(f"Y must have shape (n_samples, n_features), got samples of shape {features.shape}")
    return features, pictures


def _gather(Y: Any, images: Any) -> PairSums:
    """Sums over all samples, read block by block."""
    features, pictures = pairs(Y, images)
    step = max(1, BLOCK_VALUES // max(1, int(np.prod(pictures.shape))))
    blocks = zip(batches(features, step), batches(pictures, step), strict=True)
    sums = reduce(add, (PairSums.of(Y, X.reshape(len(X), -1)) for (_, Y), (_, X) in blocks))
    for name, total in (("Y", float(np.trace(sums.yy))), ("images", sums.xx)):
        if not np.isfinite(total):
            raise ValueError(f"{name}: NaN or infinite values; leave those samples out")
    return sums
