"""How samples are cut: what is multiplied how often, and in which units."""

import itertools

import numpy as np
import pytest

from higsfa import GSFA
from higsfa.core.sums.plan import class_plan, make_plan
from higsfa.core.sums.tile import reduce_weightings, tile_rows, unit_of
from higsfa.graphs import ClusteredGraph, MixedGraph, SerialGraph

N, CLASSES = 3000, 13
rng = np.random.default_rng(0)
LABEL = rng.integers(0, CLASSES, N)
AGE = rng.integers(16, 77, N).astype(float)
WEIGHTS = {
    "equal": np.full(N, 1.5),
    "three levels": rng.integers(1, 4, N).astype(float),
    "all different": rng.uniform(0.5, 2.0, N),
    "some of them 0": np.where(rng.random(N) < 0.3, 0.0, rng.uniform(0.5, 2.0, N)),
}


def n_products(plan, rows=1024):
    """Products z z^T of one sample that a plan asks for."""
    total = 0
    for block in range(plan.n_blocks):
        for tile in plan.tiles(block, rows):
            for part in tile.parts:
                total += (part.end - part.begin) * (len(part.weights) if part.weights.ndim == 2 else 1)
    return total


@pytest.mark.parametrize("w", WEIGHTS.values(), ids=WEIGHTS)
def test_every_sample_is_multiplied_once_whatever_its_weight(w):
    in_graph = np.count_nonzero(w)
    assert n_products(class_plan(LABEL, CLASSES, w)) == in_graph
    for graph in (ClusteredGraph("class"), SerialGraph("age", n_groups=4), MixedGraph("age", n_groups=4)):
        plan = make_plan(graph.build({"age": AGE, "class": LABEL}, sample_weight=w))
        assert n_products(plan) <= 1.5 * in_graph  # small cells share one product per channel


def test_few_samples_of_many_classes_are_multiplied_once():
    codes = np.tile(np.arange(32), 10)
    assert n_products(class_plan(codes, 32, np.ones(320))) == 320


def test_a_tile_is_the_largest_power_of_two_that_memory_allows():
    for n_features, itemsize in itertools.product((0, 1, 255, 257, 500, 3000, 16383, 16385, 10**7), (4, 8)):
        powers = [2**k for k in range(14) if 2**k * n_features * itemsize <= 16 * 2**20]
        assert tile_rows(n_features, itemsize) == max([128, *powers])


@pytest.mark.parametrize("w", WEIGHTS.values(), ids=WEIGHTS)
def test_weights_of_tiles_add_up_to_those_of_the_graph(w):
    graph = (SerialGraph("age", n_groups=4) + ClusteredGraph("class")).build(
        {"age": AGE, "class": LABEL}, sample_weight=w
    )
    plan = make_plan(graph)
    tiles = [tile for block in range(plan.n_blocks) for tile in plan.tiles(block, 512)]
    totals = plan.weighting.mix @ sum(tile.weights for tile in tiles)[: plan.n_channels]
    np.testing.assert_allclose(totals[0], graph.total_vertex_weight, rtol=1e-12)
    np.testing.assert_allclose(totals[2], w.sum(), rtol=1e-12)
    rows = np.concatenate([tile.rows for tile in tiles])
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(w))


def test_channels_give_the_weightings_back_and_are_of_the_order_of_one():
    draw = np.random.default_rng(1)
    v, e = draw.uniform(0, 1, (2, 50))
    for factor in (1e-90, 1.0, 1e90):
        roles = factor * np.stack([v, 3 * v, e, np.zeros(50), v - e + e])
        channels, mix = reduce_weightings(roles)
        assert channels.shape == (2, 50)
        assert 1 <= channels.max() < 2
        np.testing.assert_allclose(mix @ channels, roles, rtol=1e-12, atol=0)


@pytest.mark.parametrize("largest", [1.0, 1.5, 2.0, 0.75, 3e-90, 7e90])
def test_units_are_powers_of_two_just_below_the_largest_weight(largest):
    unit = unit_of(np.array([0.1 * largest, largest]))
    assert unit <= largest < 2 * unit
    assert np.log2(unit) == round(np.log2(unit))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("graph", ["serial", ClusteredGraph(self_loops=True)], ids=["serial", "self-loops"])
@pytest.mark.parametrize("kind", ["equal", "three levels", "all different"])
def test_the_unit_of_sample_weights_does_not_matter_where_copies_are_not_counted(graph, kind, dtype):
    w = WEIGHTS[kind][:300]
    X = np.random.default_rng(2).standard_normal((300, 4)) + AGE[:300, None] * [0.1, 0.0, 0.0, 0.05]
    y = np.floor(AGE[:300] / 10)
    one = GSFA(graph=graph).fit(X.astype(dtype), y, sample_weight=w)
    for factor in (1e-99, 1e-30, 1e30, 1e99):
        other = GSFA(graph=graph).fit(X.astype(dtype), y, sample_weight=factor * w)
        atol = 1e-9 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(other.delta_values_, one.delta_values_, rtol=0, atol=atol)
        np.testing.assert_allclose(other.transform(X), one.transform(X), rtol=0, atol=100 * atol)
