"""The plan of a fit: bytes counted by hand, and limits kept to the byte."""

import itertools

import numpy as np
import pytest

from higsfa import HiGSFA, Layer
from higsfa.training import network as driver
from higsfa.training.budget import Workload, make_budget, tile_size

N, K, A = 1000, 2, 7
"""Samples, channels and atoms."""


def plans_of(layers, n_pixels, channels=1):
    plans, grid, width = [], (n_pixels,), channels
    for number, layer in enumerate(layers, 1):
        plans.append(layer.plan(number, grid, width, preserve=True, clip_range=True))
        grid, width = plans[-1].fields.shape, plans[-1].n_components
    return plans


def budget_of(layers, limit, *, n_pixels=8, n_blocks=5, n_jobs=3, disk=0, itemsize=8):
    plans = plans_of(layers, n_pixels)
    return make_budget(Workload(tuple(plans), N, n_pixels, 4, itemsize, K, A, n_blocks, n_jobs), limit, disk)


LINEAR = Layer(2, 2, 2, expansion="identity")  # 4 nodes of 2 variables on 8 pixels
WIDE = Layer(4, 4, 5, expansion="identity | quadratic")  # on 4 nodes of width 2: 1 node of 8 + 36 variables
INPUT = N * 8 * 4
LEVELS = 4  # of the tree over 5 blocks: 1, 2, 4 and 8 of them
WORKING = {
    "linear": 3 * N * 8 * 8 + 3 * 4 * N * 8 * 2,
    "both": 3 * N * 8 * 8 + 3 * 4 * N * 8 * 44,
}


def sums(T):
    """Second moments in K channels, and three further matrices; first moments by channels and atoms."""
    return 8 * ((K + 3) * T * T + (K + A) * T)


def test_one_layer_takes_its_input_its_tiles_and_the_sums_of_a_node_for_each_thread():
    budget = budget_of([LINEAR], 2**30)
    assert budget.input_place == "memory"
    assert budget.layers[0].place == "nowhere"  # nothing reads its features
    assert budget.layers[0].sum_bytes == sums(2)
    assert budget.layers[0].feature_bytes == N * 4 * 2 * 8
    assert budget.memory == INPUT + WORKING["linear"] + 3 * sums(2) * (LEVELS + 1)
    assert (budget.disk, budget.passes) == (0, 1)
    assert budget.work == budget.layers[0].work == N * 4 * (2 * 2 / 2 + 2 * (2 + 2))


@pytest.mark.parametrize(("n_blocks", "levels"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5)])
def test_sums_wait_on_every_level_of_the_tree(n_blocks, levels):
    budget = budget_of([LINEAR], 2**30, n_blocks=n_blocks)
    assert budget.memory == INPUT + WORKING["linear"] + 3 * sums(2) * (levels + 1)


def test_features_of_a_layer_wait_beside_its_input_while_it_is_trained():
    budget = budget_of([LINEAR, WIDE], 2**30)
    features = N * 4 * 2 * 8
    assert [layer.place for layer in budget.layers] == ["memory", "nowhere"]
    first = INPUT + WORKING["both"] + 3 * sums(2) * (LEVELS + 1) + features
    second = features + WORKING["both"] + 3 * sums(44) * (LEVELS + 1)
    assert budget.memory == max(first, second)
    assert budget.passes == 1
    # An identity has no pass for means; the layer above it knows them from its nodes.
    assert budget.work == sum(layer.work for layer in budget.layers)
    assert budget.layers[1].work == N * (44 * 44 / 2 + 5 * (44 + 8))


def waiting(T, nodes):
    """Sums of fields that share weights, groups folded: on the levels of a tree, in it, and one for each of 3 threads.

    There are never more than fields.
    """
    levels = {2: 1, 4: 2, 8: 3}[nodes]
    return min(nodes, levels + 1 + 3) * 8 * (K + 1) * (T * T + T)


def test_fields_that_share_weights_wait_in_a_tree_and_leave_the_input_for_one_more_pass():
    shared = Layer(2, 2, 2, expansion="identity", shared=True)
    budget = budget_of([shared, LINEAR_ON_NODES], 2**30)
    features = N * 4 * 2 * 8
    working = 3 * N * 8 * 8 + 3 * 4 * N * 8 * 4
    first = INPUT + working + 3 * sums(2) * (LEVELS + 1) + waiting(2, 4) + features
    second = INPUT + features + working + 3 * sums(4) * (LEVELS + 1)
    assert budget.layers[0].nodes_at_once == 3
    assert budget.layers[1].nodes_at_once == 3
    assert budget.memory == max(first, second)


LINEAR_ON_NODES = Layer(2, 2, 2, expansion="identity")


