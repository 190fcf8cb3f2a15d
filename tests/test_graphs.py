"""Training graphs against dense matrices filled from the definitions, edge by edge."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp

from higsfa import GSFA
from higsfa.core.graph import graph
from higsfa.graphs import (
    ClusteredGraph,
    EdgeGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
)
from oracles import (
    add_dense,
    constraint_matrix,
    count_edges,
    dense_clustered,
    dense_delta,
    dense_free_responses,
    dense_label_window,
    dense_mixed,
    dense_sequence,
    dense_serial,
    dense_time_window,
    dense_window,
    scale_dense,
)

N = 61


def _data(seed=0):
    """Labels of every kind for N samples: ties, missing ones, classes with one member."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 30, N).astype(float)
    real = rng.standard_normal(N)
    race = rng.integers(0, 4, N)
    race[0] = 17  # alone in its class
    gender = np.array(["f", "m"], dtype=object)[rng.integers(0, 2, N)]
    age_gaps, real_gaps, gender_gaps = age.copy(), real.copy(), gender.copy()
    age_gaps[rng.permutation(N)[:9]] = np.nan
    real_gaps[rng.permutation(N)[:9]] = np.nan
    gender_gaps[rng.permutation(N)[:9]] = None
    return {
        "age": age,
        "real": real,
        "race": race,
        "gender": gender,
        "age_gaps": age_gaps,
        "real_gaps": real_gaps,
        "gender_gaps": gender_gaps,
        "whole": rng.integers(0, 4, N).astype(float),
        "fractional": rng.choice([0.0, 0.25, 1.0, 2.5], N),
        "recording": np.repeat([3, 1, 7, 4, 8], [20, 1, 12, 4, 24]),
    }


D = _data()


def _label_graphs(suffix, w):
    """Graphs over one label, with or without gaps and sample weights."""
    age, real, gender = D["age" + suffix], D["real" + suffix], D["gender" + suffix]
    return {
        "clustered": (ClusteredGraph(), gender, dense_clustered(gender, w)),
        "clustered numbers": (ClusteredGraph(), age, dense_clustered(age, w)),
        "clustered self-loops": (
            ClusteredGraph(self_loops=True),
            gender,
            dense_clustered(gender, w, self_loops=True),
        ),
        "serial": (SerialGraph(n_groups=6), real, dense_serial(real, 6, w)),
        "serial ties": (SerialGraph(n_groups=7), age, dense_serial(age, 7, w)),
        "serial two groups": (SerialGraph(n_groups=2), age, dense_serial(age, 2, w)),
        "mixed": (MixedGraph(n_groups=6), real, dense_mixed(real, 6, w)),
        "mixed ties": (MixedGraph(n_groups=7), age, dense_mixed(age, 7, w)),
        "mixed two groups": (MixedGraph(n_groups=2), age, dense_mixed(age, 2, w)),
    }


