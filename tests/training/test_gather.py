"""One pass over the data of a node: sums that become the covariances of brute force, whatever is read how."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp

from higsfa.core.expansion.expansion import as_expansion
from higsfa.core.native.tile import Rows
from higsfa.core.node.frontend import Frontend, Projection
from higsfa.core.node.solve import NodeOptions
from higsfa.core.sums import accumulate
from higsfa.core.sums.accumulate import pilot_shift
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.sums import covariances
from higsfa.graphs import ClusteredGraph, EdgeGraph, SequenceGraph, SerialGraph, WindowGraph
from higsfa.training import gather as passes
from higsfa.training.gather import (
    ArrayReader,
    NodeData,
    column_means,
    prefetch,
)
from higsfa.training.statistics import GraphStatistics, Origin

N, I = 230, 4


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Several blocks and tiles, and a pilot that does not see all samples of a tile."""
    monkeypatch.setattr("higsfa.core.sums.tile.MAX_TILE", 32)
    monkeypatch.setattr(accumulate, "PILOT", 20)
    monkeypatch.setattr(passes, "PILOT", 20)


def gather_node(read, plan, frontend):
    """Sums and shift."""
    return NodeData(read, frontend, np.dtype(float), 1e-16).gather(plan)[:2]


def data(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, I)) @ rng.standard_normal((I, I))
    X[:, 1] += 1000.0  # is shifted
    X[:, 2] += 2.0
    age = X[:, 0] + rng.standard_normal(N)
    labels = {"age": age, "kind": rng.integers(0, 3, N), "gaps": np.where(np.arange(N) % 7 == 3, np.nan, age)}
    return X.astype(dtype), labels


def written_out(n_edges):
    """Edges of many weights, between samples near and far."""
    rng = np.random.default_rng(1)
    i, j = rng.integers(0, N, (2, n_edges))
    edges = sp.csr_array(sp.coo_array((rng.uniform(0.1, 2.0, n_edges), (i, j)), shape=(N, N)))
    return EdgeGraph(edges + edges.T)


def squares(X):
    return np.column_stack([X, X**2])


RECIPES = {
    "groups": SerialGraph("age", n_groups=5) + ClusteredGraph("kind"),
    "sequence": SequenceGraph(lag=2),
    "window": WindowGraph("age", half_width=3),
    "both": SerialGraph("age", n_groups=5) + SequenceGraph(),
    "window with gaps": WindowGraph("gaps", half_width=3),
    "neighbours with gaps": WindowGraph("gaps", half_width=1),
    "few edges": written_out(150),
    "many edges": written_out(3000),
    "groups, window and edges": ClusteredGraph("kind") + WindowGraph("age", half_width=5) + written_out(3000),
    "edges and order": written_out(150) + SequenceGraph() + ClusteredGraph("kind"),
}
EXPANSIONS = {"identity": "identity", "some": "power0.8[1:3]", "quadratic": "identity | quadratic", "function": squares}


def frontend_of(name):
    center = np.zeros(I) if name == "identity" else np.array([0.5, 0.0, 2.0, -1.0])
    return Frontend(as_expansion(EXPANSIONS[name]), 1, I, center)


def brute_force(T, graph):
    gamma, v, w = graph.to_sparse().toarray(), graph.vertex_weights, graph.sample_weight
    mean = v @ T / v.sum()
    C = (T - mean).T @ (v[:, None] * (T - mean)) / v.sum()
    C_dot = np.zeros_like(C)
    for n in range(len(T)):
        D = T - T[n]
        C_dot += D.T @ (gamma[n][:, None] * D)
    plain_mean = w @ T / w.sum()
    plain = (T - plain_mean).T @ (w[:, None] * (T - plain_mean)) / w.sum()
    return mean, C, C_dot / gamma.sum(), plain_mean, plain


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", EXPANSIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_become_the_covariances_of_all_pairs(recipe, name, weighted):
    X, labels = data()
    sequence = recipe != "groups"
    w = None if sequence or not weighted else np.arange(N) % 3 + 0.5
    w = None if w is None else np.where(np.arange(N) < 60, 0.0, w)
    graph = RECIPES[recipe].build(labels, **({} if w is None else {"sample_weight": w}))
    frontend = frontend_of(name)
    plan = make_plan(graph, 50)
    sums, shift = gather_node(ArrayReader(X, np.dtype(float)), plan, frontend)
    T = np.asarray(frontend.variables(frontend.inputs(Rows(X.T.copy()), X.dtype, clip=False)).T)
    assert shift[frontend.layout.input_rows[1]] == pytest.approx(1000, abs=5)
    found = covariances(sums, plan.weighting, shift, np.finfo(float).eps)
    mean, C, C_dot, plain_mean, plain = brute_force(T, graph)
    scale = np.sqrt(np.outer(plain.diagonal(), plain.diagonal()))
    below = np.tril_indices(len(C))
    np.testing.assert_allclose((found.C / scale)[below], (C / scale)[below], atol=1e-10)
    np.testing.assert_allclose((found.C_dot / scale)[below], (C_dot / scale)[below], atol=1e-10)
    np.testing.assert_allclose((found.plain / scale)[below], (plain / scale)[below], atol=1e-10)
    np.testing.assert_allclose(found.mean + shift, mean, rtol=1e-12)
    np.testing.assert_allclose(found.plain_mean + shift, plain_mean, rtol=1e-12)
    if name != "identity":
        counted = graph.sample_weight > 0
        np.testing.assert_allclose(sums.low, (X - frontend.center)[counted].min(axis=0), rtol=1e-12)
        np.testing.assert_allclose(sums.high, (X - frontend.center)[counted].max(axis=0), rtol=1e-12)


