"""Properties that hold for all graphs, weights and data, on examples that hypothesis thinks up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.graphs import ClusteredGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from oracles import (
    LiteralIGSFA,
    add_dense,
    assert_same_features,
    assert_same_up_to_sign,
    classical_sfa,
    constraint_matrix,
    count_edges,
    dense_clustered,
    dense_delta,
    dense_free_responses,
    dense_gsfa,
    dense_label_window,
    dense_mixed,
    dense_sequence,
    dense_serial,
    dense_time_window,
    expand,
    scale_dense,
)

thorough = settings(max_examples=200, deadline=None)

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(["clustered", "self-loops", "serial", "mixed"])
scalings = st.sampled_from(["sensitivity", "qr"])
expansions = st.sampled_from(["identity", "identity | quadratic"])
some_weights = (0.0, 0.5, 1.0, 1.0, 2.5)


@st.composite
def labelled(draw, least=6, most=26, weights=(0.0, 0.25, 1.0, 1.0, 2.5, 3.0), n_labels=1):
    """Labels with ties and gaps, and weights (or None)."""
    n = draw(st.integers(least, most))
    value = st.one_of(st.integers(0, 5), st.integers(-3, 30), st.just(None))
    labels = [draw(st.lists(value, min_size=n, max_size=n)) for _ in range(n_labels)]
    w = draw(st.one_of(st.none(), st.lists(st.sampled_from(weights), min_size=n, max_size=n)))
    return [np.array([np.nan if a is None else float(a) for a in y]) for y in labels], None if w is None else np.array(
        w
    )


def _graph(kind, label, values, w, n_groups):
    """A recipe and its dense graph; the example is dropped where there is nothing to join."""
    present = ~np.isnan(values)
    mass = np.where(present, 1.0 if w is None else w, 0.0)
    if kind in ("clustered", "self-loops"):
        sizes = [mass[values == value].sum() for value in set(values[present])]
        assume(sum(size > 1 for size in sizes) >= 2)
        loops = kind == "self-loops"
        return ClusteredGraph(label, self_loops=loops), dense_clustered(values, w, self_loops=loops)
    assume(len(set(values[mass > 0])) >= 2)
    assume(min(mass.sum(), np.sum(mass > 0)) >= 1.5 * n_groups)
    if kind == "serial":
        return SerialGraph(label, n_groups=n_groups), dense_serial(values, n_groups, w)
    return MixedGraph(label, n_groups=n_groups), dense_mixed(values, n_groups, w)


@st.composite
def sums_of_graphs(draw, weights=(0.0, 0.25, 1.0, 1.0, 2.5, 3.0), least=6, most=26):
    """One to three label graphs: recipe, labels, weights and dense parts."""
    count = draw(st.integers(1, 3))
    values, w = draw(labelled(least, most, weights, count))
    if w is not None:
        assume(w.any())
    recipe, parts = None, []
    for label, y in enumerate(values):
        kind, n_groups = draw(kinds), draw(st.integers(2, 5))
        factor = draw(st.sampled_from([1.0, 0.5, 3.0]))
        term, dense = _graph(kind, label, y, w, n_groups)
        recipe = factor * term if recipe is None else recipe + factor * term
        parts.append(scale_dense(factor, dense))
    return recipe, np.column_stack(values), w, parts


@st.composite
def recordings(draw, least=4, most=30):
    """Names of recordings, or None for a single one, and the number of samples."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    n = sum(lengths)
    assume(least <= n <= most)
    return (None if len(lengths) == 1 else np.repeat(np.arange(len(lengths)), lengths)), n


