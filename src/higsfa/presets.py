"""Networks to start from: those of the paper, one for photographs, and a pyramid for any input.

Structure and sizes of the paper's networks are in its table of networks. The authors published the expansions of layers
2 to 10 as source code, with positions that count from 1 (slices here count from 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from higsfa.estimators import HGSFA, HSFA, HiGSFA, HiSFA, Layer
from higsfa.estimators.edges import make_front
from higsfa.estimators.layer import design_pyramid
from higsfa.graphs import ClusteredGraph, SerialGraph

__all__ = [
    "hgsfa_g3",
    "higsfa_g1",
    "higsfa_g3",
    "higsfa_g3_hgsfa_parameters",
    "higsfa_lopo",
    "photographs",
    "pyramid",
    "qhsfa_1d",
    "rat_hisfa",
    "rat_hsfa",
]

_FIELDS = [(6, 6), (3, 1), (1, 3), (3, 1), (1, 3), (3, 1), (1, 3), (3, 1), (1, 3), (1, 1)]
_STRIDES = [(3, 3), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (1, 1), (1, 1), (1, 1)]

_HIGSFA_OUT = [18, 27, 37, 66, 79, 88, 88, 93, 95, 75]
_LOPO_OUT = [18, 27, 35, 62, 74, 82, 82, 87, 77, 75]
_HGSFA_OUT = [14, 20, 27, 49, 60, 61, 65, 65, 66, 75]

_HIGSFA_LINEAR = [
    "identity[:18] | power0.8[:15] | max2[:17] | quadratic[:10]",
    "identity | power0.8 | max2",
    "identity | power0.8 | max2[:16]",
    "identity | power0.8 | max2[:19]",
    "identity[:60] | power0.8[:49] | max2[:19]",
    "identity[:72] | power0.8[:40] | max2[:11]",
    "identity[:80] | power0.8[:25] | max2[:15]",
    "identity[:80] | power0.8[6:26]",
    "identity[:85] | power0.8[6:26]",
    "identity[:75] | power0.8[:34]",
]
# Slices of the quadratic terms of each layer.
_G3_QUADRATIC = ["", "3:7 :3", "4:10 :3", "4:10 :3", "4:10", "5:11 :3", "6:10", "", ":3", "7:22 :3"]
_G1_QUADRATIC = ["", "1:5", "2:8", "2:8", "2:8", "3:9", "4:8", "", "", "7:22"]
_HGSFA_EXPANSIONS = [
    "identity[:17] | power0.8[:20] | max2[:17] | quadratic[:10]",
    "identity[:8] | power0.8[:12] | max2[:10] | quadratic[:3]",
    "identity[:18] | power0.8[:18] | max2[:16]",
    "identity[:25] | power0.8[:23] | max2[:19] | quadratic[:3]",
    "identity | power0.8[:43] | max2[:19]",
    "identity[:58] | power0.8[:37] | max2[:13] | quadratic[:3]",
    "identity | power0.8[:21] | max2[:17]",
    "identity[:49]",
    "identity[:59] | quadratic[:3]",
    "identity[:66] | power0.8[:34] | quadratic[:3]",
]


def _with_quadratic(slices: list[str]) -> list[str]:
    """The expansions of the HiGSFA networks, with quadratic terms of these slices."""
    terms = [[f"quadratic[{inputs}]" for inputs in text.split()] for text in slices]
    return [" | ".join([linear, *quadratic]) for linear, quadratic in zip(_HIGSFA_LINEAR, terms, strict=True)]


def _layers(
    expansions: list[str], outputs: list[int], n_slow: tuple[int, int] = (3, 4), delta_threshold: float = 1.96
) -> list[Layer]:
    """The layers of a network of the paper: fixed numbers of slow features in the first two, then a threshold."""
    layers = []
    for k, (field, stride, expansion, out) in enumerate(zip(_FIELDS, _STRIDES, expansions, outputs, strict=True)):
        slow: dict[str, Any] = {"n_slow": n_slow[k]} if k < 2 else {"delta_threshold": delta_threshold}
        layers.append(Layer(field, stride, out, expansion=expansion, pca=20 if k == 0 else None, **slow))
    return layers


def _or_g3(graph: Any) -> Any:
    g3 = SerialGraph("age", n_groups=32) + ClusteredGraph("gender") + ClusteredGraph("race")
    return g3 if graph is None else graph


def higsfa_g3(input_shape: Any = (96, 96), graph: Any = None, **params: Any) -> HiGSFA:
    """The paper's ten-layer HiGSFA network for age, gender and race (graph G3).

    Parameters
    ----------
    input_shape : (96, 96)
        The fields fit this shape only.
    graph : recipe, optional
        By default serial for "age" with 32 groups, plus clustered for "gender" and for "race".
    **params
        Other parameters of the network. The other presets of the paper have the same three parameters.

    Examples
    --------
    >>> from higsfa import presets
    >>> print(presets.higsfa_g3())  # doctest: +ELLIPSIS
    HiGSFA for input 96x96, not fitted
    layer  nodes  field  stride   sees  inputs  expanded  out
        1  31x31    6x6     3x3    6x6   36>20       104   18
        2  15x31    3x1     2x1   12x6      54       284   27
        3  15x15    1x3     1x2  12x12      81       423   37
        4   7x15    3x1     2x1  24x12     111       492   66
        5    7x7    1x3     1x2  24x24     198       552   79
        6    3x7    3x1     2x1  48x24     237       582   88
        7    3x3    1x3     1x2  48x48     264       435   88
        8    1x3    3x1     1x1  96x48     264       300   93
        9    1x1    1x3     1x1  96x96     279       360   95
       10    1x1    1x1     1x1  96x96      95       235   75
    (nodes: ...)
    """
    layers = _layers(_with_quadratic(_G3_QUADRATIC), _HIGSFA_OUT)
    return HiGSFA(layers, graph=_or_g3(graph), input_shape=input_shape, **params)


def higsfa_g1(input_shape: Any = (96, 96), graph: Any = None, **params: Any) -> HiGSFA:
    """The paper's HiGSFA network for age only (graph G1, serial with 32 groups); see :func:`higsfa_g3`.

    Examples
    --------
    >>> from higsfa import presets
    >>> net = presets.higsfa_g1()
    >>> net.graph, net.layers[0].n_slow, net.layers[-1].delta_threshold
    (SerialGraph(label='age', n_groups=32), 1, 1.91)
    """
    layers = _layers(_with_quadratic(_G1_QUADRATIC), _HIGSFA_OUT, n_slow=(1, 2), delta_threshold=1.91)
    graph = SerialGraph("age", n_groups=32) if graph is None else graph
    return HiGSFA(layers, graph=graph, input_shape=input_shape, **params)


def higsfa_lopo(input_shape: Any = (96, 96), graph: Any = None, **params: Any) -> HiGSFA:
    """The paper's leave-one-person-out network: normalised quadratic terms, fewer outputs; see :func:`higsfa_g3`.

    Examples
    --------
    >>> from higsfa import presets
    >>> [layer.n_components for layer in presets.higsfa_lopo().layers]
    [18, 27, 35, 62, 74, 82, 82, 87, 77, 75]
    """
    expansions = [text.replace("quadratic", "normalized_quadratic") for text in _with_quadratic(_G3_QUADRATIC)]
    return HiGSFA(_layers(expansions, _LOPO_OUT), graph=_or_g3(graph), input_shape=input_shape, **params)


def hgsfa_g3(input_shape: Any = (96, 96), graph: Any = None, **params: Any) -> HGSFA:
    """The paper's HGSFA network for graph G3, with slow features only; see :func:`higsfa_g3`.

    Examples
    --------
    >>> from higsfa import presets
    >>> net = presets.hgsfa_g3(n_jobs=2)
    >>> type(net).__name__, len(net.layers), net.layers[-1].n_components
    ('HGSFA', 10, 75)
    """
    layers = _layers(_HGSFA_EXPANSIONS, _HGSFA_OUT)
    return HGSFA(layers, graph=_or_g3(graph), input_shape=input_shape, **params)


def higsfa_g3_hgsfa_parameters(input_shape: Any = (96, 96), graph: Any = None, **params: Any) -> HiGSFA:
    """The paper's control experiment: HiGSFA nodes with the hyper-parameters of :func:`hgsfa_g3`.

    Examples
    --------
    >>> from higsfa import presets
    >>> net, other = presets.higsfa_g3_hgsfa_parameters(), presets.hgsfa_g3()
    >>> type(net).__name__, [layer.expansion for layer in net.layers] == [layer.expansion for layer in other.layers]
    ('HiGSFA', True)
    """
    layers = _layers(_HGSFA_EXPANSIONS, _HGSFA_OUT)
    return HiGSFA(layers, graph=_or_g3(graph), input_shape=input_shape, **params)


def qhsfa_1d(n_inputs: int, k: int = 8, **params: Any) -> HSFA:
    """The quadratic 1-D network of the paper's section on complexity.

    Fields do not overlap. Every node expands its k inputs to k (k + 3) / 2 values and reduces them to k / 2 features.
    The cost of training is linear in the number of inputs.

    Parameters
    ----------
    n_inputs : int
        k 2^(L - 1) for L layers.
    k : int, default=8
        An even number.
    **params
        Other parameters of :class:`higsfa.HSFA`.

    Examples
    --------
    >>> from higsfa import presets
    >>> print(presets.qhsfa_1d(32))  # doctest: +ELLIPSIS
    HSFA for input 32, not fitted
    layer  nodes  field  stride  sees  inputs  expanded  out
        1      4      8       8     8       8        44    4
        2      2      2       2    16       8        44    4
        3      1      2       2    32       8        44    4
    (nodes: ...)
    """
    if k < 2 or k % 2:
        raise ValueError(f"k must be an even number of at least 2, got {k}")
    n_fields = n_inputs // k
    if n_inputs % k or n_fields & (n_fields - 1) or n_fields == 0:
        raise ValueError(f"n_inputs must be k = {k} times a power of two, got {n_inputs}")
    n_layers = n_fields.bit_length()
    quadratic = "identity | quadratic"
    layers = [Layer(k if level == 0 else 2, n_components=k // 2, expansion=quadratic) for level in range(n_layers)]
    return HSFA(layers, input_shape=(n_inputs,), **params)


_RAT_FIELDS = [((8, 10), (4, 5)), ((6, 14), (3, 7)), ((2, 8), (1, 1))]  # height, width


def _rat_layers(n_slow: Sequence[int | None], n_fields: Sequence[int | None]) -> list[Layer]:
    """Three levels of nodes, each linear to 32 features and then quadratic to 32; the lower two share weights."""
    layers, numbers = [], iter(n_slow)
    for (field, stride), some in zip(_RAT_FIELDS, [*n_fields, None], strict=True):
        own: dict[str, Any] = {"shared": stride != (1, 1), "n_fields": some}
        layers.append(Layer(field, stride, 32, expansion="identity", n_slow=next(numbers), **own))
        layers.append(Layer((1, 1), (1, 1), 32, expansion="identity | quadratic", n_slow=next(numbers), **own))
    return layers


def rat_hisfa(
    n_slow: int | Sequence[int] = (6, 32), n_fields: Sequence[int | None] = (None, None), **params: Any
) -> HiSFA:
    """The journal's network for the views of a rat in a box (:func:`higsfa.datasets.make_rat_views`).

    Every node is two layers here: linear to 32 features, then quadratic to 32. The linear step keeps 6 slow features
    and what else is needed to rebuild its input; the 32 features of the quadratic step are slow.

    Parameters
    ----------
    n_slow : int, or two or six of int, default=(6, 32)
        Slow features, of 32, of the linear and of the quadratic step of every node; a single number for both. The very
        last step has 32 in any case, as nothing above it needs other information. Six numbers are those of all steps.
        Why these are the default is told in ``docs/rat.md``.
    n_fields : two of int or None, default=(None, None)
        Fields that the shared nodes of the first and the second level are trained on, of 567 and 16; None for all. Some
        are enough where there are many frames; see ``docs/rat.md``.
    **params
        Other parameters of :class:`higsfa.HiSFA`.

    Examples
    --------
    >>> from higsfa import presets
    >>> print(presets.rat_hisfa())  # doctest: +ELLIPSIS
    HiSFA for input 40x320x3, not fitted
    layer        nodes  field  stride    sees  inputs  expanded  out
        1  9x63 shared   8x10     4x5    8x10     240       240   32
        2  9x63 shared    1x1     1x1    8x10      32       560   32
        3   2x8 shared   6x14     3x7   28x75    2688      2688   32
        4   2x8 shared    1x1     1x1   28x75      32       560   32
        5          1x1    2x8     1x1  40x320     512       512   32
        6          1x1    1x1     1x1  40x320      32       560   32
    (nodes: ...)
    """
    numbers = [n_slow, n_slow] if isinstance(n_slow, int) else list(n_slow)
    numbers = [*numbers, *numbers, numbers[0], 32] if len(numbers) == 2 else numbers
    if len(numbers) != 6:
        raise ValueError(f"n_slow must be a number, or two or six of them, got {n_slow!r}")
    return HiSFA(_rat_layers(numbers, n_fields), **{"input_shape": (40, 320, 3), **params})


def rat_hsfa(n_fields: Sequence[int | None] = (None, None), **params: Any) -> HSFA:
    """The network of :func:`rat_hisfa` with slow features only.

    Examples
    --------
    >>> from higsfa import presets
    >>> net = presets.rat_hsfa(n_fields=(40, None))
    >>> type(net).__name__, net.input_shape, net.layers[0].n_fields
    ('HSFA', (40, 320, 3), 40)
    """
    return HSFA(_rat_layers([None] * 6, n_fields), **{"input_shape": (40, 320, 3), **params})


def photographs(input_shape: Any = (64, 64), graph: Any = "auto", **params: Any) -> Any:
    """A network for photographs of any size, grey or in colour: a pyramid on the oriented edges of pictures.

    Parameters
    ----------
    input_shape : tuple of int, default=(64, 64)
        Height, width and, for colour, the number of channels.
    graph : recipe or str, default="auto"
        Clustered for classes, a label graph of ranks for numbers. For several labels use a sum of recipes, such as
        ``SerialGraph("age", n_groups=9) + ClusteredGraph("gender")``.
    **params
        Other parameters of :func:`pyramid`.

    Examples
    --------
    >>> from higsfa import presets
    >>> print(presets.photographs())  # doctest: +ELLIPSIS
    HiGSFA for input 64x64, edges in 16x16 cells, not fitted
    layer  nodes  field  stride   sees   inputs  expanded  out
        1    7x7    4x4     2x2  16x16  208>100       600   90
        2    3x7    3x1     2x1  32x16      270       770  122
        3    3x3    1x3     1x2  32x32      366       866  165
        4    1x3    3x1     2x1  64x32      495       995  198
        5    1x1    1x3     1x2  64x64      594      1594   60
    (nodes: ...)
    """
    return pyramid(input_shape, graph=graph, **{"front": "edges", **params})


def pyramid(
    input_shape: Any,
    n_components: int = 60,
    *,
    n_dimensions: int | None = None,
    n_samples: int | None = None,
    network: Any = HiGSFA,
    front: Any = "auto",
    layer_params: dict[str, Any] | None = None,
    **params: Any,
) -> Any:
    """A network for inputs of any shape, as ``HiGSFA()`` makes it by itself.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of a sample, channels last. Three sizes mean an image with channels if the last is at most 4, else voxels.
    n_components : int, default=60
        Number of features at the top.
    n_dimensions : int, optional
        Number of sizes that are dimensions, if the rule above is wrong.
    n_samples : int, optional
        How many samples it will be trained on; copies count if there are 1,000 different ones. With fewer than 6,000,
        HiGSFA is one node with a kernel, above nodes that only preserve information where there are many inputs.
    network : class, default=HiGSFA
        HiGSFA, HGSFA, HiSFA or HSFA.
    front : {"auto", "edges"}, OrientedEdges or None
        "auto": pictures of at least 16 x 16 pixels are described by their edges, in networks for labels.
    layer_params : dict, optional
        Parameters for all layers, such as ``{"delta_threshold": 1.9}``.
    **params
        Parameters of the network.

    Examples
    --------
    >>> from higsfa import presets
    >>> net = presets.pyramid((64, 64), n_components=50, front=None)
    >>> len(net.layers), net.layers[-1].n_components
    (9, 50)
    """
    shape = (input_shape,) if isinstance(input_shape, int) else tuple(input_shape)
    if front == "auto" and (n_dimensions not in (None, 2) or not network._needs_labels):
        front = None
    made = make_front(front, shape)
    grid = shape if made is None else made.plan(shape).out_shape
    n_dimensions = n_dimensions if made is None else 2
    few = n_samples if network._needs_labels and network._preserve else None
    layers = design_pyramid(grid, n_components, n_dimensions=n_dimensions, n_samples=few, **(layer_params or {}))
    return network(layers, input_shape=input_shape, front=made, **params)
