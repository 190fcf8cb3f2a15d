"""What single nodes share, in small: parameters that reach the solver, attributes, parts of the data, bad input."""

import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.base import clone

from higsfa import GSFA, IGSFA, ISFA, SFA, sources
from higsfa.estimators import validation as _validation
from higsfa.estimators.validation import product_dtype
from higsfa.graphs import ClusteredGraph, SequenceGraph, SerialGraph
from higsfa.training.statistics import ClassStatistics, GraphStatistics
from oracles import (
    align_signs,
    assert_same_features,
    assert_same_up_to_sign,
    classical_sfa,
    dense_clustered,
    dense_gsfa,
    dense_sequence,
    dense_serial,
    expand,
)

N = 90
rng = np.random.default_rng(0)
AGE = rng.permutation(N) / 10.0
RACE = np.arange(N) % 3
X = rng.standard_normal((N, 3)) + np.column_stack([0.3 * AGE, RACE, np.cumsum(rng.standard_normal(N)) / 4])
W = rng.uniform(0.5, 2.0, N)
RECORDING = np.repeat([4, 2, 9], [30, 20, 40])
QUADRATIC = "identity | quadratic"
SERIAL = SerialGraph(n_groups=5)


def same(a, b, atol=1e-9):
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


# --- what is fitted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expansion", ["identity", QUADRATIC])
@pytest.mark.parametrize("w", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["serial", "clustered", "sequence"])
def test_features_are_those_of_all_edges_written_out(kind, w, expansion):
    if kind == "sequence" and w is not None:
        return
    recipe, y, graph = {
        "serial": (SERIAL, AGE, lambda: dense_serial(AGE, 5, w)),
        "clustered": (ClusteredGraph(), RACE, lambda: dense_clustered(RACE, w)),
        "sequence": (SequenceGraph(2), None, lambda: dense_sequence(N, 2, RECORDING)),
    }[kind]
    model = GSFA(graph=recipe, expansion=expansion).fit(X, y, sample_weight=w, groups=RECORDING)
    mean = np.average(X, axis=0, weights=w)
    Z = expand(expansion, X - mean)
    reference = dense_gsfa(Z, *graph())
    same(model.delta_values_, reference.deltas)
    assert_same_features(model.transform(X), reference(Z), reference.deltas, atol=1e-7)
    if expansion == QUADRATIC:
        same(model.mean_, mean)
    other = GSFA(graph="serial", expansion=expansion).fit(X, y, graph=recipe, sample_weight=w, groups=RECORDING)
    np.testing.assert_array_equal(other.transform(X), model.transform(X))


@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("groups", [None, RECORDING], ids=["one", "several"])
def test_sfa_is_that_of_differences_in_time(lag, groups):
    reference = classical_sfa(X, lag, groups)
    model = SFA(lag=lag).fit(X, groups=groups)
    same(model.delta_values_, reference.deltas)
    assert_same_up_to_sign(model.transform(X), reference(X), atol=1e-7)


def test_parameters_reach_the_solver():
    default = IGSFA(3, graph="serial").fit(X, AGE)
    for params in (
        {"n_slow": 0},
        {"delta_threshold": -1.0},
        {"delta_threshold": 4.0},
        {"scaling": "qr", "n_slow": 2},
        {"weighted": True, "n_slow": 1},
        {"shrinkage": 0.5},
        {"n_slow": 3, "min_scale": 0.9},
    ):
        other = IGSFA(3, graph="serial").set_params(**params).fit(X, AGE)
        assert np.abs(other.transform(X) - align_signs(default.transform(X), other.transform(X))).max() > 1e-4
    assert IGSFA(3, graph="serial", n_slow=2, delta_threshold=-1.0).fit(X, AGE).n_slow_ == 2
    assert np.abs(GSFA(graph="serial", shrinkage=0.5).fit(X, AGE).transform(X)).std(axis=0).max() < 1.0


def test_attributes_tell_what_was_found():
    plain, keeping = GSFA(2, graph="serial").fit(X, AGE), IGSFA(2, graph="serial", n_slow=1).fit(X, AGE)
    assert (plain.n_components_, plain.n_slow_, plain.rank_, plain.n_features_in_) == (2, 2, 3, 3)
    assert (keeping.n_components_, keeping.n_slow_, keeping.rank_) == (2, 1, 3)
    assert len(plain.delta_values_) == 2
    assert len(keeping.delta_values_) == 3  # Delta of all features helps to choose how many are slow
    same(keeping.delta_values_[:2], plain.delta_values_)
    assert plain.get_feature_names_out().tolist() == ["gsfa_slow0", "gsfa_slow1"]
    assert keeping.get_feature_names_out().tolist() == ["igsfa_slow0", "igsfa_rec0"]
    with pytest.warns(UserWarning, match="n_components=5 asked for, but the data support 3: .* 3 expanded .* rank 3"):
        assert GSFA(5, graph="serial").fit(X, AGE).n_components_ == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GSFA(3, graph="serial").fit(X, AGE)


