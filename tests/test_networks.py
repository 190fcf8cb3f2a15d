"""Hierarchical networks are single estimators applied field by field, however they are computed."""

import re
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from itertools import combinations_with_replacement

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from higsfa import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, Layer, sources
from higsfa.core.graph.edges import SparseEdges
from higsfa.core.graph.graph import Part, TrainingGraph
from higsfa.core.sums import tile
from higsfa.datasets import make_toy
from higsfa.estimators import network as _network
from higsfa.graphs import ClusteredGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from higsfa.training import budget as budgets
from higsfa.training import network as driver

CLOSED = "identity | power0.8 | quadratic"  # treats all inputs alike: children and their order do not matter


# --- data -----------------------------------------------------------------------------------------------


pytestmark = pytest.mark.filterwarnings("ignore:y. .* different whole numbers .* were taken as a number:UserWarning")


def make_images(n_samples, shape, random_state=0):
    """Images of sources with a bend, and labels: age and kind depend on the sources, noise does not."""
    rng = np.random.default_rng(random_state)
    time = np.cumsum(rng.standard_normal((n_samples, 3)) * [0.1, 0.2, 0.4], axis=0)
    sources = np.column_stack([np.sin(time), rng.standard_normal((n_samples, 3))])
    mixing = rng.standard_normal((6, int(np.prod(shape)))) / 2
    X = np.tanh(sources @ mixing) + 0.3 * rng.standard_normal((n_samples, mixing.shape[1]))
    X += rng.standard_normal(mixing.shape[1])
    age = np.round(40 + 20 * sources[:, 0] + 3 * rng.standard_normal(n_samples))
    kind = (sources[:, 1] + 0.5 * rng.standard_normal(n_samples) > 0).astype(int)
    return X.reshape(n_samples, *shape), {"age": age, "kind": kind}


# --- the oracle: slices of arrays and single estimators -----------------------------------------------------


def corners(size, field, stride, pad):
    starts = [start for start in range(size) if start % stride == 0 and start + field <= size]
    return [*starts, size - field] if pad and starts[-1] + field < size else starts


def cut_fields(H, layer, n_dimensions):
    """(N, *grid, width) to {place in the layer: (N, field, width) flattened}."""
    field = (layer.field,) * n_dimensions if isinstance(layer.field, int) else layer.field
    stride = field if layer.stride is None else layer.stride
    stride = (stride,) * n_dimensions if isinstance(stride, int) else stride
    starts = [corners(*sizes, layer.pad) for sizes in zip(H.shape[1:-1], field, stride, strict=True)]
    fields = {}
    for place in np.ndindex(*map(len, starts)):
        windows = [slice(s[i], s[i] + f) for s, i, f in zip(starts, place, field, strict=True)]
        fields[place] = H[(slice(None), *windows)].reshape(len(H), -1)
    return tuple(map(len, starts)), fields


def node_params(layer, network):
    names = ["n_components", "expansion", "shrinkage"]
    if isinstance(network, HiGSFA | HiSFA):
        names += ["n_slow", "delta_threshold", "scaling", "min_scale", "weighted"]
    return {name: getattr(layer, name) for name in names}


SINGLE = {HiGSFA: IGSFA, HGSFA: GSFA, HiSFA: ISFA, HSFA: SFA}
WITH_GRAPH = {HiGSFA: IGSFA, HGSFA: GSFA, HiSFA: IGSFA, HSFA: GSFA}


def side_by_side(graph, n_copies):
    """Copies of a graph without edges between them."""
    gamma = sp.csr_array(sp.block_diag([graph.to_sparse()] * n_copies))
    edges = SparseEdges(sp.csr_array(sp.triu(gamma, k=1)), gamma.diagonal())
    v = np.tile(graph.vertex_weights, n_copies)
    return TrainingGraph((Part("side by side", v, edges),), np.ones(len(v)))


def field_by_field(network, X, X_new, n_dimensions, *fit_args, graph=None, **fit_params):
    """Features of X and of X_new from single estimators, trained on X; `graph` is for layers with shared weights."""
    n, everything = len(X), np.concatenate([X, X_new])
    H = everything if everything.ndim == n_dimensions + 2 else everything[..., None]
    for layer in network.layers:
        shape, fields = cut_fields(H, layer, n_dimensions)
        H = np.zeros((len(everything), *shape, layer.n_components))
        stacked = np.concatenate([F[:n] for F in fields.values()])
        reduce = PCA(layer.pca).fit(stacked).transform if layer.pca and layer.shared else lambda F: F
        if layer.shared:
            node = WITH_GRAPH[type(network)](**node_params(layer, network))
            node.fit(reduce(stacked), graph=side_by_side(graph, len(fields)))
        for place, F in fields.items():
            if layer.pca and not layer.shared:
                reduce = PCA(layer.pca).fit(F[:n]).transform
            if not layer.shared:
                node = SINGLE[type(network)](**node_params(layer, network))
                common = {"graph", "lag"} & set(network.get_params(deep=False))
                node.set_params(**{name: getattr(network, name) for name in common})
                node.fit(reduce(F[:n]), *fit_args, **fit_params)
            H[(slice(None), *place)] = node.transform(reduce(F))
    return np.split(H.reshape(len(H), -1), [n])


def assert_same_features(network, X, X_new, expected, *, up_to_signs=False):
    signs = np.sign(np.sum(network.transform(X) * expected[0], axis=0)) if up_to_signs else 1.0
    for found, wanted in zip((network.transform(X), network.transform(X_new)), expected, strict=True):
        np.testing.assert_allclose(found, wanted * signs, atol=1e-8, rtol=0)


