"""Addresses of BLAS: taken only where scipy publishes the known arguments."""

import numpy as np
import pytest
from scipy.linalg import cython_blas

from capsules import CHANGES, republish
from higsfa import GSFA
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.linalg import whole
from higsfa.core.native import library
from higsfa.core.native.library import compiled
from higsfa.core.native.tile import Front
from higsfa.core.node.frontend import Frontend


@pytest.mark.parametrize("n", [0, 1, 5, 64, 65, 200])
def test_a_matrix_is_made_whole_from_its_lower_triangle(n):
    C = np.random.default_rng(0).standard_normal((n, n))
    expected = np.tril(C) + np.tril(C, -1).T
    before = C.copy()
    assert np.array_equal(whole(C), expected)
    assert np.array_equal(C, before)


@pytest.fixture(autouse=True)
def addresses_are_found_again():
    yield
    library.blas_addresses.cache_clear()


def publish(monkeypatch, **changes):
    monkeypatch.setattr(library, "cython_blas", republish(cython_blas, **changes))
    library.blas_addresses.cache_clear()


def front():
    return Front.of(Frontend(parse_expansion("identity"), 1, 3, np.zeros(3)), np.dtype(np.float64))


def test_routines_are_called_if_their_arguments_are_the_known_ones(monkeypatch):
    publish(monkeypatch)
    assert all(len(library.blas_addresses(np.dtype(dtype))) == 3 for dtype in ("f4", "f8"))
    assert (front() is not None) == compiled()


@pytest.mark.parametrize("change", CHANGES)
def test_routines_with_other_arguments_are_not_called(monkeypatch, change):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 6)), rng.integers(0, 3, 300)
    expected = GSFA(2, graph="clustered", expansion="quadratic").fit_transform(X, y)
    publish(monkeypatch, **CHANGES[change])
    assert library.blas_addresses(np.dtype(np.float32)) is None
    assert front() is None
    found = GSFA(2, graph="clustered", expansion="quadratic").fit_transform(X, y)
    np.testing.assert_allclose(found, expected, atol=1e-9)
