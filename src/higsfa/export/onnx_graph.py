"""ONNX: a trained model as a graph that runs without this library, or Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from higsfa.export.steps import Array, LabelOutput, Operations, Value
from higsfa.export.taking_apart import Exported, steps_of
from higsfa.io import write_atomically

OPSET, IR_VERSION = 17, 8
"""Read by onnxruntime 1.12 and later."""
MAX_BYTES = 2**31 - 2**24
"""Of all weights: a file of protobuf holds 2 GiB."""


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float32") -> Any:
    """Export a trained model as an ONNX graph.

    Features and label estimates are those of this library up to rounding (docs/export.md has a table). Samples are
    not checked: NaN gives NaN. Needs the packages of ``higsfa[onnx]``.

    Parameters
    ----------
    model : SFA, GSFA, ISFA, IGSFA, HSFA, HGSFA, HiSFA, HiGSFA, OrientedEdges, a label head, or a Pipeline of these
        Fitted. StandardScaler, MinMaxScaler and PCA of scikit-learn may be steps of a Pipeline, too. Functions as
        expansions cannot be exported, nor a LabelHead with a `regressor`.
    path : str or path, optional
        Where to write the graph.
    dtype : {"float32", "float64"}, default="float32"
        Of the input ``X``, (N, ...), of what is computed, and of real outputs. Models whose numbers
        leave the range of single precision compute in float64 all the same, and heads always do.

    Returns
    -------
    onnx.ModelProto
        Its outputs are ``features``, (N, n_components). A head has instead, for one label that was given as a vector,
        ``label`` (N,) and ``probabilities`` (N, n_classes); else of each label its estimate under its name, and
        ``<name>_probabilities``. A LabelRegressor has no probabilities.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA, LabelClassifier
    >>> from higsfa.export import to_onnx
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(GSFA(n_components=2, graph="clustered"), LabelClassifier()).fit(X, y)
    >>> graph = to_onnx(model)
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())
    >>> label, probabilities = session.run(None, {"X": X.astype("float32")})
    >>> bool((label == model.predict(X)).all())
    True
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype={dtype!r} must be 'float32' or 'float64'")
    exported = steps_of(model)
    onnx = _import_onnx()
    graph = _Graph(onnx, np.dtype(dtype if exported.fits_single else "float64"))
    made = _build(graph, exported, model, np.dtype(dtype))
    if path is not None:
        write_atomically(Path(path), made.SerializeToString())
    return made


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError("to_onnx needs the package onnx: pip install 'higsfa[onnx]'") from error
    return onnx


