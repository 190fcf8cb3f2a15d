"""No samples are samples: features of none are an empty array, of estimators and of networks alike."""

import numpy as np
import pandas as pd
import pytest

from higsfa import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, Layer, sources

LAYERS = [Layer((2, 2), n_components=3), Layer((2, 2), n_components=4, expansion=np.tanh)]
MODELS = [SFA(2), GSFA(2, expansion=np.tanh), ISFA(3, n_slow=1), IGSFA(3, expansion="identity | quadratic")]
MODELS += [kind(LAYERS, input_shape=(4, 4), n_jobs=2) for kind in (HSFA, HGSFA, HiSFA, HiGSFA)]


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: type(model).__name__)
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 16))
    return request.param.fit(X, X[:, 0])


@pytest.mark.parametrize(("dtype", "expected"), [(np.float32, "f4"), (np.uint8, "f4"), (np.float64, "f8"), (int, "f8")])
def test_features_of_no_samples_are_an_empty_array(fitted, dtype, expected):
    X = np.zeros((0, 16), dtype)
    n = fitted.n_components_
    inputs = [X, sources.array(X), sources.array(np.zeros((3, 16), dtype))[:0]]
    if not isinstance(fitted, SFA | GSFA | ISFA | IGSFA):
        inputs += [X.reshape(0, 4, 4), sources.array(X.reshape(0, 4, 4))]
    for given in inputs:
        Y = fitted.transform(given)
        assert Y.shape == (0, n)
        assert Y.dtype == expected
    out = np.zeros((0, n))
    assert fitted.transform(X, out=out) is out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_features_are_turned_back_into_no_samples(fitted, dtype):
    rebuilt = fitted.inverse_transform(np.zeros((0, fitted.n_components_), dtype))
    shape = getattr(fitted, "input_shape_", (16,))
    assert rebuilt.shape == (0, *shape)
    assert rebuilt.dtype == dtype


def test_no_samples_of_a_frame_are_a_frame_without_rows(fitted):
    fitted.set_output(transform="pandas")
    try:
        features = fitted.transform(np.zeros((0, 16)))
        assert isinstance(features, pd.DataFrame)
        assert features.shape == (0, fitted.n_components_)
        assert list(features.columns) == fitted.get_feature_names_out().tolist()
    finally:
        fitted.set_output(transform="default")


def test_the_number_of_features_counts_even_without_samples(fitted):
    with pytest.raises(ValueError, match="features"):
        fitted.transform(np.zeros((0, 15)))
    with pytest.raises(ValueError, match=r"Y has 1 features"):
        fitted.inverse_transform(np.zeros((0, 1)))


def test_nothing_can_be_learned_from_no_samples(fitted):
    with pytest.raises(ValueError, match=r"minimum of 2 is required"):
        fitted.fit(np.zeros((0, 16)), np.zeros(0))
    with pytest.raises(ValueError, match=r"minimum of 2 is required"):
        fitted.fit(sources.array(np.zeros((0, 16))), np.zeros(0))
