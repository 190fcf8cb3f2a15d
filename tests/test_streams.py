"""Batch by batch: the same as one fit, whatever the batches; samples that are taken out; streams that drift."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from higsfa import GSFA, IGSFA, ISFA, SFA, HiGSFA, Layer, load, save
from higsfa.estimators import stream
from higsfa.graphs import ClusteredGraph, CodeGraph, GraphSum, LabelGraph, SerialGraph, UniformGraph
from higsfa.training.statistics import SequenceStatistics
from model_files import edited, refused
from oracles import dense_gsfa, dense_label

rng = np.random.default_rng(0)
N = 400
X = rng.standard_normal((N, 6)) @ rng.standard_normal((6, 6)) + 2
AGE = np.clip(45 + 6 * X[:, 0] + 4 * rng.standard_normal(N), 1, 99)
HEIGHT = np.where(rng.random(N) < 0.3, np.nan, 170 + 3 * X[:, 1])
KIND = rng.integers(0, 6, N)
W = rng.uniform(0.2, 2, N)
LABELS = {"age": AGE, "height": HEIGHT, "kind": KIND}
CENTER = tuple(X.mean(axis=0) + 0.1)
TWO = LabelGraph("age", 4, (0, 100)) + 0.7 * LabelGraph("height", 2, (120, 220)) + 0.2 * UniformGraph()
CASES = {
    "label": (GSFA, {"graph": LabelGraph("age", label_range=(0, 100))}),
    "two labels": (IGSFA, {"graph": TWO, "n_components": 4, "n_slow": 2}),
    "expanded": (
        GSFA,
        {"graph": LabelGraph("age", 3, (0, 100)), "expansion": "identity | quadratic[:3]", "center": CENTER},
    ),
    "code": (GSFA, {"graph": CodeGraph("kind")}),
    "clustered": (GSFA, {"graph": ClusteredGraph("kind")}),
    "clustered with loops": (GSFA, {"graph": ClusteredGraph("kind", self_loops=True)}),
}


def some(rows):
    return {name: values[rows] for name, values in LABELS.items()}


def assert_same(one, other, atol=1e-10):
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, atol=atol)
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=1e3 * atol)


@pytest.mark.parametrize("cuts", [[1], [200], [3, 4, 50, 51, 333], list(range(7, N, 7))])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_any_batches_in_any_order_are_one_fit(name, cuts, weighted, monkeypatch):
    monkeypatch.setattr(stream, "MAX_ROWS", 64)
    kind, params = CASES[name]
    parts = np.split(np.random.default_rng(1).permutation(N), cuts)
    model = kind(**params)
    for rows in parts:
        model.partial_fit(X[rows], some(rows), W[rows] if weighted else None)
    assert_same(model, kind(**params).fit(X, LABELS, sample_weight=W if weighted else None))


@pytest.mark.parametrize("name", CASES)
def test_statistics_of_parts_add_in_any_tree_and_subtract(name):
    kind, params = CASES[name]
    whole = kind(**params).fit(X, LABELS).statistics_
    a, b, c, d = (
        kind(**params).fit(X[rows], some(rows)).statistics_ for rows in np.split(np.arange(N), [90, 120, 300])
    )
    for total in ((a + b) + (c + d), ((d + c) + b) + a, a + b + c + d):
        assert_same(kind(**params).fit_from_statistics(total), kind(**params).fit_from_statistics(whole))
    rows = np.r_[0:90, 300:N]
    less, left = kind(**params).fit_from_statistics(whole - b - c), kind(**params).fit(X[rows], some(rows))
    np.testing.assert_allclose(less.delta_values_, left.delta_values_, atol=1e-9)
    if name != "expanded":  # inputs are clipped to the range that they had before
        assert_same(less, left, 1e-9)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", [name for name in CASES if name != "expanded"])
def test_what_is_unlearned_was_never_there(name, seed):
    kind, params = CASES[name]
    local = np.random.default_rng(seed)
    gone = local.random(N) < local.uniform(0.05, 0.8)
    weights = W if seed % 2 else None
    model = kind(**params).fit(X, LABELS, sample_weight=weights)
    model.unlearn(X[gone], some(gone), None if weights is None else weights[gone])
    assert_same(
        model, kind(**params).fit(X[~gone], some(~gone), sample_weight=None if weights is None else W[~gone]), 1e-9
    )


@pytest.mark.parametrize("kind", [SFA, ISFA])
def test_recordings_are_unlearned_as_a_whole(kind):
    groups = np.repeat(np.arange(5), 80)
    model = kind(lag=2).fit(X, groups=groups)
    kept = groups != 3
    model.unlearn(X[~kept])
    assert_same(model, kind(lag=2).fit(X[kept], groups=groups[kept]), 1e-9)


def test_the_range_of_the_inputs_stays_when_samples_are_unlearned():
    params = {"graph": LabelGraph("age", 3, (0, 100)), "expansion": "identity | quadratic", "center": CENTER}
    model = GSFA(**params).fit(X, LABELS)
    before = model._node.frontend.high
    model.unlearn(X[:300], some(slice(300)))
    np.testing.assert_array_equal(model._node.frontend.high, before)


def test_samples_that_were_not_in_are_refused():
    model = GSFA(graph=CodeGraph("kind")).fit(X[:50], some(slice(50)))
    for rows in (slice(100, 300), slice(0, 60)):
        with pytest.raises(ValueError, match="were not all in"):
            model.unlearn(X[rows], some(rows))
    with pytest.raises(ValueError, match="were not all in"):
        model.unlearn(100 * X[:5], some(slice(5)))
    model.unlearn(X[:10], some(slice(10)))


def test_nothing_is_solved_before_features_are_asked_for(monkeypatch):
    solved = []
    monkeypatch.setattr(GSFA, "_solve", lambda self, X=None, own=GSFA._solve: solved.append(1) or own(self, X))
    model = GSFA(graph=CodeGraph("kind"))
    for lo in range(0, N, 20):
        model.partial_fit(X[lo : lo + 20], some(slice(lo, lo + 20)))
    assert not solved
    model.transform(X)
    model.transform(X)
    assert model.delta_values_.shape == (6,)
    assert len(solved) == 1


def test_batches_are_copied():
    batch, labels = X[:100].copy(), AGE[:100].copy()
    model = GSFA(graph=LabelGraph(label_range=(0, 100))).partial_fit(X[100:], AGE[100:]).partial_fit(batch, labels)
    batch[...], labels[...] = 0, 1
    assert_same(model, GSFA(graph=LabelGraph(label_range=(0, 100))).fit(X, AGE))


def test_old_samples_are_forgotten_exponentially():
    graph = LabelGraph(label_range=(0, 100))
    model = GSFA(graph=graph)
    parts = np.split(np.arange(N), 4)
    for rows in parts:
        model.partial_fit(X[rows], AGE[rows], forgetting=0.5)
    assert_same(model, GSFA(graph=graph).fit(X, AGE, sample_weight=np.repeat([0.125, 0.25, 0.5, 1.0], N // 4)))
    recordings = (
        SFA().partial_fit(X[:200], groups=np.zeros(200)).partial_fit(X[200:], groups=np.ones(200), forgetting=0.5)
    )
    a, b = SFA().fit(X[:200]).statistics_, SFA().fit(X[200:]).statistics_
    assert_same(recordings, SFA().fit_from_statistics(a.scaled(0.5) + b))
    with pytest.raises(ValueError, match="self_loops=True"):
        GSFA(graph="clustered").partial_fit(X, KIND, forgetting=0.5)
    for wrong in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="forgetting must be above 0"):
            GSFA(graph="code").partial_fit(X, KIND, forgetting=wrong)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (GSFA(), "LabelGraph"),
        (GSFA(graph="serial"), "LabelGraph"),
        (GSFA(graph="label"), "label_range"),
        (GSFA(graph=SerialGraph() + LabelGraph(label_range=(0, 1))), "depends on all labels"),
        (GSFA(graph="clustered", expansion="quadratic"), "center="),
        (SFA(expansion="quadratic"), "center="),
    ],
)
@pytest.mark.parametrize("method", ["partial_fit", "unlearn"])
def test_where_it_is_not_exact_the_message_says_what_to_change(model, hint, method):
    assert not hasattr(model, method)
    with pytest.raises(AttributeError, match=hint):
        getattr(model, method)


@pytest.mark.parametrize("params", [{"graph": "labels"}, {"graph": 3}, {"expansion": "quadratik"}])
def test_wrong_parameters_do_not_break_hasattr_and_dir(params):
    model = GSFA(**{"graph": "clustered", **params})
    assert not hasattr(model, "partial_fit")
    assert "fit" in dir(model)


@pytest.mark.parametrize("graph", ["clustered", "code"])
def test_streams_have_as_many_classes_as_come(graph):
    many = rng.integers(0, 45, N)
    model = GSFA(graph=graph).partial_fit(X[:300], many[:300]).partial_fit(X[300:], many[300:])
    np.testing.assert_allclose(model.delta_values_, GSFA(graph=graph).fit(X, many).delta_values_, atol=1e-10)


def test_labels_outside_the_range_and_samples_that_are_no_numbers_are_refused_at_once():
    model = GSFA(graph=LabelGraph(label_range=(0, 100))).partial_fit(X[:50], AGE[:50])
    before = model.partial_fit(X[50:60], AGE[50:60]).transform(X)
    with pytest.raises(ValueError, match="outside label_range"):
        model.partial_fit(X[60:70], AGE[60:70] + 100)
    spoiled = X[60:70].copy()
    spoiled[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(spoiled, AGE[60:70])
    with pytest.raises(ValueError, match="6 features"):
        model.partial_fit(X[:, :5], AGE)
    np.testing.assert_array_equal(model.transform(X), before)


def test_before_there_is_a_graph_there_are_sums_but_no_features():
    model = GSFA(graph="clustered").partial_fit(X[:5], np.zeros(5))
    assert model.statistics_.sums.weights.sum() == 5
    with pytest.raises(ValueError, match="two classes"):
        model.transform(X)
    with pytest.raises(NotFittedError):
        GSFA(graph="clustered").transform(X)
    model.partial_fit(X[5:20], np.arange(15) % 2)
    assert model.transform(X).shape == (N, 6)


def test_frames_arrays_and_dicts_of_labels_may_follow_each_other():
    graph = LabelGraph("age", label_range=(0, 100))
    model = GSFA(graph=graph).partial_fit(X[:100], pd.DataFrame(some(slice(100))))
    model.partial_fit(X[100:], some(slice(100, N)))
    assert_same(model, GSFA(graph=graph).fit(X, LABELS))
    only = GSFA(graph=LabelGraph(label_range=(0, 100))).partial_fit(X[:100], pd.DataFrame({"age": AGE[:100]}))
    assert_same(only.partial_fit(X[100:], pd.DataFrame({"age": AGE[100:]})), model)


def test_copies_and_pickles_go_on_where_they_are():
    model = GSFA(graph=LabelGraph(label_range=(0, 100))).partial_fit(X[:50], AGE[:50]).partial_fit(X[50:90], AGE[50:90])
    other = pickle.loads(pickle.dumps(model)).partial_fit(X[90:], AGE[90:])
    assert_same(other, GSFA(graph=LabelGraph(label_range=(0, 100))).fit(X, AGE))
    assert not hasattr(clone(model), "statistics_")


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, "recordings"])
def test_a_stream_goes_on_from_a_file(name, tmp_path):
    if name == "recordings":
        model, again = SFA(lag=2).fit(X[:200]), SFA(lag=2)
        whole = SFA(lag=2).fit(X, groups=np.repeat([0, 1], 200))
        rest = (X[200:],)
    else:
        kind, params = CASES[name]
        model, again, whole = (
            kind(**params).fit(X[:200], some(slice(200))),
            kind(**params),
            kind(**params).fit(X, LABELS),
        )
        rest = X[200:], some(slice(200, N))
    save(model.statistics_, tmp_path / "sums.higsfa")
    found = load(tmp_path / "sums.higsfa")
    assert type(found) is type(model.statistics_)
    assert found.origin == model.statistics_.origin
    for one in ("weights", "first", "second", "low", "high"):
        np.testing.assert_array_equal(getattr(found.sums, one), getattr(model.statistics_.sums, one))
    assert_same(again.fit_from_statistics(found).partial_fit(*rest), whole)


def test_statistics_of_a_whole_graph_are_not_saved(tmp_path):
    with pytest.raises(TypeError, match="cannot be saved"):
        save(GSFA(graph="serial").fit(X, AGE).statistics_, tmp_path / "sums.higsfa")


@pytest.mark.parametrize("name", ["two labels", "code", "clustered"])
def test_models_with_these_graphs_are_saved_too(name, tmp_path):
    kind, params = CASES[name]
    model = kind(**params).fit(X, LABELS)
    save(model, tmp_path / "model.higsfa")
    found = load(tmp_path / "model.higsfa")
    np.testing.assert_array_equal(found.transform(X), model.transform(X))
    assert found.graph.origin(None) == model.graph.origin(None)


WRONG = {
    "n_channels": [0, 3, 10**6],
    "n_inputs": [5, 7, 2**30],
    "expansion": ["quadratic", "identity | identity", "nonsense", "polynomial8"],
    "precision": [0.0, 1.0, -1.0],
    "n_graphs": [1, 2, 100],
    "classes": [[0, 1]],
    "rule": [{"self_loops": True, "codes": False, "n_features": None}],
    "origin": [[], [[1.0, "LabelGraph()"]], [["x", "LabelGraph()", None]]],
    "kind": ["ClassStatistics", "SequenceStatistics", "GSFA"],
}


@pytest.mark.parametrize("key", WRONG)
def test_headers_that_do_not_fit_the_sums_are_refused(key, tmp_path):
    path = tmp_path / "sums.higsfa"
    save(GSFA(graph=TWO).fit(X, LABELS).statistics_, path)
    data = path.read_bytes()
    for value in WRONG[key]:
        refused(edited(data, key, value), path)


# --- score -----------------------------------------------------------------------------------------------------------


def test_the_score_is_the_slowness_of_decorrelated_features():
    train, test = slice(0, 300), slice(300, N)
    model = IGSFA(4, graph=SerialGraph(n_groups=8), n_slow=2).fit(X[train], AGE[train])
    Y, graph = model.transform(X[test]), SerialGraph(n_groups=8).build(AGE[test])
    v = graph.vertex_weights
    Z = (Y - v @ Y / v.sum()) * np.sqrt(v / v.sum())[:, None]
    Q = np.linalg.qr(Z)[0] / np.sqrt(v / v.sum())[:, None]
    expected = np.sum(np.maximum(0, 1 - graph.delta(Q) / 2))
    assert model.score(X[test], AGE[test]) == pytest.approx(expected, abs=1e-10)


def test_features_that_repeat_others_and_noise_add_nothing_to_the_score():
    graph = SerialGraph(n_groups=8).build(AGE)
    one = graph.slowness(AGE)
    assert graph.slowness(np.column_stack([AGE, 3 - 2 * AGE, AGE])) == pytest.approx(one)
    assert graph.slowness(np.column_stack([AGE, np.ones(N)])) == pytest.approx(one)


@pytest.mark.parametrize("model", [SFA(), ISFA(n_slow=1)])
def test_scores_serve_a_grid_search(model):
    series = np.cumsum(rng.standard_normal((600, 4)), axis=0)
    search = GridSearchCV(model, {"n_components": [1, 3]}, cv=3).fit(series)
    assert search.best_params_ == {"n_components": 3}


def test_networks_have_scores():
    net = HiGSFA([Layer(3, n_components=2), Layer(2, n_components=3)], graph=SerialGraph(n_groups=8)).fit(X, AGE)
    assert 0 < net.score(X, AGE) < 3


# --- found by attack -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_harmonics", "label_range"), [(9, (0, 300)), (9, (0, 1000)), (30, (0, 200))])
def test_labels_that_fill_little_of_their_range_cost_no_digits(dtype, n_harmonics, label_range):
    graph = LabelGraph(n_harmonics=n_harmonics, label_range=label_range)
    v, gamma = dense_label(AGE, np.ones(N), n_harmonics, label_range)
    data = X.astype(dtype)
    expected = dense_gsfa(data.astype(float), v, gamma).deltas
    built = graph.build(AGE)
    np.testing.assert_allclose(built.free_responses(1).delta_values, 2 / (n_harmonics + 2), atol=1e-8)
    if n_harmonics == 30:
        return  # which of so many functions depend on others is a matter of rounding
    network = HiGSFA([Layer(6, n_components=6, expansion="identity")], graph=graph)
    for model in (GSFA(graph=graph).fit(data, graph=built), network.fit(data, AGE)):
        np.testing.assert_allclose(model.delta_values_[:3], expected[:3], atol=1e-8 if dtype is np.float64 else 1e-4)
    found = GSFA(graph=graph).fit(data, AGE).delta_values_
    np.testing.assert_allclose(found[:3], expected[:3], atol=1e-4)


def test_ranges_that_differ_in_their_last_digits_are_different_graphs():
    day = 20240101 + AGE % 30
    one = GSFA(graph=LabelGraph(label_range=(20240101, 20240131))).fit(X, day).statistics_
    other = GSFA(graph=LabelGraph(label_range=(20240060, 20240140))).fit(X, day).statistics_
    with pytest.raises(ValueError, match="different graphs"):
        one + other


def test_a_recording_that_was_unlearned_does_not_go_on():
    a, b = np.cumsum(rng.standard_normal((2, 300, 4)), axis=1) + np.array([0, 100])[:, None, None]
    assert_deltas = np.testing.assert_allclose
    assert_deltas(SFA().partial_fit(a).unlearn(a).partial_fit(b).delta_values_, SFA().fit(b).delta_values_, atol=1e-9)
    whole = rng.integers(0, 2, (200, 3))
    parts = SFA(lag=50).partial_fit(X[:, :3]).partial_fit(whole)
    assert_deltas(parts.delta_values_, SFA(lag=50).fit(np.r_[X[:, :3], whole]).delta_values_, atol=1e-9)


def test_tiny_weights_make_classes_too():
    tiny, plain = (GSFA(graph=CodeGraph()).fit(X, KIND, sample_weight=np.full(N, w)) for w in (1e-12, 1.0))
    np.testing.assert_allclose(tiny.delta_values_, plain.delta_values_, atol=1e-9)


def test_batches_are_not_lost_by_an_error():
    model = GSFA(graph="clustered").partial_fit(X[:200], KIND[:200].astype(object))
    with pytest.raises(ValueError, match="numbers"):
        model.partial_fit(X[200:], KIND[200:].astype(str).astype(object))
    whole = GSFA(graph="clustered").fit(X, KIND)
    np.testing.assert_allclose(model.partial_fit(X[200:], KIND[200:]).delta_values_, whole.delta_values_, atol=1e-10)


def test_statistics_that_make_no_graph_leave_the_model_as_it_was():
    graph = LabelGraph(label_range=(0, 100))
    empty = GSFA(graph=graph).partial_fit(X[:, :4], np.full(N, np.nan)).statistics_
    model = GSFA(graph=graph).fit(X, AGE)
    with pytest.raises(ValueError, match="label"):
        model.fit_from_statistics(empty)
    assert model.statistics_.frontend.n_inputs == model.n_features_in_ == 6


def test_no_samples_travel_with_a_pickle():
    model = GSFA(graph=LabelGraph(label_range=(0, 100))).partial_fit(X[:10], AGE[:10]).partial_fit(X[10:], AGE[10:])
    assert len(pickle.dumps(model)) < X.nbytes


def test_sums_within_sums_are_sums():
    inner = LabelGraph("age", 2, (0, 100)) + LabelGraph("height", 2, (120, 220))
    outer = GraphSum([inner, UniformGraph()], [1.0, 0.5])
    whole = GSFA(graph=outer).fit(X, LABELS)
    parts = GSFA(graph=outer).partial_fit(X[:100], some(slice(100))).partial_fit(X[100:], some(slice(100, N)))
    assert_same(parts, whole)
    GSFA(graph=outer).fit_from_statistics(whole.statistics_)


def test_many_classes_have_codes_quickly():
    graph = CodeGraph().build(np.repeat(np.arange(600), 2))
    assert graph.is_consistent()


def test_a_recording_goes_on_after_an_error_as_if_there_had_been_none(monkeypatch):
    model = SFA().partial_fit(X[:100]).partial_fit(X[100:200])
    add, failed = SequenceStatistics.__add__, []

    def fail_once(one, other):
        if not failed:
            failed.append(1)
            raise MemoryError
        return add(one, other)

    monkeypatch.setattr(SequenceStatistics, "__add__", fail_once)
    with pytest.raises(MemoryError):
        model.statistics_  # noqa: B018
    assert_same(model.partial_fit(X[200:]), SFA().fit(X))


def test_statistics_of_other_graphs_are_not_taken_away():
    with pytest.raises(ValueError, match="different graphs"):
        SFA().fit(X).statistics_ - GSFA(graph="clustered").fit(X, KIND).statistics_


def test_the_least_integer_is_not_taken_for_a_small_number():
    from higsfa.estimators.validation import is_harmless

    for dtype in (np.int32, np.int64):
        assert not is_harmless(np.array([[np.iinfo(dtype).min, 1]], dtype))
    assert is_harmless(np.array([[-128, 1]], np.int8))
    assert is_harmless(np.array([[True, False]]))
    assert is_harmless(np.zeros((0, 2), np.uint8))
