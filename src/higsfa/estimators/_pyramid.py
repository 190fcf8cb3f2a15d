"""A sensible network for any shape of input."""

from __future__ import annotations

from typing import Any

from higsfa.core.fields import Fields
from higsfa.estimators.layer import Layer

BOTTOM = {1: (16, 8), 2: (6, 3), 3: (4, 2)}
"""Field and stride of the first layer, by number of dimensions."""


def design_pyramid(
    input_shape: Any, n_components: int = 60, *, n_dimensions: int | None = None, **options: Any
) -> list[Layer]:
    """Layers that merge small overlapping fields, one dimension after the other, until one node is left.

    The first layer reduces its pixels to principal components; upper layers join three neighbours along the longest
    dimension, with one node shared between neighbouring fields. The number of features grows from layer to layer, up to
    `n_components` at the top.
    """
    shape = (input_shape,) if isinstance(input_shape, int) else tuple(int(size) for size in input_shape)
    if n_dimensions is None:
        n_dimensions = 2 if len(shape) == 3 and shape[2] <= 4 else len(shape)
    if not 1 <= n_dimensions <= 3 or len(shape) not in (n_dimensions, n_dimensions + 1):
        raise ValueError(f"input_shape {shape} must have 1 to 3 dimensions, and channels last if there are several")
    grid, width = shape[:n_dimensions], shape[n_dimensions] if len(shape) > n_dimensions else 1
    size, step = BOTTOM[n_dimensions]
    field = tuple(min(size, length) for length in grid)
    stride = tuple(min(step, length) for length in grid)
    layers = [_bottom(field, stride, width, n_components, options)]
    grid, width = Fields(grid, field, stride, True).shape, layers[0].n_components
    while max(grid) > 1:
        axis = max(range(len(grid)), key=lambda d: (grid[d], -d))
        reach = min(3, grid[axis])
        field = tuple(reach if d == axis else 1 for d in range(len(grid)))
        stride = tuple(min(2, reach) if d == axis else 1 for d in range(len(grid)))
        grid = Fields(grid, field, stride, True).shape
        out = n_components if max(grid) == 1 else min(n_components, round(1.35 * width))
        out = min(out, reach * width)
        layers.append(_upper(field, stride, width, out, len(layers), options))
        width = out
    return layers


def _bottom(field: Any, stride: Any, channels: int, n_components: int, options: Any) -> Layer:
    n_raw = channels
    for size in field:
        n_raw *= size
    pca = min(20 * channels, max(1, round(0.6 * n_raw))) if n_raw > 16 else None
    inputs = n_raw if pca is None else pca
    selected = f"[:{min(10, inputs)}]" if pca is not None else ""
    expansion = f"identity | power0.8 | normalized_quadratic{selected}" if inputs > 1 else "identity | power0.8"
    at_most = min(n_components, max(1, inputs))
    out = min(18 if n_raw > 16 else 12, at_most)
    own = {"expansion": expansion, "pca": pca, "n_slow": min(3, out), "pad": True}
    return Layer(field, stride, out, **{**own, **options})


def _upper(field: Any, stride: Any, width: int, out: int, number: int, options: Any) -> Layer:
    expansion = "identity | power0.8"
    if width > 1:
        expansion += f" | normalized_quadratic[:{min(4, width)}]"
    own = {"expansion": expansion, "n_slow": min(4, out) if number == 1 else None, "pad": True}
    return Layer(field, stride, out, **{**own, **options})
