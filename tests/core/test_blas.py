"""The product in one triangle against numpy's, for every layout that numpy can give an array."""

import numpy as np
import pytest
from scipy.linalg import cython_blas

from capsules import CHANGES, republish
from higsfa import GSFA
from higsfa.core import blas
from higsfa.core.blas import add_multiple, gram, mirror
from higsfa.core.native.library import compiled
from higsfa.core.native.tile import Front


def layouts(T, n, kind, rng):
    Z = rng.standard_normal((T, n)).astype(kind)
    wide = rng.standard_normal((T + 2, 2 * n + 3)).astype(kind)
    yield Z
    yield np.asfortranarray(Z)
    yield wide[1 : T + 1, 2 : n + 2]
    yield np.ascontiguousarray(wide.T)[2 : n + 2, 1 : T + 1].T
    yield wide[:T, : 2 * n : 2]
    yield wide[:T][::-1, :n]
    yield np.broadcast_to(Z[:1], (T, n))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("T", "n"), [(1, 1), (1, 7), (5, 1), (5, 0), (7, 3), (3, 7), (70, 200)])
def test_gram_equals_the_product(T, n, kind):
    rng = np.random.default_rng(0)
    start = rng.standard_normal((T, T)).astype(kind)
    for Z in layouts(T, n, kind, rng):
        before = Z.copy()
        for add in (False, True):
            out = start.copy()
            gram(Z, out, add=add)
            expected = Z.astype(float) @ Z.astype(float).T + (start if add else 0)
            lower = np.tril_indices(T)
            tolerance = 50 * np.finfo(kind).eps * max(n, 1)
            np.testing.assert_allclose(out[lower], expected[lower], atol=tolerance, rtol=tolerance)
            above = np.triu_indices(T, 1)
            assert np.array_equal(out[above], start[above])
        assert np.array_equal(Z, before)


def test_wrong_targets_are_refused():
    Z = np.ones((3, 5))
    for out in (np.zeros((3, 4)), np.zeros((3, 3), np.float32), np.zeros((3, 3), order="F")[::-1]):
        with pytest.raises(ValueError, match="out must be"):
            gram(Z, out, add=True)


@pytest.mark.parametrize("n", [0, 1, 5, 64, 65, 200])
def test_mirror(n):
    C = np.random.default_rng(0).standard_normal((n, n))
    expected = np.tril(C) + np.tril(C, -1).T
    mirror(C)
    assert np.array_equal(C, expected)


def publish(monkeypatch, **changes):
    monkeypatch.setattr(blas, "cython_blas", republish(cython_blas, **changes))
    monkeypatch.setattr(blas, "_routines", blas.find_routines())


def front():
    return Front.of(np.dtype(np.float64), 3, 3, 3, None)


def test_routines_are_called_if_their_arguments_are_the_known_ones(monkeypatch):
    publish(monkeypatch)
    assert len(blas._routines) == 4
    assert (front() is not None) == compiled()


@pytest.mark.parametrize("change", CHANGES)
def test_routines_with_other_arguments_are_not_called(monkeypatch, change):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 6)), rng.integers(0, 3, 300)
    expected = GSFA(2, graph="clustered", expansion="quadratic").fit_transform(X, y)
    publish(monkeypatch, **CHANGES[change])
    assert blas._routines == {}
    assert front() is None
    test_gram_equals_the_product(7, 3, np.float32)
    test_gram_equals_the_product(70, 200, np.float64)
    test_multiples_are_added(np.float32)
    found = GSFA(2, graph="clustered", expansion="quadratic").fit_transform(X, y)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_multiples_are_added(kind):
    rng = np.random.default_rng(0)
    A, start = rng.standard_normal((2, 9, 31)).astype(kind)
    out = start.copy()
    add_multiple(0.3, A, out)
    np.testing.assert_allclose(out, start + 0.3 * A.astype(float), rtol=1e-15, atol=4 * np.finfo(kind).eps)
