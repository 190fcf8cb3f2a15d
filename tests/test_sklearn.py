"""The estimators are good citizens of scikit-learn."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from higsfa import GSFA, IGSFA, ISFA, SFA, DelayEmbedding
from higsfa.graphs import ClusteredGraph, SerialGraph

CONFIGURATIONS = [
    SFA(),
    SFA(n_components=2, expansion="identity | quadratic"),
    SFA(expansion="power0.8", shrinkage=0.1, clip_range=False),
    ISFA(),
    ISFA(n_components=1, n_slow=1),
    ISFA(expansion="identity | power0.8", scaling="qr"),
    SFA(lag=[1, 2], node_weights="degree"),
    DelayEmbedding(),
    GSFA(),
    GSFA(n_components=1, graph="clustered"),
    GSFA(n_components=1, graph="serial", expansion="identity | power0.8", shrinkage=0.1),
    IGSFA(),
    IGSFA(n_components=1, graph="clustered", n_slow=1),
    IGSFA(graph="mixed", scaling="qr", weighted=True),
    IGSFA(graph=SerialGraph(n_groups=4) + 0.5 * ClusteredGraph(self_loops=True), expansion="polynomial2"),
]


def expected_to_fail(estimator):
    """In a time series a sample that comes twice is another pair, and delays depend on the samples before."""
    if isinstance(estimator, DelayEmbedding):
        checks = ("check_methods_sample_order_invariance", "check_methods_subset_invariance")
        return dict.fromkeys(checks, "the past of a sample is the rows before it")
    reason = "weights of samples in time series are not copies"
    return {"check_sample_weight_equivalence_on_dense_data": reason} if isinstance(estimator, SFA | ISFA) else {}


@pytest.mark.filterwarnings("ignore:n_components=.* asked for:UserWarning")
@pytest.mark.filterwarnings("ignore:y is not used.* groups=y:UserWarning")  # classes of iris and wine are in order
@parametrize_with_checks(CONFIGURATIONS, expected_failed_checks=expected_to_fail)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


def test_grid_search_reaches_into_recipes_and_sums():
    X, y = load_diabetes(return_X_y=True)
    model = make_pipeline(GSFA(n_components=2, graph=SerialGraph() + SerialGraph()), LinearRegression())
    grid = {"gsfa__graph__graph1__n_groups": [4, 16], "gsfa__shrinkage": [0.0, 0.1]}
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.3
    assert len(search.cv_results_["params"]) == 4


def test_grid_search_over_recipe_objects_and_their_parameters():
    X, y = load_diabetes(return_X_y=True)
    model = make_pipeline(IGSFA(n_components=4, graph=SerialGraph()), LinearRegression())
    grid = {"igsfa__graph__n_groups": [8, 32], "igsfa__n_slow": [1, 2]}
    assert GridSearchCV(model, grid, cv=3).fit(X, y).best_score_ > 0.3


def test_features_classify_in_a_pipeline():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(GSFA(n_components=2), LogisticRegression()).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.95


def test_set_output_pandas_names_slow_and_reconstructive_features():
    X, y = load_wine(return_X_y=True, as_frame=True)
    frame = IGSFA(n_components=5, n_slow=2).set_output(transform="pandas").fit_transform(X, y)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == [f"igsfa_{name}" for name in ("slow0", "slow1", "rec0", "rec1", "rec2")]
    assert frame.index.equals(X.index)


@pytest.mark.parametrize("estimator", CONFIGURATIONS, ids=repr)
@pytest.mark.filterwarnings("ignore:n_components=.* asked for:UserWarning")
@pytest.mark.filterwarnings("ignore:y is not used.* groups=y:UserWarning")  # classes of iris and wine are in order
def test_clone_and_joblib_round_trip_keep_the_model(estimator, tmp_path):
    X, y = load_wine(return_X_y=True)
    fitted = clone(estimator).fit(X, y)
    joblib.dump(fitted, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(loaded.transform(X), fitted.transform(X))
    assert repr(clone(fitted)) == repr(estimator)
    assert np.array_equal(clone(fitted).fit(X, y).transform(X), fitted.transform(X))


def test_float32_in_gives_float32_out_and_uint8_counts_as_float32():
    X, y = load_wine(return_X_y=True)
    model = GSFA(n_components=2).fit(X.astype(np.float32), y)
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    assert model.inverse_transform(model.transform(X.astype(np.float32))).dtype == np.float32
    pixels = np.random.default_rng(0).integers(0, 256, (200, 6), dtype=np.uint8)
    assert GSFA(n_components=2).fit_transform(pixels, pixels[:, 0] > 100).dtype == np.float32


def test_partial_fit_is_there_exactly_where_it_is_exact():
    assert hasattr(SFA(), "partial_fit")
    assert not hasattr(SFA(expansion="quadratic"), "partial_fit")
    assert hasattr(SFA(expansion="quadratic", center=[0.0]), "partial_fit")
    assert hasattr(GSFA(graph="clustered"), "partial_fit")
    assert not hasattr(GSFA(graph="serial"), "partial_fit")
    assert not hasattr(GSFA(), "partial_fit")


def test_memory_of_a_fit_from_a_memmap_stays_below_64_mib(tmp_path):
    import tracemalloc

    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((100_000, 120)))
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = rng.integers(0, 5, len(X))
    for expansion in ("identity", "identity | power0.8"):
        tracemalloc.start()
        model = GSFA(n_components=3, graph="clustered", expansion=expansion).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sums = model.statistics_.sums
        assert peak < 64 * 2**20 + 4 * sums.second.nbytes