@pytest.mark.parametrize("name", EXPANSIONS)
@pytest.mark.parametrize("recipe", ["groups", "sequence"])
def test_all_ways_of_reading_give_the_same_bits(name, recipe):
    X, labels = data(np.float32)
    plan = make_plan(RECIPES[recipe].build(labels), 50)
    frontend = frontend_of(name)
    double = X.astype(np.float64)
    readers = [
        ArrayReader(double, np.dtype(float)),
        ArrayReader(X, np.dtype(float)),  # converted, and read ahead
        ArrayReader(np.asfortranarray(double), np.dtype(float)),
        lambda rows: double[rows],
        lambda rows: np.asfortranarray(double[rows]),
    ]
    expected, shift = gather_node(readers[0], plan, frontend)
    for read in readers[1:]:
        found, own = gather_node(read, plan, frontend)
        assert np.array_equal(own, shift)
        for part in ("weights", "first", "second", "low", "high"):
            assert np.array_equal(getattr(found, part), getattr(expected, part)), part


def test_a_projection_comes_before_the_centre():
    X, labels = data()
    plan = make_plan(RECIPES["groups"].build(labels), 50)
    P, m = np.linalg.qr(np.random.default_rng(1).standard_normal((I, I)))[0][:2], np.array([0.0, 1000.0, 2.0, 0.0])
    frontend = Frontend(as_expansion("identity | quadratic"), 1, 2, np.zeros(2), projection=Projection(P, m))
    sums, shift = gather_node(ArrayReader(X, np.dtype(float)), plan, frontend)
    plain = Frontend(as_expansion("identity | quadratic"), 1, 2, np.zeros(2))
    projected = (X - m) @ P.T
    expected, own = gather_node(ArrayReader(projected, np.dtype(float)), plan, plain)
    np.testing.assert_allclose(sums.first, expected.first, atol=1e-8)
    np.testing.assert_allclose(shift, own, atol=1e-10)
    np.testing.assert_allclose(sums.low, projected.min(axis=0), atol=1e-10)


# --- means -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_are_weighted_and_exact_for_constants(dtype, monkeypatch):
    monkeypatch.setattr(passes, "MEAN_VALUES", 16 * I)
    X, _ = data(dtype)
    X[:, 3] = 0.1
    w = np.random.default_rng(0).uniform(0, 3, N)
    w[:40] = 0
    X[:40] = np.nan  # not looked at
    found = column_means(ArrayReader(X, np.dtype(dtype)), N, I, w)
    np.testing.assert_allclose(found, w[40:] @ X[40:].astype(float) / w.sum(), rtol=1e-13)
    assert found[3] == X[50, 3]
    X[100, 3] = 0.2
    assert column_means(ArrayReader(X, np.dtype(dtype)), N, I, w)[3] != X[50, 3]


def test_means_of_nothing_are_zero_and_nothing_is_read():
    def read(rows):
        raise AssertionError

    assert np.array_equal(column_means(read, 0, I, np.zeros(0)), np.zeros(I))
    assert np.array_equal(column_means(read, 50, I, np.zeros(50)), np.zeros(I))


def test_means_are_read_some_samples_at_a_time_and_in_order(monkeypatch):
    monkeypatch.setattr(passes, "MEAN_VALUES", 16 * I)
    X, _ = data()
    seen = []
    column_means(lambda rows: seen.append(rows) or X[rows], N, I, np.ones(N))
    assert np.array_equal(np.concatenate(seen), np.arange(N))
    assert max(map(len, seen)) == 16


