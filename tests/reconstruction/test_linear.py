"""The global linear map against scikit-learn's regressions, and how it takes its data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge

from higsfa import sources
from higsfa.metrics import reconstruction_error
from higsfa.reconstruction import LinearReconstruction, linear


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(200, 5)) * [1, 10, 1e-3, 3, 1] + [5, 0, 1, 0, 0]
    X = np.tanh(Y @ rng.normal(size=(5, 12))) + rng.normal(size=(200, 12)) + 1000
    return Y, X.reshape(200, 3, 4)


def test_equals_linear_regression(data):
    Y, X = data
    model, other = LinearReconstruction().fit(Y, X), LinearRegression().fit(Y, X.reshape(200, 12))
    assert_allclose(model.components_, other.coef_.T, rtol=1e-8, atol=1e-10)
    assert_allclose(model.predict(Y).reshape(200, 12), other.predict(Y), rtol=1e-10)
    assert_allclose(model.transform(Y), model.predict(Y))
    assert model.predict(Y).shape == X.shape


def test_alpha_is_that_of_ridge_regression(data):
    Y, X = data
    model, other = LinearReconstruction(alpha=30.0).fit(Y, X), Ridge(alpha=30.0).fit(Y, X.reshape(200, 12))
    assert_allclose(model.components_, other.coef_.T, rtol=1e-8, atol=1e-10)
    assert_allclose(model.intercept_, other.intercept_, rtol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 30.0])
def test_error_from_sums_is_the_error_of_the_pictures(data, alpha):
    Y, X = data
    model = LinearReconstruction(alpha=alpha).fit(Y[:150], X[:150])
    assert_allclose(model.error_, reconstruction_error(X[:150], model.predict(Y[:150])), rtol=1e-9)
    assert_allclose(model.error(Y[150:], X[150:]), reconstruction_error(X[150:], model.predict(Y[150:])), rtol=1e-9)
    assert_allclose(model.score(Y[150:], X[150:]), 1 - model.error(Y[150:], X[150:]))


@pytest.mark.parametrize("block", [5, 12 * 7, 10**6])
def test_blocks_parts_memmaps_and_sources_give_the_same_map(data, tmp_path, monkeypatch, block):
    Y, X = data
    whole = LinearReconstruction().fit(Y, X)
    parts = LinearReconstruction()
    for lo, hi in ((0, 1), (1, 90), (90, 200)):
        parts.partial_fit(Y[lo:hi], X[lo:hi])
    monkeypatch.setattr(linear, "BLOCK_VALUES", block)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    models = [
        parts,
        LinearReconstruction().fit(Y, mapped),
        LinearReconstruction().fit(sources.npy(tmp_path / "Y.npy"), sources.array(X)),
        LinearReconstruction().fit(Y.tolist(), X.tolist()),
    ]
    for model in models:
        assert_allclose(model.components_, whole.components_, rtol=1e-8, atol=1e-11)
        assert_allclose(model.intercept_, whole.intercept_, rtol=1e-10)
        assert_allclose(model.error_, whole.error_, rtol=1e-9)
        assert model.n_samples_seen_ == 200
        assert model.image_shape_ == (3, 4)


def test_map_of_pca_features_is_the_inverse_of_pca(data):
    X = data[1].reshape(200, 12)
    pca = PCA(4).fit(X)
    Y = pca.transform(X)
    assert_allclose(LinearReconstruction().fit(Y, X).predict(Y), pca.inverse_transform(Y), rtol=1e-9)
    assert 0 <= LinearReconstruction().fit(X, X).error_ < 1e-12


def test_constant_and_dependent_features_do_no_harm(data):
    Y, X = data
    worse = np.column_stack([Y, np.full(200, 7.0), Y[:, 0], Y[:, 0] - 2 * Y[:, 1]])
    a, b = LinearReconstruction().fit(Y, X), LinearReconstruction().fit(worse, X)
    assert_allclose(b.predict(worse), a.predict(Y), rtol=1e-9)
    assert np.all(b.components_[5] == 0)
    assert np.abs(b.components_).max() <= 1.01 * np.abs(a.components_).max()


def test_without_features_the_mean_image_is_the_reconstruction(data):
    X = data[1]
    model = LinearReconstruction().fit(np.empty((200, 0)), X)
    assert_allclose(model.predict(np.empty((3, 0))), np.repeat(X.mean(axis=0)[None], 3, axis=0))
    assert model.error_ == 1.0


def test_types_of_images_and_of_features(data):
    Y, X = data
    bytes_ = np.clip(X - 900, 0, 255).astype(np.uint8)
    assert_allclose(
        LinearReconstruction().fit(Y, bytes_).components_,
        LinearReconstruction().fit(Y, bytes_.astype(float)).components_,
    )
    model = LinearReconstruction().fit(Y.astype(np.float32), bytes_)
    assert model.predict(Y.astype(np.float32)).dtype == np.float32
    assert model.predict(Y).dtype == np.float64


def test_feature_scale_is_the_standard_deviation(data):
    Y, X = data
    model = LinearReconstruction().fit(Y, X)
    assert_allclose(model.feature_mean_, Y.mean(axis=0))
    assert_allclose(model.mean_, X.reshape(200, 12).mean(axis=0))
    assert model.n_features_in_ == 5
    assert_allclose(model.feature_scale_, Y.std(axis=0))


def test_equal_images_have_no_error_to_speak_of(data):
    Y, X = data
    model = LinearReconstruction().fit(Y, np.ones_like(X))
    assert np.isnan(model.error_)
    assert_allclose(model.predict(Y), 1.0)


def test_what_does_not_fit_is_refused(data):
    Y, X = data
    model = LinearReconstruction().fit(Y, X)
    with pytest.raises(ValueError, match="200 samples, but there are 199 images"):
        LinearReconstruction().fit(Y, X[1:])
    with pytest.raises(ValueError, match="4 features, but the map was learned for 5"):
        model.predict(Y[:, :4])
    with pytest.raises(ValueError, match="images have shape"):
        model.partial_fit(Y, X[:, :2])
    with pytest.raises(ValueError, match="images: NaN"):
        LinearReconstruction().fit(Y, np.where(np.arange(200)[:, None, None] == 3, np.nan, X))
    with pytest.raises(ValueError, match="alpha"):
        LinearReconstruction(alpha=-1).fit(Y, X)
    assert clone(model).get_params() == {"alpha": 0.0}
    for args, message in (
        ((Y[:0], X[:0]), "Y: there are no samples"),
        ((Y, np.full(X.shape, "x")), "samples must be numbers, got dtype <U1"),
        ((Y[:, :, None], X), r"Y must have shape \(n_samples, n_features\), got samples of shape \(5, 1\)"),
        ((np.where(Y > 10, np.inf, Y), X), "Y: NaN or infinite"),
    ):
        with pytest.raises((ValueError, TypeError), match=message), np.errstate(invalid="ignore"):
            LinearReconstruction().fit(*args)
    for call in (model.error, model.score, model.partial_fit):
        with pytest.raises(ValueError, match="4 features, but the map was learned for 5"):
            call(Y[:, :4], X)
        with pytest.raises(ValueError, match=r"images have shape \(2, 4\), but the map was learned for \(3, 4\)"):
            call(Y, X[:, :2])
    for call in (LinearReconstruction().error, LinearReconstruction().score):
        with pytest.raises(NotFittedError):
            call(Y, X)
    with pytest.raises(NotFittedError):
        LinearReconstruction().predict(Y)
    assert LinearReconstruction(alpha=0.5).fit(Y, X).n_samples_seen_ == 200
    assert model.n_samples_seen_ == 200  # nothing of the refused ones was learned
