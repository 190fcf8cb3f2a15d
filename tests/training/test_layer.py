"""Small networks with small tiles and blocks, wherever features wait: single estimators applied field by field."""

import dataclasses
import pickle
import threading

import numpy as np
import pytest
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_info

from higsfa import HGSFA, HSFA, IGSFA, SFA, HiGSFA, Layer
from higsfa.core.expansion.expansion import as_expansion
from higsfa.core.native.tile import Rows
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums import accumulate
from higsfa.estimators import network as _network
from higsfa.graphs import ClusteredGraph, SequenceGraph, SerialGraph
from higsfa.training import budget, statistics
from higsfa.training import network as driver
from higsfa.training.stores import READ_ROWS, Schedule

N = 230
RECIPE = SerialGraph("age", n_groups=5) + ClusteredGraph("kind")
CLOSED = "identity | power0.8 | quadratic"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 50)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 20)


def data(n_features=7, n=N):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, n_features)) + 3 * rng.standard_normal(n_features)
    X = X @ rng.standard_normal((n_features, n_features))
    return X, {"age": X[:, 0] + rng.standard_normal(n), "kind": rng.integers(0, 2, n)}


def put(monkeypatch, *places, nodes_at_once=2):
    """Let the input and the features of the layers wait in these places."""
    make_budget = driver.make_budget

    def forced(*args, **kwargs):
        budget = make_budget(*args, **kwargs)
        layers = tuple(
            dataclasses.replace(layer, place=place, nodes_at_once=nodes_at_once)
            for layer, place in zip(budget.layers, [*places[1:], "nowhere"], strict=True)
        )
        return dataclasses.replace(budget, input_place=places[0], layers=layers)

    monkeypatch.setattr(driver, "make_budget", forced)


