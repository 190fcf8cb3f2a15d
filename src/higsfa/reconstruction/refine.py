"""Nonlinear reconstruction: the image with the wanted features that is closest to a linear guess."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.utils.validation import check_array

from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.linear import LinearReconstruction, decode
from higsfa.reconstruction.prior import ImagePrior
from higsfa.training.runner import one_blas_thread

Floats = NDArray[np.float64]

MARGIN = 0.02
"""Standard deviation, as a part of the allowed range, of how far pixels may lie beyond it before they are clipped."""


@dataclass(frozen=True, eq=False)
class Refinement:
    """Refined reconstructions, and how good they are.

    Attributes
    ----------
    images : array of shape (n_samples, *input_shape)
    feature_error_before, feature_error : arrays of shape (n_samples,)
        Root mean square over the features of (feature of the image - wanted feature) / scale, of the start and now.
    reconstruction_error_before, reconstruction_error : arrays of shape (n_samples,), or None
        Mean squared difference from the truth, where that was given.
    n_iter : int array of shape (n_samples,)
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

    A network throws most of its input away, so countless images have the wanted features, and most of them look like
    nothing. A prior keeps the image near the start, in the directions in which training images differ from their
    linear reconstructions; without one, pixels change in whatever way brings the features closest.

    Parameters
    ----------
    net : fitted network or node
    Y : array-like of shape (n_samples, n_components)
        Wanted features.
    start : array of shape (n_samples, ...), LinearReconstruction, or None
        First guess, or what makes it; by default ``net.inverse_transform``.
    prior : ImagePrior, optional
        Spread of corrections in the training set; best fitted with the decoder that makes the start.
    prior_weight : float, default=0.1
        Weight of the squared length of the correction, in units of the prior, against the sum of squared feature
        errors.
    scale : array-like of shape (n_components,), optional
        Units in which feature errors are measured. By default the standard deviation of the features in the training
        data if `prior` or `start` knows it, else for each image the root mean square of its wanted features.
    bounds : (low, high), optional
        Range of pixels.
    truth : array of shape (n_samples, ...), optional
        The true images, to measure the reconstruction error; not used otherwise.
    max_iter : int, default=100
        Most iterations of L-BFGS for each image.

    Returns
    -------
    Refinement

    Notes
    -----
    Images are refined one after the other, so that a result does not depend on what else is in the batch. The range
    guard of a node hides inputs beyond the range of the training data; their derivative is 0, which is exact.

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
    X = _flat(_start(net, Y, start), "start", len(Y), model.n_inputs)
    X = X if bounds is None else np.clip(X, *bounds)
    before = _features(model, X) - Y
    units = _units(scale, prior, start, Y)
    task = _Task(model, prior, float(prior_weight), bounds)
    with one_blas_thread():
        found = [task.solve(*one, max_iter) for one in zip(X, Y, units, strict=True)]
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


@dataclass(frozen=True, eq=False)
class _Task:
    """One image at a time: least feature error + weight |u|^2 over x = start + root(u)."""

    model: Differentiable
    prior: ImagePrior | None
    weight: float
    bounds: tuple[float, float] | None

    def solve(self, start: Floats, y: Floats, units: Floats, max_iter: int) -> tuple[Floats, int]:
        root = self._root(start)
        pull = 0.0 if self.prior is None else self.weight

        def loss(u: Floats) -> tuple[float, Floats]:
            x = start + root(u)
            value, gradient = self._feature_loss(x, y, units)
            beyond, slope = self._beyond(x)
            return value + beyond + 0.5 * pull * float(u @ u), root(gradient + slope) + pull * u

        found = minimize(
            loss,
            np.zeros_like(start),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-10},
        )
        x = start + root(found.x)
        return (x if self.bounds is None else np.clip(x, *self.bounds)), int(found.nit)

    def _feature_loss(self, x: Floats, y: Floats, units: Floats) -> tuple[float, Floats]:
        features, gradient = self.model.with_gradient(x[None], lambda features: (features - y) / units**2)
        return 0.5 * float(np.sum(((features - y) / units) ** 2)), gradient[0]

    def _root(self, start: Floats) -> Callable[[Floats], Floats]:
        """The symmetric map from u to corrections; without a prior, steps as long as pixels differ in the start."""
        if self.prior is not None:
            return self.prior.root
        spread = float(start.std()) or 1.0
        return lambda u: spread * u

    def _beyond(self, x: Floats) -> tuple[float, Floats | float]:
        if self.bounds is None:
            return 0.0, 0.0
        low, high = self.bounds
        unit = MARGIN * (high - low)
        excess = (x - np.clip(x, low, high)) / unit
        return 0.5 * float(excess @ excess), excess / unit


def _features(model: Differentiable, X: Floats) -> Floats:
    """Features one image at a time: large batches of stacked nodes take much memory."""
    return np.concatenate([model.features(x[None]) for x in X])


def _start(net: Any, Y: Floats, start: Any) -> Any:
    if start is None:
        return decode(net, Y)
    return decode(start, Y) if isinstance(start, LinearReconstruction) else start


def _flat(images: Any, name: str, n: int, n_inputs: int) -> Floats:
    images = np.asarray(images, dtype=np.float64)
    if images.size != n * n_inputs or len(images) != n:
        raise ValueError(f"{name} has shape {images.shape}, but {n} images of {n_inputs} pixels are needed")
    if not np.all(np.isfinite(images)):
        raise ValueError(f"{name} holds NaN or infinite values")
    return images.reshape(n, n_inputs)


def _units(scale: Any, prior: ImagePrior | None, start: Any, Y: Floats) -> Floats:
    """Positive units of the errors of features Y, as an array like them.

    Features that did not vary in training get the unit of the others.
    """
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
