"""The explorer: one HTML page on which faces follow sliders for features and labels, without a server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import floor, log10
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.utils.validation import check_is_fitted

from higsfa.core.graph.labels import label_names, missing, pick_label
from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.io import write_atomically
from higsfa.report.figures import png_address
from higsfa.report.page import fill, json_in_html
from higsfa.sources import Source, as_source

Floats = NDArray[np.float64]
SLIDER_REACH = 4.0  # standard deviations to either side
TITLE = "Explore the features of a face"


def write_explorer(
    out: str | PathLike[str],
    network: Any,
    head: LabelHead,
    images: Any,
    *,
    decoder: Any,
    labels: Any = None,
    title: str = TITLE,
    n_slow: int = 6,
    n_reconstructive: int = 12,
    n_examples: int = 12,
    value_range: tuple[float, float] | None = None,
) -> Path:
    """Write a page that shows how the picture of a face changes with its features and labels.

    The page needs nothing but a browser: it holds the example faces, the decoder and the label head, and computes
    pictures and estimates itself. A feature slider changes one feature. A label slider moves the features that the head
    uses for the label along the head's class means, and keeps the rest of the face.

    Parameters
    ----------
    out : path
        The HTML file.
    network : fitted network
        Of images of shape (height, width) or (height, width, 3).
    head : LabelHead
        Fitted to features of the network. Labels whose estimate does not come from Gaussians are left out.
    images : array of shape (n_samples, ...), or a source
        Example faces are spread evenly over them; all of them give mean and deviation of features, so pass hundreds.
    decoder : object with ``components_`` (n_features, n_pixels) and ``intercept_`` (n_pixels,)
        Such as a fitted :class:`higsfa.reconstruction.LinearReconstruction`.
    labels : DataFrame, dict of arrays, or array, optional
        Annotations of the images, shown beside the estimates.
    title : str
    n_slow, n_reconstructive : int, default=6 and 12
        Number of sliders for the first slow and the first reconstructive features.
    n_examples : int, default=12
    value_range : pair of float, optional
        Values of black and white; by default 0 and 255 for integers, 0 and 1 for floats.

    Returns
    -------
    Path
        The file written.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HiGSFA, LabelHead
    >>> from higsfa.reconstruction import LinearReconstruction
    >>> digits = load_digits()
    >>> images, labels = digits.images / 16, {"digit": digits.target}
    >>> network = HiGSFA().fit(images, digits.target)
    >>> Y = network.transform(images)
    >>> head, decoder = LabelHead(n_used_features=9).fit(Y, labels), LinearReconstruction().fit(Y, images)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_explorer(f"{folder}/digits.html", network, head, images, decoder=decoder, labels=labels)
    ...     page.stat().st_size < 200_000
    True
    """
    check_is_fitted(head, "models_")
    source = as_source(images)
    if len(source) < 1 or n_examples < 1:
        raise ValueError(f"images holds {len(source)} pictures and n_examples={n_examples}: the page needs a face")
    height, width, channels = shape = (*network.input_shape_, 1, 1)[:3]
    if len(network.input_shape_) not in (2, 3) or channels not in (1, 3):
        raise ValueError(
            f"the network takes samples of shape {network.input_shape_}; only grey or RGB pictures are shown"
        )
    black, white = value_range or ((0.0, 255.0) if source.dtype.kind in "iub" else (0.0, 1.0))
    gain = 255.0 / (white - black)
    features = np.asarray(network.transform(source), dtype=np.float64)
    components = np.asarray(decoder.components_, dtype=np.float64) * gain
    n_features = features.shape[1]
    _check_fit(components.shape, (n_features, int(np.prod(shape))), head)
    intercept = (np.asarray(decoder.intercept_, dtype=np.float64) - black) * gain
    rows = np.unique(np.linspace(0, len(source) - 1, min(len(source), n_examples)).round().astype(np.intp))
    photographs = _photographs(source, rows, black, white)
    annotated = _annotations(labels, rows, len(source))
    heads = [label_data(head, name) for name in head.label_names_ if isinstance(head.models_[name], GaussianClasses)]
    is_slow = np.array(["slow" in str(name) for name in network.get_feature_names_out()], dtype=bool)
    slow, rest = np.flatnonzero(is_slow)[:n_slow].tolist(), np.flatnonzero(~is_slow)[:n_reconstructive].tolist()
    used = max((len(label["center"]) for label in heads), default=0)
    moving = sorted({*range(used), *slow, *rest})
    rebuilt = _as_bytes(features[rows] @ components + intercept)
    faces = [
        {"features": y, "photograph": photo, "reconstruction": built, "annotated": said}
        for y, photo, built, said in zip(features[rows][:, moving], photographs, rebuilt, annotated, strict=True)
    ]
    data = {"height": height, "width": width, "channels": channels, "faces": faces, "labels": heads}
    page = fill(
        "explorer.html.jinja",
        "explorer.css",
        title=title,
        n_features=n_features,
        thumbnails=_thumbnails(photographs, annotated, shape),
        labels=heads,
        label_sliders=label_sliders(heads),
        slow_sliders=_feature_sliders("Slow", [moving.index(j) for j in slow]),
        reconstructive_sliders=_feature_sliders("Reconstructive", [moving.index(j) for j in rest]),
        has_annotations=any(annotated),
        data=json_in_html(data | _decoder_data(features[:, moving], components[moving]), default=_packed),
    )
    write_atomically(out, page.encode("utf-8"))
    return Path(out)


def _check_fit(found: tuple[int, ...], expected: tuple[int, int], head: LabelHead) -> None:
    """Raise unless decoder and head were fitted to the features of the network."""
    n_features, n_pixels = expected
    if found != expected:
        raise ValueError(
            f"decoder.components_ has shape {found}, but the network makes {n_features} features of {n_pixels} pixel "
            "values; fit the decoder to this network's features and images"
        )
    if head.n_features_in_ > n_features:
        raise ValueError(
            f"head was fitted to {head.n_features_in_} features, but the network makes {n_features}; fit it to these"
        )


def _photographs(source: Source, rows: NDArray[np.intp], black: float, white: float) -> NDArray[np.uint8]:
    pictures = np.asarray(source.take(rows), dtype=np.float64).reshape(len(rows), -1)
    low, high, margin = pictures.min(), pictures.max(), 0.5 * (white - black)
    if low < black - margin or high > white + margin:
        raise ValueError(
            f"images hold values from {low:.4g} to {high:.4g}, far outside [{black:g}, {white:g}]; "
            "say with value_range=(black, white) what they mean"
        )
    return _as_bytes((pictures - black) * (255.0 / (white - black)))


def _as_bytes(pictures: Floats) -> NDArray[np.uint8]:
    return np.clip(np.rint(pictures), 0, 255).astype(np.uint8)


def _annotations(labels: Any, rows: NDArray[np.intp], n: int) -> list[dict[str, str]]:
    out: list[dict[str, str]] = [{} for _ in rows]
    for name in label_names(labels):
        column = pick_label(labels, name)
        if len(column) != n:
            raise ValueError(f"labels: {name!r} has {len(column)} values for {n} images")
        for entry, value, is_missing in zip(out, column[rows], missing(column[rows]), strict=True):
            if not is_missing:
                entry[shown(name)] = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    return out


def _thumbnails(
    photographs: NDArray[np.uint8], annotated: list[dict[str, str]], shape: tuple[int, int, int]
) -> list[tuple[str, str]]:
    """Data address and description of each example face."""
    out = []
    for i, (photo, said) in enumerate(zip(photographs, annotated, strict=True)):
        address = png_address(Image.fromarray(photo.reshape(shape[:2] if shape[2] == 1 else shape)))
        text = ", ".join(f"{name} {value}" for name, value in said.items())
        out.append((address, f"Face {i + 1}" + (f", annotated {text}" if text else "")))
    return out


def _decoder_data(features: Floats, components: Floats) -> dict[str, Any]:
    """Mean and deviation of features, and how one deviation of each changes the picture, in 256 levels."""
    deviation = features.std(axis=0)
    deviation[deviation == 0] = 1.0
    steps, levels = quantised(components * deviation[:, None])
    return {"mean": features.mean(axis=0), "deviation": deviation, "steps": steps, "components": list(levels)}


def quantised(components: Floats) -> tuple[Floats, NDArray[np.int8]]:
    """Step sizes (k,) and integers (k, P) from -127 to 127 whose products approximate the components."""
    steps = np.abs(components).max(axis=1) / 127.0
    levels = np.rint(components / np.where(steps == 0, 1.0, steps)[:, None])
    return steps, levels.astype(np.int8)


def label_data(head: LabelHead, name: Any) -> dict[str, Any]:
    """A label's Gaussians; the scale of features is part of the projection and of its inverse, the lift."""
    model, classes, is_numeric = head.models_[name], head.label_classes_[name], bool(head.is_numeric_[name])
    varies = np.isfinite(model.scale)
    scale = np.where(varies, model.scale, 1.0)
    integer = head.integer.get(name, False) if isinstance(head.integer, Mapping) else head.integer
    label: dict[str, Any] = {
        "name": shown(name),
        "numeric": is_numeric,
        "classes": [float(c) if is_numeric else str(c) for c in classes],
        "center": model.center,
        "projection": model.projection * (varies / scale)[:, None],
        "lift": np.linalg.pinv(model.projection) * np.where(varies, model.scale, 0.0),
        "means": model.means,
        "factors": model.factors,
        "log_weights": model.log_weights,
    }
    if is_numeric:
        step = _nice_step(float(classes[-1] - classes[0]))
        decimals = 0 if integer else max(0, 1 - floor(log10(step)))
        low, high = floor(classes[0] / step) * step, -floor(-classes[-1] / step) * step
        label |= {"integer": bool(integer), "step": step, "low": low, "high": high, "decimals": decimals}
        label["telling"] = _telling(model.means)
    return label


