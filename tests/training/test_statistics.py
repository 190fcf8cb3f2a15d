"""Statistics of parts of the data add up to those of the whole, and only where that has a meaning."""

import dataclasses

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.training.statistics import NotEnoughData, Statistics


def data(n=200):
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((n, 4)), axis=0) + 50
    return X, rng.integers(0, 3, n)


def assert_same(found, expected, X, tolerance=1e-8):
    np.testing.assert_allclose(found.delta_values_, expected.delta_values_, atol=tolerance)
    np.testing.assert_allclose(found.transform(X), expected.transform(X), atol=tolerance * np.abs(X).max())
    np.testing.assert_allclose(
        found.inverse_transform(found.transform(X)), expected.inverse_transform(expected.transform(X)), atol=1e-6
    )


@pytest.mark.parametrize("kind", [SFA, ISFA])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic"])
def test_recordings_add_up(kind, expansion):
    X, _ = data()
    groups = np.repeat([0, 1, 2], [70, 50, 80])
    params = {"expansion": expansion, "center": np.full(4, 50.0), "n_components": 3}
    whole = kind(**params).fit(X, groups=groups)
    parts = [kind(**params).fit(X[groups == g]).statistics_ for g in range(3)]
    for total in (parts[0] + parts[1] + parts[2], parts[2] + (parts[1] + parts[0])):
        assert_same(kind(**params).fit_from_statistics(total), whole, X)
    # What was added is as it was before.
    assert_same(kind(**params).fit_from_statistics(parts[0]), kind(**params).fit(X[groups == 0]), X)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", [GSFA, IGSFA])
def test_classes_add_up_even_if_each_part_has_some_of_them(kind, self_loops):
    X, y = data()
    y = np.where(np.arange(200) < 90, y, y + 1)  # classes 0, 1, 2 and then 1, 2, 3
    params = {"graph": ClusteredGraph(self_loops=self_loops), "n_components": 3, "expansion": "identity | quadratic"}
    params["center"] = np.full(4, 50.0)
    whole = kind(**params).fit(X, y)
    a, b = kind(**params).fit(X[:90], y[:90]).statistics_, kind(**params).fit(X[90:], y[90:]).statistics_
    assert_same(kind(**params).fit_from_statistics(a + b), whole, X)
    assert_same(kind(**params).fit_from_statistics(b + a), whole, X)


def test_the_range_of_the_inputs_is_that_of_all_parts():
    X, y = data()
    params = {"graph": "clustered", "expansion": "identity | quadratic", "center": np.zeros(4), "n_components": 2}
    whole = GSFA(**params).fit(X, y)
    a, b = GSFA(**params).fit(X[:90], y[:90]).statistics_, GSFA(**params).fit(X[90:], y[90:]).statistics_
    found = GSFA(**params).fit_from_statistics(a + b)
    far = X * 3
    np.testing.assert_allclose(found.transform(far), whole.transform(far), atol=1e-6)
    free = GSFA(**params, clip_range=False).fit_from_statistics(a + b)
    assert np.abs(free.transform(far)).max() > 2 * np.abs(found.transform(far)).max()


def test_statistics_of_single_and_double_precision_have_the_precision_of_the_first():
    X, y = data()
    single = GSFA(2, graph="clustered").fit(X[:90].astype(np.float32), y[:90]).statistics_
    double = GSFA(2, graph="clustered").fit(X[90:], y[90:]).statistics_
    for total in (single + double, double + single):
        assert total.precision == np.finfo(np.float32).eps


def test_what_has_no_sum_is_refused():
    X, y = data()

    def statistics(**params):
        return GSFA(2, **{"graph": ClusteredGraph(), **params}).fit(X, y).statistics_

    base = statistics()
    assert isinstance(base, Statistics)
    with pytest.raises(ValueError, match="different graphs"):
        base + SFA(2).fit(X).statistics_
    with pytest.raises(ValueError, match="different variables"):
        base + statistics(expansion="identity | quadratic")
    with pytest.raises(ValueError, match="different variables"):
        base + statistics(center=np.ones(4))
    with pytest.raises(ValueError, match="different variables"):
        base + GSFA(2, graph=ClusteredGraph()).fit(X[:, :3], y).statistics_
    with pytest.raises(ValueError, match="self_loops"):
        base + statistics(graph=ClusteredGraph(self_loops=True))
    with pytest.raises(TypeError):
        base + 1
    graphs = [GSFA(2, graph=SerialGraph(n_groups=n)).fit(X, X[:, 0]).statistics_ for n in (4, 5)]
    with pytest.raises(ValueError, match="different graphs"):
        graphs[0] + graphs[1]


def test_too_little_data_is_said():
    X, _ = data()
    whole = SFA(2).fit(X).statistics_
    without = dataclasses.replace(whole, sums=dataclasses.replace(whole.sums, edge_weight=0.0))
    with pytest.raises(NotEnoughData, match="neighbours in time"):
        SFA(2).fit_from_statistics(without)
    with pytest.raises((NotEnoughData, ValueError), match="two classes"):
        GSFA(2, graph="clustered").fit(X[:5], np.zeros(5, dtype=int))


def test_a_class_of_one_has_no_partner_unless_it_may_be_its_own():
    X, y = data()
    y[0] = 7
    without = GSFA(2, graph=ClusteredGraph()).fit(X, y)
    np.testing.assert_allclose(
        without.delta_values_, GSFA(2, graph="clustered").fit(X[1:], y[1:]).delta_values_, atol=1e-9
    )
    with_loops = GSFA(2, graph=ClusteredGraph(self_loops=True)).fit(X, y)
    assert np.abs(with_loops.delta_values_ - without.delta_values_).max() > 1e-4
