"""Every value that a constructor accepts can be saved, and comes back as an equal one."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from higsfa import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, LabelHead, Layer, load, save
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.graphs import (
    AutoGraph,
    ClusteredGraph,
    EdgeGraph,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
)

pytestmark = pytest.mark.filterwarnings("ignore:n_components=.* asked for:UserWarning")

N = 60


class Somewhere(os.PathLike):
    def __fspath__(self):
        return "/tmp/somewhere"


class Text(str):
    pass


BOOLEAN = [True, False, np.True_, np.False_]
COUNT = [1, 2, True, np.int8(3), np.uint64(2), 10**30]
COUNT_OR_NOT = [None, *COUNT]
REAL = [0.25, 0, 1e-300, np.float32(0.1), np.float64(0.3), np.longdouble(0.5), False]
EXPANSIONS = [
    "identity",
    Text("identity | quadratic[:2]"),
    np.str_("identity | power0.8"),
    parse_expansion("identity | max2"),
    ["identity", "power2"],
    ("identity", parse_expansion("signed_power0.5"), ["quadratic[0]"]),
]
LAGS = [[1, 2], (3, 1), np.array([2, 5]), range(1, 4)]
WEIGHTS = [None, "degree", np.str_("degree")]
LABELS = [
    None,
    "age",
    Text("age"),
    np.str_("age"),
    "",
    'quo"te\n\0\ud800é',
    0,
    -3,
    7,
    np.int16(7),
    False,
    True,
    np.False_,
]
KINDS = [None, "categorical", np.str_("numeric"), {}, {"a": "categorical", 7: Text("numeric")}]
EDGES = np.array([[0, 1, 2.0], [1, 2, 1.0]])
MATRIX = sp.coo_array((np.ones(4), ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(N, N))
HALVES = sp.csr_array((np.full(8, 0.5), [1, 1, 0, 2, 2, 0, 1, 1], [0, 2, 6, *[8] * (N - 2)]), shape=(N, N))  # they add
MATRICES = [MATRIX, MATRIX.tocsr(), MATRIX.tocsc(), sp.csr_matrix(MATRIX), MATRIX.astype(bool), MATRIX.astype(np.int8)]
RECIPES = {
    AutoGraph: {},
    ClusteredGraph: {"label": LABELS, "self_loops": [*BOOLEAN, 1, 0]},
    SerialGraph: {"label": LABELS, "n_groups": [None, 2, 7, np.int64(5), 10**30]},
    MixedGraph: {"label": LABELS, "n_groups": [None, 2, np.uint8(5)]},
    SequenceGraph: {"lag": [1, 2, np.int64(3), 10**30, *LAGS], "node_weights": WEIGHTS},
    WindowGraph: {"label": LABELS, "half_width": [1, np.int32(4)], "mirrored": [*BOOLEAN, 1, 0]},
    EdgeGraph: {
        "edges": [EDGES, EDGES.tolist(), EDGES[:, :2], EDGES.astype(np.float32), *MATRICES, HALVES],
        "node_weights": [None, np.ones(N), [1.0, 2.0], range(1, 4), np.ones(N, np.float32)],
    },
    GraphSum: {
        "graphs": [[SerialGraph()], (SerialGraph("a"), WindowGraph(False)), [GraphSum([AutoGraph()])] * 40],
        "weights": [None, [0.5], (1,), [np.float32(0.1)], np.array([2.0]), [2**70]],
    },
}
SIZES = [1, 3, True, np.int64(2), (2, 1), [2, 1], (np.int64(2), 2, 1)]
PRESERVING = {
    "delta_threshold": [*REAL, -2.5, 10**30],
    "n_slow": [None, 0, "auto", *COUNT],
    "scaling": ["sensitivity", "qr", np.str_("qr")],
    "min_scale": REAL,
    "weighted": BOOLEAN,
}
SINGLE = {
    "n_components": COUNT_OR_NOT,
    "expansion": EXPANSIONS,
    "shrinkage": [*REAL, 10**30, "auto"],
    "clip_range": BOOLEAN,
    "cv": [2, np.int64(7)],
    "center": [None, [1, 2, 3, 4], (0.5, 1, 1, 1), np.arange(4), np.arange(4, dtype=np.float32), np.arange(8.0)[::2]],
}
LAYER = PRESERVING | {
    "field": SIZES,
    "stride": [None, *SIZES],
    "n_components": COUNT,
    "expansion": EXPANSIONS,
    "pca": COUNT_OR_NOT,
    "shared": BOOLEAN,
    "n_fields": [None, 1, np.int64(3)],
    "pad": BOOLEAN,
    "shrinkage": REAL,
}
NETWORK = {
    "layers": [None, [Layer(2)], (Layer((2,), [1], pca=np.int64(2)), Layer(1))],
    "input_shape": [None, *SIZES, (1, 2, 3, 4)],
    "front": [None, "auto", "edges"],
    "n_jobs": [None, 1, True, 1024, np.int64(2), -1, -5000, -(10**30)],
    "memory_limit": [None, 1, 10**30, np.uint64(2**63), "2 GiB", np.str_("500MB")],
    "spill": [None, True, False, np.True_, "/tmp", Text("/tmp"), "x" * 3000, "\udcff", Path("/tmp/a b"), Somewhere()],
    "engine": ["threads", "dask"],
    "clip_range": BOOLEAN,
    "verbose": [True, False, np.False_, 0, 3, np.int64(2)],
}
LAG = {"lag": [*COUNT, *LAGS]}
TIME = LAG | {"delays": [0, *COUNT], "node_weights": WEIGHTS}
GRAPH = {"graph": ["auto", Text("serial"), np.str_("window")], "label_kinds": KINDS}
HEAD = {
    "n_used_features": [
        None,
        2,
        True,
        np.int64(2),
        "cv",
        np.str_("cv"),
        {},
        {"a": 1, "b": "cv"},
        {"b": None, 7: np.int8(2)},
    ],
    "n_classes": [None, 3, True, np.uint8(3), {}, {"a": 3, "b": None}, {-7: np.int64(4)}],
    "label_kinds": KINDS,
    "integer": [*BOOLEAN, {}, {"a": True, "b": np.False_}, {"a": 1, "b": 0}],
    "regressor": [None],
    "covariance": [*REAL, 1, 1.0, "auto", np.str_("shared"), {"a": 0.5, "b": "separate"}],
    "cv": [2, np.int64(3), 10**30],
    "candidates": [None, [1, 2], (2,), np.array([1, 2], np.uint8), range(1, 3), [1.0, 2.0], [1] * 20_000],
}
LEGAL = {
    SFA: SINGLE | TIME,
    ISFA: SINGLE | TIME | PRESERVING,
    GSFA: SINGLE | GRAPH,
    IGSFA: SINGLE | GRAPH | PRESERVING,
    HSFA: NETWORK | LAG,
    HiSFA: NETWORK | LAG,
    HGSFA: NETWORK | GRAPH,
    HiGSFA: NETWORK | GRAPH,
    LabelHead: HEAD,
}


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 4)), np.arange(N) % 3


def fitted(cls):
    X, y = data()
    return cls([Layer(2, n_components=2)]).fit(X, y) if "layers" in LEGAL[cls] else cls().fit(X, y)


def flat(value):
    """A value as plain numbers, texts, lists and dictionaries, whatever it is made of; a path as its text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if sp.issparse(value):
        value = sp.csr_array(value, dtype=np.float64, copy=True)
        value.sum_duplicates()
        return [value.shape, value.indptr.tolist(), value.indices.tolist(), value.data.tolist()]
    if isinstance(value, np.ndarray | range | tuple | list):
        return [flat(entry) for entry in value]
    if isinstance(value, np.generic) and not isinstance(value, np.longdouble):
        return value.item()
    if isinstance(value, dict):
        return {name: flat(inner) for name, inner in value.items()}
    if hasattr(value, "get_params"):
        return [type(value).__name__, flat(value.get_params(deep=False))]
    return value