def field_by_field(layers, X, labels):
    """Features of single estimators on a row of fields, and their linear reconstruction."""
    H, width, ways_back = X, 1, []
    for layer in layers:
        starts = range(0, H.shape[1] // width - layer.field + 1, layer.stride)
        below, parts, nodes = H, [], []
        for start in starts:
            columns = slice(start * width, (start + layer.field) * width)
            F = below[:, columns]
            pca = PCA(layer.pca).fit(F) if layer.pca else None
            node = IGSFA(layer.n_components, graph=RECIPE, expansion=layer.expansion, n_slow=layer.n_slow)
            node.fit(F if pca is None else pca.transform(F), labels)
            parts.append(node.transform(F if pca is None else pca.transform(F)))
            nodes.append((columns, pca, node))
        ways_back.append((below.shape, nodes, layer.n_components))
        H, width = np.concatenate(parts, axis=1), layer.n_components
    rebuilt = H
    for shape, nodes, n_components in reversed(ways_back):
        total, count = np.zeros(shape), np.zeros(shape[1])
        for p, (columns, pca, node) in enumerate(nodes):
            part = node.inverse_transform(rebuilt[:, p * n_components : (p + 1) * n_components])
            total[:, columns] += part if pca is None else pca.inverse_transform(part)
            count[columns] += 1
        rebuilt = total / np.maximum(count, 1)
    return H, rebuilt


LAYERS = {
    "overlapping": [Layer(3, 2, 3, n_slow=1, expansion=CLOSED), Layer(2, 1, 4, n_slow=2), Layer(2, 2, 4, n_slow=2)],
    "one node a layer": [
        Layer(7, 7, 4, n_slow=1),
        Layer(1, 1, 4, n_slow=1, expansion=CLOSED),
        Layer(1, 1, 3, n_slow=1),
    ],
    "gaps": [Layer(2, 5, 2, n_slow=1), Layer(1, 1, 2, n_slow=1), Layer(2, 2, 3, n_slow=1)],
    "pca": [Layer(3, 2, 2, pca=2, n_slow=1), Layer(1, 1, 2, n_slow=1), Layer(3, 3, 4, pca=3, n_slow=2)],
}
PLACES = [
    ("memory", "memory", "memory"),
    ("disk", "disk", "disk"),
    ("nowhere", "nowhere", "nowhere"),
    ("memory", "nowhere", "disk"),
    ("nowhere", "memory", "nowhere"),
]


@pytest.mark.parametrize("name", LAYERS)
def test_a_network_is_single_estimators_there_and_back(name, monkeypatch, tmp_path):
    X, labels = data()
    H, rebuilt = field_by_field(LAYERS[name], X, labels)
    first = None
    for k, places in enumerate(PLACES):
        with monkeypatch.context() as patched:
            put(patched, *places)
            fitted = HiGSFA(LAYERS[name], graph=RECIPE, n_jobs=1 + k % 2, spill=tmp_path).fit(X, labels)
        Y = fitted.transform(X)
        if first is None:
            first = Y
            signs = np.sign(np.sum(Y * H, axis=0))  # of principal components
            assert name == "pca" or np.all(signs == 1)
            np.testing.assert_allclose(Y, H * signs, atol=1e-8)
            np.testing.assert_allclose(fitted.inverse_transform(Y), rebuilt, atol=1e-8)
        assert np.array_equal(Y, first), places


@pytest.mark.parametrize("places", PLACES)
def test_shared_weights_do_not_depend_on_where_features_wait(places, monkeypatch, tmp_path):
    X, labels = data()
    layers = [
        Layer(3, 2, 3, shared=True, n_slow=1, expansion=CLOSED),
        Layer(2, 1, 3, shared=True, n_slow=1, pca=3),
        Layer(2, 2, 3, n_slow=1, expansion=CLOSED),
    ]
    expected = HiGSFA(layers, graph=RECIPE).fit(X, labels).transform(X)
    put(monkeypatch, *places)
    found = HiGSFA(layers, graph=RECIPE, n_jobs=2, spill=tmp_path).fit(X, labels)
    assert np.array_equal(found.transform(X), expected)
    assert len(found.layers_[0].nodes) == 1
    assert found.layers_[0].trained.output_means is None


@pytest.mark.parametrize("recipe", [RECIPE, SequenceGraph(lag=2), SerialGraph("age", n_groups=5) + SequenceGraph()])
@pytest.mark.parametrize(("pca", "offset"), [(None, 0.0), (2, 0.0), (None, 500.0)])
def test_a_shared_node_is_trained_on_all_fields(recipe, pca, offset):
    """Fields side by side are samples one below the other, without edges between them; each may have its own mean."""
    X, labels = data(6)
    X[:, 2:4] += offset
    linear = offset != 0.0
    expansion = "identity" if linear else "identity | quadratic"
    layer = Layer(2, 2, 2, shared=True, n_slow=1, expansion=expansion, pca=pca)
    found = HiGSFA([layer], graph=recipe).fit(X, labels)
    fields = X.reshape(N, 3, 2)
    z = fields.reshape(-1, 2) - fields.reshape(-1, 2).mean(axis=0)
    if pca:
        z = PCA(2).fit_transform(z)
    Z = np.column_stack([z] if linear else [z, z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2]).reshape(N, 3, -1)
    graph = recipe.build(labels)
    gamma, v = graph.to_sparse().toarray(), graph.vertex_weights
    mean = np.einsum("n,nfi->i", v, Z) / (3 * v.sum())
    C = np.einsum("n,nfi,nfj->ij", v, Z - mean, Z - mean) / (3 * v.sum())
    degree = gamma.sum(axis=1)
    C_dot = np.zeros_like(C)
    for f in range(3):
        F = Z[:, f]
        C_dot += 2 * (F.T @ (degree[:, None] * F) - F.T @ gamma @ F)
    C_dot /= 3 * gamma.sum()
    deltas = np.sort(np.linalg.eigvals(np.linalg.solve(C, C_dot)).real)
    node = found.layers_[0].nodes[0]
    np.testing.assert_allclose(node.delta_values, deltas[: len(node.delta_values)], atol=1e-8)
    Y = found.transform(X).reshape(-1, 2)
    np.testing.assert_allclose(np.repeat(v, 3) @ Y[:, 0] / v.sum(), 0, atol=1e-7 * max(offset, 1))


@pytest.mark.parametrize("n_fields", [None, 3])
def test_a_shared_node_is_one_sfa_of_all_fields_as_recordings(n_fields, monkeypatch):
    """Fields stacked as samples, one recording each; with `n_fields` only those that training takes."""
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 64)
    X, _ = data(15)
    layers = [
        Layer(3, 2, 3, shared=True, n_fields=n_fields, expansion="identity"),
        Layer(1, 1, 2, shared=True, n_fields=n_fields, expansion="identity | quadratic"),
    ]
    found = HSFA(layers).fit(X)
    H = np.stack([X[:, a : a + 3] for a in range(0, 13, 2)])  # (fields, samples, inputs)
    seen = range(len(H))
    if n_fields is not None:
        seen = [list(index) for index in found.layers_[0].trained.plan.trained.fields.index]
        seen = [index[0] // 2 for index in seen]
        assert len(set(seen)) == n_fields
    for width, expansion, fitted in zip((3, 2), ("identity", "identity | quadratic"), found.layers_, strict=True):
        stacked = np.concatenate([H[f] for f in seen])
        sfa = SFA(width, expansion=expansion).fit(stacked, groups=np.repeat(np.arange(len(seen)), N))
        np.testing.assert_allclose(fitted.nodes[0].delta_values[:width], sfa.delta_values_, atol=1e-9)
        H = np.stack([sfa.transform(field) for field in H])
    np.testing.assert_allclose(found.transform(X), np.concatenate(list(H), axis=1), atol=1e-8)
    again = HSFA(layers, n_jobs=3).fit(X)
    assert np.array_equal(again.transform(X), found.transform(X))


def test_some_fields_are_for_shared_weights_only():
    with pytest.raises(ValueError, match=r"layer 1: n_fields=3 is for shared weights"):
        HSFA([Layer(3, 2, 3, n_fields=3)]).fit(data(15)[0])


@pytest.mark.parametrize("name", ["identity", "identity | quadratic"])
def test_the_shift_of_a_node_comes_from_the_first_samples_it_sees(name):
    rng = np.random.default_rng(0)
    X = 1000 + rng.standard_normal((3, 2 * accumulate.PILOT))
    X[:, accumulate.PILOT :] += 7
    frontend = Frontend(as_expansion(name), 1, 3, np.zeros(3))
    shift = accumulate.pilot_shift(frontend, [Rows(X)], np.dtype(float))
    T = as_expansion(name)(X[:, : accumulate.PILOT])
    np.testing.assert_allclose(shift, T.mean(axis=1), rtol=1e-12)
    half = accumulate.PILOT // 2
    shift = accumulate.pilot_shift(frontend, [Rows(X), Rows(X[:, accumulate.PILOT :])], np.dtype(float))
    T = as_expansion(name)(np.hstack([X[:, :half], X[:, accumulate.PILOT :][:, :half]]))
    np.testing.assert_allclose(shift, np.where(T.mean(axis=1) > 4 * T.std(axis=1), T.mean(axis=1), 0), rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_layer_at_once_equals_its_nodes_one_by_one(shared, n_jobs, monkeypatch):
    X, labels = data()
    X[:, :3] = 1.0  # one node without variance: fewer outputs than asked for
    layers = [Layer(3, 2, 4, n_slow=1, expansion=CLOSED, shared=shared), Layer(3, 3, 5, n_slow=2)]
    net = HiGSFA(layers, graph=RECIPE, n_jobs=n_jobs).fit(X, labels)
    found = [net.transform(X[:n]) for n in (1, 30, N)]
    assert np.array_equal(pickle.loads(pickle.dumps(net)).transform(X), found[-1])
    monkeypatch.setattr(type(net._trained[0]), "_encoders", lambda self, dtype: None)
    for Y, n in zip(found, (1, 30, N), strict=True):
        assert np.array_equal(Y, net.transform(X[:n]))


def test_means_of_outputs_are_those_of_the_features():
    X, labels = data()
    X[:, :3] = 1.0  # one node without variance: fewer outputs than asked for
    fitted = HiGSFA([Layer(3, 2, 3, n_slow=1), Layer(3, 3, 2)], graph=RECIPE).fit(X, labels)
    trained = fitted.layers_[0].trained
    bottom = HiGSFA([Layer(3, 2, 3, n_slow=1)], graph=RECIPE).fit(X, labels)
    features = bottom.transform(X).reshape(N, 3, 3)
    assert trained.node(0).n_components == 0
    np.testing.assert_allclose(trained.output_means, features.mean(axis=0), atol=1e-10)
    assert np.all(features[:, 0] == 0)


@pytest.mark.parametrize("places", [PLACES[0], PLACES[2]])
@pytest.mark.parametrize("expansion", ["identity", CLOSED])
def test_samples_without_weight_are_left_out(places, expansion, monkeypatch):
    """Also where whole blocks have none."""
    X, labels = data()
    weight = np.ones(N)
    weight[40:160] = 0
    weight[::7] = 2
    kept = weight > 0
    layers = [Layer(3, 2, 3, n_slow=1, expansion=expansion), Layer(2, 1, 3, n_slow=1), Layer(2, 2, 3, n_slow=1)]
    repeated = np.repeat(np.arange(N), weight.astype(int))
    expected = HiGSFA(layers, graph=RECIPE).fit(X[repeated], {name: label[repeated] for name, label in labels.items()})
    put(monkeypatch, *places)
    found = HiGSFA(layers, graph=RECIPE).fit(X, labels, sample_weight=weight)
    np.testing.assert_allclose(found.transform(X[kept]), expected.transform(X[kept]), atol=1e-8)


@pytest.mark.parametrize("clip_range", [True, False])
def test_nodes_clip_to_the_range_they_have_seen_unless_told_not_to(clip_range):
    X, labels = data()
    layers = [Layer(7, 7, 3, expansion=CLOSED), Layer(1, 1, 3, expansion="identity")]
    fitted = HiGSFA(layers, graph=RECIPE, clip_range=clip_range).fit(X, labels)
    first, second = (layer.nodes[0].frontend for layer in fitted.layers_)
    assert second.low is None
    if clip_range:
        centred = X - X.mean(axis=0)
        np.testing.assert_allclose(first.low, centred.min(axis=0), atol=1e-12)
        np.testing.assert_allclose(first.high, centred.max(axis=0), atol=1e-12)
        assert np.all(first.low < centred.min(axis=0))
        assert np.all(first.high > centred.max(axis=0))
    else:
        assert first.low is None


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("shared", [False, True])
def test_progress_counts_every_tile_of_every_node_once(places, shared, monkeypatch, tmp_path):
    X, labels = data()
    done, totals = {}, {}

    class Progress:
        def __enter__(self):
            return self.on_layer

        def __exit__(self, *_):
            pass

        def on_layer(self, k, total):
            totals[k], done[k] = total, 0

            def step(n):
                done[k] += n

            return step

    monkeypatch.setattr(_network, "progress", lambda verbose, plans: Progress())
    layers = [Layer(3, 2, 3, pca=2, shared=shared), Layer(2, 1, 3), Layer(2, 2, 3)]
    put(monkeypatch, *places)
    for _ in range(2):  # trained, then known
        done.clear()
        HiGSFA(layers, graph=RECIPE, spill=tmp_path).fit(X, labels, checkpoint=tmp_path / "c")
        n_tiles = totals[2]
        assert n_tiles >= N / 20
        assert totals == {0: 3 * n_tiles, 1: 2 * n_tiles, 2: n_tiles}
        assert done == totals


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("bottom", [{"expansion": "identity"}, {"pca": 2}, {"shared": True}], ids=str)
def test_numbers_that_are_not_finite_are_found(places, bottom, monkeypatch, tmp_path):
    X, labels = data()
    X[77, 4] = np.nan
    put(monkeypatch, *places)
    layers = [Layer(3, 2, 3, **bottom), Layer(2, 1, 3), Layer(2, 2, 3)]
    with pytest.raises(ValueError, match="NaN"):
        HiGSFA(layers, graph=RECIPE, spill=tmp_path, n_jobs=2).fit(X, labels)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("place", ["memory", "nowhere"])
def test_a_fit_stops_at_the_first_node_that_fails(place, n_jobs, monkeypatch):
    X, labels = data(60)
    solved = []

    def failing(*args):
        solved.append(1)
        if len(solved) == 3:
            raise ArithmeticError("node 3")
        return solve(*args)

    solve = statistics.solve_node
    put(monkeypatch, place, nodes_at_once=60)
    monkeypatch.setattr(statistics, "solve_node", failing)
    with pytest.raises(ArithmeticError, match="node 3"):
        HGSFA([Layer(1, 1, 1)], graph=RECIPE, n_jobs=n_jobs).fit(X, labels)
    assert len(solved) <= 3 + n_jobs


@pytest.mark.parametrize("n", [60, 2500])
def test_input_is_read_once_and_in_the_order_in_which_it_lies(n, monkeypatch):
    """In as many calls as READ_ROWS needs, sorted within each block; tile by tile if blocks are too large for that."""
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 2000)
    X, labels = data(3, n)
    train, reads = _network.train_network, []

    def noting(plans, read, *args, **kwargs):
        return train(plans, lambda rows: reads.append(rows.copy()) or read(rows), *args, **kwargs)

    monkeypatch.setattr(_network, "train_network", noting)
    layers = [Layer(3, 3, 2, n_slow=1), Layer(1, 1, 2)]
    block_bytes = 2000 * 3 * 8
    whole = HiGSFA(layers, graph=RECIPE, memory_limit=4 * block_bytes * 10, spill=False).fit(X, labels).transform(X)
    assert sorted(np.concatenate(reads)) == list(range(n))
    assert all(np.all(np.diff(rows) > 0) for rows in reads)
    expected = [min(2000, n)] if n <= 2000 else [2000, n - 2000]
    assert [len(rows) for rows in reads] == [
        min(READ_ROWS, size - lo) for size in expected for lo in range(0, size, READ_ROWS)
    ]
    budget = driver.make_budget
    monkeypatch.setattr(driver, "make_budget", lambda work, limit, disk: budget(work, 2**30, disk))
    for memory, by_blocks in ((4 * block_bytes, True), (4 * block_bytes - 1, False)):
        reads.clear()
        found = HiGSFA(layers, graph=RECIPE, memory_limit=memory, spill=False).fit(X, labels).transform(X)
        assert np.array_equal(found, whole)
        assert sorted(np.concatenate(reads)) == list(range(n))
        assert all(np.all(np.diff(rows) > 0) for rows in reads) == by_blocks
        assert (max(map(len, reads)) <= 20) == (not by_blocks)


def test_a_schedule_numbers_tiles_over_all_blocks():
    labels = data()[1]
    schedule = Schedule(driver.make_plan(RECIPE.build(labels), 50), 20)
    assert len(schedule.blocks) == 5
    assert schedule.samples == [len(tile.rows) for tiles in schedule.blocks for tile in tiles]
    assert sorted(np.concatenate([tile.rows for tile in schedule.tiles])) == list(range(N))
    assert max(schedule.samples) <= 20


def test_calls_of_transform_that_overlap_leave_blas_as_it_was():
    """The second begins before the first ends, and ends after it."""
    X, labels = data()
    within, go_on = threading.Semaphore(0), {name: threading.Event() for name in ("first", "second")}

    def waiting(X):
        if threading.current_thread().name in go_on:
            within.release()
            go_on[threading.current_thread().name].wait(60)
        return np.tanh(X)

    fitted = HiGSFA([Layer(7, n_components=3, n_slow=1, expansion=waiting)], graph=RECIPE).fit(X, labels)
    expected, found = fitted.transform(X), []
    before = threadpool_info()
    users = [threading.Thread(target=lambda: found.append(fitted.transform(X)), name=name) for name in go_on]
    for user in users:
        user.start()
        within.acquire(timeout=60)
    for user, name in zip(users, go_on, strict=True):
        go_on[name].set()
        user.join()
    assert [library["num_threads"] for library in threadpool_info()] == [b["num_threads"] for b in before]
    assert len(found) == 2
    assert all(np.array_equal(Y, expected) for Y in found)


# ---- features in 16 bits


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_features_in_16_bits_have_the_same_bits_wherever_they_wait(name, compiled, monkeypatch, tmp_path):
    X, labels = data()
    X = X.astype(np.float32)
    if not compiled:
        monkeypatch.setattr("higsfa.core.native.library.routines", {})
    usual = HiGSFA(LAYERS[name], graph=RECIPE).fit(X, labels).transform(X)
    monkeypatch.setattr("higsfa.training.budget.SHORT_FROM", 0)
    first = None
    for k, places in enumerate(PLACES):
        with monkeypatch.context() as patched:
            put(patched, *places)
            fitted = HiGSFA(LAYERS[name], graph=RECIPE, n_jobs=1 + k % 2, spill=tmp_path).fit(X, labels)
        Y = fitted.transform(X)
        first = Y if first is None else first
        assert np.array_equal(Y, first), places
    assert not np.array_equal(first, usual)  # they were rounded
    # A slow feature of few samples may turn a little; what all of them tell of the data may not.
    back = np.linalg.lstsq(np.column_stack([first, np.ones(len(X))]), usual, rcond=None)[0]
    fit = np.column_stack([first, np.ones(len(X))]) @ back
    assert np.abs(fit - usual).max() < 5e-3 * np.abs(usual).max()


def test_double_precision_and_few_features_are_not_rounded(monkeypatch):
    plans = HiGSFA(LAYERS["overlapping"], graph=RECIPE)._planned((7,))
    widest = max(plan.fields.n_nodes * plan.n_components for plan in plans[:-1])
    n = budget.SHORT_FROM // (4 * widest)
    assert not budget.are_short(plans, n, 4)
    assert budget.are_short(plans, n + 1, 4)
    assert not budget.are_short(plans, 100 * n, 8)
    assert not budget.are_short(plans[-1:], 100 * n, 4)  # nothing waits for the last layer's features
    monkeypatch.setattr(budget, "SHORT_FROM", 0)
    X, labels = data()
    exact = HiGSFA(LAYERS["overlapping"], graph=RECIPE).fit(X, labels).transform(X)
    H, _ = field_by_field(LAYERS["overlapping"], X, labels)
    np.testing.assert_allclose(exact, H, atol=1e-8)


def test_the_estimate_of_a_large_fit_counts_features_in_16_bits():
    network = HiGSFA(LAYERS["overlapping"], graph=RECIPE, input_shape=(7,))
    plans = network._planned((7,))
    n = 2**29
    found = [layer.feature_bytes for layer in network.estimate_cost(n, dtype=np.float32).layers]
    assert found == [2 * n * plan.fields.n_nodes * plan.n_components for plan in plans]