LAYERS = {
    "1-D": (
        (22,),
        1,
        [
            Layer(6, 4, 3, expansion=CLOSED, n_slow=2),
            Layer(3, 2, 4, expansion="identity | quadratic", n_slow=3, scaling="qr"),
            Layer(2, n_components=5, expansion=CLOSED, delta_threshold=1.9),
        ],
    ),
    "1-D with channels": (
        (9, 3),
        1,
        [
            Layer((3,), (2,), 3, expansion=CLOSED, n_slow=1),
            Layer((2,), (1,), 4, expansion=CLOSED),
            Layer((3,), n_components=5, expansion="identity | power0.8"),
        ],
    ),
    "2-D with channels": (
        (6, 8, 2),
        2,
        [
            Layer((2, 4), (2, 2), 3, expansion="identity | power0.8", n_slow=2),
            Layer((3, 1), None, 4, expansion=CLOSED, weighted=True),
            Layer((1, 2), (1, 1), 3, expansion="identity | quadratic", shrinkage=0.01),
        ],
    ),
    "2-D, moved inward": (
        (7, 8),
        2,
        [
            Layer(3, 3, 3, expansion=CLOSED, n_slow=2, pad=True),
            Layer(2, (1, 2), 4, expansion="identity", pad=True),
            Layer(2, n_components=5, expansion="identity | power0.8", n_slow=3),
        ],
    ),
    "3-D": (
        (4, 5, 3),
        3,
        [
            Layer((2, 2, 2), (2, 2, 1), 3, expansion=CLOSED, n_slow=2, pad=True),
            Layer((2, 1, 2), n_components=3, expansion="identity | power0.8"),
            Layer((1, 3, 1), n_components=4, expansion="identity | quadratic"),
        ],
    ),
}


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("kind", [HiGSFA, HGSFA, HiSFA, HSFA])
def test_a_network_is_single_estimators_applied_field_by_field(case, depth, kind):
    shape, n_dimensions, layers = LAYERS[case]
    X, labels = make_images(600, shape)
    X_new = make_images(50, shape, random_state=1)[0] * 1.5
    if kind in (HiGSFA, HGSFA):
        network = kind(layers[:depth], graph=SerialGraph("age", n_groups=8) + 0.5 * ClusteredGraph("kind"))
        network.fit(X, labels)
        expected = field_by_field(network, X, X_new, n_dimensions, labels)
    else:
        recordings = np.repeat([0, 1, 2], [250, 30, 320])
        network = kind(layers[:depth], lag=2).fit(X, groups=recordings)
        expected = field_by_field(network, X, X_new, n_dimensions, groups=recordings)
    assert_same_features(network, X, X_new, expected)


def products(X):
    return [X[:, i] * X[:, j] for i, j in combinations_with_replacement(range(X.shape[1]), 2)]


def sliced(X, children):
    """identity[:2] | power0.8[1:] | max2[:3] | quadratic[:2] of samples as rows: slices count within each child."""
    by_child = X.reshape(len(X), children, -1)
    columns = list(by_child[:, :, :2].reshape(len(X), -1).T)
    columns += list((np.abs(by_child[:, :, 1:]) ** 0.8).reshape(len(X), -1).T)
    for child in range(children):
        columns += [np.maximum(by_child[:, child, i], by_child[:, child, i + 1]) for i in range(2)]
    columns += products(by_child[:, :, :2].reshape(len(X), -1))
    return np.column_stack(columns)


def whole_max2(X):
    """max2 | identity: without a slice, the maximum runs from child to child."""
    return np.column_stack([np.maximum(X[:, :-1], X[:, 1:]), X])


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("identity[:2] | power0.8[1:] | max2[:3] | quadratic[:2]", lambda X: sliced(X, 2)),
        ("max2 | identity", whole_max2),
    ],
)
@pytest.mark.parametrize("kind", [HiGSFA, HGSFA])
def test_slices_of_expansions_count_positions_within_each_child(text, function, kind):
    X, labels = make_images(600, (6, 4))
    X_new = make_images(50, (6, 4), random_state=1)[0]
    recipe = ClusteredGraph("kind") + SerialGraph("age", n_groups=6)

    # Children are pixels with channels.
    pixels = kind([Layer((2,), (1,), 4, expansion=text, n_slow=2)], graph=recipe).fit(X, labels)
    expected = kind([Layer((2,), (1,), 4, expansion=function, n_slow=2)], graph=recipe)
    assert_same_features(pixels, X, X_new, field_by_field(expected, X, X_new, 1, labels))

    # Children are nodes; the first layer has no slices.
    bottom = Layer((2,), (2,), 4, expansion=CLOSED, n_slow=2)
    nodes = kind([bottom, Layer((2,), (1,), 4, expansion=text, n_slow=2)], graph=recipe).fit(X, labels)
    expected = kind([bottom, Layer((2,), (1,), 4, expansion=function, n_slow=2)], graph=recipe)
    assert_same_features(nodes, X, X_new, field_by_field(expected, X, X_new, 1, labels))


@pytest.mark.parametrize("kind", [HiGSFA, HGSFA, HSFA])
def test_pca_before_a_node_is_that_of_scikit_learn(kind):
    X, labels = make_images(600, (6, 6))
    X_new = make_images(50, (6, 6), random_state=1)[0] * 1.5
    layers = [
        Layer((4, 4), (2, 2), 3, pca=6, expansion=CLOSED, n_slow=2),
        Layer((2, 2), n_components=4, pca=10, expansion="identity | quadratic", n_slow=2),
    ]
    for depth in (1, 2):
        network = kind(layers[:depth])
        args = () if kind is HSFA else (labels["age"],)
        network.fit(X, *args)
        expected = field_by_field(network, X, X_new, 2, *args)
        assert_same_features(network, X, X_new, expected, up_to_signs=True)


def test_slices_after_pca_count_principal_components():
    X, labels = make_images(600, (4, 4, 2))
    X_new = make_images(50, (4, 4, 2), random_state=1)[0]
    text = "identity[:5] | power0.8[1:3] | quadratic[:3]"
    network = HiGSFA([Layer((4, 2), None, 4, pca=6, expansion=text, n_slow=2)], graph="serial").fit(X, labels["age"])
    expected = field_by_field(network, X, X_new, 2, labels["age"])
    assert_same_features(network, X, X_new, expected, up_to_signs=True)


# --- weight sharing ------------------------------------------------------------------------------------------