def as_one(value):
    """A list of expansions as one."""
    return parse_expansion(" | ".join(map(str, map(as_one, value)))) if isinstance(value, list | tuple) else value


def there_and_back(model, folder):
    save(model, folder / "model")
    return load(folder / "model")


@pytest.mark.parametrize("cls", LEGAL, ids=lambda cls: cls.__name__)
def test_every_legal_parameter_of_an_estimator_comes_back_equal(cls, tmp_path):
    model = fitted(cls)
    default = model.get_params(deep=False)
    assert set(LEGAL[cls]) == set(default), "a parameter is missing in the table of legal values"
    for name, values in LEGAL[cls].items():
        for value in values:
            changed = model.set_params(**(default | {name: value}))
            changed._validate_params()
            loaded = there_and_back(changed, tmp_path).get_params(deep=False)
            assert loaded.keys() == default.keys()
            expected = as_one(value) if name == "expansion" else value
            assert flat(expected) == flat(loaded[name]), f"{name}={value!r} came back as {loaded[name]!r}"
            assert type(loaded[name]) is not int or not isinstance(value, str | os.PathLike)


@pytest.mark.parametrize("cls", RECIPES, ids=lambda cls: cls.__name__)
def test_every_legal_parameter_of_a_recipe_comes_back_equal(cls, tmp_path):
    model = fitted(GSFA)
    needed = {GraphSum: {"graphs": [AutoGraph()]}, EdgeGraph: {"edges": EDGES}}.get(cls, {})
    assert set(RECIPES[cls]) == set(cls._get_param_names()), "a parameter is missing in the table of legal values"
    assert flat(there_and_back(model.set_params(graph=cls(**needed)), tmp_path).graph) == flat(cls(**needed))
    for name, values in RECIPES[cls].items():
        for value in values:
            recipe = cls(**(needed | {name: value}))
            loaded = there_and_back(model.set_params(graph=recipe), tmp_path).graph
            assert flat(loaded) == flat(recipe), f"{name}={value!r}"