def _inputs(seed, n, n_inputs=3):
    """Generic data: columns of different size, offset and smoothness."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_inputs)) + 0.3 * np.cumsum(rng.standard_normal((n, n_inputs)), axis=0)
    return X * rng.uniform(0.1, 10, n_inputs) + rng.uniform(-20, 20, n_inputs)


def _same_graph(built, dense, parts):
    v, gamma = dense
    np.testing.assert_allclose(built.vertex_weights, v, rtol=0, atol=1e-12 * max(1, v.max()))
    np.testing.assert_allclose(built.degrees, gamma.sum(axis=1), rtol=0, atol=1e-12 * max(1, v.max()))
    np.testing.assert_allclose(built.to_sparse().toarray(), gamma, rtol=0, atol=1e-12 * max(1, v.max()))
    assert built.total_vertex_weight == pytest.approx(v.sum(), rel=1e-12)
    assert built.total_edge_weight == pytest.approx(gamma.sum(), rel=1e-12)
    assert built.n_edges == sum(count_edges(gamma) for _, gamma in parts)


# --- graphs ---------------------------------------------------------------------------------------------


@thorough
@given(sums_of_graphs(), seeds)
def test_sums_of_label_graphs_equal_dense_ones(example, seed):
    recipe, y, w, parts = example
    built, dense = recipe.build(y, sample_weight=w), add_dense(*parts)
    _same_graph(built, dense, parts)
    np.testing.assert_allclose(built.degrees, built.vertex_weights, rtol=0, atol=1e-12 * dense[0].max())
    assert built.is_consistent()
    Y = np.random.default_rng(seed).standard_normal((len(y), 2))
    np.testing.assert_allclose(built.delta(Y), dense_delta(Y, *dense), rtol=1e-9, atol=1e-12)


@thorough
@given(recordings(), st.integers(1, 15), st.booleans())
def test_time_windows_equal_dense_ones(example, half_width, mirrored):
    groups, n = example
    dense = dense_time_window(n, half_width, mirrored, groups)
    assume(count_edges(dense[1]) > 0)
    built = WindowGraph(half_width=half_width, mirrored=mirrored).build(None, groups=groups, n_samples=n)
    _same_graph(built, dense, [dense])
    y = np.random.default_rng(n).standard_normal(n)
    np.testing.assert_allclose(built.delta(y), dense_delta(y, *dense), rtol=1e-9, atol=1e-12)


@thorough
@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=3, max_size=25), st.integers(1, 15), st.booleans())
def test_label_windows_equal_dense_ones(values, half_width, mirrored):
    present = [value for value in values if value is not None]
    assume(len(present) == len(set(present)) >= 2)
    y = np.array([np.nan if value is None else float(value) for value in values])
    dense = dense_label_window(y, half_width, mirrored)
    _same_graph(WindowGraph(half_width=half_width, mirrored=mirrored).build(y), dense, [dense])


@thorough
@given(recordings(), st.integers(1, 6))
def test_sequences_equal_dense_ones(example, lag):
    groups, n = example
    longest = n if groups is None else np.bincount(groups).max()
    assume(longest > lag)
    dense = dense_sequence(n, lag, groups)
    _same_graph(SequenceGraph(lag).build(None, groups=groups, n_samples=n), dense, [dense])


@thorough
@given(sums_of_graphs(weights=(0.0, 1.0, 2.0, 3.0)), seeds)
def test_whole_weights_count_copies(example, seed):
    recipe, y, w, parts = example
    w = np.ones(len(y)) if w is None else w
    copies = np.repeat(np.arange(len(y)), w.astype(int))
    built = recipe.build(y[copies])
    onto = np.zeros((len(y), len(copies)))
    onto[copies, np.arange(len(copies))] = 1
    v, gamma = add_dense(*parts)
    np.testing.assert_allclose(onto @ built.vertex_weights, v, atol=1e-11)
    np.testing.assert_allclose(onto @ built.to_sparse().toarray() @ onto.T, gamma, atol=1e-11)


@thorough
@given(sums_of_graphs(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(example, random):
    recipe, y, w, _ = example
    order = np.array(random.sample(range(len(y)), len(y)))
    one = recipe.build(y, sample_weight=w)
    other = recipe.build(y[order], sample_weight=None if w is None else w[order])
    np.testing.assert_allclose(other.vertex_weights, one.vertex_weights[order], atol=1e-12)
    np.testing.assert_allclose(
        other.to_sparse().toarray(), one.to_sparse().toarray()[np.ix_(order, order)], rtol=0, atol=1e-12
    )


@thorough
@given(sums_of_graphs())
def test_free_responses_are_the_slowest_of_all(example):
    recipe, y, w, parts = example
    built, dense = recipe.build(y, sample_weight=w), add_dense(*parts)
    values, _ = dense_free_responses(*dense)
    free = built.free_responses()
    n_slow = int(np.sum(values < 2 - 1e-6))
    np.testing.assert_allclose(free.delta_values[:n_slow], values[:n_slow], rtol=0, atol=1e-8)
    assert np.all(free.delta_values[n_slow:] >= 2 - 1e-6)
    Y = np.nan_to_num(free.on_samples()[:, :n_slow])
    if n_slow:
        np.testing.assert_allclose(dense_delta(Y, *dense), values[:n_slow], rtol=0, atol=1e-8)


# --- features -------------------------------------------------------------------------------------------


@thorough
@given(
    sums_of_graphs(some_weights, least=24, most=36),
    st.sampled_from(["identity", "identity | quadratic"]),
    seeds,
)
def test_gsfa_equals_brute_force(example, expansion, seed):
    recipe, y, w, parts = example
    v, gamma = add_dense(*parts)
    assume(np.sum(v > 0) > 15)
    X = _inputs(seed, len(y))
    model = GSFA(expansion=expansion, graph=recipe, clip_range=False).fit(X, y, sample_weight=w)
    ones = np.ones(len(y)) if w is None else w
    Z = expand(expansion, X - ones @ X / ones.sum())
    reference = dense_gsfa(Z, v, gamma)
    np.testing.assert_allclose(model.delta_values_, reference.deltas, rtol=0, atol=1e-9)
    Y = model.transform(X)
    covariance, mean = constraint_matrix(Y, v)
    np.testing.assert_allclose(covariance, np.eye(Y.shape[1]), rtol=0, atol=1e-9)
    np.testing.assert_allclose(mean, 0, rtol=0, atol=1e-9)
    np.testing.assert_allclose(dense_delta(Y, v, gamma), model.delta_values_, rtol=0, atol=1e-9)
    inside = v > 0
    assert_same_features(Y[inside], reference(Z)[inside], reference.deltas, atol=1e-7, gap=1e-4)


@thorough
@given(recordings(least=12, most=40), st.integers(1, 4), seeds)
def test_sfa_equals_classical_sfa(example, lag, seed):
    groups, n = example
    longest = n if groups is None else np.bincount(groups).max()
    assume(longest > lag)
    X = _inputs(seed, n)
    reference = classical_sfa(X, lag, groups)
    model = SFA(lag=lag).fit(X, groups=groups)
    np.testing.assert_allclose(model.delta_values_, reference.deltas, rtol=0, atol=1e-9)
    assert_same_features(model.transform(X), reference(X), reference.deltas, atol=1e-7, gap=1e-4)


@thorough
@given(
    sums_of_graphs(some_weights, least=24, most=36),
    st.sampled_from(["identity", "identity | quadratic", "power0.8[:3]"]),
    scalings,
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([None, 0, 1, 2]),
    seeds,
)
def test_one_pass_equals_the_algorithms_run_literally(example, expansion, scaling, weighted, D, n_slow, seed):
    recipe, y, w, parts = example
    assume(n_slow is None or n_slow <= D)
    v, gamma = add_dense(*parts)
    assume(np.sum(v > 0) > 15)
    X = _inputs(seed, len(y))
    literal = LiteralIGSFA(
        X, v, gamma, expansion, D, n_slow=n_slow, scaling=scaling, weighted=weighted, sample_weight=w
    )
    deltas = literal.gsfa.deltas
    J = literal.J
    # Features that are nearly tied with the first one that is dropped are not determined, nor are equal variances.
    assume(np.all(np.diff(deltas[: J + 1]) > 1e-3))
    rest = literal.variances[: D - J + 1]
    assume(np.all(-np.diff(rest) > 1e-3 * rest[0]))
    if n_slow is None:
        assume(np.min(np.abs(deltas - 1.96)) > 1e-9)
    params = dict(expansion=expansion, scaling=scaling, weighted=weighted, n_slow=n_slow)
    # With as many slow features as inputs nothing may be left for the reconstructive part.
    assume(np.sum(literal.variances > 1e-9 * literal.variances.sum() + 1e-9) >= D - J)
    model = IGSFA(D, graph=recipe, min_scale=0.0, clip_range=False, **params).fit(X, y, sample_weight=w)
    assert model.n_slow_ == J
    expected = literal.extract_all(X)
    inside = v > 0
    Y = model.transform(X)
    scale = max(1.0, np.abs(expected).max())
    assert_same_up_to_sign(Y[inside], expected[inside], atol=1e-7 * scale)
    np.testing.assert_allclose(
        model.inverse_transform(Y)[inside], literal.reconstruct_all(expected)[inside], rtol=0, atol=1e-7 * scale
    )


@thorough
@given(sums_of_graphs(weights=(1.0, 2.0, 3.0), least=16, most=26), st.randoms(use_true_random=False), seeds)
def test_copies_and_order_do_not_change_a_model(example, random, seed):
    recipe, y, w, _ = example
    X = _inputs(seed, len(y))
    k = np.ones(len(y), dtype=int) if w is None else w.astype(int)
    copies = np.repeat(np.arange(len(y)), k)
    order = np.array(random.sample(range(len(copies)), len(copies)))
    make = lambda: IGSFA(3, graph=recipe, n_slow=2)  # noqa: E731
    one = make().fit(X, y, sample_weight=w)
    deltas = one.delta_values_
    assume(np.all(np.diff(deltas) > 1e-4))
    other = make().fit(X[copies][order], y[copies][order])
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=1e-9 * np.abs(X).max())


@thorough
@given(
    st.integers(-20, 20),
    st.sampled_from([0.0, 1e3, -1e6]),
    seeds,
    st.sampled_from(["identity", "identity | quadratic"]),
)
def test_units_and_offsets_do_not_matter(exponent, offset, seed, expansion):
    rng = np.random.default_rng(seed)
    X = np.round(_inputs(seed, 40) * 1024) / 1024
    y = rng.standard_normal(40)
    scale = 10.0**exponent
    changed = (X + offset) * scale
    make = lambda: GSFA(expansion=expansion, graph=SerialGraph(n_groups=5))  # noqa: E731
    one, other = make().fit(X, y), make().fit(changed, y)
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=1e-7)
    if np.all(np.diff(one.delta_values_) > 1e-3):
        assert_same_up_to_sign(one.transform(X), other.transform(changed), atol=1e-4 if offset else 1e-7)
    one = IGSFA(2, graph=SerialGraph(n_groups=5), expansion=expansion, delta_threshold=-1.0).fit(X, y)
    other = IGSFA(2, graph=SerialGraph(n_groups=5), expansion=expansion, delta_threshold=-1.0).fit(changed, y)
    assert_same_up_to_sign(one.transform(X), other.transform(changed) / scale, atol=1e-5)


@st.composite
def singular_inputs(draw):
    """Small whole numbers, with constant, copied and added columns: rank known exactly."""
    n, k = draw(st.integers(8, 24)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    base = rng.integers(-4, 5, (n, k)).astype(float)
    columns = [*base.T]
    for _ in range(draw(st.integers(0, 4))):
        what = draw(st.sampled_from(["constant", "copy", "sum", "scaled"]))
        i, j = draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))
        if what == "constant":
            columns.append(np.full(n, draw(st.sampled_from([0.0, 1.0, -7.3, 1e6]))))
        elif what == "copy":
            columns.append(base[:, i].copy())
        elif what == "sum":
            columns.append(base[:, i] - 2 * base[:, j])
        else:
            columns.append(base[:, i] * draw(st.sampled_from([1e-12, 1e9])))
    return np.column_stack(columns)[:, rng.permutation(len(columns))], base


@thorough
@given(singular_inputs(), seeds)
def test_singular_data_give_finite_features_of_the_right_rank(example, seed):
    X, base = example
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(len(X)) % 2)
    rank = np.linalg.matrix_rank(base - base.mean(axis=0), tol=1e-8)
    assume(rank > 0)
    v, gamma = dense_clustered(y)
    for model in (GSFA(graph="clustered").fit(X, y), GSFA(graph=ClusteredGraph()).fit(X.copy(order="F"), y)):
        Y = model.transform(X)
        assert model.rank_ == rank == Y.shape[1]
        covariance, mean = constraint_matrix(Y, v)
        np.testing.assert_allclose(covariance, np.eye(rank), rtol=0, atol=1e-8)
        np.testing.assert_allclose(mean, 0, rtol=0, atol=1e-8)
        np.testing.assert_allclose(dense_delta(Y, v, gamma), model.delta_values_, rtol=0, atol=1e-8)
    preserving = IGSFA(graph="clustered", n_slow=1).fit(X, y)
    Y = preserving.transform(X)
    assert np.all(np.isfinite(Y))
    error = np.abs(preserving.inverse_transform(Y) - X).max(axis=0)
    assert np.all(error <= 1e-6 * np.abs(X).max())


@thorough
@given(
    st.integers(0, 3),
    st.integers(3, 8),
    st.sampled_from(["sensitivity", "qr"]),
    st.sampled_from(["identity", "identity | quadratic", "power0.8"]),
    seeds,
)
def test_inverse_is_exact_with_enough_components(n_slow, n_inputs, scaling, expansion, seed):
    rng = np.random.default_rng(seed)
    X, y = _inputs(seed, 60, n_inputs), rng.standard_normal(60)
    model = IGSFA(graph=SerialGraph(n_groups=6), expansion=expansion, n_slow=n_slow, scaling=scaling).fit(X, y)
    assert model.n_components_ == (n_inputs if expansion == "identity" else n_inputs + n_slow)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, rtol=0, atol=1e-8 * np.abs(X).max())


# --- parts of the data -----------------------------------------------------------------------------------


@thorough
@given(st.lists(st.integers(1, 39), max_size=6, unique=True), st.booleans(), seeds)
def test_any_batches_of_labelled_samples_give_the_same_model(cuts, quadratic, seed):
    rng = np.random.default_rng(seed)
    X, y = _inputs(seed, 40), rng.integers(0, 3, 40).astype(float)
    y[rng.random(40) < 0.1] = np.nan
    center = X.mean(axis=0) + 0.3 * X.std(axis=0)
    given = dict(expansion="identity | quadratic", center=center) if quadratic else {}
    make = lambda: GSFA(graph="clustered", **given)  # noqa: E731
    whole, parts = make().fit(X, y), make()
    for a, b in pairwise([0, *sorted(cuts), 40]):
        parts.partial_fit(X[a:b], y[a:b])
    np.testing.assert_allclose(parts.delta_values_, whole.delta_values_, rtol=0, atol=1e-10)
    assume(np.all(np.diff(whole.delta_values_) > 1e-3))
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=0, atol=1e-8)


@thorough
@given(recordings(least=12, most=40), st.lists(st.integers(1, 39), max_size=6, unique=True), st.integers(1, 4), seeds)
def test_any_batches_of_a_time_series_give_the_same_model(example, cuts, lag, seed):
    groups, n = example
    longest = n if groups is None else np.bincount(groups).max()
    assume(longest > lag)
    X = _inputs(seed, n)
    cuts = [0, *(cut for cut in sorted(cuts) if cut < n), n]
    whole, parts = ISFA(lag=lag, n_slow=1).fit(X, groups=groups), ISFA(lag=lag, n_slow=1)
    for a, b in pairwise(cuts):
        parts.partial_fit(X[a:b], groups=None if groups is None else groups[a:b])
    np.testing.assert_allclose(parts.delta_values_, whole.delta_values_, rtol=0, atol=1e-10)
    scale = np.abs(X).max()
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=0, atol=1e-8 * scale)
