"""What linear reconstruction must achieve: exactness where nothing is lost, and the paper's order of methods."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from higsfa import IGSFA, HiGSFA, Layer
from higsfa.metrics import reconstruction_error
from higsfa.reconstruction import LinearReconstruction


@pytest.fixture
def signals():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 8)) @ rng.normal(size=(8, 8)) + 3
    return X, X[:, 0] + 0.5 * X[:, 1] ** 2


@pytest.mark.parametrize("scaling", ["sensitivity", "qr"])
def test_a_node_that_keeps_the_whole_residual_is_exact(signals, scaling):
    X, y = signals
    node = IGSFA(n_components=8 + 3, n_slow=3, graph="serial", expansion="identity | quadratic", scaling=scaling)
    node.fit(X, y)
    assert node.n_slow_ == 3
    new = 0.8 * X + 0.2 * X.mean(axis=0)
    assert np.abs(node.inverse_transform(node.transform(new)) - new).max() < 1e-8


def test_a_layer_without_overlap_that_keeps_everything_is_exact(signals):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 4, 6)) + 3
    layer = Layer((2, 2), (2, 2), 4 + 2, n_slow=2, expansion="identity | quadratic")
    net = HiGSFA([layer], graph="serial").fit(X, X[:, 0, 0])
    new = 0.8 * X + 0.2 * X.mean(axis=0)
    assert np.abs(net.inverse_transform(net.transform(new)) - new).max() < 1e-8


def test_the_error_falls_with_every_component(signals):
    X, y = signals
    errors = []
    for n in range(3, 12):
        node = IGSFA(n_components=n, n_slow=3, graph="serial", expansion="identity | quadratic").fit(X, y)
        Y = node.transform(X)
        errors.append(reconstruction_error(X, node.inverse_transform(Y)))
        assert LinearReconstruction().fit(Y, X).error_ <= errors[-1] + 1e-12
    assert np.all(np.diff(errors) < 1e-12)
    assert errors[-1] < 1e-15


def test_order_of_methods_on_unseen_faces(faces, slow_only):
    known, unseen = faces.images[:500], faces.images[500:]
    pca = PCA(30, random_state=0).fit(faces.train.reshape(len(faces.train), -1))
    error = {}
    for name, features in (
        ("PCA", lambda X: pca.transform(X.reshape(len(X), -1))),
        ("HiGSFA", faces.net.transform),
        ("HGSFA", slow_only.transform),
    ):
        model = LinearReconstruction().fit(features(known), known)
        error[name] = model.error(features(unseen), unseen)
    assert error["PCA"] < error["HiGSFA"] < error["HGSFA"] < 1
