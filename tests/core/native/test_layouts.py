"""Results depend on the values of an array, not on how they lie in memory; with compiled routines and without."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, SFA, HiGSFA, Layer
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.native import library as kernels
from higsfa.core.native.tile import Rows, Samples
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node
from higsfa.graphs import WindowGraph
from layouts import LAYOUTS, laid_out

MODELS = {
    "groups": lambda: GSFA(3, graph="serial"),
    "groups, expanded": lambda: IGSFA(4, graph="serial", expansion="identity | quadratic[:3] | power0.8"),
    "function": lambda: GSFA(3, graph="serial", expansion=lambda X: np.hstack([X, X[:, :2] ** 2])),
    "sequence": lambda: SFA(3),
    "sequence, expanded": lambda: SFA(3, expansion="identity | quadratic[:3]"),
    "windows": lambda: GSFA(3, graph=WindowGraph(half_width=5)),
}


@pytest.fixture(params=["compiled", "numpy"])
def routines(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "routines", {})


def data(n=300, n_features=7):
    rng = np.random.default_rng(0)
    y = rng.permutation(n) / n
    return 20 + 3 * np.sin(5 * y[:, None] + np.arange(n_features)) + rng.standard_normal((n, n_features)), y


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("routines")
def test_models_and_features_are_those_of_the_values(name, kind):
    X, y = data()
    X = X.astype(kind)
    labels = () if "sequence" in name else (y,)
    known = MODELS[name]().fit(X, *labels)
    expected = known.transform(X)
    tolerance = 2e3 * np.finfo(kind).eps
    for layout in [*LAYOUTS, "swapped", "read only"]:
        other = laid_out(X, layout, kind)
        if layout == "swapped":
            other = X.astype(X.dtype.newbyteorder())
        other.flags.writeable = layout != "read only"
        np.testing.assert_allclose(known.transform(other), expected, atol=tolerance)
        if layout in ("C", "Fortran", "wide rows", "every second"):
            continue  # the others say it all
        fitted = MODELS[name]().fit(other, *labels)
        np.testing.assert_allclose(fitted.delta_values_, known.delta_values_, rtol=tolerance)
        np.testing.assert_allclose(fitted.transform(X), expected, atol=tolerance * 30)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.usefixtures("routines")
def test_networks_are_those_of_the_values(kind):
    X, y = data(300, 36)
    X = (5 * X).astype(np.uint8).astype(kind)
    layers = [Layer((3, 3), (3, 3), 4, expansion="identity | max2", n_slow=2), Layer((2, 2))]

    def network():
        return HiGSFA(layers, graph="serial", input_shape=(6, 6))

    known = network().fit(X.reshape(-1, 6, 6), y)
    expected = known.transform(X.reshape(-1, 6, 6))
    for layout in LAYOUTS:
        pictures = laid_out(X, layout, kind).reshape(-1, 6, 6) if layout != "field" else _pictures_in_records(X, kind)
        np.testing.assert_allclose(known.transform(pictures), expected, atol=1e-4)
        np.testing.assert_allclose(network().fit(pictures, y).transform(pictures), expected, atol=1e-3)


def _pictures_in_records(X, kind):
    records = np.zeros(len(X), dtype=[("tag", "u1"), ("picture", kind, (6, 6))])
    records["picture"] = X.reshape(-1, 6, 6)
    return records["picture"]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("expansion", ["identity", "identity[:3]", "identity | quadratic[:3]"])
@pytest.mark.parametrize("recipe", ["serial", "sequence"])
@pytest.mark.usefixtures("routines")
def test_a_given_center_is_what_is_subtracted(recipe, expansion, kind):
    X, y = data()
    center = 10.0 + np.arange(X.shape[1])
    X = X.astype(kind)

    def features(X, center):
        if recipe == "sequence":
            return SFA(3, expansion=expansion, center=center).fit(X).transform(X)
        return GSFA(3, graph="serial", expansion=expansion, center=center).fit(X, y).transform(X)

    expected = features((X - center).astype(kind), np.zeros(len(center)))
    np.testing.assert_allclose(features(X, center), expected, atol=2e5 * np.finfo(kind).eps)


def _node(n_inputs, expansion, J=2, K=2):
    rng, nothing = np.random.default_rng(0), np.zeros(0)
    frontend = Frontend(parse_expansion(expansion), 1, n_inputs, np.ones(n_inputs))
    F, G, H = (rng.standard_normal(shape) for shape in ((J, frontend.n_expanded), (K, n_inputs), (K, J)))
    f, k = rng.standard_normal(J), rng.standard_normal(K)
    return Node(frontend, F, f, G, H, k, np.zeros((n_inputs, J + K)), np.zeros(n_inputs), nothing, 0, nothing)


@pytest.mark.parametrize("expansion", ["identity", "quadratic"])
@pytest.mark.usefixtures("routines")
def test_arrays_of_one_value_of_one_row_and_of_none(expansion):
    node = _node(3, expansion)
    ones = np.broadcast_to(np.float64(4.0), (3, 50))  # strides of 0
    expected = node.encode(np.full((3, 50), 4.0))
    np.testing.assert_allclose(node.encode(ones), expected, rtol=1e-14)
    np.testing.assert_allclose(node.encode(Samples(ones.T, np.arange(50))), expected, rtol=1e-14)
    np.testing.assert_allclose(node.encode(Samples(ones.T, np.arange(50)[::-3])), expected[:, :17], rtol=1e-14)
    np.testing.assert_allclose(node.encode(ones[:, :1]), expected[:, :1], rtol=1e-14)
    assert node.encode(ones[:, :0]).shape == (4, 0)
    single = _node(1, expansion)
    np.testing.assert_allclose(single.encode(np.full((1, 9), 2.0)), single.encode(np.full((1, 1), 2.0)).repeat(9, 1))


@pytest.mark.usefixtures("routines")
@pytest.mark.parametrize("n", [255, 256, 257, 300, 513])
def test_normalised_products_of_any_number_of_samples_are_those_of_the_formula(n):
    node, X = _node(3, "normalized_quadratic"), np.random.default_rng(n).standard_normal((3, n))
    x = X - 1  # the center of the node
    products = np.array([x[i] * x[j] for i in range(3) for j in range(i, 3)])
    slow = node.slow @ (products / (1 + (x**2).sum(axis=0))) + node.slow_offset[:, None]
    rest = node.rest_inputs @ x + node.rest_slow @ slow + node.rest_offset[:, None]
    np.testing.assert_allclose(node.encode(X), np.vstack([slow, rest]), rtol=1e-12, atol=1e-12)


def _before_a_locked_page(values):
    """The values where memory ends: whoever reads behind them is stopped by the system."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    found = np.frombuffer(memory, values.dtype, values.size, size - values.nbytes).reshape(values.shape)
    found[...] = values
    page = np.frombuffer(memory, np.uint8).ctypes.data + size
    assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="locks a page of memory as Linux does")
