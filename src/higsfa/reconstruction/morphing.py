"""The same photograph with another label: features move along the class means, everything else stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.linear import LinearReconstruction, decode
from higsfa.reconstruction.refinement import ImagePrior, clipped
from higsfa.training.runner import one_blas_thread

Floats = NDArray[np.float64]

DAMPING = 1e-3  # fraction of the mean diagonal of J C J^T that is added to it
STEPS = 0.5 ** np.arange(7)  # fractions of the full step that are tried


def morph(
    net: Any,
    head: LabelHead,
    photo: Any,
    labels: Mapping[str, Any] | None = None,
    /,
    *,
    decoder: LinearReconstruction | None = None,
    prior: ImagePrior | None = None,
    strength: float = 1.0,
    n_steps: int = 6,
    **label: Any,
) -> NDArray[Any]:
    """Show a photograph as the network imagines it with other values of a label, such as ``age=[20, 40, 60]``.

    The features that the head uses move by the difference between the class mean at the wanted value and that at the
    photograph's own estimate. The difference is decoded linearly and added to the photograph, so that whatever else
    makes this photograph differ stays.

    The result shows what the features know about the label in the training set; it does not predict how a person will
    look.

    Parameters
    ----------
    net : fitted network
    head : LabelHead
        Fitted on the features of `net`, with Gaussians for this label; best on images that the network was not
        trained on, and with ``covariance="shared"``, so that estimates grow evenly along the class means.
    photo : array of shape input_shape
        One image, like those that the network was trained on.
    labels : dict, optional
        Instead of `label`, for names that are not valid in Python or belong to another parameter, such as
        ``{"strength": [1, 2]}``.
    decoder : LinearReconstruction, optional
        Decodes feature differences; ``net.inverse_transform`` by default.
    strength : float, default=1.0
        Factor of the change of features.
    n_steps : int, default=6
        Gauss-Newton steps after the linear one, each the smallest change of the image that would give the wanted
        features. Networks are not linear: without these steps the estimate hardly follows.
    prior : ImagePrior, optional
        What "smallest" is measured in; pixels by default.
    **label : array-like
        Name of one label and the wanted values: numbers within its range, or classes.

    Returns
    -------
    array of shape (n_values, ...)
        In the dtype of the photograph; integers are rounded and clipped to their range.

    Notes
    -----
    A network trained on few images can be so sensitive that noise of one grey level moves its features as far as ten
    years of age do, and no image follows. More `shrinkage` in its layers helps.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HiGSFA, LabelHead, Layer
    >>> from higsfa.reconstruction import morph
    >>> images, label = load_digits().images, {"digit": load_digits().target}
    >>> net = HiGSFA([Layer(field=(8, 8), n_components=20, n_slow=9)], graph="clustered").fit(images, label)
    >>> head = LabelHead(n_used_features=9, covariance="shared").fit(net.transform(images), label)
    >>> strip = morph(net, head, images[3], digit=[3, 8])  # a 3 as it is, and as an 8
    >>> strip.shape, head.predict(net.transform(strip))["digit"].tolist()
    ((2, 8, 8), [3, 8])
    """
    name, targets = _wanted(head, label if labels is None else {**labels, **label})
    photo, k = np.asarray(photo), head.n_used_features_[name]
    X = photo.astype(np.float64)[None]
    y = np.asarray(net.transform(X), dtype=np.float64)
    moved = np.repeat(y, len(targets), axis=0)
    moved[:, :k] += strength * _shifts(head, name, y, targets)
    inverse = net if decoder is None else decoder
    change = decode(inverse, moved) - decode(inverse, y)
    frames = (X + change.reshape(len(targets), *photo.shape)).reshape(len(targets), -1)
    whole = photo.dtype.kind in "iu"
    bounds = (np.iinfo(photo.dtype).min, np.iinfo(photo.dtype).max) if whole else None
    frames = clipped(frames, bounds)
    if n_steps:
        model = Differentiable(net)
        options: dict[str, Any] = {"units": feature_units(head, name), "prior": prior, "bounds": bounds}
        with one_blas_thread():
            pairs = zip(frames, moved[:, :k], strict=True)
            frames = np.array([steer(model, *pair, **options, n_steps=n_steps) for pair in pairs])
    return (frames.round() if whole else frames).astype(photo.dtype).reshape(len(targets), *photo.shape)


def class_means(head: LabelHead, label: Any) -> Floats:
    """Mean features (n_classes, k) of the classes of a label, in the order of ``head.label_classes_[label]``.

    Directions in which the training features do not vary are left at their mean.
    """
    check_is_fitted(head, "models_")
    model = head.models_[label]
    if not isinstance(model, GaussianClasses):
        raise ValueError(
            f"label {label!r} is estimated by {type(model).__name__}, which knows no class means; "
            "fit the head without a regressor for it"
        )
    varies = np.isfinite(model.scale)
    means = np.repeat(model.center[None], len(model.means), axis=0)
    means[:, varies] += (model.means @ np.linalg.pinv(model.projection))[:, varies] * model.scale[varies]
    return means


def _wanted(head: LabelHead, label: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The label by its name in the head, and the wanted values."""
    check_is_fitted(head, "models_")
    known = {str(name): name for name in head.label_names_}
    if len(label) != 1 or next(iter(label)) not in known:
        raise ValueError(f"give one label and its values, such as {next(iter(known))}=[...]; the labels are {[*known]}")
    ((text, values),) = label.items()
    name = known[text]
    targets = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not targets:
        raise ValueError(f"{text}: no values are given")
    if head.is_numeric_[name]:
        numbers = np.asarray(targets, dtype=np.float64)
        if not np.all(np.isfinite(numbers)):
            raise ValueError(f"{text}={values!r}: the values must be finite numbers")
        return name, numbers.tolist()
    unknown = [value for value in targets if value not in head.label_classes_[name]]
    if unknown:
        raise ValueError(f"{text}={unknown[0]!r} is not one of the classes {list(head.label_classes_[name])}")
    return name, targets