class _Graph(Operations):
    """Values are names of tensors; operations are added to a list."""

    def __init__(self, onnx: Any, dtype: np.dtype[Any]) -> None:
        self.onnx, self.dtype = onnx, dtype
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.n_bytes = 0

    def weight(self, name: str, array: Array, *, exact: bool = False) -> str:
        return self.exact(name, np.asarray(array, np.float64 if exact else self.dtype))

    def constant(self, name: str, array: Array) -> str:
        return self.exact(name, array if array.dtype.kind in "iu" else np.asarray(array, self.dtype))

    def exact(self, name: str, array: Array) -> str:
        name = f"/{name}"
        if name not in self.initializers:
            self.n_bytes += array.nbytes
            if self.n_bytes > MAX_BYTES:
                raise ValueError(f"the weights of this model take more than the {MAX_BYTES:,} bytes of an ONNX file")
            self.initializers[name] = self.onnx.numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def call(self, operation: str, *values: Value, **options: Any) -> str:
        inputs = [value if isinstance(value, str) else self._number(value) for value in values]
        for name in ("shape", "axes"):  # inputs in ONNX
            if name in options:
                numbers = np.array(options.pop(name), np.int64)
                inputs.append(self.exact(f"{name}({','.join(map(str, numbers))})", numbers))
        return self._add(operation, inputs, **options)

    def cast(self, x: str, dtype: Any) -> str:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._add("Cast", [x], to=kind)

    def power(self, x: str, exponent: float) -> str:
        if exponent == 1:
            return x
        if exponent == 0.5:
            return self.call("Sqrt", x)
        if exponent == 2:
            return self.call("Mul", x, x)
        if exponent > 1:
            return self.call("Pow", x, exponent)
        # Half the time of Pow in onnxruntime; 0 becomes exp(-inf) = 0.
        return self.call("Exp", self.call("Mul", self.call("Log", x), exponent))

    def _number(self, value: float) -> str:
        return self.constant(f"number({value!r})", np.array(value))

    def _add(self, operation: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        output = output or f"/{operation}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def output(self, x: str, name: str, dtype: np.dtype[Any], width: int | None) -> Any:
        """Name a tensor as an output: (N, width), or (N,) if there is no width."""
        if width is None:
            x = self.call("Reshape", x, shape=[-1])
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(dtype)
        self._add("Identity", [x], name)
        return self.onnx.helper.make_tensor_value_info(name, kind, ["N"] if width is None else ["N", width])


def _build(graph: _Graph, exported: Exported, model: Any, dtype: np.dtype[Any]) -> Any:
    """The whole model: input, steps, outputs, and what they mean."""
    from higsfa import __version__

    helper = graph.onnx.helper
    x: Any = "X"
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    inputs = [helper.make_tensor_value_info(x, kind, ["N", *exported.input_shape])]
    if len(exported.input_shape) > 1:
        x = graph.call("Reshape", x, shape=[-1, int(np.prod(exported.input_shape))])
    x = x if dtype == graph.dtype else graph.cast(x, graph.dtype)
    for step in exported.steps:
        x = step.apply(graph, x)  # of a head, a dict
    meaning: dict[str, Any] = {"model": type(model).__name__}
    if exported.head is None:
        x = x if dtype == graph.dtype else graph.cast(x, dtype)
        width = int(model.get_feature_names_out().shape[0])
        outputs = [graph.output(x, "features", dtype, width)]
    else:
        outputs = []
        for label in exported.head.labels:
            found, probabilities = x[label.name]
            outputs += _label_outputs(graph, label, found, probabilities, dtype, exported.head.has_probabilities)
        meaning["classes"] = {label.name: label.classes.tolist() for label in exported.head.labels}
    names = [output.name for output in outputs]
    if len(set(names)) < len(names) or any(name == "X" or name.startswith("/") for name in names):
        raise ValueError(
            f"labels need names that differ from each other and from 'X', and do not begin with '/': {names}"
        )
    made = helper.make_graph(graph.nodes, "higsfa", inputs, outputs, list(graph.initializers.values()))
    opset = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION, producer_name="higsfa")
    proto.producer_version = __version__
    helper.set_model_props(proto, {"higsfa": json.dumps(meaning)})
    graph.onnx.checker.check_model(proto)
    return proto


def _label_outputs(
    graph: _Graph, label: LabelOutput, found: str, probabilities: str, dtype: np.dtype[Any], wanted: bool
) -> list[Any]:
    """The estimate of a label, as its classes are written, and their probabilities."""
    if label.is_numeric:
        kind = np.dtype(np.int64) if label.integer else dtype
        found = found if label.integer else graph.cast(found, dtype)
    else:
        classes = _class_values(label)
        kind = classes.dtype
        found = graph.call("Gather", graph.exact(f"classes of {label.name}", classes), found, axis=0)
    outputs = [graph.output(found, label.name, kind, None)]
    if wanted:
        name = "probabilities" if label.name == "label" else f"{label.name}_probabilities"
        outputs.append(graph.output(graph.cast(probabilities, dtype), name, dtype, len(label.classes)))
    return outputs


def _class_values(label: LabelOutput) -> Array:
    """Classes as ONNX can hold them: whole numbers, numbers, booleans or texts."""
    classes = np.asarray(label.classes)
    if classes.dtype.kind in "iu" and np.all(classes <= np.iinfo(np.int64).max):
        return classes.astype(np.int64)
    if classes.dtype.kind == "f":
        return classes.astype(np.float64)
    if classes.dtype.kind == "b":
        return classes
    values = classes.tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    raise TypeError(
        f"label {label.name!r} has classes such as {values[0]!r}, which ONNX cannot hold; fit the head to texts or "
        "whole numbers instead"
    )
