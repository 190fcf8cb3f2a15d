"""What the explorer page computes with: faces, decoder and label heads as plain numbers and base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.estimators.label_head import LabelHead

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Examples:
    """The faces to choose from: pictures as bytes (n, P), features (n, k), and what annotators said, as text."""

    photographs: NDArray[np.uint8]
    reconstructions: NDArray[np.uint8]
    features: Floats
    annotated: list[dict[str, str]]


def payload(
    shape: tuple[int, int, int],
    examples: Examples,
    features: Floats,
    components: Floats,
    moving: NDArray[np.intp],
    heads: list[dict[str, Any]],
) -> dict[str, Any]:
    """All numbers of the page; features in the order of `moving`, pictures in 256 steps."""
    mean, deviation = features[:, moving].mean(axis=0), features[:, moving].std(axis=0)
    deviation[deviation == 0] = 1.0
    steps, levels = quantised(components[moving] * deviation[:, None])
    faces = [
        {"features": _floats(y), "photograph": _base64(photo), "reconstruction": _base64(built), "annotated": said}
        for y, photo, built, said in zip(
            examples.features[:, moving],
            examples.photographs,
            examples.reconstructions,
            examples.annotated,
            strict=True,
        )
    ]
    return {
        "height": shape[0],
        "width": shape[1],
        "channels": shape[2],
        "mean": _floats(mean),
        "deviation": _floats(deviation),
        "steps": _floats(steps),
        "components": _base64(levels),
        "faces": faces,
        "labels": heads,
    }


def quantised(components: Floats) -> tuple[Floats, NDArray[np.int8]]:
    """Steps (k,) and whole numbers (k, P) from -127 to 127 whose products are close to the components."""
    steps = np.abs(components).max(axis=1) / 127.0
    levels = np.rint(components / np.where(steps == 0, 1.0, steps)[:, None])
    return steps, levels.astype(np.int8)


def label_data(head: LabelHead, name: Any) -> dict[str, Any]:
    """A label's Gaussians, with the scale of the features drawn into the projection and into its inverse, the lift."""
    model, classes, is_numeric = head.models_[name], head.classes_[name], bool(head.is_numeric_[name])
    varies = np.isfinite(model.scale)
    scale = np.where(varies, model.scale, 1.0)
    integer = head.integer.get(name, False) if isinstance(head.integer, Mapping) else head.integer
    label: dict[str, Any] = {
        "name": shown(name),
        "numeric": is_numeric,
        "classes": [float(c) for c in classes] if is_numeric else [str(c) for c in classes],
        "n_features": len(model.center),
        "rank": model.projection.shape[1],
        "center": _floats(model.center),
        "projection": _floats(model.projection * (varies / scale)[:, None]),
        "lift": _floats(np.linalg.pinv(model.projection) * np.where(varies, model.scale, 0.0)),
        "means": _floats(model.means),
        "factors": _floats(model.factors),
        "log_weights": _floats(model.log_weights),
    }
    if is_numeric:
        step = _nice_step(float(classes[-1] - classes[0]))
        decimals = 0 if integer else max(0, 1 - floor(log10(step)))
        low, high = floor(classes[0] / step) * step, -floor(-classes[-1] / step) * step
        label |= {"integer": bool(integer), "step": step, "low": low, "high": high, "decimals": decimals}
        label["telling"] = _floats(_telling(model.means))
    return label


def _telling(means: Floats) -> Floats:
    """Orthogonal directions in which the class means vary more than the samples of a class, whose variance is 1."""
    deviation = (means - means.mean(axis=0)) / np.sqrt(len(means))
    _, lengths, directions = np.linalg.svd(deviation, full_matrices=False)
    return np.asarray(directions[lengths > 1.0])


def label_sliders(heads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One slider for a numeric label or one of two classes, else one for each class, in per cent of the way to it."""
    sliders: list[dict[str, Any]] = []
    for number, label in enumerate(heads):
        name, classes = label["name"], label["classes"]
        if len(classes) < 2:
            continue
        if label["numeric"]:
            limits = {key: label[key] for key in ("low", "high", "step")}
            sliders.append({"id": f"label-{number}", "label": number, "target": None, "text": name, **limits})
            continue
        for target in [1] if len(classes) == 2 else range(len(classes)):
            text = f"{name}: {classes[0]} to {classes[1]}" if len(classes) == 2 else f"{name}: {classes[target]}"
            entry = {"id": f"label-{number}-{target}", "label": number, "target": target, "text": text}
            sliders.append({**entry, "low": -50, "high": 150, "step": 5})
    return sliders


def _nice_step(extent: float) -> float:
    """1, 2 or 5 times a power of ten, so that a slider has about fifty steps."""
    wanted = extent / 40.0 or 1.0
    power = 10.0 ** floor(log10(wanted))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= wanted)


def shown(name: Any) -> str:
    """Columns of an array have numbers instead of names."""
    return f"label {name}" if isinstance(name, int) else str(name)


def _floats(values: Any) -> str:
    return _base64(np.asarray(values, dtype="<f4"))


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