RECIPES = {
    "clustered": ClusteredGraph("kind"),
    "serial": SerialGraph("age", n_groups=8),
    "mixed": MixedGraph("age", n_groups=5),
    "sum": SerialGraph("age", n_groups=8) + 0.5 * ClusteredGraph("kind", self_loops=True),
    "sequence": SequenceGraph(lag=2),
    "window": WindowGraph("age", half_width=4),
    "groups and sequence": SerialGraph("age", n_groups=8) + SequenceGraph(),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["kept", "streamed"])
@pytest.mark.parametrize("pca", [None, 5], ids=["raw", "pca"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_shared_weights_are_those_of_one_estimator_fitted_on_all_fields(recipe, pca, streaming, monkeypatch):
    shape, recipe = (6, 5), RECIPES[recipe]
    X, labels = make_images(600, shape)
    X_new = make_images(50, shape, random_state=1)[0]
    layers = [Layer((3, 2), (3, 1), 4, expansion="identity | quadratic", n_slow=2, shared=True, pca=pca)]
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 64)
    budgets = Budgets(monkeypatch)
    network = HiGSFA(layers, graph=recipe).fit(X, labels)
    if streaming:
        limit = max(limit for limit, budget in budgets.possible() if budget.input_place == "nowhere")
        network.set_params(memory_limit=limit, spill=False).fit(X, labels)
    assert (budgets.used[-1].input_place == "memory") != streaming
    graph = recipe.build(labels)
    expected = field_by_field(network, X, X_new, 2, labels, graph=graph)
    assert_same_features(network, X, X_new, expected, up_to_signs=pca is not None)


@pytest.mark.parametrize("shared", [False, True], ids=["own weights", "shared weights"])
@pytest.mark.parametrize("kind", [HiGSFA, HGSFA, HiSFA])
def test_layers_above_shared_weights_are_centred_on_their_own_inputs(kind, shared):
    X, labels = make_images(600, (6, 6))
    X_new = make_images(50, (6, 6), random_state=1)[0]
    layers = [
        Layer((3, 3), n_components=3, expansion=CLOSED, n_slow=2, shared=True),
        Layer((1, 2), (1, 1), 3, expansion=CLOSED, n_slow=2, shared=shared),
        Layer((2, 1), n_components=4, expansion="identity | power0.8", n_slow=2),
    ]
    if kind is HiSFA:
        network, recipe, args = kind(layers), SequenceGraph(), ()
    else:
        recipe, args = SerialGraph("age", n_groups=8), (labels,)
        network = kind(layers, graph=recipe)
    network.fit(X, *args)
    expected = field_by_field(network, X, X_new, 2, *args, graph=recipe.build(labels))
    assert_same_features(network, X, X_new, expected)


# --- same bits ---------------------------------------------------------------------------------------------------


class Budgets:
    """Records the budgets of fits, and finds memory limits for other ones."""

    def __init__(self, monkeypatch):
        self.used, self._make, self._work = [], driver.make_budget, None
        monkeypatch.setattr(driver, "make_budget", self._record)

    def _record(self, work, limit, disk=0):
        self._work = work
        self.used.append(self._make(work, limit, disk=disk))
        return self.used[-1]

    def possible(self, n_jobs=1):
        """Memory limits and budgets of the last fit, if it had another limit; small limits first."""
        for limit in np.geomspace(2**16, 2**24, 150).astype(int).tolist():
            with suppress(ValueError):
                yield limit, self._make(replace(self._work, n_jobs=n_jobs), limit)


def below_kept(budget):
    """Whether the features that a layer reads are kept in memory, layer by layer."""
    return [place == "memory" for place in (budget.input_place, *(layer.place for layer in budget.layers))][:-1]


def model_arrays(network):
    """All numbers of a trained network."""
    arrays = []
    for layer in network.layers_:
        for node in layer.nodes:
            parts = [node, node.frontend, node.frontend.projection]
            records = [part.__getstate__() for part in parts if part is not None]
            arrays += [value for record in records for value in record.values() if isinstance(value, np.ndarray)]
    return arrays


def assert_same_model(a, b, tolerance=None):
    for one, other in zip(model_arrays(a), model_arrays(b), strict=True):
        if tolerance is None:
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, atol=tolerance, rtol=tolerance)


DEEP = [
    Layer((3, 3), (3, 3), 3, expansion="identity | quadratic", n_slow=2, pca=4),
    Layer((2, 2), (1, 1), 4, expansion="identity | power0.8[:2] | quadratic[:1]", n_slow=2),
    Layer((2, 2), (1, 1), 4, expansion="identity | power0.8[:2]", n_slow=2),
    Layer((2, 2), n_components=5, expansion="identity | quadratic[:1]", n_slow=3),
]
MIXED_SHARING = [Layer(**{**layer.get_params(), "shared": number in (0, 2)}) for number, layer in enumerate(DEEP)]


