"""Graphs of low rank: label functions and codes are their free responses, and sums are those of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, HiGSFA, Layer
from higsfa.graphs import ClusteredGraph, CodeGraph, LabelGraph, SequenceGraph, SerialGraph, UniformGraph, WindowGraph
from oracles import dense_code, dense_gsfa, dense_label, dense_ranks, dense_uniform, gram_schmidt, label_functions

N = 160


def data(missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 6)) @ rng.standard_normal((6, 6)) + 3
    age = np.clip(40 + 8 * X[:, 0] + 5 * rng.standard_normal(N), 1, 99)
    kind = rng.integers(0, 5, N).astype(float)
    for label, share in ((age, missing), (kind, missing / 2)):
        label[rng.random(N) < share] = np.nan
    return X, {"age": age, "kind": kind}


RECIPES = {
    "label": (LabelGraph("age"), lambda y, w: dense_label(y["age"], w)),
    "label, range": (
        LabelGraph("age", n_harmonics=3, label_range=(0, 100)),
        lambda y, w: dense_label(y["age"], w, 3, (0, 100)),
    ),
    "ranks": (
        LabelGraph("age", n_harmonics=3, ranks=True),
        lambda y, w: dense_label(dense_ranks(y["age"], w), w, 3, (0, 1)),
    ),
    "ranks of few values + uniform": (
        LabelGraph("kind", n_harmonics=2, ranks=True) + 0.3 * UniformGraph(),
        lambda y, w: [
            a + 0.3 * b
            for a, b in zip(dense_label(dense_ranks(y["kind"], w), w, 2, (0, 1)), dense_uniform(w), strict=True)
        ],
    ),
    "code": (CodeGraph("kind"), lambda y, w: dense_code(y["kind"], w)),
    "uniform": (UniformGraph(), lambda y, w: dense_uniform(w)),
    "label + code": (
        LabelGraph("age") + 0.5 * CodeGraph("kind"),
        lambda y, w: [a + 0.5 * b for a, b in zip(dense_label(y["age"], w), dense_code(y["kind"], w), strict=True)],
    ),
    "serial + uniform": (
        SerialGraph("age", 8) + 0.1 * UniformGraph(),
        lambda y, w: [
            a + 0.1 * b
            for a, b in zip(
                (lambda g: (g.vertex_weights, g.to_sparse().toarray()))(
                    SerialGraph("age", 8).build(y, sample_weight=w)
                ),
                dense_uniform(w),
                strict=True,
            )
        ],
    ),
}


@pytest.mark.parametrize("weights", ["none", "levels", "varying"])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic[:3]"])
def test_features_are_those_of_all_pairs(name, missing, weights, expansion):
    X, y = data(missing)
    rng = np.random.default_rng(1)
    w = {"none": np.ones(N), "levels": rng.integers(0, 3, N).astype(float), "varying": rng.uniform(0.1, 2, N)}[weights]
    recipe, dense = RECIPES[name]
    v, gamma = dense(y, w)
    graph = recipe.build(y, sample_weight=w)
    np.testing.assert_allclose(graph.vertex_weights, v, rtol=1e-12)
    np.testing.assert_allclose(graph.to_sparse().toarray(), gamma, atol=1e-9 * np.abs(gamma).max())
    np.testing.assert_allclose(graph.degrees, gamma.sum(axis=1), atol=1e-9 * v.max())
    assert graph.total_edge_weight == pytest.approx(gamma.sum(), rel=1e-9)
    assert graph.is_consistent() or "serial" in name
    node = GSFA(graph=recipe, expansion=expansion).fit(X, y, sample_weight=w)
    Z = X - w @ X / w.sum()
    if "quadratic" in expansion:
        i, j = np.triu_indices(3)
        Z = np.column_stack([Z, Z[:, i] * Z[:, j]])
    deltas = dense_gsfa(Z, v, gamma).deltas
    np.testing.assert_allclose(node.delta_values_, deltas, atol=1e-9)
    np.testing.assert_allclose(graph.delta(node.transform(X)), node.delta_values_, atol=1e-9)
    x = rng.standard_normal((N, 2))
    np.testing.assert_allclose(graph.to_operator() @ x, gamma @ x, atol=1e-9 * np.abs(gamma).sum(axis=1).max())


@pytest.mark.parametrize("n_harmonics", [0, 1, 4, 9])
@pytest.mark.parametrize("n", [N, 3600])
def test_free_responses_of_a_label_graph_are_the_label_and_its_cosines(n_harmonics, n):
    rng = np.random.default_rng(0)
    age, w = rng.uniform(16, 77, n), rng.uniform(0.5, 2, n)
    deltas = np.sort(rng.uniform(0, 1.9, n_harmonics + 1))
    graph = LabelGraph(n_harmonics=n_harmonics, label_range=(10, 80), deltas=deltas).build(age, sample_weight=w)
    found = graph.free_responses(n_harmonics + 1)
    np.testing.assert_allclose(found.delta_values, deltas, atol=1e-8)
    expected = gram_schmidt(label_functions(age, n_harmonics, 10, 80), w)[1:]
    for response, function in zip(found.on_samples().T, expected, strict=True):
        sign = np.sign(response @ function)
        np.testing.assert_allclose(sign * response, function, atol=1e-6)


def test_free_responses_of_eight_equal_classes_are_their_codes():
    kind = np.repeat(np.arange(8), 12)
    found = CodeGraph().build(kind).free_responses()
    np.testing.assert_allclose(found.delta_values, [0, 0, 0, 0.4, 0.8, 1.2, 1.6], atol=1e-8)
    digits = [1 - 2.0 * ((kind >> i) & 1) for i in (2, 1, 0)]
    Y = found.on_samples()
    # Three responses of Delta 0 span the digits; then come the products, each by itself.
    projected = Y[:, :3] @ (Y[:, :3].T @ np.array(digits).T) / len(kind)
    np.testing.assert_allclose(projected, np.array(digits).T, atol=1e-8)
    a, b, c = digits
    for response, product in zip(Y[:, 3:].T, (a * b * c, a * b, a * c, b * c), strict=True):
        np.testing.assert_allclose(response * np.sign(response @ product), product, atol=1e-8)


def test_every_feature_of_a_uniform_graph_has_delta_two():
    np.testing.assert_allclose(GSFA(graph=UniformGraph()).fit(data()[0]).delta_values_, 2, atol=1e-9)


def test_functions_that_depend_on_others_are_left_out():
    graph = LabelGraph(n_harmonics=4).build(np.repeat([0.0, 1.0], 10))
    found = graph.free_responses(3).delta_values
    np.testing.assert_allclose(found, [1 / 3, 2, 2], atol=1e-8)


@pytest.mark.parametrize("other", [WindowGraph(False, half_width=2), SequenceGraph(2), ClusteredGraph("kind")])
def test_label_graphs_add_to_edges_of_other_kinds(other):
    X, y = data()
    recipe = LabelGraph("age") + 0.3 * other
    graph = recipe.build(y)
    node = IGSFA(n_components=4, graph=recipe, n_slow=3).fit(X, y)
    deltas = dense_gsfa(X, graph.vertex_weights, graph.to_sparse().toarray()).deltas
    np.testing.assert_allclose(node.delta_values_, deltas, atol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_a_network_of_one_field_is_a_single_node(shared):
    X, y = data()
    recipe = LabelGraph("age") + CodeGraph("kind")
    net = HiGSFA([Layer(6, n_components=4, expansion="identity", shared=shared)], graph=recipe).fit(X, y)
    node = IGSFA(n_components=4, graph=recipe).fit(X, y)
    np.testing.assert_allclose(net.transform(X), node.transform(X), atol=1e-9)


@pytest.mark.parametrize(
    ("recipe", "labels", "message"),
    [
        (LabelGraph(label_range=(0, 50)), [1.0, 60.0], "lie outside label_range"),
        (LabelGraph(label_range=(0, 50), ranks=True), [1.0, 2.0], "exclude each other"),
        (LabelGraph(label_range=(5, 1)), [1.0, 2.0], "the lower one first"),
        (LabelGraph(label_range=3), [1.0, 2.0], "two numbers"),
        (LabelGraph(deltas=[1.0]), [1.0, 2.0], "deltas must be 10 numbers"),
        (LabelGraph(n_harmonics=0, deltas=[3.0]), [1.0, 2.0], "from 0 to 2"),
        (LabelGraph(), [np.nan, np.nan], "all values"),
        (LabelGraph(), [2.0, 2.0], "one distinct value"),
        (LabelGraph(), ["a", "b"], "numeric label"),
        (LabelGraph(n_harmonics=-1), [1.0, 2.0], "at least 0"),
        (CodeGraph(), ["a", "a"], "at least two classes"),
        (CodeGraph(n_features=0), ["a", "b"], "at least 1"),
    ],
)
def test_wrong_parameters_and_labels_are_refused(recipe, labels, message):
    with pytest.raises(ValueError, match=message):
        recipe.build(np.array(labels))


def test_large_graphs_of_low_rank_are_not_written_out():
    graph = LabelGraph().build(np.linspace(0, 1, 6000))
    with pytest.raises(ValueError, match="to_operator"):
        graph.to_sparse()
    assert (graph.to_operator() @ np.ones(6000)).sum() == pytest.approx(6000)
    np.testing.assert_allclose(graph.free_responses(3).delta_values, [2 / 11, 4 / 11, 6 / 11], atol=1e-8)
    with pytest.raises(ValueError, match="ask for at most"):
        graph.free_responses()