def test_the_input_is_kept_in_memory_up_to_half_of_it_then_on_disk():
    edge = 2 * (INPUT + WORKING["linear"])
    for limit, disk, place in (
        (edge, 0, "memory"),
        (edge - 1, 0, "nowhere"),
        (edge - 1, INPUT - 1, "nowhere"),
        (edge - 1, INPUT, "disk"),
        (edge, INPUT, "memory"),
    ):
        budget = budget_of([LINEAR], limit, disk=disk)
        assert budget.input_place == place
        assert budget.disk == (INPUT if place == "disk" else 0)
        if place != "memory":
            rest = 3 * sums(2) * (LEVELS + 1) if place == "disk" else 4 * sums(2) * LEVELS
            assert budget.memory == WORKING["linear"] + rest
        assert budget.passes == (2 if place == "nowhere" else 1)


def test_features_go_to_memory_then_to_disk_then_nowhere():
    """The input is on disk and takes no memory, so that the limit of the features is met first."""
    features = N * 4 * 2 * 8
    edge = WORKING["linear"] + 3 * sums(2) * (LEVELS + 1) + features
    for limit, disk, place in (
        (edge, INPUT, "memory"),
        (edge - 1, INPUT, "nowhere"),
        (edge - 1, INPUT + features - 1, "nowhere"),
        (edge - 1, INPUT + features, "disk"),
    ):
        budget = budget_of([LINEAR, Layer(1, 1, 2, expansion="identity")], limit, disk=disk)
        assert budget.input_place == "disk"
        assert budget.layers[0].place == place
        assert budget.disk == INPUT + (features if place == "disk" else 0)


def test_where_features_are_not_kept_as_many_nodes_are_summed_at_once_as_fit():
    working = WORKING["linear"]
    for extra, at_once in (
        (0, 2),
        (-1, 1),
        (sums(2) * LEVELS - 1, 2),
        (sums(2) * LEVELS, 3),
        (9 * sums(2) * LEVELS, 4),
    ):
        budget = budget_of([LINEAR], working + 2 * sums(2) * LEVELS + extra)
        assert budget.input_place == "nowhere"
        assert budget.layers[0].nodes_at_once == at_once
        assert budget.memory == working + at_once * sums(2) * LEVELS
        assert budget.passes == 1 + -(-4 // at_once)


@pytest.mark.parametrize(
    ("layer", "first_pass"),
    [
        (Layer(2, 2, 2, expansion="identity"), 0),
        (Layer(2, 2, 2, expansion="identity | quadratic"), 1),
        (Layer(2, 2, 2, expansion="identity", pca=1), 1),
    ],
)
def test_means_and_principal_components_take_a_pass_of_their_own(layer, first_pass):
    (plan,) = plans_of([layer], 8)
    T = plan.frontend_size
    working = 3 * N * 8 * 8 + 3 * 4 * N * 8 * T
    kept = 8 * plan.fields.n_nodes * plan.n_raw**2 if first_pass else 0
    needed = working + 4 * sums(max(T, plan.n_raw if first_pass else 0)) * LEVELS + kept
    budget = budget_of([layer], needed)
    assert budget.input_place == "nowhere"
    assert budget.passes == 1 + 1 + first_pass


def test_features_above_what_is_not_kept_cost_passes_over_the_input():
    """Three layers of one node each; only memory for sums."""
    layers = [Layer(8, 8, 2, expansion="identity")] + 2 * [Layer(1, 1, 2, expansion="identity")]
    working = 3 * N * 8 * 8 + 3 * 4 * N * 8 * 8
    budget = budget_of(layers, working + sums(8) * LEVELS)
    assert [budget.input_place, *(layer.place for layer in budget.layers)] == ["nowhere"] * 4
    assert budget.passes == 1 + 3


@pytest.mark.parametrize("shared", [False, True])
def test_too_little_memory_is_an_error_that_names_enough(shared):
    layers = [Layer(2, 2, 2, expansion="identity", shared=shared)]
    least = WORKING["linear"] + sums(2) * LEVELS + (waiting(2, 4) if shared else 0)
    budget_of(layers, least)
    with pytest.raises(ValueError, match=rf"layer 1 \(4 nodes of 2 variables\); at least {-(-least // 2**20)} MiB"):
        budget_of(layers, least - 1)


def test_a_disk_is_not_used_where_nodes_read_from_it_would_need_more_memory():
    """From a shelf, a node is trained for every thread; streamed, one at a time will do."""
    least = WORKING["linear"] + sums(2) * LEVELS
    for limit in (least, WORKING["linear"] + 3 * sums(2) * (LEVELS + 1) - 1):
        assert budget_of([LINEAR], limit, disk=2**40).input_place == "nowhere"
    assert budget_of([LINEAR], limit + 1, disk=2**40).input_place == "disk"


def test_fewer_samples_than_a_tile_need_less(monkeypatch):
    whole = budget_of([LINEAR], 2**30).memory
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 100)
    assert whole - budget_of([LINEAR], 2**30).memory == WORKING["linear"] * 9 // 10


