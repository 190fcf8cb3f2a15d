"""The same numbers as deeptime's, on data that it makes; deeptime comes with the extra `bench`."""

import numpy as np
import pytest

from higsfa import SFA, DelayEmbedding
from higsfa.metrics import kinetic_variance, vamp_score

data = pytest.importorskip("deeptime.data")
decomposition = pytest.importorskip("deeptime.decomposition")
EXACT = {"epsilon": 1e-14}


def trajectories(name):
    if name == "ellipsoids":
        ellipsoids = data.ellipsoids(seed=17)
        return [ellipsoids.observations(n, n_dim=10, noise=True) for n in (2000, 700, 1300)]
    system = data.quadruple_well() if name == "quadruple well" else data.double_well_2d()
    paths = [system.trajectory(np.array([[x, 0.1]]), n, seed=n) for x, n in ((-1.0, 1500), (1.0, 900), (0.3, 600))]
    return [np.column_stack([path, path**2, np.sin(path)]) for path in paths]


@pytest.fixture(scope="module", params=["ellipsoids", "quadruple well", "double well"])
def paths(request):
    return trajectories(request.param)


@pytest.mark.parametrize("lag", [1, 7])
@pytest.mark.parametrize("delays", [0, 3])
def test_slow_features_are_those_of_tica(paths, lag, delays):
    embedded = DelayEmbedding(delays, drop=True).fit_transform(paths)
    theirs = decomposition.TICA(lagtime=lag, scaling=None, **EXACT).fit(embedded).fetch_model()
    ours = SFA(lag=lag, delays=delays, node_weights="degree").fit(paths)
    eigenvalues = np.sort(1 - ours.delta_values_ / 2)[::-1]
    order = np.argsort(-np.abs(eigenvalues), kind="stable")
    np.testing.assert_allclose(eigenvalues[order], theirs.singular_values[: len(order)], rtol=0, atol=1e-8)
    np.testing.assert_allclose(vamp_score(embedded, lag=lag, reversible=True), theirs.score(r=2), rtol=1e-8)
    np.testing.assert_allclose(kinetic_variance(ours.delta_values_), theirs.cumulative_kinetic_variance, atol=1e-8)
    slow = eigenvalues[order] > 0.05
    scales = theirs.timescales(lagtime=lag)[: len(order)]
    np.testing.assert_allclose(ours.timescales_[order][slow], scales[slow], rtol=1e-6)


@pytest.mark.parametrize("lag", [1, 7])
@pytest.mark.parametrize("r", [1, 2])
def test_scores_are_those_of_vamp(paths, lag, r):
    theirs = decomposition.VAMP(lagtime=lag, **EXACT).fit(paths).fetch_model()
    np.testing.assert_allclose(vamp_score(paths, lag=lag, r=r), theirs.score(r=r), rtol=1e-8)


def test_scores_of_unseen_paths_are_those_of_cross_validation(paths):
    train, test = paths[:2], paths[2:]
    theirs = decomposition.TICA(lagtime=2, dim=2, scaling=None, **EXACT).fit(train).fetch_model()
    unseen = decomposition.TICA(lagtime=2, scaling=None, **EXACT).fit(test).fetch_model()
    ours = SFA(2, lag=2, node_weights="degree").fit(train)
    found = vamp_score(ours.transform(test), lag=2, reversible=True)
    np.testing.assert_allclose(found, theirs.score(r=2, test_model=unseen), rtol=1e-7)
