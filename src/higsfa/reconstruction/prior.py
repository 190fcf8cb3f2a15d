"""How images differ from a first guess: the Gaussian that keeps refined images among plausible ones."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.linalg import eigh
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from higsfa.reconstruction.linear import decode, samples

Floats = NDArray[np.float64]


class ImagePrior(BaseEstimator):
    """A Gaussian over corrections of a reconstruction: some principal components, and the same variance in the rest.

    With features and a decoder the corrections are what the decoder misses in training images. Moving an image as
    little as possible, measured in the spread of these corrections, is the best guess of what it lacks. Without them
    the spread of the images about their mean is taken.

    Parameters
    ----------
    n_components : int, default=300
        Principal components; fewer if there are fewer samples. For less than a thousand images take about a twentieth
        of their number: directions estimated from few images mislead.
    max_samples : int, default=1500
        Most training images to look at; evenly spaced ones if there are more.

    Attributes
    ----------
    components_ : array of shape (n_components, n_pixels)
    variances_ : array of shape (n_components,)
        Variances along the components.
    residual_variance_ : float
        Variance of every other direction.
    feature_scale_ : array of shape (n_features,), or None
        Standard deviation of the features that `fit` was given.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.reconstruction import ImagePrior
    >>> images = np.random.default_rng(0).normal(size=(100, 6)) * [5, 1, 1, 1, 1, 1]
    >>> prior = ImagePrior(n_components=1).fit(images)
    >>> prior.components_.shape, bool(prior.variances_[0] > 10 * prior.residual_variance_)
    ((1, 6), True)
    """

    _parameter_constraints: dict[str, Any] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [Interval(Integral, 2, None, closed="left")],
    }

    def __init__(self, n_components: int = 300, *, max_samples: int = 1500) -> None:
        self.n_components = n_components
        self.max_samples = max_samples

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, images: Any, Y: Any = None, decoder: Any = None) -> ImagePrior:
        """Learn the spread of corrections.

        Parameters
        ----------
        images : array, memmap or source of shape (n_samples, ...)
        Y : array, memmap or source of shape (n_samples, n_features), optional
            Features of the images.
        decoder : LinearReconstruction or fitted network, optional
            What makes the first guess from the features.

        Returns
        -------
        self
        """
        if (Y is None) != (decoder is None):
            raise ValueError("Y and decoder go together: the prior needs both to see what the decoder misses")
        source = samples(images, "images")
        if len(source) < 2:
            raise ValueError("images: a prior needs at least two of them")
        rows = np.linspace(0, len(source) - 1, min(len(source), self.max_samples)).round().astype(np.intp)
        X = source.take(rows).reshape(len(rows), -1).astype(np.float64)
        self.feature_scale_ = None
        if decoder is not None:
            features = samples(Y, "Y")
            if len(features) != len(source):
                raise ValueError(f"Y holds features of {len(features)} samples, but there are {len(source)} images")
            chosen = features.take(rows).astype(np.float64)
            X -= decode(decoder, chosen).reshape(len(rows), -1)
            self.feature_scale_ = chosen.std(axis=0)
        X -= X.mean(axis=0)
        if not np.isfinite(total := float(np.vdot(X, X)) / len(X)):
            raise ValueError("images: NaN or infinite values; leave those samples out")
        if total == 0:
            raise ValueError("images: all of them are equal, or equal to what the decoder makes of their features")
        self.components_, self.variances_ = _principal(X, self.n_components)
        n_rest = X.shape[1] - len(self.components_)
        rest = max(total - float(self.variances_.sum()), 0.0) / max(n_rest, 1)
        self.residual_variance_ = max(rest, 1e-6 * float(self.variances_[-1]))
        self.n_features_in_ = X.shape[1]
        return self

    def root(self, u: Floats) -> Floats:
        """Corrections from standard normal variables (n_pixels,): the symmetric root of the covariance times u."""
        check_is_fitted(self, "components_")
        sigma = np.sqrt(self.residual_variance_)
        along = (np.sqrt(self.variances_) - sigma) * (self.components_ @ u)
        return np.asarray(along @ self.components_ + sigma * u)


def _principal(X: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Principal components of centred rows, from the smaller of the two Gram matrices."""
    n, P = X.shape
    wide = n < P
    values, vectors = eigh((X @ X.T if wide else X.T @ X) / n)
    kept = np.flatnonzero(values > 1e-10 * values[-1])[::-1][:n_components]
    values, vectors = values[kept], vectors[:, kept]
    return (vectors.T @ X / np.sqrt(n * values)[:, None] if wide else vectors.T), values
