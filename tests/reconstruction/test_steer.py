"""Steps of least change: the closed form where features are linear, halved steps where they are not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from higsfa import IGSFA
from higsfa.reconstruction import ImagePrior
from higsfa.reconstruction.gradients import Differentiable
from higsfa.reconstruction.morphing import steer


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6))
    node = IGSFA(n_components=4, n_slow=2, graph="serial").fit(X, X[:, 0])
    return X, node, ImagePrior(3).fit(None, X)


@pytest.mark.parametrize("with_prior", [False, True])
def test_one_step_with_linear_features_is_the_damped_least_change(linear, with_prior):
    X, node, prior = linear
    units = np.array([0.5, 1.0, 3.0])
    wanted = node.transform(X[1:2])[0, :3]
    found = steer(
        Differentiable(node), X[0], wanted, units, prior=prior if with_prior else None, bounds=None, n_steps=1
    )
    J = ((node.transform(np.eye(6)) - node.transform(np.zeros((1, 6))))[:, :3] / units).T
    C = np.column_stack([prior.root(prior.root(u)) for u in np.eye(6)]) if with_prior else np.eye(6)
    A = J @ C @ J.T
    gap = (wanted - node.transform(X[:1])[0, :3]) / units
    step = C @ J.T @ np.linalg.solve(A + 1e-3 * np.trace(A) / 3 * np.eye(3), gap)
    assert_allclose(found, X[0] + step, rtol=1e-8)
    near = steer(
        Differentiable(node), X[0], wanted, units, prior=prior if with_prior else None, bounds=None, n_steps=30
    )
    assert_allclose(node.transform(near[None])[0, :3], wanted, atol=1e-5)


def test_pixels_stay_within_their_range(linear):
    X, node, _ = linear
    wanted = node.transform(3 * X[1:2])[0, :2]
    free, kept = (
        steer(Differentiable(node), X[0], wanted, np.ones(2), prior=None, bounds=bounds, n_steps=1)
        for bounds in (None, (-1.0, 1.5))
    )
    assert free.min() < -1
    assert free.max() > 1.5

    def missing(x):
        return np.sum((wanted - node.transform(x[None])[0, :2]) ** 2)

    tried = (np.clip(X[0] + 0.5**k * (free - X[0]), -1, 1.5) for k in range(7))
    assert_allclose(kept, next(x for x in tried if missing(x) < missing(X[0])))


class Curve:
    """One feature of one input with a slope that may be wrong; notes where it was asked for."""

    n_features = 1

    def __init__(self, function, slope):
        self.function, self.slope, self.asked = function, slope, []

    def features(self, X):
        self.asked.append(float(X[0, 0]))
        return self.function(X)

    def gradient(self, X, seeds):
        return self.slope(X) * seeds


def test_a_step_that_goes_too_far_is_halved():
    curve = Curve(np.arctan, lambda X: 1 / (1 + X**2))
    start = 3.0
    newton = start - np.arctan(start) * (1 + start**2) / (1 + 1e-3)
    assert abs(np.arctan(newton)) > abs(np.arctan(start))
    (x,) = steer(curve, np.array([start]), np.zeros(1), np.ones(1), prior=None, bounds=None, n_steps=1)
    steps = [(point - start) / (newton - start) for point in curve.asked]
    assert_allclose(steps, [0, 1, 0.5, 0.25])  # an eighth of the way would have done, a quarter did before
    assert_allclose(x, start + (newton - start) / 4)
    (x,) = steer(curve, np.array([start]), np.zeros(1), np.ones(1), prior=None, bounds=None, n_steps=20)
    assert abs(x) < 1e-9


def test_where_nothing_comes_closer_the_image_stays():
    curve = Curve(lambda X: X, lambda X: -np.ones_like(X))
    x = steer(curve, np.array([2.0]), np.zeros(1), np.ones(1), prior=None, bounds=None, n_steps=5)
    assert_array_equal(x, [2.0])
    steps = np.diff(np.unique(curve.asked))
    assert len(curve.asked) == 1 + 7  # the full step, halved six times, to a 64th
    assert max(curve.asked) == pytest.approx(4.0, abs=0.01)
    assert steps.min() == pytest.approx(2 / 64, rel=0.01)
