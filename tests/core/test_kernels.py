"""The compiled loops against numpy, number by number; and a package that works without them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from higsfa.core import kernels
from higsfa.core.expansions import parse_expansion

needs_compiled = pytest.mark.skipif(not kernels.compiled(), reason="higsfa was installed without a C compiler")
TYPES = [np.float32, np.float64]
SIZES = [1, 2, 15, 16, 17, 130, 1000]


@pytest.fixture
def by_numpy(monkeypatch):
    """Call a function as if there were no compiled loops."""

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_routines", {})
            return function(*arguments)

    return call


def padded(rng, rows, n, dtype):
    """Rows that do not follow each other directly."""
    return rng.standard_normal((rows, n + 5)).astype(dtype)[:, :n]


@needs_compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("source_type", [np.uint8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("n", SIZES)
def test_load_is_the_same_as_by_numpy(by_numpy, dtype, source_type, n):
    rng = np.random.default_rng(n)
    source = (40 * rng.standard_normal((7, n + 3)) + 100).clip(0, 255).astype(source_type)[:, 1 : n + 1]
    center = rng.uniform(80, 120, (4, 1)).astype(dtype)
    limits = center - 20 - center, center + 30 - center
    rows = np.array([5, 0, 0, 3])
    for some in (rows, None):
        for middle in (center, None):
            for ends in (limits, None):
                wide = 7 if some is None else 4
                middle_ = None if middle is None else np.resize(middle, (wide, 1))
                ends_ = None if ends is None else tuple(np.resize(end, (wide, 1)) for end in ends)
                ours, theirs = padded(rng, wide, n, dtype), padded(rng, wide, n, dtype)
                kernels.load(source, some, middle_, ends_, ours)
                by_numpy(kernels.load, source, some, middle_, ends_, theirs)
                np.testing.assert_array_equal(ours, theirs)


@needs_compiled
@pytest.mark.parametrize("dtype", TYPES)
def test_load_reads_samples_as_rows_too(dtype):
    X = np.random.default_rng(0).standard_normal((50, 6)).astype(dtype)
    out = np.empty((6, 50), dtype)
    kernels.load(X.T, None, X[:1].T.copy(), None, out)
    np.testing.assert_array_equal(out, X.T - X[:1].T)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
def test_widen_finds_the_range(by_numpy, dtype, n):
    X = padded(np.random.default_rng(n), 6, n, dtype)
    for call in (lambda f, *a: f(*a), by_numpy):
        low, high = np.full(6, -0.1, dtype), np.full(6, 0.1, dtype)
        call(kernels.widen, X, low, high)
        np.testing.assert_array_equal(low, np.minimum(X.min(axis=1), dtype(-0.1)))
        np.testing.assert_array_equal(high, np.maximum(X.max(axis=1), dtype(0.1)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["features as rows", "samples as rows"])
@pytest.mark.parametrize("starts", [[0], [0, 1], [0, 7, 8, 100], list(range(130))])
def test_add_runs_adds_up_every_run(by_numpy, dtype, layout, starts):
    Z = padded(np.random.default_rng(0), 9, 130, dtype)
    Z = Z if layout == "features as rows" else np.ascontiguousarray(Z.T).T
    expected = 1.0 + np.stack([part.sum(axis=1) for part in np.split(Z.astype(np.longdouble), starts[1:], axis=1)]).T
    for call in (lambda f, *a: f(*a), by_numpy):
        sums = np.ones((9, len(starts) + 2))
        call(kernels.add_runs, Z, np.array(starts), sums[:, 1:-1])
        np.testing.assert_allclose(sums[:, 1:-1], expected.astype(float), rtol=0, atol=200 * np.finfo(dtype).eps)
        assert np.all(sums[:, [0, -1]] == 1)


@needs_compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        "identity",
        "identity[1:3] | max2 | max2[:3]",
        "quadratic[:2] | quadratic",
        "power0.8 | signed_power0.3[1:]",
        "power2 | power0.5 | power1.8 | identity",
        "normalized_quadratic[:3] | polynomial3[:2] | max2",
    ],
)
def test_expansions_are_the_same_as_by_numpy(by_numpy, dtype, n, text):
    expansion, X = parse_expansion(text), padded(np.random.default_rng(n), 8, n, dtype)
    X[0, 0] = 0.0
    ours, theirs = expansion(X, 2), by_numpy(expansion, X, 2)
    exact = not any(word in text for word in ("power0", "power1", "normalized"))
    np.testing.assert_allclose(ours, theirs, rtol=0 if exact else 8 * np.finfo(dtype).eps, atol=0)


@needs_compiled
@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_not_a_number_stays_visible(dtype):
    X = np.array([[np.nan, 1.0, np.inf, 1.0], [0.0, np.nan, 1.0, -np.inf]], dtype)
    Z = parse_expansion("identity | power0.8 | signed_power0.8 | max2 | quadratic")(X)
    finite_inputs = np.isfinite(X).all(axis=0)
    assert not finite_inputs.any()
    assert np.isnan(Z[6, :2]).all()  # the larger of a number and nan
    assert Z[6, 2] == np.inf
    assert not np.isfinite(Z[2:4]).all(axis=0).any()


def test_the_package_works_without_the_compiled_loops():
    program = """
import numpy as np
from higsfa import HiGSFA, Layer
from higsfa.core import kernels
rng = np.random.default_rng(0)
y = rng.uniform(0, 1, 600)
X = (100 + 40 * np.sin(3 * y[:, None] + np.arange(64)) + 10 * rng.standard_normal((600, 64))).astype(np.uint8)
layers = [Layer((4, 4), (4, 4), 5, pca=8, n_slow=2, expansion="identity | power0.8 | quadratic[:3]"), Layer((2, 2))]
network = HiGSFA(layers, graph="serial", input_shape=(8, 8)).fit(X.reshape(-1, 8, 8), y)
print(kernels.compiled(), *network.transform(X.reshape(-1, 8, 8))[:50, 0])
"""
    found = {}
    for choice in ("numpy", ""):
        environment = os.environ | {"HIGSFA_KERNELS": choice}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True, timeout=300
        )
        used, *numbers = done.stdout.split()
        assert used == str(choice != "numpy" and kernels.compiled())
        found[choice] = np.array(numbers, dtype=float)
    np.testing.assert_allclose(found["numpy"], found[""], atol=2e-3 * np.abs(found[""]).max())


@needs_compiled
def test_a_library_of_another_version_is_left_aside(monkeypatch):
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    with pytest.warns(UserWarning, match="install higsfa again"):
        assert kernels._load_library() == {}
