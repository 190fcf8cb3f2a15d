"""Nonlinear reconstruction: the image with the wanted features that is closest to a linear guess."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.linalg import eigh
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_array, check_is_fitted

from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.linear import LinearReconstruction, decode, pairs, samples
from higsfa.training.runner import one_blas_thread

Floats = NDArray[np.float64]

MARGIN = 0.02  # standard deviation of pixels beyond the bounds before they are clipped, as a fraction of the range


class ImagePrior(BaseEstimator):
    """A Gaussian over corrections of a reconstruction: principal components, and one variance for all other directions.

    With features and a decoder, corrections are what the decoder misses in training images. The smallest change of an
    image, measured in their spread, is the best guess of what it lacks. Without them, the prior is the spread of the
    images about their mean.

    Parameters
    ----------
    n_components : int, default=300
        Number of principal components; fewer if there are fewer samples. For less than a thousand images, a twentieth
        of their number is best: directions estimated from few images mislead.
    max_samples : int, default=1500
        Number of training images to use, evenly spaced if there are more.

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
    >>> prior = ImagePrior(n_components=1).fit(None, images)
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
    def fit(self, Y: Any, images: Any, decoder: Any = None) -> ImagePrior:
        """Learn the spread of corrections.

        Parameters
        ----------
        Y : array, memmap or source of shape (n_samples, n_features), or None
            Features of the images; None without a decoder.
        images : array, memmap or source of shape (n_samples, ...)
        decoder : LinearReconstruction or fitted network, optional
            Makes the first guess from the features.

        Returns
        -------
        self
        """
        if (Y is None) != (decoder is None):
            raise ValueError("Y and decoder go together: the prior needs both to see what the decoder misses")
        pictures = samples(images, "images")
        if len(pictures) < 2:
            raise ValueError("images: a prior needs at least two of them")
        rows = np.linspace(0, len(pictures) - 1, min(len(pictures), self.max_samples)).round().astype(np.intp)
        X = pictures.take(rows).reshape(len(rows), -1).astype(np.float64)
        self.feature_scale_ = None
        if decoder is not None:
            chosen = pairs(Y, images)[0].take(rows).astype(np.float64)
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
        """The symmetric root of the covariance times u (n_pixels,): a correction, if u is standard normal."""
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


@dataclass(frozen=True, eq=False)
class Refinement:
    """Refined reconstructions, and how good they are.

    Attributes
    ----------
    images : array of shape (n_samples, ...)
    feature_error_before, feature_error : arrays of shape (n_samples,)
        Root mean square over the features of (feature of the image - wanted feature) / scale, of the start and now.
    reconstruction_error_before, reconstruction_error : arrays of shape (n_samples,), or None
        Mean squared difference from the truth, where that was given.
    n_iter : int array of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import IGSFA
    >>> from higsfa.reconstruction import refine
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> node = IGSFA(n_components=3, n_slow=1, expansion="identity | quadratic").fit(X, X[:, 0] ** 2)
    >>> result = refine(node, node.transform(X[:3]), truth=X[:3])  # a Refinement
    >>> result.images.shape, result.reconstruction_error.shape
    ((3, 4), (3,))
    """

    images: Floats
    feature_error_before: Floats
    feature_error: Floats
    reconstruction_error_before: Floats | None
    reconstruction_error: Floats | None
    n_iter: NDArray[np.intp]

    def __repr__(self) -> str:
        before, after = self.feature_error_before.mean(), self.feature_error.mean()
        return f"<Refinement of {len(self.images)} images: mean feature error {before:.3g} to {after:.3g}>"