@pytest.mark.parametrize("layers", [DEEP, MIXED_SHARING], ids=["own weights", "shared weights"])
@pytest.mark.parametrize(("recipe", "dtype"), [("sum", np.uint8), ("groups and sequence", np.float64)])
def test_neither_memory_nor_threads_change_a_bit(layers, recipe, dtype, monkeypatch, tmp_path):
    X, labels = make_images(600, (12, 12))
    if dtype == np.uint8:
        X = np.clip(128 + 40 * X, 0, 255).astype(np.uint8)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 64)
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 250)
    budgets = Budgets(monkeypatch)
    whole = HiGSFA(layers, graph=RECIPES[recipe]).fit(X, labels)
    assert all(below_kept(budgets.used[-1]))
    spilled = False
    for n_jobs in (1, 2):
        limits = {}
        for limit, budget in budgets.possible(n_jobs):
            limits.setdefault(tuple(below_kept(budget)), (limit, budget))
        assert any(not all(kind) for kind in limits)
        assert any(
            not kept and layer.nodes_at_once < int(np.prod(fitted.shape))
            for _, budget in limits.values()
            for kept, layer, fitted in zip(below_kept(budget), budget.layers, whole.layers_, strict=True)
        )
        for limit, _ in limits.values() if n_jobs == 1 else [*limits.values()][::2]:
            for spill in (False, tmp_path):
                network = HiGSFA(layers, graph=RECIPES[recipe], memory_limit=limit, n_jobs=n_jobs, spill=spill)
                assert_same_model(whole, network.fit(X, labels))
                kept = [budgets.used[-1].input_place, *(layer.place for layer in budgets.used[-1].layers[:-1])]
                assert spill is not False or "disk" not in kept
                spilled |= "disk" in kept
                assert np.array_equal(whole.transform(X), network.transform(X))
    assert spilled


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_layer_of_one_node_below_another_is_trained_on_every_tile(dtype, n_jobs, monkeypatch):
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 64)
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 256)
    X, labels = make_images(700, (6,))
    one = [Layer(6, n_components=5, n_slow=2), Layer(1, n_components=4, n_slow=2), Layer(1, n_components=3, n_slow=2)]
    network = HiGSFA(one, graph=SerialGraph("age", n_groups=8), n_jobs=n_jobs).fit(X.astype(dtype), labels)
    single = X.astype(dtype)
    for layer in one:
        node = IGSFA(**node_params(layer, network), graph=SerialGraph("age", n_groups=8))
        single = node.fit_transform(single, labels)
    np.testing.assert_allclose(network.transform(X.astype(dtype)), single, atol=1e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("layers", [DEEP, MIXED_SHARING], ids=["own weights", "shared weights"])
@pytest.mark.parametrize("recipe", ["sum", "window"])
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (budgets, "NETWORK_TILE", 96),
        (budgets, "TILE_MEMORY", 2**16),
        (driver, "NETWORK_BLOCK", 150),
        (tile, "MIN_CELL", 400),
    ],
)
def test_the_cutting_into_tiles_and_blocks_does_not_matter(layers, recipe, module, name, value, monkeypatch):
    X, labels = make_images(400, (12, 12))
    whole = HiGSFA(layers, graph=RECIPES[recipe]).fit(X, labels)
    monkeypatch.setattr(module, name, value)
    part = HiGSFA(layers, graph=RECIPES[recipe]).fit(X, labels)
    np.testing.assert_allclose(part.transform(X), whole.transform(X), atol=1e-9, rtol=0)
    for one, other in zip(part.layers_, whole.layers_, strict=True):
        np.testing.assert_allclose(one.delta_values, other.delta_values, atol=1e-9, rtol=0)


# --- the paper's toy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_hsfa_misses_the_slowest_signal_of_the_toy_and_hisfa_finds_it(seed):
    X, signals = make_toy(6000, random_state=seed)
    top = Layer(2, n_components=1, n_slow=1, expansion="identity | quadratic")

    def correlations(network):
        feature = network.fit_transform(X)[:, 0]
        return [abs(np.corrcoef(feature, signals[name])[0, 1]) for name in ("s1", "s2")]

    lossy = correlations(HSFA([Layer(2, n_components=1, expansion="identity | quadratic"), top]))
    assert lossy[0] < 0.2
    assert lossy[1] > 0.99
    preserving = correlations(HiSFA([Layer(2, n_components=2, expansion="identity | quadratic"), top]))
    assert preserving[0] > 0.99


# --- the range guard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("recipe", ["sum", "sequence"])
@pytest.mark.parametrize("n_samples", [300, 1500])
def test_clipping_changes_nothing_on_the_training_data(dtype, recipe, n_samples):
    X, labels = make_images(n_samples, (12, 12))
    X = np.clip(128 + 40 * X, 0, 255).astype(dtype)
    for depth in (1, 4):
        guarded = HiGSFA(DEEP[:depth], graph=RECIPES[recipe]).fit(X, labels)
        unguarded = HiGSFA(DEEP[:depth], graph=RECIPES[recipe], clip_range=False).fit(X, labels)
        for one, other in zip(guarded.layers_, unguarded.layers_, strict=True):
            assert all(np.array_equal(a.slow, b.slow) for a, b in zip(one.nodes, other.nodes, strict=True))
        Y, expected = guarded.transform(X), unguarded.transform(X)
        if depth == 1:
            assert np.array_equal(Y, expected)
        # Upper layers: rounding depends on the tile, so an extreme input may lie an ulp outside the range.
        np.testing.assert_allclose(Y, expected, atol=100 * np.finfo(Y.dtype).eps * np.abs(Y).max())
    outliers = 100.0 * X.astype(np.float64)
    assert np.abs(guarded.transform(outliers)).max() < 0.01 * np.abs(unguarded.transform(outliers)).max()


def test_nodes_see_nothing_outside_the_range_of_their_training_inputs():
    X, labels = make_images(300, (12, 12))
    network = HiGSFA(DEEP, graph=RECIPES["sum"]).fit(X, labels)
    top = network.layers_[-1].nodes[0]
    assert np.all(top.frontend.low < top.frontend.high)
    H = network.transform(1e6 * X)
    inside = np.random.default_rng(0).uniform(top.frontend.low, top.frontend.high, (20000, len(top.frontend.low)))
    corners_too = np.vstack([inside, np.where(inside > 0, top.frontend.high, top.frontend.low)])
    bound = np.abs(top.slow) @ np.abs(top.frontend.expansion(corners_too.T, top.frontend.children)).max(
        axis=1
    ) + np.abs(top.slow_offset)
    assert np.all(np.abs(H[:, : top.n_slow]) <= bound)


def test_a_linear_network_stays_linear_outside_the_training_range():
    X, labels = make_images(300, (12, 12))
    layers = [Layer((4, 4), n_components=5, expansion="identity"), Layer((3, 3), n_components=6, expansion="identity")]
    network = HiGSFA(layers, graph="serial").fit(X, labels["age"])
    a, b = X[:50], 1e3 * X[50:100]
    middle = (network.transform(a) + network.transform(b)) / 2
    np.testing.assert_allclose(network.transform((a + b) / 2), middle, atol=1e-9 * np.abs(middle).max())