def _telling(means: Floats) -> Floats:
    """Orthogonal directions in which the class means vary more than the samples of a class, whose variance is 1."""
    deviation = (means - means.mean(axis=0)) / np.sqrt(len(means))
    _, lengths, directions = np.linalg.svd(deviation, full_matrices=False)
    return np.asarray(directions[lengths > 1.0])


def label_sliders(heads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One slider for a numeric label or two classes, else one per class, in per cent of the way to its mean."""
    sliders: list[dict[str, Any]] = []
    for number, label in enumerate(heads):
        name, classes, entry = label["name"], label["classes"], {"id": f"label-{number}", "label": number}
        if len(classes) < 2:
            continue
        if label["numeric"]:
            limits = {key: label[key] for key in ("low", "high", "step")}
            sliders.append({**entry, "target": None, "text": name, **limits})
            continue
        texts = {1: f"{classes[0]} to {classes[1]}"} if len(classes) == 2 else dict(enumerate(classes))
        for target, text in texts.items():
            entry |= {"id": f"label-{number}-{target}", "target": target, "text": f"{name}: {text}"}
            sliders.append({**entry, "low": -50, "high": 150, "step": 5})
    return sliders


def _feature_sliders(kind: str, places: list[int]) -> list[dict[str, Any]]:
    """Sliders for features at these indices of the page's data, in standard deviations."""
    reach = {"low": -SLIDER_REACH, "high": SLIDER_REACH, "step": 0.1}
    return [{"id": f"feature-{j}", "feature": j, "text": f"{kind} {i}", **reach} for i, j in enumerate(places, start=1)]


def _nice_step(extent: float) -> float:
    """1, 2 or 5 times a power of ten, so that a slider has about fifty steps."""
    wanted = extent / 40.0 or 1.0
    power = 10.0 ** floor(log10(wanted))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= wanted)


def shown(name: Any) -> str:
    """The name of a label as shown; columns of an array only have indices."""
    return f"label {name}" if isinstance(name, int) else str(name)


def _packed(values: NDArray[Any]) -> Any:
    """An array in JSON: bytes as base64, numbers in lists and to seven digits."""
    if values.dtype.itemsize == 1:
        return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
    return [float(f"{x:.7g}") for x in values] if values.ndim == 1 else list(values)
