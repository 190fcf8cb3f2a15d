"""Random networks, data and labels for the network oracle, as plain records that print as the code which makes them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from higsfa import HGSFA, HSFA, HiGSFA, HiSFA, Layer
from higsfa.graphs import (
    ClusteredGraph,
    CodeGraph,
    EdgeGraph,
    LabelGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    UniformGraph,
    WindowGraph,
)
from literal import Dense, expand
from oracles import (
    dense_clustered,
    dense_code,
    dense_label,
    dense_label_window,
    dense_ranks,
    dense_sequence,
    dense_time_window,
    dense_uniform,
    memberships,
)

KINDS = {"HiGSFA": HiGSFA, "HGSFA": HGSFA, "HiSFA": HiSFA, "HSFA": HSFA}


class Record:
    """Prints what is not the default, as code that makes the record again."""

    def __repr__(self):
        values = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v, default in values if v != default)})"

    def _repr_pretty_(self, printer, cycle):
        printer.text(repr(self))


# --- functions of a user -----------------------------------------------------------------------------------------


def bend(X):
    """Samples as rows in, samples as rows out; no two inputs are treated alike."""
    return np.tanh(X * np.linspace(0.5, 1.5, X.shape[1]))


def couple(X):
    """Neighbours, in the order of the inputs."""
    return X * np.cos(np.roll(X, 1, axis=1))


FUNCTIONS = {"bend": bend, "couple": couple}


# --- records -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class LayerCase(Record):
    """One layer; sizes by dimension. `expansion` holds texts and names of functions."""

    field: tuple
    stride: tuple | None = None
    n_components: int = 3
    expansion: tuple = ("identity",)
    pca: int | None = None
    n_slow: int | None = None
    delta_threshold: float = 1.96
    scaling: str = "sensitivity"
    min_scale: float = 1e-3
    shared: bool = False
    pad: bool = False
    weighted: bool = False
    shrinkage: float = 0.0

    def terms(self):
        return tuple(FUNCTIONS.get(term, term) for term in self.expansion)

    def build(self):
        params = {f.name: getattr(self, f.name) for f in fields(self)}
        functions = any(term in FUNCTIONS for term in self.expansion)
        params["expansion"] = list(self.terms()) if functions else " | ".join(self.expansion)
        return Layer(params.pop("field"), params.pop("stride"), params.pop("n_components"), **params)


@dataclass(frozen=True, repr=False)
class GraphCase(Record):
    """One term of a sum of graphs."""

    kind: str
    label: str | None = None
    size: int = 1  # groups, half-width or lag
    factor: float = 1.0
    flag: bool = False  # self_loops, mirrored, ranks, or own vertex weights

    def recipe(self, n):
        graph = {
            "serial": lambda: SerialGraph(self.label, n_groups=self.size),
            "mixed": lambda: MixedGraph(self.label, n_groups=self.size),
            "clustered": lambda: ClusteredGraph(self.label, self_loops=self.flag),
            "window": lambda: WindowGraph(self.label or False, half_width=self.size, mirrored=self.flag),
            "sequence": lambda: SequenceGraph(self.size),
            "edges": lambda: EdgeGraph(*self._edges(n)),
            "label": lambda: LabelGraph(self.label, n_harmonics=self.size, ranks=self.flag),
            "code": lambda: CodeGraph(self.label),
            "uniform": lambda: UniformGraph(),
        }[self.kind]()
        return graph if self.factor == 1 else self.factor * graph

    def _edges(self, n):
        rng = np.random.default_rng(self.size)
        gamma = sp.random_array((n, n), density=4 / n, rng=rng)
        gamma = sp.csr_array(sp.triu(gamma, k=1))
        chain = sp.diags_array(rng.uniform(0.5, 1.5, n - 1), offsets=1, shape=(n, n))
        gamma = sp.csr_array(gamma + gamma.T + chain + chain.T)
        return gamma, rng.uniform(0.5, 2, n) if self.flag else None

    def dense(self, data):
        """v and gamma as METHOD defines them."""
        n, w = len(data.X), data.weights()
        if self.kind in ("serial", "mixed"):
            v, gamma = chained_groups(data.labels[self.label], self.size, w, mixed=self.kind == "mixed")
        elif self.kind == "clustered":
            v, gamma = dense_clustered(list(data.labels[self.label]), w, self_loops=self.flag)
        elif self.kind == "window" and self.label:
            v, gamma = dense_label_window(list(data.labels[self.label]), self.size, self.flag)
        elif self.kind == "window":
            v, gamma = dense_time_window(n, self.size, self.flag, data.groups)
        elif self.kind == "sequence":
            v, gamma = dense_sequence(n, self.size, data.groups)
        elif self.kind == "label":
            label = np.asarray(data.labels[self.label], dtype=float)
            if self.flag:
                v, gamma = dense_label(dense_ranks(label, w), w, self.size, (0, 1))
            else:
                v, gamma = dense_label(label, w, self.size)
        elif self.kind == "code":
            v, gamma = dense_code(np.array([np.nan if c is None else ord(c) for c in data.labels[self.label]]), w)
        elif self.kind == "uniform":
            v, gamma = dense_uniform(w)
        else:
            gamma, v = self._edges(n)
            gamma = gamma.toarray()
            v = gamma.sum(axis=1) if v is None else v
            gamma = gamma * (v.sum() / gamma.sum())
        return self.factor * v, self.factor * gamma


def chained_groups(labels, n_groups, w, *, mixed):
    """Serial graph: edges 1/N_g between neighbouring groups, v = 2 (1 at the ends). Mixed: within them too, v = 3."""
    P, size = memberships(labels, n_groups, w)
    W = (np.eye(n_groups, k=1) + np.eye(n_groups, k=-1)) / size
    ends = np.isin(np.arange(n_groups), (0, n_groups - 1))
    if mixed:
        W += np.diag(np.where(ends, 2, 1) / (size - 1))
    v = np.full(n_groups, 3.0) if mixed else np.where(ends, 1.0, 2.0)
    gamma = np.outer(w, w) * (P @ W @ P.T)
    gamma[np.diag_indices(len(w))] -= w * (P @ np.diag(W))  # no sample is joined to itself within its group
    return w * (P @ v), gamma


@dataclass(frozen=True, repr=False)
class Way(Record):
    """A way to compute the same bits.

    `places` says where the input and the features of each layer wait: (m)emory, (d)isk, or (n)owhere, computed again;
    `at_once` how many nodes of a layer grow side by side in the latter case; `tight`: no memory for anything else.
    `interruptions` are the writes to the checkpoint at which the fit is interrupted, one after the other; `moving`:
    with other places after each of them.
    """

    n_jobs: int = 1
    places: str = ""
    at_once: int = 1
    tight: bool = False
    interruptions: tuple = ()
    moving: bool = False
    dask: bool = False


@dataclass(frozen=True, repr=False)
class Case(Record):
    """A network, its data, how they are cut, and ways to compute it."""

    kind: str
    shape: tuple
    layers: tuple
    n_dimensions: int
    n_samples: int
    tile: int
    block: int
    chunk: int = 128
    min_cell: int = 64
    graphs: tuple = ()
    lag: int = 1
    recordings: int = 1
    weights: str | None = None
    missing: float = 0.0
    dtype: str = "float64"
    offset: float = 0.0
    dead: bool = False
    clip_range: bool = True
    flat: bool = False
    center: bool = False  # given, for a single estimator
    seed: int = 0
    ways: tuple = ()

    @property
    def labelled(self):
        return self.kind in ("HiGSFA", "HGSFA")

    @property
    def preserve(self):
        return self.kind in ("HiGSFA", "HiSFA")

    @property
    def eps(self):
        return float(np.finfo(np.float64 if self.dtype == "float64" else np.float32).eps)

    def recipe(self):
        first, *others = [graph.recipe(self.n_samples) for graph in self.graphs]
        return sum(others, start=first)

    def network(self, depth=None, **params):
        layers = [layer.build() for layer in self.layers[:depth]]
        params = {"clip_range": self.clip_range, "input_shape": self.shape if self.flat else None, **params}
        if self.labelled:
            return KINDS[self.kind](layers, graph=self.recipe(), **params)
        return KINDS[self.kind](layers, lag=self.lag, **params)


# --- data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Data:
    X: np.ndarray
    X_new: np.ndarray
    labels: dict
    groups: np.ndarray | None
    sample_weight: np.ndarray | None

    def weights(self):
        return np.ones(len(self.X)) if self.sample_weight is None else self.sample_weight

    def fit_params(self, case):
        if not case.labelled:
            return {"groups": self.groups}
        return {"y": self.labels, "groups": self.groups, "sample_weight": self.sample_weight}


def make_data(case):
    """Bent mixtures of slow and quick sources with noise: no two features of them are equally slow."""
    rng = np.random.default_rng(case.seed)
    n, n_new, size = case.n_samples, 30, int(np.prod(case.shape))
    time = np.cumsum(rng.standard_normal((n + n_new, 3)) * [0.1, 0.25, 0.6], axis=0)
    sources = np.column_stack([np.sin(time), rng.standard_normal((n + n_new, 3))])
    X = np.tanh(sources @ rng.standard_normal((6, size)) / 2) + 0.4 * rng.standard_normal((n + n_new, size))
    X[n:] *= 1.5  # beyond the range of the training data
    X = X * rng.uniform(0.5, 2, size) + rng.standard_normal(size)
    if case.dead:
        X[:, :: max(2, size // 2)] = 0.1
    if case.dtype == "uint8":
        X = np.clip(np.round(128 + 40 * X), 0, 255)
    else:
        X = X + case.offset
    X = X.reshape(-1, size) if case.flat else X.reshape(-1, *case.shape)
    X = X.astype(case.dtype)
    classes = np.array(list("abcdef"))
    labels = {
        "age": 40 + 20 * sources[:n, 0] + 5 * rng.standard_normal(n),
        "year": np.round(4 * sources[:n, 1] + rng.standard_normal(n)),
        "class": classes[np.digitize(sources[:n, 0] + 0.5 * rng.standard_normal(n), [-1, -0.5, 0, 0.4, 0.8])],
        "kind": (sources[:n, 2] + 0.5 * rng.standard_normal(n) > 0).astype(int),
    }
    for name, values in labels.items():
        if case.missing and name != "kind":
            absent = rng.random(n) < case.missing
            labels[name] = np.where(absent, np.nan if values.dtype == float else None, values.astype(object))
            if values.dtype == float:
                labels[name] = labels[name].astype(float)
    borders = (
        np.sort(rng.choice(np.arange(8, n - 8), case.recordings - 1, replace=False)) if case.recordings > 1 else []
    )
    groups = np.searchsorted(borders, np.arange(n), side="right") if case.recordings > 1 else None
    sample_weight = {
        None: None,
        "counts": rng.integers(0, 4, n).astype(float),
        "real": rng.uniform(0.2, 3, n),
    }[case.weights]
    return Data(X[:n], X[n:], labels, groups, sample_weight)


def dense_graph(case, data):
    if case.labelled:
        parts = [graph.dense(data) for graph in case.graphs]
        v, gamma = sum(part[0] for part in parts), sum(part[1] for part in parts)
    else:
        v, gamma = dense_sequence(len(data.X), case.lag, data.groups)
    return Dense(v, gamma, data.weights() if case.labelled else np.ones(len(data.X)))


# --- fields ------------------------------------------------------------------------------------------------------


def windows(grid, layer):
    """Slices of the grid that the nodes of a layer see, by place in the layer."""
    stride = layer.stride or layer.field
    starts = []
    for size, f, s in zip(grid, layer.field, stride, strict=True):
        along = list(range(0, size - f + 1, s))
        if layer.pad and along[-1] + f < size:
            along.append(size - f)
        starts.append(along)
    shape = tuple(map(len, starts))
    slices = [tuple(slice(a, a + f) for a, f in zip(corner, layer.field, strict=True)) for corner in product(*starts)]
    return shape, slices


# --- strategies --------------------------------------------------------------------------------------------------

MAX_INPUTS, MAX_EXPANDED = 24, 34


TERMS = ("identity", "identity", "power0.8", "signed_power0.8", "power2.5", "max2", "max2", "quadratic", "quadratic")
TERMS += ("normalized_quadratic", "polynomial2", "identity", "power0.8", "bend", "couple", "relu3", "relu7")


@st.composite
def terms(draw, width, children, simple=False):
    """An expansion that is not too large; slices within each child of this width."""
    chosen = []
    for _ in range(draw(st.sampled_from([1, 2, 2, 3]))):
        name = draw(st.sampled_from(TERMS))
        if name in FUNCTIONS:
            chosen.append(name)
            continue
        first = draw(st.integers(0, width - 1))
        last = draw(st.integers(first + 1, width))
        whole = draw(st.booleans())
        small = name.startswith(("quadratic", "normalized", "polynomial"))
        if small and (not whole or width * children > 5):
            last = min(last, first + max(1, 4 // children))
            whole = whole and children * width <= 4
        if name == "max2" and (last - first < 2 or (whole and width * children < 2)):
            continue
        chosen.append(name if whole else f"{name}[{first}:{last}]")
    chosen = chosen or ["identity"]
    if draw(st.booleans()) and not any(term == "identity" for term in chosen):
        chosen.insert(0, "identity")
    functions = [FUNCTIONS.get(term, term) for term in chosen]
    if expand(functions, np.zeros((1, width * children)), children).shape[1] > MAX_EXPANDED:
        chosen = ["identity", "power0.8[:1]"] if width * children < MAX_EXPANDED - children else ["identity"]
    return tuple(dict.fromkeys(chosen))


@st.composite
def layer_cases(draw, grid, width, *, last, white):
    """A layer on this grid, and the grid of its nodes."""
    size, stride, pad = [], [], False
    for g in grid:
        f = g if last else draw(st.integers(1, min(g, 4)))
        s = draw(st.integers(1, f))
        while (g - f) // s + 1 > {1: 5, 2: 3, 3: 2}[len(grid)]:
            f, s = f + 1, s + 1
        pad = pad or (g - f) % s > 0
        size.append(f)
        stride.append(s)
    pad = pad or draw(st.booleans())
    children = int(np.prod(size))
    n_inputs = children * width
    reduced = n_inputs > MAX_INPUTS or draw(st.sampled_from([False, False, True]))
    reduced = reduced and not (white and children == 1)  # features of unit variance have no first component
    pca = draw(st.integers(min(2, n_inputs), min(n_inputs, 8))) if reduced else None
    expansion = draw(terms(pca, 1) if pca else terms(width, children))
    shrinkage = draw(st.sampled_from([0.0, 0.0, 0.0, 0.05]))
    # With shrinkage Delta values need not ascend, so that a threshold among them says nothing.
    thresholds = [-1.0, 4.0] if shrinkage else [1.96, 1.96, 1.7, 1.0, -1.0, 4.0]
    case = LayerCase(
        field=tuple(size),
        stride=draw(st.sampled_from([None, tuple(stride)])) if tuple(stride) == tuple(size) else tuple(stride),
        n_components=draw(st.integers(2, 6)),
        expansion=expansion,
        pca=pca,
        n_slow=draw(st.sampled_from([None, None, 0, 1, 2, 3])),
        delta_threshold=draw(st.sampled_from(thresholds)),
        scaling=draw(st.sampled_from(["sensitivity", "sensitivity", "qr"])),
        min_scale=draw(st.sampled_from([1e-3, 1e-3, 0.4])),
        shared=draw(st.sampled_from([False, False, True])),
        pad=pad,
        weighted=draw(st.sampled_from([False, False, True])),
        shrinkage=shrinkage,
    )
    return case, windows(grid, case)[0]


@st.composite
def networks(draw, white):
    """Shape of the input, number of dimensions, layers."""
    n_dimensions = draw(st.sampled_from([1, 2, 2, 3]))
    longest = {1: 16, 2: 7, 3: 4}[n_dimensions]
    grid = tuple(draw(st.integers(2, longest)) for _ in range(n_dimensions))
    channels = draw(st.sampled_from([None, None, 1, 2, 3]))
    shape = grid if channels is None else (*grid, channels)
    width, layers = channels or 1, []
    depth = draw(st.sampled_from([1, 2, 2, 3, 3, 4]))
    chain = draw(st.booleans())  # one node from layer 1 or 2 on
    for k in range(depth):
        last = (chain and k >= draw(st.integers(0, 1))) or (
            k == depth - 1 and draw(st.sampled_from([True, True, False]))
        )
        layer, grid = draw(layer_cases(grid, width, last=last, white=white and k > 0))
        if k > 0 and np.prod(layer.field) == 1:
            # Scales that were raised to the same bound leave open what the first principal component of them is.
            layers[-1] = replace(layers[-1], min_scale=1e-3)
        layers.append(layer)
        width = layer.n_components
    return shape, n_dimensions, tuple(layers)


GROUPS = (
    GraphCase("serial", "age", 16),
    GraphCase("serial", "year", 14),
    GraphCase("mixed", "age", 12),
    GraphCase("mixed", "year", 9),
    GraphCase("clustered", "class"),
    GraphCase("clustered", "class", flag=True),
    GraphCase("clustered", "kind"),
)
LOW_RANK = (
    GraphCase("label", "age", 4),
    GraphCase("label", "year", 2),
    GraphCase("label", "age", 3, flag=True),
    GraphCase("code", "class"),
    GraphCase("uniform"),
)
NEIGHBOURS = (
    GraphCase("window", "age", 4),
    GraphCase("window", "age", 3, flag=True),
    GraphCase("window", None, 2),
    GraphCase("sequence", None, 1),
    GraphCase("sequence", None, 3),
    GraphCase("edges", None, 1),
    GraphCase("edges", None, 2, flag=True),
)


@st.composite
def graph_sums(draw):
    """Sums of graphs made of groups, which compiled code knows, and of others."""
    choice = [GROUPS, GROUPS + LOW_RANK, GROUPS + NEIGHBOURS, GROUPS + LOW_RANK + NEIGHBOURS]
    graphs = st.sampled_from(draw(st.sampled_from(choice)))
    chosen = draw(st.lists(graphs, min_size=1, max_size=3, unique_by=lambda graph: (graph.kind, graph.label)))
    few = {"serial", *(graph.kind for graph in LOW_RANK)}
    if all(graph.kind in few or (graph.kind == "clustered" and graph.flag) for graph in chosen):
        # They see few means only, and all features in which these agree have Delta 2: too few are determined.
        chosen = [replace(graph, flag=False) for graph in chosen]
        if all(graph.kind == "serial" for graph in chosen):
            chosen = [GraphCase("serial", "age", MAX_EXPANDED + 2)]
        elif all(graph.kind in few for graph in chosen):
            chosen = [graph for graph in chosen if graph.kind != "serial"]
            chosen.append(GraphCase("serial", "age", MAX_EXPANDED + 2))
    return tuple(replace(graph, factor=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0]))) for graph in chosen)


@st.composite
def ways(draw, depth, dask):
    what = draw(st.sampled_from(["dask", "resume"] if dask else ["threads", "places", "places", "resume", "resume"]))
    places = "".join(draw(st.sampled_from("mddnnn")) for _ in range(depth))
    return Way(
        n_jobs=2 if what == "threads" else draw(st.sampled_from((1, 1, 2))),
        places="" if what == "threads" or dask else places,
        at_once=draw(st.integers(1, 5)),
        tight=(bool(places) or dask) and draw(st.booleans()),
        interruptions=tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))) if what == "resume" else (),
        moving=what == "resume" and not dask and draw(st.booleans()),
        dask=dask,
    )


@st.composite
def single_layers(draw):
    """One node with one child: what a single estimator computes."""
    width = draw(st.integers(1, 12))
    layer, _ = draw(layer_cases((1,), width, last=True, white=True))
    return (1, width), 1, (replace(layer, shared=False),)


@st.composite
def cases(draw, *, dask=False, single=False):
    """A whole case."""
    kind = draw(st.sampled_from(["HiGSFA", "HiGSFA", "HGSFA", "HGSFA", "HiSFA", "HSFA"]))
    labelled = kind in ("HiGSFA", "HGSFA")
    shape, n_dimensions, layers = draw(single_layers() if single else networks(white=kind in ("HGSFA", "HSFA")))
    n_samples = draw(st.integers(90, 200))
    graphs = draw(graph_sums()) if labelled else ()
    weighty = labelled and all(graph.kind in ("serial", "mixed", "clustered") for graph in graphs)
    some_ways = st.lists(ways(len(layers), dask), min_size=1, max_size=1 if dask else 2)
    return Case(
        kind=kind,
        shape=shape,
        layers=layers,
        n_dimensions=n_dimensions,
        n_samples=n_samples,
        tile=draw(st.sampled_from([n_samples - 1, n_samples // 2, 48, 32, 17])),
        block=draw(st.sampled_from([n_samples + 5, n_samples - 1, 64, 40, 100])),
        chunk=draw(st.sampled_from([128, 16, 5])),
        min_cell=draw(st.sampled_from([64, 8])),
        graphs=graphs,
        lag=1 if labelled else draw(st.integers(1, 3)),
        recordings=draw(st.integers(1, 3)),
        weights=draw(st.sampled_from([None, None, "counts", "real"])) if weighty else None,
        missing=draw(st.sampled_from([0.0, 0.0, 0.2])) if labelled else 0.0,
        dtype=draw(st.sampled_from(["float64", "float64", "float64", "float32", "uint8"])),
        offset=draw(st.sampled_from([0.0, 0.0, 30.0])),
        dead=draw(st.sampled_from([False, False, False, True])),
        clip_range=draw(st.sampled_from([True, True, False])),
        flat=draw(st.booleans()),
        center=single and draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
        ways=() if single else tuple(draw(some_ways)),
    )
