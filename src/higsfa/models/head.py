"""A LabelHead in a model file: for each label its classes, and one Gaussian for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.io.container import Arrays, Tensors, listed, members, refuse, refusing, text, truth, whole
from higsfa.io.nodes import MAX_VALUES
from higsfa.models.parameters import plain, typed
from higsfa.models.texts import pack_classes, pack_names, unpack_classes, unpack_names

FORMS = ("frame", "dict", "vector", "table")
"""How the labels were given to `fit`."""
PARAMETERS: dict[str, tuple[type, ...]] = {
    "n_features": (int, str, type(None)),
    "n_classes": (int, type(None)),
    "integer": (bool,),
    "regularization": (int, float),
    "cv": (int,),
}
"""Parameters that are plain values, and the types of these; the first three may also differ from label to label."""
BY_LABEL = ("n_features", "n_classes", "integer")
MAX_CANDIDATES = 2**16
"""Numbers of features to try."""
LABEL_BYTES = 4000
"""What is built for a label, beside its arrays."""


def pack_head(head: LabelHead, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(head, "models_")
    return {
        "params": _pack_params(head),
        "feature_names_in": pack_names(head, arrays, prefix),
        "n_features_in": head.n_features_in_,
        "output_form": head.output_form_,
        "labels": [_pack_label(head, name, arrays, f"{prefix}labels.{j}.") for j, name in enumerate(head.label_names_)],
    }


def unpack_head(cls: type, record: dict[str, Any], tensors: Tensors, prefix: str) -> LabelHead:
    params, has_names, n_inputs, form, labels = members(
        record, "LabelHead", "params", "feature_names_in", "n_features_in", "output_form", "labels"
    )
    head = _unpack_params(params)
    head.n_features_in_ = whole(n_inputs, "n_features_in", 1, MAX_VALUES)
    if truth(has_names, "feature_names_in"):
        head.feature_names_in_ = unpack_names(tensors, prefix, head.n_features_in_)
    if form not in FORMS:
        refuse(f"output_form must be one of {', '.join(FORMS)}")
    head.output_form_ = form
    head.label_names_ = []
    head.classes_, head.n_features_, head.is_numeric_, head.models_, head.cv_results_ = {}, {}, {}, {}, {}
    for j, label in enumerate(listed(labels, "labels")):
        tensors.spend(LABEL_BYTES)
        _unpack_label(head, label, tensors, f"{prefix}labels.{j}.")
    if not head.label_names_ or (form == "vector" and len(head.label_names_) > 1):
        refuse("a LabelHead must have labels, and exactly one if they were a vector")
    return head


# ---------------------------------------------------------------------- labels


def _pack_label(head: LabelHead, name: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    model, scores = head.models_[name], head.cv_results_.get(name)
    if not isinstance(model, GaussianClasses):
        _refuse_regressor(model, f"for label {name!r} ")
    for part in ("center", "scale", "projection", "means", "factors", "log_weights"):
        arrays[prefix + part] = getattr(model, part)
    if head.is_numeric_[name]:
        dtype = None
        arrays[f"{prefix}classes"] = head.classes_[name]
    else:
        dtype = pack_classes(head.classes_[name], arrays, f"{prefix}classes")
    if scores is not None:
        arrays[f"{prefix}tried"] = np.array(list(scores), dtype=np.int64)
        arrays[f"{prefix}scores"] = np.array(list(scores.values()))
    return {
        "name": _pack_label_name(name),
        "class_type": dtype,
        "n_features": head.n_features_[name],
        "cross_validated": scores is not None,
    }


def _unpack_label(head: LabelHead, record: Any, tensors: Tensors, prefix: str) -> None:
    name, dtype, k, cross_validated = members(record, "a label", "name", "class_type", "n_features", "cross_validated")
    name = _unpack_label_name(name)
    if name in head.models_:
        refuse(f"label {name!r} is there twice")
    head.label_names_.append(name)
    head.is_numeric_[name] = dtype is None
    if dtype is None:
        head.classes_[name] = tensors.take(f"{prefix}classes", "F64", (None,))
    else:
        head.classes_[name] = unpack_classes(dtype, tensors, f"{prefix}classes")
    head.n_features_[name] = whole(k, "n_features", 1, head.n_features_in_)
    head.models_[name] = _unpack_gaussians(tensors, prefix, head.n_features_[name], len(head.classes_[name]))
    if truth(cross_validated, "cross_validated"):
        tried = tensors.take(f"{prefix}tried", "I64", (None,))
        scores = tensors.take(f"{prefix}scores", "F64", (len(tried),))
        tensors.spend(300 * len(tried))
        if np.any(tried < 1) or np.any(tried > head.n_features_in_) or len(set(tried.tolist())) < len(tried):
            refuse(f"{prefix}tried must hold different numbers of features")
        head.cv_results_[name] = dict(zip(tried.tolist(), scores.tolist(), strict=True))


def _unpack_gaussians(tensors: Tensors, prefix: str, k: int, n_classes: int) -> GaussianClasses:
    def take(part: str, *shape: int | None) -> NDArray[Any]:
        return tensors.take(prefix + part, "F64", shape)

    projection = take("projection", k, None)
    rank = projection.shape[1]
    scale = tensors.take_any(f"{prefix}scale", "F64", (k,))
    log_weights = tensors.take_any(f"{prefix}log_weights", "F64", (n_classes,))
    if rank > k:
        refuse(f"{prefix}projection has more columns than features")
    if not np.all(scale > 0):
        refuse(f"{prefix}scale must be positive, or infinite where a feature is constant")
    if not np.all(log_weights < np.inf) or not np.any(np.isfinite(log_weights)):
        refuse(f"{prefix}log_weights must be finite, or minus infinity for a class without members")
    return GaussianClasses(
        center=take("center", k),
        scale=scale,
        projection=projection,
        means=take("means", n_classes, rank),
        factors=take("factors", n_classes, rank, rank),
        log_weights=log_weights,
    )


# ---------------------------------------------------------------------- parameters


def _pack_params(head: LabelHead) -> dict[str, Any]:
    if head.regressor is not None:
        _refuse_regressor(head.regressor)
    if isinstance(head.cv, bool) or not isinstance(head.cv, int | np.integer):
        raise TypeError(
            f"cv of LabelHead is a {type(head.cv).__name__}, and only a number of folds can be saved; "
            "it matters to fit alone, so head.set_params(cv=5) before saving is harmless"
        )
    packed = {name: _pack_by_label(getattr(head, name), name) for name in PARAMETERS}
    packed["candidates"] = None if head.candidates is None else [int(k) for k in head.candidates]
    return packed


def _unpack_params(record: Any) -> LabelHead:
    what = "parameters of LabelHead"
    *values, candidates = members(record, what, *PARAMETERS, "candidates")
    params = {name: _unpack_by_label(value, name) for name, value in zip(PARAMETERS, values, strict=True)}
    if candidates is not None and not all(type(k) is int for k in listed(candidates, "candidates", MAX_CANDIDATES)):
        refuse("candidates must hold integers")
    head = LabelHead(**params, candidates=candidates)
    with refusing(what):
        head._validate_params()
    return head


def _pack_by_label(value: Any, what: str) -> Any:
    """A plain value, or pairs of labels and values."""
    types = PARAMETERS[what]
    if what not in BY_LABEL or not isinstance(value, dict):
        return typed(plain(value, f"{what} of LabelHead"), types)
    return [
        [_pack_label_name(label), typed(plain(own, f"{what} of label {label!r}"), types)]
        for label, own in value.items()
    ]


def _unpack_by_label(value: Any, what: str) -> Any:
    if what not in BY_LABEL or not isinstance(value, list):
        return _typed(value, what)
    pairs = [listed(pair, what, 2) for pair in listed(value, what)]
    if not all(len(pair) == 2 for pair in pairs):
        refuse(f"{what} must hold pairs of a label and a value")
    made = {_unpack_label_name(label): _typed(own, what) for label, own in pairs}
    if len(made) < len(pairs):
        refuse(f"{what} names a label twice")
    return made


def _typed(value: Any, what: str) -> Any:
    if type(value) not in PARAMETERS[what] or (isinstance(value, str) and value != "cv"):
        refuse(f"{what} of LabelHead has a value of the wrong type")
    return value


def _pack_label_name(name: Any) -> Any:
    if isinstance(name, bool | np.bool_) or not isinstance(name, str | int | np.integer):
        raise TypeError(f"label {name!r} cannot be saved: names of labels must be texts or whole numbers")
    return plain(name, "name of a label")


def _unpack_label_name(name: Any) -> Any:
    return name if type(name) is int else text(name, "name of a label")


def _refuse_regressor(model: Any, where: str = "") -> None:
    raise TypeError(
        f"a LabelHead with regressor= {where}({type(model).__name__}) cannot be saved, only one with Gaussians: leave "
        "regressor out and fit it again, or keep that estimator apart, in a file format of its own"
    )
