"""Nonlinear reconstruction: features are reached, and with a prior the image does not get worse."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.exceptions import NotFittedError

from higsfa import IGSFA
from higsfa.reconstruction import ImagePrior, LinearReconstruction, refine


@pytest.fixture(scope="module")
def linear():
    """Samples, a node with two linear features of five inputs, and the Gaussian of the inputs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)) @ (0.3 * rng.normal(size=(5, 5)))
    node = IGSFA(n_components=2, n_slow=1, graph="serial").fit(X, X[:, 0])
    return X, node, ImagePrior(n_components=2).fit(None, X)


def test_feature_error_falls_and_the_picture_does_not_get_worse(faces):
    Y, truth = faces.Y_unseen[:6], faces.unseen[:6]
    result = refine(faces.net, Y, faces.decoder, prior=faces.prior, truth=truth, bounds=(0, 255), max_iter=60)
    start = np.clip(faces.decoder.predict(Y), 0, 255)
    for images, feature_error, error in (
        (start, result.feature_error_before, result.reconstruction_error_before),
        (result.images, result.feature_error, result.reconstruction_error),
    ):
        missed = (Y - faces.net.transform(images)) / faces.Y.std(axis=0)
        assert_allclose(feature_error, np.sqrt(np.mean(missed**2, axis=1)), rtol=1e-6)
        assert_allclose(error, np.mean((images - truth) ** 2, axis=(1, 2)))
    assert np.mean(result.feature_error_before**2) > 10 * np.mean(result.feature_error**2)
    assert result.reconstruction_error.mean() <= result.reconstruction_error_before.mean()
    assert result.images.min() >= 0
    assert result.images.max() <= 255
    assert result.images.shape == truth.shape
    assert np.all((result.n_iter > 0) & (result.n_iter <= 60))
    before, after = result.feature_error_before.mean(), result.feature_error.mean()
    assert repr(result) == f"<Refinement of 6 images: mean feature error {before:.3g} to {after:.3g}>"


def test_without_prior_pixels_change_whatever_way_brings_the_features_closer(faces):
    free = refine(faces.net, faces.Y_unseen[:3], faces.decoder, bounds=(0, 255), max_iter=40)
    assert np.all(free.feature_error < 0.5 * free.feature_error_before)
    assert free.reconstruction_error is None


def test_the_more_weight_on_the_prior_the_smaller_the_correction(faces):
    start = faces.decoder.predict(faces.Y_unseen[:2])
    moved = [
        np.sum(
            (
                refine(faces.net, faces.Y_unseen[:2], start, prior=faces.prior, prior_weight=w, max_iter=15).images
                - start
            )
            ** 2
        )
        for w in (0.1, 10.0, 1000.0)
    ]
    assert moved[0] > moved[1] > moved[2] > 0


@pytest.mark.parametrize("known", ["prior", "decoder", "nothing"])
def test_a_result_does_not_depend_on_the_batch(faces, known):
    start = {"prior": faces.decoder, "decoder": faces.decoder, "nothing": None}[known]
    args = {"prior": faces.prior if known == "prior" else None, "max_iter": 5}
    together = refine(faces.net, faces.Y_unseen[:3], start, **args)
    alone = refine(faces.net, faces.Y_unseen[2:3], start, **args)
    assert_allclose(together.images[2], alone.images[0], rtol=1e-9)
    assert_allclose(together.feature_error[2], alone.feature_error[0], rtol=1e-9)


def test_the_truth_as_start_stays(faces):
    result = refine(faces.net, faces.Y_unseen[:2], faces.unseen[:2], prior=faces.prior, truth=faces.unseen[:2])
    assert np.all(result.feature_error < 1e-6)
    assert np.all(result.reconstruction_error < 1e-6)


