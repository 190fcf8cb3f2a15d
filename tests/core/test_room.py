"""Memory that is used again: never while anything refers to it, whoever asks for it and whatever is kept."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from higsfa import GSFA, SFA
from higsfa.core import kernels, room
from higsfa.core.raw import Samples
from higsfa.graphs import WindowGraph

LARGE = 50


@pytest.fixture(scope="module", autouse=True)
def everything_from_the_pool():
    """Small arrays, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "SMALL", 0)
        yield


def inner_model(rng, n_inputs):
    """A model that is evaluated by numpy, in the same steps as those that call it."""
    return SFA(3, expansion=lambda X: np.hstack([X, X[:, :3] ** 2])).fit(rng.standard_normal((400, n_inputs)))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("recipe", ["sequence", "serial", "window"])
def test_a_function_may_call_another_estimator(compiled, recipe, monkeypatch):
    if not compiled:
        monkeypatch.setattr(kernels, "_routines", {})
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from("taskv")), min_size=5, max_size=40))
def test_arrays_in_use_never_share_memory(steps):
    """Take arrays, keep some or only views of them, drop some: all that is left holds what was written to it."""
    alive = {}
    for number, (place, size, what) in enumerate(steps):
        if what in "ta":
            array = room.empty_rows(size + 1, LARGE, np.float32) if what == "t" else room.empty((size, LARGE), "f8")
            array[...] = number
            alive[place] = (array, number)
        elif what == "s" and place in alive:  # a view is left, the array itself is not
            array, written = alive[place]
            alive[place] = (array[:1, 5::2].T, written)
        elif what == "v":
            alive.pop(place, None)
        for array, written in alive.values():
            assert np.all(array == written)


def test_memory_is_used_again_when_nothing_refers_to_it():
    room._pool.free.clear()
    first = room.empty((4, LARGE), np.float64)
    place = first.ctypes.data
    assert place % room.PADDING == 0
    part = first[2:, ::3]
    del first
    assert room.empty((8, LARGE), np.float32).ctypes.data != place
    room._pool.free.clear()
    del part
    assert room.empty((8, LARGE), np.float32).ctypes.data == place
    assert room.empty((3, 0), np.float64).shape == (3, 0)


def _addresses_in_pool():
    return [memory.ctypes.data for memory in room._pool.free]


def test_the_pool_holds_no_more_than_was_in_use_at_once():
    room._pool.free.clear()
    for size in range(1, 60):
        pair = room.empty((size, LARGE), np.uint8), room.empty((60 - size, LARGE), np.uint8)
        del pair
    sizes = [memory.nbytes for memory in room._pool.free]
    assert len(sizes) <= 2
    assert max(sizes) <= 60 * LARGE + room.PADDING


def test_a_chunk_is_the_largest_power_of_two_that_the_cache_holds_within_its_limits():
    room.chunk_columns.cache_clear()
    for n_rows, itemsize in itertools.product((0, 1, 39, 40, 41, 300, 640, 1279, 1281, 10**6), (4, 8)):
        powers = [2**k for k in range(12) if 2**k * n_rows * itemsize <= 640 * 1024]
        assert room.chunk_columns(n_rows, itemsize) == max([128, *powers])


def test_an_array_that_another_thread_drops_is_not_used_before():
    array = room.empty((2, LARGE), np.float64)
    array[...] = 1.0
    place, holder, seen = array.ctypes.data, [array], []
    del array

    def work():
        other = room.empty((2, LARGE), np.float64)
        other[...] = 2.0
        seen.append(other.ctypes.data != place and bool(np.all(holder[0] == 1.0)))
        holder.clear()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
    assert place in _addresses_in_pool()


def test_samples_that_follow_each_other_are_not_copied_and_all_are_those_asked_for():
    X = np.arange(18.0).reshape(6, 3)
    for n in (1, 2, 3):
        for which in itertools.product(range(6), repeat=n):
            found = Samples(X, np.array(which)).array()
            np.testing.assert_array_equal(found, X[list(which)].T)
            assert np.shares_memory(found, X) == (which == tuple(range(which[0], which[0] + n)))


def test_samples_that_are_read_stay_what_they_are():
    X = np.arange(40000.0).reshape(-1, 4)
    some = Samples(X, np.arange(0, 8000, 2)).array()
    others = Samples(X, np.arange(1, 8001, 2)).array()
    np.testing.assert_array_equal(some, X[:8000:2].T)
    np.testing.assert_array_equal(others, X[1:8001:2].T)
    for which in ([0, 10000, 3], [-1, 5, 2]):
        with pytest.raises(IndexError, match="10000"):
            Samples(X, np.array(which)).array()