def _shifts(head: LabelHead, name: Any, y: Floats, targets: list[Any]) -> Floats:
    """Changes (n_targets, k) of the head's features from the class mean at the photo's own estimate to those wanted."""
    means, classes = class_means(head, name), head.label_classes_[name]
    posterior = head.predict_proba(y, name)[0]
    if head.is_numeric_[name]:
        at = np.array([*targets, posterior @ classes])
        curve = np.column_stack([np.interp(at, classes, column) for column in means.T])
        return curve[:-1] - curve[-1]
    rows = [list(classes).index(target) for target in targets]
    return np.asarray(means[rows] - means[np.argmax(posterior)])


def feature_units(head: LabelHead, name: Any) -> Floats:
    """Standard deviations of the head's features; 1 for constant ones."""
    scale = head.models_[name].scale
    return np.where(np.isfinite(scale), scale, 1.0)


def steer(
    model: Differentiable,
    x: Floats,
    wanted: Floats,
    units: Floats,
    *,
    prior: ImagePrior | None,
    bounds: tuple[float, float] | None,
    n_steps: int,
) -> Floats:
    """Move a flat image x (P,) until its first len(wanted) features have the wanted values, measured in `units`.

    Each step is the smallest, in units of the prior (else of pixels), that would suffice if features were linear,
    halved until the features come closer.
    """
    k = len(wanted)
    seeds = np.zeros((k, model.n_features))
    seeds[np.arange(k), np.arange(k)] = 1 / units

    def missing(image: Floats) -> Floats:
        return np.asarray((wanted - model.features(image[None])[0, :k]) / units)

    gap = missing(x)
    for _ in range(n_steps):
        J = model.gradient(np.repeat(x[None], k, axis=0), seeds)
        CJ = J if prior is None else np.array([prior.root(prior.root(row)) for row in J])
        A = J @ CJ.T
        A[np.diag_indices(k)] += DAMPING * np.trace(A) / k
        direction = np.linalg.lstsq(A, gap, rcond=None)[0] @ CJ
        for step in STEPS:
            trial = clipped(x + step * direction, bounds)
            left = missing(trial)
            if left @ left < gap @ gap:
                x, gap = trial, left
                break
        else:
            return x
    return x
