"""Nonlinear reconstruction: features are reached, and with a prior the image does not get worse."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from higsfa import IGSFA
from higsfa.reconstruction import ImagePrior, refine


@pytest.mark.slow
def test_feature_error_falls_and_the_picture_does_not_get_worse(faces):
    result = refine(
        faces.net,
        faces.Y_unseen,
        faces.decoder,
        prior=faces.prior,
        truth=faces.unseen,
        bounds=(0, 255),
        max_iter=60,
    )
    wanted = (faces.Y_unseen - faces.net.transform(result.images)) / faces.decoder.feature_scale_
    assert_allclose(result.feature_error, np.sqrt(np.mean(wanted**2, axis=1)), rtol=1e-6)
    assert np.mean(result.feature_error_before**2) > 10 * np.mean(result.feature_error**2)
    assert result.reconstruction_error.mean() <= result.reconstruction_error_before.mean()
    assert result.images.min() >= 0
    assert result.images.max() <= 255
    assert result.images.shape == faces.unseen.shape


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
    prior = ImagePrior(n_components=5, max_samples=5000).fit(X)
    Y = node.transform(X[:3])
    result = refine(node, Y, np.tile(X.mean(axis=0), (3, 1)), prior=prior, prior_weight=1e-6, max_iter=500)
    A = (node.transform(np.eye(5)) - node.transform(np.zeros((1, 5)))).T
    C = np.cov(X.T, bias=True)
    expected = X.mean(axis=0) + (X[:3] - X.mean(axis=0)) @ A.T @ np.linalg.solve(A @ C @ A.T, A @ C)
    assert_allclose(result.images, expected, atol=1e-3)


def test_prior_is_the_covariance_of_what_the_decoder_misses(faces):
    X = faces.images.reshape(len(faces.images), -1) - faces.decoder.predict(faces.Y).reshape(len(faces.images), -1)
    prior = ImagePrior(20).fit(faces.images, faces.Y, faces.decoder)
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    assert_allclose(prior.variances_, values[:20], rtol=1e-8)
    assert_allclose(prior.residual_variance_, values[20:].mean(), rtol=1e-8)
    u = np.random.default_rng(0).normal(size=X.shape[1])
    V, s = prior.components_, prior.residual_variance_
    assert_allclose(prior.root(prior.root(u)), ((prior.variances_ - s) * (V @ u)) @ V + s * u, rtol=1e-8)
    assert_allclose(V @ V.T, np.eye(20), atol=1e-9)


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
        ImagePrior().fit(faces.images, Y=faces.Y)
    with pytest.raises(ValueError, match="prior is for 5 pixels"):
        refine(net, Y, prior=ImagePrior().fit(np.random.default_rng(0).normal(size=(9, 5))))