def _cases():
    """name -> (recipes with the arguments of build, whose graphs are added; dense parts)"""
    cases = {}
    for suffix in ("", "_gaps"):
        for kind in (None, "whole", "fractional"):
            w = None if kind is None else D[kind]
            for name, (recipe, y, dense) in _label_graphs(suffix, w).items():
                name = f"{name}{suffix.replace('_', ' with ')}, weights {kind}"
                cases[name] = ([(recipe, dict(y=y, sample_weight=w))], [dense])
    cases["clustered with a class of one"] = ([(ClusteredGraph(), dict(y=D["race"]))], [dense_clustered(D["race"])])
    for groups in (None, D["recording"]):
        given, several = dict(groups=groups, n_samples=N), groups is not None
        for lag in (1, 3):
            dense = dense_sequence(N, lag, groups)
            cases[f"sequence lag {lag}, recordings {several}"] = ([(SequenceGraph(lag), given)], [dense])
        for d, mirrored in WINDOWS:
            recipe, dense = WindowGraph(None, d, mirrored), dense_time_window(N, d, mirrored, groups)
            cases[f"time window {d}, mirrored {mirrored}, recordings {several}"] = ([(recipe, given)], [dense])
    for d, mirrored in WINDOWS:
        for name in ("real", "real_gaps"):
            recipe, dense = WindowGraph(None, d, mirrored), dense_label_window(D[name], d, mirrored)
            cases[f"label window {d}, mirrored {mirrored}, {name}"] = ([(recipe, dict(y=D[name]))], [dense])
    parts = [
        dense_serial(D["age_gaps"], 7),
        scale_dense(0.5, dense_clustered(D["gender_gaps"])),
        dense_mixed(D["real"], 5),
    ]
    recipe = SerialGraph("age_gaps", n_groups=7) + 0.5 * ClusteredGraph("gender_gaps") + MixedGraph("real", n_groups=5)
    cases["sum of label graphs"] = ([(recipe, dict(y=D))], parts)
    w = D["fractional"]
    parts = [
        dense_serial(D["age_gaps"], 7, w),
        scale_dense(0.5, dense_clustered(D["gender_gaps"], w)),
        dense_mixed(D["real"], 5, w),
        dense_clustered(D["race"], w, self_loops=True),
    ]
    recipe = recipe + ClusteredGraph("race", self_loops=True)
    cases["weighted sum of label graphs"] = ([(recipe, dict(y=D, sample_weight=w))], parts)
    parts = [
        dense_clustered(D["race"]),
        dense_serial(D["age"], 4),
        dense_mixed(D["age_gaps"], 4),
        scale_dense(2.0, dense_label_window(D["real_gaps"], 3)),
        dense_sequence(N, 1, D["recording"]),
        dense_time_window(N, 2, True, D["recording"]),
    ]
    recipe = (
        ClusteredGraph("race")
        + SerialGraph("age", n_groups=4)
        + MixedGraph("age_gaps", n_groups=4)
        + 2.0 * WindowGraph("real_gaps", half_width=3)
        + SequenceGraph()
    )
    in_time = WindowGraph(half_width=2, mirrored=True)
    recording = D["recording"]
    cases["sum of all kinds"] = ([(recipe, dict(y=D, groups=recording)), (in_time, dict(groups=recording))], parts)
    return cases


WINDOWS = [(d, mirrored) for d in (1, 5, 40) for mirrored in (False, True)]
CASES = _cases()
every_graph = pytest.mark.parametrize("case", CASES)
every_label_graph = pytest.mark.parametrize(
    "case", [name for name in CASES if not name.startswith(("sequence", "sum"))]
)


@pytest.fixture
def built(case):
    first, *others = (recipe.build(**given) for recipe, given in CASES[case][0])
    return sum(others, first)


@pytest.fixture
def parts(case):
    return CASES[case][1]


@pytest.fixture
def dense(parts):
    return add_dense(*parts)


@every_graph
def test_weights_degrees_and_totals_equal_the_dense_ones(built, dense):
    v, gamma = dense
    assert built.n_samples == len(v)
    np.testing.assert_allclose(built.vertex_weights, v, rtol=0, atol=1e-12)
    np.testing.assert_allclose(built.degrees, gamma.sum(axis=1), rtol=0, atol=1e-12)
    assert built.total_vertex_weight == pytest.approx(v.sum(), rel=1e-12)
    assert built.total_edge_weight == pytest.approx(gamma.sum(), rel=1e-12)


@every_graph
def test_weights_of_some_samples_are_those_that_they_have_among_all(built):
    some = np.array([5, 0, N - 1, 5, 17])
    np.testing.assert_array_equal(built.vertex_weights_of(some), built.vertex_weights[some])


@every_graph
def test_sparse_matrix_equals_the_dense_one(built, dense):
    matrix = built.to_sparse()
    assert sp.issparse(matrix)
    np.testing.assert_allclose(matrix.toarray(), dense[1], rtol=0, atol=1e-13)


@every_graph
def test_number_of_edges_equals_the_count_over_all_pairs(built, parts):
    assert built.n_edges == sum(count_edges(gamma) for _, gamma in parts)


@every_graph
def test_delta_equals_the_sum_over_all_edges(built, dense):
    Y = np.random.default_rng(1).standard_normal((N, 3)) * [1.0, 1e-3, 1e4] + [0.0, 5.0, -1e4]
    np.testing.assert_allclose(built.delta(Y), dense_delta(Y, *dense), rtol=1e-9)
    np.testing.assert_allclose(built.delta(Y[:, 0]), dense_delta(Y[:, 0], *dense), rtol=1e-9)


@every_graph
def test_delta_of_a_constant_is_nan(built):
    assert np.isnan(built.delta(np.zeros(N))).all()


