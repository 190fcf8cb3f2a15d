"""SFA, GSFA, ISFA and IGSFA against brute force, the paper's algorithms run literally, and scikit-learn."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.graphs import (
    ClusteredGraph,
    EdgeGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
)
from higsfa.graphs.label import number_graph
from oracles import (
    EdgeList,
    LiteralIGSFA,
    add_dense,
    assert_same_features,
    assert_same_span,
    assert_same_up_to_sign,
    classical_sfa,
    constraint_matrix,
    dense_clustered,
    dense_delta,
    dense_gsfa,
    dense_label_window,
    dense_mixed,
    dense_sequence,
    dense_serial,
    dense_time_window,
    expand,
    listed_sequence,
    listed_window,
    scale_dense,
)

N, I = 80, 4
EXPANSIONS = ["identity", "identity | quadratic", "power0.8[:3]"]


def _data(seed=0, n=N, n_inputs=I):
    """Inputs that depend on the labels, so that some features are slow; labels with ties and gaps; weights."""
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(n)
    age = np.round(3 * real + 30)
    race = rng.integers(0, 3, n)
    X = rng.standard_normal((n, n_inputs)) * rng.uniform(0.5, 3, n_inputs) + rng.uniform(-5, 5, n_inputs)
    X[:, 0] += 2 * real
    X[:, 1] += 0.7 * race + np.cumsum(rng.standard_normal(n)) * 0.3
    X[:, 2] += 1.5 * real**2
    labels = {"real": real, "age": age, "race": race}
    for name in ("real", "age"):
        gaps = labels[name].copy()
        gaps[rng.permutation(n)[: n // 8]] = np.nan
        labels[name + "_gaps"] = gaps
    gaps = race.astype(object)
    gaps[rng.permutation(n)[: n // 8]] = None
    labels["race_gaps"] = gaps
    weights = rng.choice([0.0, 0.5, 1.0, 2.0, 3.25], n)
    recording = np.repeat([5, 2, 9, 4], [n // 2, 1, n // 4, n - n // 2 - 1 - n // 4])
    return X, labels, weights, recording


X, LABELS, WEIGHTS, RECORDING = _data()


def _cases():
    """name -> (arguments of fit, dense graph, sample weights)"""
    L, w = LABELS, WEIGHTS
    one_label = {
        "clustered": (ClusteredGraph("race_gaps"), lambda w: dense_clustered(L["race_gaps"], w)),
        "clustered, many classes": (ClusteredGraph("age"), lambda w: dense_clustered(L["age"], w)),
        "self-loops": (ClusteredGraph("race", True), lambda w: dense_clustered(L["race"], w, self_loops=True)),
        "serial": (SerialGraph("real_gaps", n_groups=8), lambda w: dense_serial(L["real_gaps"], 8, w)),
        "serial with ties": (SerialGraph("age_gaps", n_groups=7), lambda w: dense_serial(L["age_gaps"], 7, w)),
        "mixed with ties": (MixedGraph("age_gaps", n_groups=7), lambda w: dense_mixed(L["age_gaps"], 7, w)),
        "sum of label graphs": (
            SerialGraph("age_gaps", n_groups=7) + 0.5 * ClusteredGraph("race_gaps") + MixedGraph("real", n_groups=5),
            lambda w: add_dense(
                dense_serial(L["age_gaps"], 7, w),
                scale_dense(0.5, dense_clustered(L["race_gaps"], w)),
                dense_mixed(L["real"], 5, w),
            ),
        ),
    }
    cases = {}
    for name, (recipe, dense) in one_label.items():
        cases[name] = (dict(y=L, graph=recipe), dense(None), None)
        cases[name + ", weighted"] = (dict(y=L, graph=recipe, sample_weight=w), dense(w), w)
    for d, mirrored in ((3, False), (6, True)):
        recipe = WindowGraph("real_gaps", half_width=d, mirrored=mirrored)
        cases[f"label window {d}"] = (dict(y=L, graph=recipe), dense_label_window(L["real_gaps"], d, mirrored), None)
        recipe = WindowGraph(half_width=d, mirrored=mirrored)
        dense = dense_time_window(N, d, mirrored, RECORDING)
        cases[f"time window {d}"] = (dict(graph=recipe, groups=RECORDING), dense, None)
    for lag in (1, 4):
        dense = dense_sequence(N, lag, RECORDING)
        cases[f"sequence, lag {lag}"] = (dict(graph=SequenceGraph(lag), groups=RECORDING), dense, None)
    for lag, by_degree in ((3, True), ([1, 2, 7], False), ([2, 1, 5], True)):
        recipe = SequenceGraph(lag, "degree" if by_degree else None)
        dense = dense_sequence(N, lag, RECORDING, w, by_degree=by_degree)
        given = dict(graph=recipe, groups=RECORDING, sample_weight=w)
        cases[f"{recipe}, weighted"] = (given, dense, w)
    rng = np.random.default_rng(1)
    gamma = np.triu(rng.uniform(0, 1, (N, N)) * (rng.random((N, N)) < 0.2), 1)
    gamma, v = gamma + gamma.T, rng.uniform(0.5, 2, N)
    cases["edges"] = (dict(graph=EdgeGraph(sp.csr_array(gamma), v)), (v, gamma), None)
    given = dict(graph=EdgeGraph(sp.csr_array(gamma), v), sample_weight=w)
    cases["edges, weighted"] = (given, (w * v, gamma * (w @ v) / gamma.sum()), w)
    recipe = (
        SerialGraph("age", n_groups=6)
        + ClusteredGraph("race_gaps")
        + MixedGraph("age_gaps", n_groups=4)
        + 0.3 * WindowGraph("real", half_width=4)
        + 2.0 * SequenceGraph()
        + EdgeGraph(sp.csr_array(gamma), v)
    )
    dense = add_dense(
        dense_serial(L["age"], 6),
        dense_clustered(L["race_gaps"]),
        dense_mixed(L["age_gaps"], 4),
        scale_dense(0.3, dense_label_window(L["real"], 4)),
        scale_dense(2.0, dense_sequence(N, 1, RECORDING)),
        (v, gamma * v.sum() / gamma.sum()),
    )
    cases["sum of all kinds"] = (dict(y=L, graph=recipe, groups=RECORDING), dense, None)
    return cases


CASES = _cases()
every_graph = pytest.mark.parametrize(("given", "dense", "w"), CASES.values(), ids=CASES.keys())


def _centred(X, w=None):
    w = np.ones(len(X)) if w is None else w
    return X - w @ X / w.sum()


# --- GSFA is brute force over all edges -------------------------------------------------------------------


@pytest.mark.parametrize("expansion", EXPANSIONS)
@every_graph
def test_gsfa_equals_brute_force_over_all_edges(given, dense, w, expansion):
    v, gamma = dense
    # Samples of weight 0 are as good as absent: they do not widen the range that inputs are clipped to.
    model = GSFA(expansion=expansion, clip_range=False).fit(X, **given)
    Y = model.transform(X)
    Z = expand(expansion, _centred(X, w))
    reference = dense_gsfa(Z, v, gamma)
    assert model.rank_ == model.n_components_ == Z.shape[1]
    np.testing.assert_allclose(model.delta_values_, reference.deltas, rtol=0, atol=1e-9)
    assert_same_features(Y, reference(Z), reference.deltas, atol=1e-9)


@pytest.mark.parametrize("expansion", EXPANSIONS)
@every_graph
def test_features_obey_the_constraints_and_have_the_delta_they_claim(given, dense, w, expansion):
    v, gamma = dense
    # In time a sample of weight 0 keeps its edges, but does not widen the range that inputs are clipped to.
    is_time = isinstance(given["graph"], SequenceGraph)
    model = GSFA(expansion=expansion, clip_range=w is None or not is_time).fit(X, **given)
    Y = model.transform(X)
    covariance, mean = constraint_matrix(Y, v)
    np.testing.assert_allclose(covariance, np.eye(Y.shape[1]), atol=1e-9)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    np.testing.assert_allclose(dense_delta(Y, v, gamma), model.delta_values_, rtol=0, atol=1e-9)
    assert np.all(np.diff(model.delta_values_) >= -1e-12)


@every_graph
def test_delta_lies_between_zero_and_four_on_consistent_graphs(given, dense, w):
    v, gamma = dense
    if np.allclose(v / v.sum(), gamma.sum(axis=1) / gamma.sum()) and np.all(gamma >= 0):
        deltas = GSFA(expansion="identity | quadratic").fit(X, **given).delta_values_
        assert np.all((deltas >= 0) & (deltas <= 4))


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("n_components", range(1, 10))
def test_features_of_tied_delta_values_are_decorrelated(n_components, self_loops):
    """Eigensolvers that look for a few eigenvectors only may return skewed ones where eigenvalues are equal."""
    data, y = np.eye(21)[:, :10], np.repeat(np.arange(7), 3)
    model = GSFA(n_components, graph=ClusteredGraph(self_loops=self_loops)).fit(data, y)
    Y = model.transform(data)
    v, gamma = dense_clustered(y, self_loops=self_loops)
    covariance, mean = constraint_matrix(Y, v)
    np.testing.assert_allclose(covariance, np.eye(n_components), atol=1e-9)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    np.testing.assert_allclose(dense_delta(Y, v, gamma), model.delta_values_, atol=1e-9)


def test_a_graph_built_beforehand_gives_the_same_model():
    recipe = SerialGraph("age", n_groups=6) + ClusteredGraph("race")
    built = recipe.build(LABELS)
    one, other = GSFA(graph=recipe).fit(X, LABELS), GSFA().fit(X, graph=built)
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*different whole numbers")
def test_auto_is_clustered_for_classes_and_of_ranks_for_numbers():
    y = LABELS["race"]
    names = np.array(["b", "w", "o"])[y]
    many = 3 * (np.arange(N) % 25)  # with gaps, so not codes of classes
    for labels, recipe in (
        (y, ClusteredGraph()),
        (names, ClusteredGraph()),
        (names.astype(object), ClusteredGraph()),
        (y > 0, ClusteredGraph()),
        (LABELS["real"], number_graph()),
        (many, number_graph()),
        ({"race": y, "real": LABELS["real"]}, ClusteredGraph("race") + number_graph("real")),
        (pd.DataFrame({"real": LABELS["real"], "name": names}), number_graph("real") + ClusteredGraph("name")),
    ):
        auto, explicit = GSFA().fit(X, labels), GSFA(graph=recipe).fit(X, labels)
        np.testing.assert_allclose(auto.transform(X), explicit.transform(X), atol=1e-10)


@pytest.mark.parametrize("n", [9, 20, 63, 64, N])
def test_default_number_of_groups_is_32_or_half_the_samples(n):
    y, data = LABELS["real"][:n], X[:n, :2]
    for name, graph in (("serial", SerialGraph), ("mixed", MixedGraph)):
        default, explicit = GSFA(graph=name).fit(data, y), GSFA(graph=graph(n_groups=min(32, n // 2))).fit(data, y)
        np.testing.assert_allclose(default.transform(data), explicit.transform(data), atol=1e-10)


def test_fewer_components_are_the_first_of_all():
    full = GSFA(expansion="identity | quadratic", graph="serial").fit(X, LABELS["real"])
    few = GSFA(3, expansion="identity | quadratic", graph="serial").fit(X, LABELS["real"])
    assert few.transform(X).shape == (N, 3)
    np.testing.assert_allclose(few.transform(X), full.transform(X)[:, :3], atol=1e-12)
    np.testing.assert_allclose(few.delta_values_, full.delta_values_[:3], atol=1e-12)


@pytest.mark.parametrize("lag", [1, 2, 7])
@pytest.mark.parametrize("groups", [None, RECORDING], ids=["one recording", "recordings"])
@pytest.mark.parametrize("expansion", EXPANSIONS)
def test_sequence_graph_equals_classical_sfa(expansion, groups, lag):
    Z = expand(expansion, _centred(X))
    reference = classical_sfa(Z, lag, groups)
    sfa = SFA(expansion=expansion, lag=lag).fit(X, groups=groups)
    gsfa = GSFA(expansion=expansion, graph=SequenceGraph(lag)).fit(X, groups=groups)
    for model in (sfa, gsfa):
        np.testing.assert_allclose(model.delta_values_, reference.deltas, rtol=0, atol=1e-9)
        assert_same_features(model.transform(X), reference(Z), reference.deltas, atol=1e-9)


def test_linear_reconstruction_of_gsfa_is_the_least_squares_one():
    model = GSFA(3, expansion="identity | quadratic", graph="serial").fit(X, LABELS["real"])
    Y = model.transform(X)
    design = np.column_stack([Y, np.ones(N)])
    expected = design @ np.linalg.lstsq(design, X, rcond=None)[0]
    np.testing.assert_allclose(model.inverse_transform(Y), expected, atol=1e-9)


# --- iGSFA is Algorithms 1-3 of the paper, executed sample by sample ------------------------------------


def _literal(kind, weighted_samples):
    y, w = LABELS, WEIGHTS if weighted_samples else None
    if kind == "clustered":
        return dict(y=y, graph=ClusteredGraph("race_gaps"), sample_weight=w), dense_clustered(y["race_gaps"], w)
    if kind == "serial":
        return dict(y=y, graph=SerialGraph("age_gaps", 7), sample_weight=w), dense_serial(y["age_gaps"], 7, w)
    recipe = MixedGraph("age_gaps", 5) + 0.5 * ClusteredGraph("race")
    dense = add_dense(dense_mixed(y["age_gaps"], 5, w), scale_dense(0.5, dense_clustered(y["race"], w)))
    return dict(y=y, graph=recipe, sample_weight=w), dense


@pytest.mark.parametrize(
    "part", [dict(delta_threshold=1.96), dict(n_slow=2), dict(delta_threshold=1.2), dict(n_slow=1)]
)
@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("kind", ["clustered", "serial", "sum"])
@pytest.mark.parametrize("weighted_samples", [False, True], ids=["ones", "sample_weight"])
def test_one_pass_equals_the_algorithms_run_literally(kind, weighted_samples, expansion, weighted, scaling, part):
    given, (v, gamma) = _literal(kind, weighted_samples)
    D = 4
    model = IGSFA(D, expansion=expansion, scaling=scaling, weighted=weighted, min_scale=0.0, clip_range=False, **part)
    model.fit(X, **given)
    literal = LiteralIGSFA(
        X, v, gamma, expansion, D, scaling=scaling, weighted=weighted, sample_weight=given["sample_weight"], **part
    )
    assert model.n_slow_ == literal.J
    np.testing.assert_allclose(model.delta_values_, literal.gsfa.deltas, rtol=0, atol=1e-9)
    new = X[:20] + np.random.default_rng(2).standard_normal((20, I))
    both = np.concatenate([X, new])
    expected = literal.extract_all(both)
    Y = model.transform(both)
    assert_same_up_to_sign(Y, expected, atol=1e-8)
    np.testing.assert_allclose(model.inverse_transform(Y), literal.reconstruct_all(expected), rtol=0, atol=1e-8)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("groups", [None, RECORDING], ids=["one recording", "recordings"])
def test_isfa_equals_the_algorithms_run_literally(groups, expansion, scaling):
    v, gamma = dense_sequence(N, 2, groups)
    model = ISFA(3, lag=2, expansion=expansion, scaling=scaling).fit(X, groups=groups)
    literal = LiteralIGSFA(X, v, gamma, expansion, 3, scaling=scaling)
    assert 0 < literal.J == model.n_slow_ < 3
    Y = model.transform(X)
    assert_same_up_to_sign(Y, literal.extract_all(X), atol=1e-8)
    np.testing.assert_allclose(model.inverse_transform(Y), literal.reconstruct_all(literal.extract_all(X)), atol=1e-8)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_more_slow_features_than_inputs_still_predict_the_input_as_well_as_they_can(scaling):
    """M has more columns than rows: R of its QR decomposition alone would lose features."""
    J, D, y = 7, 9, LABELS["real"]
    graph = dense_label_window(y, 4)
    literal = LiteralIGSFA(X, *graph, "identity | quadratic", D, n_slow=J)
    model = IGSFA(D, expansion="identity | quadratic", graph=WindowGraph(half_width=4), n_slow=J, scaling=scaling)
    Y = model.fit(X, y).transform(X)
    expected = literal.extract_all(X)
    np.testing.assert_allclose(model.inverse_transform(Y), literal.reconstruct_all(expected), atol=1e-8)
    assert_same_up_to_sign(Y[:, J:], expected[:, J:], atol=1e-8)
    assert_same_span(Y[:, :J], expected[:, :J], atol=1e-6)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_scales_without_a_lower_bound_are_refused_or_harmless(scaling):
    model = IGSFA(8, expansion="identity | quadratic", graph="serial", delta_threshold=4.0, scaling=scaling)
    model.set_params(min_scale=0.0)
    try:
        model.fit(X, LABELS["real"])
    except ValueError as error:
        assert "min_scale" in str(error)  # noqa: PT017  either is fine
    else:
        Y = model.transform(X)
        assert np.all(np.isfinite(Y))
        assert np.all(np.isfinite(model.inverse_transform(Y)))


def test_missing_inputs_of_the_expansion_are_still_reconstructed():
    """power0.8[:3] contains no input at all, and nothing of the fourth: PCA of the residual brings all back."""
    model = IGSFA(expansion="power0.8[:3]", graph="serial").fit(X, LABELS["real"])
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-8)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
@pytest.mark.parametrize("n_slow", [0, 1, 2])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic", "power0.8"])
def test_inverse_is_exact_with_enough_components(expansion, n_slow, scaling):
    n_components = I if expansion == "identity" else I + n_slow
    model = IGSFA(n_components, expansion=expansion, graph="serial", n_slow=n_slow, scaling=scaling)
    model.fit(X, LABELS["real"])
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-8)
    assert model.n_slow_ == n_slow


def test_reconstruction_gets_better_with_every_component():
    errors = []
    for D in range(1, 8):
        model = IGSFA(D, expansion="identity | quadratic", graph="serial", n_slow=1).fit(X, LABELS["real"])
        errors.append(np.sum((model.inverse_transform(model.transform(X)) - X) ** 2))
        if D == I + 1:
            break
    assert np.all(np.diff(errors) < 0)
    assert errors[-1] < 1e-12 * errors[0]


def test_reconstructive_part_is_decorrelated_from_the_slow_part():
    model = IGSFA(4, expansion="identity | quadratic", graph="serial", n_slow=2).fit(X, LABELS["real"])
    correlation = np.corrcoef(model.transform(X).T)
    np.testing.assert_allclose(correlation[:2, 2:], 0, atol=1e-10)
    np.testing.assert_allclose(correlation[2, 3], 0, atol=1e-10)


# --- scikit-learn's estimators are special cases ------------------------------------------------------------


def _classes(sizes, n_inputs=5, seed=3):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(y), n_inputs)) @ rng.standard_normal((n_inputs, n_inputs))
    X += rng.standard_normal((len(sizes), n_inputs))[y] * 1.5
    order = rng.permutation(len(y))
    return X[order], y[order]


@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
@pytest.mark.parametrize(("sizes", "self_loops"), [([30] * 4, False), ([30] * 4, True), ([12, 50, 31, 27], True)])
def test_clustered_graph_spans_the_subspace_of_lda(sizes, self_loops, expansion):
    X, y = _classes(sizes)
    k = len(sizes) - 1
    model = GSFA(k, graph=ClusteredGraph(self_loops=self_loops), expansion=expansion).fit(X, y)
    Z = expand(expansion, _centred(X))
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(Z, y)
    assert_same_span(model.transform(X), lda.transform(Z)[:, :k], atol=1e-7)


def test_lda_directions_come_in_the_same_order():
    X, y = _classes([30, 30, 30, 30])
    model = GSFA(3, graph="clustered").fit(X, y)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    Y = lda.transform(X)
    for j in range(3):
        assert abs(np.corrcoef(model.transform(X)[:, j], Y[:, j])[0, 1]) > 1 - 1e-9


@pytest.mark.parametrize("threshold", [-1.0, -1e-9])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic", "power0.8[:3]"])
def test_negative_threshold_equals_pca(expansion, threshold):
    model = IGSFA(3, expansion=expansion, graph="serial", delta_threshold=threshold).fit(X, LABELS["real"])
    pca = PCA(3).fit(X)
    assert model.n_slow_ == 0
    assert_same_up_to_sign(model.transform(X), pca.transform(X), atol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X)), pca.inverse_transform(pca.transform(X)), atol=1e-9
    )
    series = ISFA(3, expansion=expansion, delta_threshold=threshold).fit(X)
    assert_same_up_to_sign(series.transform(X), pca.transform(X), atol=1e-9)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
@pytest.mark.parametrize("threshold", [4.0, 5, np.float64(100)])
def test_threshold_of_four_or_more_spans_the_gsfa_features(threshold, scaling):
    for expansion, D in (("identity", 3), ("identity | quadratic", 4)):
        gsfa = GSFA(D, expansion=expansion, graph="serial").fit(X, LABELS["real"])
        igsfa = IGSFA(D, expansion=expansion, graph="serial", delta_threshold=threshold, scaling=scaling)
        igsfa.fit(X, LABELS["real"])
        assert igsfa.n_slow_ == igsfa.n_components_ == D
        assert_same_span(igsfa.transform(X), gsfa.transform(X), atol=1e-8)


# --- how many features are slow ---------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 1.96, 4.0])
@pytest.mark.parametrize("n_slow", [0, 1, 2, 3])
def test_n_slow_wins_over_the_threshold(n_slow, threshold):
    model = IGSFA(4, expansion="identity | quadratic", graph="serial", n_slow=n_slow, delta_threshold=threshold)
    assert model.fit(X, LABELS["real"]).n_slow_ == n_slow
    assert model.n_components_ == 4


@pytest.mark.parametrize("threshold", [0.3, 1.0, 1.5, 1.96, 2.2, 3.9])
@pytest.mark.parametrize("D", [1, 2, 4])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic", "power0.8[:3]"])
def test_threshold_counts_slow_features_and_leaves_room_for_one_component(expansion, D, threshold):
    model = IGSFA(D, expansion=expansion, graph="serial", delta_threshold=threshold).fit(X, LABELS["real"])
    n_expanded = expand(expansion, X).shape[1]
    below = int(np.sum(model.delta_values_ < threshold))
    assert model.n_slow_ == min(below, min(n_expanded, D) - 1)
    assert model.n_components_ == D
    assert list(model.get_feature_names_out()) == [f"igsfa_slow{j}" for j in range(model.n_slow_)] + [
        f"igsfa_rec{j}" for j in range(D - model.n_slow_)
    ]


def test_slow_part_grows_where_the_residual_has_too_few_components():
    model = IGSFA(7, expansion="identity | quadratic", graph="serial", delta_threshold=-1.0).fit(X, LABELS["real"])
    assert model.n_components_ == 7
    assert model.n_slow_ == 7 - I
    assert np.all(model.transform(X).std(axis=0) > 0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-8)


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_features_that_reconstruct_nothing_still_have_an_amplitude(scaling):
    """x is symmetric about 0, so x^2 tells nothing about x linearly: its scale would be 0 without a lower bound."""
    half = np.random.default_rng(4).standard_normal((60, 2))
    X = np.concatenate([half, -half])
    y = (X**2).sum(axis=1)
    model = IGSFA(3, expansion="quadratic", graph="serial", n_slow=1, min_scale=1e-2, scaling=scaling).fit(X, y)
    spread = model.transform(X).std(axis=0)
    assert 0 < spread[0] < 0.1 * spread.max()
    assert spread[0] > 0.5e-2 * spread.max()
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-8)


def test_sensitivity_scaling_only_scales_and_qr_is_a_rotation_of_the_prediction():
    given = dict(expansion="identity | quadratic", graph="serial", n_slow=3)
    slow = GSFA(3, expansion="identity | quadratic", graph="serial").fit(X, LABELS["real"]).transform(X)
    plain = IGSFA(5, **given).fit(X, LABELS["real"])
    scaled = plain.transform(X)[:, :3]
    for j in range(3):
        assert abs(np.corrcoef(slow[:, j], scaled[:, j])[0, 1]) > 1 - 1e-10
    mixed = IGSFA(5, scaling="qr", **given).fit(X, LABELS["real"]).transform(X)[:, :3]
    design = np.column_stack([slow, np.ones(N)])
    prediction = design @ np.linalg.lstsq(design, X, rcond=None)[0]
    a, b = mixed - mixed.mean(axis=0), prediction - prediction.mean(axis=0)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)


# --- weights, rows, scales ----------------------------------------------------------------------------------

LABEL_RECIPES = {
    "clustered": ClusteredGraph("race"),
    "self-loops": ClusteredGraph("race", self_loops=True),
    "serial": SerialGraph("age", n_groups=7),
    "mixed": MixedGraph("age", n_groups=7),
    "sum": SerialGraph("age", n_groups=7) + 0.5 * ClusteredGraph("race") + MixedGraph("real", n_groups=5),
    "gaps": SerialGraph("age_gaps", n_groups=7) + ClusteredGraph("race_gaps"),
}
every_recipe = pytest.mark.parametrize("recipe", LABEL_RECIPES.values(), ids=LABEL_RECIPES.keys())
MODELS = {
    "GSFA": lambda **given: GSFA(expansion="identity | quadratic", **given),
    "IGSFA": lambda **given: IGSFA(5, expansion="identity | power0.8", n_slow=2, **given),
    "IGSFA weighted qr": lambda **given: IGSFA(3, scaling="qr", weighted=True, n_slow=2, **given),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def _rows(labels, rows):
    return {name: values[rows] for name, values in labels.items()}


@every_recipe
@every_model
def test_weight_k_equals_k_copies(make, recipe):
    k = np.random.default_rng(5).integers(0, 4, N)
    copies = np.repeat(np.arange(N), k)
    weighted = make(graph=recipe).fit(X, LABELS, sample_weight=k)
    copied = make(graph=recipe).fit(X[copies], _rows(LABELS, copies))
    np.testing.assert_allclose(weighted.delta_values_, copied.delta_values_, rtol=0, atol=1e-9)
    inside = X[k > 0]
    np.testing.assert_allclose(weighted.transform(inside), copied.transform(inside), rtol=0, atol=1e-9)


@every_recipe
@every_model
def test_permuting_rows_changes_nothing_ties_included(make, recipe):
    order = np.random.default_rng(6).permutation(N)
    for w in (np.ones(N), WEIGHTS):
        one = make(graph=recipe).fit(X, LABELS, sample_weight=w)
        other = make(graph=recipe).fit(X[order], _rows(LABELS, order), sample_weight=w[order])
        np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=1e-9)
        np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=1e-9)


@every_recipe
@every_model
def test_scaling_all_weights_of_a_graph_changes_nothing(make, recipe):
    one, other = make(graph=recipe).fit(X, LABELS), make(graph=1e3 * recipe).fit(X, LABELS)
    np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1e8, 1e20])
@every_recipe
def test_units_change_nothing_but_the_units_of_the_output(recipe, scale):
    for expansion in ("identity", "identity | quadratic", "identity | power0.8 | quadratic"):
        one = GSFA(expansion=expansion, graph=recipe).fit(X, LABELS)
        other = GSFA(expansion=expansion, graph=recipe).fit(X * scale, LABELS)
        assert one.rank_ == other.rank_
        np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=1e-9)
        np.testing.assert_allclose(one.transform(X), other.transform(X * scale), rtol=0, atol=1e-8)
        one = IGSFA(4, expansion=expansion, graph=recipe).fit(X, LABELS)
        other = IGSFA(4, expansion=expansion, graph=recipe).fit(X * scale, LABELS)
        assert one.n_slow_ == other.n_slow_
        Y = other.transform(X * scale)
        np.testing.assert_allclose(one.transform(X), Y / scale, rtol=0, atol=1e-8)
        np.testing.assert_allclose(
            one.inverse_transform(one.transform(X)), other.inverse_transform(Y) / scale, rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_units_of_single_inputs_change_nothing_in_gsfa(scale):
    units = np.array([1.0, scale, 1e-3, 1e5])
    for expansion in ("identity", "identity | quadratic", "identity | power0.8"):
        one = GSFA(expansion=expansion, graph="serial").fit(X, LABELS["real"])
        other = GSFA(expansion=expansion, graph="serial").fit(X * units, LABELS["real"])
        assert_same_up_to_sign(one.transform(X), other.transform(X * units), atol=1e-8)
        one, other = SFA(expansion=expansion).fit(X), SFA(expansion=expansion).fit(X * units)
        assert_same_up_to_sign(one.transform(X), other.transform(X * units), atol=1e-8)


@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic", "identity | power0.8"])
def test_adding_a_constant_changes_nothing(expansion, offset):
    exact = np.round(X * 1024) / 1024  # so that the sum is exact in binary
    y = LABELS["real"]
    for fit in (
        lambda X: GSFA(expansion=expansion, graph="serial").fit(X, y),
        lambda X: SFA(expansion=expansion).fit(X),
        lambda X: IGSFA(3, expansion=expansion, graph="serial").fit(X, y),
        lambda X: IGSFA(3, expansion=expansion, graph="serial", scaling="qr", weighted=True).fit(X, y),
    ):
        one, other = fit(exact), fit(exact + offset)
        np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(one.transform(exact), other.transform(exact + offset), rtol=0, atol=1e-7)


def test_float32_gives_float32_near_the_float64_model():
    double = IGSFA(4, expansion="identity | quadratic", graph="serial", n_slow=2).fit(X, LABELS["real"])
    single = IGSFA(4, expansion="identity | quadratic", graph="serial", n_slow=2)
    Y = single.fit(X.astype(np.float32), LABELS["real"]).transform(X.astype(np.float32))
    assert Y.dtype == np.float32
    assert single.inverse_transform(Y).dtype == np.float32
    np.testing.assert_allclose(Y, double.transform(X), atol=1e-2)


@pytest.mark.parametrize("expansion", ["identity | quadratic", "identity | power0.8"])
def test_new_samples_are_clipped_to_the_range_of_the_training_data(expansion):
    y = LABELS["real"]
    new = X * 3 + 1
    clipped = np.clip(new, X.min(axis=0), X.max(axis=0))
    on = IGSFA(3, expansion=expansion, graph="serial").fit(X, y)
    off = IGSFA(3, expansion=expansion, graph="serial", clip_range=False).fit(X, y)
    np.testing.assert_allclose(on.transform(new), off.transform(clipped), atol=1e-10)
    np.testing.assert_allclose(on.transform(X), off.transform(X), atol=1e-10)
    linear = IGSFA(3, graph="serial").fit(X, y)
    steps = linear.transform(X + 1e3) - linear.transform(X)
    np.testing.assert_allclose(steps, np.broadcast_to(steps[0], steps.shape), atol=1e-8)


@pytest.mark.parametrize("weights", ["whole", "many different"])
@every_recipe
def test_samples_of_weight_zero_do_not_widen_the_range(recipe, weights):
    w = np.ones(N) if weights == "whole" else np.random.default_rng(12).uniform(0.5, 2, N)
    absent = [3, 40]
    data, w[absent] = X.copy(), 0.0
    data[absent] = 1e3
    kept = w > 0
    given = dict(expansion="identity | quadratic", graph=recipe)
    one = GSFA(3, **given).fit(data, LABELS, sample_weight=w)
    other = GSFA(3, **given).fit(data[kept], _rows(LABELS, kept), sample_weight=w[kept])
    np.testing.assert_allclose(one.transform(data), other.transform(data), rtol=0, atol=1e-8)


# --- singular data --------------------------------------------------------------------------------------------


def _assert_sound(model, X, v, gamma, rank):
    """Finite features, constraints on the kept rank, and the Delta values they claim."""
    Y = model.transform(X)
    assert np.all(np.isfinite(Y))
    assert model.rank_ == rank
    assert Y.shape[1] == model.n_components_ == rank
    covariance, mean = constraint_matrix(Y, v)
    np.testing.assert_allclose(covariance, np.eye(rank), atol=1e-7)
    np.testing.assert_allclose(mean, 0, atol=1e-7)
    np.testing.assert_allclose(dense_delta(Y, v, gamma), model.delta_values_, atol=1e-7)


def _singular():
    rng = np.random.default_rng(7)
    mix = X @ rng.standard_normal((I, 3))
    return {
        "duplicated columns": (np.column_stack([X, X]), I),
        "constant columns": (np.column_stack([np.full(N, 3.0), X, np.zeros(N), np.full(N, 1e6)]), I),
        "large constant with a fraction": (np.column_stack([np.full(N, 1e6 + 0.1), X, np.full(N, -1 / 3)]), I),
        "collinear columns": (np.column_stack([X, mix]), I),
        "other units": (np.column_stack([X, X * 1e-9, X * 1e9 + 1e10]), I),
        "a single column": (X[:, :1], 1),
    }


@pytest.mark.parametrize("name", _singular())
@pytest.mark.parametrize("kind", ["serial", "clustered", "sequence", "window"])
def test_singular_covariances_give_finite_features_of_the_right_rank(kind, name):
    data, rank = _singular()[name]
    race, real = LABELS["race"], LABELS["real"]
    if kind == "sequence":
        _assert_sound(SFA().fit(data), data, *dense_sequence(N), rank)
    else:
        recipe, y, dense = {
            "serial": (SerialGraph(n_groups=6), real, dense_serial(real, 6)),
            "clustered": (ClusteredGraph(), race, dense_clustered(race)),
            "window": (WindowGraph(half_width=4), real, dense_label_window(real, 4)),
        }[kind]
        _assert_sound(GSFA(graph=recipe).fit(data, y), data, *dense, rank)


@pytest.mark.parametrize("name", ["duplicated columns", "constant columns", "collinear columns"])
@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_singular_inputs_are_reconstructed(name, scaling):
    data, rank = _singular()[name]
    for expansion in ("identity", "identity | quadratic"):
        model = IGSFA(expansion=expansion, graph="serial", n_slow=2, scaling=scaling).fit(data, LABELS["real"])
        Y = model.transform(data)
        assert np.all(np.isfinite(Y))
        assert Y.shape[1] == (rank if expansion == "identity" else rank + 2)
        np.testing.assert_allclose(model.inverse_transform(Y), data, atol=1e-7)


def test_fewer_samples_than_variables_give_rank_n_minus_one():
    rng = np.random.default_rng(8)
    few, y = rng.standard_normal((14, 30)), np.repeat([0, 1], 7)
    _assert_sound(GSFA(graph="clustered").fit(few, y), few, *dense_clustered(y), 13)
    real = rng.standard_normal(14)
    _assert_sound(GSFA(graph=SerialGraph(n_groups=4)).fit(few, real), few, *dense_serial(real, 4), 13)
    _assert_sound(SFA().fit(few), few, *dense_sequence(14), 13)
    model = IGSFA(graph="clustered").fit(few, y)
    np.testing.assert_allclose(model.inverse_transform(model.transform(few)), few, atol=1e-8)


def test_fewer_samples_than_expanded_variables():
    rng = np.random.default_rng(9)
    few, real = rng.standard_normal((12, 5)), rng.standard_normal(12)
    model = GSFA(expansion="identity | quadratic", graph=SerialGraph(n_groups=3)).fit(few, real)
    _assert_sound(model, few, *dense_serial(real, 3), 11)


def test_asking_for_more_components_than_the_rank_warns_and_gives_the_rank():
    data = np.column_stack([X, X])
    with pytest.warns(UserWarning, match="n_components"):
        model = GSFA(6, graph="serial").fit(data, LABELS["real"])
    assert model.n_components_ == I
    assert np.all(np.isfinite(model.transform(data)))


def test_constant_data_never_fail_and_never_give_nan():
    constant = np.full((20, 3), 7.25)
    y = np.repeat([0, 1], 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for model in (GSFA(graph="clustered"), IGSFA(graph="clustered"), IGSFA(2, graph="clustered")):
            model.fit(constant, y)
            assert model.rank_ == 0
            assert np.all(np.isfinite(model.transform(constant)))
            restored = model.inverse_transform(model.transform(constant)) if model.n_components_ else constant
            np.testing.assert_allclose(restored, constant)


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("name", ["duplicated columns", "constant columns", "collinear columns"])
def test_singular_single_precision_data_give_the_right_rank(name, offset):
    data, rank = _singular()[name]
    data = (np.round(data * 64) / 64 + offset).astype(np.float32)
    if name == "collinear columns":
        data = np.column_stack([data[:, :I], data[:, :2] + data[:, 2:4]])
    race, real = LABELS["race"], LABELS["real"]
    for model, v in (
        (GSFA(graph="clustered").fit(data, race), dense_clustered(race)[0]),
        (GSFA(graph=SerialGraph(n_groups=6)).fit(data, real), dense_serial(real, 6)[0]),
        (SFA().fit(data), np.ones(N)),
    ):
        assert model.rank_ == rank
        covariance, mean = constraint_matrix(model.transform(data).astype(float), v)
        np.testing.assert_allclose(covariance, np.eye(rank), atol=2e-3)
        np.testing.assert_allclose(mean, 0, atol=2e-3)


def test_noise_has_delta_two():
    rng = np.random.default_rng(10)
    noise = rng.standard_normal((4000, 5))
    for deltas in (
        SFA().fit(noise).delta_values_,
        GSFA(graph="clustered").fit(noise, rng.integers(0, 4, 4000)).delta_values_,
        GSFA(graph=SerialGraph(n_groups=10)).fit(noise, rng.standard_normal(4000)).delta_values_,
        GSFA(graph=MixedGraph(n_groups=10)).fit(noise, rng.standard_normal(4000)).delta_values_,
    ):
        np.testing.assert_allclose(deltas, 2.0, atol=0.15)
        assert deltas.mean() == pytest.approx(2.0, abs=0.05)


# --- parts of the data ----------------------------------------------------------------------------------------


def _cuts(n, pattern):
    return {
        "single rows": list(range(n + 1)),
        "halves": [0, n // 2, n],
        "uneven": [0, 1, 2, 30, 33, 61, n],
    }[pattern]


@pytest.mark.parametrize("pattern", ["single rows", "halves", "uneven"])
@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
@pytest.mark.parametrize("weighted", [False, True])
def test_partial_fit_on_classes_equals_fit_whatever_the_batches(pattern, preserve, expansion, weighted):
    center = None if expansion == "identity" else X.mean(axis=0) + 0.1
    y, w = LABELS["race_gaps"], WEIGHTS if weighted else None
    make = (lambda **g: IGSFA(3, n_slow=2, **g)) if preserve else (lambda **g: GSFA(3, **g))
    whole = make(graph="clustered", expansion=expansion, center=center).fit(X, y, sample_weight=w)
    parts = make(graph="clustered", expansion=expansion, center=center)
    cuts = _cuts(N, pattern)
    order = np.random.default_rng(11).permutation(N)  # samples of classes may come in any order
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the first rows have a low rank
        for a, b in pairwise(cuts):
            rows = order[a:b]
            if w is None or w[rows].any():
                parts.partial_fit(X[rows], y[rows], None if w is None else w[rows])
    seen = X if w is None else X[w > 0]
    np.testing.assert_allclose(parts.delta_values_, whole.delta_values_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(parts.transform(seen), whole.transform(seen), rtol=0, atol=1e-10)


@pytest.mark.parametrize("pattern", ["single rows", "halves", "uneven"])
@pytest.mark.parametrize("groups", [None, RECORDING], ids=["one recording", "recordings"])
@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
def test_partial_fit_on_time_equals_fit_whatever_the_batches(pattern, groups, lag, expansion):
    center = None if expansion == "identity" else X.mean(axis=0) + 0.1
    for make in (SFA, lambda n, **given: ISFA(n, n_slow=2, **given)):
        whole = make(3, lag=lag, expansion=expansion, center=center).fit(X, groups=groups)
        parts = make(3, lag=lag, expansion=expansion, center=center)
        cuts = _cuts(N, pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the first rows have a low rank
            for a, b in pairwise(cuts):
                parts.partial_fit(X[a:b], groups=None if groups is None else groups[a:b])
        np.testing.assert_allclose(parts.delta_values_, whole.delta_values_, rtol=0, atol=1e-10)
        np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
def test_statistics_of_parts_add_up_to_those_of_the_whole(expansion):
    center = None if expansion == "identity" else X.mean(axis=0)
    given = dict(expansion=expansion, center=center)
    y = LABELS["race"]
    for make in (
        lambda: GSFA(3, graph="clustered", **given),
        lambda: IGSFA(3, graph="clustered", n_slow=1, scaling="qr", **given),
    ):
        whole = make().fit(X, y)
        a, b, c = (make().fit(X[rows], y[rows]).statistics_ for rows in (slice(0, 20), slice(20, 50), slice(50, N)))
        for merged in ((a + b) + c, a + (b + c), c + a + b):
            model = make().fit_from_statistics(merged)
            np.testing.assert_allclose(model.delta_values_, whole.delta_values_, rtol=0, atol=1e-10)
            np.testing.assert_allclose(model.transform(X), whole.transform(X), rtol=0, atol=1e-10)
    groups = np.repeat([0, 1, 2], [20, 30, 30])
    for make in (lambda: SFA(3, **given), lambda: ISFA(3, n_slow=1, **given)):
        whole = make().fit(X, groups=groups)
        a, b, c = (make().fit(X[groups == g]).statistics_ for g in range(3))
        for merged in ((a + b) + c, a + (b + c)):
            model = make().fit_from_statistics(merged)
            np.testing.assert_allclose(model.transform(X), whole.transform(X), rtol=0, atol=1e-10)


def test_samples_that_follow_a_fit_are_another_recording():
    groups = np.repeat([0, 1], [50, N - 50])
    for make in (lambda: SFA(3), lambda: ISFA(3, n_slow=1)):
        whole = make().fit(X, groups=groups)
        parts = make().fit(X[:50]).partial_fit(X[50:60]).partial_fit(X[60:])
        np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=0, atol=1e-10)


def test_adding_statistics_leaves_the_parts_as_they_were():
    y = LABELS["race"]
    one = GSFA(2, graph="clustered").fit(X[:40], y[:40])
    other = GSFA(2, graph="clustered").fit(X[40:], y[40:])
    before = one.transform(X)
    for _ in range(2):
        one.statistics_ + other.statistics_
    again = GSFA(2, graph="clustered").fit_from_statistics(one.statistics_)
    np.testing.assert_array_equal(again.transform(X), before)


def test_statistics_serve_other_settings_of_the_node():
    first = IGSFA(4, expansion="identity | quadratic", graph="serial").fit(X, LABELS["real"])
    other = IGSFA(3, expansion="identity | quadratic", graph="serial", n_slow=1, scaling="qr")
    direct = IGSFA(3, expansion="identity | quadratic", graph="serial", n_slow=1, scaling="qr").fit(X, LABELS["real"])
    other.fit_from_statistics(first.statistics_)
    np.testing.assert_allclose(other.transform(X), direct.transform(X), atol=1e-10)


def test_two_fits_give_the_same_bits():
    for make in (lambda: GSFA(3, graph="serial"), lambda: IGSFA(4, expansion="identity | quadratic", graph="serial")):
        one, other = make().fit(X, LABELS["real"]), make().fit(X, LABELS["real"])
        np.testing.assert_array_equal(one.transform(X), other.transform(X))


def test_memory_layout_and_container_of_the_data_change_nothing():
    expected = GSFA(3, graph="serial").fit(X, LABELS["real"]).transform(X)
    padded = np.zeros((N, 2 * I))
    padded[:, ::2] = X
    for data in (np.asfortranarray(X), padded[:, ::2], X.tolist(), pd.DataFrame(X, columns=list("abcd"))):
        model = GSFA(3, graph="serial").fit(data, LABELS["real"])
        np.testing.assert_allclose(model.transform(data), expected, rtol=0, atol=1e-10)
    whole = np.round(X * 100).astype(int)
    as_int = GSFA(3, graph="serial").fit(whole, LABELS["real"]).transform(whole)
    as_float = GSFA(3, graph="serial").fit(whole.astype(float), LABELS["real"]).transform(whole.astype(float))
    np.testing.assert_allclose(as_int, as_float, atol=1e-10)


# --- many samples: several blocks and tiles, edges across their borders -----------------------------------------

MANY = 40_000


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(13)
    slow = np.cumsum(rng.standard_normal((MANY, 3)), axis=0)
    data = rng.standard_normal((MANY, 3)) + 5 * np.sin(slow / 20) + [3.0, 0.0, -40.0]
    real = data[:, 0] + rng.standard_normal(MANY)
    classes = np.digitize(data[:, 1] + rng.standard_normal(MANY), [-3, 0, 3])
    return data, real, classes


def _assert_equals_list(model, reference, data, expansion="identity | quadratic"):
    Z = expand(expansion, data - data.mean(axis=0))
    expected = reference.gsfa(Z)
    np.testing.assert_allclose(model.delta_values_, expected.deltas, rtol=0, atol=1e-9)
    assert_same_up_to_sign(model.transform(data), expected(Z), atol=1e-7)


@pytest.mark.parametrize("lag", [1, 700])
def test_recordings_across_blocks_lose_and_gain_no_transition(many, lag):
    data, *_ = many
    for lengths in ([MANY], [1, 16_383, 5, 16_395, 7_000, 216]):
        groups = np.repeat(np.arange(len(lengths)), lengths)
        reference = listed_sequence(MANY, lag, np.array(lengths))
        for model in (
            SFA(lag=lag, expansion="identity | quadratic").fit(data, groups=groups),
            GSFA(graph=SequenceGraph(lag), expansion="identity | quadratic").fit(data, groups=groups),
        ):
            _assert_equals_list(model, reference, data)


@pytest.mark.parametrize(("half_width", "mirrored"), [(1, False), (2, True), (9, False), (30, True)])
def test_windows_across_blocks_equal_those_summed_distance_by_distance(many, half_width, mirrored):
    data, real, _ = many
    recipe = WindowGraph(half_width=half_width, mirrored=mirrored)
    given = dict(graph=recipe, expansion="identity | quadratic")
    by_time = listed_window(np.arange(MANY), MANY, half_width, mirrored)
    _assert_equals_list(GSFA(**given).fit(data), by_time, data)
    by_label = listed_window(np.argsort(real), MANY, half_width, mirrored)
    _assert_equals_list(GSFA(**given).fit(data, real), by_label, data)


@pytest.mark.parametrize("n_edges", [30_000, 300_000])
def test_edges_across_blocks_equal_those_summed_one_by_one(many, n_edges):
    data, *_ = many
    rng = np.random.default_rng(14)
    i, j = rng.integers(0, MANY, (2, n_edges))
    i, j = i[i != j], j[i != j]
    weight, v = rng.uniform(0.1, 1, len(i)), rng.uniform(0.5, 2, MANY)
    graph = EdgeGraph(np.column_stack([i, j, weight]), node_weights=v)
    reference = EdgeList(v, i, j, weight, np.zeros(MANY))
    _assert_equals_list(GSFA(graph=graph, expansion="identity | quadratic").fit(data), reference, data)


def test_a_sum_of_orders_across_blocks_equals_its_parts(many):
    data, real, _ = many
    recipe = SequenceGraph(2) + WindowGraph("real", half_width=3) + WindowGraph("noise", half_width=2)
    noise = np.random.default_rng(15).standard_normal(MANY)
    labels = {"real": real, "noise": noise}
    reference = listed_sequence(MANY, 2, np.array([MANY])) + listed_window(np.argsort(real), MANY, 3)
    reference = reference + listed_window(np.argsort(noise), MANY, 2)
    model = GSFA(graph=recipe, expansion="identity | quadratic").fit(data, labels)
    _assert_equals_list(model, reference, data)


@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
def test_classes_across_blocks_span_the_subspace_of_lda(many, expansion):
    data, _, classes = many
    model = GSFA(3, graph=ClusteredGraph(self_loops=True), expansion=expansion).fit(data, classes)
    Z = expand(expansion, data - data.mean(axis=0))
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(Z, classes)
    assert_same_span(model.transform(data), lda.transform(Z)[:, :3], atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_groups_across_blocks_equal_sums_over_groups(many, weighted):
    """Serial graph from group means: sum of gamma (z - z')^2 = spread within both groups and between their means."""
    data, real, _ = many
    L, size = 10, MANY // 10
    w = np.ones(MANY)
    if weighted:  # many different weights, equal in every group
        rng = np.random.default_rng(16)
        w[np.argsort(real)] = np.concatenate([size * part / part.sum() for part in rng.uniform(0.5, 1.5, (L, size))])
    model = GSFA(graph=SerialGraph(n_groups=L), expansion="identity | quadratic").fit(data, real, sample_weight=w)
    Z = expand("identity | quadratic", data - w @ data / w.sum())
    group = np.empty(MANY, dtype=int)
    group[np.argsort(real)] = np.repeat(np.arange(L), size)
    v = w * np.where((group == 0) | (group == L - 1), 1.0, 2.0)
    means = np.array([w[group == g] @ Z[group == g] / size for g in range(L)])
    inside = [((Z - means[g]) * w[:, None])[group == g].T @ (Z - means[g])[group == g] / size for g in range(L)]
    C_dot = np.zeros((Z.shape[1], Z.shape[1]))
    for g in range(L - 1):
        step = means[g + 1] - means[g]
        C_dot += 2 * size * (inside[g] + inside[g + 1] + np.outer(step, step))
    centred = Z - v @ Z / v.sum()
    C = (centred * v[:, None]).T @ centred / v.sum()
    deltas, B = scipy.linalg.eigh(C_dot / v.sum(), C)
    np.testing.assert_allclose(model.delta_values_, deltas, rtol=0, atol=1e-9)
    assert_same_features(model.transform(data), centred @ B, deltas, atol=1e-6, gap=1e-4)


# --- bad input ------------------------------------------------------------------------------------------------


def _with(value):
    bad = X.copy()
    bad[17, 2] = value
    return bad


Y_REAL, Y_RACE = LABELS["real"], LABELS["race"]
BAD_FITS = {
    "NaN": (dict(X=_with(np.nan), y=Y_REAL), "X|NaN"),
    "infinity": (dict(X=_with(np.inf), y=Y_REAL), "X|infinity"),
    "sparse": (dict(X=sp.csr_array(X), y=Y_REAL), "X|sparse"),
    "one dimension": (dict(X=X[:, 0], y=Y_REAL), "X|2D"),
    "three dimensions": (dict(X=X[:, :, None], y=Y_REAL), "X|dim 3"),
    "no sample": (dict(X=X[:0], y=Y_REAL[:0]), "X|sample"),
    "one sample": (dict(X=X[:1], y=Y_REAL[:1]), "X|sample"),
    "no column": (dict(X=X[:, :0], y=Y_REAL), "X|feature"),
    "text": (dict(X=X.astype(str), y=Y_REAL), "X|numeric|string|dtype"),
    "complex": (dict(X=X + 1j, y=Y_REAL), "(?i)complex"),
    "too few labels": (dict(X=X, y=Y_REAL[:-1]), "y"),
    "too many labels": (dict(X=X, y=np.append(Y_REAL, 0.0)), "y"),
    "one label of a dict too short": (dict(X=X, y={"a": Y_REAL[:-1]}, graph=SerialGraph("a")), "y"),
    "no labels": (dict(X=X, y=None), "y"),
    "all labels missing": (dict(X=X, y=np.full(N, np.nan)), "label|y"),
    "all labels None": (dict(X=X, y=np.full(N, None)), "label|y|class"),
    "one class": (dict(X=X, y=np.zeros(N, dtype=int), graph="clustered"), "class"),
    "one value": (dict(X=X, y=np.zeros(N), graph="serial"), "label"),
    "only classes of one": (dict(X=X, y=np.arange(N), graph="clustered"), "class"),
    "negative weights": (dict(X=X, y=Y_REAL, sample_weight=-np.ones(N)), "sample_weight"),
    "NaN weights": (dict(X=X, y=Y_REAL, sample_weight=np.full(N, np.nan)), "sample_weight"),
    "weights of wrong length": (dict(X=X, y=Y_REAL, sample_weight=np.ones(N + 1)), "sample_weight"),
    "weights all zero": (dict(X=X, y=Y_REAL, sample_weight=np.zeros(N)), "sample_weight"),
    "clustered, negative weights": (dict(X=X, y=Y_RACE, graph="clustered", sample_weight=-np.ones(N)), "sample_weight"),
    "weights for a window": (dict(X=X, graph=WindowGraph(False), sample_weight=np.full(N, 2.0)), "sample_weight"),
    "absent label": (dict(X=X, y=LABELS, graph=SerialGraph("height")), "height"),
    "absent column": (dict(X=X, y=np.column_stack([Y_REAL, Y_RACE]), graph=ClusteredGraph(2)), "2"),
    "absent label in a sum": (dict(X=X, y=LABELS, graph=SerialGraph("real") + ClusteredGraph("height")), "height"),
    "which of several labels": (dict(X=X, y=LABELS, graph=SerialGraph()), "label"),
    "text in order": (dict(X=X, y=np.array(["a", "b"] * (N // 2)), graph="serial"), "serial|label|number"),
    "infinite label": (dict(X=X, y=np.append(Y_REAL[1:], np.inf), graph="serial"), "label|inf"),
    "too many groups": (dict(X=X, y=Y_REAL, graph=SerialGraph(n_groups=N + 1)), "n_groups"),
    "mixed groups of one": (dict(X=X, y=Y_REAL, graph=MixedGraph(n_groups=N)), "n_groups"),
    "unknown shorthand": (dict(X=X, y=Y_REAL, graph="circular"), "graph"),
    "graph of no kind": (dict(X=X, y=Y_REAL, graph=17), "graph"),
    "graph of other samples": (dict(X=X, graph=SerialGraph(n_groups=4).build(Y_REAL[:-1])), "graph"),
    "groups of wrong length": (dict(X=X, graph="sequence", groups=RECORDING[:-1]), "groups"),
}
BAD_PARAMETERS = {
    "unknown term": (dict(expansion="identity | cubic"), "expansion"),
    "empty expansion": (dict(expansion=""), "expansion"),
    "slice too wide": (dict(expansion="identity[:9]"), "identity"),
    "expansion of no kind": (dict(expansion=3), "expansion"),
    "no components": (dict(n_components=0), "n_components"),
    "half a component": (dict(n_components=1.5), "n_components"),
    "negative shrinkage": (dict(shrinkage=-0.1), "shrinkage"),
    "short center": (dict(center=[0.0]), "center"),
    "center with NaN": (dict(center=[0.0, np.nan, 0.0, 0.0]), "center"),
    "negative n_slow": (dict(n_slow=-1), "n_slow"),
    "threshold of no kind": (dict(delta_threshold="slow"), "delta_threshold"),
    "unknown scaling": (dict(scaling="none"), "scaling"),
    "negative min_scale": (dict(min_scale=-1.0), "min_scale"),
}


@pytest.mark.parametrize("estimator", [GSFA, IGSFA])
@pytest.mark.parametrize(("given", "names"), BAD_FITS.values(), ids=BAD_FITS.keys())
def test_bad_data_are_refused_by_name_and_leave_a_fitted_model_as_it_was(given, names, estimator):
    given = {"y": None, **given}
    data, y = given.pop("X"), given.pop("y")
    model = estimator(2, graph="serial").fit(X, Y_REAL)
    before = model.transform(X)
    state = set(vars(model))
    with pytest.raises((ValueError, TypeError), match=names):
        model.fit(data, y, **given)
    assert set(vars(model)) == state
    np.testing.assert_array_equal(model.transform(X), before)
    assert model.n_features_in_ == I
    with pytest.raises((ValueError, TypeError), match=names):
        estimator(2, graph="serial").fit(data, y, **given)


@pytest.mark.parametrize("estimator", [SFA, ISFA])
@pytest.mark.parametrize(
    ("given", "names"),
    [
        (dict(X=np.full((N, I), np.nan)), "X|NaN|lag"),
        (dict(X=_with(-np.inf)), "X|infinity"),
        (dict(X=sp.csr_array(X)), "X|sparse"),
        (dict(X=X[:, 0]), "X|2D"),
        (dict(X=X[:0]), "X|sample"),
        (dict(X=X[:1]), "X|sample"),
        (dict(X=X, groups=RECORDING[1:]), "groups"),
        (dict(X=X, groups=np.arange(N)), "recording|lag|groups"),
    ],
)
def test_bad_series_are_refused_by_name_and_leave_a_fitted_model_as_it_was(given, names, estimator):
    model = estimator(2).fit(X)
    before = model.transform(X)
    with pytest.raises((ValueError, TypeError), match=names):
        model.fit(**given)
    np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.parametrize(("params", "names"), BAD_PARAMETERS.values(), ids=BAD_PARAMETERS.keys())
def test_bad_parameters_are_refused_by_name_and_leave_a_fitted_model_as_it_was(params, names):
    model = IGSFA(2, graph="serial").fit(X, Y_REAL)
    before = model.transform(X)
    model.set_params(**params)
    with pytest.raises((ValueError, TypeError), match=names):
        model.fit(X, Y_REAL)
    np.testing.assert_array_equal(model.transform(X), before)
    with pytest.raises((ValueError, TypeError), match=names):
        IGSFA(**{"n_components": 2, "graph": "serial", **params}).fit(X, Y_REAL)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_failed_partial_fits_leave_the_sums_as_they_were(value):
    model = GSFA(2, graph="clustered").partial_fit(X[:40], Y_RACE[:40])
    series = SFA(2).partial_fit(X[:40])
    with pytest.raises(ValueError, match=r"X|NaN|infinity"):
        model.partial_fit(_with(value), Y_RACE)
    with pytest.raises(ValueError, match="y"):
        model.partial_fit(X[40:], Y_RACE)
    with pytest.raises(ValueError, match=r"X|infinity"):
        series.partial_fit(_with(np.inf))
    model.partial_fit(X[40:], Y_RACE[40:])
    series.partial_fit(X[40:])
    np.testing.assert_allclose(
        model.transform(X), GSFA(2, graph="clustered").fit(X, Y_RACE).transform(X), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(series.transform(X), SFA(2).fit(X).transform(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("bad", [_with(np.nan), _with(np.inf), X[:, :3], X[:, 0], sp.csr_array(X)])
def test_bad_samples_are_refused_by_transform(bad):
    model = IGSFA(3, expansion="identity | quadratic", graph="serial").fit(X, Y_REAL)
    with pytest.raises((ValueError, TypeError), match=r"X|2D|(?i:sparse)"):
        model.transform(bad)
    with pytest.raises((ValueError, TypeError), match=r"Y|2D|(?i:sparse)"):
        model.inverse_transform(model.transform(X)[:, :2])


def test_an_outlier_of_nan_is_found_even_where_its_label_is_missing():
    y = Y_REAL.copy()
    y[17] = np.nan
    with pytest.raises(ValueError, match=r"X|NaN"):
        GSFA(graph=SerialGraph(n_groups=4)).fit(_with(np.nan), y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("graph", ["serial", "clustered", ClusteredGraph() + SerialGraph(n_groups=4)])
def test_an_outlier_of_nan_is_found_even_where_its_weight_is_zero(graph, value):
    bad = _with(value)
    w = np.ones(N)
    w[~np.isfinite(bad).all(axis=1)] = 0
    y = Y_RACE.astype(float)
    assert (w == 0).sum() == 1
    for wrong in (bad, bad.astype(np.float32)):
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            GSFA(graph=graph).fit(wrong, y, sample_weight=w)
    if graph == "clustered":
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            GSFA(graph=graph).partial_fit(bad, y, sample_weight=w)


def test_inputs_are_never_modified():
    data, labels = X.copy(), {name: values.copy() for name, values in LABELS.items()}
    w, groups = WEIGHTS.copy(), RECORDING.copy()
    for array in (data, w, groups, *labels.values()):
        array.flags.writeable = False
    recipe = SerialGraph("age_gaps", n_groups=5) + ClusteredGraph("race_gaps")
    for expansion in ("identity", "identity | quadratic"):
        model = IGSFA(3, expansion=expansion, graph=recipe).fit(data, labels, sample_weight=w, groups=groups)
        Y = model.transform(data)
        kept = Y.copy()
        Y.flags.writeable = False
        model.inverse_transform(Y)
        np.testing.assert_array_equal(Y, kept)
        SFA(expansion=expansion).fit(data, groups=groups).transform(data)
    GSFA(graph="clustered").fit(data, labels["race"], sample_weight=w)
    GSFA(graph="clustered").partial_fit(data, labels["race"], w)
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(w, WEIGHTS)
