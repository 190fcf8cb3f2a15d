"""Recipes as objects: parameters, sums, and what they take from the arguments of `build`."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from higsfa.graphs import (
    AutoGraph,
    ClusteredGraph,
    EdgeGraph,
    GraphRecipe,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
    as_recipe,
    check_weights,
)
from higsfa.graphs.label import number_graph

AGE = np.array([20.0, 31, 45, 52, 38, 27, 60, 70])
RACE = np.array([0, 1, 0, 1, 0, 1, 1, 0])
LABELS = {"age": AGE, "race": RACE}


def dense(graph):
    return graph.to_sparse().toarray()


def same(a, b):
    np.testing.assert_allclose(dense(a), dense(b), rtol=1e-13)
    np.testing.assert_allclose(a.vertex_weights, b.vertex_weights, rtol=1e-13)


# --- sums -----------------------------------------------------------------------------------------------------


def test_sums_are_flat_and_keep_the_order_and_the_factors():
    a, b, c = SerialGraph("age", n_groups=2), ClusteredGraph("race"), MixedGraph("age", n_groups=2)
    total = 2 * (a + 3.0 * b) + c * np.float64(0.5)
    assert total.graphs == [a, b, c]
    assert total.weights == [2.0, 6.0, 0.5]
    parts = [2.0 * a.build(LABELS), 6.0 * b.build(LABELS), 0.5 * c.build(LABELS)]
    same(total.build(LABELS), parts[0] + parts[1] + parts[2])
    same(GraphSum([a, b]).build(LABELS), a.build(LABELS) + b.build(LABELS))
    same((1 * a).build(LABELS), a.build(LABELS))


@pytest.mark.parametrize("other", [1, "serial", None, True])
def test_only_recipes_add_and_only_numbers_scale(other):
    with pytest.raises(TypeError, match="unsupported operand"):
        SerialGraph() + other
    if other != 1 or other is True:
        with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
            SerialGraph() * other


def test_sums_without_graphs_or_with_other_numbers_of_weights_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        GraphSum([]).build(LABELS)
    for weights in ([1.0], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match=f"weights: {len(weights)} given for 2 graphs"):
            GraphSum([SerialGraph("age"), ClusteredGraph("race")], weights).build(LABELS)


def test_parameters_of_the_graphs_of_a_sum_have_numbers():
    total = SerialGraph("age", n_groups=4) + 0.5 * ClusteredGraph("race")
    assert total.get_params() == {
        "graphs": total.graphs,
        "weights": [1.0, 0.5],
        "graph1": total.graphs[0],
        "graph1__label": "age",
        "graph1__n_groups": 4,
        "graph2": total.graphs[1],
        "graph2__label": "race",
        "graph2__self_loops": False,
    }
    assert total.get_params(deep=False) == {"graphs": total.graphs, "weights": [1.0, 0.5]}
    total.set_params(graph1__n_groups=2, weights=[3.0, 4.0])
    same(total.build(LABELS), (3.0 * SerialGraph("age", n_groups=2) + 4.0 * ClusteredGraph("race")).build(LABELS))
    assert total.set_params(graph2=MixedGraph("age", n_groups=2)) is total
    same(total.build(LABELS), (3.0 * SerialGraph("age", 2) + 4.0 * MixedGraph("age", 2)).build(LABELS))
    total.set_params(graph1=ClusteredGraph("race"), graphs=[SerialGraph("age", 2), MixedGraph("age", 2)])
    same(total.build(LABELS), (3.0 * ClusteredGraph("race") + 4.0 * MixedGraph("age", 2)).build(LABELS))
    copy = clone(total)
    copy.set_params(graph2__n_groups=3)
    assert (copy.graphs[1].n_groups, total.graphs[1].n_groups) == (3, 2)


@pytest.mark.parametrize(
    "key", ["graph0", "graph3", "graph", "graphs1", "n_groups", "graph3__n_groups", "xgraph1", "paper1"]
)
def test_parameters_that_a_sum_does_not_have_are_named(key):
    total = SerialGraph("age") + ClusteredGraph("race")
    with pytest.raises(ValueError, match=f"(?s)Invalid parameter '{key}' .* it has 2 graphs"):
        total.set_params(**{key: 1})


# --- what is built ------------------------------------------------------------------------------------------------


def test_a_recipe_without_a_construction_says_so():
    with pytest.raises(TypeError, match="GraphRecipe is no complete recipe"):
        GraphRecipe().build([1, 2])


def test_the_number_of_samples_is_that_of_labels_recordings_or_weights():
    assert SequenceGraph().build(n_samples=5).n_samples == 5
    assert SequenceGraph().build(groups=["a"] * 6).n_samples == 6
    assert SequenceGraph().build(sample_weight=np.ones(7)).n_samples == 7
    assert SequenceGraph().build(AGE).n_samples == 8
    assert SequenceGraph().build({"age": AGE}).n_samples == 8
    assert SequenceGraph().build(pd.Categorical(RACE)).n_samples == 8
    with pytest.raises(ValueError, match="n_samples: pass the number of samples"):
        SequenceGraph().build()
    with pytest.raises(ValueError, match="y holds no label"):
        SequenceGraph().build({})
    for recipe in (SerialGraph(), ClusteredGraph(), WindowGraph(), AutoGraph()):
        with pytest.raises(ValueError, match=r"y: .*8 .*9|9 .*8"):
            recipe.build(AGE, n_samples=9)


def test_the_number_of_samples_of_written_edges_is_that_of_the_matrix_or_of_the_node_weights():
    matrix = sp.csr_array(np.eye(5, k=1) + np.eye(5, k=-1))
    assert EdgeGraph(matrix).build().n_samples == 5
    assert EdgeGraph(matrix).build(np.zeros(5)).n_samples == 5
    with pytest.raises(ValueError, match="for 5 samples but the data have 6"):
        EdgeGraph(matrix).build(np.zeros(6))
    with pytest.raises(ValueError, match="for 5 samples but the data have 6"):
        EdgeGraph(matrix).build(n_samples=6)
    pairs = np.array([[0, 1], [1, 3]])
    assert EdgeGraph(pairs).build().n_samples == 4
    assert EdgeGraph(pairs.tolist()).build().n_samples == 4
    assert EdgeGraph(pairs, node_weights=np.ones(6)).build().n_samples == 6
    assert EdgeGraph(pairs).build(np.zeros(7)).n_samples == 7
    assert EdgeGraph(pairs).build(n_samples=9).n_samples == 9


def test_windows_take_no_weights():
    WindowGraph().build(AGE, sample_weight=np.ones(8))
    with pytest.raises(ValueError, match="WindowGraph takes no sample_weight"):
        WindowGraph().build(AGE, sample_weight=np.r_[2.0, np.ones(7)])


@pytest.mark.parametrize("recipe", [SequenceGraph(), SequenceGraph([1, 3]), EdgeGraph(np.array([[0, 1], [2, 5]]), AGE)])
def test_weights_multiply_vertex_weights_of_sequences_and_edges(recipe):
    w = np.r_[2.0, 0.5, np.ones(6)]
    plain, weighted = recipe.build(n_samples=8), recipe.build(n_samples=8, sample_weight=w)
    np.testing.assert_allclose(weighted.vertex_weights, w * plain.vertex_weights)
    gamma, other = (graph.to_sparse().toarray() / graph.total_edge_weight for graph in (plain, weighted))
    np.testing.assert_allclose(gamma, other, atol=1e-15)


@pytest.mark.parametrize("lag", [0, [], [1, 1], [2, 0], 1.5, "one"])
def test_lags_are_one_or_several_different_steps(lag):
    with pytest.raises((TypeError, ValueError), match="lag must"):
        SequenceGraph(lag).build(n_samples=8)


def test_missing_groups_are_refused():
    for groups in ([0.0, 0.0, np.nan, 1.0], [None, "a", "a", "b"], pd.array([1, 1, pd.NA, 2])):
        with pytest.raises(ValueError, match=r"groups: that of 1 samples is missing \(the first is row [02]\)"):
            SequenceGraph().build(n_samples=4, groups=groups)


def test_windows_follow_the_label_the_rows_or_the_recordings():
    order, groups = np.argsort(AGE), np.repeat([0, 1], 4)
    in_time = WindowGraph(half_width=1).build(n_samples=8)
    np.testing.assert_array_equal(dense(in_time), np.eye(8, k=1) + np.eye(8, k=-1))
    same(WindowGraph(False, 1).build(AGE), in_time)
    same(WindowGraph(False, 1).build(LABELS), in_time)
    apart = dense(WindowGraph(False, 1).build(AGE, groups=groups))
    assert apart[3, 4] == 0
    by_label = dense(WindowGraph(None, 1).build(AGE))
    np.testing.assert_array_equal(by_label[np.ix_(order, order)], dense(in_time))
    np.testing.assert_array_equal(dense(WindowGraph("age", 1).build(LABELS, groups=groups)), by_label)
    gaps = np.where(AGE == 38, np.nan, AGE)
    assert dense(WindowGraph(None, 1).build(gaps))[4].sum() == 0
    mirrored = WindowGraph(None, 2, True).build(AGE)
    np.testing.assert_allclose(mirrored.degrees, 4)
    tied = np.array([1.0, 2, 2, 3])
    halves = dense(WindowGraph(None, 1).build(tied))
    np.testing.assert_allclose(halves[0], [0, 0.5, 0.5, 0])


@pytest.mark.parametrize(
    ("recipe", "name", "least"),
    [
        (lambda value: SequenceGraph(lag=value), "lag", 1),
        (lambda value: WindowGraph(half_width=value), "half_width", 1),
        (lambda value: SerialGraph(n_groups=value), "n_groups", 2),
        (lambda value: MixedGraph(n_groups=value), "n_groups", 2),
    ],
)
def test_counts_are_integers_of_at_least_what_they_must_be(recipe, name, least):
    recipe(np.int64(least)).build(AGE)
    with pytest.raises(ValueError, match=f"{name} must be at least {least}, got {least - 1}"):
        recipe(least - 1).build(AGE)
    for value in (float(least), True, "2"):
        with pytest.raises(TypeError, match=f"{name} must be an integer of at least {least}, got {value!r}"):
            recipe(value).build(AGE)


def test_graphs_are_named_by_kind_and_label():
    recipe = (
        SerialGraph("age", n_groups=2)
        + MixedGraph("age", n_groups=2)
        + ClusteredGraph("race")
        + WindowGraph("age")
        + SequenceGraph(2)
    )
    built = recipe.build(LABELS)
    assert repr(built).startswith(
        "<TrainingGraph serial('age') + mixed('age') + clustered('race') + window('age') + sequence(lag=2): 8 samples, "
    )
    assert repr(SerialGraph(n_groups=2).build(AGE)).startswith("<TrainingGraph serial: ")
    assert repr(WindowGraph(False).build(AGE)).startswith("<TrainingGraph window: ")


def test_the_automatic_graph_is_clustered_for_classes_and_of_ranks_for_numbers():
    names = np.where(RACE == 1, "a", "b")
    many = {"age": np.arange(0.5, 60), "sex": np.arange(60) % 2 == 0, "name": list("abc") * 20}
    same(AutoGraph().build(names), ClusteredGraph().build(names))
    same(
        AutoGraph().build(many),
        (number_graph("age") + ClusteredGraph("sex") + ClusteredGraph("name")).build(many),
    )
    same(AutoGraph().build({"n": np.arange(60) / 2}), number_graph("n").build({"n": np.arange(60) / 2}))
    with pytest.raises(ValueError, match="graph='auto' requires y to be passed"):
        AutoGraph().build(n_samples=4)
    label = np.append(np.arange(40) % 2, 0.5)
    weights = np.append(np.ones(40), 0.0)  # a sample that counts nothing does not make the label a number
    same(AutoGraph().build(label, sample_weight=weights), ClusteredGraph().build(label, sample_weight=weights))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("auto", AutoGraph),
        ("clustered", ClusteredGraph),
        ("serial", SerialGraph),
        ("mixed", MixedGraph),
        ("window", WindowGraph),
        ("sequence", SequenceGraph),
    ],
)
def test_words_stand_for_recipes_with_default_parameters(word, kind):
    recipe = as_recipe(word)
    assert type(recipe) is kind
    assert recipe.get_params() == kind().get_params()
    assert as_recipe(recipe) is recipe


def test_what_is_no_recipe_is_refused_by_name():
    with pytest.raises(ValueError, match=r"graph='circular' is unknown; use one of \['auto', 'clustered'"):
        as_recipe("circular")
    with pytest.raises(TypeError, match=r"graph must be a recipe .* got int"):
        as_recipe(3)


# --- sample weights -----------------------------------------------------------------------------------------------


def test_sample_weights_are_finite_not_negative_and_in_range():
    np.testing.assert_array_equal(check_weights(None, 3), np.ones(3))
    np.testing.assert_array_equal(check_weights([0, 2, 3], 3), [0.0, 2.0, 3.0])
    for largest in (1e-100, 1e100):
        np.testing.assert_array_equal(check_weights([0.0, 1e-300, largest], 3), [0.0, 1e-300, largest])
    for weights, words in (
        ([1.0, 2.0], r"shape \(3,\).*got \(2,\)"),
        ([[1.0, 2.0, 3.0]], r"shape \(3,\).*got \(1, 3\)"),
        ([1.0, np.nan, 1.0], "finite and not negative"),
        ([1.0, np.inf, 1.0], "finite and not negative"),
        ([1.0, -1e-9, 1.0], "finite and not negative"),
        ([0.0, 0.0, 0.0], "0 for every sample"),
        ([0.0, 0.9e-100, 0.0], "largest weight is 9e-101"),
        ([0.0, 1.1e100, 0.0], r"largest weight is 1.1e\+100"),
    ):
        with pytest.raises(ValueError, match=f"sample_weight.*{words}"):
            check_weights(weights, 3)


# --- what statistics are told apart by ------------------------------------------------------------------------------


def test_origins_name_the_label_that_was_used():
    frame = pd.DataFrame({"age": AGE})
    for y, recipe, label in (
        (AGE, SerialGraph(), None),
        (AGE, SerialGraph(0), None),
        (list(AGE), SerialGraph(), None),
        (frame, SerialGraph(), "age"),
        (frame, SerialGraph("age"), "age"),
        ({"age": AGE}, SerialGraph(), "age"),
        (LABELS, SerialGraph("race"), "race"),
        (np.column_stack([AGE, RACE]), SerialGraph(np.int64(1)), 1),
        (AGE[:, None], SerialGraph(), 0),
        (None, SerialGraph("age"), "age"),
        (None, SerialGraph(), None),
    ):
        ((factor, name, found),) = recipe.origin(y).terms
        assert (factor, name, found) == (1.0, "SerialGraph(n_groups=None)", label)
        assert recipe.makes(recipe.origin(y))
    named = SerialGraph("age").origin(None)
    assert named.fits(SerialGraph().origin(None))
    assert not named.fits(SerialGraph("race").origin(None))
    assert not named.fits((SerialGraph("age") + SerialGraph("age")).origin(None))


def test_origins_tell_edges_apart():
    pairs = [[0, 1], [1, 2]]
    matrix = sp.csr_array(np.eye(3, k=1) + np.eye(3, k=-1))
    one = EdgeGraph(pairs).origin(None)
    assert one.fits(EdgeGraph(np.array(pairs)).origin(None))
    assert one.fits(EdgeGraph(tuple(map(tuple, pairs))).origin(None))
    assert EdgeGraph(matrix).origin(None).fits(EdgeGraph(sp.coo_array(matrix)).origin(None))
    others = [
        EdgeGraph(np.array([[0, 1], [0, 2]])),
        EdgeGraph(pairs, node_weights=np.ones(3)),
        EdgeGraph(matrix),
        EdgeGraph(2 * matrix),
        EdgeGraph(matrix.T @ matrix),
    ]
    for other in others:
        assert not one.fits(other.origin(None))
    assert len({other.origin(None) for other in others}) == 5