# --- reconstruction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [HiGSFA, HGSFA, HiSFA, HSFA])
@pytest.mark.parametrize("case", ["overlapping", "channels", "padded", "shared", "pca"])
def test_a_network_that_keeps_everything_rebuilds_its_input(kind, case):
    shape = (4, 6, 2) if case == "channels" else (4, 6)
    bottom = {"field": (2, 2), "stride": (2, 2), "n_components": 8 if case == "channels" else 4}
    if case == "overlapping":
        bottom = {"field": (2, 4), "stride": (2, 2), "n_components": 8}
    elif case == "padded":
        bottom = {"field": (3, 4), "stride": (3, 4), "n_components": 12, "pad": True}
    layers = [
        Layer(**bottom, expansion="identity", shared=case == "shared", pca=4 if case == "pca" else None),
        Layer((2, 1), n_components=2 * bottom["n_components"], expansion="identity"),
        Layer((1, 2), stride=(1, 1), n_components=4 * bottom["n_components"], expansion="identity", pad=True),
    ]
    X, labels = make_images(300, shape)
    network = kind(layers)
    network.fit(X, labels["age"]) if kind in (HiGSFA, HGSFA) else network.fit(X)
    X_new = make_images(50, shape, random_state=1)[0]
    for images in (X, X_new):
        rebuilt = network.inverse_transform(network.transform(images))
        assert rebuilt.shape == images.shape
        np.testing.assert_allclose(rebuilt, images, atol=1e-8)


def test_reconstruction_improves_with_the_number_of_features():
    X, labels = make_images(400, (6, 6))
    errors = []
    for n_components in (1, 2, 4, 8, 16, 36):
        layers = [Layer((3, 3), n_components=min(n_components, 9)), Layer((2, 2), n_components=n_components)]
        network = HiGSFA(layers, graph="serial").fit(X, labels["age"])
        rebuilt = network.inverse_transform(network.transform(X))
        errors.append(float(np.mean((X - rebuilt) ** 2)))
    assert np.all(np.diff(errors) < 0)
    assert errors[0] < np.var(X, axis=0).mean()


def test_reconstruction_goes_down_node_by_node():
    X, labels = make_images(400, (8, 6))
    bottom, top = Layer((2, 2), (1, 2), 3, n_slow=1), Layer((7, 3), n_components=5, n_slow=2)
    network = HiGSFA([bottom, top], graph="serial").fit(X, labels["age"])

    # The oracle: Algorithm 3 in single estimators, and the mean where fields overlap.
    below = {place: fit_node(bottom, F, labels) for place, F in cut_fields(X[..., None], bottom, 2)[1].items()}
    H = np.concatenate([node.transform(F) for node, F in below.values()], axis=1)
    node, _ = fit_node(top, H, labels)
    features = node.inverse_transform(node.transform(H)).reshape(len(X), 7, 3, 3)
    total, count = np.zeros_like(X), np.zeros((8, 6))
    for (i, j), (node, _) in below.items():
        total[:, i : i + 2, 2 * j : 2 * j + 2] += node.inverse_transform(features[:, i, j]).reshape(len(X), 2, 2)
        count[i : i + 2, 2 * j : 2 * j + 2] += 1
    np.testing.assert_allclose(network.inverse_transform(network.transform(X)), total / count, atol=1e-8)


def fit_node(layer, F, labels):
    params = {"n_components": layer.n_components, "expansion": layer.expansion, "n_slow": layer.n_slow}
    return IGSFA(graph="serial", **params).fit(F, labels["age"]), F


# --- scikit-learn ----------------------------------------------------------------------------------------------------

ANY_WIDTH = [
    Layer(1, 1, 2, expansion="identity | power0.8"),
    Layer(1, 1, 1, shared=True, expansion="identity | quadratic"),
]
CONFIGURATIONS = [
    HiGSFA(),
    HiGSFA(ANY_WIDTH, n_jobs=2),
    HGSFA(),
    HGSFA(ANY_WIDTH, graph=SerialGraph(n_groups=4), memory_limit="1 GiB", clip_range=False),
    HiSFA(),
    HiSFA([Layer(1, 1, 1, pca=1, delta_threshold=1.9), Layer(1, 1, 1)], lag=2),
    HSFA(),
    HSFA(ANY_WIDTH),
]


@pytest.mark.filterwarnings("ignore:y is not used.* groups=y:UserWarning")  # classes of iris are in order
@parametrize_with_checks(CONFIGURATIONS)
def test_scikit_learns_checks_pass(estimator, check):
    if estimator.layers is None and "sample_weight_equivalence" in repr(check):
        pytest.skip("shrinkage is chosen on half of the rows: of two copies of a row one may be in each half")
    check(estimator)


def small_digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


def digit_network(**params):
    layers = [Layer((4, 4), (2, 2), 6, n_slow=3), Layer((3, 3), n_components=9, expansion="identity")]
    return HiGSFA(layers, input_shape=(8, 8), **params)


def test_parameters_of_layers_are_parameters_of_the_network():
    network = digit_network()
    params = network.get_params()
    assert params["layer1__n_components"] == 6
    assert params["layer2"] is network.layers[1]
    network.set_params(layer1__n_components=5, layer2__n_slow=2, n_jobs=2)
    assert (network.layers[0].n_components, network.layers[1].n_slow, network.n_jobs) == (5, 2, 2)
    network.set_params(layer2=Layer((3, 3), n_components=4))
    assert network.layers[1].n_components == 4
    with pytest.raises(ValueError, match=r"layer3__n_slow.*2 layers"):
        network.set_params(layer3__n_slow=1)
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        network.set_params(layer1__nonsense=1)


def test_clones_share_nothing_and_fit_to_the_same_bits():
    X, y = small_digits()
    network = digit_network(graph=ClusteredGraph()).fit(X, y)
    copy = clone(network)
    assert not hasattr(copy, "layers_")
    assert_same_model(network, copy.fit(X, y))
    copy.set_params(layer1__n_components=3, graph__self_loops=True)
    assert network.layers[0].n_components == 6
    assert not network.graph.self_loops
    assert repr(clone(network)) == repr(digit_network(graph=ClusteredGraph()))