def test_every_legal_parameter_of_a_layer_comes_back_equal(tmp_path):
    model = fitted(HiGSFA)
    assert set(LAYER) == set(Layer._get_param_names()), "a parameter is missing in the table of legal values"
    for name, values in LAYER.items():
        for value in values:
            layer = Layer(**({"field": 2} | {name: value}))
            layer._validate_params()
            loaded = there_and_back(model.set_params(layers=[layer]), tmp_path).layers[0]
            expected = as_one(value) if name == "expansion" else value
            assert flat(getattr(loaded, name)) == flat(expected), f"{name}={value!r}"


@pytest.mark.parametrize("cls", LEGAL, ids=lambda cls: cls.__name__)
def test_default_parameters_keep_their_types(cls, tmp_path):
    given, loaded = fitted(cls).get_params(deep=False), there_and_back(fitted(cls), tmp_path).get_params(deep=False)
    assert {name: type(value) for name, value in given.items()} == {name: type(v) for name, v in loaded.items()}


TRAINED = [
    {"n_slow": True},
    {"n_slow": np.int64(1), "scaling": np.str_("qr"), "weighted": np.True_, "pad": np.True_},
    {"pca": np.int8(1), "shared": np.True_},
    {"pca": 10**30, "delta_threshold": 10**30, "shrinkage": False},
    {"stride": True, "min_scale": False, "delta_threshold": np.longdouble(1.5)},
]


@pytest.mark.parametrize("params", TRAINED, ids=str)
def test_networks_trained_with_unusual_but_legal_numbers_can_be_saved(params, tmp_path):
    X, y = data()
    model = HiGSFA([Layer(**({"field": 2, "n_components": 2} | params))], graph="clustered").fit(X, y)
    loaded = there_and_back(model, tmp_path)
    assert np.array_equal(loaded.transform(X), model.transform(X))
    assert loaded._trained[0].plan.options == model._trained[0].plan.options
    assert np.array_equal(clone(loaded).fit(X, y).transform(X), model.transform(X))
