"""torch: a trained model as a module with the same weights, to be trained further with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from higsfa.export.steps import Array, Operations, Value
from higsfa.export.taking_apart import Exported, steps_of


def to_torch(model: Any, *, dtype: str = "float32") -> Any:
    """Export a trained model as a module of torch.

    What training found (projections, weights, offsets) are its parameters; ranges that inputs are clipped to, fields
    and Gaussians of heads are buffers. Features are those of this library up to rounding, with gradients. Needs torch.

    Parameters
    ----------
    model : as in :func:`to_onnx`
    dtype : {"float32", "float64"}, default="float32"
        Of the parameters, but for projections, which are in float64 as in ONNX, and of the features.

    Returns
    -------
    torch.nn.Module
        Called with samples (N, ...), it returns features (N, n_components); with a head at the end, a
        dict from labels to pairs: the number or index of the class, (N, 1), and probabilities, (N, n_classes).

    Notes
    -----
    Where a power has no slope, at 0, the gradient is 0, and where the range guard clips an input, too.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA
    >>> from higsfa.export import to_torch
    >>> X, y = load_wine(return_X_y=True)
    >>> gsfa = GSFA(n_components=2, expansion="identity | power0.8").fit(X, y)
    >>> module = to_torch(gsfa, dtype="float64")
    >>> features = module(torch.tensor(X))
    >>> bool(np.allclose(features.detach().numpy(), gsfa.transform(X)))
    True
    >>> optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)  # to train it further
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype={dtype!r} must be 'float32' or 'float64'")
    exported = steps_of(model)
    try:
        import torch
    except ImportError as error:
        raise ImportError("to_torch needs the package torch: see pytorch.org") from error
    return _make(torch, exported, np.dtype(dtype if exported.fits_single else "float64"))


def _make(torch: Any, exported: Exported, dtype: np.dtype[Any]) -> Any:
    """A module that goes through the steps; the first time, to find their weights."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._operations = _Eager(torch, self, dtype)
            with torch.no_grad():
                self(torch.zeros((2, *exported.input_shape)))

        def forward(self, X: Any) -> Any:
            x = X.reshape(len(X), -1).to(self._operations.type(dtype))
            for step in exported.steps:
                x = step.apply(self._operations, x)
            return x

    return Module()


class _Eager(Operations):
    """Values are tensors; arrays belong to a module, which they are given to when they are first asked for."""

    def __init__(self, torch: Any, module: Any, dtype: np.dtype[Any]) -> None:
        self.torch, self.dtype, self.module = torch, dtype, module

    def weight(self, name: str, array: Array, *, exact: bool = False) -> Any:
        return self._kept(name, np.asarray(array, np.float64 if exact else self.dtype), learned=True)

    def constant(self, name: str, array: Array) -> Any:
        return self._kept(name, array if array.dtype.kind in "iu" else np.asarray(array, self.dtype))

    def exact(self, name: str, array: Array) -> Any:
        return self._kept(name, array)

    def _kept(self, name: str, array: Array, *, learned: bool = False) -> Any:
        name = name.replace(".", "_")
        if not hasattr(self.module, name):
            tensor = self.torch.tensor(np.ascontiguousarray(array))
            if learned:
                self.module.register_parameter(name, self.torch.nn.Parameter(tensor))
            else:
                self.module.register_buffer(name, tensor)
        return getattr(self.module, name)

    def type(self, dtype: Any) -> Any:
        return getattr(self.torch, np.dtype(dtype).name)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.to(self.type(dtype))

    def power(self, x: Any, exponent: float) -> Any:
        """x^p with a slope of 0 at 0."""
        positive = x > 0
        return self.torch.where(positive, x, 1).pow(exponent) * positive

    def call(self, operation: str, *values: Value, **options: Any) -> Any:
        return OPERATIONS[operation](self.torch, *values, **options)


def _gather(torch: Any, x: Any, indices: Any, axis: int) -> Any:
    found = x.index_select(axis, indices.reshape(-1))
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _bound(name: str) -> Any:
    """The larger or smaller of two; numbers become tensors."""

    def bound(torch: Any, x: Any, y: Any) -> Any:
        return getattr(torch, name)(x, y if torch.is_tensor(y) else torch.tensor(y, dtype=x.dtype, device=x.device))

    return bound


OPERATIONS: dict[str, Any] = {
    "Abs": lambda torch, x: x.abs(),
    "Add": lambda torch, x, y: x + y,
    "ArgMax": lambda torch, x, axis: x.argmax(dim=axis, keepdim=True),
    "Concat": lambda torch, *parts, axis: torch.cat(parts, dim=axis),
    "Div": lambda torch, x, y: x / y,
    "Floor": lambda torch, x: x.floor(),
    "Gather": _gather,
    "GatherElements": lambda torch, x, indices, axis: x.gather(axis, indices),
    "MatMul": lambda torch, x, y: x @ y,
    "Max": _bound("maximum"),
    "Min": _bound("minimum"),
    "Mul": lambda torch, x, y: x * y,
    "ReduceSum": lambda torch, x, axes: x.sum(dim=axes, keepdim=True),
    "Relu": lambda torch, x: x.relu(),
    "Exp": lambda torch, x: x.exp(),
    "Reshape": lambda torch, x, shape: x.reshape(shape),
    "Round": lambda torch, x: x.round(),
    "Sign": lambda torch, x: x.sign(),
    "Softmax": lambda torch, x: x.softmax(dim=-1),
    "Sub": lambda torch, x, y: x - y,
    "Transpose": lambda torch, x, perm: x.permute(perm),
}
"""What the steps call, by its name in ONNX."""