def refine(
    net: Any,
    Y: Any,
    start: Any = None,
    *,
    prior: ImagePrior | None = None,
    prior_weight: float = 0.1,
    scale: Any = None,
    bounds: tuple[float, float] | None = None,
    truth: Any = None,
    max_iter: int = 100,
) -> Refinement:
    """Change images until their features are the wanted ones.

    A network discards most of its input, so countless images have the wanted features, and most look like noise. A
    prior makes the change small where training images are close to their linear reconstructions; without one, pixels
    change in whatever way brings the features closest.

    Parameters
    ----------
    net : fitted network or node
    Y : array-like of shape (n_samples, n_components)
        Wanted features.
    start : array of shape (n_samples, ...), LinearReconstruction, or None
        First guess, or what makes it; ``net.inverse_transform`` by default.
    prior : ImagePrior, optional
        Spread of corrections in the training set; best fitted with the decoder that makes the start.
    prior_weight : float, default=0.1
        Weight of the squared length of the correction, in units of the prior, relative to the sum of squared feature
        errors.
    scale : array-like of shape (n_components,), optional
        Units of the feature errors. By default the standard deviation of the features in the training data if `prior`
        or `start` has it, else for each image the root mean square of its wanted features.
    bounds : (low, high), optional
        Range of pixels.
    truth : array of shape (n_samples, ...), optional
        The true images, only used to measure the reconstruction error.
    max_iter : int, default=100
        Maximum number of L-BFGS iterations per image.

    Returns
    -------
    Refinement

    Notes
    -----
    Images are refined one by one, so a result does not depend on the rest of the batch. Nodes clip inputs outside the
    range of their training data; there the derivative is 0, exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import IGSFA
    >>> from higsfa.reconstruction import refine
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> node = IGSFA(n_components=3, n_slow=1, expansion="identity | quadratic").fit(X, X[:, 0] ** 2)
    >>> result = refine(node, node.transform(X[:3]))
    >>> bool(np.all(result.feature_error < 0.1 * result.feature_error_before))
    True
    """
    model = Differentiable(net)
    Y = check_array(Y, dtype=np.float64, input_name="Y")
    if Y.shape[1] != model.n_features:
        raise ValueError(f"Y has {Y.shape[1]} features, but {type(net).__name__} makes {model.n_features}")
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds={bounds!r}: the first must be smaller than the second")
    if prior is not None and prior.n_features_in_ != model.n_inputs:
        raise ValueError(f"prior is for {prior.n_features_in_} pixels, but the network sees {model.n_inputs}")
    guess = net if start is None else start
    if guess is net or isinstance(guess, LinearReconstruction):
        guess = np.concatenate([decode(guess, y[None]) for y in Y])  # one by one, as rounding depends on the batch
    X = clipped(_flat(guess, "start", len(Y), model.n_inputs), bounds)
    before = _features(model, X) - Y
    units = _units(scale, prior, start, Y)
    weight = float(prior_weight)
    with one_blas_thread():
        each = zip(X, Y, units, strict=True)
        found = [_descend(model, *one, prior, weight, bounds, max_iter) for one in each]
    images = np.array([image for image, _ in found])
    after = _features(model, images) - Y
    T = None if truth is None else _flat(truth, "truth", len(Y), model.n_inputs)
    return Refinement(
        images.reshape(len(Y), *model.input_shape),
        _rms(before / units),
        _rms(after / units),
        None if T is None else np.mean((X - T) ** 2, axis=1),
        None if T is None else np.mean((images - T) ** 2, axis=1),
        np.array([n for _, n in found], dtype=np.intp),
    )


def _descend(
    model: Differentiable,
    start: Floats,
    y: Floats,
    units: Floats,
    prior: ImagePrior | None,
    prior_weight: float,
    bounds: tuple[float, float] | None,
    max_iter: int,
) -> tuple[Floats, int]:
    """The image x = start + root(u) with the least feature error + weight |u|^2, and the number of iterations."""
    spread = float(start.std()) or 1.0  # the unit of a step without a prior
    root: Callable[[Floats], Floats] = (lambda u: spread * u) if prior is None else prior.root
    weight = 0.0 if prior is None else prior_weight

    def loss(u: Floats) -> tuple[float, Floats]:
        x = start + root(u)
        features, gradients = model.with_gradient(x[None], lambda features: (features - y) / units**2)
        value, gradient = 0.5 * float(np.sum(((features - y) / units) ** 2)), gradients[0]
        if bounds is not None:
            unit = MARGIN * (bounds[1] - bounds[0])
            excess = (x - np.clip(x, *bounds)) / unit
            value, gradient = value + 0.5 * float(excess @ excess), gradient + excess / unit
        return value + 0.5 * weight * float(u @ u), root(gradient) + weight * u

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-10}
    found = minimize(loss, np.zeros_like(start), jac=True, method="L-BFGS-B", options=options)
    return clipped(start + root(found.x), bounds), int(found.nit)


def clipped(X: Floats, bounds: tuple[float, float] | None) -> Floats:
    return X if bounds is None else np.clip(X, *bounds)


def _features(model: Differentiable, X: Floats) -> Floats:
    """Features, one image at a time: a batch takes much memory."""
    return np.concatenate([model.features(x[None]) for x in X])


def _flat(images: Any, name: str, n: int, n_inputs: int) -> Floats:
    images = np.asarray(images, dtype=np.float64)
    if images.size != n * n_inputs or len(images) != n:
        raise ValueError(f"{name} has shape {images.shape}, but {n} images of {n_inputs} pixels are needed")
    if not np.all(np.isfinite(images)):
        raise ValueError(f"{name} holds NaN or infinite values")
    return images.reshape(n, n_inputs)


def _units(scale: Any, prior: ImagePrior | None, start: Any, Y: Floats) -> Floats:
    """Positive units, in the shape of the features Y; constant features get the typical unit."""
    if scale is None and prior is not None:
        scale = prior.feature_scale_
    if scale is None and isinstance(start, LinearReconstruction):
        scale = start.feature_scale_
    if scale is None:
        own = _rms(Y)
        return np.tile(np.where(own > 0, own, 1.0)[:, None], Y.shape[1])
    units = np.array(scale, dtype=np.float64)
    if units.shape != Y.shape[1:] or not np.all(np.isfinite(units)) or np.any(units < 0):
        raise ValueError(f"scale: one positive number for each of the {Y.shape[1]} features is needed")
    typical = np.sqrt(np.mean(units**2)) or 1.0
    return np.tile(np.where(units > 1e-10 * typical, units, typical), (len(Y), 1))


def _rms(errors: Floats) -> Floats:
    return np.asarray(np.sqrt(np.mean(errors**2, axis=1)))
