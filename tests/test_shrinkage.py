"""Shrinkage works against over-fitting, per variable, and never fails."""

import numpy as np
import pytest
import scipy.linalg

from higsfa import GSFA, HGSFA, IGSFA, ISFA, SFA, HiGSFA, Layer
from higsfa.core.linalg import RANK_CUT


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


def sequence(Z):
    D = np.diff(Z, axis=0)
    return D.T @ D / len(D)


def by_the_book(Z, C_dot, shrinkage):
    """Features of standardised, expanded data where these vary, sorted by Delta with the noise; and Delta without."""
    Z = Z - Z.mean(axis=0)
    scale = Z.std(axis=0)
    kept = scale > 1e-10
    Z, C_dot = Z[:, kept] / scale[kept], C_dot[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept])
    R = Z.T @ Z / len(Z)
    values, vectors = np.linalg.eigh(R)
    V = vectors[:, values > np.finfo(float).eps ** RANK_CUT * values[-1]]
    more = shrinkage * np.eye(V.shape[1])
    shrunk, U = scipy.linalg.eigh(V.T @ C_dot @ V + 2 * more, V.T @ R @ V + more)
    B = V @ U
    variances = np.sum(B * (R @ B), axis=0)
    return shrunk, np.sum(B * (C_dot @ B), axis=0) / variances, Z @ B / np.sqrt(variances)


def data(units, seed=0, n=400):
    """Six mixed signals, slow to fast, and a column that depends on two others, in units that differ by much or not."""
    rng = np.random.default_rng(seed)
    time = np.arange(n)
    signals = np.column_stack([np.sin(time * f) for f in (0.02, 0.05, 0.13, 0.3)] + [rng.standard_normal((n, 2))])
    X = signals @ rng.standard_normal((6, 6)) + 0.3 * rng.standard_normal((n, 6))
    return np.column_stack([X, X[:, 0] - X[:, 1]]) * np.geomspace(1 / units, units, 7)


def expect_same(model, X, expected, n):
    shrunk, deltas, features = expected
    Y = model.transform(X)
    assert np.all(np.diff(shrunk[: n + 1]) > 1e-6)  # or the order is open
    np.testing.assert_allclose(model.delta_values_[:n], deltas[:n], atol=1e-8)
    signs = np.sign(np.sum(Y[:, :n] * features[:, :n], axis=0))
    np.testing.assert_allclose(Y[:, :n] * signs, features[:, :n], atol=1e-6)


@pytest.mark.parametrize("units", [1.0, 1e3])
@pytest.mark.parametrize("shrinkage", [1e-6, 0.01, 0.3, 10.0])
def test_shrinkage_adds_noise_to_every_standardised_variable(shrinkage, units):
    X = data(units)
    model = SFA(shrinkage=shrinkage).fit(X)
    assert model.rank_ == 6
    expect_same(model, X, by_the_book(X, sequence(X), shrinkage), 6)
    np.testing.assert_allclose(model.transform(X).var(axis=0), 1.0, atol=1e-9)


@pytest.mark.parametrize("shrinkage", [0.01, 0.3])
def test_expanded_variables_count_one_by_one(shrinkage):
    X = data(10.0, 1)[:, :4]
    x = X - X.mean(axis=0)
    Z = np.column_stack([x, *(x[:, i] * x[:, j] for i in range(4) for j in range(i, 4))])
    model = SFA(5, shrinkage=shrinkage, expansion="identity | quadratic").fit(X)
    expect_same(model, X, by_the_book(Z, sequence(Z), shrinkage), 5)


@pytest.mark.parametrize("shrinkage", [0.01, 0.3])
def test_classes_with_shrinkage_are_the_book(shrinkage):
    X = data(100.0, 2)
    y = np.digitize(X[:, 0] + X[:, 3] / 50, np.quantile(X[:, 0] + X[:, 3] / 50, [0.25, 0.5, 0.75]))
    D = np.zeros((7, 7))
    for label in range(4):
        part = X[y == label]
        difference = (part[:, None] - part[None, :]).reshape(-1, 7)
        D += difference.T @ difference / (len(part) - 1)
    model = GSFA(3, graph="clustered", shrinkage=shrinkage).fit(X, y)
    expect_same(model, X, by_the_book(X, D / len(X), shrinkage), 3)


def test_features_are_sorted_by_delta_with_the_noise():
    """A slow signal of little variance in its own direction loses its place, but keeps its Delta value."""
    rng, time = np.random.default_rng(0), np.arange(2000)
    common = np.sin(0.3 * time)
    X = np.column_stack([common, common + 1e-3 * np.sin(0.01 * time)]) + 1e-5 * rng.standard_normal((2000, 2))
    plain, shrunk = SFA().fit(X), SFA(shrinkage=0.01).fit(X)
    assert plain.delta_values_[0] < 0.001 < 0.08 < plain.delta_values_[1]
    assert shrunk.delta_values_[0] > 0.08 > 0.01 > shrunk.delta_values_[1]


@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize("cls", [ISFA, IGSFA])
def test_slow_part_counts_deltas_without_the_noise_among_the_first_components(cls, n_components):
    X = data(10.0, 3)
    options = {"graph": "sequence"} if cls is IGSFA else {}
    for threshold in (0.02, 0.05, 0.5, 1.5, 1.96):
        model = cls(n_components, shrinkage=0.2, delta_threshold=threshold, **options).fit(X)
        most = 6 if n_components is None else n_components
        _, deltas, _ = by_the_book(X, sequence(X), 0.2)
        widest = 7 if n_components is None else n_components
        assert model.n_slow_ == min(np.sum(deltas[:most] < threshold), widest - 1)
        known = len(model.delta_values_)  # features as fast as noise are left out
        np.testing.assert_allclose(model.delta_values_, deltas[:known], atol=1e-8)
        assert np.all(deltas[known:] > threshold)


def nearly_empty(seed):
    """Fields of 6 x 6 pixels, 0 but for one or two pixels of some samples."""
    rng = np.random.default_rng(seed)
    X, n = np.zeros((500, 6, 6), np.float32), int(rng.choice([3, 10, 100, 500]))
    for _ in range(rng.integers(1, 3)):
        lit = rng.permutation(500)[:n], rng.integers(0, 6, n), rng.integers(0, 6, n)
        X[lit] = rng.choice([1, 255]) * (rng.random(n) if seed % 2 else 1)
    return X, rng.integers(0, 3, 500)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shrinkage", [0.0, 0.01])
def test_nearly_empty_fields_never_fail(seed, shrinkage):
    X, y = nearly_empty(seed)
    layer = Layer((6, 6), n_components=18, pca=20, shrinkage=shrinkage, expansion="quadratic[:10]")
    for network in (HiGSFA, HGSFA):
        Y = network([layer], graph="clustered").fit(X, y).transform(X)
        assert Y.shape == (500, 18)
        assert np.all(np.isfinite(Y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scales_far_apart_and_directions_that_are_missing_never_fail(dtype):
    rng = np.random.default_rng(0)
    for _ in range(12):
        n, k = 60, int(rng.integers(1, 12))
        X = rng.standard_normal((n, k)) @ (rng.standard_normal((k, 12)) * 10.0 ** rng.uniform(-6, 6, 12))
        X = (X + 10.0 ** rng.uniform(-6, 3)).astype(dtype)
        for expansion in ("identity", "identity | quadratic"):
            model = SFA(shrinkage=float(rng.choice([1e-9, 1e-3, 1.0, 1e3])), expansion=expansion).fit(X)
            assert np.all(np.isfinite(model.transform(X)))
            assert np.all(np.isfinite(model.delta_values_))
