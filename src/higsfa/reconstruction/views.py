"""What a feature sees: its linear template, its gradient at an image, and the inputs that drive it most and least."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.linear import LinearReconstruction, decode

Floats = NDArray[np.float64]


def feature_gradient(net: Any, x: Any, feature: int) -> Floats:
    """Gradient of a feature by the pixels of images: where the feature looks, and what would raise it there.

    Parameters
    ----------
    net : fitted network or node
    x : array of shape (n_samples, *input_shape), or one image
    feature : int

    Returns
    -------
    array of the shape of x
        Pixels that only reach nodes beyond the range of their training data have gradient 0.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import GSFA
    >>> from higsfa.reconstruction import feature_gradient
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> node = GSFA(n_components=1, graph="serial").fit(X, X[:, 1])
    >>> int(np.argmax(np.abs(feature_gradient(node, X[0], 0))))
    1
    """
    model = Differentiable(net)
    x = np.asarray(x, dtype=np.float64)
    if x.size != model.n_inputs and (x.ndim < 2 or x.size != len(x) * model.n_inputs):
        raise ValueError(f"x has shape {x.shape}, but the network sees images of shape {model.input_shape}")
    flat = x.reshape(-1, model.n_inputs)
    seeds = np.zeros((len(flat), model.n_features))
    seeds[:, _check(feature, model.n_features)] = 1.0
    return model.gradient(flat, seeds).reshape(x.shape)


def extreme_inputs(Y: Any, feature: int, n: int = 5) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the inputs for which a feature is largest, and of those for which it is smallest.

    Parameters
    ----------
    Y : array of shape (n_samples, n_features)
    feature : int
    n : int, default=5
        How many of each; fewer if there are fewer samples.

    Returns
    -------
    largest, smallest : int arrays
        The most extreme first; equal values in the order of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.reconstruction import extreme_inputs
    >>> extreme_inputs(np.array([[1.0], [5.0], [-2.0], [5.0]]), feature=0, n=2)
    (array([1, 3]), array([2, 0]))
    """
    values = np.asarray(Y[:, _check(feature, Y.shape[1])], dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"Y: feature {feature} holds NaN or infinite values")
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    return np.argsort(-values, kind="stable")[:n], np.argsort(values, kind="stable")[:n]


def feature_template(decoder: Any, feature: int) -> Floats:
    """The image that a feature adds when it grows by one: a column of the linear reconstruction.

    Parameters
    ----------
    decoder : LinearReconstruction, or fitted network or node
    feature : int

    Returns
    -------
    array of shape input_shape
    """
    linear = isinstance(decoder, LinearReconstruction)
    n_features = int(decoder.n_features_in_ if linear else decoder.n_components_)
    steps = np.zeros((2, n_features))
    steps[1, _check(feature, n_features)] = 1.0
    nothing, one = decode(decoder, steps)
    return np.asarray(one - nothing)


def _check(feature: int, n_features: int) -> int:
    feature = index(feature)
    if not 0 <= feature < n_features:
        raise ValueError(f"feature={feature}: give an index from 0 to {n_features - 1}")
    return feature