def test_a_budget_tells_what_it_counts():
    text = str(budget_of([LINEAR, WIDE], 2**30))
    assert "1 passes over the input" in text
    assert "features of 1 of 2 layers kept in memory" in text
    assert "disk" not in text
    limit = WORKING["linear"] + 3 * sums(2) * (LEVELS + 1)
    text = str(budget_of([LINEAR, Layer(1, 1, 2, expansion="identity")], limit, disk=2**40))
    assert "features of 0 of 2 layers kept in memory, of 1 on disk (0.0 GiB)" in text
    budget = driver.Budget("memory", (), 3 * 2**20, 5 * 2**30, 2, 7e12)
    assert "about 3 MiB, 2 passes" in str(budget)
    assert "7.000 T multiply-adds" in str(budget)
    assert "5.0 GiB" in str(budget)


def test_tiles_are_the_largest_power_of_two_that_memory_allows():
    (plan,) = plans_of([LINEAR], 8)
    for n_pixels, itemsize in itertools.product((1, 8, 1000, 2**14, 10**5, 2**19, 10**7), (4, 8)):
        widest = max(n_pixels, 8)
        powers = [2**k for k in range(40) if 2**k * widest * itemsize <= 2**28]
        assert tile_size([plan], n_pixels, itemsize) == min(2048, max([64, *powers]))


@pytest.mark.parametrize("tile", [1, 7, 64, 300])
def test_tiles_and_blocks_may_be_made_small(tile, monkeypatch):
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", tile)
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 2 * tile)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    cut, make_plan = [], driver.make_plan

    class Noted:
        def __init__(self, plan):
            self._plan = plan

        def __getattr__(self, name):
            return getattr(self._plan, name)

        def tiles(self, block, rows):
            for one in self._plan.tiles(block, rows):
                cut.append(one.n_core)
                yield one

    monkeypatch.setattr(driver, "make_plan", lambda graph, block: Noted(make_plan(graph, block)))
    layers = [Layer(2, 2, 2, n_slow=1), Layer(2, 2, 2, n_slow=1)]
    found = HiGSFA(layers, graph="serial").fit(X, X[:, 0])
    assert sum(cut) == 60
    assert max(cut) == min(tile, 60)
    budget = found.estimate_cost(60, dtype=np.float64)
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 60)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 60)
    expected = HiGSFA(layers, graph="serial").fit(X, X[:, 0])
    np.testing.assert_allclose(found.transform(X), expected.transform(X), atol=1e-9)
    if tile == 1:
        assert budget.memory != expected.estimate_cost(60, dtype=np.float64).memory


def test_an_estimate_is_the_plan_that_the_fit_has(monkeypatch):
    X = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    used, plan = [], driver.make_budget
    monkeypatch.setattr(driver, "make_budget", lambda *args, **kwargs: used.append(plan(*args, **kwargs)) or used[-1])
    network = HiGSFA([LINEAR, WIDE], graph="serial", spill=False, memory_limit="1 GiB", n_jobs=2).fit(X, X[:, 0])
    estimate = network.estimate_cost(300, dtype=np.float32)
    assert estimate.input_place == used[0].input_place
    assert [layer.place for layer in estimate.layers] == [layer.place for layer in used[0].layers]
    assert estimate.work == used[0].work


def test_what_shared_layers_have_read_is_gone_after_the_next_pass():
    """Features of a shared layer are computed while the next layer reads them; only then their input is not needed."""
    shared = Layer(2, 2, 2, expansion="identity", shared=True)
    budget = budget_of([shared, shared, Layer(2, 2, 1, expansion="identity")], 2**30)
    assert [layer.place for layer in budget.layers] == ["memory", "memory", "nowhere"]
    first, second = (layer.feature_bytes for layer in budget.layers[:2])
    working = 3 * N * 8 * 8 + 3 * 4 * N * 8 * 4
    sizes = [copies * sums(T) * (LEVELS + 1) for copies, T in ((3, 2), (2, 4), (3, 4))]
    sizes = [sizes[0] + waiting(2, 4), sizes[1] + waiting(4, 2), sizes[2]]
    passes = [INPUT + first + sizes[0], INPUT + first + second + sizes[1], first + second + sizes[2]]
    assert budget.memory == working + max(passes)