@pytest.mark.filterwarnings("ignore:layer 1. n_slow=3 is more than n_components=1:UserWarning")
def test_grid_search_reaches_into_layers():
    X, y = small_digits()
    model = make_pipeline(digit_network(), KNeighborsClassifier())
    search = GridSearchCV(model, {"higsfa__layer1__n_components": [1, 6], "higsfa__layer2__n_components": [2, 9]}, cv=2)
    search.fit(X, y)
    assert search.best_params_ == {"higsfa__layer1__n_components": 6, "higsfa__layer2__n_components": 9}
    assert search.best_score_ > 0.85
    assert search.best_estimator_[0].layers_[0].trained.plan.n_components == 6
    assert model[0].layers[0].n_components == 6


def test_set_output_pandas_names_features_and_keeps_the_index():
    X, y = small_digits()
    frame = pd.DataFrame(X, index=np.arange(len(X)) + 7)
    frame.columns = [f"pixel{k}" for k in range(64)]
    network = digit_network().set_params(layer2__n_slow=3).set_output(transform="pandas")
    features = network.fit_transform(frame, y)
    assert list(features.columns) == [*(f"higsfa_slow{j}" for j in range(3)), *(f"higsfa_rec{j}" for j in range(6))]
    assert features.index.equals(frame.index)
    np.testing.assert_array_equal(features.to_numpy(), digit_network().set_params(layer2__n_slow=3).fit_transform(X, y))


def test_features_of_several_top_nodes_are_named_by_node():
    X, y = small_digits()
    network = HiGSFA([Layer((8, 4), n_components=3, n_slow=1)], input_shape=(8, 8)).fit(X, y)
    names = [f"higsfa_node{p}_{name}" for p in range(2) for name in ("slow0", "rec0", "rec1")]
    assert network.get_feature_names_out().tolist() == names
    assert (network.n_components_, network.n_slow_) == (6, None)
    left = IGSFA(3, expansion="identity | power0.8", n_slow=1).fit(X.reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32), y)
    np.testing.assert_allclose(
        network.transform(X)[:, :3], left.transform(X.reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32)), atol=1e-8
    )


@pytest.mark.parametrize("network", CONFIGURATIONS, ids=repr)
def test_joblib_round_trip_keeps_the_model(network, tmp_path):
    X, labels = make_images(100, (12,))
    fitted = clone(network).fit(X, labels["age"])
    joblib.dump(fitted, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    assert_same_model(loaded, fitted)
    assert np.array_equal(loaded.transform(X), fitted.transform(X))
    assert np.array_equal(loaded.inverse_transform(loaded.transform(X)), fitted.inverse_transform(fitted.transform(X)))
    assert str(loaded) == str(fitted)


@pytest.mark.parametrize("shape", [(8, 6), (4, 4, 3)])
def test_images_and_flat_rows_give_the_same_network(shape):
    X, labels = make_images(200, shape)
    layers = [Layer((2, 2), n_components=3), Layer((2, 2), n_components=4, pad=True)]
    images = HiGSFA(layers, graph="serial").fit(X, labels["age"])
    flat = HiGSFA(layers, graph="serial", input_shape=shape).fit(X.reshape(200, -1), labels["age"])
    assert_same_model(images, flat)
    assert np.array_equal(images.transform(X), images.transform(X.reshape(200, -1)))
    assert np.array_equal(images.transform(X), flat.transform(X))
    assert images.input_shape_ == flat.input_shape_ == shape
    assert images.inverse_transform(images.transform(X)).shape == X.shape


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, bool, np.int64])
def test_other_types_of_numbers_give_the_features_of_float64(dtype):
    X, labels = make_images(300, (8, 8))
    X = (X > 0) if dtype is bool else np.clip(128 + 40 * X, 0, 255).astype(np.uint8).astype(dtype)
    layers = [Layer((4, 4), (2, 2), 4, n_slow=2), Layer((3, 3), n_components=5, n_slow=3, expansion="identity")]
    exact = HiGSFA(layers, graph="serial").fit(X.astype(np.float64), labels["age"]).transform(X.astype(np.float64))
    Y = HiGSFA(layers, graph="serial").fit(X, labels["age"]).transform(X)
    single = dtype in (np.float32, np.uint8, np.float16)
    assert Y.dtype == (np.float32 if single else np.float64)
    np.testing.assert_allclose(Y, exact, atol=(2e-3 if single else 1e-12) * np.abs(exact).max())


def test_sample_weights_count_copies():
    X, labels = make_images(200, (8, 8))
    weight = np.random.default_rng(0).integers(0, 4, 200)
    layers = [Layer((4, 4), n_components=4, n_slow=2), Layer((2, 2), n_components=5, n_slow=3)]
    recipe = SerialGraph("age", n_groups=5) + ClusteredGraph("kind")
    weighted = HiGSFA(layers, graph=recipe).fit(X, labels, sample_weight=weight)
    copies = {name: np.repeat(values, weight) for name, values in labels.items()}
    repeated = HiGSFA(layers, graph=recipe).fit(np.repeat(X, weight, axis=0), copies)
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), atol=1e-8)


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_printed_network_shows_sizes_that_the_fit_has():
    X, labels = make_images(200, (9, 9))
    network = HiGSFA([Layer((3, 3), n_components=4, pca=7), Layer((3, 3), n_components=5)], graph="serial")
    assert str(network) == repr(network)
    unfitted = str(network.set_params(input_shape=(9, 9)))
    fitted = str(network.fit(X, labels["age"]))
    for text in (unfitted, fitted):
        rows = [line.split() for line in text.splitlines()]
        assert rows[2][:8] == ["1", "3x3", "3x3", "3x3", "3x3", "9>7", "14", "4"]
        assert rows[3][:8] == ["2", "1x1", "3x3", "3x3", "9x9", "36", "72", "5"]
    assert f"{network.layers_[1].delta_values[0, 0]:.3f}" in fitted.splitlines()[3]
    assert "9x9" in network._repr_html_()


