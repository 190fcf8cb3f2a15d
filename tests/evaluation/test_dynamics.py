"""Time scales, VAMP scores and intervals of Delta."""

import numpy as np
import pytest
import scipy.linalg

from higsfa import SFA
from higsfa.metrics import delta_intervals, delta_values, kinetic_variance, timescales, vamp_score

RNG = np.random.default_rng(0)


def decaying(n, tau, rng, n_features=1):
    """Noise whose correlations fall off as exp(-t / tau)."""
    a = np.exp(-1 / tau)
    noise = rng.normal(size=(n, n_features)) * np.sqrt(1 - a**2)
    x = np.empty_like(noise)
    x[0] = rng.normal(size=n_features)
    for t in range(1, n):
        x[t] = a * x[t - 1] + noise[t]
    return x


PARTS = [decaying(n, 10.0, RNG, 4) @ RNG.normal(size=(4, 4)) + 5.0 for n in (50, 3, 200)]


@pytest.mark.parametrize("lag", [1, 4, 40])
def test_vamp_scores_are_those_of_all_pairs_written_out(lag):
    A = np.concatenate([part[:-lag] for part in PARTS if len(part) > lag])
    B = np.concatenate([part[lag:] for part in PARTS if len(part) > lag])
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    K = np.linalg.solve(scipy.linalg.sqrtm(A.T @ A), A.T @ B) @ np.linalg.inv(scipy.linalg.sqrtm(B.T @ B))
    singular = np.linalg.svd(K.real, compute_uv=False)
    for r in (1, 2):
        np.testing.assert_allclose(vamp_score(PARTS, lag=lag, r=r), 1 + np.sum(singular**r), rtol=1e-9)
    groups = np.repeat([0, 1, 2], [50, 3, 200])
    X = np.concatenate(PARTS)
    np.testing.assert_allclose(vamp_score(X, lag=lag, groups=groups), vamp_score(PARTS, lag=lag), rtol=1e-12)


def test_reversible_scores_are_those_of_slow_features():
    sfa = SFA(lag=3, node_weights="degree").fit(PARTS)
    correlation = 1 - sfa.delta_values_ / 2
    np.testing.assert_allclose(vamp_score(PARTS, lag=3, reversible=True), 1 + np.sum(correlation**2), rtol=1e-9)
    np.testing.assert_allclose(timescales(sfa.delta_values_, 3), sfa.timescales_)
    np.testing.assert_allclose(kinetic_variance(sfa.delta_values_)[-1], 1.0)


def test_scores_do_not_depend_on_units_and_mixtures_nor_on_constant_features():
    mixed = [part @ RNG.normal(size=(4, 4)) * 0 + part @ np.diag([1e-3, 1, 1e3, 1]) for part in PARTS]
    wider = [np.column_stack([part, np.ones(len(part))]) for part in mixed]
    np.testing.assert_allclose(vamp_score(wider, lag=2), vamp_score(PARTS, lag=2), rtol=1e-8)


def test_missing_samples_make_no_pairs():
    X = PARTS[2].copy()
    X[80] = np.nan
    np.testing.assert_allclose(vamp_score(X), vamp_score([X[:80], X[81:]]), rtol=1e-12)
    with pytest.raises(ValueError, match="no recording is longer"):
        vamp_score(X, lag=500)


@pytest.mark.parametrize("tau", [3.0, 30.0])
def test_nine_of_ten_intervals_hold_the_delta_of_the_process(tau):
    expected, rng, n_repeats = 2 * (1 - np.exp(-1 / tau)), np.random.default_rng(3), 120
    X = decaying(4000, tau, rng, n_repeats)
    found = delta_intervals(X, block=int(10 * tau))
    share = np.mean((found.low < expected) & (expected < found.high))
    assert 0.8 <= share <= 0.97
    np.testing.assert_allclose(found.delta_values, delta_values(X, graph="sequence"), rtol=1e-9)


def test_intervals_come_with_recordings():
    found = delta_intervals(PARTS, n_resamples=200)
    assert found.block >= 15
    assert np.all((found.low < found.delta_values) & (found.delta_values < found.high))
    with pytest.raises(ValueError, match="level must be between"):
        delta_intervals(PARTS, level=1.5)
