"""Gradients through nodes and networks against finite differences; features against `transform`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from higsfa import GSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, Layer
from higsfa.core.expansion.expansion import FunctionExpansion
from higsfa.reconstruction.gradients import Differentiable

EXPANSIONS = [
    "identity",
    "identity | power0.8",
    "identity | power2",
    "identity[:3] | signed_power0.8[2:]",
    "identity | max2",
    "max2[:4]",
    "identity | quadratic[:3]",
    "polynomial3[:3]",
    "identity | normalized_quadratic",
    FunctionExpansion(np.sin, gradient=lambda X, G: G * np.cos(X)),
]


def numeric_gradient(function, x, G, step=1e-6):
    """dL/dx of L = G . function(x) by central differences of single inputs."""
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        up, down = x.copy(), x.copy()
        up[:, i] += step
        down[:, i] -= step
        out[:, i] = np.sum((function(up) - function(down)) * G, axis=1) / (2 * step)
    return out


def check(model, X, seed=0):
    X = 0.6 * X  # training samples lie on the borders of the range guard, where there is no derivative
    flat = X.reshape(len(X), -1)
    shape = X.shape[1:]
    net = Differentiable(model)
    Y = model.transform(X)
    assert_allclose(net.features(flat), Y, rtol=1e-10, atol=1e-10 * np.abs(Y).max())
    G = np.random.default_rng(seed).normal(size=Y.shape)
    expected = numeric_gradient(lambda x: model.transform(x.reshape(-1, *shape)), flat, G)
    found = net.gradient(flat, G)
    assert np.abs(expected).max() > 0
    assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6))
    return X, X[:, 0] + 0.3 * X[:, 1] ** 2


@pytest.mark.parametrize("expansion", EXPANSIONS, ids=str)
def test_node_with_every_expansion(data, expansion):
    X, y = data
    node = IGSFA(n_components=5, n_slow=2, graph="serial", expansion=expansion).fit(X, y)
    check(node, X[:5])


@pytest.mark.parametrize(
    "node",
    [SFA(3), ISFA(4, n_slow=2, expansion="identity | quadratic"), GSFA(3, expansion="identity | quadratic")],
    ids=lambda node: type(node).__name__,
)
def test_other_estimators(data, node):
    X, y = data
    check(node.fit(X, y) if isinstance(node, GSFA) else node.fit(X), X[:5])


def test_node_without_slow_part(data):
    X, y = data
    check(IGSFA(n_components=3, n_slow=0, expansion="identity | quadratic").fit(X, y), X[:4])


@pytest.mark.parametrize("shared", [False, True])
def test_image_network_with_principal_components_and_overlap(shared):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 7, 8)).cumsum(axis=1)
    layers = [
        Layer((3, 4), (2, 2), 4, pca=6, n_slow=2, expansion="identity | power0.8 | quadratic[:2]", shared=shared),
        Layer((3, 1), (1, 1), 5, n_slow=2, expansion="identity | max2[:3]"),
        Layer((1, 3), (1, 1), 6, n_slow=3, expansion="identity | normalized_quadratic[:2]"),
    ]
    check(HiGSFA(layers, graph="serial").fit(X, X[:, 3, 3] + rng.normal(size=600)), X[:3])


def test_channels_and_several_top_nodes():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 4, 4, 2))
    layers = [Layer((2, 2), (2, 2), 3, n_slow=1, expansion="identity | quadratic[:1]")]
    check(HiGSFA(layers, graph="serial", input_shape=(4, 4, 2)).fit(X, X[:, 0, 0, 0]), X[:3])


def test_network_over_a_line():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(800, 16)).cumsum(axis=0) * 0.1
    layers = [Layer(4, 4, 3, expansion="identity | quadratic"), Layer(4, 4, 4, expansion="identity | power0.8")]
    check(HSFA(layers).fit(X), X[100:103])


def test_nodes_with_slow_parts_of_different_size_and_low_rank():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(500, 2, 6))
    X[:, :, 4:] = X[:, :, 2:4]  # the last field has rank 2 of 4 only
    X[:, :, 0] += np.linspace(-3, 3, 500)[:, None]
    net = HiGSFA([Layer((2, 2), (2, 2), 4, delta_threshold=1.5), Layer((1, 3), (1, 1), 6)], graph="serial")
    net.fit(X, np.linspace(-3, 3, 500))
    assert len(set(net.layers_[0].n_slow.tolist())) > 1
    check(net, X[:3])


def test_clipped_inputs_have_no_gradient(data):
    X, y = data
    node = IGSFA(n_components=4, n_slow=2, expansion="identity | quadratic").fit(X, y)
    net, G = Differentiable(node), np.ones((1, 4))
    far = X[:1].copy()
    far[:, 2] = 1e3
    exact = net.gradient(far, G)
    assert exact[0, 2] == 0
    assert np.all(exact[0, [0, 1, 3, 4, 5]] != 0)
    assert_allclose(exact, numeric_gradient(node.transform, far, G), atol=1e-5 * np.abs(exact).max())


def test_features_and_gradient_come_together_or_alone(data):
    X, y = data
    node = IGSFA(n_components=4, n_slow=2, expansion="identity | quadratic").fit(X.astype(np.float32), y)
    net = Differentiable(node)
    Y, gradient = net.with_gradient(X[:3], lambda Y: 2 * Y)
    assert Y.dtype == gradient.dtype == np.float64
    assert_allclose(Y, net.features(X[:3]))
    assert_allclose(gradient, net.gradient(X[:3], 2 * Y))
    assert (net.n_inputs, net.n_features, net.input_shape) == (6, 4, (6,))


def test_other_models_are_refused():
    with pytest.raises(TypeError, match="not through int"):
        Differentiable(3)