@every_graph
def test_consistency_is_proportionality_of_weights_and_degrees(built, dense):
    v, gamma = dense
    d = gamma.sum(axis=1)
    assert built.is_consistent() == np.allclose(v / v.sum(), d / d.sum(), rtol=1e-9, atol=1e-12)


@every_label_graph
def test_degree_equals_vertex_weight_in_label_graphs_and_windows(built):
    np.testing.assert_allclose(built.degrees, built.vertex_weights, rtol=0, atol=1e-12)
    assert built.is_consistent()


@every_graph
def test_scaling_a_graph_scales_weights_and_keeps_delta(built):
    y = np.random.default_rng(2).standard_normal(N)
    for scaled in (2.5 * built, built * 2.5):
        np.testing.assert_allclose(scaled.vertex_weights, 2.5 * built.vertex_weights)
        np.testing.assert_allclose(scaled.to_sparse().toarray(), 2.5 * built.to_sparse().toarray())
        np.testing.assert_allclose(scaled.delta(y), built.delta(y), rtol=1e-12)


@every_graph
def test_free_responses_equal_those_of_the_dense_graph(built, dense):
    v, gamma = dense
    values, _ = dense_free_responses(v, gamma)
    free = built.free_responses()
    Y = free.on_samples()
    assert Y.shape == (N, len(free.delta_values))
    np.testing.assert_array_equal(np.isnan(Y).any(axis=1), v <= 0)
    Y = np.nan_to_num(Y)
    np.testing.assert_allclose(np.diff(free.delta_values) >= -1e-9, True)
    np.testing.assert_allclose(dense_delta(Y, v, gamma), free.delta_values, atol=1e-8)
    covariance, mean = constraint_matrix(Y, v)
    np.testing.assert_allclose(covariance, np.eye(len(covariance)), atol=1e-8)
    np.testing.assert_allclose(mean, 0, atol=1e-8)
    # Responses that vary within a group are no slower than noise is: those on the groups are the slow ones.
    n_slow = int(np.sum(values < 2 - 1e-6))
    assert free.n_below() == n_slow
    np.testing.assert_allclose(free.delta_values[:n_slow], values[:n_slow], atol=1e-8)


# --- what the recipes accept --------------------------------------------------------------------------