def test_a_linear_node_with_gaussian_inputs_gets_the_conditional_mean():
    """With linear features and the prior of the inputs themselves, the result is known in closed form."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 5)) @ rng.normal(size=(5, 5))
    node = IGSFA(n_components=2, n_slow=1, graph="serial").fit(X, X[:, 0])
    prior = ImagePrior(n_components=5, max_samples=5000).fit(None, X)
    Y = node.transform(X[:3])
    result = refine(node, Y, np.tile(X.mean(axis=0), (3, 1)), prior=prior, prior_weight=1e-6, max_iter=500)
    A = (node.transform(np.eye(5)) - node.transform(np.zeros((1, 5)))).T
    C = np.cov(X.T, bias=True)
    expected = X.mean(axis=0) + (X[:3] - X.mean(axis=0)) @ A.T @ np.linalg.solve(A @ C @ A.T, A @ C)
    assert_allclose(result.images, expected, atol=1e-3)


@pytest.mark.parametrize("prior_weight", [0.1, 2.0])
def test_with_linear_features_the_result_is_the_least_of_the_loss(linear, prior_weight):
    """Features, range of pixels and prior against a plain minimisation of their sum."""
    X, node, prior = linear
    Y, start, scale = node.transform(2 * X[:2]), X[2:4], np.array([0.5, 2.0])
    bounds = low, high = -0.4, 0.6
    options = {"scale": scale, "bounds": bounds, "prior_weight": prior_weight, "max_iter": 500}
    result = refine(node, Y, start, prior=prior, **options)
    root = np.column_stack([prior.root(u) for u in np.eye(5)])
    b = node.transform(np.zeros((1, 5)))[0]
    A = (node.transform(np.eye(5)) - b).T

    def loss(u, x0, y):
        x = x0 + root @ u
        beyond = np.maximum(x - high, 0) + np.maximum(low - x, 0)
        return np.sum(((A @ x + b - y) / scale) ** 2) + np.sum((beyond / 0.02) ** 2) + prior_weight * u @ u

    for image, x0, y in zip(result.images, np.clip(start, low, high), Y, strict=True):
        best = minimize(loss, np.zeros(5), (x0, y), method="BFGS", options={"gtol": 1e-9})
        assert_allclose(image, np.clip(x0 + root @ best.x, low, high), atol=1e-4)
    assert np.any(result.images == high)
    assert np.any(result.images == low)
    free = refine(node, Y, start, **options)
    assert_array_equal(free.images, refine(node, Y, start, **{**options, "prior_weight": 7.0}).images)
    assert free.feature_error[0] < 1e-6  # the other face cannot be reached within the range


def test_units_are_those_given_or_those_of_training(linear):
    X, node, prior = linear
    Y = node.transform(X[:3])
    start = np.zeros((3, 5))
    missed = node.transform(start) - Y
    seen = LinearReconstruction().fit(node.transform(X), X)
    known = ImagePrior(2).fit(3 * node.transform(X), X, LinearReconstruction().fit(3 * node.transform(X), X))
    deviation = node.transform(X).std(axis=0)
    for options, units in (
        ({"scale": [2.0, 5.0]}, [2.0, 5.0]),
        ({"scale": [2.0, 5.0], "prior": known}, [2.0, 5.0]),
        ({"scale": [3.0, 0.0]}, [3.0, 3.0 / np.sqrt(2)]),
        ({"scale": [0.0, 0.0]}, [1.0, 1.0]),
        ({"prior": known}, 3 * deviation),
        ({"prior": prior}, np.sqrt(np.mean(Y**2, axis=1, keepdims=True))),
        ({}, np.sqrt(np.mean(Y**2, axis=1, keepdims=True))),
    ):
        result = refine(node, Y, start, max_iter=1, **options)
        assert_allclose(result.feature_error_before, np.sqrt(np.mean((missed / units) ** 2, axis=1)))
    by_decoder = refine(node, Y, seen, max_iter=1)
    missed = node.transform(seen.predict(Y)) - Y
    assert_allclose(by_decoder.feature_error_before, np.sqrt(np.mean((missed / deviation) ** 2, axis=1)), atol=1e-12)
    none = refine(node, np.zeros((1, 2)), start[:1] + 0.1, max_iter=1)
    assert_allclose(none.feature_error_before, np.sqrt(np.mean(node.transform(start[:1] + 0.1) ** 2, axis=1)))
    # Pixels that are all alike say nothing about the size of steps.
    assert np.all(refine(node, Y, start.tolist()).feature_error < 1e-6)
    exact = refine(node, node.transform(start), start)
    assert_array_equal(exact.images, start)
    assert np.all(exact.feature_error < 1e-12)


@pytest.mark.parametrize("max_samples", [1500, 20])
@pytest.mark.parametrize(("n", "n_pixels"), [(60, 12), (15, 24), (12, 12)])
def test_prior_is_the_covariance_of_what_the_decoder_misses(n, n_pixels, max_samples):
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(n, 3)) * [1, 2, 3]
    images = (Y @ rng.normal(size=(3, n_pixels)) + rng.normal(size=(n, n_pixels))).reshape(n, 3, -1)
    decoder = LinearReconstruction().fit(Y, images)
    prior = ImagePrior(4, max_samples=max_samples).fit(Y, images, decoder)
    rows = np.rint(np.linspace(0, n - 1, min(n, max_samples))).astype(int)
    X = (images - decoder.predict(Y)).reshape(n, -1)[rows]
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    assert_allclose(prior.variances_, values[:4], rtol=1e-8)
    assert_allclose(prior.residual_variance_, values[4:].mean(), rtol=1e-8)
    u = rng.normal(size=n_pixels)
    V, s = prior.components_, prior.residual_variance_
    assert_allclose(V @ np.cov(X.T, bias=True) @ V.T, np.diag(prior.variances_), atol=1e-9)
    assert_allclose(V @ V.T, np.eye(4), atol=1e-9)
    assert_allclose(prior.root(prior.root(u)), ((prior.variances_ - s) * (V @ u)) @ V + s * u, rtol=1e-8)
    assert_allclose(prior.feature_scale_, Y[rows].std(axis=0))
    assert prior.n_features_in_ == n_pixels
    plain = ImagePrior(n_pixels).fit(None, images)
    assert plain.feature_scale_ is None
    centred = images.reshape(n, -1) - images.reshape(n, -1).mean(axis=0)
    rank = min(n - 1, n_pixels)
    assert_allclose(plain.variances_, np.linalg.svd(centred, compute_uv=False)[:rank] ** 2 / n, rtol=1e-6)
    two = ImagePrior().fit(None, images[:2])
    assert_allclose(two.variances_, np.sum((images[0] - images[1]) ** 2) / 4)
    # Directions in which no image differs are not forbidden, but dear.
    assert plain.residual_variance_ == pytest.approx(1e-6 * plain.variances_[-1], rel=1e-6)


def test_the_only_direction_beyond_the_components_has_its_own_variance():
    images = np.random.default_rng(0).normal(size=(40, 3)) * [5, 2, 1]
    values = np.linalg.eigvalsh(np.cov(images.T, bias=True))
    assert_allclose(ImagePrior(2).fit(None, images).residual_variance_, values[0], rtol=1e-8)


def test_what_does_not_fit_is_refused(faces):
    net, Y = faces.net, faces.Y_unseen[:2]
    with pytest.raises(ValueError, match="features, but HiGSFA makes 30"):
        refine(net, Y[:, :5])
    with pytest.raises(ValueError, match="bounds"):
        refine(net, Y, bounds=(1, 0))
    with pytest.raises(ValueError, match="start has shape"):
        refine(net, Y, faces.unseen[:3])
    with pytest.raises(ValueError, match="scale"):
        refine(net, Y, scale=[1.0])
    with pytest.raises(ValueError, match="go together"):
        ImagePrior().fit(faces.Y, faces.images)
    for wrong, message in (
        ({"start": np.full((2, 1024), np.nan)}, "start holds NaN"),
        ({"truth": np.zeros((2, 1023))}, "truth has shape"),
        ({"truth": np.zeros((1, 2048))}, "truth has shape"),
        ({"scale": np.full(30, np.inf)}, "scale"),
        ({"scale": np.full(30, -1.0)}, "scale"),
        ({"bounds": (1, 1)}, "bounds"),
    ):
        with pytest.raises(ValueError, match=message):
            refine(net, Y, **wrong)
    with pytest.raises(NotFittedError):
        ImagePrior().root(np.zeros(5))
    images = np.random.default_rng(0).normal(size=(9, 5))
    for args, message in (
        ((None, images[:1]), "at least two"),
        ((None, np.ones((3, 5))), "all of them are equal"),
        ((None, np.where(np.eye(9, 5) == 1, np.inf, images)), "NaN or infinite"),
        ((images[:8], images, LinearReconstruction().fit(images, images)), "8 samples, but there are 9 images"),
        ((images, images, 3), "decoder must be"),
    ):
        with pytest.raises((ValueError, TypeError), match=message), np.errstate(invalid="ignore"):
            ImagePrior().fit(*args)
    for options in ({"n_components": 0}, {"max_samples": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ImagePrior(**options).fit(None, images)
    assert len(ImagePrior(1, max_samples=2).fit(None, images).components_) == 1
    with pytest.raises(ValueError, match="prior is for 5 pixels"):
        refine(net, Y, prior=ImagePrior().fit(None, np.random.default_rng(0).normal(size=(9, 5))))
