"""Nothing that is kept is an array that someone else uses again: sources, users, or the next tile."""

import dataclasses
import threading

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, SFA, HiGSFA, HiSFA, Layer
from higsfa.core.sums import plan as tiles
from higsfa.graphs import SerialGraph
from higsfa.training import network as driver
from higsfa.training.sources import Source


class OneBuffer(Source):
    """A source that returns the same array every time, filled anew; one for each thread."""

    def __init__(self, X):
        self._X, self._buffers = X, threading.local()

    @property
    def shape(self):
        return self._X.shape[1:]

    @property
    def dtype(self):
        return self._X.dtype

    def __len__(self):
        return len(self._X)

    def _identity(self):
        return ()

    def _take(self, rows):
        if not hasattr(self._buffers, "array"):
            self._buffers.array = np.empty_like(self._X)
        self._buffers.array[:] = np.nan
        taken = self._buffers.array[: len(rows)]
        np.take(self._X, rows, axis=0, out=taken)
        return taken


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 64)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 16)
    monkeypatch.setattr("higsfa.core.sums.tile.MAX_TILE", 16)
    monkeypatch.setattr(tiles, "BLOCK", 64)


def data(n_features=6, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((200, n_features)), axis=0)
    return X.astype(dtype), X[:, 0] + rng.standard_normal(200)


ESTIMATORS = {
    "SFA": lambda: SFA(2),
    "GSFA": lambda: GSFA(2, graph=SerialGraph(n_groups=5), expansion="identity | quadratic"),
    "IGSFA": lambda: IGSFA(3, n_slow=1, expansion=lambda X: np.tanh(X)),
}
NETWORKS = {
    "one node": [Layer(6, n_components=4), Layer(1, n_components=3)],
    "fields": [Layer(2, 2, 2, expansion="identity"), Layer(3, n_components=3)],
    "functions": [Layer(3, 3, 2, expansion=lambda X: np.column_stack([X, X**2])), Layer(2, n_components=3, pca=3)],
    "shared": [Layer(3, 3, 2, shared=True), Layer(2, n_components=3, shared=True)],
}


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)


def numbers(fitted):
    """All numbers of a model, copied."""
    nodes = [node for layer in fitted.layers_ for node in layer.nodes] if hasattr(fitted, "layers_") else [fitted._node]
    found = []
    for node in nodes:
        for record in (node, node.frontend, node.frontend.projection):
            if record is not None:
                values = record.__getstate__().values()
                found += [value.copy() for value in values if isinstance(value, np.ndarray)]
    return found


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_source_may_return_the_same_array_every_time(name, dtype):
    X, y = data(dtype=dtype)
    expected = ESTIMATORS[name]().fit(X, y)
    found = ESTIMATORS[name]().fit(OneBuffer(X), y)
    assert_same(numbers(found), numbers(expected))
    assert np.array_equal(found.transform(OneBuffer(X)), expected.transform(X))


def placed(monkeypatch, place):
    make_budget = driver.make_budget

    def forced(*args, **kwargs):
        budget = make_budget(*args, **kwargs)
        layers = tuple(dataclasses.replace(layer, place=place, nodes_at_once=2) for layer in budget.layers)
        return dataclasses.replace(budget, input_place=place, layers=layers)

    monkeypatch.setattr(driver, "make_budget", forced)


@pytest.mark.parametrize("place", ["memory", "disk", "nowhere"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_source_may_return_the_same_array_to_a_network(name, place, n_jobs, monkeypatch, tmp_path):
    X, y = data()
    expected = HiGSFA(NETWORKS[name]).fit(X, y)
    placed(monkeypatch, place)
    found = HiGSFA(NETWORKS[name], n_jobs=n_jobs, spill=tmp_path).fit(OneBuffer(X), y)
    assert_same(numbers(found), numbers(expected))
    assert np.array_equal(found.transform(OneBuffer(X)), expected.transform(X))


@pytest.mark.parametrize("place", ["memory", "disk", "nowhere"])
def test_a_source_of_single_numbers_may_return_the_same_array(place, monkeypatch, tmp_path):
    """One row of features is contiguous either way round, so that nothing forces a copy."""
    X, _ = data(1)
    layers = [Layer(1, n_components=1), Layer(1, n_components=1)]
    expected = HiSFA(layers).fit(X)
    placed(monkeypatch, place)
    assert_same(numbers(HiSFA(layers, spill=tmp_path).fit(OneBuffer(X))), numbers(expected))


@pytest.mark.filterwarnings("ignore:.*different whole numbers")
@pytest.mark.parametrize("name", [*ESTIMATORS, *NETWORKS])
def test_a_model_changes_neither_its_data_nor_with_them(name):
    X, y = data()
    kept = X.copy()
    model = ESTIMATORS[name]() if name in ESTIMATORS else HiGSFA(NETWORKS[name])
    X.flags.writeable = False
    before = numbers(model.fit(X, y))
    Y = model.transform(X)
    rebuilt = model.inverse_transform(Y)
    assert np.array_equal(X, kept)
    X.flags.writeable = True
    X[:] = np.nan
    y[:] = np.nan
    # whatever was scratch is written over
    for other in (ESTIMATORS[name]() if name in ESTIMATORS else HiGSFA(NETWORKS[name]),):
        other.fit(kept[::-1] ** 2, np.arange(200.0)).transform(-kept)
    assert_same(numbers(model), before)
    assert np.array_equal(model.transform(kept), Y)
    assert np.array_equal(model.inverse_transform(Y), rebuilt)
