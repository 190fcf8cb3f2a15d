"""Texts in a model file that may be many: names of features, and the classes of labels."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.io.container import Arrays, ModelFileError, Tensors, parse_json, refuse, refusing

MAX_CLASS_TEXT = 1000
"""Characters of the JSON text of one class."""
CLASS_BYTES = 200
"""What reading one class takes at most, beyond its text."""
CLASS_TYPES: dict[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (float,),
    "U": (str,),
    "O": (str, bool, int, float),
}
"""What an array of each kind may hold."""
CLASS_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|O|U[1-9][0-9]{0,3}")


def pack_names(estimator: Any, arrays: Arrays, prefix: str) -> bool:
    """Names of the input features as one text with zeros between them; tells whether there are any."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if any("\0" in name for name in names):
            raise ValueError("feature names with a zero character cannot be saved")
        arrays[f"{prefix}feature_names_in"] = np.frombuffer(
            "\0".join(names).encode("utf-8", "surrogatepass"), dtype=np.uint8
        )
    return names is not None


def unpack_names(tensors: Tensors, prefix: str, n_features: int) -> NDArray[Any]:
    name = f"{prefix}feature_names_in"
    raw = tensors.take(name, "U8", (None,))
    wide = bool(np.any(raw > 127))  # such a text takes four bytes a character in memory, twice for a moment
    tensors.spend((8 if wide else 2) * len(raw))
    with refusing(name):
        written = str(raw.data, "utf-8", "surrogatepass")
    if written.count("\0") != n_features - 1:
        refuse(f"{name} must hold {n_features:,} names")
    tensors.spend(80 * n_features)
    return np.array(written.split("\0"), dtype=object)


def pack_classes(classes: NDArray[Any], arrays: Arrays, name: str) -> str:
    """The classes of a categorical label, each as JSON, with zeros between them; returns their type."""
    dtype = "O" if classes.dtype.kind == "O" else classes.dtype.str[1:]
    values = [value.item() if isinstance(value, np.generic) else value for value in classes.tolist()]
    wrong = [value for value in values if type(value) not in CLASS_TYPES.get(dtype[0], ())]
    if wrong or not CLASS_DTYPE.fullmatch(dtype):
        example = type((wrong or values)[0]).__name__
        raise TypeError(
            f"a label whose classes are of type {example} ({classes.dtype}) cannot be saved; "
            "fit the head on strings, whole numbers or booleans"
        )
    arrays[name] = np.frombuffer("\0".join(json.dumps(value) for value in values).encode(), dtype=np.uint8)
    return dtype


def unpack_classes(dtype: Any, tensors: Tensors, name: str) -> NDArray[Any]:
    if not isinstance(dtype, str) or not CLASS_DTYPE.fullmatch(dtype):
        refuse(f"{name}: no type that classes can have")
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
        refuse(f"{name} holds a text that is no class: {written[:40]!r}")
    return value if type(value) in CLASS_TYPES[kind] else refuse(f"{name} holds values of another type than it says")