@pytest.mark.parametrize("n_variables", [1, 15, 16, 17, 31])
@pytest.mark.parametrize("expansion", ["identity", "quadratic"])
def test_nothing_behind_an_array_is_read(expansion, n_variables):
    node, X = _node(n_variables, expansion), np.random.default_rng(0).standard_normal((33, n_variables))
    expected = node.encode(X.T)
    for where in (_before_a_locked_page(X), _before_a_locked_page(X.T.copy()).T):
        for raw in (Samples(where, np.arange(33)), Rows(where.T)):
            np.testing.assert_allclose(node.encode(raw), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("routines")
def test_features_are_only_written_where_they_belong():
    node, X = _node(3, "quadratic"), np.arange(30.0).reshape(3, 10)
    for wrong in (np.zeros((3, 10)), np.zeros((4, 9)), np.zeros(40)):
        with pytest.raises(ValueError, match="out must have shape"):
            node.encode(X, wrong)
        assert not wrong.any()
    locked = np.zeros((4, 10))
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        node.encode(X, locked)
    assert not locked.any()


@pytest.mark.usefixtures("routines")
def test_rows_that_are_not_there_are_refused():
    node, X = _node(3, "identity"), np.arange(30.0).reshape(3, 10)
    for make, array, which in ((Rows, X, [0, 3, 1]), (Rows, X, [0, -4, 1]), (Samples, X.T, [4, 10, 2])):
        with pytest.raises(IndexError):
            node.encode(make(array, np.array(which)))
    for raw in (Rows(X, np.array([0, 1])), Rows(X[:1]), Samples(X.T[:, :2], np.arange(5))):
        with pytest.raises(ValueError, match="must have 3 variables"):
            node.encode(raw)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_features_of_a_few_samples_may_be_written_between_others(n, routines):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, n))
    frontend = Frontend(parse_expansion("identity | quadratic"), 1, 4, np.zeros(4))
    arrays = rng.standard_normal((2, 14)), np.zeros(2), np.zeros((0, 4)), np.zeros((0, 2)), np.zeros(0)
    node = Node(frontend, *arrays, np.zeros((4, 2)), np.zeros(4), np.zeros(0), 14, np.zeros(2))
    wide = np.full((2, 2 * n), np.nan)
    node.encode(X, wide[:, ::2])
    np.testing.assert_allclose(wide[:, ::2], node.encode(X), rtol=1e-12)
    assert np.all(np.isnan(wide[:, 1::2]))