def test_a_large_mean_costs_no_digits():
    X = 1e8 + np.random.default_rng(0).standard_normal((N, 1))
    found = column_means(ArrayReader(X, np.dtype(float)), N, 1, np.ones(N))
    assert found[0] == pytest.approx(np.mean(X), abs=1e-7)


# --- the shift -------------------------------------------------------------------------------------------------------


def shift_of(T):
    """Of variables (T, n)."""
    return pilot_shift(Frontend(as_expansion("identity"), 1, len(T), np.zeros(len(T))), [Rows(T)], T.dtype)


def test_variables_are_shifted_if_their_mean_exceeds_four_deviations():
    spread = np.tile([-1.0, 1.0], 30)  # of deviation 1
    T = np.stack([spread + mean for mean in (0.0, 3.9, 4.1, -4.1, -3.9, 1e6)])
    np.testing.assert_allclose(shift_of(T), [0, 0, 4.1, -4.1, 0, 1e6], rtol=1e-12)


def test_the_shift_is_that_of_the_first_samples_and_exact_for_constants():
    T = np.full((2, 50), 0.1, dtype=np.float32)
    T[1, 20:] = 99.0
    assert np.array_equal(shift_of(T), np.full(2, T[0, 0], dtype=np.float64))
    T[:, 19] = 0.101
    assert shift_of(T)[0] == np.mean(T[0, :20], dtype=np.float64)


def test_no_shift_comes_from_nothing_or_from_numbers_that_are_not_finite():
    assert np.array_equal(shift_of(np.zeros((3, 0))), np.zeros(3))
    T = np.full((3, 10), 5.0)
    T[0, 3], T[1, 3] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        assert shift_of(T).tolist() == [0, 0, 5]


def test_the_first_rows_are_those_of_the_first_tile():
    _, labels = data()
    plan = make_plan(RECIPES["groups"].build(labels), 50)
    tile = next(iter(plan.tiles(0, 32)))
    reads = []
    X = data()[0]
    gather_node(lambda rows: reads.append(rows) or X[rows], plan, frontend_of("identity"))
    assert np.array_equal(reads[0], tile.rows[:20])


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [np.finfo(np.float32).eps, np.finfo(np.float64).eps])
def test_the_range_is_a_few_roundings_wider_than_what_was_seen(precision):
    X = np.random.default_rng(0).uniform([-3.0, 0.0, 5.0], [1.0, 0.0, 7.0], (N, 3))
    plan = make_plan(RECIPES["groups"].build(data()[1]))
    frontend = Frontend(as_expansion("quadratic"), 1, 3, np.zeros(3))
    sums, shift = gather_node(ArrayReader(X, np.dtype(float)), plan, frontend)
    statistics = GraphStatistics(sums, shift, frontend, precision, Origin.of("any"), plan.weighting)
    node = statistics.solve(NodeOptions(2)).frontend
    largest = np.abs(X).max(axis=0)
    np.testing.assert_allclose(X.min(axis=0) - node.low, 16 * precision * largest, rtol=0.1)
    np.testing.assert_allclose(node.high - X.max(axis=0), 16 * precision * largest, rtol=0.1)
    assert statistics.solve(NodeOptions(2), clip_range=False).frontend.low is None


# --- reading ahead ---------------------------------------------------------------------------------------------------


def test_what_is_prepared_ahead_comes_in_order():
    found = list(prefetch(lambda k: 10 * k, range(50)))
    assert found == [(k, 10 * k) for k in range(50)]
    assert list(prefetch(lambda k: k, [])) == []


def test_only_a_few_are_prepared_ahead():
    prepared, release = [], threading.Semaphore(0)

    def prepare(k):
        prepared.append(k)
        release.release()
        return k

    items = prefetch(prepare, range(100))
    next(items)
    for _ in range(4):  # one is in use, two are ready, one waits for room
        assert release.acquire(timeout=60)
    assert not release.acquire(timeout=0.2)
    assert prepared == [0, 1, 2, 3]
    items.close()
    assert len(prepared) <= 6


def test_an_error_ahead_is_raised_where_it_is_due():
    def prepare(k):
        if k == 3:
            raise KeyError("third")
        return k

    items = prefetch(prepare, range(10))
    assert [next(items) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(KeyError, match="third"):
        next(items)
    before = threading.active_count()
    items.close()
    assert threading.active_count() <= before


def test_whoever_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    for taken in (0, 1, 5):
        items = prefetch(lambda k: k, range(10**6))
        for _ in range(taken):
            next(items)
        items.close()
    assert threading.active_count() == before


def test_warnings_of_arithmetic_ahead_are_left_to_the_sums():
    with np.errstate(all="raise"):
        assert [x for _, x in prefetch(lambda k: float(np.float64(1.0) / k), np.zeros(2))] == [np.inf, np.inf]