def test_delta_values_of_the_top_are_those_of_its_features():
    X, labels = make_images(400, (6, 6))
    recipe = SerialGraph("age", n_groups=8)
    network = HGSFA([Layer((3, 3), n_components=4), Layer((2, 2), n_components=5)], graph=recipe).fit(X, labels)
    deltas = recipe.build(labels).delta(network.transform(X))
    np.testing.assert_allclose(network.delta_values_[:5], deltas, atol=1e-8)
    bottom = HGSFA([Layer((3, 3), n_components=4)], graph=recipe).fit(X, labels)
    deltas = recipe.build(labels).delta(bottom.transform(X)).reshape(4, 4)
    np.testing.assert_allclose(network.layers_[0].delta_values[:, :4], deltas, atol=1e-8)


def test_progress_is_shown_only_if_asked_for(capsys):
    X, labels = make_images(100, (8, 8))
    layers = [Layer((4, 4), n_components=3), Layer((2, 2), n_components=3)]
    HiGSFA(layers, graph="serial").fit(X, labels["age"])
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    HiGSFA(layers, graph="serial", verbose=1, n_jobs=2).fit(X, labels["age"])
    shown = capsys.readouterr()
    assert "100%" in shown.out + shown.err
    assert "2 layers" in shown.out + shown.err


# --- memory ----------------------------------------------------------------------------------------------------------

MIDDLE = [
    Layer((4, 4), (2, 2), 8, pca=8, n_slow=3, expansion="identity | power0.8"),
    Layer((3, 3), (2, 2), 12),
    Layer((3, 3), n_components=15),
]
THIN = [Layer(3, 1, 2, expansion="identity | power0.8")] + [Layer(3, 1, 2, expansion="identity") for _ in range(5)]
LINEAR = [Layer(3, 1, 2, expansion="identity") for _ in range(6)]
SHARED = [Layer(3, 1, 2, shared=True) for _ in range(6)]


def measured_peak(network, X, y):
    tracemalloc.start()
    try:
        network.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("layers", "shape", "dtype", "memory"),
    [
        (MIDDLE, (16, 16), np.uint8, None),
        (MIDDLE, (16, 16), np.uint8, "20 MiB"),
        (THIN, (40,), np.float64, None),
        (LINEAR, (40,), np.float64, "15 MiB"),
        (SHARED, (40,), np.float64, None),
    ],
    ids=["images", "images, little memory", "many layers", "many linear layers, little memory", "many shared layers"],
)
def test_memory_is_estimated_within_a_factor_of_two_and_kept_to(layers, shape, dtype, memory, tmp_path):
    n_samples = 10_000
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, (n_samples, *shape)).astype(dtype)
    network = HiGSFA(layers, graph="serial", memory_limit=memory, input_shape=shape, spill=False)
    budget = network.estimate_cost(n_samples, dtype=dtype)
    y = rng.integers(16, 77, n_samples).astype(float)
    measured = measured_peak(network, X, y)
    assert 0.7 * measured <= budget.memory <= 2 * measured
    if memory is not None:
        assert not all(below_kept(budget))
        assert measured <= 1.1 * _network.parse_memory(memory)
        network.set_params(spill=tmp_path)
        assert measured_peak(network, X, y) <= 1.1 * _network.parse_memory(memory)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("2 GiB", 2**31), ("500MB", 5 * 10**8), ("1.5 MiB", 3 * 2**19), ("10 kB", 10_000), ("64", 64), (123, 123)],
)
def test_memory_is_read_as_people_write_it(text, n_bytes):
    assert _network.parse_memory(text) == n_bytes


def test_the_estimated_memory_never_exceeds_the_limit():
    for layers, shape in ((MIDDLE, (16, 16)), (DEEP, (12, 12)), (SHARED, (40,))):
        for limit in np.geomspace(2**18, 2**28, 60).astype(int).tolist():
            network = HiGSFA(layers, graph="serial", input_shape=shape, memory_limit=limit)
            with suppress(ValueError):
                assert network.estimate_cost(2000, dtype=np.float64).memory <= limit


@pytest.mark.parametrize("layers", [DEEP, MIXED_SHARING], ids=["own weights", "shared weights"])
def test_the_memory_that_an_error_asks_for_is_enough(layers, monkeypatch):
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 64)
    network = HiGSFA(layers, graph="serial", input_shape=(12, 12), memory_limit=10_000)
    for _ in layers:
        try:
            network.estimate_cost(100_000, dtype=np.float64)
        except ValueError as error:
            found = re.search(
                r"memory_limit: .* MiB are not enough to train layer \d.*; at least (\d+) MiB are", str(error)
            )
            assert found
            network.set_params(memory_limit=f"{int(found[1]) + 1} MiB")
    network.estimate_cost(100_000, dtype=np.float64)