def test_a_centre_that_is_given_is_used():
    center = X.mean(axis=0) + np.array([1.0, 0.0, -2.0])
    model = GSFA(graph=SERIAL, expansion=QUADRATIC, center=center).fit(X, AGE)
    same(model.mean_, center)
    Z = expand(QUADRATIC, X - center)
    reference = dense_gsfa(Z, *dense_serial(AGE, 5))
    same(model.delta_values_, reference.deltas)
    assert_same_features(model.transform(X), reference(Z), reference.deltas, atol=1e-7)
    for bad, words in (([0.0, 0.0], r"shape \(3,\).*got \(2,\)"), ([0.0, np.nan, 0.0], "center contains NaN")):
        with pytest.raises(ValueError, match=words):
            GSFA(graph="serial", center=bad).fit(X, AGE)


def test_features_and_reconstructions_are_those_of_their_parts():
    model = IGSFA(3, expansion=QUADRATIC, graph="serial", n_slow=1).fit(X, AGE)
    many = np.tile(X, (400, 1))  # more than are looked at at once
    Y = model.transform(X)
    same(model.transform(many), np.tile(Y, (400, 1)), atol=1e-12)
    out = np.full((N, 3), np.nan, dtype=np.float32)
    assert model.transform(X, out=out) is out
    same(out, Y, atol=1e-6)
    same(model.inverse_transform(Y[:7]), model.inverse_transform(Y)[:7], atol=1e-12)
    full = IGSFA(4, expansion=QUADRATIC, graph="serial", n_slow=1).fit(X, AGE)
    same(full.inverse_transform(full.transform(X)), X)
    with pytest.raises(ValueError, match=r"out must be an array of shape \(90, 3\), got \(90, 2\)"):
        model.transform(X, out=np.zeros((N, 2)))
    with pytest.raises(ValueError, match=r"out must be an array of shape \(90, 3\), got list"):
        model.transform(X, out=[])
    with pytest.raises(ValueError, match="Y has 2 features, but IGSFA makes 3"):
        model.inverse_transform(Y[:, :2])


def test_features_are_extracted_in_large_pieces_of_bounded_size():
    sizes = []

    def noted(batch):
        sizes.append(len(batch))
        return batch

    narrow = SFA(2).fit(X)
    narrow.transform(sources.map(np.tile(X, (400, 1)), noted))
    assert [size for size in sizes if size > 1] == [32768, 36000 - 32768]  # one sample tells the type
    wide = SFA(1).fit(rng.standard_normal((10, 2000)))
    sizes.clear()
    wide.transform(sources.map(np.zeros((5000, 2000)), noted))
    assert [size for size in sizes if size > 1] == [4096, 904]  # 4 tiles of at most 16 MiB


def test_sums_are_kept_by_class_for_up_to_32_classes():
    y = np.arange(200) % 33
    data = rng.standard_normal((200, 2))
    assert isinstance(GSFA(graph="clustered").fit(data[y < 32], y[y < 32]).statistics_, ClassStatistics)
    more = GSFA(graph="clustered").fit(data, y)
    assert isinstance(more.statistics_, GraphStatistics)
    same(more.delta_values_, dense_gsfa(data, *dense_clustered(y)).deltas)
    with pytest.raises(ValueError, match=r"partial_fit cannot continue this fit.* up to 32 classes"):
        more.partial_fit(data, y)


# --- parts of the data --------------------------------------------------------------------------------------------


def test_partial_fit_on_classes_is_fit_on_all_of_them():
    for w in (None, W):
        whole = GSFA(graph="clustered").fit(X, RACE, sample_weight=w)
        parts = GSFA(graph="clustered")
        parts.partial_fit(X[:1], RACE[:1], None if w is None else w[:1])
        assert not hasattr(parts, "delta_values_")  # one class makes no graph yet
        for a, b in ((1, 40), (40, N)):
            parts.partial_fit(X[a:b], RACE[a:b], None if w is None else w[a:b])
        same(parts.transform(X), whole.transform(X))
        again = GSFA(graph="clustered").fit(X[:40], RACE[:40], sample_weight=None if w is None else w[:40])
        same(again.partial_fit(X[40:], RACE[40:], None if w is None else w[40:]).transform(X), whole.transform(X))


