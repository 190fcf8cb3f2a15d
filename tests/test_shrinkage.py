"""Shrinkage works against over-fitting."""

import numpy as np

from higsfa import SFA


def make_series(n, rng):
    slow = np.sin(np.arange(n) * 2 * np.pi / 150 + rng.uniform(0, 6))
    noise = rng.standard_normal((n, 150)) * np.geomspace(1, 0.05, 150)
    return slow, np.column_stack([slow + 0.5 * rng.standard_normal(n), noise])


def test_shrinkage_makes_features_of_few_samples_hold_on_new_data():
    rng = np.random.default_rng(0)
    _, X = make_series(300, rng)
    truth, unseen = make_series(2000, rng)

    def match(shrinkage):
        feature = SFA(1, shrinkage=shrinkage).fit(X).transform(unseen)[:, 0]
        return abs(np.corrcoef(feature, truth)[0, 1])

    assert match(0.3) > match(0.0) + 0.05


def test_shrinkage_equals_adding_white_noise_to_standardised_variables():
    import scipy.linalg

    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 5)) + np.sin(np.arange(400) / 20)[:, None]
    Z, D = X - X.mean(axis=0), np.diff(X, axis=0)
    C, C_dot = Z.T @ Z / len(Z), D.T @ D / len(D)
    noise = 0.2 * np.diag(np.diag(C))
    slowest = scipy.linalg.eigh(C_dot + 2 * noise, C + noise)[1][:, 0]
    feature = SFA(1, shrinkage=0.2).fit_transform(X)[:, 0]
    assert abs(np.corrcoef(Z @ slowest, feature)[0, 1]) > 1 - 1e-9
    assert np.isclose(feature.var(), 1.0)
