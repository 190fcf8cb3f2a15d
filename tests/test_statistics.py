"""Statistics know what they were gathered for: what does not fit is refused, naming both sides."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.graphs import AutoGraph, ClusteredGraph, EdgeGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from higsfa.graphs.label import number_graph

N = 60
rng = np.random.default_rng(0)
AGE = rng.permutation(N).astype(float)
RACE = np.arange(N) % 3
X = rng.standard_normal((N, 3)) + np.column_stack([AGE / 20, RACE, AGE / 30])
EDGES = sp.csr_array(np.eye(N, k=1) + np.eye(N, k=-1))


def _fitted():
    labels = pd.DataFrame({"race": RACE, "sex": RACE > 0, "age": AGE})
    return {
        "SFA": SFA().fit(X),
        "SFA(lag=2)": SFA(lag=2).fit(X),
        "clustered": GSFA(graph="clustered").fit(X, RACE),
        "self-loops": GSFA(graph=ClusteredGraph(self_loops=True)).fit(X, RACE),
        "race": GSFA(graph=ClusteredGraph("race")).fit(X, labels),
        "sex": GSFA(graph=ClusteredGraph("sex")).fit(X, labels),
        "serial": GSFA(graph="serial").fit(X, AGE),
        "four groups": GSFA(graph=SerialGraph(n_groups=4)).fit(X, AGE),
        "mixed": GSFA(graph="mixed").fit(X, AGE),
        "window": GSFA(graph=WindowGraph(half_width=3)).fit(X, AGE),
        "edges": GSFA(graph=EdgeGraph(EDGES)).fit(X),
        "other edges": GSFA(graph=EdgeGraph(2 * EDGES, np.ones(N))).fit(X),
        "sum": GSFA(graph=SerialGraph("age") + ClusteredGraph("sex")).fit(X, labels),
        "weighted sum": GSFA(graph=SerialGraph("age") + 0.5 * ClusteredGraph("sex")).fit(X, labels),
    }


FITTED = _fitted()
SAME_GRAPH = {frozenset(pair) for pair in [("clustered", "race"), ("clustered", "sex")]}


@pytest.mark.parametrize("one", FITTED)
def test_statistics_of_different_graphs_do_not_add_and_serve_no_other_estimator(one):
    a = FITTED[one].statistics_
    for other in FITTED:
        b = FITTED[other].statistics_
        if other == one or frozenset((one, other)) in SAME_GRAPH:  # an only label may come without its name
            continue
        with pytest.raises(ValueError, match="cannot be added") as error:
            a + b
        assert str(a.origin) in str(error.value)
        assert str(b.origin) in str(error.value)
        estimator = type(FITTED[one])(**FITTED[one].get_params(deep=False))
        with pytest.raises(ValueError, match="gathered for " + re.escape(str(b.origin))):
            estimator.fit_from_statistics(b)
        assert not hasattr(estimator, "delta_values_")


def test_an_only_label_may_come_without_its_name():
    a, b, c = (FITTED[name].statistics_ for name in ("clustered", "race", "sex"))
    for total in (a + b, b + a):
        assert total.sums.weights.sum() == pytest.approx(2 * N)
        with pytest.raises(ValueError, match=r"of label 'race' and .* of label 'sex'"):
            total + c


@pytest.mark.parametrize("name", FITTED)
def test_statistics_serve_estimators_with_the_same_parameters(name):
    model = FITTED[name]
    again = type(model)(**model.get_params(deep=False)).fit_from_statistics(model.statistics_)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    preserving = {SFA: ISFA, GSFA: IGSFA}[type(model)]
    given = {"lag": model.lag} if isinstance(model, SFA) else {"graph": model.graph}
    assert preserving(2, n_slow=1, **given).fit_from_statistics(model.statistics_).n_slow_ == 1


@pytest.mark.parametrize("name", ["serial", "mixed", "window", "edges", "sum"])
def test_statistics_of_graphs_over_all_samples_do_not_add(name):
    statistics = FITTED[name].statistics_
    with pytest.raises(ValueError, match="built from all samples at once"):
        statistics + statistics


@pytest.mark.filterwarnings("ignore:.*different whole numbers")
def test_automatic_graphs_are_the_graphs_that_were_chosen():
    auto, named = GSFA().fit(X[:30], RACE[:30]), GSFA(graph="clustered").fit(X[30:], RACE[30:])
    whole = GSFA(graph="clustered").fit(X, RACE)
    for total in (auto.statistics_ + named.statistics_, named.statistics_ + auto.statistics_):
        for graph in ("auto", "clustered", AutoGraph(), ClusteredGraph("race")):
            found = GSFA(graph=graph).fit_from_statistics(total)
            np.testing.assert_allclose(found.transform(X), whole.transform(X), rtol=0, atol=1e-10)
    several = GSFA().fit(X, pd.DataFrame({"race": RACE, "age": AGE}))
    assert several.statistics_.origin.fits((ClusteredGraph("race") + number_graph("age")).origin(None))
    GSFA().fit_from_statistics(several.statistics_)
    GSFA(graph=ClusteredGraph("race") + number_graph("age")).fit_from_statistics(several.statistics_)
    for name in ("self-loops", "four groups", "mixed", "SFA", "weighted sum"):
        with pytest.raises(ValueError, match="gathered for"):
            GSFA().fit_from_statistics(FITTED[name].statistics_)


def test_statistics_for_a_graph_built_beforehand_serve_every_labelled_estimator():
    model = GSFA(graph="clustered").fit(X, graph=SerialGraph().build(AGE))
    for graph in ("clustered", "serial", "auto"):
        again = GSFA(graph=graph).fit_from_statistics(model.statistics_)
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
    with pytest.raises(ValueError, match="gathered for TrainingGraph"):
        SFA().fit_from_statistics(model.statistics_)


def test_a_sequence_is_a_sequence_whichever_estimator_gathered_it():
    by_graph = GSFA(graph=SequenceGraph(2)).fit(X)
    np.testing.assert_allclose(
        SFA(lag=2).fit_from_statistics(by_graph.statistics_).transform(X), SFA(lag=2).fit(X).transform(X), atol=1e-10
    )


def test_statistics_of_different_variables_do_not_add():
    one = SFA().fit(X).statistics_
    for other, words in (
        (SFA().fit(X[:, :2]), "3 and 2 inputs"),
        (SFA(expansion="identity | quadratic").fit(X), "expansions 'identity' and 'identity | quadratic'"),
        (SFA(center=[0.0, 5.0, 1.0]).fit(X), r"different centres \(input 1: 0 and 5\)"),
    ):
        with pytest.raises(ValueError, match=words):
            one + other.statistics_


def test_statistics_with_another_centre_serve_no_estimator_that_has_one():
    statistics = SFA(center=X.mean(axis=0), expansion="identity | quadratic").fit(X).statistics_
    SFA(expansion="identity | quadratic").fit_from_statistics(statistics)
    SFA(expansion="identity | quadratic", center=X.mean(axis=0)).fit_from_statistics(statistics)
    with pytest.raises(ValueError, match="another center"):
        SFA(expansion="identity | quadratic", center=[0.0, 0.0, 0.0]).fit_from_statistics(statistics)


def test_sums_in_single_and_double_precision_add_to_single():
    double, single = SFA().fit(X), SFA().fit(X.astype(np.float32))
    for total in (double.statistics_ + single.statistics_, single.statistics_ + double.statistics_):
        assert total.precision == np.finfo(np.float32).eps


def test_what_cannot_be_added_says_so():
    statistics = SFA().fit(X).statistics_
    with pytest.raises(TypeError, match="unsupported operand"):
        statistics + 1
    with pytest.raises(TypeError, match="must be the statistics_ of an estimator, got int"):
        SFA().fit_from_statistics(1)


@pytest.mark.parametrize("first", [[0, 1], [0.0, 1.0], [False, True]])
def test_partial_fit_refuses_classes_that_are_numbers_first_and_texts_then(first):
    y = np.array(first)[RACE % 2]
    model = GSFA(graph="clustered").partial_fit(X, y)
    before = model.transform(X)
    with pytest.raises(ValueError, match=f"numbers such as {first[0]} and texts such as '0'"):
        model.partial_fit(X, np.array(["0", "1"])[RACE % 2])
    np.testing.assert_array_equal(model.transform(X), before)
    assert model.partial_fit(X, (RACE % 2).astype(np.int8)).statistics_.classes == tuple(first)


def test_partial_fit_refuses_another_label_and_other_parameters():
    labels = pd.DataFrame({"race": RACE, "sex": RACE > 0})
    model = GSFA(graph=ClusteredGraph("race")).partial_fit(X, labels)
    model.set_params(graph=ClusteredGraph("sex"))
    with pytest.raises(ValueError, match=r"of label 'race' and .* of label 'sex'"):
        model.partial_fit(X, labels)
    model.set_params(graph=ClusteredGraph("race", self_loops=True))
    with pytest.raises(ValueError, match=r"self_loops=False.* and .*self_loops=True"):
        model.partial_fit(X, labels)
    model = SFA().partial_fit(X).set_params(lag=2)
    with pytest.raises(ValueError, match=r"lag=1.* and .*lag=2"):
        model.partial_fit(X)
    with pytest.raises(ValueError, match="not kept class by class"):
        GSFA(graph="serial").fit(X, AGE).set_params(graph="clustered").partial_fit(X, RACE)


@pytest.mark.parametrize("factor", [1e-50, 3.0, 1e50])
def test_batches_with_weights_of_any_size_count_as_they_should(factor):
    w = factor * np.r_[np.full(30, 1.0), rng.uniform(1.0, 2.0, 30)]
    make = lambda: GSFA(graph=ClusteredGraph(self_loops=True))  # noqa: E731
    parts = make().partial_fit(X[:30], RACE[:30], w[:30]).partial_fit(X[30:], RACE[30:], w[30:])
    whole = make().fit(X, RACE, sample_weight=w)
    assert parts.statistics_.sums.weights.sum() == pytest.approx(w.sum())
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        whole.transform(X), make().fit(X, RACE, sample_weight=w / factor).transform(X), atol=1e-9
    )


@pytest.mark.filterwarnings("ignore:.*different whole numbers")
def test_a_categorical_of_many_numbers_makes_a_clustered_graph():
    y = np.arange(N) // 2
    by_name = GSFA(graph="clustered").fit(X, y)
    for labels in (pd.Categorical(y), pd.Series(pd.Categorical(y)), pd.DataFrame({"y": pd.Categorical(y)})):
        found = GSFA().fit(X, labels)
        np.testing.assert_allclose(found.transform(X), by_name.transform(X), rtol=0, atol=1e-10)
    assert not by_name.statistics_.origin.fits(GSFA().fit(X, 3 * y).statistics_.origin)


def test_mixed_graphs_of_a_label_differ_from_serial_ones():
    assert not SerialGraph("age").origin(None).fits(MixedGraph("age").origin(None))
    assert str((SerialGraph("age") + 0.5 * ClusteredGraph()).origin(None)) == (
        "SerialGraph(n_groups=None) of label 'age' + 0.5 * ClusteredGraph(self_loops=False)"
    )