def test_partial_fit_in_time_goes_on_with_the_last_recording():
    for lag in (1, 4):
        whole = SFA(lag=lag).fit(X, groups=RECORDING)
        parts = SFA(lag=lag)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for a, b in ((0, 1), (1, 3), (3, 31), (31, 50), (50, N)):
                parts.partial_fit(X[a:b], groups=RECORDING[a:b])
        same(parts.transform(X), whole.transform(X))
        one, halves = SFA(lag=lag).fit(X), SFA(lag=lag).partial_fit(X[:50]).partial_fit(X[50:])
        same(halves.transform(X), one.transform(X))
        two = SFA(lag=lag).fit(X, groups=np.arange(N) >= 50)
        same(SFA(lag=lag).fit(X[:50]).partial_fit(X[50:]).transform(X), two.transform(X))
        same(two.transform(X), SFA(lag=lag).fit(X[:50]).partial_fit(X[50:70]).partial_fit(X[70:]).transform(X))


def test_partial_fit_is_there_where_it_is_exact_and_says_why_not():
    for model, words in (
        (GSFA(graph="serial"), "depends on all labels at once"),
        (GSFA(graph="clustered", expansion=QUADRATIC), "pass their mean beforehand, as center="),
        (SFA(expansion=QUADRATIC), "pass their mean beforehand, as center="),
    ):
        with pytest.raises(AttributeError, match=words):
            model.partial_fit  # noqa: B018
    center = X.mean(axis=0)
    for kind, given in ((SFA, {}), (GSFA, {"graph": "clustered"})):
        model, whole = (kind(expansion=QUADRATIC, center=center, **given) for _ in range(2))
        same(model.partial_fit(X, RACE).transform(X), whole.fit(X, RACE).transform(X))


def test_a_failed_fit_leaves_the_model_as_it_was():
    for model, value in ((GSFA(graph="clustered").fit(X, RACE), np.nan), (SFA().fit(X), np.inf)):
        before, attributes = model.transform(X), set(vars(model))
        broken = X.copy()
        broken[50, 1] = value
        for call in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                call(broken, RACE)
            assert set(vars(model)) == attributes
            np.testing.assert_array_equal(model.transform(X), before)


# --- what comes in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "u1", "i1", "u2", "i4", "i8", "b1"])
def test_products_are_in_single_precision_for_small_types_only(kind):
    dtype = np.dtype(kind)
    assert product_dtype(dtype) == (np.float32 if kind in ("f2", "f4", "u1") else np.float64)
    data = X > 0 if kind == "b1" else (10 * np.abs(X)).astype(dtype)
    model = SFA().fit(data)
    assert model.transform(data).dtype == product_dtype(dtype)
    same(np.abs(model.transform(data)), np.abs(SFA().fit(data.astype(np.float64)).transform(data)), atol=2e-3)


def test_every_container_gives_the_same_model(tmp_path):
    expected = GSFA(graph="serial").fit(X, AGE).transform(X)
    np.save(tmp_path / "x.npy", X)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(40, 3), dtype=X.dtype)
    stored[:] = X
    containers = [
        X.tolist(),
        np.asfortranarray(X),
        pd.DataFrame(X),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        sources.npy(tmp_path / "x.npy"),
        stored,
        da.from_array(X, chunks=(40, 2)),
        sources.array(X.reshape(N, 3, 1)),
    ]
    for data in containers:
        model = GSFA(graph="serial").fit(data, AGE)
        same(np.asarray(model.transform(data)), expected)
        with pytest.raises(ValueError, match="2 features, but GSFA is expecting 3 features"):
            model.transform(X[:, :2])


def test_dask_arrays_are_transformed_block_by_block():
    model = GSFA(2, graph="serial").fit(X, AGE)
    lazy = da.from_array(X.astype(np.float32), chunks=(40, 2))
    features = model.transform(lazy)
    assert features.chunks == ((40, 40, 10), (2,))
    assert features.dtype == np.float32
    same(features.compute(), model.transform(X), atol=1e-4)
    images = da.from_array(np.repeat(X[:, :, None], 2, axis=2), chunks=(50, 3, 1))
    model = GSFA(2, graph="serial").fit(sources.dask(images), AGE)
    assert model.transform(images).shape == (N, 2)


def test_names_of_columns_are_forgotten_when_data_have_none():
    model = SFA().fit(pd.DataFrame(X, columns=list("abc")))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(model.fit(sources.array(X)), "feature_names_in_")
    assert model.n_features_in_ == 3


def test_lazy_data_are_counted():
    assert SFA().fit(sources.array(X[:2])).n_features_in_ == 3
    with pytest.raises(ValueError, match=r"Found 1 sample\(s\) while a minimum of 2 is required"):
        SFA().fit(sources.array(X[:1]))
    model = SFA().fit(sources.array(X))
    with pytest.raises(ValueError, match="X has 2 features, but SFA is expecting 3 features"):
        model.transform(sources.array(X[:, :2]))