def test_passes_over_the_input_are_counted(monkeypatch):
    X, labels = make_images(300, (12, 12))
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 64)
    budgets, reads, train = Budgets(monkeypatch), [], _network.train_network

    def counted(plans, read, *args, **kwargs):
        def read_and_count(rows):
            reads.append(len(rows))
            return read(rows)

        return train(plans, read_and_count, *args, **kwargs)

    monkeypatch.setattr(_network, "train_network", counted)
    network = HiGSFA(DEEP, graph="serial").fit(X, labels["age"])
    assert sum(reads) == 300 * budgets.used[-1].passes
    limits = {tuple(below_kept(budget)): limit for limit, budget in budgets.possible()}
    assert len(limits) >= 3
    for limit in limits.values():
        reads.clear()
        network.set_params(memory_limit=limit, spill=False).fit(X, labels["age"])
        assert abs(sum(reads) / 300 - budgets.used[-1].passes) <= 1


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"layers": [Layer((5, 5), (2, 3))]},
            ValueError,
            r"layer 1: .*\(5, 5\).* grid 8x8 .*field 5 stride 3.*pad=True",
        ),
        (
            {"layers": [Layer((4, 4)), Layer((3, 2))]},
            ValueError,
            r"layer 2: field \(3, 2\) is larger than the grid 2x2",
        ),
        ({"layers": [Layer((4, 4)), Layer((2,))]}, ValueError, "layer 2: field .*1 dimensions, the grid below has 2"),
        ({"layers": [Layer((4, 4, 4))]}, ValueError, r"input_shape \(8, 8\).*3 dimensions"),
        ({"layers": [Layer((4, 0))]}, ValueError, r"layer 1: field \(4, 0\) .*at least 1"),
        ({"layers": [Layer((4, 4), n_components=0)]}, ValueError, "'n_components' parameter of layer 1"),
        ({"layers": [Layer((4, 4), scaling="none")]}, ValueError, "'scaling' parameter of layer 1"),
        ({"layers": [Layer((4, 4), expansion="identity[:20]")]}, ValueError, "layer 1: .*identity"),
        ({"layers": [Layer((4, 4), expansion="cubic")]}, ValueError, "cubic"),
        ({"layers": []}, ValueError, "at least one layer"),
        ({"layers": [Layer((4, 4)), IGSFA()]}, TypeError, "layers: entry 2 must be a Layer, got IGSFA"),
        ({"layers": "pyramid"}, ValueError, "'layers' parameter of HiGSFA"),
        ({"input_shape": (8, 9)}, ValueError, r"input_shape=\(8, 9\) has 72 values.*\(8, 8\)"),
        ({"input_shape": (4, 16)}, ValueError, r"input_shape=\(4, 16\).*\(8, 8\)"),
        ({"memory_limit": "much"}, ValueError, "memory_limit='much'.*2 GiB"),
        ({"memory_limit": "10 KiB"}, ValueError, "memory_limit: .* not enough to train layer 1"),
        ({"memory_limit": 0}, ValueError, "'memory_limit' parameter of HiGSFA"),
        ({"n_jobs": 0}, ValueError, "n_jobs == 0"),
        ({"graph": "neighbours"}, ValueError, "graph='neighbours' is unknown"),
    ],
)
def test_errors_say_what_is_wrong_and_leave_a_fitted_network_as_it_was(params, error, message):
    X, labels = make_images(100, (8, 8))
    network = HiGSFA([Layer((4, 4), n_components=3), Layer((2, 2), n_components=3)], graph="serial")
    network.fit(X, labels["age"])
    before, features = dict(network.__dict__), network.transform(X)
    original = network.get_params(deep=False)
    network.set_params(**params)
    with pytest.raises(error, match=message):
        network.fit(X[:90], labels["age"][:90])
    network.set_params(**{name: original[name] for name in params})
    assert network.__dict__ == before
    assert np.array_equal(network.transform(X), features)


@pytest.mark.parametrize("kind", [HiGSFA, HGSFA, HiSFA, HSFA])
@pytest.mark.parametrize(
    "bottom", [{"expansion": "identity"}, {"expansion": CLOSED}, {"pca": 3}, {"shared": True}], ids=str
)
@pytest.mark.parametrize(
    ("dtype", "value", "message"), [(np.float32, np.nan, "NaN"), (np.float64, np.inf, "infinity")], ids=["nan", "inf"]
)
def test_images_with_nan_or_infinity_are_refused_by_name(kind, bottom, dtype, value, message):
    X, labels = make_images(100, (8, 8))
    network = kind([Layer((4, 4), n_components=3, **bottom), Layer((2, 2), n_components=3)]).fit(X, labels["age"])
    features = network.transform(X)
    broken = X.astype(dtype)
    broken[60, 3, 5] = value
    with pytest.raises(ValueError, match=message):
        network.fit(broken, labels["age"])
    with pytest.raises(ValueError, match=message):
        network.transform(broken)
    assert np.array_equal(network.transform(X), features)


def test_numbers_too_large_for_their_type_are_refused():
    X, labels = make_images(100, (8, 8))
    network = HiGSFA([Layer((4, 4), n_components=3), Layer((2, 2), n_components=3)], graph="serial")
    with pytest.raises(ValueError, match=r"too large for float64.*scale X down"):
        network.fit(1e200 * X, labels["age"])
    late = X.astype(np.float32)
    late[70] *= 1e30  # a first look at some samples does not see it
    with pytest.raises(ValueError, match=r"too large for float32.*float64"):
        network.fit(sources.array(late)[np.arange(100)], labels["age"])
    assert np.isfinite(network.fit(1e30 * X, labels["age"]).transform(1e30 * X)).all()


def test_images_of_another_shape_are_refused():
    X, labels = make_images(100, (4, 16))
    network = HiGSFA([Layer((4, 4), n_components=3)], graph="serial").fit(X, labels["age"])
    with pytest.raises(ValueError, match="features"):
        network.transform(X[:, :, :12])
    with pytest.raises(ValueError, match=r"\(16, 4\)"):
        network.transform(X.reshape(100, 16, 4))
    with pytest.raises(ValueError, match="Y has 5 features, but this network makes 12"):
        network.inverse_transform(np.zeros((3, 5)))


def test_constant_and_duplicated_pixels_give_finite_features_and_zeros_beyond_the_rank():
    X, labels = make_images(200, (8, 8))
    X[:, :4, :4] = 3.0
    X[:, 4:, :4] = X[:, 4:, 4:5]
    layers = [Layer((4, 4), n_components=6, expansion="identity"), Layer((2, 2), n_components=30)]
    network = HiGSFA(layers, graph="serial").fit(X, labels["age"])
    assert network.layers_[0].rank.tolist() == [0, 16, 4, 16]
    assert np.isfinite(network.transform(X)).all()
    bottom = HiGSFA(layers[:1], graph="serial").fit(X, labels["age"]).transform(X).reshape(200, 4, 6)
    assert np.all(bottom[:, 0] == 0)
    assert np.all(bottom[:, 2, 4:] == 0)
    assert np.all(bottom[:, 1].std(axis=0) > 0)