def _same(a, b):
    np.testing.assert_allclose(a.vertex_weights, b.vertex_weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(a.to_sparse().toarray(), b.to_sparse().toarray(), rtol=0, atol=1e-12)


def test_labels_come_as_array_dict_frame_or_numbered_columns():
    by_array = SerialGraph(n_groups=5).build(D["age"]) + ClusteredGraph().build(D["race"])
    named = SerialGraph("age", n_groups=5) + ClusteredGraph("race")
    _same(by_array, named.build({"age": D["age"], "race": D["race"]}))
    _same(by_array, named.build(pd.DataFrame({"race": D["race"], "age": D["age"]})))
    numbered = SerialGraph(0, n_groups=5) + ClusteredGraph(1)
    _same(by_array, numbered.build(np.column_stack([D["age"], D["race"]])))
    _same(ClusteredGraph().build(D["race"]), ClusteredGraph().build(list(D["race"])))
    _same(ClusteredGraph().build(D["race"]), ClusteredGraph().build(pd.Series(D["race"], index=range(5, N + 5))))


def test_missing_labels_are_nan_none_or_na_alike():
    gender = D["gender_gaps"]
    expected = dense_clustered(gender)
    as_nan = np.array([np.nan if g is None else g for g in gender], dtype=object)
    as_na = pd.Series([pd.NA if g is None else g for g in gender], dtype="string")
    as_category = pd.Series(gender).astype("category")
    as_code = np.array([np.nan if g is None else float(g == "m") for g in gender])
    as_nullable = pd.Series([pd.NA if g is None else int(g == "m") for g in gender], dtype="Int64")
    for labels in (gender, as_nan, as_na, as_category, as_code, as_nullable):
        for y, name in ((labels, None), (pd.DataFrame({"g": labels}), "g"), ({"g": labels}, "g")):
            built = ClusteredGraph(name).build(y)
            np.testing.assert_allclose(built.vertex_weights, expected[0], rtol=0, atol=1e-12)
            np.testing.assert_allclose(built.to_sparse().toarray(), expected[1], rtol=0, atol=1e-12)


def test_nullable_numbers_with_gaps_make_serial_graphs():
    age = pd.Series([pd.NA if np.isnan(a) else int(a) for a in D["age_gaps"]], dtype="Int64")
    _same(SerialGraph(n_groups=5).build(age), SerialGraph(n_groups=5).build(D["age_gaps"]))


def test_a_sum_of_built_graphs_equals_the_built_sum():
    a, b = SerialGraph("age", n_groups=4), MixedGraph("real", n_groups=3)
    _same((a + b).build(D), a.build(D) + b.build(D))
    _same((2.0 * (a + b)).build(D), 2.0 * a.build(D) + 2.0 * b.build(D))


def test_samples_of_weight_zero_are_as_good_as_absent():
    w = D["whole"]
    kept = w > 0
    for recipe, y in (
        (ClusteredGraph(), D["race"]),
        (SerialGraph(n_groups=5), D["age"]),
        (MixedGraph(n_groups=5), D["age"]),
    ):
        whole, part = recipe.build(y, sample_weight=w), recipe.build(y[kept], sample_weight=w[kept])
        np.testing.assert_allclose(whole.vertex_weights[kept], part.vertex_weights, atol=1e-12)
        np.testing.assert_array_equal(whole.vertex_weights[~kept], 0)
        np.testing.assert_allclose(
            whole.to_sparse().toarray()[np.ix_(kept, kept)], part.to_sparse().toarray(), atol=1e-12
        )


@pytest.mark.parametrize(
    "recipe",
    [ClusteredGraph(), ClusteredGraph(self_loops=True), SerialGraph(n_groups=5), MixedGraph(n_groups=5)],
)
def test_a_sample_of_weight_k_has_the_edges_of_its_k_copies(recipe):
    rng = np.random.default_rng(3)
    age, k = rng.integers(0, 9, 25).astype(float), rng.integers(1, 4, 25)
    of_copy = np.repeat(np.arange(25), k)
    weighted, copied = recipe.build(age, sample_weight=k), recipe.build(age[of_copy])
    onto = np.zeros((25, len(of_copy)))
    onto[of_copy, np.arange(len(of_copy))] = 1
    np.testing.assert_allclose(weighted.vertex_weights, onto @ copied.vertex_weights, atol=1e-12)
    np.testing.assert_allclose(weighted.to_sparse().toarray(), onto @ copied.to_sparse().toarray() @ onto.T, atol=1e-12)


@pytest.mark.parametrize(
    "recipe",
    [
        ClusteredGraph(),
        ClusteredGraph(self_loops=True),
        SerialGraph(n_groups=7),
        MixedGraph(n_groups=7),
        SerialGraph(n_groups=7) + 0.5 * ClusteredGraph(),
    ],
)
def test_permuting_rows_permutes_the_graph_ties_included(recipe):
    rng = np.random.default_rng(4)
    order = rng.permutation(N)
    age, w = D["age_gaps"], D["fractional"]
    one, other = recipe.build(age, sample_weight=w), recipe.build(age[order], sample_weight=w[order])
    np.testing.assert_allclose(other.vertex_weights, one.vertex_weights[order], rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        other.to_sparse().toarray(), one.to_sparse().toarray()[np.ix_(order, order)], rtol=0, atol=1e-13
    )


def test_no_transition_is_ever_made_across_recordings():
    groups = np.array(["a", "a", "b", "b", "b", "c", "c"])
    gamma = SequenceGraph(lag=1).build(None, groups=groups).to_sparse().toarray()
    assert np.all(gamma[groups[:, None] != groups] == 0)
    assert np.count_nonzero(gamma) == 2 * (1 + 2 + 1)


def test_a_recording_in_two_stretches_of_rows_is_refused():
    """Rows sorted by something else than time are a mistake that would otherwise pass unnoticed."""
    with pytest.raises(ValueError, match="groups"):
        SequenceGraph().build(None, groups=["a", "a", "b", "b", "a", "a"])


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_every_degree_of_a_mirrored_window_is_twice_its_half_width(d):
    built = WindowGraph(half_width=d, mirrored=True).build(None, n_samples=2 * d)
    np.testing.assert_allclose(built.degrees, 2 * d, rtol=0, atol=1e-12)
    longer = WindowGraph(half_width=d, mirrored=True).build(np.arange(3 * d + 1)[::-1].astype(float))
    np.testing.assert_allclose(longer.degrees, 2 * d, rtol=0, atol=1e-12)


def test_window_over_a_label_follows_the_label_not_the_rows():
    real = D["real"]
    built = WindowGraph("real", half_width=4).build(D)
    order = np.argsort(real)
    expected = dense_window([order], N, 4)[1]
    np.testing.assert_allclose(built.to_sparse().toarray(), expected, atol=1e-13)


# --- graphs written out edge by edge --------------------------------------------------------------------


def _random_edges(seed=5, n=17):
    rng = np.random.default_rng(seed)
    gamma = np.triu(rng.uniform(0.1, 2.0, (n, n)) * (rng.random((n, n)) < 0.3), 1)
    return gamma + gamma.T, rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("container", [sp.csr_array, sp.coo_array, sp.csc_matrix, sp.lil_array])
def test_edge_graph_keeps_weights_up_to_a_total_of_q(loops, container):
    gamma, v = _random_edges()
    if loops:
        gamma = gamma + np.diag(np.random.default_rng(6).uniform(0, 1, len(v)))
    built = EdgeGraph(container(gamma), node_weights=v).build(None, n_samples=len(v))
    np.testing.assert_allclose(built.vertex_weights, v, rtol=1e-12)
    expected = gamma * (v.sum() / gamma.sum())
    np.testing.assert_allclose(built.to_sparse().toarray(), expected, atol=1e-12)
    np.testing.assert_allclose(built.degrees, expected.sum(axis=1), atol=1e-12)
    assert built.n_edges == count_edges(gamma)
    Y = np.random.default_rng(7).standard_normal((len(v), 2))
    np.testing.assert_allclose(built.delta(Y), dense_delta(Y, v, gamma), rtol=1e-9)


def test_edge_graph_from_lists_of_pairs_and_weights():
    gamma, v = _random_edges()
    i, j = np.nonzero(np.triu(gamma))
    weighted = EdgeGraph(np.column_stack([i, j, gamma[i, j]]), node_weights=v).build(None, n_samples=len(v))
    _same(weighted, EdgeGraph(sp.csr_array(gamma), node_weights=v).build(None, n_samples=len(v)))
    ones = (gamma > 0).astype(float)
    listed = EdgeGraph(np.column_stack([i, j]), node_weights=v).build(None, n_samples=len(v))
    _same(listed, EdgeGraph(sp.csr_array(ones), node_weights=v).build(None, n_samples=len(v)))


def test_edge_graph_without_node_weights_is_consistent():
    gamma, _ = _random_edges()
    built = EdgeGraph(sp.csr_array(gamma)).build(None, n_samples=len(gamma))
    assert built.is_consistent()
    assert built.total_edge_weight == pytest.approx(built.total_vertex_weight, rel=1e-12)


def test_edge_graph_of_a_time_series_has_the_delta_of_the_sequence_graph():
    n = 20
    chain = EdgeGraph(np.column_stack([np.arange(n - 1), np.arange(1, n)]), node_weights=np.ones(n))
    Y = np.random.default_rng(8).standard_normal((n, 2))
    sequence = SequenceGraph().build(None, n_samples=n)
    np.testing.assert_allclose(chain.build(None, n_samples=n).delta(Y), sequence.delta(Y), rtol=1e-12)


# --- free responses and the conditions for sums -----------------------------------------------------


def test_serial_graph_of_32_groups_has_15_responses_slower_than_noise():
    free = SerialGraph(n_groups=32).build(np.arange(32 * 6).astype(float)).free_responses()
    assert free.n_below() == 15


@pytest.mark.parametrize("n_groups", [2, 3, 4, 8, 9, 32])
def test_serial_graph_has_harmonics_as_free_responses(n_groups):
    """L groups in a row: Delta_k = 2 - 2 cos(pi k / (L - 1)), from the normalised Laplacian of a path."""
    free = SerialGraph(n_groups=n_groups).build(np.arange(n_groups * 5).astype(float)).free_responses()
    expected = 2 - 2 * np.cos(np.pi * np.arange(1, n_groups) / (n_groups - 1))
    np.testing.assert_allclose(free.delta_values[: n_groups - 1], expected, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_clustered_graph_has_one_response_fewer_than_classes(n_classes):
    labels = np.random.default_rng(9).permutation(np.repeat(np.arange(n_classes), np.arange(3, 3 + n_classes)))
    free = ClusteredGraph().build(labels).free_responses()
    assert free.n_below() == n_classes - 1
    np.testing.assert_allclose(free.delta_values[: n_classes - 1], 0, atol=1e-9)


def test_free_responses_of_tied_delta_values_obey_the_constraints():
    """Three parts that are not joined to each other, so two responses with Delta = 0, besides the constant."""
    n = np.nan
    y = np.array([[4, n], [2, 1], [3, 0], [5, n], [4, n], [n, 2], [1, 1], [0, 0]])
    recipe = 0.5 * ClusteredGraph(0, self_loops=True) + 3.0 * SerialGraph(1, n_groups=2)
    built = recipe.build(y, sample_weight=[2.5, 2.5, 0.25, 2.5, 1, 0.25, 2.5, 0.25])
    free = built.free_responses()
    np.testing.assert_allclose(free.delta_values[:2], 0, atol=1e-12)
    v, gamma = built.vertex_weights, built.to_sparse().toarray()
    covariance, mean = constraint_matrix(free.on_samples(), v)
    np.testing.assert_allclose(covariance, np.eye(len(covariance)), atol=1e-9)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    np.testing.assert_allclose(dense_delta(free.on_samples(), v, gamma), free.delta_values, atol=1e-9)


def test_free_responses_can_be_limited_in_number():
    for built in (SerialGraph(n_groups=8).build(D["age"]), SequenceGraph().build(None, n_samples=N)):
        few, all_of_them = built.free_responses(n_responses=3), built.free_responses()
        assert len(few.delta_values) == 3
        np.testing.assert_allclose(few.delta_values, all_of_them.delta_values[:3], atol=1e-9)


def test_a_few_free_responses_of_a_graph_in_many_pieces_obey_the_constraints(monkeypatch):
    """The constant response is one of many that are equally slow, and must be the one that is left out."""
    monkeypatch.setattr(graph, "MAX_DENSE", 50)
    built = ClusteredGraph().build(np.repeat(np.arange(99), np.tile([2, 3, 4], 33)))
    free = built.free_responses(4)
    Y = free.on_samples()
    covariance, mean = constraint_matrix(Y, built.vertex_weights)
    np.testing.assert_allclose(covariance, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(mean, 0, atol=1e-8)
    np.testing.assert_allclose(built.delta(Y), 0, atol=1e-9)
    np.testing.assert_allclose(free.delta_values, 0, atol=1e-9)


def test_a_few_free_responses_of_many_groups_are_harmonics(monkeypatch):
    monkeypatch.setattr(graph, "MAX_DENSE", 50)
    n_groups = 100
    free = SerialGraph(n_groups=n_groups).build(np.arange(2.0 * n_groups)).free_responses(5)
    harmonics = 2 - 2 * np.cos(np.pi * np.arange(1, 6) / (n_groups - 1))
    np.testing.assert_allclose(free.delta_values, harmonics, rtol=1e-6)


def test_memory_grows_with_the_number_of_classes_not_with_its_square():
    n_classes = 10_000
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(n_classes), 2))
    Y = np.column_stack([y % 7, y % 3])
    tracemalloc.start()
    try:
        built = ClusteredGraph().build(y)
        assert built.is_consistent()
        assert built.n_edges == n_classes
        np.testing.assert_allclose(built.delta(Y), 0, atol=1e-9)
        assert built.to_sparse().nnz <= 4 * n_classes  # samples with themselves may be stored as zeros
        assert len(built.free_responses(2).delta_values) == 2
        model = GSFA(graph="clustered").fit(Y + 0.0, y)
        np.testing.assert_allclose(model.delta_values_, 0, atol=1e-9)
        weighted = GSFA(graph="clustered").fit(Y + 0.0, y, sample_weight=np.linspace(1, 2, len(y)))
        np.testing.assert_allclose(weighted.delta_values_, 0, atol=1e-9)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1024 * n_classes


def test_more_free_responses_than_can_be_found_are_refused_before_memory_runs_out():
    built = ClusteredGraph().build(np.repeat(np.arange(20_000), 2))
    for n_responses in (None, 6000):
        with pytest.raises(ValueError, match=r"n_responses=.* ask for at most 5,000 of the slowest"):
            built.free_responses(n_responses)


def test_noise_has_delta_two_on_consistent_graphs_without_self_loops():
    rng = np.random.default_rng(10)
    n = 3000
    noise = rng.standard_normal((n, 40))
    labels = rng.permutation(n).astype(float)
    for built in (
        ClusteredGraph().build(rng.integers(0, 10, n)),
        SerialGraph(n_groups=12).build(labels),
        MixedGraph(n_groups=12).build(labels),
        WindowGraph(half_width=9).build(labels),
        SequenceGraph().build(None, n_samples=n),
    ):
        assert built.delta(noise).mean() == pytest.approx(2.0, abs=0.02)


def test_conditions_hold_for_a_crossed_design_and_fail_for_unequal_weights():
    gender, race = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    labels = {"gender": gender, "race": race, "age": np.random.default_rng(11).permutation(40).astype(float)}
    recipe = ClusteredGraph("gender", self_loops=True) + ClusteredGraph("race", self_loops=True)
    crossed = recipe.build(labels).conditions()
    assert crossed.consistent
    assert crossed.proportional
    assert crossed.compatible
    assert not crossed.remarks
    uneven = (SerialGraph("age", n_groups=4) + ClusteredGraph("race")).build(labels).conditions()
    assert uneven.consistent
    assert not uneven.proportional
    assert uneven.remarks
    series = SequenceGraph().build(None, n_samples=40).conditions()
    assert not series.consistent
    alone = SerialGraph("age", n_groups=4).build(labels).conditions()
    assert alone.consistent
    assert alone.proportional
    assert alone.compatible


def test_conditions_notice_a_slow_response_that_is_fast_elsewhere():
    fast = np.tile([0.0, 1.0], 20)
    n = len(fast)
    by_class = ClusteredGraph().build(fast)
    chain = WindowGraph(half_width=1, mirrored=True).build(None, n_samples=n)
    assert dense_delta(fast, chain.vertex_weights, chain.to_sparse().toarray())[0] > 3
    assert not (by_class + chain).conditions().compatible


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "y", "kwargs", "names"),
    [
        (ClusteredGraph("race"), {"age": [1, 2]}, {}, "race"),
        (SerialGraph("race"), pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0]}), {}, "race"),
        (ClusteredGraph(3), np.zeros((6, 2)), {}, "3"),
        (ClusteredGraph(), None, {"n_samples": 4}, "y|label"),
        (ClusteredGraph(), np.full(6, np.nan), {}, "label|y"),
        (SerialGraph(n_groups=2), np.full(6, np.nan), {}, "label|y"),
        (MixedGraph(n_groups=2), np.full(6, np.nan), {}, "label|y"),
        (ClusteredGraph(), np.arange(6), {}, "class|label"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [1, 1, -1, 1]}, "sample_weight"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [1, 1, np.nan, 1]}, "sample_weight"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [1, 1, 1]}, "sample_weight"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [0, 0, 0, 0]}, "sample_weight|label|class"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [1e-300] * 4}, "sample_weight: .*1e-300"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [1e308] * 4}, r"sample_weight: .*1e\+308"),
        (SerialGraph(n_groups=2), [0, 0, 1, 1], {"sample_weight": [1e308] * 4}, r"sample_weight: .*1e\+308"),
        (ClusteredGraph(), [0, 0, 1, 1], {"sample_weight": [0.25] * 4}, "sample_weight w counts a sample w times"),
        (MixedGraph(n_groups=2), [0, 0, 1, 1], {"sample_weight": [0.2] * 4}, "sample_weight w counts a sample w times"),
        (ClusteredGraph(), [0, 0, 1, 1], {"n_samples": 5}, "n_samples|y|sample"),
        (SequenceGraph(), None, {"groups": [0, 0, 0], "n_samples": 4}, "groups"),
        (SequenceGraph(lag=0), None, {"n_samples": 4}, "lag"),
        (SequenceGraph(lag=9), None, {"n_samples": 4}, "lag"),
        (SequenceGraph(), None, {"groups": [0, 1, 2, 3], "n_samples": 4}, "recording|groups|lag"),
        (WindowGraph(half_width=0), None, {"n_samples": 4}, "half_width"),
        (WindowGraph(half_width=1.5), None, {"n_samples": 4}, "half_width"),
        (SerialGraph(n_groups=1), np.arange(6.0), {}, "n_groups"),
        (SerialGraph(n_groups=0), np.arange(6.0), {}, "n_groups"),
        (SerialGraph(n_groups=2.5), np.arange(6.0), {}, "n_groups"),
        (SerialGraph(n_groups=2), np.array(["a", "b", "c", "d"]), {}, "label|y|number"),
        (EdgeGraph(np.array([[0, 7]])), None, {"n_samples": 4}, "edge"),
        (EdgeGraph(sp.csr_array(np.triu(np.ones((4, 4))))), None, {"n_samples": 4}, "edges|symmetric"),
        (EdgeGraph(sp.csr_array(np.eye(3))), None, {"n_samples": 4}, "edges|samples"),
        (EdgeGraph(np.array([[0, 1, -1.0]])), None, {"n_samples": 4}, "edge"),
        (EdgeGraph(np.array([[0, 1, np.nan]])), None, {"n_samples": 4}, "edge"),
        (
            EdgeGraph(np.array([[0, 1]]), node_weights=[1.0, 1.0, -1.0]),
            None,
            {"n_samples": 3},
            "node_weights",
        ),
        (EdgeGraph(np.array([[0, 1]]), node_weights=[1.0, 1.0]), None, {"n_samples": 3}, "node_weights"),
    ],
)
def test_bad_input_is_refused_by_name(recipe, y, kwargs, names):
    with pytest.raises((ValueError, TypeError), match=f"(?i){names}"):
        recipe.build(y, **kwargs)