@pytest.mark.parametrize("bad", [X.astype(complex), X.astype(str), X.astype("M8[s]")], ids=["complex", "text", "dates"])
def test_what_is_no_number_is_refused(bad):
    for data in (bad, da.from_array(bad)):
        with pytest.raises((ValueError, TypeError), match=r"(?i)complex|numeric|numbers|could not convert|dtype"):
            SFA().fit(data)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 40, N - 1])
def test_what_is_not_finite_is_found_wherever_it_stands(row, value, monkeypatch):
    monkeypatch.setattr(_validation, "_rows_at_once", lambda X: 20)
    broken = X.copy()
    broken[row, 1] = value
    weights = np.ones(N)
    weights[row] = 0.0
    word = "NaN" if np.isnan(value) else "infinity"
    for expansion in ("identity", QUADRATIC):
        for w in (None, weights):
            for graph, y in (("serial", AGE), ("clustered", RACE)):
                with pytest.raises(ValueError, match=word):
                    GSFA(graph=graph, expansion=expansion).fit(broken, y, sample_weight=w)
        if np.isnan(value):  # a missing value cuts the recording
            with pytest.warns(UserWarning, match="1 of 90 samples have missing values"):
                SFA(expansion=expansion).fit(broken)
        else:
            with pytest.raises(ValueError, match=word):
                SFA(expansion=expansion).fit(broken)
    gaps = AGE.copy()
    gaps[row] = np.nan
    with pytest.raises(ValueError, match=word):
        GSFA(graph="serial").fit(broken, gaps)


def test_numbers_whose_products_overflow_are_refused():
    with pytest.raises(ValueError, match=r"too large for float64 .*: scale X down$"):
        GSFA(graph="serial").fit(1e200 * X, AGE)
    late = X.astype(np.float32)
    late[80] *= 1e30
    with pytest.raises(ValueError, match=r"too large for float32 .*: scale X down, or pass it as float64$"):
        SFA().fit(sources.map(late, lambda batch: batch))


def test_rows_are_searched_in_pieces_of_bounded_size():
    assert _validation._rows_at_once(sources.array(np.zeros((2, 2**20)))) == 4
    assert _validation._rows_at_once(sources.array(np.zeros((2, 3, 5)))) == 2**22 // 15
    assert _validation._rows_at_once(sources.array(np.zeros((1, 2**23)))) == 1


def test_isfa_and_igsfa_differ_from_sfa_and_gsfa_by_what_they_keep():
    same(
        ISFA(3, n_slow=2).fit(X).transform(X)[:, :2] / ISFA(3, n_slow=2).fit(X).transform(X)[:, :2].std(axis=0),
        SFA(2).fit(X).transform(X) / SFA(2).fit(X).transform(X).std(axis=0),
    )


def test_a_subclass_may_have_parameters_of_its_own():
    class Named(IGSFA):
        def __init__(self, n_components=None, *, name="mine"):
            super().__init__(n_components, n_slow=1)
            self.name = name

    node = clone(Named(3, name="other"))
    assert (node.get_params(), node.n_slow, node.graph) == ({"n_components": 3, "name": "other"}, 1, "auto")


def test_a_single_node_waits_for_nothing_that_only_networks_and_files_need():
    """Validation of files, pictures and cross-validation take longer to import than all of us."""
    program = """
import sys
from higsfa import GSFA, SFA
heavy = "pydantic", "PIL", "rich", "safetensors", "sklearn.model_selection", "sklearn.metrics", "higsfa.training.layer"
print(*(name for name in heavy if name in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert found.stdout.split() == []


@pytest.mark.parametrize("make", [lambda: SFA(), lambda: GSFA(graph="clustered"), lambda: GSFA(graph="serial")])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic[:3]"])
def test_means_of_many_samples_in_single_precision_lose_few_digits(make, expansion):
    """Added one after the other, 4,096 numbers would lose one or two digits, and with them the rank of a covariance."""
    X = np.random.default_rng(0).uniform(0, 1, (4096, 20)).astype(np.float32)
    y = np.arange(4096) % 3
    models = [make().set_params(expansion=expansion, center=np.zeros(20)) for _ in range(2)]
    single, double = (
        model.fit(data, y).statistics_.covariances()
        if isinstance(model, GSFA)
        else model.fit(data).statistics_.covariances()
        for model, data in zip(models, (X, X.astype(np.float64)), strict=True)
    )
    np.testing.assert_allclose(single.mean, double.mean, rtol=4 * np.finfo(np.float32).eps)
