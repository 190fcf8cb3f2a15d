"""One HTML page on which faces follow sliders for features and labels, without server or network."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from higsfa.core.graph.labels import label_names, missing, pick_label
from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.io import write_atomically
from higsfa.report.explorer_data import Examples, Floats, label_data, label_sliders, payload, shown
from higsfa.sources import Source, as_source

__all__ = ["write_explorer"]

SLIDER_REACH = 4.0
"""Feature sliders go this many standard deviations to either side."""
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

    The page needs a browser and nothing else: it holds the example faces, the decoder and the label head, and computes
    pictures and estimates itself. A feature slider changes one feature, in standard deviations. A label slider moves
    the features that the head uses for the label along the head's class means, and keeps the rest of the face.

    Parameters
    ----------
    out : path
        The HTML file.
    network : fitted network
        Of images of shape (height, width) or (height, width, 3).
    head : LabelHead
        Fitted to features of the network. Labels whose estimate does not come from Gaussians are left out.
    images : array of shape (n_samples, *input_shape), or a source
        Example faces are taken from them at equal distances; mean and standard deviation of the features come from
        all of them, so give a few hundred.
    decoder : object with ``components_`` (n_features, n_pixels) and ``intercept_`` (n_pixels,)
        Pictures from features, such as a fitted :class:`higsfa.reconstruction.LinearReconstruction`.
    labels : DataFrame, dict of arrays, or array, optional
        What annotators wrote down about the images, shown beside the estimates.
    title : str
    n_slow, n_reconstructive : int, default=6 and 12
        Number of sliders for the first slow and the first reconstructive features.
    n_examples : int, default=12
    value_range : pair of float, optional
        Values of black and white; by default 0 and 255 for integers, 0 and 1 for floats.

    Returns
    -------
    Path
        Of the file.

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
    >>> head, decoder = LabelHead(n_features=9).fit(Y, labels), LinearReconstruction().fit(Y, images)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_explorer(f"{folder}/digits.html", network, head, images, decoder=decoder, labels=labels)
    ...     page.stat().st_size < 200_000
    True
    """
    check_is_fitted(head, "models_")
    source = as_source(images)
    shape = _picture_shape(network.input_shape_)
    black, white = value_range or ((0.0, 255.0) if source.dtype.kind in "iub" else (0.0, 1.0))
    features = np.asarray(network.transform(source), dtype=np.float64)
    components = np.asarray(decoder.components_, dtype=np.float64) * (255.0 / (white - black))
    if components.shape != (features.shape[1], np.prod(shape)):
        raise ValueError(
            f"decoder.components_ has shape {components.shape}, but the network makes {features.shape[1]} features of "
            f"{int(np.prod(shape))} pixel values; fit the decoder to this network's features and images"
        )
    if head.n_features_in_ > features.shape[1]:
        raise ValueError(
            f"head was fitted to {head.n_features_in_} features, but the network makes {features.shape[1]}; "
            "fit it to features of this network"
        )
    rows = _spread(len(source), n_examples)
    intercept = (np.asarray(decoder.intercept_, dtype=np.float64) - black) * (255.0 / (white - black))
    examples = Examples(
        _photographs(source, rows, black, white),
        _as_bytes(features[rows] @ components + intercept),
        features[rows],
        _annotations(labels, rows, len(source)),
    )
    heads = [label_data(head, name) for name in head.label_names_ if isinstance(head.models_[name], GaussianClasses)]
    slow, rest = _sliders(network.get_feature_names_out(), n_slow, n_reconstructive)
    used = max((label["n_features"] for label in heads), default=0)
    moving = np.array(sorted({*range(used), *slow, *rest}), dtype=np.intp)
    data = payload(shape, examples, features, components, moving, heads)
    place = {int(feature): position for position, feature in enumerate(moving)}
    groups = [
        ("Slow features", [(place[j], f"Slow {i + 1}") for i, j in enumerate(slow)]),
        ("Reconstructive features", [(place[j], f"Reconstructive {i + 1}") for i, j in enumerate(rest)]),
    ]
    page = _render(data, title, features.shape[1], groups, _thumbnails(examples, shape))
    write_atomically(out, page.encode("utf-8"))
    return Path(out)


# ---------------------------------------------------------------------------------------------- choosing


def _picture_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels."""
    if len(shape) == 2:
        return shape[0], shape[1], 1
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[0], shape[1], shape[2]
    raise ValueError(f"the network takes samples of shape {tuple(shape)}; the explorer shows grey or RGB pictures only")


def _spread(n: int, n_examples: int) -> NDArray[np.intp]:
    if n < 1 or n_examples < 1:
        raise ValueError(f"images holds {n} pictures and n_examples={n_examples}: the page needs one face or more")
    return np.unique(np.linspace(0, n - 1, min(n, n_examples)).round().astype(np.intp))


def _sliders(names: Any, n_slow: int, n_reconstructive: int) -> tuple[list[int], list[int]]:
    """Numbers of the first slow and the first reconstructive features."""
    is_slow = np.array(["slow" in str(name) for name in names], dtype=bool)
    return np.flatnonzero(is_slow)[:n_slow].tolist(), np.flatnonzero(~is_slow)[:n_reconstructive].tolist()


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
        chosen = column[rows]
        for entry, value, is_missing in zip(out, chosen, missing(chosen), strict=True):
            if not is_missing:
                entry[shown(name)] = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    return out


def _thumbnails(examples: Examples, shape: tuple[int, int, int]) -> list[tuple[str, str]]:
    """Address and description of the pictures to choose from."""
    from PIL import Image

    out = []
    for i, (photo, said) in enumerate(zip(examples.photographs, examples.annotated, strict=True)):
        buffer = io.BytesIO()
        Image.fromarray(photo.reshape(shape[:2] if shape[2] == 1 else shape)).save(buffer, "PNG", optimize=True)
        address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
        annotated = ", ".join(f"{name} {value}" for name, value in said.items())
        out.append((address, f"Face {i + 1}" + (f", annotated {annotated}" if annotated else "")))
    return out


# ---------------------------------------------------------------------------------------------- the page


def _render(
    data: dict[str, Any],
    title: str,
    n_features: int,
    groups: list[tuple[str, list[tuple[int, str]]]],
    thumbnails: list[tuple[str, str]],
) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError("write_explorer needs jinja2: pip install 'higsfa[plots]'") from error
    parts = resources.files("higsfa.report")
    template, style, script = (
        (parts / f"explorer.{ending}").read_text(encoding="utf-8") for ending in ("html.jinja", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        title=title,
        n_features=n_features,
        reach=SLIDER_REACH,
        groups=groups,
        thumbnails=thumbnails,
        labels=data["labels"],
        label_sliders=label_sliders(data["labels"]),
        has_annotations=any(face["annotated"] for face in data["faces"]),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=_json_in_html(data),
    )


def _hash(text: str) -> str:
    """As a Content-Security-Policy names the one script or style that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _json_in_html(data: dict[str, Any]) -> str:
    """JSON in which no character can end the script element it stands in or begin a comment there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
