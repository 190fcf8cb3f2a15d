"""One layer of a network as its user describes it, and a pyramid of layers for any shape of input."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from higsfa.core.expansion.expansion import as_expansion
from higsfa.core.expansion.kernel import Kernel
from higsfa.core.fields import Fields, check_fit
from higsfa.core.node.solve import AUTO, NodeOptions
from higsfa.estimators.node import NodeEstimator
from higsfa.estimators.validation import assign
from higsfa.training.layer import LayerPlan

BOTTOM = {1: (16, 8), 2: (6, 3), 3: (4, 2)}  # field and stride of the first layer of a pyramid, by dimensions
CELLS = (4, 2)
"""The same where there are many channels, as in the cells of a front end."""
MOST_PCA, MOST_BOTTOM = 100, 90
"""Principal components and features of a node of the first layer."""
FEW = 6000
"""Samples below which a network is a kernel on principal components."""
MANY_DIFFERENT = 1000
"""Different samples from which on copies of them count."""
MOST_POINTS, MOST_KERNEL_PCA, KERNEL_SHRINKAGE = 2000, 400, 0.1
"""Then: points of the kernel, principal components that it is on, and shrinkage."""
MOST_RAW, LEAST_RAW = 1600, 200
"""Values that one node takes principal components of; of more, nodes with at least so many each reduce them first."""


class Layer(BaseEstimator):
    """One layer of nodes with small receptive fields.

    Parameters
    ----------
    field : int or tuple of int
        Size of a receptive field, in nodes of the layer below (pixels for the first layer), by dimension.
    stride : int or tuple of int, optional
        Distance between neighbouring fields; the size of the field by default (no overlap).
    n_components : int, default=20
        Outputs of each node. If the data of a node support fewer, the others are 0.
    expansion : str, Expansion or callable, default="identity | power0.8"
        Nonlinear expansion of the centred input of a node. Slices are positions within each child.
    pca : int, optional
        Reduce the raw input of each node to this number of principal components first (not whitened).
    n_slow : int or "auto", optional
        Number of slow features of each node, in information-preserving networks; "auto" takes those that are slower
        than noise on samples that training has not seen.
    delta_threshold : float, default=1.96
        Without `n_slow`, features with a smaller Delta form the slow part.
    scaling : {"sensitivity", "qr"}, default="sensitivity"
        How slow features are scaled.
    min_scale : float, default=1e-3
        Lower bound on the scales, relative to the largest amplitude.
    shared : bool, default=False
        Weight sharing: one node, trained on all fields, serves the whole layer.
    n_fields : int, optional
        With shared weights: train on this number of fields, the same in every run, instead of all of them. Where there
        are many fields and samples, some fields are enough; features are computed for all fields.
    pad : bool, default=False
        If fields do not fit the grid, move the last one inward instead of raising an error.
    shrinkage : float or "auto", default=0.0
        Against overfitting: solve as if white noise with this fraction of its variance were added to every expanded
        variable. "auto": a network is trained on half of the samples first (5,000 at most), and all layers that leave
        it open take the value that makes 16 nodes of each of them slowest on another half, in the sum over layers.
        Where only one layer learns from labels, it takes the value whose features say most about the other half, times
        the share of the samples that were trained on. Copies of a sample and groups stay together.
    weighted : bool, default=False
        Whether regression and PCA in the nodes use vertex weights.

    Examples
    --------
    >>> from higsfa import Layer
    >>> Layer(field=(6, 6), stride=(3, 3), pca=20, n_components=18, n_slow=3)
    Layer(field=(6, 6), n_components=18, n_slow=3, pca=20, stride=(3, 3))
    """

    _parameter_constraints: dict[str, Any] = {
        **{name: NodeEstimator._parameter_constraints[name] for name in ("expansion", "shrinkage")},
        **NodeEstimator._preserving_constraints,
        "field": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "stride": [Interval(Integral, 1, None, closed="left"), tuple, list, None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "pca": [Interval(Integral, 1, None, closed="left"), None],
        "shared": ["boolean"],
        "n_fields": [Interval(Integral, 1, None, closed="left"), None],
        "pad": ["boolean"],
    }

    def __init__(
        self,
        field: Any,
        stride: Any = None,
        n_components: int = 20,
        *,
        expansion: Any = "identity | power0.8",
        pca: int | None = None,
        n_slow: Any = None,
        delta_threshold: float = 1.96,
        scaling: str = "sensitivity",
        min_scale: float = 1e-3,
        shared: bool = False,
        n_fields: int | None = None,
        pad: bool = False,
        shrinkage: Any = 0.0,
        weighted: bool = False,
    ) -> None:
        assign(locals())

    @property
    def n_dimensions(self) -> int:
        return 1 if isinstance(self.field, Integral) else len(self.field)

    def plan(self, number: int, grid: tuple[int, ...], width: int, *, preserve: bool, clip_range: bool) -> LayerPlan:
        """Place the layer on the grid below it; errors name the layer."""
        name = f"layer {number}"
        validate_parameter_constraints(self._parameter_constraints, self.get_params(deep=False), name)
        field = _sizes(self.field, len(grid), f"{name}: field")
        stride = field if self.stride is None else _sizes(self.stride, len(grid), f"{name}: stride")
        fields = Fields(grid, field, stride, bool(self.pad))
        check_fit(fields, name)
        options = NodeOptions(
            n_components=int(self.n_components),
            preserve=preserve,
            delta_threshold=float(self.delta_threshold),
            n_slow=self.n_slow,
            scaling=self.scaling,
            min_scale=float(self.min_scale),
            weighted=bool(self.weighted),
            shrinkage=self.shrinkage if self.shrinkage == AUTO else float(self.shrinkage),
        )
        expansion = as_expansion(self.expansion)
        if self.n_fields is not None and not self.shared:
            raise ValueError(f"{name}: n_fields={self.n_fields} is for shared weights only; add shared=True")
        shared = bool(self.shared)
        plan = LayerPlan(fields, width, expansion, self.pca, shared, clip_range, options, n_fields=self.n_fields)
        is_alone = len(expansion.terms) == fields.n_nodes == 1 and expansion.terms[0].selection is None
        if any(isinstance(term, Kernel) for term in expansion.terms) and not is_alone:
            raise ValueError(f"{name}: {expansion}: a kernel is for one node, alone and without a slice")
        try:
            plan.frontend_size  # noqa: B018  an expansion that does not fit is an error here
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return plan


def _sizes(value: Any, n_dimensions: int, what: str) -> tuple[int, ...]:
    sizes = (value,) * n_dimensions if isinstance(value, Integral) else tuple(value)
    if len(sizes) != n_dimensions:
        raise ValueError(f"{what} {value} has {len(sizes)} dimensions, the grid below has {n_dimensions}")
    if not all(isinstance(size, int | np.integer) and size >= 1 for size in sizes):
        raise ValueError(f"{what} {value} must hold integers of at least 1")
    return tuple(int(size) for size in sizes)


def design_pyramid(
    input_shape: Any,
    n_components: int = 60,
    *,
    n_dimensions: int | None = None,
    n_samples: int | None = None,
    **options: Any,
) -> list[Layer]:
    """Layers that merge small overlapping fields, one dimension after the other, until one node is left.

    The first layer reduces its field to principal components. Upper layers join three neighbours along the longest
    dimension, one of them shared with the next field. The number of features grows with the number of channels and
    from layer to layer, up to `n_components` at the top. Shrinkage is chosen by the network, on samples that are left
    out, except where there are many channels and many samples.

    With fewer than 6,000 labelled samples (`n_samples`) there is one node, with a kernel on principal components: slow
    features of small fields would fit the samples at hand, and the nodes above would trust them. Where there are more
    than 1,600 inputs, nodes without slow features reduce them first, in fields that overlap as little as can be.
    """
    shape = (input_shape,) if isinstance(input_shape, int) else tuple(int(size) for size in input_shape)
    if n_dimensions is None:
        n_dimensions = 2 if len(shape) == 3 and shape[2] <= 4 else len(shape)
    if not 1 <= n_dimensions <= 3 or len(shape) not in (n_dimensions, n_dimensions + 1):
        raise ValueError(f"input_shape {shape} must have 1 to 3 dimensions, and channels last if there are several")
    grid, channels = shape[:n_dimensions], shape[n_dimensions] if len(shape) > n_dimensions else 1
    if n_samples is not None and n_samples < FEW:
        return _kernel_layers(grid, channels, n_components, n_samples, options)
    style = _Style(channels, n_components, n_samples is not None, options)
    size, step = CELLS if channels > 4 and n_dimensions == 2 else BOTTOM[n_dimensions]
    field = tuple(min(size, length) for length in grid)
    stride = tuple(min(step, length) for length in grid)
    grid = Fields(grid, field, stride, True).shape
    layers = [style.bottom(field, stride, max(grid) == 1)]
    while max(grid) > 1:
        axis = max(range(len(grid)), key=lambda d: (grid[d], -d))
        reach = min(3, grid[axis])
        field = tuple(reach if d == axis else 1 for d in range(len(grid)))
        stride = tuple(min(2, reach) if d == axis else 1 for d in range(len(grid)))
        grid = Fields(grid, field, stride, True).shape
        layers.append(style.upper(field, stride, layers, max(grid) == 1))
    return layers


def counted_samples(sample_index: np.ndarray) -> int:
    """How many samples a network is designed for: copies count, unless they are of few samples."""
    n_different = len(np.unique(sample_index))
    return len(sample_index) if n_different >= MANY_DIFFERENT else n_different


def _kernel_layers(
    grid: tuple[int, ...], width: int, n_components: int, n_samples: int, options: dict[str, Any]
) -> list[Layer]:
    """One node with a kernel, over principal components of everything; of blocks first, if there are many inputs."""
    layers = []
    while prod(grid) * width > MOST_RAW:
        size = next(size for size in range(2, LEAST_RAW + 1) if width * size ** len(grid) >= LEAST_RAW)
        field = tuple(-(-length // -(-length // size)) for length in grid)
        n_raw = width * prod(field)
        width = min(MOST_PCA, n_raw, max(2, n_samples))
        pca = width if width < n_raw else None
        layers.append(Layer(field, field, width, pca=pca, expansion="identity", n_slow=0, pad=True))
        grid = Fields(grid, field, field, True).shape
    own: dict[str, Any] = {"pca": MOST_KERNEL_PCA} if prod(grid) * width > MOST_KERNEL_PCA else {}
    own |= {"expansion": f"kernel{max(1, min(MOST_POINTS, n_samples))}", "delta_threshold": 1.9}
    return [*layers, Layer(grid, None, n_components, **{**own, "shrinkage": KERNEL_SHRINKAGE, **options})]


@dataclass(frozen=True)
class _Style:
    """How the layers of a pyramid are made: wider and with more nonlinear terms where there are many channels."""

    channels: int
    n_components: int  # of the top
    labelled: bool  # many labelled samples
    options: dict[str, Any]

    @property
    def rich(self) -> bool:
        return self.channels > 4

    def bottom(self, field: Any, stride: Any, is_top: bool) -> Layer:
        n_raw = self.channels * prod(field)
        pca = min(20 * self.channels, MOST_PCA, max(1, round(0.6 * n_raw))) if n_raw > 16 else None
        inputs = n_raw if pca is None else pca
        width = min(MOST_BOTTOM, 7 * self.channels) if self.rich else 18 if n_raw > 16 else 12
        selected = f"[:{min(10, inputs)}]" if pca is not None else ""
        terms = f"power0.8 | normalized_quadratic{selected}" if inputs > 1 else "power0.8"
        out = min(width, self.n_components if is_top or not self.rich else width, max(1, inputs))
        return self.layer(field, stride, out, terms, is_top, n_slow=16 if self.rich else 3, pca=pca)

    def upper(self, field: Any, stride: Any, layers: list[Layer], is_top: bool) -> Layer:
        below = layers[-1].n_components
        widest = max(self.n_components, round(2.2 * layers[0].n_components)) if self.rich else self.n_components
        out = min(prod(field) * below, self.n_components if is_top else min(widest, round(1.35 * below)))
        terms = "power0.8" + (f" | normalized_quadratic[:{min(4, below)}]" if below > 1 else "")
        second = (24 if self.rich else 4) if len(layers) == 1 else None
        return self.layer(field, stride, out, terms, is_top, n_slow=second)

    def layer(self, field: Any, stride: Any, out: int, terms: str, is_top: bool, n_slow: Any, **own: Any) -> Layer:
        own |= {"n_slow": None if n_slow is None else min(n_slow, out), "pad": True, "shrinkage": AUTO}
        if self.rich:
            own["expansion"] = f"identity | relu{1000 if is_top else 500}"
            own |= {"n_slow": None if is_top else own["n_slow"], "delta_threshold": 1.9}
            if self.labelled:  # measured: better than what is chosen on half of them
                own["shrinkage"] = 0.1 if is_top else 0.01
        else:
            own["expansion"] = f"identity | {terms}"
        return Layer(field, stride, out, **{**own, **self.options})
