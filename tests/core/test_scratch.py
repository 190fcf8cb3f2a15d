"""Intermediate results belong to one call: a user's function may call other estimators, and keep what it was given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from higsfa import GSFA, SFA
from higsfa.core.native import library as kernels
from higsfa.core.native import tile as scratch
from higsfa.core.native.tile import Samples
from higsfa.graphs import WindowGraph


def inner_model(rng, n_inputs):
    """A model that is evaluated by numpy, in the same steps as those that call it."""
    return SFA(3, expansion=lambda X: np.hstack([X, X[:, :3] ** 2])).fit(rng.standard_normal((400, n_inputs)))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("recipe", ["sequence", "serial", "window"])
def test_a_function_may_call_another_estimator(compiled, recipe, monkeypatch):
    if not compiled:
        monkeypatch.setattr(kernels, "routines", {})
    rng = np.random.default_rng(0)
    n, n_inputs = 5000, 20
    y = np.arange(n) / n
    X = np.sin(9 * y[:, None] + np.arange(n_inputs)) + 0.3 * rng.standard_normal((n, n_inputs))
    inner = inner_model(rng, n_inputs)

    def nested(X):
        return np.hstack([X, inner.transform(X)])

    def model(X, expansion, center):
        if recipe == "sequence":
            return SFA(5, expansion=expansion, center=center).fit(X)
        graph = "serial" if recipe == "serial" else WindowGraph(half_width=5)
        return GSFA(5, graph=graph, expansion=expansion, center=center).fit(X, y)

    # The same without nesting: expanded beforehand, in memory of its own.
    Z = nested(X - X.mean(axis=0))
    expected = model(Z, "identity", np.zeros(Z.shape[1])).transform(Z)
    np.testing.assert_allclose(model(X, nested, X.mean(axis=0)).transform(X), expected, atol=1e-6)


def test_a_function_may_fit_another_estimator():
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((3000, 10)), axis=0)
    others = rng.standard_normal((500, 10))

    def squares(X):
        return np.hstack([X, X**2])

    def fits(X):
        SFA(expansion=squares).fit(others)
        return squares(X)

    ours, theirs = (SFA(4, expansion=function).fit(X).transform(X) for function in (fits, squares))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("clip_range", [True, False])
def test_a_function_may_keep_what_it_was_given_and_return_it(clip_range):
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((6000, 30)), axis=0)
    kept = []

    def keeps(X):
        kept.append(X)
        return X

    model = SFA(expansion=keeps, clip_range=clip_range, center=np.zeros(30)).fit(X)
    kept.clear()
    model.transform(X)
    np.testing.assert_allclose(np.vstack(kept), X, rtol=0, atol=1e-12)
    assert not any(part.flags.writeable for part in kept)


def test_samples_that_are_read_stay_what_they_are():
    X = np.arange(40000.0).reshape(-1, 4)
    some = Samples(X, np.arange(0, 8000, 2)).array()
    others = Samples(X, np.arange(1, 8001, 2)).array()
    np.testing.assert_array_equal(some, X[:8000:2].T)
    np.testing.assert_array_equal(others, X[1:8001:2].T)
    for which in ([0, 10000, 3], [-1, 5, 2]):
        with pytest.raises(IndexError, match="10000"):
            Samples(X, np.array(which)).array()


def test_a_chunk_is_the_largest_power_of_two_that_the_cache_holds_within_its_limits():
    scratch.chunk_columns.cache_clear()
    for n_rows, itemsize in itertools.product((0, 1, 39, 40, 41, 300, 640, 1279, 1281, 10**6), (4, 8)):
        powers = [2**k for k in range(12) if 2**k * n_rows * itemsize <= 640 * 1024]
        assert scratch.chunk_columns(n_rows, itemsize) == max([128, *powers])


def test_samples_that_follow_each_other_are_not_copied_and_all_are_those_asked_for():
    X = np.arange(18.0).reshape(6, 3)
    for n in (1, 2, 3):
        for which in itertools.product(range(6), repeat=n):
            found = Samples(X, np.array(which)).array()
            np.testing.assert_array_equal(found, X[list(which)].T)
            assert np.shares_memory(found, X) == (which == tuple(range(which[0], which[0] + n)))
