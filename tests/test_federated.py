"""Parties that exchange sums train the network that all their samples together would give."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from higsfa import HGSFA, HiGSFA, LabelHead, Layer, load, save
from higsfa.graphs import ClusteredGraph, CodeGraph, LabelGraph, SerialGraph, UniformGraph
from higsfa.sources import as_source
from higsfa.training.federated import _mark

N, PARTS = 600, (slice(0, 90), slice(90, 250), slice(250, 600))
AGE = LabelGraph("age", label_range=(16, 77))
ONE_AGE = LabelGraph(label_range=(16, 77))


def samples(seed=0):
    """64 pixels that depend on an age and one of nine classes; class 8 is at the last party only."""
    rng = np.random.default_rng(seed)
    age, kind = rng.uniform(18, 75, N), rng.integers(0, 8, N)
    kind[560:] = 8
    hidden = np.column_stack([age / 20, np.cos(age / 9), np.eye(9)[kind] * 2, rng.normal(size=(N, 6))])
    X = hidden @ rng.normal(size=(17, 64)) + rng.normal(size=(N, 64)) + 3
    return X, age, kind


def network(graph, bottom, cls=HiGSFA):
    layers = [
        Layer((4, 4), n_components=5, n_slow=3, **bottom),
        Layer((2, 2), n_components=6, n_slow=4, expansion="identity | power0.8"),
    ]
    return cls(layers, graph=graph, input_shape=(8, 8))


def train(net, X, y, parts=PARTS, order=(0, 1, 2), via=lambda sums: sums, **options):
    """As parties do: each with a network of its own, and all with the same total."""
    options = {"min_group_size": 2, **options}
    nets, labels = [clone(net) for _ in parts], y if isinstance(y, dict) else {"": y}
    weights = options.pop("sample_weight", None)
    for k in net.federated_rounds():
        sums = []
        for one, part in zip(nets, parts, strict=True):
            own = {name: values[part] for name, values in labels.items()}
            given = {} if weights is None else {"sample_weight": weights[part]}
            own = own if isinstance(y, dict) else own[""]
            sums.append(via(one.layer_statistics(k, X[part], own, **given, **options)))
        total = sums[order[0]] + sums[order[1]] + sums[order[2]]
        for one in nets:
            one.solve_layer(k, via(total))
    return nets


def assert_same(fed, whole, X, tolerance=1e-10):
    a, b = fed.transform(X), whole.transform(X)
    assert np.abs(fed.delta_values_ - whole.delta_values_).max() < tolerance
    assert np.abs(a - b).max() < tolerance
    assert np.abs(fed.inverse_transform(a) - whole.inverse_transform(b)).max() < tolerance


BOTTOMS = {
    "linear": {"expansion": "identity"},
    "nonlinear": {"expansion": "identity | power0.8"},
    "pca": {"pca": 8, "expansion": "identity | quadratic[:4]"},
    "shared": {"shared": True, "expansion": "identity | power0.8"},
}


@pytest.mark.parametrize("graph", [ONE_AGE, ClusteredGraph(), ClusteredGraph(self_loops=True), CodeGraph()], ids=repr)
@pytest.mark.parametrize("bottom", BOTTOMS)
@pytest.mark.parametrize("cls", [HiGSFA, HGSFA])
def test_three_parties_train_the_network_of_all_samples(graph, bottom, cls):
    X, age, kind = samples()
    y = age if isinstance(graph, LabelGraph) else kind
    net = network(graph, BOTTOMS[bottom], cls)
    whole = clone(net).fit(X, y)
    for fed in train(net, X, y):
        assert_same(fed, whole, X)


def test_pca_above_the_first_layer():
    X, age, _ = samples()
    layers = [Layer((4, 4), n_components=6, n_slow=2), Layer((2, 2), n_components=4, pca=12)]
    net = HiGSFA(layers, graph=ONE_AGE, input_shape=(8, 8))
    assert net.federated_rounds() == [1, 1, 2, 2]
    assert_same(train(net, X, age)[0], clone(net).fit(X, age), X)


@pytest.mark.parametrize("missing", [False, True])
def test_two_labels_with_a_factor_and_missing_values(missing):
    X, age, _ = samples()
    size = X[:, 0] + np.random.default_rng(1).normal(size=N)
    if missing:
        age[::3], size[1::4] = np.nan, np.nan
    graph = AGE + 0.5 * LabelGraph("size", n_harmonics=3, label_range=(-40, 40)) + 0.1 * UniformGraph()
    net = network(graph, BOTTOMS["nonlinear"])
    y = {"age": age, "size": size}
    assert_same(train(net, X, y)[2], clone(net).fit(X, y), X)


@pytest.mark.parametrize("graph", [ONE_AGE, ClusteredGraph(self_loops=True), CodeGraph()], ids=repr)
@pytest.mark.parametrize("levels", [3, N])
def test_sample_weights(graph, levels):
    X, age, kind = samples()
    w = np.random.default_rng(2).choice(np.linspace(0, 3, levels), N)
    y = age if isinstance(graph, LabelGraph) else kind
    net = network(graph, BOTTOMS["pca"])
    assert_same(train(net, X, y, sample_weight=w)[1], clone(net).fit(X, y, sample_weight=w), X)


@pytest.mark.parametrize("graph", [ONE_AGE, ClusteredGraph(), CodeGraph()], ids=repr)
def test_any_order_of_adding_and_sums_as_files(graph, tmp_path):
    X, age, kind = samples()
    y = age if isinstance(graph, LabelGraph) else kind
    net, number = network(graph, BOTTOMS["pca"]), itertools.count()

    def via(sums):
        path = tmp_path / f"{next(number)}.higsfa"
        save(sums, path)
        loaded = load(path)
        assert repr(loaded) == repr(sums)
        return loaded

    whole = clone(net).fit(X, y)
    for order in itertools.permutations(range(3)):
        assert_same(train(net, X, y, order=order, via=via)[0], whole, X)


def test_parties_may_add_in_different_orders():
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["nonlinear"])
    a, b = clone(net), clone(net)
    for k in net.federated_rounds():
        s, t = a.layer_statistics(k, X[:200], age[:200]), b.layer_statistics(k, X[200:], age[200:])
        a.solve_layer(k, s + t)
        b.solve_layer(k, t + s)
    assert_same(a, clone(net).fit(X, age), X)


def test_the_network_is_as_after_fit(tmp_path):
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["linear"])
    fed = train(net, X, age)[0]
    save(fed, tmp_path / "net.higsfa")
    assert np.array_equal(load(tmp_path / "net.higsfa").transform(X), fed.transform(X))
    assert str(fed).splitlines()[0] == str(clone(net).fit(X, age)).splitlines()[0]
    assert LabelHead().fit(fed.transform(X), age).predict(fed.transform(X)).shape == (N,)
    assert fed.n_features_in_ == 64
    again = fed.layer_statistics(1, X, age)  # a new training begins
    assert again.layer == 1
    assert hasattr(fed, "_trained")


def test_sources_float32_and_images():
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["nonlinear"])
    images = X.reshape(N, 8, 8).astype(np.float32)
    fed = train(net, images, age)[0]
    assert np.abs(fed.delta_values_ - clone(net).fit(X, age).delta_values_).max() < 1e-4
    one = clone(net).layer_statistics(1, as_source(images), age)
    two = clone(net).layer_statistics(1, images, age)
    assert np.array_equal(one.nodes[0].sums.second, two.nodes[0].sums.second)


def test_limited_memory_gives_the_same_sums():
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["linear"])
    sums = clone(net).layer_statistics(1, X, age)
    net.solve_layer(1, sums)
    small = clone(net).set_params(memory_limit="2 MiB", spill=False).solve_layer(1, sums)
    for a, b in zip(net.layer_statistics(2, X, age).nodes, small.layer_statistics(2, X, age).nodes, strict=True):
        assert np.array_equal(a.sums.second, b.sums.second)


# --- what sums tell ---


def test_small_groups_are_refused():
    X, age, kind = samples()
    net = network(ClusteredGraph(), BOTTOMS["linear"])
    with pytest.raises(ValueError, match=r"min_group_size=10: there are 4 samples of class 8"):
        net.layer_statistics(1, X[:564], kind[:564])
    assert net.layer_statistics(1, X[:564], kind[:564], min_group_size=1).layer == 1
    unknown = np.where(np.arange(N) < 3, None, kind)
    with pytest.raises(ValueError, match="3 samples without a class"):
        net.layer_statistics(1, X, unknown)
    net = network(ONE_AGE, BOTTOMS["nonlinear"])
    with pytest.raises(ValueError, match="9 samples in all"):
        net.layer_statistics(1, X[:9], age[:9])
    with pytest.raises(ValueError, match="5 samples in all"):
        net.layer_statistics(1, X, age, sample_weight=np.arange(N) < 5)
    age[:2] = np.nan
    with pytest.raises(ValueError, match="2 samples without a label"):
        net.layer_statistics(1, X, age)
    with pytest.raises(ValueError, match="min_group_size must be"):
        net.layer_statistics(1, X, age, min_group_size=0)


def test_no_number_is_of_the_first_samples_alone():
    X, age, _ = samples()
    X[:, 5] += 1e4  # a shift is needed
    node = network(ONE_AGE, BOTTOMS["linear"]).layer_statistics(1, X, age).nodes[1]
    assert np.isclose(node.shift, X[:, 5].mean(), rtol=1e-12).any()


# --- refusals ---


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("auto", "depends on all labels at once"),
        ("serial", "LabelGraph\\(label_range"),
        (LabelGraph(), "give it label_range"),
        (SerialGraph("age") + UniformGraph(), "depends on all labels"),
        (ClusteredGraph("kind") + AGE, "depends on all labels"),
    ],
)
def test_graphs_whose_sums_do_not_add_are_refused(graph, reason):
    X, age, _ = samples()
    net = network(graph, BOTTOMS["linear"])
    with pytest.raises(ValueError, match=reason):
        net.layer_statistics(1, X, age)
    with pytest.raises(ValueError, match=reason):
        net.federated_rounds()


def test_layers_come_one_after_the_other():
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["nonlinear"])
    for k in (0, 2, 1.5, None):
        with pytest.raises(ValueError, match="layer 1 of 2 is the next one"):
            net.layer_statistics(k, X, age)
    inputs = net.layer_statistics(1, X, age)
    assert inputs.of_inputs
    with pytest.raises(ValueError, match="layer 1 of 2 is the next one"):
        net.solve_layer(2, inputs)
    net.solve_layer(1, inputs)
    with pytest.raises(ValueError, match="sums of the inputs of layer 1 are not those of layer 1"):
        net.solve_layer(1, inputs)
    sums = net.layer_statistics(1, X, age)
    with pytest.raises(ValueError, match="not those of"):
        inputs + sums
    with pytest.raises(ValueError, match="not those of the inputs of layer 1"):
        clone(net).solve_layer(1, sums)
    with pytest.raises(TypeError, match="layer_statistics"):
        net.solve_layer(1, sums.nodes[0])
    with pytest.raises(TypeError):
        sums + 1
    net.solve_layer(1, sums)
    with pytest.raises(ValueError, match="layer 2 of 2 is the next one"):
        net.layer_statistics(1, X, age)
    with pytest.raises(ValueError, match="layers were changed"):
        net.set_params(layer2__n_components=3).layer_statistics(2, X, age)


def test_sums_of_other_networks_layers_and_graphs_are_refused():
    X, age, kind = samples()
    net = network(ONE_AGE, BOTTOMS["linear"])
    half = clone(net).layer_statistics(1, X[:300], age[:300])
    other = clone(net).set_params(layer2__n_components=3).layer_statistics(1, X, age)
    with pytest.raises(ValueError, match="layer 2 differs"):
        half + other
    with pytest.raises(ValueError, match="layer 2 differs"):
        clone(net).solve_layer(1, other)
    with pytest.raises(ValueError, match="the sums of a party are in both"):
        half + half
    for graph, y in ((LabelGraph(n_harmonics=3, label_range=(16, 77)), age), (CodeGraph(), kind)):
        wrong = clone(net).set_params(graph=graph).layer_statistics(1, X, y)
        with pytest.raises(ValueError, match="different"):
            half + wrong
        with pytest.raises(ValueError, match="does not fit graph="):
            clone(net).solve_layer(1, wrong)
    a, b = clone(net).solve_layer(1, half), clone(net).solve_layer(1, clone(net).layer_statistics(1, X, age))
    with pytest.raises(ValueError, match="other layers below"):
        a.layer_statistics(2, X[:300], age[:300]) + b.layer_statistics(2, X[300:], age[300:])


def test_layers_that_machines_solve_differently_are_refused():
    X, age, _ = samples()
    net = network(ONE_AGE, BOTTOMS["pca"])
    a, b = clone(net), clone(net)
    for _ in range(2):
        sums = net.layer_statistics(1, X, age)
        for one in (net, a, b):
            one.solve_layer(1, sums)
    node = b._progress.trained[0].nodes[2]
    node.decoder[:, 0] *= -1  # as if the sign were another one on this machine
    b._progress = replace(
        net._progress, marks=(b._progress.marks[0], _mark([n.decoder for n in b._progress.trained[0].nodes]))
    )
    assert np.abs(np.subtract(a._progress.marks, b._progress.marks)).max() > 1e-4
    with pytest.raises(ValueError, match="solved from the same sums, but with another result"):
        a.layer_statistics(2, X[:300], age[:300]) + b.layer_statistics(2, X[300:], age[300:])


def test_wrong_samples_and_labels_leave_the_network_as_it_was():
    X, age, kind = samples()
    net = network(ONE_AGE, BOTTOMS["linear"])
    before = dict(net.__dict__)
    bad = X.copy()
    bad[7, 7] = np.nan
    for args in ((X[:, :60], age), (X[:0], age[:0]), (X, None), (X, age[:5]), (X, age + 100), (bad, age)):
        with pytest.raises((ValueError, TypeError)):
            net.layer_statistics(1, *args)
    assert net.__dict__ == before
    with pytest.raises(ValueError, match="input_shape"):
        clone(net).set_params(input_shape=None).layer_statistics(1, X, age)
    classes = clone(net).set_params(graph="clustered")
    numbers = classes.layer_statistics(1, X[:300], kind[:300])
    with pytest.raises(ValueError, match=r"kind|both|numbers"):
        numbers + classes.layer_statistics(1, X[300:], kind[300:].astype(str))
    one = classes.layer_statistics(1, X[560:], kind[560:])
    with pytest.raises(ValueError, match="at least two classes"):
        clone(classes).solve_layer(1, one)