def test_graphs_over_different_samples_do_not_add():
    with pytest.raises(ValueError, match="samples"):
        ClusteredGraph().build([0, 0, 1, 1]) + ClusteredGraph().build([0, 0, 1])


@pytest.mark.parametrize("factor", [0, -1.0, np.nan, np.inf])
def test_graphs_are_scaled_by_positive_numbers_only(factor):
    with pytest.raises(ValueError, match="positive"):
        factor * ClusteredGraph().build([0, 0, 1, 1])
    with pytest.raises(ValueError, match="positive"):
        (factor * ClusteredGraph()).build([0, 0, 1, 1])


def test_building_leaves_labels_and_weights_as_they_were():
    age, w, groups = D["age_gaps"].copy(), D["fractional"].copy(), D["recording"].copy()
    for recipe in (
        SerialGraph(n_groups=5),
        MixedGraph(n_groups=5),
        ClusteredGraph(),
        ClusteredGraph(self_loops=True),
    ):
        recipe.build(age, sample_weight=w, groups=groups)
    WindowGraph(half_width=3).build(age, groups=None)
    np.testing.assert_array_equal(age, D["age_gaps"])
    np.testing.assert_array_equal(w, D["fractional"])
    np.testing.assert_array_equal(groups, D["recording"])


def test_free_responses_of_inconsistent_graphs_may_be_very_fast():
    """Samples of little weight and large degree: Delta beyond 8, and still no constant among the responses."""
    rng = np.random.default_rng(0)
    n = 12
    gamma = np.triu(rng.uniform(0, 1, (n, n)), 1)
    gamma += gamma.T
    v = np.where(np.arange(n) < 3, 0.01, 1.0)
    graph = EdgeGraph(sp.csr_array(gamma), v).build(n_samples=n)
    laplacian = 2 * v.sum() / gamma.sum() * (np.diag(gamma.sum(axis=1)) - gamma)
    expected = scipy.linalg.eigh(laplacian, np.diag(v), eigvals_only=True)[1:]
    assert expected[-1] > 20
    np.testing.assert_allclose(graph.free_responses().delta_values, expected, rtol=1e-9)


def test_a_mixed_graph_needs_more_than_one_sample_a_group():
    with pytest.raises(ValueError, match="n_groups=6 leaves less than two samples a group"):
        MixedGraph(n_groups=6).build(np.arange(6.0))
    MixedGraph(n_groups=5).build(np.arange(6.0))


@pytest.mark.parametrize("recipe", [SerialGraph(n_groups=3), ClusteredGraph(), WindowGraph(half_width=2)])
def test_numbers_of_edges_are_whole_numbers(recipe):
    assert type(recipe.build(np.array([1.0, 1, 2, 2, 3, 3, 3])).n_edges) is int
