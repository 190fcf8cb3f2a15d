"""A LabelHead in a model file: the classes of each label, and a Gaussian for each class."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from higsfa.estimators.label_head import GaussianClasses, LabelHead
from higsfa.io.container import Arrays, ModelFileError, Record, Some, Tensors, parse_json, refuse
from higsfa.models.parameters import LabelName, Size, pack_common, pack_label_name, unpack_common

LABEL_BYTES = 4000  # for a label, besides its arrays
CLASS_BYTES = 200  # for reading a class, besides its text
MAX_CLASS_TEXT = 1000  # characters of a class in JSON
# What an array of classes may hold, by the kind of its dtype.
CLASS_TYPES: dict[str, Any] = {"b": {bool}, "i": {int}, "u": {int}, "f": {float}, "U": {str}}
CLASS_TYPES["O"] = {str, bool, int, float}
CLASS_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|O|U[1-9][0-9]{0,3}")
GAUSSIANS = ("center", "scale", "projection", "means", "factors", "log_weights")


Share = Annotated[float, Field(ge=0, le=1)]


class LabelRecord(Record):
    name: LabelName
    class_type: str | None
    n_features: Size
    covariance: Share
    mixtures: Some[Share]
    cross_validated: bool


class HeadRecord(Record):
    params: Any
    feature_names_in: bool
    n_features_in: Size
    output_form: Literal["frame", "dict", "vector", "table"]
    labels: Some[LabelRecord]


def pack_head(head: LabelHead, arrays: Arrays, prefix: str) -> dict[str, Any]:
    check_is_fitted(head, "models_")
    if head.regressor is not None:
        _refuse_regressor(head.regressor)
    if isinstance(head.cv, bool) or not isinstance(head.cv, int | np.integer):
        raise TypeError(
            f"cv of LabelHead is a {type(head.cv).__name__}, but only a number of folds can be saved; "
            "only fit uses cv, so call head.set_params(cv=5) before saving"
        )
    return {
        **pack_common(head, arrays, prefix),
        "n_features_in": head.n_features_in_,
        "output_form": head.output_form_,
        "labels": [_pack_label(head, name, arrays, f"{prefix}labels.{j}.") for j, name in enumerate(head.label_names_)],
    }


def unpack_head(cls: type, record: HeadRecord, tensors: Tensors, prefix: str) -> LabelHead:
    head = unpack_common(cls, record, record.n_features_in, tensors, prefix)
    head.output_form_, head.label_names_ = record.output_form, []
    head.label_classes_, head.n_used_features_, head.covariance_ = {}, {}, {}
    head.is_numeric_, head.models_, head.cv_results_ = {}, {}, {}
    for j, label in enumerate(record.labels):
        tensors.spend(LABEL_BYTES)
        _unpack_label(head, label, tensors, f"{prefix}labels.{j}.")
    if record.output_form == "vector" and list(head.models_) != [0]:
        refuse("a LabelHead must have exactly one label, 0, if it was fitted to a vector")
    kinds = {ClassifierMixin: [False], RegressorMixin: [True]}
    for kind, expected in kinds.items():
        if issubclass(cls, kind) and (record.output_form, list(head.is_numeric_.values())) != ("vector", expected):
            refuse(f"a {cls.__name__} must have one label of its kind")
    return head


def upgrade_regularization(model: dict[str, Any]) -> None:
    """From protocol 1 to 2: the mixture of covariances was a parameter of the same value for all labels."""
    mixture = model["params"].pop("regularization", None)
    model["params"]["covariance"] = mixture
    for label in model["labels"] if isinstance(model.get("labels"), list) else ():
        if isinstance(label, dict):
            label |= {"covariance": mixture, "mixtures": [mixture]}


def _pack_label(head: LabelHead, name: Any, arrays: Arrays, prefix: str) -> dict[str, Any]:
    model, scores, classes = head.models_[name], head.cv_results_.get(name), head.label_classes_[name]
    if not isinstance(model, GaussianClasses):
        _refuse_regressor(model, f"for label {name!r} ")
    for part in GAUSSIANS:
        arrays[prefix + part] = getattr(model, part)
    numeric = head.is_numeric_[name]
    arrays[f"{prefix}classes"], dtype = (classes, None) if numeric else _pack_classes(classes)
    mixtures = [head.covariance_[name]]
    if scores is not None:
        mixtures = list(dict.fromkeys(mixture for _, mixture in scores))
        arrays[f"{prefix}tried"] = np.array(list(dict.fromkeys(k for k, _ in scores)), dtype=np.int64)
        arrays[f"{prefix}scores"] = np.array(list(scores.values()))
    return {
        "name": pack_label_name(name),
        "class_type": dtype,
        "n_features": head.n_used_features_[name],
        "covariance": float(head.covariance_[name]),
        "mixtures": [float(mixture) for mixture in mixtures],
        "cross_validated": scores is not None,
    }


def _refuse_regressor(model: Any, where: str = "") -> None:
    raise TypeError(
        f"a LabelHead with regressor= {where}({type(model).__name__}) cannot be saved, only one with Gaussians: fit it "
        "without regressor, or save that estimator separately"
    )


def _unpack_label(head: LabelHead, record: LabelRecord, tensors: Tensors, prefix: str) -> None:
    name, k = record.name, record.n_features
    if name in head.models_:
        refuse(f"label {name!r} appears twice")
    if k > head.n_features_in_:
        refuse(f"{prefix}n_features is {k}, more than the {head.n_features_in_} of the head")
    head.label_names_.append(name)
    head.is_numeric_[name] = record.class_type is None
    head.label_classes_[name] = _unpack_classes(record.class_type, tensors, f"{prefix}classes")
    head.n_used_features_[name], head.covariance_[name] = k, record.covariance
    head.models_[name] = _unpack_gaussians(tensors, prefix, k, len(head.label_classes_[name]))
    if record.cross_validated:
        tried = tensors.take(f"{prefix}tried", "I64", (None,))
        scores = tensors.take(f"{prefix}scores", "F64", (len(tried) * len(record.mixtures),))
        tensors.spend(400 * len(scores))
        if np.any(tried < 1) or np.any(tried > head.n_features_in_) or len(set(tried.tolist())) < len(tried):
            refuse(f"{prefix}tried must hold different numbers of features")
        candidates = product(tried.tolist(), record.mixtures)
        head.cv_results_[name] = dict(zip(candidates, scores.tolist(), strict=True))
        if len(head.cv_results_[name]) < len(scores):
            refuse(f"{prefix}mixtures must be different numbers")


def _unpack_gaussians(tensors: Tensors, prefix: str, k: int, n_classes: int) -> GaussianClasses:
    projection = tensors.take(f"{prefix}projection", "F64", (k, None))
    rank = projection.shape[1]
    if rank > k:
        refuse(f"{prefix}projection has more columns than features")
    scale = tensors.take_any(f"{prefix}scale", "F64", (k,))
    if not np.all(scale > 0):
        refuse(f"{prefix}scale must be positive, or infinite where a feature is constant")
    log_weights = tensors.take_any(f"{prefix}log_weights", "F64", (n_classes,))
    if not np.all(log_weights < np.inf) or not np.any(np.isfinite(log_weights)):
        refuse(f"{prefix}log_weights must be finite, or minus infinity for a class without members")
    shapes = {"center": (k,), "means": (n_classes, rank), "factors": (n_classes, rank, rank)}
    rest = {part: tensors.take(prefix + part, "F64", shape) for part, shape in shapes.items()}
    return GaussianClasses(scale=scale, projection=projection, log_weights=log_weights, **rest)


def _pack_classes(classes: NDArray[Any]) -> tuple[NDArray[np.uint8], str]:
    """The classes of a categorical label as JSON, separated by zeros; and their dtype."""
    dtype = "O" if classes.dtype.kind == "O" else classes.dtype.str[1:]
    values = [value.item() if isinstance(value, np.generic) else value for value in classes.tolist()]
    wrong = [value for value in values if type(value) not in CLASS_TYPES.get(dtype[0], ())]
    if wrong or not CLASS_DTYPE.fullmatch(dtype):
        found = f"{type((wrong or values)[0]).__name__} ({classes.dtype})"
        raise TypeError(f"classes of type {found} cannot be saved; fit the head on strings, whole numbers or booleans")
    return np.frombuffer("\0".join(json.dumps(value) for value in values).encode(), dtype=np.uint8), dtype


def _unpack_classes(dtype: str | None, tensors: Tensors, name: str) -> NDArray[Any]:
    if dtype is None:
        return tensors.take(name, "F64", (None,))
    if not CLASS_DTYPE.fullmatch(dtype):
        refuse(f"{name}: classes cannot have this type")
    raw = tensors.take(name, "U8", (None,))
    n_classes = 1 + int(np.count_nonzero(raw == 0))
    tensors.spend(4 * len(raw) + (CLASS_BYTES + np.dtype(dtype).itemsize) * n_classes)
    values = [_class(written, dtype[0], name) for written in raw.tobytes().split(b"\0")]
    try:
        with np.errstate(over="ignore"):
            classes = np.array(values, dtype=dtype)
    except OverflowError:
        refuse(f"{name} holds numbers beyond {np.dtype(dtype)}")
    if classes.tolist() != values:
        refuse(f"{name} holds values that do not fit into {np.dtype(dtype)}")
    return classes


def _class(written: bytes, kind: str, name: str) -> Any:
    if len(written) > MAX_CLASS_TEXT:
        refuse(f"{name}: a class takes more than {MAX_CLASS_TEXT:,} characters")
    try:
        value = parse_json(written)
    except ModelFileError:
        refuse(f"{name} holds a text that is not a class: {written[:40]!r}")
    return value if type(value) in CLASS_TYPES[kind] else refuse(f"{name} holds values that are not of its type")
